"""Providers: one protocol, `Agent`, and what every agent behind a server needs: HTTP, retries,
errors, the circuit breaker and what servers differ in.

The wire formats stand in wires/. An agent knows its wire, but no logs, roles, tools or policy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from fugu_cli.errors import AgentError
from fugu_cli.messages import Prompt, Reply, Usage

Say = Callable[[str], None]
"""Takes each piece of text as it arrives."""


@runtime_checkable
class ThoughtListener(Protocol):
    """A `Say` that also takes each piece of reasoning."""

    def __call__(self, text: str) -> None: ...

    def think(self, text: str) -> None: ...


@dataclass(frozen=True)
class Pause:
    """A delay of a call, and why. `seconds` is its length, 0 if unknown. `used` is the usage of
    failed attempts.

    `error` is the failure behind the pause. Attempt `retry` of `retries` follows the pause and
    starts again, so the text of the failed attempt is void; `retry` is 0 if no call was made yet.
    With `notice` nothing is waited for, and the user is told `why`.
    """

    why: str
    seconds: float = 0.0
    used: Usage = field(default_factory=Usage)
    error: AgentError | None = None
    retry: int = 0
    retries: int = 0
    notice: bool = False


Wait = Callable[[Pause], None]
"""Called before every pause. Raises AgentError if the call must not wait: the pause's own `error` if
another agent can act instead."""


class Agent(Protocol):
    """One entry of the pool, ready to be called."""

    @property
    def name(self) -> str:
        """The entry's name in the pool."""

    async def reply(self, prompt: Prompt, say: Say, wait: Wait) -> Reply:
        """Make one model call. Raises AgentError once retries are used up or useless; cancellation
        closes the stream.
        """

    async def close(self) -> None:
        """Release connections and leases. May be called twice."""


class AgentWrapper:
    """Base of all wrappers around an agent: has the agent's name, and closes it."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    @property
    def name(self) -> str:
        return self._agent.name

    async def close(self) -> None:
        await self._agent.close()
