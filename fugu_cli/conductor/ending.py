"""When a request that was planned is over, and as what (`fugu help exit-codes`). Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fugu_cli import policy, views
from fugu_cli.conductor import scheduling
from fugu_cli.coordinators import Check, stopping
from fugu_cli.coordinators.settings import Settings
from fugu_cli.events import Event, Finished, Opened, Planned

_ACCEPT = re.compile(r"\baccept\b", re.IGNORECASE)
GO_ON = "`fugu run --continue` goes on from here."


def check_due(events: Sequence[Event]) -> Check | None:
    """Something was changed and the tests or acceptance checks do not know of it yet."""
    asked, run = views.asked(events), views.tests(events)
    runs = asked is not None and asked.test_command is not None and not views.skipped(events)
    changed = runs and bool(views.changes(events)) and (run is None or run.stale)
    return Check() if changed or any(check.stale for check in views.unmet(events)) else None


def tests_pass(events: Sequence[Event]) -> bool:
    """The tests pass after a change, and nothing else speaks against the work."""
    run = views.tests(events)
    return run is not None and run.passes and bool(views.changes(events)) and not views.against(events)


def turn_limit(events: Sequence[Event], settings: Settings) -> Finished | None:
    """The round has had its turns (those of workflows inside it count; those that failed or were cut do not)."""
    taken = 0
    counting = {turn.number: turn for turn in views.turns(events) if not turn.failed and not turn.interrupted}
    for event in views.request(events):
        if isinstance(event, Opened) or (isinstance(event, Planned) and event.within is None):
            taken = 0
        elif event.type == "assigned" and event.turn in counting:
            taken += 1
    if taken < settings.turns:
        return None
    state = " The tests pass." if tests_pass(events) else ""
    turns = f"{taken} turn{'' if taken == 1 else 's'}"
    message = f"stopped after {turns} of a workflow that is not at its end.{state} {GO_ON}"
    return Finished(reason="turn_limit", message=message)


def reopened(events: Sequence[Event]) -> bool:
    """The request was stopped after its newest plan and opened again: there may be one more round."""
    for event in reversed(views.request(events)):
        if isinstance(event, Planned | Opened):
            return isinstance(event, Opened)
    return False


def ended(events: Sequence[Event], settings: Settings, *, kept: bool = False, note: str = "") -> Finished:
    """The end of a request whose last workflow is over. `kept`: the planner looked at the result and kept it."""
    what = _carried_out(events) + (f"; {note}" if note else "")
    if end := stopping.refusal(events):
        return end
    if why := views.against(events):
        return Finished(reason="unaccepted", message=f"{what}. {why[0].upper()}{why[1:]}. {GO_ON}")
    if tests_pass(events):
        return Finished(reason="accepted", message=f"{what}; the tests pass")
    turn = views.answering(events)
    if turn is None:
        return Finished(reason="failed", message=f"{what}; no step said or did anything")
    if kept:
        return Finished(reason="accepted", message=f"{what}; the planner kept the result")
    if turn.concluded and not settings.verify_answers and _only_said(events):
        return Finished(reason="answered", message=what)
    if _accepts(events, turn):
        return Finished(reason="accepted", message=f"{what}; accepted by {turn.assigned.agent}")
    return Finished(reason="unaccepted", message=f"{what}; nobody accepted the result. {GO_ON}")


def _only_said(events: Sequence[Event]) -> bool:
    """Nothing was changed, nor was anything to be: in plan mode whatever was tried."""
    left = [path for merge in views.merges(events) for path in merge.left]
    runs = (run for one in views.turns(events) for run in one.runs)
    plans = any(run.permitted.reason == policy.PLANS for run in runs)
    return not views.changes(events) and not left and (plans or not stopping.tried_to_change(events))


def _accepts(events: Sequence[Event], turn: views.Turn) -> bool:
    """The turn's verdict counts: it was to judge, it changed nothing, and it read those who changed something, directly
    or not. Anybody may write of accepted formats."""
    word = views.verdict_of(turn.text) == "ACCEPT" and _ACCEPT.search(turn.text)
    asked = turn.assigned.instruction
    if not word or turn.changes or not (scheduling.judges(asked) or _ACCEPT.search(asked)):
        return False
    found = {one.number: one for one in views.turns(events)}
    read, more = set[int](), {turn.number}
    while more:
        read |= more
        sees = (found[number].assigned.sees for number in more if number in found)
        more = {number for seen in sees if not isinstance(seen, str) for number in seen} - read
    changed = {one.number for one in found.values() if one.changes and not one.assigned.worktree}
    return changed | {merge.chosen for merge in views.merges(events) if merge.changes} <= read


def _carried_out(events: Sequence[Event]) -> str:
    """`a workflow of 3 steps`, `2 workflows, 5 steps in all`; those inside others count with their steps, and a step
    that several took counts once."""
    steps = len({(turn.assigned.plan, turn.assigned.step) for turn in views.turns(events) if turn.assigned.plan})
    rounds = sum(flow.planned.within is None for flow in views.workflows(events))
    several = f"{rounds} workflows, {steps} steps in all"
    return several if rounds > 1 else f"a workflow of {steps} step{'' if steps == 1 else 's'}"
