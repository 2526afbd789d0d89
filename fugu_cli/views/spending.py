"""Tokens and money: every reply is accounted, those of draws that were rolled back included. Pure folds."""

from __future__ import annotations

from collections.abc import Sequence

from fugu_cli.events import Assigned, Compacted, Event, Failed, Member, Planned, Price, Replied
from fugu_cli.messages import Usage
from fugu_cli.views.turns import pool

Paid = Replied | Planned | Compacted | Failed
"""Facts that a model call was paid for: replies, workflows, summaries, and failures of which a provider has counted
what they used. Those with an `agent` cost something."""
WRITING = 1.25
"""What a token costs that is written to a prompt cache, in prices of one that is read: Anthropic's for five minutes,
and OpenAI's from gpt-5.6 on."""


def usage(events: Sequence[Event]) -> dict[str, Usage]:
    """Tokens by agent over all given facts, rolled-back draws and plans included: they were paid for."""
    total: dict[str, Usage] = {}
    for event in events:
        if isinstance(event, Paid) and event.agent:
            total[event.agent] = total.get(event.agent, Usage()) + event.usage
    return total


def price(reply: Paid, member: Member | None) -> float:
    """USD of one model call at its agent's prices; 0.0 where the agent has none."""
    if member is None:
        return 0.0
    return usd(reply.usage, member.price)


def usd(used: Usage, rates: Price | None) -> float:
    """USD of so many tokens; 0.0 where the price is unknown, which `unpriced` tells from free."""
    if rates is None:
        return 0.0
    cached = rates.cached if rates.cached is not None else rates.input
    fresh = max(used.input - used.cached - used.written, 0) + WRITING * used.written
    return (fresh * rates.input + used.cached * cached + used.output * rates.output) / 1e6


def cost(events: Sequence[Event], members: dict[str, Member] | None = None) -> float:
    """USD of all given facts. `members` defaults to the pool in the Opened line among them."""
    known = members if members is not None else pool(events)
    return sum(price(event, known.get(event.agent)) for event in events if isinstance(event, Paid))


def unpriced(events: Sequence[Event], members: dict[str, Member] | None = None) -> tuple[str, ...]:
    """Agents that were called and whose price nobody knows. `members` as in `cost`."""
    known = members if members is not None else pool(events)
    return tuple(name for name in usage(events) if name in known and known[name].price is None)


def orchestration(events: Sequence[Event]) -> Usage:
    """Tokens the orchestration itself took: plans and summaries as their providers count them, and what the learned
    coordinator read."""
    total = Usage()
    for event in events:
        if isinstance(event, Planned | Compacted):
            total += event.usage
        elif isinstance(event, Assigned) and event.scores is not None:
            total += Usage(input=event.scores.tokens, cached=event.scores.cached_tokens)
    return total
