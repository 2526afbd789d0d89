"""One HTTP exchange: a body in, an answer out, whole or as a stream; ended at once when the client goes away.

Between app.py and service.py. The status of a stream is not sent before there is something to say, so that an agent
that fails first is a proper error; while nothing can be said a comment keeps the connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Mapping

from starlette.requests import Request as Http
from starlette.types import Message, Receive, Scope, Send

from fugu_cli.serve.asking import Answer, Asking, Head, Refused
from fugu_cli.serve.service import LEFT, STOPPED, Service
from fugu_cli.serve.wire import Stream, Wire

IDLE = 10.0
"""Seconds of silence after which the client is told that work goes on."""

SENDING = 120.0
"""Seconds a client may take to send its request."""
PAUSE = 20.0
"""Seconds between two portions of it."""


class Exchange:
    """`POST` on one wire."""

    def __init__(self, service: Service, wire: Wire) -> None:
        self._service = service
        self._wire = wire

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI application of one path."""
        try:
            body = await read_body(self._service, receive)
            asking = self._wire.parse(body, Http(scope).headers)
            head = self._service.head(asking)
        except Refused as refused:
            await refuse(self._wire, refused, send)
            return
        answering = Answering(self._service, self._wire, asking, head)
        work = asyncio.ensure_future(answering.stream(send) if asking.stream else answering.whole(send))
        self._service.working.add(work)
        work.add_done_callback(self._service.working.discard)
        await _while_connected(work, receive)


async def _while_connected(work: asyncio.Future[None], receive: Receive) -> None:
    """`work` to its end, cancelled as soon as the client is gone. Raises CancelledError where the endpoint stops."""
    gone = asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        left = gone.done()
        work.cancel(LEFT if left else STOPPED)
        gone.cancel()
        await asyncio.wait({work, gone})
    if work.cancelled() and not left:
        raise asyncio.CancelledError
    if not work.cancelled() and (error := work.exception()) is not None and not isinstance(error, OSError):
        raise error


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class Answering:
    """One answer on its way to one client."""

    def __init__(self, service: Service, wire: Wire, asking: Asking, head: Head) -> None:
        self._service = service
        self._wire = wire
        self._asking = asking
        self._head = head
        self._agent = ""

    async def whole(self, send: Send) -> None:
        """The answer as one JSON object."""
        try:
            answer = await self._service.answer(self._asking, self._head, _silent, self._chosen)
        except Refused as refused:
            await refuse(self._wire, refused, send, self._headers())
            return
        await reply(200, self._wire.whole(self._head, answer, self._asking), send, self._headers())

    async def stream(self, send: Send) -> None:
        """The answer as events, as it is written."""
        pieces: asyncio.Queue[str | None] = asyncio.Queue()
        work = asyncio.ensure_future(self._worked(pieces))
        out = self._wire.stream(self._head, self._asking)
        sending = _Sending(send, self._headers, out)
        why = LEFT
        try:
            while (said := await _next(pieces)) is not None:
                await sending.more(sending.begin() + (out.piece(said) if said else out.idle()))
            answer = await work
            last = sending.begin() + out.end(answer)
        except Refused as refused:
            if not sending.begun:
                await refuse(self._wire, refused, send, self._headers())
                return
            last = out.fail(refused)
        except asyncio.CancelledError as cut:
            why = str(cut)
            if sending.begun:
                await _cut(sending.last(out.fail(stopped())))
            raise
        finally:
            await _ended(work, why)
        await sending.last(last)

    async def _worked(self, pieces: asyncio.Queue[str | None]) -> Answer:
        try:
            return await self._service.answer(self._asking, self._head, _saying(pieces), self._chosen)
        finally:
            pieces.put_nowait(None)

    def _chosen(self, agent: str) -> None:
        self._agent = agent

    def _headers(self) -> dict[str, str]:
        told = {"x-fugu-trace": self._head.id, "x-request-id": self._head.id, "request-id": self._head.id}
        return {**told, "x-fugu-agent": self._agent} if self._agent else told


class _Sending:
    """A stream's bytes to the client; its status goes with the first of them."""

    def __init__(self, send: Send, headers: Callable[[], Mapping[str, str]], out: Stream) -> None:
        self._send = send
        self._headers = headers
        self._out = out
        self.begun = False

    def begin(self) -> bytes:
        """What comes before the first events; to be asked for before them, since a wire may number what it says."""
        return b"" if self.begun else self._out.begin()

    async def more(self, data: bytes, *, over: bool = False) -> None:
        if not self.begun:
            await _begin(self._send, self._headers())
            self.begun = True
        await self._send({"type": "http.response.body", "body": data, "more_body": not over})

    async def last(self, data: bytes) -> None:
        await self.more(data, over=True)


def _saying(pieces: asyncio.Queue[str | None]) -> Callable[[str], None]:
    def say(text: str) -> None:
        if text:
            pieces.put_nowait(text)

    return say


async def _next(pieces: asyncio.Queue[str | None]) -> str | None:
    """What has been said since; "" after a while of silence, None at the end."""
    try:
        async with asyncio.timeout(IDLE):
            said = await pieces.get()
    except TimeoutError:
        return ""
    while said is not None and not pieces.empty():  # a slow client gets larger portions, not a longer queue
        more = pieces.get_nowait()
        if more is None:
            pieces.put_nowait(None)
            break
        said += more
    return said


async def _ended(work: asyncio.Future[Answer], why: str) -> None:
    """The model call is over when this returns, also where the client left."""
    if not work.done():
        work.cancel(why)
        await asyncio.wait({work})


async def _begin(send: Send, headers: Mapping[str, str]) -> None:
    told = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache", **headers}
    await send({"type": "http.response.start", "status": 200, "headers": _raw(told)})


async def _cut(sending: Awaitable[None]) -> None:
    """The end of an answer that is cut. A client that does not read is not waited for."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(1.0):
            await sending


def stopped() -> Refused:
    """What a client is told whose answer the endpoint's own end cuts."""
    return Refused(503, "the endpoint is stopping", kind="server_error", code="stopping")


async def reply(status: int, value: object, send: Send, headers: Mapping[str, str] | None = None) -> None:
    """One JSON object."""
    body = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    told = {"content-type": "application/json", "content-length": str(len(body)), **(headers or {})}
    await send({"type": "http.response.start", "status": status, "headers": _raw(told)})
    await send({"type": "http.response.body", "body": body})


async def refuse(wire: Wire, refused: Refused, send: Send, headers: Mapping[str, str] | None = None) -> None:
    """A refusal in the wire's own form. What was tried here already is not to be tried again at once."""
    told = dict(headers or {})
    if refused.after is not None:
        told["retry-after"] = str(max(1, round(refused.after)))
    elif refused.status >= 500 or refused.status == 429:
        told["x-should-retry"] = "false"
    await reply(refused.status, wire.failure(refused), send, told)


async def read_body(service: Service, receive: Receive) -> bytes:
    """The whole body. Raises Refused: one that only trickles in holds a place as an answer does (408), so does one too
    many (429); 413 as soon as it is too long, 499 for a client that left."""
    clock = asyncio.get_running_loop().time
    end = clock() + min(SENDING, service.bounds.seconds)
    body = bytearray()
    try:
        async with asyncio.timeout_at(min(end, clock() + PAUSE)) as patience:
            with service.reading(patience) as heard:
                more = True
                while more:
                    more = _take(await receive(), body, service.bounds.body)
                    if not patience.expired():
                        patience.reschedule(min(end, clock() + PAUSE))
                    heard()
    except TimeoutError as error:
        raise Refused(408, "the request did not arrive in time", code="request_timeout") from error
    return bytes(body)


def _take(message: Message, body: bytearray, most: int) -> bool:
    """Add a portion to the body; whether more is to come. Raises Refused."""
    if message["type"] == "http.disconnect":
        raise Refused(499, "the client went away")
    body += message.get("body", b"")
    if len(body) > most:
        raise Refused(413, f"the request is longer than {most} bytes", code="request_too_large")
    return bool(message.get("more_body"))


def _raw(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in headers.items()]


def _silent(text: str) -> None:
    pass
