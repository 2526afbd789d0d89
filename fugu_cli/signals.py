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


def at_once(*more: signal.Signals) -> None:
    """From now on they raise KeyboardInterrupt, as Ctrl-C does; `more`: these too, also where asyncio would wait."""
    for number in (*_heard(), *more):
        signal.signal(number, _interrupt)


def told(loop: AbstractEventLoop, stop: Callable[[], None]) -> None:
    """From now on each of them, Ctrl-C included, calls `stop` on the loop."""
    for number in (signal.SIGINT, *_heard()):
        loop.add_signal_handler(number, stop)


def decided(loop: AbstractEventLoop, code: int) -> None:
    """From now on each of them ends the process at once with `code`, also where the loop, as it closes, would no
    longer hear them and the process would be ended by the signal."""
    for number in (signal.SIGINT, *_heard()):
        loop.remove_signal_handler(number)
        signal.signal(number, lambda _number, _frame: os._exit(code))


def ignored() -> None:
    """From now on they do nothing: what is left to do is to end."""
    for number in (signal.SIGINT, *ENDING):
        signal.signal(number, signal.SIG_IGN)


def _heard() -> list[signal.Signals]:
    return [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
