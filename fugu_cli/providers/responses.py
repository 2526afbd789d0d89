"""The Responses API with streaming, for OpenAI's models, which do not reason with tools on Chat
Completions.

Nothing is stored at the server: the whole history is sent, with the agent's own sealed reasoning.
`ResponsesDecoder` and `encode` are pure; only `Responses` does IO.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import httpx
from pydantic import BaseModel, ConfigDict, JsonValue

from fugu_cli.errors import AgentError
from fugu_cli.messages import (
    Call,
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
from fugu_cli.providers.http_client import Json, ReplyLimits, ReplyProgress, ServerEvent
from fugu_cli.providers.reasoning import POSITION, in_order, loop_replies, position
from fugu_cli.providers.server_quirks import ServerQuirks, Stop, StopSequences
from fugu_cli.providers.wire_agent import WireAgent
from fugu_cli.system.bounded_json import parse_json

END_EVENTS = (
    "response.completed",
    "response.incomplete",
    "response.failed",
    "response.cancelled",
    "response.done",
)


class _Wire(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


class _InputDetails(_Wire):
    cached_tokens: TokenCount = None
    cache_write_tokens: TokenCount = None


class _OutputDetails(_Wire):
    reasoning_tokens: TokenCount = None


class _Usage(_Wire):
    input_tokens: TokenCount = None
    output_tokens: TokenCount = None
    input_tokens_details: _InputDetails | None = None
    output_tokens_details: _OutputDetails | None = None

    def neutral(self, *, writing_costs: bool) -> Usage:
        input, output = self.input_tokens_details, self.output_tokens_details
        return Usage(
            input=self.input_tokens or 0,
            cached=(input.cached_tokens if input else None) or 0,
            written=(input.cache_write_tokens if input and writing_costs else None) or 0,
            output=self.output_tokens or 0,
            reasoning=(output.reasoning_tokens if output else None) or 0,
        )


class _IncompleteDetails(_Wire):
    reason: str | None = None


class _Response(_Wire):
    """The response object. `output` stays as it came, since reasoning items go back unchanged."""

    model: str | None = None
    status: str | None = None
    output: list[dict[str, JsonValue]] | None = None
    usage: _Usage | None = None
    error: JsonValue = None
    incomplete_details: _IncompleteDetails | None = None


class _Event(_Wire):
    type: str = ""
    object: str | None = None
    response: _Response | None = None
    item: dict[str, JsonValue] | None = None
    output_index: int = 0
    delta: JsonValue = None
    error: JsonValue = None


class ResponsesDecoder:
    """Decodes one reply. Once `finished`, no more events are expected and `reply` may be called."""

    def __init__(self, endpoint: ModelEndpoint, new_id: Callable[[int], str]) -> None:
        self._endpoint = endpoint
        self._new_id = new_id
        self._limits = ReplyLimits(endpoint.name, endpoint.host)
        self._items: dict[int, dict[str, JsonValue]] = {}
        self._texts: dict[int, list[str]] = {}
        self._last = _Response()
        self._begun = False
        self.thought = ""
        """The reasoning text that the newest event added."""
        self.used = Usage()
        """The usage that the server has reported so far."""
        self.received_bytes = 0
        """Bytes of text, reasoning and arguments that were streamed so far."""
        self.finished = False

    @property
    def progress(self) -> ReplyProgress:
        """The part of the reply that has arrived. Reasoning does not count: it is opened at once and may
        take minutes.
        """
        if self.finished:
            return ReplyProgress.WHOLE
        return ReplyProgress.BEGUN if self._begun else ReplyProgress.NOTHING

    @property
    def phased(self) -> bool:
        """True if the server marks messages as commentary or answer (OpenAI's models from gpt-5.4
        on).
        """
        return any(isinstance(item.get("phase"), str) for item in self._items.values())

    def feed(self, event: ServerEvent) -> str:
        """Decode one event, and return the text it adds. Raises AgentError for an error inside the
        stream, and for data that is not JSON.
        """
        self.thought, data = "", event.data.strip()
        if not data or self.finished or data == "[DONE]":
            return ""
        try:
            parsed: object = parse_json(data)
            taken = _Event.model_validate(parsed)
            whole = _Response.model_validate(parsed) if taken.object == "response" else None
        except ValueError as error:
            if not event.whole:
                return ""  # the connection broke inside this event; reply() says so
            hint = (
                f"Check that {self._endpoint.address} speaks the Responses API, or say `api = "
                f'"chat"`.'
            )
            raise error_mapping.error_of_part(
                self._endpoint, data, error, "response", hint
            ) from error
        if taken.type == "error" or event.name == "error" or (taken.error and whole is None):
            raise error_mapping.error_in_stream(self._endpoint, _without_event_type(parsed))
        return self._take_whole(whole) if whole is not None else self._take(taken)

    def reply(self) -> Reply:
        """Return the whole reply. Raises AgentError(kind="network") if the stream ended before the
        reply.
        """
        if not self.finished:
            raise AgentError(
                f"{self._endpoint.name}: {self._endpoint.host} cut the stream",
                kind="network",
                retry=True,
            )
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
        )

    def _stop_reason(self, *, refused: bool, has_calls: bool) -> Stop:
        details = self._last.incomplete_details
        reason = details.reason if details else None
        if refused or reason == "content_filter":
            return "refusal"
        if reason or self._last.status == "incomplete":
            return "length"
        return "calls" if has_calls else "end"

    def _take(self, event: _Event) -> str:
        if event.type.endswith(".delta") and isinstance(event.delta, str):
            self.received_bytes += len(event.delta.encode("utf-8", "replace"))
        match event.type:
            case "response.output_item.added" | "response.output_item.done" if (
                event.item is not None
            ):
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
                return self._take_whole(event.response)
            case "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta":
                self._begun = True
        return ""  # the lifecycle, and whatever is added to this protocol later

    def _take_whole(self, response: _Response) -> str:
        """Take the final response, whose items replace the streamed ones unless it has none."""
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


def encode(
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
        payload["tools"] = [_tool(tool, quirks) for tool in prompt.tools]
    if prompt.tools and prompt.tool_choice:
        payload["tool_choice"] = _tool_choice(prompt.tool_choice)
    if prompt.temperature is not None and quirks.temperature:
        payload["temperature"] = prompt.temperature
    if server_quirks.wants_cache_key(endpoint) and quirks.cache_key:
        payload["prompt_cache_key"] = server_quirks.cache_key(prompt)
    if prompt.metadata and quirks.metadata:
        payload["metadata"] = dict(prompt.metadata)
    if effort and quirks.effort:
        payload["reasoning"] = {"effort": effort}
        if effort != "none" and quirks.summary:
            payload["reasoning"] = {"effort": effort, "summary": "auto"}
    if prompt.reply_schema and quirks.schema != "none":
        payload["text"] = {"format": _format(prompt.reply_schema, quirks)}
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
    """Return the provider's own item, None if it does not go back: one that is not sealed does so
    inside a tool loop.

    Its status is left out, because the API refuses it.
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


def _tool(tool: ToolSpec, quirks: ServerQuirks) -> Json:
    """Encode a tool. `strict`, which the API turns on by default, would require every argument."""
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": server_quirks.tool_parameters(tool, quirks),
        "strict": False,
    }


def _tool_choice(choice: str) -> JsonValue:
    if choice in ("none", "required"):
        return choice
    return {"type": "function", "name": choice}


def _format(schema: str, quirks: ServerQuirks) -> Json:
    if quirks.schema == "object":
        return {"type": "json_object"}
    return {"type": "json_schema", "name": "reply", "schema": parse_json(schema), "strict": False}


class Responses(WireAgent):
    """An agent behind a Responses server."""

    def __init__(
        self, endpoint: ModelEndpoint, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        super().__init__(endpoint, endpoint.credentials, transport)
        self._phased = False

    async def _once(self, prompt: Prompt, say: Say, quirks: ServerQuirks) -> Reply:
        decoder = ResponsesDecoder(self._endpoint, lambda number: call_id(prompt, number))
        payload = encode(prompt, self._endpoint, quirks, phased=self._phased)
        stops = StopSequences(prompt.stop)
        try:
            return await self._exchange("/responses", payload, decoder, stops, say, prompt)
        except AgentError as error:
            if error.kind == "absent":
                error.hint = f'{error.hint} A server without /responses wants `api = "chat"`.'
            raise
        finally:
            self._phased = self._phased or decoder.phased


if TYPE_CHECKING:
    from fugu_cli.providers import Agent

    def _fits(agent: Responses) -> Agent:
        return agent
