"""A client's request whatever its wire, its options, the answer and the refusal; and what the three
wires share to read and write them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, FailFast, Field, JsonValue, ValidationError

from fugu_cli.messages import Call, Effort, Media, Message, ToolSpec, Usage
from fugu_cli.server.json_bounds import TooManyValues, check_bounds
from fugu_cli.system.bounded_json import NestedTooDeeply
from fugu_cli.tools import media

StopReason = Literal["end", "calls", "length", "refusal", "cut"]
Tier = Literal["fugu", "ultra"]

DEFAULT_MAX_TOKENS = 8192
"""Tokens a reply may have where the client names no limit."""


@dataclass(frozen=True)
class RequestOptions:
    """What a client may choose for one request, from headers and `metadata`. `budget` in USD; None:
    as configured. `traceparent`: the client's own span, in W3C's form. `metadata`: what else there
    is, for the provider."""

    opt_out: frozenset[str] = frozenset()
    tier: Tier | None = None
    budget: float | None = None
    verify: bool | None = None
    traceparent: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RequestSampling:
    """How the reply is drawn. `choice`: "" (the model decides), none, required, or the name of the
    tool to call.
    """

    max_tokens: int = DEFAULT_MAX_TOKENS
    temperature: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    choice: str = ""
    reply_schema: str = ""
    single: bool = False
    """One call a reply at most: the client runs one after the other."""
    effort: Effort = ""
    """The most that an agent may reason; "" where the client says nothing of it."""
    reasons: bool = True
    """An agent whose entry names no effort reasons as much; else it only bounds an entry's own."""


@dataclass(frozen=True)
class ClientRequest:
    """One request. `model` as the client named it; `tools` are the client's own: it runs them, not
    fugu.
    """

    model: str
    messages: tuple[Message, ...]
    system: str = ""
    tools: tuple[ToolSpec, ...] = ()
    sampling: RequestSampling = RequestSampling()
    options: RequestOptions = RequestOptions()
    stream: bool = False
    counted: bool = True
    """The stream ends with its usage (`stream_options.include_usage`, where a wire has it)."""
    freeform: frozenset[str] = frozenset()
    """Tools that take plain text instead of JSON (custom tools of the Responses wire)."""
    namespaces: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Tools in a namespace (Responses): it and the client's own name of each, by the name that
    agents are offered.
    """
    left_out: tuple[str, ...] = ()
    """Kinds of tools that a provider would run: no agent is offered them, and the answer says
    so.
    """
    reasoning: bool = False
    """The client wants to read what was thought."""
    repeated: Mapping[str, JsonValue] = field(default_factory=dict)
    """What the wire's answer says again of the request."""

    @property
    def in_tool_loop(self) -> bool:
        """The client brings results of calls that an agent made: the turn goes on."""
        for message in reversed(self.messages):
            if message.type == "agent":
                return False
            if message.type == "tool":
                return True
        return False


@dataclass(frozen=True)
class AnswerHead:
    """What is known of an answer before it begins. `id` is the trace's; `created` seconds since the
    epoch.
    """

    id: str
    model: str
    created: int


@dataclass(frozen=True)
class ServedAnswer:
    """What goes back. `usage` is of the reply the client gets; `orchestration` of all that led to
    it.

    `agent` and `served` say who wrote it: the pool's name and the provider's. `cost` in USD, of
    everything.
    """

    text: str
    calls: tuple[Call, ...] = ()
    stop: StopReason = "end"
    usage: Usage = field(default_factory=Usage)
    orchestration: Usage = field(default_factory=Usage)
    agent: str = ""
    served: str = ""
    cost: float = 0.0
    reasoning: str = ""
    """What its author thought, as far as the provider tells."""
    note: str = ""
    """How the request ended, where that is more than "answered"."""


TOO_LONG = "context_length_exceeded"
"""The code of a request that is longer than an agent can read: clients compact their conversation
then.
"""


class RequestRefused(Exception):
    """A request that gets no answer. `str(error)` is for people; `kind` is OpenAI's `error.type`,
    `code` its code.

    `after`: seconds after which trying again makes sense, None where it does not.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "invalid_request_error",
        code: str = "",
        after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.code = code
        self.after = after


OPTION_NAMES: Mapping[str, tuple[str, ...]] = {
    "opt_out": ("opt_out",),
    "tier": ("tier",),
    "budget": ("max_budget_usd", "budget_usd", "budget"),
    "verify": ("verify",),
}

OWN_NAMES = frozenset(
    own for names in OPTION_NAMES.values() for name in names for own in (name, f"fugu_{name}")
)


def read_options(headers: Mapping[str, str], metadata: Mapping[str, JsonValue]) -> RequestOptions:
    """The options of a request. Raises RequestRefused (400) that names what cannot be understood."""
    return RequestOptions(
        opt_out=frozenset(_names(_said("opt_out", headers, metadata))),
        tier=_tier(_said("tier", headers, metadata)),
        budget=_money(_said("budget", headers, metadata)),
        verify=_switch(_said("verify", headers, metadata)),
        traceparent=headers.get("traceparent", ""),
        metadata={
            name: value
            for name, value in metadata.items()
            if isinstance(value, str) and name not in OWN_NAMES
        },
    )


def _said(option: str, headers: Mapping[str, str], metadata: Mapping[str, JsonValue]) -> JsonValue:
    for name in OPTION_NAMES[option]:
        value = headers.get(f"x-fugu-{name.replace('_', '-')}")
        if value is not None:
            return value
    for name in OPTION_NAMES[option]:
        for key in (f"fugu_{name}", name):
            if metadata.get(key) is not None:
                return metadata[key]
    return None


def _names(value: JsonValue) -> list[str]:
    if value is None:
        return []
    parts = value if isinstance(value, list) else str(value).split(",")
    return [text for part in parts if (text := str(part).strip())]


def _tier(value: JsonValue) -> Tier | None:
    match value:
        case None | "":
            return None
        case "fugu":
            return "fugu"
        case "ultra":
            return "ultra"
    raise RequestRefused(
        400, f"the tier {value!r} does not exist: fugu or ultra", code="invalid_tier"
    )


def _money(value: JsonValue) -> float | None:
    if value in (None, ""):
        return None
    try:
        amount = float(str(value))
    except ValueError:
        amount = math.nan
    if not (math.isfinite(amount) and amount > 0):
        raise RequestRefused(
            400, f"the budget {value!r} is no amount of USD above 0", code="invalid_budget"
        )
    return amount


def _switch(value: JsonValue) -> bool | None:
    if value is None or isinstance(value, bool):
        return value
    word = str(value).strip().lower()
    if word in ("true", "1", "yes", "on"):
        return True
    if word in ("false", "0", "no", "off"):
        return False
    raise RequestRefused(400, f"verify is true or false, not {value!r}", code="invalid_verify")


Json = dict[str, JsonValue]


class LenientModel(BaseModel):
    """Something a client sent. What is not known is left alone: SDKs send more than is
    documented.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class FirstFault(FailFast):
    """Reads no more of a list after its first fault. Can be hashed, as parts of a Union must be."""

    __hash__ = object.__hash__


Item = TypeVar("Item")
ItemList = Annotated[list[Item], FirstFault()]


class ReplyForm(LenientModel):
    """The form that a reply should have (Responses, Messages)."""

    type: str = "text"
    schema_: JsonValue = Field(default=None, alias="schema")


class Stream(Protocol):
    """One answer on its way, as server-sent events. Each method returns the bytes to send."""

    @property
    def events_for(self) -> frozenset[str]:
        """Codes of refusals that clients look for in a stream, and not in a status."""

    def begin(self) -> bytes: ...

    def piece(self, text: str) -> bytes: ...

    def thought(self, text: str) -> bytes: ...

    def end(self, answer: ServedAnswer) -> bytes: ...

    def fail(self, refused: RequestRefused) -> bytes: ...

    def idle(self) -> bytes:
        """What keeps a connection alive while nothing can be said."""


@dataclass(frozen=True)
class Wire:
    """One of the three: how a request is read from it and how an answer is written to it. `parse`
    raises Refused for what cannot be understood or is not offered."""

    parse: Callable[[bytes, Mapping[str, str]], ClientRequest]
    whole: Callable[[AnswerHead, ServedAnswer, ClientRequest], Json]
    stream: Callable[[AnswerHead, ClientRequest], Stream]
    failure: Callable[[RequestRefused], Json]


Model = TypeVar("Model", bound=BaseModel)


def parse_body(model: type[Model], body: bytes) -> Model:
    """Parse `body` as one of the models above. Raises RequestRefused: 413 for more than anybody
    needs, else 400 that names the first fault."""
    try:
        check_bounds(body)
    except TooManyValues as error:
        raise RequestRefused(413, str(error), code="request_too_large") from error
    except NestedTooDeeply as error:
        raise RequestRefused(400, f"the request: {error}", code="invalid_body") from error
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in fault["loc"])
        said = fault["msg"] if fault["type"] != "json_invalid" else "the body is not JSON"
        raise RequestRefused(
            400, f"{where}: {said}" if where else said, code="invalid_body"
        ) from error


MOST_MESSAGES = 10_000


def check_messages(asking: ClientRequest) -> ClientRequest:
    """Return the request. Raises RequestRefused (413) for one of more messages than are read."""
    if len(asking.messages) > MOST_MESSAGES:
        raise RequestRefused(
            413,
            f"the request holds {len(asking.messages)} messages; at most {MOST_MESSAGES} are read",
            code="request_too_large",
        )
    return asking


LARGEST_TOKEN_LIMIT = 2**31 - 1
"""Tokens that may be named as a limit: what servers read as a whole number."""


def token_limit(name: str, sent: int | None, fallback: int) -> int:
    """The parameter `name`, a limit in tokens. Raises RequestRefused (400) for one that leaves no room or
    is no number of tokens."""
    if sent is not None and sent < 1:
        raise RequestRefused(400, f"{name} must be at least 1", code="invalid_value")
    if sent is not None and sent > LARGEST_TOKEN_LIMIT:
        raise RequestRefused(
            400, f"{name} must be at most {LARGEST_TOKEN_LIMIT}", code="invalid_value"
        )
    return sent or fallback


def reply_schema(kind: str, schema: JsonValue, path: str) -> str:
    """A reply's form as a JSON schema, "" for text. `path`: where the schema stands. Raises RequestRefused
    (400).
    """
    match kind:
        case "text":
            return ""
        case "json_object":
            return json.dumps({"type": "object"})
        case "json_schema" if schema:
            return json.dumps(schema)
        case "json_schema":
            raise RequestRefused(400, f"{path} is missing", code="missing_value")
    raise RequestRefused(
        400, f"{path.split('.')[0]}: {kind!r} is not offered: text, json_object, json_schema"
    )


def function_tool(name: str, description: str | None, parameters: Json | None) -> ToolSpec:
    """A tool that takes JSON."""
    schema = parameters or {"type": "object", "properties": {}}
    return ToolSpec(name=name, description=description or "", parameters=json.dumps(schema))


def no_role(where: str, role: str) -> RequestRefused:
    """The refusal of a message that nobody can have said."""
    return RequestRefused(400, f"{where}.role: {role!r} is no role", code="invalid_value")


def sse_event(data: Mapping[str, JsonValue] | str, name: str = "") -> bytes:
    """One server-sent event."""
    text = (
        data
        if isinstance(data, str)
        else json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    )
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {text}\n\n".encode("utf-8", "replace")


def openai_usage(answer: ServedAnswer, input: str, output: str) -> Json:
    """The usage as OpenAI's wires have it, under their names for the input and the output side.
    What the orchestration took stands as `fugu help serve` names it."""
    usage, orchestration = answer.usage, answer.orchestration
    return {
        f"{input}_tokens": usage.input,
        f"{output}_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        f"{input}_tokens_details": {
            "cached_tokens": usage.cached,
            "orchestration_input_tokens": orchestration.input,
            "orchestration_input_cached_tokens": orchestration.cached,
        },
        f"{output}_tokens_details": {
            "reasoning_tokens": usage.reasoning,
            "orchestration_output_tokens": orchestration.output,
        },
    }


def answer_details(head: AnswerHead, answer: ServedAnswer, asking: ClientRequest) -> Json:
    """What fugu adds to an answer: who wrote it, where the trace is, what it cost, which tools
    nobody was offered.
    """
    said: Json = {
        "trace": head.id,
        "agent": answer.agent,
        "model": answer.served,
        "cost_usd": round(answer.cost, 8),
    }
    said |= {"left_out": [*asking.left_out]} if asking.left_out else {}
    return {**said, "end": answer.note} if answer.note else said


class ClientMedia:
    """What came beside the words of one message: its pictures and PDFs, and a line for each that
    cannot be taken. What a client sent stays in its conversation, so none of it is refused: that
    would end the conversation."""

    def __init__(self, message: int) -> None:
        self._message = message
        self.taken: list[Media] = []

    def add(self, data: str, kind: str, name: str = "") -> str:
        """Take one as base64; the line that stands for it in the text, "" where it is taken."""
        unnamed = f"{len(self.taken) + 1} of message {self._message + 1}"
        try:
            self.taken.append(media.take_base64(data, name or unnamed, kind))
        except media.NotTaken as error:
            return f"[{error}]"
        return ""

    def add_url(self, url: str, name: str = "") -> str:
        """The same of a `data:` URL. Nothing is fetched."""
        head, comma, data = url.partition(",")
        if not (head.startswith("data:") and head.endswith(";base64") and comma):
            return (
                "[A picture or file is not shown: only data: URLs in base64 are taken, nothing "
                "is fetched.]"
            )
        return self.add(data, head[5:].partition(";")[0], name)


def join_text(parts: Sequence[str]) -> str:
    """Text parts of one message as one text."""
    return "\n\n".join(part for part in parts if part.strip())
