"""Config -> agents, Team, Environment and Session: the one place that names every concrete
class.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, assert_never
from urllib.parse import urlsplit

from fugu_cli import __version__
from fugu_cli.app.open_session import Session, SessionExtras
from fugu_cli.config import Config, kept_keys, trust
from fugu_cli.config.agent_pool import PLANNER, has_assumed_price, usable_pool
from fugu_cli.config.loader import LoadedConfig
from fugu_cli.config.schema import AgentEntry, TimeoutPhases
from fugu_cli.coordinators import Coordinator, CoordinatorSettings
from fugu_cli.engine.accounted_agent import AccountedAgent
from fugu_cli.engine.environment import (
    AskPermission,
    Environment,
    Refusal,
    RequestLimits,
    Team,
    TestRules,
    WaitLimit,
)
from fugu_cli.engine.recovery import finish_interrupted_undos
from fugu_cli.errors import InfrastructureError
from fugu_cli.extensions.instruction_files import (
    MEMORY_FILE,
    nested_instructions,
    standing_instructions,
)
from fugu_cli.extensions.skills import Skill, describe_each
from fugu_cli.messages import Call
from fugu_cli.providers import Agent
from fugu_cli.safety import path_rules, saved_permissions
from fugu_cli.safety.git_process import git_program
from fugu_cli.safety.path_rules import Denials
from fugu_cli.safety.paths import inside
from fugu_cli.safety.policy import Judgement, Rules, rule_matching
from fugu_cli.safety.programs import use_repositories
from fugu_cli.safety.redaction import LogRedactor, Redactor
from fugu_cli.safety.sandbox.command_sandbox import Sandbox
from fugu_cli.safety.sandbox.command_sandbox import SandboxSettings as BoxRules
from fugu_cli.safety.self_running_files import RunBy, self_running_file
from fugu_cli.session import log
from fugu_cli.session import store as session_store
from fugu_cli.session.events import (
    Compacted,
    Event,
    Interrupted,
    Member,
    Opened,
    Planned,
    PluginUse,
    Replied,
)
from fugu_cli.session.live_events import Waiting
from fugu_cli.session.log import Log
from fugu_cli.session.spending import Budgets, Ledger, OtherSpending, SessionAccount
from fugu_cli.session.tool_facts import (
    ACCEPTANCE_CHECK,
    BASH,
    REMEMBER,
    RUN_TESTS,
    TOOLS,
    WEB_FETCH,
    WEB_SEARCH,
)
from fugu_cli.snapshots.git_repositories import find_repository, user_git
from fugu_cli.tools import mentions
from fugu_cli.tools.toolbox import Toolbox, describe_from_prompts, load_tool
from fugu_cli.tools.workspace import Workspace, recall_reads

if TYPE_CHECKING:
    from fugu_cli.coordinators.composed import ComposedHead
    from fugu_cli.coordinators.kind_backlog import KindBacklog
    from fugu_cli.coordinators.kinds import BackboneKindReader
    from fugu_cli.coordinators.outcome_store import OutcomeStore
    from fugu_cli.extensions.mcp_servers import McpServers
    from fugu_cli.extensions.memory import Memory
    from fugu_cli.extensions.subagents import Subagent
    from fugu_cli.local.embedded_agent import EmbeddedAgent
    from fugu_cli.local.server_lease import Lease
    from fugu_cli.providers.circuit_breaker import CircuitBreaker, RefusedKeys
    from fugu_cli.providers.endpoint import ModelEndpoint, Timeouts
    from fugu_cli.providers.key_gate import KeyGate
    from fugu_cli.tools.web_search import SearchEngine


@dataclass(frozen=True)
class AgentResources:
    """The folder of models, and the seconds that an unused local one stays loaded.

    `breaker` is shared by all agents of a process; with None each call stands alone.
    """

    cache: Path
    idle: float
    breaker: CircuitBreaker | None = None


def build_agents(
    entries: Sequence[AgentEntry],
    environ: Mapping[str, str],
    places: AgentResources,
    events: Sequence[Event] = (),
) -> dict[str, Agent]:
    """Build an agent per entry, by name. Nothing is started or called. `events`: the session so
    far; scripts go on there.
    """
    for entry in entries:
        if entry.protocol != "native" or entry.provider == "local":
            _need_grammars(entry.name)
    made = {entry.name: _agent(entry, environ, places, events) for entry in entries}
    if places.breaker is None:
        return made
    from fugu_cli.providers.circuit_breaker import BreakerAgent

    return {name: BreakerAgent(agent, places.breaker) for name, agent in made.items()}


def _need_grammars(name: str) -> None:
    """Raise InfrastructureError if the library is missing that finds functions in the output of a
    small model.
    """
    if importlib.util.find_spec("tree_sitter") is None:
        from fugu_cli.local.server_lease import installing_local

        raise InfrastructureError(
            f"What the agent {name} writes is read with the package 'tree-sitter', which is not "
            f"installed.",
            hint=(
                f"it is in the extra `local`: {installing_local()}; or set a provider's key, "
                f"`fugu login`"
            ),
        )


def _agent(
    entry: AgentEntry, environ: Mapping[str, str], places: AgentResources, events: Sequence[Event]
) -> Agent:
    """Return the entry's provider, asked again where that may help, with the entry's own sampling;
    and what calls tools for a model that cannot.
    """
    from fugu_cli.providers.retry import Retrying
    from fugu_cli.providers.wrappers import Sampling

    breaker, fill = places.breaker, None
    match entry.provider:
        case "openai" if entry.api == "responses":
            from fugu_cli.wires.responses import Responses

            agent: Agent = Responses(build_endpoint(entry, environ))
        case "openai":
            from fugu_cli.wires.chat_completions import OpenAI

            agent = OpenAI(build_endpoint(entry, environ))
        case "anthropic":
            from fugu_cli.wires.messages import Anthropic

            agent = Anthropic(build_endpoint(entry, environ))
        case "local":
            embedded = _local(entry, places)
            agent, breaker, fill = embedded, None, embedded.fill if entry.infill else None
        case "scripted":
            from fugu_cli.providers.scripted import Scripted, load_script

            done = _replies(events, entry.name)
            agent, breaker = Scripted(entry.name, load_script(Path(entry.model)), done), None
        case _:
            assert_never(entry.provider)
    agent = Retrying(agent, breaker=breaker)
    agent = Sampling(agent, temperature=entry.temperature, max_tokens=entry.max_tokens)
    if entry.protocol == "native":
        return agent
    from fugu_cli.local.small_model import SmallModel

    return SmallModel(agent, fill)


REFUSED_KEYS: RefusedKeys = {}
"""The keys that servers refused, whichever session of this process called them."""


def build_circuit_breaker(
    entries: Sequence[AgentEntry],
    environ: Mapping[str, str],
    refused_keys: RefusedKeys = REFUSED_KEYS,
    data: Path | None = None,
) -> CircuitBreaker:
    """Return the circuit breaker of these entries. Entries with the same model and key are one
    account for their server. `data` is the folder in which used-up accounts are noted for other
    processes.
    """
    from fugu_cli.providers.circuit_breaker import CircuitBreaker
    from fugu_cli.providers.quota_windows import QuotaFile

    accounts = {
        entry.name: f"{entry.base_url} {entry.api_key_env} {entry.model}" for entry in entries
    }
    hosts = {entry.name: urlsplit(entry.base_url).netloc for entry in entries if entry.base_url}
    keys = {
        entry.name: (entry.base_url, environ.get(entry.api_key_env or "", "").strip(), entry.model)
        for entry in entries
        if entry.base_url
    }
    quotas = QuotaFile(data) if data is not None else None
    return CircuitBreaker(
        accounts, hosts=hosts, keys=keys, refused_keys=refused_keys, quotas=quotas
    )


def build_search_gate(engine: SearchEngine) -> KeyGate:
    """Build the gate for the key of a search engine, or of the agent whose provider searches."""
    from fugu_cli.providers.endpoint import ModelEndpoint
    from fugu_cli.providers.key_gate import KeyGate

    name = engine.agent or engine.host
    endpoint = ModelEndpoint(name, engine.model, engine.agent_url or engine.url, engine.key)
    return KeyGate(endpoint, REFUSED_KEYS)


def build_endpoint(entry: AgentEntry, environ: Mapping[str, str]) -> ModelEndpoint:
    """Return the endpoint of an entry, with the key from the environment."""
    from fugu_cli.providers.endpoint import ModelEndpoint

    variable = entry.api_key_env or ""
    return ModelEndpoint(
        name=entry.name,
        model=entry.model,
        base_url=entry.base_url or "",
        key=environ.get(variable, "").strip() if variable else "",
        key_env=variable,
        effort=entry.effort or "",
        timeouts=build_timeouts(entry.timeout),
        headers=entry.headers,
        body=entry.body,
    )


def build_timeouts(setting: float | TimeoutPhases | None) -> Timeouts:
    """Return the phases that the setting names, and the defaults for others."""
    from fugu_cli.providers.endpoint import Timeouts

    if not isinstance(setting, TimeoutPhases):
        return Timeouts() if setting is None else Timeouts(first_token=setting)
    defaults = Timeouts()
    return Timeouts(
        connect=setting.connect or defaults.connect,
        first_token=setting.first or defaults.first_token,
        between=setting.between or defaults.between,
        whole=setting.total or defaults.whole,
    )


def _local(entry: AgentEntry, places: AgentResources) -> EmbeddedAgent:
    from fugu_cli.local.embedded_agent import EmbeddedAgent
    from fugu_cli.local.server_lease import lease_server

    async def start() -> Lease:
        return await lease_server(
            entry.model, context=entry.context or 16384, cache=places.cache, idle=places.idle
        )

    return EmbeddedAgent(entry.name, entry.model, start)


def _replies(events: Sequence[Event], name: str) -> int:
    """Count the agent's replies, plans and summaries included. A script goes on there, also after a
    kill.
    """
    return sum(
        isinstance(event, Replied | Planned | Compacted) and event.agent == name for event in events
    )


def build_session(
    loaded: LoadedConfig,
    environ: Mapping[str, str],
    ask: AskPermission,
    resume: Path | None = None,
    around: Callable[[Agent], Agent] | None = None,
    *,
    learns: bool = True,
    somebody_to_ask: bool = True,
) -> Session:
    """Return a new session for `loaded.root`, or the session at `resume`, continued with today's
    configuration. Call it in a thread.

    `around` wraps every agent: an evaluation records their replies. `learns`: the session knows the
    outcomes of earlier sessions, and the keys that were refused in others. `somebody_to_ask`:
    somebody answers `ask`.

    Raises ConfigError for a pool that cannot be used, SessionBusy and StorageError as `Log.open`
    does.
    """
    from fugu_cli.extension_wiring import build_extras, build_servers, server_secrets
    from fugu_cli.testing.runner_discovery import find_test_command

    config = loaded.config
    entries = usable_pool(config, environ)
    members = tuple(
        entry.member(assumed_price=has_assumed_price(entry, config)) for entry in entries
    )
    by_name = {member.name: member for member in members}
    workspace = build_workspace(config, loaded.root, _readable_extensions(loaded))
    use_repositories(workspace, *config.add_dirs)
    if workspace.sandbox is not None:
        workspace.sandbox.open_files(_opened_files(loaded))
        workspace.sandbox.try_out()
    workspace.test_command = config.test_command or find_test_command(loaded.root)
    coordinator, checkpoint, warm = build_coordinator(config, members)
    scripted = any(
        entry.provider == "scripted" for entry in entries
    )  # only scripts go on where they were
    before = [record.event for record in log.read(resume)] if resume and scripted else []
    breaker = build_circuit_breaker(
        entries, environ, REFUSED_KEYS if learns else {}, config.data if learns else None
    )
    agents = build_agents(
        entries, environ, AgentResources(config.cache, config.local_idle, breaker), before
    )
    agents = {name: around(agent) for name, agent in agents.items()} if around else agents
    mask = Redactor(
        {**named_secrets(environ, entries), **server_secrets(loaded.servers)}, loaded.root
    )
    servers = build_servers(
        loaded,
        lambda why: journal.tell(Waiting(why=mask.text(why), notice=True)),
        mask,
        workspace.sandbox,
    )
    workspace.mask = LogRedactor([resume] if resume else [], mask.text).text
    journal = _journal(loaded, mask, members, checkpoint, resume)
    denials = Denials(config.deny_agents, loaded.root) if config.deny_agents else None
    if denials is not None:
        agents = {
            name: build_guard(agent, denials, lambda: journal.events)
            for name, agent in agents.items()
        }
    ledger = build_ledger(config, loaded.root)
    account = _open_account(ledger, journal, resumed=resume is not None)
    agents = {name: AccountedAgent(agent, by_name[name], account) for name, agent in agents.items()}
    recovered = finish_interrupted_undos(workspace, journal)
    recall_reads(workspace, journal.records)
    environment = build_environment(
        config,
        workspace,
        ask,
        mask.text(_instructions(loaded)),
        build_budgets(config, account),
    )
    of_folder = {"from_folder": loaded.from_folder, "trusted": loaded.trusted}
    environment = replace(environment, rules=environment.rules.model_copy(update=of_folder))
    memory = build_memory(loaded, mask.text) if learns and not config.bare else None
    if loaded.managed is not None:
        environment = replace(environment, rules=_managed_rules(environment, loaded))
    extras = build_extras(loaded, environ, entries, journal, workspace.sandbox)
    extras = replace(extras, recovered=recovered)
    workspace.jobs.attach(journal.state, journal.append)
    outcomes = build_outcomes(loaded) if learns and config.coordinator == "trinity" else None
    kinds = None
    if outcomes is not None and config.checkpoint is None and not scripted:
        kinds = build_kind_backlog(config, members, outcomes)
        warm = partial(kinds.prepare, journal)
    return Session(
        log=journal,
        root=loaded.root,
        config=config,
        team=Team(
            by_name,
            agents,
            coordinator,
            breaker,
            WaitLimit(config.time.wait),
            config.excluded_agents(by_name),
        ),
        environment=_with_extensions(
            replace(
                environment,
                denials=denials,
                somebody_to_ask=somebody_to_ask,
                advisor=config.advisor if len(members) > 1 else "off",
                never_advise=_never_advise(config, by_name),
            ),
            loaded,
            servers,
            extras,
            journal,
            memory if somebody_to_ask else None,
        ),
        warm=warm if servers is None else _call_both(warm, servers.start),
        decide=lambda changed: build_coordinator(changed, members)[0],
        permissions_file=str(saved_permissions.permissions_file(config.data, loaded.root)),
        servers=servers,
        library=loaded.library,
        memory=memory,
        effort=config.effort or "",
        tier=config.tier,
        answer_schema=loaded.answer_schema,
        only_reads=loaded.only_reads,
        extras=extras,
        outcomes=outcomes,
        kinds=kinds,
        ignored=tuple(path.relative_to(loaded.root).as_posix() for path in loaded.ignored),
    )


def _managed_rules(environment: Environment, loaded: LoadedConfig) -> Rules:
    """Return the rules as the administrator allows them. Without a network, commands need a
    sandbox.
    """
    managed, rules, sandbox = loaded.managed, environment.rules, environment.workspace.sandbox
    assert managed is not None
    allow, deny = rules.allow, rules.deny
    if managed.only_these_allow:
        allow = loaded.config.allow
    if not managed.network and (sandbox is None or not sandbox.holds):
        deny = (*deny, *RUNS_COMMANDS)
    return rules.model_copy(
        update={
            "allow": allow,
            "deny": deny,
            "loosest_mode": managed.loosest_mode,
            "only_managed_allow": managed.only_these_allow,
        }
    )


def _never_advise(config: Config, names: Iterable[str]) -> frozenset[str]:
    """Return the agents that never advise. An agent that is named as the advisor may work beside a
    pinned agent.
    """
    return frozenset(config.opt_out) if config.advisor != "auto" else config.excluded_agents(names)


def _call_both(first: Callable[[], None], second: Callable[[], None]) -> Callable[[], None]:
    def run() -> None:
        first()
        second()

    return run


def _instructions(loaded: LoadedConfig) -> str:
    """Return the user's standing instructions, those of the command line last."""
    root, config = loaded.root if loaded.trusted else None, loaded.config
    instructions = (
        "" if config.bare else standing_instructions(root, loaded.below, loaded.vouched).text
    )
    if config.add_dirs:
        instructions += (
            f"\nBeside the repository you may read and edit: "
            f"{', '.join(map(str, config.add_dirs))}\n"
        )
    if loaded.appended:
        instructions += (
            f"\nThe user's standing instructions (given with the command line):\n{loaded.appended}"
        )
    return instructions


def build_memory(loaded: LoadedConfig, mask: Callable[[str], str]) -> Memory:
    """Build the memory for work in `loaded.root`."""
    from fugu_cli.extensions.memory import UNTRUSTED, Memory, left_out_note

    root, data = loaded.root, loaded.trust_data
    told = [left_out_note(MEMORY_FILE, UNTRUSTED)] if root / MEMORY_FILE in loaded.ignored else []

    def counts(path: Path) -> bool:
        if loaded.vouched(path):
            return True
        return loaded.trusted and trust.unchanged_since_trust(data, root)(path)

    is_home = root == Path.home().resolve()
    return Memory(
        None if is_home else root,
        counts,
        is_trusted=partial(trust.is_trusted, data, root),
        trust_file=partial(trust.trust_file, data, root),
        mask=mask,
        told=frozenset(told),
    )


def _readable_extensions(loaded: LoadedConfig) -> tuple[Path, ...]:
    """Return the folders of the user's own skills and of plugins, which agents may read."""
    own_skills = (skill.folder for skill in loaded.library.skills if skill.own)
    return (*own_skills, *(plugin.folder for plugin in loaded.plugins))


def _plugin_uses(loaded: LoadedConfig) -> tuple[PluginUse, ...]:
    if not loaded.plugins:
        return ()
    from fugu_cli.extensions.plugins import parts_in_use

    return tuple(
        PluginUse(
            name=plugin.name,
            version=plugin.version,
            source=plugin.source,
            commit=plugin.commit,
            brings=parts_in_use(plugin, loaded.library, loaded.servers),
        )
        for plugin in loaded.plugins
    )


def _with_extensions(
    environment: Environment,
    loaded: LoadedConfig,
    servers: McpServers | None,
    extras: SessionExtras,
    journal: Log,
    memory: Memory | None,
) -> Environment:
    """Return the environment with the user's servers, skills, subagents, hooks and nested
    instructions. `memory` holds what agents may propose lines for.
    """
    from fugu_cli.extension_wiring import build_hooks

    rules, library = environment.rules, loaded.library
    user_rules = (*rules.allow, *rules.ask)
    toolbox = build_toolbox(
        servers,
        library.skills,
        user_rules,
        library.agents,
        extras.search,
        advised=environment.advisor != "off",
        memory=memory,
    )
    if extras.checkers is not None:
        toolbox = extras.checkers.around_all(toolbox)
    readable = (*_readable_extensions(loaded), pasted_folder(loaded.config))
    nearer = None
    if environment.denials is None:
        nearer = nested_instructions(loaded.root, loaded.below, loaded.vouched)
    return replace(
        environment,
        rules=rules.model_copy(update={"readable": readable}),
        toolbox=toolbox,
        subagents=library.agents,
        hooks=build_hooks(loaded.hooks, loaded.config, journal, loaded.code),
        nearer=nearer,
    )


def pasted_folder(config: Config) -> Path:
    """Return the folder of pictures from the clipboard, resolved like an agent's path to it."""
    return (config.data / "interface" / mentions.PASTED).resolve()


def _journal(
    loaded: LoadedConfig,
    mask: Redactor,
    members: tuple[Member, ...],
    checkpoint: str | None,
    resume: Path | None,
) -> Log:
    """Return the session's log. Its first line is written again if the configuration has changed."""
    root, rule = loaded.root, loaded.config.decided_by
    journal = (
        Log.open(resume) if resume else Log.create(session_store.new_path(loaded.config.data, root))
    )
    journal.mask = mask
    opened = Opened(
        version=__version__,
        repo=str(root),
        commit=_commit(root),
        pool=members,
        coordinator=rule,
        checkpoint=checkpoint,
        plugins=_plugin_uses(loaded),
    )
    if journal.state.opened != opened:
        journal.append(opened)
    return journal


RUNS_COMMANDS = (BASH.name, RUN_TESTS.name, ACCEPTANCE_CHECK.name)
LOST_CALL = "fugu was killed while this call was under way; what it cost is an estimate"


def _open_account(ledger: Ledger, journal: Log, *, resumed: bool) -> SessionAccount:
    """Return the session's account. Calls that a killed process left under way are logged first."""
    assert journal.path is not None
    if resumed:
        for call in ledger.take_lost_calls(journal.path):
            journal.append(
                Interrupted(turn=0, agent=call.agent, usage=call.usage, reason=LOST_CALL)
            )
    return ledger.tab(journal, journal.path)


def build_guard(agent: Agent, denials: Denials, events: Callable[[], Sequence[Event]]) -> Agent:
    """Return the agent with what files are kept from it; the agent itself if none are."""
    from fugu_cli.providers.wrappers import PathFiltered

    if not denials.of(agent.name):
        return agent
    return PathFiltered(agent, lambda: path_rules.disclosure_check(events(), agent.name, denials))


def named_secrets(environ: Mapping[str, str], entries: Sequence[AgentEntry]) -> dict[str, str]:
    """Return the environment with this pool's keys under names that count as secrets."""
    keys = {
        f"{name}_KEY": environ.get(name, "").strip()
        for name in (e.api_key_env for e in entries)
        if name
    }
    return {**environ, **keys}


def build_workspace(
    config: Config, root: Path, readable: Sequence[Path] = (), logs: Sequence[Path] = ()
) -> Workspace:
    """Return the working tree, with its store of snapshots in the user's data and the test command
    if one is configured. `readable` are folders outside that agents and their commands may read all
    the same. `logs` are those of the sessions that are shown; what they masked is masked in diffs
    as well.
    """
    session_store.hide_from_git(config.data, root)
    store = snapshot_store(config, root)
    sandbox = build_sandbox(config, root, store, readable)
    workspace = Workspace(
        root,
        store,
        test_command=config.test_command,
        test_timeout=config.test_timeout,
        sandbox=sandbox,
    )
    workspace.mask = LogRedactor(
        logs, Redactor(named_secrets(os.environ, config.agents), root).text
    ).text
    return workspace


def snapshot_store(config: Config, root: Path) -> Path:
    """Return fugu's own folder for the repository at `root`, among the user's data."""
    return config.data / "snapshots" / session_store.session_folder(config.data, root).name


def build_sandbox(config: Config, root: Path, store: Path, more: Sequence[Path] = ()) -> Sandbox:
    """Build the sandbox of a folder's commands. What holds is found out when the first one runs."""
    from fugu_cli.safety.sandbox.command_limits import GIGABYTE

    settings = config.sandbox
    writable, readable = (
        [root / path.expanduser() for path in paths]
        for paths in (settings.writable, settings.readable)
    )
    rules = BoxRules(
        settings.mode,
        settings.network,
        (*writable, *config.add_dirs),
        (*readable, *more),
        settings.environment,
        memory=int(settings.memory * GIGABYTE) if settings.memory is not None else None,
    )
    keys = kept_keys.keys_folder()
    own = (config.data,) if inside(keys, config.data) else (config.data, keys)
    return Sandbox(root, store, rules, own=own)


def _opened_files(loaded: LoadedConfig) -> tuple[str, ...]:
    """Return the patterns by which the user's own rules, never the folder's, open files that others
    run.
    """
    config, root = loaded.config, loaded.root
    patterns = []
    saved = saved_permissions.load_rules(config.data, root)
    if loaded.managed is not None and loaded.managed.only_these_allow:
        saved = ()
    for rule in (*config.allow, *saved):
        tool, pattern = rule_matching.split_pattern(rule)
        if rule in loaded.from_folder or tool not in {"write", "edit"}:
            continue
        file = self_running_file(root / pattern.removesuffix("/**"), root)
        if pattern and file is not None and file.run_by is RunBy.OTHERS:
            patterns.append(pattern)
    return tuple(patterns)


def _commit(root: Path) -> str | None:
    """Return the commit that is checked out in `root`, whatever GIT_DIR says; None without git,
    without a repository or before its first commit.
    """
    repository = find_repository(root)
    if repository is None or git_program(root) is None:
        return None
    head = user_git(repository, root).run_now("rev-parse", "-q", "--verify", "HEAD")
    return head.out.decode().strip() or None


def build_toolbox(
    servers: McpServers | None = None,
    skills: Sequence[Skill] = (),
    rules: Sequence[str] = (),
    subagents: Sequence[Subagent] | None = None,
    search: SearchEngine | None = None,
    *,
    advised: bool = False,
    memory: Memory | None = None,
) -> Toolbox:
    """Return all tools: the most used first, those of MCP `servers` last.

    `web_fetch` and `web_search` are included if one of the `rules` names them, `task` if
    `subagents` is not None (empty: only the general one), `advise` if agents may be `advised`, and
    `remember` if they may propose lines for a `memory`.
    """
    tools = [load_tool(facts) for facts in TOOLS.values() if facts.implementation]
    if memory is not None:
        from fugu_cli.extensions.memory_tool import remember_tool

        tools.append(remember_tool(memory))
    if skills:
        from fugu_cli.extensions.skill_tool import skill_tool

        tools.append(skill_tool(skills))
    if subagents is not None:
        from fugu_cli.engine.subtasks import TASK_TOOL

        tools.append(TASK_TOOL)
    if advised:
        from fugu_cli.engine.advice import ADVISE_TOOL

        tools.append(ADVISE_TOOL)
    if rule_matching.any_names(rules, WEB_FETCH.name):
        from fugu_cli.tools.web_fetch import web_fetch

        tools.append(web_fetch(rules))
    if search and rule_matching.any_names(rules, WEB_SEARCH.name):
        from fugu_cli.tools.web_search import web_search

        tools.append(web_search(search, gate=build_search_gate(search)))
    return Toolbox(
        tools,
        partial(
            describe_from_prompts,
            skills=describe_each(skills),
            agents=f"\nSubagents:\n{describe_each(subagents)}" if subagents else "",
        ),
        servers,
    )


def build_ledger(config: Config, root: Path) -> Ledger:
    """Build the ledger of this machine, with the budgets that every process keeps."""
    money = config.money
    return Ledger(config.data, root, day=money.day, project=money.project)


def build_budgets(config: Config, elsewhere: OtherSpending) -> Budgets:
    """Build the budgets of a configuration; `elsewhere` knows what other sessions spend."""
    money = config.money
    return Budgets(money.request, money.session, money.day, money.project, elsewhere)


async def _ask_user(ask: AskPermission, call: Call) -> str | None:
    """Ask the user the question in a call, or whether a line may be added to the memory, with the
    dialog for permissions. Return the answer, "" for no, or None if nobody can be asked.
    """
    from fugu_cli.session.call_arguments import arguments_of

    arguments = arguments_of(call)
    assert isinstance(arguments, dict)
    question = target = str(arguments.get("question", ""))
    if call.tool == REMEMBER.name:
        target = str(arguments["line"])
        question = f"it is kept in {arguments['file']}, which agents read in later sessions"
    judgement = Judgement(verdict="ask", reason=question, target=target, every_time=True)
    permission = await ask(call, judgement)
    if isinstance(permission, Refusal):
        return permission.feedback
    answers = {"once": "yes", "session": "yes", "no": "", "headless": None}
    return answers[permission]


def build_environment(
    config: Config,
    workspace: Workspace,
    ask: AskPermission,
    instructions: str = "",
    budgets: Budgets | None = None,
) -> Environment:
    """Build the tools, the rules and the limits of a configuration."""
    workspace.ask_user = partial(_ask_user, ask)
    rules = Rules(
        mode=config.permission_mode,
        allow=(*config.allow, *saved_permissions.load_rules(config.data, workspace.root)),
        ask=config.ask,
        deny=config.deny,
        folders=config.add_dirs,
        test_command=workspace.test_command,
    )
    workspace.unread = rule_matching.read_denial(rules.deny)
    limits = RequestLimits(budget=budgets or Budgets(), replies=config.steps_per_turn)
    tests = TestRules(when=config.tests.when, patience=config.tests.patience)
    return Environment(
        build_toolbox(),
        workspace,
        rules,
        ask,
        limits,
        instructions,
        remembers=config.tier == "ultra",
        tests=tests,
    )


def build_coordinator(
    config: Config, members: tuple[Member, ...]
) -> tuple[Coordinator, str | None, Callable[[], None]]:
    """Return the coordinator of the configuration's tier; in `ultra` behind the Conductor."""
    planner = config.conductor
    idle = (
        (planner.agent,)
        if planner.agent and (not planner.works or planner.agent == PLANNER)
        else ()
    )
    built = _turn_by_turn(config.model_copy(update={"opt_out": (*config.opt_out, *idle)}), members)
    return (
        built if config.tier == "fugu" else (build_conductor(config, members, built[0]), *built[1:])
    )


def build_conductor(
    config: Config, members: tuple[Member, ...], turn_by_turn: Coordinator
) -> Coordinator:
    """Build the Conductor, before the coordinator that takes over where its workflow ends."""
    from fugu_cli.coordinators.conductor.conductor import Conductor, ConductorSettings

    settings = config.conductor
    works = settings.works and settings.agent != PLANNER
    conductor_settings = ConductorSettings(
        agent=settings.agent,
        steps=settings.max_steps,
        rounds=settings.rounds,
        depth=settings.depth,
        agents=settings.agents,
        works=works,
        paper_format=settings.planner_format == "paper",
    )
    if config.coordinator.startswith("single:"):
        members = tuple(
            member for member in members if f"single:{member.name}" == config.coordinator
        )
        conductor_settings = replace(conductor_settings, agent="", works=True)
    return Conductor(members, conductor_settings, config.deciding, turn_by_turn)


def _turn_by_turn(
    config: Config, members: tuple[Member, ...]
) -> tuple[Coordinator, str | None, Callable[[], None]]:
    """Return the configured coordinator, the hash of its checkpoint, and a function that starts to
    load it.

    If a checkpoint cannot decide here (no torch, no backbone, or one that does not fit), the
    composed head decides, and every decision says so.
    """
    from fugu_cli.coordinators import baselines
    from fugu_cli.coordinators import rules as coordinators_rules

    settings = config.deciding
    if config.coordinator.startswith("single:"):
        return (
            coordinators_rules.Single(
                config.coordinator.removeprefix("single:"), members, settings
            ),
            None,
            _nothing,
        )
    if config.coordinator == "random":
        return coordinators_rules.Random(members, settings), None, _nothing
    if baselines.is_baseline(config.coordinator):
        return baselines.build_baseline(config.coordinator, members, settings), None, _nothing
    if config.coordinator == "cascade":
        return coordinators_rules.Cascade(members, settings), None, _nothing
    composed = build_composed(config, members, settings)
    if config.checkpoint is None:
        return composed, None, _nothing
    from fugu_cli.coordinators import trinity

    files = trinity.TrinityFiles(config.checkpoint, config.backbone, config.cache)
    return trinity.build_trinity(files, members, settings, composed)


def build_composed(
    config: Config, members: tuple[Member, ...], settings: CoordinatorSettings
) -> ComposedHead:
    """Return the composed head. It loads nothing before a decision depends on the kind of its
    request.
    """
    from fugu_cli.coordinators.composed import ComposedHead

    return ComposedHead(members, settings, build_reader_of_kinds(config))


def build_reader_of_kinds(config: Config) -> BackboneKindReader:
    """Return what reads the kind of a request; the model is loaded once a process."""
    from fugu_cli.coordinators.kinds import KindFiles, build_kind_reader

    return build_kind_reader(KindFiles(config.backbone, config.cache, config.data / "coordinators"))


def build_kind_backlog(
    config: Config, members: tuple[Member, ...], outcomes: OutcomeStore
) -> KindBacklog:
    """Return what reads the kinds of requests whose decisions did not wait for them."""
    from fugu_cli.coordinators.composed import ComposedHead
    from fugu_cli.coordinators.kind_backlog import KindBacklog

    reader = build_reader_of_kinds(config)
    return KindBacklog(ComposedHead(members, config.deciding, reader), reader, outcomes)


def build_outcomes(loaded: LoadedConfig) -> OutcomeStore:
    """Return the outcomes of all sessions, as they count in this folder."""
    from fugu_cli.coordinators.outcome_store import OutcomeStore

    return OutcomeStore(
        loaded.config.data, loaded.root, partial(trust.is_trusted, loaded.trust_data)
    )


def _nothing() -> None:
    """Do nothing: a coordinator that follows a rule needs no loading."""
