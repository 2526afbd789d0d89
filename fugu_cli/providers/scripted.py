"""An agent that answers from a script: for tests, demonstrations and `fugu run --script`. No model,
no network.

A script is TOML, one `[[step]]` after the other, each the answer to one call:

    [[step]] text = "I read the file first."                      # streamed line by line calls = [{
    tool = "read", arguments = { path = "a.py" } }]  # arguments: a table, or a text that may be no
    JSON usage = { input = 120, cached = 100, output = 12 }   # priced like any other, by the
    entry's `price` stop = "calls"                                       # default: calls if there
    are any, else end model = "served-by"                                  # default: the entry's
    name delay = 0.5                                          # seconds before it, and between
    lines: `pace`

    [[step]] text = "Half a sen"                                  # said before the error: a stream
    cut in the middle error = { kind = "limited", message = "slow down", retry = true, after = 2.0 }

Which step is next is not kept here but told: `done` replies of this agent are in the log already,
so a session that was killed goes on at the right step. Errors are in no log as replies: those
before the next reply are raised again.
"""

from __future__ import annotations

import asyncio
import json
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field, JsonValue, ValidationError

from fugu_cli.errors import AgentError, ConfigError
from fugu_cli.messages import Call, Prompt, Reply, Thinking, Usage, Value
from fugu_cli.providers import Say, Wait

ErrorKind = Literal[
    "refused",
    "absent",
    "invalid",
    "limited",
    "overloaded",
    "network",
    "timeout",
    "protocol",
    "credit",
]


class ScriptedError(Value):
    """A failure instead of a reply; the fields of AgentError."""

    kind: ErrorKind
    message: str = "as the script says"
    retry: bool = False
    after: float | None = None
    hint: str = ""


class ScriptedCall(Value):
    """A call as the script makes it. Without an `id` it gets one of its place in the script."""

    tool: str
    arguments: dict[str, JsonValue] | str = "{}"
    id: str = ""


class ScriptedStep(Value):
    """The answer to one call."""

    text: str = ""
    thinking: str = ""
    calls: tuple[ScriptedCall, ...] = ()
    usage: Usage = Usage()
    stop: Literal["", "end", "calls", "length", "refusal", "cut"] = ""
    model: str = ""
    delay: float = Field(0.0, ge=0)
    pace: float = Field(0.0, ge=0)
    error: ScriptedError | None = None


class Script(Value):
    """The steps in order."""

    step: tuple[ScriptedStep, ...]


def load_script(path: Path) -> Script:
    """The script in a TOML file. Raises ConfigError that names the file and the place."""
    try:
        return Script.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"the script {path} cannot be read: {error}",
            hint="A scripted agent's `model` is the path of its script.",
        ) from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"the script {path} is no TOML: {error}") from error
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part + 1 if isinstance(part, int) else part) for part in fault["loc"])
        raise ConfigError(f"the script {path}: {where}: {fault['msg']}") from error


class Scripted:
    """An entry of the pool that follows a script. `done`: how many replies, plans and summaries of
    it the log holds.
    """

    def __init__(self, name: str, script: Script, done: int = 0) -> None:
        self._name = name
        self._steps = script.step
        self._replied = done
        self._at = _steps_before(script.step, done)

    @property
    def name(self) -> str:
        return self._name

    async def reply(self, prompt: Prompt, say: Say, wait: Wait) -> Reply:
        """The next step's answer; the prompt makes no difference."""
        if self._at >= len(self._steps):
            raise AgentError(
                f"{self._name}: the script ends after {self._replied} replies and one more is "
                f"asked for",
                kind="invalid",
                hint="Add a step to the script.",
            )
        step = self._steps[self._at]
        self._at += 1
        await asyncio.sleep(step.delay)
        for line in step.text.splitlines(keepends=True):
            say(line)
            await asyncio.sleep(step.pace)
        if step.error is not None:
            told = step.error
            error = AgentError(
                f"{self._name}: {told.message}",
                kind=told.kind,
                retry=told.retry,
                after=told.after,
                hint=told.hint,
            )
            error.usage = step.usage
            raise error
        reply = self._reply(step)
        self._replied += 1
        return reply

    async def close(self) -> None:
        pass

    def _reply(self, step: ScriptedStep) -> Reply:
        calls = tuple(
            Call(
                id=call.id or f"{self._name}-{self._replied}-{number}",
                tool=call.tool,
                arguments=_written(call),
            )
            for number, call in enumerate(step.calls)
        )
        return Reply(
            text=step.text,
            thinking=(Thinking(text=step.thinking),) if step.thinking else (),
            calls=calls,
            usage=step.usage,
            model=step.model or self._name,
            stop=step.stop or ("calls" if calls else "end"),
        )


def _steps_before(steps: tuple[ScriptedStep, ...], done: int) -> int:
    """The place behind the `done`-th step that is a reply."""
    if done <= 0:
        return 0
    replies = [number for number, step in enumerate(steps) if step.error is None]
    return replies[done - 1] + 1 if done <= len(replies) else len(steps)


def _written(call: ScriptedCall) -> str:
    return (
        call.arguments
        if isinstance(call.arguments, str)
        else json.dumps(call.arguments, ensure_ascii=False)
    )


if TYPE_CHECKING:
    from fugu_cli.providers import Agent

    def _fits(agent: Scripted) -> Agent:
        return agent
