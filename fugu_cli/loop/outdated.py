"""Tests that expect what a request changes: corrected after the change, where the request says that they may be.

Below aims.py and turn.py, beside tests_wanted.py. A small model writes one file at a time, so a change that tests
contradict breaks them, and is taken back like one that is wrong: nobody could tell the two apart. Where the user said
that tests are to follow, it stays, and they are asked for next. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from fugu_cli import intent, views
from fugu_cli.events import Event
from fugu_cli.test_paths import code_among, tests_among


def stands(events: Sequence[Event], turn: views.Turn) -> bool:
    """What the turn's draw changed may be right although tests fail that passed: it is code alone, and they fail by
    what they expect; or it is tests alone, and fewer fail than before."""
    request, run = views.asked(events), views.tests(events)
    paths, before = [change.path for change in turn.changes], views.tests(views.before(events, turn))
    if request is None or run is None or run.ok or before is None or not paths or not intent.adapts_tests(request.text):
        return False
    if before.passes:
        return not tests_among(paths) and views.by_expectation(run.output) and bool(views.broken_at(run.output))
    then, now = views.failing(before.output), views.failing(run.output)
    return not code_among(paths) and then is not None and now is not None and now < then


def fewer(events: Sequence[Event], turn: views.Turn) -> bool:
    """The turn changed tests that were to follow, and some are gone: fewer run than before the request."""
    request, first, run = views.asked(events), views.first_tests(events), views.tests(events)
    if request is None or first is None or run is None or not intent.adapts_tests(request.text):
        return False
    then, now = (sum(filter(None, (views.passing(one.output), views.failing(one.output)))) for one in (first, run))
    return bool(tests_among(change.path for change in turn.changes)) and now < then


def target(events: Sequence[Event]) -> tuple[str, str] | None:
    """The test file that is to be corrected now, and the line of it: the last place that the output names, where tests
    fail since code was changed. None where none is to, and where the request does not say that tests may change."""
    request, run = views.asked(events), views.tests(events)
    if request is None or run is None or run.stale or not views.regressed(events):
        return None
    follows = intent.adapts_tests(request.text) and views.by_expectation(run.output)
    named = views.broken_at(run.output)
    return named[-1] if follows and named and code_among(views.changes(events)) else None
