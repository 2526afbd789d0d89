"""Stopping: when a request has come to its end (TRINITY's rule, and more). Pure; every coordinator asks here first.

The limits on money and time are the orchestrator's; this is about turns, verdicts and answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fugu_cli import policy, views
from fugu_cli.coordinators import masks
from fugu_cli.events import ROLE, USERS, Assigned, Event, Finished, Opened, Permitted
from fugu_cli.messages import Call
from fugu_cli.policy.patterns import READING, WRITING


def stop(events: Sequence[Event], *, turns: int, verify_answers: bool) -> Finished | None:
    """The end of the newest request, if this is it; None when another turn is to be assigned.

    Looks at closed turns only. A turn whose agent failed or that was interrupted does not count towards `turns`, nor do
    those before the session was opened again: who goes on with a stopped request gives it as many once more.
    """
    closed = views.turns(events)
    if closed and _accepted(events, closed[-1]):
        return Finished(reason="accepted", message=f"verified by {closed[-1].assigned.agent}")
    if closed and _spoke(events, closed[-1]):
        if refused := refusal(events):
            return refused
        if not (verify_answers or tried_to_change(events)):
            return Finished(reason="answered")
    taken = [turn for turn in _since_opened(events) if not turn.failed and not turn.interrupted]
    if len(taken) >= turns:
        return Finished(reason="turn_limit", message=_limit_message(events, len(taken)))
    return nobody_left(events)


def nobody_left(events: Sequence[Event]) -> Finished | None:
    """The end of a request all of whose agents failed or are too dear; None while somebody can act."""
    opened, out = views.opened(events), views.failed_agents(events)
    if opened is None or not opened.pool or not {member.name for member in opened.pool} <= set(out):
        return None
    return masks.nobody(out)


def refusal(events: Sequence[Event]) -> Finished | None:
    """The end of a request in which nothing was changed because nobody could allow it: a call that would do more than
    read was refused by a rule, a hook, or for want of anybody to ask, and none of that tool was allowed later.

    What the user refused, the user knows; in plan mode nothing is to be done.
    """
    opened = views.opened(events)
    if opened is None or views.changes(events):
        return None
    refused: dict[str, Permitted] = {}
    for run in (run for turn in views.turns(events) for run in turn.runs if not run.evidence):
        judged = run.permitted
        excused = judged.by == ROLE or judged.by in USERS or judged.reason == policy.PLANS
        if judged.allowed:
            refused.pop(judged.call.tool, None)
        elif not excused and not _reads(judged.call, Path(opened.repo)):
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
    """It would only read, or only set an acceptance check."""
    return (
        call.tool in READING | {views.ACCEPTANCE_CHECK}
        or policy.judge(call, policy.Rules(mode="ask"), root).verdict == "allow"
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
    if turn.failed or turn.interrupted:
        return False
    return views.verdict(events, turn) == "ACCEPT" and views.has_worker_answer(events)


def _spoke(events: Sequence[Event], turn: views.Turn) -> bool:
    """A Worker came to its last word, nothing was changed, and no check of the user's asks for more."""
    if turn.assigned.role != "worker" or turn.failed or turn.interrupted:
        return False
    wanted = any(check.by == "user" for check in views.unmet(events))
    return turn.concluded and bool(turn.text.strip()) and not views.changes(events) and not wanted


def tried_to_change(events: Sequence[Event]) -> bool:
    """Nothing was changed, but somebody tried to in vain, or a call that may have changed something was killed. Then
    words are no answer yet: a Verifier reads them."""
    every = views.turns(events)
    runs = (run for turn in every for run in turn.runs if not run.evidence)
    tried = any(run.permitted.call.tool in WRITING for run in runs)
    return tried or any(views.interrupted_calls(turn) for turn in every)


def _limit_message(events: Sequence[Event], taken: int) -> str:
    why = views.against(events)
    state = f" {why[0].upper()}{why[1:]}." if why else ""
    again = "`fugu run --continue` goes on from here."
    return f"stopped after {taken} turn{'s' if taken != 1 else ''} without an accepted result.{state} {again}"
