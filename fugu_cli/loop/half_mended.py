"""Functions that were changed in this request and where tests still fail that failed there: half mended.

Below aims.py and steps.py. What such a test prints next often names nobody: the code runs on and gives something else.
So where it broke before is kept in mind. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from fugu_cli import functions, views
from fugu_cli.events import Event
from fugu_cli.loop.excerpts import places
from fugu_cli.loop.opening import files_read
from fugu_cli.messages import Value, line_of
from fugu_cli.test_paths import code_among


class Left(Value):
    """A function of a file, by its name."""

    path: str
    function: str


def left(events: Sequence[Event]) -> tuple[Left, ...]:
    """The functions of files that were read before they were changed, the newest first.

    More tests broke at one of their lines than fail less since: so some still do, and not where they did.
    """
    now = views.tests(events)
    if now is None or now.ok or not views.changes(events):
        return ()
    found: list[Left] = []
    for turn in views.turns(events):
        if not turn.changes or any(line_of(reply.filled) for reply in turn.replies):
            continue  # where a word was put right nothing breaks any more
        before = views.tests(views.before(events, turn))
        for path in code_among(dict.fromkeys(change.path for change in turn.changes)) if before else ():
            assert before is not None
            found += _left(path, files_read(turn).get(path, ""), before.output, now.output)
    return tuple(dict.fromkeys(reversed(found)))


def told(run: views.TestRun | None, lefts: Sequence[Left]) -> str:
    """What failing tests print, and the functions as if it called them, for whoever looks for names in it."""
    return "\n".join([run.output, *(f"{one.path} {one.function}()" for one in lefts)]) if run and not run.ok else ""


def _left(path: str, content: str, before: str, now: str) -> list[Left]:
    then, fails = views.failing(before), views.failing(now)
    if not content or then is None or fails is None:
        return []
    at = [place for place, count in Counter(places(path, before)).items() if count > then - fails]
    spans = functions.spans(path, content)
    inner = [[name for name, start, end in spans if start < place <= end][-1:] for place in at]
    return [Left(path=path, function=name) for names in inner for name in names]
