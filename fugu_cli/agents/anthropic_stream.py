"""The answer of a Messages server, piece by piece: server-sent events in, text to show and at last a Reply out.

Sans IO, the second half of anthropic.py. Blocks are opened, filled by deltas and closed; a whole message at once is
taken as well. A thinking block is kept as the provider's own JSON: its signature is worth nothing if a byte changes, or
its place in the message, which stands beside the provider's own fields (weaving.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, JsonValue, model_validator

from fugu_cli.agents import failures
from fugu_cli.agents.access import Access
from fugu_cli.agents.bounds import Held
from fugu_cli.agents.history import paired
from fugu_cli.agents.reasons import Stop
from fugu_cli.agents.sse import Heard, ServerEvent
from fugu_cli.agents.weaving import mark
from fugu_cli.errors import AgentError
from fugu_cli.messages import Call, Reply, Thinking, Usage

STOPS: dict[str, Stop] = {
    "end_turn": "end",
    "stop_sequence": "end",
    "pause_turn": "end",
    "tool_use": "calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
}


class _Wire(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    @model_validator(mode="before")
    @classmethod
    def _nulls_say_nothing(cls, given: object) -> object:
        """Servers that only speak like Anthropic send null where there is no text, signature or model yet."""
        return {key: value for key, value in given.items() if value is not None} if isinstance(given, dict) else given


class _Usage(_Wire):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None


class _Block(_Wire):
    type: str
    text: str = ""
    thinking: str = ""
    signature: str = ""
    data: str = ""
    id: str = ""
    name: str = ""
    input: JsonValue = None


class _Delta(_Wire):
    type: str = ""
    text: str = ""
    thinking: str = ""
    signature: str = ""
    partial_json: str = ""
    stop_reason: str | None = None


class _Message(_Wire):
    model: str = ""
    content: list[_Block] = []
    stop_reason: str | None = None
    usage: _Usage | None = None


class _Event(_Wire):
    type: str
    message: _Message | None = None
    index: int = 0
    content_block: _Block | None = None
    delta: _Delta | None = None
    usage: _Usage | None = None


class _Whole(_Message):
    """A message that was not streamed."""

    type: Literal["message"]


class _Open:
    """A block being written."""

    def __init__(self, block: _Block) -> None:
        self.block = block
        self._text, self._thinking, self._signature = [block.text], [block.thinking], [block.signature]
        self._json: list[str] = []

    def fill(self, delta: _Delta) -> None:
        for pieces, piece in (
            (self._text, delta.text),
            (self._thinking, delta.thinking),
            (self._signature, delta.signature),
            (self._json, delta.partial_json),
        ):
            if piece:
                pieces.append(piece)

    @property
    def text(self) -> str:
        return "".join(self._text)

    @property
    def thinking(self) -> str:
        return "".join(self._thinking)

    @property
    def signature(self) -> str:
        return "".join(self._signature)

    @property
    def json(self) -> str:
        return "".join(self._json)

    def call(self) -> Call:
        given = self.block.input if isinstance(self.block.input, dict) else {}
        return Call(
            id=self.block.id,
            tool=paired(self.block.name),
            arguments=paired(self.json) or json.dumps(given, ensure_ascii=False),
        )

    def kept(self, after: tuple[int, int]) -> Thinking:
        place = mark(after)
        if self.block.type == "redacted_thinking":
            return Thinking(data=json.dumps({"type": "redacted_thinking", "data": self.block.data, **place}))
        text = paired(self.thinking)
        data = {"type": "thinking", "thinking": text, "signature": self.signature, **place}
        return Thinking(text=text, data=json.dumps(data, ensure_ascii=False))


def _text(blocks: Sequence[_Open]) -> str:
    return paired("".join(block.text for block in blocks if block.block.type == "text"))


def _calls(blocks: Sequence[_Open]) -> tuple[Call, ...]:
    return tuple(block.call() for block in blocks if block.block.type == "tool_use")


def _thinking(blocks: Sequence[_Open]) -> Iterator[Thinking]:
    for place, block in enumerate(blocks):
        if block.block.type in ("thinking", "redacted_thinking"):
            before = blocks[:place]
            yield block.kept((len(_text(before)), len(_calls(before))))


class Decoding:
    """One answer. `finished` once nothing more is expected; `reply` may then be asked for."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._held = Held(access.name, access.host)
        self._blocks: dict[int, _Open] = {}
        self._usage = _Usage()
        self._model = ""
        self._reason: str | None = None
        self.finished = False

    @property
    def heard(self) -> Heard:
        """How far the reply has come: a block that is opened is a sign of its first token."""
        if self.finished or self._reason is not None:
            return Heard.WHOLE if self.finished else Heard.SAID
        return Heard.BEGUN if self._blocks else Heard.NOTHING

    def feed(self, event: ServerEvent) -> str:
        """Takes one event; returns the text it adds. Raises AgentError for an error inside the stream or no JSON."""
        if not event.data.strip() or self.finished:
            return ""
        try:
            parsed: object = json.loads(event.data)
            if isinstance(parsed, dict) and parsed.get("type") == "message":
                return self._take_whole(_Whole.model_validate(parsed))
            taken = _Event.model_validate(parsed)
        except (ValueError, RecursionError) as error:
            if not event.whole:
                return ""  # the connection broke inside this event; reply() says so
            hint = f"Check that {self._access.address} speaks the Messages API."
            raise failures.no_part(self._access, event.data, error, "message", hint) from error
        if taken.type == "error":
            raise failures.in_stream(self._access, parsed)
        return self._take(taken)

    def reply(self) -> Reply:
        """The whole reply. Raises AgentError(kind="network") where the stream ended before it did."""
        if not self.finished and self._reason is None:
            raise AgentError(f"{self._access.name}: {self._access.host} cut the stream", kind="network", retry=True)
        blocks = [self._blocks[index] for index in sorted(self._blocks)]
        calls = _calls(blocks)
        stop = STOPS.get(self._reason or "end_turn", "end")
        if stop in ("end", "calls"):
            stop = "calls" if calls else "end"
        return Reply(
            text=_text(blocks),
            thinking=tuple(_thinking(blocks)),
            calls=calls,
            usage=self.used,
            model=self._model or self._access.model,
            stop=stop,
        )

    def _take(self, event: _Event) -> str:
        match event.type:
            case "message_start" if event.message is not None:
                self._model = event.message.model
                self._count(event.message.usage)
            case "content_block_start" if event.content_block is not None:
                block = event.content_block
                self._held.add(block.text, block.thinking, block.signature, block.data)
                self._blocks[event.index] = _Open(block)
                self._held.parts(len(self._blocks))
                return block.text if block.type == "text" else ""
            case "content_block_delta" if event.delta is not None and event.index in self._blocks:
                delta = event.delta
                self._held.add(delta.text, delta.thinking, delta.signature, delta.partial_json)
                self._blocks[event.index].fill(delta)
                return delta.text
            case "message_delta":
                self._count(event.usage)
                self._reason = (event.delta.stop_reason if event.delta else None) or self._reason
            case "message_stop":
                self.finished = True
        return ""  # pings, and whatever is added to this protocol later

    def _take_whole(self, message: _Whole) -> str:
        self._model, self._reason, self.finished = message.model, message.stop_reason, True
        self._blocks = {index: _Open(block) for index, block in enumerate(message.content)}
        self._count(message.usage)
        return "".join(block.text for block in message.content if block.type == "text")

    def _count(self, usage: _Usage | None) -> None:
        """The newest figure of each kind: the counts of `message_delta` are cumulative. Servers that only speak like
        Anthropic say 0 there of a prompt that `message_start` has counted."""
        if usage is not None:
            said = usage.model_dump(exclude_none=True)
            kept = {kind: count for kind, count in said.items() if count or kind == "output_tokens"}
            self._usage = self._usage.model_copy(update=kept)

    @property
    def used(self) -> Usage:
        """What the server has reported so far, whatever becomes of the reply."""
        usage = self._usage
        cached, created = usage.cache_read_input_tokens or 0, usage.cache_creation_input_tokens or 0
        read = (usage.input_tokens or 0) + cached + created
        return Usage(input=read, cached=cached, written=created, output=usage.output_tokens or 0)
