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
from fugu_cli.coordinators.conductor.outputs import readable_outputs
from fugu_cli.coordinators.conductor.plan_steps import name_same_file, same_job, shares_job
from fugu_cli.session.events import (
    Assigned,
    Exclusion,
    Finished,
    Member,
    Merged,
)
from fugu_cli.session.state import SessionState
from fugu_cli.session.turns import Turn, interrupted_calls
from fugu_cli.session.workflows import (
    Workflow,
    final_text,
    is_done,
    named_choice,
    step_name,
    step_output,
)


def group_merge(
    state: SessionState, workflow: Workflow, group: Sequence[Turn], *, lost: bool
) -> MergeTurns | None:
    """Return how to merge the closed turns of a group, None if that is done already or a merging
    step will choose. `lost`: the workflow cannot go on, so no further step will begin.
    """
    turns = tuple(turn.number for turn in group)
    made = [merge for merge in state.request.merges if merge.turns == turns]
    if made and not made[-1].open:
        return None
    if made:
        among = [turn for turn, _ in made[-1].diffs]
        return _merge_by_choice(state, workflow, turns, among, lost=lost)
    best, why = _best_by_tests(state, group)
    chooser = _merging_step(workflow, group)
    if len(best) > 1 and not lost and chooser is not None:
        return MergeTurns(
            workflow.number, turns, 0, f"{why}; step {chooser + 1} chooses", True, tuple(best)
        )
    return MergeTurns(workflow.number, turns, best[0] if best else 0, why)


def _merge_by_choice(
    state: SessionState,
    workflow: Workflow,
    turns: tuple[int, ...],
    among: Sequence[int],
    *,
    lost: bool,
) -> MergeTurns | None:
    """Return the merge that the merging step chose, None if that step has not finished. If the step
    made no choice, the first of the turns `among` is taken.
    """

    def merge(chosen: int, reason: str) -> MergeTurns:
        return MergeTurns(workflow.number, turns, chosen, reason)

    group = [turn for turn in workflow.turns if turn.number in turns]
    step = _merging_step(workflow, group)
    if step is None:
        return merge(among[0], "the first one")
    finished = [turn for turn in workflow.tries(step) if is_done(turn)]
    if not finished:
        return merge(among[0], f"step {step + 1} came to nothing: the first one") if lost else None
    turn = finished[-1]
    label = f"step {turn.assigned.step + 1}"
    if turn.changes:
        return merge(0, f"{label} wrote its own from what it read")
    choice = named_choice(turn)
    for number in among:
        if change_name(state, number) == choice:
            return merge(number, f"chosen by {turn.assigned.agent} in {label}")
    return merge(among[0], f"{label} named none of them: the first one")


def _best_by_tests(state: SessionState, group: Sequence[Turn]) -> tuple[list[int], str]:
    """Return the turns whose changes are worth taking over, according to the tests if they were
    run, and the reason. A call that was killed may have changed something.
    """
    changed = [
        turn for turn in group if is_done(turn) and (turn.changes or interrupted_calls(turn))
    ]
    if not changed:
        return [], "nobody changed anything"
    runs = {turn.number: state.of_turn(turn.number).request.tests for turn in changed}
    passing = [number for number, run in runs.items() if run is not None and run.passes]
    if passing:
        return passing, f"the tests pass for {len(passing)} of {len(group)}"
    failed_counts = {
        number: run.failed
        for number, run in runs.items()
        if run is not None and run.failed is not None
    }
    if not failed_counts:
        return [turn.number for turn in changed], "no tests decide"
    fewest = min(failed_counts.values())
    return [
        number for number, count in failed_counts.items() if count == fewest
    ], f"the fewest tests fail ({fewest})"


def change_name(state: SessionState, number: int) -> str:
    """Return the name of the step whose change a turn made in a copy."""
    turns = {turn.number: turn for turn in state.request.turns}
    step = turns[number].assigned
    return step_name(state.request.workflows, step.plan, step.step)


def _merging_step(workflow: Workflow, group: Sequence[Turn]) -> int | None:
    """Return the first later step that reads every step of the group."""
    steps = {turn.assigned.step for turn in group}
    for index, step in enumerate(workflow.planned.steps):
        if index <= max(steps) or step.plans:
            continue
        if step.access == "all" or steps <= set(step.access):
            return index
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
    excluded: dict[str, Exclusion]

    def able(self) -> list[Member]:
        """Return the agents that may act, the strongest first."""
        return [
            member
            for member in reversed(by_strength(self.members))
            if member.name not in self.excluded
        ]


def finished_steps(state: SessionState, workflow: Workflow) -> set[int]:
    """Return the steps that have an output."""
    workflows = state.request.workflows
    return {
        step
        for step in range(len(workflow.planned.steps))
        if step_output(workflows, workflow.number, step) is not None
    } - _partly_done(state, workflow)


def _partly_done(state: SessionState, workflow: Workflow) -> set[int]:
    """Return the steps that were divided and are not completed yet, neither by their parts nor by
    one agent.
    """
    partly_done: set[int] = set()
    for child in state.request.workflows:
        within = child.planned.within
        if within is None or within.plan != workflow.number:
            continue
        rest = set(range(len(child.planned.steps))) - finished_steps(state, child)
        if rest and not any(is_done(turn) for turn in workflow.tries(within.step)):
            partly_done.add(within.step)
    return partly_done


def _failed(workflow: Workflow, step: int) -> list[Turn]:
    """Return a step's turns without a result. Turns that the user cut do not count."""
    return [turn for turn in workflow.tries(step) if not is_done(turn) and not turn.interrupted]


def ready_steps(state: SessionState, workflow: Workflow) -> list[int]:
    """Return the steps without an output whose sources all have one."""
    done = finished_steps(state, workflow)
    return [
        index
        for index, step in enumerate(workflow.planned.steps)
        if index not in done and all(source in done for source in _sources(index, step.access))
    ]


def _sources(step: int, access: tuple[int, ...] | str) -> tuple[int, ...]:
    return tuple(range(step)) if isinstance(access, str) else access


def failure_of(state: SessionState, workflow: Workflow, team: AvailableAgents) -> str:
    """Return why the workflow cannot go on, "" if it can: a step failed twice, or no other agent is
    left for it.
    """
    done = finished_steps(state, workflow)
    for step in range(len(workflow.planned.steps)):
        failed = _failed(workflow, step)
        if step in done or not failed:
            continue
        others = [
            member
            for member in team.able()
            if member.name not in {turn.assigned.agent for turn in failed}
        ]
        if len(failed) >= STEP_TRIES or not others:
            return f"step {step + 1} failed: " + "; ".join(
                f"{turn.assigned.agent}: {_failure_text(turn)}" for turn in failed
            )
    return ""


def _failure_text(turn: Turn) -> str:
    if turn.failed:
        return turn.failed.message
    if turn.unable is not None:
        return f"it said that it cannot do this: {turn.unable}"
    if not (turn.replies and final_text(turn)):
        return "it said and did nothing"
    return "it refused" if turn.replies[-1].stop == "refusal" else "it did not come to an end"


def next_steps(
    state: SessionState, workflow: Workflow, indexes: Sequence[int], team: AvailableAgents
) -> ParallelTurns | Finished:
    """Return the steps that begin now."""
    if not team.able():
        return action_space.finish_without_agents(state, team.excluded)
    steps = workflow.planned.steps
    own = [index for index in indexes if not steps[index].plans or workflow.tries(index)]
    request = state.request.asked
    in_copies: set[int] = set()
    if request is not None and request.snapshot is not None:  # else no copy can be made
        in_copies = {index for index in own if shares_job(steps, index)}
        in_copies |= _separate_writers(state, workflow, own)
    number = action_space.next_turn_number(state)
    assignments: list[Assigned] = []
    for index in own:
        member, reason = _agent_for(state, workflow, index, team)
        assignments.append(
            _assignment(
                state,
                workflow,
                index,
                turn=number + len(assignments),
                agent=member.name,
                reason=reason,
                in_worktree=index in in_copies,
            )
        )
    return ParallelTurns(tuple(assignments))


def single_step(
    state: SessionState, workflow: Workflow, step: int, team: AvailableAgents, why: str
) -> ParallelTurns | Finished:
    """Return the assignment of a step to one agent, instead of the workflow that was planned for
    it.
    """
    if not team.able():
        return next_steps(state, workflow, [step], team)
    member, reason = _agent_for(state, workflow, step, team)
    assignment = _assignment(
        state,
        workflow,
        step,
        turn=action_space.next_turn_number(state),
        agent=member.name,
        reason=f"{reason} [not planned further: {why}]",
    )
    return ParallelTurns((assignment,))


def _agent_for(
    state: SessionState, workflow: Workflow, index: int, team: AvailableAgents
) -> tuple[Member, str]:
    """Return the agent that the plan names, or another one if that agent failed, is excluded, or
    would judge its own work; and a reason for the trace.
    """
    step = workflow.planned.steps[index]
    able = {member.name: member for member in team.able()}
    failed = [turn.assigned.agent for turn in _failed(workflow, index)]
    untried = [member for name, member in able.items() if name not in failed]
    authors = state.request.authors if step.accepts else ()
    candidates = [member for member in untried if member.name not in authors] or untried
    title = f"step {index + 1} of {len(workflow.planned.steps)}"
    if able.get(step.agent) in candidates:
        return able[step.agent], title
    substitute = candidates[0] if candidates else next(iter(able.values()))
    if step.agent in failed:
        why = "failed at it"
    elif step.agent in able:
        why = "wrote some of the work"
    else:
        why = f"is out: {team.excluded.get(step.agent, 'not in the pool')}"
    return substitute, f"{title}; {step.agent} {why}"


def _separate_writers(state: SessionState, workflow: Workflow, indexes: Sequence[int]) -> set[int]:
    """Return the steps that run at once, each in a copy, because they name different files. A step
    that was done in a copy before is done again in the repository.
    """
    steps = workflow.planned.steps
    again = {
        turn.assigned.step
        for turn in state.request.turns
        if turn.assigned.plan == workflow.number and turn.assigned.worktree
    }
    writers = [index for index in indexes if steps[index].files and index not in again]
    separate = {
        index
        for index in writers
        if not any(
            name_same_file(steps[index].files, steps[each].files)
            for each in writers
            if each != index
        )
    }
    return separate if len(separate) > 1 else set()


def _separate_merge(state: SessionState, workflow: Workflow) -> MergeTurns | None:
    """Return how to merge the next finished copy of a step that named its files. It is taken over,
    or done again if it wrote a file of a step that ran at the same time.
    """
    steps = workflow.planned.steps
    merged = {number: merge for merge in state.request.merges for number in merge.turns}
    copies = [
        turn
        for turn in workflow.turns
        if turn.assigned.worktree
        and steps[turn.assigned.step].files
        and not shares_job(steps, turn.assigned.step)
    ]
    for turn in copies:
        if turn.number in merged or not is_done(turn):
            continue
        for neighbour in copies:
            started_together = neighbour.assigned.snapshot == turn.assigned.snapshot
            if neighbour is turn or not started_together:
                continue
            files = steps[neighbour.assigned.step].files
            if neighbour.number in merged:
                files = (*files, *(change.path for change in merged[neighbour.number].changes))
            written = sorted(
                {change.path for change in turn.changes if name_same_file([change.path], files)}
            )
            if written:
                name = change_name(state, neighbour.number)
                why = f"it wrote {', '.join(written)}, a file of {name}"
                return MergeTurns(workflow.number, (turn.number,), 0, why, again=True)
        why = "it was done in a copy, beside other steps"
        return MergeTurns(workflow.number, (turn.number,), turn.number, why)
    return None


def merge_due(state: SessionState, workflow: Workflow, team: AvailableAgents) -> MergeTurns | None:
    """Return how to merge copies whose steps have ended: several copies of the same job, or one
    copy whose step named its files. None if nothing is to be merged.
    """
    if (separate := _separate_merge(state, workflow)) is not None:
        return separate
    lost = bool(failure_of(state, workflow, team))
    done = finished_steps(state, workflow)
    steps = workflow.planned.steps
    grouped: set[int] = set()
    for step in range(len(steps)):
        group = [
            member
            for member in range(len(steps))
            if member == step or same_job(steps, step, member)
        ]
        if step in grouped or len(group) < 2:
            continue
        grouped |= set(group)
        turns = [
            turn
            for turn in workflow.turns
            if turn.assigned.step in group and turn.assigned.worktree
        ]
        if turns and all(
            member in done or len(_failed(workflow, member)) >= STEP_TRIES for member in group
        ):
            merge = group_merge(state, workflow, turns, lost=lost)
            if merge is not None:
                return merge
    return None


def _assignment(
    state: SessionState,
    workflow: Workflow,
    step: int,
    *,
    turn: int,
    agent: str,
    reason: str,
    in_worktree: bool = False,
) -> Assigned:
    """Return the assignment of a step of the workflow to an agent."""
    planned = workflow.planned.steps[step]
    member = state.pool.get(agent)
    can_judge = member is None or member.protocol == "native"
    judges = planned.accepts and can_judge and not state.served
    outputs = readable_outputs(state.request.workflows, workflow, step)
    sees = tuple(dict.fromkeys(turn.number for turn in outputs.values()))
    return Assigned(
        turn=turn,
        agent=agent,
        role="verifier" if judges else "worker",
        by="conductor",
        reason=reason,
        instruction=planned.instruction,
        sees=sees,
        plan=workflow.number,
        step=step,
        choices=_choices(state, workflow, sees),
        worktree=WORKTREE if in_worktree else "",
    )


def _choices(state: SessionState, workflow: Workflow, sees: Sequence[int]) -> tuple[str, ...]:
    """Return the names of the changes among which a step chooses: those of an open merge, if the
    step reads the outputs of all of them.
    """
    newest: dict[tuple[int, ...], Merged] = {}
    for merge in state.request.merges:
        if merge.plan == workflow.number:
            newest[merge.turns] = merge
    for merge in reversed(newest.values()):
        numbers = [number for number, _ in merge.diffs]
        if merge.open and all(number in sees for number in numbers):
            return tuple(change_name(state, number) for number in numbers)
    return ()


def is_judging(instruction: str) -> bool:
    """Return whether a step with this instruction is to judge what others did."""
    return _JUDGES.search(instruction) is not None
