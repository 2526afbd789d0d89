"""From the entries of a `Config` to a usable pool: keys, addresses, protocols, prices and slots filled in.

Without entries the pool is found: agents for the keys in the environment, else the embedded models. It must not call
anybody; whether an agent answers is `fugu pool check`'s question.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fugu_cli.config import Config
from fugu_cli.config.pricing import context_of, price_of
from fugu_cli.config.schema import AgentEntry, Api, Protocol, Slot
from fugu_cli.coordinators.action_space import assign_slots
from fugu_cli.errors import ConfigError

LOCAL_CONTEXT = 16384
"""Tokens an embedded model is started with: more costs memory that a small machine needs for tests."""

CONTEXT = 128_000
"""Tokens of a model that nothing is known of."""


@dataclass(frozen=True)
class KnownService:
    """A provider whose key may be in the environment, and its models of November 2026 by slot."""

    variable: str
    provider: str
    base_url: str
    models: tuple[tuple[Slot, str], ...]
    prefix: str = ""


SERVICES = (
    KnownService(
        "ANTHROPIC_API_KEY",
        "anthropic",
        "https://api.anthropic.com/v1",
        (
            ("cheap", "claude-haiku-5-5"),
            ("middle", "claude-sonnet-5-5"),
            ("strong", "claude-opus-5-5"),
        ),
    ),
    KnownService(
        "OPENAI_API_KEY",
        "openai",
        "https://api.openai.com/v1",
        (
            ("cheap", "gpt-6-luna"),
            ("middle", "gpt-6.1-terra"),
            ("strong", "gpt-6.1-sol"),
        ),
    ),
    KnownService(
        "GEMINI_API_KEY",
        "openai",
        "https://generativelanguage.googleapis.com/v1beta/openai",
        (
            ("cheap", "gemini-3.5-flash-lite"),
            ("middle", "gemini-3.8-flash"),
            ("strong", "gemini-4-argon"),
        ),
    ),
    KnownService(
        "DEEPSEEK_API_KEY",
        "openai",
        "https://api.deepseek.com/v1",
        (("cheap", "deepseek-v4-flash"), ("strong", "deepseek-v4-pro")),
    ),
    KnownService(
        "MISTRAL_API_KEY",
        "openai",
        "https://api.mistral.ai/v1",
        (
            ("cheap", "mistral-small-latest"),
            ("middle", "mistral-large-4"),
            ("strong", "mistral-medium-latest"),
        ),
    ),
    KnownService(
        "OPENROUTER_API_KEY",
        "openai",
        "https://openrouter.ai/api/v1",
        (
            ("cheap", "deepseek/deepseek-v4.1-flash"),
            ("middle", "anthropic/claude-sonnet-5.5"),
            ("strong", "anthropic/claude-opus-5.5"),
        ),
        prefix="openrouter-",
    ),
)

EMBEDDED = (
    AgentEntry(
        name="small",
        provider="local",
        model="qwen2.5-coder-0.5b",
        slot="cheap",
        protocol="text",
        needs_tests=True,
        temperature=0.0,
        context=LOCAL_CONTEXT,
    ),
    AgentEntry(
        name="coder",
        provider="local",
        model="qwen2.5-coder-1.5b",
        slot="middle",
        protocol="text",
        temperature=0.0,
        context=LOCAL_CONTEXT,
    ),
    AgentEntry(
        name="coder-5x",
        provider="local",
        model="qwen2.5-coder-1.5b",
        slot="strong",
        protocol="text",
        temperature=0.0,
        attempts=5,
        context=LOCAL_CONTEXT,
    ),
)
"""The pool of a machine without keys: the same small model once and five times is cheaper than a larger one here."""

ADDRESSES = {"openai": "https://api.openai.com/v1", "anthropic": "https://api.anthropic.com/v1"}
VARIABLES = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}
PROTOCOLS: Mapping[str, Protocol] = {"local": "text"}


PLANNER = "embedded"
"""`conductor.agent` that stands for an embedded model, which then plans and does nothing else."""


@dataclass(frozen=True)
class UnusableEntry:
    """An entry that cannot be used now, and why."""

    name: str
    reason: str
    variable: str


def usable_pool(config: Config, environ: Mapping[str, str]) -> tuple[AgentEntry, ...]:
    """The usable agents, every field filled in but the temperature, the reply length and the effort.

    One agent alone takes the strong slot; the coordinator masks the empty ones. Raises ConfigError when nobody is left,
    or when `coordinator` or `opt_out` name an agent that is not there.
    """
    entries = config.agents or detected_pool(environ)
    if config.conductor.agent == PLANNER and all(entry.name != PLANNER for entry in entries):
        entries = (*entries, next(e for e in EMBEDDED if e.name == "coder").model_copy(update={"name": PLANNER}))
    out = unusable_entries(config, environ)
    missing = {entry.name for entry in out}
    usable = [_filled(entry, config) for entry in entries if entry.name not in missing]
    if not usable:
        variables = " or ".join(dict.fromkeys(entry.variable for entry in out))
        raise ConfigError(
            f"no agent of the pool can be used: {'; '.join(f'{entry.name}: {entry.reason}' for entry in out)}",
            hint=f"set {variables}, or remove the [[agents]] entries to use the embedded models",
        )
    names = [entry.name for entry in entries]
    _check_names(config, names, missing)
    if len({entry.name for entry in usable} - set(config.opt_out)) == 0:
        raise ConfigError("every usable agent of the pool is opted out", hint="shorten opt_out or --opt-out")
    return _slotted(usable)


def unusable_entries(config: Config, environ: Mapping[str, str]) -> tuple[UnusableEntry, ...]:
    """Entries whose key is not set."""
    out = []
    for entry in config.agents:
        variable = _variable(entry)
        if variable and not environ.get(variable):
            out.append(UnusableEntry(entry.name, f"{variable} is not set", variable))
    return tuple(out)


def detected_pool(environ: Mapping[str, str]) -> tuple[AgentEntry, ...]:
    """The pool of a user who configured none: the services whose keys are set, else the embedded models."""
    entries = tuple(
        AgentEntry(
            name=service.prefix + model.rpartition("/")[2],
            provider="anthropic" if service.provider == "anthropic" else "openai",
            model=model,
            base_url=service.base_url,
            api_key_env=service.variable,
            slot=slot,
        )
        for service in SERVICES
        if environ.get(service.variable)
        for slot, model in service.models
    )
    return entries or EMBEDDED


def detected_keys(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Names of the known key variables that are set."""
    return tuple(service.variable for service in SERVICES if environ.get(service.variable))


def _variable(entry: AgentEntry) -> str | None:
    """A server that is not the provider's own needs no key unless the entry names one: many on a user's machine."""
    if entry.api_key_env or entry.provider not in VARIABLES:
        return entry.api_key_env
    return VARIABLES[entry.provider] if entry.base_url in (None, ADDRESSES[entry.provider]) else None


def _filled(entry: AgentEntry, config: Config) -> AgentEntry:
    base_url = entry.base_url or ADDRESSES.get(entry.provider)
    return entry.model_copy(
        update={
            "base_url": base_url,
            "api": _api(entry, base_url),
            "api_key_env": _variable(entry),
            "protocol": entry.protocol or PROTOCOLS.get(entry.provider, "native"),
            "context": entry.context or _context(entry, base_url),
            "infill": _infills(entry),
            "price": entry.price or price_of(entry.provider, entry.model, entry.base_url or ""),
            "temperature": entry.temperature if entry.temperature is not None else config.temperature,
        }
    )


def _api(entry: AgentEntry, base_url: str | None) -> Api | None:
    """OpenAI's models think beside tools on the newer one alone; whatever else speaks like OpenAI has the older one."""
    if entry.provider != "openai":
        return None
    return entry.api or ("responses" if base_url == ADDRESSES["openai"] else "chat")


def _infills(entry: AgentEntry) -> bool:
    """Only where a llama.cpp of our own serves the model, and as the user says where the model is one of theirs."""
    if entry.provider != "local":
        return False
    from fugu_cli.models import manifest

    return manifest.infills(entry.model) if entry.infill is None else entry.infill


def _context(entry: AgentEntry, base_url: str | None) -> int:
    if entry.provider == "local":
        return LOCAL_CONTEXT
    return context_of(entry.provider, entry.model, base_url or "") or CONTEXT


def _slotted(entries: Sequence[AgentEntry]) -> tuple[AgentEntry, ...]:
    """Slots for those that name none: by price; the only agent is strong; one without a price is middle."""
    if len(entries) == 1:
        return (entries[0].model_copy(update={"slot": entries[0].slot or "strong"}),)
    slots = assign_slots({entry.name: entry.price for entry in entries if entry.price is not None})
    return tuple(
        entry if entry.slot else entry.model_copy(update={"slot": slots.get(entry.name, "middle")}) for entry in entries
    )


def _check_names(config: Config, names: Sequence[str], missing: set[str]) -> None:
    pinned = config.coordinator.removeprefix("single:") if config.coordinator.startswith("single:") else None
    planner = config.conductor.agent or None
    for name, key in [
        (pinned, "coordinator"),
        (planner, "conductor.agent"),
        *((name, "opt_out") for name in config.opt_out),
        *((name, "deny_agents") for kept in config.deny_agents.values() for name in kept),
    ]:
        if name is not None and (name, key) != ("*", "deny_agents") and name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"the pool has: {', '.join(names)}"
            raise ConfigError(f"{key} names {name!r}, which is not an agent of the pool", hint=hint)
    if pinned in missing:
        raise ConfigError(
            f"{pinned!r} cannot be used: its key is not set", hint="`fugu pool` says which variable it needs"
        )
    if pinned is not None and pinned in config.opt_out:
        raise ConfigError(f"{pinned!r} is both pinned and opted out", hint="drop one of the two")
