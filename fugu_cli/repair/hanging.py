"""How long the tests may take after a small model's draw: what goes round and round does not come to an end.

Below harness.py. Most of what a small model writes is wrong, and some of it makes a loop endless: the limit of a test
run is for whole suites, and would be waited for each time. What the tests took before says how long they take. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from fugu_cli import views
from fugu_cli.events import Event
from fugu_cli.messages import Call


@dataclass(frozen=True)
class Bound:
    """As long as before the request, so many `times`, and `least` so many seconds."""

    times: int
    least: float


LINE, ELSE = Bound(4, 5.0), Bound(10, 30.0)
"""After one line, of which many are tried, and after anything else."""

_ALL_FAILED = re.compile(
    r"^(?:=+ )?\d+ failed(?:, \d+ (?:skipped|deselected|warnings?))*(?: in [\d.]+s.*)?$", re.MULTILINE
)
"""pytest ran each of them to its end."""
_BROKEN_OFF = re.compile(r"\b\d+ errors?(?:,| in |$)|\berrors=\d", re.MULTILINE)
"""A file of tests may have ended before its first one: pytest, unittest."""


def bounded(call: Call, events: Sequence[Event], turn: views.Turn) -> Call:
    """The `call` that runs the tests, with a limit where the newest reply is a small model's. Without one where none
    ran to its end before: then the run may have broken off early, and says nothing of how long it takes."""
    newest = turn.replies[-1] if turn.replies else None
    if newest is None or not (newest.filled or newest.aimed):
        return call
    first = views.first_tests(events)
    if first is None or _BROKEN_OFF.search(first.output):
        return call
    if not (views.passing(first.output) or _ALL_FAILED.search(first.output)):
        return call
    bound = LINE if newest.filled else ELSE
    return Call.make(call.id, call.tool, seconds=max(bound.least, round(bound.times * first.seconds, 1)))
