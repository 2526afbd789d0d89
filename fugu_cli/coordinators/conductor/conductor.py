"""The Conductor as a coordinator: it asks for a workflow, follows it, and says when the request is
over. Where no workflow can be had, the turn-by-turn coordinator takes over and every decision says
why. A function of the log; it runs nothing itself.

Departures from the paper: steps that do not read one another run at the same time; where the tests
that judge the request pass, no second round is asked for; a step that is a workflow is bounded by
depth and counts towards the turns.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fugu_cli.coordinators import (
    AskPlanner,
    Coordinator,
    CoordinatorSettings,
    Decision,
    RunSuite,
    action_space,
)
from fugu_cli.coordinators.action_space import SLOTS, by_strength
from fugu_cli.coordinators.conductor import scheduling
from fugu_cli.coordinators.conductor.outputs import outside_outputs
from fugu_cli.coordinators.conductor.plan_lists import InvalidPlan
from fugu_cli.coordinators.conductor.plan_steps import PlanLimits, parse_workflow
from fugu_cli.coordinators.conductor.planner import PlanTask, planner_feedback, planner_prompt
from fugu_cli.coordinators.conductor.scheduling import AvailableAgents
from fugu_cli.formatting import plural
from fugu_cli.messages import Reply
from fugu_cli.session.events import (
    BUDGET,
    AcceptedBy,
    Assigned,
    Exclusion,
    Failed,
    Finished,
    Member,
    Opened,
    OuterStep,
    Planned,
    WorkflowStep,
)
from fugu_cli.session.state import SessionState
from fugu_cli.session.turns import Turn, verdict_of
from fugu_cli.session.workflows import Workflow, is_done, step_prefix

_ACCEPT = re.compile(r"\baccept\b", re.IGNORECASE)
CONTINUE_HINT = "`fugu run --continue` goes on from here."


def suite_due(state: SessionState) -> RunSuite | None:
    """Return a run of the tests if files changed since the last run, or since the acceptance checks
    ran; else None.
    """
    request, run = state.request, state.request.tests
    has_tests = request.asked is not None and request.asked.test_command is not None
    tests_stale = bool(request.changes) and (run is None or run.stale)
    if has_tests and not request.tests_skipped and tests_stale:
        return RunSuite()
    return RunSuite() if any(check.stale for check in request.unmet_checks) else None


def tests_pass(state: SessionState) -> bool:
    """Return whether the tests pass after a change and nothing else speaks against the work."""
    run = state.request.tests
    return (
        run is not None
        and run.passes
        and bool(state.request.changes)
        and not state.request.acceptance_blocker
    )


def turns_taken(session: SessionState) -> int:
    """Count the turns of a round, with those of workflows inside it. Turns that failed, were cut,
    gave up or are done again do not count.
    """
    taken = 0
    thrown_away = {
        number for merge in session.request.merges if merge.again for number in merge.turns
    }
    counting = {
        turn.number
        for turn in session.request.turns
        if is_done(turn) and turn.number not in thrown_away
    }
    for event in session.request.events:
        if isinstance(event, Opened) or (isinstance(event, Planned) and event.within is None):
            taken = 0
        elif event.type == "assigned" and event.turn in counting:
            taken += 1
    return taken


def turn_limit_end(session: SessionState, settings: CoordinatorSettings) -> Finished | None:
    """Return the end of a round that has used up its turns, None if it may have another one."""
    taken = turns_taken(session)
    if taken < settings.turns:
        return None
    state = " The tests pass." if tests_pass(session) else ""
    turns = f"{taken} turn{'' if taken == 1 else 's'}"
    message = f"stopped after {turns} of a workflow that is not at its end.{state} {CONTINUE_HINT}"
    return Finished(reason="turn_limit", message=message)


def reopened(state: SessionState) -> bool:
    """Return whether the request was stopped after its newest plan and opened again: there may be
    one more round.
    """
    for event in reversed(state.request.events):
        if isinstance(event, Planned | Opened):
            return isinstance(event, Opened)
    return False


def workflow_end(
    state: SessionState, settings: CoordinatorSettings, *, kept: bool = False, note: str = ""
) -> Finished:
    """Return the end of a request whose last workflow is over. `kept`: the planner looked at the
    result and kept it.
    """
    summary = _carried_out(state)
    if note:
        summary += f"; {note}"
    if blocker := state.request.acceptance_blocker:
        sentence = blocker[0].upper() + blocker[1:]
        return Finished(reason="unaccepted", message=f"{summary}. {sentence}. {CONTINUE_HINT}")
    turn = state.request.answering_turn
    reviewed = None
    if (reviewer := _reviewer(state)) is not None:
        agent = reviewer.assigned.agent
        is_author = agent in state.request.authors
        accepted_by: AcceptedBy = "author" if is_author else "verifier"
        reviewed = action_space.accepted_end(accepted_by, agent, summary)
    if _revision_wanted(state) and not kept:
        return Finished(
            reason="unaccepted",
            message=f"{summary}; the agent that judged the work wants a revision. {CONTINUE_HINT}",
        )
    if tests_pass(state):
        return reviewed or action_space.accepted_end("tests", what=summary)
    if turn is None:
        return Finished(reason="failed", message=f"{summary}; no step said or did anything")
    if kept:
        planner = state.request.plans[-1].agent
        return reviewed or action_space.accepted_end("planner", planner, summary)
    if turn.concluded and not settings.verify_answers and _changed_nothing(state):
        return Finished(reason="answered", message=summary)
    if reviewed is not None:
        return reviewed
    return Finished(
        reason="unaccepted", message=f"{summary}; nobody accepted the result. {CONTINUE_HINT}"
    )


def _changed_nothing(state: SessionState) -> bool:
    """Return whether nothing was changed, and no change of a worktree was left out."""
    return not state.request.is_work and not any(merge.left for merge in state.request.merges)


def _accepts(state: SessionState, turn: Turn) -> bool:
    """Return whether the turn's verdict accepts the work: its step is to judge, it changed nothing,
    and it read the reports of those who changed something, directly or not.
    """
    if turn.changes or verdict_of(turn.text) != "ACCEPT":
        return False
    if turn.assigned.role == "verifier":  # it was shown the whole diff
        return True
    may_accept = _planned_step(state, turn).accepts
    if may_accept is None:
        may_accept = _judges_in_words(turn)
    return bool(may_accept) and _read_all_changes(state, turn)


def _planned_step(state: SessionState, turn: Turn) -> WorkflowStep:
    workflows = state.request.workflows
    workflow = next(workflow for workflow in workflows if workflow.number == turn.assigned.plan)
    return workflow.planned.steps[turn.assigned.step]


def _judges_in_words(turn: Turn) -> bool:
    """Return whether the instruction of a step in the papers' form, which has no field for it, asks
    for a judgement. The word alone is not enough, because anybody may write of accepted formats.
    """
    task = turn.assigned.instruction
    is_judging = scheduling.is_judging(task) or _ACCEPT.search(task) is not None
    return is_judging and _ACCEPT.search(turn.text) is not None


def _read_all_changes(state: SessionState, turn: Turn) -> bool:
    turns = {turn_made.number: turn_made for turn_made in state.request.turns}
    read, more = set[int](), {turn.number}
    while more:
        read |= more
        sees = (turns[number].assigned.sees for number in more if number in turns)
        more = {
            number
            for turns_seen in sees
            if not isinstance(turns_seen, str)
            for number in turns_seen
        } - read
    changed = {
        turn_made.number
        for turn_made in turns.values()
        if turn_made.changes and not turn_made.assigned.worktree
    }
    return changed | {merge.chosen for merge in state.request.merges if merge.changes} <= read


def _newest_judging_turn(state: SessionState) -> Turn | None:
    """Return the newest step that judged the work; None if there is none or the work was changed
    since.
    """
    for turn in reversed(state.request.turns):
        if turn.changes:
            return None
        if turn.assigned.plan and turn.assigned.role == "verifier" and is_done(turn):
            return turn
    return None


def _revision_wanted(state: SessionState) -> bool:
    turn = _newest_judging_turn(state)
    return turn is not None and verdict_of(turn.text) == "REVISE"


def _reviewer(state: SessionState) -> Turn | None:
    """Return the turn that accepted the work as it is now, None if no turn did."""
    candidates = (_newest_judging_turn(state), state.request.answering_turn)
    return next((turn for turn in candidates if turn is not None and _accepts(state, turn)), None)


def _carried_out(state: SessionState) -> str:
    """Return `a workflow of 3 steps` or `2 workflows, 5 steps in all`. Workflows inside others
    count with their steps, and a step that several agents did counts once.
    """
    assignments = [turn.assigned for turn in state.request.turns if turn.assigned.plan]
    steps = len({(assignment.plan, assignment.step) for assignment in assignments})
    rounds = sum(workflow.planned.within is None for workflow in state.request.workflows)
    if rounds > 1:
        return f"{rounds} workflows, {steps} steps in all"
    return f"a workflow of {plural(steps, 'step')}"


PLAN_TRIES = 2
"""Replies of the planner for one workflow: the first, and one after it was told what is wrong."""
MOST_REFUSED = 2
"""Steps whose requests an agent's server may refuse before the agent is out."""
UNPLANNED = "[no workflow:"
"""The start of a reason why the turn-by-turn coordinator decides instead of a workflow."""


@dataclass(frozen=True)
class ConductorSettings:
    """The user's settings.

    The planner's name ("" for the strongest agent), steps of a workflow, rounds, how deep a planner
    may plan steps of its own, how many agents it is offered, and whether it may be one of them.
    `paper_format`: it was trained on the papers' form, numbers and three lists.
    """

    agent: str = ""
    steps: int = 5
    rounds: int = 2
    depth: int = 1
    agents: int = 3
    works: bool = True
    paper_format: bool = False


def planning_agent(
    bounds: ConductorSettings, members: Sequence[Member], excluded: Mapping[str, Exclusion]
) -> Member | str:
    """Return the agent that plans now, or why none does."""
    if bounds.agent in excluded:
        return f"the planner {bounds.agent} is out: {excluded[bounds.agent]}"
    names = {bounds.agent} if bounds.agent else {m.name for m in members} - excluded.keys()
    able = [member for member in by_strength(members) if member.name in names]
    return able[-1] if able else "nobody is left to plan"


def offered_agents(
    bounds: ConductorSettings, members: Sequence[Member], excluded: Mapping[str, Exclusion]
) -> tuple[str, ...]:
    """Return the strongest agents, one of each slot first. The number is small, because a prompted
    planner does worse over a large pool.
    """
    only_plans = "" if bounds.works else bounds.agent
    able = [
        member
        for member in reversed(by_strength(members))
        if member.name not in excluded and member.name != only_plans
    ]
    strongest_of_slot = {member.slot: member for member in reversed(able)}
    first = [strongest_of_slot[slot] for slot in reversed(SLOTS) if slot in strongest_of_slot]
    ranked = dict.fromkeys(member.name for member in (*first, *able))
    chosen = list(ranked)[: bounds.agents]
    return tuple(member.name for member in members if member.name in chosen)


def _depth(state: SessionState, within: OuterStep | None) -> int:
    """Return the number of workflows around this one."""
    plans, depth = state.request.plans, 0
    while within is not None:
        depth += 1
        within = plans[within.plan - 1].within
    return depth


class Conductor:
    """Plans once in each round, and reads the plan back from the log."""

    def __init__(
        self,
        members: Sequence[Member],
        bounds: ConductorSettings,
        settings: CoordinatorSettings,
        turn_by_turn: Coordinator,
    ) -> None:
        self._members = tuple(members)
        self._bounds = bounds
        self._settings = settings
        self._fallback = turn_by_turn

    async def decide(self, state: SessionState) -> Decision:
        """Return the next step of the newest request. In plan mode the planner makes a plan in
        words, and no workflow.
        """
        if state.request.asks_for_plan and not state.request.plans:
            return await self._plan_in_words(state)
        if any(turn.assigned.plan == 0 for turn in state.request.turns):
            return await self._turn_by_turn(state, "")
        end = action_space.end_without_agents(state)
        if end is not None and self._excluded(state).keys() == state.request.failed_agents.keys():
            return end
        rounds = [plan for plan in state.request.plans if plan.within is None]
        number = max((plan.round for plan in rounds), default=1)
        plan = self._planned(state, None, number)
        if isinstance(plan, AskPlanner):
            return plan
        if isinstance(plan, str) and number == 1:
            return await self._turn_by_turn(state, plan)
        if isinstance(plan, str) or not plan.steps:
            if reopened(state):
                next_round = self._ask(state, None, number + 1, None)
                if isinstance(next_round, AskPlanner):
                    return next_round
            if not isinstance(plan, str):
                return workflow_end(state, self._settings, kept=True)
            note = f"the next workflow cannot be had ({plan})"
            if fault := self._fault(state, rounds):
                return await self._turn_by_turn(state, f"{fault}; {note}")
            return workflow_end(state, self._settings, kept=False, note=note)
        workflow = next(
            workflow for workflow in reversed(state.request.workflows) if workflow.planned is plan
        )
        return self._advance(state, workflow) or await self._over(state, workflow)

    def _fault(self, state: SessionState, rounds: Sequence[Planned]) -> str:
        """Return the reason why the newest round's workflow cannot go on, "" if it came to its end."""
        for workflow in reversed(state.request.workflows):
            if any(workflow.planned is plan for plan in rounds):
                return scheduling.failure_of(state, workflow, self._team(state))
        return ""

    def _planned(
        self, state: SessionState, within: OuterStep | None, number: int
    ) -> Planned | AskPlanner | str:
        """Return the plan of a round, the question for it, or why there is none."""
        tries = [
            plan for plan in state.request.plans if plan.within == within and plan.round == number
        ]
        if tries and not tries[-1].fault:
            return tries[-1]
        if len(tries) >= PLAN_TRIES:
            return tries[-1].fault
        return self._ask(state, within, number, tries[-1] if tries else None)

    def _ask(
        self,
        state: SessionState,
        within: OuterStep | None,
        number: int,
        refused: Planned | None,
    ) -> AskPlanner | str:
        excluded = self._excluded(state)
        planner = planning_agent(self._bounds, self._members, _unable_to_plan(state, excluded))
        if isinstance(planner, str):
            return planner
        if refused is not None:
            models = refused.models
        else:
            models = offered_agents(self._bounds, self._members, excluded)
        if not models:
            return "no agent is left to be planned for"
        # An embedded planner may not name itself: it counts the models up, itself included, and
        # copies what it reads into a workflow inside (tests/benchmarks/results/conductor.md).
        turns_left = self._turns_left(state, within)
        if within is not None and turns_left < 2:
            return "the turn limit leaves it one turn"
        nests = planner.provider != "local" and _depth(state, within) < self._bounds.depth
        workflows = state.request.workflows
        outputs = outside_outputs(workflows, within, number)
        by_name = planner.provider != "local" and not self._bounds.paper_format
        form = PlanLimits(
            models=models,
            steps=self._bounds.steps,
            itself=planner.name if nests else "",
            keeps=number > 1,
            earlier=number > 1 or bool(outputs),
            by_name=by_name,
            prefix=step_prefix(workflows, within, number),
            outputs=tuple(outputs),
            turns_left=turns_left,
        )
        text, result = planner_feedback(state, within, number, by_name=by_name)
        task = PlanTask(text or state.request.whole_text, form, number, within, result, refused)
        members = {member.name: member for member in self._members}
        return AskPlanner(
            planner.name,
            planner_prompt(state, task, members, planner),
            lambda reply: plan_of_reply(reply, task, planner.name),
            reads_instructions=by_name,
            steering=state.request.steering,
        )

    def _turns_left(self, state: SessionState, within: OuterStep | None) -> int:
        """Return the turns that a plan may take so that the plans around it can still come to their
        ends within the limit.
        """
        if within is None:
            return self._settings.turns
        left = self._settings.turns - turns_taken(state)
        while within is not None:
            number, step = within
            workflow = next(
                workflow for workflow in state.request.workflows if workflow.number == number
            )
            done = scheduling.finished_steps(state, workflow)
            left -= len(set(range(len(workflow.planned.steps))) - done - {step})
            within = workflow.planned.within
        return left

    def _team(self, state: SessionState) -> AvailableAgents:
        """Return the agents that may take a step."""
        planner_only = (
            {} if self._bounds.works else {self._bounds.agent: Exclusion(message="it only plans")}
        )
        return AvailableAgents(self._members, {**self._excluded(state), **planner_only})

    def _excluded(self, state: SessionState) -> dict[str, Exclusion]:
        """Return the excluded agents, with the reason. An agent whose server refused the request of
        one step may take another step, because the text of that step may have been the reason.
        """
        excluded = action_space.agents_out(state, self._settings.opt_out, self._members)
        failures = state.request.failed_turns
        return {
            name: why
            for name, why in excluded.items()
            if why.kind != "invalid" or failures[name] >= MOST_REFUSED
        }

    def _advance(self, state: SessionState, workflow: Workflow) -> Decision | None:
        """Return the next decision of a workflow, None if it is over or one of its steps has failed
        for good.
        """
        team = self._team(state)
        merge = scheduling.merge_due(state, workflow, team)
        if merge is not None:
            return merge
        if scheduling.failure_of(state, workflow, team):
            return None
        ready = scheduling.ready_steps(state, workflow)
        if not ready:
            return None
        limit = turn_limit_end(state, self._settings)
        if limit is not None:
            return suite_due(state) or limit
        if workflow.planned.steps[ready[0]].plans and not workflow.tries(ready[0]):
            return self._advance_inside(state, workflow, ready[0], team)
        return scheduling.next_steps(state, workflow, ready, team)

    def _advance_inside(
        self, state: SessionState, workflow: Workflow, step: int, team: AvailableAgents
    ) -> Decision | None:
        """Return the next decision of a step that is a workflow of its own: plan it, follow it, or
        let the planner do the step itself if that failed.
        """
        plan = self._planned(state, OuterStep(workflow.number, step), 1)
        if isinstance(plan, AskPlanner):
            return plan
        if isinstance(plan, str):
            return scheduling.single_step(state, workflow, step, team, plan)
        workflows = reversed(state.request.workflows)
        child = next(workflow for workflow in workflows if workflow.planned is plan)
        decision = self._advance(state, child)
        if decision is not None:
            return decision
        why = "its own workflow came to nothing"
        return scheduling.single_step(state, workflow, step, team, why)

    async def _plan_in_words(self, state: SessionState) -> Decision:
        """Return the turn in which the planner makes the user's plan, or the end of the request."""
        settings = self._settings
        end = action_space.request_end(
            state, turns=settings.turns, verify_answers=settings.verify_answers
        )
        if end is not None:
            return end
        excluded = action_space.agents_out_of_turn(state, settings, self._members)
        planner = planning_agent(self._bounds, self._members, excluded)
        if isinstance(planner, str):
            return await self._turn_by_turn(state, planner)
        return Assigned(
            turn=action_space.next_turn_number(state),
            agent=planner.name,
            role="worker",
            by="conductor",
            reason="plan mode: the planner makes the plan",
        )

    async def _over(self, state: SessionState, workflow: Workflow) -> Decision:
        """Return the decision after a workflow that came to its end or cannot go on."""
        fault = scheduling.failure_of(state, workflow, self._team(state))
        check = suite_due(state)
        if check is not None:
            return check
        judging = _newest_judging_turn(state)
        accepted = judging is not None and _accepts(state, judging)
        settled = tests_pass(state) or (accepted and not state.request.acceptance_blocker)
        is_steered = bool(state.request.unread_steering)
        if not fault and settled and not _revision_wanted(state) and not is_steered:
            return workflow_end(state, self._settings)
        number = workflow.planned.round
        last = max(self._bounds.rounds, 2) if fault else self._bounds.rounds
        if number < last or is_steered or reopened(state):
            next_round = self._ask(state, None, number + 1, None)
            if isinstance(next_round, AskPlanner):
                return next_round
        if fault:
            return await self._turn_by_turn(state, fault)
        return workflow_end(state, self._settings)

    async def _turn_by_turn(self, state: SessionState, why: str) -> Decision:
        """Return the other coordinator's decision, with the reason in its first one."""
        decision = await self._fallback.decide(state)
        if why and isinstance(decision, Assigned):
            return decision.model_copy(
                update={"reason": f"{decision.reason} {UNPLANNED} {why}]".strip()}
            )
        if why and isinstance(decision, Finished):
            return decision.model_copy(
                update={"message": f"the workflow came to nothing ({why}); {decision.message}"}
            )
        return decision


def _unable_to_plan(state: SessionState, excluded: dict[str, Exclusion]) -> dict[str, Exclusion]:
    """Return the agents that cannot plan. A plan costs less than work, so an agent that is over the
    budget for work may be asked for a plan, until that is refused too.
    """
    refused = {
        event.what
        for event in state.request.events
        if isinstance(event, Failed) and event.kind == BUDGET
    }
    return {name: why for name, why in excluded.items() if name in refused or why.kind != BUDGET}


def plan_of_reply(reply: Reply, task: PlanTask, planner: str) -> Planned:
    """Return the event of a planner's reply."""
    parsed = parse_workflow(reply.text, task.form)
    fault = ""
    if isinstance(parsed, InvalidPlan):
        cut = "; it was cut at the reply limit" if reply.stop == "length" else ""
        fault = f"{parsed.text}{cut}"
    return Planned(
        steps=() if isinstance(parsed, InvalidPlan) else parsed,
        text=reply.text,
        agent=planner,
        usage=reply.usage,
        fault=fault,
        round=task.round,
        within=task.within,
        models=task.form.models,
        model=reply.model,
    )


if TYPE_CHECKING:

    def _fits(conductor: Conductor) -> Coordinator:
        return conductor
