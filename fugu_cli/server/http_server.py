"""The process of an endpoint: a socket, uvicorn with limits on connections, and a stop that lets
answers end.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from fugu_cli.errors import InfrastructureError
from fugu_cli.server import ListenAddress
from fugu_cli.server.app import build_app
from fugu_cli.server.service import EndpointService
from fugu_cli.system import signals

HEADERS = 10.0
"""Seconds a client may take to send a request's headers, from the connection or from the first byte
of a later one.
"""
UNREAD = 120.0
"""Seconds a client may leave an answer unread."""
OWN_FILES = 24
"""Files that the process needs for itself."""
MOST = 4096
"""Connections at once, however many files may be open."""
AT_ONCE = 256

LATE = b"408 Request Timeout"
FULL = b"503 Service Unavailable"


def most_connections() -> int:
    """How many there may be: half of the files that may be open, since each answer needs one to its
    model as well.
    """
    try:
        import resource
    except ImportError:  # Windows
        return MOST
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = MOST * 2 if soft == resource.RLIM_INFINITY else soft - OWN_FILES
    return max(1, min(free // 2, MOST))


def accepted_at_once() -> int:
    """How many are accepted in one go: few enough that they never take the last file before others
    are let go.
    """
    return max(1, min(most_connections() // 4, AT_ONCE))


class ClientConnection(H11Protocol):
    """One client's connection."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._timer: asyncio.TimerHandle | None = None
        self.since = 0.0
        """When it began to wait for its client, on the loop's clock."""

    @property
    def waits(self) -> bool:
        """Its client has asked nothing yet, or not all of it."""
        cycle = self.cycle
        return (
            cycle is None
            or cycle.response_complete
            or (cycle.more_body and not cycle.response_started)
        )

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Lets it in, or another one go for it."""
        super().connection_made(transport)
        self.since = self.loop.time()
        self._within(HEADERS)
        _make_room(self)

    def data_received(self, data: bytes) -> None:
        """Headers have their time from their first byte on; what trickles in does not prolong
        it.
        """
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            if not self.flow.write_paused:
                self._at_ease()
        elif self._timer is None:
            self._within(HEADERS)

    def on_response_complete(self) -> None:
        """It waits again. A closing connection whose answer is not read would stay for good."""
        self.since = self.loop.time()
        super().on_response_complete()
        if self.transport.is_closing():
            self._within(UNREAD)

    def pause_writing(self) -> None:
        """The client does not read."""
        super().pause_writing()
        self._within(UNREAD)

    def resume_writing(self) -> None:
        """It does again."""
        super().resume_writing()
        self._at_ease()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self._at_ease()
        super().connection_lost(exc)

    def _within(self, seconds: float) -> None:
        self._at_ease()
        self._timer = self.loop.call_later(seconds, self._too_late)

    def _at_ease(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_late(self) -> None:
        self._timer = None
        self.leave(LATE if self.cycle is None else b"")

    def leave(self, status: bytes) -> None:
        """End the connection at once, with a status where nothing else was said on it."""
        if status and not self.transport.is_closing():
            self.transport.write(
                b"HTTP/1.1 %s\r\nconnection: close\r\ncontent-length: 0\r\n\r\n" % status
            )
            if not self.transport.get_write_buffer_size():
                self.transport.close()
                return
        self.transport.abort()


def _make_room(new: ClientConnection) -> None:
    """As few are accepted in one go, the requests of those before are read before it is their turn
    to leave.
    """
    there = [
        one
        for one in new.connections
        if isinstance(one, ClientConnection) and not one.transport.is_closing()
    ]
    if len(there) <= most_connections():
        return
    waiting = [one for one in there if one.waits and one is not new]
    if waiting:
        min(waiting, key=lambda one: one.since).leave(b"")
    else:
        new.leave(FULL)


BACKLOG = 256
"""Connections that may wait to be accepted."""
_TAKEN = "another program may use it: choose another one with --port, or 0 for any"
_NOT_HERE = "--host takes an address of this machine: 127.0.0.1, ::1, 0.0.0.0 for all of them"


def listen(place: ListenAddress) -> socket.socket:
    """The bound socket. Raises InfrastructureError that names the address and what to do."""
    try:
        family = socket.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)[0][0]
        # With its protocol named: asyncio then sends small pieces at once (TCP_NODELAY), else each
        # waits 40 ms.
        opened = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            opened.bind((place.host, place.port))
            opened.listen(BACKLOG)
        except OSError:
            opened.close()
            raise
    except (OSError, UnicodeError) as error:
        why = (
            "it is no name of a host"
            if isinstance(error, UnicodeError)
            else error.strerror or error
        )
        raise InfrastructureError(
            f"cannot listen on {place.host} port {place.port}: {why}",
            hint=_NOT_HERE if _elsewhere(error) else _TAKEN,
        ) from error
    return opened


def _elsewhere(error: Exception) -> bool:
    """No address of this machine was named."""
    return (
        isinstance(error, socket.gaierror | UnicodeError)
        or getattr(error, "errno", 0) == errno.EADDRNOTAVAIL
    )


async def serve(service: EndpointService, place: ListenAddress, said: Callable[[str], None]) -> int:
    """Answers until it is told to stop. `said` gets the lines for people. Returns the exit code."""
    opened = listen(place)
    port = opened.getsockname()[1]
    server = _Server(uvicorn_config(build_app(service, place.token, place.origins), place.grace))
    host = f"[{place.host}]" if ":" in place.host else place.host
    said(f"listening on http://{host}:{port}/v1")
    stopping = _Stopping(server, service, said)
    signals.call_on_signals(asyncio.get_running_loop(), stopping.stop)
    try:
        await server.serve([opened])
    finally:
        await service.close()
    return 0


def uvicorn_config(app: ASGIApp, grace: float) -> uvicorn.Config:
    """How uvicorn serves `app`; `grace` is the seconds that answers may take after a stop."""
    return uvicorn.Config(
        app,
        http=ClientConnection,
        backlog=accepted_at_once(),
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=max(1, round(grace)),
        ws="none",
    )


class _Server(uvicorn.Server):
    """uvicorn's, with signals left to us: it would raise them again at its end."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Few are accepted in one go, which asyncio takes for how many may wait as well."""
        await super().startup(sockets)
        for opened in sockets or ():
            opened.listen(BACKLOG)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Stopping:
    """What a signal does."""

    def __init__(
        self, server: uvicorn.Server, service: EndpointService, said: Callable[[str], None]
    ) -> None:
        self._server = server
        self._service = service
        self._said = said

    def stop(self) -> None:
        if self._server.should_exit:
            self._server.force_exit = True
            return
        self._server.should_exit = True
        if self._service.busy:
            self._said(f"stopping after {self._service.busy} answers; once more to stop at once")
