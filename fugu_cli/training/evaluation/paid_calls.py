"""Model calls of an evaluation: each is paid for once and its reply kept, and all together stay
within limits of money and requests.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import JsonValue

from fugu_cli.errors import AgentError, FuguError
from fugu_cli.messages import FromAgent, Message, Prompt, Reply, Usage, Value
from fugu_cli.providers import Agent, Say, Wait
from fugu_cli.providers.wrappers import CachedAgent, reply_key
from fugu_cli.session.costs import usd
from fugu_cli.session.events import Member
from fugu_cli.session.spending import worst_case_cost
from fugu_cli.training.evaluation import results_folder
from fugu_cli.training.tasks import Task

OUTSIDE_FAILURES = frozenset(
    {"refused", "credit", "absent", "limited", "overloaded", "network", "timeout", "protocol"}
)
"""Kinds of failure that say nothing about an agent: the rollout waits for better times, it is never
scored 0.
"""
FINAL_FAILURES = frozenset({"refused", "credit", "absent"})
"""Failures that no waiting mends: the user must change a key or an account."""
FAILURE_HINTS = {
    "refused": "give the agent a key that is accepted",
    "credit": "add credit to the account",
}
"""Advice for an evaluation, whose pool must not change."""
MAX_FAILURES = 3
"""Failures in a row after which an agent is not asked again by this run."""


class SpendingLimitReached(FuguError):
    """A limit of the evaluation is reached. Nothing is lost; a larger limit goes on."""

    exit_code = 3


class AgentUnanswered(FuguError):
    """An agent does not answer, for reasons outside it. `final`: nobody else should try either."""

    def __init__(self, message: str, *, agent: str, final: bool, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.agent = agent
        self.final = final


@dataclass(frozen=True)
class SpendingLimits:
    """The limits of all rollouts together; None means no limit."""

    usd: float | None = None
    requests: int | None = None


class PaidCall(Value):
    """One call that was made. `rollout` is whose."""

    rollout: str
    agent: str
    input: int
    cached: int
    output: int
    seconds: float
    usd: float


class Spending:
    """Counts the calls in `file` and refuses those that would go beyond the limits."""

    def __init__(self, file: Path, limits: SpendingLimits) -> None:
        self._file = file
        self.limits = limits
        before = results_folder.read_rows(file, PaidCall)
        self.requests = len(before)
        self.usd = sum(call.usd for call in before)
        self._reserved = 0.0
        self._under_way = 0
        self._failed: dict[str, int] = defaultdict(int)
        self._down: dict[str, AgentUnanswered] = {}
        self._locks: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._wanted: dict[str, int] = defaultdict(int)

    @asynccontextmanager
    async def alone(self, name: str) -> AsyncIterator[None]:
        """Lock one reply, so that a second caller finds it stored.

        A lock is removed with its last user: it belongs to one event loop, and several trainings
        run in a row.
        """
        self._wanted[name] += 1
        try:
            async with self._locks[name]:
                yield
        finally:
            self._wanted[name] -= 1
            if not self._wanted[name]:
                del self._wanted[name], self._locks[name]

    @asynccontextmanager
    async def call(self, agent: str, worst: float) -> AsyncIterator[None]:
        """Reserve money for a call that may cost `worst` USD. Raises SpendingLimitReached, or
        AgentUnanswered for an agent that is down.
        """
        if agent in self._down:
            raise self._down[agent]
        self._check(agent, worst)
        self._reserved += worst
        self._under_way += 1
        try:
            yield
        except AgentError as error:
            if error.kind in OUTSIDE_FAILURES:
                raise self._unanswered(agent, error) from error
            raise
        finally:
            self._reserved -= worst
            self._under_way -= 1
        self._failed[agent] = 0

    def down(self, agent: str) -> bool:
        """Return whether this run has given up on the agent."""
        return agent in self._down

    def pay(self, paid: PaidCall) -> None:
        """Record a call that was made. Raises StorageError."""
        results_folder.append_row(self._file, paid)
        self.requests += 1
        self.usd += paid.usd

    def _check(self, agent: str, worst: float) -> None:
        most, made = self.limits.requests, self.requests + self._under_way
        if most is not None and made >= most:
            raise SpendingLimitReached(
                f"{made} of {most} requests are made", hint="a larger --max-requests goes on"
            )
        money = self.limits.usd
        if money is not None and self.usd + self._reserved + worst > money:
            raise SpendingLimitReached(
                f"${self.usd:.4f} of ${money:.4f} are spent, and the next call to {agent} may "
                f"cost ${worst:.4f}",
                hint="a larger --max-budget-usd goes on",
            )

    def _unanswered(self, agent: str, error: AgentError) -> AgentUnanswered:
        self._failed[agent] += 1
        final = error.kind in FINAL_FAILURES
        hint = FAILURE_HINTS.get(error.kind, error.hint)
        failure = AgentUnanswered(
            f"{agent} does not answer: {error}", agent=agent, final=final, hint=hint
        )
        if final or self._failed[agent] >= MAX_FAILURES:
            self._down[agent] = failure
        return failure


REPLIES_FOLDER = "replies"
_TIMES = (
    (re.compile(r"\b\d+\.\d+ ?s\b"), "0 s"),
    (re.compile(r"(duration_ms|finished in) \d+\.\d+\w*"), r"\1 0"),
)
_PLACES = ((re.compile(r"0x[0-9a-f]{6,}"), "0x0"), (re.compile(r"/tmp/[\w.-]+"), "/tmp/x"))
_CHANCE = (*_TIMES, *_PLACES)
"""Patterns of values that differ between test runs, with their replacements in the name of a reply.
"""
_HERE = "/%repository%"
"""Stands in kept replies for the rollout's repository: who asks again has another, and must not
work in the first.
"""


@dataclass(frozen=True)
class RolloutBilling:
    """The billing of a rollout: its name, repository and seed, the folder of stored replies, and
    the spending.

    `named` are texts of the task that look random but are not.
    """

    rollout: str
    repository: Path
    seed: int
    folder: Path
    spending: Spending
    named: frozenset[str] = frozenset()


def task_literals(task: Task) -> frozenset[str]:
    """Return the texts of a task that look random but are part of it: times in its request,
    addresses and paths in its files.

    Times in files are left out: with many of them a test run would print one now and then.
    """
    texts = [(pattern, task.prompt) for pattern, _ in _TIMES]
    texts += [
        (pattern, text) for pattern, _ in _PLACES for text in (task.prompt, *task.files.values())
    ]
    return frozenset(match[0] for pattern, text in texts for match in pattern.finditer(text))


class PaidAgent:
    """`agent`, asked only for what nobody paid for yet. `settings` is everything that changes its
    answers.
    """

    def __init__(
        self,
        agent: Agent,
        member: Member,
        settings: Mapping[str, JsonValue],
        account: RolloutBilling,
    ) -> None:
        self._account = account
        self._settings = dict(settings) | ({"seed": account.seed} if account.seed else {})
        counted = _CountedAgent(agent, member, account)
        self._cached = CachedAgent(
            counted, account.folder / REPLIES_FOLDER, self._settings, self._same
        )

    @property
    def name(self) -> str:
        return self._cached.name

    async def reply(self, prompt: Prompt, say: Say, wait: Wait) -> Reply:
        """Return the stored reply, or a new one. Raises SpendingLimitReached and AgentUnanswered,
        which end the rollout for now.
        """
        seeded_prompt = _with_seed(prompt, self._account.seed)
        async with self._account.spending.alone(
            reply_key(self._settings, self._same(seeded_prompt))
        ):
            # a pause without its error is always made: a limit of the moment must not decide who
            # acts
            kept = await self._cached.reply(
                seeded_prompt, say, lambda pause: wait(replace(pause, error=None))
            )
        return _with_repository(kept, _HERE, str(self._account.repository))

    async def close(self) -> None:
        await self._cached.close()

    def _same(self, prompt: Prompt) -> Prompt:
        text = prompt.model_dump_json().replace(str(self._account.repository), "/repository")
        moved = Prompt.model_validate_json(text)
        return moved.model_copy(update={"messages": tuple(map(self._settled, moved.messages))})

    def _settled(self, message: Message) -> Message:
        """Remove random values from a message. An agent's own message is stored and returned
        unchanged.
        """
        if isinstance(message, FromAgent):
            return message
        text = message.text
        for pattern, instead in _CHANCE:
            text = pattern.sub(_replace_unless(self._account.named, instead), text)
        return message.model_copy(update={"text": text})


class _CountedAgent:
    """A call that is really made: within the limits, timed and written down."""

    def __init__(self, agent: Agent, member: Member, account: RolloutBilling) -> None:
        self._agent = agent
        self._member = member
        self._account = account

    @property
    def name(self) -> str:
        return self._agent.name

    async def reply(self, prompt: Prompt, say: Say, wait: Wait) -> Reply:
        started = time.monotonic()
        async with self._account.spending.call(self.name, worst_case_cost(self._member, prompt)):
            try:
                reply = await self._agent.reply(prompt, say, wait)
            except AgentError as error:
                used = error.usage or Usage()
                if used != Usage():  # what was refused before anything was read is no request
                    self._pay(used, started)
                raise
        reply = _with_repository(reply, str(self._account.repository), _HERE)
        return reply.model_copy(update={"seconds": self._pay(reply.usage, started)})

    def _pay(self, used: Usage, started: float) -> float:
        """Write down what a call took. Returns its seconds."""
        seconds = round(time.monotonic() - started, 3)
        self._account.spending.pay(
            PaidCall(
                rollout=self._account.rollout,
                agent=self.name,
                input=used.input,
                cached=used.cached,
                output=used.output,
                seconds=seconds,
                usd=usd(used, self._member.price),
            )
        )
        return seconds

    async def close(self) -> None:
        await self._agent.close()


def _replace_unless(named: frozenset[str], instead: str) -> Callable[[re.Match[str]], str]:
    """Return a replacement function: texts in `named` stay, all others become `instead`."""
    return lambda found: found[0] if found[0] in named else found.expand(instead)


def _with_repository(reply: Reply, old_path: str, new_path: str) -> Reply:
    """Return the reply with another repository path. Reasoning stays as it is, because providers
    sign it.
    """
    calls = tuple(
        call.model_copy(update={"arguments": call.arguments.replace(old_path, new_path)})
        for call in reply.calls
    )
    return reply.model_copy(update={"text": reply.text.replace(old_path, new_path), "calls": calls})


def _with_seed(prompt: Prompt, seed: int) -> Prompt:
    """Return the prompt with another seed for another repetition. The first one leaves it
    unchanged.
    """
    return prompt.model_copy(update={"seed": (prompt.seed or 0) + 1000 * seed}) if seed else prompt


if TYPE_CHECKING:

    def _fits(agent: PaidAgent) -> Agent:
        return agent
