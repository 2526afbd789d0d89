"""Whether a draw that left tests failing is worth building on.

Below harness.py, which rolls back what is not. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from fugu_cli import views
from fugu_cli.events import Event
from fugu_cli.messages import line_of
from fugu_cli.repair.ways import ANEW, not_found


def made(events: Sequence[Event], turn: views.Turn, run: views.TestRun) -> bool:
    """Fewer tests fail than when the turn began, or more pass, and half of all do; or as many fail, but no longer by a
    word that was not found, which alone was changed: what is wrong besides now shows.

    Where a file could not even be imported, one error stood for all its tests, and now each of them fails by itself.
    From a start that most tests refuse a small model does not come away: it writes the same again and again. Nor from a
    function that it wrote anew and that is still wrong: what stood there was mostly a line away from what is right.
    """
    before = views.tests(views.before(events, turn))
    if before is None or before.ok:
        return False
    then, now = views.failing(before.output), views.failing(run.output)
    passing = views.passing(run.output)
    if (now is not None and passing is not None and passing < now) or _wrong_again(turn.replies[-1].aimed, run.output):
        return False
    fewer = then is not None and now is not None and now < then
    found = then == now is not None and _found(turn.replies[-1].filled, before.output, run.output)
    return fewer or found or (passing or 0) > (views.passing(before.output) or 0)


def _found(place: str, before: str, now: str) -> bool:
    line = line_of(place)
    return bool(line) and not_found(now) < not_found(before) and f"{line}:" not in now


def _wrong_again(aimed: str, output: str) -> bool:
    """A function was written anew that tests which fail still call."""
    name = aimed.removesuffix(ANEW).rpartition(" ")[2] if aimed.endswith(ANEW) else ""
    return bool(name) and re.search(rf"\b{re.escape(name)}\(", output) is not None
