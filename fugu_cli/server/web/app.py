"""The addresses of the web page: who may call them, what they answer, and what users do there."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from urllib.parse import parse_qsl

from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from fugu_cli.app import session_messages as messages
from fugu_cli.app.attached_session import carry_out
from fugu_cli.app.session_standing import session_standings
from fugu_cli.errors import FuguError, StorageError, UsageError
from fugu_cli.server import WEB_ROOT
from fugu_cli.server.traces import FOLDER, Traces
from fugu_cli.server.web import pages
from fugu_cli.server.web.access import WebAccess
from fugu_cli.server.web.followed import FollowedSessions, version_of
from fugu_cli.server.web.markup import Markup
from fugu_cli.session import store

MOST_SESSIONS = 100
"""The newest sessions that the list shows."""
MOST_REQUESTS = 50
"""The newest requests of the endpoint that the list shows."""
MOST_STREAMS = 64
"""Pages that are kept up to date at the same time."""
REFRESH_SECONDS = 0.25
LIST_REFRESH_SECONDS = 3.0
SILENCE_SECONDS = 15.0
"""Seconds of silence after which a stream gets a comment, so that a lost connection is noticed."""
MOST_FORM_BYTES = 4 << 20
FORM_SECONDS = 30.0
SESSION_ID = re.compile(r"[A-Za-z0-9_-]{1,100}")

HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "same-origin",  # with no-referrer a form would name no origin
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


@dataclass(frozen=True)
class WebSources:
    """The sources of the pages: the sessions below the folder `data`, the endpoint's traces, and the
    skills of the agents. `skills` is called in a thread.
    """

    data: Path
    traces: Traces
    skills: Callable[[], Sequence[pages.AgentTable]]


Parts = Mapping[str, Markup]


class WebPages:
    """The pages as an ASGI application for the paths below `/web`."""

    def __init__(
        self, access: WebAccess, sources: WebSources, announce: Callable[[], None]
    ) -> None:
        """`announce` tells the user the link for another browser, once one has signed in."""
        self._access, self._sources, self._announce = access, sources, announce
        self._sessions = FollowedSessions(lambda path: f"{access.base}/sessions/{path.stem}/act")
        self._is_stopping = False
        self._streams = 0
        base = access.base
        views = {
            f"{WEB_ROOT}/login": self._log_in,
            f"{base}/": self._show_sessions,
            f"{base}/stream": self._stream_sessions,
            f"{base}/sessions/{{id}}": self._show_session,
            f"{base}/sessions/{{id}}/stream": self._stream_session,
            f"{base}/requests": self._show_requests,
            f"{base}/requests/stream": self._stream_requests,
            f"{base}/requests/{{id}}": self._show_request,
            f"{base}/agents": self._show_agents,
            f"{base}/page.css": _page_file("page.css", "text/css"),
            f"{base}/page.js": _page_file("page.js", "text/javascript"),
        }
        actions = {f"{base}/sessions/{{id}}/act": self._act, f"{base}/logout": self._log_out}
        routes = [Route(path, handler, methods=["GET"]) for path, handler in views.items()]
        routes += [Route(path, handler, methods=["POST"]) for path, handler in actions.items()]
        handlers = {404: _show_missing, 405: _show_missing, FuguError: _show_error}
        self._app = Starlette(routes=routes, exception_handlers=handlers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request if it may be answered."""
        request = Request(scope)
        denial = self._access.check_request(request.method, scope["path"], request.headers)
        is_login = scope["path"] == f"{WEB_ROOT}/login"
        if denial is not None:
            response = _html(pages.message_page("Refused", denial.message), denial.status)
            await response(scope, receive, send)
        elif not is_login and not self._access.is_signed_in(request.headers):
            message = "Open the link that `fugu serve` printed in its terminal. It works once."
            response = _html(pages.message_page("Sign in", message), 401)
            await response(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def stop(self) -> None:
        """End the streams, so that the server can stop."""
        self._is_stopping = True

    async def close(self) -> None:
        """Follow no session any more."""
        await self._sessions.close()

    async def _log_in(self, request: Request) -> Response:
        cookie = None
        if request.method == "GET":  # a HEAD of a link preview must not use up the key
            cookie = self._access.sign_in(request.query_params.get("key", ""))
        if cookie is None:
            message = (
                "This link was used already, or belongs to an earlier start. The newest link "
                "stands in the terminal of `fugu serve`."
            )
            return _html(pages.message_page("Not signed in", message), 403)
        self._announce()
        response = _html(pages.signed_in_page(self._access.base))
        response.headers["set-cookie"] = cookie
        return response

    async def _log_out(self, request: Request) -> Response:
        self._access.sign_out(request.headers)
        return _html(pages.message_page("Signed out", "This browser is signed out."))

    async def _show_sessions(self, request: Request) -> Response:
        part = await asyncio.to_thread(self._sessions_part)
        base = self._access.base
        return _html(pages.list_page("Sessions", base, part, f"{base}/stream"))

    async def _stream_sessions(self, request: Request) -> Response:
        return self._stream_list(request, self._sessions_part)

    async def _show_requests(self, request: Request) -> Response:
        part = await asyncio.to_thread(self._requests_part)
        base = self._access.base
        return _html(pages.list_page("Requests", base, part, f"{base}/requests/stream"))

    async def _stream_requests(self, request: Request) -> Response:
        return self._stream_list(request, self._requests_part)

    def _stream_list(self, request: Request, render: Callable[[], Markup]) -> Response:
        async def parts() -> Parts:
            return {pages.LIST_PART: await asyncio.to_thread(render)}

        return self._stream_response(self._events(request, parts, LIST_REFRESH_SECONDS))

    def _session_paths(self) -> list[Path]:
        paths = store.session_paths(self._sources.data)
        return [path for path in paths if path.parent.name != FOLDER]

    def _sessions_part(self) -> Markup:
        summaries = store.session_summaries(self._session_paths()[:MOST_SESSIONS])
        return pages.sessions_part(summaries, session_standings(summaries), self._access.base)

    def _requests_part(self) -> Markup:
        traces = {}
        for id in self._sources.traces.newest(MOST_REQUESTS):
            records = self._sources.traces.read(id)
            if records:
                traces[id] = records
        return pages.requests_part(traces, self._access.base)

    def _path_of(self, request: Request) -> Path:
        """Return the log of the session that the address names. Raises UsageError."""
        id = request.path_params["id"]
        if SESSION_ID.fullmatch(id):
            for path in self._session_paths():
                if path.stem == id:
                    return path
        raise UsageError(f"there is no session {id!r}", hint="it may have been deleted")

    async def _show_session(self, request: Request) -> Response:
        path = await asyncio.to_thread(self._path_of, request)
        async with self._sessions.follow(path) as session:
            return _html(pages.session_page(session, self._access.base))

    async def _stream_session(self, request: Request) -> Response:
        path = await asyncio.to_thread(self._path_of, request)

        async def events() -> AsyncIterator[bytes]:
            with suppress(StorageError):  # the browser asks again, and the page says why
                async with self._sessions.follow(path) as session:

                    async def parts() -> Parts:
                        return session.parts

                    async for event in self._events(request, parts, REFRESH_SECONDS):
                        yield event

        return self._stream_response(events())

    def _stream_response(self, events: AsyncIterator[bytes]) -> Response:
        if self._is_stopping:
            raise UsageError("the server is stopping")
        if self._streams >= MOST_STREAMS:
            raise UsageError(f"{MOST_STREAMS} pages are open already", hint="close some of them")
        return StreamingResponse(events, media_type="text/event-stream", headers=HEADERS)

    async def _events(
        self, request: Request, parts: Callable[[], Awaitable[Parts]], pause: float
    ) -> AsyncIterator[bytes]:
        """Yield the parts that changed since the version that the browser shows, as events.

        A browser that shows the present version already gets no event until something changes.
        """
        clock = asyncio.get_running_loop().time
        version = request.headers.get("last-event-id") or request.query_params.get("version", "")
        sent: Parts = {}
        sent_at = clock()
        self._streams += 1
        try:
            while not self._is_stopping:
                current = dict(await parts())
                if not sent and version_of(current) == version:
                    sent = current
                changed = {id: part for id, part in current.items() if sent.get(id) != part}
                removed = [id for id in sent if id not in current]
                if changed or removed:
                    sent, sent_at = current, clock()
                    data = json.dumps({"parts": changed, "removed": removed})
                    yield f"id: {version_of(sent)}\ndata: {data}\n\n".encode()
                elif clock() - sent_at > SILENCE_SECONDS:
                    sent_at = clock()
                    yield b": still here\n\n"
                await asyncio.sleep(pause)
        finally:
            self._streams -= 1

    async def _act(self, request: Request) -> Response:
        """Pass the user's act on to the session, and answer with the result."""
        path = await asyncio.to_thread(self._path_of, request)
        act = _act_of(await _read_form(request))
        note = await carry_out(path, act)
        if _wants_text(request):
            return Response(note or "Done.", media_type="text/plain", headers=HEADERS)
        address = f"{self._access.base}/sessions/{path.stem}"
        return RedirectResponse(address, 303, headers=HEADERS)

    async def _show_request(self, request: Request) -> Response:
        id = request.path_params["id"]
        records = await asyncio.to_thread(self._sources.traces.read, id)
        if records is None:
            raise UsageError(f"there is no request {id!r}", hint="its trace may have been deleted")
        return _html(await asyncio.to_thread(pages.request_page, id, records, self._access.base))

    async def _show_agents(self, request: Request) -> Response:
        tables = await asyncio.to_thread(self._sources.skills)
        return _html(pages.agents_page(tables, self._access.base))


def _act_of(form: Mapping[str, str]) -> messages.Act:
    """Return the act that a form asks for. Raises UsageError for a form that no page has."""
    feedback = form.get("feedback", "").strip()
    if form.get("scope") == "feedback" and not feedback:
        raise UsageError("there are no words of your own", hint="write them, then send again")
    fields: dict[str, str] = {"type": form.get("act", "")}
    match fields["type"]:
        case "answer":
            fields |= {name: form.get(name, "") for name in ("question", "call", "scope")}
            fields["feedback"] = feedback
        case "send":
            fields |= {"text": form.get("text", ""), "how": form.get("how", "steer")}
        case "interrupt":
            pass
        case _:
            raise UsageError(
                "the form names nothing that a session can do", hint="load the page again"
            )
    try:
        return messages.ACT.validate_python(fields)
    except ValidationError as error:
        fault = error.errors()[0]
        raise UsageError(
            f"the form cannot be used: {fault['msg']}", hint="load the page again"
        ) from error


async def _read_form(request: Request) -> dict[str, str]:
    """Return the fields of a form. Raises UsageError for one that is too long or too slow."""
    body = bytearray()
    try:
        async with asyncio.timeout(FORM_SECONDS):
            async for portion in request.stream():
                body += portion
                if len(body) > MOST_FORM_BYTES:
                    raise UsageError("the text is too long", hint="write it into a file")
        return dict(parse_qsl(bytes(body).decode("utf-8", "replace"), max_num_fields=20))
    except (TimeoutError, ClientDisconnect, ValueError) as error:
        raise UsageError(
            "the form did not arrive whole", hint="nothing was done; send it again"
        ) from error


def _wants_text(request: Request) -> bool:
    return request.headers.get("accept", "").startswith("text/plain")


def _html(markup: Markup, status: int = 200) -> Response:
    content = markup.encode("utf-8", "replace")
    return Response(content, status, HEADERS, media_type="text/html")


def _page_file(name: str, media_type: str) -> Callable[[Request], Awaitable[Response]]:
    content = resources.files("fugu_cli.server.web").joinpath(name).read_bytes()

    async def answer(request: Request) -> Response:
        return Response(content, media_type=media_type, headers=HEADERS)

    return answer


async def _show_missing(request: Request, error: Exception) -> Response:
    message = f"There is no page for {request.method} {request.url.path}."
    return _html(pages.message_page("Not found", message), getattr(error, "status_code", 404))


async def _show_error(request: Request, error: Exception) -> Response:
    """Answer with the message of a FuguError: in plain text where the page's script asks."""
    hint = getattr(error, "hint", "")
    message = f"Not done: {error}{f'; {hint}' if hint else ''}."
    status = 500 if isinstance(error, StorageError) else 409
    if _wants_text(request):
        return Response(message, status, HEADERS, media_type="text/plain; charset=utf-8")
    back = request.url.path.removesuffix("/act") if request.method == "POST" else ""
    return _html(pages.message_page("Not done", message, back), status)
