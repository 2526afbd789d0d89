"""The Messages API (Anthropic) in both directions, with tool use, prompt caching and thinking.

As a client: `encode_request` and `MessagesDecoder`, which are pure, and `Anthropic`, which makes the
calls. Signed thinking blocks go back unchanged to the agent that wrote them, and to no other. A
block is kept as the provider's own JSON with its position in the message (`reasoning.py`). As a
server, for `fugu serve` (Claude Code above all): `decode_request`, `encode_reply` and
`MessagesStream`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated, Literal
from urllib.parse import quote

import httpx
from pydantic import Field, JsonValue, model_validator

from fugu_cli.messages import (
    EFFORTS,
    THINKING_TOKENS,
    Call,
    Effort,
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
from fugu_cli.providers.http_client import Json
from fugu_cli.providers.reasoning import POSITION, in_order, loop_replies, position
from fugu_cli.providers.reply_decoder import ReplyDecoder, WireModel
from fugu_cli.providers.server_quirks import ServerQuirks, Stop, StopSequences, tool_schemas
from fugu_cli.providers.wire_agent import WireAgent
from fugu_cli.system.bounded_json import parse_json
from fugu_cli.wires import client_requests, client_tools
from fugu_cli.wires.client_requests import (
    NOT_SHOWN,
    AnswerHead,
    AnswerStream,
    ClientMedia,
    ClientRequest,
    ItemList,
    LenientModel,
    ReplyForm,
    RequestFields,
    RequestRefused,
    RequestSampling,
    ServedAnswer,
    StopReason,
    Wire,
    answer_details,
    function_tool,
    join_text,
    parse_body,
    sse_event,
    token_limit,
    unknown_part,
    unknown_role,
    unread_fields,
)

STOP_REASONS: dict[str, Stop] = {
    "end_turn": "end",
    "stop_sequence": "end",
    "pause_turn": "end",
    "tool_use": "calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
}


class _Wire(WireModel):
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
    id: str = ""
    model: str = ""
    content: tuple[_WireBlock, ...] = ()
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


class MessagesDecoder(ReplyDecoder):
    api = "the Messages API"
    whole = "message"

    def __init__(self, endpoint: ModelEndpoint) -> None:
        super().__init__(endpoint)
        self._blocks: dict[int, _PartialBlock] = {}
        self._usage = _Usage()

    def reply(self) -> Reply:
        if not self.finished and self._reason is None:
            raise self._cut_stream()
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
            response_id=self._id,
        )

    def _decode(self, parsed: object, event_name: str) -> str:
        if isinstance(parsed, dict) and parsed.get("type") == "message":
            return self._add_message(_Whole.model_validate(parsed))
        event = _Event.model_validate(parsed)
        if event.type == "error":
            raise error_mapping.error_in_stream(self._endpoint, parsed)
        match event.type:
            case "message_start" if event.message is not None:
                self._id, self._model = event.message.id, event.message.model
                self._count(event.message.usage)
            case "content_block_start" if event.content_block is not None:
                block = event.content_block
                self._limits.add(block.text, block.thinking, block.signature, block.data)
                self._blocks[event.index] = _PartialBlock(block)
                self._begun = True
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

    def _add_message(self, message: _Whole) -> str:
        self._id, self._model = message.id, message.model
        self._reason, self.finished = message.stop_reason, True
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
        self._usage = usage = self._usage.model_copy(update=update)
        cached, created = usage.cache_read_input_tokens or 0, usage.cache_creation_input_tokens or 0
        read = (usage.input_tokens or 0) + cached + created
        self.used = Usage(
            input=read, cached=cached, written=created, output=usage.output_tokens or 0
        )


VERSION = "2023-06-01"
VERTEX_VERSION = "vertex-2023-10-16"
"""The version that Google's Vertex AI takes in the body."""

CACHE_POINT: Json = {"type": "ephemeral"}
"""Marks the block up to which the provider may cache the prompt."""

SHORTEST_THINKING = 2 * THINKING_TOKENS["minimal"]
"""Reply tokens below which there is no room for the least budget that the API takes."""
TEXT_TOKENS = 8192
"""Reply tokens that are not given to thinking where a reply may have twice as many."""

NO_TOOLS: Json = {"type": "object", "properties": {}}


def encode_request(prompt: Prompt, endpoint: ModelEndpoint, quirks: ServerQuirks) -> Json:
    """Return the request body. It has three cache points: after tools and system, at the end of the
    previous request, and after the last message. The provider looks back only about 20 blocks from
    a cache point, and a reply with many calls adds more.
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
    schemas = tool_schemas(prompt.tools, quirks)
    tools: list[Json] = [
        {"name": tool.name, "description": tool.description, "input_schema": schema}
        for tool, schema in zip(prompt.tools, schemas, strict=True)
    ]
    tools = tools or _tools_of_history(messages)
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
    max_tokens = quirks.tokens(prompt.max_tokens)
    has_room = quirks.adaptive or max_tokens >= SHORTEST_THINKING
    may_think = has_room and not forced and _may_think(messages)
    thinks = effort not in ("", "none") and quirks.effort and may_think
    if thinks:
        payload |= _thinking(max_tokens, effort, quirks)
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
        {"type": "tool_use", "id": call.id, "name": call.tool, "input": _call_input(call)}
        for call in calls
    ]


def _call_input(call: Call) -> JsonValue:
    """Return the arguments as an object, also if the model wrote something else."""
    if arguments_object(call.arguments) is None:
        return {"malformed_arguments": call.arguments}
    arguments: JsonValue = parse_json(call.arguments or "{}")
    return arguments


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


def _tools_of_history(messages: Sequence[Message]) -> list[Json]:
    """Return the tools that the history calls: the API refuses calls of unlisted tools, even if no
    tool may be called.
    """
    names: dict[str, None] = {}
    for message in messages:
        if isinstance(message, FromAgent):
            names.update(dict.fromkeys(call.tool for call in message.calls))
    return [
        {"name": name, "description": "Not at hand now.", "input_schema": NO_TOOLS}
        for name in names
    ]


# --- as a server ----------------------------------------------------------------------------------

NO_THINKING = frozenset({"disabled", "between_tools"})
"""Values of `thinking.type` that turn thinking off."""


class _SentSource(LenientModel):
    type: str = ""
    media_type: str = ""
    data: str = ""


class _SentBlock(LenientModel):
    type: str
    title: str | None = None
    source: Annotated[_SentSource | JsonValue, Field(union_mode="left_to_right")] = None
    text: str = ""
    id: str = ""
    name: str = ""
    input: JsonValue = None
    tool_use_id: str = ""
    content: str | ItemList[_SentBlock] | JsonValue = None
    is_error: bool | None = None


class _SentMessage(LenientModel):
    role: str
    content: str | ItemList[_SentBlock]


class _SentTool(LenientModel):
    name: str
    type: str | None = None
    description: str | None = None
    input_schema: Json | None = None


class _SentToolChoice(LenientModel):
    type: str
    name: str = ""
    disable_parallel_tool_use: bool | None = None


class _SentOutput(RequestFields):
    format: ReplyForm | None = None
    effort: Effort | None = None


class _SentThinking(RequestFields):
    type: str
    budget_tokens: int = 0
    display: str = ""


class _CountedRequest(RequestFields):
    """The body of `/v1/messages/count_tokens`."""

    model: str
    messages: ItemList[_SentMessage]
    system: str | ItemList[_SentBlock] | None = None
    tools: ItemList[_SentTool] | None = None


class _Request(_CountedRequest):
    max_tokens: int
    stream: bool | None = None
    temperature: float | None = None
    stop_sequences: ItemList[str] | None = None
    tool_choice: _SentToolChoice | None = None
    output_config: _SentOutput | None = None
    thinking: _SentThinking | None = None
    mcp_servers: JsonValue = None
    metadata: Json | None = None


def decode_request(body: bytes, headers: Mapping[str, str]) -> ClientRequest:
    """Parse the request in `body`. Raises RequestRefused."""
    payload = parse_body(_Request, body)
    tool_types = [tool.type for tool in payload.tools or [] if tool.type]
    hosted = [tool_type for tool_type in tool_types if client_tools.is_hosted(tool_type)]
    left_out = (*unread_fields(payload), *hosted)
    messages = tuple(_parse_messages(payload.messages))
    if not messages:
        raise RequestRefused(
            400, "messages: at least one that says something is needed", code="invalid_body"
        )
    if payload.mcp_servers:
        raise RequestRefused(
            400, "mcp_servers is not offered: the client runs its tools", code="unsupported_value"
        )
    tools = tuple(_parse_tools(payload.tools or []))
    tool_names = [tool.name for tool in tools]
    thinking = payload.thinking
    thinks = thinking is not None and thinking.type not in NO_THINKING
    form = payload.output_config.format if payload.output_config else None
    return ClientRequest(
        model=payload.model,
        system=_parse_system(payload.system),
        messages=messages,
        tools=tools,
        sampling=RequestSampling(
            max_tokens=token_limit("max_tokens", payload.max_tokens),
            temperature=payload.temperature,
            stop=tuple(stop for stop in payload.stop_sequences or [] if stop),
            choice=_parse_tool_choice(payload.tool_choice, tool_names),
            reply_schema=json.dumps(form.schema_) if form and form.schema_ else "",
            single=bool(payload.tool_choice and payload.tool_choice.disable_parallel_tool_use),
            effort=_parse_effort(payload),
            reasons=thinks,
        ),
        options=client_requests.read_options(headers, payload.metadata or {}),
        stream=bool(payload.stream),
        left_out=left_out,
        reasoning=thinking is not None and thinks and thinking.display != "omitted",
    )


def _parse_effort(payload: _Request) -> Effort:
    """Return the highest effort that the request allows.

    A thinking budget stands for the least effort that has as many tokens. Disabled thinking stands
    for the effort "low", which every model accepts.
    """
    effort = payload.output_config.effort if payload.output_config else None
    if payload.thinking is None:
        return effort or ""
    match payload.thinking.type:
        case thinking_type if thinking_type in NO_THINKING:
            return "low"
        case "adaptive":
            return effort or "high"
        case "enabled" if effort is None:
            budget = payload.thinking.budget_tokens
            for level in EFFORTS:
                if THINKING_TOKENS.get(level, 0) >= budget > 0:
                    return level
            return "max"
    return effort or ""


def estimated_tokens(body: bytes) -> int:
    """Estimate the tokens of a request, one for every three bytes of its text.

    A tokenizer would fit only some of the agents.
    """
    payload = parse_body(_CountedRequest, body)
    unread_fields(payload)
    messages = _parse_messages(payload.messages)
    text = _parse_system(payload.system)
    for part in (*messages, *(payload.tools or [])):
        text += part.model_dump_json(exclude_defaults=True)
    media_tokens = 0
    for message in messages:
        if not isinstance(message, FromAgent):
            media_tokens += sum(item.tokens for item in message.media)
    return len(text.encode("utf-8", "replace")) // 3 + media_tokens


def _parse_system(system: str | list[_SentBlock] | None) -> str:
    if isinstance(system, list):
        return join_text([block.text for block in system])
    return system or ""


def _parse_messages(payload: Sequence[_SentMessage]) -> list[Message]:
    messages: list[Message] = []
    tool_names: dict[str, str] = {}
    for number, message in enumerate(payload):
        content = message.content
        blocks = [_SentBlock(type="text", text=content)] if isinstance(content, str) else content
        match message.role:
            case "user" | "system":
                messages += _parse_user_blocks(blocks, tool_names, number)
            case "assistant":
                calls = tuple(
                    Call(
                        id=block.id,
                        tool=block.name,
                        arguments=json.dumps(block.input or {}, ensure_ascii=False),
                    )
                    for block in blocks
                    if block.type == "tool_use"
                )
                tool_names |= {call.id: call.tool for call in calls}
                text = "".join(block.text for block in blocks if block.type == "text")
                messages.append(FromAgent(agent="", text=text, calls=calls))
            case _:
                raise unknown_role(f"messages.{number}", message.role)
    return messages


def _parse_user_blocks(
    blocks: Sequence[_SentBlock], tool_names: Mapping[str, str], number: int
) -> list[Message]:
    """Return the texts, media and tool results of the user's message `number`."""
    messages: list[Message] = []
    for block in blocks:
        media = ClientMedia(number)
        if block.type == "thinking":
            continue
        if block.type == "tool_result":
            text = _result_text(block.content, media)
            result = FromTool(
                call=block.tool_use_id,
                tool=tool_names.get(block.tool_use_id, ""),
                text=text,
                ok=not block.is_error,
                media=tuple(media.accepted),
            )
            messages.append(result)
            continue
        block_text = _block_text(block, media)
        if block_text is None:
            raise unknown_part(f"messages.{number}", block.type)
        messages.append(FromUser(text=block_text, media=tuple(media.accepted)))
    return messages


def _block_text(block: _SentBlock, media: ClientMedia) -> str | None:
    """Return the text of a block, None for an unknown block; a picture or document goes to `media`."""
    if block.type == "text":
        return block.text
    if block.type not in ("image", "document"):
        return None
    source = block.source if isinstance(block.source, _SentSource) else _SentSource()
    if source.type == "text":
        return source.data
    if source.type != "base64":
        return media.add_url("")
    return media.add(source.data, source.media_type, block.title or "")


def _result_text(content: JsonValue | list[_SentBlock], media: ClientMedia) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts: list[str] = []
    for block in content:
        if isinstance(block, _SentBlock):
            text = _block_text(block, media)
            texts.append(NOT_SHOWN.format(kind=block.type) if text is None else text)
    return "\n".join(texts)


def _parse_tools(payload: Sequence[_SentTool]) -> list[ToolSpec]:
    tools: list[ToolSpec] = []
    for tool in payload:
        if tool.type in (None, "custom"):
            tools.append(function_tool(tool.name, tool.description, tool.input_schema))
        elif tool.type in client_tools.MESSAGES_TOOLS:
            tools.append(client_tools.MESSAGES_TOOLS[tool.type])
        elif not client_tools.is_hosted(tool.type):
            offered = ", ".join(client_tools.MESSAGES_TOOLS)
            raise RequestRefused(
                400,
                f"tools: {tool.type} is not offered, only custom tools and those that the client "
                f"runs itself: {offered}",
                code="unsupported_tool",
            )
    return tools


def _parse_tool_choice(choice: _SentToolChoice | None, tools: Sequence[str]) -> str:
    if choice is None:
        return ""
    match choice.type:
        case "auto":
            return ""
        case "none":
            return "none"
        case "any":
            return "required"
        case "tool" if choice.name in tools:
            return choice.name
    raise RequestRefused(400, "tool_choice names no tool of this request", code="invalid_value")


ENCODED_STOP_REASONS: dict[StopReason, str] = {
    "end": "end_turn",
    "calls": "tool_use",
    "length": "max_tokens",
    "refusal": "refusal",
    "cut": "end_turn",
}

ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
"""The `error.type` of each HTTP status in Anthropic's API."""


def encode_reply(head: AnswerHead, answer: ServedAnswer, client_request: ClientRequest) -> Json:
    """Return the answer as a JSON message."""
    content: list[JsonValue] = []
    if answer.reasoning:
        content.append({"type": "thinking", "thinking": answer.reasoning, "signature": head.id})
    if answer.text:
        content.append({"type": "text", "text": answer.text})
    content += _tool_use_blocks(answer.calls)
    return {
        **_reply_head(head),
        "content": content,
        "stop_reason": ENCODED_STOP_REASONS[answer.stop],
        "usage": _encode_usage(answer),
        "fugu": answer_details(head, answer, client_request),
    }


class MessagesStream(AnswerStream):
    """Encodes one answer as events: content blocks are opened, filled and closed one after the
    other.
    """

    def __init__(self, head: AnswerHead, client_request: ClientRequest) -> None:
        super().__init__(head, client_request)
        self._index = 0
        self._open_block = ""
        """Type of the open block; "" if none is open."""

    def begin(self) -> bytes:
        empty: Json = {**_reply_head(self._head), "content": [], "stop_reason": None}
        empty["usage"] = {"input_tokens": 0, "output_tokens": 0}
        return _stream_event("message_start", message=empty)

    def text_delta(self, text: str) -> bytes:
        self._text_sent = True
        data = b""
        if self._open_block != "text":
            data = self._start({"type": "text", "text": ""})
        return data + self._delta({"type": "text_delta", "text": text})

    def reasoning_delta(self, text: str) -> bytes:
        self._reasoning_sent = True
        data = b""
        if self._open_block != "thinking":
            data = self._start({"type": "thinking", "thinking": "", "signature": ""})
        return data + self._delta({"type": "thinking_delta", "thinking": text})

    def finish(self, answer: ServedAnswer) -> bytes:
        data = self._unsent_text(answer)
        for call in answer.calls:
            data += self._start({"type": "tool_use", "id": call.id, "name": call.tool, "input": {}})
            arguments = json.dumps(_call_input(call))
            data += self._delta({"type": "input_json_delta", "partial_json": arguments})
        data += self._close()
        delta: Json = {"stop_reason": ENCODED_STOP_REASONS[answer.stop], "stop_sequence": None}
        details = answer_details(self._head, answer, self._client_request)
        data += _stream_event(
            "message_delta", delta=delta, usage=_encode_usage(answer), fugu=details
        )
        return data + _stream_event("message_stop")

    def fail(self, refusal: RequestRefused) -> bytes:
        return sse_event(anthropic_error(refusal), "error")

    def keep_alive(self) -> bytes:
        return _stream_event("ping")

    def _start(self, block: Json) -> bytes:
        data = self._close()
        self._open_block = str(block["type"])
        return data + _stream_event("content_block_start", index=self._index, content_block=block)

    def _delta(self, delta: Json) -> bytes:
        return _stream_event("content_block_delta", index=self._index, delta=delta)

    def _close(self) -> bytes:
        if not self._open_block:
            return b""
        data = b""
        if self._open_block == "thinking":
            # A client sends the block back, where it is skipped: the trace has the author's own.
            data = self._delta({"type": "signature_delta", "signature": self._head.id})
        data += _stream_event("content_block_stop", index=self._index)
        self._open_block = ""
        self._index += 1
        return data


def anthropic_error(refusal: RequestRefused) -> Json:
    """Return a refusal as Anthropic's error object."""
    fallback = "api_error" if refusal.status >= 500 else "invalid_request_error"
    error_type = ERROR_TYPES.get(refusal.status, fallback)
    error: Json = {"type": error_type, "message": str(refusal)}
    if refusal.details:
        error["details"] = {**refusal.details}
    return {"type": "error", "error": error}


def _stream_event(name: str, **fields: JsonValue) -> bytes:
    return sse_event({"type": name, **fields}, name)


def _reply_head(head: AnswerHead) -> Json:
    return {
        "id": head.id,
        "type": "message",
        "role": "assistant",
        "model": head.model,
        "stop_sequence": None,
    }


def _encode_usage(answer: ServedAnswer) -> Json:
    """Return the usage in Anthropic's form, which counts cached tokens separately, with the
    orchestration's.
    """
    orchestration = answer.orchestration
    return {
        "input_tokens": max(answer.usage.input - answer.usage.cached - answer.usage.written, 0),
        "cache_creation_input_tokens": answer.usage.written,
        "cache_read_input_tokens": answer.usage.cached,
        "output_tokens": answer.usage.output,
        "orchestration_input_tokens": orchestration.input,
        "orchestration_input_cached_tokens": orchestration.cached,
        "orchestration_output_tokens": orchestration.output,
    }


WIRE = Wire(decode_request, encode_reply, MessagesStream, anthropic_error)
"""`POST /v1/messages`."""


# --- the agent ------------------------------------------------------------------------------------


class Anthropic(WireAgent):
    """An agent behind the Messages API."""

    def __init__(
        self, endpoint: ModelEndpoint, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        headers = {"anthropic-version": VERSION}
        if endpoint.bedrock or endpoint.vertex:
            headers |= endpoint.credentials
        elif endpoint.key:
            headers["x-api-key"] = endpoint.key
        super().__init__(endpoint, transport, headers)

    @property
    def _list_path(self) -> str:
        return self._versioned("/models")

    def _versioned(self, path: str) -> str:
        """Return the path below `base_url`, which is configured with or without its version."""
        has_version = self._endpoint.base_url.rstrip("/").endswith("/v1")
        return path if has_version else f"/v1{path}"

    async def _once(self, prompt: Prompt, say: Say, quirks: ServerQuirks) -> Reply:
        blank_stops = [stop for stop in prompt.stop if not stop.strip()]  # the API refuses them
        stops = StopSequences(blank_stops)
        payload = encode_request(prompt, self._endpoint, quirks)
        path = self._versioned("/messages")
        if self._endpoint.vertex:
            model = quote(str(payload.pop("model")), safe="@")
            path = f"/publishers/anthropic/models/{model}:streamRawPredict"
            payload["anthropic_version"] = VERTEX_VERSION
        decoder = MessagesDecoder(self._endpoint)
        return await self._exchange(path, payload, decoder, stops, say, prompt)
