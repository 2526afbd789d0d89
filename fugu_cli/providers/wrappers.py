"""Wrappers around any agent: `Sampling` applies the configured temperature and reply length,
`PathFiltered` removes lines of files that the agent may not see, `CachedAgent` keeps replies on
disk so that the same call is paid for once.
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
    """Applies a temperature and a reply limit to prompts of `agent`. None leaves the prompt's own
    value.
    """

    def __init__(
        self, agent: Agent, temperature: float | None = None, max_tokens: int | None = None
    ) -> None:
        super().__init__(agent)
        self._temperature = temperature
        self._max_tokens = max_tokens

    async def reply(self, prompt: Prompt, say: Say, wait: Wait) -> Reply:
        update: dict[str, object] = {"max_tokens": prompt.longest(self._max_tokens)}
        if prompt.temperature is None:
            update["temperature"] = self._temperature
        return await self._agent.reply(prompt.model_copy(update=update), say, wait)


WITHHELD_LINE = "[a line was withheld: deny_agents]"

IsHidden = Callable[[str], bool]
"""Return True for a line that must not reach the agent."""


class PathFiltered(AgentWrapper):
    """Removes hidden lines from prompts of `agent`. `hidden` is called for each prompt, since files
    change.
    """

    def __init__(self, agent: Agent, hidden: Callable[[], IsHidden]) -> None:
        super().__init__(agent)
        self._hidden = hidden

    async def reply(self, prompt: Prompt, say: Say, wait: Wait) -> Reply:
        filtered = filtered_prompt(prompt, self._hidden())
        return await self._agent.reply(filtered, say, wait)


def filtered_prompt(prompt: Prompt, hidden: IsHidden) -> Prompt:
    """Return the prompt without hidden lines."""
    return prompt.model_copy(
        update={
            "system": _without_hidden_lines(prompt.system, hidden),
            "messages": tuple(_filtered_message(message, hidden) for message in prompt.messages),
        }
    )


def _filtered_message(message: Message, hidden: IsHidden) -> Message:
    match message:
        case FromUser() | FromTool():
            media = tuple(item for item in message.media if not _has_hidden_line(item.text, hidden))
            return message.model_copy(
                update={"text": _without_hidden_lines(message.text, hidden), "media": media}
            )
        case FromAgent():
            thinking = tuple(
                block
                for block in message.thinking
                if not _has_hidden_line(block.text + "\n" + block.data, hidden)
            )
            calls = tuple(_filtered_call(call, hidden) for call in message.calls)
            return message.model_copy(
                update={
                    "text": _without_hidden_lines(message.text, hidden),
                    "thinking": thinking,
                    "calls": calls,
                }
            )


def _filtered_call(call: Call, hidden: IsHidden) -> Call:
    """Return the call, without its arguments if a text in them has a hidden line.

    The texts are decoded first, because JSON escapes line breaks.
    """
    try:
        arguments: object = parse_json(call.arguments or "{}")
    except ValueError:
        arguments = call.arguments
    if _has_hidden_line(_all_texts(arguments), hidden):
        return call.model_copy(update={"arguments": "{}"})
    return call


def _all_texts(value: object) -> str:
    """Return the texts of a JSON value, keys included, on lines of their own."""
    if isinstance(value, dict):
        return "\n".join(_all_texts([key, item]) for key, item in value.items())
    if isinstance(value, list):
        return "\n".join(_all_texts(item) for item in value)
    return str(value)


def _has_hidden_line(text: str, hidden: IsHidden) -> bool:
    return any(hidden(line) for line in text.splitlines())


def _without_hidden_lines(text: str, hidden: IsHidden) -> str:
    if not _has_hidden_line(text, hidden):
        return text
    return "\n".join(WITHHELD_LINE if hidden(line) else line for line in text.splitlines())


NormalizePrompt = Callable[[Prompt], Prompt]


def reply_key(settings: Mapping[str, JsonValue], prompt: Prompt) -> str:
    """Return the name under which the reply to `prompt` is cached: 64 hexadecimal digits."""
    content = {"settings": dict(settings), "prompt": prompt.model_dump(mode="json")}
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


class CachedAgent(AgentWrapper):
    """Calls `agent` only for replies that `folder` does not hold. Failures are not cached. Raises
    StorageError.
    """

    def __init__(
        self,
        agent: Agent,
        folder: Path,
        settings: Mapping[str, JsonValue],
        same: NormalizePrompt | None = None,
    ) -> None:
        """`same` maps prompts with the same meaning to equal ones; the agent gets the original
        prompt.
        """
        super().__init__(agent)
        self._folder = folder
        self._settings = settings
        self._same = same or (lambda prompt: prompt)

    async def reply(self, prompt: Prompt, say: Say, wait: Wait) -> Reply:
        """Return the cached reply, or make the call and cache its reply."""
        key = reply_key(self._settings, self._same(prompt))
        path = self._folder / key[:2] / f"{key[2:]}.json"
        try:
            cached = Reply.model_validate_json(path.read_bytes())
        except (OSError, ValidationError):
            cached = None
        if cached is not None:
            if cached.text:
                say(cached.text)
            return cached
        reply = await self._agent.reply(prompt, say, wait)
        _write_reply(path, reply)
        return reply


def _write_reply(path: Path, reply: Reply) -> None:
    """Write the reply atomically, also with two processes at once. Raises StorageError."""
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
