"""What a tool answers, and how it speaks while it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from pydantic import JsonValue

from fugu_cli.events import TestReport
from fugu_cli.messages import Value

if TYPE_CHECKING:
    pass


NATIVE: dict[str, JsonValue] = {"native": True}
"""Marks an argument that small models are not told of (`json_schema_extra`)."""


Effect = Literal["reads", "writes", "runs"]


Say = Callable[[str], None]
"""Takes pieces of output while a tool runs."""


class Result(Value):
    """A tool's answer to the agent. A failure is an answer too: `ok` is False and the text says what to do next.

    `job` is the background job that the call has started, "" where it has started none. `tests`: as in ToolRan.
    """

    text: str
    ok: bool = True
    job: str = ""
    skipped: bool = False
    tests: TestReport | None = None
