"""The Messages wire (Claude Code above all): requests as clients send them, answers as one message
or as named events.
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
from fugu_cli.server import client_requests
from fugu_cli.server.client_requests import (
    AnswerHead,
    ClientMedia,
    ClientRequest,
    ItemList,
    Json,
    LenientModel,
    ReplyForm,
    RequestRefused,
    RequestSampling,
    ServedAnswer,
    StopReason,
    Wire,
    answer_details,
    function_tool,
    join_text,
    no_role,
    parse_body,
    sse_event,
    token_limit,
)
from fugu_cli.system.bounded_json import parse_json

NOT_SHOWN = "[{kind}: not shown, this endpoint takes text, pictures and PDFs]"


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


class _Choice(LenientModel):
    type: str
    name: str = ""
    disable_parallel_tool_use: bool | None = None


class _Output(LenientModel):
    format: ReplyForm | None = None
    effort: Effort | None = None


class _Thinking(LenientModel):
    type: str
    budget_tokens: int = 0
    display: str = ""


class CountTokensBody(LenientModel):
    """What is counted before it is sent (`/v1/messages/count_tokens`)."""

    model: str
    messages: ItemList[_Message]
    system: str | ItemList[_Block] | None = None
    tools: ItemList[_Tool] | None = None


class _Body(CountTokensBody):
    max_tokens: int
    stream: bool | None = None
    temperature: float | None = None
    stop_sequences: ItemList[str] | None = None
    tool_choice: _Choice | None = None
    output_config: _Output | None = None
    thinking: _Thinking | None = None
    mcp_servers: JsonValue = None
    metadata: Json | None = None


def parse(body: bytes, headers: Mapping[str, str]) -> ClientRequest:
    """The request in `body`. Raises RequestRefused."""
    sent = parse_body(_Body, body)
    messages = tuple(_conversation(sent.messages))
    if not messages:
        raise RequestRefused(
            400, "messages: at least one that says something is needed", code="invalid_body"
        )
    if sent.mcp_servers:
        raise RequestRefused(
            400, "mcp_servers is not offered: the client runs its tools", code="unsupported_value"
        )
    tools = tuple(_tools(sent.tools or []))
    effort, thinks = _effort(sent), sent.thinking is not None and sent.thinking.type != "disabled"
    held = sent.output_config.format if sent.output_config else None
    return ClientRequest(
        model=sent.model,
        system=_system(sent.system),
        messages=messages,
        tools=tools,
        sampling=RequestSampling(
            max_tokens=token_limit("max_tokens", sent.max_tokens, sent.max_tokens),
            temperature=sent.temperature,
            stop=tuple(stop for stop in sent.stop_sequences or [] if stop),
            choice=_choice(sent.tool_choice, [tool.name for tool in tools]),
            reply_schema=json.dumps(held.schema_) if held and held.schema_ else "",
            single=bool(sent.tool_choice and sent.tool_choice.disable_parallel_tool_use),
            effort=effort,
            reasons=thinks,
        ),
        options=client_requests.read_options(headers, sent.metadata or {}),
        stream=bool(sent.stream),
        reasoning=thinks and sent.thinking is not None and sent.thinking.display != "omitted",
    )


def _effort(sent: _Body) -> Effort:
    """The most that may be thought. A budget is the least effort that has as many tokens; what is
    not to think at all is as little as every model takes."""
    wanted = sent.output_config.effort if sent.output_config else None
    match sent.thinking.type if sent.thinking else "":
        case "disabled":
            return "low"
        case "enabled" if wanted is None and sent.thinking:
            budget = sent.thinking.budget_tokens
            return next(
                (one for one in EFFORTS if THINKING_TOKENS.get(one, 0) >= budget > 0), "max"
            )
        case "adaptive":
            return wanted or "high"
    return wanted or ""


def estimated_tokens(body: bytes) -> int:
    """Tokens of a request, estimated as a token for every three bytes of its text: no tokenizer
    fits every agent.
    """
    sent = parse_body(CountTokensBody, body)
    messages, tools = _conversation(sent.messages), sent.tools or []
    text = _system(sent.system) + "".join(
        part.model_dump_json(exclude_defaults=True) for part in (*messages, *tools)
    )
    shown = sum(
        one.tokens
        for message in messages
        if not isinstance(message, FromAgent)
        for one in message.media
    )
    return len(text.encode("utf-8", "replace")) // 3 + shown


def _system(sent: str | list[_Block] | None) -> str:
    return join_text([block.text for block in sent]) if isinstance(sent, list) else sent or ""


def _conversation(sent: Sequence[_Message]) -> list[Message]:
    messages: list[Message] = []
    tools: dict[str, str] = {}
    for number, message in enumerate(sent):
        content = message.content
        blocks = [_Block(type="text", text=content)] if isinstance(content, str) else content
        match message.role:
            case "user" | "system":
                messages += _user(blocks, tools, number)
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
                tools |= {call.id: call.tool for call in calls}
                text = "".join(block.text for block in blocks if block.type == "text")
                messages.append(FromAgent(agent="", text=text, calls=calls))
            case _:
                raise no_role(f"messages.{number}", message.role)
    return messages


def _user(blocks: Sequence[_Block], tools: Mapping[str, str], number: int) -> list[Message]:
    """The user's side: words and what stands beside them, and the results of calls."""
    found: list[Message] = []
    for block in blocks:
        beside = ClientMedia(number)
        if block.type == "thinking":
            continue
        if block.type == "tool_result":
            text, tool = _plain(block.content, beside), tools.get(block.tool_use_id, "")
            made = tuple(beside.taken)
            found.append(
                FromTool(
                    call=block.tool_use_id, tool=tool, text=text, ok=not block.is_error, media=made
                )
            )
            continue
        words = _words(block, beside)
        if words is None:
            what = f"messages.{number}: {block.type} is not offered"
            raise RequestRefused(400, what, code="unsupported_content")
        found.append(FromUser(text=words, media=tuple(beside.taken)))
    return found


def _words(block: _Block, beside: ClientMedia) -> str | None:
    """The words of a block, what stands beside them goes to `beside`; None for a block that is not
    known.
    """
    if block.type == "text":
        return block.text
    if block.type not in ("image", "document"):
        return None
    source = block.source if isinstance(block.source, _Source) else _Source()
    if source.type == "text":
        return source.data
    if source.type != "base64":
        return beside.add_url("")
    return beside.add(source.data, source.media_type, block.title or "")


def _plain(content: JsonValue | list[_Block], beside: ClientMedia) -> str:
    if isinstance(content, list):
        blocks = [(block, _words(block, beside)) for block in content if isinstance(block, _Block)]
        return "\n".join(
            NOT_SHOWN.format(kind=block.type) if words is None else words for block, words in blocks
        )
    return content if isinstance(content, str) else ""


def _tools(sent: Sequence[_Tool]) -> list[ToolSpec]:
    """Raises RequestRefused for a tool that Anthropic runs, or whose schema only its own models know."""
    if other := [tool.type for tool in sent if tool.type not in (None, "custom")]:
        raise RequestRefused(
            400, f"tools: {other[0]} is not offered, only custom tools", code="unsupported_tool"
        )
    return [function_tool(tool.name, tool.description, tool.input_schema) for tool in sent]


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
    raise RequestRefused(400, "tool_choice names no tool of this request", code="invalid_value")


STOPS: dict[StopReason, str] = {
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
"""`error.type` by status, as the API names them."""


def whole(head: AnswerHead, answer: ServedAnswer, asking: ClientRequest) -> Json:
    """The answer as one object."""
    content: list[JsonValue] = [_thought(head, answer.reasoning)] if answer.reasoning else []
    content += [{"type": "text", "text": answer.text}] if answer.text else []
    content += [
        {"type": "tool_use", "id": c.id, "name": c.tool, "input": _input(c)} for c in answer.calls
    ]
    return {
        **_message(head),
        "content": content,
        "stop_reason": STOPS[answer.stop],
        "usage": _usage(answer),
        "fugu": answer_details(head, answer, asking),
    }


class MessagesStream:
    """The events of one answer: blocks are opened, filled and closed one after the other."""

    events_for: frozenset[str] = frozenset()

    def __init__(self, head: AnswerHead, asking: ClientRequest) -> None:
        self._head = head
        self._asking = asking
        self._index = 0
        self._open = ""
        """The kind of the block that is open."""
        self._said = self._thought = False

    def begin(self) -> bytes:
        empty: Json = {**_message(self._head), "content": [], "stop_reason": None}
        empty["usage"] = {"input_tokens": 0, "output_tokens": 0}
        return _event("message_start", message=empty)

    def piece(self, text: str) -> bytes:
        self._said = True
        opened = b"" if self._open == "text" else self._start({"type": "text", "text": ""})
        return opened + self._delta({"type": "text_delta", "text": text})

    def thought(self, text: str) -> bytes:
        self._thought = True
        block: Json = {"type": "thinking", "thinking": "", "signature": ""}
        opened = b"" if self._open == "thinking" else self._start(block)
        return opened + self._delta({"type": "thinking_delta", "thinking": text})

    def end(self, answer: ServedAnswer) -> bytes:
        last = self.thought(answer.reasoning) if answer.reasoning and not self._thought else b""
        last += b"" if self._said or not answer.text else self.piece(answer.text)
        for call in answer.calls:
            last += self._start({"type": "tool_use", "id": call.id, "name": call.tool, "input": {}})
            last += self._delta(
                {"type": "input_json_delta", "partial_json": json.dumps(_input(call))}
            )
        last += self._close()
        delta: Json = {"stop_reason": STOPS[answer.stop], "stop_sequence": None}
        details = answer_details(self._head, answer, self._asking)
        last += _event("message_delta", delta=delta, usage=_usage(answer), fugu=details)
        return last + _event("message_stop")

    def fail(self, refused: RequestRefused) -> bytes:
        return sse_event(anthropic_error(refused), "error")

    def idle(self) -> bytes:
        return _event("ping")

    def _start(self, block: Json) -> bytes:
        closed, self._open = self._close(), str(block["type"])
        return closed + _event("content_block_start", index=self._index, content_block=block)

    def _delta(self, delta: Json) -> bytes:
        return _event("content_block_delta", index=self._index, delta=delta)

    def _close(self) -> bytes:
        if not self._open:
            return b""
        thought, self._open = self._open == "thinking", ""
        signed = (
            self._delta({"type": "signature_delta", "signature": self._head.id}) if thought else b""
        )
        self._index += 1
        return signed + _event("content_block_stop", index=self._index - 1)


def anthropic_error(refused: RequestRefused) -> Json:
    """An error as this wire has it."""
    kind = ERROR_TYPES.get(
        refused.status, "api_error" if refused.status >= 500 else "invalid_request_error"
    )
    return {"type": "error", "error": {"type": kind, "message": str(refused)}}


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


def _thought(head: AnswerHead, text: str) -> Json:
    """A block of thinking. What comes back of it is left alone: its author's own stands in the
    trace.
    """
    return {"type": "thinking", "thinking": text, "signature": head.id}


def _input(call: Call) -> JsonValue:
    """The arguments as an object: what the model wrote, where it wrote one."""
    given = arguments_object(call.arguments)
    return (
        {"malformed_arguments": call.arguments}
        if given is None
        else parse_json(call.arguments or "{}")
    )


def _usage(answer: ServedAnswer) -> Json:
    """Cached tokens are counted apart here, and the orchestration's beside them."""
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


MESSAGES = Wire(parse, whole, MessagesStream, anthropic_error)
"""`POST /v1/messages`."""
