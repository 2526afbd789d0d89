"""The model calls of an evaluation. Each is paid for once and its reply is stored, and all together
stay within limits of money and requests.
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
from typing import TYPE_CHECKING, Protocol

from pydantic import JsonValue

from fugu_cli.engine.accounted_agent import AccountedAgent
from fugu_cli.errors import AgentError, FuguError
from fugu_cli.messages import FromAgent, Message, Prompt, Reply, Usage, Value
from fugu_cli.providers import Agent, AgentWrapper, Say, Wait
from fugu_cli.providers.wrappers import CachedAgent, reply_key
from fugu_cli.session.costs import usd
from fugu_cli.session.events import Member
from fugu_cli.session.spending import CallAccount
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
    """A limit of the evaluation is reached. Nothing is lost, and a larger limit continues it."""

    exit_code = 3


class AgentUnanswered(FuguError):
    """An agent does not answer, for reasons outside it. With `final`, no other rollout should try
    it either.
    """

    def __init__(
        self, message: str, *, agent: str = "", final: bool = False, hint: str = ""
    ) -> None:
        super().__init__(message, hint=hint)
        self.agent = agent
        self.final = final


@dataclass(frozen=True)
class SpendingLimits:
    """The limits of all rollouts together; None means no limit."""

    usd: float | None = None
    requests: int | None = None


class PaidCall(Value):
    """A call that was made for `rollout`. `lost`: its process was killed before it ended; tokens
    and USD are then estimated from what was sent and received.
    """

    rollout: str
    agent: str
    input: int
    cached: int
    output: int
    seconds: float
    usd: float
    lost: bool = False


class CallUnderWay(Value):
    """A line of `under-way.jsonl`: a call that has begun, or with `over` has ended.

    The newest line of a key counts.
    """

    key: str
    call: PaidCall
    over: bool = False


UNDER_WAY_FILE = "under-way.jsonl"


@dataclass(frozen=True)
class _RunningCall:
    """A running call: its newest line, the most USD that it may cost, and the time when it began."""

    line: CallUnderWay
    reserved: float
    began: float


class ReplyLocks:
    """A lock for each reply, so that a second caller waits for it and finds it stored."""

    def __init__(self) -> None:
        self._locks: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._wanted: dict[str, int] = defaultdict(int)

    @asynccontextmanager
    async def alone(self, name: str) -> AsyncIterator[None]:
        """Lock one reply.

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


class SpendingAccount(Protocol):
    """The one account of all rollouts, which grants every call before it is made."""

    def total_usd(self) -> float:
        """Return the USD spent so far."""

    def is_down(self, agent: str) -> bool:
        """Return whether this run has given up on the agent."""

    def begin_rollout(self, rollout: str) -> None:
        """Count what an earlier attempt at the rollout left under way, because its process is
        gone.
        """

    def begin_call(self, call: PaidCall, worst: float) -> str:
        """Reserve `worst` USD for a call and return its key. Raises SpendingLimitReached, or
        AgentUnanswered for an agent that is down.
        """

    def update_call(self, key: str, call: PaidCall, worst: float) -> None:
        """Record how far a call has come, and the most that it may cost."""

    def end_call(self, key: str, call: PaidCall | None) -> None:
        """Record what a call used; None if it used nothing. Raises StorageError."""

    def record_answer(self, agent: str) -> None:
        """Record that the agent answers."""

    def record_failure(self, agent: str, kind: str, message: str, hint: str) -> AgentUnanswered:
        """Record a failure outside the agent, and return it as the end of its rollout."""


class Spending:
    """Counts the calls in `file` and refuses calls beyond the limits. Fits SpendingAccount.

    Calls that a killed process left unfinished are counted when the file is opened again. The
    caller holds the lock of the file's folder.
    """

    def __init__(self, file: Path, limits: SpendingLimits) -> None:
        self._file = file
        self._under_way_file = file.with_name(UNDER_WAY_FILE)
        self.limits = limits
        self._running: dict[str, _RunningCall] = {}
        self._count_lost_calls()
        calls = results_folder.read_rows(file, PaidCall)
        self.requests = len(calls)
        self.usd = sum(call.usd for call in calls)
        self._begun = 0
        self._failed: dict[str, int] = defaultdict(int)
        self._down: dict[str, AgentUnanswered] = {}

    def total_usd(self) -> float:
        return self.usd

    def is_down(self, agent: str) -> bool:
        return agent in self._down

    def begin_rollout(self, rollout: str) -> None:
        for key, running in list(self._running.items()):
            if running.line.call.rollout == rollout:
                self.end_call(key, running.line.call.model_copy(update={"lost": True}))

    def begin_call(self, call: PaidCall, worst: float) -> str:
        if call.agent in self._down:
            raise self._down[call.agent]
        self._check(call.agent, worst)
        self._begun += 1
        key = str(self._begun)
        line = CallUnderWay(key=key, call=call)
        results_folder.append_row(self._under_way_file, line)
        self._running[key] = _RunningCall(line, worst, time.monotonic())
        return key

    def update_call(self, key: str, call: PaidCall, worst: float) -> None:
        running = self._running.get(key)
        if running is not None:
            line = CallUnderWay(key=key, call=call)
            results_folder.append_row(self._under_way_file, line)
            self._running[key] = replace(running, line=line, reserved=worst)

    def end_call(self, key: str, call: PaidCall | None) -> None:
        running = self._running.pop(key, None)
        if call is not None:
            if running is not None:
                seconds = round(time.monotonic() - running.began, 3)
                call = call.model_copy(update={"seconds": seconds})
            results_folder.append_row(self._file, call)
            self.requests += 1
            self.usd += call.usd
        if not self._running:
            self._under_way_file.unlink(missing_ok=True)
        elif running is not None:
            over = running.line.model_copy(update={"over": True})
            results_folder.append_row(self._under_way_file, over)

    def record_answer(self, agent: str) -> None:
        self._failed[agent] = 0

    def record_failure(self, agent: str, kind: str, message: str, hint: str) -> AgentUnanswered:
        self._failed[agent] += 1
        final = kind in FINAL_FAILURES
        failure = AgentUnanswered(
            f"{agent} does not answer: {message}",
            agent=agent,
            final=final,
            hint=FAILURE_HINTS.get(kind, hint),
        )
        if final or self._failed[agent] >= MAX_FAILURES:
            self._down[agent] = failure
        return failure

    def _count_lost_calls(self) -> None:
        lines = results_folder.read_rows(self._under_way_file, CallUnderWay)
        newest = {line.key: line for line in lines}
        for line in newest.values():
            if not line.over:
                lost = line.call.model_copy(update={"lost": True})
                results_folder.append_row(self._file, lost)
        self._under_way_file.unlink(missing_ok=True)

    def _check(self, agent: str, worst: float) -> None:
        most, made = self.limits.requests, self.requests + len(self._running)
        if most is not None and made >= most:
            raise SpendingLimitReached(
                f"{made} of {most} requests are made", hint="a larger --max-requests goes on"
            )
        money = self.limits.usd
        reserved = sum(running.reserved for running in self._running.values())
        if money is not None and self.usd + reserved + worst > money:
            raise SpendingLimitReached(
                f"${self.usd:.4f} of ${money:.4f} are spent, and the next call to {agent} may "
                f"cost ${worst:.4f}",
                hint="a larger --max-budget-usd goes on",
            )


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
"""Stands in stored replies for the rollout's repository, since another rollout that gets the same
reply works in another folder.
"""


@dataclass(frozen=True)
class RolloutBilling:
    """The billing of a rollout: its name, repository and seed, the folder of stored replies, the
    account of all rollouts, and the locks of this process.

    `named` are texts of the task that look random but are not.
    """

    rollout: str
    repository: Path
    seed: int
    folder: Path
    spending: SpendingAccount
    locks: ReplyLocks
    named: frozenset[str] = frozenset()


def task_literals(task: Task) -> frozenset[str]:
    """Return the texts of a task that look random but are part of it: times in its request,
    addresses and paths in its request and files.

    Times in files are left out: with many of them a test run would print one now and then.
    """
    literals: set[str] = set()
    for pattern, _ in _CHANCE:
        literals.update(match[0] for match in pattern.finditer(task.prompt))
    for pattern, _ in _PLACES:
        for content in task.files.values():
            literals.update(match[0] for match in pattern.finditer(content))
    return frozenset(literals)


class PaidAgent:
    """An agent whose replies are stored: `agent` is called only for a reply that nobody has paid
    for yet.

    `settings` is everything that changes its answers; stored replies are found by it.
    """

    def __init__(
        self,
        agent: Agent,
        member: Member,
        settings: Mapping[str, JsonValue],
        billing: RolloutBilling,
    ) -> None:
        self._billing = billing
        self._settings = dict(settings) | ({"seed": billing.seed} if billing.seed else {})
        counted = _CountedAgent(agent, member, billing)
        self._cached = CachedAgent(
            counted, billing.folder / REPLIES_FOLDER, self._settings, self._same
        )

    @property
    def name(self) -> str:
        return self._cached.name

    async def reply(self, prompt: Prompt, say: Say, wait: Wait) -> Reply:
        """Return the stored reply, or a new one. Raises SpendingLimitReached and AgentUnanswered,
        which end the rollout for now.
        """
        seeded_prompt = _with_seed(prompt, self._billing.seed)
        async with self._billing.locks.alone(reply_key(self._settings, self._same(seeded_prompt))):
            # a pause without its error is always made: a limit of the moment must not decide who
            # acts
            kept = await self._cached.reply(
                seeded_prompt, say, lambda pause: wait(replace(pause, error=None))
            )
        return _with_repository(kept, _HERE, str(self._billing.repository))

    async def close(self) -> None:
        await self._cached.close()

    def _same(self, prompt: Prompt) -> Prompt:
        text = prompt.model_dump_json().replace(str(self._billing.repository), "/repository")
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
            text = pattern.sub(_replace_unless(self._billing.named, instead), text)
        return message.model_copy(update={"text": text})


class _CountedAgent(AgentWrapper):
    """Makes the real calls of `PaidAgent`: within the limits, timed and recorded."""

    def __init__(self, agent: Agent, member: Member, billing: RolloutBilling) -> None:
        super().__init__(AccountedAgent(agent, member, _RolloutAccount(billing)))
        self._billing = billing

    async def reply(self, prompt: Prompt, say: Say, wait: Wait) -> Reply:
        started = time.monotonic()
        spending = self._billing.spending
        try:
            reply = await self._agent.reply(prompt, say, wait)
        except AgentError as error:
            if error.kind in OUTSIDE_FAILURES:
                raise spending.record_failure(
                    self.name, error.kind, str(error), error.hint
                ) from error
            raise
        spending.record_answer(self.name)
        reply = _with_repository(reply, str(self._billing.repository), _HERE)
        return reply.model_copy(update={"seconds": round(time.monotonic() - started, 3)})


@dataclass(frozen=True)
class _RolloutAccount:
    """The account of all rollouts, as one rollout's agents see it. Fits CallAccount."""

    billing: RolloutBilling

    def begin_call(self, member: Member, usage: Usage, reserved: float) -> str:
        return self.billing.spending.begin_call(self._call(member, usage), reserved)

    def update_call(self, key: str, member: Member, usage: Usage, reserved: float) -> None:
        self.billing.spending.update_call(key, self._call(member, usage), reserved)

    def end_call(self, key: str, member: Member, usage: Usage) -> None:
        # a call that was refused before anything was read used nothing, and is no request
        call = None if usage == Usage() else self._call(member, usage)
        self.billing.spending.end_call(key, call)

    def _call(self, member: Member, usage: Usage) -> PaidCall:
        return PaidCall(
            rollout=self.billing.rollout,
            agent=member.name,
            input=usage.input,
            cached=usage.cached,
            output=usage.output,
            seconds=0.0,
            usd=usd(usage, member.price),
        )


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

    def _fits_agent(agent: PaidAgent) -> Agent:
        return agent

    def _fits_account(account: _RolloutAccount) -> CallAccount:
        return account

    def _fits_spending(spending: Spending) -> SpendingAccount:
        return spending
