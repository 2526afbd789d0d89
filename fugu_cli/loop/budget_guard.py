"""Money: what a request has spent, and whether the next call may be made. Budgets hold before a call, not after it.

Below everything that calls a model: turns, plans, summaries. Calls that are under way count with the dearest they can
get, so that several at once stay within the budget together.
"""

from __future__ import annotations

from collections.abc import Sequence

from fugu_cli import budgets, views
from fugu_cli.budgets import Limit, worst
from fugu_cli.errors import AgentError
from fugu_cli.events import Event, Finished, Member
from fugu_cli.messages import Prompt

__all__ = ["Reserved", "check", "over", "refusal", "spent", "worst"]


class Reserved:
    """What calls under way may still cost, by turn, in USD."""

    def __init__(self) -> None:
        self._held: dict[int, float] = {}

    def hold(self, turn: int, dollars: float) -> None:
        """Set aside for a call; 0 gives it back."""
        self._held[turn] = dollars

    @property
    def held(self) -> float:
        """All that is set aside."""
        return sum(self._held.values())

    def beside(self, turn: int) -> float:
        """What is set aside for other turns."""
        return self.held - self._held.get(turn, 0.0)


def spent(events: Sequence[Event]) -> float:
    """USD of the newest request."""
    return views.cost(views.request(events), views.pool(events))


def over(events: Sequence[Event], budget: Limit) -> Finished | None:
    """The end of a request one of whose budgets is used up."""
    said = budgets.used_up(events, budgets.of(budget))
    return Finished(reason="budget", message=said) if said else None


def refusal(
    events: Sequence[Event], member: Member, prompt: Prompt, budget: Limit, held: float = 0.0
) -> Finished | None:
    """The end of a request whose next call might exceed the rest of a budget. `held`: set aside for other calls."""
    said = budgets.too_dear(events, member, prompt, budgets.of(budget), held)
    return Finished(reason="budget", message=said) if said else None


def check(events: Sequence[Event], member: Member, prompt: Prompt, budget: Limit, held: float = 0.0) -> None:
    """Raises AgentError where a try of a call might exceed the rest of a budget. `held`: set aside for other calls, and
    spent on tries before it."""
    if said := budgets.too_dear(events, member, prompt, budgets.of(budget), held):
        raise AgentError(said, kind="budget")
