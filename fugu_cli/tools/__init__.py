"""Tools: one file per tool or family, each named once more in wiring.

A tool gets its arguments and the workspace, nothing else: no log, no agent, no permission. What it may do was decided
before it runs (policy/ judges, the loop asks).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from pydantic import BaseModel, JsonValue

from fugu_cli.messages import Value
from fugu_cli.tools.result import Effect, Result, Say

if TYPE_CHECKING:
    from fugu_cli.tools.workspace import Workspace


Arguments = TypeVar("Arguments", bound=BaseModel)


class Unread(Value):
    """Arguments that are handed over as they came: somebody else knows what they mean."""

    values: dict[str, JsonValue]


@dataclass(frozen=True)
class Foreign:
    """What an agent is told of a tool that is not fugu's own (MCP). `schema`: of its arguments, as JSON text."""

    description: str
    schema: str


@dataclass(frozen=True)
class Tool(Generic[Arguments]):
    """A tool: its name, what it does to the world, the type of its arguments and the function that does it.

    `run` answers with a Result for every failure of the world (no such file, a command that fails); it may raise
    StorageError, and is cancelled when the user interrupts: then it ends what it started. `body` names the argument
    that holds free text (a file's content, a patch), "" where there is none. A `foreign` tool takes Unread. Small
    models are not told of a `native` tool, and a `worker`'s tool is told of to Workers alone, although it only reads.
    What a tool says that `instructs` is the user's own word to the agents, and is not marked as data.
    """

    name: str
    effect: Effect
    arguments: type[Arguments]
    run: Callable[[Arguments, Workspace, Say], Awaitable[Result]]
    body: str = ""
    foreign: Foreign | None = None
    instructs: bool = False
    native: bool = False
    worker: bool = False
