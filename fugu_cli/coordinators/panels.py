"""Several agents on the same request, independently, and one that makes an answer of it.

Mixture-of-Agents (Wang et al. 2024): layers of proposers, each of which reads the layer before, then an aggregator.
Fusion: a panel answers, a judge compares, a third merges. Both are a fixed workflow in the log: a `Planned` that nobody
was asked for, then its steps, isolated from each other as any workflow's are. Beside baselines.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fugu_cli import prompts, views
from fugu_cli.coordinators import baselines, masks, slots
from fugu_cli.coordinators.settings import Settings
from fugu_cli.events import Assigned, Event, Finished, Member, Planned, Role, Step

PANEL = 3
"""Agents that are asked at most: of a larger pool the cheapest of each kind, one after the other."""


@dataclass(frozen=True)
class Part:
    """One step: which prompt it is given, whom of the earlier steps it reads, and in which role it acts."""

    agent: str
    prompt: str
    reads: tuple[int, ...]
    works: bool = False


class Panel:
    """A workflow that is the same for every request. `name` stands in the trace."""

    def __init__(self, name: str, parts: Sequence[Part], members: Sequence[Member]) -> None:
        self._name = name
        self._parts = tuple(parts)
        self._members = members

    async def decide(self, events: Sequence[Event]) -> Planned | Assigned | Finished:
        """The plan, then each step once; the step of an agent that fails is another's, and a proposal's is left out."""
        if not views.plans(events):
            return self._plan()
        out = masks.agents_out(events)
        turns = {turn.assigned.step: turn for turn in baselines.taken_turns(events)}
        for step, part in enumerate(self._parts):
            if step in turns:
                continue
            agent = part.agent
            if agent in out:
                if part.prompt == "propose" and any(one.prompt != "propose" for one in self._parts):
                    continue
                other = baselines.strongest(self._members, out)
                if other is None:
                    return masks.nobody(out)
                agent = other.name
            sees = tuple(turns[read].number for read in part.reads if read in turns)
            return self._assigned(events, step, agent, sees)
        return baselines.over(events, f"{self._name}: all {len(self._parts)} steps were taken")

    def _plan(self) -> Planned:
        steps = tuple(
            Step(agent=part.agent, instruction=prompts.load(f"evaluation/{part.prompt}"), access=part.reads)
            for part in self._parts
        )
        return Planned(steps=steps, text=f"{self._name}: the same workflow for every request")

    def _assigned(self, events: Sequence[Event], step: int, agent: str, sees: tuple[int, ...]) -> Assigned:
        part = self._parts[step]
        return Assigned(
            turn=masks.next_turn(events),
            agent=agent,
            role=_role(part),
            by=self._name,
            reason=f"step {step + 1} of {len(self._parts)}: {part.prompt}",
            instruction=prompts.load(f"evaluation/{part.prompt}"),
            sees=sees,
            plan=1,
            step=step,
        )


class Given:
    """A workflow that was written elsewhere, one step after the other: how a planner's reply is tried out in training.

    A step whose agent fails is left out; what would have read it reads the others.
    """

    def __init__(self, steps: Sequence[Step], text: str = "") -> None:
        self._steps = tuple(steps)
        self._text = text

    async def decide(self, events: Sequence[Event]) -> Planned | Assigned | Finished:
        """The plan as it was given, then each step once, in the role of a Worker."""
        if not views.plans(events):
            return Planned(steps=self._steps, text=self._text)
        out = masks.agents_out(events)
        turns = {turn.assigned.step: turn for turn in baselines.taken_turns(events)}
        for number, step in enumerate(self._steps):
            if number in turns or step.agent in out:
                continue
            reads = range(number) if step.access == "all" else step.access
            return Assigned(
                turn=masks.next_turn(events),
                agent=step.agent,
                role="worker",
                by="workflow",
                reason=f"step {number + 1} of {len(self._steps)}",
                instruction=step.instruction,
                sees=tuple(turns[read].number for read in reads if read in turns),
                plan=1,
                step=number,
            )
        return baselines.over(events, f"{len(turns)} of {len(self._steps)} steps were taken")


def _role(part: Part) -> Role:
    """Only who settles it works on files."""
    return "worker" if part.works else "thinker"


def mixture(members: Sequence[Member], settings: Settings, layers: int = 2) -> Panel:
    """`layers` of proposers, then the strongest agent as aggregator."""
    panel = _panel(members, settings)
    parts: list[Part] = []
    before: tuple[int, ...] = ()
    for _ in range(layers):
        first = len(parts)
        parts += [Part(member.name, "propose", before) for member in panel]
        before = tuple(range(first, len(parts)))
    parts.append(Part(panel[-1].name if panel else "", "aggregate", before, works=True))
    return Panel("mixture-of-agents", parts, members)


def fusion(members: Sequence[Member], settings: Settings) -> Panel:
    """The panel, a judge and a merger: the strongest agent is both."""
    panel = _panel(members, settings)
    parts = [Part(member.name, "propose", ()) for member in panel]
    read = tuple(range(len(parts)))
    last = panel[-1].name if panel else ""
    parts += [Part(last, "judge", read), Part(last, "merge", (*read, len(read)), works=True)]
    return Panel("panel-judge-merge", parts, members)


def _panel(members: Sequence[Member], settings: Settings) -> list[Member]:
    """Of each slot in turn the cheapest that is left, the strongest last; no model twice while others are to be had."""
    able = [member for member in slots.by_strength(members) if member.name not in settings.opt_out]
    first: list[Member] = []
    for slot in reversed(slots.SLOTS):
        first += [member for member in able if member.slot == slot][:1]
    rest = [member for member in able if member not in first]
    chosen = [*first, *rest][:PANEL]
    return [member for member in able if member in chosen]


if TYPE_CHECKING:
    from fugu_cli.coordinators import Coordinator

    _panel_fits: Coordinator = Panel("", (), ())
    _given_fits: Coordinator = Given(())
