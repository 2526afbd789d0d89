"""The administrator's settings, `/etc/fugu/managed.toml`: limits that no file, variable or flag of a
user can widen.

`load_config` narrows the merged configuration by them, last of all. Code that decides about MCP
servers, rules saved by an approval or a mode chosen in a session asks `ManagedSettings` itself.
"""

# without `from __future__ import annotations`: strings would be compiled at every start
import json
import tomllib
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import ValidationError, field_validator

from fugu_cli.config import MANAGED_FILE, MODES, Config, Mode, agent_pool
from fugu_cli.config.schema import AgentEntry, ConfigTable, Money, Provider, Text
from fugu_cli.errors import ConfigError
from fugu_cli.extensions.mcp_settings import DeclaredServers
from fugu_cli.safety.policy import rule_matching

HELP = "an administrator must mend it: `fugu help safety`"
NETWORK_TOOLS = ("web_fetch", "web_search")


class ManagedSettings(ConfigTable):
    """Every key of the file. A key that is left out limits nothing."""

    loosest_mode: Mode = "yolo"
    """the loosest permission mode that may be used: plan, ask, edit, auto or yolo"""
    allow: tuple[Text, ...] = ()
    """calls that need no question"""
    ask: tuple[Text, ...] = ()
    """calls that always need one"""
    deny: tuple[Text, ...] = ()
    """calls that are never made"""
    only_these_allow: bool = False
    """no other rule, and no hook, allows a call without a question"""
    network: bool = True
    """false: commands run only in a sandbox without network, and nothing is fetched or searched"""
    max_budget_usd: Money = Money()
    """USD at most, beside the user's own budgets: request, session, day, project"""
    providers: tuple[Provider, ...] | None = None
    """the kinds of provider that agents may have: openai, anthropic, local, scripted"""
    models: tuple[Text, ...] | None = None
    """patterns of the models that may be used, as in "claude-*" """
    base_urls: tuple[Text, ...] | None = None
    """patterns of the addresses that may be called, as in "https://llm.example.com/*" """
    mcp_servers: tuple[Text, ...] | None = None
    """patterns of the MCP servers that may start: their command line or address; [] for none"""
    plugins: tuple[Text, ...] | None = None
    """patterns of the addresses or folders that plugins may come from; [] for none"""

    @field_validator("allow", "ask", "deny")
    @classmethod
    def _are_rules(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for rule in value:
            rule_matching.split_pattern(rule)
        return value

    @property
    def limits_agents(self) -> bool:
        limits = (self.providers, self.models, self.base_urls)
        return any(limit is not None for limit in limits)

    def agent_refusal(self, entry: AgentEntry, base_url: str) -> str:
        """Return why an agent must not be called, "" if it may be. `base_url` is the address in use,
        from its entry or from elsewhere.
        """
        if self.providers is not None and entry.provider not in self.providers:
            return f"its provider is {entry.provider}"
        if self.models is not None and not _matches(entry.model, self.models):
            return f"its model is {entry.model}"
        if self.base_urls is not None and base_url and not _matches(base_url, self.base_urls):
            return f"its address is {base_url}"
        return ""

    def allowed_servers(self, declared: DeclaredServers) -> DeclaredServers:
        """Return the MCP servers that may start, with a note about each other one."""
        patterns = self.mcp_servers
        if patterns is None:
            return declared
        allowed = tuple(
            server for server in declared.servers if _matches(server.description, patterns)
        )
        notes = [
            f"the MCP server {server.name} does not start: {MANAGED_FILE} does not allow it"
            for server in declared.servers
            if server not in allowed
        ]
        return DeclaredServers(allowed, (*declared.notes, *notes), declared.untrusted)

    def plugin_refusal(self, source: str) -> str:
        """Return why a plugin from this address or folder may not be used, "" if it may."""
        if self.plugins is None or _matches(source, self.plugins):
            return ""
        return f"it comes from {source}, which {MANAGED_FILE} does not allow"

    def described(self) -> tuple[str, ...]:
        """Return a line `key = value` for each key that is set."""
        settings = self.model_dump(mode="json", exclude_unset=True)
        return tuple(f"{key} = {json.dumps(value)}" for key, value in settings.items())


def _matches(text: str, patterns: Sequence[str]) -> bool:
    """Return whether a pattern matches the text. In an address a `*` in the host's part matches
    nothing beyond the host.
    """
    if text.startswith(("http://", "https://")):
        return any(_matches_address(text, pattern) for pattern in patterns)
    return any(fnmatchcase(text, pattern) for pattern in patterns)


def _matches_address(address: str, pattern: str) -> bool:
    scheme, separator, rest = pattern.partition("://")
    if not separator:
        return fnmatchcase(address, pattern)
    try:
        parts = urlsplit(address)
    except ValueError:
        return False
    host_pattern, slash, path_pattern = rest.partition("/")
    if not slash and host_pattern.endswith("*"):
        path_pattern = "*"
    host = parts.netloc.rpartition("@")[2]
    path = parts._replace(scheme="", netloc="").geturl() or "/"
    return (
        fnmatchcase(f"{parts.scheme}://{host}", f"{scheme}://{host_pattern}")
        and fnmatchcase(path, f"/{path_pattern}")
        and "/.." not in path
    )


def read_managed(path: Path) -> ManagedSettings:
    """Return the administrator's settings. Raises ConfigError for a file that cannot be read or
    understood, because nobody knows then what it forbids.
    """
    try:
        if path.exists() and not path.is_file():
            raise ConfigError(f"cannot read {path}: it is not a file", hint=HELP)
        return ManagedSettings.model_validate(tomllib.loads(path.read_text("utf-8-sig")))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}", hint=HELP) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text", hint=HELP) from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}", hint=HELP) from error
    except ValidationError as error:
        fault = error.errors()[0]
        key = ".".join(str(part) for part in fault["loc"])
        message = f"{key}: {fault['msg']}"
        if fault["type"] == "extra_forbidden":
            message = f"unknown key {key!r}"
        raise ConfigError(f"{path}: {message}", hint=HELP) from error


def narrowed(
    config: Config, managed: ManagedSettings, environ: Mapping[str, str]
) -> tuple[Config, tuple[str, ...]]:
    """Return the configuration within the administrator's limits, with a sentence for each setting
    that was changed.

    Raises ConfigError where no agent is left.
    """
    notes: list[str] = []
    own_allow = () if managed.only_these_allow else config.allow
    update: dict[str, object] = {
        "ask": (*config.ask, *managed.ask),
        "deny": (*config.deny, *managed.deny),
        "allow": (*own_allow, *managed.allow),
        "max_budget_usd": _smaller(config.money, managed.max_budget_usd),
    }
    if managed.only_these_allow and config.allow:
        notes.append(f"{MANAGED_FILE}: no other allow rules count")
    if MODES.index(config.permission_mode) > MODES.index(managed.loosest_mode):
        update["permission_mode"] = managed.loosest_mode
        if "permission_mode" in config.model_fields_set:
            notes.append(
                f"{MANAGED_FILE} does not allow the mode {config.permission_mode}; "
                f"{managed.loosest_mode} is used"
            )
    if not managed.network:
        update["deny"] = (*config.deny, *managed.deny, *NETWORK_TOOLS)
        mode = config.sandbox.mode if config.sandbox.mode != "off" else "auto"
        limits = {"network": False, "mode": mode}
        update["sandbox"] = config.sandbox.model_copy(update=limits)
    if managed.limits_agents:
        entries, left_out = _allowed_agents(config, managed, environ)
        update["agents"] = entries
        notes += left_out
        names = {entry.name for entry in entries}
        if config.conductor.agent and config.conductor.agent not in names:
            update["conductor"] = config.conductor.model_copy(update={"agent": ""})
    return config.model_copy(update=update), tuple(notes)


def _smaller(own: Money, managed: Money) -> Money:
    """Return the smaller limit of each kind. A limit that is left out limits nothing."""
    limits: dict[str, float] = {}
    for name in Money.model_fields:
        values = [value for value in (getattr(own, name), getattr(managed, name)) if value]
        if values:
            limits[name] = min(values)
    return Money(**limits)


def _allowed_agents(
    config: Config, managed: ManagedSettings, environ: Mapping[str, str]
) -> tuple[tuple[AgentEntry, ...], list[str]]:
    """Return the agents that may be called, and a sentence for each configured one that may not."""
    allowed, notes = [], []
    for entry in agent_pool.configured_entries(config, environ):
        refusal = managed.agent_refusal(entry, agent_pool.address_of(entry, environ) or "")
        if not refusal:
            allowed.append(entry)
        elif config.agents:
            notes.append(
                f"{entry.name} is left out: {refusal}, which {MANAGED_FILE} does not allow"
            )
    if not allowed:
        raise ConfigError(
            f"{MANAGED_FILE} allows no agent of your pool",
            hint="your administrator knows which are allowed; `fugu doctor` shows the file's settings",
        )
    return tuple(allowed), notes
