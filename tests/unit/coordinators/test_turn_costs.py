"""What a turn is said to cost before it begins: own turns first, else others', else a guess."""

import asyncio
from collections.abc import Sequence

import pytest

from fugu_cli.coordinators import CoordinatorSettings
from fugu_cli.coordinators.composed import ComposedHead
from fugu_cli.messages import Usage
from fugu_cli.session.events import (
    AgentEstimate,
    Assigned,
    Event,
    Member,
    Opened,
    OutcomeCount,
    OutcomesKnown,
    Price,
)
from fugu_cli.session.state import SessionState
from tests.facts import asked, replied


def member(name: str, price: Price | None) -> Member:
    return Member(name=name, provider="openai", model=name, slot="middle", price=price, vendor=name)


CHEAP = member("cheap", Price(input=1, cached=0.1, output=5))
DEAR = member("dear", Price(input=5, cached=0.5, output=25))
POOL = (CHEAP, DEAR)


def decide(*events: Event, pool: Sequence[Member] = POOL, text: str = "fix it") -> Assigned:
    known = [event for event in events if isinstance(event, OutcomesKnown)]
    rest = [event for event in events if not isinstance(event, OutcomesKnown)]
    log = [Opened(version="1", repo="/repo", pool=tuple(pool)), *known, asked(text), *rest]
    head = ComposedHead(pool, CoordinatorSettings(turns=6))
    decision = asyncio.run(head.decide(SessionState(log)))
    assert isinstance(decision, Assigned)
    return decision


def estimate(decision: Assigned, agent: str) -> AgentEstimate:
    assert decision.scores is not None
    return next(item for item in decision.scores.estimates if item.agent == agent)


def turns(agent: str, count: float, mean: float, kind: str = "") -> OutcomeCount:
    return OutcomeCount(agent=agent, kind=kind, turns=count, mean_cost=mean, successes=1, trials=1)


def test_a_turn_costs_what_the_agents_own_turns_cost() -> None:
    decision = decide(OutcomesKnown(counts=(turns("cheap", 3, 0.02), turns("dear", 1, 0.3))))
    cheap, dear = estimate(decision, "cheap"), estimate(decision, "dear")
    assert (cheap.run_cost, cheap.run_turns) == (pytest.approx(0.02), 3)
    assert (dear.run_cost, dear.run_turns) == (pytest.approx(0.3), 1)
    assert f"{'$0.0200' if decision.agent == 'cheap' else '$0.30'} a turn" in decision.reason
    assert "about" not in decision.reason


def test_an_agent_without_turns_is_estimated_by_the_tokens_of_others() -> None:
    decision = decide(OutcomesKnown(counts=(turns("cheap", 3, 0.02),)))
    dear = estimate(decision, "dear")
    assert (dear.run_cost, dear.run_turns) == (pytest.approx(0.1), 0)


def test_without_any_turn_the_estimate_counts_calls_that_read_from_the_cache() -> None:
    decision = decide()
    cost = estimate(decision, decision.agent).run_cost
    assert "about $" in decision.reason
    assert cost is not None and 0.01 < cost < 0.3
    uncached = member("cheap", Price(input=1, output=5))
    without_cache = estimate(decide(pool=(uncached, DEAR)), "cheap").run_cost
    with_cache = estimate(decision, "cheap").run_cost
    assert with_cache is not None and without_cache is not None
    assert without_cache > 2 * with_cache


def test_a_long_request_makes_the_estimate_larger() -> None:
    short, long = decide(), decide(text="fix " * 50_000)
    first, second = estimate(short, "cheap").run_cost, estimate(long, "cheap").run_cost
    assert first is not None and second is not None and second > 1.5 * first


def test_turns_of_the_running_request_count() -> None:
    first = Assigned(turn=1, agent="cheap", role="worker", by="trinity")
    reply = replied(1, "cheap", "I tried.").model_copy(
        update={"usage": Usage(input=10_000, output=0)}
    )
    revise = Assigned(turn=2, agent="dear", role="verifier", by="trinity")
    verdict = replied(2, "dear", "REVISE\nit is not done")
    decision = decide(first, reply, revise, verdict)
    cheap = estimate(decision, "cheap")
    assert (cheap.run_cost, cheap.run_turns) == (pytest.approx(0.01), 1)


def test_the_next_call_is_estimated_by_the_newest_prompt_and_the_cache() -> None:
    first = Assigned(turn=1, agent="cheap", role="worker", by="trinity")
    reply = replied(1, "cheap", "I tried.").model_copy(
        update={"usage": Usage(input=10_000, cached=8_000, output=0)}
    )
    revise = Assigned(turn=2, agent="dear", role="verifier", by="trinity")
    verdict = replied(2, "dear", "REVISE\nit is not done").model_copy(
        update={"usage": Usage(input=10_000, output=0)}
    )
    decision = decide(first, reply, revise, verdict)
    cheap, dear = estimate(decision, "cheap"), estimate(decision, "dear")
    assert cheap.call_cost == pytest.approx((2_000 * 1 + 8_000 * 0.1 + 250 * 5) / 1e6)
    assert dear.call_cost == pytest.approx((10_000 * 5 + 250 * 25) / 1e6)


def test_an_agent_without_a_price_has_no_expected_cost() -> None:
    decision = decide(pool=(member("free", None), DEAR))
    free = estimate(decision, "free")
    assert free.run_cost is None and free.call_cost is None
