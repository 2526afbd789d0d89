"""A request whose wire is forgotten, an answer that is not on a wire yet, and a refusal. Values only.

Between the wires (`*_api.py`, `*_out.py`) and what answers (`service.py`): neither side knows the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pydantic import JsonValue

from fugu_cli.messages import Call, Message, ToolSpec, Usage

Stop = Literal["end", "calls", "length", "refusal", "cut"]
Tier = Literal["fugu", "ultra"]

LONGEST = 8192
"""Tokens a reply may have where the client names no limit."""


@dataclass(frozen=True)
class Options:
    """What a client may choose for one request, from headers and `metadata`. `budget` in USD; None: as configured."""

    opt_out: frozenset[str] = frozenset()
    tier: Tier | None = None
    budget: float | None = None
    verify: bool | None = None


@dataclass(frozen=True)
class Sampling:
    """How the reply is drawn. `choice`: "" (the model decides), none, required, or the name of the tool to call."""

    max_tokens: int = LONGEST
    temperature: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    choice: str = ""
    reply_schema: str = ""
    single: bool = False
    """One call a reply at most: the client runs one after the other."""


@dataclass(frozen=True)
class Asking:
    """One request. `model` as the client named it; `tools` are the client's own: it runs them, not fugu."""

    model: str
    messages: tuple[Message, ...]
    system: str = ""
    tools: tuple[ToolSpec, ...] = ()
    sampling: Sampling = Sampling()
    options: Options = Options()
    stream: bool = False
    counted: bool = True
    """The stream ends with its usage (`stream_options.include_usage`, where a wire has it)."""
    freeform: frozenset[str] = frozenset()
    """Tools that take plain text instead of JSON (custom tools of the Responses wire)."""
    repeated: Mapping[str, JsonValue] = field(default_factory=dict)
    """What the wire's answer says again of the request."""

    @property
    def in_tool_loop(self) -> bool:
        """The client brings results of calls that an agent made: the turn goes on."""
        for message in reversed(self.messages):
            if message.type == "agent":
                return False
            if message.type == "tool":
                return True
        return False


@dataclass(frozen=True)
class Head:
    """What is known of an answer before it begins. `id` is the trace's; `created` seconds since the epoch."""

    id: str
    model: str
    created: int


@dataclass(frozen=True)
class Answer:
    """What goes back. `usage` is of the reply the client gets; `orchestration` of all that led to it.

    `agent` and `served` say who wrote it: the pool's name and the provider's. `cost` in USD, of everything.
    """

    text: str
    calls: tuple[Call, ...] = ()
    stop: Stop = "end"
    usage: Usage = field(default_factory=Usage)
    orchestration: Usage = field(default_factory=Usage)
    agent: str = ""
    served: str = ""
    cost: float = 0.0
    note: str = ""
    """How the request ended, where that is more than "answered"."""


class Refused(Exception):
    """A request that gets no answer. `str(error)` is for people; `kind` is OpenAI's `error.type`, `code` its code.

    `after`: seconds after which trying again makes sense, None where it does not.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "invalid_request_error",
        code: str = "",
        after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.code = code
        self.after = after
