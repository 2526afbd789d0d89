"""The Messages API (Anthropic) with streaming, tool use, prompt caching and thinking.

`MessagesDecoder` and `encode` are pure; only `Anthropic` does IO. Signed thinking blocks go back
unchanged to the agent that wrote them, and to no other. A block is kept as the provider's own JSON
with its position in the message (`reasoning.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal

import httpx
from pydantic import BaseModel, ConfigDict, JsonValue, model_validator

from fugu_cli.errors import AgentError
from fugu_cli.messages import (
    THINKING_TOKENS,
    Call,
    FromAgent,
    FromTool,
    FromUser,
    Media,
    Message,
    Prompt,
    Reply,
    Thinking,
    TokenCount,
    ToolSpec,
    Usage,
)
from fugu_cli.providers import Say, error_mapping
from fugu_cli.providers.endpoint import ModelEndpoint
from fugu_cli.providers.history import arguments_object, join_surrogates, normalized
from fugu_cli.providers.http_client import Json, ReplyLimits, ReplyProgress, ServerEvent
from fugu_cli.providers.reasoning import POSITION, in_order, loop_replies, position
from fugu_cli.providers.server_quirks import ServerQuirks, Stop, StopSequences, tool_parameters
from fugu_cli.providers.wire_agent import WireAgent
from fugu_cli.system.bounded_json import parse_json

STOP_REASONS: dict[str, Stop] = {
    "end_turn": "end",
    "stop_sequence": "end",
    "pause_turn": "end",
    "tool_use": "calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
}


class _Wire(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, value: object) -> object:
        """Drop nulls, which compatible servers send in place of a missing text, signature or model."""
        if isinstance(value, dict):
            return {key: field for key, field in value.items() if field is not None}
        return value


class _Usage(_Wire):
    input_tokens: TokenCount = None
    output_tokens: TokenCount = None
    cache_read_input_tokens: TokenCount = None
    cache_creation_input_tokens: TokenCount = None


class _WireBlock(_Wire):
    type: str
    text: str = ""
    thinking: str = ""
    signature: str = ""
    data: str = ""
    id: str = ""
    name: str = ""
    input: JsonValue = None


class _Delta(_Wire):
    type: str = ""
    text: str = ""
    thinking: str = ""
    signature: str = ""
    partial_json: str = ""
    stop_reason: str | None = None


class _Message(_Wire):
    model: str = ""
    content: list[_WireBlock] = []
    stop_reason: str | None = None
    usage: _Usage | None = None


class _Event(_Wire):
    type: str
    message: _Message | None = None
    index: int = 0
    content_block: _WireBlock | None = None
    delta: _Delta | None = None
    usage: _Usage | None = None


class _Whole(_Message):
    """A message that was not streamed."""

    type: Literal["message"]


class _PartialBlock:
    """A content block that is being streamed."""

    def __init__(self, block: _WireBlock) -> None:
        self.block = block
        self._text = [block.text]
        self._thinking = [block.thinking]
        self._signature = [block.signature]
        self._json: list[str] = []

    def add(self, delta: _Delta) -> None:
        self._text.append(delta.text)
        self._thinking.append(delta.thinking)
        self._signature.append(delta.signature)
        self._json.append(delta.partial_json)

    @property
    def text(self) -> str:
        return "".join(self._text)

    @property
    def thinking(self) -> str:
        return "".join(self._thinking)

    @property
    def signature(self) -> str:
        return "".join(self._signature)

    @property
    def json(self) -> str:
        return "".join(self._json)

    def call(self) -> Call:
        arguments = join_surrogates(self.json)
        if not arguments:
            input = self.block.input if isinstance(self.block.input, dict) else {}
            arguments = json.dumps(input, ensure_ascii=False)
        return Call(id=self.block.id, tool=join_surrogates(self.block.name), arguments=arguments)

    def as_thinking(self, characters_before: int, calls_before: int) -> Thinking:
        after = position(characters_before, calls_before)
        if self.block.type == "redacted_thinking":
            redacted = {"type": "redacted_thinking", "data": self.block.data, **after}
            return Thinking(data=json.dumps(redacted))
        text = join_surrogates(self.thinking)
        data = {"type": "thinking", "thinking": text, "signature": self.signature, **after}
        return Thinking(text=text, data=json.dumps(data, ensure_ascii=False))


def _text(blocks: Sequence[_PartialBlock]) -> str:
    return join_surrogates("".join(block.text for block in blocks if block.block.type == "text"))


def _calls(blocks: Sequence[_PartialBlock]) -> tuple[Call, ...]:
    return tuple(block.call() for block in blocks if block.block.type == "tool_use")


def _thinking_blocks(blocks: Sequence[_PartialBlock]) -> Iterator[Thinking]:
    for index, block in enumerate(blocks):
        if block.block.type in ("thinking", "redacted_thinking"):
            before = blocks[:index]
            yield block.as_thinking(len(_text(before)), len(_calls(before)))


class MessagesDecoder:
    """Decodes one reply. Once `finished`, no more events are expected and `reply` may be called."""

    def __init__(self, endpoint: ModelEndpoint) -> None:
        self._endpoint = endpoint
        self._limits = ReplyLimits(endpoint.name, endpoint.host)
        self._blocks: dict[int, _PartialBlock] = {}
        self._usage = _Usage()
        self._model = ""
        self._reason: str | None = None
        self.thought = ""
        """The reasoning text that the newest event added."""
        self.finished = False

    @property
    def received_bytes(self) -> int:
        """Bytes of text, reasoning and arguments that were streamed so far."""
        return self._limits.received_bytes

    @property
    def progress(self) -> ReplyProgress:
        """The part of the reply that has arrived. An opened block is a sign of its first token."""
        if self.finished or self._reason is not None:
            return ReplyProgress.WHOLE if self.finished else ReplyProgress.SAID
        return ReplyProgress.BEGUN if self._blocks else ReplyProgress.NOTHING

    def feed(self, event: ServerEvent) -> str:
        """Decode one event, and return the text it adds. Raises AgentError for an error inside the
        stream, and for data that is not JSON.
        """
        self.thought = ""
        if not event.data.strip() or self.finished:
            return ""
        try:
            parsed: object = parse_json(event.data)
            if isinstance(parsed, dict) and parsed.get("type") == "message":
                return self._take_whole(_Whole.model_validate(parsed))
            taken = _Event.model_validate(parsed)
        except ValueError as error:
            if not event.whole:
                return ""  # the connection broke inside this event; reply() says so
            hint = f"Check that {self._endpoint.address} speaks the Messages API."
            raise error_mapping.error_of_part(
                self._endpoint, event.data, error, "message", hint
            ) from error
        if taken.type == "error":
            raise error_mapping.error_in_stream(self._endpoint, parsed)
        return self._take(taken)

    def reply(self) -> Reply:
        """Return the whole reply. Raises AgentError(kind="network") if the stream ended before the
        reply.
        """
        if not self.finished and self._reason is None:
            raise AgentError(
                f"{self._endpoint.name}: {self._endpoint.host} cut the stream",
                kind="network",
                retry=True,
            )
        blocks = [self._blocks[index] for index in sorted(self._blocks)]
        calls = _calls(blocks)
        stop = STOP_REASONS.get(self._reason or "end_turn", "end")
        if stop in ("end", "calls"):
            stop = "calls" if calls else "end"
        return Reply(
            text=_text(blocks),
            thinking=tuple(_thinking_blocks(blocks)),
            calls=calls,
            usage=self.used,
            model=self._model or self._endpoint.model,
            stop=stop,
        )

    def _take(self, event: _Event) -> str:
        match event.type:
            case "message_start" if event.message is not None:
                self._model = event.message.model
                self._count(event.message.usage)
            case "content_block_start" if event.content_block is not None:
                block = event.content_block
                self._limits.add(block.text, block.thinking, block.signature, block.data)
                self._blocks[event.index] = _PartialBlock(block)
                self._limits.parts(len(self._blocks))
                return block.text if block.type == "text" else ""
            case "content_block_delta" if event.delta is not None and event.index in self._blocks:
                delta = event.delta
                self._limits.add(delta.text, delta.thinking, delta.signature, delta.partial_json)
                self.thought = delta.thinking
                self._blocks[event.index].add(delta)
                return delta.text
            case "message_delta":
                self._count(event.usage)
                self._reason = (event.delta.stop_reason if event.delta else None) or self._reason
            case "message_stop":
                self.finished = True
        return ""  # pings, and whatever is added to this protocol later

    def _take_whole(self, message: _Whole) -> str:
        self._model, self._reason, self.finished = message.model, message.stop_reason, True
        self._blocks = {index: _PartialBlock(block) for index, block in enumerate(message.content)}
        self._count(message.usage)
        return "".join(block.text for block in message.content if block.type == "text")

    def _count(self, usage: _Usage | None) -> None:
        """Keep the newest count of each kind, since those of `message_delta` are cumulative.

        Compatible servers report 0 there for a prompt that `message_start` has counted, so zeros are
        ignored except for output tokens.
        """
        if usage is None:
            return
        counts = usage.model_dump(exclude_none=True)
        update = {name: count for name, count in counts.items() if count or name == "output_tokens"}
        self._usage = self._usage.model_copy(update=update)

    @property
    def used(self) -> Usage:
        """The usage that the server has reported so far."""
        usage = self._usage
        cached, created = usage.cache_read_input_tokens or 0, usage.cache_creation_input_tokens or 0
        read = (usage.input_tokens or 0) + cached + created
        return Usage(input=read, cached=cached, written=created, output=usage.output_tokens or 0)


VERSION = "2023-06-01"

CACHE_POINT: Json = {"type": "ephemeral"}
"""Marks the block up to which the provider may cache the prompt."""

SHORTEST_THINKING = 2 * THINKING_TOKENS["minimal"]
"""Reply tokens below which there is no room for the least budget that the API takes."""
TEXT_TOKENS = 8192
"""Reply tokens that are not given to thinking where a reply may have twice as many."""

NO_TOOLS: Json = {"type": "object", "properties": {}}


def encode(prompt: Prompt, endpoint: ModelEndpoint, quirks: ServerQuirks) -> Json:
    """Return the request body, with three cache points: after tools and system, at the end of the
    request before this one, and after the last message. The provider looks back only some 20 blocks
    from a point, and a reply with many calls adds more.
    """
    messages = normalized(prompt.messages, endpoint.name if quirks.sealed else "")
    payload: Json = {
        "model": endpoint.model,
        "max_tokens": quirks.tokens(prompt.max_tokens),
        "stream": True,
    }
    if prompt.system.strip():
        payload["system"] = [{"type": "text", "text": prompt.system, "cache_control": CACHE_POINT}]
    loop = loop_replies(prompt.messages, messages) if quirks.thoughts_back else set()
    payload["messages"] = [*_turns(messages, loop)]
    tools = [_tool(tool, quirks) for tool in prompt.tools] or _tools_of_history(messages)
    if tools:
        payload["tools"] = [*tools]
    if tools and not prompt.tools:
        payload["tool_choice"] = {"type": "none"}
    elif tools and prompt.tool_choice:
        payload["tool_choice"] = _tool_choice(prompt.tool_choice)
    if (user := prompt.metadata.get("user_id")) and quirks.metadata:
        payload["metadata"] = {"user_id": user}
    if prompt.stop:
        payload["stop_sequences"] = [stop for stop in prompt.stop if stop.strip()]
    forced = prompt.tool_choice not in ("", "none")
    effort = prompt.effort or endpoint.effort
    thinks = effort not in ("", "none") and quirks.effort and not forced and _may_think(messages)
    thinks = thinks and (quirks.adaptive or quirks.tokens(prompt.max_tokens) >= SHORTEST_THINKING)
    if thinks:
        payload |= _thinking(quirks.tokens(prompt.max_tokens), effort, quirks)
    if prompt.temperature is not None and quirks.temperature and not thinks:
        payload["temperature"] = prompt.temperature
    if prompt.reply_schema and quirks.schema == "schema":
        schema: Json = {"type": "json_schema", "schema": parse_json(prompt.reply_schema)}
        config = payload.get("output_config")
        payload["output_config"] = {
            **(config if isinstance(config, dict) else {}),
            "format": schema,
        }
    return payload


def _thinking(max_tokens: int, effort: str, quirks: ServerQuirks) -> Json:
    """Return the fields for thinking, which is a part of `max_tokens`. At least half of them, or
    TEXT_TOKENS, are left for the reply itself.
    """
    if quirks.adaptive:
        return {
            "thinking": {"type": "adaptive"},
            "output_config": {"effort": "low" if effort == "minimal" else effort},
        }
    budget = min(THINKING_TOKENS[effort], max_tokens - min(TEXT_TOKENS, max_tokens // 2))
    return {"thinking": {"type": "enabled", "budget_tokens": budget}}


def _may_think(messages: Sequence[Message]) -> bool:
    """Return False if this call continues tool calls without thinking: such a turn must begin with
    a thinking block.
    """
    if not isinstance(messages[-1], FromTool):
        return True
    newest = next(message for message in reversed(messages) if isinstance(message, FromAgent))
    return any(_thinking_block(thinking, in_loop=True) for thinking in newest.thinking)


def _turns(messages: Sequence[Message], loop: set[int]) -> list[Json]:
    """Return the messages as the API's turns. Results and a user's text form one turn, results
    first, as `normalized` orders them. `loop` are the indices of the open tool loop's replies.
    """
    turns: list[tuple[str, list[Json]]] = []
    for index, message in enumerate(messages):
        role = "assistant" if isinstance(message, FromAgent) else "user"
        if not turns or turns[-1][0] != role:
            turns.append((role, []))
        turns[-1][1].extend(_blocks(message, in_loop=index in loop))
    for _, blocks in turns[-1::-2][:2]:
        blocks[-1]["cache_control"] = CACHE_POINT
    return [{"role": role, "content": [*blocks]} for role, blocks in turns]


def _blocks(message: Message, *, in_loop: bool) -> list[Json]:
    match message:
        case FromUser():
            return [*map(_media_block, message.media), *_text_blocks(message.text)]
        case FromTool():
            content: JsonValue = message.text
            if message.media:
                content = [*_text_blocks(message.text), *map(_media_block, message.media)]
            result: Json = {"type": "tool_result", "tool_use_id": message.call, "content": content}
            if not message.ok:
                result["is_error"] = True
            return [result]
        case FromAgent():
            encode_thought = partial(_thinking_block, in_loop=in_loop)
            return in_order(message, encode_thought, _text_blocks, _tool_use_blocks)


def _media_block(item: Media) -> Json:
    source: Json = {"type": "base64", "media_type": item.type, "data": item.data}
    if item.is_picture:
        return {"type": "image", "source": source}
    return {"type": "document", "title": item.name, "source": source}


def _text_blocks(text: str) -> list[Json]:
    return [{"type": "text", "text": text}] if text.strip() else []


def _tool_use_blocks(calls: Sequence[Call]) -> list[Json]:
    return [
        {"type": "tool_use", "id": call.id, "name": call.tool, "input": parse_json(call.arguments)}
        for call in calls
    ]


def _thinking_block(thinking: Thinking, *, in_loop: bool) -> Json | None:
    """Return the provider's own block, None if it does not go back.

    One without a signature comes from a server that does not sign, and goes back inside a tool loop.
    """
    fields = arguments_object(thinking.data)
    if not fields:
        return None
    if fields.get("type") == "thinking":
        goes_back = fields.get("signature") or (in_loop and fields.get("thinking"))
    else:
        goes_back = fields.get("type") == "redacted_thinking" and fields.get("data")
    if not goes_back:
        return None
    block: Json = parse_json(thinking.data)
    return {name: value for name, value in block.items() if name != POSITION}


def _tool_choice(choice: str) -> Json:
    match choice:
        case "none":
            return {"type": "none"}
        case "required":
            return {"type": "any"}
    return {"type": "tool", "name": choice}


def _tool(tool: ToolSpec, quirks: ServerQuirks) -> Json:
    return {
        "name": tool.name,
        "description": tool.description,
        "input_schema": tool_parameters(tool, quirks),
    }


def _tools_of_history(messages: Sequence[Message]) -> list[Json]:
    """Return the tools that the history calls: the API refuses calls of unlisted tools, even if no
    tool may be called.
    """
    names = dict.fromkeys(
        call.tool
        for message in messages
        if isinstance(message, FromAgent)
        for call in message.calls
    )
    return [
        {"name": name, "description": "Not at hand now.", "input_schema": NO_TOOLS}
        for name in names
    ]


class Anthropic(WireAgent):
    """An agent behind the Messages API."""

    def __init__(
        self, endpoint: ModelEndpoint, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        headers = {
            "anthropic-version": VERSION,
            **({"x-api-key": endpoint.key} if endpoint.key else {}),
        }
        super().__init__(endpoint, headers, transport)

    async def _once(self, prompt: Prompt, say: Say, quirks: ServerQuirks) -> Reply:
        blank_stops = [stop for stop in prompt.stop if not stop.strip()]  # the API refuses them
        stops = StopSequences(blank_stops)
        # `base_url` is configured with or without its version; both mean the same.
        has_version = self._endpoint.base_url.rstrip("/").endswith("/v1")
        path = "/messages" if has_version else "/v1/messages"
        payload = encode(prompt, self._endpoint, quirks)
        decoder = MessagesDecoder(self._endpoint)
        return await self._exchange(path, payload, decoder, stops, say, prompt)


if TYPE_CHECKING:
    from fugu_cli.providers import Agent

    def _fits(agent: Anthropic) -> Agent:
        return agent
