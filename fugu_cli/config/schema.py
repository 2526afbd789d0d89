"""The tables of `.fugurc` below `Config`: agent entries, money, time limits, timeouts."""

# without `from __future__ import annotations`: strings would be compiled at every start
import re
from pathlib import Path
from typing import Annotated, Literal, Self, TypeVar
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    JsonValue,
    StringConstraints,
    Tag,
    field_validator,
    model_validator,
)

from fugu_cli.session.events import Member, Price

Named = TypeVar("Named", Path, str)


def _in_a_known_home(path: Named) -> Named:
    try:
        Path(path).expanduser()
    except RuntimeError as error:
        raise ValueError(f"there is no user {Path(path).parts[0][1:]} here") from error
    return path


ConfigPath = Annotated[Path, AfterValidator(_in_a_known_home)]
"""A path; one that begins with `~NAME` is meant from the home of a user that there is."""
ConfigPathOrId = Annotated[str, AfterValidator(_in_a_known_home)]
"""The same, or a name on a hub."""


class ConfigTable(BaseModel):
    """Frozen, closed: an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)


class Money(ConfigTable):
    """The table `max_budget_usd`: USD at most, each kept before a call is made."""

    request: float | None = Field(default=None, gt=0)
    """for one request"""
    session: float | None = Field(default=None, gt=0)
    """for a session"""
    day: float | None = Field(default=None, gt=0)
    """for a day on this machine, all sessions together"""
    project: float | None = Field(default=None, gt=0)
    """for everything ever done in this folder"""


class TimeLimit(ConfigTable):
    """The table `time_limit`. Seconds."""

    request: float | None = Field(default=None, gt=0)
    """for one request"""
    wait: float | None = Field(default=None, ge=0)
    """that a request waits when no agent is available; 180, where a server says how long, when left
    out
    """
    answer: float | None = Field(default=None, gt=0)
    """that a background session without a limit for the request waits for an answer; a day when left
    out
    """


class TimeoutPhases(ConfigTable):
    """The table `timeout` of an agent. Seconds."""

    connect: float | None = Field(default=None, gt=0)
    """for the connection"""
    first: float | None = Field(default=None, gt=0)
    """to the first sign of a reply"""
    between: float | None = Field(default=None, gt=0)
    """between two pieces of it"""
    total: float | None = Field(default=None, gt=0)
    """for the whole call"""


def _sendable(headers: dict[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        if not HEADER.fullmatch(name) or not (
            value.isascii() and (value.isprintable() or not value)
        ):
            raise ValueError(
                f"{name!r} is no header: names are letters, digits and dashes, values printable "
                f"ASCII"
            )
    return headers


def _costing(price: Price) -> Price:
    if min(price.input, price.cached or 0.0, price.output) < 0:
        raise ValueError("must not be negative")
    missing = [name for name in ("input", "output") if name not in price.model_fields_set]
    if missing:
        raise ValueError(f"says no {' and no '.join(missing)}: give both, 0 where it is free")
    return price


HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
Headers = Annotated[dict[str, str], AfterValidator(_sendable)]
Rates = Annotated[Price, AfterValidator(_costing)]


def value_form(value: object) -> str:
    return "table" if isinstance(value, dict | BaseModel) else "number"


Positive = Annotated[float, Field(gt=0), Tag("number")]
"""A number alone stands for the table's commonest key."""

FORMS = ("number", "table")
"""The two ways, as they stand in the place of a fault."""


Provider = Literal["openai", "anthropic", "local", "scripted"]
Api = Literal["chat", "responses"]
Protocol = Literal["native", "schema", "text"]
Slot = Literal["cheap", "middle", "strong"]
Text = Annotated[str, StringConstraints(min_length=1)]


class AgentEntry(ConfigTable):
    """An entry of the pool as the user wrote it; `config.agent_pool` fills in what was left out."""

    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    """unique in the pool; letters, digits, dots, dashes"""
    provider: Provider
    """openai (any compatible server), anthropic, local or scripted"""
    model: Text
    """what the provider calls it; for scripted, the script's path"""
    base_url: str | None = None
    """the server's address up to the version"""
    api: Api | None = None
    """which API a server for openai speaks: chat (Chat Completions) or responses; responses at
    OpenAI, else chat
    """
    api_key_env: str | None = None
    """the environment variable that holds the key; never the key itself"""
    protocol: Protocol | None = None
    """native: it calls tools; text: fugu calls them for a model that cannot"""
    slot: Slot | None = None
    """cheap, middle or strong; by price when left out"""
    skill: float | None = Field(default=None, ge=-5, le=5)
    """how good its model is, on the scale of `fugu pool --skills`; public figures' when left out"""
    attempts: int | None = Field(default=None, ge=1, le=20)
    """does nothing any more"""
    infill: bool | None = None
    """true: a local model with Qwen's marks for filling in the middle of code; known for the
    embedded ones
    """
    vision: bool | None = None
    """whether it sees pictures: true or false; known for well-known models, else false"""
    vendor: Annotated[str, StringConstraints(to_lower=True, strip_whitespace=True)] | None = None
    """who made the model, as in openai or google; known for well-known models"""
    needs_tests: bool = False
    """true: chosen only where an acceptance check judges the request, or nobody else can act"""
    temperature: float | None = Field(default=None, ge=0, le=2)
    """sampling temperature; the server's own when left out"""
    max_tokens: int | None = Field(default=None, ge=16)
    """longest reply in tokens"""
    context: int | None = Field(default=None, ge=512)
    """context window in tokens; the model list's when left out, else 128000"""
    timeout: (
        Annotated[Positive | Annotated[TimeoutPhases, Tag("table")], Discriminator(value_form)]
        | None
    ) = None
    """seconds to the first sign of a reply; or { connect, first, between, total }"""
    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    """how much it may reason first: none, minimal, low, medium, high, xhigh or max"""
    headers: Headers = Field(default={})
    """sent with every call, beside the key's"""
    body: dict[str, JsonValue] = Field(default={})
    """put into every request as it is, for what only this server knows"""
    price: Rates | None = None
    """USD per million tokens: { input, cached, output }"""
    description: str = Field(default="", max_length=200)
    """what it is good at, in one line for a planner"""

    @model_validator(mode="after")
    def _speaks_one(self) -> Self:
        if self.api is not None and self.provider != "openai":
            raise ValueError('`api` goes with provider = "openai" alone')
        return self

    @field_validator("api_key_env")
    @classmethod
    def _names_a_variable(cls, value: str | None) -> str | None:
        if value is not None and not (
            value.isidentifier() and value.isascii() and value == value.upper()
        ):
            raise ValueError(
                "must be the NAME of an environment variable, in capitals, never the key itself"
            )
        return value

    @field_validator("base_url")
    @classmethod
    def _is_an_address(cls, value: str | None) -> str | None:
        if value is None:
            return None
        parts = urlsplit(value)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError("must be an address such as https://api.example.com/v1")
        _ = parts.port  # raises ValueError for one that is none
        if parts.username or parts.password:
            raise ValueError(
                "must not hold a user name or password; put the key into the variable "
                "api_key_env names"
            )
        return value.rstrip("/")

    @property
    def is_local(self) -> bool:
        """Return whether fugu runs the model itself, or a script stands in for it."""
        return self.provider in ("local", "scripted")

    @property
    def rates(self) -> Price | None:
        """The price, None if unknown. Only for entries that `config.agent_pool` has filled in.
        Models on this machine are free, and so is a server that gets no key, because it cannot tell
        whom to bill.
        """
        free = self.is_local or not (self.api_key_env or self.headers)
        return self.price or (Price() if free else None)

    @property
    def sees(self) -> bool:
        """It can be shown pictures: only models that call tools are."""
        return bool(self.vision) and self.protocol == "native"

    def member(self, *, assumed_price: bool = False) -> Member:
        """Return this entry as the log records it. Only for entries that `config.agent_pool` has
        filled in.
        """
        assert self.protocol is not None and self.slot is not None
        return Member(
            name=self.name,
            provider=self.provider,
            model=self.model,
            protocol="native" if self.protocol == "native" else "text",
            slot=self.slot,
            price=self.rates,
            assumed_price=assumed_price,
            context=self.context or Member.model_fields["context"].default,
            needs_tests=self.needs_tests,
            max_tokens=self.max_tokens,
            reasoning="" if self.is_local else "within",
            effort=self.effort or "",
            description=" ".join(self.description.split()),
            vision=self.sees,
            vendor=self.vendor or "",
            address=urlsplit(self.base_url or "").hostname or "",
            skill=self.skill,
            documents=self.sees and (self.provider == "anthropic" or self.api == "responses"),
        )
