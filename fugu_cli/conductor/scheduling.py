"""Which steps of a workflow may begin now, and who does them. Pure.

Steps that do not read one another begin together; that only one of them writes at a time is the loop's business. Steps
with the same job begin each in a worktree of its own. A step that failed goes to another agent once; then it is lost.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from fugu_cli import views
from fugu_cli.conductor import merging
from fugu_cli.conductor.validate import same_job
from fugu_cli.coordinators import Merge, Together, masks
from fugu_cli.coordinators.slots import by_strength
from fugu_cli.events import Assigned, Event, Finished, Member

TRIES = 2
"""Agents that may fail at a step before it is lost."""
WORKTREE = "worktree"
"""`Assigned.worktree` as decided; the loop puts the folder there."""
_JUDGES = re.compile(r"^\W*(?:please\s+)?(verify|check|review|judge|confirm|validate|test|ensure|run)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Crew:
    """The members of the pool, and those that cannot act now with the reason."""

    members: tuple[Member, ...]
    out: dict[str, str]

    def able(self) -> list[Member]:
        """The strongest first."""
        return [member for member in reversed(by_strength(self.members)) if member.name not in self.out]


def settled(events: Sequence[Event], flow: views.Workflow) -> set[int]:
    """Steps that have an output."""
    found = views.workflows(events)
    return {
        place for place in range(len(flow.planned.steps)) if views.output(found, flow.number, place) is not None
    } - _still_inside(events, flow)


def _still_inside(events: Sequence[Event], flow: views.Workflow) -> set[int]:
    """Steps whose own workflow has an output already and more steps to do."""
    found = views.workflows(events)
    open_now: set[int] = set()
    for child in found:
        within = child.planned.within
        if within is not None and within[0] == flow.number and not flow.tries(within[1]):
            rest = set(range(len(child.planned.steps))) - settled(events, child)
            if rest and not _failed_for_good(child, rest):
                open_now.add(within[1])
    return open_now


def _failed_for_good(flow: views.Workflow, rest: set[int]) -> bool:
    return any(len(_failed(flow, place)) >= TRIES for place in rest)


def _failed(flow: views.Workflow, place: int) -> list[views.Turn]:
    """A step's turns that came to nothing; one that the user cut is not held against it."""
    return [turn for turn in flow.tries(place) if not views.done(turn) and not turn.interrupted]


def ready(events: Sequence[Event], flow: views.Workflow) -> list[int]:
    """Steps without an output all of whose sources have one."""
    done = settled(events, flow)
    return [
        place
        for place, step in enumerate(flow.planned.steps)
        if place not in done and all(source in done for source in _sources(place, step.access))
    ]


def _sources(place: int, access: tuple[int, ...] | str) -> tuple[int, ...]:
    return tuple(range(place)) if isinstance(access, str) else access


def lost(events: Sequence[Event], flow: views.Workflow, crew: Crew) -> str:
    """Why the workflow cannot go on, "" while it can: a step came to nothing twice, or nobody else is left for it."""
    done = settled(events, flow)
    for place in range(len(flow.planned.steps)):
        failed = _failed(flow, place)
        if place in done or not failed:
            continue
        others = [member for member in crew.able() if member.name not in {t.assigned.agent for t in failed}]
        if len(failed) >= TRIES or not others:
            return f"step {place} failed: " + "; ".join(f"{t.assigned.agent}: {_why(t)}" for t in failed)
    return ""


def _why(turn: views.Turn) -> str:
    if turn.failed:
        return turn.failed.message
    if not (turn.replies and views.said(turn)):
        return "it said and did nothing"
    return "it refused" if turn.replies[-1].stop == "refusal" else "it did not come to an end"


def wave(events: Sequence[Event], flow: views.Workflow, places: Sequence[int], crew: Crew) -> Together | Finished:
    """The steps that begin now."""
    steps = flow.planned.steps
    own = [place for place in places if not steps[place].plans or flow.tries(place)]
    if not any(member for member in crew.able()):
        return masks.nobody(crew.out)
    apart = _same_jobs(events, flow, own)
    chosen = {place: _who(flow, place, crew) for place in own}
    first = masks.next_turn(events)
    return Together(
        tuple(
            _assigned(events, flow, (place, first + index), chosen[place], apart=place in apart)
            for index, place in enumerate(own)
        )
    )


def alone(events: Sequence[Event], flow: views.Workflow, place: int, crew: Crew, why: str) -> Together | Finished:
    """A step that was to be a workflow, done as one turn."""
    if not crew.able():
        return wave(events, flow, [place], crew)
    member, reason = _who(flow, place, crew)
    said = f"{reason} [not planned further: {why}]"
    return Together((_assigned(events, flow, (place, masks.next_turn(events)), (member, said)),))


def _who(flow: views.Workflow, place: int, crew: Crew) -> tuple[Member, str]:
    """The agent the plan names, or another one where that one failed or is out; with the words for the trace."""
    step = flow.planned.steps[place]
    able = {member.name: member for member in crew.able()}
    failed = [turn.assigned.agent for turn in _failed(flow, place)]
    title = f"step {place} of {len(flow.planned.steps)}"
    if step.agent in able and step.agent not in failed:
        return able[step.agent], title
    other = next((member for name, member in able.items() if name not in failed), next(iter(able.values())))
    why = "failed at it" if step.agent in failed else f"is out: {crew.out.get(step.agent, 'not in the pool')}"
    return other, f"{title}; {step.agent} {why}"


def _same_jobs(events: Sequence[Event], flow: views.Workflow, places: Sequence[int]) -> set[int]:
    """Those of the steps that share their job with another one."""
    request = views.asked(events)
    if request is None or request.snapshot is None:
        return set()
    steps = flow.planned.steps
    every = [place for place in range(len(steps)) if not steps[place].plans]
    return {a for a in places for b in every if a != b and same_job(steps, a, b)}


def merge_due(events: Sequence[Event], flow: views.Workflow, crew: Crew) -> Merge | None:
    """A group of worktrees all of whose steps are over, and that is not yet merged."""
    over = bool(lost(events, flow, crew))
    done = settled(events, flow)
    steps = flow.planned.steps
    seen: set[int] = set()
    for place in range(len(steps)):
        group = [other for other in range(len(steps)) if other == place or same_job(steps, place, other)]
        if place in seen or len(group) < 2:
            continue
        seen |= set(group)
        turns = [turn for turn in flow.turns if turn.assigned.step in group and turn.assigned.worktree]
        if turns and all(other in done or len(_failed(flow, other)) >= TRIES for other in group):
            merge = merging.due(events, flow, turns, lost=over)
            if merge is not None:
                return merge
    return None


def _assigned(
    events: Sequence[Event],
    flow: views.Workflow,
    place: tuple[int, int],
    who: tuple[Member, str],
    *,
    apart: bool = False,
) -> Assigned:
    """The decision for a step (its place in the plan, and the turn's number)."""
    step, number = place
    member, reason = who
    return Assigned(
        turn=number,
        agent=member.name,
        role="worker",
        by="conductor",
        reason=reason,
        instruction=flow.planned.steps[step].instruction,
        sees=_sees(events, flow, step),
        plan=flow.number,
        step=step,
        worktree=WORKTREE if apart else "",
    )


def _sees(events: Sequence[Event], flow: views.Workflow, place: int) -> tuple[int, ...]:
    """The turns whose words the access list opens; in a later round `all` opens those of the rounds before, too."""
    found = views.workflows(events)
    access = flow.planned.steps[place].access
    opened = [views.shown(found, flow.number, source) for source in _sources(place, access)]
    if access == "all" and flow.planned.within is None:
        before = [one for one in found if one.planned.within is None and one.planned.round < flow.planned.round]
        earlier = [views.shown(found, one.number, s) for one in before for s in range(len(one.planned.steps))]
        opened = [*earlier, *opened]
    return tuple(turn.number for turn in opened if turn is not None)


def judges(instruction: str) -> bool:
    """A step with this instruction is to judge what others did."""
    return _JUDGES.search(instruction) is not None
