"""The Chat Completions wire: parses requests, and encodes answers as one object or as chunks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from pydantic import Field, JsonValue

from fugu_cli.messages import Call, Effort, FromAgent, FromTool, FromUser, Message, ToolSpec
from fugu_cli.server import client_requests
from fugu_cli.server.client_requests import (
    DEFAULT_MAX_TOKENS,
    AnswerHead,
    ClientMedia,
    ClientRequest,
    ItemList,
    Json,
    LenientModel,
    RequestFields,
    RequestRefused,
    RequestSampling,
    ServedAnswer,
    StopReason,
    Wire,
    answer_details,
    function_tool,
    join_text,
    openai_usage,
    parse_body,
    reply_schema,
    sse_event,
    token_limit,
    unknown_role,
    unread_fields,
)
from fugu_cli.server.client_tools import RESPONSES_TOOLS
from fugu_cli.server.messages_api import NOT_SHOWN


class _Url(LenientModel):
    url: str = ""


class _File(LenientModel):
    filename: str = ""
    file_data: str = ""


class _Part(LenientModel):
    type: str = "text"
    text: str = ""
    refusal: str = ""
    image_url: _Url | None = None
    file: _File | None = None


class _Function(LenientModel):
    name: str
    arguments: str = "{}"


class _ToolCall(LenientModel):
    id: str
    function: _Function


class _Message(LenientModel):
    role: str
    content: str | ItemList[_Part] | None = None
    tool_calls: ItemList[_ToolCall] | None = None
    tool_call_id: str | None = None


class _FunctionTool(LenientModel):
    name: str
    description: str | None = None
    parameters: Json | None = None


class _Tool(LenientModel):
    type: str = "function"
    function: _FunctionTool | None = None


class _StreamOptions(LenientModel):
    include_usage: bool | None = None


class _Schema(LenientModel):
    schema_: JsonValue = Field(default=None, alias="schema")


class _Format(LenientModel):
    type: str = "text"
    json_schema: _Schema | None = None


class _Body(RequestFields):
    model: str
    messages: ItemList[_Message]
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: float | None = None
    seed: int | None = None
    stop: str | ItemList[str] | None = None
    n: int | None = None
    modalities: ItemList[str] | None = None
    functions: JsonValue = None
    tools: ItemList[_Tool] | None = None
    tool_choice: JsonValue = None
    parallel_tool_calls: bool | None = None
    response_format: _Format | None = None
    metadata: Json | None = None
    reasoning_effort: Effort | None = None


def parse(body: bytes, headers: Mapping[str, str]) -> ClientRequest:
    """Parse the request in `body`. Raises RequestRefused."""
    payload = parse_body(_Body, body)
    if payload.n not in (None, 1):
        raise RequestRefused(
            400, f"n = {payload.n} is not offered: one answer a request", code="unsupported_value"
        )
    if payload.functions:
        raise RequestRefused(
            400, "functions is not offered: `tools` has taken its place", code="unsupported_value"
        )
    for modality in payload.modalities or []:
        if modality != "text":
            raise RequestRefused(
                400, f"modalities: {modality} is not offered, only text", code="unsupported_value"
            )
    system, messages = _parse_messages(payload.messages)
    if not messages:
        raise RequestRefused(
            400, "messages: at least one is needed beside the instructions", code="invalid_body"
        )
    tools = allowed_tools(payload.tool_choice, [_parse_tool(tool) for tool in payload.tools or []])
    return ClientRequest(
        model=payload.model,
        system=system,
        messages=messages,
        tools=tools,
        sampling=_parse_sampling(payload, tools),
        options=client_requests.read_options(headers, payload.metadata or {}),
        stream=bool(payload.stream),
        left_out=unread_fields(payload),
        reasoning=True,
        include_usage=bool(payload.stream_options and payload.stream_options.include_usage),
    )


def _parse_sampling(payload: _Body, tools: Sequence[ToolSpec]) -> RequestSampling:
    fallback = token_limit("max_tokens", payload.max_tokens, DEFAULT_MAX_TOKENS)
    response_format = payload.response_format or _Format()
    json_schema = response_format.json_schema or _Schema()
    stops = [payload.stop] if isinstance(payload.stop, str) else payload.stop or []
    return RequestSampling(
        max_tokens=token_limit("max_completion_tokens", payload.max_completion_tokens, fallback),
        temperature=payload.temperature,
        seed=payload.seed,
        stop=tuple(stop for stop in stops if stop),
        choice=tool_choice(payload.tool_choice, [tool.name for tool in tools]),
        reply_schema=reply_schema(
            response_format.type, json_schema.schema_, "response_format.json_schema.schema"
        ),
        single=payload.parallel_tool_calls is False,
        effort=payload.reasoning_effort or "",
    )


def tool_choice(choice: JsonValue, tools: Sequence[str]) -> str:
    """Translate `tool_choice` of either OpenAI wire to `RequestSampling.choice`."""
    if choice is None or choice == "auto":
        return ""
    if choice in ("none", "required"):
        return str(choice)
    if restriction := _allowed_tools_choice(choice):
        return "required" if restriction.get("mode") == "required" else ""
    name = _tool_name(choice)
    if name not in tools:
        raise _no_such_tool(choice)
    return name


def allowed_tools(choice: JsonValue, tools: Sequence[ToolSpec]) -> tuple[ToolSpec, ...]:
    """Return the tools that `tool_choice` allows: those it lists, or all if it lists none."""
    restriction = _allowed_tools_choice(choice)
    if restriction is None:
        return tuple(tools)
    listed = restriction.get("tools")
    names = [_tool_name(tool) for tool in listed] if isinstance(listed, list) else []
    allowed = tuple(tool for tool in tools if tool.name in names)
    if not allowed:
        raise _no_such_tool(choice)
    return allowed


def _allowed_tools_choice(choice: JsonValue) -> Json | None:
    """Return mode and tools of a choice of type `allowed_tools`, else None.

    Chat Completions nests them in a field `allowed_tools`, Responses does not.
    """
    if not isinstance(choice, dict) or choice.get("type") != "allowed_tools":
        return None
    nested = choice.get("allowed_tools")
    return nested if isinstance(nested, dict) else choice


def _tool_name(reference: JsonValue) -> str:
    """Return the name in a reference to a tool, "" if there is none.

    Chat Completions nests the name in a field `function`, Responses does not.
    """
    if not isinstance(reference, dict):
        return ""
    function = reference.get("function", reference)
    name = function.get("name") if isinstance(function, dict) else None
    if name is None and reference.get("type") in RESPONSES_TOOLS:
        name = reference["type"]
    return name if isinstance(name, str) else ""


def _no_such_tool(choice: JsonValue) -> RequestRefused:
    return RequestRefused(
        400, f"tool_choice {json.dumps(choice)} names no tool of this request", code="invalid_value"
    )


def _parse_messages(payload: Sequence[_Message]) -> tuple[str, tuple[Message, ...]]:
    """Return the leading instructions as the system text, and the other messages.

    Instructions after the first message become messages of the user.
    """
    system: list[str] = []
    messages: list[Message] = []
    tool_names: dict[str, str] = {}
    for number, message in enumerate(payload):
        media = ClientMedia(number)
        text = _message_text(message, number, media)
        match message.role:
            case "system" | "developer" if not messages:
                system.append(text)
            case "system" | "developer" | "user":
                messages.append(FromUser(text=text, media=tuple(media.accepted)))
            case "assistant":
                calls = [
                    Call(
                        id=call.id,
                        tool=call.function.name,
                        arguments=call.function.arguments or "{}",
                    )
                    for call in message.tool_calls or []
                ]
                tool_names |= {call.id: call.tool for call in calls}
                messages.append(FromAgent(agent="", text=text, calls=tuple(calls)))
            case "tool" | "function":
                call_id = message.tool_call_id or ""
                result = FromTool(
                    call=call_id,
                    tool=tool_names.get(call_id, ""),
                    text=text,
                    media=tuple(media.accepted),
                )
                messages.append(result)
            case _:
                raise unknown_role(f"messages.{number}", message.role)
    return join_text(system), tuple(messages)


def _message_text(message: _Message, number: int, media: ClientMedia) -> str:
    """Return the text of a message, and add its pictures and files to `media`."""
    if not isinstance(message.content, list):
        return message.content or ""
    is_result = message.role in ("tool", "function")
    texts: list[str] = []
    for part in message.content:
        text = _part_text(part, media)
        if text is None and is_result:
            text = NOT_SHOWN.format(kind=part.type)
        if text is None:
            raise RequestRefused(
                400, f"messages.{number}: {part.type} is not offered", code="unsupported_content"
            )
        texts.append(text)
    separator = "\n" if is_result else ""
    return separator.join(texts)


def _part_text(part: _Part, media: ClientMedia) -> str | None:
    """Return the text of a part, None for an unknown part; a picture or file goes to `media`."""
    if part.type in ("text", "refusal"):
        return part.text or part.refusal
    if part.type == "image_url" and part.image_url is not None:
        return media.add_url(part.image_url.url)
    if part.type == "file" and part.file is not None and part.file.file_data:
        return media.add_url(part.file.file_data, part.file.filename)
    return None


def _parse_tool(tool: _Tool) -> ToolSpec:
    if tool.type == "function" and tool.function is None:
        raise RequestRefused(
            400, "tools: a function has no `function` that says its name", code="missing_value"
        )
    if tool.function is None or tool.type != "function":
        raise RequestRefused(
            400,
            f"tools of type {tool.type!r} are not offered, only functions",
            code="unsupported_value",
        )
    return function_tool(tool.function.name, tool.function.description, tool.function.parameters)


FINISH_REASONS: dict[StopReason, str] = {
    "end": "stop",
    "calls": "tool_calls",
    "length": "length",
    "refusal": "content_filter",
    "cut": "stop",
}


def encode(head: AnswerHead, answer: ServedAnswer, client_request: ClientRequest) -> Json:
    """Return the answer as one object."""
    message: Json = {"role": "assistant", "content": answer.text or None, "refusal": None}
    if answer.reasoning:
        message["reasoning_content"] = answer.reasoning
    if answer.calls:
        message["tool_calls"] = [_call(call) for call in answer.calls]
    choice: Json = {
        "index": 0,
        "message": message,
        "finish_reason": FINISH_REASONS[answer.stop],
        "logprobs": None,
    }
    return {
        **_head(head, "chat.completion"),
        "choices": [choice],
        "usage": openai_usage(answer, "prompt", "completion"),
        "fugu": answer_details(head, answer, client_request),
    }


class ChatStream:
    """Encodes one answer as chunks."""

    events_for: frozenset[str] = frozenset()

    def __init__(self, head: AnswerHead, client_request: ClientRequest) -> None:
        self._head = head
        self._client_request = client_request
        self._text_sent = False
        self._reasoning_sent = False

    def begin(self) -> bytes:
        return self._chunk({"role": "assistant", "content": ""})

    def text_delta(self, text: str) -> bytes:
        self._text_sent = True
        return self._chunk({"content": text})

    def reasoning_delta(self, text: str) -> bytes:
        self._reasoning_sent = True
        return self._chunk({"reasoning_content": text})

    def finish(self, answer: ServedAnswer) -> bytes:
        data = b""
        if answer.reasoning and not self._reasoning_sent:
            data += self.reasoning_delta(answer.reasoning)
        if answer.text and not self._text_sent:
            data += self.text_delta(answer.text)
        if answer.calls:
            calls: list[JsonValue] = [
                {"index": number, **_call(call)} for number, call in enumerate(answer.calls)
            ]
            data += self._chunk({"tool_calls": calls})
        data += self._chunk({}, FINISH_REASONS[answer.stop])
        if self._client_request.include_usage:
            usage_chunk: Json = {
                **_head(self._head, "chat.completion.chunk"),
                "choices": [],
                "usage": openai_usage(answer, "prompt", "completion"),
                "fugu": answer_details(self._head, answer, self._client_request),
            }
            data += sse_event(usage_chunk)
        return data + sse_event("[DONE]")

    def fail(self, refusal: RequestRefused) -> bytes:
        return sse_event(openai_error(refusal)) + sse_event("[DONE]")

    def keep_alive(self) -> bytes:
        return b": waiting\n\n"

    def _chunk(self, delta: Json, reason: str | None = None) -> bytes:
        choice: Json = {"index": 0, "delta": delta, "finish_reason": reason, "logprobs": None}
        return sse_event({**_head(self._head, "chat.completion.chunk"), "choices": [choice]})


def openai_error(refusal: RequestRefused) -> Json:
    """Return a refusal as the error object of OpenAI's wires."""
    return {
        "error": {
            "message": str(refusal),
            "type": refusal.error_type,
            "param": None,
            "code": refusal.code or None,
        }
    }


def _head(head: AnswerHead, object_type: str) -> Json:
    return {"id": head.id, "object": object_type, "created": head.created, "model": head.model}


def _call(call: Call) -> dict[str, JsonValue]:
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.tool, "arguments": call.arguments},
    }


CHAT = Wire(parse, encode, ChatStream, openai_error)
"""`POST /v1/chat/completions`."""
