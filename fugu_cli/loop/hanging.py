"""How long the tests may take after one line was filled in: what goes round and round does not come to an end.

Below turn.py. Most lines that a small model fills in are wrong, and some of a loop make it endless: the limit of a test
run is for whole suites, and would be waited for each time. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from fugu_cli import views
from fugu_cli.events import Event
from fugu_cli.messages import Call

LEAST = 30.0
"""Seconds that they may always take."""
TIMES = 10
"""As long as before the request, so many times."""


def bounded(call: Call, events: Sequence[Event], turn: views.Turn) -> Call:
    """The `call` that runs the tests, with a limit where the newest reply is a line. Without one where none passed
    before: then the run may have broken off early, and says nothing of how long it takes."""
    if not turn.replies or not turn.replies[-1].filled:
        return call
    runs = (run.result for run in views.baseline(events) if run.result is not None)
    first = next((run for run in runs if run.call.tool == views.RUN_TESTS), None)
    if first is None or not views.passing(first.output):
        return call
    return Call.make(call.id, call.tool, seconds=max(LEAST, round(TIMES * first.seconds, 1)))
