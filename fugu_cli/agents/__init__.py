"""Agents: one protocol, one file per provider.

`openai.py` is the default way out (any compatible server); `local.py` reaches the embedded models through it. An agent
knows its wire and nothing of logs, roles, tools' insides or policy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from fugu_cli.messages import Prompt, Reply, Usage

Say = Callable[[str], None]
"""Takes each piece of text as it arrives."""

Wait = Callable[[str, float, Usage], None]
"""Told why nothing moves and for how many seconds (a retry, a model that loads), and what tries that broke have used.
Raises AgentError where the call must not be tried again."""


class Agent(Protocol):
    """One entry of the pool, ready to be called."""

    @property
    def name(self) -> str:
        """The entry's name in the pool."""

    async def reply(self, prompt: Prompt, say: Say, wait: Wait) -> Reply:
        """One model call. Raises AgentError after the retries that are worth it; cancellation closes the stream."""

    async def close(self) -> None:
        """Give back connections and leases. May be called twice."""
