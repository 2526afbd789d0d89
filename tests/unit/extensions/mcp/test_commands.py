"""`fugu mcp` and `--mcp-config`: what is written, what is read of it, and what is refused with the
file unchanged.
"""

import json
import subprocess
from pathlib import Path

import pytest

from fugu_cli.__main__ import called
from fugu_cli.config.loader import load_config


def fugu(capture: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    capture.readouterr()
    code = called(list(words))
    said = capture.readouterr()
    return code, said.out, said.err


@pytest.fixture
def repo() -> Path:
    root = Path.cwd()
    subprocess.run(["git", "init", "-q", root], check=True)
    return root


def test_servers_are_added_listed_and_removed_and_the_rest_of_the_file_stays(
    repo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = Path.home() / ".mcp.json"
    home.write_text(
        '{\n    "inputs": [],\n    "mcpServers": {\n        "old": {"command": "a", "x": 1}\n    '
        "}\n}\n"
    )
    added = fugu(
        capsys,
        "mcp",
        "add",
        "db",
        "-e",
        "A=b=c",
        "--env",
        "D=",
        "--",
        "npx",
        "-y",
        "db server",
        "--port=5",
    )
    assert added == (0, f"the MCP server db is added to {home}; `fugu doctor` tries it\n", "")
    header = "Authorization: Bearer ${TOKEN:-none}"
    fugu(
        capsys, "mcp", "add", "web", "https://a.example/mcp", "--header", header, "--scope", "user"
    )
    fugu(capsys, "mcp", "add", "--transport", "sse", "sse", "http://b.example/sse")
    servers = {
        "old": {"command": "a", "x": 1},
        "db": {
            "command": "npx",
            "args": ["-y", "db server", "--port=5"],
            "env": {"A": "b=c", "D": ""},
        },
        "web": {
            "type": "http",
            "url": "https://a.example/mcp",
            "headers": {"Authorization": "Bearer ${TOKEN:-none}"},
        },
        "sse": {"type": "sse", "url": "http://b.example/sse"},
    }
    assert home.read_text() == json.dumps({"inputs": [], "mcpServers": servers}, indent=4) + "\n"
    code, out, err = fugu(capsys, "mcp", "list")
    lines = {
        "old": f"old  a  ({home})",
        "db": f"db   npx -y db server --port=5  ({home})",
        "web": f"web  https://a.example/mcp  ({home})",
        "sse": f"sse  http://b.example/sse  ({home})",
    }
    assert (code, out, err) == (0, "\n".join(lines.values()) + "\n", "")
    assert fugu(capsys, "mcp", "remove", "db")[:2] == (
        0,
        f"the MCP server db is removed from {home}\n",
    )
    assert list(json.loads(home.read_text())["mcpServers"]) == ["old", "web", "sse"]


def test_a_projects_server_counts_once_the_folder_is_trusted(
    repo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = repo / ".mcp.json"
    code, out, err = fugu(capsys, "mcp", "add", "-s", "project", "db", "--", "true")
    assert (code, out) == (0, f"the MCP server db is added to {own}; `fugu doctor` tries it\n")
    assert "count once you run `fugu trust` here" in err
    assert (
        own.read_text()
        == json.dumps({"mcpServers": {"db": {"command": "true", "args": []}}}, indent=2) + "\n"
    )
    code, out, err = fugu(capsys, "mcp")
    assert out == "no MCP servers count here; `fugu mcp add` adds one (`fugu help mcp`)\n"
    assert f"{own} names MCP servers (db): none is started until you run `fugu trust` here" in err
    fugu(capsys, "trust")
    assert fugu(capsys, "mcp")[1] == f"db  true  ({own})\n"
    assert fugu(capsys, "mcp", "remove", "--scope", "user", "db")[0] == 1
    assert fugu(capsys, "mcp", "remove", "db")[1] == f"the MCP server db is removed from {own}\n"


REFUSED = {
    ("add", "old", "--", "b"): "has an MCP server 'old' already",
    ("add", "my db", "--", "b"): "'my db' is not a server name",
    ("add", "new", "http://a.example", "--env", "A=b"): "--env is for a program",
    ("add", "new", "--cwd", ".", "http://a.example"): "--cwd is for a program",
    ("add", "new", "http://a.example", "more"): "'more' and the like are for a program",
    ("add", "new", "--header", "A: b", "--", "true"): "--header is for a URL",
    ("add", "new", "--header", "A", "http://a.example"): "--header needs NAME:VALUE, not 'A'",
    ("add", "new", "-t", "http", "ftp://a.example"): "url should begin with http:// or https://",
    ("add", "new", "--", " "): "needs a `command`",
    ("add", "new"): "Missing argument",
    ("remove", "new"): "there is no MCP server 'new'",
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_is_no_server_is_refused_and_nothing_changes(
    words: tuple[str, ...], repo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = Path.home() / ".mcp.json"
    home.write_text('{"mcpServers": {"old": {"command": "a"}}}')
    code, out, err = fugu(capsys, "mcp", *words)
    assert (code, out, REFUSED[words] in err) == (1, "", True), err
    assert home.read_text() == '{"mcpServers": {"old": {"command": "a"}}}'


def test_a_file_with_comments_is_not_written_over(
    repo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = Path.home() / ".mcp.json"
    home.write_text('{\n  // mine\n  "mcpServers": {}\n}\n')
    code, out, err = fugu(capsys, "mcp", "add", "db", "--", "true")
    assert (code, out) == (1, "")
    assert f"{home}, line 2, column 3: not valid JSON" in err and "nothing was changed" in err
    assert home.read_text() == '{\n  // mine\n  "mcpServers": {}\n}\n'


def test_a_file_of_the_command_line_counts_beside_the_others(
    repo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from fugu_cli.cli.current_folder import current_config

    (Path.home() / ".mcp.json").write_text(
        '{"mcpServers": {"both": {"command": "a"}, "mine": {"command": "b"}}}'
    )
    given = tmp_path / "more.json"
    given.write_text('{"mcpServers": {"both": {"command": "c"}, "bad": {"args": []}}}')
    found = current_config(mcp_config=str(given)).servers
    assert [(server.name, server.description) for server in found.servers] == [
        ("both", "c"),
        ("mine", "b"),
    ]
    assert [note.partition("bad")[0] for note in found.notes] == [
        f"{given}, line 1: the MCP server '"
    ]
    assert [server.description for server in load_config(repo, {}).servers.servers] == ["a", "b"]
    inline = current_config(
        mcp_config='{"mcpServers": {"own": {"command": "d"}, "bad": {"args": []}}}'
    ).servers
    assert [(server.name, server.description) for server in inline.servers] == [
        ("both", "a"),
        ("mine", "b"),
        ("own", "d"),
    ]
    assert [note.partition("bad")[0] for note in inline.notes] == [
        "--mcp-config, line 1: the MCP server '"
    ]
    code, _, err = fugu(capsys, "run", "--mcp-config", "{", "hello")
    assert (code, "--mcp-config, line 1" in err) == (1, True), err
    for name, why in {
        "none.json": "does not exist",
        "broken.json": "line 1, column 1: not valid JSON",
    }.items():
        (tmp_path / "broken.json").write_text("x")
        code, _, err = fugu(capsys, "run", "--mcp-config", str(tmp_path / name), "hello")
        assert (code, f"--mcp-config: {tmp_path / name}" in err and why in err) == (1, True), err
