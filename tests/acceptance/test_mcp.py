"""MCP servers with the real binary: called by a model, kept out where nobody trusts them, ended
with fugu.
"""

import json
import os
import re
import signal
import sys
import threading
import time
from pathlib import Path

from fugu_cli.safety.prompt_injection import INJECTION_MARK as DATA
from fugu_cli.session.events import Asked, Permitted, ToolRan
from tests.acceptance.driving import MARK, Agent, Place
from tests.acceptance.loopback import Asked as LoopbackAsked
from tests.acceptance.loopback import Loopback, Says, Use, once_there
from tests.acceptance.test_run import ACCEPT, DONE, READ, WRITE
from tests.unit.ui.tui.terminal import Terminal

SDK = Path(__file__).parents[1] / "unit" / "extensions" / "mcp" / "sdk_server.py"
SMALL = Path(__file__).parents[1] / "unit" / "extensions" / "mcp" / "server.py"
TOKEN = "quite-secret-4711"


def served(place: Place, *agents: Agent, allow: str = '"mcp__small__*"') -> None:
    """A server of the user's that works in the repository, and the pool."""
    env = {MARK: f"${{{MARK}}}", "MY_TOKEN": TOKEN, "LISTED": str(place.folder / "listed")}
    entry = {"command": sys.executable, "args": [str(SMALL)], "env": env, "cwd": "."}
    (place.home / ".mcp.json").write_text(json.dumps({"mcpServers": {"small": entry}}))
    place.configure(*agents, more=f'test_command = "sh check.sh"\nallow = [{allow}]')


def offered(server: Loopback, agent: str) -> list[str]:
    """Names of the tools in the agent's newest request."""
    return [tool["function"]["name"] for tool in server.asked(agent)[-1].body["tools"]]


def test_a_model_calls_a_server_and_works_with_its_answer(place: Place, server: Loopback) -> None:
    served(place, Agent("worker"), Agent("judge", "strong"))
    calls = tuple(
        Use(f"mcp__small__{name}", {"text": "grüße"})
        for name in ("echo", "write", "secret", "speak")
    )
    server.play(
        "worker", once_there(place.folder / "listed"), Says("I ask.", calls), READ, WRITE, DONE
    )
    server.play("judge", Says("", calls[:2]), ACCEPT)
    done = place.fugu("run", "--trust", "fix the tests")
    assert done.code == 0, done.err
    assert (place.repo / "calc.txt").read_text() == "fixed\n"
    read, refused = server.asked("judge")[1].results[-2:]
    assert (read, "a Verifier changes nothing" in refused) == ("you said grüße", True)
    assert {"read", "bash", "mcp__small__echo", "mcp__small__write"} <= set(
        offered(server, "worker")
    )
    assert offered(server, "judge") == offered(server, "worker")
    echoed, written, secret, spoken = server.asked("worker")[2].results[-4:]
    assert (echoed, written) == ("you said grüße", "written")
    assert (secret.startswith("the token is [secret "), spoken.startswith(DATA)) == (True, True)
    ran = [
        event
        for event in place.events()
        if isinstance(event, ToolRan) and event.turn == 1 and event.call.tool.startswith("mcp")
    ]
    assert [[change.path for change in event.changes] for event in ran] == [
        [],
        ["calls.txt", "made.txt"],
        [],
        [],
    ]
    assert TOKEN not in place.sessions()[-1].read_text()


def test_a_folder_that_is_not_trusted_starts_nothing_and_without_a_rule_nothing_is_called(
    place: Place, server: Loopback
) -> None:
    entry = {"command": sys.executable, "args": [str(SMALL)]}
    place.files({".mcp.json": json.dumps({"mcpServers": {"small": entry}})})
    place.commit()
    place.configure(Agent("worker"), Agent("judge", "strong"), more='test_command = "sh check.sh"')
    call = Says("", (Use("mcp__small__write", {"text": "x"}),))
    server.play("worker", call, READ, WRITE, DONE)
    server.play("judge", ACCEPT)
    done = place.fugu("run", "fix the tests")
    assert done.code == 0, done.err
    sentence = "names MCP servers (small): none is started until you run `fugu trust` here"
    assert done.err.count(sentence) == 1
    assert [name for name in offered(server, "worker") if name.startswith("mcp")] == []
    (place.repo / "calc.txt").write_text("broken\n")
    (place.repo / ".mcp.json").unlink()
    served(place, Agent("worker"), Agent("judge", "strong"), allow="")
    server.play("worker", once_there(place.folder / "listed"), call, READ, WRITE, DONE)
    server.play("judge", ACCEPT)
    done = place.fugu("run", "--trust", "fix the tests")
    assert done.code == 0, done.err
    answers = [
        event
        for event in place.events()
        if isinstance(event, Permitted) and event.call.tool.startswith("mcp")
    ]
    assert [(event.allowed, event.by) for event in answers] == [(False, "headless")]
    assert (
        "Not allowed: fugu cannot tell what `mcp__small__write` does. The user can allow it with "
        "--allow 'mcp__small__write'" in server.asked("worker")[-1].results
    )
    assert not (place.repo / "made.txt").exists()


def broken(place: Place) -> None:
    """Servers of which none works, each in its own way, and the pool."""
    program = {"command": sys.executable, "env": {MARK: f"${{{MARK}}}", "MY_TOKEN": TOKEN}}
    servers = {
        "dead": {
            "command": sys.executable,
            "env": {**program["env"], "MY_TOKEN": TOKEN},
            "args": [str(SMALL), "leaves"],
        },
        "mute": {**program, "args": [str(SMALL), "deaf"]},
        "locked": {"type": "http", "url": f"{place.url}/no-such-page"},
        "odd": {**program, "args": [str(SMALL), "schemas"]},
    }
    (place.home / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))
    place.configure(Agent("worker", more='protocol = "native"'))


LINES = (
    "the MCP server dead does not work: it ended with exit code 1; its last words: no database "
    "at [secret ",
    "not ready yet, so their tools join later: the MCP servers mute",
    "the MCP server locked does not work: it wants a login (HTTP 401)",
    "the tool worded of the MCP server odd is left out: its schema is not an object",
)


LATE = r"not ready yet, so their tools join later: the MCP servers .*\bmute\b"


def test_what_does_not_work_costs_a_line_in_text_mode_and_the_request_goes_on(
    place: Place, server: Loopback
) -> None:
    broken(place)
    said = threading.Event()

    def once_said(asked: LoopbackAsked) -> Says:
        said.wait(60)
        return Says("Hello.")

    server.play("worker", once_said)
    process = place.start("run", "greet me")
    assert process.stderr is not None and process.stdout is not None
    heard = ""
    while any(line not in heard for line in (LINES[0], *LINES[2:])) or not re.search(LATE, heard):
        heard += process.stderr.readline().decode()
    said.set()
    assert (process.stdout.read(), process.wait(60)) == (b"Hello.\n", 0), (
        process.stderr.read().decode()
    )
    heard += process.stderr.read().decode()
    process.stderr.close()
    process.stdout.close()
    assert [heard.count(line) for line in (LINES[0], *LINES[2:])] == [1, 1, 1]


def test_what_does_not_work_costs_a_line_on_the_screen(place: Place, server: Loopback) -> None:
    broken(place)
    server.play("worker", Says("Hello."))
    terminal = Terminal([sys.executable, "-m", "fugu_cli"], place.repo, place.environ(), (200, 40))
    terminal.sees(LINES[0], *LINES[2:])
    terminal.keys("greet me\r")
    terminal.sees("Hello.", LINES[1])
    terminal.keys("\x04")
    assert terminal.ended() == 0


def with_sdk_server(place: Place, allow: str = "") -> None:
    """One server made with the SDK, and an agent."""
    entry = {"command": sys.executable, "args": [str(SDK)], "env": {MARK: f"${{{MARK}}}"}}
    (place.home / ".mcp.json").write_text(json.dumps({"mcpServers": {"sdk": entry}}))
    place.configure(Agent("worker", more='protocol = "native"'), more=f"allow = [{allow}]")


def test_a_prompt_of_a_server_is_a_request_and_a_resource_is_attached(
    place: Place, server: Loopback
) -> None:
    with_sdk_server(place)
    server.play("worker", Says("Gladly."))
    done = place.fugu("run", "/mcp:sdk:plan Oslo")
    assert (done.code, done.out) == (0, "Gladly.\n"), done.err
    assert [(one.text, one.typed) for one in place.events() if isinstance(one, Asked)] == [
        ("Plan 1 days in Oslo.", "/mcp:sdk:plan Oslo")
    ]
    assert "Plan 1 days in Oslo." in str(server.asked("worker")[0].body["messages"][-1]["content"])
    done = place.fugu("run", "/mcp:sdk:plan")
    assert (done.code, "the prompt plan got 0 arguments" in done.err) == (1, True)
    server.play("worker", once_there(place.home), Says("Bread."))
    done = place.fugu("run", "what is in @sdk:notes://today?")
    assert (done.code, done.out) == (0, "Bread.\n"), done.err
    (asked,) = (one for one in place.events() if isinstance(one, Asked))
    assert asked.attachments == ("sdk:notes://today",)


def test_what_a_server_asks_is_typed_on_the_screen(place: Place, server: Loopback) -> None:
    with_sdk_server(place, '"mcp__sdk__*"')
    server.play("worker", Says("", (Use("mcp__sdk__book"),)), Says("Booked."))
    terminal = Terminal([sys.executable, "-m", "fugu_cli"], place.repo, place.environ(), (120, 40))
    terminal.sees("coordinator: cascade")
    terminal.keys("/mcp:sdk:talk\r")  # it waits for the server
    fields = {
        "Day: of the trip": "Monday",
        "Seats": "2",
        "Colour (red, blue)": "red",
        "Insured": "y",
    }
    for heading, typed in fields.items():
        terminal.sees("sdk asks: When do you travel?", heading)
        terminal.keys(f"{typed}\r")
    terminal.sees("Booked.")
    filled = '{"day":"Monday","seats":2,"colour":"red","insured":true}'
    assert server.asked("worker")[1].results[-1] == f"accept: {filled}"
    terminal.keys("\x04")
    assert terminal.ended() == 0


def test_of_many_tools_an_agent_is_told_once_it_has_found_them(
    place: Place, server: Loopback
) -> None:
    listed = place.folder / "listed"
    env = {MARK: f"${{{MARK}}}", "LISTED": str(listed)}
    entry = {"command": sys.executable, "args": [str(SMALL), "many"], "env": env}
    (place.home / ".mcp.json").write_text(json.dumps({"mcpServers": {"small": entry}}))
    place.configure(Agent("worker", more='protocol = "native"'), more='allow = ["mcp__small__*"]')
    echo = Says("", (Use("mcp__small__echo", {"text": "hello"}),))
    find = Says("", (Use("find_tools", {"query": "echo"}),))
    server.play("worker", once_there(listed), echo, find, echo, Says("Found."))
    done = place.fugu("run", "say hello")
    assert (done.code, done.out) == (0, "Found.\n"), done.err
    results = server.asked("worker")[-1].results
    assert "mcp__small__echo was not found yet: call find_tools first" in results[1]
    assert list(results[2:]) == ["mcp__small__echo: Does echo.", "you said hello"]
    offers = [
        [tool["function"]["name"] for tool in asked.body["tools"]]
        for asked in server.asked("worker")[1:]
    ]
    assert [[name for name in names if name.startswith(("mcp", "find"))] for names in offers] == [
        ["find_tools"], ["find_tools"], ["find_tools", "mcp__small__echo"], ["find_tools", "mcp__small__echo"],
    ]  # fmt: skip
    listed.unlink()
    server.play("worker", once_there(listed), Says("Again."))
    done = place.fugu("run", "--continue", "and again")
    assert done.code == 0, done.err
    assert "mcp__small__echo" in offered(server, "worker")


def test_killed_in_a_call_nothing_lives_on_and_the_call_is_not_made_again(
    place: Place, server: Loopback
) -> None:
    served(place, Agent("worker"), Agent("judge", "strong"))
    server.play(
        "worker",
        once_there(place.folder / "listed"),
        Says("", (Use("mcp__small__hang"),)),
        READ,
        WRITE,
        DONE,
    )
    server.play("judge", ACCEPT)
    process = place.start("run", "--trust", "fix the tests")
    calls = place.repo / "calls.txt"
    end = time.monotonic() + 60
    while not calls.exists() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.05)
    assert any(str(SMALL) in command for command in place.left_behind())
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    end = time.monotonic() + 30
    while place.left_behind() and time.monotonic() < end:
        time.sleep(0.05)
    assert place.left_behind() == []
    done = place.fugu("run", "--trust", "--continue")
    assert done.code == 0, done.err
    assert calls.read_text() == "called\n"
    assert server.asked("worker")[2].results[-1].startswith("Interrupted: the call was started")
