"""Replies kept by what they depend on, so that the same call is paid for once.

Stands around any agent in rollouts and measurements, never in a session. A reply depends on the agent's settings and
the prompt, seed included; the SHA-256 of both as canonical JSON is its file's name. It must not know what settings
mean: the caller names everything that changes an answer (model, its hash, server, protocol).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import JsonValue, ValidationError

from fugu_cli import atomic
from fugu_cli.agents import Agent, Say, Wait
from fugu_cli.errors import StorageError
from fugu_cli.messages import Prompt, Reply

Same = Callable[[Prompt], Prompt]


def _itself(prompt: Prompt) -> Prompt:
    return prompt


def key(settings: Mapping[str, JsonValue], prompt: Prompt) -> str:
    """The name under which the reply to `prompt` is kept: 64 hexadecimal digits."""
    content = {"settings": dict(settings), "prompt": prompt.model_dump(mode="json")}
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


class Cached:
    """`agent`, asked only for what `folder` does not hold. Failures are not kept. Raises StorageError."""

    def __init__(self, agent: Agent, folder: Path, settings: Mapping[str, JsonValue], same: Same | None = None) -> None:
        """`same` turns prompts that mean the same into equal ones; the agent gets the prompt as it was."""
        self._agent = agent
        self._folder = folder
        self._settings = settings
        self._same = same or _itself

    @property
    def name(self) -> str:
        return self._agent.name

    async def reply(self, prompt: Prompt, say: Say, wait: Wait) -> Reply:
        """The kept reply, its text said at once, or a new one, kept before it is returned."""
        name = key(self._settings, self._same(prompt))
        path = self._folder / name[:2] / f"{name[2:]}.json"
        kept = _read(path)
        if kept is not None:
            if kept.text:
                say(kept.text)
            return kept
        reply = await self._agent.reply(prompt, say, wait)
        _write(path, reply)
        return reply

    async def close(self) -> None:
        await self._agent.close()


def _read(path: Path) -> Reply | None:
    """A file that is not there, cut short or of another time is no reply: the call is made again."""
    try:
        return Reply.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None


def _write(path: Path, reply: Reply) -> None:
    """All or nothing, also with two processes at once. Raises StorageError."""
    try:
        with atomic.beside(path) as draft:
            draft.write_bytes(reply.model_dump_json().encode("utf-8", "replace"))
    except OSError as error:
        raise StorageError(
            f"a reply could not be kept in {path.parent}: {error.strerror or error}",
            hint="Free some space, or run without the cache.",
        ) from error


if TYPE_CHECKING:

    def _fits(agent: Cached) -> Agent:
        return agent
