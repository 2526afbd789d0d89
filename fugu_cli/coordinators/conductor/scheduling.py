"""Decides which steps of a workflow may begin, which agents do them, and whose work is merged if
several did the same job. Pure.

Steps that do not read one another begin together. A failed step goes to another agent once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from fugu_cli.coordinators import MergeTurns, ParallelTurns, action_space
from fugu_cli.coordinators.action_space import by_strength
from fugu_cli.coordinators.conductor.planner import same_job
from fugu_cli.session import views
from fugu_cli.session.events import Assigned, Exclusion, Finished, Member
from fugu_cli.session.state import SessionState

_CHOICE = re.compile(r"^\W*CHOOSE\W+(\d+)", re.IGNORECASE | re.MULTILINE)


def group_merge(
    state: SessionState, flow: views.Workflow, group: Sequence[views.Turn], *, lost: bool
) -> MergeTurns | None:
    """Return how to merge the closed turns of a group, None if that is done or waits for its
    merging step.

    `lost`: the workflow cannot go on, so no other step will begin.
    """
    turns = tuple(turn.number for turn in group)
    made = [merge for merge in state.request.merges if merge.turns == turns]
    if made and not made[-1].open:
        return None
    if made:
        return _merge_by_choice(flow, turns, [turn for turn, _ in made[-1].diffs], lost=lost)
    best, why = _best_by_tests(state, group)
    chooser = _merging_step(flow, group)
    if len(best) > 1 and not lost and chooser is not None:
        return MergeTurns(
            flow.number, turns, 0, f"{why}; step {chooser + 1} chooses", True, tuple(best)
        )
    return MergeTurns(flow.number, turns, best[0] if best else 0, why)


def _merge_by_choice(
    flow: views.Workflow, turns: tuple[int, ...], among: Sequence[int], *, lost: bool
) -> MergeTurns | None:
    """The merging step's word, once it has spoken."""
    group = [turn for turn in flow.turns if turn.number in turns]
    step = _merging_step(flow, group)
    spoke = [turn for turn in flow.tries(step) if views.is_done(turn)] if step is not None else []
    if not spoke and lost and step is not None:
        return MergeTurns(
            flow.number, turns, among[0], f"step {step + 1} came to nothing: the first one"
        )
    if not spoke:
        return (
            None if step is not None else MergeTurns(flow.number, turns, among[0], "the first one")
        )
    turn, place = spoke[-1], spoke[-1].assigned.step + 1
    if turn.changes:
        return MergeTurns(flow.number, turns, 0, f"step {place} wrote its own from what it read")
    named = [int(number) for number in _CHOICE.findall(turn.text) if int(number) in among]
    if named:
        return MergeTurns(
            flow.number, turns, named[0], f"chosen by {turn.assigned.agent} in step {place}"
        )
    return MergeTurns(
        flow.number, turns, among[0], f"step {place} named none of them: the first one"
    )


def _best_by_tests(state: SessionState, group: Sequence[views.Turn]) -> tuple[list[int], str]:
    """The turns whose changes are worth having, by the tests where they were run, and why. A call
    that was killed may have changed something."""
    changed = [
        turn
        for turn in group
        if views.is_done(turn) and (turn.changes or views.interrupted_calls(turn))
    ]
    if not changed:
        return [], "nobody changed anything"
    runs = {turn.number: views.tests(state.of_turn(turn.number).events) for turn in changed}
    passing = [number for number, run in runs.items() if run is not None and run.passes]
    if passing:
        return passing, f"the tests pass for {len(passing)} of {len(group)}"
    known = {
        number: run.failed
        for number, run in runs.items()
        if run is not None and run.failed is not None
    }
    if not known:
        return [turn.number for turn in changed], "no tests decide"
    fewest = min(known.values())
    return [
        number for number, count in known.items() if count == fewest
    ], f"the fewest tests fail ({fewest})"


def _merging_step(flow: views.Workflow, group: Sequence[views.Turn]) -> int | None:
    """The first later step that reads every step of the group."""
    steps = {turn.assigned.step for turn in group}
    for place, step in enumerate(flow.planned.steps):
        if (
            place > max(steps)
            and not step.plans
            and (step.access == "all" or steps <= set(step.access))
        ):
            return place
    return None


STEP_TRIES = 2
"""Agents that may fail at a step before it is lost."""
WORKTREE = "worktree"
"""`Assigned.worktree` as decided; the loop puts the folder there."""
_JUDGES = re.compile(
    r"^\W*(?:please\s+)?(verify|check|review|judge|confirm|validate|test|ensure|run)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class AvailableAgents:
    """The members of the pool, and those that cannot act now with the reason."""

    members: tuple[Member, ...]
    out: dict[str, Exclusion]

    def able(self) -> list[Member]:
        """The strongest first."""
        return [
            member for member in reversed(by_strength(self.members)) if member.name not in self.out
        ]


def finished_steps(state: SessionState, flow: views.Workflow) -> set[int]:
    """Steps that have an output."""
    found = state.request.workflows
    return {
        place
        for place in range(len(flow.planned.steps))
        if views.step_output(found, flow.number, place) is not None
    } - _with_open_subworkflow(state, flow)


def _with_open_subworkflow(state: SessionState, flow: views.Workflow) -> set[int]:
    """Steps whose own workflow has an output already and more steps to do."""
    found = state.request.workflows
    open_now: set[int] = set()
    for child in found:
        within = child.planned.within
        if within is not None and within[0] == flow.number and not flow.tries(within[1]):
            rest = set(range(len(child.planned.steps))) - finished_steps(state, child)
            if rest and not _failed_for_good(child, rest):
                open_now.add(within[1])
    return open_now


def _failed_for_good(flow: views.Workflow, rest: set[int]) -> bool:
    return any(len(_failed(flow, place)) >= STEP_TRIES for place in rest)


def _failed(flow: views.Workflow, place: int) -> list[views.Turn]:
    """A step's turns that came to nothing; one that the user cut is not held against it."""
    return [turn for turn in flow.tries(place) if not views.is_done(turn) and not turn.interrupted]


def ready_steps(state: SessionState, flow: views.Workflow) -> list[int]:
    """Steps without an output all of whose sources have one."""
    done = finished_steps(state, flow)
    return [
        place
        for place, step in enumerate(flow.planned.steps)
        if place not in done and all(source in done for source in _sources(place, step.access))
    ]


def _sources(place: int, access: tuple[int, ...] | str) -> tuple[int, ...]:
    return tuple(range(place)) if isinstance(access, str) else access


def failure_of(state: SessionState, flow: views.Workflow, team: AvailableAgents) -> str:
    """Why the workflow cannot go on, "" while it can: a step came to nothing twice, or nobody else
    is left for it.
    """
    done = finished_steps(state, flow)
    for place in range(len(flow.planned.steps)):
        failed = _failed(flow, place)
        if place in done or not failed:
            continue
        others = [
            member
            for member in team.able()
            if member.name not in {t.assigned.agent for t in failed}
        ]
        if len(failed) >= STEP_TRIES or not others:
            return f"step {place + 1} failed: " + "; ".join(
                f"{t.assigned.agent}: {_failure_text(t)}" for t in failed
            )
    return ""


def _failure_text(turn: views.Turn) -> str:
    if turn.failed:
        return turn.failed.message
    if turn.unable is not None:
        return f"it said that it cannot do this: {turn.unable}"
    if not (turn.replies and views.final_text(turn)):
        return "it said and did nothing"
    return "it refused" if turn.replies[-1].stop == "refusal" else "it did not come to an end"


def next_steps(
    state: SessionState, flow: views.Workflow, places: Sequence[int], team: AvailableAgents
) -> ParallelTurns | Finished:
    """The steps that begin now."""
    steps = flow.planned.steps
    own = [place for place in places if not steps[place].plans or flow.tries(place)]
    if not any(member for member in team.able()):
        return action_space.finish_without_agents(state, team.out)
    apart = _same_jobs(state, flow, own)
    chosen = {place: _agent_for(flow, place, team) for place in own}
    first = action_space.next_turn_number(state)
    return ParallelTurns(
        tuple(
            _assigned(state, flow, (place, first + index), chosen[place], apart=place in apart)
            for index, place in enumerate(own)
        )
    )


def single_step(
    state: SessionState, flow: views.Workflow, place: int, team: AvailableAgents, why: str
) -> ParallelTurns | Finished:
    """A step that was to be a workflow, done as one turn."""
    if not team.able():
        return next_steps(state, flow, [place], team)
    member, reason = _agent_for(flow, place, team)
    said = f"{reason} [not planned further: {why}]"
    return ParallelTurns(
        (_assigned(state, flow, (place, action_space.next_turn_number(state)), (member, said)),)
    )


def _agent_for(flow: views.Workflow, place: int, team: AvailableAgents) -> tuple[Member, str]:
    """The agent the plan names, or another one where that one failed or is out; with the words for
    the trace.
    """
    step = flow.planned.steps[place]
    able = {member.name: member for member in team.able()}
    failed = [turn.assigned.agent for turn in _failed(flow, place)]
    title = f"step {place + 1} of {len(flow.planned.steps)}"
    if step.agent in able and step.agent not in failed:
        return able[step.agent], title
    other = next(
        (member for name, member in able.items() if name not in failed), next(iter(able.values()))
    )
    why = (
        "failed at it"
        if step.agent in failed
        else f"is out: {team.out.get(step.agent, 'not in the pool')}"
    )
    return other, f"{title}; {step.agent} {why}"


def _same_jobs(state: SessionState, flow: views.Workflow, places: Sequence[int]) -> set[int]:
    """Return the steps that share their job with another one."""
    request = state.request.asked
    if request is None or request.snapshot is None:
        return set()
    steps = flow.planned.steps
    every = [place for place in range(len(steps)) if not steps[place].plans]
    return {a for a in places for b in every if a != b and same_job(steps, a, b)}


def merge_due(
    state: SessionState, flow: views.Workflow, team: AvailableAgents
) -> MergeTurns | None:
    """A group of worktrees all of whose steps are over, and that is not yet merged."""
    over = bool(failure_of(state, flow, team))
    done = finished_steps(state, flow)
    steps = flow.planned.steps
    seen: set[int] = set()
    for place in range(len(steps)):
        group = [
            other for other in range(len(steps)) if other == place or same_job(steps, place, other)
        ]
        if place in seen or len(group) < 2:
            continue
        seen |= set(group)
        turns = [
            turn for turn in flow.turns if turn.assigned.step in group and turn.assigned.worktree
        ]
        if turns and all(
            other in done or len(_failed(flow, other)) >= STEP_TRIES for other in group
        ):
            merge = group_merge(state, flow, turns, lost=over)
            if merge is not None:
                return merge
    return None


def _assigned(
    state: SessionState,
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
        sees=_sees(state, flow, step),
        plan=flow.number,
        step=step,
        worktree=WORKTREE if apart else "",
    )


def _sees(state: SessionState, flow: views.Workflow, place: int) -> tuple[int, ...]:
    """The turns whose words the access list opens; in a later round `all` opens those of the rounds
    before, too.
    """
    found = state.request.workflows
    access = flow.planned.steps[place].access
    opened = [
        views.visible_output(found, flow.number, source) for source in _sources(place, access)
    ]
    if access == "all" and flow.planned.within is None:
        before = [
            one
            for one in found
            if one.planned.within is None and one.planned.round < flow.planned.round
        ]
        earlier = [
            views.visible_output(found, one.number, s)
            for one in before
            for s in range(len(one.planned.steps))
        ]
        opened = [*earlier, *opened]
    return tuple(turn.number for turn in opened if turn is not None)


def is_judging(instruction: str) -> bool:
    """A step with this instruction is to judge what others did."""
    return _JUDGES.search(instruction) is not None
