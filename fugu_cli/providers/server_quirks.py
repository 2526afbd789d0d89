"""The differences of servers from the standard they claim: parameters they refuse (learned from
their own errors, once per agent), prompt-cache marks, finish reasons, unsupported stop sequences.

Pure; a wire format reads this while it encodes and decodes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from pydantic import JsonValue

from fugu_cli.errors import AgentError
from fugu_cli.messages import Prompt, Reply, ToolSpec
from fugu_cli.providers.endpoint import ModelEndpoint
from fugu_cli.system.bounded_json import parse_json


@dataclass(frozen=True)
class ServerQuirks:
    """The parameters that a server accepts. The defaults are what most servers accept."""

    completion_tokens: bool = False
    """`max_completion_tokens` instead of `max_tokens` (OpenAI's reasoning models)."""
    longest: int | None = None
    """The highest limit on reply tokens that the server accepts."""
    temperature: bool = True
    seed: bool = True
    stop: bool = True
    """`stop` sequences (OpenAI's reasoning models take none)."""
    stream_usage: bool = True
    """`stream_options.include_usage`."""
    schema: Literal["schema", "object", "none"] = "schema"
    """Support of JSON replies: by schema, any object, or none."""
    metadata: bool = True
    allowed_tools: bool = True
    """`tool_choice` may name the tools that may be called."""
    cache_key: bool = True
    """`prompt_cache_key`, for servers that know it."""
    effort: bool = True
    effort_with_tools: bool = True
    """An effort together with tools (OpenAI refuses it from gpt-5.4 on, and requires "none" from
    gpt-5.6 on).
    """
    sealed: bool = True
    """The agent's signed reasoning goes back. A model refuses what another model signed."""
    encrypted: bool = True
    """Responses: sealed reasoning is requested, so that it can go back (for models that reason)."""
    summary: bool = True
    """Responses: a summary of the reasoning (only for organisations that OpenAI has verified)."""
    adaptive: bool = False
    """Anthropic: thinking without a budget (Claude 4.7 and later refuse one)."""
    short_ids: bool = False
    """Call ids must be nine letters and digits (Mistral)."""
    bridged: bool = False
    """A user's message must follow an agent's, never a result (Mistral)."""
    thoughts_back: bool = True
    """Reasoning text goes back with the calls of a tool loop, in the field in which it came."""
    reasoning_back: bool = False
    """Reasoning text must go back with every reply (DeepSeek, Kimi)."""
    system: bool = True
    """A system message (Gemma has none: its text precedes the user's first message)."""
    null_content: bool = True
    """A reply with calls only has the content null, not an empty text."""
    stream: bool = True
    whole_schemas: bool = True
    """Tools keep every keyword of their JSON schemas (Google supports few; each vendor refuses some)."""

    def tokens(self, limit: int) -> int:
        """Return the limit on reply tokens, lowered to what the server accepts."""
        return limit if self.longest is None else min(limit, self.longest)


REPLY_LIMIT = re.compile(
    r"> (\d+), which is the maximum|supports at most (\d+) completion tokens|exceeds the model limit of (\d+)"
    r"|max_tokens (?:is|should be)(?: in)? \[1, ?(\d+)\]|max_tokens` must be less than or equal to `(\d+)`"
)
"""The limit on a model's reply, in the words of Anthropic, OpenAI, Bedrock, DeepSeek, Qwen and Groq."""
CONTEXT_EXCEEDED = re.compile(
    r"context length is (?P<whole>\d+) tokens(?:.{0,40}requested (?:about )?(?P<asked>\d+) tokens"
    r".{0,99}?(?P<reply>\d+) in the (?:completion|output)| and your request has (?P<prompt>\d+) input tokens)"
)
"""The context window and the prompt's part of it, in the words of OpenAI, OpenRouter and vLLM."""
LEAST_REPLY = 1024
"""Reply tokens without which the prompt counts as too long."""

REFUSED = r"unsupported|not support|deprecated|not allowed|not permitted|unknown|unrecognized|unavailable|invalid|extra"

EFFORT_REFUSED = (
    r"not support thinking|think value|reasoning value|thinking level|budget \d+ is invalid|thinking_budget"
    r"|only works in thinking mode|thinking can't be disabled|reasoning (is mandatory|cannot be disabled)"
)
"""The refusal of an effort, in the words of Ollama, Google and OpenRouter."""
SIGNATURE_REFUSED = (
    r"invalid .?signature.? in|thought.?signature.{0,20}not valid|blocks in the latest assistant message cannot be"
    r"|invalid_encrypted_content|encrypted content.{0,99}could not be|'reasoning' was provided without its required"
)

QuirkChange = Callable[[ServerQuirks], ServerQuirks]

RULES: tuple[tuple[str, QuirkChange], ...] = (
    (SIGNATURE_REFUSED, lambda quirks: replace(quirks, sealed=False)),
    (r"encrypted.?content", lambda quirks: replace(quirks, encrypted=False)),
    (r"reasoning.?summar", lambda quirks: replace(quirks, summary=False)),
    (
        r"function tools with reasoning_effort",
        lambda quirks: replace(quirks, effort_with_tools=False),
    ),
    (r"max_completion_tokens", lambda quirks: replace(quirks, completion_tokens=True)),
    (
        rf"temperature.*({REFUSED}|only the default|may only be)|({REFUSED}).*temperature",
        lambda quirks: replace(quirks, temperature=False),
    ),
    (
        rf"stream_options.*({REFUSED})|({REFUSED}).*stream_options",
        lambda quirks: replace(quirks, stream_usage=False),
    ),
    (
        rf"['`\"]stop['`\"].*({REFUSED})|({REFUSED}).*['`\"]stop['`\"]",
        lambda quirks: replace(quirks, stop=False),
    ),
    (rf"\bseed\b.*({REFUSED})|({REFUSED}).*\bseed\b", lambda quirks: replace(quirks, seed=False)),
    (r"thinking\.type\.enabled|thinking.*adaptive", lambda quirks: replace(quirks, adaptive=True)),
    (
        rf"reasoning(_content)?['`\"]? (is |are |was )?({REFUSED})"
        rf"|({REFUSED})[^.]{{0,40}}['`\"]reasoning(_content)?['`\"]"
        rf"|messages.{{0,60}}\breasoning(_content)?\b.{{0,60}}({REFUSED})",
        lambda quirks: replace(quirks, thoughts_back=False),
    ),
    (
        r"reasoning_content.*(missing|must|required)|(missing|must|required).*reasoning_content",
        lambda quirks: replace(quirks, reasoning_back=True),
    ),
    (r"tool call id.*(length of 9|a-z)", lambda quirks: replace(quirks, short_ids=True)),
    (r"unexpected role 'user' after role 'tool'", lambda quirks: replace(quirks, bridged=True)),
    (
        rf"allowed.?tools|tool.?choice.*({REFUSED})|({REFUSED}).*tool.?choice",
        lambda quirks: replace(quirks, allowed_tools=False),
    ),
    (r"prompt_cache_key", lambda quirks: replace(quirks, cache_key=False)),
    (r"\bmetadata\b", lambda quirks: replace(quirks, metadata=False)),
    (
        rf"effort.*({REFUSED})|({REFUSED}).*effort|{EFFORT_REFUSED}",
        lambda quirks: replace(quirks, effort=False),
    ),
    (
        r"response_format|response mime type|json_schema|output_config|text\.format",
        lambda quirks: replace(quirks, schema="object" if quirks.schema == "schema" else "none"),
    ),
    (
        r"system (role|message)s? (is |are )?not supported|not support 'system'|developer instruction is not enabled",
        lambda quirks: replace(quirks, system=False),
    ),
    (
        r"content.{0,40}(got null|not an allowed value|should be a valid string|of type .?null|must be a string)",
        lambda quirks: replace(quirks, null_content=False),
    ),
    (
        rf"verified to stream|\bstream(ing)?\b.{{0,20}}({REFUSED})",
        lambda quirks: replace(quirks, stream=False),
    ),
    (
        r"unknown name .{1,40}tools|function_declarations|schema for function|input_schema|tools?[.\[]\d+.*schema"
        r"|schema keyword",
        lambda quirks: replace(quirks, whole_schemas=False),
    ),
)


def adapted(quirks: ServerQuirks, error: AgentError) -> ServerQuirks | None:
    """Return the quirks to try after `error`, or None if it is not about a known parameter.

    Repeated use ends, because each change is made once.
    """
    if error.kind != "invalid":
        return None
    message = str(error).lower()
    limit = _reply_limit(message)
    if limit:
        is_lower = quirks.longest is None or limit < quirks.longest
        return replace(quirks, longest=limit) if is_lower else None
    for pattern, change in RULES:
        if re.search(pattern, message, re.DOTALL):
            changed = change(quirks)
            if changed != quirks:
                return changed
    return None


def _reply_limit(message: str) -> int:
    """Return the limit on reply tokens in a refusal; 0 if it names none, or the prompt is too long."""
    match = REPLY_LIMIT.search(message)
    if match:
        return int(match[match.lastindex or 1])
    match = CONTEXT_EXCEEDED.search(message)
    if not match:
        return 0
    prompt = int(match["prompt"] or int(match["asked"] or 0) - int(match["reply"] or 0))
    rest = int(match["whole"]) - prompt
    return max(LEAST_REPLY, rest // 2) if rest >= LEAST_REPLY else 0  # half: the prompt will grow


@lru_cache(maxsize=64)
def tool_schemas(
    tools: tuple[ToolSpec, ...], quirks: ServerQuirks
) -> tuple[dict[str, JsonValue], ...]:
    """Return the JSON schema of each tool's arguments, with the keywords that the server accepts. Do
    not change them: requests share them.
    """
    schemas: list[dict[str, JsonValue]] = []
    for tool in tools:
        schema: dict[str, JsonValue] = parse_json(tool.parameters)
        if not quirks.whole_schemas:
            schema = {"properties": {}, **_plain_schema(schema, schema, 0), "type": "object"}
        schemas.append(schema)
    return tuple(schemas)


def _plain_schema(value: JsonValue, root: JsonValue, depth: int) -> dict[str, JsonValue]:
    """Return a schema with the keywords that every server accepts.

    References are replaced by their target in `root`, alternatives by the first of them.
    """
    schema = value if isinstance(value, dict) and depth < DEEPEST_SCHEMA else {}
    reference = schema.get("$ref")
    if isinstance(reference, str):
        target = root
        for step in reference.removeprefix("#/").split("/"):
            target = target.get(step) if isinstance(target, dict) else None
        return _plain_schema(target, root, depth + 1)
    for keyword in ("anyOf", "oneOf", "allOf"):
        parts = schema.get(keyword)
        alternatives = []
        if isinstance(parts, list):
            alternatives = [part for part in parts if part != {"type": "null"}]
        if alternatives:
            schema = {**_plain_schema(alternatives[0], root, depth + 1), **schema}
    type_, fields = schema.get("type"), schema.get("properties")
    if isinstance(type_, list):
        type_ = next((name for name in type_ if name != "null"), None)
    plain: dict[str, JsonValue] = {"type": type_ or ("object" if fields else "string")}
    description = schema.get("description")
    if description:
        plain["description"] = description
    choices = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(choices, list) and all(isinstance(choice, str) for choice in choices):
        plain["enum"] = choices
    if isinstance(fields, dict):
        plain["properties"] = {
            name: _plain_schema(field, root, depth + 1) for name, field in fields.items()
        }
        required = schema.get("required")
        names = required if isinstance(required, list) else []
        plain["required"] = [name for name in names if name in fields]
    if plain["type"] == "array":
        plain["items"] = _plain_schema(schema.get("items"), root, depth + 1)
    return plain


DEEPEST_SCHEMA = 12


class LearnedQuirks:
    """The quirks that one agent has learned while it is open."""

    def __init__(self) -> None:
        self._quirks = ServerQuirks()

    async def call(
        self,
        once: Callable[[ServerQuirks], Awaitable[Reply]],
        on_learned: Callable[[ServerQuirks], None],
    ) -> Reply:
        """Make a call, and repeat it for each parameter that the server refuses for the first time.

        `on_learned` gets the new quirks. Raises AgentError.
        """
        while True:
            quirks = self._quirks
            try:
                return await once(quirks)
            except AgentError as error:
                learned = adapted(quirks, error)
                if learned is None:
                    raise
                if self._quirks == quirks:  # else a parallel call has learned something meanwhile
                    self._quirks = learned
                    on_learned(learned)


CACHE_MARK: JsonValue = {"type": "ephemeral"}
MODELS_WITH_CACHE_MARKS = ("anthropic/", "~anthropic/")
"""Models that OpenRouter forwards to a provider which caches nothing without a mark."""


def is_openai(endpoint: ModelEndpoint) -> bool:
    """Return whether the server is OpenAI's own or Azure's: it routes requests with the same cache
    key to the same machine, and knows a choice among allowed tools on every wire.
    """
    return endpoint.host == "api.openai.com" or (
        endpoint.azure and "/openai/v1" in endpoint.base_url
    )


def cache_key(prompt: Prompt) -> str:
    """Return a key that all calls of one conversation share, made from its beginning."""
    first = next((message.model_dump_json() for message in prompt.messages), "")
    return hashlib.sha256(f"{prompt.system}\n{first}".encode("utf-8", "replace")).hexdigest()[:32]


def wants_cache_marks(endpoint: ModelEndpoint) -> bool:
    """Return whether the model's provider caches a prompt only up to a mark."""
    return endpoint.host == "openrouter.ai" and endpoint.model.startswith(MODELS_WITH_CACHE_MARKS)


def bills_cache_writes(endpoint: ModelEndpoint) -> bool:
    """Return whether writing to the cache costs more than input.

    Anthropic bills it, and OpenAI from gpt-5.6 on, which reports no writes for older models.
    """
    return wants_cache_marks(endpoint) or is_openai(endpoint)


def add_cache_marks(messages: list[dict[str, JsonValue]]) -> None:
    """Set two marks, as messages.py does: after the system text, and after the last text."""
    texts = [message for message in messages if isinstance(message.get("content"), str)]
    marked = texts[-1:]
    if len(texts) > 1 and messages[0]["role"] == "system":
        marked.append(messages[0])
    for message in marked:
        message["content"] = [
            {"type": "text", "text": message["content"], "cache_control": CACHE_MARK}
        ]


Stop = Literal["end", "calls", "length", "refusal", "cut"]

FINISH_REASONS: dict[str, Stop] = {
    "stop": "end",
    "eos": "end",
    "tool_calls": "calls",
    "function_call": "calls",
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "model_context_window_exceeded": "length",
    "content_filter": "refusal",
    "refusal": "refusal",
    "safety": "refusal",
    "recitation": "refusal",
    "blocklist": "refusal",
    "prohibited_content": "refusal",
    "spii": "refusal",
    "sensitive": "refusal",
}
"""Known values of `finish_reason`, as `normalized_reason` returns them; any other is an end."""

BROKEN_REASONS = {
    "error",
    "abort",
    "insufficient_system_resource",
    "malformed_function_call",
    "function_call_filter",
    "network_error",
}
"""Values of `finish_reason` for failures, after which a retry helps (OpenRouter, vLLM, DeepSeek, Google, Z.ai)."""


def normalized_reason(reason: str) -> str:
    """Return a `finish_reason` in small letters, up to the first colon."""
    return reason.lower().partition(":")[0].strip()


class StopSequences:
    """Cuts one streamed reply at the first stop sequence. A possible beginning is held back."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._longest_beginning = max((len(stop) for stop in self._stops), default=1) - 1
        self._held_back = ""
        self._stopped = False

    def feed(self, text: str) -> str:
        """Return the text that can be shown now."""
        if not self._stops:
            return text
        if self._stopped:
            return ""
        text = self._held_back + text
        shown = self.cut(text)
        self._stopped = len(shown) < len(text)
        if self._stopped:
            self._held_back = ""
            return shown
        end = max(len(text) - self._longest_beginning, 0)
        self._held_back = text[end:]
        return text[:end]

    def rest(self) -> str:
        """Return the text that was held back, at the end of the reply."""
        text, self._held_back = self._held_back, ""
        return text

    def cut(self, text: str) -> str:
        """Return the text before the first stop sequence."""
        positions = [text.find(stop) for stop in self._stops if stop in text]
        return text[: min(positions)] if positions else text

    def ended(self, reply: Reply) -> Reply:
        """Return the reply up to the first stop sequence. A later length limit does not count."""
        text = self.cut(reply.text)
        stop = reply.stop
        if stop == "length" and text != reply.text:
            stop = "end"
        return reply.model_copy(update={"text": text, "stop": stop})
