"""Money: whether the next call may be made. Budgets hold before a call, not after it.

Below everything that calls a model: turns, plans, summaries. Calls that are under way count with the dearest they can
get, so that several at once stay within the budget together; what only they leave no money for waits for them. An agent
whose call is refused has failed for this request, and another one is chosen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from fugu_cli import budgets, views
from fugu_cli.budgets import Limit
from fugu_cli.errors import AgentError
from fugu_cli.events import Event, Failed, Member, Waiting
from fugu_cli.log import Log
from fugu_cli.messages import Prompt


class Reserved:
    """What calls under way may still cost, by turn, in USD."""

    def __init__(self) -> None:
        self._held: dict[int, float] = {}
        self._back = asyncio.Event()

    def hold(self, turn: int, dollars: float) -> None:
        """Set aside for a call; 0 gives it back."""
        self._held[turn] = dollars
        if not dollars:
            self._back.set()

    async def given_back(self) -> None:
        """Until a call under way is over."""
        self._back.clear()
        await self._back.wait()

    @property
    def held(self) -> float:
        """All that is set aside."""
        return sum(self._held.values())

    def beside(self, turn: int) -> float:
        """What is set aside for other turns."""
        return self.held - self._held.get(turn, 0.0)


async def may_call(log: Log, turn: int, who: tuple[Member, Prompt], budget: Limit, reserved: Reserved) -> bool:
    """Whether the budget carries this call; the refusal is recorded as the agent's failure in `turn`."""
    (member, prompt), limits = who, budgets.of(budget)
    while said := budgets.too_dear(log.events, member, prompt, limits, reserved.held):
        if alone := budgets.too_dear(log.events, member, prompt, limits):
            log.append(Failed(turn=turn, what=member.name, kind=views.BUDGET, message=alone))
            return False
        log.tell(Waiting(why=f"{member.name} waits for calls under way: {said}"))
        await reserved.given_back()
    return True


def check(events: Sequence[Event], member: Member, prompt: Prompt, budget: Limit, held: float = 0.0) -> None:
    """Raises AgentError where a try of a call might exceed the rest of a budget. `held`: set aside for other calls, and
    spent on tries before it."""
    if said := budgets.too_dear(events, member, prompt, budgets.of(budget), held):
        raise AgentError(said, kind="budget")
