"""MCP servers as declared in `.mcp.json`, in the format of Claude Code. Also writes entries.

Read with the configuration (config/loader.py), which says whether the repository is trusted.
Nothing here starts a server or imports the SDK. A bad entry leaves out one server and is reported
in words; it never ends a session.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
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
"""Seconds a server may take to become ready."""
PLUGIN_VARIABLE = "CLAUDE_PLUGIN_ROOT"
"""The variable that holds the folder of a plugin for what it brings."""
_SECRET_HEADER = re.compile(r"auth|key|token|secret|cookie|pass", re.IGNORECASE)
"""Matches header names whose values are secrets."""
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,40}")
"""A name that `fugu mcp add` accepts. Files may hold others."""
_INDENT = re.compile(r"\A\s*\{\s*?\n([ \t]+)\"")
_VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)(?::-([^}]*))?\}")


class StdioServer(Value):
    """A server that fugu starts and talks to over standard input and output.

    `cwd` is the folder to start it in, relative to the repository's root. `of_repository`: the
    repository brings it, and not the user.
    """

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    cwd: str = ""
    of_repository: bool = False


class OAuthClient(Value):
    """fugu's client at a server that wants a login. Without an id it registers itself.

    `port` is that of the address to which the browser returns, 0 for any.
    """

    client_id: str = ""
    client_secret: str = ""
    port: int = 0
    scope: str = ""


class RemoteServer(Value):
    """A server at an address."""

    kind: Literal["http", "sse"]
    url: str
    headers: Mapping[str, str] = {}
    oauth: OAuthClient = OAuthClient()


class ClientServer(Value):
    """A server inside the program that started fugu (`fugu sdk`), reached over that connection."""


class McpServer(Value):
    """A server named in the file `source`. `timeout` (of a call) and `patience` (to become ready)
    are seconds.
    """

    name: str
    source: str
    way: StdioServer | RemoteServer | ClientServer
    timeout: float = DEFAULT_CALL_SECONDS
    patience: float = DEFAULT_START_SECONDS

    @property
    def description(self) -> str:
        """The command or address, without variables and headers, which may hold secrets."""
        match self.way:
            case ClientServer():
                return "inside of the client"
            case StdioServer():
                return " ".join((self.way.command, *self.way.args))
            case RemoteServer():
                return self.way.url


@dataclass(frozen=True)
class DeclaredServers:
    """The servers that may start.

    `notes` say in sentences which entries are left out and why. `untrusted` are files whose servers
    wait for the user to trust their folder.
    """

    servers: tuple[McpServer, ...] = ()
    notes: tuple[str, ...] = ()
    untrusted: tuple[Path, ...] = ()

    @property
    def secrets(self) -> dict[str, str]:
        """Secret values of the entries, under names that redaction.py takes for secrets."""
        secrets: dict[str, str] = {}
        for server in self.servers:
            if isinstance(server.way, StdioServer):
                for name, value in server.way.env.items():
                    secrets[f"{server.name}_{name}"] = value
            elif isinstance(server.way, RemoteServer):
                for name, value in server.way.headers.items():
                    words = value.split()
                    if words and _SECRET_HEADER.search(name):
                        secrets[f"{server.name}_{name}_KEY"] = words[-1]
                if client_secret := server.way.oauth.client_secret:
                    secrets[f"{server.name}_CLIENT_SECRET"] = client_secret
        return secrets

    def joined(self, more: DeclaredServers) -> DeclaredServers:
        """Return the servers of both. If both have a server of the same name, that of `more`
        counts.
        """
        by_name = {server.name: server for server in (*self.servers, *more.servers)}
        return DeclaredServers(
            tuple(by_name.values()),
            (*self.notes, *more.notes),
            (*self.untrusted, *more.untrusted),
        )


class _OAuthEntry(BaseModel):
    """The `oauth` part of an entry."""

    model_config = ConfigDict(extra="ignore", defer_build=True)

    clientId: str = ""
    clientSecret: str = ""
    callbackPort: int = Field(0, ge=0, le=65535)
    scopes: str = ""


class _Entry(BaseModel):
    """An entry of a file. Unknown keys are ignored, since other tools have their own."""

    model_config = ConfigDict(extra="ignore", coerce_numbers_to_str=True, defer_build=True)

    type: Literal["stdio", "http", "streamable-http", "sse", "sdk"] | None = None
    command: str = ""
    args: list[str] = []
    env: dict[str, str] = {}
    cwd: str = ""
    url: str = ""
    headers: dict[str, str] = {}
    oauth: _OAuthEntry = _OAuthEntry.model_construct()
    timeout: float = Field(DEFAULT_CALL_SECONDS * 1000, gt=0)
    disabled: bool = False

    @property
    def is_program(self) -> bool:
        """True if fugu starts this server, rather than connecting to an address."""
        return self.type in (None, "stdio") and not (
            self.type is None and self.url and not self.command
        )


class SettingsFault(Exception):
    """A settings file, or a part of it, cannot be used. The message gives the reason."""


def read_servers(
    user: Path, own: Path | None, *, trusted: bool, environ: Mapping[str, str]
) -> DeclaredServers:
    """Read the user's file and the repository's file `own`, whose servers start only if `trusted`.
    If both have a server of the same name, the repository's counts.
    """
    declared = DeclaredServers()
    for path, is_user, may_start in ((user, True, True), (own, False, trusted)):
        if path is None:
            continue
        try:
            servers = _read_file(path, may_start, environ)
            declared = declared.joined(servers if is_user else _of_repository(servers))
        except SettingsFault as fault:
            note = f"{path}{fault}; its MCP servers are left out"
            declared = declared.joined(DeclaredServers((), (note,)))
    return declared


def _of_repository(declared: DeclaredServers) -> DeclaredServers:
    """Return the servers marked as the repository's."""
    servers = []
    for server in declared.servers:
        way = server.way
        if isinstance(way, StdioServer):
            way = way.model_copy(update={"of_repository": True})
        servers.append(server.model_copy(update={"way": way}))
    return replace(declared, servers=tuple(servers))


def read_named(file_or_json: str, environ: Mapping[str, str]) -> DeclaredServers:
    """Read the servers of `--mcp-config`, a file or the JSON itself. Raises ConfigError."""
    inline = file_or_json.lstrip().startswith("{")
    path = Path("--mcp-config") if inline else Path(file_or_json).resolve()
    try:
        if not (inline or path.exists()):
            raise SettingsFault(" does not exist")
        return _read_text(file_or_json if inline else settings_text(path), path, environ)
    except SettingsFault as fault:
        source = "--mcp-config" if inline else f"--mcp-config: {path}"
        raise ConfigError(f"{source}{fault}", hint="`fugu help mcp` shows a file") from fault


def _read_file(path: Path, may_start: bool, environ: Mapping[str, str]) -> DeclaredServers:
    """Read the servers of a file; none, and a note, if they may not start. Raises SettingsFault for
    an unreadable file.
    """
    text = settings_text(path)
    if not may_start and (entries := _entries(text)):
        names = ", ".join(entries)
        note = (
            f"{path} names MCP servers ({names}): none is started until you run `fugu trust` here"
        )
        return DeclaredServers((), (note,), (path,))
    return _read_text(text, path, environ)


def read_plugin_servers(
    plugin: str,
    folder: Path,
    path: Path,
    inline: JsonValue | None,
    environ: Mapping[str, str] | None,
) -> DeclaredServers:
    """Read the servers of a plugin in `folder`: those of the file `path`, or `inline` ones, which
    stand in it. The names may stand alone, without `mcpServers`. Without `environ` variables are
    not filled in.
    """
    source = f"the plugin {plugin} ({path.relative_to(folder).as_posix()})"
    variables = None if environ is None else {**environ, PLUGIN_VARIABLE: str(folder)}
    try:
        settings = parsed_settings(settings_text(path) or "{}") if inline is None else inline
        entries = settings.get("mcpServers", settings) if isinstance(settings, dict) else None
        if not isinstance(entries, dict):
            raise SettingsFault(': it should hold one object, {"mcpServers": {NAME: {...}}}')
    except SettingsFault as fault:
        return DeclaredServers((), (f"{source}{fault}; its MCP servers are left out",))
    servers: list[McpServer] = []
    notes: list[str] = []
    for name, entry in entries.items():
        try:
            server = _parse_entry(name, entry, path, variables)
        except SettingsFault as fault:
            notes.append(f"{source}: the MCP server {name!r} is left out: {fault}")
            continue
        if server is None:
            continue
        way = server.way
        if isinstance(way, StdioServer):
            way = way.model_copy(update={"env": {PLUGIN_VARIABLE: str(folder), **way.env}})
        servers.append(server.model_copy(update={"source": f"the plugin {plugin}", "way": way}))
    return DeclaredServers(tuple(servers), tuple(notes))


def _read_text(text: str, path: Path, environ: Mapping[str, str]) -> DeclaredServers:
    """Read the servers of `text`, the content of `path`. Raises SettingsFault."""
    servers: list[McpServer] = []
    notes: list[str] = []
    for name, entry in _entries(text).items():
        try:
            server = _parse_entry(name, entry, path, environ)
        except SettingsFault as fault:
            notes.append(
                f"{path}, line {_line_of_entry(text, name)}: the MCP server {name!r} is left out: {fault}"
            )
        else:
            if server is not None:
                servers.append(server)
    return DeclaredServers(tuple(servers), tuple(notes))


def add_entry(
    path: Path, name: str, entry: Mapping[str, JsonValue], *, dry_run: bool = False
) -> None:
    """Write a server's entry into a file and keep everything else in it. `dry_run`: only check it.

    Raises UsageError for a bad or used name, an invalid entry or an unreadable file, StorageError
    if the file cannot be written.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is not a server name", hint="use letters, digits, dots, - and _, at most 40"
        )
    text, servers = _changeable(path)
    if name in servers:
        hint = f"`fugu mcp remove {name}` removes it; nothing was changed"
        raise UsageError(f"{path} has an MCP server {name!r} already", hint=hint)
    try:
        _validate(name, dict(entry))
    except SettingsFault as fault:
        raise UsageError(str(fault), hint="nothing was changed") from fault
    if not dry_run:
        _write(path, text, {**servers, name: dict(entry)})


def remove_entry(path: Path, name: str) -> bool:
    """Remove a server's entry from a file. Return False if there is none.

    Raises UsageError for an unreadable file, StorageError if the file cannot be written.
    """
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
    """Replace the servers in the file, keeping its indentation. A new file is readable by the user
    alone.
    """
    settings = parse_json(text) if text.strip() else {}
    indent = _INDENT.match(text)
    new_text = json.dumps(
        {**settings, "mcpServers": servers}, ensure_ascii=False, indent=indent[1] if indent else 2
    )
    write_atomically(
        path.resolve(), f"{new_text}\n".encode(), mode=None if path.exists() else 0o600
    )


def files_named_by_servers(folder: Path) -> Iterator[Path]:
    """Yield the files in `folder` that its `.mcp.json` would run."""
    for word in words_of_servers(folder):
        yield from files_of_word(folder, word)


def words_of_servers(folder: Path) -> Iterator[str]:
    """Yield the words of the command lines in a folder's `.mcp.json`, and the variables' values."""
    try:
        entries = _entries(settings_text(folder / MCP_FILE))
    except SettingsFault:
        return
    for entry in entries.values():
        if not isinstance(entry, dict):
            continue
        args = entry.get("args")
        env = entry.get("env")
        values = env.values() if isinstance(env, dict) else ()
        words = [entry.get("command"), *(args if isinstance(args, list) else ()), *values]
        yield from (word for word in words if isinstance(word, str))


def files_of_word(folder: Path, word: str) -> Iterator[Path]:
    """Yield the files that a word of a command line may mean: a path, `--name=path`, a Python
    module.
    """
    module = word.replace(".", "/")
    for name in (word, word.partition("=")[2], f"{module}.py", f"{module}/__main__.py"):
        path = folder / name
        try:
            if name and path.is_file() and path.resolve().is_relative_to(folder.resolve()):
                yield path if path.is_relative_to(folder) else path.resolve()
        except (OSError, ValueError):
            continue


def settings_text(path: Path) -> str:
    """Return the text of a file, "" if it does not exist. Raises SettingsFault."""
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
    """Parse the JSON of a settings file. Raises SettingsFault."""
    try:
        settings: JsonValue = parse_json(text)
    except json.JSONDecodeError as error:
        position = f"line {error.lineno}, column {error.colno}"
        raise SettingsFault(f", {position}: not valid JSON: {error.msg.lower()}") from error
    except NestedTooDeeply as error:
        raise SettingsFault(f": {error}") from error
    return settings


def _entries(text: str) -> dict[str, JsonValue]:
    if not text.strip():
        return {}
    settings = parsed_settings(text)
    if settings == {}:
        return {}
    servers = settings.get("mcpServers") if isinstance(settings, dict) else None
    if not isinstance(servers, dict):
        raise SettingsFault(': it should hold one object, {"mcpServers": {NAME: {...}}}')
    return servers


def _validate(name: str, entry: JsonValue) -> _Entry:
    """Validate an entry whose variables are not filled in yet. Raises SettingsFault."""
    try:
        parsed = _Entry.model_validate(entry)
    except ValidationError as error:
        first = error.errors()[0]
        path = ".".join(("mcpServers", name, *(str(part) for part in first["loc"])))
        raise SettingsFault(f"{path}: {first['msg'][:1].lower()}{first['msg'][1:]}") from error
    program = parsed.is_program
    if parsed.type == "sdk":
        return parsed
    if program and not parsed.command.strip():
        raise SettingsFault(
            f"mcpServers.{name} needs a `command` (or a `type` of http or sse and a `url`)"
        )
    if not program and not parsed.url.startswith(("http://", "https://", "${")):
        raise SettingsFault(f"mcpServers.{name}.url should begin with http:// or https://")
    if bad_names := [key for key in parsed.env if not key or "=" in key or "\0" in key]:
        raise SettingsFault(f"mcpServers.{name}.env: {bad_names[0]!r} is not a variable name")
    return parsed


def _parse_entry(
    name: str, entry: JsonValue, path: Path, environ: Mapping[str, str] | None
) -> McpServer | None:
    """Return the server of an entry, None if it is disabled. Raises SettingsFault."""
    parsed = _validate(name, entry)
    if parsed.disabled:
        return None
    transport: StdioServer | RemoteServer | ClientServer
    if parsed.type == "sdk":
        transport = ClientServer()
    elif parsed.is_program:
        transport = StdioServer(
            command=_fill_variables(parsed.command, environ),
            args=tuple(_fill_variables(word, environ) for word in parsed.args),
            env=_fill_values(parsed.env, environ),
            cwd=_fill_variables(parsed.cwd, environ),
        )
    else:
        transport = RemoteServer(
            kind="sse" if parsed.type == "sse" else "http",
            url=_fill_variables(parsed.url, environ),
            headers=_fill_values(parsed.headers, environ),
            oauth=OAuthClient(
                client_id=_fill_variables(parsed.oauth.clientId, environ),
                client_secret=_fill_variables(parsed.oauth.clientSecret, environ),
                port=parsed.oauth.callbackPort,
                scope=parsed.oauth.scopes,
            ),
        )
    return McpServer(name=name, source=str(path), way=transport, timeout=parsed.timeout / 1000)


def _fill_values(values: Mapping[str, str], environ: Mapping[str, str] | None) -> dict[str, str]:
    return {name: _fill_variables(value, environ) for name, value in values.items()}


def _fill_variables(text: str, environ: Mapping[str, str] | None) -> str:
    """Replace `${NAME}` and `${NAME:-default}`. Without `environ` they stay."""
    if environ is None:
        return text

    def value_of(match: re.Match[str]) -> str:
        name, default = match.groups()
        if default is None and name not in environ:
            raise SettingsFault(
                f"the variable {name} is not set (`${{{name}:-...}}` gives a value for that case)"
            )
        return environ.get(name) or default or ""

    filled = _VARIABLE.sub(value_of, text)
    if "\0" in filled:
        raise SettingsFault("it holds a NUL character")
    return filled


def _line_of_entry(text: str, name: str) -> int:
    """Return the line number of the first use of `name` as a key."""
    key = re.search(rf"{re.escape(json.dumps(name, ensure_ascii=False))}\s*:", text)
    return text.count("\n", 0, key.start()) + 1 if key else 1
