"""The Conductor as a coordinator: a function of the log that asks for a workflow, then follows it.

Takes the log; decides to ask the planner, to let steps begin, to merge, to test, or that the request is over. Where no
workflow can be had, the turn-by-turn coordinator takes over and every decision says why. Runs nothing itself.

Departures from the paper: steps that do not read one another run at the same time; where the tests that judge the
request pass, no second round is asked for; a step that is a workflow is bounded by depth and counts towards the turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fugu_cli import views
from fugu_cli.conductor import ending, scheduling
from fugu_cli.conductor.parse import Fault
from fugu_cli.conductor.prompt import Task, prompt
from fugu_cli.conductor.result import told
from fugu_cli.conductor.scheduling import Crew
from fugu_cli.conductor.validate import Form, workflow
from fugu_cli.coordinators import Coordinator, Decision, Planning, masks, stopping
from fugu_cli.coordinators.settings import Settings
from fugu_cli.coordinators.slots import SLOTS, by_strength
from fugu_cli.events import Assigned, Event, Failed, Finished, Member, Planned
from fugu_cli.messages import Reply

TRIES = 2
"""Replies of the planner for one workflow: the first, and one after it was told what is wrong."""
UNPLANNED = "[no workflow:"
"""What follows in a reason says why the turn-by-turn coordinator decides."""


@dataclass(frozen=True)
class Bounds:
    """What the user set: the planner's name ("" for the strongest agent), steps of a workflow, rounds, how deep a
    planner may plan a step of its own, how many agents it is offered, and whether it may be one of them."""

    agent: str = ""
    steps: int = 5
    rounds: int = 2
    depth: int = 1
    agents: int = 3
    works: bool = True


class Conductor:
    """Plans once a round, then reads the plan back from the log."""

    def __init__(
        self, members: Sequence[Member], bounds: Bounds, settings: Settings, turn_by_turn: Coordinator
    ) -> None:
        self._members = tuple(members)
        self._bounds = bounds
        self._settings = settings
        self._fallback = turn_by_turn

    async def decide(self, events: Sequence[Event]) -> Decision:
        """The next thing to be done for the newest request."""
        if any(turn.assigned.plan == 0 for turn in views.turns(events)):
            return await self._turn_by_turn(events, "")
        end = stopping.nobody_left(events)
        if end is not None:
            return end
        rounds = [plan for plan in views.plans(events) if plan.within is None]
        number = max((plan.round for plan in rounds), default=1)
        found = self._planned(events, None, number)
        if isinstance(found, Planning):
            return found
        if isinstance(found, str) and number == 1:
            return await self._turn_by_turn(events, found)
        if isinstance(found, str) or not found.steps:
            if ending.reopened(events) and isinstance(again := self._ask(events, None, number + 1, None), Planning):
                return again
            note = f"the next workflow cannot be had ({found})" if isinstance(found, str) else ""
            if note and (lost := self._lost(events, rounds)):
                return await self._turn_by_turn(events, f"{lost}; {note}")
            return ending.ended(events, self._settings, kept=not note, note=note)
        flow = next(flow for flow in reversed(views.workflows(events)) if flow.planned is found)
        return self._advance(events, flow) or await self._over(events, flow)

    def _lost(self, events: Sequence[Event], rounds: Sequence[Planned]) -> str:
        """Why the newest workflow of these rounds cannot go on, "" where it came to its end."""
        flows = [flow for flow in views.workflows(events) if any(flow.planned is plan for plan in rounds)]
        return scheduling.lost(events, flows[-1], self._crew(events)) if flows else ""

    def _planned(
        self, events: Sequence[Event], within: tuple[int, int] | None, number: int
    ) -> Planned | Planning | str:
        """The plan of a round; the question for it; or why there is none."""
        tries = [plan for plan in views.plans(events) if plan.within == within and plan.round == number]
        if tries and not tries[-1].fault:
            return tries[-1]
        if len(tries) >= TRIES:
            return tries[-1].fault
        return self._ask(events, within, number, tries[-1] if tries else None)

    def _ask(
        self, events: Sequence[Event], within: tuple[int, int] | None, number: int, refused: Planned | None
    ) -> Planning | str:
        out = masks.agents_out(events, self._settings.opt_out, self._members)
        planner = self._planner(_to_plan(events, out))
        if isinstance(planner, str):
            return planner
        asked = views.asked(events)
        assert asked is not None
        models = refused.models if refused else tuple(member.name for member in self._offered(out))
        if not models:
            return "no agent is left to be planned for"
        form = Form(
            models=models,
            steps=self._bounds.steps,
            itself=planner.name if self._may_nest(events, planner, within) else "",
            keeps=number > 1,
            earlier=number > 1,
        )
        text, result = told(events, within, number)
        task = Task(text or asked.whole, form, number, within, result, refused)
        known = {member.name: member for member in self._members}
        return Planning(
            planner.name, prompt(events, task, known, planner), lambda reply: read(reply, task, planner.name)
        )

    def _crew(self, events: Sequence[Event]) -> Crew:
        """Who may take a step."""
        apart = {} if self._bounds.works else {self._bounds.agent: "it only plans"}
        return Crew(self._members, {**masks.agents_out(events, self._settings.opt_out, self._members), **apart})

    def _planner(self, out: dict[str, str]) -> Member | str:
        """Who plans now, or why nobody does."""
        wanted = self._bounds.agent
        if wanted:
            member = next(member for member in self._members if member.name == wanted)
            return f"the planner {wanted} is out: {out[wanted]}" if wanted in out else member
        able = [member for member in by_strength(self._members) if member.name not in out]
        return able[-1] if able else "nobody is left to plan"

    def _offered(self, out: dict[str, str]) -> list[Member]:
        """A small pool (a prompted planner does worse over a large one): one of each slot first, the strongest ones."""
        apart = set() if self._bounds.works else {self._bounds.agent}
        able = [member for member in reversed(by_strength(self._members)) if member.name not in {*out, *apart}]
        first = [next((m for m in able if m.slot == slot), None) for slot in reversed(SLOTS)]
        ranked = list(dict.fromkeys([member for member in (*first, *able) if member is not None]))
        chosen = {member.name for member in ranked[: self._bounds.agents]}
        return [member for member in self._members if member.name in chosen]

    def _may_nest(self, events: Sequence[Event], planner: Member, within: tuple[int, int] | None) -> bool:
        """The planner may name itself. An embedded one is not offered that: it counts the models up, itself included,
        and copies what it reads into a workflow inside (tests/benchmarks/results/conductor.md)."""
        return planner.provider != "local" and self._depth(events, within) < self._bounds.depth

    def _depth(self, events: Sequence[Event], within: tuple[int, int] | None) -> int:
        """How many workflows this one is inside of."""
        plans = views.plans(events)
        depth = 0
        while within is not None:
            depth += 1
            within = plans[within[0] - 1].within
        return depth

    def _advance(self, events: Sequence[Event], flow: views.Workflow) -> Decision | None:
        """What a workflow needs next; None when it is over, or when one of its steps failed for good."""
        crew = self._crew(events)
        merge = scheduling.merge_due(events, flow, crew)
        if merge is not None:
            return merge
        if scheduling.lost(events, flow, crew):
            return None
        ready = scheduling.ready(events, flow)
        if not ready:
            return None
        limit = ending.turn_limit(events, self._settings)
        if limit is not None:
            return limit
        if flow.planned.steps[ready[0]].plans and not flow.tries(ready[0]):
            return self._inside(events, flow, ready[0], crew)
        return scheduling.wave(events, flow, ready, crew)

    def _inside(self, events: Sequence[Event], flow: views.Workflow, step: int, crew: Crew) -> Decision | None:
        """A step that is a workflow: planned, followed, and done by the planner itself where that came to nothing."""
        within = (flow.number, step)
        found = self._planned(events, within, 1)
        if isinstance(found, Planning):
            return found
        if not isinstance(found, str):
            child = next(one for one in reversed(views.workflows(events)) if one.planned is found)
            decision = self._advance(events, child)
            if decision is not None:
                return decision
        why = found if isinstance(found, str) else "its own workflow came to nothing"
        return scheduling.alone(events, flow, step, crew, why)

    async def _over(self, events: Sequence[Event], flow: views.Workflow) -> Decision:
        """The round's workflow has come to its end, one way or the other."""
        lost = scheduling.lost(events, flow, self._crew(events))
        check = ending.check_due(events)
        if check is not None:
            return check
        if not lost and ending.tests_pass(events):
            return ending.ended(events, self._settings)
        number = flow.planned.round
        last = max(self._bounds.rounds, 2) if lost else self._bounds.rounds
        if (number < last and (lost or not stopping.refusal(events))) or ending.reopened(events):
            asked = self._ask(events, None, number + 1, None)
            if isinstance(asked, Planning):
                return asked
        if lost:
            return await self._turn_by_turn(events, lost)
        return ending.ended(events, self._settings)

    async def _turn_by_turn(self, events: Sequence[Event], why: str) -> Decision:
        """The other coordinator's decision, with the reason in its first one."""
        decision = await self._fallback.decide(events)
        if why and isinstance(decision, Assigned):
            return decision.model_copy(update={"reason": f"{decision.reason} {UNPLANNED} {why}]".strip()})
        if why and isinstance(decision, Finished):
            return decision.model_copy(update={"message": f"the workflow came to nothing ({why}); {decision.message}"})
        return decision


def _to_plan(events: Sequence[Event], out: dict[str, str]) -> dict[str, str]:
    """Who cannot plan. A plan is shorter than work: who is too dear to work may be asked for one, until that is refused
    for its price."""
    refused = {e.what for e in views.request(events) if isinstance(e, Failed) and e.kind == views.BUDGET}
    return {name: why for name, why in out.items() if name in refused or not views.is_budget(why)}


def read(reply: Reply, task: Task, planner: str) -> Planned:
    """The fact of a planner's reply."""
    found = workflow(reply.text, task.form)
    cut = "; it was cut at the reply limit" if reply.stop == "length" else ""
    return Planned(
        steps=() if isinstance(found, Fault) else found,
        text=reply.text,
        agent=planner,
        usage=reply.usage,
        fault=f"{found.text}{cut}" if isinstance(found, Fault) else "",
        round=task.round,
        within=task.within,
        models=task.form.models,
        model=reply.model,
    )


if TYPE_CHECKING:

    def _fits(conductor: Conductor) -> Coordinator:
        return conductor
