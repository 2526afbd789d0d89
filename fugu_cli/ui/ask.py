"""The one question that flows in: may this call run? Asked on a terminal by `fugu run`, and never without one.

Stands beside headless.py. It shows the resolved target and the reason policy gave; what is answered is recorded by the
loop, not here.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Literal, Protocol, TextIO

from rich.text import Text

from fugu_cli.messages import Call
from fugu_cli.ui.clean import bare
from fugu_cli.ui.render import aimed_at, describe
from fugu_cli.ui.screen import Screen

Permission = Literal["once", "session", "no", "headless"]
ANSWERS: dict[str, Permission] = {
    "y": "once",
    "yes": "once",
    "o": "once",
    "once": "once",
    "s": "session",
    "session": "session",
    "n": "no",
    "no": "no",
    "": "no",
}


SETTLE = 0.05
"""Seconds for the reader of the log to print what led to the question."""


class Judged(Protocol):
    """What policy said of the call."""

    @property
    def reason(self) -> str: ...

    @property
    def target(self) -> str: ...

    @property
    def every_time(self) -> bool: ...


Ask = Callable[[Call, Judged], Awaitable[Permission]]


async def never(call: Call, judgement: Judged) -> Permission:
    """Without a terminal: what would be asked is denied."""
    del call, judgement
    return "headless"


def on_terminal(screen: Screen, read: Callable[[], Awaitable[str]]) -> Ask:
    """Asks on `screen`; `read` gives the next line the user types, "" at its end (which means no)."""

    async def ask(call: Call, judgement: Judged) -> Permission:
        await asyncio.sleep(SETTLE)
        with screen.held():
            screen.show(Text(f"allow {describe(call)}?", "bold yellow"))
            if judgement.target:
                screen.show(Text(f"  {bare(aimed_at(call, judgement.target))}"))
            screen.show(Text(f"  asked because {bare(judgement.reason)}", "dim"))
            while True:
                screen.err.raw("  [y] once  " + ("" if judgement.every_time else "[s] for this session  ") + "[N] no: ")
                line = await read()
                answer = ANSWERS.get(line.strip().lower())
                if answer is not None and not (answer == "session" and judgement.every_time):
                    return answer
                if not line.endswith("\n"):
                    return "no"

    return ask


async def typed(stream: TextIO | None = None) -> str:
    """The next line of standard input, without a thread, so that Ctrl-C ends the waiting at once."""
    source = sys.stdin if stream is None else stream
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    file = source.fileno()
    loop.add_reader(file, lambda: None if ready.done() else ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(file)
    return source.readline()
