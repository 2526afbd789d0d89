"""Turns of models that cannot call tools: what they read first, attempts one after the other,
validation by the tests.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fugu_cli.engine.environment import (
    Environment,
    GatherEvidence,
    NextStep,
    RequestReply,
    RollBackAttempt,
    RunCall,
    TurnClosed,
    due_run,
)
from fugu_cli.engine.harness import agent_is_done, diff_due, no_such_tool
from fugu_cli.engine.tool_calls import may_read
from fugu_cli.messages import Call, Prompt, ToolSpec
from fugu_cli.repair import intent, localization, search
from fugu_cli.repair.localization import files_read
from fugu_cli.repair.prompt import build_prompt, played_role
from fugu_cli.repair.search import made_progress
from fugu_cli.session import views
from fugu_cli.session.events import Member, Replied, ToolRan
from fugu_cli.session.state import SessionState
from fugu_cli.session.tool_facts import facts_of
from fugu_cli.tools.workspace import CHANGED_SINCE_READ

AFTER_LINE, AFTER_REWRITE = (4, 5.0), (10, 30.0)
"""The tests' time limit after one changed line, of which many are tried, and after other changes: a
multiple of the time before the request, and seconds at least.
"""
_BROKEN_OFF = re.compile(r"\b\d+ errors?(?:,| in |$)|\berrors=\d", re.MULTILINE)
"""A file of tests may have ended before its first one: pytest, unittest."""


def with_test_timeout(call: Call, state: SessionState, turn: views.Turn) -> Call:
    """The `call` that runs the tests, with a limit where the newest reply is a small model's: it
    may have made a loop endless. Without one where the run before may have broken off early: it
    says nothing of how long one takes."""
    newest, first = turn.replies[-1] if turn.replies else None, state.request.first_tests
    if (
        newest is None
        or not (newest.filled or newest.aimed)
        or first is None
        or _BROKEN_OFF.search(first.output)
    ):
        return call
    factor, minimum = AFTER_LINE if newest.filled else AFTER_REWRITE
    return Call.make(call.id, call.tool, seconds=max(minimum, round(factor * first.seconds, 1)))


REPLIES = 6
"""Replies in one attempt: more lead nowhere."""
MOST_FILES = 4
"""Files in a prompt: the first ones are the likeliest, and each costs seconds to read."""


class Repair:
    """Models that write text: a prompt with all that matters, and edits that are judged by the
    tests at once.
    """

    @property
    def has_history(self) -> bool:
        return False

    def next_step(self, state: SessionState, member: Member, environment: Environment) -> NextStep:
        """Tests and files first, then attempts until one stands."""
        turn = state.request.turns[-1]
        if turn.failed is not None or turn.interrupted:
            return TurnClosed()
        if not turn.replies:
            if _out_of_attempts(state, turn, member) or _met_saved_file(turn):
                return TurnClosed()
            opening = _next_evidence(state, turn, member, environment)
            return GatherEvidence(opening) if opening is not None else RequestReply()
        if calls := views.open_calls(turn):
            return RunCall(calls[0])
        if not (_has_written(turn) or agent_is_done(turn, REPLIES)):
            return RequestReply()
        return _close_attempt(state, turn, environment)

    def prompt(
        self, state: SessionState, member: Member, tools: Sequence[ToolSpec], instructions: str
    ) -> Prompt:
        """One message with the request, the files, the tests' output and what is to be written."""
        return build_prompt(state, member, tools, instructions)

    def tools(
        self, state: SessionState, member: Member, environment: Environment
    ) -> tuple[ToolSpec, ...]:
        """The tools for files and commands, for a Worker that is to change something. None where it
        is asked a question, and where failing tests are to be fixed and all pass: it can say so."""
        turn, request = state.request.turns[-1], state.request.asked
        if request is None or played_role(turn) != "worker" or _is_answered_in_words(state):
            return ()
        first = state.request.first_tests
        if first is not None and first.ok and intent.is_for_failing_tests(request.text):
            return ()
        return environment.toolbox.specs(
            lambda tool: not (tool.internal or tool.native or tool.foreign), brief=True
        )

    def refuses(
        self, call: Call, state: SessionState, member: Member, environment: Environment
    ) -> str:
        """Tools it was not offered, and changes of tests that failed first and judge the
        request.
        """
        if refused := no_such_tool(
            call, state, environment, self.tools(state, member, environment)
        ):
            return refused
        first = state.request.first_tests
        failed = first is None or not first.ok
        if (
            failed
            and state.request.suite_decides
            and localization.writes_test(environment.workspace, call)
        ):
            return "the tests judge this request and stay as they are"
        return ""


def _out_of_attempts(state: SessionState, turn: views.Turn, member: Member) -> bool:
    """The turn has had its attempts. Lines that are filled in one after the other are one attempt,
    all together.
    """
    filled = [reply.filled for reply in turn.spent if reply.filled]
    whole = sum(
        not any(isinstance(event, Replied) and event.filled for event in attempt)
        for attempt in turn.draws
    )
    newest = turn.draws[-1] if turn.draws else ()
    if any(isinstance(event, Replied) and event.filled for event in newest):
        gap = search.next_task(state, turn, member).gap
        if gap is not None and gap.place not in filled:
            return False
    return whole + bool(filled) >= max(member.attempts, 1)


def _met_saved_file(turn: views.Turn) -> bool:
    """The newest attempt met a file that the user saved meanwhile. Only a turn of its own is shown
    it again.
    """
    events = turn.draws[-1] if turn.draws else ()
    refused = (
        event
        for event in events
        if isinstance(event, ToolRan) and facts_of(event.call.tool).writes_files and not event.ok
    )
    return any(CHANGED_SINCE_READ in event.output for event in refused)


def _next_evidence(
    state: SessionState, turn: views.Turn, member: Member, environment: Environment
) -> Call | None:
    """The next piece of evidence that the turn opens with; None when it has all."""
    if turn.draws:
        return None
    if played_role(turn) == "verifier":
        due = due_run(state, turn, environment.tests, verifying=True)
        return due if due is not None or turn.assigned.role != "verifier" else diff_due(state, turn)
    if (call := _tests_due(state, turn)) is not None:
        return call
    taken = [run for run in turn.runs if run.evidence]
    read = {run.permitted.call.arguments for run in taken if run.result is not None}
    id, paths = f"e{turn.number}-{len(taken)}", _relevant_paths(state, member, environment)
    calls = (Call.make(id, "read", path=path, plain=True) for path in paths)
    return next((call for call in calls if call.arguments not in read), None)


def _tests_due(state: SessionState, turn: views.Turn) -> Call | None:
    """The tests where they are the acceptance check, and where the request is about them: then they
    become it while they fail."""
    request, run = state.request.asked, state.request.tests
    if request is None or request.test_command is None:
        return None
    is_about_tests = intent.is_about_tests(request.text)
    needs_run = (
        is_about_tests or intent.is_for_a_test_run(request.text) or state.request.suite_decides
    )
    id = f"e{turn.number}-{len(turn.draws)}-{len(turn.runs)}"
    if needs_run and (run is None or run.stale):
        return Call(id=id, tool=views.RUN_TESTS)
    if (
        is_about_tests
        and run is not None
        and not run.ok
        and not run.empty
        and not state.request.suite_decides
    ):
        return Call.make(id, views.ACCEPTANCE_CHECK, command=request.test_command)
    return None


def _relevant_paths(
    state: SessionState, member: Member, environment: Environment
) -> tuple[str, ...]:
    """Paths that the request or the tests' output leads to, and that the agent may read without a
    question.
    """
    request, run = state.request.asked, state.request.tests
    text, output = (
        request.text if request else "",
        run.output if run is not None and not run.ok else "",
    )
    paths = localization.relevant_files(output, text, environment.workspace.root)
    denials = environment.denials
    return tuple(
        path
        for path in paths
        if may_read(environment, path) and not (denials and denials.denied(member.name, path))
    )[:MOST_FILES]


def _has_written(turn: views.Turn) -> bool:
    """Its edit was made or refused. Told that it missed, a small model repeats itself."""
    closed_calls = {
        run.permitted.call.id
        for run in turn.runs
        if run.result is not None or not run.permitted.allowed
    }
    return any(
        facts_of(call.tool).writes_files and call.id in closed_calls
        for call in turn.replies[-1].calls
    )


def _close_attempt(state: SessionState, turn: views.Turn, environment: Environment) -> NextStep:
    """After the agent's last word: the tests, when a Worker changed files; then whether the attempt
    stands.
    """
    if turn.assigned.role != "worker":
        return TurnClosed()
    if (call := due_run(state, turn, environment.tests)) is not None:
        return GatherEvidence(
            with_test_timeout(call, state, turn) if call.tool == views.RUN_TESTS else call
        )
    request = state.request.asked
    if request is None or request.snapshot is None:
        return TurnClosed()
    if not turn.changes and not views.interrupted_calls(turn):
        return (
            RollBackAttempt("nothing was changed")
            if _wanted_a_change(state, turn)
            else TurnClosed()
        )
    if not state.request.suite_decides:
        return (
            RollBackAttempt("tests that passed before fail")
            if state.request.has_regressions
            else TurnClosed()
        )
    run = state.request.tests
    stands = run is None or run.ok or made_progress(state, turn, run)
    return TurnClosed() if stands else RollBackAttempt("the tests failed")


def _wanted_a_change(state: SessionState, turn: views.Turn) -> bool:
    """Words are no answer: failing tests are to be fixed, or a change of files that were shown is
    asked for.
    """
    request, run = state.request.asked, state.request.tests
    if request is None or turn.assigned.plan:
        return False
    answered_in_words = bool(turn.text.strip()) and not turn.replies[-1].calls
    if state.request.suite_decides:
        return not (answered_in_words and run is not None and run.ok)
    return (
        intent.wants_change(request.text) and bool(files_read(turn)) and not state.request.changes
    )


def _is_answered_in_words(state: SessionState) -> bool:
    """The tests do not judge the request, and it asks for words."""
    request = state.request.asked
    if request is None or state.request.suite_decides:
        return False
    return intent.is_for_a_test_run(request.text) or intent.is_question(request.text)


if TYPE_CHECKING:
    from fugu_cli.engine.environment import Harness

    _harness: Harness = Repair()
