"""An agent with its entry's own sampling: the temperature where the prompt leaves it open, and the reply length.

Stands around a provider, inside the protocols. A prompt that asks for a temperature (a second draw) keeps it; a reply
length that the user set counts for every call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fugu_cli.agents import Agent, Say, Wait
from fugu_cli.messages import Prompt, Reply


class Sampling:
    """`agent`; None leaves the prompt's value, and so the server's own where that is open too."""

    def __init__(self, agent: Agent, temperature: float | None = None, max_tokens: int | None = None) -> None:
        self._agent = agent
        self._temperature = temperature
        self._max_tokens = max_tokens

    @property
    def name(self) -> str:
        return self._agent.name

    async def reply(self, prompt: Prompt, say: Say, wait: Wait) -> Reply:
        temperature = self._temperature if prompt.temperature is None else prompt.temperature
        tokens = prompt.longest(self._max_tokens)
        asked = prompt.model_copy(update={"temperature": temperature, "max_tokens": tokens})
        return await self._agent.reply(asked, say, wait)

    async def close(self) -> None:
        await self._agent.close()


if TYPE_CHECKING:

    def _fits(agent: Sampling) -> Agent:
        return agent
