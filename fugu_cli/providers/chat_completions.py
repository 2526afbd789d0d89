"""Chat Completions with streaming: OpenAI and every server that speaks like it. The default
provider. `ChatCompletionsDecoder` and `encode` are pure; only `OpenAI` does IO.

Lenient where servers differ (calls sent whole or in pieces, without index or id; a plain completion
instead of a stream), strict where a reply would be wrong (an error, a cut, no JSON). What a server
refuses, it says itself (`server_quirks.py`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import httpx
from pydantic import BaseModel, BeforeValidator, ConfigDict, JsonValue

from fugu_cli.errors import AgentError
from fugu_cli.messages import (
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
from fugu_cli.providers import Say, error_mapping, reasoning, server_quirks
from fugu_cli.providers import reasoning as providers_reasoning
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
from fugu_cli.providers.http_client import Json, ReplyLimits, ReplyProgress, ServerEvent
from fugu_cli.providers.reasoning import ThinkTagParser
from fugu_cli.providers.server_quirks import ServerQuirks, StopSequences
from fugu_cli.providers.wire_agent import WireAgent
from fugu_cli.system.bounded_json import parse_json


class _Wire(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="ignore", defer_build=True, coerce_numbers_to_str=True
    )


_Text = Annotated[
    str | None, BeforeValidator(lambda value: value if isinstance(value, str) else None)
]
"""A text; what is none is passed over."""


class _Function(_Wire):
    name: str | None = None
    arguments: JsonValue = None


class _ToolCall(_Wire):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None
    extra_content: JsonValue = None


class _Part(_Wire):
    text: str | None = None


class _Delta(_Wire):
    content: str | list[_Part] | None = None
    reasoning_content: _Text = None
    reasoning: _Text = None
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
        """Google and xAI count reasoning beside `completion_tokens`, in the total alone; it is paid
        for like them.
        """
        prompt, output = self.prompt_tokens_details, self.completion_tokens_details
        read, made = self.prompt_tokens or 0, self.completion_tokens or 0
        beside = max((self.total_tokens or 0) - read - made, 0) if read else 0
        return Usage(
            input=read,
            cached=(prompt.cached_tokens if prompt else None) or self.prompt_cache_hit_tokens or 0,
            written=(prompt.cache_write_tokens if prompt and writing_costs else None) or 0,
            output=made + beside,
            reasoning=(output.reasoning_tokens if output else None) or beside,
        )


class _Choice(_Wire):
    index: int | None = None
    delta: _Delta | None = None
    message: _Delta | None = None
    finish_reason: _Text = None
    usage: _Usage | None = None


class _Timings(_Wire):
    """How far llama.cpp has come, with every chunk where it is asked for it; in tokens."""

    prompt_n: TokenCount = None
    cache_n: TokenCount = None
    predicted_n: TokenCount = None


class _Chunk(_Wire):
    model: str | None = None
    timings: _Timings | None = None
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: JsonValue = None
    object: str | None = None


class _Open:
    """A call being written."""

    def __init__(self, index: int | None) -> None:
        self.index = index
        self.id = ""
        self.name = ""
        self.shreds: list[str] = []
        self.extra: JsonValue = None

    @property
    def arguments(self) -> str:
        """What was written of them so far."""
        if len(self.shreds) > 1:
            self.shreds = ["".join(self.shreds)]
        return self.shreds[0] if self.shreds else ""


def _begins_another(call: _Open, shred: _ToolCall) -> bool:
    name = shred.function.name if shred.function else None
    if not name or not call.name:
        return False  # also where its id is another one: some servers make a new id for each shred
    if shred.id and call.id:
        return shred.id != call.id
    return name != call.name or arguments_object(call.arguments or "[]") is not None


def _arguments(written: str) -> str:
    """As they were written, but for an object that was packed into a text once more, and for null,
    which is none.
    """
    try:
        found: object = parse_json(written or "null")
    except ValueError:
        return written
    if isinstance(found, str) and arguments_object(found):
        return found
    return "{}" if found is None else written


class ChatCompletionsDecoder:
    """One answer. `finished` once nothing more is expected; `reply` may then be asked for."""

    def __init__(self, access: ModelEndpoint, new_id: Callable[[int], str]) -> None:
        self._access = access
        self._new_id = new_id
        self._held = ReplyLimits(access.name, access.host)
        self._text = ThinkTagParser()
        self._thinking: list[str] = []
        self.reasoning_field = ""
        """The field in which the server sends what is thought; "" where it sent nothing."""
        self.thought = ""
        """What the newest event added to what is thought."""
        self._calls: list[_Open] = []
        self._details: list[dict[str, JsonValue]] = []
        self.used = Usage()
        """What the server has reported so far, whatever becomes of the reply."""
        self._model = ""
        self._reason: str | None = None
        self._refused = False
        self._begun = self._enough = False
        self.finished = False

    @property
    def received_bytes(self) -> int:
        """Of text, thoughts and arguments, as they were streamed."""
        return self._held.received_bytes

    @property
    def heard(self) -> ReplyProgress:
        """How far the reply has come."""
        if self._enough:
            return ReplyProgress.ENOUGH
        if self.finished or self._reason is not None:
            return ReplyProgress.WHOLE if self.finished else ReplyProgress.SAID
        return ReplyProgress.BEGUN if self._begun else ReplyProgress.NOTHING

    def feed(self, event: ServerEvent) -> str:
        """Takes one event; returns the text it adds. Raises AgentError for an error inside the
        stream or no JSON.
        """
        self.thought, data = "", event.data.strip()
        if data == "[DONE]":
            self.finished = True
        if not data or self.finished:
            return ""
        try:
            parsed: object = parse_json(data)
            chunk = _Chunk.model_validate(parsed)
        except ValueError as error:
            if not event.whole:
                return ""  # the connection broke inside this event; reply() says so
            hint = f"Check that {self._access.address} speaks Chat Completions."
            raise error_mapping.error_of_part(
                self._access, data, error, "completion", hint
            ) from error
        if chunk.error or chunk.object == "error" or event.name == "error":
            raise error_mapping.error_in_stream(self._access, parsed)
        return self._take(chunk)

    def cut(self, reason: str) -> None:
        """End the reply here, as if the server had for this reason: nothing more of it is
        wanted.
        """
        self._reason, self.finished, self._enough = reason, True, True

    def reply(self) -> Reply:
        """The whole reply. Raises AgentError(kind="network") where the stream ended before it
        did.
        """
        calls = tuple(self._closed_calls())
        if self._reason is None and not (self.finished and self._begun):
            raise AgentError(
                f"{self._access.name}: {self._access.host} cut the stream",
                kind="network",
                retry=True,
            )
        stop = (
            "refusal"
            if self._refused
            else server_quirks.FINISH_REASONS.get(
                server_quirks.normalized_reason(self._reason or "stop"), "end"
            )
        )
        if calls and stop == "end":
            stop = "calls"
        elif not calls and stop == "calls":
            stop = "end"
        text, thought = self._text.parts()
        thinking = join_surrogates("".join(self._thinking)) or join_surrogates(thought)
        return Reply(
            text=join_surrogates(text),
            thinking=((Thinking(text=thinking),) if thinking else ()) + self._unread(),
            calls=calls,
            usage=self.used,
            model=self._model or self._access.model,
            stop=stop,
        )

    def _take(self, chunk: _Chunk) -> str:
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
            self.used = usage.neutral(writing_costs=server_quirks.bills_cache_writes(self._access))
        if choice is None:
            return ""
        if (
            choice.finish_reason
            and server_quirks.normalized_reason(choice.finish_reason)
            in server_quirks.BROKEN_REASONS
        ):
            said = f"the model behind this server failed: {choice.finish_reason}"
            raise error_mapping.error_in_stream(self._access, {"message": said})
        self._reason = choice.finish_reason or self._reason
        if choice.message is not None:  # a plain completion: this is all there is
            self.finished = True
        delta = choice.delta or choice.message
        return self._take_delta(delta) if delta else ""

    def _take_delta(self, delta: _Delta) -> str:
        self.thought = delta.reasoning_content or delta.reasoning or ""
        if self.thought:
            self.reasoning_field = "reasoning_content" if delta.reasoning_content else "reasoning"
        self._thinking.append(self.thought)
        self._details += delta.reasoning_details or []
        self._held.add(
            self.thought,
            *(str(value) for one in delta.reasoning_details or [] for value in one.values()),
        )
        for shred in delta.tool_calls or []:
            self._take_call(shred)
        if delta.function_call is not None:  # the form before tools; a few servers still send it
            self._take_call(_ToolCall(index=0, function=delta.function_call))
        content = delta.content
        if isinstance(content, list):
            content = "".join(part.text or "" for part in content)
        self._refused = self._refused or bool(delta.refusal)
        text = (content or "") + (delta.refusal or "")
        self._held.add(text)
        self._begun = self._begun or bool(text or self.thought or self._calls)
        return self._text.feed(text)

    def _take_call(self, shred: _ToolCall) -> None:
        call = self._call_of(shred)
        call.id = call.id or shred.id or ""
        call.extra = call.extra or shred.extra_content
        if shred.function is None:
            return
        call.name = call.name or shred.function.name or ""
        arguments = shred.function.arguments
        if arguments is None:
            return
        written = (
            arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        )
        self._held.add(written)
        call.shreds.append(written)

    def _call_of(self, shred: _ToolCall) -> _Open:
        """The open call a shred belongs to. By its index; some servers give every call index 0, or
        none at all: there the id tells apart what is written side by side."""
        same = [call for call in self._calls if shred.index is None or call.index == shred.index]
        same = [call for call in same if shred.id and call.id == shred.id] or same
        if not same or _begins_another(same[-1], shred):
            self._calls.append(_Open(shred.index))
            self._held.parts(len(self._calls))
            same = self._calls
        return same[-1]

    def _unread(self) -> tuple[Thinking, ...]:
        """What the server wants back as it is with the calls."""
        written = [call for call in self._calls if call.name or call.arguments]
        return providers_reasoning.sealed_blocks(
            [call.extra for call in written], self._details if written else []
        )

    def _closed_calls(self) -> list[Call]:
        calls: list[Call] = []
        for call in self._calls:
            if not call.name and not call.arguments:
                continue
            taken = {other.id for other in calls}
            id = call.id if call.id and call.id not in taken else self._new_id(len(calls))
            calls.append(
                Call(
                    id=id,
                    tool=join_surrogates(call.name),
                    arguments=_arguments(join_surrogates(call.arguments)),
                )
            )
        return calls


NO_REASONING = " "
"""Goes as the reasoning of a reply that has none of this agent's: a server that asks for it asks
for all of them, and some take an empty text for none."""


def encode(
    prompt: Prompt, access: ModelEndpoint, dialect: ServerQuirks, reasoning_field: str = ""
) -> Json:
    """The request body. Only what was asked for is in it: servers refuse what they do not know.

    The agent's own thoughts of the tool loop that is open go back in `reasoning_field`.
    """
    told = prompt.system.strip() and dialect.system
    messages: list[Json] = [{"role": "system", "content": prompt.system}] if told else []
    history = _history(prompt, access, dialect)
    loop = _loop_replies(prompt.messages, history) if dialect.thoughts_back else set()
    for index, message in enumerate(history):
        field = reasoning_field if index in loop else ""
        messages.append(_message(message, access, dialect, field))
    if server_quirks.wants_cache_marks(access):
        server_quirks.add_cache_marks(messages)
    payload: Json = {
        "model": access.model,
        "messages": [*messages],
        "stream": dialect.stream,
        **_told(prompt, dialect),
    }
    payload["max_completion_tokens" if dialect.completion_tokens else "max_tokens"] = (
        dialect.tokens(prompt.max_tokens)
    )
    if prompt.tools:
        payload["tools"] = [_tool(tool, dialect) for tool in prompt.tools]
    if prompt.temperature is not None and dialect.temperature:
        payload["temperature"] = prompt.temperature
    if prompt.seed is not None and dialect.seed:
        payload["seed"] = prompt.seed
    if prompt.stop and dialect.stop:
        payload["stop"] = [*prompt.stop]
    if prompt.tools and prompt.tool_choice:
        payload["tool_choice"] = _choice(prompt.tool_choice)
    if server_quirks.wants_cache_key(access) and dialect.cache_key:
        payload["prompt_cache_key"] = server_quirks.cache_key(prompt)
    if dialect.stream and dialect.stream_usage:
        payload["stream_options"] = {"include_usage": True}
    effort = (
        (prompt.effort or access.effort)
        if dialect.effort_with_tools or not prompt.tools
        else "none"
    )
    if effort and dialect.effort:
        payload["reasoning_effort"] = effort
    if prompt.reply_schema and dialect.schema == "schema":
        schema: Json = {"name": "reply", "schema": parse_json(prompt.reply_schema)}
        payload["response_format"] = {"type": "json_schema", "json_schema": schema}
    elif prompt.reply_schema and dialect.schema == "object":
        payload["response_format"] = {"type": "json_object"}
    return payload


def _told(prompt: Prompt, dialect: ServerQuirks) -> Json:
    return {"metadata": dict(prompt.metadata)} if prompt.metadata and dialect.metadata else {}


def _history(prompt: Prompt, access: ModelEndpoint, dialect: ServerQuirks) -> tuple[Message, ...]:
    said = prompt.messages if dialect.system else (FromUser(text=prompt.system), *prompt.messages)
    history = with_media_behind_results(normalized(said, access.name if dialect.sealed else ""))
    mistral = access.host.endswith("mistral.ai")
    history = with_short_ids(history) if dialect.short_ids or mistral else history
    return with_agent_between(history) if dialect.bridged or mistral else history


def _loop_replies(messages: Sequence[Message], history: Sequence[Message]) -> set[int]:
    """Places in `history`, which was made of `messages`, of the replies with calls since the user
    last spoke.
    """
    count = 0
    for message in reversed(messages):
        if isinstance(message, FromUser):
            break
        count += isinstance(message, FromAgent) and bool(message.calls)
    replies = [
        index
        for index, message in enumerate(history)
        if isinstance(message, FromAgent) and message.calls
    ]
    return set(replies[len(replies) - count :])


def _message(
    message: Message, access: ModelEndpoint, dialect: ServerQuirks, reasoning_field: str
) -> Json:
    match message:
        case FromUser():
            return {"role": "user", "content": _said(message)}
        case FromTool():
            return {"role": "tool", "tool_call_id": message.call, "content": message.text}
        case FromAgent():
            said: Json = {
                "role": "assistant",
                "content": message.text or (None if dialect.null_content else ""),
            }
            if message.calls:
                said["tool_calls"] = _calls(message, access)
            own = message.thinking if message.agent == access.name else ()
            thought = "\n".join(block.text for block in own if block.text)
            if sealed := reasoning.sealed_reasoning(message, access):
                said[reasoning.REASONING_DETAILS] = sealed
            elif thought and reasoning_field:
                said[reasoning_field] = thought
            if dialect.reasoning_back:
                said["reasoning_content"] = thought or NO_REASONING
            return said


def _said(message: FromUser) -> JsonValue:
    """Words alone are a text; many servers know nothing else."""
    if not message.media:
        return message.text
    words: list[JsonValue] = (
        [{"type": "text", "text": message.text}] if message.text.strip() else []
    )
    return [*words, *(_part(one) for one in message.media)]


def _part(one: Media) -> JsonValue:
    url = f"data:{one.type};base64,{one.data}"
    if one.is_picture:
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "file", "file": {"filename": one.name, "file_data": url}}


def _calls(message: FromAgent, access: ModelEndpoint) -> list[JsonValue]:
    calls: list[JsonValue] = []
    for call, extra in zip(message.calls, reasoning.call_signatures(message, access), strict=True):
        function: Json = {"name": call.tool, "arguments": call.arguments}
        made: Json = {"id": call.id, "type": "function", "function": function}
        calls.append({**made, reasoning.EXTRA_CONTENT: extra} if extra else made)
    return calls


def _choice(choice: str) -> JsonValue:
    return (
        choice
        if choice in ("none", "required")
        else {"type": "function", "function": {"name": choice}}
    )


def _tool(tool: ToolSpec, dialect: ServerQuirks) -> Json:
    parameters = server_quirks.tool_parameters(tool, dialect)
    return {
        "type": "function",
        "function": {"name": tool.name, "description": tool.description, "parameters": parameters},
    }


IsComplete = Callable[[Prompt, Sequence[str], str], str]
"""Why nothing more of a reply is wanted, "" while it goes on: of the prompt, the pieces so far, and
what was shown.
"""


class OpenAI(WireAgent):
    """An entry of the pool behind a Chat Completions server."""

    def __init__(
        self,
        access: ModelEndpoint,
        transport: httpx.AsyncBaseTransport | None = None,
        over: IsComplete | None = None,
    ) -> None:
        super().__init__(access, access.credentials, transport)
        self._over = over
        self._reasoning_field = ""

    async def _once(self, prompt: Prompt, say: Say, quirks: ServerQuirks) -> Reply:
        decoder = ChatCompletionsDecoder(self._access, lambda number: call_id(prompt, number))
        stops = StopSequences(() if quirks.stop else prompt.stop)
        shown, said = "\n".join(message.text for message in prompt.messages), list[str]()

        def hear(text: str) -> None:
            say(text)
            said.append(text)
            if self._over and not decoder.finished and (reason := self._over(prompt, said, shown)):
                decoder.cut(reason)

        body = encode(prompt, self._access, quirks, self._reasoning_field)
        heard = say if self._over is None else hear
        try:
            return await self._exchange(("/chat/completions", body), decoder, stops, heard, prompt)
        finally:
            self._reasoning_field = decoder.reasoning_field or self._reasoning_field


if TYPE_CHECKING:
    from fugu_cli.providers import Agent

    def _fits(agent: OpenAI) -> Agent:
        return agent
