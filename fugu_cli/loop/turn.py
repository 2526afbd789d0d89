"""One turn: from the decision to the agent's last word.

What comes next in a turn is a function of the log (`next_step`), so a turn that was killed goes on where it stood. The
steps: evidence fugu takes itself, the agent's replies, its tool calls, the tests after a Worker's change, and, for a
small model or an agent with several attempts, rolling a failed draw back: the next one starts from a clean tree.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

from fugu_cli import intent, views
from fugu_cli.agents.fences import python_in
from fugu_cli.events import Asked, Event, Member, Replied, ToolRan
from fugu_cli.loop import aims, hanging, outdated, tests_wanted
from fugu_cli.loop.looking import Look
from fugu_cli.loop.progress import made
from fugu_cli.messages import Call
from fugu_cli.test_paths import code_among
from fugu_cli.tools.seen import OUTDATED
from fugu_cli.tools.try_answer import called

WRITING = frozenset({"edit", "write", "apply_patch"})
SAME_CALL_LIMIT = 3
"""A turn that made the same call this often without success goes nowhere and is closed."""


@dataclass(frozen=True)
class Evidence:
    """Run this tool for the agent, as fugu."""

    call: Call


@dataclass(frozen=True)
class Reply:
    """Ask the agent for its next reply."""


@dataclass(frozen=True)
class Run:
    """Judge and run the agent's call."""

    call: Call


@dataclass(frozen=True)
class RollBack:
    """The draw failed the tests: put the files back to how they stood when the turn began."""

    reason: str


@dataclass(frozen=True)
class Closed:
    """The turn is over; the coordinator decides next."""


Step = Evidence | Reply | Run | RollBack | Closed

_TEST = re.compile(r"\bdef test|\bclass Test|\b(?:test|it|describe)\s*\(|@Test|\bfunc Test|#\[[\w:]*test\b|>>> ")


@dataclass(frozen=True)
class Rules:
    """What bounds a turn: replies in one draw, and what is worth looking at before it: what shows what a question is
    about, and files (paths, newest knowledge)."""

    replies: int
    files: tuple[str, ...] = ()
    look: Look | None = None


def next_step(events: Sequence[Event], member: Member, rules: Rules) -> Step:
    """What the newest turn needs next. Pure."""
    turn = views.turns(events)[-1]
    if turn.failed is not None or turn.interrupted:
        return Closed()
    if not turn.replies:
        if _drawn_out(events, turn, member) or _outdated(turn):
            return Closed()
        opening = _opening(events, turn, member, rules)
        return Evidence(opening) if opening is not None else Reply()
    calls = views.open_calls(turn)
    if calls:
        return _run(events, turn, member, calls[0])
    if turn.assigned.role != "worker" and (trial := _trial(events, turn)) is not None:
        return Evidence(trial)
    if not _said_all(turn, member, rules):
        return Reply()
    after = _after(events, turn, member)
    if isinstance(after, Closed) and (trial := _trial(events, turn)) is not None:
        return Evidence(trial)
    return after


def _run(events: Sequence[Event], turn: views.Turn, member: Member, call: Call) -> Step:
    """The call, unless a small model says again what the tests have refused."""
    plain = member.protocol != "native" and len(turn.replies) == 1
    reason = aims.refused(events, turn) if plain else ""
    return RollBack(reason) if reason else Run(call)


def _drawn_out(events: Sequence[Event], turn: views.Turn, member: Member) -> bool:
    """The turn has had its draws. Lines that are filled in one after the other are one draw, all together."""
    filled = [reply.filled for reply in turn.spent if reply.filled]
    whole = sum(not any(isinstance(fact, Replied) and fact.filled for fact in draw) for draw in turn.draws)
    newest = turn.draws[-1] if turn.draws else ()
    if any(isinstance(fact, Replied) and fact.filled for fact in newest):
        gap = aims.aim(events, turn, member).gap
        if gap is not None and gap.place not in filled:
            return False
    return whole + bool(filled) >= max(member.attempts, 1)


def _outdated(turn: views.Turn) -> bool:
    """The newest draw met a file that is no longer as the turn has shown it: the user saved it meanwhile. Only a turn
    of its own is shown it anew."""
    facts = turn.draws[-1] if turn.draws else ()
    refused = (fact for fact in facts if isinstance(fact, ToolRan) and fact.call.tool in WRITING and not fact.ok)
    return any(OUTDATED in fact.output for fact in refused)


def _opening(events: Sequence[Event], turn: views.Turn, member: Member, rules: Rules) -> Call | None:
    """The next piece of evidence this turn opens with, None when it has all."""
    if turn.draws:
        return None
    taken = [run for run in turn.runs if run.evidence]
    done = [run.permitted.call for run in taken if run.result is not None]  # one that was killed is taken again
    number = len(taken)
    run = views.tests(events)
    asked = views.asked(events)
    verifies = turn.assigned.role == "verifier"
    if _tests_due(events, asked, run) if verifies else cut_before(events):
        return _call(turn, number, views.RUN_TESTS)
    if (trial := _trial(events, turn)) is not None:
        return trial
    if verifies:
        since = views.began(events) if all(call.tool != "diff" for call in done) else ""
        if not since:
            return None
        more = [(change.path, change.before, change.after) for change in views.beside(events).values()]
        given = {"since": since} | ({"beside": more} if more else {})
        return Call.make(f"e{turn.number}-{number}", "diff", **given)
    if member.protocol == "native":
        return None
    if rules.look is not None and all(call.tool != rules.look.tool for call in done):
        return rules.look.call(f"e{turn.number}-{number}")
    read = {call.arguments for call in done if call.tool == "read"}
    calls = (Call.make(f"e{turn.number}-{number}", "read", path=path, plain=True) for path in rules.files)
    return next((call for call in calls if call.arguments not in read), None)


def cut_before(events: Sequence[Event]) -> bool:
    """The tests decide, and a turn before was cut after it had changed something."""
    asked, run = views.asked(events), views.tests(events)
    if run is None or not run.stale or asked is None or asked.assertions:
        return False
    return views.judged_by_tests(events) or views.regressed(events)


def _tests_due(events: Sequence[Event], asked: Asked | None, run: views.TestRun | None) -> bool:
    """A Verifier starts from a run that holds, also where nothing was changed; but a question runs no tests."""
    if asked is None or asked.test_command is None or (run is not None and not run.stale):
        return False
    return bool(views.changes(events)) or not intent.only_asks(asked.text)


def _trial(events: Sequence[Event], turn: views.Turn) -> Call | None:
    """The request's reproduction, to be run as things are now; None where that is known."""
    found = views.reproduction(events)
    if found is None or not found.stale:
        return None
    id = f"e{turn.number}-{len(turn.draws)}-{len(turn.runs)}"
    return Call(id=id, tool=views.RUN_REPRODUCTION, arguments=found.arguments)


def _call(turn: views.Turn, number: int, tool: str) -> Call:
    return Call(id=f"e{turn.number}-{len(turn.draws)}-{number}", tool=tool)


def _said_all(turn: views.Turn, member: Member, rules: Rules) -> bool:
    """The agent's part is over: no calls left, or no more replies allowed, or nothing but repeats."""
    newest = turn.replies[-1]
    if not newest.calls or len(turn.replies) >= rules.replies:
        return True
    done = {run.permitted.call.id for run in turn.runs if run.result is not None or not run.permitted.allowed}
    if member.protocol != "native" and any(call.tool in WRITING and call.id in done for call in newest.calls):
        return True  # a small model's edit is judged by the tests at once; told that it missed, it repeats itself
    return _repeats(turn) >= SAME_CALL_LIMIT


def _repeats(turn: views.Turn) -> int:
    """How often the newest call was made in this draw with the same arguments and no success."""
    newest = turn.replies[-1].calls[-1]
    failed = [run.permitted.call for run in turn.runs if run.result is None or not run.result.ok]
    return sum((call.tool, call.arguments) == (newest.tool, newest.arguments) for call in failed)


def _after(events: Sequence[Event], turn: views.Turn, member: Member) -> Step:
    """After the agent's last word: the tests, when a Worker changed files; then whether the draw stands."""
    asked = views.asked(events)
    if turn.assigned.role == "worker" and asked is not None and asked.assertions:
        return _tried(events, turn, member, asked)
    if turn.assigned.role != "worker" or asked is None or asked.test_command is None:
        return Closed()
    run = views.tests(events)
    if views.changes(events) if run is None else run.stale:
        return Evidence(hanging.bounded(_call(turn, len(turn.runs), views.RUN_TESTS), events, turn))
    keeps = member.protocol == "native" and member.attempts <= 1
    if keeps or asked.snapshot is None:
        return Closed()
    if outdated.fewer(events, turn):
        return RollBack("a test was taken out")
    if outdated.stands(events, turn):
        return Closed()
    return _judged(events, turn, asked, run) if views.judged_by_tests(events) else _beside(events, turn)


def _beside(events: Sequence[Event], turn: views.Turn) -> Step:
    """After a draw that the tests do not judge: what breaks those that passed is taken back all the same."""
    broke = bool(turn.changes) and views.regressed(events)
    return RollBack(views.BROKE) if broke else Closed()


def _judged(events: Sequence[Event], turn: views.Turn, asked: Asked, run: views.TestRun | None) -> Step:
    """After a draw that the tests judge, once they have run."""
    if not turn.changes and not views.interrupted_calls(turn):
        said = bool(turn.text.strip()) and not turn.replies[-1].calls
        explained = said and run is not None and run.ok and not intent.wants_tests(asked.text)
        return Closed() if explained else RollBack("nothing was changed")
    only_tests = intent.is_for_tests(asked.text) and not intent.wants_tests_beside(asked.text)
    if only_tests and len(code_among(change.path for change in turn.changes)) == len(turn.changes):
        return RollBack("no test was written")
    if intent.wants_tests(asked.text) and run is not None and run.ok and not _tests_added(events, turn, run):
        return RollBack("no test was added")
    if run is None or run.ok or made(events, turn, run) or _new_tests_fail(events, turn, asked, run):
        return Closed()
    return RollBack("the tests failed")


def _new_tests_fail(events: Sequence[Event], turn: views.Turn, asked: Asked, run: views.TestRun) -> bool:
    """Tests that were asked for were written, and only they fail: what they expect can be corrected."""
    first, changed = views.first_tests(events), views.changes(events)
    before = 0 if first is None or first.empty else views.passing(first.output)
    new = tests_wanted.failing(asked.text, changed, run)
    kept = before is not None and (views.passing(run.output) or 0) >= before
    return kept and {change.path for change in turn.changes} == {new}


def _tests_added(events: Sequence[Event], turn: views.Turn, run: views.TestRun) -> bool:
    """More tests pass than before the request, or it cannot be told; what was written as a test may be only a copy of
    the code. A test command may run others than the new ones: then what reads like a test is one."""
    first, paths = views.first_tests(events), [change.path for change in turn.changes]
    before = 0 if first is None or first.empty else views.passing(first.output)
    now = views.passing(run.output)
    if before is None or now is None or now > before or code_among(paths) == paths:
        return True
    return any(_TEST.search(one.permitted.call.arguments) for one in turn.runs if one.result and one.result.changes)


def _tried(events: Sequence[Event], turn: views.Turn, member: Member, asked: Asked) -> Step:
    """After an answer in words: its code is tried with the question's assertions. The last draw's stands as it is."""
    run, code = views.tests(events), python_in(turn.text, called(asked.assertions))
    if code and (run is None or run.stale):
        call = Call.make(
            f"e{turn.number}-{len(turn.draws)}-{len(turn.runs)}",
            views.TRY_ANSWER,
            code=code,
            assertions=list(asked.assertions),
        )
        return Evidence(call)
    holds, last = bool(code) and run is not None and run.ok, len(turn.draws) + 1 >= max(member.attempts, 1)
    if holds or last or turn.assigned.plan:
        return Closed()
    return RollBack("what the question says does not hold" if code else "the answer shows no code")


def describe(step: Step) -> str:
    """For the waiting line on the screen."""
    match step:
        case Evidence(call):
            return f"running {call.tool}"
        case Reply():
            return "waiting for the agent"
        case Run(call):
            return f"running {call.tool}"
        case RollBack(reason):
            return f"rolling back: {reason}"
        case Closed():
            return "deciding"
        case _:
            assert_never(step)
