"""What fugu finds out itself: which tests and acceptance checks run next, and what the Verifier is told of them. Pure.

The suite runs when it can tell something: after changes, once a turn. How failing tests stood before the request is
looked up only when tests fail after it. The wording of a request decides nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from fugu_cli import views
from fugu_cli.events import Event, ToolRan
from fugu_cli.messages import Call, Value
from fugu_cli.test_paths import tests_among

When = Literal["auto", "always", "never"]


class TestRules(Value):
    """When fugu runs the test suite. `auto`: after a turn's changes; where the suite takes longer than `patience`
    seconds, only before a Verifier. `always`: after every turn's changes. `never`: only as an acceptance check."""

    __test__ = False

    when: When = "auto"
    patience: float = 60.0


def due(events: Sequence[Event], turn: views.Turn | None, rules: TestRules, *, verifying: bool = False) -> Call | None:
    """The next run that the work as it is needs: the suite, the failing tests as they stood before, a check. None where
    everything is known. `verifying`: a Verifier is about to read it."""
    request = views.asked(events)
    if request is None:
        return None
    if _suite_due(events, rules, verifying=verifying):
        return Call(id=_id(events, turn), tool=views.RUN_TESTS)
    ids = views.lookup_due(events) if request.test_command is not None and rules.when != "never" else None
    if ids is not None:
        run, changed = views.tests(events), views.changes(events)
        edited = [
            {"path": path, "before": changed[path].before, "after": changed[path].after}
            for path in tests_among(changed)
        ]
        given = {"tree": views.began(events), "ids": list(ids), "failing": run is not None and not run.ok}
        return Call.make(_id(events, turn), views.TESTS_BEFORE, **given, edited=edited)
    for check in views.checks(events):
        if check.stale and not check.suite:
            return Call(id=_id(events, turn), tool=views.RUN_CHECK, arguments=check.arguments)
    return None


def _id(events: Sequence[Event], turn: views.Turn | None) -> str:
    return f"c{len(events)}" if turn is None else f"e{turn.number}-{len(turn.draws)}-{len(turn.runs)}"


def _suite_due(events: Sequence[Event], rules: TestRules, *, verifying: bool) -> bool:
    request, run = views.asked(events), views.tests(events)
    if request is None or request.test_command is None or (run is not None and not run.stale):
        return False
    if views.suite_decides(events):
        return True
    if rules.when == "never" or views.skipped(events) or not _changed(events):
        return False
    return verifying or rules.when == "always" or _seconds(events) <= rules.patience


def _changed(events: Sequence[Event]) -> bool:
    """Something was changed, or may have been: a call that was started and killed can have changed anything."""
    return bool(views.changes(events)) or any(views.interrupted_calls(turn) for turn in views.turns(events))


def _seconds(events: Sequence[Event]) -> float:
    """How long the newest whole run of the session took; 0 where there was none."""
    runs = (event for event in reversed(events) if isinstance(event, ToolRan) and event.call.tool == views.RUN_TESTS)
    return next((run.seconds for run in runs if views.is_whole_run(run.call) and not run.skipped), 0.0)


def unknown(events: Sequence[Event]) -> str:
    """What a Verifier is told where no tests have run on the work as it is; "" where they have."""
    request, run = views.asked(events), views.tests(events)
    if request is None or (run is not None and not run.stale) or not views.changes(events):
        return ""
    if request.test_command is None:
        return "[No test command is known for this repository: no tests were run.]"
    return "[The user ended the test run: no tests were run.]" if views.skipped(events) else "[No tests were run.]"
