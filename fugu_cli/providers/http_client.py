"""One HTTP exchange with a model's server: a JSON request goes out, server-sent events come in.

Holds the timeout of each phase, the SSE parser and the limits on one reply. It does not know what
an event means: a wire format takes each event and returns the progress of the reply.

The SSE grammar is the WHATWG one: lines end in LF, CR or CRLF; `data` lines of one event are joined
by newlines; a colon begins a comment; a blank line ends the event. Bytes that are no UTF-8 become
replacement characters. A plain JSON answer is passed on as one event.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import IntEnum

import httpx
from pydantic import JsonValue

from fugu_cli.errors import AgentError
from fugu_cli.providers import error_mapping
from fugu_cli.providers.endpoint import ModelEndpoint

MAX_CHARACTERS = 4 * 1024 * 1024
"""Characters of text, reasoning and arguments together."""
MAX_PARTS = 2000
"""Calls, or content blocks, of one reply."""
MAX_EVENTS = 500_000
"""Events of one stream; servers send one or two per token."""
MAX_BYTES = 256 * 1024 * 1024
"""Bytes of one stream, with the JSON around each token."""


class ReplyLimits:
    """Raises AgentError once the reply of the agent `name` at `host` is larger than a reply can be."""

    def __init__(self, name: str, host: str) -> None:
        self._sender = f"{name}: {host}"
        self._characters = 0
        self.received_bytes = 0
        """Bytes of text, reasoning and arguments, in UTF-8."""
        self._events = 0
        self._bytes = 0

    def add(self, *texts: str) -> None:
        """Count texts of the reply. Raises AgentError."""
        joined = "".join(texts)
        self._characters += len(joined)
        self.received_bytes += len(joined.encode("utf-8", "replace"))
        if self._characters > MAX_CHARACTERS:
            raise self._error(f"more than {MAX_CHARACTERS:,} characters")

    def parts(self, count: int) -> None:
        """Check the number of calls or blocks. Raises AgentError."""
        if count > MAX_PARTS:
            raise self._error(f"more than {MAX_PARTS:,} calls or blocks")

    def arrived(self, size: int, events: int) -> None:
        """Count a portion of the stream: its bytes, and the events it completed. Raises AgentError."""
        self._bytes += size
        self._events += events
        if self._bytes > MAX_BYTES or self._events > MAX_EVENTS:
            raise self._error(f"more than {MAX_BYTES // 1024 // 1024} MiB or {MAX_EVENTS:,} events")

    def _error(self, what: str) -> AgentError:
        return AgentError(
            f"{self._sender} sent {what} as one reply, and no end",
            kind="protocol",
            hint="The server or its model repeats itself. Try later, or use another agent.",
        )


EVENT_LIMIT = 8 * 1024 * 1024
"""Bytes of one event. A server that sends more without a blank line does not speak this protocol."""

BOM = b"\xef\xbb\xbf"


class ReplyProgress(IntEnum):
    """The part of a reply that has arrived."""

    NOTHING = 0
    BEGUN = 1
    """At least one token."""
    SAID = 2
    """Everything except the usage."""
    WHOLE = 3


@dataclass(frozen=True)
class ServerEvent:
    """One event. `whole` is False for the last event of a cut stream, whose last line may be
    incomplete.
    """

    data: str
    name: str = "message"
    whole: bool = True


class SseDecoder:
    """Decodes bytes to events, however the bytes are split. Raises AgentError(kind="protocol")."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._data: list[str] = []
        self._name = ""
        self._size = 0
        self._after_cr = False
        self._first = True

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """Return the events that `chunk` completes."""
        if not chunk:
            return []
        rest = chunk[1:] if self._after_cr and chunk.startswith(b"\n") else chunk
        self._after_cr, chunk = chunk.endswith(b"\r"), rest
        lines = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        events = []
        for part in lines[:-1]:
            self._grow(part)
            if (event := self._close_line()) is not None:
                events.append(event)
        self._grow(lines[-1])
        return events

    def finish(self) -> list[ServerEvent]:
        """Return the event that the end of the stream left without its blank line, if any."""
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
"""The body of a request, built by the wires."""


OnEvent = Callable[[ServerEvent], ReplyProgress]
"""Takes one event and returns the progress of the reply."""

CLOSE_TIMEOUT = 1.0
"""Seconds for a finished stream to close, so that its connection can be used again."""

USAGE_TIMEOUT = 10.0
"""Seconds for a server to report the usage after a reply. Some neither report it nor end the stream."""

KEEPALIVE = 30.0
"""Seconds an idle connection is kept. Connections to this machine are not kept: opening one is cheap,
and llama.cpp closes a connection after five requests, perhaps just as the sixth is sent."""

ERROR_BODY = 64 * 1024
CONNECT_TRIES = 2
"""Attempts, within one call, for a server that cannot be reached at all."""
_CERTIFICATE_HINT = (
    "Name the certificate of its authority in SSL_CERT_FILE, if it is one of your own."
)


class HttpConnection:
    """The HTTP connections of one agent. The first request opens them, and opens them again after
    `close`.
    """

    def __init__(
        self,
        endpoint: ModelEndpoint,
        headers: Mapping[str, str],
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._headers = dict(headers)
        self._transport = transport
        self._client: httpx.AsyncClient | None = None

    async def post(self, path: str, payload: Json, on_event: OnEvent) -> None:
        """Send `payload` to base_url + `path`, and pass every event of the answer to `on_event`.

        Returns when the stream has ended, even if it was cut: `on_event` knows. Raises AgentError
        for all other failures.
        """
        # Lone surrogates (a file name that is no UTF-8) cannot travel in JSON: they go as question
        # marks.
        body = json.dumps({**payload, **self._endpoint.body}, ensure_ascii=False).encode(
            "utf-8", "replace"
        )
        phase = _Phase(self._endpoint)
        async with self._raising_agent_errors(phase):
            await self._exchange(path, body, on_event, phase)

    async def get(self, path: str) -> bytes:
        """Return the body of base_url + `path`. The timeout for the first token limits the whole
        exchange. Raises AgentError for all failures.
        """
        endpoint = self._endpoint
        headers = {"accept": "application/json", "accept-encoding": "identity"}
        body = bytearray()
        async with (
            self._raising_agent_errors(_Phase(endpoint)),
            self._open().stream("GET", endpoint.url(path), headers=headers) as response,
        ):
            if response.status_code != 200:
                raise await _status_error(endpoint, response)
            async for chunk in response.aiter_bytes():
                body += chunk
                _check_size(endpoint, body)
        return bytes(body)

    @contextlib.asynccontextmanager
    async def _raising_agent_errors(self, phase: _Phase) -> AsyncIterator[None]:
        """Keep to the deadline of `phase`. Raise failures of the exchange in the block as
        AgentError.
        """
        endpoint = self._endpoint
        if not (endpoint.key.isascii() and endpoint.key.isprintable()):
            variable = endpoint.key_env or "its `api_key_env`"
            raise AgentError(
                f"{endpoint.name}: the key in {variable} holds characters that no key has",
                kind="refused",
                hint=f"Set {variable} to the key alone: no quotes, spaces or line breaks.",
            )
        try:
            async with phase.deadline:
                yield
        except TimeoutError:
            if not phase.finished:
                raise phase.timed_out() from None
        except httpx.HTTPError as error:
            if not phase.finished:
                raise _transport_error(endpoint, error, began=phase.arrived) from error
        except httpx.InvalidURL as error:
            raise _address_error(endpoint, error) from error

    async def close(self) -> None:
        """Close the connections. May be called twice."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _exchange(self, path: str, body: bytes, on_event: OnEvent, phase: _Phase) -> None:
        url = self._endpoint.url(path)
        async with self._open().stream("POST", url, content=body) as response:
            if response.status_code != 200:
                raise await _status_error(self._endpoint, response)
            if "event-stream" in response.headers.get("content-type", ""):
                await _read_stream(self._endpoint, response, on_event, phase)
            else:
                await _read_body(self._endpoint, response, on_event, phase)

    def _open(self) -> httpx.AsyncClient:
        """Return the client. Raises AgentError for an unusable proxy or certificate in the
        environment.
        """
        if self._client is None:
            try:
                self._client = self._new_client()
            except (ImportError, ValueError, OSError, httpx.InvalidURL) as error:
                raise AgentError(
                    f"{self._endpoint.name}: no connection to {self._endpoint.host} can be prepared: "
                    f"{error}",
                    kind="network",
                    hint=(
                        "Check ALL_PROXY, HTTPS_PROXY, NO_PROXY and SSL_CERT_FILE. Of proxies, "
                        "those over http work."
                    ),
                ) from error
        return self._client

    def _new_client(self) -> httpx.AsyncClient:
        is_local = self._endpoint.loopback
        uses_tls = self._endpoint.base_url.startswith("https") and self._transport is None
        headers = {"content-type": "application/json", "accept": "text/event-stream"}
        kept_connections = 10
        if is_local:
            headers["connection"] = "close"
            kept_connections = 0
        return httpx.AsyncClient(
            headers={**headers, **self._headers, **self._endpoint.headers},
            timeout=httpx.Timeout(None, connect=self._endpoint.timeouts.connect),
            limits=httpx.Limits(
                max_keepalive_connections=kept_connections, keepalive_expiry=KEEPALIVE
            ),
            transport=self._transport,
            # Loading certificates costs 30 ms, so it is done only for https. SSL_CERT_FILE is used
            # on this machine as well.
            verify=httpx.create_ssl_context() if uses_tls else False,
            trust_env=not is_local,
        )


class _Phase:
    """The phase of an exchange, and the time at which it must have ended.

    Whatever arrives restarts the clock: even a comment or an empty piece shows that the server is
    working. The allowed silence depends on whether a token has arrived, since some servers send an
    empty piece at once and then reason for minutes.
    """

    def __init__(self, endpoint: ModelEndpoint) -> None:
        self._endpoint = endpoint
        self._limit = endpoint.timeouts.first_token
        self.arrived = self.began = False
        self.finished = False
        time = asyncio.get_running_loop().time()
        self._end = time + endpoint.timeouts.whole
        self.deadline = asyncio.timeout_at(min(time + self._limit, self._end))

    def on_portion(self, progress: ReplyProgress) -> None:
        self.arrived = True
        self.began = self.began or progress >= ReplyProgress.BEGUN
        self.finished = progress >= ReplyProgress.SAID
        timeouts = self._endpoint.timeouts
        if not self.finished:
            self._limit = timeouts.between if self.began else timeouts.first_token
        elif progress == ReplyProgress.WHOLE:
            self._limit = CLOSE_TIMEOUT
        else:
            self._limit = min(USAGE_TIMEOUT, timeouts.between)
        self.deadline.reschedule(min(asyncio.get_running_loop().time() + self._limit, self._end))

    def timed_out(self) -> AgentError:
        what = "stopped in the middle of its answer" if self.began else "did not answer"
        if asyncio.get_running_loop().time() >= self._end:
            what, self._limit = "did not finish", self._endpoint.timeouts.whole
        error = AgentError(
            f"{self._endpoint.name}: {self._endpoint.host} {what} for {self._limit:g} s",
            kind="timeout",
            retry=True,
            hint="The server may be overloaded. Try later, or use another agent.",
        )
        error.prompt_was_sent = True
        return error


async def _read_stream(
    endpoint: ModelEndpoint, response: httpx.Response, on_event: OnEvent, phase: _Phase
) -> None:
    decoder = SseDecoder()
    progress = ReplyProgress.NOTHING
    limits = ReplyLimits(endpoint.name, endpoint.host)
    async for chunk in response.aiter_bytes():
        events = decoder.feed(chunk)
        limits.arrived(len(chunk), max(len(events), chunk.count(b"\n\n")))  # comments count as well
        for event in events:
            progress = max(on_event(event), progress)
        phase.on_portion(progress)
    for event in decoder.finish():
        on_event(event)


async def _read_body(
    endpoint: ModelEndpoint, response: httpx.Response, on_event: OnEvent, phase: _Phase
) -> None:
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        phase.on_portion(ReplyProgress.BEGUN)
        _check_size(endpoint, body)
    text = body.decode("utf-8", "replace").strip()
    if text.startswith("{"):
        on_event(ServerEvent(text))
        return
    if not text.startswith(("data:", "event:", ":")):
        what = "an HTML page" if text.startswith("<") else f"{text[:60]!r}"
        raise AgentError(
            f"{endpoint.name}: {endpoint.host} answered with {what} instead of a model's reply",
            kind="protocol",
            hint=f"Check `base_url` of the entry {endpoint.name}: {endpoint.address}",
        )
    decoder = SseDecoder()
    for event in [*decoder.feed(bytes(body)), *decoder.finish()]:
        on_event(event)


def _check_size(endpoint: ModelEndpoint, body: bytearray) -> None:
    if len(body) > EVENT_LIMIT:
        raise AgentError(
            f"{endpoint.name}: {endpoint.host} sent more than an answer can be", kind="protocol"
        )


async def _status_error(endpoint: ModelEndpoint, response: httpx.Response) -> AgentError:
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > ERROR_BODY:
            break
    text = body.decode("utf-8", "replace")
    message, error_type = error_mapping.message_of_body(text)
    time = datetime.now(UTC)
    after = error_mapping.retry_after(response.headers, time)
    if after is None:
        after = error_mapping.retry_delay(text)
    if after is None and response.status_code == 429:
        after = error_mapping.limit_reset(response.headers, time)
    if response.status_code in (402, 403, 429):
        window = error_mapping.reset_in_body(text, time)
        after = max(after or 0.0, window) if window is not None else after
    if error_type:
        message = f"{message.rstrip('.')} ({error_type})"
    return error_mapping.error_of_status(endpoint, response.status_code, message, after)


def _transport_error(endpoint: ModelEndpoint, error: httpx.HTTPError, *, began: bool) -> AgentError:
    reason = endpoint.hidden(str(error)) or type(error).__name__
    if isinstance(error, httpx.ConnectTimeout):
        return _unreachable(
            endpoint, "timeout", f"no answer within {endpoint.timeouts.connect:g} s"
        )
    if isinstance(error, httpx.ConnectError):
        return _connect_error(endpoint, error, reason)
    if isinstance(error, httpx.ProxyError):
        return AgentError(
            f"{endpoint.name}: the proxy on the way to {endpoint.host} does not let it through: "
            f"{reason}",
            kind="network",
            retry=not reason.startswith("4"),
            hint="Check HTTPS_PROXY, and whether the proxy wants a name and a password in it.",
        )
    if isinstance(error, (httpx.UnsupportedProtocol, httpx.LocalProtocolError)):
        return _address_error(endpoint, error)
    if isinstance(error, httpx.DecodingError):
        return AgentError(
            f"{endpoint.name}: {endpoint.host} sent bytes that do not unpack: {reason}",
            kind="protocol",
        )
    what = f"{endpoint.host} closed the connection before it answered"
    if began:
        what = f"the connection to {endpoint.host} was lost"
    return AgentError(f"{endpoint.name}: {what}: {reason}", kind="network", retry=True)


def _connect_error(endpoint: ModelEndpoint, error: httpx.ConnectError, reason: str) -> AgentError:
    if "CERTIFICATE" not in reason:
        unresolved = _is_unresolved(error)
        return _unreachable(endpoint, "network", "its name is not found" if unresolved else reason)
    failure = AgentError(
        f"{endpoint.name}: no connection to {endpoint.host}: {reason}",
        kind="network",
        hint=_CERTIFICATE_HINT,
    )
    failure.unreachable = f"{endpoint.host} ({reason})"
    return failure


def _unreachable(endpoint: ModelEndpoint, kind: str, reason: str) -> AgentError:
    """Return the error for a host that cannot be reached, with few retries: it seldom recovers soon,
    and all agents behind it would wait as long.
    """
    proxy = "" if endpoint.loopback else " a proxy in HTTPS_PROXY,"
    failure = AgentError(
        f"{endpoint.name}: no connection to {endpoint.host}: {reason}",
        kind=kind,
        retry=True,
        hint=f"Check the network,{proxy} that the server runs and that `base_url` is right: "
        f"{endpoint.address}",
    )
    failure.tries = CONNECT_TRIES
    failure.unreachable = f"{endpoint.host} ({reason})"
    return failure


def _is_unresolved(error: BaseException | None) -> bool:
    """Return whether the host's name was not found, as without a network."""
    while error is not None:
        if isinstance(error, socket.gaierror):
            return True
        error = error.__cause__ or error.__context__
    return False


def _address_error(endpoint: ModelEndpoint, error: Exception) -> AgentError:
    return AgentError(
        f"{endpoint.name}: no request can be made to {endpoint.address!r}: {endpoint.hidden(str(error))}",
        kind="absent",
        hint=f"Check `base_url` of the entry {endpoint.name}.",
    )
