"""Several agents had the same job, each in a worktree: whose work is taken over. Pure.

The repository's tests choose first; where they leave several, the step that reads them all does (`CHOOSE n`), and where
there is none, or it never came to it, the first of them is taken.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from fugu_cli import views
from fugu_cli.coordinators import Merge
from fugu_cli.events import Event

_CHOICE = re.compile(r"^\W*CHOOSE\W+(\d+)", re.IGNORECASE | re.MULTILINE)


def due(events: Sequence[Event], flow: views.Workflow, group: Sequence[views.Turn], *, lost: bool) -> Merge | None:
    """What has to be done about the closed turns of a group; None when it is settled, or waits for its merging step.
    `lost`: the workflow cannot go on, so that no other step will begin."""
    turns = tuple(turn.number for turn in group)
    made = [merge for merge in views.merges(events) if merge.turns == turns]
    if made and not made[-1].open:
        return None
    if made:
        return _decided(flow, turns, [turn for turn, _ in made[-1].diffs], lost=lost)
    best, why = _best(events, group)
    if len(best) > 1 and not lost and _merging_step(flow, group) is not None:
        return Merge(flow.number, turns, 0, f"{why}; step {_merging_step(flow, group)} chooses", True, tuple(best))
    return Merge(flow.number, turns, best[0] if best else 0, why)


def _decided(flow: views.Workflow, turns: tuple[int, ...], among: Sequence[int], *, lost: bool) -> Merge | None:
    """The merging step's word, once it has spoken."""
    group = [turn for turn in flow.turns if turn.number in turns]
    step = _merging_step(flow, group)
    spoke = [turn for turn in flow.tries(step) if views.done(turn)] if step is not None else []
    if not spoke and lost and step is not None:
        return Merge(flow.number, turns, among[0], f"step {step} came to nothing: the first one")
    if not spoke:
        return None if step is not None else Merge(flow.number, turns, among[0], "the first one")
    turn = spoke[-1]
    if turn.changes:
        return Merge(flow.number, turns, 0, f"step {step} wrote its own from what it read")
    named = [int(number) for number in _CHOICE.findall(turn.text) if int(number) in among]
    if named:
        return Merge(flow.number, turns, named[0], f"chosen by {turn.assigned.agent} in step {step}")
    return Merge(flow.number, turns, among[0], f"step {step} named none of them: the first one")


def _best(events: Sequence[Event], group: Sequence[views.Turn]) -> tuple[list[int], str]:
    """The turns whose changes are worth having, by the tests where they were run, and why. A call that was killed may
    have changed something."""
    changed = [turn for turn in group if views.done(turn) and (turn.changes or views.interrupted_calls(turn))]
    if not changed:
        return [], "nobody changed anything"
    runs = {turn.number: views.tests(views.lane(events, turn.number)) for turn in changed}
    passing = [number for number, run in runs.items() if run is not None and run.passes]
    if passing:
        return passing, f"the tests pass for {len(passing)} of {len(group)}"
    known = {number: run.failed for number, run in runs.items() if run is not None and run.failed is not None}
    if not known:
        return [turn.number for turn in changed], "no tests decide"
    fewest = min(known.values())
    return [number for number, count in known.items() if count == fewest], f"the fewest tests fail ({fewest})"


def _merging_step(flow: views.Workflow, group: Sequence[views.Turn]) -> int | None:
    """The first later step that reads every step of the group."""
    steps = {turn.assigned.step for turn in group}
    for place, step in enumerate(flow.planned.steps):
        if place > max(steps) and not step.plans and (step.access == "all" or steps <= set(step.access)):
            return place
    return None
