"""The signals that end a command: Ctrl-C, SIGTERM, and SIGHUP, which comes when the terminal is closed.

Below everything. Before there is anything to keep they end a command wherever it is; a run that is
open takes them itself. One that was ignored from the start (`nohup`) stays ignored.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))

LATER = 0.005
"""Seconds after which a signal that came at a bad moment comes again."""


def at_once(*more: signal.Signals) -> None:
    """From now on they raise KeyboardInterrupt, as Ctrl-C does; `more`: these too, also where asyncio would wait. One
    that was `held` does so here."""
    for number in (*_heard(), *more):
        signal.signal(number, _interrupt)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, *ENDING))


def held() -> None:
    """From now on they wait until somebody hears them again: while asyncio makes a loop, nobody could."""
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, *ENDING))


def told(loop: AbstractEventLoop, stop: Callable[[], None]) -> None:
    """From now on each of them, Ctrl-C included, calls `stop` on the loop."""
    for number in (signal.SIGINT, *_heard()):
        loop.add_signal_handler(number, stop)


def decided(loop: AbstractEventLoop, code: int) -> None:
    """From now on each of them ends the process at once with `code`, also where the loop, as it closes, would no
    longer hear them and the process would be ended by the signal."""
    signal.setitimer(signal.ITIMER_REAL, 0)
    for number in (signal.SIGINT, *_heard()):
        loop.remove_signal_handler(number)
        signal.signal(number, lambda _number, _frame: os._exit(code))


def ignored() -> bool:
    """From now on they do nothing: what is left to do is to end. Whether one was put off and has not come again."""
    left, _ = signal.setitimer(signal.ITIMER_REAL, 0)
    for number in (signal.SIGINT, *ENDING):
        signal.signal(number, signal.SIG_IGN)
    return left > 0


def _heard() -> list[signal.Signals]:
    return [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Not in the middle of an import, where it would leave modules half made, or be swallowed: a moment later then."""
    if not _importing(frame):
        raise KeyboardInterrupt
    signal.signal(signal.SIGALRM, lambda _number, _frame: signal.raise_signal(number))
    signal.setitimer(signal.ITIMER_REAL, LATER)


def _importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False
