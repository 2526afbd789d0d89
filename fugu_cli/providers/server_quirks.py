"""How servers differ from the standard they claim: parameters they refuse (learned from their own
400, once for each entry), prompt-cache marks, finish reasons, stop sequences they do not take.
Pure; a wire format reads this while it encodes and decodes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pydantic import JsonValue

from fugu_cli.errors import AgentError
from fugu_cli.messages import Prompt, Reply, ToolSpec
from fugu_cli.providers.endpoint import ModelEndpoint
from fugu_cli.system.bounded_json import parse_json


@dataclass(frozen=True)
class ServerQuirks:
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
    metadata: bool = True
    cache_key: bool = True
    """`prompt_cache_key`, where the server is one that knows it."""
    effort: bool = True
    effort_with_tools: bool = True
    """An effort beside tools (OpenAI from gpt-5.4 on takes none there, and from gpt-5.6 on wants to
    be told "none").
    """
    sealed: bool = True
    """What this agent thought goes back, as it was signed; a model does not take what another one
    signed.
    """
    encrypted: bool = True
    """Responses: thoughts are asked for, sealed, so that they can go back (models that do not think
    have none).
    """
    summary: bool = True
    """Responses: a summary of what was thought (only for organisations that OpenAI has
    verified).
    """
    adaptive: bool = False
    """Anthropic: thinking without a budget (Claude 4.7 and later refuse one)."""
    short_ids: bool = False
    """Ids of calls are nine letters and digits (Mistral)."""
    bridged: bool = False
    """The user speaks only after an agent, never after a result (Mistral)."""
    thoughts_back: bool = True
    """Reasoning text goes back with the calls of a tool loop, in the field in which it came."""
    reasoning_back: bool = False
    """Reasoning text of this agent goes back with its calls (DeepSeek, Kimi)."""
    system: bool = True
    """A message of the system (Gemma has none: it stands before the user's first words)."""
    null_content: bool = True
    """A reply of calls alone has no content, not an empty one."""
    stream: bool = True
    whole_schemas: bool = True
    """Tools keep every keyword of their JSON schemas (Google knows few; each vendor refuses
    some).
    """

    def tokens(self, wanted: int) -> int:
        """What a reply is asked for at most."""
        return wanted if self.longest is None else min(wanted, self.longest)


REPLY_LIMIT = re.compile(
    r"> (\d+), which is the maximum|supports at most (\d+) completion tokens|exceeds the model limit of (\d+)"
    r"|max_tokens (?:is|should be)(?: in)? \[1, ?(\d+)\]|max_tokens` must be less than or equal to `(\d+)`"
)
"""A model's longest reply, in the words of Anthropic, OpenAI, Bedrock, DeepSeek, Qwen and Groq."""
ROOM_LEFT = re.compile(
    r"context length is (?P<whole>\d+) tokens(?:.{0,40}requested (?:about )?(?P<asked>\d+) tokens"
    r".{0,99}?(?P<reply>\d+) in the (?:completion|output)| and your request has (?P<prompt>\d+) input tokens)"
)
"""The context window and what of it the prompt takes, in the words of OpenAI, OpenRouter and
vLLM.
"""
LEAST_ROOM = 1024
"""Tokens for a reply; with less room than this, the prompt is too long."""

REFUSED = r"unsupported|not support|deprecated|not allowed|not permitted|unknown|unrecognized|unavailable|invalid|extra"

EFFORT_REFUSED = (
    r"not support thinking|think value|reasoning value|thinking level|budget \d+ is invalid|thinking_budget"
    r"|only works in thinking mode|thinking can't be disabled|reasoning (is mandatory|cannot be disabled)"
)
"""An effort is refused, in the words of Ollama, Google and OpenRouter."""
SIGNATURE_REFUSED = (
    r"invalid .?signature.? in|thought.?signature.{0,20}not valid|blocks in the latest assistant message cannot be"
    r"|invalid_encrypted_content|encrypted content.{0,99}could not be|'reasoning' was provided without its required"
)

QuirkChange = Callable[[ServerQuirks], ServerQuirks]

RULES: tuple[tuple[str, QuirkChange], ...] = (
    (SIGNATURE_REFUSED, lambda d: replace(d, sealed=False)),
    (r"encrypted.?content", lambda d: replace(d, encrypted=False)),
    (r"reasoning.?summar", lambda d: replace(d, summary=False)),
    (r"function tools with reasoning_effort", lambda d: replace(d, effort_with_tools=False)),
    (r"max_completion_tokens", lambda d: replace(d, completion_tokens=True)),
    (
        rf"temperature.*({REFUSED}|only the default|may only be)|({REFUSED}).*temperature",
        lambda d: replace(d, temperature=False),
    ),
    (
        rf"stream_options.*({REFUSED})|({REFUSED}).*stream_options",
        lambda d: replace(d, stream_usage=False),
    ),
    (
        rf"['`\"]stop['`\"].*({REFUSED})|({REFUSED}).*['`\"]stop['`\"]",
        lambda d: replace(d, stop=False),
    ),
    (rf"\bseed\b.*({REFUSED})|({REFUSED}).*\bseed\b", lambda d: replace(d, seed=False)),
    (r"thinking\.type\.enabled|thinking.*adaptive", lambda d: replace(d, adaptive=True)),
    (
        rf"reasoning(_content)?['`\"]? (is |are |was )?({REFUSED})"
        rf"|({REFUSED})[^.]{{0,40}}['`\"]reasoning(_content)?['`\"]"
        rf"|messages.{{0,60}}\breasoning(_content)?\b.{{0,60}}({REFUSED})",
        lambda d: replace(d, thoughts_back=False),
    ),
    (
        r"reasoning_content.*(missing|must|required)|(missing|must|required).*reasoning_content",
        lambda d: replace(d, reasoning_back=True),
    ),
    (r"tool call id.*(length of 9|a-z)", lambda d: replace(d, short_ids=True)),
    (r"unexpected role 'user' after role 'tool'", lambda d: replace(d, bridged=True)),
    (r"prompt_cache_key", lambda d: replace(d, cache_key=False)),
    (r"\bmetadata\b", lambda d: replace(d, metadata=False)),
    (
        rf"effort.*({REFUSED})|({REFUSED}).*effort|{EFFORT_REFUSED}",
        lambda d: replace(d, effort=False),
    ),
    (
        r"response_format|response mime type|json_schema|output_config|text\.format",
        lambda d: replace(d, schema="object" if d.schema == "schema" else "none"),
    ),
    (
        r"system (role|message)s? (is |are )?not supported|not support 'system'|developer instruction is not enabled",
        lambda d: replace(d, system=False),
    ),
    (
        r"content.{0,40}(got null|not an allowed value|should be a valid string|of type .?null|must be a string)",
        lambda d: replace(d, null_content=False),
    ),
    (
        rf"verified to stream|\bstream(ing)?\b.{{0,20}}({REFUSED})",
        lambda d: replace(d, stream=False),
    ),
    (
        r"unknown name .{1,40}tools|function_declarations|schema for function|input_schema|tools?[.\[]\d+.*schema"
        r"|schema keyword",
        lambda d: replace(d, whole_schemas=False),
    ),
)


def adapted(dialect: ServerQuirks, error: AgentError) -> ServerQuirks | None:
    """The dialect to try after `error`, None where it is not about one of these. Ends: each step is
    taken once.
    """
    if error.kind != "invalid":
        return None
    message = str(error).lower()
    if most := _longest(message):
        return replace(dialect, longest=most) if most < (dialect.longest or most + 1) else None
    for pattern, change in RULES:
        if re.search(pattern, message, re.DOTALL) and (changed := change(dialect)) != dialect:
            return changed
    return None


def _longest(message: str) -> int:
    """How long a reply may be, as a refusal says it; 0 where it says nothing, or that the prompt is
    too long.
    """
    if found := REPLY_LIMIT.search(message):
        return int(found[found.lastindex or 1])
    if found := ROOM_LEFT.search(message):
        prompt = int(found["prompt"] or int(found["asked"] or 0) - int(found["reply"] or 0))
        room = int(found["whole"]) - prompt
        return max(LEAST_ROOM, room // 2) if room >= LEAST_ROOM else 0  # half: the prompt grows
    return 0


def tool_parameters(tool: ToolSpec, quirks: ServerQuirks) -> dict[str, JsonValue]:
    """The JSON schema of a tool's arguments, as far as the server takes one."""
    whole: dict[str, JsonValue] = parse_json(tool.parameters)
    return (
        whole
        if quirks.whole_schemas
        else {"properties": {}, **_plain_schema(whole, whole, 0), "type": "object"}
    )


def _plain_schema(schema: JsonValue, whole: JsonValue, depth: int) -> dict[str, JsonValue]:
    """With the keywords that every server takes. What it refers to stands in its place; of
    alternatives the first.
    """
    found = schema if isinstance(schema, dict) and depth < DEEPEST_SCHEMA else {}
    if isinstance(reference := found.get("$ref"), str):
        target = whole
        for step in reference.removeprefix("#/").split("/"):
            target = target.get(step) if isinstance(target, dict) else None
        return _plain_schema(target, whole, depth + 1)
    for keyword in ("anyOf", "oneOf", "allOf"):
        parts = found.get(keyword)
        real = [one for one in parts if one != {"type": "null"}] if isinstance(parts, list) else []
        if real:
            found = {**_plain_schema(real[0], whole, depth + 1), **found}
    kinds, fields = found.get("type"), found.get("properties")
    kind = next((one for one in kinds if one != "null"), None) if isinstance(kinds, list) else kinds
    plain: dict[str, JsonValue] = {"type": kind or ("object" if fields else "string")}
    if text := found.get("description"):
        plain["description"] = text
    choices = [found["const"]] if "const" in found else found.get("enum")
    if isinstance(choices, list) and all(isinstance(one, str) for one in choices):
        plain["enum"] = choices
    if isinstance(fields, dict):
        plain["properties"] = {
            name: _plain_schema(one, whole, depth + 1) for name, one in fields.items()
        }
        needed = found.get("required")
        plain["required"] = (
            [one for one in needed if one in fields] if isinstance(needed, list) else []
        )
    if plain["type"] == "array":
        plain["items"] = _plain_schema(found.get("items"), whole, depth + 1)
    return plain


DEEPEST_SCHEMA = 12


class LearnedQuirks:
    """The dialect of one entry, for as long as it is open."""

    def __init__(self) -> None:
        self._dialect = ServerQuirks()

    async def call(
        self, once: Callable[[ServerQuirks], Awaitable[Reply]], told: Callable[[ServerQuirks], None]
    ) -> Reply:
        """One call, and one more for each parameter that the server refuses for the first time, of
        which `told` learns. Raises AgentError."""
        while True:
            asked = self._dialect
            try:
                return await once(asked)
            except AgentError as error:
                learned = adapted(asked, error)
                if learned is None:
                    raise
                if (
                    self._dialect == asked
                ):  # else a call beside this one has learned something meanwhile: it counts
                    self._dialect = learned
                    told(learned)


CACHE_MARK: JsonValue = {"type": "ephemeral"}
MODELS_WITH_CACHE_MARKS = ("anthropic/", "~anthropic/")
"""Models that OpenRouter forwards to a provider which keeps nothing without a mark."""


def wants_cache_key(access: ModelEndpoint) -> bool:
    """The server sends requests with the same key to the same machine, whose cache is warm."""
    return access.host == "api.openai.com" or (access.azure and "/openai/v1" in access.base_url)


def cache_key(prompt: Prompt) -> str:
    """The same for every call of one conversation, and for no other: its beginning."""
    first = next((message.model_dump_json() for message in prompt.messages), "")
    return hashlib.sha256(f"{prompt.system}\n{first}".encode("utf-8", "replace")).hexdigest()[:32]


def wants_cache_marks(access: ModelEndpoint) -> bool:
    """The model behind the server keeps a prompt only up to where it was told."""
    return access.host == "openrouter.ai" and access.model.startswith(MODELS_WITH_CACHE_MARKS)


def bills_cache_writes(access: ModelEndpoint) -> bool:
    """What is put into the cache is billed above the price of input, by Anthropic and by OpenAI
    from gpt-5.6 on, which reports nothing of it for older models."""
    return wants_cache_marks(access) or wants_cache_key(access)


def add_cache_marks(messages: list[dict[str, JsonValue]]) -> None:
    """Two marks, as messages.py sets them: after the system text, and at the end of what has been
    said.
    """
    system = messages[:1] if messages and messages[0]["role"] == "system" else []
    last = [message for message in messages if isinstance(message.get("content"), str)][-1:]
    for message in {id(one): one for one in (*system, *last)}.values():
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
"""`finish_reason` of the servers met so far, up to a colon and in small letters; any other is an
end.
"""

BROKEN_REASONS = {
    "error",
    "abort",
    "insufficient_system_resource",
    "malformed_function_call",
    "function_call_filter",
    "network_error",
}
"""Those that say: this is no answer, ask again (OpenRouter, vLLM, DeepSeek, Google, Z.ai)."""


def normalized_reason(reason: str) -> str:
    """What counts of a `finish_reason`."""
    return reason.lower().partition(":")[0].strip()


class StopSequences:
    """One reply's. What may be the beginning of a stop is held back until it is known."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._room = max((len(stop) for stop in self._stops), default=1) - 1
        self._held = ""
        self._over = False

    def feed(self, text: str) -> str:
        """The part of it that is to be shown now."""
        if self._over:
            return ""
        held = self._held + text
        shown = self.cut(held)
        self._over = len(shown) < len(held)
        if self._over:
            self._held = ""
            return shown
        place = max(len(held) - self._room, 0)
        self._held = held[place:]
        return held[:place]

    def rest(self) -> str:
        """What was held back, at the end."""
        held, self._held = self._held, ""
        return held

    def cut(self, text: str) -> str:
        """The text up to the first stop in it."""
        places = [place for stop in self._stops if (place := text.find(stop)) >= 0]
        return text[: min(places)] if places else text

    def ended(self, reply: Reply) -> Reply:
        """The reply up to the first stop. Whatever ended it behind that, a limit above all, did
        not.
        """
        text = self.cut(reply.text)
        over = "end" if reply.stop == "length" and text != reply.text else reply.stop
        return reply.model_copy(update={"text": text, "stop": over})
