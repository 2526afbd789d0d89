"""A session's servers: their tools, their calls, their faults, and nothing left of them."""

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Literal

import pytest

from fugu_cli.extensions.mcp_connection import McpConnection
from fugu_cli.extensions.mcp_content import arguments_schema, tool_names
from fugu_cli.extensions.mcp_servers import McpServers, check_servers
from fugu_cli.extensions.mcp_settings import DeclaredServers, McpServer, RemoteServer, StdioServer
from fugu_cli.messages import Call
from fugu_cli.safety.redaction import Redactor
from fugu_cli.tools.result import ToolResult
from fugu_cli.tools.toolbox import Toolbox
from fugu_cli.tools.workspace import Workspace
from tests.unit.extensions.mcp.server import PIXEL, TOOLS

SMALL = Path(__file__).parent / "server.py"
MARK = "MCP_TEST_MARK"
UNKNOWN = "Whether it did what was asked is not known, and the call was not repeated."


def server(
    name: str, *words: str, timeout: float = 60.0, patience: float = 60.0, **env: str
) -> McpServer:
    way = StdioServer(
        command=sys.executable,
        args=(str(SMALL), *words),
        env={MARK: f"{os.getpid()}", **env},
        cwd=".",
    )
    return McpServer(name=name, source="here", way=way, timeout=timeout, patience=patience)


def living() -> list[str]:
    """Processes of these tests' servers."""
    found, wanted = [], f"{MARK}={os.getpid()}".encode()
    for process in (path for path in Path("/proc").iterdir() if path.name.isdigit()):
        try:
            if wanted in (process / "environ").read_bytes().split(b"\0"):
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


class Desk:
    """Servers with a toolbox in front, as a session has them."""

    def __init__(self, tmp_path: Path, *servers: McpServer) -> None:
        self.workspace = Workspace(tmp_path, tmp_path / ".store")
        self.told: list[str] = []
        self.servers = McpServers(DeclaredServers(servers), self.workspace.root, self.told.append)
        self.toolbox = Toolbox((), more=self.servers)

    async def tried(self) -> list[McpConnection]:
        """Each server once it is known whether it works."""
        return [await self.servers.connected(name) for name in self.servers.names]

    async def call(self, tool: str, **arguments: object) -> ToolResult:
        return await self.toolbox.run(
            Call.make("1", tool, **arguments), self.workspace, lambda text: None
        )


def test_tools_are_offered_as_they_are_and_called(tmp_path: Path) -> None:
    async def go() -> None:
        opener = Desk(tmp_path, server("my db", MY_TOKEN="s3cret-value"))
        assert opener.toolbox.names == ()
        await opener.tried()
        echo = next(
            spec for spec in opener.toolbox.specs(opener.toolbox) if spec.name == "mcp__my_db__echo"
        )
        assert (echo.description, echo.parameters) == (
            "Does echo.",
            '{"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}',
        )
        told = {
            "echo": ToolResult(text="you said grüße"),
            "refuse": ToolResult(text="there is no such row", ok=False),
            "noise": ToolResult(text="said after noise"),
            "nothing": ToolResult(text="(no output)"),
            "failure": ToolResult(text="It failed and said nothing.", ok=False),
            "odd": ToolResult(text="[hologram: not shown]\nhalf \ufffd"),
        }
        assert {
            name: await opener.call(f"mcp__my_db__{name}", text="grüße") for name in told
        } == told
        shown = await opener.call("mcp__my_db__picture", text="")
        damaged = (
            "[image 2 is no picture that can be shown: it is damaged, or not PNG, JPEG, WebP or "
            "GIF.]"
        )
        assert shown.text == f"two\n{damaged}\n[picture image 3, 3x3]"
        assert [(one.type, one.data) for one in shown.media] == [("image/png", PIXEL)]
        huge = await opener.call("mcp__my_db__huge", text="")
        assert (huge.ok, len(huge.text) < 8100, "characters left out" in huge.text) == (
            True,
            True,
            True,
        )
        variables = (await opener.call("mcp__my_db__variables", text="")).text.split()
        assert {name for name in variables if not name.startswith("LC_")} <= {
            "FUGU_CALL", "HOME", "LANG", "MY_TOKEN", MARK, "PATH", "TMPDIR", "USER", "LOGNAME", "SHELL", "TERM", "TZ",
        }  # fmt: skip
        faulty = await opener.toolbox.run(
            Call(id="1", tool="mcp__my_db__echo", arguments="["), opener.workspace, print
        )
        assert faulty.text.startswith(
            "mcp__my_db__echo was not run: the arguments are not valid JSON"
        )
        await opener.servers.close()

    asyncio.run(go())
    assert living() == []


def test_a_secret_that_a_cut_takes_apart_is_taken_out_before(tmp_path: Path) -> None:
    async def go() -> None:
        opener = Desk(tmp_path, server("db"))
        opener.workspace.mask = Redactor({"SECRET_KEY": "hunter2verylongvalue99"}).text
        await opener.tried()
        for before in range(3930, 3970, 4):
            words = f"{'a' * before}hunter2verylongvalue99{'b' * 9000}"
            told = (await opener.call("mcp__db__echo", text=words)).text
            assert "hunter2" not in told and "left out" in told
        await opener.servers.close()

    asyncio.run(go())


def test_a_server_that_dies_says_so_and_is_started_again(tmp_path: Path) -> None:
    async def go() -> None:
        opener = Desk(tmp_path, server("db"))
        (connection,) = await opener.tried()
        dead = await opener.call("mcp__db__die", text="")
        why = "it ended with exit code 3; its last words: out of cheese"
        assert dead == ToolResult(
            text=f"The call of the MCP server `db` failed: {why}. {UNKNOWN}", ok=False
        )
        while connection.state == "ready":
            await asyncio.sleep(0.01)
        down = f"The MCP server `db` is not running: {why}. It is being started again."
        assert await opener.call("mcp__db__echo", text="a") == ToolResult(text=down, ok=False)
        while connection.state != "ready":
            await asyncio.sleep(0.05)
        assert await opener.call("mcp__db__echo", text="b") == ToolResult(text="you said b")
        endless = await opener.call("mcp__db__endless", text="")
        said = (
            f"The call of the MCP server `db` failed: it said more than 32 MB in one message. "
            f"{UNKNOWN}"
        )
        assert endless == ToolResult(text=said, ok=False)
        await opener.servers.close()

    asyncio.run(go())
    assert living() == []


def test_a_server_that_hangs_is_waited_for_as_long_as_its_entry_says(tmp_path: Path) -> None:
    async def go() -> None:
        opener = Desk(tmp_path, server("db", timeout=0.5))
        await opener.tried()
        late = f"The call of the MCP server `db` failed: it did not answer within 0.5 s. {UNKNOWN}"
        assert await opener.call("mcp__db__hang", text="") == ToolResult(text=late, ok=False)
        await opener.servers.close()

    asyncio.run(go())
    assert living() == []


class _Refusing(BaseHTTPRequestHandler):
    """Answers everything with what its path says: `/401`, or a web page."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        status = int(self.path.strip("/") or 200)
        body = b"<html>hello</html>"
        self.send_response(status)
        self.send_header("content-type", "text/html" if status == 200 else "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.fixture
def refusing() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Refusing) as web:
        thread = threading.Thread(target=web.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{web.server_port}"
        web.shutdown()
        thread.join()


def remote(name: str, url: str, kind: Literal["http", "sse"] = "http") -> McpServer:
    return McpServer(name=name, source="here", way=RemoteServer(kind=kind, url=url))


def test_servers_that_cannot_be_used_say_why_and_nothing_of_them_stays(
    tmp_path: Path, refusing: str
) -> None:
    declared = (
        server("deaf", "deaf", patience=1.0),
        server("leaves", "leaves"),
        McpServer(name="gone", source="here", way=StdioServer(command="no-such-program")),
        remote("web", "http://127.0.0.1:9/mcp"),
        remote("locked", f"{refusing}/401"),
        remote("locked too", f"{refusing}/401", "sse"),
        remote("closed", f"{refusing}/403"),
        remote("broken", f"{refusing}/500"),
        remote("page", refusing),
        remote("page too", refusing, "sse"),
    )

    async def go() -> tuple[dict[str, str], list[str]]:
        opener = Desk(tmp_path, *declared)
        await opener.servers.settled(lambda why: None)
        found = {one.server.name: one.why for one in await opener.tried()}
        assert opener.toolbox.names == ()
        await opener.servers.close()
        return found, opener.told

    whys, told = asyncio.run(go())
    page = "it answered with a web page (HTTP 200): is this the address of an MCP server?"
    assert whys == {
        "deaf": "it did not answer within 1 s",
        "leaves": "it ended with exit code 1; its last words: no database at home",
        "gone": "there is no program 'no-such-program' that could be run",
        "web": "All connection attempts failed",
        "locked": "it wants a login (HTTP 401): `fugu mcp login locked`",
        "locked too": "it wants a login (HTTP 401): `fugu mcp login 'locked too'`",
        "closed": "it does not let you in (HTTP 403)",
        "broken": "it answered with HTTP 500",
        "page": page,
        "page too": page,
    }
    assert sorted(told) == sorted(
        f"the MCP server {name} does not work: {why}" for name, why in whys.items()
    )
    assert living() == []


def test_a_tool_whose_schema_is_none_is_left_out_alone(tmp_path: Path) -> None:
    async def go() -> tuple[tuple[str, ...], ToolResult, list[str]]:
        opener = Desk(tmp_path, server("db", "schemas"))
        await opener.tried()
        found = opener.toolbox.names, await opener.call("mcp__db__open"), opener.told
        await opener.servers.close()
        return found

    names, result, told = asyncio.run(go())
    assert names == tuple(f"mcp__db__{name}" for name in (*TOOLS, "open"))
    assert result == ToolResult(text="opened")
    why = {
        "typed": (
            "its schema is none at properties.text.type: 'strin' is not valid under any of "
            "the given schemas"
        ),
        "worded": "its schema is not an object",
        "listed": 'its schema is for "array" and not for an object',
        "bare": "its schema is missing",
        f"number {len(TOOLS) + 5}": "it has no name",
    }
    assert told == [
        f"the tool {name} of the MCP server db is left out: {said}" for name, said in why.items()
    ]


def test_the_first_model_call_waits_a_moment_and_later_tools_join(tmp_path: Path) -> None:
    async def go() -> None:
        opener = Desk(tmp_path, server("quick"), server("slow", "slow"))
        opener.servers.start()
        while not opener.toolbox.names:
            await asyncio.sleep(0.01)
        waited: list[str] = []
        await opener.toolbox.settled(waited.append)
        await opener.toolbox.settled(waited.append)
        assert waited == ["the MCP servers slow are being started"]
        assert opener.told == ["not ready yet, so their tools join later: the MCP servers slow"]
        assert {name.split("__")[1] for name in opener.toolbox.names} == {"quick"}
        (tmp_path / "go").touch()
        await opener.tried()
        assert {name.split("__")[1] for name in opener.toolbox.names} == {"quick", "slow"}
        await opener.servers.close()

    asyncio.run(go())


def test_servers_end_with_the_session_whatever_they_do(tmp_path: Path) -> None:
    async def go() -> None:
        opener = Desk(tmp_path, server("stubborn", "stubborn"), server("child", "child"))
        await opener.tried()
        assert (
            len(living()) == 5
        )  # each with its launcher, and the process that one of them started
        await opener.servers.close()

    asyncio.run(go())
    assert living() == []


def test_servers_that_are_cut_while_they_start_leave_nothing(tmp_path: Path) -> None:
    async def go(after: float) -> None:
        opener = Desk(tmp_path, *(server(f"s{n}", "child") for n in range(2)))
        opener.servers.start()
        await asyncio.sleep(after)
        await opener.servers.close()

    for after in (0.0, 0.02, 0.05, 0.1, 0.2):
        asyncio.run(go(after))
    end = time.monotonic() + 10
    while living() and time.monotonic() < end:
        time.sleep(0.05)
    assert living() == []


def test_a_step_in_its_own_copy_does_not_reach_a_server(tmp_path: Path) -> None:
    async def go() -> ToolResult:
        opener = Desk(tmp_path, server("db"))
        await opener.tried()
        (tmp_path / "copy").mkdir()
        opener.workspace = Workspace(tmp_path / "copy", tmp_path / ".store")
        try:
            return await opener.call("mcp__db__echo", text="a")
        finally:
            await opener.servers.close()

    words = (
        f"The MCP server `db` works in {tmp_path} and not in this step's own copy: it was not "
        f"called."
    )
    assert asyncio.run(go()) == ToolResult(text=words, ok=False)


def test_the_report_names_each_server_with_its_tools(tmp_path: Path) -> None:
    found = check_servers(DeclaredServers((server("db"), server("bad", "leaves"))), tmp_path)
    tools = ", ".join(TOOLS)
    run = f"{sys.executable} {SMALL}"
    assert list(found) == [
        ("db", True, f"tools: {tools} ({run}, from here)"),
        (
            "bad",
            False,
            f"it ended with exit code 1; its last words: no database at home ({run} leaves, from "
            f"here)",
        ),
    ]
    assert check_servers(DeclaredServers(), tmp_path) == ()


def test_many_tools_are_found_by_words(tmp_path: Path) -> None:
    async def go() -> list[str]:
        opener = Desk(tmp_path, server("db", "many"), server("other"))
        await opener.tried()
        shown = opener.toolbox.specs(
            tool for tool in opener.toolbox if tool.foreign is None or not tool.foreign.deferred
        )
        assert [spec.name for spec in shown] == ["find_tools"]
        assert f"db ({len(TOOLS) + 60}), other ({len(TOOLS)})." in shown[0].description
        queries = ("echo", "the indexes of table 7", "other picture", "zebra", "")
        found = [(await opener.call("find_tools", query=query)).text for query in queries]
        await opener.servers.close()
        return found

    echo, indexes, picture, nothing, empty = asyncio.run(go())
    assert echo == "mcp__db__echo: Does echo.\nmcp__other__echo: Does echo."
    assert indexes.splitlines()[0] == "mcp__db__table_7_indexes: Handles indexes of table 7."
    assert len(indexes.splitlines()) == 8
    assert picture.splitlines()[0] == "mcp__other__picture: Does picture."
    assert nothing == empty == "No tool fits. Try other words, or the name of a server."


def test_names_fit_every_provider_and_tell_tools_apart() -> None:
    long = "t" * 80
    names = tool_names("a b", ["x.y", "x/y", long, long + "z"])
    assert list(names.values()) == ["x.y", "x/y", long, long + "z"]
    assert max(map(len, names)) == 64
    assert next(iter(names)) == "mcp__a_b__x_y"


def test_a_schema_of_several_forms_is_one_that_every_provider_takes() -> None:
    text = {"type": "string"}
    inline, linked = (
        {"properties": {"name": text, "content": text}},
        {"properties": {"url": text}, "required": ["url"]},
    )
    own = {"type": "string", "description": "own"}
    whole = {"type": "object", "properties": {"name": own}, "required": ["name"]}
    for word in ("anyOf", "oneOf", "allOf"):
        offered = json.loads(
            arguments_schema({**whole, word: [inline, linked, True], "not": {"required": ["x"]}})
        )
        assert offered == {**whole, "properties": {"name": own, "content": text, "url": text}}
    nested = {"type": "object", "properties": {"target": {"anyOf": [text, {"type": "null"}]}}}
    assert json.loads(arguments_schema(nested)) == nested
    assert json.loads(arguments_schema({"anyOf": [linked]})) == {
        "properties": {"url": text},
        "type": "object",
    }
