"""The Responses API as Codex CLI and the SDK send it -> Asking.

The reading half; `responses_out.py` writes. Stateless: the whole input comes with every request. Custom (free-form)
tools become functions of one text argument, `input`, and their calls go back as custom calls. Hosted tools (web search
and the like) have nobody here who runs them and are left out; reasoning items are too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from pydantic import Field, JsonValue

from fugu_cli.agents.history import arguments_object
from fugu_cli.messages import Call, FromAgent, FromTool, FromUser, Message, ToolSpec
from fugu_cli.serve import options
from fugu_cli.serve.asking import LONGEST, Asking, Refused, Sampling
from fugu_cli.serve.chat_api import allowed, choice_of
from fugu_cli.serve.messages_api import NOT_SHOWN
from fugu_cli.serve.wire import Json, Sent, joined, limit_of, parsed

FREEFORM = json.dumps(
    {
        "type": "object",
        "properties": {"input": {"type": "string"}},
        "required": ["input"],
        "additionalProperties": False,
    }
)
"""What a custom tool takes, as a function."""

UNSAID = frozenset({"reasoning", "web_search_call", "image_generation_call", "compaction"})
"""Items that say nothing an agent of another provider could read."""


class _Part(Sent):
    type: str
    text: str = ""
    refusal: str = ""


class _Item(Sent):
    type: str = "message"
    role: str = ""
    content: str | list[_Part] | None = None
    call_id: str = ""
    name: str = ""
    arguments: str = ""
    input: JsonValue = None
    output: str | list[_Part] | JsonValue = None


class _Tool(Sent, extra="allow"):
    type: str
    name: str = ""
    description: str | None = None
    parameters: Json | None = None
    format: Json | None = None


class _Format(Sent):
    type: str = "text"
    schema_: JsonValue = Field(default=None, alias="schema")


class _Text(Sent):
    format: _Format | None = None


class _Body(Sent):
    model: str
    input: str | list[_Item]
    instructions: str | None = None
    stream: bool | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    tools: list[_Tool] | None = None
    tool_choice: JsonValue = None
    parallel_tool_calls: bool | None = None
    text: _Text | None = None
    previous_response_id: str | None = None
    conversation: JsonValue = None
    background: bool | None = None
    metadata: Json | None = None


def parse(body: bytes, headers: Mapping[str, str]) -> Asking:
    """The request in `body`. Raises Refused."""
    sent = parsed(_Body, body)
    for name, stored in (("previous_response_id", sent.previous_response_id), ("conversation", sent.conversation)):
        if stored:
            raise Refused(400, f"{name}: nothing is stored, send the whole input", code="unsupported_value")
    if sent.background:
        raise Refused(400, "background: answers are given at once or streamed", code="unsupported_value")
    items = [_Item(role="user", content=sent.input)] if isinstance(sent.input, str) else sent.input
    system, messages = _conversation(items)
    if not messages:
        raise Refused(400, "input: at least one message is needed", code="invalid_body")
    offered = [tool for tool in sent.tools or [] if tool.type in ("function", "custom")]
    return Asking(
        model=sent.model,
        system=joined([sent.instructions or "", *system]),
        messages=messages,
        tools=allowed(sent.tool_choice, [_tool(tool) for tool in offered]),
        sampling=Sampling(
            max_tokens=limit_of("max_output_tokens", sent.max_output_tokens, LONGEST),
            temperature=sent.temperature,
            choice=choice_of(sent.tool_choice, [tool.name for tool in offered]),
            reply_schema=_schema(sent.text),
            single=sent.parallel_tool_calls is False,
        ),
        repeated=_repeated(sent),
        options=options.read(headers, sent.metadata or {}),
        stream=bool(sent.stream),
        freeform=frozenset(tool.name for tool in offered if tool.type == "custom"),
    )


def _repeated(sent: _Body) -> Json:
    """What an answer says again of its request."""
    return {
        "instructions": sent.instructions,
        "max_output_tokens": sent.max_output_tokens,
        "metadata": sent.metadata or {},
        "parallel_tool_calls": sent.parallel_tool_calls is not False,
        "temperature": sent.temperature,
        "tool_choice": sent.tool_choice or "auto",
        "tools": [tool.model_dump(exclude_unset=True) for tool in sent.tools or []],
    }


def _schema(text: _Text | None) -> str:
    wanted = text.format if text else None
    if wanted is None or wanted.type == "text":
        return ""
    if wanted.type == "json_schema":
        if not wanted.schema_:
            raise Refused(400, "text.format.schema is missing", code="missing_value")
        return json.dumps(wanted.schema_)
    if wanted.type == "json_object":
        return json.dumps({"type": "object"})
    raise Refused(400, f"text.format {wanted.type!r} is not offered: text, json_object, json_schema")


def _conversation(items: Sequence[_Item]) -> tuple[list[str], tuple[Message, ...]]:
    """The leading instructions, and the rest. Calls that stand in a row are one reply's."""
    system: list[str] = []
    messages: list[Message] = []
    tools: dict[str, str] = {}
    for number, item in enumerate(items):
        match item.type:
            case "message":
                _say(item, number, system, messages)
            case "function_call" | "custom_tool_call":
                call = _call(item)
                tools[call.id] = call.tool
                _add(messages, call)
            case "function_call_output" | "custom_tool_call_output":
                text = _plain(item.output)
                messages.append(FromTool(call=item.call_id, tool=tools.get(item.call_id, ""), text=text))
            case "item_reference":
                raise Refused(400, f"input.{number}: nothing is stored, send the item", code="unsupported_value")
            case unsaid if unsaid in UNSAID:
                continue
            case other:
                raise Refused(400, f"input.{number}: {other} is not offered", code="unsupported_value")
    return system, tuple(messages)


def _say(item: _Item, number: int, system: list[str], messages: list[Message]) -> None:
    text = _said(item.content, number)
    match item.role:
        case "system" | "developer" if not messages:
            system.append(text)
        case "system" | "developer" | "user":
            messages.append(FromUser(text=text))
        case "assistant":
            messages.append(FromAgent(agent="", text=text))
        case _:
            raise Refused(400, f"input.{number}.role: {item.role!r} is no role", code="invalid_value")


def _said(content: str | list[_Part] | None, number: int) -> str:
    if not isinstance(content, list):
        return content or ""
    for part in content:
        if part.type not in ("input_text", "output_text", "text", "refusal"):
            raise Refused(400, f"input.{number}: {part.type} is not offered, only text", code="unsupported_content")
    return "".join(part.text or part.refusal for part in content)


def _call(item: _Item) -> Call:
    if item.type == "custom_tool_call":
        text = item.input if isinstance(item.input, str) else json.dumps(item.input)
        return Call.make(item.call_id, item.name, input=text)
    return Call(id=item.call_id, tool=item.name, arguments=item.arguments or "{}")


def _add(messages: list[Message], call: Call) -> None:
    last = messages[-1] if messages else None
    if isinstance(last, FromAgent):
        messages[-1] = last.model_copy(update={"calls": (*last.calls, call)})
    else:
        messages.append(FromAgent(agent="", calls=(call,)))


def _plain(output: JsonValue | list[_Part]) -> str:
    """A result: text, or parts of which the text is kept."""
    if isinstance(output, list):
        parts = [part for part in output if isinstance(part, _Part)]
        return "\n".join(p.text if p.type.endswith("text") else NOT_SHOWN.format(kind=p.type) for p in parts)
    return output if isinstance(output, str) else json.dumps(output)


def _tool(tool: _Tool) -> ToolSpec:
    if tool.type == "custom":
        grammar = tool.format.get("definition") if tool.format else None
        told = tool.description or ""
        if grammar:
            told += f"\n\nIts `input` follows this grammar:\n{grammar}"
        return ToolSpec(name=tool.name, description=told, parameters=FREEFORM, body="input")
    parameters = tool.parameters or {"type": "object", "properties": {}}
    return ToolSpec(name=tool.name, description=tool.description or "", parameters=json.dumps(parameters))


def freeform_text(call: Call) -> str:
    """What a custom tool gets: the text of the call, or all of it where a model wrote no JSON."""
    given = arguments_object(call.arguments) or {}
    text = given.get("input")
    return text if isinstance(text, str) else call.arguments
