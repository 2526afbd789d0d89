"""Logins at MCP servers: OAuth 2.1 with PKCE, done by the SDK.

Below mcp_client.py. `fugu mcp login` asks the user; sessions use the stored login. A login is
stored under the server's address, so no other server gets its token. A session renews an expired
token but never opens a browser: a server that wants a new login costs the user one line.
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
"""Seconds before its expiry at which a token is renewed."""
PAGE = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/html; charset=utf-8\r\nconnection: close\r\n\r\n"
    b"<!doctype html><title>fugu</title><p>fugu has the answer. You can close this page.</p>"
)
TOKENS = ("access_token", "refresh_token")
REVOCATION_SECONDS = 10.0
"""The most seconds that revoking a token may take."""
CALLBACK = "/callback"
LONGEST = 16_384
"""The most bytes read of the browser's request."""


class LoginStore(Protocol):
    """Stores logins by the server's address."""

    def read(self, address: str) -> str:
        """Return the stored text, "" if there is none. Raises StorageError."""

    def keep(self, address: str, text: str) -> str:
        """Store the text in place of an older one. Return where it is stored. Raises StorageError."""

    @property
    def hide(self) -> Callable[[Mapping[str, str]], None]:
        """Mask these values from now on. The names must say that they are secrets."""


class StoredLogin:
    """A server's tokens and the client they belong to. Implements the SDK's TokenStorage."""

    def __init__(
        self, settings: RemoteServer, store: LoginStore, redirect: str, stored: str = ""
    ) -> None:
        self._settings = settings
        self._store = store
        self._redirect = redirect
        self._data: dict[str, Any] = parse_json(stored) if stored else {}
        self.provider: OAuthClientProvider | None = None
        self.where = ""
        """The place where the login was last stored."""

    @property
    def metadata(self) -> object:
        """The description of the authorization server, None before a login."""
        return self._data.get("server")

    async def get_tokens(self) -> OAuthToken | None:
        """Return the stored tokens. An expired access token is left out, so that the SDK renews it."""
        from mcp.shared.auth import OAuthToken

        if "tokens" not in self._data:
            return None
        tokens = OAuthToken.model_validate(self._data["tokens"])
        expiry = self._data.get("until")
        if expiry is None or time.time() < expiry - EARLY:
            return tokens
        return tokens.model_copy(update={"access_token": ""})

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Store new tokens. If that fails they hold for this process."""
        metadata = self.provider.context.oauth_metadata if self.provider is not None else None
        self._data["tokens"] = tokens.model_dump(mode="json", exclude_none=True)
        self._data["until"] = None
        if tokens.expires_in is not None:
            self._data["until"] = time.time() + tokens.expires_in
        self._data["server"] = None
        if metadata is not None:
            self._data["server"] = metadata.model_dump(mode="json", exclude_none=True)
        self._store.hide(_token_variables("mcp", self._data["tokens"]))
        with contextlib.suppress(StorageError):
            text = json.dumps(self._data)
            self.where = await asyncio.to_thread(self._store.keep, self._settings.url, text)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return the client of the server's entry, else the registered one."""
        from mcp.shared.auth import OAuthClientInformationFull

        client = self._settings.oauth
        if client.client_id:
            method = "client_secret_post" if client.client_secret else "none"
            return OAuthClientInformationFull.model_validate(
                {
                    "client_id": client.client_id,
                    "client_secret": client.client_secret or None,
                    "redirect_uris": [self._redirect],
                    "token_endpoint_auth_method": method,
                }
            )
        registered = self._data.get("client")
        return OAuthClientInformationFull.model_validate(registered) if registered else None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Remember the registered client. It is stored with the tokens."""
        self._data["client"] = client_info.model_dump(mode="json", exclude_none=True)


def login_secrets(servers: Iterable[McpServer], store: LoginStore) -> dict[str, str]:
    """Return the stored tokens of these servers, under names that redaction.py takes for secrets."""
    secrets: dict[str, str] = {}
    for server in servers:
        if not isinstance(server.way, RemoteServer):
            continue
        with contextlib.suppress(StorageError, ValueError):
            stored = store.read(server.way.url)
            if stored:
                secrets |= _token_variables(server.name, parse_json(stored).get("tokens", {}))
    return secrets


def _token_variables(server: str, tokens: Mapping[str, str]) -> dict[str, str]:
    return {f"{server}_{key}".upper(): tokens[key] for key in TOKENS if tokens.get(key)}


async def revoke(settings: RemoteServer, stored: str) -> str:
    """Ask a server to revoke the tokens of a stored login (RFC 7009). Return the reason why they
    may still work, "" if they do not.
    """
    import httpx

    try:
        login = parse_json(stored)
        tokens = login.get("tokens") or {}
        endpoint = (login.get("server") or {}).get("revocation_endpoint")
        client = login.get("client") or {}
        name = settings.oauth.client_id or client.get("client_id") or ""
        secret = settings.oauth.client_secret or client.get("client_secret") or ""
    except (ValueError, AttributeError):
        return "the stored login cannot be read"
    if not endpoint:
        return "its server has no address for that"
    form = {"client_id": name}
    auth = None
    if secret and client.get("token_endpoint_auth_method") == "client_secret_basic":
        auth = httpx.BasicAuth(name, secret)
    elif secret:
        form["client_secret"] = secret
    try:
        async with httpx.AsyncClient(auth=auth, timeout=REVOCATION_SECONDS) as connection:
            for kind in reversed(TOKENS):
                if token := tokens.get(kind):
                    fields = {**form, "token": token, "token_type_hint": kind}
                    response = await connection.post(endpoint, data=fields)
                    response.raise_for_status()
    except httpx.HTTPStatusError as error:
        return f"its server answered HTTP {error.response.status_code}"
    except (httpx.HTTPError, httpx.InvalidURL, TypeError) as error:
        return f"its server could not be asked: {plain_text(str(error))[:200] or 'no answer'}"
    return ""


def session_auth(server: McpServer, store: LoginStore | None) -> OAuthClientProvider | None:
    """Return the object that adds the stored token to requests, None without a login. Raises
    StorageError.
    """
    settings = server.way
    if store is None or not isinstance(settings, RemoteServer):
        return None
    if any(name.lower() == "authorization" for name in settings.headers):
        return None
    stored = store.read(settings.url)
    if not stored:
        return None
    try:
        return _provider(
            StoredLogin(settings, store, "http://127.0.0.1/callback", stored),
            settings,
            "http://127.0.0.1/callback",
        )
    except ValueError as error:
        hint = f"`fugu mcp login {server.name}` logs in again"
        raise StorageError(f"the login at {server.name} cannot be read", hint=hint) from error


def _provider(
    login: StoredLogin,
    settings: RemoteServer,
    redirect: str,
    ask: Callable[[str], Awaitable[None]] | None = None,
    answered: Callable[[], Awaitable[AuthorizationCodeResult]] | None = None,
) -> OAuthClientProvider:
    from mcp.client.auth import OAuthClientProvider
    from mcp.shared.auth import OAuthClientMetadata, OAuthMetadata

    client = {
        "client_name": "fugu",
        "redirect_uris": [redirect],
        "scope": settings.oauth.scope or None,
    }
    provider = OAuthClientProvider(
        settings.url, OAuthClientMetadata.model_validate(client), login, ask, answered
    )
    if login.metadata is not None:
        provider.context.oauth_metadata = OAuthMetadata.model_validate(login.metadata)
    login.provider = provider
    return provider


@dataclass(frozen=True)
class LoginAttempt:
    """A login in progress. `came_back` takes the address where the browser ended; it returns False
    for a wrong one.
    """

    provider: OAuthClientProvider
    login: StoredLogin
    came_back: Callable[[str], bool]


class _Callback:
    """Receives the answer of the browser, over HTTP or as an address typed by the user."""

    def __init__(self, limit: float) -> None:
        self._answer: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()
        self._limit = limit

    def came_back(self, address: str) -> bool:
        """Take the address where the browser ended. Return False if it holds no answer."""
        try:
            query = parse_qs(urlsplit(address.strip()).query)
        except ValueError:
            return False
        answer = {name: values[0] for name, values in query.items()}
        if {"code", "error"} & answer.keys() and not self._answer.done():
            self._answer.set_result(answer)
        return self._answer.done()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the browser."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            line = (await reader.readuntil(b"\r\n")).decode("latin-1").split()
            await reader.readuntil(b"\r\n\r\n")
            address = line[1] if len(line) > 1 else ""
            is_answer = address.startswith(f"{CALLBACK}?") and self.came_back(address)
            writer.write(
                PAGE if is_answer else b"HTTP/1.1 404 Not Found\r\nconnection: close\r\n\r\n"
            )
            await writer.drain()
        writer.close()

    async def answered(self) -> AuthorizationCodeResult:
        """Wait for the code. Raises OAuthFlowError if none comes."""
        from mcp.client.auth import OAuthFlowError
        from mcp.shared.auth import AuthorizationCodeResult

        try:
            answer = await asyncio.wait_for(asyncio.shield(self._answer), self._limit)
        except TimeoutError:
            raise OAuthFlowError(
                f"the browser did not come back within {self._limit:g} s"
            ) from None
        if "code" not in answer:
            reason = plain_text(answer.get("error_description") or answer["error"])[:200]
            raise OAuthFlowError(f"the login was refused: {reason}")
        return AuthorizationCodeResult(
            code=answer["code"], state=answer.get("state"), iss=answer.get("iss")
        )


@contextlib.asynccontextmanager
async def asking_login(
    settings: RemoteServer, store: LoginStore, show: Callable[[str], Awaitable[None]], limit: float
) -> AsyncIterator[LoginAttempt]:
    """Begin a login and yield it.

    `show` gets the address where the user logs in. The browser has `limit` seconds to come back.
    Raises OSError if the callback's port is taken.
    """
    callback = _Callback(limit)
    listening = await asyncio.start_server(
        callback.serve, "127.0.0.1", settings.oauth.port, limit=LONGEST
    )
    async with listening:
        redirect = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}{CALLBACK}"
        login = StoredLogin(settings, store, redirect)
        yield LoginAttempt(
            _provider(login, settings, redirect, show, callback.answered), login, callback.came_back
        )
