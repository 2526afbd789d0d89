"""A remote server over HTTP: streamable HTTP, or server-sent events for older servers.

Stands below mcp_client.py. It keeps answers that are no message of the protocol (a refusal, a web
page), because the SDK does not report them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any

from fugu_cli.extensions.mcp_settings import RemoteServer
from fugu_cli.tools.result import plain_text

if TYPE_CHECKING:
    import httpx2
    from mcp.client._transport import TransportStreams

MESSAGES = ("application/json", "text/event-stream")
"""Content types of answers that hold messages of the protocol."""
WANTS_LOGIN = "it wants a login (HTTP 401)"
CONNECT_SECONDS = 30.0
READ_SECONDS = 300.0


class HttpTransport:
    """The streams of messages from and to the server, as an async context manager that is entered
    once.
    """

    def __init__(self, settings: RemoteServer, auth: httpx2.Auth | None = None) -> None:
        self._settings = settings
        self._auth = auth
        self._streams: AbstractAsyncContextManager[TransportStreams] | None = None
        self.oddity = ""
        """A description of the newest answer if it is no message of the protocol, else ""."""
        self.ended = asyncio.Event()
        """Set when the connection has ended."""

    async def __aenter__(self) -> TransportStreams:
        self._streams = self._connected()
        return await self._streams.__aenter__()

    async def __aexit__(self, *exception: Any) -> bool | None:
        assert self._streams is not None
        return await self._streams.__aexit__(*exception)

    async def why(self) -> str:
        """Return the description of an unexpected answer, "" if there is none."""
        return self.oddity

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[TransportStreams]:
        from mcp.client.sse import sse_client
        from mcp.client.streamable_http import streamable_http_client

        if self._settings.kind == "sse":
            headers = dict(self._settings.headers)
            async with sse_client(
                self._settings.url, headers, httpx_client_factory=self._client, auth=self._auth
            ) as streams:
                yield streams
            return
        async with (
            self._client(dict(self._settings.headers), auth=self._auth) as client,
            streamable_http_client(self._settings.url, http_client=client) as streams,
        ):
            yield streams

    def _client(
        self,
        headers: dict[str, str] | None = None,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = None,
    ) -> httpx2.AsyncClient:
        import httpx2

        times = timeout or httpx2.Timeout(CONNECT_SECONDS, read=READ_SECONDS)
        return httpx2.AsyncClient(
            headers=headers,
            timeout=times,
            auth=auth,
            event_hooks={"response": [self._note], "request": []},
        )

    async def _note(self, response: httpx2.Response) -> None:
        """Keep a description of an unexpected answer.

        Only answers to messages count: servers need not offer a stream (GET) or an end (DELETE),
        and the SDK handles the login.
        """
        message_method = "GET" if self._settings.kind == "sse" else "POST"
        request = response.request
        if request.method == message_method and "text/event-stream" in request.headers.get(
            "accept", ""
        ):
            self.oddity = _oddity(response)


def _oddity(response: httpx2.Response) -> str:
    status = response.status_code
    content_type = (
        plain_text(response.headers.get("content-type", "")).partition(";")[0].strip().lower()[:60]
    )
    if status == 401:
        return WANTS_LOGIN
    if status == 403:
        return "it does not let you in (HTTP 403)"
    if content_type == "text/html":
        return f"it answered with a web page (HTTP {status}): is this the address of an MCP server?"
    if status >= 400:
        return f"it answered with HTTP {status}"
    if content_type and not content_type.startswith(MESSAGES) and status == 200:
        return f"it answered with {content_type}, which is no message of an MCP server"
    return ""
