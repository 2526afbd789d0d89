"""The tests of a request, now and before it, and the files it changed.

A test that passed before the request and fails after it is broken. How a failing test stood before
is known from a run of the whole suite before the first change. Else the failing tests run on the
files as they were (`TESTS_BEFORE`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from fugu_cli.messages import Call
from fugu_cli.session.checks import CheckFold
from fugu_cli.session.events import (
    EVIDENCE,
    Event,
    FileAttribute,
    FileChange,
    Merged,
    Permitted,
    TestReport,
    ToolRan,
    Undone,
)
from fugu_cli.session.recognized_tests import failed_count, no_tests_found, tests_among
from fugu_cli.session.turns import TASK
from fugu_cli.system.bounded_json import parse_json

RUN_TESTS = "run_tests"
TESTS_BEFORE = "tests_before"
"""fugu's run of the failing tests on the files as they were before the request."""


TestOutcome = Literal["pass", "none", "not run", "fail", "broken", "as before"]
"""The end of a run of tests. `not run`: they could not be run to their end. `broken`: tests fail that
passed before the request; `as before`: all that fail failed before; `fail`: it is not known."""


@dataclass(frozen=True)
class TestRun:
    """The newest result of the project's tests, `stale` if files changed since. `report` is None if
    the runner reported nothing.
    """

    __test__ = False

    ok: bool
    output: str
    stale: bool
    turn: int
    report: TestReport | None = None
    seconds: float = 0.0

    @property
    def passes(self) -> bool:
        """True if there are tests, they passed, and nothing was changed since."""
        return self.ok and not self.stale and not self.empty

    @property
    def empty(self) -> bool:
        """True if it found no tests. The output is used only if the runner reported nothing."""
        if self.unable or (self.report is not None and (self.report.failed or self.report.passed)):
            return False
        return no_tests_found(self.output)

    @property
    def unable(self) -> str:
        """The reason why the tests could not be run to their end, as a clause; "" if they were."""
        return self.report.unable if self.report is not None else ""

    @property
    def fails(self) -> bool:
        """True if tests ran and some failed."""
        return not (self.ok or self.empty or self.unable)

    @property
    def outcome(self) -> TestOutcome:
        """The result of this run, without regard to earlier ones."""
        if self.unable:
            return "not run"
        if self.empty:
            return "none"
        return "pass" if self.ok else "fail"

    @property
    def failed(self) -> int | None:
        """The number of failed tests, None if unknown."""
        if self.unable:
            return None
        if self.report is not None and (self.report.failed or self.report.passed):
            return self.report.failed
        return 0 if self.ok else failed_count(self.output)


@dataclass(frozen=True)
class TestsBefore:
    """The results, before the request, of tests that fail now. `unknown` says why they are unknown,
    else "". `failed` and `passed` are ids. `count` is the number of failures if there are no ids.
    `looked_up` are the ids that were run on the original files.
    """

    __test__ = False

    failed: frozenset[str] = frozenset()
    passed: frozenset[str] = frozenset()
    looked_up: frozenset[str] = frozenset()
    ok: bool | None = None
    count: int | None = None
    unknown: str = ""
    removed: tuple[str, ...] = ()

    @property
    def failures_text(self) -> str:
        """The number of failures for people, such as `2 failed before`; "" if none is known.

        Without a run of all tests before the change only those that still fail after it were looked
        up: more may have failed.
        """
        if self.count is not None:
            number = max(self.count, len(self.failed))
            return f"{number} failed before" if number else ""
        return f"at least {len(self.failed)} failed before" if self.failed else ""


def is_whole_run(call: Call) -> bool:
    """Return whether all tests were run: the call named no target."""
    try:
        arguments = parse_json(call.arguments or "{}")
    except ValueError:
        return False
    return isinstance(arguments, dict) and not any(
        arguments[name] for name in arguments.keys() - {"seconds"}
    )


def _lookup_arguments(call: Call) -> dict[str, object]:
    try:
        arguments = parse_json(call.arguments or "{}")
    except ValueError:
        return {}
    return arguments if isinstance(arguments, dict) else {}


def _ids(call: Call) -> tuple[str, ...]:
    ids = _lookup_arguments(call).get("ids")
    return tuple(map(str, ids)) if isinstance(ids, list) else ()


def _ran_tests(lookup: ToolRan) -> bool:
    """Return whether a lookup ran tests. After a passing run it only searches for removed tests."""
    return _lookup_arguments(lookup.call).get("failing") is not False


class WorkFold:
    """Folds a request's events into its tests, acceptance checks and changed files. It is given the
    events that led to the present working tree (`EffectiveFold`), one by one. If some of them are
    left out later, a new fold is made of the others.
    """

    def __init__(self, until: Sequence[str] = ()) -> None:
        self.skipped = False
        """True if the user ended the newest run of the tests and nothing was changed since."""
        self.refused = ""
        """Why fugu was not allowed to run the tests, "" if it was or did not try."""
        self.first: ToolRan | None = None
        """The first run of all tests, if nothing was changed before it."""
        self.failed_before_change = False
        """True if a run of some or all tests failed before anything was changed."""
        self.lookups: list[ToolRan] = []
        """fugu's runs of failing tests, and searches for removed ones, on the files as they were
        before the request."""
        self.test_edited_since_lookup = False
        """True if a test file from before the request was changed after the newest lookup."""
        self.changes: list[FileChange] = []
        self.attributes: list[FileAttribute] = []
        self._first_is_settled = False
        self._newest: ToolRan | None = None
        self._stale = False
        self._failed_early: set[str] = set()
        """Tests that failed in any run before anything was changed."""
        self._open_calls: set[str] = set()
        """Calls without a result that were started after the newest run. If they were killed, they
        may have changed anything.
        """
        self.checks = CheckFold(until)

    def add(self, event: Event) -> None:
        """Add the next event."""
        self.checks.add(event)
        match event:
            case Permitted():
                if event.allowed and event.by != EVIDENCE and event.call.tool != TASK:
                    self._open_calls.add(event.call.id)
            case ToolRan():
                self._open_calls.discard(event.call.id)
                self.attributes += event.attributes
                self._add_changes(event)
                if event.call.tool == RUN_TESTS and not event.skipped and not self.changes:
                    fails = run_of_event(event).fails
                    self.failed_before_change = self.failed_before_change or fails
                    if event.tests is not None and event.tests.by_id:
                        self._failed_early.update(event.tests.failing)
                is_run = event.call.tool == RUN_TESTS and is_whole_run(event.call)
                if is_run:
                    self._add_run(event)
                elif event.changes:
                    self._stale, self.skipped = True, False
                if event.call.tool == TESTS_BEFORE:
                    self.lookups.append(event)
                    self.test_edited_since_lookup = False
            case Merged():
                self._add_changes(event)
                if event.changes:
                    self._stale, self.skipped = True, False
            case Undone():
                self._stale, self._first_is_settled = True, True
                self._open_calls.clear()
            case _:
                pass

    def _add_changes(self, event: ToolRan | Merged) -> None:
        if not event.changes:
            return
        self.changes += event.changes
        self._first_is_settled = True
        before = (change.path for change in event.changes if change.before is not None)
        self.test_edited_since_lookup = self.test_edited_since_lookup or bool(tests_among(before))

    def _add_run(self, event: ToolRan) -> None:
        self.skipped = event.skipped
        self.refused = event.tests.unable if event.skipped and event.tests is not None else ""
        if event.skipped:
            return
        self._newest, self._stale = event, False
        self._open_calls.clear()
        if not self._first_is_settled:
            self.first, self._first_is_settled = event, True

    def tests(self) -> TestRun | None:
        """Return the newest finished run of all tests. `stale`: files were changed after it.

        A run of some tests, or one that was asked for in a way the tool does not understand, says
        nothing of the rest; nor does one that the user ended.
        """
        if self._newest is None:
            return None
        return run_of_event(self._newest, stale=self._stale or bool(self._open_calls))

    @property
    def failing_were_looked_up(self) -> bool:
        """True if failing tests were run on the files as they were before the request."""
        return any(_ran_tests(lookup) for lookup in self.lookups)

    def first_tests(self) -> TestRun | None:
        """Return the first run of all tests, if nothing was changed before it."""
        return run_of_event(self.first) if self.first is not None else None

    def tests_before(self) -> TestsBefore:
        """Return what is known of the tests' results before the request."""
        first = self.first_tests()
        before = TestsBefore()
        if first is not None:
            failing: frozenset[str] = frozenset()
            if first.report is not None and first.report.by_id:
                failing = frozenset(first.report.failing)
            before = TestsBefore(
                failing,
                looked_up=failing,
                ok=None if first.unable else first.ok and not first.empty,
                count=first.failed,
                unknown=first.unable,
            )
        before = replace(before, failed=before.failed | self._failed_early)
        for lookup in self.lookups:
            before = _with_lookup(before, lookup)
        return before


def run_of_event(event: ToolRan, *, stale: bool = False) -> TestRun:
    """Return the result of a call of run_tests."""
    return TestRun(event.ok, event.output, stale, event.turn, event.tests, event.seconds)


def _with_lookup(before: TestsBefore, event: ToolRan) -> TestsBefore:
    """Return the earlier results with those of another run on the original files."""
    report = event.tests
    ids = frozenset(_ids(event.call))
    if report is None:
        return replace(
            before,
            looked_up=before.looked_up | ids,
            unknown="" if event.ok else event.output,
        )
    if not _ran_tests(event):
        return replace(before, removed=report.removed)
    if not event.ok:
        return replace(
            before,
            looked_up=before.looked_up | ids,
            unknown=event.output,
            removed=report.removed,
        )
    ok, count = before.ok, before.count
    ran_whole_suite = not ids
    if ran_whole_suite and ok is None:
        ok = not report.failed
    if ran_whole_suite and count is None:
        count = report.failed
    return TestsBefore(
        before.failed | frozenset(report.failing),
        before.passed | frozenset(report.passing),
        before.looked_up | ids,
        ok=ok,
        count=count,
        removed=report.removed,
    )
