"""The end of a request, as a line for people and as fields for programs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, assert_never

from fugu_cli.session.events import USERS, AcceptedBy, Finished, Role, ToolRan
from fugu_cli.session.outcome import TestRun
from fugu_cli.session.recognized_tests import passed_count
from fugu_cli.session.request_state import RequestState
from fugu_cli.session.tool_facts import facts_of
from fugu_cli.session.turns import Turn

SMALL_CHANGE_FILES, SMALL_CHANGE_CHARACTERS = 3, 6_000
"""The most files of a small change, and the most characters of the calls that made it."""


def tests_prove_small_change(request: RequestState) -> bool:
    """Return whether a change is small, and tests or checks that failed before it pass now.

    A change by a command has no known size, and is not small.
    """
    run = request.tests
    if run is None or not run.passes or request.acceptance_blocker:
        return False
    passing_check = any(check.passes and not check.suite for check in request.checks)
    if not (passing_check or request.tests_before.failed or request.failed_before_change):
        return False
    calls = [
        event.call for event in request.effective if isinstance(event, ToolRan) and event.changes
    ]
    if not all(facts_of(call.tool).writes_files for call in calls):
        return False
    size = sum(len(call.arguments) for call in calls)
    return len(request.changes) <= SMALL_CHANGE_FILES and size <= SMALL_CHANGE_CHARACTERS


_SUGGESTED = re.compile(
    r"<suggested_role>\s*(worker|verifier|solver)\s*</suggested_role>", re.IGNORECASE
)


def suggested_role(turn: Turn) -> Role | None:
    """Return a Thinker's valid suggestion for the next turn's role, which overrides the head's
    (arXiv 2512.04695).
    """
    if turn.assigned.role != "thinker":
        return None
    suggestions = _SUGGESTED.findall(turn.text)
    if not suggestions:
        return None
    return "verifier" if suggestions[-1].lower() == "verifier" else "worker"


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
    """The end of a request in clauses, such as `verified by claude` and `41 tests pass`; the first
    one says who accepted it. `tone` is warn if something still fails or is unknown.
    """

    clauses: tuple[str, ...]
    tone: Literal["good", "warn", "bad"]

    @property
    def text(self) -> str:
        """All clauses, as in `verified by claude · 41 tests pass`."""
        return " · ".join(self.clauses)


def end_line(request: RequestState, end: Finished | None = None) -> EndLine:
    """Return one line on the end of the newest request. `end` is given if the log does not hold it
    yet.
    """
    end = end or request.finished
    tone: Literal["good", "warn", "bad"]
    if end is None:
        done, tone = "not finished", "bad"
    elif end.reason == "accepted":
        by, agent = acceptance(request, end)
        done, tone = acceptance_words(by, agent), "good"
    elif end.reason == "answered" and request.asks_for_plan and not request.changes:
        done, tone = "the plan is ready, nothing was changed", "good"
    elif end.reason == "answered":
        done, tone = ("done, not verified", "warn") if request.changes else ("done", "good")
    else:
        done, tone = STOPPED_BY[end.reason], "bad"
    state, worse = _tests(request)
    if end is not None and end.accepted_by == "tests":
        done, state = f"{state}, nobody reviewed", ""
    clauses = [done, state]
    if tone != "bad" and (refused := _refused(request)):
        clauses.append(refused)
    if any(not check.suite for check in request.unmet_checks):
        clauses.append("an acceptance check fails")
        worse = True
    if end is not None and end.tests_not_run:
        clauses.append(f"not run: {', '.join(end.tests_not_run[:NAMED_TESTS])}")
        worse = True
    if tone == "good" and worse:
        tone = "warn"
    return EndLine(tuple(clause for clause in clauses if clause), tone)


def acceptance(request: RequestState, end: Finished) -> tuple[AcceptedBy, str]:
    """Return how the request was accepted, and by which agent. For the ends of older logs this is
    worked out from the events.
    """
    if end.accepted_by or end.reason != "accepted":
        return end.accepted_by, end.judge
    names = [turn.assigned.agent for turn in request.turns if request.verdict(turn) == "ACCEPT"]
    if not names:
        return "", ""
    return "author" if names[-1] in request.authors else "verifier", names[-1]


def verified_by(request: RequestState) -> str | None:
    """Return the agent that accepted the work without having written any of it, None if there is
    none.
    """
    if request.finished is None:
        return None
    by, agent = acceptance(request, request.finished)
    return agent if by == "verifier" else None


def acceptance_words(by: AcceptedBy, agent: str) -> str:
    """Return the words that say who accepted the work."""
    match by:
        case "verifier":
            return f"verified by {agent}"
        case "author":
            return f"accepted by its own author {agent}"
        case "planner":
            return f"kept by the planner {agent}"
        case "tests":
            return "tests pass, nobody reviewed"
        case "":
            return "accepted"
        case _:
            assert_never(by)


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
        if not count:
            passing = "the tests pass"
        elif count == 1:
            passing = "1 test passes"
        else:
            passing = f"{count} tests pass"
        before = request.tests_before.failures_text
        return f"{passing} ({before})" if before else passing, False
    return _failing(request, run), True


def _failing(request: RequestState, run: TestRun) -> str:
    """Return a clause such as `2 tests fail that passed before` or `1 test still fails (it failed
    before)`.
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
    """Return the names of tests, such as `: test_a.py::test_one and 3 more`; "" if the runner gives
    no ids.
    """
    if not ids:
        return ""
    names = ", ".join(_short_name(id) for id in ids[:NAMED_TESTS])
    rest = len(ids) - NAMED_TESTS
    return f": {names} and {rest} more" if rest > 0 else f": {names}"


def _short_name(id: str) -> str:
    """Return the end of a test's id, which says more than its folders."""
    text = " ".join(id.split())
    return text if len(text) <= LONGEST_TEST_NAME else f"…{text[1 - LONGEST_TEST_NAME :]}"


def _fail(count: int | None, still: str = "") -> str:
    if not count:  # not known, or it is no test that fails: too little is covered
        return f"{'the tests' if still else 'tests'} {still}fail"
    return f"{count} test {still}fails" if count == 1 else f"{count} tests {still}fail"


def _refused(request: RequestState) -> str:
    """Return the calls that the user refused."""
    runs = (run.permitted for turn in request.turns for run in turn.work if not run.evidence)
    count = sum(not judged.allowed and judged.by in USERS for judged in runs)
    calls = "1 call" if count == 1 else f"{count} calls"
    return f"{calls} refused by you" if count else ""


def test_summary(request: RequestState) -> dict[str, object]:
    """Describe the tests of the newest request for programs: the counts `before` and `after`, None
    if unknown, and the ids of tests that the request fixed, broke and removed.
    """
    run, before = request.tests, request.tests_before
    after: dict[str, object] | None = None
    fixed: list[str] = []
    if run is not None and not run.stale:
        passed = passed_count(run.output) or 0
        skipped = 0
        if run.report is not None:
            passed = run.report.passed or passed
            skipped = run.report.skipped
            fixed = sorted(before.failed - set(run.report.failing))
        after = {"ok": run.ok, "passed": passed, "failed": run.failed, "skipped": skipped}
        if run.unable:
            after["could_not_run"] = run.unable
    end = request.finished
    is_known = before.ok is not None or before.count is not None or bool(before.looked_up)
    return {
        "before": {"ok": before.ok, "failed": before.count} if is_known else None,
        "after": after,
        "fixed": fixed,
        "broken": list(request.regressions),
        "removed": list(before.removed),
        "not_run": list(end.tests_not_run) if end is not None else [],
    }
