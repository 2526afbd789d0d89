"""`fugu mcp`: the MCP servers that count in the current folder; adds one, removes one.

Changes `.mcp.json` by extensions/mcp_settings.py, which reads it as well. Starts no server: `fugu doctor` does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import JsonValue

from fugu_cli.cli.current_folder import current_config, current_path, print_clean, say
from fugu_cli.cli.flags import McpAddFlags
from fugu_cli.config.loader import repository
from fugu_cli.errors import UsageError
from fugu_cli.extensions.mcp_settings import MCP_FILE, add_entry, remove_entry

Scope = Literal["user", "project"]


def list_servers() -> int:
    """Each server with what is started or called and the file that names it, then what is left out."""
    declared = current_config().servers
    for note in declared.notes:
        say(note)
    if not declared.servers:
        print_clean("no MCP servers count here; `fugu mcp add` adds one (`fugu help mcp`)")
        return 0
    names = max(len(server.name) for server in declared.servers)
    for server in declared.servers:
        print_clean(f"{server.name:<{names}}  {server.said}  ({server.source})")
    return 0


def add_server(flags: McpAddFlags) -> int:
    """Write an entry. Raises UsageError for what is no server, and where the name is taken; StorageError."""
    path = _file(flags.scope or "user")
    add_entry(path, flags.name, _entry(flags))
    print_clean(f"the MCP server {flags.name} is added to {path}; `fugu doctor` tries it")
    _say_trust(flags.scope)
    return 0


def remove_server(name: str, scope: Scope | None) -> int:
    """Take an entry out of the scope's file, of both files without a scope. Raises UsageError where there is none,
    StorageError."""
    held: dict[Scope, Path] = {one: _file(one) for one in ((scope,) if scope else ("user", "project"))}
    removed = [one for one, path in held.items() if remove_entry(path, name)]
    if not removed:
        files = " and ".join(str(path) for path in held.values())
        raise UsageError(f"there is no MCP server {name!r} in {files}", hint="`fugu mcp list` shows them")
    for one in removed:
        print_clean(f"the MCP server {name} is removed from {held[one]}")
        _say_trust(one)
    return 0


def _file(scope: Scope) -> Path:
    return (Path.home() if scope == "user" else repository(current_path())) / MCP_FILE


def _say_trust(scope: Scope | None) -> None:
    if scope == "project":
        say("a repository's servers count once you run `fugu trust` here, also after every change of the file")


def _entry(flags: McpAddFlags) -> dict[str, JsonValue]:
    """The entry as files hold it. Raises UsageError."""
    first, *args = flags.target
    kind = flags.transport or ("http" if first.startswith(("http://", "https://")) else "stdio")
    env = dict(_pair(word, "=", "--env") for word in flags.env or ())
    headers = dict(_pair(word, ":", "--header") for word in flags.header or ())
    if kind == "stdio":
        if headers:
            raise UsageError("--header is for a URL", hint="--env sets a variable of a program")
        return {"command": first, "args": [*args], **({"env": {**env}} if env else {})}
    if env or args:
        what = "--env is" if env else f"{args[0]!r} and the like are"
        raise UsageError(f"{what} for a program, and {first} is called over {kind}", hint="--header sends a header")
    return {"type": kind, "url": first, **({"headers": {**headers}} if headers else {})}


def _pair(word: str, between: str, flag: str) -> tuple[str, str]:
    name, found, value = word.partition(between)
    if not found or not name.strip():
        raise UsageError(f"{flag} needs NAME{between}VALUE, not {word!r}", hint="repeat the flag for more than one")
    return name.strip(), value.strip() if between == ":" else value
