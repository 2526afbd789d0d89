"""The process of an endpoint: a socket, uvicorn, and a stop that lets answers end.

The first SIGINT, SIGTERM or SIGHUP stops taking requests and waits for those on their way, the second ends them.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Callable, Iterator

import uvicorn
from starlette.types import ASGIApp

from fugu_cli import signals
from fugu_cli.errors import InfrastructureError
from fugu_cli.serve.app import build
from fugu_cli.serve.connections import Connection, accepted_at_once
from fugu_cli.serve.places import Place
from fugu_cli.serve.service import Service

BACKLOG = 256
"""Connections that may wait to be accepted."""
_TAKEN = "another program may use it: choose another one with --port, or 0 for any"
_NOT_HERE = "--host takes an address of this machine: 127.0.0.1, ::1, 0.0.0.0 for all of them"


def listen(place: Place) -> socket.socket:
    """The bound socket. Raises InfrastructureError that names the address and what to do."""
    try:
        family = socket.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)[0][0]
        # With its protocol named: asyncio then sends small pieces at once (TCP_NODELAY), else each waits 40 ms.
        opened = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            opened.bind((place.host, place.port))
            opened.listen(BACKLOG)
        except OSError:
            opened.close()
            raise
    except (OSError, UnicodeError) as error:
        why = "it is no name of a host" if isinstance(error, UnicodeError) else error.strerror or error
        raise InfrastructureError(
            f"cannot listen on {place.host} port {place.port}: {why}", hint=_NOT_HERE if _elsewhere(error) else _TAKEN
        ) from error
    return opened


def _elsewhere(error: Exception) -> bool:
    """No address of this machine was named."""
    return isinstance(error, socket.gaierror | UnicodeError) or getattr(error, "errno", 0) == errno.EADDRNOTAVAIL


async def serve(service: Service, place: Place, said: Callable[[str], None]) -> int:
    """Answers until it is told to stop. `said` gets the lines for people. Returns the exit code."""
    opened = listen(place)
    port = opened.getsockname()[1]
    server = _Server(config(build(service, place.token), place.grace))
    host = f"[{place.host}]" if ":" in place.host else place.host
    said(f"listening on http://{host}:{port}/v1")
    stopping = _Stopping(server, service, said)
    signals.told(asyncio.get_running_loop(), stopping.stop)
    try:
        await server.serve([opened])
    finally:
        await service.close()
    return 0


def config(app: ASGIApp, grace: float) -> uvicorn.Config:
    """How uvicorn serves `app`; `grace` is the seconds that answers may take after a stop."""
    return uvicorn.Config(
        app,
        http=Connection,
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

    def __init__(self, server: uvicorn.Server, service: Service, said: Callable[[str], None]) -> None:
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
