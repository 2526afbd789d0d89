"""Before a decision: who is unavailable is a fact, the next best by the coordinator's own scores
takes the turn.
"""

import asyncio
from dataclasses import replace

import pytest

from fugu_cli.coordinators import CoordinatorSettings, Decision, action_space
from fugu_cli.coordinators.rules import Cascade
from fugu_cli.engine import availability
from fugu_cli.engine.availability import CallPauses, OtherAgents
from fugu_cli.engine.environment import Team, WaitLimit
from fugu_cli.errors import AgentError
from fugu_cli.providers import Pause
from fugu_cli.providers.circuit_breaker import CircuitBreaker
from fugu_cli.session.events import (
    Asked,
    Assigned,
    Exclusion,
    Failed,
    Finished,
    Masked,
    Member,
    Opened,
    Replied,
)
from fugu_cli.session.live_events import Waiting
from fugu_cli.session.log import Log
from fugu_cli.session.state import SessionState
from fugu_cli.ui.trace_rows import TraceRows

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

    async def decide(self, state: SessionState) -> Decision:
        out = action_space.agents_out(state)
        able = {name: score for name, score in self._scores.items() if name not in out}
        if not able:
            return Finished(reason="failed", message="nobody")
        return Assigned(
            turn=action_space.next_turn_number(state),
            agent=max(able, key=able.__getitem__),
            role="worker",
            by="test",
        )


def begun() -> Log:
    return Log.memory([Opened(version="1", repo="/r", pool=(A, B)), Asked(text="x")])


def team(breaker: CircuitBreaker, seconds: float | None = None, clock: Clock | None = None) -> Team:
    limit = WaitLimit(seconds, (clock or Clock()).sleep)
    return Team({"a": A, "b": B}, {}, Scoring(a=0.9, b=0.4), breaker, limit)


def decided(
    log: Log, breaker: CircuitBreaker, seconds: float | None = None, clock: Clock | None = None
) -> Decision:
    return asyncio.run(availability.decide(log, team(breaker, seconds, clock), {}))


def test_nothing_is_written_while_all_is_well() -> None:
    log = begun()
    decision = decided(log, CircuitBreaker())
    assert isinstance(decision, Assigned) and decision.agent == "a"
    assert len(log.events) == 2


def test_an_agent_that_is_unavailable_is_masked_with_the_reason_and_the_next_best_takes_the_turn() -> (
    None
):
    clock = Clock()
    breaker = CircuitBreaker(now=clock.read)
    breaker.failed("a", "overloaded")
    log = begun()
    decision = decided(log, breaker)
    assert isinstance(decision, Assigned) and decision.agent == "b"
    assert log.events[-1] == Masked(
        agents=(("a", Exclusion(kind="overloaded", message="retrying in 5 s")),)
    )
    assert decision.seconds_left == (("a", 5.0),)
    log.append(decision)
    rows = TraceRows()
    for record in log.records:
        rows.add_item(record)
    assert rows.rows[-1].unavailable == "server overloaded: a (5 s left)"


def test_it_is_tried_again_when_its_time_is_over_and_another_has_answered() -> None:
    clock = Clock()
    breaker = CircuitBreaker(now=clock.read)
    breaker.failed("a", "overloaded")
    log = begun()
    log.append(Assigned(turn=1, agent="a", role="worker", by="test"))
    log.append(Failed(turn=1, what="a", kind="overloaded", message="busy"))
    assert list(log.state.request.failed_agents) == ["a"]
    decided(log, breaker)
    assert len(log.events) == 4, "the failure itself masks it: there is nothing to add"
    clock.now += 6
    decision = decided(log, breaker)
    assert isinstance(decision, Assigned) and decision.agent == "b", (
        "whoever was not tried yet comes first"
    )
    log.append(decision)
    log.append(Replied(turn=2, agent="b", text="done"))
    decision = decided(log, breaker)
    assert isinstance(decision, Assigned) and decision.agent == "a"
    assert log.events[-1] == Masked()


def test_when_all_have_failed_and_nobody_answered_it_ends_though_some_are_back() -> None:
    clock = Clock()
    breaker = CircuitBreaker(now=clock.read)
    log = begun()
    for turn, name in enumerate(("a", "b"), 1):
        breaker.failed(name, "network")
        log.append(Assigned(turn=turn, agent=name, role="worker", by="test"))
        log.append(Failed(turn=turn, what=name, kind="network", message="no such host"))
        clock.now += 20
    assert breaker.unavailable() == {}
    assert decided(log, breaker) == Finished(reason="failed", message="nobody")
    again = decided(log, breaker, 60.0, clock)
    assert isinstance(again, Assigned) and again.agent == "a", (
        "the user wants to wait: nobody has to"
    )


def failed_turn(log: Log, turn: int, name: str, kind: str, message: str = "no") -> None:
    log.append(Assigned(turn=turn, agent=name, role="worker", by="test"))
    log.append(Failed(turn=turn, what=name, kind=kind, message=message))


def test_an_agent_that_is_pinned_in_the_middle_of_a_request_is_in_again() -> None:
    breaker = CircuitBreaker(now=Clock().read)
    log, members = begun(), team(breaker)
    for turn, name in enumerate(("a", "b"), 1):
        breaker.failed(name, "network")
        failed_turn(log, turn, name, "network")
    availability.wake(members, ["a"])
    availability.readmit(log, members, "a")
    assert list(log.state.request.failed_agents) == ["b"]
    decision = decided(log, breaker)
    assert isinstance(decision, Assigned) and decision.agent == "a"


@pytest.mark.parametrize("kind", ["overloaded", "network", "timeout", "protocol", "credit"])
def test_when_all_are_unavailable_one_is_tried_a_request_and_no_more(kind: str) -> None:
    clock = Clock()
    breaker = CircuitBreaker(now=clock.read)
    for name in ("b", "a"):
        breaker.begin_call(name)
        breaker.failed(name, kind)
        clock.now += 1.0
    for expected in ("b", "a", "b"):
        log = begun()
        decision = decided(log, breaker)
        assert isinstance(decision, Assigned) and decision.agent == expected
        assert isinstance(masked := log.events[-1], Masked) and masked.probed == expected
        clock.now += 0.1
        breaker.failed(expected, kind, began=breaker.begin_call(expected))
        failed_turn(log, 1, expected, kind)
        assert isinstance(decided(log, breaker), Finished)


@pytest.mark.parametrize("wait", [None, 60.0])
def test_an_agent_that_was_left_out_of_a_request_is_not_tried_for_want_of_others(
    wait: float | None,
) -> None:
    clock = Clock()
    breaker = CircuitBreaker(now=clock.read)
    for name in ("a", "b"):
        breaker.failed(name, "overloaded")
    log = begun()
    log.append(Masked(agents=(("a", Exclusion(message="opted out of this request")),)))
    decision = decided(log, breaker, wait, clock)
    assert isinstance(decision, Assigned) and decision.agent == "b"
    log.append(decision)
    log.append(Replied(turn=decision.turn, agent="b", text="x"))
    breaker.failed("b", "overloaded")
    log.append(Failed(turn=decision.turn, what="b", kind="overloaded", message="busy"))
    clock.now += 100
    decision = decided(log, breaker, wait, clock)
    assert not (isinstance(decision, Assigned) and decision.agent == "a")


def test_a_refused_key_is_not_tried_because_all_are_unavailable() -> None:
    clock = Clock()
    breaker = CircuitBreaker(now=clock.read)
    breaker.failed("a", "refused")
    breaker.failed("b", "overloaded")
    decision = decided(begun(), breaker)
    assert isinstance(decision, Assigned) and decision.agent == "b"
    breaker.failed("b", "refused")
    assert decided(begun(), breaker) == Finished(reason="failed", message="nobody")
    breaker.try_early("a")
    decision = decided(begun(), breaker)
    assert isinstance(decision, Assigned) and decision.agent == "a"


def test_an_agent_that_goes_on_failing_between_answers_is_tried_three_times() -> None:
    clock = Clock()
    breaker = CircuitBreaker(now=clock.read)
    log, tries = begun(), list[str]()
    while isinstance(decision := decided(log, breaker, clock=clock), Assigned) and len(tries) < 99:
        log.append(decision)
        name, turn = decision.agent, decision.turn
        log.append(Replied(turn=turn, agent=name, text="I look around."))
        breaker.succeeded(name)
        breaker.failed(name, "overloaded")
        log.append(Failed(turn=turn, what=name, kind="overloaded", message="busy"))
        tries.append(name)
        clock.now += 6
    assert sorted(tries) == ["a", "a", "a", "b", "b", "b"]


def test_a_limit_that_is_waited_for_again_and_again_comes_to_an_end() -> None:
    clock = Clock()
    breaker = CircuitBreaker(now=clock.read)
    log, tries = begun(), 0
    while isinstance(decision := decided(log, breaker, clock=clock), Assigned) and tries < 99:
        log.append(decision)
        breaker.failed(decision.agent, "limited", after=4.0)
        log.append(
            Failed(turn=decision.turn, what=decision.agent, kind="limited", message="slow down")
        )
        tries += 1
    assert tries == 20


def test_what_was_not_a_failure_of_the_agent_stays_masked() -> None:
    clock = Clock()
    breaker = CircuitBreaker(now=clock.read)
    breaker.failed("a", "overloaded")
    clock.now += 1000
    log = begun()
    log.append(Masked(agents=(("a", Exclusion(message="opted out of this request")),)))
    decision = decided(log, breaker)
    assert isinstance(decision, Assigned) and decision.agent == "b"


def test_when_nobody_is_available_the_request_waits_for_the_first_if_the_user_wants_that() -> None:
    clock = Clock()
    breaker = CircuitBreaker(now=clock.read)
    breaker.failed("a", "refused")
    breaker.failed("b", "overloaded")

    async def go() -> tuple[Decision, list[object]]:
        log = begun()
        failed_turn(log, 1, "b", "overloaded")
        told: list[object] = []

        async def listen() -> None:
            async for item in log.follow():
                told.append(item)

        listener = asyncio.create_task(listen())
        await asyncio.sleep(0)
        decision = await availability.decide(log, team(breaker, 60.0, clock), {})
        log.close()
        await listener
        return decision, told

    decision, told = asyncio.run(go())
    assert isinstance(decision, Assigned) and decision.agent == "b"
    assert Waiting(why="waiting for b", seconds=5.0) in told
    assert clock.now == 105.0, "it waited as long as it said"


def test_otherwise_it_ends_and_nothing_is_lost() -> None:
    clock = Clock()
    breaker = CircuitBreaker(now=clock.read)
    breaker.failed("a", "credit")
    breaker.failed("b", "refused")
    log = begun()
    failed_turn(log, 1, "a", "credit")
    assert decided(log, breaker, 60.0, clock) == Finished(reason="failed", message="nobody")
    assert clock.now == 100.0, "two minutes are more than was allowed"
    assert log.state.request.asked is not None


def test_the_cascade_keeps_to_it_too() -> None:
    breaker = CircuitBreaker(now=Clock().read)
    breaker.failed("a", "network")
    cascade = replace(team(breaker), coordinator=Cascade((A, B), CoordinatorSettings()))
    decision = asyncio.run(availability.decide(begun(), cascade, {}))
    assert isinstance(decision, Assigned) and decision.agent == "b"


def test_a_time_that_a_server_named_is_waited_for_and_no_other() -> None:
    clock = Clock()
    breaker = CircuitBreaker(now=clock.read)
    breaker.failed("a", "overloaded")
    breaker.failed("b", "limited", after=40.0)
    log = begun()
    log.append(Assigned(turn=1, agent="a", role="worker", by="test"))
    log.append(Failed(turn=1, what="a", kind="overloaded", message="busy"))
    decision = decided(log, breaker, clock=clock)
    assert isinstance(decision, Assigned) and (decision.agent, clock.now) == ("b", 140.0)
    breaker.failed("a", "limited", after=3600.0)
    breaker.failed("b", "overloaded")
    log = begun()
    failed_turn(log, 1, "a", "limited")
    failed_turn(log, 2, "b", "overloaded")
    assert decided(log, breaker, clock=clock) == Finished(reason="failed", message="nobody")
    assert clock.now == 140.0, "an hour is too long"


LIMITED = AgentError("slow down", kind="limited", retry=True, after=30.0)


def pausing(
    found: Team,
    log: Log,
    *seconds: float,
    others: OtherAgents = "soon",
    error: AgentError | None = LIMITED,
) -> list[float]:
    """The pauses that `a` makes for `error`, up to the one it must not make."""
    pauses, made = CallPauses(found, "a", others), list[float]()
    for length in seconds:
        try:
            pauses.check(Pause("busy", length, error=error, retry=1, retries=4), log.state)
        except AgentError as raised:
            assert raised is error
            break
        made.append(length)
    return made


def test_a_call_waits_a_moment_and_no_longer_where_another_agent_can_act() -> None:
    found = team(CircuitBreaker())
    assert pausing(found, begun(), 30.0) == []
    assert pausing(found, begun(), 1.0, 2.0, 4.0, 8.0) == [1.0, 2.0]


def test_the_last_agent_is_waited_for_up_to_the_limit() -> None:
    alone = replace(team(CircuitBreaker()), excluded=frozenset({"b"}))
    assert pausing(alone, begun(), 30.0, 90.0, 181.0) == [30.0, 90.0]
    assert pausing(replace(alone, wait_limit=WaitLimit(0.0)), begun(), 2.0, 2.0) == [2.0]
    log = begun()
    log.append(Masked(agents=(("b", Exclusion(message="opted out of this request")),)))
    assert pausing(team(CircuitBreaker()), log, 30.0) == [30.0]


@pytest.mark.parametrize(
    ("after", "others", "waits"), [(20.0, "soon", False), (40.0, "soon", True), (20.0, "now", True)]
)
def test_of_limited_agents_the_one_is_waited_for_that_is_back_first(
    after: float, others: OtherAgents, waits: bool
) -> None:
    breaker = CircuitBreaker(now=Clock().read)
    breaker.failed("b", "limited", after=after)
    assert pausing(team(breaker), begun(), 30.0, others=others) == ([30.0] if waits else [])


def test_a_pause_without_a_failure_is_always_made() -> None:
    assert pausing(team(CircuitBreaker()), begun(), 60.0, 60.0, error=None) == [60.0, 60.0]
