"""Slots: cheap, middle, strong. Any pool maps onto them, so that one checkpoint serves every pool.

Stands between a coordinator's rows and the agents of the pool: says who would take a row now, or why nobody can. Pure;
must not know torch, checkpoints or prompts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from fugu_cli import views
from fugu_cli.events import Assigned, Event, Failed, Member, Price

Slot = Literal["cheap", "middle", "strong"]
SLOTS: tuple[Slot, ...] = get_args(Slot)

RECENT_REQUESTS = 3
"""An agent that failed in one of the newest requests gives way to another one in its slot."""


@dataclass(frozen=True)
class Seat:
    """A row of the head and who would take it; `why` says why nobody does."""

    row: str
    member: Member | None
    why: str = ""


def blended(price: Price | None) -> float:
    """USD per million tokens of a coding agent's usual mix: three prompt tokens to one written; 0 for an unknown
    price."""
    if price is None:
        return 0.0
    return (3 * price.input + price.output) / 4


def assign_slots(prices: Mapping[str, Price]) -> dict[str, Slot]:
    """Slots for agents that do not name one, by price on a logarithmic scale cut into thirds.

    The cheapest is always cheap and the dearest strong; where all cost the same, all are middle.
    """
    costs = {name: blended(price) for name, price in prices.items()}
    paid = [cost for cost in costs.values() if cost > 0]
    if len(set(costs.values())) < 2 or not paid:
        return dict.fromkeys(prices, "middle")
    floor = min(paid) / 10  # an agent that costs nothing is cheaper than any other, and a logarithm needs a number
    scale = {name: math.log(max(cost, floor)) for name, cost in costs.items()}
    low, high = min(scale.values()), max(scale.values())
    return {name: SLOTS[min(int(3 * (value - low) / (high - low)), 2)] for name, value in scale.items()}


def choose(candidates: Sequence[Member], out: Mapping[str, str], events: Sequence[Event]) -> Member | None:
    """One of several agents for a seat: health, then a warm prompt cache, then price, then the pool's order.

    `out` names the agents that cannot act now, with the reason. None when nobody is left.
    """
    able = [member for member in candidates if member.name not in out]
    failed = _failed_recently(events)
    warm = _newest_agent(events)
    return min(able, key=lambda m: (m.name in failed, m.name != warm, blended(m.price)), default=None)


def slot_seats(
    rows: Sequence[str], members: Sequence[Member], out: Mapping[str, str], events: Sequence[Event]
) -> tuple[Seat, ...]:
    """Who takes each row of a slot checkpoint: one of the slot's agents."""
    slots = [(row, [member for member in members if member.slot == row]) for row in rows]
    return tuple(
        _seat(row, candidates, out, events) if candidates else Seat(row, None, "no agent in this slot")
        for row, candidates in slots
    )


def agent_seats(rows: Sequence[str], members: Sequence[Member], out: Mapping[str, str]) -> tuple[Seat, ...]:
    """Who takes each row of a checkpoint for one pool: its namesake."""
    named = [(row, [member for member in members if member.name == row]) for row in rows]
    return tuple(
        _seat(row, candidates, out, ()) if candidates else Seat(row, None, "not in the pool")
        for row, candidates in named
    )


def _seat(row: str, candidates: Sequence[Member], out: Mapping[str, str], events: Sequence[Event]) -> Seat:
    member = choose(candidates, out, events)
    if member is None:
        return Seat(row, None, "; ".join(f"{c.name}: {out[c.name]}" for c in candidates))
    return Seat(row, member)


def by_strength(members: Sequence[Member]) -> list[Member]:
    """Cheap ones first; inside a slot by price, then in the pool's order."""
    return sorted(members, key=lambda member: (SLOTS.index(member.slot), blended(member.price)))


def _failed_recently(events: Sequence[Event]) -> set[str]:
    recent = views.requests(events)[-RECENT_REQUESTS:] if events else []
    failed = (event for facts in recent for event in facts if isinstance(event, Failed))
    return {event.what for event in failed if event.kind != views.BUDGET}


def _newest_agent(events: Sequence[Event]) -> str | None:
    return next((event.agent for event in reversed(events) if isinstance(event, Assigned)), None)
