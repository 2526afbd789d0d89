"""The Responses wire, as Codex CLI and the SDK speak it: parses requests, and encodes answers as
one object or as numbered events.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from pydantic import JsonValue

from fugu_cli.messages import Call, Effort, FromAgent, FromTool, FromUser, Message, ToolSpec
from fugu_cli.providers.history import arguments_object
from fugu_cli.server import client_requests, client_tools
from fugu_cli.server.chat_api import allowed_tools, openai_error, tool_choice
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
    RequestFields,
    RequestRefused,
    RequestSampling,
    ServedAnswer,
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
from fugu_cli.server.messages_api import NOT_SHOWN

FREEFORM = json.dumps(
    {
        "type": "object",
        "properties": {"input": {"type": "string"}},
        "required": ["input"],
        "additionalProperties": False,
    }
)
"""Parameters of the function that stands for a custom tool."""

IGNORED_ITEMS = frozenset({"reasoning", "web_search_call", "image_generation_call"})
"""Items that agents of another provider cannot read."""
CALL_ITEMS = frozenset({"function_call", "custom_tool_call", *client_tools.RESPONSES_CALLS})
OUTPUT_ITEMS = frozenset(
    {"function_call_output", "custom_tool_call_output", *client_tools.RESPONSES_OUTPUTS}
)
COMPACTED = "[What was said before this is kept in a form that only its provider can read.]"
SUMMARY = "reasoning_summary"
LONGEST_NAME = 64
"""Characters of a tool name that every provider accepts."""


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
    id: str | None = None
    status: str | None = None
    action: JsonValue = None
    operation: JsonValue = None
    tools: ItemList[_Tool] | None = None


class _Tool(LenientModel, extra="allow"):
    type: str
    name: str = ""
    description: str | None = None
    parameters: Json | None = None
    format: Json | None = None
    environment: JsonValue = None
    tools: ItemList[_Tool] | None = None


class _Reasoning(RequestFields):
    effort: Effort | None = None


class _Text(RequestFields):
    format: ReplyForm | None = None


class _Body(RequestFields):
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
    background: bool | None = None
    metadata: Json | None = None
    reasoning: _Reasoning | None = None


def parse(body: bytes, headers: Mapping[str, str]) -> ClientRequest:
    """Parse the request in `body`. Raises RequestRefused."""
    payload = parse_body(_Body, body)
    if payload.background:
        raise RequestRefused(
            400, "background: answers are given at once or streamed", code="unsupported_value"
        )
    items = payload.input
    if isinstance(items, str):
        items = [_Item(role="user", content=items)]
    sent_tools = [*(payload.tools or [])]
    for item in items:
        if item.type == "additional_tools":
            sent_tools += item.tools or []
    system, messages = _parse_items(items)
    if not messages:
        raise RequestRefused(400, "input: at least one message is needed", code="invalid_body")
    tools = list(_client_tools(sent_tools))
    hosted = [tool.type for tool in sent_tools if client_tools.is_hosted(tool.type)]
    form = (payload.text and payload.text.format) or ReplyForm()
    return ClientRequest(
        model=payload.model,
        system=join_text([payload.instructions or "", *system]),
        messages=messages,
        tools=allowed_tools(payload.tool_choice, [_parse_tool(tool) for tool in tools]),
        sampling=RequestSampling(
            max_tokens=token_limit(
                "max_output_tokens", payload.max_output_tokens, DEFAULT_MAX_TOKENS
            ),
            temperature=payload.temperature,
            choice=tool_choice(payload.tool_choice, [tool.name for tool in tools]),
            reply_schema=reply_schema(form.type, form.schema_, "text.format.schema"),
            single=payload.parallel_tool_calls is False,
            effort=(payload.reasoning and payload.reasoning.effort) or "",
        ),
        repeated={
            "instructions": payload.instructions,
            "max_output_tokens": payload.max_output_tokens,
            "metadata": payload.metadata or {},
            "parallel_tool_calls": payload.parallel_tool_calls is not False,
            "temperature": payload.temperature,
            "tool_choice": payload.tool_choice or "auto",
            "tools": [tool.model_dump(exclude_unset=True) for tool in payload.tools or []],
        },
        options=client_requests.read_options(headers, payload.metadata or {}),
        stream=bool(payload.stream),
        freeform=frozenset(tool.name for tool in tools if tool.type == "custom"),
        namespaces=_namespaces(sent_tools),
        client_tools={
            tool.name: tool.type for tool in tools if tool.type in client_tools.RESPONSES_TOOLS
        },
        left_out=(*unread_fields(payload), *hosted),
        reasoning=payload.reasoning is not None,
    )


def _client_tools(tools: Sequence[_Tool]) -> Iterator[_Tool]:
    """Yield the tools that the client runs, with the tools of a namespace under joint names.

    Raises RequestRefused for other types.
    """
    for tool in tools:
        if client_tools.runs_at_provider(tool.type, tool.environment):
            raise RequestRefused(
                400,
                f"tools: {tool.type} is offered with the environment local alone, which the client "
                f"runs",
                code="unsupported_tool",
            )
        if tool.type in ("function", "custom"):
            yield tool
        elif tool.type in client_tools.RESPONSES_TOOLS:
            yield tool.model_copy(update={"name": tool.type})
        elif tool.type == "namespace":
            for inner in _client_tools(tool.tools or []):
                yield inner.model_copy(update={"name": joint_name(tool.name, inner.name)})
        elif not client_tools.is_hosted(tool.type):
            known = ", ".join(client_tools.RESPONSES_TOOLS)
            message = (
                f"tools: {tool.type} is not offered, only functions, custom tools, namespaces of "
                f"them, and tools that the client runs itself: {known}"
            )
            raise RequestRefused(400, message, code="unsupported_tool")


def _namespaces(tools: Sequence[_Tool]) -> dict[str, tuple[str, str]]:
    namespaces: dict[str, tuple[str, str]] = {}
    for tool in tools:
        if tool.type == "namespace":
            for inner in tool.tools or []:
                namespaces[joint_name(tool.name, inner.name)] = (tool.name, inner.name)
    return namespaces


def joint_name(namespace: str, name: str) -> str:
    """Return the single name under which agents see a tool of a namespace."""
    if not namespace:
        return name
    joined = f"{namespace}__{name}"
    if len(joined) <= LONGEST_NAME:
        return joined
    digest = hashlib.sha256(joined.encode("utf-8", "replace")).hexdigest()[:8]
    return f"{joined[: LONGEST_NAME - 9]}_{digest}"


def _parse_items(items: Sequence[_Item]) -> tuple[list[str], tuple[Message, ...]]:
    """Return the leading instructions, and the other messages. Consecutive calls become one reply."""
    system: list[str] = []
    messages: list[Message] = []
    calls: dict[str, Call] = {}
    """Calls by their id and, since outputs of `local_shell` may name it, by that of their item."""
    for number, item in enumerate(items):
        match item.type:
            case "message":
                _add_message(item, number, system, messages)
            case item_type if item_type in CALL_ITEMS:
                call = _parse_call(item)
                calls[item.id or call.id] = call
                calls[call.id] = call
                last = messages[-1] if messages else None
                if isinstance(last, FromAgent):
                    messages[-1] = last.model_copy(update={"calls": (*last.calls, call)})
                else:
                    messages.append(FromAgent(agent="", calls=(call,)))
            case item_type if item_type in OUTPUT_ITEMS:
                media = ClientMedia(number)
                text = _output_text(item.output, media)
                call_id = item.call_id or item.id or ""
                output_of = calls.get(call_id, Call(id=call_id, tool=""))
                result = FromTool(
                    call=output_of.id,
                    tool=output_of.tool,
                    text=text,
                    ok=item.status != "failed",
                    media=tuple(media.accepted),
                )
                messages.append(result)
            case "additional_tools":
                continue  # read with the tools of the request
            case "item_reference":
                raise RequestRefused(
                    400,
                    f"input.{number}: nothing is stored, send the item",
                    code="unsupported_value",
                )
            case "compaction":
                messages.append(FromUser(text=COMPACTED))
            case ignored if ignored in IGNORED_ITEMS:
                continue
            case unknown:
                raise RequestRefused(
                    400, f"input.{number}: {unknown} is not offered", code="unsupported_value"
                )
    return system, tuple(messages)


def _add_message(item: _Item, number: int, system: list[str], messages: list[Message]) -> None:
    media = ClientMedia(number)
    text = _message_text(item.content, number, media)
    match item.role:
        case "system" | "developer" if not messages:
            system.append(text)
        case "system" | "developer" | "user":
            messages.append(FromUser(text=text, media=tuple(media.accepted)))
        case "assistant":
            messages.append(FromAgent(agent="", text=text))
        case _:
            raise unknown_role(f"input.{number}", item.role)


def _message_text(content: str | list[_Part] | None, number: int, media: ClientMedia) -> str:
    if not isinstance(content, list):
        return content or ""
    texts: list[str] = []
    for part in content:
        text = _part_text(part, media)
        if text is None:
            raise RequestRefused(
                400, f"input.{number}: {part.type} is not offered", code="unsupported_content"
            )
        texts.append(text)
    return "".join(texts)


def _part_text(part: _Part, media: ClientMedia) -> str | None:
    """Return the text of a part, None for an unknown part; a picture or file goes to `media`."""
    if part.type in ("input_text", "output_text", "text", "refusal"):
        return part.text or part.refusal
    if part.type == "input_image":
        return media.add_url(part.image_url or "")
    if part.type == "input_file":
        return media.add_url(part.file_data or "", part.filename or "")
    return None


def _parse_call(item: _Item) -> Call:
    if item.type == "custom_tool_call":
        text = item.input if isinstance(item.input, str) else json.dumps(item.input)
        return Call.make(item.call_id, joint_name(item.namespace, item.name), input=text)
    if item.type in client_tools.RESPONSES_CALLS:
        return Call(
            id=item.call_id or item.id or "",
            tool=client_tools.RESPONSES_CALLS[item.type],
            arguments=client_tools.decode_arguments(item.action, item.operation),
        )
    return Call(
        id=item.call_id,
        tool=joint_name(item.namespace, item.name),
        arguments=item.arguments or "{}",
    )


def _output_text(output: JsonValue | list[_Part], media: ClientMedia) -> str:
    if isinstance(output, str):
        return output
    if not isinstance(output, list):
        return json.dumps(output)
    texts: list[str] = []
    for part in output:
        if isinstance(part, _Part):
            text = _part_text(part, media)
            texts.append(NOT_SHOWN.format(kind=part.type) if text is None else text)
        else:
            texts.append(client_tools.command_output_text(part))
    return "\n".join(texts)


def _parse_tool(tool: _Tool) -> ToolSpec:
    if tool.type in client_tools.RESPONSES_TOOLS:
        return client_tools.RESPONSES_TOOLS[tool.type]
    if tool.type == "custom":
        grammar = tool.format.get("definition") if tool.format else None
        description = tool.description or ""
        if grammar:
            description += f"\n\nIts `input` follows this grammar:\n{grammar}"
        return ToolSpec(name=tool.name, description=description, parameters=FREEFORM, body="input")
    return function_tool(tool.name, tool.description, tool.parameters)


def freeform_text(call: Call) -> str:
    """Return the text for a custom tool: the call's `input`, or all of a call that is not JSON."""
    arguments = arguments_object(call.arguments) or {}
    text = arguments.get("input")
    return text if isinstance(text, str) else call.arguments


ERROR_CODES = {429: "rate_limit_exceeded", 402: "insufficient_quota", 503: "server_is_overloaded"}
"""The `error.code` of a failed response by HTTP status, as Codex CLI distinguishes them."""


def encode(head: AnswerHead, answer: ServedAnswer, client_request: ClientRequest) -> Json:
    """Return the answer as one object."""
    items: list[JsonValue] = []
    if answer.reasoning:
        items.append(_reasoning_item(f"{head.id}-reasoning", answer.reasoning))
    if answer.text:
        items.append(_message_item(f"{head.id}-message", answer.text, "completed"))
    for number, call in enumerate(answer.calls):
        items.append(_call_item(head, number, call, client_request))
    return _response(head, client_request, answer, items)


class ResponsesStream:
    """Encodes one answer as events: items are opened, filled and closed one after the other."""

    events_for = frozenset({TOO_LONG})

    def __init__(self, head: AnswerHead, client_request: ClientRequest) -> None:
        self._head = head
        self._client_request = client_request
        self._sequence_number = 0
        self._items: list[JsonValue] = []
        """Items that are closed."""
        self._open_item: Literal["", "message", "reasoning"] = ""
        self._open_text: list[str] = []
        self._streamed: set[str] = set()
        """Types of the items that were opened."""

    def begin(self) -> bytes:
        fields: Json = {"response": _response(self._head, self._client_request, None, [])}
        created = self._event("response.created", fields)
        return created + self._event("response.in_progress", fields)

    def text_delta(self, text: str) -> bytes:
        data = b"" if self._open_item == "message" else self._start("message")
        self._open_text.append(text)
        fields: Json = {**self._position(), "delta": text, "logprobs": []}
        return data + self._event("response.output_text.delta", fields)

    def reasoning_delta(self, text: str) -> bytes:
        data = b"" if self._open_item == "reasoning" else self._start("reasoning")
        self._open_text.append(text)
        fields: Json = {**self._position(), "delta": text}
        return data + self._event(f"response.{SUMMARY}_text.delta", fields)

    def finish(self, answer: ServedAnswer) -> bytes:
        data = b""
        if answer.reasoning and "reasoning" not in self._streamed:
            data += self.reasoning_delta(answer.reasoning)
        if answer.text and "message" not in self._streamed:
            data += self.text_delta(answer.text)
        data += self._close()
        for call in answer.calls:
            data += self._call(call)
        response = _response(self._head, self._client_request, answer, self._items)
        incomplete = response["status"] == "incomplete"
        name = "response.incomplete" if incomplete else "response.completed"
        return data + self._event(name, {"response": response})

    def fail(self, refusal: RequestRefused) -> bytes:
        code = ERROR_CODES.get(refusal.status, "server_error")
        if refusal.code == TOO_LONG:
            code = TOO_LONG
        response: Json = {
            **_response(self._head, self._client_request, None, self._items),
            "status": "failed",
            "error": {"code": code, "message": str(refusal)},
        }
        return self._event("response.failed", {"response": response})

    def keep_alive(self) -> bytes:
        return b": waiting\n\n"

    def _start(self, item_type: Literal["message", "reasoning"]) -> bytes:
        data = self._close()
        self._open_item = item_type
        self._streamed.add(item_type)
        item, part = self._item_and_part("", "in_progress")
        if item_type == "message":
            item["content"] = []
            part_name = "content_part"
        else:
            item["summary"] = []
            part_name = f"{SUMMARY}_part"
        output_index = len(self._items)
        data += self._event(
            "response.output_item.added", {"output_index": output_index, "item": item}
        )
        return data + self._event(f"response.{part_name}.added", {**self._position(), "part": part})

    def _close(self) -> bytes:
        if not self._open_item:
            return b""
        position = self._position()
        text = "".join(self._open_text)
        item, part = self._item_and_part(text, "completed")
        text_fields: Json = {**position, "text": text}
        if self._open_item == "message":
            text_name, part_name = "output_text", "content_part"
            text_fields["logprobs"] = []
        else:
            text_name, part_name = f"{SUMMARY}_text", f"{SUMMARY}_part"
        output_index = len(self._items)
        self._items.append(item)
        self._open_item = ""
        self._open_text = []
        data = self._event(f"response.{text_name}.done", text_fields)
        data += self._event(f"response.{part_name}.done", {**position, "part": part})
        return data + self._event(
            "response.output_item.done", {"output_index": output_index, "item": item}
        )

    def _position(self) -> Json:
        """Return the fields that tell a client to which part of which item an event belongs."""
        part_index = "content_index" if self._open_item == "message" else "summary_index"
        return {
            "item_id": self._open_item_id(),
            "output_index": len(self._items),
            part_index: 0,
        }

    def _open_item_id(self) -> str:
        return f"{self._head.id}-{self._open_item}-{len(self._items)}"

    def _item_and_part(self, text: str, status: str) -> tuple[Json, JsonValue]:
        """Return the open item with `text`, and its one part."""
        id = self._open_item_id()
        if self._open_item == "message":
            return _message_item(id, text, status), _text_part(text)
        return _reasoning_item(id, text), _summary_part(text)

    def _call(self, call: Call) -> bytes:
        index = len(self._items)
        item = _call_item(self._head, index, call, self._client_request)
        self._items.append(item)
        started: Json = {**item, "status": "in_progress"}
        text_field, event_name = "", ""
        if item["type"] == "function_call":
            text_field, event_name = "arguments", "function_call_arguments"
        elif item["type"] == "custom_tool_call":
            text_field, event_name = "input", "custom_tool_call_input"
        if text_field:
            started[text_field] = ""
        data = self._event("response.output_item.added", {"output_index": index, "item": started})
        if text_field:
            position: Json = {"item_id": item["id"], "output_index": index}
            text = item[text_field]
            data += self._event(f"response.{event_name}.delta", {**position, "delta": text})
            end: Json = {**position, text_field: text, "name": item["name"]}
            data += self._event(f"response.{event_name}.done", end)
        return data + self._event(
            "response.output_item.done", {"output_index": index, "item": item}
        )

    def _event(self, name: str, fields: Json) -> bytes:
        number = self._sequence_number
        self._sequence_number += 1
        return sse_event({"type": name, "sequence_number": number, **fields}, name)


def _response(
    head: AnswerHead,
    client_request: ClientRequest,
    answer: ServedAnswer | None,
    items: list[JsonValue],
) -> Json:
    """Return the response object; `answer` is None while it is not finished."""
    incomplete_reason = None
    if answer is None:
        status = "in_progress"
    elif answer.stop in ("length", "refusal"):
        status = "incomplete"
        incomplete_reason = "max_output_tokens" if answer.stop == "length" else "content_filter"
    else:
        status = "completed"
    response: Json = {
        "id": head.id,
        "object": "response",
        "created_at": head.created,
        "status": status,
        "error": None,
        "incomplete_details": {"reason": incomplete_reason} if incomplete_reason else None,
        "model": head.model,
        "output": [*items],
        "usage": None,
        **client_request.repeated,
    }
    if answer is not None:
        response["usage"] = openai_usage(answer, "input", "output")
        response["fugu"] = answer_details(head, answer, client_request)
    return response


def _message_item(id: str, text: str, status: str) -> Json:
    return {
        "id": id,
        "type": "message",
        "role": "assistant",
        "status": status,
        "content": [_text_part(text)],
    }


def _text_part(text: str) -> Json:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _reasoning_item(id: str, text: str) -> Json:
    return {"id": id, "type": "reasoning", "summary": [_summary_part(text)]}


def _summary_part(text: str) -> Json:
    return {"type": "summary_text", "text": text}


def _call_item(head: AnswerHead, number: int, call: Call, client_request: ClientRequest) -> Json:
    namespace, name = client_request.namespaces.get(call.tool, ("", call.tool))
    item: Json = {"id": f"{head.id}-{number}", "call_id": call.id, "status": "completed"}
    if call.tool in client_request.client_tools:
        return {**item, **client_tools.encode_call(client_request.client_tools[call.tool], call)}
    item["name"] = name
    if namespace:
        item["namespace"] = namespace
    if call.tool in client_request.freeform:
        return {**item, "type": "custom_tool_call", "input": freeform_text(call)}
    return {**item, "type": "function_call", "arguments": call.arguments}


RESPONSES = Wire(parse, encode, ResponsesStream, openai_error)
"""`POST /v1/responses`."""
