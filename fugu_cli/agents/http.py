"""One HTTP exchange with a model's server: a JSON request out, server-sent events in, time limits by phase.

Stands under openai.py and anthropic.py, over httpx. It must not know what the events mean: a wire takes each one and
says when the reply is complete. A server that answers with one plain JSON object is passed on as one event.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

import httpx
from pydantic import JsonValue

from fugu_cli.agents import failures, sse
from fugu_cli.agents.access import Access
from fugu_cli.agents.bounds import Held
from fugu_cli.errors import AgentError

Json = dict[str, JsonValue]
"""A request as it goes out; built only by the wires."""


Take = Callable[[sse.ServerEvent], sse.Heard]
"""Takes one event and says how far the reply has come with it."""

LINGER = 1.0
"""Seconds a finished stream may take to close, so that its connection can be used again."""

COUNTING = 10.0
"""Seconds a server has after a reply to say what it cost. Some say neither that nor that the stream is over."""

KEEP = 30.0
"""Seconds an idle connection is kept. On this machine none is: opening one costs nothing there, and llama.cpp ends a
connection after five requests, perhaps just as the sixth is sent."""

ERROR_BODY = 64 * 1024
CONNECTING = 3
"""How often a server is tried that cannot be reached at all."""
_CERTIFICATE = "Name the certificate of its authority in SSL_CERT_FILE, if it is one of your own."


class Connection:
    """The connections of one entry. Opened on the first request, again after `close`."""

    def __init__(
        self, access: Access, headers: Mapping[str, str], transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        self._access = access
        self._headers = dict(headers)
        self._transport = transport
        self._client: httpx.AsyncClient | None = None

    async def post(self, path: str, payload: Json, take: Take) -> None:
        """Sends `payload` to base_url + `path` and gives every event of the answer to `take`.

        Returns when the stream has ended, whole or not: `take` knows. Raises AgentError for everything else.
        """
        access = self._access
        if not (access.key.isascii() and access.key.isprintable()):
            raise _odd_key(access)
        # Lone surrogates (a file name that is no UTF-8) cannot travel in JSON: they go as question marks.
        body = json.dumps({**payload, **access.body}, ensure_ascii=False).encode("utf-8", "replace")
        phase = _Phase(access)
        try:
            async with phase.deadline:
                await self._exchange(path, body, take, phase)
        except TimeoutError:
            if not phase.finished:
                raise phase.timed_out() from None
        except httpx.HTTPError as error:
            if not phase.finished:
                raise _of_transport(access, error, began=phase.arrived) from error
        except httpx.InvalidURL as error:
            raise _bad_address(access, error) from error

    async def close(self) -> None:
        """Closes what is open. May be called twice."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _exchange(self, path: str, body: bytes, take: Take, phase: _Phase) -> None:
        url = self._access.url(path)
        async with self._open().stream("POST", url, content=body) as response:
            if response.status_code != 200:
                raise await _refusal(self._access, response)
            if "event-stream" in response.headers.get("content-type", ""):
                await _stream(self._access, response, take, phase)
            else:
                await _whole(self._access, response, take, phase)

    def _open(self) -> httpx.AsyncClient:
        """The client. Raises AgentError for a proxy or certificates in the environment that cannot be used."""
        if self._client is None:
            try:
                self._client = self._made()
            except (ImportError, ValueError, OSError, httpx.InvalidURL) as error:
                raise AgentError(
                    f"{self._access.name}: no connection to {self._access.host} can be prepared: {error}",
                    kind="network",
                    hint="Check ALL_PROXY, HTTPS_PROXY, NO_PROXY and SSL_CERT_FILE. Of proxies, those over http work.",
                ) from error
        return self._client

    def _made(self) -> httpx.AsyncClient:
        here = self._access.loopback
        kept = {"connection": "close"} if here else {}
        sealed = self._access.base_url.startswith("https") and self._transport is None
        return httpx.AsyncClient(
            headers={
                "content-type": "application/json",
                "accept": "text/event-stream",
                **kept,
                **self._headers,
                **self._access.headers,
            },
            timeout=httpx.Timeout(None, connect=self._access.timeouts.connect),
            limits=httpx.Limits(max_keepalive_connections=0 if here else 10, keepalive_expiry=KEEP),
            transport=self._transport,
            # Loading certificates costs 30 ms: not where none are used. SSL_CERT_FILE counts on this machine as well.
            verify=httpx.create_ssl_context() if sealed else False,
            trust_env=not here,
        )


class _Phase:
    """Which phase an exchange is in, and when it must have ended.

    Whatever arrives starts the clock anew: a comment or an empty piece says that the server is at work. How long it may
    be silent depends on whether a token has come: some send an empty piece at once and think for minutes then.
    """

    def __init__(self, access: Access) -> None:
        self._access = access
        self._limit = access.timeouts.first_token
        self.arrived = self.began = False
        self.finished = False
        now = asyncio.get_running_loop().time()
        self._end = now + access.timeouts.whole
        self.deadline = asyncio.timeout_at(min(now + self._limit, self._end))

    def heard(self, heard: sse.Heard) -> None:
        """A portion arrived."""
        self.arrived = True
        self.began = self.began or heard >= sse.Heard.BEGUN
        self.finished = heard >= sse.Heard.SAID
        timeouts = self._access.timeouts
        self._limit = timeouts.between if self.began else timeouts.first_token
        if self.finished:
            self._limit = LINGER if heard == sse.Heard.WHOLE else min(COUNTING, timeouts.between)
        self.deadline.reschedule(min(asyncio.get_running_loop().time() + self._limit, self._end))

    def timed_out(self) -> AgentError:
        what = "stopped in the middle of its answer" if self.began else "did not answer"
        if asyncio.get_running_loop().time() >= self._end:
            what, self._limit = "did not finish", self._access.timeouts.whole
        return AgentError(
            f"{self._access.name}: {self._access.host} {what} for {self._limit:g} s",
            kind="timeout",
            retry=True,
            hint="The server may be overloaded. Try later, or use another agent.",
        )


async def _stream(access: Access, response: httpx.Response, take: Take, phase: _Phase) -> None:
    decoder = sse.Decoder()
    heard = sse.Heard.NOTHING
    held = Held(access.name, access.host)
    async for chunk in response.aiter_bytes():
        events = decoder.feed(chunk)
        held.arrived(len(chunk), max(len(events), chunk.count(b"\n\n")))  # comments count as well
        for event in events:
            heard = max(take(event), heard)
        phase.heard(heard)
        if heard is sse.Heard.ENOUGH:
            return
    for event in decoder.finish():
        take(event)


async def _whole(access: Access, response: httpx.Response, take: Take, phase: _Phase) -> None:
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        phase.heard(sse.Heard.BEGUN)
        if len(body) > sse.LIMIT:
            raise AgentError(f"{access.name}: {access.host} sent more than an answer can be", kind="protocol")
    text = body.decode("utf-8", "replace").strip()
    if text.startswith("{"):
        take(sse.ServerEvent(text))
        return
    if not text.startswith(("data:", "event:", ":")):
        what = "an HTML page" if text.startswith("<") else f"{text[:60]!r}"
        raise AgentError(
            f"{access.name}: {access.host} answered with {what} instead of a model's reply",
            kind="protocol",
            hint=f"Check `base_url` of the entry {access.name}: {access.address}",
        )
    decoder = sse.Decoder()
    for event in [*decoder.feed(bytes(body)), *decoder.finish()]:
        take(event)


async def _refusal(access: Access, response: httpx.Response) -> AgentError:
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > ERROR_BODY:
            break
    text = body.decode("utf-8", "replace")
    message, kind = failures.words(text)
    now = datetime.now(UTC)
    after = failures.retry_after(response.headers, now)
    after = failures.delay(text) if after is None else after
    after = failures.limit_reset(response.headers, now) if after is None and response.status_code == 429 else after
    return failures.of_status(access, response.status_code, f"{message} ({kind})" if kind else message, after)


def _of_transport(access: Access, error: httpx.HTTPError, *, began: bool) -> AgentError:
    reason = access.hidden(str(error)) or type(error).__name__
    if isinstance(error, httpx.ConnectTimeout):
        return AgentError(
            f"{access.name}: no connection to {access.host} within {access.timeouts.connect:g} s",
            kind="timeout",
            retry=True,
            hint="Check the network, or a proxy in HTTPS_PROXY.",
        )
    if isinstance(error, httpx.ConnectError):
        return _no_connection(access, reason)
    if isinstance(error, httpx.ProxyError):
        return AgentError(
            f"{access.name}: the proxy on the way to {access.host} does not let it through: {reason}",
            kind="network",
            retry=not reason.startswith("4"),
            hint="Check HTTPS_PROXY, and whether the proxy wants a name and a password in it.",
        )
    if isinstance(error, (httpx.UnsupportedProtocol, httpx.LocalProtocolError)):
        return _bad_address(access, error)
    if isinstance(error, httpx.DecodingError):
        return AgentError(f"{access.name}: {access.host} sent bytes that do not unpack: {reason}", kind="protocol")
    what = "cut the stream" if began else "closed the connection before it answered"
    return AgentError(f"{access.name}: {access.host} {what}: {reason}", kind="network", retry=True)


def _no_connection(access: Access, reason: str) -> AgentError:
    """A certificate stays as it is; a name that is not found or a server that does not listen seldom comes back soon,
    and every agent behind it would wait as long."""
    known = "CERTIFICATE" in reason
    proxy = "" if access.loopback else " a proxy in HTTPS_PROXY,"
    hint = f"Check the network,{proxy} that the server runs and that `base_url` is right: {access.address}"
    said = f"{access.name}: no connection to {access.host}: {reason}"
    error = AgentError(said, kind="network", retry=not known, hint=_CERTIFICATE if known else hint)
    error.tries = CONNECTING
    return error


def _odd_key(access: Access) -> AgentError:
    where = access.key_env or "its `api_key_env`"
    return AgentError(
        f"{access.name}: the key in {where} holds characters that no key has",
        kind="refused",
        hint=f"Set {where} to the key alone: no quotes, spaces or line breaks.",
    )


def _bad_address(access: Access, error: Exception) -> AgentError:
    return AgentError(
        f"{access.name}: no request can be made to {access.address!r}: {access.hidden(str(error))}",
        kind="absent",
        hint=f"Check `base_url` of the entry {access.name}.",
    )
