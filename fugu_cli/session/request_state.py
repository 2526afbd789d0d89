"""One request of a session and everything that follows from its events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from typing import Any, TypeVar, TypeVarTuple

from fugu_cli.messages import Call, Effort
from fugu_cli.session.checks import CheckStatus
from fugu_cli.session.events import (
    Asked,
    Assigned,
    Event,
    Exclusion,
    Failed,
    FileChange,
    FileEffects,
    Finished,
    Masked,
    Member,
    Merged,
    Opened,
    Permitted,
    Planned,
    Replied,
    Steered,
    SteeringGiven,
    Subtask,
    ToolRan,
    Undone,
    net_changes,
)
from fugu_cli.session.file_effects import THE_TESTS
from fugu_cli.session.outcome import (
    TestOutcome,
    TestRun,
    TestsBefore,
    WorkFold,
    is_whole_run,
    run_of_event,
)
from fugu_cli.session.turns import (
    STOPPED,
    CallRecord,
    EffectiveFold,
    Turn,
    TurnFold,
    Verdict,
    call_records,
    interrupted_calls,
    verdict_of,
)
from fugu_cli.session.workflows import (
    Workflow,
    final_text,
    reports_for_user,
    turn_for_user,
    turn_that_answers,
)

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")


ADDED_LATER = "[The user added while this was being worked on:]"


@dataclass(frozen=True)
class Plan:
    """A plan and the agent that made it."""

    agent: str
    text: str


class RequestState:
    """A request and everything that follows from its events. Grows with the log; each value is
    derived at most once between two events. Without events it is the request of a session in which
    nothing was asked.
    """

    def __init__(self, events: Iterable[Event] = (), rest_of: RequestState | None = None) -> None:
        """`rest_of`: the whole request, where `events` are only those that no summary replaces."""
        self._rest_of = rest_of
        self.events: list[Event] = list(events)
        """From its Asked on, oldest first. The list grows; do not change it."""
        self._folded = 0
        """Count of the events that the folds have taken."""
        self._turns = TurnFold()
        self._effective = EffectiveFold()
        self._work = WorkFold()
        self._calls_by_fugu: set[str] = set()
        self._derived: dict[tuple[object, ...], Any] = {}

    def add(self, event: Event) -> None:
        """Add the next event."""
        self.events.append(event)
        self._derived.clear()
        for name in vars(self).keys() & _DERIVED:
            del vars(self)[name]

    def derived(
        self, function: Callable[[RequestState, *Arguments], T], *arguments: *Arguments
    ) -> T:
        """Return the value of `function` for this request. It is computed at most once between two
        events; the arguments must be hashable. For readers in other packages.
        """
        key = (function, *arguments)
        if key not in self._derived:
            self._derived[key] = function(self, *arguments)
        value: T = self._derived[key]
        return value

    def _fold(self) -> None:
        """Give the folds the events they have not taken yet."""
        if not self._folded:
            self._work = self._new_work()
        for event in self.events[self._folded :]:
            self._turns.add(event)
            if isinstance(event, Permitted) and event.by_fugu:
                self._calls_by_fugu.add(event.call.id)
            count = len(self._effective.events)
            if self._effective.add(event):
                self._work, count = self._new_work(), 0
            for effective in self._effective.events[count:]:
                self._work.add(effective)
        self._folded = len(self.events)

    def _new_work(self) -> WorkFold:
        return WorkFold(self.asked.until if self.asked is not None else ())

    # What was asked, and how it ended

    @cached_property
    def asked(self) -> Asked | None:
        """The request itself."""
        first = self.events[0] if self.events else None
        return first if isinstance(first, Asked) else None

    @cached_property
    def steering(self) -> tuple[Steered, ...]:
        """The messages that the user sent while the request was being worked on, oldest first."""
        return tuple(event for event in self.events if isinstance(event, Steered))

    @property
    def left_unread(self) -> tuple[Steered, ...]:
        """Return the messages that nobody had read when the request ended."""
        return self.unread_steering if self.finished is not None else ()

    @cached_property
    def unread_steering(self) -> tuple[Steered, ...]:
        """The user's messages that no agent has replied to since they were given."""
        if self._rest_of is not None:
            return self._rest_of.unread_steering
        numbers_by_turn: dict[int, set[int]] = {}
        read: set[int] = set()
        for event in self.events:
            if isinstance(event, SteeringGiven):
                numbers_by_turn.setdefault(event.turn, set()).add(event.number)
            elif isinstance(event, Replied):
                read |= numbers_by_turn.get(event.turn, set())
            elif isinstance(event, Planned):
                read |= numbers_by_turn.get(0, set())
        return tuple(
            message for number, message in enumerate(self.steering, start=1) if number not in read
        )

    @cached_property
    def ungiven_steering(self) -> tuple[Steered, ...]:
        """The user's messages that no prompt has shown yet."""
        shown = {event.number for event in self.events if isinstance(event, SteeringGiven)}
        return tuple(
            message for number, message in enumerate(self.steering, start=1) if number not in shown
        )

    @cached_property
    def steering_text(self) -> str:
        """The messages that the user sent while the request ran, as one text; "" without any."""
        return "\n\n".join(f"{ADDED_LATER}\n{message.whole}" for message in self.steering)

    @cached_property
    def whole_text(self) -> str:
        """The request as agents read it, with what the user has added meanwhile."""
        request_text = self.asked.whole if self.asked is not None else ""
        return "\n\n".join(part for part in (request_text, self.steering_text) if part)

    def effort_for(self, member: Member) -> Effort:
        """Return how much the agent is to reason in this request; "" if the request does not say,
        or the agent cannot be told.
        """
        return self.asked.effort if self.asked is not None and member.reasoning else ""

    @cached_property
    def finished(self) -> Finished | None:
        """The end of the request; None while it runs, if it was stopped and the session was opened
        again, or if the user wants another plan than the one it ended with.
        """
        opened_again = False
        for event in reversed(self.events):
            if isinstance(event, Finished):
                return None if opened_again and event.reason in STOPPED else event
            if isinstance(event, Steered):
                return None
            opened_again = opened_again or isinstance(event, Opened)
        return None

    @cached_property
    def plan(self) -> Plan | None:
        """The plan that the request ended with. None if it did not ask for a plan, has not ended or
        changed files.
        """
        end, turn = self.finished, self.answered_by
        if end is None or end.reason != "answered" or turn is None:
            return None
        if not self.asks_for_plan or self.is_work:
            return None
        return Plan(turn.assigned.agent, self.answer)

    @cached_property
    def asks_for_plan(self) -> bool:
        """True if the request was asked in plan mode. A single turn that changes nothing then
        answers it.
        """
        return self.asked is not None and self.asked.mode == "plan" and not self.asked.only_reads

    @cached_property
    def start_snapshot(self) -> str:
        """The snapshot of the working tree before the request changed anything; "" if it changed
        nothing, or outside git.
        """
        for event in self.events:
            if isinstance(event, Asked | Assigned | Permitted) and event.snapshot:
                return event.snapshot
        return ""

    @cached_property
    def has_picture(self) -> bool:
        """True if the request came with a picture, or a tool returned one for it."""
        return any(
            media.is_picture
            for event in self.events
            if isinstance(event, Asked | Steered | ToolRan)
            for media in event.media
        )

    # Turns

    @cached_property
    def turns(self) -> tuple[Turn, ...]:
        """Its turns, oldest first, each with its subtasks. Events of no turn (`baseline`) are in
        none.
        """
        self._fold()
        return self._turns.turns()

    @cached_property
    def every_turn(self) -> tuple[Turn, ...]:
        """The turns and the subtasks in the order they began."""
        turns: list[Turn] = []
        for turn in self.turns:
            turns += (turn, *turn.subtasks)
        return tuple(sorted(turns, key=attrgetter("number")))

    def turn(self, number: int) -> Turn | None:
        """Return the turn or subtask with this number."""
        return self._turns_by_number.get(number)

    @cached_property
    def _turns_by_number(self) -> dict[int, Turn]:
        return {turn.number: turn for turn in reversed(self.every_turn)}

    def subtask(self, number: int) -> Subtask | None:
        """Return the subtask with this number; None for a turn that no call began."""
        self._fold()
        assigned = self._turns.assigned(number)
        return assigned.subtask if assigned is not None else None

    def is_by_fugu(self, call: Call) -> bool:
        """Return whether fugu itself made the call, for evidence."""
        self._fold()
        return call.id in self._calls_by_fugu

    @cached_property
    def turns_since_opened(self) -> tuple[Turn, ...]:
        """The turns since the session was opened the last time."""
        assigned = before = 0
        for event in self.events:
            if isinstance(event, Assigned) and event.subtask is None:
                assigned += 1
            elif isinstance(event, Opened):
                before = assigned
        return self.turns[before:]

    @cached_property
    def unable_turns(self) -> tuple[Turn, ...]:
        """The turns in which agents gave the request up since the session was last opened. A
        workflow's step is given up for itself, so it does not count.
        """
        return tuple(
            turn
            for turn in self.turns_since_opened
            if turn.unable is not None and not turn.assigned.plan
        )

    @cached_property
    def calls(self) -> Mapping[str, CallRecord]:
        """Every judged call with its result, by its id."""
        return {run.permitted.call.id: run for run in call_records(self.events)}

    @cached_property
    def open_subtasks(self) -> tuple[Turn, ...]:
        """The subtasks that have not ended: nothing closed them, and the call that began them has
        no result.
        """
        subtasks = []
        for turn in self.turns:
            waiting = {run.permitted.call.id for run in turn.runs if run.result is None}
            for subtask in turn.subtasks:
                began = subtask.assigned.subtask
                is_closed = subtask.failed or subtask.interrupted
                if not is_closed and began is not None and began.call in waiting:
                    subtasks.append(subtask)
        return tuple(subtasks)

    @cached_property
    def baseline(self) -> tuple[CallRecord, ...]:
        """The calls before the first turn: evidence, and attachments of the request."""
        begin = next(
            (index for index, event in enumerate(self.events) if isinstance(event, Assigned)),
            len(self.events),
        )
        return call_records(self.events[:begin])

    @cached_property
    def counted_turns(self) -> tuple[Turn, ...]:
        """The turns whose work counts: those that neither failed nor were interrupted. If there are
        acceptance checks and all of them pass, a Worker's cut turns that changed something count as
        well.
        """
        done = bool(self.checks) and not self.unmet_checks
        counted = []
        for turn in self.turns:
            is_cut = turn.failed or turn.interrupted
            is_work = turn.assigned.role == "worker" and (turn.changes or interrupted_calls(turn))
            if not is_cut or (done and is_work):
                counted.append(turn)
        return tuple(counted)

    @cached_property
    def has_worker_answer(self) -> bool:
        """True if a Worker finished without giving up, or changed something. A killed call may have
        changed something.
        """
        return any(
            (turn.concluded and turn.unable is None) or turn.changes or interrupted_calls(turn)
            for turn in self.counted_turns
            if turn.assigned.role == "worker"
        )

    @cached_property
    def answered_by(self) -> Turn | None:
        """The turn whose words are the answer: the newest Worker's; without a Worker, the newest
        with a reply. None before the first reply.
        """
        spoken = [turn for turn in self.turns if turn.replies]
        workers = [turn for turn in spoken if turn.assigned.role == "worker"]
        if not spoken:
            return None
        newest = (workers or spoken)[-1]
        return (self.user_facing_turn if newest.assigned.plan else None) or newest

    @cached_property
    def answer(self) -> str:
        """The last words of the turns that answer, or the files that they wrote if they said
        nothing.
        """
        return "\n\n".join(final_text(turn) for turn in self.reports)

    @cached_property
    def reports(self) -> tuple[Turn, ...]:
        """The turns whose words together are the answer. It is one turn, unless several steps of a
        plan changed files and none of them describes the whole change.
        """
        if self.answered_by is None:
            return ()
        if self.asked is not None and self.asked.answer_schema:  # the answer is one JSON text
            return (self.answered_by,)
        return reports_for_user(self.workflows, self.merges, self.answered_by)

    # Agents that cannot act

    @cached_property
    def failed_agents(self) -> dict[str, Exclusion]:
        """Agents that failed: excluded until the next request, or until the session is opened
        again.
        """
        failed: dict[str, Exclusion] = {}
        for event in self.events:
            if isinstance(event, Opened):
                failed.clear()
            elif isinstance(event, Masked):
                failed = dict(event.agents)
            elif isinstance(event, Failed):
                failed[event.what] = Exclusion(
                    kind=event.kind, message=event.message, unreachable=event.unreachable
                )
        return failed

    @cached_property
    def failed_since_reply(self) -> frozenset[str]:
        """The agents that failed after the newest reply, or without any reply so far."""
        failed: set[str] = set()
        for event in self.events:
            if isinstance(event, Opened | Replied):
                failed.clear()
            elif isinstance(event, Failed):
                failed.add(event.what)
        return frozenset(failed)

    @cached_property
    def failed_turns(self) -> Counter[str]:
        """The failures of each agent since the request was asked or the session opened again."""
        failures: Counter[str] = Counter()
        for event in self.events:
            if isinstance(event, Opened):
                failures.clear()
            elif isinstance(event, Failed) and event.kind != "switched":
                failures[event.what] += 1
        return failures

    @cached_property
    def probed_since_reply(self) -> bool:
        """True if an unavailable agent was tried, for lack of others, since the newest reply."""
        for event in reversed(self.events):
            if isinstance(event, Opened | Replied):
                return False
            if isinstance(event, Masked) and event.probed:
                return True
        return False

    @cached_property
    def undos(self) -> Mapping[int, Sequence[Undone]]:
        """The user's undos and redos in this request, by the number of the newest turn before them, 0
        if there is none. A turn number that is assigned again begins without any.
        """
        undos: dict[int, list[Undone]] = {}
        turn = 0
        for event in self.events:
            if isinstance(event, Assigned) and event.subtask is None:
                turn = event.turn
                undos.pop(turn, None)
            elif isinstance(event, Undone) and not event.turn:
                undos.setdefault(turn, []).append(event)
        return undos

    # Workflows

    @cached_property
    def plans(self) -> tuple[Planned, ...]:
        """Every reply of the planner, oldest first."""
        return tuple(event for event in self.events if isinstance(event, Planned))

    @cached_property
    def workflows(self) -> tuple[Workflow, ...]:
        """The plans with steps, oldest first. Attempts at a step that is done again are not among
        its turns.
        """
        thrown_away = {number for merge in self.merges if merge.again for number in merge.turns}
        counting = [turn for turn in self.turns if turn.number not in thrown_away]
        return tuple(
            Workflow(
                number,
                planned,
                tuple(turn for turn in counting if turn.assigned.plan == number),
            )
            for number, planned in enumerate(self.plans, start=1)
            if planned.steps
        )

    @cached_property
    def merges(self) -> tuple[Merged, ...]:
        """The work taken over from worktrees."""
        return tuple(event for event in self.events if isinstance(event, Merged))

    @cached_property
    def answering_turn(self) -> Turn | None:
        """The turn that answers a request done by workflows, None for other requests."""
        return turn_that_answers(self.workflows)

    @cached_property
    def user_facing_turn(self) -> Turn | None:
        """The turn of a workflow whose words the user gets."""
        return turn_for_user(self.workflows, self.merges, self.turns)

    def is_of_step(self, turn: Turn, plan: int, step: int) -> bool:
        """Return whether a turn worked on a step of a plan, or on a step of the workflow inside
        it.
        """
        within = {flow.number: flow.planned.within for flow in self.workflows}
        own_plan, own_step = turn.assigned.plan, turn.assigned.step
        while (own_plan, own_step) != (plan, step):
            outer = within.get(own_plan)
            if outer is None:
                return False
            own_plan, own_step = outer
        return True

    # Files

    @cached_property
    def effective(self) -> Sequence[Event]:
        """The events that led to the working tree as it is: without rolled-back work, work in
        worktrees, and what the user undid.
        """
        self._fold()
        return tuple(self._effective.events)

    @cached_property
    def claimed_changes(self) -> tuple[FileChange, ...]:
        """All changes of files in order, without undone ones."""
        self._fold()
        return tuple(self._work.changes)

    @cached_property
    def changes(self) -> dict[str, FileChange]:
        """The net changes by path: the first `before` and the last `after`, without undone ones."""
        return net_changes(self.claimed_changes)

    @cached_property
    def is_work(self) -> bool:
        """True if the request changed files, or may have. A command may have changed a file that it
        does not name; what happened while the tests ran does not count.
        """
        return bool(
            net_changes(each for each in self.claimed_changes if each.while_ran != THE_TESTS)
        )

    @cached_property
    def authors(self) -> tuple[str, ...]:
        """The agents that changed a file of the request's diff, in the order of their first
        change.
        """
        agents = {turn.number: turn.assigned.agent for turn in self.every_turn}
        authors: dict[str, None] = {}
        for event in self.effective:
            if not isinstance(event, ToolRan | Merged):
                continue
            number = event.chosen if isinstance(event, Merged) else event.turn
            if number in agents and any(each.path in self.changes for each in event.changes):
                authors[agents[number]] = None
        return tuple(authors)

    @cached_property
    def unsnapshotted_changes(self) -> dict[str, FileChange]:
        """Net changes of files that no snapshot holds, by path."""
        return net_changes(each for each in self.claimed_changes if each.beside)

    @cached_property
    def file_effects(self) -> FileEffects:
        """The request's changes to files, one for each, without those that were rolled back."""
        self._fold()
        return FileEffects(self.claimed_changes, tuple(self._work.attributes)).net

    # Tests and checks

    @cached_property
    def tests(self) -> TestRun | None:
        """The newest finished run of all tests. It is `stale` if files were changed after it."""
        self._fold()
        return self._work.tests()

    @cached_property
    def tests_skipped(self) -> bool:
        """True if the user ended the newest run of the tests, and nothing was changed since."""
        self._fold()
        return self._work.skipped

    @cached_property
    def tests_refused(self) -> str:
        """The reason why fugu was not allowed to run the tests; "" if it was, or was not to run
        them.
        """
        self._fold()
        return self._work.refused

    @cached_property
    def first_tests(self) -> TestRun | None:
        """The first run of all tests, if nothing was changed before it."""
        self._fold()
        return self._work.first_tests()

    @cached_property
    def failed_before_change(self) -> bool:
        """True if a run of some or all tests failed before the request changed anything."""
        self._fold()
        return self._work.failed_before_change

    @cached_property
    def tests_before(self) -> TestsBefore:
        """The state of the tests before the request."""
        self._fold()
        return self._work.tests_before()

    @cached_property
    def regressions(self) -> tuple[str, ...]:
        """The ids of the tests that passed before the request and fail now."""
        run = self.tests
        if run is None or run.ok or run.report is None:
            return ()
        return tuple(id for id in run.report.failing if id in self.tests_before.passed)

    @cached_property
    def has_regressions(self) -> bool:
        """True if tests that passed before the request fail now, or cannot be run any more. They
        are compared by id if the runner gives ids, else by their number, else by the exit code.
        """
        run = self.tests
        if run is None or run.ok or run.empty:
            return False
        before = self.tests_before
        if run.unable:
            return before.ok is True
        if run.report is not None and run.report.by_id:
            return bool(self.regressions)
        if run.failed is not None and before.count is not None:
            return run.failed > before.count
        return before.ok is True

    @cached_property
    def failed_before(self) -> bool:
        """True if all tests that fail now are known to have failed before the request."""
        run, before = self.tests, self.tests_before
        if run is None or not run.fails or self.has_regressions:
            return False
        if run.report is not None and run.report.by_id:
            return set(run.report.failing) <= before.failed
        return before.count is not None and run.failed is not None and run.failed <= before.count

    def test_outcome(self, ran: ToolRan) -> TestOutcome:
        """Return how the newest run of tests, `ran`, ended."""
        outcome = run_of_event(ran).outcome
        if outcome != "fail" or not is_whole_run(ran.call) or not self.changes:
            return outcome
        if self.has_regressions:
            return "broken"
        return "as before" if self.failed_before else "fail"

    @cached_property
    def failing_unknown(self) -> bool:
        """True if tests fail after a change and their state before could not be found out."""
        run = self.tests
        if run is None or run.stale or not run.fails or not self.changes:
            return False
        before = self.tests_before
        if not before.unknown:
            return False
        if run.report is not None and run.report.by_id:
            return not set(run.report.failing) <= before.failed | before.passed
        return before.ok is None and before.count is None

    @cached_property
    def lookup_due(self) -> tuple[str, ...] | None:
        """The ids of failing tests whose state before the request is unknown; () if the runner
        gives no ids, or only removed tests are to be found; None if nothing is to be looked up.
        """
        run = self.tests
        if run is None or run.stale or not self.changes:
            return None
        before = self.tests_before
        was_looked_up = self._work.failing_were_looked_up
        if run.unable:
            if before.ok is None and not was_looked_up:
                return ()
        elif run.fails:
            if run.report is not None and run.report.by_id:
                unknown = tuple(id for id in run.report.failing if id not in before.looked_up)
                if unknown:
                    return unknown
            elif before.ok is None and before.count is None and not was_looked_up:
                return ()
        return () if self._work.test_edited_since_lookup else None

    @cached_property
    def checks(self) -> tuple[CheckStatus, ...]:
        """The acceptance checks, the user's first. A check that was killed in the middle is
        stale.
        """
        if self.asked is None:
            return ()
        self._fold()
        checks = []
        for check in self._work.checks.checks():
            is_suite = self.asked.test_command is not None and (
                check.command == self.asked.test_command
            )
            checks.append(self._with_suite(check) if is_suite else check)
        return tuple(checks)

    def _with_suite(self, check: CheckStatus) -> CheckStatus:
        """Return the check of the test suite with the result of the newest run of the suite."""
        run = self.tests
        if run is None:
            return replace(check, suite=True, ok=False, stale=True)
        passes = run.ok and not run.empty
        return replace(check, suite=True, output=run.output, ok=passes, stale=run.stale)

    @cached_property
    def unmet_checks(self) -> tuple[CheckStatus, ...]:
        """The checks that do not pass on the files as they are, or have not run on them."""
        return tuple(check for check in self.checks if not check.passes)

    @cached_property
    def suite_decides(self) -> bool:
        """True if the test suite is an acceptance check."""
        return any(check.suite for check in self.checks)

    @cached_property
    def acceptance_blocker(self) -> str:
        """The reason why no verdict can accept the work as it is; "" if a Verifier decides."""
        if self.has_regressions:
            if self.tests is not None and self.tests.unable:
                return "the tests could be run before this request and cannot be run now"
            return "tests that passed before fail now"
        if self.failing_unknown:
            return "tests fail, and it is not known whether they failed before"
        if not self.unmet_checks:
            return ""
        first = self.unmet_checks[0]
        if first.suite:
            return "the tests must pass and do not"
        return f"an acceptance check fails: {first.command}"

    def verdict(self, turn: Turn) -> Verdict | None:
        """Return a closed Verifier turn's verdict; None for other turns. What speaks against the
        work turns ACCEPT into REVISE.
        """
        if turn.assigned.role != "verifier" or not turn.replies:
            return None
        return "REVISE" if self.acceptance_blocker else verdict_of(turn.text)


def request_after(request: RequestState, event: Event) -> RequestState:
    """Return the newest request after one more event: a new one for Asked, else `request`, which
    takes the event.
    """
    newest = RequestState() if isinstance(event, Asked) else request
    newest.add(event)
    return newest


_DERIVED = frozenset(
    name for name, value in vars(RequestState).items() if isinstance(value, cached_property)
)
