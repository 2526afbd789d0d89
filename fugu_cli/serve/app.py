"""The paths of the endpoint, as a Starlette application."""

from __future__ import annotations

import asyncio

from starlette.applications import Starlette
from starlette.requests import Request as Http
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fugu_cli.errors import StorageError
from fugu_cli.serve.asking import Refused
from fugu_cli.serve.chat_out import Chat, failure
from fugu_cli.serve.exchange import Exchange, read_body, refuse, reply, stopped
from fugu_cli.serve.gate import Gate
from fugu_cli.serve.messages_api import size
from fugu_cli.serve.messages_out import Messages
from fugu_cli.serve.responses_out import Responses
from fugu_cli.serve.service import Service
from fugu_cli.serve.wire import Wire


def build(service: Service, token: str | None) -> ASGIApp:
    """The application. With `token` every path but `/health` wants it."""
    places = _Places(service)
    routes = [
        Route("/v1/chat/completions", Post(Exchange(service, Chat()), Chat()), methods=["POST"]),
        Route("/v1/responses", Post(Exchange(service, Responses()), Responses()), methods=["POST"]),
        Route("/v1/messages", Post(Exchange(service, Messages()), Messages()), methods=["POST"]),
        Route("/v1/messages/count_tokens", Post(Counting(service), Messages()), methods=["POST"]),
        Route("/v1/models", places.models, methods=["GET"]),
        Route("/v1/models/{name:path}", places.model, methods=["GET"]),
        Route("/v1/traces/{id}", places.trace, methods=["GET"]),
        Route("/health", places.health, methods=["GET"]),
        Route("/", places.health, methods=["GET"]),
    ]
    return Gate(Starlette(routes=routes, exception_handlers={404: _missing, 405: _missing}), token)


class Post:
    """An ASGI application as a route's endpoint: a class instance with a method, which Starlette calls as it is.

    Cut because the endpoint stops, it says so on its wire where nothing was said yet. It is not told on: uvicorn, which
    alone is above it, would print it and answer in plain text.
    """

    def __init__(self, app: ASGIApp, wire: Wire) -> None:
        self._app = app
        self._wire = wire

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def told(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, told)
        except asyncio.CancelledError:
            if not begun:
                await refuse(self._wire, stopped(), send)


class Counting:
    """`POST /v1/messages/count_tokens`: an estimate, before anything is chosen."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            counted = size(await read_body(self._service, receive))
        except Refused as refused:
            await refuse(Messages(), refused, send)
            return
        await reply(200, {"input_tokens": counted}, send)


class _Places:
    """The paths that only read."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def models(self, request: Http) -> Response:
        listed = self._service.models()
        return JSONResponse({"object": "list", "data": listed, "has_more": False})

    async def model(self, request: Http) -> Response:
        name = request.path_params["name"]
        found = next((m for m in self._service.models() if isinstance(m, dict) and m["id"] == name), None)
        if found is None:
            said = Refused(404, f"the model {name!r} does not exist here", code="model_not_found")
            return JSONResponse(failure(said), 404)
        return JSONResponse(found)

    async def trace(self, request: Http) -> Response:
        id = request.path_params["id"]
        try:
            found = self._service.trace(id)
        except StorageError as error:
            return JSONResponse(failure(Refused(500, str(error), kind="server_error")), 500)
        if found is None:
            return JSONResponse(failure(Refused(404, f"there is no trace {id!r}", code="trace_not_found")), 404)
        return JSONResponse(found)

    async def health(self, request: Http) -> Response:
        failed = self._service.traces.failure
        return JSONResponse({"status": "ok", "busy": self._service.busy, "traces": str(failed) if failed else "ok"})


async def _missing(request: Http, error: Exception) -> Response:
    """A path or method that is not there, said in JSON like everything else, on its path's wire."""
    status = getattr(error, "status_code", 404)
    said = f"{request.method} {request.url.path} is not offered here; `fugu help serve` lists what is"
    wire: Wire = Messages() if request.url.path.startswith("/v1/messages") else Chat()
    return JSONResponse(wire.failure(Refused(status, said, code="not_found")), status)
