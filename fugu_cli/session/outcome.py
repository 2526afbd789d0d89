"""How the request stands: the tests now and before it, what was changed, what was answered.

A test that passed before the request and fails after it is broken. How a failing test stood before
is known from a run of the whole suite before the first change. Else the failing tests run on the
files as they were (`TESTS_BEFORE`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fugu_cli.messages import Call
from fugu_cli.session.events import (
    EVIDENCE,
    Event,
    FileChange,
    FileEffects,
    Merged,
    Permitted,
    TestReport,
    ToolRan,
    Undone,
    net_changes,
)
from fugu_cli.session.recognized_tests import failed_count, no_tests_found, tests_among
from fugu_cli.session.turns import TASK, Turn, effective, turns
from fugu_cli.session.workflows import final_text, user_facing_turn
from fugu_cli.system.bounded_json import parse_json

RUN_TESTS = "run_tests"
TESTS_BEFORE = "tests_before"
"""fugu's run of the failing tests on the files as they were before the request."""


@dataclass(frozen=True)
class TestRun:
    """The newest result of the project's tests, and whether files changed since. `report` is None
    where the runner reported nothing."""

    __test__ = False

    ok: bool
    output: str
    stale: bool
    turn: int
    report: TestReport | None = None
    seconds: float = 0.0

    @property
    def passes(self) -> bool:
        """There are tests, they passed, and nothing was changed since."""
        return self.ok and not self.stale and not self.empty

    @property
    def empty(self) -> bool:
        """Whether it found no tests. Text is asked only where the runner reported nothing."""
        if self.unable or (self.report is not None and (self.report.failed or self.report.passed)):
            return False
        return no_tests_found(self.output)

    @property
    def unable(self) -> str:
        """Why the tests could not be run to their end, as a clause; "" where they were."""
        return self.report.unable if self.report is not None else ""

    @property
    def fails(self) -> bool:
        """Whether tests ran, and some failed."""
        return not (self.ok or self.empty or self.unable)

    @property
    def failed(self) -> int | None:
        """How many tests failed; None where nothing says so."""
        if self.unable:
            return None
        if self.report is not None and (self.report.failed or self.report.passed):
            return self.report.failed
        return 0 if self.ok else failed_count(self.output)


@dataclass(frozen=True)
class TestsBefore:
    """How the tests that fail now stood before the request. `unknown`: why that is not known, ""
    where it is.

    `failed`, `passed`: ids. `count`: how many failed, where there are no ids. `ran`: ids that were
    looked up.
    """

    __test__ = False

    failed: frozenset[str] = frozenset()
    passed: frozenset[str] = frozenset()
    looked_up: frozenset[str] = frozenset()
    ok: bool | None = None
    count: int | None = None
    unknown: str = ""
    removed: tuple[str, ...] = ()


def tests(events: Sequence[Event]) -> TestRun | None:
    """The newest finished run of all tests in the newest request. `stale`: files were changed after
    it.

    A call that was started and killed may have changed anything. A run of some tests, or one that
    was asked for in a way the tool does not understand, says nothing of the rest; nor does one that
    the user ended.
    """
    newest: ToolRan | None = None
    stale = False
    killed: set[str] = set()
    for event in effective(events):
        if (
            isinstance(event, Permitted)
            and event.allowed
            and event.by != EVIDENCE
            and event.call.tool != TASK
        ):
            killed.add(event.call.id)
        elif (
            isinstance(event, ToolRan) and event.call.tool == RUN_TESTS and is_whole_run(event.call)
        ):
            killed.discard(event.call.id)
            if not event.skipped:
                newest, stale, killed = event, False, set()
        elif isinstance(event, ToolRan):
            stale = stale or bool(event.changes)
            killed.discard(event.call.id)
        elif isinstance(event, Merged):
            stale = stale or bool(event.changes)
        elif isinstance(event, Undone):
            stale, killed = True, set()
    return _run(newest, stale=stale or bool(killed)) if newest is not None else None


def _run(event: ToolRan, *, stale: bool = False) -> TestRun:
    return TestRun(event.ok, event.output, stale, event.turn, event.tests, event.seconds)


def is_whole_run(call: Call) -> bool:
    """All tests were run: the call named no target."""
    try:
        arguments = parse_json(call.arguments or "{}")
    except ValueError:
        return False
    return isinstance(arguments, dict) and not any(
        arguments[name] for name in arguments.keys() - {"seconds"}
    )


def tests_skipped(events: Sequence[Event]) -> bool:
    """The user ended the newest run of the tests, and nothing was changed since."""
    ended = False
    for event in effective(events):
        if isinstance(event, ToolRan) and event.call.tool == RUN_TESTS and is_whole_run(event.call):
            ended = event.skipped
        elif isinstance(event, ToolRan | Merged) and event.changes:
            ended = False
    return ended


def tests_refused(events: Sequence[Event]) -> str:
    """Return why fugu was not allowed to run the tests, "" where it ran them or was not to."""
    refusal = ""
    for event in effective(events):
        if isinstance(event, ToolRan) and event.call.tool == RUN_TESTS and is_whole_run(event.call):
            refusal = event.tests.unable if event.skipped and event.tests is not None else ""
    return refusal


def first_tests(events: Sequence[Event]) -> TestRun | None:
    """The first run of all tests in the newest request, if nothing was changed before it."""
    for event in effective(events):
        if isinstance(event, ToolRan | Merged) and event.changes:
            return None
        if isinstance(event, ToolRan) and event.call.tool == RUN_TESTS and is_whole_run(event.call):
            if not event.skipped:
                return _run(event)
        elif isinstance(event, Undone):
            return None
    return None


def tests_before(events: Sequence[Event]) -> TestsBefore:
    """What is known of how the tests stood before the request."""
    first = first_tests(events)
    found = TestsBefore()
    if first is not None:
        report = first.report
        known = (
            frozenset(report.failing) if report is not None and report.by_id else frozenset[str]()
        )
        found = TestsBefore(
            known,
            looked_up=known,
            ok=None if first.unable else first.ok and not first.empty,
            count=first.failed,
            unknown=first.unable,
        )
    for event in effective(events):
        if isinstance(event, ToolRan) and event.call.tool == TESTS_BEFORE:
            found = _looked_up(found, event)
    return found


def _looked_up(found: TestsBefore, event: ToolRan) -> TestsBefore:
    report = event.tests
    ids = frozenset(_ids(event.call))
    removed = found.removed if report is None else report.removed
    if not event.ok or report is None:
        return replace(
            found,
            looked_up=found.looked_up | ids,
            unknown="" if event.ok else event.output,
            removed=removed,
        )
    return TestsBefore(
        found.failed | frozenset(report.failing),
        found.passed | frozenset(report.passing),
        found.looked_up | ids,
        ok=found.ok if found.ok is not None else (None if ids else not report.failed),
        count=found.count if found.count is not None else (None if ids else report.failed),
        removed=removed,
    )


def _ids(call: Call) -> tuple[str, ...]:
    try:
        arguments = parse_json(call.arguments or "{}")
    except ValueError:
        return ()
    ids = arguments.get("ids") if isinstance(arguments, dict) else None
    return tuple(map(str, ids)) if isinstance(ids, list) else ()


def regressions(events: Sequence[Event]) -> tuple[str, ...]:
    """Ids of the tests that passed before the request and fail now."""
    run = tests(events)
    if run is None or run.ok or run.report is None:
        return ()
    before = tests_before(events)
    return tuple(id for id in run.report.failing if id in before.passed)


def has_regressions(events: Sequence[Event]) -> bool:
    """Tests that passed before the request fail now, or cannot be run any more: by id where the
    runner gives ids, else by their number, else by the exit code."""
    run = tests(events)
    if run is None or run.ok or run.empty:
        return False
    if run.unable:
        return tests_before(events).ok is True
    if run.report is not None and run.report.by_id:
        return bool(regressions(events))
    before = tests_before(events)
    if run.failed is not None and before.count is not None:
        return run.failed > before.count
    return before.ok is True


def failing_unknown(events: Sequence[Event]) -> bool:
    """Whether tests fail after a change, and how they stood before could not be found out."""
    run = tests(events)
    if run is None or run.stale or not run.fails or not changes(events):
        return False
    before = tests_before(events)
    if not before.unknown:
        return False
    if run.report is not None and run.report.by_id:
        return not set(run.report.failing) <= before.failed | before.passed
    return before.ok is None and before.count is None


def lookup_due(events: Sequence[Event]) -> tuple[str, ...] | None:
    """The ids of failing tests of which nobody knows how they stood before the request; () where
    the runner gives no ids, or where only removed tests are to be found; None where nothing is to
    be looked up."""
    run, changed = tests(events), changes(events)
    if run is None or run.stale or not changed:
        return None
    before, asked_before = tests_before(events), _lookups(events)
    if run.unable:
        if before.ok is None and not asked_before:
            return ()
    elif run.fails:
        if run.report is not None and run.report.by_id:
            unknown = tuple(id for id in run.report.failing if id not in before.looked_up)
            if unknown:
                return unknown
        elif before.ok is None and before.count is None and not asked_before:
            return ()
    newest_edit = max((place for place, event in _edits_of_tests(events)), default=-1)
    return () if newest_edit > max(asked_before, default=-1) else None


def _lookups(events: Sequence[Event]) -> list[int]:
    facts = effective(events)
    return [
        i
        for i, fact in enumerate(facts)
        if isinstance(fact, ToolRan) and fact.call.tool == TESTS_BEFORE
    ]


def _edits_of_tests(events: Sequence[Event]) -> list[tuple[int, Event]]:
    """Facts that changed a test file which was there before, with their places."""
    return [
        (place, fact)
        for place, fact in enumerate(effective(events))
        if isinstance(fact, ToolRan | Merged)
        and tests_among(change.path for change in fact.changes if change.before is not None)
    ]


def answer(events: Sequence[Event]) -> str:
    """The newest Worker's last words; where it only wrote files, which ones. Without any Worker,
    the newest reply.
    """
    turn = answered_by(events)
    return final_text(turn) if turn else ""


def answered_by(events: Sequence[Event]) -> Turn | None:
    """The turn whose words are the answer. None before the first reply."""
    spoken = [turn for turn in turns(events) if turn.replies]
    workers = [turn for turn in spoken if turn.assigned.role == "worker"]
    if not spoken:
        return None
    newest = (workers or spoken)[-1]
    planned = user_facing_turn(events) if newest.assigned.plan else None
    return planned or newest


def changes(events: Sequence[Event]) -> dict[str, FileChange]:
    """Net changes of the newest request by path: the first `before` and the last `after`; undone
    ones are gone.
    """
    return net_changes(_changes(events))


def is_work(events: Sequence[Event]) -> bool:
    """The newest request changed files, or may have: not only while a command ran that does not
    name them, when the user may have saved them."""
    claimed = [change for change in _changes(events) if not change.while_ran]
    return bool(net_changes(claimed))


def unsnapshotted_changes(events: Sequence[Event]) -> dict[str, FileChange]:
    """Those of files that no snapshot holds."""
    return net_changes(change for change in _changes(events) if change.beside)


def file_effects(events: Sequence[Event]) -> FileEffects:
    """What the newest request did to files, as one change for each; what was rolled back is
    gone.
    """
    attributes = [
        one for event in effective(events) if isinstance(event, ToolRan) for one in event.attributes
    ]
    return FileEffects(tuple(_changes(events)), tuple(attributes)).net


def _changes(events: Sequence[Event]) -> list[FileChange]:
    made = [event for event in effective(events) if isinstance(event, ToolRan | Merged)]
    return [change for event in made for change in event.changes]
