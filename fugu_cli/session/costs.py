"""Tokens and money of events and of turns. Every reply counts, those of rolled-back attempts
included.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from fugu_cli.messages import Usage
from fugu_cli.session.events import (
    Asked,
    Assigned,
    Compacted,
    Event,
    Failed,
    Interrupted,
    Member,
    Opened,
    Planned,
    Price,
    Recorded,
    Replied,
    Role,
    ToolRan,
)

PaidEvent = Replied | Planned | Compacted | Failed | Interrupted | ToolRan
"""Facts that a model call was paid for: replies, workflows, summaries, failures of which a provider
has counted what they used, calls that were cut off, and tools that had a model do something. Those with an `agent` cost
something."""
CACHE_WRITE_FACTOR = 1.25
"""The price of a token written to a prompt cache, relative to one read without cache. Anthropic's
for five minutes, and OpenAI's from gpt-5.6 on.
"""


def usage(events: Sequence[Event]) -> dict[str, Usage]:
    """Return the tokens of each agent in these events. Rolled-back work and plans count: they were
    paid for.
    """
    total: dict[str, Usage] = {}
    for event in events:
        if isinstance(event, PaidEvent) and event.agent:
            total[event.agent] = total.get(event.agent, Usage()) + event.usage
    return total


def price(reply: PaidEvent, member: Member | None) -> float:
    """Return the USD of one model call at its agent's prices; 0.0 if the agent has none."""
    if member is None:
        return 0.0
    return usd(reply.usage, member.price)


def usd(used: Usage, rates: Price | None) -> float:
    """Return the USD of this usage; 0.0 if the price is unknown. `unpriced` tells unknown prices
    from free models.
    """
    if rates is None:
        return 0.0
    cached = rates.cached if rates.cached is not None else rates.input
    fresh = max(used.input - used.cached - used.written, 0) + CACHE_WRITE_FACTOR * used.written
    return (fresh * rates.input + used.cached * cached + used.output * rates.output) / 1e6


def cost(events: Sequence[Event], members: Mapping[str, Member]) -> float:
    """Return USD of all given events, at the prices of `members`."""
    return sum(
        price(event, members.get(event.agent)) for event in events if isinstance(event, PaidEvent)
    )


def estimated_price(event: PaidEvent, member: Member | None) -> float:
    """Return the estimated part of `price`: tokens that no server counted, or all of it if the
    agent's price is assumed.
    """
    if member is None or member.price is None:
        return 0.0
    if member.assumed_price:
        return price(event, member)
    used, rates = event.usage, member.price
    return (used.estimated_input * rates.input + used.estimated_output * rates.output) / 1e6


def estimated_cost(events: Sequence[Event], members: Mapping[str, Member]) -> float:
    """Return the part of `cost` that is estimated."""
    return sum(
        estimated_price(event, members.get(event.agent))
        for event in events
        if isinstance(event, PaidEvent)
    )


def estimate_field(events: Sequence[Event], members: Mapping[str, Member]) -> dict[str, float]:
    """Return `estimated_cost_usd` for JSON output if a part of the cost is estimated, else {}."""
    if not is_estimated(events, members):
        return {}
    return {"estimated_cost_usd": estimated_cost(events, members)}


def is_estimated(events: Sequence[Event], members: Mapping[str, Member]) -> bool:
    """Return whether the cost of these calls is partly estimated: a server did not count some
    tokens, or a price is assumed.
    """
    return any(
        event.usage.is_estimated or has_assumed_price(members.get(event.agent))
        for event in events
        if isinstance(event, PaidEvent)
    )


def has_assumed_price(member: Member | None) -> bool:
    """Return whether the cost of the agent's calls is assumed."""
    return member is not None and member.price is not None and member.assumed_price


def unpriced(events: Sequence[Event], members: Mapping[str, Member]) -> tuple[str, ...]:
    """Return the agents that were called and whose price is unknown."""
    return tuple(name for name in usage(events) if name in members and members[name].price is None)


def paid_for_checking(events: Sequence[Event]) -> tuple[PaidEvent, ...]:
    """Return the calls of Verifiers in the events of a request."""
    verifiers: set[int] = set()
    paid: list[PaidEvent] = []
    for event in events:
        if isinstance(event, Assigned) and event.role == "verifier":
            verifiers.add(event.turn)
        elif isinstance(event, Replied | Failed | Interrupted) and event.turn in verifiers:
            paid.append(event)
    return tuple(paid)


def orchestration_usage(events: Sequence[Event]) -> Usage:
    """Return the tokens of the orchestration itself: plans, summaries, and what the learned
    coordinator read.
    """
    total = Usage()
    for event in events:
        if isinstance(event, Planned | Compacted):
            total += event.usage
        elif isinstance(event, Assigned) and event.scores is not None:
            total += Usage(input=event.scores.tokens, cached=event.scores.cached_tokens)
    return total


@dataclass(frozen=True)
class TurnCost:
    """The cost of one turn. Requests and turns are numbered from 1; turn 0 holds the calls for a
    request outside its turns: plans and summaries. `dollars` are at the prices that the session
    knew; `models` are the models that replied.
    """

    session: str
    request: int
    turn: int
    agent: str
    role: Role | None = None
    at: float = 0.0
    models: tuple[str, ...] = ()
    calls: int = 0
    usage: Usage = field(default_factory=Usage)
    dollars: float = 0.0

    @property
    def turn_key(self) -> tuple[str, int, int]:
        """Session, request and turn, which identify the turn among those of all sessions."""
        return (self.session, self.request, self.turn)


def turn_costs(session: str, records: Sequence[Recorded]) -> list[TurnCost]:
    """Return the costs of every turn in the order they began, including turns of undone requests
    and turns without paid calls.
    """
    members: dict[str, Member] = {}
    for record in records:
        if isinstance(record.event, Opened):
            members.update({member.name: member for member in record.event.pool})
    turns: dict[tuple[int, int, str], TurnCost] = {}
    request = 0
    for record in records:
        event = record.event
        if isinstance(event, Asked):
            request += 1
        elif isinstance(event, Assigned):
            key = (request, event.turn, event.agent)
            turns.setdefault(key, TurnCost(session, *key, role=event.role, at=record.at))
        elif isinstance(event, PaidEvent) and event.agent:
            number = 0
            if isinstance(event, Replied | Failed | Interrupted | ToolRan):
                number = event.turn
            key = (request, number, event.agent)
            cost = turns.get(key) or TurnCost(session, *key, at=record.at)
            models = cost.models
            if isinstance(event, Replied | Planned) and event.model not in ("", *models):
                models = (*models, event.model)
            turns[key] = replace(
                cost,
                models=models,
                calls=cost.calls + 1,
                usage=cost.usage + event.usage,
                dollars=cost.dollars + price(event, members.get(event.agent)),
            )
    return list(turns.values())
