"""MCP servers as `.mcp.json` declares them, as values, and what is wrong with them in words.

Read with the configuration, which says whether the repository is trusted. The format is that of Claude Code. Nothing
here starts anything or imports the SDK; a fault leaves one server out, never a session.

Read with the configuration (config/loader.py), which says whether the repository is trusted. The format is that of
Claude Code. Nothing here starts anything or imports the SDK; a fault leaves one server out, never a session.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from fugu_cli.messages import Value

MCP_FILE = ".mcp.json"
DEFAULT_CALL_SECONDS = 60.0
"""Seconds a call may take, unless the server's entry says otherwise."""
DEFAULT_START_SECONDS = 60.0
"""Seconds a server may take until it is ready."""
_TELLING = re.compile(r"auth|key|token|secret|cookie|pass", re.IGNORECASE)
"""Names of headers whose values are secrets."""
_VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)(?::-([^}]*))?\}")


class StdioServer(Value):
    """A server that is started and spoken to over its standard input and output."""

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}


class RemoteServer(Value):
    """A server that runs elsewhere."""

    kind: Literal["http", "sse"]
    url: str
    headers: Mapping[str, str] = {}


class McpServer(Value):
    """A server by its name in the file `source`. `timeout` and `patience` (until it is ready) in seconds."""

    name: str
    source: str
    way: StdioServer | RemoteServer
    timeout: float = DEFAULT_CALL_SECONDS
    patience: float = DEFAULT_START_SECONDS

    @property
    def said(self) -> str:
        """What is started or called, for people; without variables and headers, which may hold secrets."""
        return " ".join((self.way.command, *self.way.args)) if isinstance(self.way, StdioServer) else self.way.url


@dataclass(frozen=True)
class DeclaredServers:
    """The servers that count. `notes` are sentences for people: what is left out and why."""

    servers: tuple[McpServer, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def secrets(self) -> dict[str, str]:
        """Values that the entries hold, under names by which redaction.py tells secrets from other settings."""
        found: dict[str, str] = {}
        for server in self.servers:
            if isinstance(server.way, StdioServer):
                found |= {f"{server.name}_{name}": value for name, value in server.way.env.items()}
            else:
                headers = [(name, value.split()) for name, value in server.way.headers.items()]
                telling = [(name, words[-1]) for name, words in headers if words and _TELLING.search(name)]
                found |= {f"{server.name}_{name}_KEY": value for name, value in telling}
        return found


class _Entry(BaseModel):
    """An entry as it stands in a file. Keys of other tools are no fault."""

    model_config = ConfigDict(extra="ignore", coerce_numbers_to_str=True, defer_build=True)

    type: Literal["stdio", "http", "streamable-http", "sse"] | None = None
    command: str = ""
    args: list[str] = []
    env: dict[str, str] = {}
    url: str = ""
    headers: dict[str, str] = {}
    timeout: float = Field(DEFAULT_CALL_SECONDS * 1000, gt=0)
    disabled: bool = False


class _Fault(Exception):
    """Why an entry or a file cannot be used."""


def read_servers(user: Path, own: Path | None, *, trusted: bool, environ: Mapping[str, str]) -> DeclaredServers:
    """The servers of the user's file and the repository's `own`, the latter only where it is `trusted`.

    A name in both means the repository's.
    """
    servers: dict[str, McpServer] = {}
    notes: list[str] = []
    for path, counts in ((user, True), (own, trusted)):
        if path is None:
            continue
        try:
            text = _text(path)
            entries = _entries(text)
        except _Fault as fault:
            notes.append(f"{path}{fault}; its MCP servers are left out")
            continue
        if entries and not counts:
            names = ", ".join(entries)
            notes.append(f"{path} names MCP servers ({names}): none is started until you run `fugu trust` here")
            continue
        for name, entry in entries.items():
            try:
                server = _server(name, entry, path, environ)
            except _Fault as fault:
                notes.append(f"{path}, line {_line(text, name)}: the MCP server {name!r} is left out: {fault}")
            else:
                servers |= {name: server} if server is not None else {}
    return DeclaredServers(tuple(servers.values()), tuple(notes))


def files_named_by_servers(folder: Path) -> Iterator[Path]:
    """Files in `folder` that its `.mcp.json` would have run: whoever may change them may change what is started."""
    try:
        entries = _entries(_text(folder / MCP_FILE))
    except _Fault:
        return
    for entry in entries.values():
        if not isinstance(entry, dict):
            continue
        args = entry.get("args")
        words = [entry.get("command"), *(args if isinstance(args, list) else ())]
        for word in (word for word in words if isinstance(word, str)):
            yield from files_of_word(folder, word)


def files_of_word(folder: Path, word: str) -> Iterator[Path]:
    """Files a word of a command line may stand for: a path, `--name=path`, a Python module."""
    module = word.replace(".", "/")
    for name in (word, word.partition("=")[2], f"{module}.py", f"{module}/__main__.py"):
        path = folder / name
        try:
            if name and path.is_file() and path.resolve().is_relative_to(folder.resolve()):
                yield path if path.is_relative_to(folder) else path.resolve()
        except (OSError, ValueError):
            continue


def _text(path: Path) -> str:
    """The file's text, "" where there is none."""
    try:
        if path.exists() and not path.is_file():
            raise OSError(0, "it is not a file")
        return path.read_text(encoding="utf-8-sig")
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except UnicodeDecodeError as error:
        raise _Fault(f" is not UTF-8 text (byte {error.start})") from error
    except OSError as error:
        raise _Fault(f" cannot be read: {error.strerror}") from error


def _entries(text: str) -> dict[str, JsonValue]:
    if not text.strip():
        return {}
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise _Fault(f", line {error.lineno}, column {error.colno}: not valid JSON: {error.msg.lower()}") from error
    except RecursionError as error:
        raise _Fault(": nested too deeply") from error
    servers = found.get("mcpServers", None if found else {}) if isinstance(found, dict) else None
    if not isinstance(servers, dict):
        raise _Fault(': it should hold one object, {"mcpServers": {NAME: {...}}}')
    return servers


def _server(name: str, entry: JsonValue, path: Path, environ: Mapping[str, str]) -> McpServer | None:
    """None for one that is turned off. Raises _Fault."""
    try:
        given = _Entry.model_validate(entry)
    except ValidationError as error:
        first = error.errors()[0]
        spot = ".".join(("mcpServers", name, *(str(part) for part in first["loc"])))
        raise _Fault(f"{spot}: {first['msg'][:1].lower()}{first['msg'][1:]}") from error
    if given.disabled:
        return None
    program = given.type in (None, "stdio") and not (given.type is None and given.url and not given.command)
    if program and not given.command.strip():
        raise _Fault(f"mcpServers.{name} needs a `command` (or a `type` of http or sse and a `url`)")
    if not program and not given.url.startswith(("http://", "https://", "${")):
        raise _Fault(f"mcpServers.{name}.url should begin with http:// or https://")
    way: StdioServer | RemoteServer
    if program:
        args = tuple(_filled(word, environ) for word in given.args)
        if bad := [key for key in given.env if not key or "=" in key or "\0" in key]:
            raise _Fault(f"mcpServers.{name}.env: {bad[0]!r} is no name of a variable")
        way = StdioServer(command=_filled(given.command, environ), args=args, env=_all_filled(given.env, environ))
    else:
        kind: Literal["http", "sse"] = "sse" if given.type == "sse" else "http"
        way = RemoteServer(kind=kind, url=_filled(given.url, environ), headers=_all_filled(given.headers, environ))
    return McpServer(name=name, source=str(path), way=way, timeout=given.timeout / 1000)


def _all_filled(given: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    return {name: _filled(value, environ) for name, value in given.items()}


def _filled(text: str, environ: Mapping[str, str]) -> str:
    """`${NAME}` and `${NAME:-otherwise}` replaced."""

    def value(found: re.Match[str]) -> str:
        name, otherwise = found.groups()
        held = environ.get(name, "")
        if not held and otherwise is None and name not in environ:
            raise _Fault(f"the variable {name} is not set (`${{{name}:-...}}` gives a value for that case)")
        return held or otherwise or ""

    filled = _VARIABLE.sub(value, text)
    if "\0" in filled:
        raise _Fault("it holds a NUL character")
    return filled


def _line(text: str, name: str) -> int:
    """Where the entry stands: the line of its name's first use as a key."""
    found = re.search(rf"{re.escape(json.dumps(name, ensure_ascii=False))}\s*:", text)
    return text.count("\n", 0, found.start()) + 1 if found else 1
