"""`.mcp.json`: what counts, what is left out, and the words for it."""

import json
from pathlib import Path

import pytest

from fugu_cli.config import trust
from fugu_cli.config.loader import load_config
from fugu_cli.extensions.mcp_settings import (
    DeclaredServers,
    McpServer,
    RemoteServer,
    StdioServer,
    read_servers,
)

SENT = {"Authorization": "Bearer ${TOKEN}"}


def written(folder: Path, servers: object) -> Path:
    path = folder / ".mcp.json"
    path.write_text(
        servers if isinstance(servers, str) else json.dumps({"mcpServers": servers}, indent=1)
    )
    return path


def only(path: Path, **environ: str) -> DeclaredServers:
    return read_servers(path, None, trusted=False, environ=environ)


def test_programs_and_servers_elsewhere_are_read_and_variables_filled_in(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        {
            "db": {
                "command": "${BIN:-npx}",
                "args": ["-y", "db", "${DB}"],
                "env": {"DB_TOKEN": "${TOKEN}", "PORT": 5},
                "timeout": 2500,
                "alwaysAllow": ["x"],
            },
            "web": {
                "type": "http",
                "url": "https://${HOST:-a.example}/mcp",
                "headers": SENT,
            },
            "old": {"type": "sse", "url": "http://b.example/sse"},
            "off": {"command": "x", "disabled": True},
        },
    )
    found = only(path, DB="main.db", TOKEN="t0ken-of-mine", HOST="")
    program = StdioServer(
        command="npx", args=("-y", "db", "main.db"), env={"DB_TOKEN": "t0ken-of-mine", "PORT": "5"}
    )
    header = {"Authorization": "Bearer t0ken-of-mine"}
    assert found == DeclaredServers(
        (
            McpServer(name="db", source=str(path), way=program, timeout=2.5),
            McpServer(
                name="web",
                source=str(path),
                way=RemoteServer(kind="http", url="https://a.example/mcp", headers=header),
            ),
            McpServer(
                name="old",
                source=str(path),
                way=RemoteServer(kind="sse", url="http://b.example/sse"),
            ),
        )
    )
    assert found.secrets == {
        "db_DB_TOKEN": "t0ken-of-mine",
        "db_PORT": "5",
        "web_Authorization_KEY": "t0ken-of-mine",
    }


BAD = {
    "{": (
        "{path}, line 1, column 2: not valid JSON: expecting property name enclosed in double "
        "quotes"
    ),
    "[]": '{path}: it should hold one object, {"mcpServers": {NAME: {...}}}',
    '{"servers": {}}': '{path}: it should hold one object, {"mcpServers": {NAME: {...}}}',
}


@pytest.mark.parametrize("text", BAD)
def test_a_file_that_cannot_be_read_is_named_with_the_place(tmp_path: Path, text: str) -> None:
    path = written(tmp_path, text)
    assert only(path) == DeclaredServers(
        (), (BAD[text].replace("{path}", str(path)) + "; its MCP servers are left out",)
    )


FAULTS: dict[str, tuple[object, str]] = {
    "neither": (
        {"args": []},
        "mcpServers.x needs a `command` (or a `type` of http or sse and a `url`)",
    ),
    "args": ({"command": "a", "args": "b"}, "mcpServers.x.args: input should be a valid list"),
    "no object": (["a"], "mcpServers.x: input should be a valid dictionary or instance of _Entry"),
    "url": (
        {"type": "http", "url": "ftp://a"},
        "mcpServers.x.url should begin with http:// or https://",
    ),
    "variable": (
        {"command": "${NOPE}"},
        "the variable NOPE is not set (`${NOPE:-...}` gives a value for that case)",
    ),
    "name": (
        {"command": "a", "env": {"a=b": "c"}},
        "mcpServers.x.env: 'a=b' is not a variable name",
    ),
    "nul": ({"command": "a\0b"}, "it holds a NUL character"),
}


@pytest.mark.parametrize("kind", FAULTS)
def test_an_entry_with_a_fault_is_left_out_and_the_others_stay(tmp_path: Path, kind: str) -> None:
    entry, words = FAULTS[kind]
    path = written(tmp_path, {"good": {"command": "true"}, "x": entry})
    found = only(path)
    line = (
        path.read_text()
        .splitlines()
        .index(next(at for at in path.read_text().splitlines() if '"x"' in at))
        + 1
    )
    assert [server.name for server in found.servers] == ["good"]
    assert found.notes == (f"{path}, line {line}: the MCP server 'x' is left out: {words}",)


def test_a_repositorys_servers_count_once_it_is_trusted_and_as_they_were_then(
    tmp_path: Path,
) -> None:
    home = written(Path.home(), {"mine": {"command": "a"}, "both": {"command": "home"}})
    root = tmp_path / "repo"
    (root / ".git").mkdir(parents=True)
    (root / "tool.py").write_text("one")
    own = written(
        root, {"both": {"command": "python", "args": ["tool.py"]}, "theirs": {"command": "b"}}
    )

    def names() -> list[tuple[str, str]]:
        return [(server.name, server.source) for server in load_config(root, {}).servers.servers]

    mine = [("mine", str(home)), ("both", str(home))]
    assert names() == mine
    sentence = (
        f"{own} names MCP servers (both, theirs): none is started until you run `fugu trust` here"
    )
    assert load_config(root, {}).servers.notes == (sentence,)
    data = load_config(root, {}).config.data
    trust.trust(data, root)
    assert names() == [("mine", str(home)), ("both", str(own)), ("theirs", str(own))]
    (root / "tool.py").write_text("two")
    assert (names(), trust.changed_files(data, root)) == (mine, ("tool.py",))
    trust.trust(data, root)
    written(root, {"theirs": {"command": "c"}})
    assert (names(), trust.changed_files(data, root)) == (mine, (".mcp.json", "tool.py"))


def test_the_homes_own_file_is_the_users_not_a_repositorys() -> None:
    written(Path.home(), {"mine": {"command": "a"}})
    assert [server.name for server in load_config(Path.home(), {}).servers.servers] == ["mine"]
