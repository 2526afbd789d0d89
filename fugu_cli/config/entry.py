"""One entry of the pool as a user writes it: a model, where it is reached, and how it is asked.

Under `config/__init__.py`, whose `Config` holds a list of these; `config/pool.py` fills in what was left out.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import Discriminator, Field, JsonValue, StringConstraints, Tag, field_validator, model_validator

from fugu_cli.agents.access import THINKING
from fugu_cli.config.tables import Headers, Phases, Positive, Rates, Settings, form
from fugu_cli.events import Member, Price

Provider = Literal["openai", "anthropic", "local", "scripted"]
Api = Literal["chat", "responses"]
Protocol = Literal["native", "schema", "text"]
Slot = Literal["cheap", "middle", "strong"]
Text = Annotated[str, StringConstraints(min_length=1)]


class AgentEntry(Settings):
    """One entry of the pool, as the user wrote it; `config.pool.pool` fills in what was left out."""

    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    """unique in the pool; letters, digits, dots, dashes"""
    provider: Provider
    """openai (any compatible server), anthropic, local or scripted"""
    model: Text
    """what the provider calls it; for scripted, the script's path"""
    base_url: str | None = None
    """the server's address up to the version"""
    api: Api | None = None
    """which API a server for openai speaks: chat (Chat Completions) or responses; responses at OpenAI, else chat"""
    api_key_env: str | None = None
    """the environment variable that holds the key; never the key itself"""
    protocol: Protocol | None = None
    """how it uses tools: native, schema or text"""
    slot: Slot | None = None
    """cheap, middle or strong; by price when left out"""
    attempts: int = Field(default=1, ge=1, le=20)
    """draws of a Worker turn where tests judge"""
    infill: bool | None = None
    """true: a local model with Qwen's marks for filling in the middle of code; known for the embedded ones"""
    needs_tests: bool = False
    """true: chosen only where an acceptance check judges the request, or nobody else can act"""
    temperature: float | None = Field(default=None, ge=0, le=2)
    """sampling temperature; the server's own when left out"""
    max_tokens: int | None = Field(default=None, ge=16)
    """longest reply in tokens"""
    context: int | None = Field(default=None, ge=512)
    """context window in tokens; the service's own when left out and known, else 128000"""
    timeout: Annotated[Positive | Annotated[Phases, Tag("table")], Discriminator(form)] | None = None
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
        if value is not None and not (value.isidentifier() and value.isascii() and value == value.upper()):
            raise ValueError("must be the NAME of an environment variable, in capitals, never the key itself")
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
            raise ValueError("must not hold a user name or password; put the key into the variable api_key_env names")
        return value.rstrip("/")

    @property
    def rates(self) -> Price | None:
        """What it costs, None where nobody knows. Only for entries that `config.pool.pool` returned. What runs here is
        free, and so is a server that is sent no key: it cannot tell whom to bill."""
        free = self.provider in ("local", "scripted") or not (self.api_key_env or self.headers)
        return self.price or (Price() if free else None)

    @property
    def thinks_besides(self) -> bool:
        """Room for what is thought is asked for on top of `max_tokens`."""
        return self.provider == "anthropic" or self.api == "responses"

    def member(self) -> Member:
        """This entry as the log records it. Only for entries that `config.pool.pool` returned."""
        assert self.protocol is not None and self.slot is not None
        return Member(
            name=self.name,
            provider=self.provider,
            model=self.model,
            protocol=self.protocol,
            slot=self.slot,
            price=self.rates,
            context=self.context or Member.model_fields["context"].default,
            attempts=self.attempts,
            infill=bool(self.infill),
            needs_tests=self.needs_tests,
            max_tokens=self.max_tokens,
            thinking=THINKING.get(self.effort or "", 0) if self.thinks_besides else 0,
            description=" ".join(self.description.split()),
        )
