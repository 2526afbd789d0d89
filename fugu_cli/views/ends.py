"""How a request ended, in one line and in numbers: verified or not, by whom, and how the tests stand. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fugu_cli.events import USERS, Event, Finished
from fugu_cli.views.acceptance import unmet
from fugu_cli.views.counts import passing
from fugu_cli.views.outcome import TestRun, broken, changes, regressed, tests, tests_before
from fugu_cli.views.turns import finished, turns
from fugu_cli.views.verdicts import verdict

STOPPED_BY = {
    "unaccepted": "not accepted",
    "turn_limit": "stopped: turn limit",
    "budget": "stopped: budget",
    "time_limit": "stopped: time limit",
    "interrupted": "interrupted",
    "denied": "stopped: not allowed",
    "failed": "failed",
}


WORDS = {"accepted": "verified", "answered": "done", **STOPPED_BY}
"""One or two words for each reason of an end."""


@dataclass(frozen=True)
class EndLine:
    """`text` as in `verified by claude · 41 tests pass`. `tone`: warn where something still fails or is not known."""

    text: str
    tone: Literal["good", "warn", "bad"]


def end_line(events: Sequence[Event], end: Finished | None = None) -> EndLine:
    """One line on the end of the newest request. `end`: where the log does not say it yet."""
    end = end or finished(events)
    done, tone = _done(events, end)
    state, worse = _tests(events)
    parts = [done, state]
    if tone != "bad" and (refused := _refused(events)):
        parts.append(refused)
    if any(not check.suite for check in unmet(events)):
        parts.append("an acceptance check fails")
        worse = True
    return EndLine(" · ".join(part for part in parts if part), "warn" if tone == "good" and worse else tone)


def _done(events: Sequence[Event], end: Finished | None) -> tuple[str, Literal["good", "warn", "bad"]]:
    if end is None:
        return "not finished", "bad"
    if end.reason == "accepted":
        names = [turn.assigned.agent for turn in turns(events) if verdict(events, turn) == "ACCEPT"]
        return f"verified by {names[-1]}" if names else "verified", "good"
    if end.reason == "answered":
        return ("done, not verified", "warn") if changes(events) else ("answered", "good")
    return STOPPED_BY[end.reason], "bad"


def _tests(events: Sequence[Event]) -> tuple[str, bool]:
    """How the tests stand, and whether that is a warning. Nothing where nothing was changed and nothing ran."""
    run = tests(events)
    if run is None or run.empty:
        return ("no tests ran", False) if changes(events) else ("", False)
    if run.stale:
        return "the tests ran before the last change", True
    if run.ok:
        count = run.report.passed if run.report is not None and run.report.passed else passing(run.output)
        return (f"{count} test{'s pass' if count != 1 else ' passes'}" if count else "the tests pass"), False
    return _failing(events, run), True


def _failing(events: Sequence[Event], run: TestRun) -> str:
    """`2 tests fail that passed before`, `1 test still fails (it failed before)`, `3 tests fail`."""
    ids = broken(events)
    if ids or regressed(events):
        return f"{_fail(len(ids) or None)} that passed before"
    before = tests_before(events)
    known = run.report is not None and run.report.by_id and set(run.report.failing) <= before.failed
    if known or (before.count is not None and run.failed is not None and run.failed <= before.count):
        many = run.failed != 1
        return f"{_fail(run.failed, 'still ')} ({'they' if many else 'it'} failed before)"
    return _fail(run.failed)


def _fail(count: int | None, still: str = "") -> str:
    if count is None:
        return f"tests {still}fail"
    return f"{count} test {still}fails" if count == 1 else f"{count} tests {still}fail"


def _refused(events: Sequence[Event]) -> str:
    """The calls that the user refused."""
    runs = (run.permitted for turn in turns(events) for run in turn.runs if not run.evidence)
    count = sum(not judged.allowed and judged.by in USERS for judged in runs)
    return f"{count} call{'s' if count != 1 else ''} refused by you" if count else ""


def test_facts(events: Sequence[Event]) -> dict[str, object]:
    """The tests of the newest request for programs: `before` and `after` as counts, None where not known; ids of the
    tests that the request fixed, broke and removed."""
    run, before = tests(events), tests_before(events)
    after: dict[str, object] | None = None
    if run is not None and not run.stale:
        report = run.report
        passed = report.passed if report is not None and report.passed else passing(run.output) or 0
        after = {"ok": run.ok, "passed": passed, "failed": run.failed, "skipped": report.skipped if report else 0}
    known = before.ok is not None or before.count is not None or bool(before.looked_up)
    failing = set(run.report.failing) if run is not None and run.report is not None and not run.stale else None
    return {
        "before": {"ok": before.ok, "failed": before.count} if known else None,
        "after": after,
        "fixed": sorted(before.failed - failing) if failing is not None else [],
        "broken": list(broken(events)),
        "removed": list(before.removed),
    }
