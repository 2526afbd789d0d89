"""A language model as coordinator: an agent of the pool is asked in words who acts next, in which role.

The question is a Thinker turn of that agent, so its words, tokens and price are in the log like any other; the next
decision reads its answer back. A reply that names nobody leaves the decision to the cascade. Beside baselines.py.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fugu_cli import prompts
from fugu_cli.coordinators import baselines, masks, stopping
from fugu_cli.coordinators.fixed import Cascade
from fugu_cli.coordinators.settings import Settings
from fugu_cli.events import Assigned, Event, Finished, Member, Role

CHOOSING = "whom to ask"
"""The reason of a turn in which the agent chooses."""
_AGENT = re.compile(r"agent\W{0,4}(\d+)", re.IGNORECASE)
_ROLE = re.compile(r"role\W{0,4}(worker|thinker|verifier)", re.IGNORECASE)


class Prompted:
    """`name` chooses; its choices do not count as turns of the request."""

    def __init__(self, name: str, members: Sequence[Member], settings: Settings) -> None:
        self._name = name
        self._members = members
        self._settings = settings
        self._cascade = Cascade(members, settings)

    async def decide(self, events: Sequence[Event]) -> Assigned | Finished:
        """A question to the chooser, or what it answered."""
        turns = baselines.taken_turns(events)
        working = [turn for turn in turns if turn.assigned.reason != CHOOSING]
        if turns and turns[-1].assigned.reason == CHOOSING:
            return await self._chosen(events, turns[-1].text)
        end = stopping.stop(events, turns=len(turns) + 1, verify_answers=self._settings.verify_answers)
        if end is not None:
            return end
        if len(working) >= self._settings.turns:
            return baselines.over(events, f"prompted: {len(working)} turns were taken")
        if self._name in masks.agents_out(events, self._settings.opt_out):
            return await self._fallback(events, f"{self._name} cannot choose")
        return Assigned(
            turn=masks.next_turn(events),
            agent=self._name,
            role="thinker",
            by="prompted",
            reason=CHOOSING,
            instruction=prompts.fill(prompts.load("evaluation/choose"), agents=self._team()),
        )

    def _team(self) -> str:
        """The agents by number: who leads knows their slots and no names."""
        return "\n".join(f"{number}: a {member.slot} agent" for number, member in enumerate(self._members))

    async def _chosen(self, events: Sequence[Event], text: str) -> Assigned | Finished:
        agent, role = _AGENT.findall(text), _ROLE.findall(text)
        if not agent or not role or int(agent[-1]) >= len(self._members):
            return await self._fallback(events, "the chooser's reply names nobody")
        member = self._members[int(agent[-1])]
        wanted: Role = role[-1].lower()
        out = masks.turn_out(events, self._settings.opt_out, self._members)
        if member.name in out or wanted in masks.roles_out(events):
            return await self._fallback(events, f"{member.name} cannot act as {wanted} now")
        return Assigned(
            turn=masks.next_turn(events),
            agent=member.name,
            role=wanted,
            by="prompted",
            reason=f"chosen by {self._name}",
        )

    async def _fallback(self, events: Sequence[Event], why: str) -> Assigned | Finished:
        decision = await self._cascade.decide(events)
        if isinstance(decision, Finished):
            return decision
        return decision.model_copy(update={"by": "prompted", "reason": f"{why}; the cascade: {decision.reason}"})


if TYPE_CHECKING:
    from fugu_cli.coordinators import Coordinator

    _prompted: Coordinator = Prompted("", (), Settings())
