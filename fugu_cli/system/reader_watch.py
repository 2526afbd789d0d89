"""Notices when nobody reads this process's output any more, even while it writes nothing."""

from __future__ import annotations

import select
from asyncio import AbstractEventLoop
from collections.abc import Callable

GONE = select.POLLERR | select.POLLHUP


def call_when_reader_leaves(
    loop: AbstractEventLoop, descriptor: int, gone: Callable[[], None]
) -> None:
    """Call `gone` once when the other end of a pipe or socket for writing is closed. For a file, or
    a terminal that is still there, it is never called.
    """
    poll = select.poll()
    poll.register(descriptor, 0)

    def look() -> None:
        loop.remove_reader(descriptor)
        if any(event & GONE for _, event in poll.poll(0)):
            gone()

    try:
        loop.add_reader(descriptor, look)
    except (PermissionError, ValueError, NotImplementedError):  # a file, or another kind of loop
        return
