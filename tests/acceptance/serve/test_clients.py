"""Other people's programs as clients: what they sent is recorded here, and where they are installed
they run.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import tomlkit
from openai import OpenAI

from fugu_cli.cli.client_files import EndpointForClients, remove_client, write_client
from fugu_cli.errors import UsageError
from fugu_cli.messages import Call, Prompt, Reply
from fugu_cli.server.model_list import served_models
from tests.acceptance import loopback
from tests.acceptance.driving import Agent, Place
from tests.acceptance.loopback import Asked, Loopback, Says, Use
from tests.acceptance.serve.endpoint import SMALL, endpoint, says
from tests.acceptance.test_pictures_served import serving

RECORDED = sorted((Path(__file__).parent / "recorded").glob("*.json"))


def offered(tools: list[dict[str, Any]], space: str = "") -> list[str]:
    """The names of the client's own tools, as agents are offered them."""
    names: list[str] = []
    for tool in tools:
        if tool.get("type") == "namespace":
            names += offered(tool["tools"], f"{tool['name']}__")
        elif tool.get("type") != "web_search":
            names.append(space + tool.get("function", tool)["name"])
    return names


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda path: path.stem)
def test_what_a_client_sent_is_answered_with_all_its_tools(tmp_path: Path, recorded: Path) -> None:
    sent = json.loads(recorded.read_text())
    with endpoint(tmp_path, says("it is done")).serving() as place:
        answer = httpx.post(f"{place.url}{sent['path']}", json=sent["body"])
    assert (answer.status_code, "it" in answer.text, "done" in answer.text) == (200, True, True)
    assert [tool.name for tool in place.agents["small"].shown[0].tools] == offered(
        sent["body"].get("tools", [])
    )


def test_a_tool_in_a_namespace_is_called_by_its_own_name(tmp_path: Path) -> None:
    sent = json.loads((Path(__file__).parent / "recorded" / "codex.json").read_text())
    calls = (
        Call.make("x", "mcp__weather__forecast", city="Bonn"),
        Call.make("y", "exec_command", cmd="ls"),
    )

    def react(prompt: Prompt) -> Reply:
        return Reply(calls=calls, stop="calls")

    with endpoint(tmp_path, react).serving() as place:
        answer = httpx.post(
            f"{place.url}/v1/responses", json={**sent["body"], "stream": False}
        ).json()
        history = place.agents["small"].shown[0].messages
    made = [
        (item["type"], item.get("namespace"), item["name"], item["arguments"])
        for item in answer["output"]
    ]
    assert made == [
        ("function_call", "mcp__weather", "forecast", '{"city": "Bonn"}'),
        ("function_call", None, "exec_command", '{"cmd": "ls"}'),
    ]
    assert [
        call.tool for message in history if message.type == "agent" for call in message.calls
    ] == ["mcp__weather__forecast"]
    assert answer["fugu"]["left_out"] == ["web_search"]


def test_a_long_name_in_a_namespace_is_one_that_providers_take(tmp_path: Path) -> None:
    names = [f"{'x' * 50}{number}" for number in range(2)]
    tools = [
        {
            "type": "namespace",
            "name": "n" * 30,
            "tools": [{"type": "function", "name": name} for name in names],
        }
    ]

    def react(prompt: Prompt) -> Reply:
        return Reply(calls=(Call.make("x", prompt.tools[1].name),), stop="calls")

    with endpoint(tmp_path, react).serving() as place:
        asked = {"model": "small", "input": "hi", "tools": tools}
        answer = httpx.post(f"{place.url}/v1/responses", json=asked).json()
    shown = [tool.name for tool in place.agents["small"].shown[0].tools]
    assert ([len(name) for name in shown], len(set(shown))) == ([64, 64], 2)
    assert [(item["namespace"], item["name"]) for item in answer["output"]] == [
        ("n" * 30, names[1])
    ]


@pytest.mark.parametrize("stream", [False, True])
def test_tools_that_a_client_names_by_type_come_back_in_the_form_of_the_type(
    tmp_path: Path, stream: bool
) -> None:
    calls = (
        Call.make("a", "shell", commands=["ls", "pwd"], timeout_ms=5),
        Call.make("b", "local_shell", command=["ls"], working_directory="/x"),
        Call.make("c", "apply_patch", type="update_file", path="a.py", diff="@@\n-x\n+y\n"),
        Call.make("d", "extra", n=1),
    )
    extra = {"type": "function", "name": "extra", "parameters": {"type": "object"}}
    added = {"type": "additional_tools", "role": "developer", "tools": [extra]}
    asked: dict[str, Any] = {
        "model": "small",
        "input": [added, {"role": "user", "content": "go"}],
        "tools": [
            {"type": "shell", "environment": {"type": "local"}},
            {"type": "local_shell"},
            {"type": "apply_patch"},
        ],
    }
    outputs = [
        {
            "type": "shell_call_output",
            "call_id": "a",
            "output": [
                {"stdout": "a.py\n", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}},
                {"stdout": "", "stderr": "slow", "outcome": {"type": "timeout"}},
            ],
        },
        {"type": "local_shell_call_output", "id": "ITEM", "output": "a.py"},
        {"type": "apply_patch_call_output", "call_id": "c", "status": "failed", "output": "no"},
        {"type": "function_call_output", "call_id": "d", "output": "1"},
    ]

    def react(prompt: Prompt) -> Reply:
        if any(message.type == "tool" for message in prompt.messages):
            return Reply(text="done")
        return Reply(calls=calls, stop="calls")

    with endpoint(tmp_path, react).serving() as place:
        sdk = OpenAI(base_url=f"{place.url}/v1", api_key="x", max_retries=0)
        if stream:
            events = list(sdk.responses.create(**asked, stream=True))
            numbers = [event.sequence_number for event in events]
            assert numbers == list(range(len(events)))
            response = events[-1].response  # type: ignore[union-attr]
        else:
            response = sdk.responses.create(**asked)
        items = [item.model_dump(exclude_none=True) for item in response.output]
        for item, output in zip(items, outputs, strict=True):
            output["call_id"] = item["call_id"]
        outputs[1]["id"] = items[1]["id"]
        del outputs[1]["call_id"]
        sdk.responses.create(
            model="small", tools=asked["tools"], input=[*asked["input"], *items, *outputs]
        )
        shown = place.agents["small"].shown
    assert [item["type"] for item in items] == [
        "shell_call",
        "local_shell_call",
        "apply_patch_call",
        "function_call",
    ]
    assert items[0]["action"] == {"commands": ["ls", "pwd"], "timeout_ms": 5}
    assert items[1]["action"] == {
        "type": "exec",
        "command": ["ls"],
        "env": {},
        "working_directory": "/x",
    }
    assert items[2]["operation"] == {
        "type": "update_file",
        "path": "a.py",
        "diff": "@@\n-x\n+y\n",
    }
    assert [tool.name for tool in shown[0].tools] == [
        "shell",
        "local_shell",
        "apply_patch",
        "extra",
    ]
    assert [call.tool for call in shown[1].messages[1].calls] == [call.tool for call in calls]  # type: ignore[union-attr]
    results = [message for message in shown[1].messages if message.type == "tool"]
    assert [result.call for result in results] == [item["call_id"] for item in items]
    assert [(result.tool, result.text, result.ok) for result in results] == [
        ("shell", "a.py\n(exit code 0)\nslow\n(timed out)", True),
        ("local_shell", "a.py", True),
        ("apply_patch", "no", False),
        ("extra", "1", True),
    ]


@dataclass(frozen=True)
class Client:
    """A program with tools of its own. `written`: its name for `fugu serve --write-client`, "" if
    `variables` point it at the endpoint, whose address is `ADDRESS` there.
    """

    command: tuple[str, ...]
    variables: Mapping[str, str]
    written: str
    tool: str
    arguments: Mapping[str, object]


COMMAND = "echo made > made.txt && cat made.txt"
CLIENTS = {
    "codex": Client(
        ("codex", "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "make it"),
        {},
        "codex",
        "exec_command",
        {"cmd": COMMAND},
    ),
    "claude": Client(
        ("claude", "-p", "make it", "--dangerously-skip-permissions"),
        {"IS_SANDBOX": "1"},
        "claude-code",
        "Bash",
        {"command": COMMAND},
    ),
    "opencode": Client(
        ("opencode", "run", "make it"),
        {},
        "opencode",
        "bash",
        {"command": COMMAND, "description": "makes it"},
    ),
    "qwen": Client(
        ("qwen", "--auth-type", "openai", "-y", "-p", "make it"),
        {"OPENAI_BASE_URL": "ADDRESS/v1", "OPENAI_API_KEY": "unused", "OPENAI_MODEL": "fugu"},
        "",
        "run_shell_command",
        {"command": COMMAND, "is_background": False},
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("client", "path", "before"),
    [
        ("codex", ".codex/config.toml", '# mine\nmodel = "gpt" # kept\n\n[tui]\ntheme = "a"\n'),
        ("claude-code", ".claude/settings.json", '{"env": {"ANTHROPIC_MODEL": "opus", "X": "a"}}'),
        ("opencode", ".config/opencode/opencode.json", None),
    ],
)
def test_a_clients_configuration_is_written_and_taken_back(
    tmp_path: Path, client: str, path: str, before: str | None
) -> None:
    environ = {"HOME": str(tmp_path)}
    data = tmp_path / "data"
    file = tmp_path / path
    if before is not None:
        file.parent.mkdir(parents=True)
        file.write_text(before)
    (entry,) = served_models({"fugu-1": SMALL}, {}, created=0)[:1]
    with_token = EndpointForClients("http://127.0.0.1:1", [entry], "MY_SECRET")
    without = EndpointForClients("http://127.0.0.1:2", [entry], "")
    name: Any = client

    write_client(name, with_token, data, environ)
    assert "127.0.0.1:1" in file.read_text() and "MY_SECRET" in file.read_text()
    write_client(name, without, data, environ)
    assert "127.0.0.1:2" in file.read_text() and "MY_SECRET" not in file.read_text()
    assert remove_client(name, data) == file
    assert (file.read_text() if file.exists() else None) == before
    assert remove_client(name, data) is None

    write_client(name, without, data, environ)
    changed = file.read_text().replace('"a"', '"b"')
    file.write_text(changed)
    remove_client(name, data)
    if before is not None:
        values = tomlkit.parse if path.endswith("toml") else json.loads
        assert values(file.read_text()) == values(before.replace('"a"', '"b"'))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("{ no")
    with pytest.raises(UsageError, match="cannot be parsed"):
        write_client(name, without, data, environ)
    assert file.read_text() == "{ no"


@pytest.fixture(scope="module")
def server() -> Iterator[Loopback]:
    with loopback.running() as server:
        yield server


def place_of(folder: Path, server: Loopback) -> Place:
    place = Place(folder, server.url)
    place.repo.mkdir(parents=True)
    place.home.mkdir()
    place.configure(Agent("one"), Agent("two", "strong"))
    return place


@contextmanager
def started(client: Client, place: Place, url: str) -> Iterator[subprocess.Popen[str]]:
    """The client at work in the repository; it and what it began are ended with the block."""
    if client.written:
        port = url.rpartition(":")[2]
        place.fugu("serve", "--write-client", client.written, "--port", port)
    variables = {name: value.replace("ADDRESS", url) for name, value in client.variables.items()}
    folders = {name: value for name, value in place.environ().items() if name.startswith("XDG_")}
    environ = {"PATH": os.environ["PATH"], "HOME": str(place.home), **folders, **variables}
    with subprocess.Popen(
        client.command, cwd=place.repo, env=environ, text=True, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as made:  # fmt: skip
        try:
            yield made
        finally:
            if made.poll() is None:
                os.killpg(made.pid, signal.SIGKILL)


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_works_with_its_own_tools(tmp_path: Path, server: Loopback, name: str) -> None:
    client = CLIENTS[name]
    if shutil.which(client.command[0]) is None:
        pytest.skip(f"{client.command[0]} is not installed")
    place = place_of(tmp_path, server)

    def react(asked: Asked) -> Says:
        if asked.results or not asked.body.get("tools"):
            return Says("It is made.")
        return Says("I make it.", (Use(client.tool, client.arguments),))

    server.react("one", react)
    server.play("two", Says("ACCEPT"))
    with serving(place) as url, started(client, place, url) as made:
        said, _ = made.communicate(timeout=120)
    assert (made.returncode, "It is made." in said) == (0, True), said
    assert "metadata" not in said
    assert (place.repo / "made.txt").read_text() == "made\n"


@pytest.mark.parametrize(
    ("name", "words"), [("codex", "ran out of room"), ("claude", "Prompt is too long")]
)
def test_a_client_is_told_that_its_conversation_is_too_long(
    tmp_path: Path, server: Loopback, name: str, words: str
) -> None:
    client = CLIENTS[name]
    if shutil.which(client.command[0]) is None:
        pytest.skip(f"{client.command[0]} is not installed")
    place = place_of(tmp_path, server)
    place.configure(Agent("one", more="context = 600"))
    server.play("one", Says("A title"))
    with serving(place) as url, started(client, place, url) as made:
        said, _ = made.communicate(timeout=120)
    assert words in said
    assert [asked for asked in server.asked("one") if asked.body.get("tools")] == []
