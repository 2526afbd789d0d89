"""The process of an endpoint: its socket, uvicorn with limits on connections, and a stop that lets
running answers finish.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from fugu_cli.errors import InfrastructureError
from fugu_cli.formatting import plural
from fugu_cli.server import WEB_ROOT, ListenAddress
from fugu_cli.server.app import build_app
from fugu_cli.server.service import EndpointService
from fugu_cli.system import signals

if TYPE_CHECKING:
    from fugu_cli.server.web.app import WebPages, WebSources

HEADER_TIMEOUT = 10.0
"""Seconds a client may take to send the headers of a request, counted from the connection or from
the first byte of a later request.
"""
UNREAD_TIMEOUT = 120.0
"""Seconds a client may close_now an answer unread."""
OWN_FILES = 24
"""Open files that the process needs for itself."""
MAX_CONNECTIONS = 4096
"""Upper limit of open connections, however many files the process may open."""
MAX_ACCEPTS_AT_ONCE = 256

LATE = b"408 Request Timeout"
FULL = b"503 Service Unavailable"


def max_connections() -> int:
    """Return the limit of open connections: half of the files that the process may open, since each
    answer also needs a connection to its model.
    """
    try:
        import resource
    except ImportError:  # Windows
        return MAX_CONNECTIONS
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = MAX_CONNECTIONS * 2 if soft == resource.RLIM_INFINITY else soft - OWN_FILES
    return max(1, min(free // 2, MAX_CONNECTIONS))


def accepts_at_once() -> int:
    """Return how many connections are accepted in one step of the event loop.

    The number is small enough that new connections cannot use up all files before waiting ones are
    closed.
    """
    return max(1, min(max_connections() // 4, MAX_ACCEPTS_AT_ONCE))


class ClientConnection(H11Protocol):
    """One client's connection, closed when the client sends or reads too slowly."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._timer: asyncio.TimerHandle | None = None
        self.waiting_since = 0.0
        """Time at which the connection began to wait for its client, on the loop's clock."""

    @property
    def is_waiting(self) -> bool:
        """True until the client has sent a whole request."""
        cycle = self.cycle
        return (
            cycle is None
            or cycle.response_complete
            or (cycle.more_body and not cycle.response_started)
        )

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the header timeout, and close a waiting connection if there are too many."""
        super().connection_made(transport)
        self.waiting_since = self.loop.time()
        self._start_timer(HEADER_TIMEOUT)
        _close_surplus(self)

    def data_received(self, data: bytes) -> None:
        """Start the header timeout at the first byte of a request; later bytes do not prolong it."""
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            if not self.flow.write_paused:
                self._stop_timer()
        elif self._timer is None:
            self._start_timer(HEADER_TIMEOUT)

    def on_response_complete(self) -> None:
        """Wait for the next request. A closing connection gets a timeout, since its answer may
        never be read.
        """
        self.waiting_since = self.loop.time()
        super().on_response_complete()
        if self.transport.is_closing():
            self._start_timer(UNREAD_TIMEOUT)

    def pause_writing(self) -> None:
        """Start the timeout for a client that does not read."""
        super().pause_writing()
        self._start_timer(UNREAD_TIMEOUT)

    def resume_writing(self) -> None:
        """Stop the timeout: the client reads again."""
        super().resume_writing()
        self._stop_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timeout of a connection that is gone."""
        self._stop_timer()
        super().connection_lost(exc)

    def _start_timer(self, seconds: float) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(seconds, self._on_timeout)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timeout(self) -> None:
        self._timer = None
        nothing_sent = self.cycle is None
        self.close_now(LATE if nothing_sent else b"")

    def close_now(self, status: bytes) -> None:
        """Close the connection at once, after `status` if it is given."""
        if status and not self.transport.is_closing():
            self.transport.write(
                b"HTTP/1.1 %s\r\nconnection: close\r\ncontent-length: 0\r\n\r\n" % status
            )
            if not self.transport.get_write_buffer_size():
                self.transport.close()
                return
        self.transport.abort()


def _close_surplus(new: ClientConnection) -> None:
    """Close the connection that has waited longest if `new` is one too many, else `new` itself.

    Since few connections are accepted at once, a client has time to send its request before its
    connection becomes the longest waiting one.
    """
    connections = [
        connection
        for connection in new.connections
        if isinstance(connection, ClientConnection) and not connection.transport.is_closing()
    ]
    if len(connections) <= max_connections():
        return
    waiting = [
        connection for connection in connections if connection.is_waiting and connection is not new
    ]
    if waiting:
        longest_waiting = min(waiting, key=lambda connection: connection.waiting_since)
        longest_waiting.close_now(b"")
    else:
        new.close_now(FULL)


BACKLOG = 256
"""Connections that may wait to be accepted."""
_PORT_TAKEN_HINT = "another program may use it: choose another one with --port, or 0 for any"
_WRONG_HOST_HINT = (
    "--host takes an address of this machine: 127.0.0.1, ::1, 0.0.0.0 for all of them"
)


def listen(address: ListenAddress) -> socket.socket:
    """Return a bound, listening socket. Raises InfrastructureError with a hint what to do."""
    try:
        family = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0][0]
        # With its protocol named: asyncio then sends small pieces at once (TCP_NODELAY), else each
        # waits 40 ms.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((address.host, address.port))
            listener.listen(BACKLOG)
        except OSError:
            listener.close()
            raise
    except (OSError, UnicodeError) as error:
        if isinstance(error, UnicodeError):
            reason: object = "it is no name of a host"
        else:
            reason = error.strerror or error
        wrong_host = isinstance(error, socket.gaierror | UnicodeError)
        if getattr(error, "errno", 0) == errno.EADDRNOTAVAIL:
            wrong_host = True
        raise InfrastructureError(
            f"cannot listen on {address.host} port {address.port}: {reason}",
            hint=_WRONG_HOST_HINT if wrong_host else _PORT_TAKEN_HINT,
        ) from error
    return listener


async def serve(
    service: EndpointService,
    address: ListenAddress,
    print_line: Callable[[str], None],
    web_sources: WebSources | None = None,
) -> int:
    """Answer requests until a signal stops the endpoint, and return the exit code. `print_line`
    gets messages for people. With `web_sources` the web page is served too.
    """
    listener = listen(address)
    port = listener.getsockname()[1]
    host = f"[{address.host}]" if ":" in address.host else address.host
    print_line(f"listening on http://{host}:{port}/v1")
    app = build_app(service, address.token, address.origins)
    web = None
    if web_sources is not None:
        web = _build_web(web_sources, host, port, address.web_origin, print_line)
        app = PathSwitch(web, app)
    server = _Server(uvicorn_config(app, address.grace))
    stopping = _StopOnSignal(server, service, print_line, web)
    signals.call_on_signals(asyncio.get_running_loop(), stopping.stop)
    try:
        await server.serve([listener])
    finally:
        if web is not None:
            await web.close()
        await service.close()
    return 0


def _build_web(
    sources: WebSources, host: str, port: int, origin: str, print_line: Callable[[str], None]
) -> WebPages:
    """Build the web page and print the link that opens it."""
    from fugu_cli.server.web.access import WebAccess
    from fugu_cli.server.web.app import WebPages

    access = WebAccess(port, origin)

    def announce() -> None:
        print_line(f"a browser has signed in; the link for another one: {access.link(host)}")

    print_line(f"web page: {access.link(host)} (the link works once)")
    return WebPages(access, sources, announce)


class PathSwitch:
    """Passes requests for the web page to `web`, and all others to `endpoint`."""

    def __init__(self, web: ASGIApp, endpoint: ASGIApp) -> None:
        self._web, self._endpoint = web, endpoint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        is_web = path == WEB_ROOT or path.startswith(f"{WEB_ROOT}/")
        await (self._web if is_web else self._endpoint)(scope, receive, send)


def uvicorn_config(app: ASGIApp, grace: float) -> uvicorn.Config:
    """Return the configuration with which uvicorn serves `app`. `grace` is the number of seconds
    that running answers may take after a stop.
    """
    return uvicorn.Config(
        app,
        http=ClientConnection,
        backlog=accepts_at_once(),
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=max(1, round(grace)),
        ws="none",
    )


class _Server(uvicorn.Server):
    """A uvicorn server that leaves signals to us, since uvicorn would raise them again when it
    ends.
    """

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen with the full backlog again: asyncio also uses its number of accepts at once as
        the backlog.
        """
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(BACKLOG)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _StopOnSignal:
    """Stops the server: after running answers at the first signal, at once at the second."""

    def __init__(
        self,
        server: uvicorn.Server,
        service: EndpointService,
        print_line: Callable[[str], None],
        web: WebPages | None = None,
    ) -> None:
        self._server = server
        self._web = web
        self._service = service
        self._print_line = print_line

    def stop(self) -> None:
        if self._server.should_exit:
            self._server.force_exit = True
            return
        self._server.should_exit = True
        if self._web is not None:
            self._web.stop()
        if self._service.busy:
            answers = plural(self._service.busy, "answer")
            self._print_line(f"stopping after {answers}; once more to stop at once")
