"""Wrappers around any agent: `Sampling` applies the entry's temperature and reply length,
`PathFiltered` removes lines of files that the agent may not see, `CachedAgent` keeps replies on
disk so that rollouts pay once for the same call.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import JsonValue, ValidationError

from fugu_cli.errors import StorageError
from fugu_cli.messages import Call, FromAgent, FromTool, FromUser, Message, Prompt, Reply
from fugu_cli.providers import Agent, AgentWrapper, Say, Wait
from fugu_cli.system import atomic_files
from fugu_cli.system.bounded_json import parse_json


class Sampling(AgentWrapper):
    """`agent`; None leaves the prompt's value, and so the server's own where that is open too."""

    def __init__(
        self, agent: Agent, temperature: float | None = None, max_tokens: int | None = None
    ) -> None:
        super().__init__(agent)
        self._temperature = temperature
        self._max_tokens = max_tokens

    async def reply(self, prompt: Prompt, say: Say, wait: Wait) -> Reply:
        temperature = self._temperature if prompt.temperature is None else prompt.temperature
        tokens = prompt.longest(self._max_tokens)
        asked = prompt.model_copy(update={"temperature": temperature, "max_tokens": tokens})
        return await self._agent.reply(asked, say, wait)


WITHHELD_LINE = "[a line was withheld: deny_agents]"

IsHidden = Callable[[str], bool]
"""Whether a line must not reach the agent."""


class PathFiltered(AgentWrapper):
    """`agent`. `hidden` is asked again for each prompt: files change."""

    def __init__(self, agent: Agent, hidden: Callable[[], IsHidden]) -> None:
        super().__init__(agent)
        self._hidden = hidden

    async def reply(self, prompt: Prompt, say: Say, wait: Wait) -> Reply:
        return await self._agent.reply(filtered_prompt(prompt, self._hidden()), say, wait)


def filtered_prompt(prompt: Prompt, hidden: IsHidden) -> Prompt:
    """The prompt without such lines."""
    return prompt.model_copy(
        update={
            "system": _clean(prompt.system, hidden),
            "messages": tuple(_message(message, hidden) for message in prompt.messages),
        }
    )


def _message(message: Message, hidden: IsHidden) -> Message:
    match message:
        case FromUser() | FromTool():
            media = tuple(one for one in message.media if not _holds(one.text, hidden))
            return message.model_copy(update={"text": _clean(message.text, hidden), "media": media})
        case FromAgent():
            thinking = tuple(
                block
                for block in message.thinking
                if not _holds(block.text + "\n" + block.data, hidden)
            )
            calls = tuple(_call(call, hidden) for call in message.calls)
            return message.model_copy(
                update={"text": _clean(message.text, hidden), "thinking": thinking, "calls": calls}
            )


def _call(call: Call, hidden: IsHidden) -> Call:
    """Arguments are looked at as the texts they hold: JSON hides line ends."""
    try:
        given: object = parse_json(call.arguments or "{}")
    except ValueError:
        given = call.arguments
    return call.model_copy(update={"arguments": "{}"}) if _holds(_flat(given), hidden) else call


def _flat(value: object) -> str:
    if isinstance(value, dict):
        return "\n".join(_flat(one) for pair in value.items() for one in pair)
    if isinstance(value, list):
        return "\n".join(_flat(one) for one in value)
    return str(value)


def _holds(text: str, hidden: IsHidden) -> bool:
    return any(hidden(line) for line in text.splitlines())


def _clean(text: str, hidden: IsHidden) -> str:
    if not _holds(text, hidden):
        return text
    return "\n".join(WITHHELD_LINE if hidden(line) else line for line in text.splitlines())


NormalizePrompt = Callable[[Prompt], Prompt]


def reply_key(settings: Mapping[str, JsonValue], prompt: Prompt) -> str:
    """The name under which the reply to `prompt` is kept: 64 hexadecimal digits."""
    content = {"settings": dict(settings), "prompt": prompt.model_dump(mode="json")}
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


class CachedAgent(AgentWrapper):
    """`agent`, asked only for what `folder` does not hold. Failures are not kept. Raises
    StorageError.
    """

    def __init__(
        self,
        agent: Agent,
        folder: Path,
        settings: Mapping[str, JsonValue],
        same: NormalizePrompt | None = None,
    ) -> None:
        """`same` turns prompts that mean the same into equal ones; the agent gets the prompt as it
        was.
        """
        super().__init__(agent)
        self._folder = folder
        self._settings = settings
        self._same = same or (lambda prompt: prompt)

    async def reply(self, prompt: Prompt, say: Say, wait: Wait) -> Reply:
        """The kept reply, its text said at once, or a new one, kept before it is returned."""
        name = reply_key(self._settings, self._same(prompt))
        path = self._folder / name[:2] / f"{name[2:]}.json"
        kept = _read(path)
        if kept is not None:
            if kept.text:
                say(kept.text)
            return kept
        reply = await self._agent.reply(prompt, say, wait)
        _write(path, reply)
        return reply


def _read(path: Path) -> Reply | None:
    """A file that is not there, cut short or of another time is no reply: the call is made
    again.
    """
    try:
        return Reply.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None


def _write(path: Path, reply: Reply) -> None:
    """All or nothing, also with two processes at once. Raises StorageError."""
    try:
        with atomic_files.replacement_file(path) as draft:
            draft.write_bytes(reply.model_dump_json().encode("utf-8", "replace"))
    except OSError as error:
        raise StorageError(
            f"a reply could not be kept in {path.parent}: {error.strerror or error}",
            hint="Free some space, or run without the cache.",
        ) from error


if TYPE_CHECKING:

    def _fits(sampling: Sampling, filtered: PathFiltered, cached: CachedAgent) -> tuple[Agent, ...]:
        return sampling, filtered, cached
