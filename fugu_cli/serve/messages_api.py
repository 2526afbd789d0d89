"""The Messages API as clients send it (Claude Code above all) -> Asking.

The reading half; `messages_out.py` writes. Thinking blocks of a client are left out: fugu gives each agent its own back
from the trace. The provider's server tools (web search and the like) have nobody here who runs them and are left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from pydantic import Field, JsonValue

from fugu_cli.messages import Call, FromAgent, FromTool, FromUser, Message, ToolSpec
from fugu_cli.serve import options
from fugu_cli.serve.asking import Asking, Refused, Sampling
from fugu_cli.serve.wire import Json, Sent, joined, limit_of, parsed

NOT_SHOWN = "[{kind}: not shown, this endpoint takes text only]"


class _Block(Sent):
    type: str
    text: str = ""
    id: str = ""
    name: str = ""
    input: JsonValue = None
    tool_use_id: str = ""
    content: str | list[_Block] | JsonValue = None
    is_error: bool | None = None


class _Message(Sent):
    role: str
    content: str | list[_Block]


class _Tool(Sent):
    name: str
    type: str | None = None
    description: str | None = None
    input_schema: Json | None = None


class _Choice(Sent):
    type: str
    name: str = ""
    disable_parallel_tool_use: bool | None = None


class _Format(Sent):
    type: str = ""
    schema_: JsonValue = Field(default=None, alias="schema")


class _Output(Sent):
    format: _Format | None = None


class Counting(Sent):
    """What is counted before it is sent (`/v1/messages/count_tokens`)."""

    model: str
    messages: list[_Message]
    system: str | list[_Block] | None = None
    tools: list[_Tool] | None = None


class _Body(Counting):
    max_tokens: int
    stream: bool | None = None
    temperature: float | None = None
    stop_sequences: list[str] | None = None
    tool_choice: _Choice | None = None
    output_config: _Output | None = None
    metadata: Json | None = None


def parse(body: bytes, headers: Mapping[str, str]) -> Asking:
    """The request in `body`. Raises Refused."""
    sent = parsed(_Body, body)
    messages = tuple(_conversation(sent.messages))
    if not messages:
        raise Refused(400, "messages: at least one that says something is needed", code="invalid_body")
    tools = tuple(_tools(sent.tools or []))
    held = sent.output_config.format if sent.output_config else None
    return Asking(
        model=sent.model,
        system=_system(sent.system),
        messages=messages,
        tools=tools,
        sampling=Sampling(
            max_tokens=limit_of("max_tokens", sent.max_tokens, sent.max_tokens),
            temperature=sent.temperature,
            stop=tuple(stop for stop in sent.stop_sequences or [] if stop),
            choice=_choice(sent.tool_choice, [tool.name for tool in tools]),
            reply_schema=json.dumps(held.schema_) if held and held.schema_ else "",
            single=bool(sent.tool_choice and sent.tool_choice.disable_parallel_tool_use),
        ),
        options=options.read(headers, sent.metadata or {}),
        stream=bool(sent.stream),
    )


def size(body: bytes) -> int:
    """Tokens of a request, estimated as a token for every three bytes of its text: no tokenizer fits every agent."""
    sent = parsed(Counting, body)
    parts = [*sent.messages, *(sent.tools or [])]
    text = _system(sent.system) + "".join(part.model_dump_json(exclude_defaults=True) for part in parts)
    return len(text.encode("utf-8", "replace")) // 3


def _system(sent: str | list[_Block] | None) -> str:
    return joined([block.text for block in sent]) if isinstance(sent, list) else sent or ""


def _conversation(sent: Sequence[_Message]) -> list[Message]:
    messages: list[Message] = []
    tools: dict[str, str] = {}
    for number, message in enumerate(sent):
        content = message.content
        blocks = [_Block(type="text", text=content)] if isinstance(content, str) else content
        match message.role:
            case "user" | "system":
                messages += [_said(block, tools, number) for block in blocks if block.type != "thinking"]
            case "assistant":
                calls = tuple(
                    Call(id=block.id, tool=block.name, arguments=json.dumps(block.input or {}, ensure_ascii=False))
                    for block in blocks
                    if block.type == "tool_use"
                )
                tools |= {call.id: call.tool for call in calls}
                text = "".join(block.text for block in blocks if block.type == "text")
                messages.append(FromAgent(agent="", text=text, calls=calls))
            case _:
                raise Refused(400, f"messages.{number}.role: {message.role!r} is no role", code="invalid_value")
    return messages


def _said(block: _Block, tools: Mapping[str, str], number: int) -> Message:
    """A block of the user's side: words, or the result of a call."""
    if block.type == "text":
        return FromUser(text=block.text)
    if block.type == "tool_result":
        tool = tools.get(block.tool_use_id, "")
        return FromTool(call=block.tool_use_id, tool=tool, text=_plain(block.content), ok=not block.is_error)
    raise Refused(400, f"messages.{number}: {block.type} is not offered, only text", code="unsupported_content")


def _plain(content: JsonValue | list[_Block]) -> str:
    if isinstance(content, list):
        blocks = [block for block in content if isinstance(block, _Block)]
        return "\n".join(b.text if b.type == "text" else NOT_SHOWN.format(kind=b.type) for b in blocks)
    return content if isinstance(content, str) else ""


def _tools(sent: Sequence[_Tool]) -> list[ToolSpec]:
    return [
        ToolSpec(
            name=tool.name,
            description=tool.description or "",
            parameters=json.dumps(tool.input_schema or {"type": "object", "properties": {}}),
        )
        for tool in sent
        if tool.type in (None, "custom")
    ]


def _choice(said: _Choice | None, names: Sequence[str]) -> str:
    match said.type if said else "auto":
        case "auto":
            return ""
        case "none":
            return "none"
        case "any":
            return "required"
        case "tool" if said and said.name in names:
            return said.name
    raise Refused(400, "tool_choice names no tool of this request", code="invalid_value")
