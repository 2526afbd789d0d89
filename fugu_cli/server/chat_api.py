"""The Chat Completions wire: requests as clients send them, answers as one object or as chunks."""

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
    RequestRefused,
    RequestSampling,
    ServedAnswer,
    StopReason,
    Wire,
    answer_details,
    function_tool,
    join_text,
    no_role,
    openai_usage,
    parse_body,
    reply_schema,
    sse_event,
    token_limit,
)
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


class _Body(LenientModel):
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
    web_search_options: JsonValue = None


def parse(body: bytes, headers: Mapping[str, str]) -> ClientRequest:
    """The request in `body`. Raises RequestRefused."""
    sent = parse_body(_Body, body)
    if sent.n not in (None, 1):
        raise RequestRefused(
            400, f"n = {sent.n} is not offered: one answer a request", code="unsupported_value"
        )
    if sent.functions:
        raise RequestRefused(
            400, "functions is not offered: `tools` has taken its place", code="unsupported_value"
        )
    if sent.web_search_options is not None:
        raise RequestRefused(
            400, "web_search_options is not offered: nothing is fetched", code="unsupported_value"
        )
    if other := [kind for kind in sent.modalities or [] if kind != "text"]:
        raise RequestRefused(
            400, f"modalities: {other[0]} is not offered, only text", code="unsupported_value"
        )
    system, messages = _conversation(sent.messages)
    if not messages:
        raise RequestRefused(
            400, "messages: at least one is needed beside the instructions", code="invalid_body"
        )
    tools = allowed_tools(sent.tool_choice, [_tool(tool) for tool in sent.tools or []])
    return ClientRequest(
        model=sent.model,
        system=system,
        messages=messages,
        tools=tools,
        sampling=_sampling(sent, tools),
        options=client_requests.read_options(headers, sent.metadata or {}),
        stream=bool(sent.stream),
        reasoning=True,
        counted=bool(sent.stream_options and sent.stream_options.include_usage),
    )


def _sampling(sent: _Body, tools: Sequence[ToolSpec]) -> RequestSampling:
    fallback = token_limit("max_tokens", sent.max_tokens, DEFAULT_MAX_TOKENS)
    form = sent.response_format or _Format()
    shape = form.json_schema or _Schema()
    stops = [sent.stop] if isinstance(sent.stop, str) else sent.stop or []
    return RequestSampling(
        max_tokens=token_limit("max_completion_tokens", sent.max_completion_tokens, fallback),
        temperature=sent.temperature,
        seed=sent.seed,
        stop=tuple(stop for stop in stops if stop),
        choice=tool_choice(sent.tool_choice, [tool.name for tool in tools]),
        reply_schema=reply_schema(form.type, shape.schema_, "response_format.json_schema.schema"),
        single=sent.parallel_tool_calls is False,
        effort=sent.reasoning_effort or "",
    )


def tool_choice(said: JsonValue, names: Sequence[str]) -> str:
    """`tool_choice` as Sampling.choice. OpenAI nests the name in both of its wires, differently."""
    if said is None or said == "auto":
        return ""
    if said in ("none", "required"):
        return str(said)
    if some := _some(said):
        return "required" if some.get("mode") == "required" else ""
    if (name := _named(said)) in names:
        return name
    raise _no_tool(said)


def allowed_tools(said: JsonValue, tools: Sequence[ToolSpec]) -> tuple[ToolSpec, ...]:
    """The tools that `tool_choice` leaves: all of them, but where it lists some."""
    some = _some(said)
    if some is None:
        return tuple(tools)
    listed = some.get("tools")
    names = [_named(tool) for tool in listed] if isinstance(listed, list) else []
    left = tuple(tool for tool in tools if tool.name in names)
    if not left:
        raise _no_tool(said)
    return left


def _some(said: JsonValue) -> Json | None:
    """A choice of some tools: the mode, and which they are. Chat Completions nests both, Responses
    does not.
    """
    if not isinstance(said, dict) or said.get("type") != "allowed_tools":
        return None
    inner = said.get("allowed_tools")
    return inner if isinstance(inner, dict) else said


def _named(tool: JsonValue) -> str:
    """The name in what points at a tool, "" where there is none."""
    inner = tool.get("function", tool) if isinstance(tool, dict) else None
    name = inner.get("name") if isinstance(inner, dict) else None
    return name if isinstance(name, str) else ""


def _no_tool(said: JsonValue) -> RequestRefused:
    return RequestRefused(
        400, f"tool_choice {json.dumps(said)} names no tool of this request", code="invalid_value"
    )


def _conversation(sent: Sequence[_Message]) -> tuple[str, tuple[Message, ...]]:
    """What stands before the conversation is the system text; later instructions are said where
    they stand.
    """
    system: list[str] = []
    messages: list[Message] = []
    tools: dict[str, str] = {}
    for number, message in enumerate(sent):
        beside = ClientMedia(number)
        text = _text(message, number, beside)
        match message.role:
            case "system" | "developer" if not messages:
                system.append(text)
            case "system" | "developer" | "user":
                messages.append(FromUser(text=text, media=tuple(beside.taken)))
            case "assistant":
                calls = tuple(
                    Call(
                        id=call.id,
                        tool=call.function.name,
                        arguments=call.function.arguments or "{}",
                    )
                    for call in message.tool_calls or []
                )
                tools |= {call.id: call.tool for call in calls}
                messages.append(FromAgent(agent="", text=text, calls=calls))
            case "tool" | "function":
                call = message.tool_call_id or ""
                messages.append(
                    FromTool(
                        call=call, tool=tools.get(call, ""), text=text, media=tuple(beside.taken)
                    )
                )
            case _:
                raise no_role(f"messages.{number}", message.role)
    return join_text(system), tuple(messages)


def _text(message: _Message, number: int, beside: ClientMedia) -> str:
    """The words of a message; what stands beside them goes to `beside`."""
    if not isinstance(message.content, list):
        return message.content or ""
    result = message.role in ("tool", "function")
    joint = "\n" if result else ""
    return joint.join(_words(part, number, beside, result=result) for part in message.content)


def _words(part: _Part, number: int, beside: ClientMedia, *, result: bool) -> str:
    if part.type in ("text", "refusal"):
        return part.text or part.refusal
    if part.type == "image_url" and part.image_url is not None:
        return beside.add_url(part.image_url.url)
    if part.type == "file" and part.file is not None and part.file.file_data:
        return beside.add_url(part.file.file_data, part.file.filename)
    if result:
        return NOT_SHOWN.format(kind=part.type)
    raise RequestRefused(
        400, f"messages.{number}: {part.type} is not offered", code="unsupported_content"
    )


def _tool(tool: _Tool) -> ToolSpec:
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


STOPS: dict[StopReason, str] = {
    "end": "stop",
    "calls": "tool_calls",
    "length": "length",
    "refusal": "content_filter",
    "cut": "stop",
}


def whole(head: AnswerHead, answer: ServedAnswer, asking: ClientRequest) -> Json:
    """The answer as one object."""
    message: Json = {"role": "assistant", "content": answer.text or None, "refusal": None}
    if answer.reasoning:
        message["reasoning_content"] = answer.reasoning
    if answer.calls:
        message["tool_calls"] = [_call(call) for call in answer.calls]
    choice: Json = {
        "index": 0,
        "message": message,
        "finish_reason": STOPS[answer.stop],
        "logprobs": None,
    }
    return {
        **_head(head, "chat.completion"),
        "choices": [choice],
        "usage": openai_usage(answer, "prompt", "completion"),
        "fugu": answer_details(head, answer, asking),
    }


class ChatStream:
    """The chunks of one answer."""

    events_for: frozenset[str] = frozenset()

    def __init__(self, head: AnswerHead, asking: ClientRequest) -> None:
        self._head = head
        self._asking = asking
        self._said = self._thought = False

    def begin(self) -> bytes:
        return self._chunk({"role": "assistant", "content": ""})

    def piece(self, text: str) -> bytes:
        self._said = True
        return self._chunk({"content": text})

    def thought(self, text: str) -> bytes:
        self._thought = True
        return self._chunk({"reasoning_content": text})

    def end(self, answer: ServedAnswer) -> bytes:
        last = self.thought(answer.reasoning) if answer.reasoning and not self._thought else b""
        last += b"" if self._said or not answer.text else self.piece(answer.text)
        if answer.calls:
            calls = [{"index": number, **_call(call)} for number, call in enumerate(answer.calls)]
            last += self._chunk({"tool_calls": [*calls]})
        last += self._chunk({}, STOPS[answer.stop])
        if self._asking.counted:
            details = answer_details(self._head, answer, self._asking)
            counted: Json = {
                "choices": [],
                "usage": openai_usage(answer, "prompt", "completion"),
                "fugu": details,
            }
            last += sse_event({**_head(self._head, "chat.completion.chunk"), **counted})
        return last + sse_event("[DONE]")

    def fail(self, refused: RequestRefused) -> bytes:
        return sse_event(openai_error(refused)) + sse_event("[DONE]")

    def idle(self) -> bytes:
        return b": waiting\n\n"

    def _chunk(self, delta: Json, reason: str | None = None) -> bytes:
        choice: Json = {"index": 0, "delta": delta, "finish_reason": reason, "logprobs": None}
        return sse_event({**_head(self._head, "chat.completion.chunk"), "choices": [choice]})


def openai_error(refused: RequestRefused) -> Json:
    """An error as OpenAI's wires have it."""
    return {
        "error": {
            "message": str(refused),
            "type": refused.kind,
            "param": None,
            "code": refused.code or None,
        }
    }


def _head(head: AnswerHead, kind: str) -> Json:
    return {"id": head.id, "object": kind, "created": head.created, "model": head.model}


def _call(call: Call) -> dict[str, JsonValue]:
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.tool, "arguments": call.arguments},
    }


CHAT = Wire(parse, whole, ChatStream, openai_error)
"""`POST /v1/chat/completions`."""
