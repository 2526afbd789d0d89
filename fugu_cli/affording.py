"""Money: what a request has spent, and whether the next call may be made. Budgets hold before a call, not after it.

Below everything that calls a model: turns, plans, summaries. Calls that are under way count with the dearest they can
get, so that several at once stay within the budget together.
"""

from __future__ import annotations

from collections.abc import Sequence

from fugu_cli import views
from fugu_cli.events import Event, Finished, Member
from fugu_cli.messages import Prompt


class Purse:
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


def spent(events: Sequence[Event]) -> float:
    """USD of the newest request: the budget is a request's, not a session's."""
    return views.cost(views.request(events), views.pool(events))


def over(events: Sequence[Event], budget: float | None) -> Finished | None:
    """The end of a request whose budget is used up."""
    now = spent(events)
    if budget is None or now < budget:
        return None
    return Finished(reason="budget", message=f"${now:.4f} of ${budget:.4f} were spent")


def worst(member: Member, prompt: Prompt) -> float:
    """The dearest a call can get, in USD. Prompt tokens are taken as bytes / 3."""
    size = sum(len(message.model_dump_json()) for message in prompt.messages) + len(prompt.system)
    return (size / 3 * member.price.input + prompt.max_tokens * member.price.output) / 1e6


def refusal(
    events: Sequence[Event], member: Member, prompt: Prompt, budget: float | None, held: float = 0.0
) -> Finished | None:
    """The end of a request whose next call might exceed the rest of its budget. `held`: set aside for other calls."""
    if budget is None:
        return None
    dearest, rest = worst(member, prompt), budget - spent(events) - held
    if dearest <= rest:
        return None
    return Finished(
        reason="budget",
        message=f"the next call to {member.name} may cost ${dearest:.4f}; ${max(rest, 0):.4f} of the budget are left",
    )
