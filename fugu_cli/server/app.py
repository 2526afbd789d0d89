"""The HTTP side of the endpoint: its paths, the check of token and origin, and one exchange: a
request body in, an answer out, whole or as a stream.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from starlette.applications import Starlette
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fugu_cli.errors import StorageError
from fugu_cli.server import is_loopback, parse_authority, parse_origin
from fugu_cli.server.service import CLIENT_LEFT, STOPPED, EndpointService, Exchange
from fugu_cli.wires import chat_completions, messages, responses
from fugu_cli.wires.client_requests import (
    AnswerHead,
    AnswerStream,
    ClientRequest,
    RequestRefused,
    ServedAnswer,
    Wire,
    check_messages,
    openai_error,
)

SILENCE = 10.0
"""Seconds of silence after which a stream gets a keep-alive event."""

BODY_TIMEOUT = 120.0
"""Seconds a client may take to send its request."""
PORTION_TIMEOUT = 20.0
"""Seconds a client may take between two portions of its request."""


async def answer_request(
    service: EndpointService, wire: Wire, scope: Scope, receive: Receive, send: Send
) -> None:
    """Read a request and write its answer. Raises RequestRefused for a request that is refused
    before its answer begins.
    """
    with service.exchange() as exchange:
        body = await read_body(service, exchange, receive)
        headers = HttpRequest(scope).headers
        client_request = check_messages(await asyncio.to_thread(wire.parse, body, headers))
        del body  # it may be long, and the answer takes its time
        writer = AnswerWriter(service, wire, client_request, service.head(client_request))
        if client_request.stream:
            writing = asyncio.ensure_future(writer.stream(send))
        else:
            writing = asyncio.ensure_future(writer.send_whole(send))
        service.running.add(writing)
        writing.add_done_callback(service.running.discard)
        await _await_while_connected(writing, receive)


async def count_tokens(
    service: EndpointService, scope: Scope, receive: Receive, send: Send
) -> None:
    """Answer `POST /v1/messages/count_tokens` with an estimate. Raises RequestRefused."""
    with service.exchange() as exchange:
        body = await read_body(service, exchange, receive)
        tokens = await asyncio.to_thread(messages.estimated_tokens, body)
        await send_json(200, {"input_tokens": tokens}, send)


async def _await_while_connected(writing: asyncio.Future[None], receive: Receive) -> None:
    """Wait for `writing`, and cancel it if the client disconnects.

    Raises CancelledError if the endpoint stops.
    """

    async def disconnect() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    disconnected = asyncio.ensure_future(disconnect())
    try:
        await asyncio.wait({writing, disconnected}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        client_left = disconnected.done()
        writing.cancel(CLIENT_LEFT if client_left else STOPPED)
        disconnected.cancel()
        await asyncio.wait({writing, disconnected})
    if writing.cancelled():
        if not client_left:
            raise asyncio.CancelledError
        return
    error = writing.exception()
    if error is not None and not isinstance(error, OSError):
        raise error


class AnswerWriter:
    """Writes one answer to one client."""

    def __init__(
        self, service: EndpointService, wire: Wire, client_request: ClientRequest, head: AnswerHead
    ) -> None:
        self._service = service
        self._wire = wire
        self._client_request = client_request
        self._head = head
        self._agent = ""

    async def send_whole(self, send: Send) -> None:
        """Send the answer as one JSON object."""

        def ignore(text: str) -> None:
            pass

        try:
            answer = await self._service.answer(
                self._client_request, self._head, ignore, self._set_agent
            )
        except RequestRefused as refusal:
            await send_refusal(self._wire, refusal, send, self._headers())
            return
        value = self._wire.encode(self._head, answer, self._client_request)
        await send_json(200, value, send, self._headers())

    async def stream(self, send: Send) -> None:
        """Send the answer as events while it is written."""
        deltas = DeltaQueue()
        answering = asyncio.ensure_future(self._answer_into(deltas))
        encoder = self._wire.stream(self._head, self._client_request)
        response = _StreamingResponse(send, self._headers, encoder)
        cancel_reason = CLIENT_LEFT
        try:
            while (delta := await deltas.next()) is not None:
                opening = response.opening()
                if not delta.text:
                    events = encoder.keep_alive()
                elif delta.is_reasoning:
                    events = encoder.reasoning_delta(delta.text)
                else:
                    events = encoder.text_delta(delta.text)
                await response.write(opening + events)
            answer = await answering
            last = response.opening() + encoder.finish(answer)
        except RequestRefused as refusal:
            if not response.begun and refusal.code not in encoder.events_for:
                await send_refusal(self._wire, refusal, send, self._headers())
                return
            last = response.opening() + encoder.fail(refusal)
        except asyncio.CancelledError as cancelled:
            cancel_reason = str(cancelled)
            if response.begun:
                # A client that does not read is not waited for.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(1.0):
                        await response.close(encoder.fail(stop_refusal()))
            raise
        finally:
            if not answering.done():
                answering.cancel(cancel_reason)
                await asyncio.wait({answering})
        await response.close(last)

    async def _answer_into(self, deltas: DeltaQueue) -> ServedAnswer:
        try:
            return await self._service.answer(
                self._client_request, self._head, deltas, self._set_agent
            )
        finally:
            deltas.close()

    def _set_agent(self, agent: str) -> None:
        self._agent = agent

    def _headers(self) -> dict[str, str]:
        headers = {
            "x-fugu-trace": self._head.id,
            "x-request-id": self._head.id,
            "request-id": self._head.id,
        }
        if self._agent:
            headers["x-fugu-agent"] = self._agent
        return headers


class Delta(NamedTuple):
    """A piece of an answer's text or reasoning. An empty piece stands for a while of silence."""

    text: str = ""
    is_reasoning: bool = False


class DeltaQueue:
    """Text and reasoning of an agent until it is sent.

    Adjacent pieces are joined, so a slow client gets larger pieces instead of a longer queue.
    """

    def __init__(self) -> None:
        self._waiting: list[tuple[list[str], bool]] = []
        self._changed = asyncio.Event()
        self._closed = False

    def __call__(self, text: str) -> None:
        self._add(text, is_reasoning=False)

    def think(self, text: str) -> None:
        self._add(text, is_reasoning=True)

    def close(self) -> None:
        self._closed = True
        self._changed.set()

    async def next(self) -> Delta | None:
        """Wait for the next piece. Return an empty one after `SILENCE` seconds, None at the end."""
        try:
            async with asyncio.timeout(SILENCE):
                while not self._waiting and not self._closed:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return Delta()
        if not self._waiting:
            return None
        texts, is_reasoning = self._waiting.pop(0)
        return Delta("".join(texts), is_reasoning)

    def _add(self, text: str, *, is_reasoning: bool) -> None:
        if self._waiting and self._waiting[-1][1] == is_reasoning:
            self._waiting[-1][0].append(text)
        elif text:
            self._waiting.append(([text], is_reasoning))
        self._changed.set()


class _StreamingResponse:
    """A response of server-sent events. Its status is sent with the first bytes of the body."""

    def __init__(
        self, send: Send, headers: Callable[[], Mapping[str, str]], encoder: AnswerStream
    ) -> None:
        self._send = send
        self._headers = headers
        self._encoder = encoder
        self.begun = False

    def opening(self) -> bytes:
        """Return the bytes that precede the first event, b"" once the response has begun.

        Call it before encoding that event, since a wire may number its events.
        """
        return b"" if self.begun else self._encoder.begin()

    async def write(self, data: bytes, *, more: bool = True) -> None:
        if not self.begun:
            headers = {
                "content-type": "text/event-stream; charset=utf-8",
                "cache-control": "no-cache",
                **self._headers(),
            }
            await self._send(
                {"type": "http.response.start", "status": 200, "headers": _raw(headers)}
            )
            self.begun = True
        await self._send({"type": "http.response.body", "body": data, "more_body": more})

    async def close(self, data: bytes) -> None:
        await self.write(data, more=False)


def stop_refusal() -> RequestRefused:
    """Return the refusal for an answer that is cut off because the endpoint stops."""
    return RequestRefused(
        503, "the endpoint is stopping", error_type="server_error", code="stopping"
    )


async def send_json(
    status: int, value: object, send: Send, headers: Mapping[str, str] | None = None
) -> None:
    """Send `value` as a JSON response."""
    body = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    all_headers = {
        "content-type": "application/json",
        "content-length": str(len(body)),
        **(headers or {}),
    }
    await send({"type": "http.response.start", "status": status, "headers": _raw(all_headers)})
    await send({"type": "http.response.body", "body": body})


async def send_refusal(
    wire: Wire, refusal: RequestRefused, send: Send, headers: Mapping[str, str] | None = None
) -> None:
    """Send a refusal in the wire's error format. A failed call was already retried here, so clients
    are told not to retry it.
    """
    all_headers = dict(headers or {})
    if refusal.after is not None:
        all_headers["retry-after"] = str(max(1, round(refusal.after)))
    elif refusal.status >= 500 or refusal.status == 429:
        all_headers["x-should-retry"] = "false"
    await send_json(refusal.status, wire.encode_error(refusal), send, all_headers)


async def read_body(service: EndpointService, exchange: Exchange, receive: Receive) -> bytes:
    """Return the whole body.

    Raises RequestRefused: 408 if it does not arrive in time, 413 as soon as it is too long, 499 if
    the client left.
    """
    clock = asyncio.get_running_loop().time
    deadline = clock() + min(BODY_TIMEOUT, service.limits.seconds)
    max_bytes = service.limits.body
    body = bytearray()
    try:
        first = min(deadline, clock() + PORTION_TIMEOUT)
        async with asyncio.timeout_at(first) as exchange.read_timeout:
            more = True
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise RequestRefused(499, "the client went away")
                body += message.get("body", b"")
                if len(body) > max_bytes:
                    raise RequestRefused(
                        413,
                        f"the request is longer than {max_bytes} bytes",
                        code="request_too_large",
                    )
                more = bool(message.get("more_body"))
                if not exchange.read_timeout.expired():
                    exchange.read_timeout.reschedule(min(deadline, clock() + PORTION_TIMEOUT))
                exchange.last_received = clock()
    except TimeoutError as error:
        raise RequestRefused(
            408, "the request did not arrive in time", code="request_timeout"
        ) from error
    finally:
        exchange.read_timeout = None
    return bytes(body)


def _raw(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [
        (name.encode("latin-1"), value.encode("latin-1", "replace"))
        for name, value in headers.items()
    ]


class AccessCheck:
    """Passes a request on to `app` if its caller may use the endpoint; `/health` is open to all.

    With a token, each request must bring it. Without one, which only a server on a loopback address
    may do, the Host must name this machine, so that no web page reaches the server under a name of
    its own. A request from a web page (it has an Origin) also needs a token, and the page must be
    the server's own or one of `origins`.
    """

    def __init__(self, app: ASGIApp, token: str | None, origins: Sequence[str] = ()) -> None:
        self._app = app
        self._token = token
        self._origins = frozenset(map(parse_origin, origins))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] != "/health":
            headers = HttpRequest(scope).headers
            refusal = self._check_origin(headers) or self._check_caller(headers)
            if refusal is not None:
                challenge = {"www-authenticate": "Bearer"} if refusal.status == 401 else {}
                error = _wire_of(scope["path"]).encode_error(refusal)
                await send_json(refusal.status, error, send, challenge)
                return
        await self._app(scope, receive, send)

    def _check_origin(self, headers: Mapping[str, str]) -> RequestRefused | None:
        text = headers.get("origin")
        if text is None:
            return None
        origin = parse_origin(text)
        allowed = False
        if origin is not None:
            scheme, *authority = origin
            own_authority = parse_authority(headers.get("host", ""), scheme)
            allowed = tuple(authority) == own_authority or origin in self._origins
        if not allowed:
            return _forbidden(f"pages of {text} may not use this server; --allow-origin names more")
        if self._token is None:
            return _forbidden("web pages may use this server with a token only, and it has none")
        return None

    def _check_caller(self, headers: Mapping[str, str]) -> RequestRefused | None:
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
        return RequestRefused(
            401, message, error_type="authentication_error", code="invalid_api_key"
        )


def _forbidden(message: str) -> RequestRefused:
    return RequestRefused(403, message, code="forbidden")


def build_app(service: EndpointService, token: str | None, origins: Sequence[str] = ()) -> ASGIApp:
    """Build the application.

    With `token`, every path but `/health` needs it. Web pages of `origins` may use the endpoint with
    the token.
    """
    info = _InfoEndpoints(service)
    wires = {
        "/v1/chat/completions": chat_completions.WIRE,
        "/v1/responses": responses.WIRE,
        "/v1/messages": messages.WIRE,
    }
    token_count = WireEndpoint(messages.WIRE, partial(count_tokens, service))
    routes = [
        Route("/v1/messages/count_tokens", token_count, methods=["POST"]),
        Route("/v1/models", info.models, methods=["GET"]),
        Route("/v1/models/{name:path}", info.model, methods=["GET"]),
        Route("/v1/traces/{id}", info.trace, methods=["GET"]),
        Route("/health", info.health, methods=["GET"]),
        Route("/", info.health, methods=["GET"]),
    ]
    for path, wire in wires.items():
        answer = WireEndpoint(wire, partial(answer_request, service, wire))
        routes.append(Route(path, answer, methods=["POST"]))
    not_offered = {404: _not_offered, 405: _not_offered}
    app = AccessCheck(Starlette(routes=routes, exception_handlers=not_offered), token, origins)
    if not origins:
        return app
    return CORSMiddleware(
        app,
        allow_origins=origins,
        allow_methods=["GET", "POST"],
        allow_headers=["*"],
        expose_headers=["x-fugu-trace", "x-fugu-agent", "retry-after"],
    )


class WireEndpoint:
    """Runs an ASGI application as a route, and answers its RequestRefused in the wire's format.

    If the endpoint stops before anything was sent, the client gets a refusal too. The cancellation
    is not raised further, because uvicorn would print it and answer in plain text.
    """

    def __init__(self, wire: Wire, app: ASGIApp) -> None:
        self._wire = wire
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def send_and_note(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, send_and_note)
        except RequestRefused as refusal:
            await send_refusal(self._wire, refusal, send)
        except asyncio.CancelledError:
            if not begun:
                await send_refusal(self._wire, stop_refusal(), send)


class _InfoEndpoints:
    """Handlers of the paths that only read."""

    def __init__(self, service: EndpointService) -> None:
        self._service = service

    async def models(self, request: HttpRequest) -> Response:
        models = self._service.models()
        return JSONResponse({"object": "list", "data": models, "has_more": False})

    async def model(self, request: HttpRequest) -> Response:
        name = request.path_params["name"]
        for model in self._service.models():
            if model["id"] == name:
                return JSONResponse(model)
        message = f"the model {name!r} does not exist here"
        return _openai_refusal(RequestRefused(404, message, code="model_not_found"))

    async def trace(self, request: HttpRequest) -> Response:
        id = request.path_params["id"]
        try:
            trace = self._service.trace(id)
        except StorageError as error:
            return _openai_refusal(RequestRefused(500, str(error), error_type="server_error"))
        if trace is None:
            message = f"there is no trace {id!r}"
            return _openai_refusal(RequestRefused(404, message, code="trace_not_found"))
        return JSONResponse(trace)

    async def health(self, request: HttpRequest) -> Response:
        failure = self._service.traces.failure
        traces = str(failure) if failure else "ok"
        return JSONResponse({"status": "ok", "busy": self._service.busy, "traces": traces})


def _openai_refusal(refusal: RequestRefused) -> Response:
    return JSONResponse(openai_error(refusal), refusal.status)


async def _not_offered(request: HttpRequest, error: Exception) -> Response:
    """Answer an unknown path or method with an error in the format of the path's wire."""
    path = request.url.path
    message = f"{request.method} {path} is not offered here; `fugu help serve` lists what is"
    status = getattr(error, "status_code", 404)
    refusal = RequestRefused(status, message, code="not_found")
    return JSONResponse(_wire_of(path).encode_error(refusal), status)


def _wire_of(path: str) -> Wire:
    return messages.WIRE if path.startswith("/v1/messages") else chat_completions.WIRE
