"""Stopping: when a request has come to its end (TRINITY's rule, and more). Pure; every coordinator asks here first.

The limits on money and time are the orchestrator's; this is about turns, verdicts and answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fugu_cli import intent, policy, views
from fugu_cli.coordinators import masks
from fugu_cli.events import ROLE, Assigned, Event, Finished, Opened, Permitted, ToolRan, Undone
from fugu_cli.messages import Call
from fugu_cli.policy.patterns import READING

WRITING_TOOLS = frozenset({"edit", "write", "apply_patch"})
"""A turn that tried one of these in vain wanted a change: its words are no answer."""
RUNNING = frozenset({"bash", views.RUN_TESTS})
"""Tools that may run tests where no command for them is known."""
UNKNOWN_TESTS = "`--test-command`, or `test_command` in .fugurc, names the command that runs them."
MOST_PLACES = 3
"""Of tests that a change broke, those that the end of a request names."""


def stop(events: Sequence[Event], *, turns: int, verify_answers: bool) -> Finished | None:
    """The end of the newest request, if this is it; None when another turn is to be assigned.

    Looks at closed turns only. A turn whose agent failed or that was interrupted does not count towards `turns`, nor do
    those before the session was opened again: who goes on with a stopped request gives it as many once more.
    """
    closed = views.turns(events)
    if closed and _accepted(events, closed[-1]):
        return accepted(events, _accepted_message(events, closed[-1]))
    if closed and _spoke(events, closed[-1]) and (refused := refusal(events)):
        return refused
    if closed and not verify_answers and _answered(events, closed[-1]):
        return Finished(reason="answered")
    taken = [turn for turn in _since_opened(events) if not turn.failed and not turn.interrupted]
    if len(taken) >= turns:
        return Finished(reason="turn_limit", message=_limit_message(events, len(taken)))
    return nobody_left(events)


def accepted(events: Sequence[Event], message: str) -> Finished:
    """The end of a request that was accepted, unless failing tests were to pass and nobody ran anything: where no tests
    are known a Verifier's word decides, but not over what tests say."""
    request = views.asked(events)
    mends = request is not None and intent.is_to_mend_tests(request.text)
    if not mends or views.judged_by_tests(events) or not views.changes(events):
        return Finished(reason="accepted", message=message)
    runs = [run for turn in views.turns(events) for run in turn.runs if run.result and not run.evidence]
    if any(run.permitted.call.tool in RUNNING for run in runs):
        return Finished(reason="accepted", message=message)
    return Finished(reason="unaccepted", message=f"{message}, but no test was run. {UNKNOWN_TESTS}")


def nobody_left(events: Sequence[Event]) -> Finished | None:
    """The end of a request all of whose agents failed or are too dear; None while somebody can act."""
    opened, out = views.opened(events), views.failed_agents(events)
    if opened is None or not opened.pool or not {member.name for member in opened.pool} <= set(out):
        return None
    return masks.nobody(out)


def refusal(events: Sequence[Event]) -> Finished | None:
    """The end of a request for something to be done that may not be: a call that would do more than read was refused,
    none of that tool was allowed later, and nothing was changed. A question may be answered all the same; in plan mode
    nothing is to be done."""
    request, opened = views.asked(events), views.opened(events)
    if request is None or opened is None or intent.only_asks(request.text) or views.changes(events):
        return None
    refused: dict[str, Permitted] = {}
    for run in (run for turn in views.turns(events) for run in turn.runs if not run.evidence):
        judged = run.permitted
        if judged.by == ROLE or judged.reason == policy.PLANS or _reads(judged.call, Path(opened.repo)):
            continue
        if judged.allowed:
            refused.pop(judged.call.tool, None)
        else:
            refused[judged.call.tool] = judged
    if not refused:
        return None
    said = "; ".join(f"{one.call.tool} ({one.by}: {one.reason})" for one in refused.values())
    first = _unchanged(events, Path(opened.repo))
    why = f"{first}this was refused: {said}. `fugu help permissions` says how to allow it."
    return Finished(reason="denied", message=why)


def _unchanged(events: Sequence[Event], root: Path) -> str:
    """Said where no call ran that does more than read: of what another one did outside, no change of a file tells."""
    runs = (run for turn in views.turns(events) for run in turn.runs if run.permitted.allowed and not run.evidence)
    return "" if any(not _reads(run.permitted.call, root) for run in runs) else "nothing was changed, and "


def _reads(call: Call, root: Path) -> bool:
    """It would only read: where everything else is asked about it would not be. Or it is but evidence."""
    return (
        call.tool in READING | {views.REPRODUCE}
        or policy.judge(call, policy.Rules(mode="ask"), root).verdict == "allow"
    )


def tests_fail(events: Sequence[Event]) -> bool:
    """The tests decide this request and do not, or not any more, pass; or they passed before it and fail now; or
    its reproduction fails."""
    run = views.tests(events)
    unsure = views.judged_by_tests(events) and run is not None and (run.stale or not run.ok)
    return unsure or views.regressed(events) or views.unmended(events)


def only_broke(events: Sequence[Event]) -> str:
    """For the end of a request in which nothing is changed: that each change that was tried broke tests, which, and
    what may be said; "" where one did not, or the request says already that tests are to follow."""
    request = views.asked(events)
    draws = [draw for turn in views.turns(events) for draw in turn.draws if draw]
    reasons = {last.reason for draw in draws if isinstance(last := draw[-1], Undone)}
    if request is None or reasons != {views.BROKE} or views.changes(events) or intent.adapts_tests(request.text):
        return ""
    ran = [fact for draw in draws for fact in draw if isinstance(fact, ToolRan) and fact.call.tool == views.RUN_TESTS]
    places = dict.fromkeys(f"{path}:{line}" for run in ran for path, line in views.broken_at(run.output))
    where = f" ({', '.join(list(places)[:MOST_PLACES])})" if places else ""
    return (
        f" Every change that was tried broke tests that passed{where}. If what they expect is to change, say so:"
        ' "..., and update the tests".'
    )


def _since_opened(events: Sequence[Event]) -> tuple[views.Turn, ...]:
    assigned = before = 0
    for event in views.request(events):
        if isinstance(event, Assigned):
            assigned += 1
        elif isinstance(event, Opened):
            before = assigned
    return views.turns(events)[before:]


def _accepted(events: Sequence[Event], turn: views.Turn) -> bool:
    if turn.failed or turn.interrupted or tests_fail(events):
        return False
    if masks.only_words(events, turn.assigned.agent):
        return False
    return views.verdict(events, turn) == "ACCEPT" and views.has_worker_answer(events)


def _spoke(events: Sequence[Event], turn: views.Turn) -> bool:
    """A Worker came to its last word and nothing was changed, nor had to be for the tests' sake."""
    if turn.assigned.role != "worker" or turn.failed or turn.interrupted:
        return False
    return turn.concluded and bool(turn.text.strip()) and not views.changes(events) and not tests_fail(events)


def _answered(events: Sequence[Event], turn: views.Turn) -> bool:
    """A Worker that said something and changed nothing: a question was answered."""
    return _spoke(events, turn) and not wanted_change(events, turn)


def wanted_change(events: Sequence[Event], turn: views.Turn) -> bool:
    """The words of `turn` are no answer, where nothing was changed: a small model said them of a change that was asked
    for, or it tried to change something, or one before it did and the request does not end as a question."""
    if masks.only_words(events, turn.assigned.agent):
        return True
    request, all_turns = views.asked(events), views.turns(events)
    asks = request is not None and request.text.rstrip().endswith("?")
    runs = [run for other in ([turn] if asks else all_turns) for run in other.runs if not run.evidence]
    tried = any(run.permitted.call.tool in WRITING_TOOLS for run in runs)
    return tried or any(views.interrupted_calls(t) for t in all_turns)


def _accepted_message(events: Sequence[Event], turn: views.Turn) -> str:
    run = views.tests(events)
    return f"accepted by {turn.assigned.agent}" + ("; the tests pass" if run and run.passes else "")


def _limit_message(events: Sequence[Event], taken: int) -> str:
    run = views.tests(events)
    state = "" if run is None or run.empty else " The tests pass." if run.passes else " The tests do not pass."
    state = " Tests that passed before fail now." if views.regressed(events) else state
    state += " The reproduction does not pass." if views.unmended(events) else ""
    state += only_broke(events)
    again = "`fugu run --continue` goes on from here."
    return f"stopped after {taken} turn{'s' if taken != 1 else ''} without an accepted result.{state} {again}"
