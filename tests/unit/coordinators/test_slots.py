"""Slots: any pool maps onto three of them, and one of several agents takes a seat."""

from fugu_cli.coordinators.action_space import (
    RowAgent,
    agents_by_name,
    assign_slots,
    by_strength,
    choose_agent,
)
from fugu_cli.session.events import Failed, Member, Price
from fugu_cli.session.state import SessionState
from tests.facts import SMALL, asked, assigned, opened, replied

PRICY = Member(
    name="pricy", provider="openai", model="m", slot="strong", price=Price(input=15.0, output=75.0)
)
START = [opened(), asked()]
MODEST = Member(
    name="modest", provider="openai", model="m", slot="strong", price=Price(input=3.0, output=15.0)
)


def test_prices_are_cut_into_thirds_of_a_logarithmic_scale() -> None:
    prices = {
        "nano": Price(input=0.05, output=0.4),
        "mini": Price(input=0.25, output=2.0),
        "flash": Price(input=0.5, output=3.0),
        "opus": Price(input=15.0, output=75.0),
    }
    assert assign_slots(prices) == {
        "nano": "cheap",
        "mini": "cheap",
        "flash": "middle",
        "opus": "strong",
    }


def test_an_agent_that_costs_nothing_is_cheap_beside_one_that_does() -> None:
    assert assign_slots({"local": Price(), "paid": Price(input=1, output=1)}) == {
        "local": "cheap",
        "paid": "strong",
    }


def test_agents_of_one_price_are_all_middle() -> None:
    assert assign_slots({"a": Price(), "b": Price()}) == {"a": "middle", "b": "middle"}
    assert assign_slots({"a": Price(input=2.0)}) == {"a": "middle"}
    assert assign_slots({}) == {}


def test_an_agents_row_is_taken_by_its_namesake_whatever_it_is_called() -> None:
    named = Member(name="cheap", provider="openai", model="m", slot="strong")
    assert agents_by_name(("cheap", "small"), (SMALL, named), {}) == (
        RowAgent("cheap", named),
        RowAgent("small", SMALL),
    )


def test_an_empty_seat_says_why() -> None:
    out = {"small": "network: refused"}
    assert agents_by_name(("small", "ghost"), (SMALL,), out) == (
        RowAgent("small", None, "network: refused"),
        RowAgent("ghost", None, "not in the pool"),
    )


def test_the_cheaper_of_two_healthy_agents_is_chosen() -> None:
    assert choose_agent((PRICY, MODEST), {}, SessionState(START)) == MODEST


def test_a_warm_cache_counts_for_more_than_the_price() -> None:
    events = [opened(), asked(), assigned(1, "pricy")]
    assert choose_agent((PRICY, MODEST), {}, SessionState(events)) == PRICY


def test_health_counts_for_more_than_a_warm_cache() -> None:
    failed = Failed(turn=1, what="modest", kind="network", message="reset")
    events = [opened(), asked(), assigned(1, "modest"), failed, asked("again")]
    assert choose_agent((PRICY, MODEST), {}, SessionState(events)) == PRICY


def of(vendor: str, cost: float, slot: str = "strong") -> Member:
    price = Price(input=cost, output=cost)
    return Member(
        name=f"{vendor}{cost:g}",
        provider="openai",
        model=f"{vendor}{cost:g}",
        slot=slot,
        vendor=vendor,
        price=price,
    )  # type: ignore[arg-type]


def test_who_has_worked_gives_way_to_another_vendor_then_to_another_model_of_its_slot() -> None:
    kin, other, tried = of("a", 3), of("b", 12), of("a", 4)
    events = [opened(), asked(), assigned(1, "a4"), replied(1, "a4", "Done.")]
    assert choose_agent((tried, kin, other), {}, SessionState(events)) == other
    assert choose_agent((tried, kin), {}, SessionState(events)) == kin
    assert choose_agent((tried,), {}, SessionState(events)) == tried
    assert (
        choose_agent((tried, kin, other), {}, SessionState([*events, asked("again")])) == tried
    ), "it is another request"


def test_that_a_vendors_cheap_model_has_worked_says_nothing_of_its_far_dearer_one() -> None:
    cheap, dear, other = of("a", 1, "cheap"), of("a", 6), of("b", 7)
    events = [
        opened().model_copy(update={"pool": (cheap,)}),
        asked(),
        assigned(1, "a1"),
        replied(1, "a1", "Done."),
    ]
    assert choose_agent((dear, other), {}, SessionState(events)) == dear
    assert choose_agent((of("a", 5), other), {}, SessionState(events)) == other, (
        "five times is near"
    )


def test_an_old_failure_is_forgiven() -> None:
    failed = Failed(turn=1, what="modest", kind="network", message="reset")
    events = [opened(), asked(), assigned(1, "modest"), failed, asked("b"), asked("c"), asked("d")]
    assert choose_agent((PRICY, MODEST), {}, SessionState(events)) == MODEST


def test_nobody_is_chosen_where_all_are_out() -> None:
    assert choose_agent((PRICY,), {"pricy": "opted out"}, SessionState(START)) is None


def test_strength_goes_by_slot_and_then_by_price() -> None:
    assert by_strength((PRICY, MODEST, SMALL)) == [SMALL, MODEST, PRICY]
