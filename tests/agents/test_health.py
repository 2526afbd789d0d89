"""Agents that fail rest, ever longer, and are tried again; an account's limits hold for every turn."""

import asyncio

import pytest

from fugu_cli.agents import Say, Wait
from fugu_cli.agents.health import Health, Watched
from fugu_cli.agents.retry import Patience, Retrying, Shared, Time
from fugu_cli.errors import AgentError
from fugu_cli.messages import FromUser, Prompt, Reply

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


def test_the_rest_doubles_with_each_failure_and_ends_with_an_answer() -> None:
    clock = Clock()
    health = Health(clock.read)
    lengths = []
    for _ in range(10):
        health.failed("a", "overloaded")
        soonest = health.soonest()
        assert soonest is not None
        lengths.append(soonest[1])
        clock.now += soonest[1]
        assert health.out() == {}
        assert health.rested("a", "overloaded: busy")
    assert lengths == [5, 10, 20, 40, 80, 160, 320, 640, 900, 900]
    health.well("a")
    health.failed("a", "overloaded")
    assert health.soonest() == ("a", 5.0)


def test_calls_that_fail_together_are_one_failure() -> None:
    clock = Clock()
    health = Health(clock.read)
    for _ in range(64):
        health.failed("a", "overloaded")
    assert health.soonest() == ("a", 5.0)
    health.failed("a", "limited", after=30.0)
    health.failed("a", "overloaded")
    assert (health.soonest(), health.out()) == (("a", 30.0), {"a": "limited: rests 30 s after failure 1"})
    clock.now += 30.0
    for _ in range(64):
        health.failed("a", "overloaded")
    assert health.soonest() == ("a", 10.0)


@pytest.mark.parametrize(("kind", "seconds"), [("refused", 120.0), ("credit", 300.0), ("timeout", 10.0)])
def test_what_needs_a_person_rests_longer(kind: str, seconds: float) -> None:
    health = Health(Clock().read)
    health.failed("a", kind)
    assert health.soonest() == ("a", seconds)
    assert health.out() == {"a": f"{kind}: rests {seconds:.0f} s after failure 1"}


def test_the_servers_own_wish_counts_where_it_is_longer() -> None:
    health = Health(Clock().read)
    health.failed("a", "limited", after=77.0)
    assert health.soonest() == ("a", 77.0)


def test_a_request_that_one_server_will_not_take_says_nothing_of_the_next() -> None:
    health = Health(Clock().read)
    health.failed("a", "invalid")
    assert health.out() == {}
    assert not health.rested("a", "invalid: too long")


def test_every_call_is_watched() -> None:
    health = Health(Clock().read)
    agent = Watched(Listed("a", AgentError("down", kind="network"), Reply(text="up")), health)

    async def call() -> Reply:
        return await agent.reply(PROMPT, lambda text: None, lambda why, seconds, used: None)

    with pytest.raises(AgentError):
        asyncio.run(call())
    assert list(health.out()) == ["a"]
    assert asyncio.run(call()).text == "up"
    assert health.out() == {}


def test_turns_of_one_account_wait_together() -> None:
    clock = Clock()
    health = Health(clock.read)
    time = Time(clock.sleep, clock.read, lambda: 0.0)
    once = Patience(attempts=1)
    first = Retrying(Listed("one", limited(20.0)), once, time, Shared(health, "key"))
    second = Retrying(Listed("two", Reply(text="2")), once, time, Shared(health, "key"))
    third = Retrying(Listed("three", Reply(text="3")), once, time, Shared(health, "another key"))
    waits: list[str] = []

    def call(agent: Retrying) -> Reply:
        return asyncio.run(agent.reply(PROMPT, lambda text: None, lambda why, s, used: waits.append(f"{why} {s:g}")))

    with pytest.raises(AgentError, match="slow down"):
        call(first)
    assert (call(third).text, clock.slept) == ("3", [])
    assert (call(second).text, clock.slept) == ("2", [20.0])
    assert waits == ["two: its server limits how often it is asked 20"]


def test_a_limit_that_is_too_long_to_wait_for_fails_at_once() -> None:
    clock = Clock()
    health = Health(clock.read)
    health.limit("key", 600.0)
    agent = Listed("a", Reply(text="x"))
    retrying = Retrying(agent, Patience(), Time(clock.sleep, clock.read), Shared(health, "key"))
    with pytest.raises(AgentError, match="left alone for 600 s") as refused:
        asyncio.run(retrying.reply(PROMPT, lambda text: None, lambda why, seconds, used: None))
    assert (refused.value.kind, refused.value.after, agent.asked) == ("limited", 600.0, 0)
