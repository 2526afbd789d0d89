"""Logins at MCP servers: OAuth 2.1 with PKCE, by the SDK. `fugu mcp login` asks the user; sessions
use what was kept.

Below mcp_client.py. A login is kept under the server's address, so no other server gets its token.
Where it is kept the caller says (LoginStore). A session renews a token that has run out and never
opens a browser: a server that wants a new login costs a line.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import parse_qs, urlsplit

from fugu_cli.errors import StorageError
from fugu_cli.extensions.mcp_settings import McpServer, RemoteServer
from fugu_cli.system.bounded_json import parse_json
from fugu_cli.tools.result import plain_text

if TYPE_CHECKING:
    from mcp.client.auth import OAuthClientProvider
    from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthToken

EARLY = 30.0
"""Seconds before its end at which a token is renewed."""
PAGE = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/html; charset=utf-8\r\nconnection: close\r\n\r\n"
    b"<!doctype html><title>fugu</title><p>fugu has the answer. You can close this page.</p>"
)
TOKENS = ("access_token", "refresh_token")
CALLBACK = "/callback"
LONGEST = 16_384
"""Bytes of the browser's request that are read."""


class LoginStore(Protocol):
    """Where logins are kept, by the server's address."""

    def read(self, address: str) -> str:
        """What was kept, "" where nothing was. Raises StorageError."""

    def keep(self, address: str, text: str) -> str:
        """Keep it in place of an older one. Returns where. Raises StorageError."""

    @property
    def hide(self) -> Callable[[Mapping[str, str]], None]:
        """Told which values are secret from now on, by names that say so."""


class KeptLogin:
    """A server's tokens and the client they belong to, as the SDK asks for them (its
    TokenStorage).
    """

    def __init__(self, way: RemoteServer, store: LoginStore, redirect: str, kept: str = "") -> None:
        self._way = way
        self._store = store
        self._redirect = redirect
        self._data: dict[str, Any] = parse_json(kept) if kept else {}
        self.provider: OAuthClientProvider | None = None
        self.where = ""
        """Where the login was kept just now."""

    @property
    def metadata(self) -> object:
        """What the server that gives tokens says of itself; None before a login."""
        return self._data.get("server")

    async def get_tokens(self) -> OAuthToken | None:
        """The kept tokens. One that has run out is given as none, so that the SDK renews it."""
        from mcp.shared.auth import OAuthToken

        if "tokens" not in self._data:
            return None
        found = OAuthToken.model_validate(self._data["tokens"])
        until = self._data.get("until")
        return (
            found
            if until is None or time.time() < until - EARLY
            else found.model_copy(update={"access_token": ""})
        )

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Keep new tokens. Where that fails they hold for this process."""
        metadata = self.provider.context.oauth_metadata if self.provider is not None else None
        self._data |= {
            "tokens": tokens.model_dump(mode="json", exclude_none=True),
            "until": time.time() + tokens.expires_in if tokens.expires_in is not None else None,
            "server": metadata.model_dump(mode="json", exclude_none=True)
            if metadata is not None
            else None,
        }
        self._store.hide(_named("mcp", self._data["tokens"]))
        with contextlib.suppress(StorageError):
            self.where = await asyncio.to_thread(
                self._store.keep, self._way.url, json.dumps(self._data)
            )

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """The client that the entry names, else the one that was registered."""
        from mcp.shared.auth import OAuthClientInformationFull

        given = self._way.oauth
        if given.client_id:
            method = "client_secret_post" if given.client_secret else "none"
            said = {"client_id": given.client_id, "client_secret": given.client_secret or None}
            more = {"redirect_uris": [self._redirect], "token_endpoint_auth_method": method}
            return OAuthClientInformationFull.model_validate({**said, **more})
        kept = self._data.get("client")
        return OAuthClientInformationFull.model_validate(kept) if kept else None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Remember the registered client; it is kept with the tokens."""
        self._data["client"] = client_info.model_dump(mode="json", exclude_none=True)


def login_secrets(servers: Iterable[McpServer], store: LoginStore) -> dict[str, str]:
    """The tokens that were kept for these servers, under names by which redaction.py tells that
    they are secrets.
    """
    found: dict[str, str] = {}
    for server in servers:
        with contextlib.suppress(StorageError, ValueError):
            kept = store.read(server.way.url) if isinstance(server.way, RemoteServer) else ""
            found |= _named(server.name, parse_json(kept).get("tokens", {})) if kept else {}
    return found


def _named(server: str, tokens: Mapping[str, str]) -> dict[str, str]:
    return {f"{server}_{key}".upper(): tokens[key] for key in TOKENS if tokens.get(key)}


def session_auth(server: McpServer, store: LoginStore | None) -> OAuthClientProvider | None:
    """What puts the kept token into requests; None for a server without a login. Raises
    StorageError.
    """
    way = server.way
    if store is None or not isinstance(way, RemoteServer):
        return None
    if any(name.lower() == "authorization" for name in way.headers):
        return None
    kept = store.read(way.url)
    if not kept:
        return None
    try:
        return _provider(
            KeptLogin(way, store, "http://127.0.0.1/callback", kept),
            way,
            "http://127.0.0.1/callback",
        )
    except ValueError as error:
        hint = f"`fugu mcp login {server.name}` logs in again"
        raise StorageError(f"the login at {server.name} cannot be read", hint=hint) from error


def _provider(
    login: KeptLogin,
    way: RemoteServer,
    redirect: str,
    ask: Callable[[str], Awaitable[None]] | None = None,
    answered: Callable[[], Awaitable[AuthorizationCodeResult]] | None = None,
) -> OAuthClientProvider:
    from mcp.client.auth import OAuthClientProvider
    from mcp.shared.auth import OAuthClientMetadata, OAuthMetadata

    about = {"client_name": "fugu", "redirect_uris": [redirect], "scope": way.oauth.scope or None}
    provider = OAuthClientProvider(
        way.url, OAuthClientMetadata.model_validate(about), login, ask, answered
    )
    if login.metadata is not None:
        provider.context.oauth_metadata = OAuthMetadata.model_validate(login.metadata)
    login.provider = provider
    return provider


@dataclass(frozen=True)
class LoginAttempt:
    """A login under way. `came_back` takes the address at which the browser ended; False for one
    that is none.
    """

    provider: OAuthClientProvider
    login: KeptLogin
    came_back: Callable[[str], bool]


class _Callback:
    """What the browser brings back: to the address it was sent to, or typed by the user."""

    def __init__(self, limit: float) -> None:
        self._answer: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()
        self._limit = limit

    def came_back(self, address: str) -> bool:
        """Take the address at which the browser ended. False for one that is none."""
        try:
            query = parse_qs(urlsplit(address.strip()).query)
        except ValueError:
            return False
        found = {name: values[0] for name, values in query.items()}
        if {"code", "error"} & found.keys() and not self._answer.done():
            self._answer.set_result(found)
        return self._answer.done()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the browser."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            line = (await reader.readuntil(b"\r\n")).decode("latin-1").split()
            await reader.readuntil(b"\r\n\r\n")
            address = line[1] if len(line) > 1 else ""
            known = address.startswith(f"{CALLBACK}?") and self.came_back(address)
            writer.write(PAGE if known else b"HTTP/1.1 404 Not Found\r\nconnection: close\r\n\r\n")
            await writer.drain()
        writer.close()

    async def answered(self) -> AuthorizationCodeResult:
        """The code. Raises OAuthFlowError where none comes."""
        from mcp.client.auth import OAuthFlowError
        from mcp.shared.auth import AuthorizationCodeResult

        try:
            found = await asyncio.wait_for(asyncio.shield(self._answer), self._limit)
        except TimeoutError:
            raise OAuthFlowError(
                f"the browser did not come back within {self._limit:g} s"
            ) from None
        if "code" not in found:
            why = plain_text(found.get("error_description") or found["error"])[:200]
            raise OAuthFlowError(f"the login was refused: {why}")
        return AuthorizationCodeResult(
            code=found["code"], state=found.get("state"), iss=found.get("iss")
        )


@contextlib.asynccontextmanager
async def asking_login(
    way: RemoteServer, store: LoginStore, show: Callable[[str], Awaitable[None]], limit: float
) -> AsyncIterator[LoginAttempt]:
    """A login from the beginning: `show` is given the address at which the user logs in, and
    `limit` is how many seconds the browser has to come back. Raises OSError where the callback's
    port is taken."""
    callback = _Callback(limit)
    listening = await asyncio.start_server(
        callback.serve, "127.0.0.1", way.oauth.port, limit=LONGEST
    )
    async with listening:
        redirect = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}{CALLBACK}"
        login = KeptLogin(way, store, redirect)
        yield LoginAttempt(
            _provider(login, way, redirect, show, callback.answered), login, callback.came_back
        )
