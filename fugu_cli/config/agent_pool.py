"""Makes a usable pool of the entries of a `Config`: keys, addresses, protocols, prices and slots
are filled in.

Without entries the pool is detected: agents for the keys in the environment, else the embedded
models. No agent is called; `fugu pool check` finds out whether one answers.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from fugu_cli.config import Config
from fugu_cli.config.known_models import context_of, is_assumed, price_of, sees_pictures, vendor_of
from fugu_cli.config.schema import AgentEntry, Api, Protocol, Slot
from fugu_cli.coordinators.action_space import assign_slots
from fugu_cli.errors import ConfigError, installing

LOCAL_CONTEXT = 16384
"""Tokens an embedded model is started with: more costs memory that a small machine needs for
tests.
"""

CONTEXT = 128_000
"""Tokens of a model that nothing is known of."""


REGION = re.compile(r"[a-z0-9-]+")


@dataclass(frozen=True)
class KnownService:
    """A provider whose key may be set, and its models of November 2026 by slot."""

    name: str
    """The name for `fugu login`."""
    variable: str
    base_url: str
    """With `{region}` where the address holds the region that AWS_REGION names."""
    models: tuple[tuple[Slot, str], ...] = ()
    """None where no model is known by its price: the user names one."""
    provider: Literal["openai", "anthropic"] = "openai"
    api: Api | None = None
    key_path: str = ""
    """The path that needs a valid key, where the list of models needs none."""
    prefixed: bool = False
    """It offers models of other vendors: its agents are called after it as well."""

    def address(self, environ: Mapping[str, str]) -> str:
        """Return its base URL, or the gateway's from the environment.

        "" if it needs a region that is not set or invalid.
        """
        if gateway := gateway_address(self.variable, environ):
            return gateway
        region = next((environ[name] for name in REGION_VARIABLES if environ.get(name)), "")
        if "{region}" in self.base_url and not REGION.fullmatch(region):
            return ""
        return self.base_url.replace("{region}", region)


GATEWAY_VARIABLES = {
    "OPENAI_API_KEY": ("OPENAI_BASE_URL", "OPENAI_API_BASE"),
    "ANTHROPIC_API_KEY": ("ANTHROPIC_BASE_URL",),
    "GEMINI_API_KEY": ("GEMINI_BASE_URL", "GOOGLE_GEMINI_BASE_URL"),
    "AWS_BEARER_TOKEN_BEDROCK": (),
}
"""Variables that send vendors' clients to another address with a key. Other services have one that
begins like the variable of their key and ends in _BASE_URL.
"""
REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")
GATEWAY_PATHS = {"ANTHROPIC_API_KEY": "/v1", "GEMINI_API_KEY": "/v1beta/openai"}
"""Paths that the vendors' own clients add to such an address."""


def gateway_variables(key_variable: str) -> tuple[str, ...]:
    """Return the variables that may name another address for the service of a key."""
    usual = (key_variable.removesuffix("_API_KEY") + "_BASE_URL",)
    return GATEWAY_VARIABLES.get(key_variable, usual)


def gateway_address(key_variable: str, environ: Mapping[str, str]) -> str:
    """Return the address that the environment names for the service of a key, "" for none."""
    names = gateway_variables(key_variable)
    address = next((environ[name] for name in names if environ.get(name)), "").strip().rstrip("/")
    path = GATEWAY_PATHS.get(key_variable, "")
    return address if not address or address.endswith(path) else address + path


SERVICES = (
    KnownService(
        "anthropic",
        "ANTHROPIC_API_KEY",
        "https://api.anthropic.com/v1",
        (
            ("cheap", "claude-haiku-5-5"),
            ("middle", "claude-sonnet-5-5"),
            ("strong", "claude-opus-5-5"),
        ),
        provider="anthropic",
    ),
    KnownService(
        "openai",
        "OPENAI_API_KEY",
        "https://api.openai.com/v1",
        (("cheap", "gpt-6-luna"), ("middle", "gpt-6.1-terra"), ("strong", "gpt-6.1-sol")),
    ),
    KnownService(
        "google",
        "GEMINI_API_KEY",
        "https://generativelanguage.googleapis.com/v1beta/openai",
        (
            ("cheap", "gemini-3.5-flash-lite"),
            ("middle", "gemini-3.8-flash"),
            ("strong", "gemini-4-argon"),
        ),
    ),
    KnownService(
        "deepseek",
        "DEEPSEEK_API_KEY",
        "https://api.deepseek.com/v1",
        (("cheap", "deepseek-v4-flash"),),
    ),
    KnownService(
        "mistral",
        "MISTRAL_API_KEY",
        "https://api.mistral.ai/v1",
        (("cheap", "mistral-small-latest"), ("strong", "mistral-large-4")),
    ),
    KnownService(
        "xai",
        "XAI_API_KEY",
        "https://api.x.ai/v1",
        (("cheap", "grok-4.3"), ("strong", "grok-4.7")),
    ),
    KnownService(
        "moonshot",
        "MOONSHOT_API_KEY",
        "https://api.moonshot.ai/v1",
        (("cheap", "kimi-k2.7-code"), ("strong", "kimi-k3.1-pro")),
    ),
    KnownService(
        "zai",
        "ZAI_API_KEY",
        "https://api.z.ai/api/paas/v4",
        (("cheap", "glm-5.3-flash"), ("strong", "glm-5.3")),
    ),
    KnownService(
        "dashscope", "DASHSCOPE_API_KEY", "https://dashscope-intl.aliyuncs.com/compatible-mode/v1"
    ),
    KnownService(
        "openrouter",
        "OPENROUTER_API_KEY",
        "https://openrouter.ai/api/v1",
        (
            ("cheap", "deepseek/deepseek-v4.1-flash"),
            ("middle", "anthropic/claude-sonnet-5.5"),
            ("strong", "anthropic/claude-opus-5.5"),
        ),
        key_path="/key",
        prefixed=True,
    ),
    KnownService(
        "groq",
        "GROQ_API_KEY",
        "https://api.groq.com/openai/v1",
        (
            ("cheap", "openai/gpt-oss-20b"),
            ("middle", "openai/gpt-oss-120b"),
            ("strong", "qwen/qwen3.8-27b"),
        ),
        prefixed=True,
    ),
    KnownService(
        "together",
        "TOGETHER_API_KEY",
        "https://api.together.xyz/v1",
        (
            ("cheap", "deepseek-ai/DeepSeek-V4.1-Flash"),
            ("strong", "moonshotai/Kimi-K3.1-Pro"),
        ),
        prefixed=True,
    ),
    KnownService(
        "fireworks",
        "FIREWORKS_API_KEY",
        "https://api.fireworks.ai/inference/v1",
        (
            ("cheap", "accounts/fireworks/models/deepseek-v4-flash"),
            ("strong", "accounts/fireworks/models/kimi-k3"),
        ),
        prefixed=True,
    ),
    KnownService(
        "cerebras",
        "CEREBRAS_API_KEY",
        "https://api.cerebras.ai/v1",
        (("cheap", "gpt-oss-120b"), ("strong", "qwen-3.8-27b")),
        prefixed=True,
    ),
    KnownService(
        "bedrock",
        "AWS_BEARER_TOKEN_BEDROCK",
        "https://bedrock-runtime.{region}.amazonaws.com/openai/v1",
        (("cheap", "global.openai.gpt-6-luna"), ("strong", "global.openai.gpt-6-sol")),
        api="responses",
        prefixed=True,
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
)
"""The pool of a machine without keys."""
FORMER_AGENTS = {"coder-5x": "coder"}
"""Agents of the embedded pool that are gone, and what stands in their place."""

ADDRESSES = {"openai": "https://api.openai.com/v1", "anthropic": "https://api.anthropic.com/v1"}
VARIABLES = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}
PROTOCOLS: Mapping[str, Protocol] = {"local": "text"}


PLANNER = "embedded"
"""`conductor.agent` that stands for an embedded model, which then plans and does nothing else."""


HELP_POOL = "`fugu pool` shows the agents, `fugu help pool` how one is added"
GRAMMARS = ("tree-sitter>=0.25,<1", "tree-sitter-python>=0.25,<1")
"""Packages of the extra `local`, for models that do not call tools."""


@dataclass(frozen=True)
class UnusableEntry:
    """An entry that cannot be used now, and why."""

    name: str
    reason: str
    variable: str


def usable_pool(config: Config, environ: Mapping[str, str]) -> tuple[AgentEntry, ...]:
    """Return the usable agents with every field filled in except temperature, reply length and
    effort.

    A single agent takes the strong slot. Raises ConfigError if none is left, or if `coordinator` or
    `opt_out` name an unknown agent.
    """
    entries = configured_entries(config, environ)
    unusable = unusable_entries(config, environ)
    missing = {entry.name: entry.reason for entry in unusable}
    usable = [_filled(entry, config, environ) for entry in entries if entry.name not in missing]
    if not usable:
        variables = " or ".join(
            dict.fromkeys(entry.variable for entry in unusable if entry.variable)
        )
        mend = f"set {variables}" if variables else f"install it: {installing(*GRAMMARS)}"
        raise ConfigError(
            f"no agent of the pool can be used: "
            f"{'; '.join(f'{entry.name}: {entry.reason}' for entry in unusable)}",
            hint=f"{mend}, or remove the [[agents]] entries to use the embedded models",
        )
    names = [entry.name for entry in entries]
    _check_names(config, names, missing)
    advisor = next((entry for entry in usable if entry.name == config.advisor), None)
    if advisor is not None and advisor.protocol != "native":
        raise ConfigError(
            f"advisor: {advisor.name} cannot advise: models that call no tools answer nothing else",
            hint="name another agent of the pool, or auto",
        )
    if len({entry.name for entry in usable} - set(config.opt_out)) == 0:
        raise ConfigError(
            "every usable agent of the pool is opted out", hint="shorten opt_out or --opt-out"
        )
    if len(usable) == 1:
        return (usable[0].model_copy(update={"slot": usable[0].slot or "strong"}),)
    slots = assign_slots({entry.name: entry.price for entry in usable if entry.price is not None})
    with_slots = []
    for entry in usable:
        slot = entry.slot or slots.get(entry.name, "middle")
        with_slots.append(entry.model_copy(update={"slot": slot}))
    return tuple(with_slots)


def configured_entries(config: Config, environ: Mapping[str, str]) -> tuple[AgentEntry, ...]:
    """Return the agents of the configuration, else those that are found, with the planner."""
    entries = config.agents or detected_pool(environ)
    if config.conductor.agent != PLANNER or any(entry.name == PLANNER for entry in entries):
        return entries
    coder = next(entry for entry in EMBEDDED if entry.name == "coder")
    return (*entries, coder.model_copy(update={"name": PLANNER}))


def unusable_entries(config: Config, environ: Mapping[str, str]) -> tuple[UnusableEntry, ...]:
    """Return the entries without a key and those that need a missing library; also local models
    that are not fetched, if another agent can be used.
    """
    unusable = []
    readable = find_spec("tree_sitter") is not None
    for entry in config.agents:
        variable = _variable(entry)
        if variable and not environ.get(variable):
            unusable.append(UnusableEntry(entry.name, f"{variable} is not set", variable))
        elif not readable and _protocol(entry) != "native":
            unusable.append(
                UnusableEntry(entry.name, "it needs the extra `local`, which is not installed", "")
            )
    excluded = {entry.name for entry in unusable} | {*config.opt_out, PLANNER}
    usable = [entry for entry in configured_entries(config, environ) if entry.name not in excluded]
    absent = [
        UnusableEntry(entry.name, f"not fetched: fugu models pull {entry.model}", "")
        for entry in usable
        if entry.provider == "local" and _is_absent(entry.model, config.cache)
    ]
    return (*unusable, *absent) if len(absent) < len(usable) else tuple(unusable)


def _is_absent(model: str, cache: Path) -> bool:
    """Return whether an embedded model is not on this machine."""
    from fugu_cli.local.store import Store

    store = Store(cache)
    return any(known.name == model for known in store.models) and store.find(model) is None


def detected_pool(environ: Mapping[str, str]) -> tuple[AgentEntry, ...]:
    """Return the default pool: the services whose keys are set, else the embedded models."""
    entries = []
    for service in SERVICES:
        address = service.address(environ) if environ.get(service.variable) else ""
        if not address:
            continue
        prefix = f"{service.name}-" if service.prefixed else ""
        for slot, model in service.models:
            entries.append(
                AgentEntry(
                    name=prefix + model.rpartition("/")[2],
                    provider=service.provider,
                    model=model,
                    base_url=address,
                    api=service.api,
                    api_key_env=service.variable,
                    slot=slot,
                )
            )
    return tuple(entries) or EMBEDDED


def detected_keys(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the known key variables that are set."""
    return tuple(service.variable for service in SERVICES if environ.get(service.variable))


def unready_services(environ: Mapping[str, str]) -> tuple[UnusableEntry, ...]:
    """Return the services whose key is set but that need more settings, with what the user must
    add.
    """
    unready = []
    for service in SERVICES:
        if not environ.get(service.variable):
            continue
        if not service.address(environ):
            reason = (
                f"{service.variable} is set, but AWS_REGION names no region: set it, as in "
                f"AWS_REGION=us-east-1"
            )
            unready.append(UnusableEntry(service.name, reason, service.variable))
        elif not service.models:
            entry = entry_text(
                f"{service.name}-strong", "MODEL", service.base_url, service.variable
            )
            reason = (
                f"{service.variable} is set; no model of it is known, so add one to "
                f"~/.fugurc:\n{entry}"
            )
            unready.append(UnusableEntry(service.name, reason, service.variable))
    return tuple(unready)


def has_assumed_price(entry: AgentEntry, config: Config) -> bool:
    """Return whether the price of an entry is assumed: another server answers than the one whose
    price is known.
    """
    is_stated = any(stated.name == entry.name and stated.price for stated in config.agents)
    return not is_stated and is_assumed(entry.provider, entry.model, entry.base_url or "")


def entry_name(text: str) -> str:
    """Return a name for an agent, made of a model's name and perhaps its server's."""
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.") or "agent"


def entry_text(name: str, model: str, base_url: str, variable: str = "") -> str:
    """Return an entry as written in `.fugurc`."""
    keys = {
        "name": name,
        "provider": "openai",
        "model": model,
        "base_url": base_url,
        "api_key_env": variable,
    }
    lines = [
        f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in keys.items() if value
    ]
    return "\n".join(f"    {line}" for line in ("[[agents]]", *lines))


def _variable(entry: AgentEntry) -> str | None:
    """Return the variable of the entry's key. A server with its own address needs none unless the
    entry names one.
    """
    if entry.api_key_env or entry.provider not in VARIABLES:
        return entry.api_key_env
    return (
        VARIABLES[entry.provider] if entry.base_url in (None, ADDRESSES[entry.provider]) else None
    )


def _protocol(entry: AgentEntry) -> Protocol:
    protocol = entry.protocol or PROTOCOLS.get(entry.provider, "native")
    return "text" if protocol == "schema" else protocol


def without_former_agents(config: Config) -> Config:
    """Return the configuration with the names of former embedded agents replaced by those of
    present ones.
    """
    if config.agents:
        return config
    _, single, name = config.coordinator.partition("single:")
    coordinator = f"single:{FORMER_AGENTS.get(name, name)}" if single else config.coordinator
    opt_out = tuple(agent for agent in config.opt_out if agent not in FORMER_AGENTS)
    planner = config.conductor.agent
    planner = FORMER_AGENTS.get(planner, planner) if planner is not None else None
    conductor = config.conductor.model_copy(update={"agent": planner})
    update = {"coordinator": coordinator, "opt_out": opt_out, "conductor": conductor}
    return config.model_copy(update=update)


def former_settings(config: Config) -> tuple[str, ...]:
    """Return a sentence for each setting of an agent that has no effect any more."""
    notes = []
    for entry in config.agents:
        if entry.attempts is not None:
            notes.append(
                f"{entry.name}: `attempts` does nothing any more; a model without tool calls tries "
                f"several changes in one turn"
            )
        if entry.protocol == "schema":
            notes.append(f'{entry.name}: protocol = "schema" is the same as "text" now')
    return tuple(notes)


def _filled(entry: AgentEntry, config: Config, environ: Mapping[str, str]) -> AgentEntry:
    """Return the entry with every field that the user left out."""
    base_url = address_of(entry, environ)
    values: dict[str, object] = {
        "base_url": base_url,
        "api": _api(entry, base_url),
        "api_key_env": _variable(entry),
        "protocol": _protocol(entry),
        "context": entry.context or _context(entry, base_url),
        "infill": _infills(entry),
        "price": entry.price or price_of(entry.provider, entry.model, base_url or ""),
    }
    if entry.vision is None:
        values["vision"] = _sees_pictures(entry)
    if entry.vendor is None:
        values["vendor"] = _vendor(entry)
    if entry.temperature is None:
        values["temperature"] = config.temperature
    return entry.model_copy(update=values)


def pool_variables(config: Config, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the part of the environment from which agents get their keys and addresses."""
    keys = {service.variable for service in SERVICES}
    keys |= {entry.api_key_env for entry in config.agents if entry.api_key_env}
    names = {*keys, *REGION_VARIABLES}
    for key in keys:
        names.update(gateway_variables(key))
    return {name: value for name, value in sorted(environ.items()) if name in names}


def address_of(entry: AgentEntry, environ: Mapping[str, str]) -> str | None:
    """Return the address that an entry's agent is called at."""
    gateway = gateway_address(VARIABLES.get(entry.provider, ""), environ)
    return entry.base_url or gateway or ADDRESSES.get(entry.provider)


def _api(entry: AgentEntry, base_url: str | None) -> Api | None:
    """Return the API. OpenAI's models reason between tool calls only on the newer one; other
    servers have the older one.
    """
    if entry.provider != "openai":
        return None
    return entry.api or ("responses" if base_url == ADDRESSES["openai"] else "chat")


def _sees_pictures(entry: AgentEntry) -> bool:
    if entry.provider in ("local", "scripted"):
        return False
    return sees_pictures(entry.model)


def _vendor(entry: AgentEntry) -> str:
    """Return the vendor by the model's name, else the provider if it serves its own models. A
    script's model is a path.
    """
    if entry.provider == "scripted":
        return ""
    direct = entry.provider in ADDRESSES and entry.base_url in (None, ADDRESSES[entry.provider])
    return vendor_of(entry.model.rpartition("/")[2]) or (entry.provider if direct else "")


def _infills(entry: AgentEntry) -> bool:
    """Return whether the entry can fill in lines: only a local model, by the manifest or the user's
    word.
    """
    if entry.provider != "local":
        return False
    from fugu_cli.local import manifest

    return manifest.infills(entry.model) if entry.infill is None else entry.infill


def _context(entry: AgentEntry, base_url: str | None) -> int:
    if entry.provider == "local":
        return LOCAL_CONTEXT
    return context_of(entry.provider, entry.model, base_url or "") or CONTEXT


def _check_names(config: Config, names: Sequence[str], missing: Mapping[str, str]) -> None:
    """Raise ConfigError if a setting names an agent that is unknown, unusable, or opted out."""
    pinned = None
    if config.coordinator.startswith("single:"):
        pinned = config.coordinator.removeprefix("single:")
    advisor = config.advisor if config.advisor not in ("auto", "off") else None
    named = [
        (pinned, "coordinator"),
        (config.conductor.agent or None, "conductor.agent"),
        (advisor, "advisor"),
    ]
    named += [(name, "opt_out") for name in config.opt_out]
    for denied in config.deny_agents.values():
        named += [(name, "deny_agents") for name in denied if name != "*"]
    for name, key in named:
        if name is not None and name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean {near[0]!r}?" if near else HELP_POOL
            where = "" if key == "coordinator" else f"{key}: "
            raise ConfigError(
                f"{where}no agent or model named {name}; the pool has {', '.join(names)}", hint=hint
            )
    if pinned is not None and pinned in missing:
        raise ConfigError(
            f"{pinned!r} cannot be used: {missing[pinned]}", hint="`fugu pool` says what it needs"
        )
    if advisor is not None and advisor in config.opt_out:
        raise ConfigError(
            f"{advisor!r} is both the advisor and opted out", hint="drop one of the two"
        )
    if pinned is not None and pinned in config.opt_out:
        raise ConfigError(f"{pinned!r} is both pinned and opted out", hint="drop one of the two")
