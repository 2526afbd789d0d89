"""Providers: one protocol, `Agent`, and one file for each wire format.

`chat_completions.py` is the default (any compatible server); `llama_server.py` reaches the embedded
models through it. An agent knows its wire and nothing of logs, roles, tools' insides or policy.
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
    """A `Say` that also takes each piece of what is thought."""

    def __call__(self, text: str) -> None: ...

    def think(self, text: str) -> None: ...


@dataclass(frozen=True)
class Pause:
    """Why nothing moves. `seconds`: for how long, 0 where nobody knows. `used`: what broken tries
    have used.

    `error` is the failure behind it. `retry` of `retries` follows the pause and starts again: what
    the broken try said no longer stands. `retry` is 0 where no call was made yet. `notice`: nothing
    is waited for, the user is told `why`.
    """

    why: str
    seconds: float = 0.0
    used: Usage = field(default_factory=Usage)
    error: AgentError | None = None
    retry: int = 0
    retries: int = 0
    notice: bool = False


Wait = Callable[[Pause], None]
"""Told of every pause before it is made. Raises AgentError where the call must not wait: `error`
itself, where another agent can act meanwhile."""


class Agent(Protocol):
    """One entry of the pool, ready to be called."""

    @property
    def name(self) -> str:
        """The entry's name in the pool."""

    async def reply(self, prompt: Prompt, say: Say, wait: Wait) -> Reply:
        """One model call. Raises AgentError after the retries that are worth it; cancellation
        closes the stream.
        """

    async def close(self) -> None:
        """Give back connections and leases. May be called twice."""


class AgentWrapper:
    """What all wrappers around an agent share: they are called as it is, and close it."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    @property
    def name(self) -> str:
        return self._agent.name

    async def close(self) -> None:
        await self._agent.close()
