"""What one client may hold of the endpoint without asking anything: time for its headers, a socket, an unread answer.

Under running.py: uvicorn's connection with the limits that it does not have. Open files are what a process runs out of
first, so the number of connections follows from their limit. Where there are as many as may be, the one that has
waited longest for its client gives way to a new one; where all are at work, the new one is refused.
"""

from __future__ import annotations

import asyncio
import resource
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

HEADERS = 10.0
"""Seconds a client may take to send a request's headers, from the connection or from the first byte of a later one."""
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
    """How many there may be: half of the files that may be open, since each answer needs one to its model as well."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = MOST * 2 if soft == resource.RLIM_INFINITY else soft - OWN_FILES
    return max(1, min(free // 2, MOST))


def accepted_at_once() -> int:
    """How many are accepted in one go: few enough that they never take the last file before others are let go."""
    return max(1, min(most_connections() // 4, AT_ONCE))


class Connection(H11Protocol):
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
        return cycle is None or cycle.response_complete or (cycle.more_body and not cycle.response_started)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Lets it in, or another one go for it."""
        super().connection_made(transport)
        self.since = self.loop.time()
        self._within(HEADERS)
        self._make_room()

    def data_received(self, data: bytes) -> None:
        """Headers have their time from their first byte on; what trickles in does not prolong it."""
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

    def _make_room(self) -> None:
        """As few are accepted in one go, the requests of those before are read before it is their turn to leave."""
        there = [one for one in self.connections if isinstance(one, Connection) and not one.transport.is_closing()]
        waiting = [one for one in there if one.waits and one is not self]
        if len(there) <= most_connections():
            return
        if waiting:
            min(waiting, key=lambda one: one.since).leave(b"")
        else:
            self.leave(FULL)

    def leave(self, status: bytes) -> None:
        """End the connection at once, with a status where nothing else was said on it."""
        if status and not self.transport.is_closing():
            self.transport.write(b"HTTP/1.1 %s\r\nconnection: close\r\ncontent-length: 0\r\n\r\n" % status)
            if not self.transport.get_write_buffer_size():
                self.transport.close()
                return
        self.transport.abort()
