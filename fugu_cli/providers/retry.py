"""Retries a failed call if that can help, and reports each pause before it begins.

Wraps any agent. It knows no wires or statuses: an AgentError says itself whether to retry and how
long to wait. Nor does it know other agents: the `wait` function forbids a pause if another agent
can act. The loop is our own, not stamina's: stamina draws its jittered delay after the hook that
could report it, reports through hooks of the whole process instead of the call's `wait`, and does
not accept a sleep function.
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
    """Limits on the retries of a call, in seconds.

    The pause before attempt n + 1 is the time that the server asks for, else a random time between
    half and all of min(longest, first * 2**(n - 1)). No pause ends later than `total` after the
    call began.
    """

    attempts: int = 5
    first: float = 1.0
    longest: float = 20.0
    total: float = 180.0


@dataclass(frozen=True)
class RetryClock:
    """The clock and the random numbers that pauses depend on; tests bring their own."""

    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    now: Callable[[], float] = time.monotonic
    chance: Callable[[], float] = random.random


class Retrying(AgentWrapper):
    """Retries `agent` after failures that may pass. `breaker` holds the rate limits that other
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
        """Return the first complete reply.

        The text of a failed attempt is void, since the next starts again. Its usage was paid for, and
        is added to that of the reply or of the last error.
        """
        began, used = self._time.now(), Usage()
        attempt = 1
        while True:
            try:
                await self._wait_for_rate_limit(wait)
                reply = await self._agent.reply(prompt, say, wait)
                return reply.model_copy(update={"usage": used + reply.usage})
            except asyncio.CancelledError as cancelled:
                note_usage(cancelled, used + (noted_usage(cancelled) or Usage()))
                raise
            except AgentError as error:
                used += error.usage or Usage()
                error.usage = used
                seconds = self._pause_seconds(error, attempt)
                limited_for = error.after or seconds
                if self._breaker is not None and error.kind == "limited" and limited_for:
                    self._breaker.limits.hold(self.name, limited_for)
                attempts = min(self._backoff.attempts, error.tries or self._backoff.attempts)
                elapsed = self._time.now() - began
                if (
                    seconds is None
                    or attempt >= attempts
                    or elapsed + seconds > self._backoff.total
                ):
                    error.retry = False  # for a wrapper around this one, which would retry again
                    raise
                try:
                    wait(Pause(str(error), seconds, used, error, attempt, attempts - 1))
                except AgentError as forbidden:
                    forbidden.usage, forbidden.retry = used, False
                    raise
                try:
                    await self._time.sleep(seconds)
                except asyncio.CancelledError as cancelled:
                    note_usage(cancelled, used)
                    raise
                attempt += 1

    async def _wait_for_rate_limit(self, wait: Wait) -> None:
        """Wait until the account may be asked again, after another call met its rate limit.

        Raises AgentError if that takes too long.
        """
        seconds = self._breaker.limits.seconds(self.name) if self._breaker else 0.0
        if seconds <= 0:
            return
        message = f"{self.name}: rate limited for {seconds:.0f} s more"
        error = AgentError(message, kind="limited", after=seconds)
        if seconds > self._backoff.total:
            raise error
        wait(Pause(f"waiting for {self.name}", seconds, error=error))
        await self._time.sleep(seconds)

    def _pause_seconds(self, error: AgentError, attempt: int) -> float | None:
        """Return the seconds to wait before the next attempt, or None if there should be none."""
        if not error.retry:
            return None
        if error.after:  # 0 is no request: some servers always send it, or a date that is over
            return error.after
        longest = min(self._backoff.longest, self._backoff.first * 2.0 ** (attempt - 1))
        return longest * (1 + self._time.chance()) / 2


class Speaking(AgentWrapper):
    """Treats a reply of `agent` without text and calls as a failure, which is retried once."""

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
