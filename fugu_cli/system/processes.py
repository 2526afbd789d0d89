"""Ends a child process and reads its exit code, even if the caller is cancelled meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time

LOCK_SECONDS = 1.0
"""Seconds for which a lock that is taken is tried: what a killed process was just starting holds it
a moment longer.
"""
LOOK_SECONDS = 0.05
PATIENCE = 5.0
"""Seconds after which one more cancellation stops the wait for a process that does not go."""


def is_running(process: int) -> bool:
    """Return whether a process with this id exists, whoever owns it."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


async def reap(process: asyncio.subprocess.Process) -> int | None:
    """Kill a child process if it still runs, and return its exit code; None if it does not end.

    Its pipes are closed, even if a child of it holds them. A cancellation is raised only
    afterwards, since a process whose exit code was not read would outlive the event loop.
    """
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            # Process.kill would take the exit code away from the task that waits for it
            os.kill(process.pid, signal.SIGKILL)
    try:
        return await wait_for_exit(process)
    finally:
        if process.returncode is not None:
            process._transport.close()  # type: ignore[attr-defined]  # asyncio has no public name for it


async def wait_for_exit(process: asyncio.subprocess.Process) -> int | None:
    """Return the exit code of a process that is ended by other means; cancellations as in `reap`.
    `Process.wait` alone may wait for ever for the end of an unread pipe.
    """
    cancelled: asyncio.CancelledError | None = None
    began, waiting = time.monotonic(), asyncio.ensure_future(process.wait())
    while process.returncode is None:
        try:
            await asyncio.wait({waiting}, timeout=LOOK_SECONDS)
        except asyncio.CancelledError as error:
            cancelled = error
            if time.monotonic() - began > PATIENCE:
                break
    waiting.cancel()
    if cancelled is not None:
        raise cancelled
    return process.returncode
