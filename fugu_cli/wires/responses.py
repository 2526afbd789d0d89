"""The Responses API in both directions. OpenAI's models reason with tools on this wire alone.

As a client: `encode_request` and `ResponsesDecoder`, which are pure, and `Responses`, which makes
the calls. Nothing is stored at the server: the whole history is sent, with the agent's own sealed
reasoning. As a server, for `fugu serve` (Codex CLI and the SDK): `decode_request`, `encode_reply`
and `ResponsesStream`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Literal

import httpx
from pydantic import JsonValue

from fugu_cli.errors import AgentError
from fugu_cli.messages import (
    Call,
    Effort,
    FromAgent,
    FromTool,
    FromUser,
    Message,
    Prompt,
    Reply,
    Thinking,
    TokenCount,
    ToolSpec,
    Usage,
)
from fugu_cli.providers import Say, error_mapping, server_quirks
from fugu_cli.providers.endpoint import ModelEndpoint
from fugu_cli.providers.history import (
    arguments_object,
    call_id,
    join_surrogates,
    normalized,
    with_media_behind_results,
)
from fugu_cli.providers.http_client import Json
from fugu_cli.providers.reasoning import POSITION, in_order, loop_replies, position
from fugu_cli.providers.reply_decoder import ReplyDecoder, WireModel
from fugu_cli.providers.server_quirks import ServerQuirks, Stop, StopSequences
from fugu_cli.providers.wire_agent import WireAgent
from fugu_cli.system.bounded_json import parse_json
from fugu_cli.wires import client_requests, client_tools
from fugu_cli.wires.client_requests import (
    DEFAULT_MAX_TOKENS,
    NOT_SHOWN,
    TOO_LONG,
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
    Wire,
    answer_details,
    function_tool,
    join_text,
    openai_error,
    openai_usage,
    parse_body,
    reply_schema,
    sse_event,
    token_limit,
    unknown_part,
    unknown_role,
    unread_fields,
)
from fugu_cli.wires.client_tools import allowed_tools, decode_tool_choice

END_EVENTS = (
    "response.completed",
    "response.incomplete",
    "response.failed",
    "response.cancelled",
    "response.done",
)


class _InputDetails(WireModel):
    cached_tokens: TokenCount = None
    cache_write_tokens: TokenCount = None


class _OutputDetails(WireModel):
    reasoning_tokens: TokenCount = None


class _Usage(WireModel):
    input_tokens: TokenCount = None
    output_tokens: TokenCount = None
    input_tokens_details: _InputDetails | None = None
    output_tokens_details: _OutputDetails | None = None

    def neutral(self, *, writing_costs: bool) -> Usage:
        input = self.input_tokens_details or _InputDetails()
        output = self.output_tokens_details or _OutputDetails()
        return Usage(
            input=self.input_tokens or 0,
            cached=input.cached_tokens or 0,
            written=(writing_costs and input.cache_write_tokens) or 0,
            output=self.output_tokens or 0,
            reasoning=output.reasoning_tokens or 0,
        )


class _IncompleteDetails(WireModel):
    reason: str | None = None


class _Response(WireModel):
    """The response object. `output` stays as it came, since reasoning items go back unchanged."""

    id: str | None = None
    model: str | None = None
    status: str | None = None
    output: list[dict[str, JsonValue]] | None = None
    usage: _Usage | None = None
    error: JsonValue = None
    incomplete_details: _IncompleteDetails | None = None


class _Event(WireModel):
    type: str = ""
    object: str | None = None
    response: _Response | None = None
    item: dict[str, JsonValue] | None = None
    output_index: int = 0
    delta: JsonValue = None
    error: JsonValue = None


class ResponsesDecoder(ReplyDecoder):
    api = 'the Responses API, or say `api = "chat"`'
    whole = "response"

    def __init__(self, endpoint: ModelEndpoint, new_id: Callable[[int], str]) -> None:
        super().__init__(endpoint)
        self._new_id = new_id
        self._items: dict[int, dict[str, JsonValue]] = {}
        self._texts: dict[int, list[str]] = {}
        self._last = _Response()
        self._received_bytes = 0

    @property
    def received_bytes(self) -> int:
        return self._received_bytes

    @property
    def phased(self) -> bool:
        """True if the server marks messages as commentary or answer (OpenAI's models from gpt-5.4
        on).
        """
        return any(isinstance(item.get("phase"), str) for item in self._items.values())

    def reply(self) -> Reply:
        if not self.finished:
            raise self._cut_stream()
        text, refused = "", False
        calls: list[Call] = []
        thinking: list[Thinking] = []
        for index in sorted(self._items.keys() | self._texts.keys()):
            item = self._items.get(index, {})
            match item.get("type", "message"):
                case "message":
                    message, is_refusal = self._message_text(index, item)
                    text += message
                    refused = refused or is_refusal
                case "function_call" | "custom_tool_call":
                    calls.append(self._call(item, calls))
                case "reasoning":
                    thinking.append(_reasoning_block(item, len(text), len(calls)))
        return Reply(
            text=text,
            thinking=tuple(block for block in thinking if block.text or block.data),
            calls=tuple(calls),
            usage=self.used,
            model=self._last.model or self._endpoint.model,
            stop=self._stop_reason(refused=refused, has_calls=bool(calls)),
            response_id=self._last.id or "",
        )

    def _stop_reason(self, *, refused: bool, has_calls: bool) -> Stop:
        details = self._last.incomplete_details
        reason = details.reason if details else None
        if refused or reason == "content_filter":
            return "refusal"
        if reason or self._last.status == "incomplete":
            return "length"
        return "calls" if has_calls else "end"

    def _decode(self, parsed: object, event_name: str) -> str:
        event = _Event.model_validate(parsed)
        is_whole = event.object == "response"
        if event.type == "error" or event_name == "error" or (event.error and not is_whole):
            raise error_mapping.error_in_stream(self._endpoint, _without_event_type(parsed))
        if is_whole:
            return self._add_response(_Response.model_validate(parsed))
        if event.type.endswith(".delta") and isinstance(event.delta, str):
            self._received_bytes += len(event.delta.encode("utf-8", "replace"))
        match event.type:
            case "response.output_item.added" | "response.output_item.done" if (
                event.item is not None
            ):
                # Reasoning is opened at once, and may take minutes before its first token.
                self._begun = self._begun or event.item.get("type") != "reasoning"
                self._items[event.output_index] = event.item
                self._limits.add(*map(str, event.item.values()))
                self._limits.parts(len(self._items))
            case "response.output_text.delta" | "response.refusal.delta" if isinstance(
                event.delta, str
            ):
                self._begun = True
                self._texts.setdefault(event.output_index, []).append(event.delta)
                self._limits.add(event.delta)
                self._limits.parts(len(self._texts))
                return event.delta
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                self.thought = event.delta if isinstance(event.delta, str) else ""
            case _ if event.type in END_EVENTS and event.response is not None:
                return self._add_response(event.response)
            case "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta":
                self._begun = True
        return ""  # the lifecycle, and whatever is added to this protocol later

    def _add_response(self, response: _Response) -> str:
        """Take the final response. Its items replace the streamed ones, unless it has none."""
        self._last, self.finished = response, True
        if response.usage is not None:
            writing_costs = server_quirks.bills_cache_writes(self._endpoint)
            self.used = response.usage.neutral(writing_costs=writing_costs)
        if response.error or response.status in ("failed", "cancelled"):
            error = response.error or {"message": f"the response {response.status}"}
            raise error_mapping.error_in_stream(self._endpoint, error)
        if not response.output:
            return ""
        text_was_streamed = bool(self._texts)
        self._items, self._texts = dict(enumerate(response.output)), {}
        if text_was_streamed:
            return ""
        return "".join(self._message_text(index, item)[0] for index, item in self._items.items())

    def _message_text(self, index: int, item: dict[str, JsonValue]) -> tuple[str, bool]:
        """Return the text of a message item, and whether it is a refusal."""
        if item.get("type", "message") != "message":
            return "", False
        content = item.get("content")
        text, refused = "", False
        for part in content if isinstance(content, list) else []:
            if isinstance(part, dict):
                text += str(part.get("text") or part.get("refusal") or "")
                refused = refused or part.get("type") == "refusal"
        return join_surrogates(text or "".join(self._texts.get(index, []))), refused

    def _call(self, item: dict[str, JsonValue], earlier: list[Call]) -> Call:
        id = item.get("call_id") or item.get("id")
        if not isinstance(id, str) or any(id == call.id for call in earlier):
            id = self._new_id(len(earlier))
        arguments = item.get("arguments")
        if item.get("type") == "custom_tool_call":  # its input is one text without a schema
            text = json.dumps({"input": str(item.get("input") or "")}, ensure_ascii=False)
        elif arguments is None:
            text = "{}"
        elif isinstance(arguments, str):
            text = arguments if arguments.strip() else "{}"
        else:
            text = json.dumps(arguments, ensure_ascii=False)
        tool = str(item.get("name") or "")
        return Call(id=id, tool=join_surrogates(tool), arguments=join_surrogates(text))


def _without_event_type(parsed: object) -> object:
    """Return an error event without its type "error", which would be read as the kind of error."""
    if isinstance(parsed, dict) and not parsed.get("error"):
        return {name: value for name, value in parsed.items() if name != "type"}
    return parsed


def _reasoning_block(
    item: dict[str, JsonValue], characters_before: int, calls_before: int
) -> Thinking:
    """Return the summary and text of a reasoning item; one that is sealed, or has its whole text, is
    kept to go back.
    """
    texts: list[str] = []
    for parts in (item.get("summary"), item.get("content")):
        for part in parts if isinstance(parts, list) else []:
            if isinstance(part, dict):
                texts.append(str(part.get("text") or ""))
    text = join_surrogates("\n\n".join(texts).strip())
    if not item.get("encrypted_content") and not item.get("content"):
        return Thinking(text=text)
    data = json.dumps({**item, **position(characters_before, calls_before)})
    return Thinking(text=text, data=data)


SHORTEST_REPLY = 16
"""The least limit on reply tokens that the API accepts."""
SEALED = "reasoning.encrypted_content"


def encode_request(
    prompt: Prompt, endpoint: ModelEndpoint, quirks: ServerQuirks, *, phased: bool = False
) -> Json:
    """Return the request body. `phased` says that the server expects messages marked as commentary
    or answer.

    This wire has no seed and no stop sequences.
    """
    history = with_media_behind_results(
        normalized(prompt.messages, endpoint.name if quirks.sealed else "")
    )
    loop = loop_replies(prompt.messages, history) if quirks.thoughts_back else set()
    items: list[Json] = []
    for index, message in enumerate(history):
        items += _items(message, phased, in_loop=index in loop)
    effort = prompt.effort or endpoint.effort
    max_tokens = max(prompt.max_tokens, SHORTEST_REPLY)
    payload: Json = {
        "model": endpoint.model,
        "input": [*items],
        "max_output_tokens": quirks.tokens(max_tokens),
        "stream": True,
        "store": False,
    }
    if prompt.system.strip():
        payload["instructions"] = prompt.system
    if quirks.encrypted:
        payload["include"] = [SEALED]
    if prompt.tools:
        schemas = server_quirks.tool_schemas(prompt.tools, quirks)
        payload["tools"] = [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": schema,
                "strict": False,  # on by default, it would require every argument
            }
            for tool, schema in zip(prompt.tools, schemas, strict=True)
        ]
    if prompt.tools and prompt.tool_choice:
        payload["tool_choice"] = prompt.tool_choice
        if prompt.tool_choice not in ("none", "required"):
            payload["tool_choice"] = {"type": "function", "name": prompt.tool_choice}
    elif prompt.tools and prompt.allowed_tools and quirks.allowed_tools:
        tools: list[JsonValue] = [
            {"type": "function", "name": name} for name in prompt.allowed_tools
        ]
        payload["tool_choice"] = {"type": "allowed_tools", "mode": "auto", "tools": tools}
    if prompt.temperature is not None and quirks.temperature:
        payload["temperature"] = prompt.temperature
    if server_quirks.is_openai(endpoint) and quirks.cache_key:
        payload["prompt_cache_key"] = server_quirks.cache_key(prompt)
    if prompt.metadata and quirks.metadata:
        payload["metadata"] = dict(prompt.metadata)
    if effort and quirks.effort:
        payload["reasoning"] = {"effort": effort}
        if effort != "none" and quirks.summary:
            payload["reasoning"] = {"effort": effort, "summary": "auto"}
    if prompt.reply_schema and quirks.schema != "none":
        reply_format: Json = {"type": "json_object"}
        if quirks.schema != "object":
            schema: JsonValue = parse_json(prompt.reply_schema)
            reply_format = {
                "type": "json_schema",
                "name": "reply",
                "schema": schema,
                "strict": False,
            }
        payload["text"] = {"format": reply_format}
    return payload


def _items(message: Message, phased: bool, *, in_loop: bool) -> list[Json]:
    match message:
        case FromUser():
            return [{"role": "user", "content": _user_content(message)}]
        case FromTool():
            return [
                {"type": "function_call_output", "call_id": message.call, "output": message.text}
            ]
        case FromAgent():
            phase = ""
            if phased:
                phase = "commentary" if message.calls else "final_answer"
            encode_text = partial(_text_items, phase=phase)
            encode_thought = partial(_reasoning_item, in_loop=in_loop)
            items = in_order(message, encode_thought, encode_text, _call_items)
            while items and items[-1].get("type") == "reasoning":
                items.pop()  # the API refuses reasoning that nothing follows
            return items


def _user_content(message: FromUser) -> JsonValue:
    if not message.media:
        return message.text
    parts: list[JsonValue] = []
    if message.text.strip():
        parts.append({"type": "input_text", "text": message.text})
    for item in message.media:
        url = f"data:{item.type};base64,{item.data}"
        if item.is_picture:
            parts.append({"type": "input_image", "image_url": url, "detail": "auto"})
        else:
            parts.append({"type": "input_file", "filename": item.name, "file_data": url})
    return parts


def _reasoning_item(thinking: Thinking, *, in_loop: bool) -> Json | None:
    """Return the provider's own item for some reasoning, None if it must not be sent back: an item
    that is not sealed is sent only inside a tool loop. Its status is left out, because the API
    refuses it.
    """
    fields = arguments_object(thinking.data)
    if not fields or fields.get("type") != "reasoning":
        return None
    if not fields.get("encrypted_content") and not in_loop:
        return None
    item: Json = parse_json(thinking.data)
    return {name: value for name, value in item.items() if name not in (POSITION, "status")}


def _text_items(text: str, phase: str) -> list[Json]:
    if not text.strip():
        return []
    item: Json = {"role": "assistant", "content": text}
    if phase:
        item["phase"] = phase
    return [item]


def _call_items(calls: Sequence[Call]) -> list[Json]:
    return [
        {
            "type": "function_call",
            "call_id": call.id,
            "name": call.tool,
            "arguments": call.arguments,
        }
        for call in calls
    ]


# --- as a server ----------------------------------------------------------------------------------

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


class _SentPart(LenientModel):
    type: str
    text: str = ""
    refusal: str = ""
    image_url: str | None = None
    file_data: str | None = None
    filename: str | None = None


class _SentItem(LenientModel):
    type: str = "message"
    role: str = ""
    content: str | ItemList[_SentPart] | None = None
    call_id: str = ""
    name: str = ""
    arguments: str = ""
    namespace: str = ""
    input: JsonValue = None
    output: str | ItemList[_SentPart] | JsonValue = None
    id: str | None = None
    status: str | None = None
    action: JsonValue = None
    operation: JsonValue = None
    tools: ItemList[_SentTool] | None = None


class _SentTool(LenientModel, extra="allow"):
    type: str
    name: str = ""
    description: str | None = None
    parameters: Json | None = None
    format: Json | None = None
    environment: JsonValue = None
    tools: ItemList[_SentTool] | None = None


class _SentReasoning(RequestFields):
    effort: Effort | None = None


class _SentText(RequestFields):
    format: ReplyForm | None = None


class _Request(RequestFields):
    model: str
    input: str | ItemList[_SentItem]
    instructions: str | None = None
    stream: bool | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    tools: ItemList[_SentTool] | None = None
    tool_choice: JsonValue = None
    parallel_tool_calls: bool | None = None
    text: _SentText | None = None
    background: bool | None = None
    metadata: Json | None = None
    reasoning: _SentReasoning | None = None


def decode_request(body: bytes, headers: Mapping[str, str]) -> ClientRequest:
    """Parse the request in `body`. Raises RequestRefused."""
    payload = parse_body(_Request, body)
    if payload.background:
        raise RequestRefused(
            400, "background: answers are given at once or streamed", code="unsupported_value"
        )
    items = payload.input
    if isinstance(items, str):
        items = [_SentItem(role="user", content=items)]
    sent_tools = [*(payload.tools or [])]
    for item in items:
        if item.type == "additional_tools":
            sent_tools += item.tools or []
    system, messages = _parse_items(items)
    if not messages:
        raise RequestRefused(400, "input: at least one message is needed", code="invalid_body")
    tools = list(_client_tools(sent_tools))
    hosted = [tool.type for tool in sent_tools if client_tools.is_hosted(tool.type)]
    namespaces = {}
    for namespace in sent_tools:
        if namespace.type == "namespace":
            for tool in namespace.tools or []:
                name = joint_name(namespace.name, tool.name)
                namespaces[name] = (namespace.name, tool.name)
    form = (payload.text and payload.text.format) or ReplyForm()
    repeated: Json = {
        "instructions": payload.instructions,
        "max_output_tokens": payload.max_output_tokens,
        "metadata": payload.metadata or {},
        "parallel_tool_calls": payload.parallel_tool_calls is not False,
        "temperature": payload.temperature,
        "tool_choice": payload.tool_choice or "auto",
        "tools": [tool.model_dump(exclude_unset=True) for tool in payload.tools or []],
    }
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
            choice=decode_tool_choice(payload.tool_choice, [tool.name for tool in tools]),
            reply_schema=reply_schema(form.type, form.schema_, "text.format.schema"),
            single=payload.parallel_tool_calls is False,
            effort=(payload.reasoning and payload.reasoning.effort) or "",
        ),
        repeated=repeated,
        options=client_requests.read_options(headers, payload.metadata or {}),
        stream=bool(payload.stream),
        freeform=frozenset(tool.name for tool in tools if tool.type == "custom"),
        namespaces=namespaces,
        client_tools={
            tool.name: tool.type for tool in tools if tool.type in client_tools.RESPONSES_TOOLS
        },
        left_out=(*unread_fields(payload), *hosted),
        reasoning=payload.reasoning is not None,
    )


def _client_tools(tools: Sequence[_SentTool]) -> Iterator[_SentTool]:
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
            offered = ", ".join(client_tools.RESPONSES_TOOLS)
            message = (
                f"tools: {tool.type} is not offered, only functions, custom tools, namespaces of "
                f"them, and tools that the client runs itself: {offered}"
            )
            raise RequestRefused(400, message, code="unsupported_tool")


def joint_name(namespace: str, name: str) -> str:
    """Return the single name under which agents see a tool of a namespace."""
    if not namespace:
        return name
    joined = f"{namespace}__{name}"
    if len(joined) <= LONGEST_NAME:
        return joined
    digest = hashlib.sha256(joined.encode("utf-8", "replace")).hexdigest()[:8]
    return f"{joined[: LONGEST_NAME - 9]}_{digest}"


def _parse_items(items: Sequence[_SentItem]) -> tuple[list[str], tuple[Message, ...]]:
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


def _add_message(item: _SentItem, number: int, system: list[str], messages: list[Message]) -> None:
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


def _message_text(content: str | list[_SentPart] | None, number: int, media: ClientMedia) -> str:
    if not isinstance(content, list):
        return content or ""
    texts: list[str] = []
    for part in content:
        text = _part_text(part, media)
        if text is None:
            raise unknown_part(f"input.{number}", part.type)
        texts.append(text)
    return "".join(texts)


def _part_text(part: _SentPart, media: ClientMedia) -> str | None:
    """Return the text of a part, None for an unknown part; a picture or file goes to `media`."""
    if part.type in ("input_text", "output_text", "text", "refusal"):
        return part.text or part.refusal
    if part.type == "input_image":
        return media.add_url(part.image_url or "")
    if part.type == "input_file":
        return media.add_url(part.file_data or "", part.filename or "")
    return None


def _parse_call(item: _SentItem) -> Call:
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


def _output_text(output: JsonValue | list[_SentPart], media: ClientMedia) -> str:
    if isinstance(output, str):
        return output
    if not isinstance(output, list):
        return json.dumps(output)
    texts: list[str] = []
    for part in output:
        if isinstance(part, _SentPart):
            text = _part_text(part, media)
            texts.append(NOT_SHOWN.format(kind=part.type) if text is None else text)
        else:
            texts.append(client_tools.command_output_text(part))
    return "\n".join(texts)


def _parse_tool(tool: _SentTool) -> ToolSpec:
    if tool.type in client_tools.RESPONSES_TOOLS:
        return client_tools.RESPONSES_TOOLS[tool.type]
    if tool.type == "custom":
        grammar = tool.format.get("definition") if tool.format else None
        description = tool.description or ""
        if grammar:
            description += f"\n\nIts `input` follows this grammar:\n{grammar}"
        return ToolSpec(name=tool.name, description=description, parameters=FREEFORM)
    return function_tool(tool.name, tool.description, tool.parameters)


def freeform_text(call: Call) -> str:
    """Return the text for a custom tool: the call's `input`, or all of a call that is not JSON."""
    arguments = arguments_object(call.arguments) or {}
    text = arguments.get("input")
    return text if isinstance(text, str) else call.arguments


ERROR_CODES = {429: "rate_limit_exceeded", 402: "insufficient_quota", 503: "server_is_overloaded"}
"""The `error.code` of a failed response by HTTP status, as Codex CLI distinguishes them."""


def encode_reply(head: AnswerHead, answer: ServedAnswer, client_request: ClientRequest) -> Json:
    """Return the answer as a JSON object."""
    items: list[JsonValue] = []
    if answer.reasoning:
        items.append(_reasoning_output(f"{head.id}-reasoning", answer.reasoning))
    if answer.text:
        items.append(_message_item(f"{head.id}-message", answer.text, "completed"))
    for number, call in enumerate(answer.calls):
        items.append(_call_item(head, number, call, client_request))
    return _response_object(head, client_request, answer, items)


class ResponsesStream(AnswerStream):
    """Encodes one answer as events: items are opened, filled and closed one after the other."""

    events_for = frozenset({TOO_LONG})

    def __init__(self, head: AnswerHead, client_request: ClientRequest) -> None:
        super().__init__(head, client_request)
        self._sequence_number = 0
        self._items: list[JsonValue] = []
        """Items that are closed."""
        self._open_item: Literal["", "message", "reasoning"] = ""
        self._open_text: list[str] = []

    def begin(self) -> bytes:
        fields: Json = {"response": _response_object(self._head, self._client_request, None, [])}
        created = self._event("response.created", fields)
        return created + self._event("response.in_progress", fields)

    def text_delta(self, text: str) -> bytes:
        self._text_sent = True
        data = b"" if self._open_item == "message" else self._start("message")
        self._open_text.append(text)
        fields: Json = {**self._position(), "delta": text, "logprobs": []}
        return data + self._event("response.output_text.delta", fields)

    def reasoning_delta(self, text: str) -> bytes:
        self._reasoning_sent = True
        data = b"" if self._open_item == "reasoning" else self._start("reasoning")
        self._open_text.append(text)
        fields: Json = {**self._position(), "delta": text}
        return data + self._event(f"response.{SUMMARY}_text.delta", fields)

    def finish(self, answer: ServedAnswer) -> bytes:
        data = self._unsent_text(answer) + self._close()
        for call in answer.calls:
            data += self._call(call)
        response = _response_object(self._head, self._client_request, answer, self._items)
        incomplete = response["status"] == "incomplete"
        name = "response.incomplete" if incomplete else "response.completed"
        return data + self._event(name, {"response": response})

    def fail(self, refusal: RequestRefused) -> bytes:
        code = ERROR_CODES.get(refusal.status, "server_error")
        if refusal.code == TOO_LONG:
            code = TOO_LONG
        response: Json = {
            **_response_object(self._head, self._client_request, None, self._items),
            "status": "failed",
            "error": {"code": code, "message": str(refusal)},
        }
        return self._event("response.failed", {"response": response})

    def _start(self, item_type: Literal["message", "reasoning"]) -> bytes:
        data = self._close()
        self._open_item = item_type
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
        return _reasoning_output(id, text), _summary_part(text)

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


def _response_object(
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


def _reasoning_output(id: str, text: str) -> Json:
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


WIRE = Wire(decode_request, encode_reply, ResponsesStream, openai_error)
"""`POST /v1/responses`."""


# --- the agent ------------------------------------------------------------------------------------


class Responses(WireAgent):
    """An agent behind a Responses server."""

    def __init__(
        self, endpoint: ModelEndpoint, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        super().__init__(endpoint, transport)
        self._phased = False

    async def _once(self, prompt: Prompt, say: Say, quirks: ServerQuirks) -> Reply:
        decoder = ResponsesDecoder(self._endpoint, lambda number: call_id(prompt, number))
        payload = encode_request(prompt, self._endpoint, quirks, phased=self._phased)
        stops = StopSequences(prompt.stop)
        try:
            return await self._exchange("/responses", payload, decoder, stops, say, prompt)
        except AgentError as error:
            if error.kind == "absent":
                error.hint = f'{error.hint} A server without /responses wants `api = "chat"`.'
            raise
        finally:
            self._phased = self._phased or decoder.phased
