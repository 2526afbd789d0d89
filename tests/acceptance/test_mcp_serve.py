"""`fugu mcp serve` with the SDK's own client: approvals by forms, progress, cancelling, folders,
clients that leave.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp_types import CallToolResult, ElicitResult, ListRootsResult, Root

from fugu_cli.session import log as logs
from fugu_cli.session.events import Interrupted, Permitted
from tests.acceptance.driving import Agent, Place
from tests.acceptance.loopback import Loopback, Says, Use
from tests.acceptance.test_run import ACCEPT, DONE, READ, WRITE

WAIT = Says("I wait.", (Use("bash", {"command": "echo begun; sleep 300", "timeout": 600}),))


class Human:
    """Answers forms with `answer`, and keeps what was asked."""

    def __init__(self, answer: dict[str, Any]) -> None:
        self.answer = answer
        self.forms: list[Any] = []

    async def __call__(self, context: object, params: Any) -> ElicitResult:
        self.forms.append(params)
        return ElicitResult(action="accept", content=self.answer)


@asynccontextmanager
async def connected(
    place: Place, *flags: str, human: Human | None = None, roots: list[Path] | None = None
) -> AsyncIterator[ClientSession]:
    """A client that has greeted the server."""

    async def list_roots(context: object) -> ListRootsResult:
        return ListRootsResult(roots=[Root(uri=path.as_uri()) for path in roots or ()])

    command = ["-m", "fugu_cli", "mcp", "serve", *flags]
    server = StdioServerParameters(
        command=sys.executable, args=command, env=place.environ(), cwd=place.repo
    )
    with (place.folder / "stderr.txt").open("w") as errors:
        async with (
            stdio_client(server, errlog=errors) as streams,
            ClientSession(
                *streams,
                elicitation_callback=human,
                list_roots_callback=list_roots if roots is not None else None,
            ) as session,
        ):
            await session.initialize()
            yield session
    assert "Traceback" not in (place.folder / "stderr.txt").read_text()


def told(result: CallToolResult) -> str:
    """The text of a result."""
    [block] = result.content
    return str(getattr(block, "text", ""))


def fixing(place: Place, server: Loopback) -> None:
    place.configure(Agent("worker"), Agent("judge", "strong"))
    server.play("worker", READ, WRITE, DONE)
    server.play("judge", ACCEPT)


def run(work: Callable[[], Any]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(120):
            await work()

    asyncio.run(limited())


def test_an_edit_is_asked_about_by_a_form_done_and_told_and_the_session_read(
    place: Place, server: Loopback
) -> None:
    fixing(place, server)
    human = Human({"answer": "once"})
    lines: list[str] = []

    async def heard(progress: float, total: float | None, message: str | None) -> None:
        lines.append(message or "")

    async def work() -> None:
        async with connected(place, "--permission-mode", "ask", human=human) as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert list(tools) == ["run", "review", "ask_agent", "sessions"]
            assert "worker (worker), judge (judge)" in (tools["ask_agent"].description or "")
            result = await client.call_tool(
                "run", {"prompt": "fix the tests"}, progress_callback=heard
            )
            assert isinstance(result, CallToolResult)
            assert not result.is_error, told(result)
            assert told(result).startswith("I wrote what was missing.\n\n[fugu: session ")
            assert "changed calc.txt" in told(result)
            fields = result.structured_content or {}
            assert (fields["subtype"], fields["fugu"]["verified_by"]) == ("success", "judge")
            [form] = human.forms
            assert form.message.startswith("Allow write?\n\n")
            assert "-broken\n+fixed" in form.message
            assert form.requested_schema["properties"]["answer"]["enum"] == [
                "once",
                "session",
                "no",
            ]
            assert {"turn 1: worker as worker", "write calc.txt"} <= set(lines)
            listed = await client.call_tool("sessions", {})
            assert isinstance(listed, CallToolResult)
            assert fields["session_id"] in told(listed)
            read = await client.call_tool("sessions", {"session_id": fields["session_id"]})
            assert isinstance(read, CallToolResult)
            assert told(read) == (
                "User: fix the tests\n[changed: calc.txt]\nfugu: I wrote what was missing."
            )
            assert (read.structured_content or {})["conversation"] == told(read)

    run(work)
    assert (place.repo / "calc.txt").read_text() == "fixed\n"


def test_a_plan_and_a_question_of_an_agent_are_forms(place: Place, server: Loopback) -> None:
    fixing(place, server)
    server.play("worker", Says("First this, then that."), READ, WRITE, DONE)
    human = Human({"answer": "session"})
    question = Use("ask_user", {"question": "Which colour?", "choices": ["red", "blue"]})

    async def work() -> None:
        async with connected(place, human=human) as client:
            planned = await client.call_tool("run", {"prompt": "fix the tests", "plan": True})
            assert isinstance(planned, CallToolResult)
            assert "changed calc.txt" in told(planned)
            [form] = human.forms
            assert form.message == "Carry out the plan of worker?\n\nFirst this, then that."
            human.answer = {"answer": "blue"}
            server.play("worker", Says("", (question,)), Says("Blue it is."))
            await client.call_tool("run", {"prompt": "paint it"})
            assert human.forms[1].requested_schema["properties"]["answer"]["enum"] == [
                "red",
                "blue",
            ]
            assert server.asked("worker")[-1].results[-1] == "The user answers: blue"

    run(work)


@pytest.mark.parametrize(
    ("human", "by", "word"),
    [
        (None, "headless", "(write); this client cannot ask its user for approvals (elicitation)"),
        (Human({"answer": "always"}), "user", "1 call not allowed (write)"),
    ],
    ids=["no forms", "an answer that was not offered"],
)
def test_what_nobody_allows_is_not_done_and_that_is_told(
    place: Place, server: Loopback, human: Human | None, by: str, word: str
) -> None:
    fixing(place, server)

    async def work() -> None:
        async with connected(place, "--permission-mode", "ask", human=human) as client:
            result = await client.call_tool("run", {"prompt": "fix the tests"})
            assert isinstance(result, CallToolResult)
            assert word in told(result)
            assert word in (result.structured_content or {})["note"]

    run(work)
    assert (place.repo / "calc.txt").read_text() == "broken\n"
    denied = [
        event.by for event in place.events() if isinstance(event, Permitted) and not event.allowed
    ]
    assert denied == [by]


def test_an_asked_agent_that_may_not_write_is_not_said_to_lack_an_approval(
    place: Place, server: Loopback
) -> None:
    place.configure(Agent("worker"), Agent("judge"))
    server.play(
        "judge", Says("", (Use("write", {"path": "new.txt", "content": "x"}),)), Says("No.")
    )

    async def work() -> None:
        async with connected(place) as client:
            arguments = {"agent": "judge", "question": "may you write?"}
            result = await client.call_tool("ask_agent", arguments)
            assert isinstance(result, CallToolResult)
            assert "1 call not allowed (write)" in told(result)
            assert "elicitation" not in told(result)

    run(work)
    assert not (place.repo / "new.txt").exists()


def test_a_cancelled_call_ends_its_processes_and_a_second_one_is_refused_meanwhile(
    place: Place, server: Loopback
) -> None:
    place.configure(Agent("worker"), Agent("judge", "strong"), more='allow = ["bash"]')
    server.play("worker", WAIT)
    server.play("judge", Says("It is about a file."))
    begun = asyncio.Event()

    async def heard(progress: float, total: float | None, message: str | None) -> None:
        if "sleep 300" in (message or ""):
            begun.set()

    async def work() -> None:
        async with connected(place) as client:

            async def wait_in_vain() -> None:
                await client.call_tool("run", {"prompt": "wait"}, progress_callback=heard)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(wait_in_vain)
                await begun.wait()
                second = await client.call_tool("run", {"prompt": "fix the tests"})
                assert isinstance(second, CallToolResult)
                assert second.is_error
                assert "is at work in" in told(second)
                asked = await client.call_tool(
                    "ask_agent", {"agent": "judge", "question": "what is it about?"}
                )
                assert isinstance(asked, CallToolResult)
                assert told(asked).startswith("It is about a file.")
                tasks.cancel_scope.cancel()
            async with asyncio.timeout(30):
                while any("sleep 300" in command for command in place.left_behind()):
                    await asyncio.sleep(0.1)
            server.play("worker", READ, WRITE, DONE)
            server.play("judge", ACCEPT)
            again = await client.call_tool("run", {"prompt": "fix the tests"})
            assert isinstance(again, CallToolResult)
            assert not again.is_error, told(again)

    run(work)
    interrupted = [
        record
        for path in place.sessions()
        for record in logs.read(path)
        if isinstance(record.event, Interrupted)
    ]
    assert len(interrupted) == 1


def test_folders_outside_those_that_are_open_and_bad_arguments_are_refused(
    place: Place, server: Loopback
) -> None:
    fixing(place, server)
    sub = place.repo / "part"
    sub.mkdir()
    outside = place.folder / "outside"
    outside.mkdir()
    (place.repo / "away").symlink_to(outside)

    async def faults(client: ClientSession, *calls: tuple[str, dict[str, Any]]) -> list[str]:
        results = []
        for name, arguments in calls:
            result = await client.call_tool(name, arguments)
            assert isinstance(result, CallToolResult)
            assert result.is_error
            results.append(told(result))
        return results

    async def work() -> None:
        async with connected(place) as client:
            texts = await faults(
                client,
                ("run", {"prompt": "x", "cwd": str(outside)}),
                ("run", {"prompt": "x", "cwd": str(place.repo / "away")}),
                ("sessions", {"cwd": "part"}),
                ("run", {"prompt": "x", "session_id": "../../x"}),
                ("ask_agent", {"question": "x", "agent": "nobody"}),
                ("run", {"prompt": "", "permission_mode": "yolo"}),
            )
            refused = f"{outside} is outside the folders that are open to this client"
            assert [text.partition(";")[0] for text in texts[:5]] == [
                refused,
                refused,
                "part is not the absolute path of a folder",
                f"there is no session '../../x' in {place.repo}",
                "there is no agent 'nobody' that may work here",
            ]
            assert "permission_mode: Extra inputs are not permitted" in texts[5]
        place.variables["FUGU_CALL"] = "as a session's server has it"
        async with connected(place, roots=[sub]) as client:
            nested, outside_roots = await faults(client, ("run", {"prompt": "x"}), ("sessions", {}))
            assert nested.startswith("a session of fugu started this server")
            assert outside_roots.startswith(f"{place.repo} is outside the folders")

    run(work)
    assert place.sessions() == []


def test_a_client_that_dies_leaves_nothing_and_lines_that_are_no_requests_are_answered(
    place: Place, server: Loopback
) -> None:
    place.configure(Agent("worker"), more='allow = ["bash"]')
    server.play("worker", WAIT)
    process = subprocess.Popen(
        [sys.executable, "-m", "fugu_cli", "mcp", "serve"],
        cwd=place.repo,
        env=place.environ(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None

    def send(**message: Any) -> None:
        assert process.stdin is not None
        process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        process.stdin.flush()

    process.stdin.write(b"nonsense\n")
    send(id=1, method="sessions/create")
    version = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
    send(id=9, method="tools/list", params={"_meta": version})
    client = {"name": "t", "version": "1"}
    send(
        id=2,
        method="initialize",
        params={"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client},
    )
    answers = {
        answer["id"]: answer for answer in (json.loads(process.stdout.readline()) for _ in range(4))
    }
    codes = {id: answer.get("error", {}).get("code") for id, answer in answers.items()}
    assert codes == {None: -32700, 1: -32601, 9: -32022, 2: None}
    assert "2025-11-25" in answers[9]["error"]["data"]["supported"]
    assert answers[2]["result"]["protocolVersion"] == "2025-06-18"
    send(method="notifications/initialized")
    arguments = {"prompt": "wait"}
    send(
        id=3,
        method="tools/call",
        params={"name": "run", "arguments": arguments, "_meta": {"progressToken": 3}},
    )
    while b"sleep 300" not in process.stdout.readline():
        pass
    process.stdin.close()
    process.stdout.close()
    assert process.wait(30) == 0
    assert any(isinstance(event, Interrupted) for event in place.events())


def test_a_client_reads_why_fugu_does_not_start(place: Place) -> None:
    settings = place.folder / "managed.toml"
    settings.write_text("no_such_key = 1\n")
    program = (
        "import sys; from pathlib import Path; from fugu_cli.config import loader; "
        f"loader.MANAGED_FILE = Path({str(settings)!r}); sys.argv[1:] = ['mcp', 'serve']; "
        "from fugu_cli.__main__ import main; main()"
    )
    greeting = {"jsonrpc": "2.0", "id": 7, "method": "initialize", "params": {}}
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps(greeting).encode() + b"\n",
        capture_output=True,
        env=place.environ(),
        cwd=place.repo,
        check=False,
    )
    answer = json.loads(done.stdout)
    sentence = f"{settings}: unknown key 'no_such_key'; an administrator must mend it"
    assert (answer["id"], answer["error"]["message"].startswith(sentence)) == (7, True)
    assert (done.returncode, b"unknown key 'no_such_key'" in done.stderr) == (1, True)
