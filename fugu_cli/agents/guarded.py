"""An agent that some files are kept from: the last look at every prompt of its, whoever built it.

Stands around any agent. It must not know facts or paths: what to look for is told by `hidden`, line by line. A line
that holds a piece of a denied file goes out as a remark that it was withheld.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from fugu_cli.agents import Agent, Say, Wait
from fugu_cli.messages import Call, FromAgent, FromTool, FromUser, Message, Prompt, Reply

LINE = "[a line was withheld: deny_agents]"

Hidden = Callable[[str], bool]
"""Whether a line must not reach the agent."""


class Guarded:
    """`agent`. `hidden` is asked anew for each prompt: files change."""

    def __init__(self, agent: Agent, hidden: Callable[[], Hidden]) -> None:
        self._agent = agent
        self._hidden = hidden

    @property
    def name(self) -> str:
        return self._agent.name

    async def reply(self, prompt: Prompt, say: Say, wait: Wait) -> Reply:
        return await self._agent.reply(guarded(prompt, self._hidden()), say, wait)

    async def close(self) -> None:
        await self._agent.close()


def guarded(prompt: Prompt, hidden: Hidden) -> Prompt:
    """The prompt without such lines."""
    return prompt.model_copy(
        update={
            "system": _clean(prompt.system, hidden),
            "messages": tuple(_message(message, hidden) for message in prompt.messages),
        }
    )


def _message(message: Message, hidden: Hidden) -> Message:
    match message:
        case FromUser() | FromTool():
            return message.model_copy(update={"text": _clean(message.text, hidden)})
        case FromAgent():
            thinking = tuple(block for block in message.thinking if not _holds(block.text + "\n" + block.data, hidden))
            calls = tuple(_call(call, hidden) for call in message.calls)
            return message.model_copy(
                update={"text": _clean(message.text, hidden), "thinking": thinking, "calls": calls}
            )


def _call(call: Call, hidden: Hidden) -> Call:
    """Arguments are looked at as the texts they hold: JSON hides line ends."""
    try:
        given: object = json.loads(call.arguments or "{}")
    except ValueError:
        given = call.arguments
    return call.model_copy(update={"arguments": "{}"}) if _holds(_flat(given), hidden) else call


def _flat(value: object) -> str:
    if isinstance(value, dict):
        return "\n".join(_flat(one) for pair in value.items() for one in pair)
    if isinstance(value, list):
        return "\n".join(_flat(one) for one in value)
    return str(value)


def _holds(text: str, hidden: Hidden) -> bool:
    return any(hidden(line) for line in text.splitlines())


def _clean(text: str, hidden: Hidden) -> str:
    if not _holds(text, hidden):
        return text
    return "\n".join(LINE if hidden(line) else line for line in text.splitlines())


if TYPE_CHECKING:

    def _fits(agent: Guarded) -> Agent:
        return agent
