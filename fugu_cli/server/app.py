"""The HTTP side: paths, who may come in (the bearer token), and one exchange: a body in, an answer
out, whole or as a stream.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from starlette.applications import Starlette
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request as Http
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fugu_cli.errors import StorageError
from fugu_cli.server import is_loopback, parse_authority, parse_origin
from fugu_cli.server.chat_api import CHAT, openai_error
from fugu_cli.server.client_requests import (
    AnswerHead,
    ClientRequest,
    RequestRefused,
    ServedAnswer,
    Stream,
    Wire,
    check_messages,
)
from fugu_cli.server.messages_api import MESSAGES, anthropic_error, estimated_tokens
from fugu_cli.server.responses_api import RESPONSES
from fugu_cli.server.service import LEFT, STOPPED, EndpointService, Exchange

IDLE = 10.0
"""Seconds of silence after which the client is told that work goes on."""

SENDING = 120.0
"""Seconds a client may take to send its request."""
PAUSE = 20.0
"""Seconds between two portions of it."""


async def answer_request(
    service: EndpointService, wire: Wire, scope: Scope, receive: Receive, send: Send
) -> None:
    """One exchange on a wire. Raises RequestRefused for a request that is not begun."""
    with service.exchange() as exchange:
        body = await read_body(service, exchange, receive)
        asking = check_messages(await asyncio.to_thread(wire.parse, body, Http(scope).headers))
        del body  # it may be long, and the answer takes its time
        answering = AnswerSender(service, wire, asking, service.head(asking))
        work = asyncio.ensure_future(
            answering.stream(send) if asking.stream else answering.whole(send)
        )
        service.working.add(work)
        work.add_done_callback(service.working.discard)
        await _while_connected(work, receive)


async def count_tokens(
    service: EndpointService, scope: Scope, receive: Receive, send: Send
) -> None:
    """Answer `POST /v1/messages/count_tokens` with an estimate. Raises RequestRefused."""
    with service.exchange() as exchange:
        body = await read_body(service, exchange, receive)
        tokens = await asyncio.to_thread(estimated_tokens, body)
        await send_json(200, {"input_tokens": tokens}, send)


async def _while_connected(work: asyncio.Future[None], receive: Receive) -> None:
    """`work` to its end, cancelled as soon as the client is gone. Raises CancelledError where the
    endpoint stops.
    """
    gone = asyncio.ensure_future(_client_left(receive))
    try:
        await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        left = gone.done()
        work.cancel(LEFT if left else STOPPED)
        gone.cancel()
        await asyncio.wait({work, gone})
    if work.cancelled() and not left:
        raise asyncio.CancelledError
    if (
        not work.cancelled()
        and (error := work.exception()) is not None
        and not isinstance(error, OSError)
    ):
        raise error


async def _client_left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class AnswerSender:
    """One answer on its way to one client."""

    def __init__(
        self, service: EndpointService, wire: Wire, asking: ClientRequest, head: AnswerHead
    ) -> None:
        self._service = service
        self._wire = wire
        self._asking = asking
        self._head = head
        self._agent = ""

    async def whole(self, send: Send) -> None:
        """The answer as one JSON object."""
        try:
            answer = await self._service.answer(self._asking, self._head, _silent, self._chosen)
        except RequestRefused as refused:
            await send_refusal(self._wire, refused, send, self._headers())
            return
        await send_json(
            200, self._wire.whole(self._head, answer, self._asking), send, self._headers()
        )

    async def stream(self, send: Send) -> None:
        """The answer as events, as it is written."""
        pieces = SpokenPieces()
        work = asyncio.ensure_future(self._worked(pieces))
        out = self._wire.stream(self._head, self._asking)
        sending = _Sending(send, self._headers, out)
        why = LEFT
        try:
            while (said := await pieces.following()) is not None:
                await sending.more(sending.begin() + _events_of(said, out))
            answer = await work
            last = sending.begin() + out.end(answer)
        except RequestRefused as refused:
            if not sending.begun and refused.code not in out.events_for:
                await send_refusal(self._wire, refused, send, self._headers())
                return
            last = sending.begin() + out.fail(refused)
        except asyncio.CancelledError as cut:
            why = str(cut)
            if sending.begun:
                await _cut(sending.last(out.fail(stop_refusal())))
            raise
        finally:
            await _ended(work, why)
        await sending.last(last)

    async def _worked(self, pieces: SpokenPieces) -> ServedAnswer:
        try:
            return await self._service.answer(self._asking, self._head, pieces, self._chosen)
        finally:
            pieces.close()

    def _chosen(self, agent: str) -> None:
        self._agent = agent

    def _headers(self) -> dict[str, str]:
        told = {
            "x-fugu-trace": self._head.id,
            "x-request-id": self._head.id,
            "request-id": self._head.id,
        }
        return {**told, "x-fugu-agent": self._agent} if self._agent else told


def _events_of(piece: SpokenPiece, out: Stream) -> bytes:
    if not piece.text:
        return out.idle()
    return out.thought(piece.text) if piece.thought else out.piece(piece.text)


class SpokenPiece(NamedTuple):
    """What was said, or thought; nothing after a while of silence."""

    text: str = ""
    thought: bool = False


class SpokenPieces:
    """What an agent says and thinks, until it is sent. What waits is joined: a slow client gets
    larger pieces, not a longer queue."""

    def __init__(self) -> None:
        self._waiting: list[tuple[list[str], bool]] = []
        self._news = asyncio.Event()
        self._closed = False

    def __call__(self, text: str) -> None:
        self._add(text, thought=False)

    def think(self, text: str) -> None:
        self._add(text, thought=True)

    def close(self) -> None:
        """Nothing more comes."""
        self._closed = True
        self._news.set()

    async def following(self) -> SpokenPiece | None:
        """The next one; None at the end."""
        try:
            async with asyncio.timeout(IDLE):
                while not self._waiting and not self._closed:
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            return SpokenPiece()
        if not self._waiting:
            return None
        texts, thought = self._waiting.pop(0)
        return SpokenPiece("".join(texts), thought)

    def _add(self, text: str, *, thought: bool) -> None:
        if self._waiting and self._waiting[-1][1] == thought:
            self._waiting[-1][0].append(text)
        elif text:
            self._waiting.append(([text], thought))
        self._news.set()


class _Sending:
    """A stream's bytes to the client; its status goes with the first of them."""

    def __init__(self, send: Send, headers: Callable[[], Mapping[str, str]], out: Stream) -> None:
        self._send = send
        self._headers = headers
        self._out = out
        self.begun = False

    def begin(self) -> bytes:
        """What comes before the first events; to be asked for before them, since a wire may number
        what it says.
        """
        return b"" if self.begun else self._out.begin()

    async def more(self, data: bytes, *, over: bool = False) -> None:
        if not self.begun:
            await _begin(self._send, self._headers())
            self.begun = True
        await self._send({"type": "http.response.body", "body": data, "more_body": not over})

    async def last(self, data: bytes) -> None:
        await self.more(data, over=True)


async def _ended(work: asyncio.Future[ServedAnswer], why: str) -> None:
    """The model call is over when this returns, also where the client left."""
    if not work.done():
        work.cancel(why)
        await asyncio.wait({work})


async def _begin(send: Send, headers: Mapping[str, str]) -> None:
    told = {
        "content-type": "text/event-stream; charset=utf-8",
        "cache-control": "no-cache",
        **headers,
    }
    await send({"type": "http.response.start", "status": 200, "headers": _raw(told)})


async def _cut(sending: Awaitable[None]) -> None:
    """The end of an answer that is cut. A client that does not read is not waited for."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(1.0):
            await sending


def stop_refusal() -> RequestRefused:
    """What a client is told whose answer the endpoint's own end cuts."""
    return RequestRefused(503, "the endpoint is stopping", kind="server_error", code="stopping")


async def send_json(
    status: int, value: object, send: Send, headers: Mapping[str, str] | None = None
) -> None:
    """One JSON object."""
    body = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    told = {"content-type": "application/json", "content-length": str(len(body)), **(headers or {})}
    await send({"type": "http.response.start", "status": status, "headers": _raw(told)})
    await send({"type": "http.response.body", "body": body})


async def send_refusal(
    wire: Wire, refused: RequestRefused, send: Send, headers: Mapping[str, str] | None = None
) -> None:
    """A refusal in the wire's own form. What was tried here already is not to be tried again at
    once.
    """
    told = dict(headers or {})
    if refused.after is not None:
        told["retry-after"] = str(max(1, round(refused.after)))
    elif refused.status >= 500 or refused.status == 429:
        told["x-should-retry"] = "false"
    await send_json(refused.status, wire.failure(refused), send, told)


async def read_body(service: EndpointService, exchange: Exchange, receive: Receive) -> bytes:
    """Return the whole body. Raises RequestRefused: 408 for one that does not arrive in time, 413
    as soon as it is too long, 499 for a client that left."""
    clock = asyncio.get_running_loop().time
    end = clock() + min(SENDING, service.bounds.seconds)
    body = bytearray()
    try:
        async with asyncio.timeout_at(min(end, clock() + PAUSE)) as exchange.patience:
            more = True
            while more:
                more = _take(await receive(), body, service.bounds.body)
                if not exchange.patience.expired():
                    exchange.patience.reschedule(min(end, clock() + PAUSE))
                exchange.heard = clock()
    except TimeoutError as error:
        raise RequestRefused(
            408, "the request did not arrive in time", code="request_timeout"
        ) from error
    finally:
        exchange.patience = None
    return bytes(body)


def _take(message: Message, body: bytearray, most: int) -> bool:
    """Add a portion to the body; whether more is to come. Raises RequestRefused."""
    if message["type"] == "http.disconnect":
        raise RequestRefused(499, "the client went away")
    body += message.get("body", b"")
    if len(body) > most:
        raise RequestRefused(
            413, f"the request is longer than {most} bytes", code="request_too_large"
        )
    return bool(message.get("more_body"))


def _raw(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [
        (name.encode("latin-1"), value.encode("latin-1", "replace"))
        for name, value in headers.items()
    ]


def _silent(text: str) -> None:
    pass


class Door:
    """`app` behind the checks that every request passes, `/health` apart.

    With a token, each request brings it. Without one, which only a server on a loopback address may
    do, the Host must name this machine, so that no page reaches it under a name of its own. A
    request of a web page (it has an Origin) also needs a token, and the page must be the server's
    own or one of `origins`.
    """

    def __init__(self, app: ASGIApp, token: str | None, origins: Sequence[str] = ()) -> None:
        self._app = app
        self._token = token
        self._origins = frozenset(map(parse_origin, origins))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] != "/health":
            headers = Http(scope).headers
            refused = self._wrong_page(headers) or self._wrong_caller(headers)
            if refused is not None:
                wire = anthropic_error if scope["path"].startswith("/v1/messages") else openai_error
                challenge = {"www-authenticate": "Bearer"} if refused.status == 401 else {}
                await send_json(refused.status, wire(refused), send, challenge)
                return
        await self._app(scope, receive, send)

    def _wrong_page(self, headers: Mapping[str, str]) -> RequestRefused | None:
        text = headers.get("origin")
        if text is None:
            return None
        origin = parse_origin(text)
        own = origin is not None and origin[1:] == parse_authority(
            headers.get("host", ""), origin[0]
        )
        if origin is None or not (own or origin in self._origins):
            return _forbidden(f"pages of {text} may not use this server; --allow-origin names more")
        if self._token is None:
            return _forbidden("web pages may use this server with a token only, and it has none")
        return None

    def _wrong_caller(self, headers: Mapping[str, str]) -> RequestRefused | None:
        if self._token is None:
            text = headers.get("host", "")
            host = parse_authority(text)
            if text and (host is None or not is_loopback(host[0])):
                return _forbidden(f"this server answers on this machine only, not as {text}")
            return None
        token = headers.get("x-api-key", "")
        scheme, _, credentials = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            token = credentials.strip()
        if hmac.compare_digest(token.encode("utf-8", "replace"), self._token.encode()):
            return None
        message = "the token was not accepted" if token else "a bearer token is needed"
        return RequestRefused(401, message, kind="authentication_error", code="invalid_api_key")


def _forbidden(message: str) -> RequestRefused:
    return RequestRefused(403, message, code="forbidden")


def build_app(service: EndpointService, token: str | None, origins: Sequence[str] = ()) -> ASGIApp:
    """Build the application. With `token` every path but `/health` wants it; pages of `origins` may
    use it with the token."""
    places = _InfoEndpoints(service)
    wires = {"/v1/chat/completions": CHAT, "/v1/responses": RESPONSES, "/v1/messages": MESSAGES}
    counting = Post(MESSAGES, partial(count_tokens, service))
    routes = [
        *(
            Route(path, Post(wire, partial(answer_request, service, wire)), methods=["POST"])
            for path, wire in wires.items()
        ),
        Route("/v1/messages/count_tokens", counting, methods=["POST"]),
        Route("/v1/models", places.models, methods=["GET"]),
        Route("/v1/models/{name:path}", places.model, methods=["GET"]),
        Route("/v1/traces/{id}", places.trace, methods=["GET"]),
        Route("/health", places.health, methods=["GET"]),
        Route("/", places.health, methods=["GET"]),
    ]
    app = Door(
        Starlette(routes=routes, exception_handlers={404: _missing, 405: _missing}), token, origins
    )
    if not origins:
        return app
    return CORSMiddleware(
        app,
        allow_origins=origins,
        allow_methods=["GET", "POST"],
        allow_headers=["*"],
        expose_headers=["x-fugu-trace", "x-fugu-agent", "retry-after"],
    )


class Post:
    """An ASGI application as a route's endpoint: a class instance with a method, which Starlette
    calls as it is. It says on its wire that a request is refused.

    Cut because the endpoint stops, it says so where nothing was said yet. It is not told on:
    uvicorn, which alone is above it, would print it and answer in plain text.
    """

    def __init__(self, wire: Wire, app: ASGIApp) -> None:
        self._wire = wire
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def told(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, told)
        except RequestRefused as refused:
            await send_refusal(self._wire, refused, send)
        except asyncio.CancelledError:
            if not begun:
                await send_refusal(self._wire, stop_refusal(), send)


class _InfoEndpoints:
    """The paths that only read."""

    def __init__(self, service: EndpointService) -> None:
        self._service = service

    async def models(self, request: Http) -> Response:
        listed = self._service.models()
        return JSONResponse({"object": "list", "data": listed, "has_more": False})

    async def model(self, request: Http) -> Response:
        name = request.path_params["name"]
        found = next(
            (m for m in self._service.models() if isinstance(m, dict) and m["id"] == name), None
        )
        if found is None:
            said = RequestRefused(
                404, f"the model {name!r} does not exist here", code="model_not_found"
            )
            return JSONResponse(openai_error(said), 404)
        return JSONResponse(found)

    async def trace(self, request: Http) -> Response:
        id = request.path_params["id"]
        try:
            found = self._service.trace(id)
        except StorageError as error:
            return JSONResponse(
                openai_error(RequestRefused(500, str(error), kind="server_error")), 500
            )
        if found is None:
            return JSONResponse(
                openai_error(
                    RequestRefused(404, f"there is no trace {id!r}", code="trace_not_found")
                ),
                404,
            )
        return JSONResponse(found)

    async def health(self, request: Http) -> Response:
        failed = self._service.traces.failure
        return JSONResponse(
            {"status": "ok", "busy": self._service.busy, "traces": str(failed) if failed else "ok"}
        )


async def _missing(request: Http, error: Exception) -> Response:
    """A path or method that is not there, said in JSON like everything else, on its path's wire."""
    status = getattr(error, "status_code", 404)
    said = (
        f"{request.method} {request.url.path} is not offered here; `fugu help serve` lists what is"
    )
    wire = MESSAGES if request.url.path.startswith("/v1/messages") else CHAT
    return JSONResponse(wire.failure(RequestRefused(status, said, code="not_found")), status)
