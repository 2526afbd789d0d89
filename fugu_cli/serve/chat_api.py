"""Chat Completions as clients send it -> Asking.

The reading half of the wire that most clients speak; `chat_out.py` writes. What fugu does not offer is refused with the
name of the parameter (`n` above 1, images, audio); what only tunes (top_p, penalties, user) is left out. Of a tool's
result the text is kept.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from pydantic import Field, JsonValue

from fugu_cli.messages import Call, FromAgent, FromTool, FromUser, Message, ToolSpec
from fugu_cli.serve import options
from fugu_cli.serve.asking import LONGEST, Asking, Refused, Sampling
from fugu_cli.serve.messages_api import NOT_SHOWN
from fugu_cli.serve.wire import Json, Sent, joined, limit_of, parsed


class _Part(Sent):
    type: str = "text"
    text: str = ""
    refusal: str = ""


class _Function(Sent):
    name: str
    arguments: str = "{}"


class _ToolCall(Sent):
    id: str
    function: _Function


class _Message(Sent):
    role: str
    content: str | list[_Part] | None = None
    tool_calls: list[_ToolCall] | None = None
    tool_call_id: str | None = None


class _FunctionTool(Sent):
    name: str
    description: str | None = None
    parameters: Json | None = None


class _Tool(Sent):
    type: str = "function"
    function: _FunctionTool | None = None


class _StreamOptions(Sent):
    include_usage: bool | None = None


class _Schema(Sent):
    schema_: JsonValue = Field(default=None, alias="schema")


class _Format(Sent):
    type: str = "text"
    json_schema: _Schema | None = None


class _Body(Sent):
    model: str
    messages: list[_Message]
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    n: int | None = None
    modalities: list[str] | None = None
    functions: JsonValue = None
    tools: list[_Tool] | None = None
    tool_choice: JsonValue = None
    parallel_tool_calls: bool | None = None
    response_format: _Format | None = None
    metadata: Json | None = None


def parse(body: bytes, headers: Mapping[str, str]) -> Asking:
    """The request in `body`. Raises Refused."""
    sent = parsed(_Body, body)
    if sent.n not in (None, 1):
        raise Refused(400, f"n = {sent.n} is not offered: one answer a request", code="unsupported_value")
    if sent.functions:
        raise Refused(400, "functions is not offered: `tools` has taken its place", code="unsupported_value")
    if other := [kind for kind in sent.modalities or [] if kind != "text"]:
        raise Refused(400, f"modalities: {other[0]} is not offered, only text", code="unsupported_value")
    system, messages = _conversation(sent.messages)
    if not messages:
        raise Refused(400, "messages: at least one is needed beside the instructions", code="invalid_body")
    tools = allowed(sent.tool_choice, [_tool(tool) for tool in sent.tools or []])
    return Asking(
        model=sent.model,
        system=system,
        messages=messages,
        tools=tools,
        sampling=_sampling(sent, tools),
        options=options.read(headers, sent.metadata or {}),
        stream=bool(sent.stream),
        counted=bool(sent.stream_options and sent.stream_options.include_usage),
    )


def _sampling(sent: _Body, tools: Sequence[ToolSpec]) -> Sampling:
    fallback = limit_of("max_tokens", sent.max_tokens, LONGEST)
    stops = [sent.stop] if isinstance(sent.stop, str) else sent.stop or []
    return Sampling(
        max_tokens=limit_of("max_completion_tokens", sent.max_completion_tokens, fallback),
        temperature=sent.temperature,
        seed=sent.seed,
        stop=tuple(stop for stop in stops if stop),
        choice=choice_of(sent.tool_choice, [tool.name for tool in tools]),
        reply_schema=_schema(sent.response_format),
        single=sent.parallel_tool_calls is False,
    )


def _schema(wanted: _Format | None) -> str:
    if wanted is None or wanted.type == "text":
        return ""
    if wanted.type == "json_object":
        return json.dumps({"type": "object"})
    if wanted.type == "json_schema":
        if wanted.json_schema is None or not wanted.json_schema.schema_:
            raise Refused(400, "response_format.json_schema.schema is missing", code="missing_value")
        return json.dumps(wanted.json_schema.schema_)
    raise Refused(400, f"response_format {wanted.type!r} is not offered: text, json_object, json_schema")


def choice_of(said: JsonValue, names: Sequence[str]) -> str:
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


def allowed(said: JsonValue, tools: Sequence[ToolSpec]) -> tuple[ToolSpec, ...]:
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
    """A choice of some tools: the mode, and which they are. Chat Completions nests both, Responses does not."""
    if not isinstance(said, dict) or said.get("type") != "allowed_tools":
        return None
    inner = said.get("allowed_tools")
    return inner if isinstance(inner, dict) else said


def _named(tool: JsonValue) -> str:
    """The name in what points at a tool, "" where there is none."""
    inner = tool.get("function", tool) if isinstance(tool, dict) else None
    name = inner.get("name") if isinstance(inner, dict) else None
    return name if isinstance(name, str) else ""


def _no_tool(said: JsonValue) -> Refused:
    return Refused(400, f"tool_choice {json.dumps(said)} names no tool of this request", code="invalid_value")


def _conversation(sent: Sequence[_Message]) -> tuple[str, tuple[Message, ...]]:
    """What stands before the conversation is the system text; later instructions are said where they stand."""
    system: list[str] = []
    messages: list[Message] = []
    tools: dict[str, str] = {}
    for number, message in enumerate(sent):
        text = _result(message) if message.role in ("tool", "function") else _text(message.content, number)
        match message.role:
            case "system" | "developer" if not messages:
                system.append(text)
            case "system" | "developer" | "user":
                messages.append(FromUser(text=text))
            case "assistant":
                calls = tuple(
                    Call(id=call.id, tool=call.function.name, arguments=call.function.arguments or "{}")
                    for call in message.tool_calls or []
                )
                tools |= {call.id: call.tool for call in calls}
                messages.append(FromAgent(agent="", text=text, calls=calls))
            case "tool" | "function":
                call = message.tool_call_id or ""
                messages.append(FromTool(call=call, tool=tools.get(call, ""), text=text))
            case _:
                raise Refused(400, f"messages.{number}.role: {message.role!r} is no role", code="invalid_value")
    return joined(system), tuple(messages)


def _text(content: str | list[_Part] | None, number: int) -> str:
    if not isinstance(content, list):
        return content or ""
    for part in content:
        if part.type not in ("text", "refusal"):
            raise Refused(400, f"messages.{number}: {part.type} is not offered, only text", code="unsupported_content")
    return "".join(part.text or part.refusal for part in content)


def _result(message: _Message) -> str:
    """What a tool said: text, or parts of which the text is kept."""
    if not isinstance(message.content, list):
        return message.content or ""
    return "\n".join(p.text if p.type == "text" else NOT_SHOWN.format(kind=p.type) for p in message.content)


def _tool(tool: _Tool) -> ToolSpec:
    if tool.type == "function" and tool.function is None:
        raise Refused(400, "tools: a function has no `function` that says its name", code="missing_value")
    if tool.function is None or tool.type != "function":
        raise Refused(400, f"tools of type {tool.type!r} are not offered, only functions", code="unsupported_value")
    return ToolSpec(
        name=tool.function.name,
        description=tool.function.description or "",
        parameters=json.dumps(tool.function.parameters or {"type": "object", "properties": {}}),
    )
