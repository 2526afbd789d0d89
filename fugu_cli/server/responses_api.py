"""The Responses wire, as Codex CLI and the SDK speak it: requests, and answers as one object or as
numbered events.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from pydantic import JsonValue

from fugu_cli.messages import Call, Effort, FromAgent, FromTool, FromUser, Message, ToolSpec
from fugu_cli.providers.history import arguments_object
from fugu_cli.server import client_requests
from fugu_cli.server.chat_api import allowed_tools, openai_error
from fugu_cli.server.chat_api import tool_choice as choice_of
from fugu_cli.server.client_requests import (
    DEFAULT_MAX_TOKENS,
    TOO_LONG,
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

FREEFORM = json.dumps(
    {
        "type": "object",
        "properties": {"input": {"type": "string"}},
        "required": ["input"],
        "additionalProperties": False,
    }
)
"""What a custom tool takes, as a function."""

IGNORED_ITEMS = frozenset({"reasoning", "web_search_call", "image_generation_call"})
"""Items that say nothing an agent of another provider could read."""
COMPACTED = "[What was said before this is kept in a form that only its provider can read.]"
LEFT_OUT = ("web_search", "image_generation")
"""What kinds of tools begin with that clients offer unasked, and that OpenAI would run."""
SUMMARY = "reasoning_summary"
LONGEST_NAME = 64
"""Characters that every provider takes for the name of a tool."""


class _Part(LenientModel):
    type: str
    text: str = ""
    refusal: str = ""
    image_url: str | None = None
    file_data: str | None = None
    filename: str | None = None


class _Item(LenientModel):
    type: str = "message"
    role: str = ""
    content: str | ItemList[_Part] | None = None
    call_id: str = ""
    name: str = ""
    arguments: str = ""
    namespace: str = ""
    input: JsonValue = None
    output: str | ItemList[_Part] | JsonValue = None


class _Tool(LenientModel, extra="allow"):
    type: str
    name: str = ""
    description: str | None = None
    parameters: Json | None = None
    format: Json | None = None
    tools: ItemList[_Tool] | None = None


class _Reasoning(LenientModel):
    effort: Effort | None = None


class _Text(LenientModel):
    format: ReplyForm | None = None


class _Body(LenientModel):
    model: str
    input: str | ItemList[_Item]
    instructions: str | None = None
    stream: bool | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    tools: ItemList[_Tool] | None = None
    tool_choice: JsonValue = None
    parallel_tool_calls: bool | None = None
    text: _Text | None = None
    previous_response_id: str | None = None
    conversation: JsonValue = None
    background: bool | None = None
    metadata: Json | None = None
    reasoning: _Reasoning | None = None


def parse(body: bytes, headers: Mapping[str, str]) -> ClientRequest:
    """The request in `body`. Raises RequestRefused."""
    sent = parse_body(_Body, body)
    for name, stored in (
        ("previous_response_id", sent.previous_response_id),
        ("conversation", sent.conversation),
    ):
        if stored:
            raise RequestRefused(
                400, f"{name}: nothing is stored, send the whole input", code="unsupported_value"
            )
    if sent.background:
        raise RequestRefused(
            400, "background: answers are given at once or streamed", code="unsupported_value"
        )
    items = [_Item(role="user", content=sent.input)] if isinstance(sent.input, str) else sent.input
    system, messages = _conversation(items)
    if not messages:
        raise RequestRefused(400, "input: at least one message is needed", code="invalid_body")
    offered = list(_offered(sent.tools or []))
    form = (sent.text and sent.text.format) or ReplyForm()
    return ClientRequest(
        model=sent.model,
        system=join_text([sent.instructions or "", *system]),
        messages=messages,
        tools=allowed_tools(sent.tool_choice, [_tool(tool) for tool in offered]),
        sampling=RequestSampling(
            max_tokens=token_limit("max_output_tokens", sent.max_output_tokens, DEFAULT_MAX_TOKENS),
            temperature=sent.temperature,
            choice=choice_of(sent.tool_choice, [tool.name for tool in offered]),
            reply_schema=reply_schema(form.type, form.schema_, "text.format.schema"),
            single=sent.parallel_tool_calls is False,
            effort=(sent.reasoning and sent.reasoning.effort) or "",
        ),
        repeated=_repeated(sent),
        options=client_requests.read_options(headers, sent.metadata or {}),
        stream=bool(sent.stream),
        freeform=frozenset(tool.name for tool in offered if tool.type == "custom"),
        namespaces=_namespaces(sent.tools or []),
        left_out=tuple(tool.type for tool in sent.tools or [] if tool.type.startswith(LEFT_OUT)),
        reasoning=sent.reasoning is not None,
    )


def _offered(sent: Sequence[_Tool]) -> Iterator[_Tool]:
    """The tools that the client runs, those of a namespace under one name. Raises RequestRefused for other
    kinds.
    """
    for tool in sent:
        if tool.type in ("function", "custom"):
            yield tool
        elif tool.type == "namespace":
            for inner in _offered(tool.tools or []):
                yield inner.model_copy(update={"name": joint_name(tool.name, inner.name)})
        elif not tool.type.startswith(LEFT_OUT):
            said = (
                f"tools: {tool.type} is not offered, only functions, custom tools and namespaces "
                f"of them"
            )
            raise RequestRefused(400, said, code="unsupported_tool")


def _namespaces(sent: Sequence[_Tool]) -> dict[str, tuple[str, str]]:
    spaces = [
        (tool.name, inner.name)
        for tool in sent
        if tool.type == "namespace"
        for inner in tool.tools or []
    ]
    return {joint_name(space, name): (space, name) for space, name in spaces}


def joint_name(space: str, name: str) -> str:
    """The one name under which an agent is offered a tool of a namespace."""
    joined = f"{space}__{name}" if space else name
    if not space or len(joined) <= LONGEST_NAME:
        return joined
    mark = hashlib.sha256(joined.encode("utf-8", "replace")).hexdigest()[:8]
    return f"{joined[: LONGEST_NAME - 9]}_{mark}"


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
                call = _parse_call(item)
                tools[call.id] = call.tool
                _add(messages, call)
            case "function_call_output" | "custom_tool_call_output":
                beside = ClientMedia(number)
                text, tool = _plain(item.output, beside), tools.get(item.call_id, "")
                messages.append(
                    FromTool(call=item.call_id, tool=tool, text=text, media=tuple(beside.taken))
                )
            case "item_reference":
                raise RequestRefused(
                    400,
                    f"input.{number}: nothing is stored, send the item",
                    code="unsupported_value",
                )
            case "compaction":
                messages.append(FromUser(text=COMPACTED))
            case unsaid if unsaid in IGNORED_ITEMS:
                continue
            case other:
                raise RequestRefused(
                    400, f"input.{number}: {other} is not offered", code="unsupported_value"
                )
    return system, tuple(messages)


def _say(item: _Item, number: int, system: list[str], messages: list[Message]) -> None:
    beside = ClientMedia(number)
    text = _said(item.content, number, beside)
    match item.role:
        case "system" | "developer" if not messages:
            system.append(text)
        case "system" | "developer" | "user":
            messages.append(FromUser(text=text, media=tuple(beside.taken)))
        case "assistant":
            messages.append(FromAgent(agent="", text=text))
        case _:
            raise no_role(f"input.{number}", item.role)


def _said(content: str | list[_Part] | None, number: int, beside: ClientMedia) -> str:
    if not isinstance(content, list):
        return content or ""
    words = [_words(part, beside) for part in content]
    if None in words:
        unknown = content[words.index(None)].type
        raise RequestRefused(
            400, f"input.{number}: {unknown} is not offered", code="unsupported_content"
        )
    return "".join(filter(None, words))


def _words(part: _Part, beside: ClientMedia) -> str | None:
    """The words of a part, what stands beside them goes to `beside`; None for a part that is not
    known.
    """
    if part.type in ("input_text", "output_text", "text", "refusal"):
        return part.text or part.refusal
    if part.type == "input_image":
        return beside.add_url(part.image_url or "")
    if part.type == "input_file":
        return beside.add_url(part.file_data or "", part.filename or "")
    return None


def _parse_call(item: _Item) -> Call:
    if item.type == "custom_tool_call":
        text = item.input if isinstance(item.input, str) else json.dumps(item.input)
        return Call.make(item.call_id, joint_name(item.namespace, item.name), input=text)
    return Call(
        id=item.call_id,
        tool=joint_name(item.namespace, item.name),
        arguments=item.arguments or "{}",
    )


def _add(messages: list[Message], call: Call) -> None:
    last = messages[-1] if messages else None
    if isinstance(last, FromAgent):
        messages[-1] = last.model_copy(update={"calls": (*last.calls, call)})
    else:
        messages.append(FromAgent(agent="", calls=(call,)))


def _plain(output: JsonValue | list[_Part], beside: ClientMedia) -> str:
    """A result: text, or parts of which the text is kept, and pictures."""
    if isinstance(output, list):
        parts = [(part, _words(part, beside)) for part in output if isinstance(part, _Part)]
        return "\n".join(
            NOT_SHOWN.format(kind=part.type) if words is None else words for part, words in parts
        )
    return output if isinstance(output, str) else json.dumps(output)


def _tool(tool: _Tool) -> ToolSpec:
    if tool.type == "custom":
        grammar = tool.format.get("definition") if tool.format else None
        told = tool.description or ""
        if grammar:
            told += f"\n\nIts `input` follows this grammar:\n{grammar}"
        return ToolSpec(name=tool.name, description=told, parameters=FREEFORM, body="input")
    return function_tool(tool.name, tool.description, tool.parameters)


def freeform_text(call: Call) -> str:
    """What a custom tool gets: the text of the call, or all of it where a model wrote no JSON."""
    given = arguments_object(call.arguments) or {}
    text = given.get("input")
    return text if isinstance(text, str) else call.arguments


CODES = {429: "rate_limit_exceeded", 402: "insufficient_quota", 503: "server_is_overloaded"}
"""`error.code` of a failed response, as Codex CLI tells them apart."""


def whole(head: AnswerHead, answer: ServedAnswer, asking: ClientRequest) -> Json:
    """The answer as one object."""
    said: list[JsonValue] = (
        [_thought(f"{head.id}-reasoning", answer.reasoning)] if answer.reasoning else []
    )
    said += [_message(f"{head.id}-message", answer.text, "completed")] if answer.text else []
    said += [_call_item(head, number, call, asking) for number, call in enumerate(answer.calls)]
    return _response(head, asking, answer, said)


class ResponsesStream:
    """The events of one answer: items are opened, filled and closed one after the other."""

    events_for = frozenset({TOO_LONG})

    def __init__(self, head: AnswerHead, asking: ClientRequest) -> None:
        self._head = head
        self._asking = asking
        self._number = 0
        self._items: list[JsonValue] = []
        self._open: Literal["", "message", "reasoning"] = ""
        self._text: list[str] = []
        """What the open item says so far."""
        self._begun: set[str] = set()
        """Kinds of items that were streamed."""

    def begin(self) -> bytes:
        started: Json = {"response": _response(self._head, self._asking, None, [])}
        return self._event("response.created", started) + self._event(
            "response.in_progress", started
        )

    def piece(self, text: str) -> bytes:
        opened = b"" if self._open == "message" else self._start("message")
        self._text.append(text)
        return opened + self._event(
            "response.output_text.delta", {**self._place(), "delta": text, "logprobs": []}
        )

    def thought(self, text: str) -> bytes:
        opened = b"" if self._open == "reasoning" else self._start("reasoning")
        self._text.append(text)
        return opened + self._event(
            f"response.{SUMMARY}_text.delta", {**self._place(), "delta": text}
        )

    def end(self, answer: ServedAnswer) -> bytes:
        unsaid = {"reasoning", "message"} - self._begun
        last = self.thought(answer.reasoning) if answer.reasoning and "reasoning" in unsaid else b""
        last += self.piece(answer.text) if answer.text and "message" in unsaid else b""
        last += self._close()
        for call in answer.calls:
            last += self._say_call(call)
        done = _response(self._head, self._asking, answer, self._items)
        name = "response.incomplete" if done["status"] == "incomplete" else "response.completed"
        return last + self._event(name, {"response": done})

    def fail(self, refused: RequestRefused) -> bytes:
        failed = _response(self._head, self._asking, None, self._items)
        code = (
            refused.code if refused.code == TOO_LONG else CODES.get(refused.status, "server_error")
        )
        error: Json = {"code": code, "message": str(refused)}
        return self._event(
            "response.failed", {"response": {**failed, "status": "failed", "error": error}}
        )

    def idle(self) -> bytes:
        return b": waiting\n\n"

    def _start(self, kind: Literal["message", "reasoning"]) -> bytes:
        closed, self._open = self._close(), kind
        self._begun.add(kind)
        item, part = _item(self._place(), "", "in_progress")
        item["content" if kind == "message" else "summary"] = []
        name = "content_part" if kind == "message" else f"{SUMMARY}_part"
        added = self._event(
            "response.output_item.added", {"output_index": len(self._items), "item": item}
        )
        return (
            closed + added + self._event(f"response.{name}.added", {**self._place(), "part": part})
        )

    def _close(self) -> bytes:
        if not self._open:
            return b""
        place, text = self._place(), "".join(self._text)
        item, part = _item(place, text, "completed")
        names = (
            ("output_text", "content_part")
            if self._open == "message"
            else (f"{SUMMARY}_text", f"{SUMMARY}_part")
        )
        more: Json = {"logprobs": []} if self._open == "message" else {}
        self._items.append(item)
        self._open, self._text = "", []
        return (
            self._event(f"response.{names[0]}.done", {**place, "text": text, **more})
            + self._event(f"response.{names[1]}.done", {**place, "part": part})
            + self._event(
                "response.output_item.done", {"output_index": place["output_index"], "item": item}
            )
        )

    def _place(self) -> Json:
        part = "content_index" if self._open == "message" else "summary_index"
        index = len(self._items)
        return {"item_id": f"{self._head.id}-{self._open}-{index}", "output_index": index, part: 0}

    def _say_call(self, call: Call) -> bytes:
        index = len(self._items)
        item = _call_item(self._head, index, call, self._asking)
        self._items.append(item)
        key = "input" if item["type"] == "custom_tool_call" else "arguments"
        kind = "custom_tool_call_input" if key == "input" else "function_call_arguments"
        place: Json = {"item_id": item["id"], "output_index": index}
        empty: Json = {**item, key: "", "status": "in_progress"}
        return (
            self._event("response.output_item.added", {"output_index": index, "item": empty})
            + self._event(f"response.{kind}.delta", {**place, "delta": item[key]})
            + self._event(f"response.{kind}.done", {**place, key: item[key], "name": item["name"]})
            + self._event("response.output_item.done", {"output_index": index, "item": item})
        )

    def _event(self, name: str, fields: Json) -> bytes:
        self._number += 1
        return sse_event({"type": name, "sequence_number": self._number - 1, **fields}, name)


def _item(place: Json, text: str, status: str) -> tuple[Json, JsonValue]:
    """An item as far as it is said, and its one part."""
    id = str(place["item_id"])
    if "content_index" in place:
        return _message(id, text, status), _part(text)
    return _thought(id, text), _summary(text)


def _response(
    head: AnswerHead, asking: ClientRequest, answer: ServedAnswer | None, items: list[JsonValue]
) -> Json:
    cut = answer is not None and answer.stop in ("length", "refusal")
    why = (
        None
        if answer is None or not cut
        else "max_output_tokens"
        if answer.stop == "length"
        else "content_filter"
    )
    done: Json = {
        "id": head.id,
        "object": "response",
        "created_at": head.created,
        "status": "in_progress" if answer is None else "incomplete" if cut else "completed",
        "error": None,
        "incomplete_details": {"reason": why} if why else None,
        "model": head.model,
        "output": [*items],
        "usage": None,
        **asking.repeated,
    }
    if answer is None:
        return done
    return {
        **done,
        "usage": openai_usage(answer, "input", "output"),
        "fugu": answer_details(head, answer, asking),
    }


def _message(id: str, text: str, status: str) -> Json:
    return {
        "id": id,
        "type": "message",
        "role": "assistant",
        "status": status,
        "content": [_part(text)],
    }


def _thought(id: str, text: str) -> Json:
    return {"id": id, "type": "reasoning", "summary": [_summary(text)]}


def _summary(text: str) -> Json:
    return {"type": "summary_text", "text": text}


def _part(text: str) -> Json:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _call_item(head: AnswerHead, number: int, call: Call, asking: ClientRequest) -> Json:
    space, name = asking.namespaces.get(call.tool, ("", call.tool))
    item: Json = {
        "id": f"{head.id}-{number}",
        "call_id": call.id,
        "name": name,
        "status": "completed",
    }
    item |= {"namespace": space} if space else {}
    if call.tool in asking.freeform:
        return {**item, "type": "custom_tool_call", "input": freeform_text(call)}
    return {**item, "type": "function_call", "arguments": call.arguments}


RESPONSES = Wire(parse, whole, ResponsesStream, openai_error)
"""`POST /v1/responses`."""
