"""The signals that end a command: Ctrl-C, SIGTERM, and SIGHUP.

At first they end a command wherever it is, since there is nothing to keep; an open run handles them
itself. A signal that was ignored from the start (`nohup`) stays ignored.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))

RETRY_SECONDS = 0.005
"""Seconds after which a signal that came at a bad moment comes again."""
TICK = 0.1
"""Seconds between two ticks."""
WAITING = frozenset({"communicate", "_communicate", "wait", "_wait", "_try_wait"})
"""Functions of the module subprocess that wait for a program. Its others are starting one, or
putting one away.
"""


def raise_on_signals(*more: signal.Signals) -> None:
    """Raise KeyboardInterrupt for SIGINT and for the signals in `more`, also while asyncio waits.

    A signal that was blocked by `hold_signals` raises here. With `more`, a timer (the tick)
    interrupts the process at intervals: Python does not handle a signal that comes just before a
    blocking call until that call is interrupted. The other functions that set handlers, and
    `unticking`, stop it.
    """
    for number in (*_signals_not_ignored(), *more):
        signal.signal(number, _interrupt)
    if more and signal.getsignal(signal.SIGALRM) in (signal.SIG_DFL, _tick):  # else one was put off
        signal.signal(signal.SIGALRM, _tick)
        signal.setitimer(signal.ITIMER_REAL, TICK, TICK)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, *ENDING))


def unticking() -> None:
    """Stop the tick. A postponed signal still comes again."""
    if signal.getsignal(signal.SIGALRM) is _tick:
        signal.setitimer(signal.ITIMER_REAL, 0)


def hold_signals() -> None:
    """Block signals until handlers are set again, because they could not be handled while asyncio
    makes a loop.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, *ENDING))


def call_on_signals(loop: AbstractEventLoop, stop: Callable[[], None]) -> None:
    """Call `stop` on the loop for each signal, Ctrl-C included."""
    unticking()
    for number in (signal.SIGINT, *_signals_not_ignored()):
        loop.add_signal_handler(number, stop)


def exit_on_signals(loop: AbstractEventLoop, code: int) -> None:
    """End the process at once with `code` on each signal, also while the loop closes and has no
    handlers.
    """
    signal.setitimer(signal.ITIMER_REAL, 0)
    # a handler that is removed leaves the system's in its place, which ends the process
    hold_signals()
    for number in (signal.SIGINT, *_signals_not_ignored()):
        loop.remove_signal_handler(number)
        signal.signal(number, lambda _number, _frame: os._exit(code))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, *ENDING))


def ignore_signals() -> bool:
    """Ignore signals while the program ends. Return whether a postponed signal was still to come."""
    unticking()
    seconds_left, _ = signal.setitimer(signal.ITIMER_REAL, 0)
    for number in (signal.SIGINT, *ENDING):
        signal.signal(number, signal.SIG_IGN)
    return seconds_left > 0


def _signals_not_ignored() -> list[signal.Signals]:
    return [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, or do so a moment later during an import or the start of a program:
    the import would be left half done, and nobody would end the program.
    """
    if not (_is_importing(frame) or _is_starting(frame)):
        raise KeyboardInterrupt
    signal.signal(signal.SIGALRM, lambda _number, _frame: _again(number))
    signal.setitimer(signal.ITIMER_REAL, RETRY_SECONDS, TICK)


def _again(number: int) -> None:
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, _tick)
    signal.raise_signal(number)


def _tick(number: int, frame: FrameType | None) -> None:
    """Do nothing: the interrupted call goes on."""


def _is_importing(frame: FrameType | None) -> bool:
    return any(
        caller.f_code.co_filename.startswith("<frozen importlib") for caller in _frames(frame)
    )


def _is_starting(frame: FrameType | None) -> bool:
    module = sys.modules.get("subprocess")
    file = module.__file__ if module is not None else None
    inner = next(
        (caller.f_code for caller in _frames(frame) if caller.f_code.co_filename == file), None
    )
    return inner is not None and inner.co_name not in WAITING


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back
