"""Before a decision: who rests is a fact, the next best by the coordinator's own scores takes the turn."""

import asyncio
from collections.abc import Sequence

from fugu_cli import views
from fugu_cli.agents.health import Health
from fugu_cli.coordinators import Decision, masks
from fugu_cli.coordinators.fixed import Cascade
from fugu_cli.coordinators.settings import Settings
from fugu_cli.events import Asked, Assigned, Event, Failed, Finished, Masked, Member, Opened, Replied, Waiting
from fugu_cli.log import Log
from fugu_cli.loop import cooldown

A = Member(name="a", provider="openai", model="m", slot="cheap")
B = Member(name="b", provider="openai", model="m", slot="strong")


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def read(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


class Scoring:
    """Takes the highest of fixed scores that is not masked, as the learned coordinator does."""

    def __init__(self, **scores: float) -> None:
        self._scores = scores

    async def decide(self, events: Sequence[Event]) -> Decision:
        out = masks.agents_out(events)
        able = {name: score for name, score in self._scores.items() if name not in out}
        if not able:
            return Finished(reason="failed", message="nobody")
        return Assigned(turn=masks.next_turn(events), agent=max(able, key=able.__getitem__), role="worker", by="test")


def begun() -> Log:
    return Log.memory([Opened(version="1", repo="/r", pool=(A, B)), Asked(text="x")])


def decided(log: Log, health: Health, seconds: float = 0.0, clock: Clock | None = None) -> Decision:
    patience = cooldown.Patience(seconds, clock.sleep) if clock else cooldown.Patience(seconds)
    return asyncio.run(cooldown.decide(log, Scoring(a=0.9, b=0.4), health, patience, {}))


def test_nothing_is_written_while_all_is_well() -> None:
    log = begun()
    decision = decided(log, Health())
    assert isinstance(decision, Assigned) and decision.agent == "a"
    assert len(log.events) == 2


def test_an_agent_that_rests_is_masked_with_the_reason_and_the_next_best_takes_the_turn() -> None:
    clock = Clock()
    health = Health(clock.read)
    health.failed("a", "overloaded")
    log = begun()
    decision = decided(log, health)
    assert isinstance(decision, Assigned) and decision.agent == "b"
    assert log.events[-1] == Masked(agents=(("a", "overloaded: rests 5 s after failure 1"),))


def test_it_is_tried_again_when_its_rest_is_over_and_another_has_answered() -> None:
    clock = Clock()
    health = Health(clock.read)
    health.failed("a", "overloaded")
    log = begun()
    log.append(Assigned(turn=1, agent="a", role="worker", by="test"))
    log.append(Failed(turn=1, what="a", kind="overloaded", message="busy"))
    assert list(views.failed_agents(log.events)) == ["a"]
    decided(log, health)
    assert len(log.events) == 4, "the failure itself masks it: there is nothing to add"
    clock.now += 6
    decision = decided(log, health)
    assert isinstance(decision, Assigned) and decision.agent == "b", "whoever was not tried yet comes first"
    log.append(decision)
    log.append(Replied(turn=2, agent="b", text="done"))
    decision = decided(log, health)
    assert isinstance(decision, Assigned) and decision.agent == "a"
    assert log.events[-1] == Masked()


def test_when_all_have_failed_and_nobody_answered_it_ends_though_some_are_rested() -> None:
    clock = Clock()
    health = Health(clock.read)
    log = begun()
    for turn, name in enumerate(("a", "b"), 1):
        health.failed(name, "network")
        log.append(Assigned(turn=turn, agent=name, role="worker", by="test"))
        log.append(Failed(turn=turn, what=name, kind="network", message="no such host"))
        clock.now += 20
    assert health.out() == {}
    assert decided(log, health) == Finished(reason="failed", message="nobody")
    again = decided(log, health, 60.0, clock)
    assert isinstance(again, Assigned) and again.agent == "a", "the user wants to wait: nobody has to"


def test_who_is_woken_is_tried_at_once_and_rests_longer_if_it_fails_again() -> None:
    clock = Clock()
    health = Health(clock.read)
    for name in ("a", "b"):
        health.failed(name, "refused")
    log = begun()
    log.append(Assigned(turn=1, agent="a", role="worker", by="test"))
    log.append(Failed(turn=1, what="a", kind="refused", message="401: the key is wrong"))
    health.wake("a")
    decision = decided(log, health)
    assert isinstance(decision, Assigned) and decision.agent == "a"
    assert log.events[-1] == Masked(agents=(("b", "refused: rests 120 s after failure 1"),))
    health.failed("a", "refused")
    assert health.out()["a"] == "refused: rests 240 s after failure 2"
    health.wake()
    assert health.out() == {}


def test_what_was_not_a_failure_of_the_agent_stays_masked() -> None:
    clock = Clock()
    health = Health(clock.read)
    health.failed("a", "overloaded")
    clock.now += 1000
    log = begun()
    log.append(Masked(agents=(("a", "opted out of this request"),)))
    decision = decided(log, health)
    assert isinstance(decision, Assigned) and decision.agent == "b"


def test_when_all_rest_the_request_waits_for_the_first_if_the_user_wants_that() -> None:
    clock = Clock()
    health = Health(clock.read)
    health.failed("a", "credit")
    health.failed("b", "overloaded")

    async def go() -> tuple[Decision, list[object]]:
        log = begun()
        told: list[object] = []

        async def listen() -> None:
            async for item in log.follow():
                told.append(item)

        listener = asyncio.create_task(listen())
        await asyncio.sleep(0)
        patience = cooldown.Patience(60.0, clock.sleep)
        decision = await cooldown.decide(log, Scoring(a=0.9, b=0.4), health, patience, {})
        log.close()
        await listener
        return decision, told

    decision, told = asyncio.run(go())
    assert isinstance(decision, Assigned) and decision.agent == "b"
    assert Waiting(why="every agent rests; b is tried again", seconds=5.0) in told
    assert clock.now == 105.0, "it waited as long as it said"


def test_otherwise_it_ends_and_nothing_is_lost() -> None:
    clock = Clock()
    health = Health(clock.read)
    health.failed("a", "credit")
    health.failed("b", "refused")
    log = begun()
    assert decided(log, health, 60.0, clock) == Finished(reason="failed", message="nobody")
    assert clock.now == 100.0, "two minutes are more than was allowed"
    assert views.asked(log.events) is not None


def test_the_cascade_keeps_to_it_too() -> None:
    health = Health(Clock().read)
    health.failed("a", "network")
    cascade = Cascade((A, B), Settings())
    decision = asyncio.run(cooldown.decide(begun(), cascade, health, cooldown.Patience(), {}))
    assert isinstance(decision, Assigned) and decision.agent == "b"
