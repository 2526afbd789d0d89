"""Chat Completions in both directions: the default wire, which every compatible server speaks.

As a client: `encode_request` and `ChatCompletionsDecoder`, which are pure, and `OpenAI`, which makes
the calls. The decoder is lenient where servers differ (calls sent whole or in pieces, without index
or id; a plain completion instead of a stream), and strict where a reply would be wrong (an error, a
cut stream, no JSON). Parameters that a server refuses are learned from its answer
(`server_quirks.py`). As a server, for `fugu serve`: `decode_request`, `encode_reply` and
`ChatCompletionsStream`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated

from pydantic import BeforeValidator, Field, JsonValue

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
from fugu_cli.providers import Say, error_mapping, reasoning, server_quirks
from fugu_cli.providers.endpoint import ModelEndpoint
from fugu_cli.providers.history import (
    arguments_object,
    call_id,
    join_surrogates,
    normalized,
    with_agent_between,
    with_media_behind_results,
    with_short_ids,
)
from fugu_cli.providers.http_client import Json, ServerEvent
from fugu_cli.providers.reasoning import ThinkTagParser
from fugu_cli.providers.reply_decoder import DONE, ReplyDecoder, WireModel
from fugu_cli.providers.server_quirks import ServerQuirks, StopSequences
from fugu_cli.providers.wire_agent import WireAgent
from fugu_cli.system.bounded_json import parse_json
from fugu_cli.wires import client_requests
from fugu_cli.wires.client_requests import (
    DEFAULT_MAX_TOKENS,
    NOT_SHOWN,
    AnswerHead,
    AnswerStream,
    ClientMedia,
    ClientRequest,
    ItemList,
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


class _Wire(WireModel, coerce_numbers_to_str=True):
    """Data of servers some of which send numbers as ids."""


_Text = Annotated[
    str | None, BeforeValidator(lambda value: value if isinstance(value, str) else None)
]
"""A text; any other value is ignored."""


class _Function(_Wire):
    name: str | None = None
    arguments: JsonValue = None


class _ToolCall(_Wire):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None
    extra_content: JsonValue = None


def _thought_text(value: object) -> str | None:
    """Return the text of a thinking part: Mistral writes it as a list of text parts."""
    if isinstance(value, list):
        texts = [part.get("text") for part in value if isinstance(part, dict)]
        return "".join(text for text in texts if isinstance(text, str))
    return value if isinstance(value, str) else None


class _Part(_Wire):
    text: _Text = None
    thinking: Annotated[str | None, BeforeValidator(_thought_text)] = None


class _Delta(_Wire):
    content: str | list[_Part] | None = None
    reasoning_content: _Text = None
    reasoning: _Text = None
    reasoning_text: _Text = None
    reasoning_details: list[dict[str, JsonValue]] | None = None
    refusal: str | None = None
    tool_calls: list[_ToolCall] | None = None
    function_call: _Function | None = None


class _PromptDetails(_Wire):
    cached_tokens: TokenCount = None
    cache_write_tokens: TokenCount = None


class _OutputDetails(_Wire):
    reasoning_tokens: TokenCount = None


class _Usage(_Wire):
    prompt_tokens: TokenCount = None
    completion_tokens: TokenCount = None
    total_tokens: TokenCount = None
    prompt_cache_hit_tokens: TokenCount = None
    prompt_tokens_details: _PromptDetails | None = None
    completion_tokens_details: _OutputDetails | None = None

    def neutral(self, *, writing_costs: bool) -> Usage:
        """Return the usage independent of the wire.

        Google and xAI count reasoning tokens in the total only. They are paid for like output tokens.
        """
        prompt = self.prompt_tokens_details or _PromptDetails()
        output = self.completion_tokens_details or _OutputDetails()
        input_tokens, output_tokens = self.prompt_tokens or 0, self.completion_tokens or 0
        uncounted = 0
        if input_tokens:
            uncounted = max((self.total_tokens or 0) - input_tokens - output_tokens, 0)
        return Usage(
            input=input_tokens,
            cached=prompt.cached_tokens or self.prompt_cache_hit_tokens or 0,
            written=(writing_costs and prompt.cache_write_tokens) or 0,
            output=output_tokens + uncounted,
            reasoning=output.reasoning_tokens or uncounted,
        )


class _Choice(_Wire):
    index: int | None = None
    delta: _Delta | None = None
    message: _Delta | None = None
    finish_reason: _Text = None
    usage: _Usage | None = None


class _Timings(_Wire):
    """llama.cpp's token counts so far, sent with every chunk on request."""

    prompt_n: TokenCount = None
    cache_n: TokenCount = None
    predicted_n: TokenCount = None


class _Chunk(_Wire):
    id: str | None = None
    model: str | None = None
    timings: _Timings | None = None
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: JsonValue = None
    object: str | None = None


class _PartialCall:
    """A call that is being streamed."""

    def __init__(self, index: int | None) -> None:
        self.index = index
        self.id = ""
        self.name = ""
        self.fragments: list[str] = []
        self.extra: JsonValue = None

    @property
    def arguments(self) -> str:
        """The arguments that have arrived so far."""
        if len(self.fragments) > 1:
            self.fragments = ["".join(self.fragments)]
        return self.fragments[0] if self.fragments else ""


def _begins_another(call: _PartialCall, fragment: _ToolCall) -> bool:
    name = fragment.function.name if fragment.function else None
    if not name or not call.name:
        return False  # whatever its id is: some servers make a new id for each fragment
    if fragment.id and call.id:
        return fragment.id != call.id
    return name != call.name or arguments_object(call.arguments or "[]") is not None


def _unpacked_arguments(text: str) -> str:
    """Return the arguments as written, but an object inside a JSON string is unpacked, and null
    becomes an empty object.
    """
    try:
        value: object = parse_json(text or "null")
    except ValueError:
        return text
    if isinstance(value, str) and arguments_object(value):
        return value
    return "{}" if value is None else text


class ChatCompletionsDecoder(ReplyDecoder):
    api = "Chat Completions"
    whole = "completion"

    def __init__(self, endpoint: ModelEndpoint, new_id: Callable[[int], str]) -> None:
        super().__init__(endpoint)
        self._new_id = new_id
        self._text = ThinkTagParser()
        self._thinking: list[str] = []
        self._reasoning_field = ""
        """The field in which the server sends reasoning text; "" if it sent none."""
        self._calls: list[_PartialCall] = []
        self._details: list[dict[str, JsonValue]] = []
        self._refused = False

    def feed(self, event: ServerEvent) -> str:
        if event.data.strip() == DONE:
            self.finished = True
        return super().feed(event)

    def reply(self) -> Reply:
        calls = tuple(self._closed_calls())
        if self._reason is None and not (self.finished and self._begun):
            raise self._cut_stream()
        reason = server_quirks.normalized_reason(self._reason or "stop")
        stop = server_quirks.FINISH_REASONS.get(reason, "end")
        if self._refused:
            stop = "refusal"
        if calls and stop == "end":
            stop = "calls"
        elif not calls and stop == "calls":
            stop = "end"
        text, thought = self._text.parts()
        thinking = join_surrogates("".join(self._thinking))
        field = self._reasoning_field if thinking else reasoning.CONTENT
        thinking = thinking or join_surrogates(thought)
        blocks = [Thinking(text=thinking, field=field)] if thinking else []
        return Reply(
            text=join_surrogates(text),
            thinking=(*blocks, *self._sealed_blocks()),
            calls=calls,
            usage=self.used,
            model=self._model or self._endpoint.model,
            stop=stop,
            response_id=self._id,
        )

    def _decode(self, parsed: object, event_name: str) -> str:
        chunk = _Chunk.model_validate(parsed)
        if chunk.error or chunk.object == "error" or event_name == "error":
            raise error_mapping.error_in_stream(self._endpoint, parsed)
        self._id = chunk.id or self._id
        self._model = chunk.model or self._model
        if (timings := chunk.timings) is not None and chunk.usage is None:
            cached = timings.cache_n or 0
            self.used = Usage(
                input=(timings.prompt_n or 0) + cached,
                cached=cached,
                output=timings.predicted_n or 0,
            )
        choice = next((choice for choice in chunk.choices or [] if not choice.index), None)
        usage = chunk.usage or (choice.usage if choice else None)
        if usage is not None:
            self.used = usage.neutral(
                writing_costs=server_quirks.bills_cache_writes(self._endpoint)
            )
        if choice is None:
            return ""
        reason = server_quirks.normalized_reason(choice.finish_reason or "")
        if reason in server_quirks.BROKEN_REASONS:
            message = f"the model behind this server failed: {choice.finish_reason}"
            raise error_mapping.error_in_stream(self._endpoint, {"message": message})
        self._reason = choice.finish_reason or self._reason
        if choice.message is not None:  # a plain completion: this is all there is
            self.finished = True
        delta = choice.delta or choice.message
        return self._add_delta(delta) if delta else ""

    def _add_delta(self, delta: _Delta) -> str:
        for field in reasoning.FIELDS:
            text: str | None = getattr(delta, field)
            if text:
                self.thought, self._reasoning_field = text, field
                break
        content = delta.content
        if isinstance(content, list):
            if thoughts := "".join(part.thinking or "" for part in content):
                self.thought, self._reasoning_field = thoughts, reasoning.CONTENT_PARTS
            content = "".join(part.text or "" for part in content)
        self._thinking.append(self.thought)
        self._limits.add(self.thought)
        for detail in delta.reasoning_details or []:
            self._details.append(detail)
            self._limits.add(*map(str, detail.values()))
        for fragment in delta.tool_calls or []:
            self._add_call(fragment)
        if delta.function_call is not None:  # the form before tools; a few servers still send it
            self._add_call(_ToolCall(index=0, function=delta.function_call))
        self._refused = self._refused or bool(delta.refusal)
        text = (content or "") + (delta.refusal or "")
        self._limits.add(text)
        self._begun = self._begun or bool(text or self.thought or self._calls)
        return self._text.feed(text)

    def _add_call(self, fragment: _ToolCall) -> None:
        call = self._call_of(fragment)
        call.id = call.id or fragment.id or ""
        call.extra = call.extra or fragment.extra_content
        if fragment.function is None:
            return
        call.name = call.name or fragment.function.name or ""
        arguments = fragment.function.arguments
        if arguments is None:
            return
        written = (
            arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        )
        self._limits.add(written)
        call.fragments.append(written)

    def _call_of(self, fragment: _ToolCall) -> _PartialCall:
        """Return the open call that a fragment belongs to, by its index.

        Some servers give every call the index 0, or none. Their ids then tell parallel calls apart.
        """
        same = [
            call for call in self._calls if fragment.index is None or call.index == fragment.index
        ]
        same = [call for call in same if fragment.id and call.id == fragment.id] or same
        if not same or _begins_another(same[-1], fragment):
            self._calls.append(_PartialCall(fragment.index))
            self._limits.parts(len(self._calls))
            same = self._calls
        return same[-1]

    def _sealed_blocks(self) -> tuple[Thinking, ...]:
        """Return the blocks that the server expects back unchanged with the calls."""
        calls = [call for call in self._calls if call.name or call.arguments]
        return reasoning.sealed_blocks(
            [call.extra for call in calls], self._details if calls else []
        )

    def _closed_calls(self) -> list[Call]:
        calls: list[Call] = []
        for call in self._calls:
            if not call.name and not call.arguments:
                continue
            is_unique = all(call.id != earlier.id for earlier in calls)
            id = call.id if call.id and is_unique else self._new_id(len(calls))
            calls.append(
                Call(
                    id=id,
                    tool=join_surrogates(call.name),
                    arguments=_unpacked_arguments(join_surrogates(call.arguments)),
                )
            )
        return calls


NO_REASONING = " "
"""Reasoning of a reply that has none: a server that requires it does so for all replies, and some
treat an empty text as missing."""


def encode_request(prompt: Prompt, endpoint: ModelEndpoint, quirks: ServerQuirks) -> Json:
    """Return the request body. It holds only requested parameters, since servers refuse unknown
    ones.
    """
    messages: list[Json] = []
    if prompt.system.strip() and quirks.system:
        messages.append({"role": "system", "content": prompt.system})
    history = _history(prompt, endpoint, quirks)
    loop: set[int] = set()
    if quirks.thoughts_back:
        loop = reasoning.loop_replies(prompt.messages, history)
    for index, message in enumerate(history):
        messages.append(_message(message, endpoint, quirks, in_loop=index in loop))
    if server_quirks.wants_cache_marks(endpoint):
        server_quirks.add_cache_marks(messages)
    is_openai = server_quirks.is_openai(endpoint)
    payload: Json = {
        "model": endpoint.model,
        "messages": [*messages],
        "stream": quirks.stream,
    }
    if prompt.metadata and quirks.metadata:
        payload["metadata"] = dict(prompt.metadata)
    limit_field = "max_completion_tokens" if quirks.completion_tokens else "max_tokens"
    payload[limit_field] = quirks.tokens(prompt.max_tokens)
    if prompt.tools:
        schemas = server_quirks.tool_schemas(prompt.tools, quirks)
        payload["tools"] = [
            _tool(tool, schema) for tool, schema in zip(prompt.tools, schemas, strict=True)
        ]
    if prompt.temperature is not None and quirks.temperature:
        payload["temperature"] = prompt.temperature
    if prompt.seed is not None and quirks.seed:
        payload["seed"] = prompt.seed
    if prompt.stop and quirks.stop:
        payload["stop"] = [*prompt.stop]
    if prompt.tools and prompt.tool_choice:
        payload["tool_choice"] = prompt.tool_choice
        if prompt.tool_choice not in ("none", "required"):
            payload["tool_choice"] = {"type": "function", "function": {"name": prompt.tool_choice}}
    elif prompt.tools and prompt.allowed_tools and quirks.allowed_tools and is_openai:
        tools: list[JsonValue] = [
            {"type": "function", "function": {"name": name}} for name in prompt.allowed_tools
        ]
        payload["tool_choice"] = {
            "type": "allowed_tools",
            "allowed_tools": {"mode": "auto", "tools": tools},
        }
    if is_openai and quirks.cache_key:
        payload["prompt_cache_key"] = server_quirks.cache_key(prompt)
    if quirks.stream and quirks.stream_usage:
        payload["stream_options"] = {"include_usage": True}
    effort = prompt.effort or endpoint.effort
    if prompt.tools and not quirks.effort_with_tools:
        effort = "none"
    if effort and quirks.effort:
        payload["reasoning_effort"] = effort
    if prompt.reply_schema and quirks.schema == "schema":
        schema: Json = {"name": "reply", "schema": parse_json(prompt.reply_schema)}
        payload["response_format"] = {"type": "json_schema", "json_schema": schema}
    elif prompt.reply_schema and quirks.schema == "object":
        payload["response_format"] = {"type": "json_object"}
    return payload


def _history(prompt: Prompt, endpoint: ModelEndpoint, quirks: ServerQuirks) -> tuple[Message, ...]:
    messages = prompt.messages
    if not quirks.system:
        messages = (FromUser(text=prompt.system), *messages)
    history = normalized(messages, endpoint.name if quirks.sealed else "")
    history = with_media_behind_results(history)
    is_mistral = endpoint.host.endswith("mistral.ai")
    if quirks.short_ids or is_mistral:
        history = with_short_ids(history)
    if quirks.bridged or is_mistral:
        history = with_agent_between(history)
    return history


def _message(
    message: Message, endpoint: ModelEndpoint, quirks: ServerQuirks, *, in_loop: bool
) -> Json:
    match message:
        case FromUser():
            return {"role": "user", "content": _user_content(message)}
        case FromTool():
            return {"role": "tool", "tool_call_id": message.call, "content": message.text}
        case FromAgent():
            encoded: Json = {
                "role": "assistant",
                "content": message.text or (None if quirks.null_content else ""),
            }
            if message.calls:
                encoded["tool_calls"] = _calls(message, endpoint)
            is_own = message.agent == endpoint.name
            if sealed := reasoning.sealed_reasoning(message, endpoint):
                encoded[reasoning.REASONING_DETAILS] = sealed
            elif is_own and in_loop:
                reasoning.add_reasoning_text(encoded, message)
            if quirks.reasoning_back:
                thoughts = [block.text for block in message.thinking if block.text and is_own]
                encoded["reasoning_content"] = "\n".join(thoughts) or NO_REASONING
            return encoded


def _user_content(message: FromUser) -> JsonValue:
    """Return the content as a plain text if possible, since many servers support nothing else."""
    if not message.media:
        return message.text
    parts: list[JsonValue] = []
    if message.text.strip():
        parts.append({"type": "text", "text": message.text})
    for item in message.media:
        url = f"data:{item.type};base64,{item.data}"
        if item.is_picture:
            parts.append({"type": "image_url", "image_url": {"url": url}})
        else:
            parts.append({"type": "file", "file": {"filename": item.name, "file_data": url}})
    return parts


def _calls(message: FromAgent, endpoint: ModelEndpoint) -> list[JsonValue]:
    calls: list[JsonValue] = []
    signatures = reasoning.call_signatures(message, endpoint)
    for call, signature in zip(message.calls, signatures, strict=True):
        encoded = _encode_call(call)
        if signature:
            encoded[reasoning.EXTRA_CONTENT] = signature
        calls.append(encoded)
    return calls


def _encode_call(call: Call) -> Json:
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.tool, "arguments": call.arguments},
    }


def _tool(tool: ToolSpec, schema: Json) -> Json:
    return {
        "type": "function",
        "function": {"name": tool.name, "description": tool.description, "parameters": schema},
    }


# --- as a server ----------------------------------------------------------------------------------


class _SentUrl(LenientModel):
    url: str = ""


class _SentFile(LenientModel):
    filename: str = ""
    file_data: str = ""


class _SentPart(LenientModel):
    type: str = "text"
    text: str = ""
    refusal: str = ""
    image_url: _SentUrl | None = None
    file: _SentFile | None = None


class _SentFunction(LenientModel):
    name: str
    arguments: str = "{}"


class _SentCall(LenientModel):
    id: str
    function: _SentFunction


class _SentMessage(LenientModel):
    role: str
    content: str | ItemList[_SentPart] | None = None
    tool_calls: ItemList[_SentCall] | None = None
    tool_call_id: str | None = None


class _SentFunctionTool(LenientModel):
    name: str
    description: str | None = None
    parameters: Json | None = None


class _SentTool(LenientModel):
    type: str = "function"
    function: _SentFunctionTool | None = None


class _SentStreamOptions(LenientModel):
    include_usage: bool | None = None


class _SentSchema(LenientModel):
    schema_: JsonValue = Field(default=None, alias="schema")


class _SentFormat(LenientModel):
    type: str = "text"
    json_schema: _SentSchema | None = None


class _Request(RequestFields):
    model: str
    messages: ItemList[_SentMessage]
    stream: bool | None = None
    stream_options: _SentStreamOptions | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: float | None = None
    seed: int | None = None
    stop: str | ItemList[str] | None = None
    n: int | None = None
    modalities: ItemList[str] | None = None
    functions: JsonValue = None
    tools: ItemList[_SentTool] | None = None
    tool_choice: JsonValue = None
    parallel_tool_calls: bool | None = None
    response_format: _SentFormat | None = None
    metadata: Json | None = None
    reasoning_effort: Effort | None = None


def decode_request(body: bytes, headers: Mapping[str, str]) -> ClientRequest:
    """Parse the request in `body`. Raises RequestRefused."""
    payload = parse_body(_Request, body)
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


def _parse_sampling(payload: _Request, tools: Sequence[ToolSpec]) -> RequestSampling:
    fallback = token_limit("max_tokens", payload.max_tokens, DEFAULT_MAX_TOKENS)
    response_format = payload.response_format or _SentFormat()
    json_schema = response_format.json_schema or _SentSchema()
    stops = [payload.stop] if isinstance(payload.stop, str) else payload.stop or []
    return RequestSampling(
        max_tokens=token_limit("max_completion_tokens", payload.max_completion_tokens, fallback),
        temperature=payload.temperature,
        seed=payload.seed,
        stop=tuple(stop for stop in stops if stop),
        choice=decode_tool_choice(payload.tool_choice, [tool.name for tool in tools]),
        reply_schema=reply_schema(
            response_format.type, json_schema.schema_, "response_format.json_schema.schema"
        ),
        single=payload.parallel_tool_calls is False,
        effort=payload.reasoning_effort or "",
    )


def _parse_messages(payload: Sequence[_SentMessage]) -> tuple[str, tuple[Message, ...]]:
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


def _message_text(message: _SentMessage, number: int, media: ClientMedia) -> str:
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
            raise unknown_part(f"messages.{number}", part.type)
        texts.append(text)
    separator = "\n" if is_result else ""
    return separator.join(texts)


def _part_text(part: _SentPart, media: ClientMedia) -> str | None:
    """Return the text of a part, None for an unknown part; a picture or file goes to `media`."""
    if part.type in ("text", "refusal"):
        return part.text or part.refusal
    if part.type == "image_url" and part.image_url is not None:
        return media.add_url(part.image_url.url)
    if part.type == "file" and part.file is not None and part.file.file_data:
        return media.add_url(part.file.file_data, part.file.filename)
    return None


def _parse_tool(tool: _SentTool) -> ToolSpec:
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


ENCODED_FINISH_REASONS: dict[StopReason, str] = {
    "end": "stop",
    "calls": "tool_calls",
    "length": "length",
    "refusal": "content_filter",
    "cut": "stop",
}


def encode_reply(head: AnswerHead, answer: ServedAnswer, client_request: ClientRequest) -> Json:
    """Return the answer as a JSON object."""
    message: Json = {"role": "assistant", "content": answer.text or None, "refusal": None}
    if answer.reasoning:
        message["reasoning_content"] = answer.reasoning
    if answer.calls:
        message["tool_calls"] = [_encode_call(call) for call in answer.calls]
    choice: Json = {
        "index": 0,
        "message": message,
        "finish_reason": ENCODED_FINISH_REASONS[answer.stop],
        "logprobs": None,
    }
    return {
        **_reply_head(head, "chat.completion"),
        "choices": [choice],
        "usage": openai_usage(answer, "prompt", "completion"),
        "fugu": answer_details(head, answer, client_request),
    }


class ChatCompletionsStream(AnswerStream):
    """Encodes one answer as chunks."""

    def begin(self) -> bytes:
        return self._chunk({"role": "assistant", "content": ""})

    def text_delta(self, text: str) -> bytes:
        self._text_sent = True
        return self._chunk({"content": text})

    def reasoning_delta(self, text: str) -> bytes:
        self._reasoning_sent = True
        return self._chunk({"reasoning_content": text})

    def finish(self, answer: ServedAnswer) -> bytes:
        data = self._unsent_text(answer)
        if answer.calls:
            calls: list[JsonValue] = [
                {"index": number, **_encode_call(call)} for number, call in enumerate(answer.calls)
            ]
            data += self._chunk({"tool_calls": calls})
        data += self._chunk({}, ENCODED_FINISH_REASONS[answer.stop])
        if self._client_request.include_usage:
            usage_chunk: Json = {
                **_reply_head(self._head, "chat.completion.chunk"),
                "choices": [],
                "usage": openai_usage(answer, "prompt", "completion"),
                "fugu": answer_details(self._head, answer, self._client_request),
            }
            data += sse_event(usage_chunk)
        return data + sse_event("[DONE]")

    def fail(self, refusal: RequestRefused) -> bytes:
        return sse_event(openai_error(refusal)) + sse_event("[DONE]")

    def _chunk(self, delta: Json, reason: str | None = None) -> bytes:
        choice: Json = {"index": 0, "delta": delta, "finish_reason": reason, "logprobs": None}
        return sse_event({**_reply_head(self._head, "chat.completion.chunk"), "choices": [choice]})


def _reply_head(head: AnswerHead, object_type: str) -> Json:
    return {"id": head.id, "object": object_type, "created": head.created, "model": head.model}


WIRE = Wire(decode_request, encode_reply, ChatCompletionsStream, openai_error)
"""`POST /v1/chat/completions`."""


# --- the agent ------------------------------------------------------------------------------------


class OpenAI(WireAgent):
    """An agent behind a Chat Completions server."""

    async def _once(self, prompt: Prompt, say: Say, quirks: ServerQuirks) -> Reply:
        decoder = ChatCompletionsDecoder(self._endpoint, lambda number: call_id(prompt, number))
        stops = StopSequences(() if quirks.stop else prompt.stop)
        payload = encode_request(prompt, self._endpoint, quirks)
        return await self._exchange("/chat/completions", payload, decoder, stops, say, prompt)
