"""MCP servers as `.mcp.json` declares them, as values, and what is wrong with them in words. Also
writes entries.

Read with the configuration (config/loader.py), which says whether the repository is trusted. The
format is that of Claude Code. Nothing here starts anything or imports the SDK; a fault leaves one
server out, never a session.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from fugu_cli.errors import ConfigError, UsageError
from fugu_cli.messages import Value
from fugu_cli.system.atomic_files import write_atomically
from fugu_cli.system.bounded_json import NestedTooDeeply, parse_json

MCP_FILE = ".mcp.json"
DEFAULT_CALL_SECONDS = 60.0
"""Seconds a call may take, unless the server's entry says otherwise."""
DEFAULT_START_SECONDS = 60.0
"""Seconds a server may take until it is ready."""
_TELLING = re.compile(r"auth|key|token|secret|cookie|pass", re.IGNORECASE)
"""Names of headers whose values are secrets."""
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,40}")
"""A name as `fugu mcp add` takes it. Files may hold others."""
_INDENT = re.compile(r"\A\s*\{\s*?\n([ \t]+)\"")
_VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)(?::-([^}]*))?\}")


class StdioServer(Value):
    """A server that is started and spoken to over its standard input and output."""

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}


class OAuthClient(Value):
    """What fugu is at a server that wants a login. Without an id it registers itself; `port`: of
    the address to which the browser comes back, 0 for any."""

    client_id: str = ""
    client_secret: str = ""
    port: int = 0
    scope: str = ""


class RemoteServer(Value):
    """A server that runs elsewhere."""

    kind: Literal["http", "sse"]
    url: str
    headers: Mapping[str, str] = {}
    oauth: OAuthClient = OAuthClient()


class ClientServer(Value):
    """A server inside of the program that has started fugu (`fugu sdk`): it is reached over that
    connection.
    """


class McpServer(Value):
    """A server by its name in the file `source`. `timeout` and `patience` (until it is ready) in
    seconds.
    """

    name: str
    source: str
    way: StdioServer | RemoteServer | ClientServer
    timeout: float = DEFAULT_CALL_SECONDS
    patience: float = DEFAULT_START_SECONDS

    @property
    def said(self) -> str:
        """What is started or called, for people; without variables and headers, which may hold
        secrets.
        """
        if isinstance(self.way, ClientServer):
            return "inside of the client"
        return (
            " ".join((self.way.command, *self.way.args))
            if isinstance(self.way, StdioServer)
            else self.way.url
        )


@dataclass(frozen=True)
class DeclaredServers:
    """The servers that count. `notes` are sentences for people: what is left out and why;
    `untrusted` are files whose servers do not count before the user trusts their folder.
    """

    servers: tuple[McpServer, ...] = ()
    notes: tuple[str, ...] = ()
    untrusted: tuple[Path, ...] = ()

    @property
    def secrets(self) -> dict[str, str]:
        """Values that the entries hold, under names by which redaction.py tells secrets from other
        settings.
        """
        found: dict[str, str] = {}
        for server in self.servers:
            if isinstance(server.way, StdioServer):
                found |= {f"{server.name}_{name}": value for name, value in server.way.env.items()}
            elif isinstance(server.way, RemoteServer):
                headers = [(name, value.split()) for name, value in server.way.headers.items()]
                telling = [
                    (name, words[-1]) for name, words in headers if words and _TELLING.search(name)
                ]
                found |= {f"{server.name}_{name}_KEY": value for name, value in telling}
                if secret := server.way.oauth.client_secret:
                    found[f"{server.name}_CLIENT_SECRET"] = secret
        return found

    def joined(self, more: DeclaredServers) -> DeclaredServers:
        """These and `more`; a name in both means that of `more`."""
        both = {server.name: server for server in (*self.servers, *more.servers)}
        return DeclaredServers(
            tuple(both.values()),
            (*self.notes, *more.notes),
            (*self.untrusted, *more.untrusted),
        )


class _OAuthEntry(BaseModel):
    """The part of an entry about logins."""

    model_config = ConfigDict(extra="ignore", defer_build=True)

    clientId: str = ""
    clientSecret: str = ""
    callbackPort: int = Field(0, ge=0, le=65535)
    scopes: str = ""


class _Entry(BaseModel):
    """An entry as it stands in a file. Keys of other tools are no fault."""

    model_config = ConfigDict(extra="ignore", coerce_numbers_to_str=True, defer_build=True)

    type: Literal["stdio", "http", "streamable-http", "sse", "sdk"] | None = None
    command: str = ""
    args: list[str] = []
    env: dict[str, str] = {}
    url: str = ""
    headers: dict[str, str] = {}
    oauth: _OAuthEntry = _OAuthEntry.model_construct()
    timeout: float = Field(DEFAULT_CALL_SECONDS * 1000, gt=0)
    disabled: bool = False

    @property
    def is_program(self) -> bool:
        """It is started; else it runs elsewhere."""
        return self.type in (None, "stdio") and not (
            self.type is None and self.url and not self.command
        )


class SettingsFault(Exception):
    """Why a file of settings, or a part of it, cannot be used."""


def read_servers(
    user: Path, own: Path | None, *, trusted: bool, environ: Mapping[str, str]
) -> DeclaredServers:
    """The servers of the user's file and the repository's `own`, the latter only where it is
    `trusted`.

    A name in both means the repository's.
    """
    found = DeclaredServers()
    for path, counts in ((user, True), (own, trusted)):
        try:
            found = found.joined(_declared(path, counts, environ)) if path is not None else found
        except SettingsFault as fault:
            found = found.joined(
                DeclaredServers((), (f"{path}{fault}; its MCP servers are left out",))
            )
    return found


def read_named(given: str, environ: Mapping[str, str]) -> DeclaredServers:
    """The servers of `--mcp-config`, a file or the JSON itself: all of them count. Raises
    ConfigError.
    """
    inline = given.lstrip().startswith("{")
    path = Path("--mcp-config") if inline else Path(given).resolve()
    try:
        if not (inline or path.exists()):
            raise SettingsFault(" does not exist")
        return _declared_in(given if inline else settings_text(path), path, environ)
    except SettingsFault as fault:
        what = "--mcp-config" if inline else f"--mcp-config: {path}"
        raise ConfigError(f"{what}{fault}", hint="`fugu help mcp` shows a file") from fault


def _declared(path: Path, counts: bool, environ: Mapping[str, str]) -> DeclaredServers:
    """The servers of a file, none where it does not count. Raises SettingsFault for a file that
    cannot be read.
    """
    text = settings_text(path)
    if not counts and (entries := _entries(text)):
        names = ", ".join(entries)
        note = (
            f"{path} names MCP servers ({names}): none is started until you run `fugu trust` here"
        )
        return DeclaredServers((), (note,), (path,))
    return _declared_in(text, path, environ)


def _declared_in(text: str, path: Path, environ: Mapping[str, str]) -> DeclaredServers:
    """The servers of the text of the file `path`. Raises SettingsFault."""
    servers: list[McpServer] = []
    notes: list[str] = []
    for name, entry in _entries(text).items():
        try:
            server = _server(name, entry, path, environ)
        except SettingsFault as fault:
            notes.append(
                f"{path}, line {_line(text, name)}: the MCP server {name!r} is left out: {fault}"
            )
        else:
            servers += [] if server is None else [server]
    return DeclaredServers(tuple(servers), tuple(notes))


def add_entry(path: Path, name: str, entry: Mapping[str, JsonValue]) -> None:
    """Write a server's entry into a file; what else stands there stays. Raises UsageError for a
    name that is taken or is none, for an entry that could not be read again, and for a file that
    cannot be read; StorageError."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is no name of a server", hint="letters, digits, dots, - and _, 40 at most"
        )
    text, servers = _changeable(path)
    if name in servers:
        hint = f"`fugu mcp remove {name}` removes it; nothing was changed"
        raise UsageError(f"{path} has an MCP server {name!r} already", hint=hint)
    try:
        _checked(name, dict(entry))
    except SettingsFault as fault:
        raise UsageError(str(fault), hint="nothing was changed") from fault
    _write(path, text, {**servers, name: dict(entry)})


def remove_entry(path: Path, name: str) -> bool:
    """Take a server's entry out of a file. False where there is none. Raises UsageError for a file
    that cannot be read, StorageError."""
    text, servers = _changeable(path)
    if name not in servers:
        return False
    _write(path, text, {key: value for key, value in servers.items() if key != name})
    return True


def _changeable(path: Path) -> tuple[str, dict[str, JsonValue]]:
    try:
        text = settings_text(path)
        return text, _entries(text)
    except SettingsFault as fault:
        raise ConfigError(
            f"{path}{fault}", hint="mend the file first; nothing was changed"
        ) from fault


def _write(path: Path, text: str, servers: Mapping[str, JsonValue]) -> None:
    """The file with other servers, indented as it was. A new file is the user's alone: entries may
    hold secrets.
    """
    whole = parse_json(text) if text.strip() else {}
    found = _INDENT.match(text)
    said = json.dumps(
        {**whole, "mcpServers": servers}, ensure_ascii=False, indent=found[1] if found else 2
    )
    write_atomically(path.resolve(), f"{said}\n".encode(), mode=None if path.exists() else 0o600)


def files_named_by_servers(folder: Path) -> Iterator[Path]:
    """Files in `folder` that its `.mcp.json` would have run: whoever may change them may change
    what is started.
    """
    try:
        entries = _entries(settings_text(folder / MCP_FILE))
    except SettingsFault:
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


def settings_text(path: Path) -> str:
    """The file's text, "" where there is none. Raises SettingsFault."""
    try:
        if path.exists() and not path.is_file():
            raise OSError(0, "it is not a file")
        return path.read_text(encoding="utf-8-sig")
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except UnicodeDecodeError as error:
        raise SettingsFault(f" is not UTF-8 text (byte {error.start})") from error
    except OSError as error:
        raise SettingsFault(f" cannot be read: {error.strerror}") from error


def parsed_settings(text: str) -> JsonValue:
    """The JSON of a file. Raises SettingsFault."""
    try:
        found: JsonValue = parse_json(text)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise SettingsFault(f", {where}: not valid JSON: {error.msg.lower()}") from error
    except NestedTooDeeply as error:
        raise SettingsFault(f": {error}") from error
    return found


def _entries(text: str) -> dict[str, JsonValue]:
    if not text.strip():
        return {}
    found = parsed_settings(text)
    servers = found.get("mcpServers", None if found else {}) if isinstance(found, dict) else None
    if not isinstance(servers, dict):
        raise SettingsFault(': it should hold one object, {"mcpServers": {NAME: {...}}}')
    return servers


def _checked(name: str, entry: JsonValue) -> _Entry:
    """An entry whose variables are not filled in yet. Raises SettingsFault."""
    try:
        given = _Entry.model_validate(entry)
    except ValidationError as error:
        first = error.errors()[0]
        spot = ".".join(("mcpServers", name, *(str(part) for part in first["loc"])))
        raise SettingsFault(f"{spot}: {first['msg'][:1].lower()}{first['msg'][1:]}") from error
    program = given.is_program
    if given.type == "sdk":
        return given
    if program and not given.command.strip():
        raise SettingsFault(
            f"mcpServers.{name} needs a `command` (or a `type` of http or sse and a `url`)"
        )
    if not program and not given.url.startswith(("http://", "https://", "${")):
        raise SettingsFault(f"mcpServers.{name}.url should begin with http:// or https://")
    if bad := [key for key in given.env if not key or "=" in key or "\0" in key]:
        raise SettingsFault(f"mcpServers.{name}.env: {bad[0]!r} is no name of a variable")
    return given


def _server(
    name: str, entry: JsonValue, path: Path, environ: Mapping[str, str]
) -> McpServer | None:
    """None for one that is turned off. Raises SettingsFault."""
    given = _checked(name, entry)
    if given.disabled:
        return None
    way: StdioServer | RemoteServer | ClientServer
    if given.type == "sdk":
        way = ClientServer()
    elif given.is_program:
        args = tuple(_filled(word, environ) for word in given.args)
        way = StdioServer(
            command=_filled(given.command, environ), args=args, env=_all_filled(given.env, environ)
        )
    else:
        kind: Literal["http", "sse"] = "sse" if given.type == "sse" else "http"
        said = given.oauth
        client = OAuthClient(
            client_id=_filled(said.clientId, environ),
            client_secret=_filled(said.clientSecret, environ),
            port=said.callbackPort,
            scope=said.scopes,
        )
        headers = _all_filled(given.headers, environ)
        way = RemoteServer(
            kind=kind, url=_filled(given.url, environ), headers=headers, oauth=client
        )
    return McpServer(name=name, source=str(path), way=way, timeout=given.timeout / 1000)


def _all_filled(given: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    return {name: _filled(value, environ) for name, value in given.items()}


def _filled(text: str, environ: Mapping[str, str]) -> str:
    """`${NAME}` and `${NAME:-otherwise}` replaced."""

    def value(found: re.Match[str]) -> str:
        name, otherwise = found.groups()
        held = environ.get(name, "")
        if not held and otherwise is None and name not in environ:
            raise SettingsFault(
                f"the variable {name} is not set (`${{{name}:-...}}` gives a value for that case)"
            )
        return held or otherwise or ""

    filled = _VARIABLE.sub(value, text)
    if "\0" in filled:
        raise SettingsFault("it holds a NUL character")
    return filled


def _line(text: str, name: str) -> int:
    """Where the entry stands: the line of its name's first use as a key."""
    found = re.search(rf"{re.escape(json.dumps(name, ensure_ascii=False))}\s*:", text)
    return text.count("\n", 0, found.start()) + 1 if found else 1
