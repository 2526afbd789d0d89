"""Fallback: the learned coordinator where it can, the rule where it cannot, never silently."""

import asyncio
from collections.abc import Callable

import pytest

from fugu_cli.coordinators import Coordinator, CoordinatorSettings, Decision
from fugu_cli.coordinators.rules import Cascade, Single
from fugu_cli.coordinators.trinity import Fallback
from fugu_cli.errors import CoordinatorUnavailable
from fugu_cli.session.events import Assigned, Event
from fugu_cli.session.state import SessionState
from tests.facts import POOL
from tests.unit.coordinators.test_stopping import BROKEN, verified, worked

RULE = Cascade(POOL, CoordinatorSettings())
LEARNED = Single("strong", POOL, CoordinatorSettings())


class Breaking:
    """Decides by raising."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.asked = 0

    async def decide(self, state: SessionState) -> Decision:
        self.asked += 1
        raise self.error


def raising(error: Exception) -> Callable[[], Coordinator]:
    def factory() -> Coordinator:
        raise error

    return factory


def decide(coordinator: Coordinator, events: list[Event]) -> Assigned:
    found = asyncio.run(coordinator.decide(SessionState(events)))
    assert isinstance(found, Assigned)
    return found


def test_the_learned_coordinator_decides_where_it_can() -> None:
    found = decide(Fallback(lambda: LEARNED, RULE), BROKEN)
    assert (found.agent, found.reason) == ("strong", "pinned to strong")


def test_where_it_cannot_be_made_the_rule_decides_and_says_why() -> None:
    error = CoordinatorUnavailable("torch is not installed", hint="`pip install torch`")
    found = decide(Fallback(raising(error), RULE), BROKEN)
    assert (found.agent, found.by) == ("small", "cascade")
    assert (found.reason, found.fallback) == (
        "cheapest first",
        "torch is not installed (`pip install torch`)",
    )


@pytest.mark.parametrize(
    "error", [MemoryError("no room"), CoordinatorUnavailable("the coordinator ran out of memory")]
)
def test_running_out_of_memory_is_no_end(error: Exception) -> None:
    for factory in (raising(error), lambda: Breaking(error)):
        found = decide(Fallback(factory, RULE), BROKEN)
        assert found.by == "cascade"
        assert "memory" in found.fallback


def test_a_coordinator_that_gave_up_once_is_not_asked_again() -> None:
    breaking = Breaking(CoordinatorUnavailable("no"))
    coordinator = Fallback(lambda: breaking, RULE)
    decide(coordinator, BROKEN)
    decide(coordinator, [*BROKEN, *worked(1, ok=False)])
    assert breaking.asked == 1


def test_the_end_of_a_request_is_passed_on_as_it_is() -> None:
    coordinator = Fallback(raising(CoordinatorUnavailable("no")), RULE)
    events = [*BROKEN, *worked(1, ok=True), *verified(2, "ACCEPT")]
    assert asyncio.run(coordinator.decide(SessionState(events))) == asyncio.run(
        RULE.decide(SessionState(events))
    )


def test_our_own_bugs_are_not_caught() -> None:
    with pytest.raises(ZeroDivisionError):
        decide(Fallback(raising(ZeroDivisionError("bug")), RULE), BROKEN)
