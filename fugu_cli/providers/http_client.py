"""One HTTP exchange with a model's server: a JSON request goes out, server-sent events come in.
Holds the timeout of each phase, the SSE parser and the limits on what one reply may hold. It does
not know what an event means: a wire format takes each one and says how far the reply has come.

The SSE grammar is the WHATWG one: lines end in LF, CR or CRLF; `data` lines of one event are joined
by newlines; a colon begins a comment; a blank line ends the event. Bytes that are no UTF-8 become
replacement characters. A server that answers with one plain JSON object is passed on as one event.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import IntEnum

import httpx
from pydantic import JsonValue

from fugu_cli.errors import AgentError
from fugu_cli.providers import error_mapping
from fugu_cli.providers.endpoint import ModelEndpoint

MOST_CHARACTERS = 4 * 1024 * 1024
"""Of text, thoughts and arguments together."""
MOST_PARTS = 2000
"""Calls, or blocks of a message."""
MOST_EVENTS = 500_000
"""Of one stream; servers send one or two a token."""
MOST_BYTES = 256 * 1024 * 1024
"""Of one stream, with all that is said around each token."""


class ReplyLimits:
    """Counts what is kept of the reply of the agent `name` at `host`."""

    def __init__(self, name: str, host: str) -> None:
        self._who = f"{name}: {host}"
        self._characters = 0
        self.received_bytes = 0
        """Of text, thoughts and arguments, in UTF-8."""
        self._events = 0
        self._bytes = 0

    def add(self, *texts: str) -> None:
        """These are kept. Raises AgentError where it is more than a reply can be."""
        self._characters += sum(map(len, texts))
        self.received_bytes += sum(len(text.encode("utf-8", "replace")) for text in texts)
        if self._characters > MOST_CHARACTERS:
            raise self._error(f"more than {MOST_CHARACTERS:,} characters")

    def parts(self, count: int) -> None:
        """So many calls or blocks have been begun. Raises AgentError likewise."""
        if count > MOST_PARTS:
            raise self._error(f"more than {MOST_PARTS:,} calls or blocks")

    def arrived(self, size: int, events: int) -> None:
        """A portion of a stream: its bytes, and the events it completed. Raises AgentError
        likewise.
        """
        self._bytes += size
        self._events += events
        if self._bytes > MOST_BYTES or self._events > MOST_EVENTS:
            raise self._error(
                f"more than {MOST_BYTES // 1024 // 1024} MiB or {MOST_EVENTS:,} events"
            )

    def _error(self, what: str) -> AgentError:
        return AgentError(
            f"{self._who} sent {what} as one reply, and no end",
            kind="protocol",
            hint="The server or its model repeats itself. Try later, or use another agent.",
        )


EVENT_LIMIT = 8 * 1024 * 1024
"""Bytes of one event: a server that sends more without a blank line is not speaking this
protocol.
"""

BOM = b"\xef\xbb\xbf"


class ReplyProgress(IntEnum):
    """How far a reply has come: nothing of it yet, a token at least, all but what it cost, all of
    it, or all that is wanted."""

    NOTHING = 0
    BEGUN = 1
    SAID = 2
    WHOLE = 3
    ENOUGH = 4


@dataclass(frozen=True)
class ServerEvent:
    """One event. `whole` is False for what was pending when the stream ended: its last line may be
    cut short.
    """

    data: str
    name: str = "message"
    whole: bool = True


class SseDecoder:
    """Bytes in any portions -> events, the same ones for every portioning. Raises
    AgentError(kind="protocol").
    """

    def __init__(self) -> None:
        self._line = bytearray()
        self._data: list[str] = []
        self._name = ""
        self._size = 0
        self._after_cr = False
        self._first = True

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """The events that `chunk` completes."""
        if not chunk:
            return []
        rest = chunk[1:] if self._after_cr and chunk.startswith(b"\n") else chunk
        self._after_cr, chunk = chunk.endswith(b"\r"), rest
        lines = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        found = []
        for part in lines[:-1]:
            self._grow(part)
            if (event := self._close_line()) is not None:
                found.append(event)
        self._grow(lines[-1])
        return found

    def finish(self) -> list[ServerEvent]:
        """The event that the end of the stream left without its blank line, if there is one."""
        whole = not self._line
        if self._line:
            self._close_line()
        event = self._dispatch()
        return [] if event is None else [ServerEvent(event.data, event.name, whole=whole)]

    def _grow(self, part: bytes) -> None:
        self._line += part
        self._size += len(part)
        if self._size > EVENT_LIMIT:
            raise AgentError(
                f"the server sent more than {EVENT_LIMIT // 1024 // 1024} MiB without ending an "
                f"event",
                kind="protocol",
                hint="Check that `base_url` is the address of an API, not of a download.",
            )

    def _close_line(self) -> ServerEvent | None:
        line = bytes(self._line)
        self._line.clear()
        if self._first:
            self._first = False
            line = line.removeprefix(BOM)
        if not line:
            return self._dispatch()
        field, _, value = line.decode("utf-8", "replace").partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            self._data.append(value)
        elif field == "event":
            self._name = value
        return None

    def _dispatch(self) -> ServerEvent | None:
        event = ServerEvent("\n".join(self._data), self._name or "message") if self._data else None
        self._data.clear()
        self._name = ""
        self._size = 0
        return event


Json = dict[str, JsonValue]
"""A request as it goes out; built only by the wires."""


OnEvent = Callable[[ServerEvent], ReplyProgress]
"""Takes one event and says how far the reply has come with it."""

CLOSE_TIMEOUT = 1.0
"""Seconds a finished stream may take to close, so that its connection can be used again."""

USAGE_TIMEOUT = 10.0
"""Seconds a server has after a reply to say what it cost. Some say neither that nor that the stream
is over.
"""

KEEPALIVE = 30.0
"""Seconds an idle connection is kept. On this machine none is: opening one costs nothing there, and
llama.cpp ends a connection after five requests, perhaps just as the sixth is sent."""

ERROR_BODY = 64 * 1024
CONNECT_TRIES = 2
"""How often a server is tried within one call that cannot be reached at all."""
_CERTIFICATE = "Name the certificate of its authority in SSL_CERT_FILE, if it is one of your own."


class HttpConnection:
    """The connections of one entry. Opened on the first request, again after `close`."""

    def __init__(
        self,
        access: ModelEndpoint,
        headers: Mapping[str, str],
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._access = access
        self._headers = dict(headers)
        self._transport = transport
        self._client: httpx.AsyncClient | None = None

    async def post(self, path: str, payload: Json, take: OnEvent) -> None:
        """Sends `payload` to base_url + `path` and gives every event of the answer to `take`.

        Returns when the stream has ended, whole or not: `take` knows. Raises AgentError for
        everything else.
        """
        access = self._access
        if not (access.key.isascii() and access.key.isprintable()):
            raise _odd_key(access)
        # Lone surrogates (a file name that is no UTF-8) cannot travel in JSON: they go as question
        # marks.
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

    async def _exchange(self, path: str, body: bytes, take: OnEvent, phase: _Phase) -> None:
        url = self._access.url(path)
        async with self._open().stream("POST", url, content=body) as response:
            if response.status_code != 200:
                raise await _refusal(self._access, response)
            if "event-stream" in response.headers.get("content-type", ""):
                await _stream(self._access, response, take, phase)
            else:
                await _whole_body(self._access, response, take, phase)

    def _open(self) -> httpx.AsyncClient:
        """The client. Raises AgentError for a proxy or certificates in the environment that cannot
        be used.
        """
        if self._client is None:
            try:
                self._client = self._made()
            except (ImportError, ValueError, OSError, httpx.InvalidURL) as error:
                raise AgentError(
                    f"{self._access.name}: no connection to {self._access.host} can be prepared: "
                    f"{error}",
                    kind="network",
                    hint=(
                        "Check ALL_PROXY, HTTPS_PROXY, NO_PROXY and SSL_CERT_FILE. Of proxies, "
                        "those over http work."
                    ),
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
            limits=httpx.Limits(
                max_keepalive_connections=0 if here else 10, keepalive_expiry=KEEPALIVE
            ),
            transport=self._transport,
            # Loading certificates costs 30 ms: not where none are used. SSL_CERT_FILE counts on
            # this machine as well.
            verify=httpx.create_ssl_context() if sealed else False,
            trust_env=not here,
        )


class _Phase:
    """Which phase an exchange is in, and when it must have ended.

    Whatever arrives starts the clock again: a comment or an empty piece says that the server is at
    work. How long it may be silent depends on whether a token has come: some send an empty piece at
    once and think for minutes then.
    """

    def __init__(self, access: ModelEndpoint) -> None:
        self._access = access
        self._limit = access.timeouts.first_token
        self.arrived = self.began = False
        self.finished = False
        now = asyncio.get_running_loop().time()
        self._end = now + access.timeouts.whole
        self.deadline = asyncio.timeout_at(min(now + self._limit, self._end))

    def heard(self, heard: ReplyProgress) -> None:
        """A portion arrived."""
        self.arrived = True
        self.began = self.began or heard >= ReplyProgress.BEGUN
        self.finished = heard >= ReplyProgress.SAID
        timeouts = self._access.timeouts
        self._limit = timeouts.between if self.began else timeouts.first_token
        if self.finished:
            self._limit = (
                CLOSE_TIMEOUT
                if heard == ReplyProgress.WHOLE
                else min(USAGE_TIMEOUT, timeouts.between)
            )
        self.deadline.reschedule(min(asyncio.get_running_loop().time() + self._limit, self._end))

    def timed_out(self) -> AgentError:
        what = "stopped in the middle of its answer" if self.began else "did not answer"
        if asyncio.get_running_loop().time() >= self._end:
            what, self._limit = "did not finish", self._access.timeouts.whole
        error = AgentError(
            f"{self._access.name}: {self._access.host} {what} for {self._limit:g} s",
            kind="timeout",
            retry=True,
            hint="The server may be overloaded. Try later, or use another agent.",
        )
        error.prompt_was_sent = True
        return error


async def _stream(
    access: ModelEndpoint, response: httpx.Response, take: OnEvent, phase: _Phase
) -> None:
    decoder = SseDecoder()
    heard = ReplyProgress.NOTHING
    held = ReplyLimits(access.name, access.host)
    async for chunk in response.aiter_bytes():
        events = decoder.feed(chunk)
        held.arrived(len(chunk), max(len(events), chunk.count(b"\n\n")))  # comments count as well
        for event in events:
            heard = max(take(event), heard)
        phase.heard(heard)
        if heard is ReplyProgress.ENOUGH:
            return
    for event in decoder.finish():
        take(event)


async def _whole_body(
    access: ModelEndpoint, response: httpx.Response, take: OnEvent, phase: _Phase
) -> None:
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        phase.heard(ReplyProgress.BEGUN)
        if len(body) > EVENT_LIMIT:
            raise AgentError(
                f"{access.name}: {access.host} sent more than an answer can be", kind="protocol"
            )
    text = body.decode("utf-8", "replace").strip()
    if text.startswith("{"):
        take(ServerEvent(text))
        return
    if not text.startswith(("data:", "event:", ":")):
        what = "an HTML page" if text.startswith("<") else f"{text[:60]!r}"
        raise AgentError(
            f"{access.name}: {access.host} answered with {what} instead of a model's reply",
            kind="protocol",
            hint=f"Check `base_url` of the entry {access.name}: {access.address}",
        )
    decoder = SseDecoder()
    for event in [*decoder.feed(bytes(body)), *decoder.finish()]:
        take(event)


async def _refusal(access: ModelEndpoint, response: httpx.Response) -> AgentError:
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > ERROR_BODY:
            break
    text = body.decode("utf-8", "replace")
    message, kind = error_mapping.message_of_body(text)
    now = datetime.now(UTC)
    after = error_mapping.retry_after(response.headers, now)
    after = error_mapping.retry_delay(text) if after is None else after
    after = (
        error_mapping.limit_reset(response.headers, now)
        if after is None and response.status_code == 429
        else after
    )
    return error_mapping.error_of_status(
        access, response.status_code, f"{message} ({kind})" if kind else message, after
    )


def _of_transport(access: ModelEndpoint, error: httpx.HTTPError, *, began: bool) -> AgentError:
    reason = access.hidden(str(error)) or type(error).__name__
    if isinstance(error, httpx.ConnectTimeout):
        return _unreachable(access, "timeout", f"no answer within {access.timeouts.connect:g} s")
    if isinstance(error, httpx.ConnectError):
        return _no_connection(access, error, reason)
    if isinstance(error, httpx.ProxyError):
        return AgentError(
            f"{access.name}: the proxy on the way to {access.host} does not let it through: "
            f"{reason}",
            kind="network",
            retry=not reason.startswith("4"),
            hint="Check HTTPS_PROXY, and whether the proxy wants a name and a password in it.",
        )
    if isinstance(error, (httpx.UnsupportedProtocol, httpx.LocalProtocolError)):
        return _bad_address(access, error)
    if isinstance(error, httpx.DecodingError):
        return AgentError(
            f"{access.name}: {access.host} sent bytes that do not unpack: {reason}", kind="protocol"
        )
    what = "cut the stream" if began else "closed the connection before it answered"
    return AgentError(f"{access.name}: {access.host} {what}: {reason}", kind="network", retry=True)


def _no_connection(access: ModelEndpoint, error: httpx.ConnectError, reason: str) -> AgentError:
    if "CERTIFICATE" not in reason:
        unresolved = _is_unresolved(error)
        return _unreachable(access, "network", "its name is not found" if unresolved else reason)
    failure = AgentError(
        f"{access.name}: no connection to {access.host}: {reason}",
        kind="network",
        hint=_CERTIFICATE,
    )
    failure.unreachable = f"{access.host} ({reason})"
    return failure


def _unreachable(access: ModelEndpoint, kind: str, reason: str) -> AgentError:
    """Return the failure of a host that seldom comes back soon: every agent behind it would wait
    as long."""
    proxy = "" if access.loopback else " a proxy in HTTPS_PROXY,"
    failure = AgentError(
        f"{access.name}: no connection to {access.host}: {reason}",
        kind=kind,
        retry=True,
        hint=f"Check the network,{proxy} that the server runs and that `base_url` is right: "
        f"{access.address}",
    )
    failure.tries = CONNECT_TRIES
    failure.unreachable = f"{access.host} ({reason})"
    return failure


def _is_unresolved(error: BaseException | None) -> bool:
    """The host's name was not found, as without a network."""
    while error is not None:
        if isinstance(error, socket.gaierror):
            return True
        error = error.__cause__ or error.__context__
    return False


def _odd_key(access: ModelEndpoint) -> AgentError:
    where = access.key_env or "its `api_key_env`"
    return AgentError(
        f"{access.name}: the key in {where} holds characters that no key has",
        kind="refused",
        hint=f"Set {where} to the key alone: no quotes, spaces or line breaks.",
    )


def _bad_address(access: ModelEndpoint, error: Exception) -> AgentError:
    return AgentError(
        f"{access.name}: no request can be made to {access.address!r}: {access.hidden(str(error))}",
        kind="absent",
        hint=f"Check `base_url` of the entry {access.name}.",
    )
