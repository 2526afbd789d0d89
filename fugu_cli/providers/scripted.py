"""An agent that answers from a script, without a model or network: for tests, demonstrations and
`fugu run --script`.

A script is TOML. Each `[[step]]` is the answer to one call:

    [[step]]
    text = "I read the file first."   # streamed line by line
    calls = [{ tool = "read", arguments = { path = "a.py" } }]   # a table, or a text (any, not only JSON)
    usage = { input = 120, cached = 100, output = 12 }   # billed at the agent's `price`
    stop = "calls"        # default: calls if there are any, else end
    model = "served-by"   # default: the agent's name
    delay = 0.5           # seconds before the answer
    pace = 0.1            # seconds between lines

    [[step]]
    text = "Half a sen"   # streamed before the error: a reply that is cut off
    error = { kind = "limited", message = "slow down", retry = true, after = 2.0 }

The next step follows from the log: it holds `done` replies of this agent, so a killed session
continues at the right step. Errors are not in the log as replies, so those before the next reply are
raised again.
"""

from __future__ import annotations

import asyncio
import json
import tomllib
from pathlib import Path
from typing import Literal

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
    """A failure instead of a reply, with the fields of AgentError."""

    kind: ErrorKind
    message: str = "as the script says"
    retry: bool = False
    after: float | None = None
    hint: str = ""


class ScriptedCall(Value):
    """A tool call of the script. Without an `id` it gets one from its position in the script."""

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
    """Load a script from a TOML file. Raises ConfigError that names the file and the faulty field."""
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
        field = ".".join(str(part + 1 if isinstance(part, int) else part) for part in fault["loc"])
        raise ConfigError(f"the script {path}: {field}: {fault['msg']}") from error


class Scripted:
    """An agent that follows a script. `done` counts its replies, plans and summaries in the log."""

    def __init__(self, name: str, script: Script, done: int = 0) -> None:
        self._name = name
        self._steps = script.step
        self._replied = done
        self._next = _steps_before(script.step, done)

    @property
    def name(self) -> str:
        return self._name

    async def reply(self, prompt: Prompt, say: Say, wait: Wait) -> Reply:
        """Return the answer of the next step, whatever the prompt is."""
        if self._next >= len(self._steps):
            raise AgentError(
                f"{self._name}: the script ends after {self._replied} replies and one more is "
                f"asked for",
                kind="invalid",
                hint="Add a step to the script.",
            )
        step = self._steps[self._next]
        self._next += 1
        await asyncio.sleep(step.delay)
        for line in step.text.splitlines(keepends=True):
            say(line)
            await asyncio.sleep(step.pace)
        if step.error is not None:
            error = AgentError(
                f"{self._name}: {step.error.message}",
                kind=step.error.kind,
                retry=step.error.retry,
                after=step.error.after,
                hint=step.error.hint,
            )
            error.usage = step.usage
            raise error
        calls: list[Call] = []
        for number, call in enumerate(step.calls):
            arguments = call.arguments
            if not isinstance(arguments, str):
                arguments = json.dumps(arguments, ensure_ascii=False)
            id = call.id or f"{self._name}-{self._replied}-{number}"
            calls.append(Call(id=id, tool=call.tool, arguments=arguments))
        reply = Reply(
            text=step.text,
            thinking=(Thinking(text=step.thinking),) if step.thinking else (),
            calls=tuple(calls),
            usage=step.usage,
            model=step.model or self._name,
            stop=step.stop or ("calls" if calls else "end"),
        )
        self._replied += 1
        return reply

    async def close(self) -> None:
        pass


def _steps_before(steps: tuple[ScriptedStep, ...], done: int) -> int:
    """Return the index of the step after the first `done` replies."""
    if done <= 0:
        return 0
    replies = [number for number, step in enumerate(steps) if step.error is None]
    return replies[done - 1] + 1 if done <= len(replies) else len(steps)
