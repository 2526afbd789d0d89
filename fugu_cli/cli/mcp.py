"""`fugu mcp`: the MCP servers that count in the current folder; adds one, removes one, logs in at
one.

Changes `.mcp.json` by extensions/mcp_settings.py, which reads it as well. Starts no server: `fugu
doctor` does.
"""

from __future__ import annotations

import asyncio
import os
import sys
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import JsonValue

from fugu_cli.cli.command_flags import McpAddFlags
from fugu_cli.cli.current_folder import current_config, current_path, print_clean, say
from fugu_cli.config.kept_keys import StoredLogins
from fugu_cli.config.loader import LoadedConfig, repository
from fugu_cli.errors import InfrastructureError, UsageError
from fugu_cli.extensions.mcp_settings import (
    MCP_FILE,
    McpServer,
    RemoteServer,
    add_entry,
    remove_entry,
)
from fugu_cli.safety.programs import libraries_search_outside

if TYPE_CHECKING:
    from fugu_cli.extensions.mcp_login import LoginAttempt

Scope = Literal["user", "project"]


def list_servers() -> int:
    """List the servers with command or address and file, then what is left out."""
    declared = current_config().servers
    for note in declared.notes:
        say(note)
    if not declared.servers:
        print_clean("no MCP servers count here; `fugu mcp add` adds one (`fugu help mcp`)")
        return 0
    names = max(len(server.name) for server in declared.servers)
    for server in declared.servers:
        kept = isinstance(server.way, RemoteServer) and StoredLogins().read(server.way.url)
        print_clean(
            f"{server.name:<{names}}  {server.description}  "
            f"({server.source}{', logged in' if kept else ''})"
        )
    return 0


def add_server(flags: McpAddFlags) -> int:
    """Add a server to a settings file. Raises UsageError if the flags describe no server or the name
    is taken, and StorageError.
    """
    path = _file(flags.scope or "user")
    add_entry(path, flags.name, _build_entry(flags))
    print_clean(f"the MCP server {flags.name} is added to {path}; `fugu doctor` tries it")
    _say_trust(flags.scope)
    return 0


def remove_server(name: str, scope: Scope | None) -> int:
    """Take an entry out of the scope's file, of both files without a scope, and end its login.
    Raises UsageError where there is none, StorageError."""
    servers = {server.name: server.way for server in current_config().servers.servers}
    scopes: tuple[Scope, ...] = (scope,) if scope else ("user", "project")
    paths = {entry_scope: _file(entry_scope) for entry_scope in scopes}
    removed = [entry_scope for entry_scope, path in paths.items() if remove_entry(path, name)]
    if not removed:
        files = " and ".join(str(path) for path in paths.values())
        raise UsageError(
            f"there is no MCP server {name!r} in {files}", hint="`fugu mcp list` shows them"
        )
    remote = servers.get(name)
    if isinstance(remote, RemoteServer) and StoredLogins().read(remote.url):
        _end_login(name, remote)
    for entry_scope in removed:
        print_clean(f"the MCP server {name} is removed from {paths[entry_scope]}")
        _say_trust(entry_scope)
    return 0


def login(name: str, remove: bool, timeout: float) -> int:
    """Log in at a server in the browser, or end the login. Raises UsageError for a server that
    is not there or needs none, InfrastructureError where it fails, StorageError."""
    loaded = current_config()
    server = next(
        (candidate for candidate in loaded.servers.servers if candidate.name == name), None
    )
    if server is None:
        names = ", ".join(candidate.name for candidate in loaded.servers.servers)
        hint = f"there are: {names}" if names else "`fugu mcp add` adds one"
        raise UsageError(f"there is no MCP server {name!r} that counts here", hint=hint)
    if not isinstance(server.way, RemoteServer):
        raise UsageError(
            f"{name} is a program and wants no login", hint="--env of `fugu mcp add` gives it a key"
        )
    if remove:
        if StoredLogins().read(server.way.url):
            _end_login(name, server.way)
        else:
            print_clean(f"no login at {name} was kept")
        return 0
    print_clean(asyncio.run(_log_in(loaded, server, server.way, timeout)))
    return 0


def _end_login(name: str, remote: RemoteServer) -> None:
    """Forget a login and ask its server to revoke it."""
    from fugu_cli.extensions import mcp_login

    logins = StoredLogins()
    stored = logins.read(remote.url)
    logins.remove(remote.url)
    failure = asyncio.run(mcp_login.revoke(remote, stored))
    if failure:
        print_clean(f"the login at {name} is forgotten, not revoked ({failure})")
    else:
        print_clean(f"the login at {name} is forgotten and revoked")


async def _log_in(
    loaded: LoadedConfig, server: McpServer, remote: RemoteServer, timeout: float
) -> str:
    from fugu_cli.extensions import mcp_client, mcp_login

    mcp_client.load_sdk()
    patient = server.model_copy(update={"patience": timeout + server.patience})
    try:
        async with mcp_login.asking_login(remote, StoredLogins(), _show, timeout) as attempt:
            typing = asyncio.create_task(_read_typed_address(attempt))
            called = mcp_client.ClientCallbacks(lambda: None)
            try:
                async with mcp_client.connect(
                    patient, loaded.root, called, attempt.provider
                ) as link:
                    tools = len(await mcp_client.list_tools(link))
            finally:
                typing.cancel()
            if attempt.provider.context.current_tokens is None:
                raise UsageError(f"{server.name} works without a login", hint="nothing was kept")
            if not attempt.login.where:
                raise InfrastructureError(
                    "the login cannot be kept", hint="check space and permissions"
                )
    except mcp_client.McpConnectionError as error:
        raise InfrastructureError(
            f"no login at {server.name}: {error}", hint="nothing was kept"
        ) from error
    except OSError as error:
        message = (
            f"no login at {server.name}: port {remote.oauth.port} cannot be used: "
            f"{error.strerror or error}"
        )
        raise InfrastructureError(
            message, hint="name another callbackPort in .mcp.json, or none"
        ) from error
    except mcp_client.sdk_errors() as error:
        raise InfrastructureError(
            f"no login at {server.name}: {error}", hint="nothing was kept"
        ) from error
    return (
        f"logged in at {server.name}, which has {tools} tools; the login is kept in "
        f"{attempt.login.where}"
    )


async def _read_typed_address(attempt: LoginAttempt) -> None:
    """Read the address that the user copies from a browser on another machine, until it has a code."""
    from fugu_cli.ui.headless import read_typed_line

    if sys.stdin is None or not sys.stdin.isatty():
        return
    line = await read_typed_line()
    while line and not attempt.came_back(line):
        print_clean(
            "that is no address with a code; copy the one at which the browser has ended, which "
            "begins with http://127.0.0.1"
        )
        line = await read_typed_line()


async def _show(address: str) -> None:
    """Print the address, and open the browser if there is one."""
    print_clean(f"log in at: {address}")
    print_clean("waiting for the browser to come back to this machine (ctrl+c leaves)")
    if sys.stdin is not None and sys.stdin.isatty():
        print_clean("or paste here the address at which a browser elsewhere ended")
    if (
        "BROWSER" in os.environ
        or sys.platform == "darwin"
        or {"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys()
    ):
        with libraries_search_outside():
            await asyncio.to_thread(webbrowser.open, address)


def _file(scope: Scope) -> Path:
    return (Path.home() if scope == "user" else repository(current_path())) / MCP_FILE


def _say_trust(scope: Scope | None) -> None:
    if scope == "project":
        say(
            "a repository's servers count once you run `fugu trust` here, also after every "
            "change of the file"
        )


def _build_entry(flags: McpAddFlags) -> dict[str, JsonValue]:
    """Return the entry as written in files. Raises UsageError."""
    first, *args = flags.target
    transport = flags.transport or (
        "http" if first.startswith(("http://", "https://")) else "stdio"
    )
    env = dict(_split_pair(word, "=", "--env") for word in flags.env or ())
    headers = dict(_split_pair(word, ":", "--header") for word in flags.header or ())
    oauth: dict[str, JsonValue] = {
        key: value
        for key, value in {
            "clientId": flags.client_id,
            "clientSecret": flags.client_secret,
            "callbackPort": flags.callback_port,
        }.items()
        if value is not None
    }
    if transport == "stdio":
        if headers or oauth:
            misplaced = "--header is" if headers else "--client-id and the like are"
            raise UsageError(f"{misplaced} for a URL", hint="--env sets a variable of a program")
        more: dict[str, JsonValue] = {}
        if env:
            more["env"] = {**env}
        if flags.cwd is not None:
            more["cwd"] = flags.cwd
        return {"command": first, "args": [*args], **more}
    if env or args or flags.cwd is not None:
        misplaced = "--env is" if env else "--cwd is"
        if args:
            misplaced = f"{args[0]!r} and the like are"
        raise UsageError(
            f"{misplaced} for a program, and {first} is called over {transport}",
            hint="--header sends a header",
        )
    more = {"headers": {**headers}} if headers else {}
    return {"type": transport, "url": first, **more, **({"oauth": oauth} if oauth else {})}


def _split_pair(word: str, between: str, flag: str) -> tuple[str, str]:
    name, separator, value = word.partition(between)
    if not separator or not name.strip():
        raise UsageError(
            f"{flag} needs NAME{between}VALUE, not {word!r}",
            hint="repeat the flag for more than one",
        )
    return name.strip(), value.strip() if between == ":" else value
