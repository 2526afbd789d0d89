"""Live messages that are never written: streamed text, output of tools, waiting."""

from __future__ import annotations

from typing import Literal

from fugu_cli.messages import Value


class TextStreamed(Value):
    """Live: a piece of the reply being written."""

    type: Literal["said"] = "said"
    turn: int
    agent: str
    text: str


class ThoughtStreamed(Value):
    """Live: a piece of what an agent thinks before it speaks."""

    type: Literal["thought"] = "thought"
    turn: int
    agent: str
    text: str


class OutputStreamed(Value):
    """Live: output of a running tool."""

    type: Literal["tool_said"] = "tool_said"
    turn: int
    call: str
    text: str


class Waiting(Value):
    """Live: the request waits, with the reason. `seconds` is the time until it continues, 0 if
    unknown. With `notice` it continues at once, and the user is told why something is not as
    requested.
    """

    type: Literal["waiting"] = "waiting"
    why: str
    seconds: float = 0.0
    notice: bool = False


class Retried(Value):
    """Live: a call failed and is made again in `seconds`. What it had said no longer stands.

    `kind`, `why` and `status`: the failure's kind, message and HTTP status (errors.AgentError).
    `retry` counts from 1, up to `retries`. `unreachable`: the host that no connection could be made
    to, and why; "" for other failures.
    """

    type: Literal["retried"] = "retried"
    turn: int
    agent: str
    kind: str
    why: str
    seconds: float
    retry: int
    retries: int
    status: int | None = None
    unreachable: str = ""


Live = TextStreamed | ThoughtStreamed | OutputStreamed | Waiting | Retried
