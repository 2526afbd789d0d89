"""The messages between agents and fugu, in one neutral form that belongs to no provider.

Beside events: events carry these values, views build them, agents convert them for their wire and
parse replies back into them. Values only: no ids of our own, no clock, no provider's field names.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    SerializerFunctionWrapHandler,
    model_serializer,
)
from pydantic_core import PydanticSerializationError

BYTES_PER_TOKEN = 3
"""A prompt's tokens are taken as its bytes / 3: more than any tokenizer met so far makes of code
and prose.
"""

Effort = Literal["", "none", "minimal", "low", "medium", "high", "xhigh", "max"]
"""The amount a model may reason before it answers; "" leaves it to the server."""
EFFORTS: tuple[Effort, ...] = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""The least first."""
THINKING_TOKENS = {
    "minimal": 1024,
    "low": 2048,
    "medium": 8192,
    "high": 24576,
    "xhigh": 32768,
    "max": 65536,
}
"""Tokens of an effort where an API wants a budget for it. They are a part of `max_tokens`."""


class Value(BaseModel):
    """Frozen, closed: an unknown field is an error, equal content is equal."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Call(Value):
    """A tool call as the agent made it. `arguments` is the JSON text that it wrote."""

    id: str
    tool: str
    arguments: str = "{}"

    @classmethod
    def make(cls, id: str, tool: str, **arguments: object) -> Call:
        """Return a call with its arguments given as values."""
        return cls(id=id, tool=tool, arguments=json.dumps(arguments, ensure_ascii=False))


class Thinking(Value):
    """A reasoning block. Opaque: `data` is the provider's own JSON, returned to the same agent and
    to no other. `field` is the field of a message in which a server sent the text alone; "content"
    if it came in think tags.
    """

    text: str = ""
    data: str = ""
    field: str = ""


def with_call_ids(
    calls: Sequence[Call], thinking: tuple[Thinking, ...], ids: Sequence[str]
) -> tuple[tuple[Call, ...], tuple[Thinking, ...]]:
    """Give calls new ids, also where the provider's own reasoning names a call by its id."""
    names = {call.id: id for call, id in zip(calls, ids, strict=True) if call.id != id}
    renamed = [call.model_copy(update={"id": id}) for call, id in zip(calls, ids, strict=True)]
    blocks = []
    for block in thinking:
        if any(name in block.data for name in names):
            try:
                data: JsonValue = json.loads(block.data)
            except (ValueError, RecursionError):
                data = None
            changed = _with_ids(data, names, is_id=False)
            if changed != data:
                text = json.dumps(changed, ensure_ascii=False)
                block = block.model_copy(update={"data": text})
        blocks.append(block)
    return tuple(renamed), tuple(blocks)


def _with_ids(value: JsonValue, names: Mapping[str, str], *, is_id: bool) -> JsonValue:
    """Return the value with new ids in its fields that are named like one, and as the keys of
    objects.
    """
    if isinstance(value, str):
        return names.get(value, value) if is_id else value
    if isinstance(value, list):
        return [_with_ids(item, names, is_id=is_id) for item in value]
    if isinstance(value, dict):
        return {
            names.get(key, key): _with_ids(item, names, is_id=key.lower().endswith(("id", "ids")))
            for key, item in value.items()
        }
    return value


def _known_count(count: object) -> int | None:
    if isinstance(count, float) and count.is_integer():
        count = int(count)
    if isinstance(count, int) and not isinstance(count, bool) and count >= 0:
        return count
    return None


TokenCount = Annotated[int | None, BeforeValidator(_known_count)]
"""Tokens as a server counted them; None where it sent a negative number, or something else."""


class Usage(Value):
    """The tokens of one reply.

    `input` counts all tokens of the prompt, `cached` those of them that were read from a prompt
    cache, and `written` those that were written to one, if writing has its own price.
    `estimated_input` and `estimated_output` are the parts that no server counted.
    """

    input: int = 0
    cached: int = 0
    written: int = 0
    output: int = 0
    reasoning: int = 0
    estimated_input: int = 0
    estimated_output: int = 0

    @model_serializer(mode="wrap")
    def _plain(self, serialise: SerializerFunctionWrapHandler) -> dict[str, JsonValue]:
        """Without what most calls have none of: tokens put into a cache, and estimates."""
        optional = ("written", "estimated_input", "estimated_output")
        return {
            key: value for key, value in serialise(self).items() if value or key not in optional
        }

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input=self.input + other.input,
            cached=self.cached + other.cached,
            written=self.written + other.written,
            output=self.output + other.output,
            reasoning=self.reasoning + other.reasoning,
            estimated_input=self.estimated_input + other.estimated_input,
            estimated_output=self.estimated_output + other.estimated_output,
        )

    @property
    def is_estimated(self) -> bool:
        """Return whether fugu estimated a part of it, which no server counted."""
        return bool(self.estimated_input or self.estimated_output)


class PaidUse(Value):
    """A model call made by a tool (a provider's own web search). The prices of `agent` apply."""

    agent: str
    usage: Usage


class PaidValue(Value):
    """An event that may include a paid model call."""

    paid: PaidUse | None = None

    @property
    def agent(self) -> str:
        """The agent whose prices apply, "" if none."""
        return self.paid.agent if self.paid is not None else ""

    @property
    def usage(self) -> Usage:
        return self.paid.usage if self.paid is not None else Usage()


class Media(Value):
    """A picture or a PDF beside a text. A log holds this alone; the bytes lie beside it, under
    `sha` (session/log.py). A picture is as models are sent it: PNG or JPEG, scaled down."""

    name: str
    type: str
    """image/png, image/jpeg or application/pdf."""
    sha: str
    """SHA-256 of the bytes, in hexadecimal."""
    size: int
    """Bytes."""
    width: int = 0
    height: int = 0
    pages: int = 0
    text: str = ""
    """The text of a PDF, for models that cannot read it, cut like the text of a file."""
    data: str = Field(default="", exclude=True, repr=False)
    """The bytes in base64. In memory alone."""

    @property
    def is_picture(self) -> bool:
        """Only a model with vision can be shown it."""
        return self.type.startswith("image/")

    @property
    def described(self) -> str:
        """`picture shot.png, 800x600`, `PDF report.pdf, 12 pages`."""
        if self.is_picture:
            return f"picture {self.name}, {self.width}x{self.height}"
        return f"PDF {self.name}, {self.pages} page{'' if self.pages == 1 else 's'}"

    @property
    def line(self) -> str:
        """The same for people, with its size: `shot.png, 800x600, 12 kB`."""
        return f"{self.described.partition(' ')[2]}, {-(-self.size // 1000):,} kB"

    @property
    def tokens(self) -> int:
        """Tokens of it in a prompt, guessed: of a picture its pixels / 750, of a PDF 2,000 a
        page.
        """
        return -(-self.width * self.height // 750) if self.is_picture else 2000 * self.pages


def _without_no_media(fields: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Without an empty `media`: the key of a kept reply stays what it was before there were
    pictures.
    """
    return {key: value for key, value in fields.items() if value or key != "media"}


class FromUser(Value):
    """Something said to the agent by the user, or by fugu on the user's behalf (evidence, other
    agents' work).
    """

    type: Literal["user"] = "user"
    text: str
    media: tuple[Media, ...] = ()

    @model_serializer(mode="wrap")
    def _plain(self, serialise: SerializerFunctionWrapHandler) -> dict[str, JsonValue]:
        return _without_no_media(serialise(self))


class FromAgent(Value):
    """An earlier reply of some agent. `agent` names its author: thinking of another author is never
    rendered.
    """

    type: Literal["agent"] = "agent"
    agent: str
    text: str = ""
    thinking: tuple[Thinking, ...] = ()
    calls: tuple[Call, ...] = ()


INTERRUPTED = "interrupted: this call has no result"
"""The text of a result for a call that has none."""


class FromTool(Value):
    """The result of one call of the newest FromAgent message."""

    type: Literal["tool"] = "tool"
    call: str
    tool: str
    text: str
    ok: bool = True
    media: tuple[Media, ...] = ()

    @model_serializer(mode="wrap")
    def _plain(self, serialise: SerializerFunctionWrapHandler) -> dict[str, JsonValue]:
        return _without_no_media(serialise(self))


Message = Annotated[FromUser | FromAgent | FromTool, Field(discriminator="type")]


class ToolSpec(Value):
    """A tool as an agent sees it. `parameters` is the JSON schema of its arguments, as JSON
    text.
    """

    name: str
    description: str
    parameters: str


OPTIONAL = ("effort", "stop", "tool_choice", "allowed_tools")


class Prompt(Value):
    """Everything one model call depends on; its canonical JSON is the key of the reply cache."""

    system: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    max_tokens: int = 2048
    temperature: float | None = None
    seed: int | None = None
    effort: Effort = ""
    """The agent's reasoning effort, in place of its entry's."""
    reply_schema: str = ""
    """A JSON schema, as text, that the reply must follow; for servers that can hold a model to
    one.
    """
    stop: tuple[str, ...] = ()
    """Texts that end the reply; they are not part of it."""
    tool_choice: str = ""
    """none, required, or the name of the tool to be called; "" leaves it to the model."""
    allowed_tools: tuple[str, ...] = ()
    """The tools that may be called, where these are not all of `tools`; the list itself stays the
    same, so that it is cached.
    """
    role: Literal["", "thinker", "worker", "verifier"] = Field(default="", exclude=True)
    """The role of the turn; "" outside of one. The model does not read it."""
    request: str = Field(default="", exclude=True)
    """The turn's task in the words of the request. It stands among the messages as well."""
    metadata: dict[str, str] = Field(default_factory=dict, exclude=True)
    """Metadata of a client of `fugu serve` for the provider. The model does not read it."""

    @model_serializer(mode="wrap")
    def _plain(self, serialise: SerializerFunctionWrapHandler) -> dict[str, JsonValue]:
        """Without what was not asked for: the key of a kept reply stays what it was before there
        was more to ask.
        """
        return {
            key: value for key, value in serialise(self).items() if value or key not in OPTIONAL
        }

    @property
    def media(self) -> tuple[Media, ...]:
        """All that is shown beside words, oldest first."""
        shown: list[Media] = []
        for message in self.messages:
            if not isinstance(message, FromAgent):
                shown += message.media
        return tuple(shown)

    @property
    def estimated_tokens(self) -> float:
        """The most tokens that the prompt can have, for money; compaction.prompt_tokens is the
        likely number, for the context.
        """
        texts = [self.system, self.reply_schema]
        for item in (*self.messages, *self.tools):
            try:
                texts.append(item.model_dump_json())
            except PydanticSerializationError:  # half of a character
                texts.append(repr(item))
        size = len("".join(texts).encode("utf-8", "replace"))
        return size / BYTES_PER_TOKEN + sum(media.tokens for media in self.media)

    def longest(self, own: int | None) -> int:
        """Tokens the reply may have. `own`: what the agent's entry says, which counts for every
        call of that agent.
        """
        return self.max_tokens if own is None else own


class Reply(Value):
    """A reply. `model` is the serving model by the provider's name; `stop` is why it ended."""

    text: str = ""
    thinking: tuple[Thinking, ...] = ()
    calls: tuple[Call, ...] = ()
    usage: Usage = Usage()
    model: str = ""
    stop: Literal["end", "calls", "length", "refusal", "cut"] = "end"
    response_id: str = ""
    """The provider's id of the reply, "" if it gives none."""
    max_tokens: int = 0
    """The limit that its server was sent, 0 if unknown."""
    refused: tuple[str, ...] = ()
    """`sha` of media in the prompt that its provider refused: a line stood in their place."""
    seconds: float = 0.0
    """The call's duration when it was paid for, if a stored reply stands in for it; 0: as long as
    now.
    """
