"""A client's request, its options, the answer and the refusal, independent of the wire, with the
code that all three wires share.
"""

from __future__ import annotations

import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, FailFast, Field, JsonValue, ValidationError

from fugu_cli.messages import Call, Effort, Media, Message, ToolSpec, Usage
from fugu_cli.session.events import LONGEST_REPLY
from fugu_cli.system.bounded_json import NestedTooDeeply
from fugu_cli.wires.json_bounds import TooManyValues, check_bounds

StopReason = Literal["end", "calls", "length", "refusal", "cut"]
Tier = Literal["fugu", "ultra"]

DEFAULT_MAX_TOKENS = LONGEST_REPLY
"""Tokens a reply may have where the client names no limit."""


@dataclass(frozen=True)
class RequestOptions:
    """Choices for one request, from the `x-fugu-` headers and `metadata`. `budget` is in USD; None
    leaves a choice to the configuration. `traceparent` is the client's own span in W3C's form.
    `metadata` is the rest, for the provider.
    """

    opt_out: frozenset[str] = frozenset()
    tier: Tier | None = None
    budget: float | None = None
    verify: bool | None = None
    traceparent: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RequestSampling:
    """Limits and form of the reply. `choice` is "" (the model decides), none, required, or the name
    of the tool to call.
    """

    max_tokens: int = DEFAULT_MAX_TOKENS
    temperature: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    choice: str = ""
    reply_schema: str = ""
    single: bool = False
    """A reply may have one call at most, since the client runs no calls in parallel."""
    effort: Effort = ""
    """The highest reasoning effort of an agent; "" if the client sets none."""
    reasons: bool = True
    """`effort` also applies to agents whose configuration names no effort."""


@dataclass(frozen=True)
class ClientRequest:
    """One request. `model` is the name that the client used. `tools` are the client's own: the
    client runs them, not fugu.
    """

    model: str
    messages: tuple[Message, ...]
    system: str = ""
    tools: tuple[ToolSpec, ...] = ()
    sampling: RequestSampling = RequestSampling()
    options: RequestOptions = RequestOptions()
    stream: bool = False
    include_usage: bool = True
    """The stream ends with the usage (`stream_options.include_usage` of Chat Completions)."""
    freeform: frozenset[str] = frozenset()
    """Tools that take plain text instead of JSON (custom tools of the Responses wire)."""
    namespaces: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Namespace and client's name of each namespaced tool (Responses), by the name that agents
    see.
    """
    client_tools: Mapping[str, str] = field(default_factory=dict)
    """Type of each tool that the client names by its type alone, by the name that agents see
    (Responses).
    """
    left_out: tuple[str, ...] = ()
    """Fields and tool types of the request that change nothing here; the answer names them."""
    reasoning: bool = False
    """The client wants the reasoning text."""
    repeated: Mapping[str, JsonValue] = field(default_factory=dict)
    """Fields of the request that the wire's answer repeats."""

    @property
    def in_tool_loop(self) -> bool:
        """True if the client brings results of an agent's calls, so that the agent's turn
        continues.
        """
        for message in reversed(self.messages):
            if message.type == "agent":
                return False
            if message.type == "tool":
                return True
        return False


@dataclass(frozen=True)
class AnswerHead:
    """The fields of an answer that are fixed before it begins. `id` is also the trace's id;
    `created` is in seconds since the epoch.
    """

    id: str
    model: str
    created: int


@dataclass(frozen=True)
class ServedAnswer:
    """An answer. `usage` counts the reply that the client gets, `orchestration` everything else.
    `agent` is the author's name in the pool, `served` the model's name at its provider. `cost`
    (USD) includes everything; `estimated_cost` is the estimated part of it, None if the cost is
    exact.
    """

    text: str
    calls: tuple[Call, ...] = ()
    stop: StopReason = "end"
    usage: Usage = field(default_factory=Usage)
    orchestration: Usage = field(default_factory=Usage)
    agent: str = ""
    served: str = ""
    cost: float = 0.0
    estimated_cost: float | None = None
    reasoning: str = ""
    """The author's reasoning, if the provider reveals it."""
    note: str = ""
    """The end of the request, unless it was simply answered."""


NOT_SHOWN = "[{kind}: not shown, this endpoint takes text, pictures and PDFs]"
"""Stands for a part of a tool's result that agents cannot be shown."""

TOO_LONG = "context_length_exceeded"
"""The error code of a request that is longer than an agent can read. Clients compact their
conversation when they see it.
"""


class RequestRefused(Exception):
    """A request that gets no answer. The message is for people; `error_type` and `code` are
    OpenAI's `error.type` and `error.code`.

    `after` is the number of seconds after which a retry makes sense, None if a retry does not help.
    `details` are Anthropic's `error.details`.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        error_type: str = "invalid_request_error",
        code: str = "",
        after: float | None = None,
        details: Mapping[str, JsonValue] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.error_type = error_type
        self.code = code
        self.after = after
        self.details = details or {}


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
    """Return the options of a request. Raises RequestRefused (400) for a value that has no meaning."""
    return RequestOptions(
        opt_out=_parse_opt_out(_option("opt_out", headers, metadata)),
        tier=_parse_tier(_option("tier", headers, metadata)),
        budget=_parse_budget(_option("budget", headers, metadata)),
        verify=_parse_verify(_option("verify", headers, metadata)),
        traceparent=headers.get("traceparent", ""),
        metadata={
            name: value
            for name, value in metadata.items()
            if isinstance(value, str) and name not in OWN_NAMES
        },
    )


def _option(
    option: str, headers: Mapping[str, str], metadata: Mapping[str, JsonValue]
) -> JsonValue:
    for name in OPTION_NAMES[option]:
        value = headers.get(f"x-fugu-{name.replace('_', '-')}")
        if value is not None:
            return value
    for name in OPTION_NAMES[option]:
        for key in (f"fugu_{name}", name):
            if metadata.get(key) is not None:
                return metadata[key]
    return None


def _parse_opt_out(value: JsonValue) -> frozenset[str]:
    if value is None:
        return frozenset()
    parts = value if isinstance(value, list) else str(value).split(",")
    names = (str(part).strip() for part in parts)
    return frozenset(name for name in names if name)


def _parse_tier(value: JsonValue) -> Tier | None:
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


def _parse_budget(value: JsonValue) -> float | None:
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


def _parse_verify(value: JsonValue) -> bool | None:
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
    """Data from a client. Unknown fields are ignored, since SDKs send more than is documented."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False, defer_build=True)


class RequestFields(LenientModel, extra="allow"):
    """A group of a request's fields. Fields that are not read are kept, so that `unread_fields` can
    name them.
    """


HARMLESS_FIELDS = frozenset(
    {
        "cache_control",
        "client_metadata",
        "include",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "reasoning.generate_summary",
        "reasoning.summary",
        "safety_identifier",
        "stream_options",
        "user",
    }
)
"""Fields that change neither an answer's content nor where it is computed."""

USUAL_VALUES: Mapping[str, Sequence[JsonValue]] = {
    "frequency_penalty": [0],
    "logit_bias": [{}],
    "presence_penalty": [0],
    "service_tier": ["auto", "default"],
    "text.verbosity": ["medium"],
    "top_logprobs": [0],
    "top_p": [1],
    "truncation": ["disabled"],
    "verbosity": ["medium"],
}
"""Values that ask for what happens anyway."""

HISTORY_WORDS = frozenset(
    {"id", "ids", "thread", "previous", "conversation", "container", "prompt"}
)
"""Words in the names of fields that refer to something kept at the server."""


def unread_fields(group: RequestFields, path: str = "") -> tuple[str, ...]:
    """Return the names of the fields that ask for something which is not done.

    Raises RequestRefused (400) for a field that refers to something kept at the server: without it
    the answer would be one to another conversation. `path` is the prefix of the names.
    """
    names: list[str] = []
    for field_name, value in (group.model_extra or {}).items():
        name = path + field_name
        asks_nothing = value in (None, False, "", []) or value in USUAL_VALUES.get(name, ())
        if asks_nothing or name in HARMLESS_FIELDS:
            continue
        words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", field_name).lower().split("_")
        if HISTORY_WORDS.intersection(words):
            raise _refers_to_history(name)
        names.append(name)
    for field_name in type(group).model_fields:
        inner = getattr(group, field_name)
        if isinstance(inner, RequestFields):
            names += unread_fields(inner, f"{path}{field_name}.")
    return tuple(names)


def _refers_to_history(name: str) -> RequestRefused:
    details: Json = {"unsupported": [name]}
    if name == "thread":  # the code upon which Anthropic's SDKs send the whole history instead
        details["error_code"] = "thread_unsupported_request"
    return RequestRefused(
        400,
        f"{name}: nothing is stored here, send the whole conversation without it",
        code="unsupported_value",
        details=details,
    )


class FirstFault(FailFast):
    """Stops the validation of a list at its first fault. It is hashable, as parts of a Union must
    be.
    """

    __hash__ = object.__hash__


Item = TypeVar("Item")
ItemList = Annotated[list[Item], FirstFault()]


class ReplyForm(LenientModel):
    """The format that a reply must have (Responses, Messages)."""

    type: str = "text"
    schema_: JsonValue = Field(default=None, alias="schema")


class AnswerStream(ABC):
    """Encodes one answer as server-sent events. Each method returns the bytes to send."""

    events_for: ClassVar[frozenset[str]] = frozenset()
    """Codes of refusals that clients look for in the stream instead of the HTTP status."""

    def __init__(self, head: AnswerHead, client_request: ClientRequest) -> None:
        self._head = head
        self._client_request = client_request
        self._text_sent = False
        self._reasoning_sent = False

    @abstractmethod
    def begin(self) -> bytes: ...

    @abstractmethod
    def text_delta(self, text: str) -> bytes: ...

    @abstractmethod
    def reasoning_delta(self, text: str) -> bytes: ...

    @abstractmethod
    def finish(self, answer: ServedAnswer) -> bytes: ...

    @abstractmethod
    def fail(self, refusal: RequestRefused) -> bytes: ...

    def keep_alive(self) -> bytes:
        return b": waiting\n\n"

    def _unsent_text(self, answer: ServedAnswer) -> bytes:
        """Encode reasoning and text of which nothing was sent while the answer was written."""
        data = b""
        if answer.reasoning and not self._reasoning_sent:
            data += self.reasoning_delta(answer.reasoning)
        if answer.text and not self._text_sent:
            data += self.text_delta(answer.text)
        return data


@dataclass(frozen=True)
class Wire:
    """One of the three protocols: how its requests are parsed and its answers encoded.

    `parse` raises RequestRefused for a request that is malformed or asks for an unsupported feature.
    """

    parse: Callable[[bytes, Mapping[str, str]], ClientRequest]
    encode: Callable[[AnswerHead, ServedAnswer, ClientRequest], Json]
    stream: Callable[[AnswerHead, ClientRequest], AnswerStream]
    encode_error: Callable[[RequestRefused], Json]


Model = TypeVar("Model", bound=BaseModel)


def parse_body(model: type[Model], body: bytes) -> Model:
    """Parse `body` as one of the wires' models. Raises RequestRefused: 413 for too many values,
    else 400 with the first fault.
    """
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
        message = "the body is not JSON" if fault["type"] == "json_invalid" else fault["msg"]
        location = ".".join(str(part) for part in fault["loc"])
        if location:
            message = f"{location}: {message}"
        raise RequestRefused(400, message, code="invalid_body") from error


MOST_MESSAGES = 10_000


def check_messages(client_request: ClientRequest) -> ClientRequest:
    """Return the request. Raises RequestRefused (413) if it holds more than `MOST_MESSAGES`."""
    if len(client_request.messages) > MOST_MESSAGES:
        raise RequestRefused(
            413,
            f"the request holds {len(client_request.messages)} messages; at most {MOST_MESSAGES} are read",
            code="request_too_large",
        )
    return client_request


LARGEST_TOKEN_LIMIT = 2**31 - 1
"""The largest limit in tokens that a request may name: servers read it as a 32-bit number."""


def token_limit(name: str, sent: int | None, fallback: int = 0) -> int:
    """Return the value of the parameter `name`, a limit in tokens, or `fallback` if it was not
    sent. Raises RequestRefused (400).
    """
    if sent is not None and sent < 1:
        raise RequestRefused(400, f"{name} must be at least 1", code="invalid_value")
    if sent is not None and sent > LARGEST_TOKEN_LIMIT:
        raise RequestRefused(
            400, f"{name} must be at most {LARGEST_TOKEN_LIMIT}", code="invalid_value"
        )
    return sent or fallback


def reply_schema(format_type: str, schema: JsonValue, path: str) -> str:
    """Return the JSON schema of a reply format, "" for plain text. `path` names the schema's field
    in errors. Raises RequestRefused (400).
    """
    match format_type:
        case "text":
            return ""
        case "json_object":
            return json.dumps({"type": "object"})
        case "json_schema" if schema:
            return json.dumps(schema)
        case "json_schema":
            raise RequestRefused(400, f"{path} is missing", code="missing_value")
    raise RequestRefused(
        400, f"{path.split('.')[0]}: {format_type!r} is not offered: text, json_object, json_schema"
    )


def function_tool(name: str, description: str | None, parameters: Json | None) -> ToolSpec:
    """Return a tool that takes JSON."""
    schema = parameters or {"type": "object", "properties": {}}
    return ToolSpec(name=name, description=description or "", parameters=json.dumps(schema))


def unknown_role(path: str, role: str) -> RequestRefused:
    """Return the refusal of a message whose role does not exist."""
    return RequestRefused(400, f"{path}.role: {role!r} is no role", code="invalid_value")


def unknown_part(path: str, part_type: str) -> RequestRefused:
    """Return the refusal of a message with a part of a type that agents cannot be shown."""
    return RequestRefused(400, f"{path}: {part_type} is not offered", code="unsupported_content")


def sse_event(data: Mapping[str, JsonValue] | str, name: str = "") -> bytes:
    """Encode one server-sent event."""
    if not isinstance(data, str):
        data = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    name_line = f"event: {name}\n" if name else ""
    return f"{name_line}data: {data}\n\n".encode("utf-8", "replace")


def openai_usage(answer: ServedAnswer, input: str, output: str) -> Json:
    """Return the usage in OpenAI's form. `input` and `output` are the wire's names of the two
    sides. The fields of the orchestration are those of `fugu help serve`.
    """
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


def answer_details(head: AnswerHead, answer: ServedAnswer, client_request: ClientRequest) -> Json:
    """Return the `fugu` field of an answer: its author, trace, cost, end, and what was left out."""
    details: Json = {
        "trace": head.id,
        "agent": answer.agent,
        "model": answer.served,
        "cost_usd": round(answer.cost, 8),
    }
    if answer.estimated_cost is not None:
        details["estimated_cost_usd"] = round(answer.estimated_cost, 8)
    if client_request.left_out:
        details["left_out"] = [*client_request.left_out]
    if answer.note:
        details["end"] = answer.note
    return details


class ClientMedia:
    """Collects the pictures and PDFs of one message.

    An unsuitable file becomes a line of text instead of a refusal: it stays in the client's
    conversation, so refusing it would end the conversation.
    """

    def __init__(self, message_number: int) -> None:
        self._message_number = message_number
        self.accepted: list[Media] = []

    def add(self, data: str, media_type: str, name: str = "") -> str:
        """Add a file in base64. Return "", or the line that replaces the file if it is unsuitable."""
        from fugu_cli.tools import media  # few requests bring some

        default_name = f"{len(self.accepted) + 1} of message {self._message_number + 1}"
        try:
            self.accepted.append(media.take_base64(data, name or default_name, media_type))
        except media.NotTaken as error:
            return f"[{error}]"
        return ""

    def add_url(self, url: str, name: str = "") -> str:
        """Add the file of a `data:` URL, like `add`. Other URLs are not fetched."""
        header, comma, data = url.partition(",")
        if not (header.startswith("data:") and header.endswith(";base64") and comma):
            return (
                "[A picture or file is not shown: only data: URLs in base64 are taken, nothing "
                "is fetched.]"
            )
        media_type = header.removeprefix("data:").partition(";")[0]
        return self.add(data, media_type, name)


def join_text(parts: Sequence[str]) -> str:
    """Join the text parts of one message."""
    return "\n\n".join(part for part in parts if part.strip())


def openai_error(refusal: RequestRefused) -> Json:
    """Return a refusal as the error object of OpenAI's wires."""
    return {
        "error": {
            "message": str(refusal),
            "type": refusal.error_type,
            "param": None,
            "code": refusal.code or None,
        }
    }
