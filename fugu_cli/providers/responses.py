"""The Responses API with streaming, for OpenAI's models, which on Chat Completions do not reason
where tools are offered. Nothing is stored at the server: the whole history is sent, with the
agent's own sealed reasoning. `ResponsesDecoder` and `encode` are pure; only `Responses` does IO.
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
    THINKING_TOKENS,
    Call,
    FromAgent,
    FromTool,
    FromUser,
    Media,
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
from fugu_cli.providers.reasoning import POSITION, in_order, position
from fugu_cli.providers.server_quirks import ServerQuirks, Stop, StopSequences
from fugu_cli.providers.wire_agent import WireAgent
from fugu_cli.system.bounded_json import parse_json

ENDS = (
    "response.completed",
    "response.incomplete",
    "response.failed",
    "response.cancelled",
    "response.done",
)


class _Wire(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


class _Cached(_Wire):
    cached_tokens: TokenCount = None
    cache_write_tokens: TokenCount = None


class _Reasoned(_Wire):
    reasoning_tokens: TokenCount = None


class _Usage(_Wire):
    input_tokens: TokenCount = None
    output_tokens: TokenCount = None
    input_tokens_details: _Cached | None = None
    output_tokens_details: _Reasoned | None = None

    def neutral(self, *, writing_costs: bool) -> Usage:
        read, made = self.input_tokens_details, self.output_tokens_details
        return Usage(
            input=self.input_tokens or 0,
            cached=(read.cached_tokens if read else None) or 0,
            written=(read.cache_write_tokens if read and writing_costs else None) or 0,
            output=self.output_tokens or 0,
            reasoning=(made.reasoning_tokens if made else None) or 0,
        )


class _Why(_Wire):
    reason: str | None = None


class _Response(_Wire):
    """`output` as it came: a thought goes back as it is."""

    model: str | None = None
    status: str | None = None
    output: list[dict[str, JsonValue]] | None = None
    usage: _Usage | None = None
    error: JsonValue = None
    incomplete_details: _Why | None = None


class _Event(_Wire):
    type: str = ""
    object: str | None = None
    response: _Response | None = None
    item: dict[str, JsonValue] | None = None
    output_index: int = 0
    delta: JsonValue = None
    error: JsonValue = None


class ResponsesDecoder:
    """One answer. `finished` once nothing more is expected; `reply` may then be asked for."""

    def __init__(self, access: ModelEndpoint, new_id: Callable[[int], str]) -> None:
        self._access = access
        self._new_id = new_id
        self._held = ReplyLimits(access.name, access.host)
        self._items: dict[int, dict[str, JsonValue]] = {}
        self._texts: dict[int, list[str]] = {}
        self._last = _Response()
        self._begun = False
        self.thought = ""
        """What the newest event added to what is thought."""
        self.used = Usage()
        """What the server has reported so far, whatever becomes of the reply."""
        self.received_bytes = 0
        """Of text, thoughts and arguments, as they were streamed."""
        self.finished = False

    @property
    def heard(self) -> ReplyProgress:
        """How far the reply has come. A thought is none of it yet: it is opened at once and may
        take minutes.
        """
        return (
            ReplyProgress.WHOLE
            if self.finished
            else ReplyProgress.BEGUN
            if self._begun
            else ReplyProgress.NOTHING
        )

    @property
    def phased(self) -> bool:
        """The server says of a message whether it is commentary or the answer (OpenAI's models from
        gpt-5.4 on).
        """
        return any(isinstance(item.get("phase"), str) for item in self._items.values())

    def feed(self, event: ServerEvent) -> str:
        """Takes one event; returns the text it adds. Raises AgentError for an error inside the
        stream or no JSON.
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
            raise error_mapping.error_of_part(
                self._access,
                data,
                error,
                "response",
                f"Check that {self._access.address} speaks the Responses API, or say `api = "
                f'"chat"`.',
            ) from error
        if taken.type == "error" or event.name == "error" or (taken.error and whole is None):
            raise error_mapping.error_in_stream(self._access, _without_its_kind(parsed))
        return self._take_whole(whole) if whole is not None else self._take(taken)

    def reply(self) -> Reply:
        """The whole reply. Raises AgentError(kind="network") where the stream ended before it
        did.
        """
        if not self.finished:
            raise AgentError(
                f"{self._access.name}: {self._access.host} cut the stream",
                kind="network",
                retry=True,
            )
        text, calls, thinking, refused = "", list[Call](), list[Thinking](), False
        for index in sorted(self._items.keys() | self._texts.keys()):
            item = self._items.get(index, {})
            match item.get("type", "message"):
                case "message":
                    said, no = self._said(index, item)
                    text, refused = text + said, refused or no
                case "function_call":
                    calls.append(self._call(item, calls))
                case "reasoning":
                    thinking.append(_reasoning_block(item, (len(text), len(calls))))
        return Reply(
            text=text,
            thinking=tuple(one for one in thinking if one.text or one.data),
            calls=tuple(calls),
            usage=self.used,
            model=self._last.model or self._access.model,
            stop="refusal" if refused else self._stop(bool(calls)),
        )

    def _stop(self, calls: bool) -> Stop:
        why = self._last.incomplete_details.reason if self._last.incomplete_details else None
        if self._last.status == "incomplete" or why:
            return "refusal" if why == "content_filter" else "length"
        return "calls" if calls else "end"

    def _take(self, event: _Event) -> str:
        if event.type.endswith(".delta") and isinstance(event.delta, str):
            self.received_bytes += len(event.delta.encode("utf-8", "replace"))
        match event.type:
            case "response.output_item.added" | "response.output_item.done" if (
                event.item is not None
            ):
                self._begun = self._begun or event.item.get("type") != "reasoning"
                self._items[event.output_index] = event.item
                self._held.add(*map(str, event.item.values()))
                self._held.parts(len(self._items))
            case "response.output_text.delta" | "response.refusal.delta" if isinstance(
                event.delta, str
            ):
                self._begun = True
                self._texts.setdefault(event.output_index, []).append(event.delta)
                self._held.add(event.delta)
                self._held.parts(len(self._texts))
                return event.delta
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                self.thought = event.delta if isinstance(event.delta, str) else ""
            case _ if event.type in ENDS and event.response is not None:
                return self._take_whole(event.response)
            case "response.function_call_arguments.delta":
                self._begun = True
        return ""  # the lifecycle, and whatever is added to this protocol later

    def _take_whole(self, response: _Response) -> str:
        """The last word. Its items stand for those that came before, unless it holds none."""
        self._last, self.finished = response, True
        if response.usage is not None:
            self.used = response.usage.neutral(
                writing_costs=server_quirks.bills_cache_writes(self._access)
            )
        if response.error or response.status in ("failed", "cancelled"):
            raise error_mapping.error_in_stream(
                self._access, response.error or {"message": f"the response {response.status}"}
            )
        if response.output:
            shown = bool(self._texts)
            self._items, self._texts = dict(enumerate(response.output)), {}
            return (
                ""
                if shown
                else "".join(self._said(index, item)[0] for index, item in self._items.items())
            )
        return ""

    def _said(self, index: int, item: dict[str, JsonValue]) -> tuple[str, bool]:
        """The text of a message, and whether it is a refusal."""
        if item.get("type", "message") != "message":
            return "", False
        content = item.get("content")
        parts = (
            [part for part in content if isinstance(part, dict)]
            if isinstance(content, list)
            else []
        )
        refused = any(part.get("type") == "refusal" for part in parts)
        whole = "".join(str(part.get("text") or part.get("refusal") or "") for part in parts)
        return join_surrogates(whole or "".join(self._texts.get(index, []))), refused

    def _call(self, item: dict[str, JsonValue], before: list[Call]) -> Call:
        given, arguments = item.get("call_id") or item.get("id"), item.get("arguments")
        taken = {call.id for call in before}
        written = (
            arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        )
        return Call(
            id=given
            if isinstance(given, str) and given not in taken
            else self._new_id(len(before)),
            tool=join_surrogates(str(item.get("name") or "")),
            arguments="{}"
            if arguments is None or not written.strip()
            else join_surrogates(written),
        )


def _without_its_kind(parsed: object) -> object:
    """An error event without the word that it is one, which is no kind of error."""
    if isinstance(parsed, dict) and not parsed.get("error"):
        return {name: value for name, value in parsed.items() if name != "type"}
    return parsed


def _reasoning_block(item: dict[str, JsonValue], after: tuple[int, int]) -> Thinking:
    """A summary of it, or all of it where the server tells; sealed it goes back."""
    told = [item.get("summary"), item.get("content")]
    parts = [
        part
        for list_ in told
        if isinstance(list_, list)
        for part in list_
        if isinstance(part, dict)
    ]
    text = "\n\n".join(str(part.get("text") or "") for part in parts).strip()
    sealed = item.get("encrypted_content")
    return Thinking(
        text=join_surrogates(text), data=json.dumps({**item, **position(after)}) if sealed else ""
    )


SHORTEST_REPLY = 16
"""Tokens that a reply may be asked for at least."""
SEALED = "reasoning.encrypted_content"


def encode(
    prompt: Prompt, access: ModelEndpoint, dialect: ServerQuirks, *, phased: bool = False
) -> Json:
    """The request body. `phased`: the server says of its messages whether they are commentary, and
    wants to be told.

    What is thought counts against `max_output_tokens`, so room for it comes on top. There is no
    seed on this wire, and there are no stop sequences.
    """
    history = with_media_behind_results(
        normalized(prompt.messages, access.name if dialect.sealed else "")
    )
    effort = prompt.effort or access.effort
    most = max(prompt.max_tokens + THINKING_TOKENS.get(effort, 0), SHORTEST_REPLY)
    payload: Json = {
        "model": access.model,
        "input": [item for message in history for item in _items(message, phased)],
        "max_output_tokens": dialect.tokens(most),
        "stream": True,
        "store": False,
    }
    if prompt.system.strip():
        payload["instructions"] = prompt.system
    if dialect.encrypted:
        payload["include"] = [SEALED]
    if prompt.tools:
        payload["tools"] = [_tool(tool, dialect) for tool in prompt.tools]
    if prompt.tools and prompt.tool_choice:
        payload["tool_choice"] = _choice(prompt.tool_choice)
    if prompt.temperature is not None and dialect.temperature:
        payload["temperature"] = prompt.temperature
    if server_quirks.wants_cache_key(access) and dialect.cache_key:
        payload["prompt_cache_key"] = server_quirks.cache_key(prompt)
    if prompt.metadata and dialect.metadata:
        payload["metadata"] = dict(prompt.metadata)
    if effort and dialect.effort:
        told = {} if effort == "none" or not dialect.summary else {"summary": "auto"}
        payload["reasoning"] = {"effort": effort, **told}
    if prompt.reply_schema and dialect.schema != "none":
        payload["text"] = {"format": _format(prompt.reply_schema, dialect)}
    return payload


def _items(message: Message, phased: bool) -> list[Json]:
    match message:
        case FromUser():
            return [{"role": "user", "content": _asked(message)}]
        case FromTool():
            return [
                {"type": "function_call_output", "call_id": message.call, "output": message.text}
            ]
        case FromAgent():
            return _said(
                message, ("commentary" if message.calls else "final_answer") if phased else ""
            )


def _asked(message: FromUser) -> JsonValue:
    if not message.media:
        return message.text
    words: list[JsonValue] = (
        [{"type": "input_text", "text": message.text}] if message.text.strip() else []
    )
    return [*words, *(_part(one) for one in message.media)]


def _part(one: Media) -> JsonValue:
    url = f"data:{one.type};base64,{one.data}"
    if one.is_picture:
        return {"type": "input_image", "image_url": url, "detail": "auto"}
    return {"type": "input_file", "filename": one.name, "file_data": url}


def _said(message: FromAgent, phase: str) -> list[Json]:
    """A thought that nothing follows is refused."""
    items = in_order(message, _thought, partial(_words, phase=phase), _uses)
    while items and items[-1].get("type") == "reasoning":
        items.pop()
    return items


def _thought(thinking: Thinking) -> Json | None:
    """The provider's own item out of an opaque value, without its status, which is refused; None
    for one that was not sealed."""
    item = arguments_object(thinking.data)
    if not item or item.get("type") != "reasoning" or not item.get("encrypted_content"):
        return None
    own: Json = parse_json(thinking.data)
    return {name: value for name, value in own.items() if name not in (POSITION, "status")}


def _words(text: str, phase: str) -> list[Json]:
    said: Json = {"role": "assistant", "content": text, **({"phase": phase} if phase else {})}
    return [said] if text.strip() else []


def _uses(calls: Sequence[Call]) -> list[Json]:
    return [
        {
            "type": "function_call",
            "call_id": call.id,
            "name": call.tool,
            "arguments": call.arguments,
        }
        for call in calls
    ]


def _tool(tool: ToolSpec, dialect: ServerQuirks) -> Json:
    """`strict` would want every argument to be required; it is on where nothing is said."""
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": server_quirks.tool_parameters(tool, dialect),
        "strict": False,
    }


def _choice(choice: str) -> JsonValue:
    return choice if choice in ("none", "required") else {"type": "function", "name": choice}


def _format(schema: str, dialect: ServerQuirks) -> Json:
    if dialect.schema == "object":
        return {"type": "json_object"}
    return {"type": "json_schema", "name": "reply", "schema": parse_json(schema), "strict": False}


class Responses(WireAgent):
    """An entry of the pool behind a Responses server."""

    def __init__(
        self, access: ModelEndpoint, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        super().__init__(access, access.credentials, transport)
        self._phased = False

    async def _once(self, prompt: Prompt, say: Say, quirks: ServerQuirks) -> Reply:
        decoder = ResponsesDecoder(self._access, lambda number: call_id(prompt, number))
        request = ("/responses", encode(prompt, self._access, quirks, phased=self._phased))
        stops = StopSequences(prompt.stop)
        try:
            return await self._exchange(request, decoder, stops, say, prompt)
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
