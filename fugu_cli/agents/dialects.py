"""What a server did not like about a request, and the request it may like: learned from its own 400, once per entry.

Stands between the wires and their servers: "OpenAI-compatible" is a family. It must not touch a request itself: a wire
reads the dialect while it encodes.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Literal

from fugu_cli.errors import AgentError
from fugu_cli.messages import Reply


@dataclass(frozen=True)
class Dialect:
    """The parameters a server takes. The defaults are what most servers take."""

    completion_tokens: bool = False
    """`max_completion_tokens` instead of `max_tokens` (OpenAI's reasoning models)."""
    longest: int | None = None
    """Most tokens that a reply may be asked for."""
    temperature: bool = True
    seed: bool = True
    stop: bool = True
    """`stop` sequences (OpenAI's reasoning models take none)."""
    stream_usage: bool = True
    """`stream_options.include_usage`."""
    schema: Literal["schema", "object", "none"] = "schema"
    """How a reply is held to a JSON schema: by the schema, only to be an object, not at all."""
    cache_key: bool = True
    """`prompt_cache_key`, where the server is one that knows it."""
    effort: bool = True
    effort_with_tools: bool = True
    """An effort beside tools (OpenAI from gpt-5.4 on takes none there, and from gpt-5.6 on wants to be told "none")."""
    sealed: bool = True
    """What this agent thought goes back, as it was signed; a model does not take what another one signed."""
    encrypted: bool = True
    """Responses: thoughts are asked for, sealed, so that they can go back (models that do not think have none)."""
    summary: bool = True
    """Responses: a summary of what was thought (only for organisations that OpenAI has verified)."""
    adaptive: bool = False
    """Anthropic: thinking without a budget (Claude 4.7 and later refuse one)."""
    short_ids: bool = False
    """Ids of calls are nine letters and digits (Mistral)."""
    bridged: bool = False
    """The user speaks only after an agent, never after a result (Mistral)."""
    reasoning_back: bool = False
    """Reasoning text of this agent goes back with its calls (DeepSeek, Kimi)."""

    def tokens(self, wanted: int) -> int:
        """What a reply is asked for at most."""
        return wanted if self.longest is None else min(wanted, self.longest)


MOST = re.compile(
    r"> (\d+), which is the maximum|supports at most (\d+) completion tokens"
    r"|range of max_tokens (?:is|should be) \[1, ?(\d+)\]|max_tokens` must be less than or equal to `(\d+)`"
)
"""A model's longest reply, in the words of Anthropic, OpenAI, DeepSeek, Qwen and Groq."""

REFUSED = r"unsupported|not support|deprecated|not allowed|not permitted|unknown|unrecognized|unavailable|invalid|extra"

UNABLE = (
    r"not support thinking|think value|reasoning value|thinking level|budget \d+ is invalid|thinking_budget"
    r"|only works in thinking mode|thinking can't be disabled|reasoning (is mandatory|cannot be disabled)"
)
"""An effort is refused, in the words of Ollama, Google and OpenRouter."""
UNSIGNED = (
    r"invalid .?signature.? in|thought.?signature.{0,20}not valid|blocks in the latest assistant message cannot be"
    r"|invalid_encrypted_content|encrypted content.{0,99}could not be|'reasoning' was provided without its required"
)

Change = Callable[[Dialect], Dialect]

RULES: tuple[tuple[str, Change], ...] = (
    (UNSIGNED, lambda d: replace(d, sealed=False)),
    (r"encrypted.?content", lambda d: replace(d, encrypted=False)),
    (r"reasoning.?summar", lambda d: replace(d, summary=False)),
    (r"function tools with reasoning_effort", lambda d: replace(d, effort_with_tools=False)),
    (r"max_completion_tokens", lambda d: replace(d, completion_tokens=True)),
    (
        rf"temperature.*({REFUSED}|only the default|may only be)|({REFUSED}).*temperature",
        lambda d: replace(d, temperature=False),
    ),
    (rf"stream_options.*({REFUSED})|({REFUSED}).*stream_options", lambda d: replace(d, stream_usage=False)),
    (rf"['`\"]stop['`\"].*({REFUSED})|({REFUSED}).*['`\"]stop['`\"]", lambda d: replace(d, stop=False)),
    (rf"\bseed\b.*({REFUSED})|({REFUSED}).*\bseed\b", lambda d: replace(d, seed=False)),
    (r"thinking\.type\.enabled|thinking.*adaptive", lambda d: replace(d, adaptive=True)),
    (
        r"reasoning_content.*(missing|must|required)|(missing|must|required).*reasoning_content",
        lambda d: replace(d, reasoning_back=True),
    ),
    (r"tool call id.*(length of 9|a-z)", lambda d: replace(d, short_ids=True)),
    (r"unexpected role 'user' after role 'tool'", lambda d: replace(d, bridged=True)),
    (r"prompt_cache_key", lambda d: replace(d, cache_key=False)),
    (rf"effort.*({REFUSED})|({REFUSED}).*effort|{UNABLE}", lambda d: replace(d, effort=False)),
    (
        r"response_format|json_schema|output_config|text\.format",
        lambda d: replace(d, schema="object" if d.schema == "schema" else "none"),
    ),
)


def adapted(dialect: Dialect, error: AgentError) -> Dialect | None:
    """The dialect to try after `error`, None where it is not about one of these. Ends: each step is taken once."""
    if error.kind != "invalid":
        return None
    message = str(error).lower()
    if found := MOST.search(message):
        most = int(found[found.lastindex or 1])
        return replace(dialect, longest=most) if 0 < most < (dialect.longest or most + 1) else None
    for pattern, change in RULES:
        if re.search(pattern, message, re.DOTALL) and (changed := change(dialect)) != dialect:
            return changed
    return None


class Adapting:
    """The dialect of one entry, for as long as it is open."""

    def __init__(self) -> None:
        self._dialect = Dialect()

    async def call(self, once: Callable[[Dialect], Awaitable[Reply]]) -> Reply:
        """One call, and one more for each parameter that the server refuses for the first time. Raises AgentError."""
        while True:
            asked = self._dialect
            try:
                return await once(asked)
            except AgentError as error:
                learned = adapted(asked, error)
                if learned is None:
                    raise
                if self._dialect == asked:  # else a call beside this one has learned something meanwhile: it counts
                    self._dialect = learned
