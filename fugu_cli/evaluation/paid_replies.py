"""An agent whose every reply is paid for once: kept under what it depends on, and counted in the spending.

Stands around each agent of a rollout's crew. A reply depends on the agent's settings, the prompt and the seed of the
rollout; where the rollout's repository lies, and how long its tests took, are not part of what a prompt means. What is
asked is, and so is all that an agent wrote: only what tools and tests print is read without what chance put there.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import JsonValue

from fugu_cli.agents import Agent, Say, Wait
from fugu_cli.agents.cache import Cached, key
from fugu_cli.budgets import worst
from fugu_cli.errors import AgentError
from fugu_cli.evaluation.spending import Paid, Spending
from fugu_cli.events import Member
from fugu_cli.messages import FromAgent, Message, Prompt, Reply, Usage
from fugu_cli.tasks import Task
from fugu_cli.views.spending import usd

REPLIES = "replies"
_TIMES = (
    (re.compile(r"\b\d+\.\d+ ?s\b"), "0 s"),
    (re.compile(r"(duration_ms|finished in) \d+\.\d+\w*"), r"\1 0"),
)
_PLACES = ((re.compile(r"0x[0-9a-f]{6,}"), "0x0"), (re.compile(r"/tmp/[\w.-]+"), "/tmp/x"))
_CHANCE = (*_TIMES, *_PLACES)
"""What changes from run to run in the words of test runners, and what stands in for it in the name of a reply."""
_HERE = "/%repository%"
"""Stands in kept replies for the rollout's repository: who asks again has another, and must not work in the first."""


@dataclass(frozen=True)
class Account:
    """Who pays: the rollout's name and repository, its seed, the folder of all kept replies, and the spending; and what
    of the rollout's task looks like chance and is none (`named`)."""

    rollout: str
    repository: Path
    seed: int
    folder: Path
    spending: Spending
    named: frozenset[str] = frozenset()


def named(task: Task) -> frozenset[str]:
    """What looks like chance and is what a task is about: times in its request, and in its files addresses and paths.

    Not the times in its files: where there are many, a test run would print one of them now and then.
    """
    texts = [(pattern, task.prompt) for pattern, _ in _TIMES]
    texts += [(pattern, text) for pattern, _ in _PLACES for text in (task.prompt, *task.files.values())]
    return frozenset(found[0] for pattern, text in texts for found in pattern.finditer(text))


class Paying:
    """`agent`, asked only for what nobody paid for yet. `settings` is everything that changes its answers."""

    def __init__(self, agent: Agent, member: Member, settings: Mapping[str, JsonValue], account: Account) -> None:
        self._account = account
        self._settings = dict(settings) | ({"seed": account.seed} if account.seed else {})
        counted = _Counted(agent, member, account)
        self._cached = Cached(counted, account.folder / REPLIES, self._settings, self._same)

    @property
    def name(self) -> str:
        return self._cached.name

    async def reply(self, prompt: Prompt, say: Say, wait: Wait) -> Reply:
        """The kept reply, or a new one. Raises Spent and Unanswered, which end the rollout for now."""
        asked = _seeded(prompt, self._account.seed)
        async with self._account.spending.alone(key(self._settings, self._same(asked))):
            # a pause without its error is always made: a limit of the moment must not decide who acts
            kept = await self._cached.reply(asked, say, lambda pause: wait(replace(pause, error=None)))
        return _moved(kept, _HERE, str(self._account.repository))

    async def close(self) -> None:
        await self._cached.close()

    def _same(self, prompt: Prompt) -> Prompt:
        text = prompt.model_dump_json().replace(str(self._account.repository), "/repository")
        moved = Prompt.model_validate_json(text)
        return moved.model_copy(update={"messages": tuple(map(self._settled, moved.messages))})

    def _settled(self, message: Message) -> Message:
        """Without what chance put into it. What an agent wrote is kept and comes back as it was, whoever asks again."""
        if isinstance(message, FromAgent):
            return message
        text = message.text
        for pattern, instead in _CHANCE:
            text = pattern.sub(_unless(self._account.named, instead), text)
        return message.model_copy(update={"text": text})


class _Counted:
    """A call that is really made: within the limits, timed and written down."""

    def __init__(self, agent: Agent, member: Member, account: Account) -> None:
        self._agent = agent
        self._member = member
        self._account = account

    @property
    def name(self) -> str:
        return self._agent.name

    async def reply(self, prompt: Prompt, say: Say, wait: Wait) -> Reply:
        started = time.monotonic()
        async with self._account.spending.call(self.name, worst(self._member, prompt)):
            try:
                reply = await self._agent.reply(prompt, say, wait)
            except AgentError as error:
                used = error.usage or Usage()
                if used != Usage():  # what was refused before anything was read is no request
                    self._pay(used, started)
                raise
        reply = _moved(reply, str(self._account.repository), _HERE)
        return reply.model_copy(update={"seconds": self._pay(reply.usage, started)})

    def _pay(self, used: Usage, started: float) -> float:
        """Write down what a call took. Returns its seconds."""
        seconds = round(time.monotonic() - started, 3)
        self._account.spending.pay(
            Paid(
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


def _unless(named: frozenset[str], instead: str) -> Callable[[re.Match[str]], str]:
    """What is `named` as it is; `instead` of everything else."""
    return lambda found: found[0] if found[0] in named else found.expand(instead)


def _moved(reply: Reply, place: str, to: str) -> Reply:
    """The same words and calls about another place. Reasoning stays as it is: providers sign it."""
    calls = tuple(call.model_copy(update={"arguments": call.arguments.replace(place, to)}) for call in reply.calls)
    return reply.model_copy(update={"text": reply.text.replace(place, to), "calls": calls})


def _seeded(prompt: Prompt, seed: int) -> Prompt:
    """Another seed for another repetition; the first one leaves prompts as they are."""
    return prompt.model_copy(update={"seed": (prompt.seed or 0) + 1000 * seed}) if seed else prompt


if TYPE_CHECKING:

    def _fits(agent: Paying) -> Agent:
        return agent
