"""Baselines on the same engine, which a learned coordinator has to beat (`fugu help evaluation`):
one pass, retry, self-reflection, mixture of agents, a panel with a judge, and a language model as
router. Each is a function of the log and can be named in a configuration.

Mixture of agents (Wang et al. 2024): layers of proposers, each reading the layer before, then an
aggregator. Panel, judge, merge: the same with a judge that compares. Both are a fixed workflow in
the log, its steps isolated from each other.

Departures from the papers: they answer questions, these work in a repository with tools and tests.
So what they sample in parallel is asked one after the other, and a run ends when the tests or
acceptance checks pass.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from fugu_cli import prompts
from fugu_cli.coordinators import CoordinatorSettings, action_space
from fugu_cli.coordinators.rules import Cascade
from fugu_cli.session.events import (
    Assigned,
    Exclusion,
    Finished,
    Member,
    Planned,
    Role,
    WorkflowStep,
)
from fugu_cli.session.state import SessionState
from fugu_cli.session.turns import Turn

WITH_AGENT = ("one-pass", "retry-same", "self-reflection", "prompted")
"""Baselines about one agent, as in `retry-same:NAME`."""
WITHOUT_AGENT = ("mixture-of-agents", "panel-judge-merge")
ROUNDS = 5
"""Of self-reflection."""


def is_baseline(coordinator: str) -> bool:
    """Return whether the coordinator is a baseline."""
    baseline, _, agent = coordinator.partition(":")
    return coordinator in WITHOUT_AGENT or (baseline in WITH_AGENT and bool(agent))


def build_baseline(
    coordinator: str, members: Sequence[Member], settings: CoordinatorSettings
) -> Coordinator:
    """Return the baseline that `is_baseline` knows."""
    baseline, _, agent = coordinator.partition(":")
    match baseline:
        case "one-pass":
            return SingleAgentRounds("one-pass", agent, 1)
        case "retry-same":
            return SingleAgentRounds("retry-same", agent, settings.turns)
        case "self-reflection":
            return SingleAgentRounds("self-reflection", agent, 1 + ROUNDS)
        case "mixture-of-agents":
            return mixture_of_agents(members, settings)
        case "panel-judge-merge":
            return panel_judge_merge(members, settings)
        case "prompted":
            return LLMRouter(agent, members, settings)
        case _:
            raise ValueError(f"{coordinator!r} is no baseline")


class SingleAgentRounds:
    """One agent that works as Worker again and again. If it reflects, it is asked from its second
    turn on to review its work critically.
    """

    def __init__(self, baseline: str, agent: str, most_turns: int) -> None:
        self._baseline = baseline
        self._agent = agent
        self._most_turns = most_turns

    async def decide(self, state: SessionState) -> Assigned | Finished:
        """Return the same agent again, until the tests pass or all turns are taken."""
        excluded = action_space.agents_out(state)
        if self._agent in excluded:
            return action_space.finish_without_agents(state, {self._agent: excluded[self._agent]})
        taken = len(finished_turns(state))
        if taken and (taken >= self._most_turns or checks_pass(state) or self._answered(state)):
            summary = f"{self._baseline}: {taken} of {self._most_turns} turns were taken"
            return finish_baseline(state, summary)
        reflects = taken and self._baseline == "self-reflection"
        return Assigned(
            turn=action_space.next_turn_number(state),
            agent=self._agent,
            role="worker",
            by=self._baseline,
            reason=f"turn {taken + 1} of at most {self._most_turns}",
            instruction=prompts.load("evaluation/reflect") if reflects else "",
        )

    def _answered(self, state: SessionState) -> bool:
        """Return whether nothing speaks against the work, so that asking again would be another
        sample and no retry. Reflection continues in any case.
        """
        return self._baseline == "retry-same" and not state.request.acceptance_blocker


def finished_turns(state: SessionState) -> list[Turn]:
    """Return the turns that came to an end."""
    return [turn for turn in state.request.turns if not turn.failed and not turn.interrupted]


def checks_pass(state: SessionState) -> bool:
    """Return whether there are acceptance checks, and all of them pass now; or the tests pass after
    a change.
    """
    run = state.request.tests
    checked = bool(state.request.checks) or (
        run is not None and run.passes and bool(state.request.changes)
    )
    return checked and not state.request.acceptance_blocker


def finish_baseline(state: SessionState, what: str) -> Finished:
    """Return the end of a baseline's protocol: accepted or not by the tests, or answered."""
    if checks_pass(state):
        return Finished(reason="accepted", message=f"{what}; the tests pass")
    if not state.request.checks and not state.request.changes:
        return Finished(reason="answered", message=what)
    if blocker := state.request.acceptance_blocker:
        what = f"{what}; {blocker}"
    return Finished(reason="turn_limit", message=what)


def strongest_agent(members: Sequence[Member], excluded: Mapping[str, Exclusion]) -> str | None:
    """Return the strongest agent that can act."""
    for member in reversed(action_space.by_strength(members)):
        if member.name not in excluded:
            return member.name
    return None


PANEL_SIZE = 3
"""Agents that are asked at most: of a larger pool the cheapest of each kind, one after the
other.
"""


class FixedWorkflow:
    """A workflow that is the same for every request, one step after the other. `name` is shown in
    the trace, `titles` in the reasons. A step before `left_out` is skipped if its agent is
    excluded; a later step is then done by the strongest agent. Steps that would have read a skipped
    step read the others.
    """

    def __init__(
        self,
        steps: Sequence[WorkflowStep],
        name: str = "workflow",
        titles: Sequence[str] = (),
        left_out: int | None = None,
        members: Sequence[Member] = (),
    ) -> None:
        """Without `titles` every step is a Worker's and may be left out: how a planner's reply is
        tried in training.
        """
        self._steps = tuple(steps)
        self._name = name
        self._titles = tuple(titles)
        self._left_out = len(steps) if left_out is None else left_out
        self._members = members

    async def decide(self, state: SessionState) -> Planned | Assigned | Finished:
        """Return the plan, then each of its steps once."""
        if not state.request.plans:
            return Planned(
                steps=self._steps, text=f"{self._name}: the same workflow for every request"
            )
        excluded = action_space.agents_out(state)
        turns = {turn.assigned.step: turn for turn in finished_turns(state)}
        for number, step in enumerate(self._steps):
            if number in turns or (step.agent in excluded and number < self._left_out):
                continue
            agent: str | None = step.agent
            if step.agent in excluded:
                agent = strongest_agent(self._members, excluded)
            if agent is None:
                return action_space.finish_without_agents(state, excluded)
            title = f": {self._titles[number]}" if self._titles else ""
            reads = range(number) if step.access == "all" else step.access
            is_last = number == len(self._steps) - 1
            return Assigned(
                turn=action_space.next_turn_number(state),
                agent=agent,
                role="worker" if is_last or not self._titles else "thinker",
                by=self._name,
                reason=f"step {number + 1} of {len(self._steps)}{title}",
                instruction=step.instruction,
                sees=tuple(turns[read].number for read in reads if read in turns),
                plan=1,
                step=number,
            )
        return finish_baseline(
            state, f"{self._name}: {len(turns)} of {len(self._steps)} steps were taken"
        )


def mixture_of_agents(
    members: Sequence[Member], settings: CoordinatorSettings, layers: int = 2
) -> FixedWorkflow:
    """Return the workflow of `layers` of proposers, then the strongest agent as aggregator."""
    panel = _panel_members(members, settings)
    parts: list[PanelPart] = []
    layer_before: tuple[int, ...] = ()
    for _ in range(layers):
        first = len(parts)
        parts += [PanelPart(name, "propose", layer_before) for name in panel]
        layer_before = tuple(range(first, len(parts)))
    parts.append(PanelPart(panel[-1] if panel else "", "aggregate", layer_before))
    return _panel_workflow("mixture-of-agents", parts, members)


def panel_judge_merge(members: Sequence[Member], settings: CoordinatorSettings) -> FixedWorkflow:
    """Return the workflow of a panel, a judge and a merger. The strongest agent is both."""
    panel = _panel_members(members, settings)
    strongest = panel[-1] if panel else ""
    proposals = tuple(range(len(panel)))
    parts = [PanelPart(name, "propose", ()) for name in panel]
    parts.append(PanelPart(strongest, "judge", proposals))
    parts.append(PanelPart(strongest, "merge", (*proposals, len(proposals))))
    return _panel_workflow("panel-judge-merge", parts, members)


class PanelPart(NamedTuple):
    """A step of a panel: its agent, the name of its prompt, and the steps that it reads."""

    agent: str
    prompt: str
    reads: tuple[int, ...]


def _panel_workflow(
    name: str, parts: Sequence[PanelPart], members: Sequence[Member]
) -> FixedWorkflow:
    """Return the workflow of these parts. Steps that propose may be left out; a step that decides
    is done by another agent if its own cannot.
    """
    steps = [
        WorkflowStep(
            agent=part.agent,
            instruction=prompts.load(f"evaluation/{part.prompt}"),
            access=part.reads,
        )
        for part in parts
    ]
    titles = [part.prompt for part in parts]
    return FixedWorkflow(steps, name, titles, titles.count("propose"), members)


def _panel_members(members: Sequence[Member], settings: CoordinatorSettings) -> list[str]:
    """Return at most `PANEL_SIZE` agents, the strongest last: the cheapest of each slot, then the
    cheapest of the others.
    """
    able = [
        member
        for member in action_space.by_strength(members)
        if member.name not in settings.opt_out
    ]
    preferred: dict[str, None] = {}
    for slot in reversed(action_space.SLOTS):
        of_slot = [member.name for member in able if member.slot == slot]
        if of_slot:
            preferred[of_slot[0]] = None
    preferred |= dict.fromkeys(member.name for member in able)
    panel = list(preferred)[:PANEL_SIZE]
    return [member.name for member in able if member.name in panel]


_AGENT_NUMBER = re.compile(r"agent\W{0,4}(\d+)", re.IGNORECASE)
_ROLE_NAME = re.compile(r"role\W{0,4}(worker|thinker|verifier)", re.IGNORECASE)


class LLMRouter:
    """Asks the agent `name` whom to ask next. Its choices do not count as turns of the request."""

    def __init__(self, name: str, members: Sequence[Member], settings: CoordinatorSettings) -> None:
        self._name = name
        self._members = members
        self._settings = settings
        self._cascade = Cascade(members, settings)

    async def decide(self, state: SessionState) -> Assigned | Finished:
        """Return a question to the agent that chooses, or the turn that it chose."""
        turns = finished_turns(state)
        working = [turn for turn in turns if not turn.assigned.chooses]
        if turns and turns[-1].assigned.chooses:
            return await self._chosen(state, turns[-1].text)
        end = action_space.request_end(
            state, turns=len(turns) + 1, verify_answers=self._settings.verify_answers
        )
        if end is not None:
            return end
        if len(working) >= self._settings.turns:
            return finish_baseline(state, f"prompted: {len(working)} turns were taken")
        if self._name in action_space.agents_out(state, self._settings.opt_out):
            return await self._fallback(state, f"{self._name} cannot choose")
        return Assigned(
            turn=action_space.next_turn_number(state),
            agent=self._name,
            role="thinker",
            by="prompted",
            reason="whom to ask",
            chooses=True,
            instruction=prompts.fill(prompts.load("evaluation/choose"), agents=self._team()),
        )

    def _team(self) -> str:
        """Return the agents by number with their slots. The agent that chooses sees no names."""
        return "\n".join(
            f"{number}: a {member.slot} agent" for number, member in enumerate(self._members)
        )

    async def _chosen(self, state: SessionState, text: str) -> Assigned | Finished:
        agent, role = _AGENT_NUMBER.findall(text), _ROLE_NAME.findall(text)
        if not agent or not role or int(agent[-1]) >= len(self._members):
            return await self._fallback(state, "the chooser's reply names nobody")
        member = self._members[int(agent[-1])]
        chosen_role: Role = role[-1].lower()
        excluded = action_space.agents_out_for_turn(state, self._settings, self._members)
        if chosen_role == "verifier":
            excluded = action_space.verifiers_out(state, excluded, self._members)
        if member.name in excluded or chosen_role in action_space.roles_out_for_turn(
            state, self._settings, self._members
        ):
            return await self._fallback(state, f"{member.name} cannot act as {chosen_role} now")
        return Assigned(
            turn=action_space.next_turn_number(state),
            agent=member.name,
            role=chosen_role,
            by="prompted",
            reason=f"chosen by {self._name}",
        )

    async def _fallback(self, state: SessionState, why: str) -> Assigned | Finished:
        decision = await self._cascade.decide(state)
        if isinstance(decision, Finished):
            return decision
        return decision.model_copy(
            update={"by": "prompted", "reason": f"{why}; the cascade: {decision.reason}"}
        )


if TYPE_CHECKING:
    from fugu_cli.coordinators import Coordinator

    _rounds: Coordinator = SingleAgentRounds("", "", 1)
    _workflow: Coordinator = FixedWorkflow(())
    _prompted: Coordinator = LLMRouter("", (), CoordinatorSettings())
