"""Config -> what the user's own programs and services bring to a session: MCP servers, hooks,
language servers, web search, telemetry. Wiring's half for `extensions/`; each is built only where
it is wanted, and says why it is not there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from fugu_cli.app.open_session import SessionExtras
from fugu_cli.config import Config, kept_keys
from fugu_cli.config.loader import LoadedConfig
from fugu_cli.config.schema import AgentEntry
from fugu_cli.extensions.hook_settings import DeclaredHooks
from fugu_cli.extensions.mcp_settings import DeclaredServers
from fugu_cli.safety.policy import rule_matching
from fugu_cli.safety.redaction import Redactor
from fugu_cli.session.live_events import Waiting
from fugu_cli.session.log import Log
from fugu_cli.session.tool_facts import WEB_SEARCH

if TYPE_CHECKING:
    from fugu_cli.extensions.hook_runner import CallClient, Hooks
    from fugu_cli.extensions.language_servers import LanguageServers, ServerKind
    from fugu_cli.extensions.mcp_servers import McpServers
    from fugu_cli.extensions.mcp_start import ServerRules
    from fugu_cli.extensions.repository_code import TrustedCode
    from fugu_cli.extensions.telemetry import CollectorLink, Telemetry
    from fugu_cli.safety.sandbox.command_sandbox import Sandbox
    from fugu_cli.tools.web_search import EngineKind, SearchEngine


def build_extras(
    loaded: LoadedConfig,
    environ: Mapping[str, str],
    entries: Sequence[AgentEntry],
    journal: Log,
    sandbox: Sandbox | None,
) -> SessionExtras:
    """Build all but MCP servers and hooks; a sentence for each that is wanted and cannot be had.
    `sandbox` is that of the folder's commands."""
    checkers = build_language_servers(loaded, sandbox)
    search = build_search(loaded, environ, entries)
    collector = build_collector(environ)
    if collector and not isinstance(collector, str):
        watch(
            journal,
            collector,
            journal.path.stem if journal.path else "memory",
            environ.get("TRACEPARENT", ""),
        )
    return SessionExtras(
        collector=None if isinstance(collector, str) else collector,
        checkers=None if isinstance(checkers, str) else checkers,
        search=None if isinstance(search, str) else search,
        lacking=tuple(
            sentence
            for sentence in (collector, checkers, search)
            if isinstance(sentence, str) and sentence
        ),
    )


def build_servers(
    loaded: LoadedConfig, tell: Callable[[str], None], mask: Redactor, sandbox: Sandbox | None
) -> McpServers | None:
    """Return the MCP servers that count here, not started yet; None if there are none. `tell`
    receives sentences for people, and `mask` is told the access tokens that the servers are given.
    `sandbox` is that of the folder's commands.
    """
    declared = loaded.servers
    if loaded.managed is not None:
        declared = loaded.managed.allowed_servers(declared)
    if declared == DeclaredServers():
        return None
    from fugu_cli.extensions.mcp_servers import McpServers

    logins = kept_keys.StoredLogins(mask.add)
    return McpServers(declared, loaded.root, tell, logins, server_rules(loaded, sandbox))


def server_rules(loaded: LoadedConfig, sandbox: Sandbox | None) -> ServerRules:
    """Return how the folder's MCP servers are started."""
    from fugu_cli.extensions.mcp_start import ServerRules

    return ServerRules(sandbox, frozenset(loaded.online_servers), loaded.code)


def server_secrets(declared: DeclaredServers) -> dict[str, str]:
    """Return the secrets in entries of MCP servers and in logins at them."""
    if not declared.servers:
        return {}
    from fugu_cli.extensions.mcp_login import login_secrets

    return {**declared.secrets, **login_secrets(declared.servers, kept_keys.StoredLogins())}


def build_hooks(
    declared: DeclaredHooks,
    config: Config,
    journal: Log,
    code: TrustedCode | None,
    client: CallClient | None = None,
) -> Hooks | None:
    """Return the hooks that count here; None if there are none and no settings of hooks are faulty.
    `code` tells whether what they run is as the user trusted it. `client` runs those that a client
    of the SDK answers.
    """
    if declared == DeclaredHooks():
        return None
    from fugu_cli.extensions.hook_runner import HookRunner, Hooks

    name = journal.path.stem if journal.path else "memory"
    common = {"session_id": name, "transcript_path": str(journal.path or "")}
    mute = bool(config.deny_agents)
    runner = HookRunner(
        declared,
        common,
        lambda why: journal.tell(Waiting(why=why)),
        mute=mute,
        client=client,
        code=code,
    )
    runner.mode = config.permission_mode
    return Hooks(runner)


def own_language_servers(config: Config) -> list[ServerKind]:
    """Return the kinds of the servers that the configuration names."""
    from fugu_cli.extensions.language_servers import configured_kind

    return [configured_kind(entry.command, entry.extensions) for entry in config.lsp.values()]


def build_language_servers(loaded: LoadedConfig, sandbox: Sandbox | None) -> LanguageServers | str:
    """Return the installed language servers, not started; a sentence if the user insists and there
    are none.
    """
    diagnostics, files_are_kept_back = loaded.config.diagnostics, loaded.config.deny_agents
    if diagnostics is False or files_are_kept_back or not (diagnostics or loaded.trusted):
        return ""
    from fugu_cli.extensions.language_servers import usable_servers

    own = own_language_servers(loaded.config)
    servers = usable_servers(loaded.root, sandbox, own, trusted=loaded.trusted)
    return servers if diagnostics or not isinstance(servers, str) else ""


SEARCHING = {
    "api.openai.com": "responses",
    "api.anthropic.com": "messages",
    "generativelanguage.googleapis.com": "gemini",
}
"""Hosts whose models search by themselves, and how they are asked."""


def build_search(
    loaded: LoadedConfig, environ: Mapping[str, str], entries: Sequence[AgentEntry]
) -> SearchEngine | str:
    """Return the search engine for `web_search` if a rule names it; a sentence if there is none to
    ask.
    """
    config = loaded.config
    if not rule_matching.any_names((*config.allow, *config.ask), WEB_SEARCH.name):
        return ""
    from fugu_cli.tools.web_search import ADDRESSES, SearchEngine

    setting = config.search
    for entry in sorted(entries, key=lambda entry: entry.rates.input if entry.rates else 1e9):
        if setting in ("auto", entry.name):
            engine = _provider_search(entry, environ, named=setting == entry.name)
            if engine is not None:
                return engine
    address = ""
    if "://" in setting:
        address = setting
    elif setting == "auto":
        address = environ.get("SEARXNG_URL", "")
    if address:
        return SearchEngine("searxng", address.rstrip("/"), environ.get("SEARXNG_API_KEY", ""))
    brave_key = environ.get("BRAVE_API_KEY", "").strip()
    if setting in ("auto", "brave") and brave_key:
        return SearchEngine("brave", ADDRESSES["brave"], brave_key)
    tavily_key = environ.get("TAVILY_API_KEY", "").strip()
    if setting in ("auto", "tavily") and tavily_key:
        return SearchEngine("tavily", ADDRESSES["tavily"], tavily_key)
    names = ", ".join(entry.name for entry in entries)
    return (
        f"web_search is not offered: `search = {setting!r}` leads to nothing here; it can be an "
        f"agent ({names}), the address of a SearXNG, brave (BRAVE_API_KEY) or tavily "
        f"(TAVILY_API_KEY)"
    )


def _provider_search(
    entry: AgentEntry, environ: Mapping[str, str], *, named: bool
) -> SearchEngine | None:
    """Return the provider's own search by a model of the pool: at hosts that have one, or where the
    user names the agent.
    """
    from fugu_cli.tools.web_search import SearchEngine

    url = entry.base_url or ""
    host = urlsplit(url).hostname or ""
    key = environ.get(entry.api_key_env or "", "").strip()
    if entry.provider in ("local", "scripted") or not (named or (host in SEARCHING and key)):
        return None
    if host == "generativelanguage.googleapis.com":
        searching = url.removesuffix("/openai")
        return SearchEngine("gemini", searching, key, entry.model, entry.name, url)
    kind: EngineKind = "messages" if entry.provider == "anthropic" else "responses"
    return SearchEngine(kind, url, key, entry.model, entry.name, url)


def build_collector(
    environ: Mapping[str, str], tell: Callable[[str], None] = lambda _: None
) -> CollectorLink | str | None:
    """Return the connection to the user's collector if the environment names one, or a sentence if
    it cannot be used. `tell` receives later problems.
    """
    if not any(name.startswith("OTEL_EXPORTER_OTLP_") for name in environ):
        return None
    try:
        from fugu_cli.extensions import telemetry

        return telemetry.CollectorLink(environ, tell) if telemetry.is_wanted(environ) else None
    except ValueError as error:
        return f"telemetry is not sent: {error} (`fugu help storage`)"


def watch(log: Log, collector: CollectorLink, id: str, above: str) -> Telemetry:
    """Tell the collector what a log says from now on. `id` and `above` are Telemetry's."""
    from fugu_cli.extensions.telemetry import Telemetry

    return Telemetry(log, collector, id, above)
