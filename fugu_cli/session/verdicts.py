"""The end of a request, as a line for people and as fields for programs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fugu_cli.session.events import USERS, Finished, Role
from fugu_cli.session.outcome import TestRun
from fugu_cli.session.recognized_tests import passed_count
from fugu_cli.session.request_state import RequestState
from fugu_cli.session.turns import Turn

_SUGGESTED = re.compile(
    r"<suggested_role>\s*(worker|verifier|solver)\s*</suggested_role>", re.IGNORECASE
)


def suggested_role(turn: Turn) -> Role | None:
    """A Thinker's valid suggestion for the next turn's role, which overrides the head's (arXiv
    2512.04695).
    """
    if turn.assigned.role != "thinker":
        return None
    found = _SUGGESTED.findall(turn.text)
    if not found:
        return None
    return "verifier" if found[-1].lower() == "verifier" else "worker"


STOPPED_BY = {
    "unaccepted": "not accepted",
    "turn_limit": "stopped: turn limit",
    "budget": "stopped: budget",
    "time_limit": "stopped: time limit",
    "interrupted": "interrupted",
    "denied": "stopped: not allowed",
    "failed": "failed",
}


UNREACHABLE_HINT = "Check the network, HTTPS_PROXY, SSL_CERT_FILE and `base_url`."
"""The next step where no host of the pool can be reached."""
END_WORDS = {"accepted": "accepted", "answered": "done", **STOPPED_BY}
"""One or two words for each reason of an end."""


@dataclass(frozen=True)
class EndLine:
    """`text` as in `verified by claude · 41 tests pass`. `tone`: warn where something still fails
    or is not known.
    """

    text: str
    tone: Literal["good", "warn", "bad"]


def end_line(request: RequestState, end: Finished | None = None) -> EndLine:
    """One line on the end of the newest request. `end`: where the log does not say it yet."""
    end = end or request.finished
    done, tone = _done(request, end)
    state, worse = _tests(request)
    parts = [done, state]
    if tone != "bad" and (refused := _refused(request)):
        parts.append(refused)
    if any(not check.suite for check in request.unmet_checks):
        parts.append("an acceptance check fails")
        worse = True
    if end is not None and end.tests_not_run:
        parts.append(f"not run: {', '.join(end.tests_not_run[:NAMED_TESTS])}")
        worse = True
    return EndLine(
        " · ".join(part for part in parts if part), "warn" if tone == "good" and worse else tone
    )


def _done(
    request: RequestState, end: Finished | None
) -> tuple[str, Literal["good", "warn", "bad"]]:
    if end is None:
        return "not finished", "bad"
    if end.reason == "accepted":
        names = [turn.assigned.agent for turn in request.turns if request.verdict(turn) == "ACCEPT"]
        by_whom = f" by {names[-1]}" if names else ""
        if request.changes:
            return f"verified{by_whom}", "good"
        return f"answer accepted{by_whom} · nothing was changed", "good"
    if end.reason == "answered":
        return ("done, not verified", "warn") if request.changes else ("done", "good")
    return STOPPED_BY[end.reason], "bad"


def _tests(request: RequestState) -> tuple[str, bool]:
    """Return the state of the tests and whether it is a warning. "" if nothing was changed and
    nothing ran.
    """
    run = request.tests
    if request.changes and (refusal := request.tests_refused):
        return refusal, True
    if run is None or run.empty:
        return ("no tests ran", False) if request.changes else ("", False)
    if run.stale:
        return "the tests ran before the last change", True
    if run.unable:
        return run.unable, True
    if run.ok:
        count = (
            run.report.passed
            if run.report is not None and run.report.passed
            else passed_count(run.output)
        )
        return (
            f"{count} test{'s pass' if count != 1 else ' passes'}" if count else "the tests pass"
        ), False
    return _failing(request, run), True


def _failing(request: RequestState, run: TestRun) -> str:
    """`2 tests fail that passed before`, `1 test still fails (it failed before)`, `3 tests
    fail`.
    """
    broken = request.regressions
    if broken or request.has_regressions:
        return f"{_fail(len(broken) or None)} that passed before{_names(broken)}"
    failing = run.report.failing if run.report is not None else ()
    if request.failed_before:
        many = run.failed != 1
        state = f"{_fail(run.failed, 'still ')} ({'they' if many else 'it'} failed before)"
        return f"{state}{_names(failing)}"
    return f"{_fail(run.failed)}{_names(failing)}"


NAMED_TESTS = 2
"""Failing tests, and commands that were not run, that the end line names."""
LONGEST_TEST_NAME = 80


def _names(ids: Sequence[str]) -> str:
    """`: test_a.py::test_one, test_a.py::test_two and 3 more`; "" where the runner gives no ids."""
    if not ids:
        return ""
    names = ", ".join(_short_name(id) for id in ids[:NAMED_TESTS])
    rest = len(ids) - NAMED_TESTS
    return f": {names} and {rest} more" if rest > 0 else f": {names}"


def _short_name(id: str) -> str:
    """The end of a test's id, which says more than its folders."""
    text = " ".join(id.split())
    return text if len(text) <= LONGEST_TEST_NAME else f"…{text[1 - LONGEST_TEST_NAME :]}"


def _fail(count: int | None, still: str = "") -> str:
    if not count:  # not known, or it is no test that fails: too little is covered
        return f"{'the tests' if still else 'tests'} {still}fail"
    return f"{count} test {still}fails" if count == 1 else f"{count} tests {still}fail"


def _refused(request: RequestState) -> str:
    """The calls that the user refused."""
    runs = (run.permitted for turn in request.turns for run in turn.work if not run.evidence)
    count = sum(not judged.allowed and judged.by in USERS for judged in runs)
    return f"{count} call{'s' if count != 1 else ''} refused by you" if count else ""


def test_summary(request: RequestState) -> dict[str, object]:
    """The tests of the newest request for programs: `before` and `after` as counts, None where not
    known; ids of the tests that the request fixed, broke and removed."""
    run, before = request.tests, request.tests_before
    after: dict[str, object] | None = None
    if run is not None and not run.stale:
        report = run.report
        passed = (
            report.passed if report is not None and report.passed else passed_count(run.output) or 0
        )
        after = {
            "ok": run.ok,
            "passed": passed,
            "failed": run.failed,
            "skipped": report.skipped if report else 0,
        }
        if run.unable:
            after["could_not_run"] = run.unable
    end = request.finished
    known = before.ok is not None or before.count is not None or bool(before.looked_up)
    failing = (
        set(run.report.failing)
        if run is not None and run.report is not None and not run.stale
        else None
    )
    return {
        "before": {"ok": before.ok, "failed": before.count} if known else None,
        "after": after,
        "fixed": sorted(before.failed - failing) if failing is not None else [],
        "broken": list(request.regressions),
        "removed": list(before.removed),
        "not_run": list(end.tests_not_run) if end is not None else [],
    }
