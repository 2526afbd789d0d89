"""The Messages wire (used by Claude Code above all): parses requests, and encodes answers as one
message or as named events.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import Field, JsonValue

from fugu_cli.messages import (
    EFFORTS,
    THINKING_TOKENS,
    Call,
    Effort,
    FromAgent,
    FromTool,
    FromUser,
    Message,
    ToolSpec,
)
from fugu_cli.providers.history import arguments_object
from fugu_cli.server import client_requests, client_tools
from fugu_cli.server.client_requests import (
    AnswerHead,
    ClientMedia,
    ClientRequest,
    ItemList,
    Json,
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
    unknown_role,
    unread_fields,
)
from fugu_cli.system.bounded_json import parse_json

NOT_SHOWN = "[{kind}: not shown, this endpoint takes text, pictures and PDFs]"


NO_THINKING = frozenset({"disabled", "between_tools"})
"""Values of `thinking.type` that turn thinking off."""


class _Source(LenientModel):
    type: str = ""
    media_type: str = ""
    data: str = ""


class _Block(LenientModel):
    type: str
    title: str | None = None
    source: Annotated[_Source | JsonValue, Field(union_mode="left_to_right")] = None
    text: str = ""
    id: str = ""
    name: str = ""
    input: JsonValue = None
    tool_use_id: str = ""
    content: str | ItemList[_Block] | JsonValue = None
    is_error: bool | None = None


class _Message(LenientModel):
    role: str
    content: str | ItemList[_Block]


class _Tool(LenientModel):
    name: str
    type: str | None = None
    description: str | None = None
    input_schema: Json | None = None


class _ToolChoice(LenientModel):
    type: str
    name: str = ""
    disable_parallel_tool_use: bool | None = None


class _Output(RequestFields):
    format: ReplyForm | None = None
    effort: Effort | None = None


class _Thinking(RequestFields):
    type: str
    budget_tokens: int = 0
    display: str = ""


class CountTokensBody(RequestFields):
    """The body of `/v1/messages/count_tokens`."""

    model: str
    messages: ItemList[_Message]
    system: str | ItemList[_Block] | None = None
    tools: ItemList[_Tool] | None = None


class _Body(CountTokensBody):
    max_tokens: int
    stream: bool | None = None
    temperature: float | None = None
    stop_sequences: ItemList[str] | None = None
    tool_choice: _ToolChoice | None = None
    output_config: _Output | None = None
    thinking: _Thinking | None = None
    mcp_servers: JsonValue = None
    metadata: Json | None = None


def parse(body: bytes, headers: Mapping[str, str]) -> ClientRequest:
    """Parse the request in `body`. Raises RequestRefused."""
    payload = parse_body(_Body, body)
    left_out = [*unread_fields(payload), *_hosted_tools(payload.tools or [])]
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
            max_tokens=token_limit("max_tokens", payload.max_tokens, payload.max_tokens),
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
        left_out=tuple(left_out),
        reasoning=thinking is not None and thinks and thinking.display != "omitted",
    )


def _parse_effort(payload: _Body) -> Effort:
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
    payload = parse_body(CountTokensBody, body)
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


def _parse_system(system: str | list[_Block] | None) -> str:
    if isinstance(system, list):
        return join_text([block.text for block in system])
    return system or ""


def _parse_messages(payload: Sequence[_Message]) -> list[Message]:
    messages: list[Message] = []
    tool_names: dict[str, str] = {}
    for number, message in enumerate(payload):
        content = message.content
        blocks = [_Block(type="text", text=content)] if isinstance(content, str) else content
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
    blocks: Sequence[_Block], tool_names: Mapping[str, str], number: int
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
            message = f"messages.{number}: {block.type} is not offered"
            raise RequestRefused(400, message, code="unsupported_content")
        messages.append(FromUser(text=block_text, media=tuple(media.accepted)))
    return messages


def _block_text(block: _Block, media: ClientMedia) -> str | None:
    """Return the text of a block, None for an unknown block; a picture or document goes to `media`."""
    if block.type == "text":
        return block.text
    if block.type not in ("image", "document"):
        return None
    source = block.source if isinstance(block.source, _Source) else _Source()
    if source.type == "text":
        return source.data
    if source.type != "base64":
        return media.add_url("")
    return media.add(source.data, source.media_type, block.title or "")


def _result_text(content: JsonValue | list[_Block], media: ClientMedia) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts: list[str] = []
    for block in content:
        if isinstance(block, _Block):
            text = _block_text(block, media)
            texts.append(NOT_SHOWN.format(kind=block.type) if text is None else text)
    return "\n".join(texts)


def _hosted_tools(payload: Sequence[_Tool]) -> list[str]:
    return [tool.type for tool in payload if tool.type and client_tools.is_hosted(tool.type)]


def _parse_tools(payload: Sequence[_Tool]) -> list[ToolSpec]:
    tools: list[ToolSpec] = []
    for tool in payload:
        if tool.type in (None, "custom"):
            tools.append(function_tool(tool.name, tool.description, tool.input_schema))
        elif tool.type in client_tools.MESSAGES_TOOLS:
            tools.append(client_tools.MESSAGES_TOOLS[tool.type])
        elif not client_tools.is_hosted(tool.type):
            known = ", ".join(client_tools.MESSAGES_TOOLS)
            raise RequestRefused(
                400,
                f"tools: {tool.type} is not offered, only custom tools and those that the client "
                f"runs itself: {known}",
                code="unsupported_tool",
            )
    return tools


def _parse_tool_choice(choice: _ToolChoice | None, tools: Sequence[str]) -> str:
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


STOP_REASONS: dict[StopReason, str] = {
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


def encode(head: AnswerHead, answer: ServedAnswer, client_request: ClientRequest) -> Json:
    """Return the answer as one message."""
    content: list[JsonValue] = []
    if answer.reasoning:
        content.append({"type": "thinking", "thinking": answer.reasoning, "signature": head.id})
    if answer.text:
        content.append({"type": "text", "text": answer.text})
    for call in answer.calls:
        content.append(
            {"type": "tool_use", "id": call.id, "name": call.tool, "input": _call_input(call)}
        )
    return {
        **_message(head),
        "content": content,
        "stop_reason": STOP_REASONS[answer.stop],
        "usage": _usage(answer),
        "fugu": answer_details(head, answer, client_request),
    }


class MessagesStream:
    """Encodes one answer as events: content blocks are opened, filled and closed one after the
    other.
    """

    events_for: frozenset[str] = frozenset()

    def __init__(self, head: AnswerHead, client_request: ClientRequest) -> None:
        self._head = head
        self._client_request = client_request
        self._index = 0
        self._open_block = ""
        """Type of the open block; "" if none is open."""
        self._text_sent = False
        self._reasoning_sent = False

    def begin(self) -> bytes:
        empty: Json = {**_message(self._head), "content": [], "stop_reason": None}
        empty["usage"] = {"input_tokens": 0, "output_tokens": 0}
        return _event("message_start", message=empty)

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
        data = b""
        if answer.reasoning and not self._reasoning_sent:
            data += self.reasoning_delta(answer.reasoning)
        if answer.text and not self._text_sent:
            data += self.text_delta(answer.text)
        for call in answer.calls:
            data += self._start({"type": "tool_use", "id": call.id, "name": call.tool, "input": {}})
            arguments = json.dumps(_call_input(call))
            data += self._delta({"type": "input_json_delta", "partial_json": arguments})
        data += self._close()
        delta: Json = {"stop_reason": STOP_REASONS[answer.stop], "stop_sequence": None}
        details = answer_details(self._head, answer, self._client_request)
        data += _event("message_delta", delta=delta, usage=_usage(answer), fugu=details)
        return data + _event("message_stop")

    def fail(self, refusal: RequestRefused) -> bytes:
        return sse_event(anthropic_error(refusal), "error")

    def keep_alive(self) -> bytes:
        return _event("ping")

    def _start(self, block: Json) -> bytes:
        data = self._close()
        self._open_block = str(block["type"])
        return data + _event("content_block_start", index=self._index, content_block=block)

    def _delta(self, delta: Json) -> bytes:
        return _event("content_block_delta", index=self._index, delta=delta)

    def _close(self) -> bytes:
        if not self._open_block:
            return b""
        data = b""
        if self._open_block == "thinking":
            # A client sends the block back, where it is skipped: the trace has the author's own.
            data = self._delta({"type": "signature_delta", "signature": self._head.id})
        data += _event("content_block_stop", index=self._index)
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


def _event(name: str, **fields: JsonValue) -> bytes:
    return sse_event({"type": name, **fields}, name)


def _message(head: AnswerHead) -> Json:
    return {
        "id": head.id,
        "type": "message",
        "role": "assistant",
        "model": head.model,
        "stop_sequence": None,
    }


def _call_input(call: Call) -> JsonValue:
    """Return the arguments as an object, also if the model wrote something else."""
    if arguments_object(call.arguments) is None:
        return {"malformed_arguments": call.arguments}
    arguments: JsonValue = parse_json(call.arguments or "{}")
    return arguments


def _usage(answer: ServedAnswer) -> Json:
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


MESSAGES = Wire(parse, encode, MessagesStream, anthropic_error)
"""`POST /v1/messages`."""
