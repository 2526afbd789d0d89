"""The Messages API (Anthropic) with streaming, tool use, prompt caching and thinking.
`MessagesDecoder` and `encode` are pure; only `Anthropic` does IO. Signed thinking blocks go back
unchanged to the agent that wrote them and to no other.

A thinking block is kept as the provider's own JSON with its position in the message
(`reasoning.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
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
from fugu_cli.providers.reasoning import POSITION, in_order, position
from fugu_cli.providers.server_quirks import ServerQuirks, Stop, StopSequences, tool_parameters
from fugu_cli.providers.wire_agent import WireAgent
from fugu_cli.system.bounded_json import parse_json

STOPS: dict[str, Stop] = {
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
    def _nulls_say_nothing(cls, given: object) -> object:
        """Servers that only speak like Anthropic send null where there is no text, signature or
        model yet.
        """
        return (
            {key: value for key, value in given.items() if value is not None}
            if isinstance(given, dict)
            else given
        )


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


class _Open:
    """A block being written."""

    def __init__(self, block: _WireBlock) -> None:
        self.block = block
        self._text, self._thinking, self._signature = (
            [block.text],
            [block.thinking],
            [block.signature],
        )
        self._json: list[str] = []

    def fill(self, delta: _Delta) -> None:
        for pieces, piece in (
            (self._text, delta.text),
            (self._thinking, delta.thinking),
            (self._signature, delta.signature),
            (self._json, delta.partial_json),
        ):
            if piece:
                pieces.append(piece)

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
        given = self.block.input if isinstance(self.block.input, dict) else {}
        return Call(
            id=self.block.id,
            tool=join_surrogates(self.block.name),
            arguments=join_surrogates(self.json) or json.dumps(given, ensure_ascii=False),
        )

    def kept(self, after: tuple[int, int]) -> Thinking:
        place = position(after)
        if self.block.type == "redacted_thinking":
            return Thinking(
                data=json.dumps({"type": "redacted_thinking", "data": self.block.data, **place})
            )
        text = join_surrogates(self.thinking)
        data = {"type": "thinking", "thinking": text, "signature": self.signature, **place}
        return Thinking(text=text, data=json.dumps(data, ensure_ascii=False))


def _text(blocks: Sequence[_Open]) -> str:
    return join_surrogates("".join(block.text for block in blocks if block.block.type == "text"))


def _calls(blocks: Sequence[_Open]) -> tuple[Call, ...]:
    return tuple(block.call() for block in blocks if block.block.type == "tool_use")


def _thinking_blocks(blocks: Sequence[_Open]) -> Iterator[Thinking]:
    for place, block in enumerate(blocks):
        if block.block.type in ("thinking", "redacted_thinking"):
            before = blocks[:place]
            yield block.kept((len(_text(before)), len(_calls(before))))


class MessagesDecoder:
    """One answer. `finished` once nothing more is expected; `reply` may then be asked for."""

    def __init__(self, access: ModelEndpoint) -> None:
        self._access = access
        self._held = ReplyLimits(access.name, access.host)
        self._blocks: dict[int, _Open] = {}
        self._usage = _Usage()
        self._model = ""
        self._reason: str | None = None
        self.thought = ""
        """What the newest event added to what is thought."""
        self.finished = False

    @property
    def received_bytes(self) -> int:
        """Of text, thoughts and arguments, as they were streamed."""
        return self._held.received_bytes

    @property
    def heard(self) -> ReplyProgress:
        """How far the reply has come: a block that is opened is a sign of its first token."""
        if self.finished or self._reason is not None:
            return ReplyProgress.WHOLE if self.finished else ReplyProgress.SAID
        return ReplyProgress.BEGUN if self._blocks else ReplyProgress.NOTHING

    def feed(self, event: ServerEvent) -> str:
        """Takes one event; returns the text it adds. Raises AgentError for an error inside the
        stream or no JSON.
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
            hint = f"Check that {self._access.address} speaks the Messages API."
            raise error_mapping.error_of_part(
                self._access, event.data, error, "message", hint
            ) from error
        if taken.type == "error":
            raise error_mapping.error_in_stream(self._access, parsed)
        return self._take(taken)

    def reply(self) -> Reply:
        """The whole reply. Raises AgentError(kind="network") where the stream ended before it
        did.
        """
        if not self.finished and self._reason is None:
            raise AgentError(
                f"{self._access.name}: {self._access.host} cut the stream",
                kind="network",
                retry=True,
            )
        blocks = [self._blocks[index] for index in sorted(self._blocks)]
        calls = _calls(blocks)
        stop = STOPS.get(self._reason or "end_turn", "end")
        if stop in ("end", "calls"):
            stop = "calls" if calls else "end"
        return Reply(
            text=_text(blocks),
            thinking=tuple(_thinking_blocks(blocks)),
            calls=calls,
            usage=self.used,
            model=self._model or self._access.model,
            stop=stop,
        )

    def _take(self, event: _Event) -> str:
        match event.type:
            case "message_start" if event.message is not None:
                self._model = event.message.model
                self._count(event.message.usage)
            case "content_block_start" if event.content_block is not None:
                block = event.content_block
                self._held.add(block.text, block.thinking, block.signature, block.data)
                self._blocks[event.index] = _Open(block)
                self._held.parts(len(self._blocks))
                return block.text if block.type == "text" else ""
            case "content_block_delta" if event.delta is not None and event.index in self._blocks:
                delta = event.delta
                self._held.add(delta.text, delta.thinking, delta.signature, delta.partial_json)
                self.thought = delta.thinking
                self._blocks[event.index].fill(delta)
                return delta.text
            case "message_delta":
                self._count(event.usage)
                self._reason = (event.delta.stop_reason if event.delta else None) or self._reason
            case "message_stop":
                self.finished = True
        return ""  # pings, and whatever is added to this protocol later

    def _take_whole(self, message: _Whole) -> str:
        self._model, self._reason, self.finished = message.model, message.stop_reason, True
        self._blocks = {index: _Open(block) for index, block in enumerate(message.content)}
        self._count(message.usage)
        return "".join(block.text for block in message.content if block.type == "text")

    def _count(self, usage: _Usage | None) -> None:
        """The newest figure of each kind: the counts of `message_delta` are cumulative. Servers
        that only speak like Anthropic say 0 there of a prompt that `message_start` has counted."""
        if usage is not None:
            said = usage.model_dump(exclude_none=True)
            kept = {kind: count for kind, count in said.items() if count or kind == "output_tokens"}
            self._usage = self._usage.model_copy(update=kept)

    @property
    def used(self) -> Usage:
        """What the server has reported so far, whatever becomes of the reply."""
        usage = self._usage
        cached, created = usage.cache_read_input_tokens or 0, usage.cache_creation_input_tokens or 0
        read = (usage.input_tokens or 0) + cached + created
        return Usage(input=read, cached=cached, written=created, output=usage.output_tokens or 0)


VERSION = "2023-06-01"

CACHE_POINT: Json = {"type": "ephemeral"}
"""Marks a block up to which the provider may keep the prompt for the next call."""

NO_TOOLS: Json = {"type": "object", "properties": {}}


def encode(prompt: Prompt, access: ModelEndpoint, dialect: ServerQuirks) -> Json:
    """The request body. Two cache marks: after tools and system, and at the end of what has been
    said.
    """
    messages = normalized(prompt.messages, access.name if dialect.sealed else "")
    payload: Json = {
        "model": access.model,
        "max_tokens": dialect.tokens(prompt.max_tokens),
        "stream": True,
    }
    if prompt.system.strip():
        payload["system"] = [{"type": "text", "text": prompt.system, "cache_control": CACHE_POINT}]
    payload["messages"] = [*_turns(messages)]
    tools = [_tool(tool, dialect) for tool in prompt.tools] or _tools_of(messages)
    if tools:
        payload["tools"] = [*tools]
    if tools and not prompt.tools:
        payload["tool_choice"] = {"type": "none"}
    elif tools and prompt.tool_choice:
        payload["tool_choice"] = _choice(prompt.tool_choice)
    if (user := prompt.metadata.get("user_id")) and dialect.metadata:
        payload["metadata"] = {"user_id": user}
    if prompt.stop:
        payload["stop_sequences"] = [stop for stop in prompt.stop if stop.strip()]
    forced = prompt.tool_choice not in ("", "none")
    effort = prompt.effort or access.effort
    thinks = effort not in ("", "none") and dialect.effort and not forced and _may_think(messages)
    if thinks:
        payload |= _thinking(prompt, effort, dialect)
    if prompt.temperature is not None and dialect.temperature and not thinks:
        payload["temperature"] = prompt.temperature
    if prompt.reply_schema and dialect.schema == "schema":
        held: Json = {"format": {"type": "json_schema", "schema": parse_json(prompt.reply_schema)}}
        config = payload.get("output_config")
        payload["output_config"] = {**config, **held} if isinstance(config, dict) else held
    return payload


def _thinking(prompt: Prompt, effort: str, dialect: ServerQuirks) -> Json:
    """What is thought counts against `max_tokens` in either kind, so room for it comes on top."""
    whole = dialect.tokens(prompt.max_tokens + THINKING_TOKENS[effort])
    if dialect.adaptive:
        told = "low" if effort == "minimal" else effort
        thinking: Json = {"thinking": {"type": "adaptive"}, "output_config": {"effort": told}}
        return {**thinking, "max_tokens": whole}
    budget = max(whole - prompt.max_tokens, THINKING_TOKENS["minimal"])
    return {"thinking": {"type": "enabled", "budget_tokens": budget}, "max_tokens": whole}


def _may_think(messages: Sequence[Message]) -> bool:
    """Not where this call continues tool calls made without thinking: those must begin with a
    thinking block.
    """
    if not isinstance(messages[-1], FromTool):
        return True
    newest = next(message for message in reversed(messages) if isinstance(message, FromAgent))
    return any(_block(thinking) for thinking in newest.thinking)


def _turns(messages: Sequence[Message]) -> list[Json]:
    """Results and a user's words are one message here, results first: `closed` left them in that
    order.
    """
    turns: list[tuple[str, list[Json]]] = []
    for message in messages:
        role = "assistant" if isinstance(message, FromAgent) else "user"
        if not turns or turns[-1][0] != role:
            turns.append((role, []))
        turns[-1][1].extend(_blocks(message))
    turns[-1][1][-1]["cache_control"] = CACHE_POINT
    return [{"role": role, "content": [*blocks]} for role, blocks in turns]


def _blocks(message: Message) -> list[Json]:
    match message:
        case FromUser():
            return [*map(_shown, message.media), *_words(message.text)]
        case FromTool():
            text: list[JsonValue] = [*_words(message.text)]
            content: JsonValue = (
                [*text, *map(_shown, message.media)] if message.media else message.text
            )
            result: Json = {"type": "tool_result", "tool_use_id": message.call, "content": content}
            return [result if message.ok else {**result, "is_error": True}]
        case FromAgent():
            return in_order(message, _block, _words, _uses)


def _shown(one: Media) -> Json:
    source: Json = {"type": "base64", "media_type": one.type, "data": one.data}
    return (
        {"type": "image", "source": source}
        if one.is_picture
        else {"type": "document", "title": one.name, "source": source}
    )


def _words(text: str) -> list[Json]:
    return [{"type": "text", "text": text}] if text.strip() else []


def _uses(calls: Sequence[Call]) -> list[Json]:
    return [
        {"type": "tool_use", "id": call.id, "name": call.tool, "input": parse_json(call.arguments)}
        for call in calls
    ]


def _block(thinking: Thinking) -> Json | None:
    """The provider's own block out of an opaque value; None for one that never had a signature."""
    block = arguments_object(thinking.data)
    if not block:
        return None
    signed = block.get("type") == "thinking" and block.get("signature")
    sealed = block.get("type") == "redacted_thinking" and block.get("data")
    own: Json = parse_json(thinking.data)
    return (
        {name: value for name, value in own.items() if name != POSITION}
        if signed or sealed
        else None
    )


def _choice(choice: str) -> Json:
    match choice:
        case "none":
            return {"type": "none"}
        case "required":
            return {"type": "any"}
    return {"type": "tool", "name": choice}


def _tool(tool: ToolSpec, dialect: ServerQuirks) -> Json:
    return {
        "name": tool.name,
        "description": tool.description,
        "input_schema": tool_parameters(tool, dialect),
    }


def _tools_of(messages: Sequence[Message]) -> list[Json]:
    """A history with calls is refused without tools, even where none may be called now."""
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
    """An entry of the pool behind the Messages API."""

    def __init__(
        self, access: ModelEndpoint, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        headers = {
            "anthropic-version": VERSION,
            **({"x-api-key": access.key} if access.key else {}),
        }
        super().__init__(access, headers, transport)

    async def _once(self, prompt: Prompt, say: Say, quirks: ServerQuirks) -> Reply:
        stops = StopSequences(
            [stop for stop in prompt.stop if not stop.strip()]
        )  # which the API refuses
        request = (_path(self._access), encode(prompt, self._access, quirks))
        decoder = MessagesDecoder(self._access)
        return await self._exchange(request, decoder, stops, say, prompt)


def _path(access: ModelEndpoint) -> str:
    """`base_url` is given with and without its version; both mean the same."""
    return "/messages" if access.base_url.rstrip("/").endswith("/v1") else "/v1/messages"


if TYPE_CHECKING:
    from fugu_cli.providers import Agent

    def _fits(agent: Anthropic) -> Agent:
        return agent
