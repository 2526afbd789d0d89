"""Agents that fail are unavailable, ever longer, and are tried again; an account's limits hold for
every turn.
"""

import asyncio

import pytest

from fugu_cli.errors import AgentError
from fugu_cli.messages import FromUser, Prompt, Reply
from fugu_cli.providers import Pause, Say, Wait
from fugu_cli.providers.circuit_breaker import BreakerAgent, CircuitBreaker
from fugu_cli.providers.retry import Backoff, RetryClock, Retrying
from fugu_cli.session.events import Exclusion

PROMPT = Prompt(system="", messages=(FromUser(text="x"),))


class Clock:
    """Time that only passes when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def read(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


class Listed:
    """Answers from a list; the last one again."""

    def __init__(self, name: str, *answers: Reply | AgentError) -> None:
        self._name = name
        self._answers = list(answers)
        self.asked = 0

    @property
    def name(self) -> str:
        return self._name

    async def reply(self, prompt: Prompt, say: Say, wait: Wait) -> Reply:
        self.asked += 1
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, AgentError):
            raise answer
        return answer

    async def close(self) -> None:
        pass


def limited(after: float | None = None) -> AgentError:
    return AgentError("slow down", kind="limited", retry=True, after=after)


def test_the_time_doubles_with_each_failure_and_ends_with_an_answer() -> None:
    clock = Clock()
    breaker = CircuitBreaker(now=clock.read)
    lengths = []
    for _ in range(10):
        breaker.failed("a", "overloaded")
        lengths.append(breaker.seconds("a"))
        clock.now += breaker.seconds("a")
        assert breaker.unavailable() == {}
        assert breaker.recovered("a", "overloaded")
    assert lengths == [5, 10, 20, 40, 80, 160, 320, 640, 900, 900]
    for _ in range(1100):
        breaker.failed("a", "overloaded")
        clock.now += breaker.seconds("a")
    breaker.succeeded("a")
    breaker.failed("a", "overloaded")
    assert breaker.soonest({"a"}) == ("a", 5.0)


def test_calls_that_fail_together_are_one_failure() -> None:
    clock = Clock()
    breaker = CircuitBreaker(now=clock.read)
    for _ in range(64):
        breaker.failed("a", "overloaded")
    assert breaker.seconds("a") == 5.0
    breaker.failed("a", "limited", after=30.0)
    breaker.failed("a", "overloaded")
    assert breaker.unavailable() == {"a": Exclusion(kind="limited", message="retrying in 30 s")}
    clock.now += 30.0
    for _ in range(64):
        breaker.failed("a", "overloaded")
    assert breaker.seconds("a") == 10.0


@pytest.mark.parametrize(
    ("kind", "seconds"), [("refused", 120.0), ("credit", 300.0), ("timeout", 10.0)]
)
def test_what_needs_a_person_takes_longer(kind: str, seconds: float) -> None:
    breaker = CircuitBreaker(now=Clock().read)
    breaker.failed("a", kind)
    assert breaker.unavailable() == {
        "a": Exclusion(kind=kind, message=f"retrying in {seconds:.0f} s")
    }


def test_the_servers_own_wish_holds_exactly_however_often_it_failed() -> None:
    clock = Clock()
    breaker = CircuitBreaker(now=clock.read)
    for _ in range(6):
        breaker.failed("a", "limited", after=7.0)
        assert breaker.seconds("a") == 7.0
        clock.now += 7.0
    breaker.failed("a", "limited", after=77.0)
    assert (breaker.seconds("a"), breaker.soonest({"a"}, server_named=True)) == (77.0, ("a", 77.0))


def test_what_no_server_asked_for_is_not_waited_for_as_if_it_had() -> None:
    breaker = CircuitBreaker(now=Clock().read)
    breaker.failed("a", "overloaded")
    breaker.failed("b", "limited", after=60.0)
    names = {"a", "b"}
    assert (breaker.soonest(names), breaker.soonest(names, server_named=True)) == (
        ("a", 5.0),
        ("b", 60.0),
    )
    assert breaker.soonest({"c"}) is None


def test_agents_of_one_limited_account_are_unavailable_together() -> None:
    breaker = CircuitBreaker({"a": "key", "b": "key", "c": "other"}, Clock().read)
    breaker.failed("a", "limited", after=30.0)
    breaker.failed("c", "overloaded", after=40.0)
    assert {name: breaker.seconds(name) for name in "abc"} == {"a": 30.0, "b": 30.0, "c": 40.0}


def test_an_agent_that_the_user_wants_is_asked_at_once_and_its_account_too() -> None:
    clock = Clock()
    breaker = CircuitBreaker({"a": "key", "b": "key"}, clock.read)
    breaker.failed("a", "limited", after=30.0)
    breaker.limits.hold("a", 30.0)
    breaker.wake({"b"})
    assert breaker.unavailable() == {"a": Exclusion(kind="limited", message="retrying in 30 s")}
    assert (breaker.limits.seconds("a"), breaker.limits.seconds("b")) == (0.0, 0.0)


def test_a_refused_key_is_asked_again_when_its_time_is_over_or_by_name() -> None:
    clock = Clock()
    breaker = CircuitBreaker(now=clock.read)
    agent = Listed("a", AgentError("401", kind="refused"))
    watched = BreakerAgent(agent, breaker)
    assert [call(watched) for _ in range(3)] == ["refused", "unavailable", "unavailable"]
    breaker.wake({"a"})
    assert (call(watched), agent.asked) == ("unavailable", 1)
    breaker.try_early("a")
    assert [call(watched), call(watched), agent.asked] == ["refused", "unavailable", 2]
    assert breaker.seconds("a") == 120.0, "a try that the user wants costs no longer pause"
    clock.now += 120.0
    assert [call(watched), call(watched), agent.asked] == ["refused", "unavailable", 3]
    assert breaker.seconds("a") == 240.0


def test_of_many_calls_at_once_one_tries_a_refused_key() -> None:
    clock = Clock()
    breaker = CircuitBreaker(now=clock.read)
    breaker.failed("a", "refused")
    clock.now += 120.0
    called = 0

    class Slow(Listed):
        async def reply(self, prompt: Prompt, say: Say, wait: Wait) -> Reply:
            nonlocal called
            called += 1
            await asyncio.sleep(0)
            return await super().reply(prompt, say, wait)

    watched = BreakerAgent(Slow("a", Reply(text="mended")), breaker)

    async def ask() -> str:
        try:
            return (await watched.reply(PROMPT, lambda text: None, lambda pause: None)).text
        except AgentError as error:
            assert error.after is not None
            return error.kind

    async def together() -> list[str]:
        return await asyncio.gather(*(ask() for _ in range(20)))

    assert sorted(asyncio.run(together())) == ["mended", *["unavailable"] * 19]
    assert (called, breaker.unavailable()) == (1, {})


def test_a_client_that_leaves_while_a_refused_key_is_tried_starts_its_time_again() -> None:
    clock = Clock()
    breaker = CircuitBreaker(now=clock.read)
    breaker.failed("a", "refused")
    clock.now += 120.0
    began = breaker.begin_call("a")
    assert breaker.seconds("a") == 1.0
    breaker.cut("a", began)
    assert breaker.seconds("a") == 120.0


@pytest.mark.parametrize("kind", ["invalid", "absent", "limited", "credit"])
def test_a_key_that_is_accepted_again_is_no_refused_one(kind: str) -> None:
    clock = Clock()
    breaker = CircuitBreaker(now=clock.read)
    breaker.failed("a", "refused")
    breaker.failed("a", kind, began=-1.0)
    assert breaker.seconds("a") == 120.0, "that call was under way before"
    breaker.try_early("a")
    breaker.failed("a", kind, began=breaker.begin_call("a"))
    assert {why.kind for why in breaker.unavailable().values()} == {kind} & {"limited", "credit"}


def test_the_agent_that_was_called_longest_ago_is_tried_first_and_no_refused_key() -> None:
    clock = Clock()
    breaker = CircuitBreaker(now=clock.read)
    for name, kind in (("b", "overloaded"), ("c", "credit"), ("a", "network"), ("d", "refused")):
        clock.now += 1.0
        breaker.begin_call(name)
        breaker.failed(name, kind)
    assert breaker.tried_longest_ago("abcd") == "b"
    assert breaker.tried_longest_ago("acd") == "c"
    assert breaker.tried_longest_ago("d") is None


def call(agent: BreakerAgent) -> str:
    """The kind of failure that a call ends with, "" for an answer."""
    try:
        asyncio.run(agent.reply(PROMPT, lambda text: None, lambda pause: None))
    except AgentError as error:
        return error.kind
    return ""


def test_a_request_that_one_server_will_not_take_says_nothing_of_the_next() -> None:
    breaker = CircuitBreaker(now=Clock().read)
    breaker.failed("a", "invalid")
    assert breaker.unavailable() == {}
    assert not breaker.recovered("a", "invalid")


def test_every_call_is_watched() -> None:
    breaker = CircuitBreaker(now=Clock().read)
    agent = BreakerAgent(Listed("a", AgentError("down", kind="network"), Reply(text="up")), breaker)

    assert call(agent) == "network"
    assert list(breaker.unavailable()) == ["a"]
    assert call(agent) == ""
    assert breaker.unavailable() == {}


def test_turns_of_one_account_wait_together() -> None:
    clock = Clock()
    breaker = CircuitBreaker({"one": "key", "two": "key", "three": "another key"}, clock.read)
    time = RetryClock(clock.sleep, clock.read, lambda: 0.0)
    once = Backoff(attempts=1)
    first = Retrying(Listed("one", limited(20.0)), once, time, breaker)
    second = Retrying(Listed("two", Reply(text="2")), once, time, breaker)
    third = Retrying(Listed("three", Reply(text="3")), once, time, breaker)
    pauses: list[Pause] = []

    def reply(agent: Retrying) -> Reply:
        return asyncio.run(agent.reply(PROMPT, lambda text: None, pauses.append))

    with pytest.raises(AgentError, match="slow down"):
        reply(first)
    assert (reply(third).text, clock.slept) == ("3", [])
    assert (reply(second).text, clock.slept) == ("2", [20.0])
    assert [(pause.why, pause.seconds, pause.retry) for pause in pauses] == [
        ("waiting for two", 20.0, 0)
    ]


def test_a_limit_that_is_too_long_to_wait_for_fails_at_once() -> None:
    clock = Clock()
    breaker = CircuitBreaker(now=clock.read)
    breaker.limits.hold("a", 600.0)
    agent = Listed("a", Reply(text="x"))
    retrying = Retrying(agent, Backoff(), RetryClock(clock.sleep, clock.read), breaker)
    with pytest.raises(AgentError, match="for 600 s more") as refused:
        asyncio.run(retrying.reply(PROMPT, lambda text: None, lambda pause: None))
    assert (refused.value.kind, refused.value.after, agent.asked) == ("limited", 600.0, 0)
