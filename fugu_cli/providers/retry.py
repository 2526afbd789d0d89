"""Retries a failed call where that can help, and reports each pause before it begins.

Stands around any agent. It must not know wires or statuses: an AgentError says itself whether to
retry and how long the server wants to be left alone. Nor does it know other agents: whoever listens
to `wait` forbids a pause that another agent can spare. The loop is our own, not stamina's: stamina
draws its jittered delay after the hook that could report it, reports through hooks of the whole
process, not to the call's `wait`, and takes no sleep from outside.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fugu_cli.errors import AgentError, note_usage, noted_usage
from fugu_cli.messages import Prompt, Reply, Usage
from fugu_cli.providers import Agent, AgentWrapper, Pause, Say, Wait
from fugu_cli.providers.circuit_breaker import CircuitBreaker


@dataclass(frozen=True)
class Backoff:
    """How often and how long a call is tried. Seconds.

    The pause before try n + 1 is what the server asks for, else drawn from [half, whole] of
    min(longest, first * 2**(n - 1)). No pause ends later than `total` after the call began.
    """

    attempts: int = 5
    first: float = 1.0
    longest: float = 20.0
    total: float = 180.0


@dataclass(frozen=True)
class RetryClock:
    """The clock and the chance a pause depends on; tests bring their own."""

    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    now: Callable[[], float] = time.monotonic
    chance: Callable[[], float] = random.random


class Retrying(AgentWrapper):
    """`agent`, tried again after failures that may pass. `breaker` knows the rate limits that other
    calls met.
    """

    def __init__(
        self,
        agent: Agent,
        backoff: Backoff | None = None,
        time: RetryClock | None = None,
        breaker: CircuitBreaker | None = None,
    ) -> None:
        super().__init__(agent)
        self._backoff = backoff or Backoff()
        self._time = time or RetryClock()
        self._breaker = breaker

    async def reply(self, prompt: Prompt, say: Say, wait: Wait) -> Reply:
        """The first reply that comes whole. What a broken one had said is dropped: the next starts
        again. What it had used is not: it was paid for, and counts with the reply, or with the last
        error."""
        began, used = self._time.now(), Usage()
        attempt = 1
        while True:
            try:
                await self._keep_to_limits(wait)
                reply = await self._agent.reply(prompt, say, wait)
                return reply.model_copy(update={"usage": used + reply.usage})
            except asyncio.CancelledError as cancelled:
                note_usage(cancelled, used + (noted_usage(cancelled) or Usage()))
                raise
            except AgentError as error:
                error.usage = used = used + (error.usage or Usage())
                seconds = self._pause(error, attempt)
                if (
                    self._breaker is not None
                    and error.kind == "limited"
                    and (error.after or seconds)
                ):
                    self._breaker.limits.hold(self.name, error.after or seconds or 0.0)
                gone = self._time.now() - began
                attempts = min(self._backoff.attempts, error.tries or self._backoff.attempts)
                if seconds is None or attempt >= attempts or gone + seconds > self._backoff.total:
                    error.retry = False  # for a wrapper around this one, which would begin again
                    raise
                _tell(wait, Pause(str(error), seconds, used, error, attempt, attempts - 1))
                try:
                    await self._time.sleep(seconds)
                except asyncio.CancelledError as cancelled:
                    note_usage(cancelled, used)
                    raise
                attempt += 1

    async def _keep_to_limits(self, wait: Wait) -> None:
        """Another call was told to leave the account alone: so does this one. Raises AgentError for
        too long a wait.
        """
        seconds = self._breaker.limits.seconds(self.name) if self._breaker else 0.0
        if seconds <= 0:
            return
        said = f"{self.name}: its server limits how often it is asked, for {seconds:.0f} s more"
        error = AgentError(said, kind="limited", after=seconds)
        if seconds > self._backoff.total:
            raise error
        wait(Pause(f"waiting for {self.name}", seconds, error=error))
        await self._time.sleep(seconds)

    def _pause(self, error: AgentError, attempt: int) -> float | None:
        """Seconds to wait before the next try; None where there should be none."""
        if not error.retry:
            return None
        whole = min(self._backoff.longest, self._backoff.first * 2.0 ** (attempt - 1))
        # Some servers always ask for 0 seconds, and a date may be over by this machine's clock:
        # that is no wish.
        return error.after or whole * (1 + self._time.chance()) / 2


def _tell(wait: Wait, pause: Pause) -> None:
    """That it is tried again. Where that is forbidden, what the tries have used is still to be paid
    for.
    """
    try:
        wait(pause)
    except AgentError as forbidden:
        forbidden.usage, forbidden.retry = pause.used, False
        raise


class Speaking(AgentWrapper):
    """`agent`, for whom a reply with neither a word nor a call is a failure. It is tried once
    more.
    """

    async def reply(self, prompt: Prompt, say: Say, wait: Wait) -> Reply:
        reply = await self._agent.reply(prompt, say, wait)
        if reply.text.strip() or reply.calls or reply.stop != "end":
            return reply
        error = AgentError(
            f"{self.name}: the reply is empty: no text and no tool call",
            kind="protocol",
            retry=True,
        )
        error.tries, error.usage = 2, reply.usage
        raise error


if TYPE_CHECKING:

    def _fits(retrying: Retrying, speaking: Speaking) -> tuple[Agent, Agent]:
        return retrying, speaking
