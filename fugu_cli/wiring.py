"""Config -> Crew and Bench: the one place that names every concrete class, and the session they make up.

Below the command line and the user interfaces, above everything else. Builds and hands over; decides nothing.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from fugu_cli import __version__, crew, log, permissions, sessions, views
from fugu_cli.agents import Agent
from fugu_cli.budgets import Budgets
from fugu_cli.config import Config
from fugu_cli.config.entry import AgentEntry
from fugu_cli.config.files import Loaded
from fugu_cli.config.instructions import nearer, standing
from fugu_cli.config.pool import PLANNER, pool
from fugu_cli.coordinators import Coordinator
from fugu_cli.denials import Denials, withheld
from fugu_cli.events import Event, Member, Opened, Waiting
from fugu_cli.hooks.declared import Declared as DeclaredHooks
from fugu_cli.hooks.running import Hooks
from fugu_cli.ledger import Ledger
from fugu_cli.log import Log
from fugu_cli.loop.environment import Ask, Bench, Harness, Limits, WaitLimit
from fugu_cli.loop.evidence import TestRules
from fugu_cli.loop.harness import TOOL_CALLING
from fugu_cli.marks import Remembered
from fugu_cli.masking import Mask
from fugu_cli.orchestrator import Crew
from fugu_cli.policy import Rules, covering, web
from fugu_cli.sandbox.box import Box
from fugu_cli.sandbox.box import Rules as BoxRules
from fugu_cli.session import Session
from fugu_cli.skills.skill import Skill
from fugu_cli.tools.git import LOCAL, program
from fugu_cli.tools.mcp.declared import Declared
from fugu_cli.tools.mcp.servers import Servers
from fugu_cli.tools.toolbox import AnyTool, Toolbox
from fugu_cli.tools.workspace import Workspace, recall


def build_session(
    loaded: Loaded,
    environ: Mapping[str, str],
    ask: Ask,
    resume: Path | None = None,
    around: Callable[[Agent], Agent] | None = None,
) -> Session:
    """A new session for `loaded.root`, or the one at `resume` continued with today's configuration. For a thread.

    `around` is put around every agent: an evaluation keeps their replies.

    Raises ConfigError for a pool that cannot be used, SessionBusy and StorageError as `Log.open` does.
    """
    from fugu_cli.tools.tests import find_test_command

    config = loaded.config
    entries = pool(config, environ)
    members = tuple(entry.member() for entry in entries)
    by_name = {member.name: member for member in members}
    own_skills = tuple(skill.folder for skill in loaded.library.skills if skill.own)
    workspace = build_workspace(config, loaded.root, own_skills)
    workspace.test_command = config.test_command or find_test_command(loaded.root)
    coordinator, checkpoint, warm = build_coordinator(config, members)
    scripted = any(entry.provider == "scripted" for entry in entries)  # only scripts go on where they were
    before = [record.event for record in log.read(resume)] if resume and scripted else []
    breaker = crew.circuit_breaker(entries)
    agents = crew.build(entries, environ, crew.Places(config.cache, config.local_idle, breaker), before)
    agents = {name: around(agent) for name, agent in agents.items()} if around else agents
    servers = Servers(loaded.servers, loaded.root) if loaded.servers != Declared() else None
    mask = Mask({**secrets(environ, entries), **loaded.servers.secrets}, loaded.root)
    workspace.mask = Remembered([resume] if resume else [], mask.text).text
    journal = _journal(loaded, mask, members, checkpoint, resume)
    denials = Denials(config.deny_agents, loaded.root) if config.deny_agents else None
    if denials is not None:
        agents = {name: build_guard(agent, denials, lambda: journal.events) for name, agent in agents.items()}
    recall(workspace, journal.records)
    told = standing(loaded.root if loaded.trusted else None, loaded.below, loaded.vouched).text
    bench = build_bench(config, workspace, ask, mask.text(told), journal.path)
    workspace.jobs.attach(journal.events, journal.append)
    return Session(
        log=journal,
        root=loaded.root,
        config=config,
        crew=Crew(
            by_name,
            agents,
            coordinator,
            breaker,
            WaitLimit(config.time.wait),
            config.never(by_name),
            {member.name: harness(member) for member in members},
        ),
        bench=replace(
            bench,
            rules=bench.rules.model_copy(update={"readable": own_skills}),
            denials=denials,
            toolbox=build_toolbox(servers, loaded.library.skills, (*bench.rules.allow, *bench.rules.ask)),
            hooks=build_hooks(loaded, journal),
            nearer=nearer(loaded.root, loaded.below, loaded.vouched) if denials is None else None,
        ),
        warm=warm if servers is None else servers.behind(warm),
        decide=lambda changed: build_coordinator(changed, members)[0],
        servers=servers,
        library=loaded.library,
    )


def harness(member: Member) -> Harness:
    """How an agent takes a turn."""
    if member.protocol == "native":
        return TOOL_CALLING
    from fugu_cli.repair.harness import Repair

    return Repair()


def _journal(
    loaded: Loaded, mask: Mask, members: tuple[Member, ...], checkpoint: str | None, resume: Path | None
) -> Log:
    """The session's log, its first line said anew where the configuration is another than the last time."""
    root, rule = loaded.root, loaded.config.decided_by
    journal = Log.open(resume) if resume else Log.create(sessions.new_path(loaded.config.data, root))
    journal.mask = mask
    opened = Opened(
        version=__version__, repo=str(root), commit=_commit(root), pool=members, coordinator=rule, checkpoint=checkpoint
    )
    if views.opened(journal.events) != opened:
        journal.append(opened)
    return journal


async def open_session(
    loaded: Loaded,
    environ: Mapping[str, str],
    ask: Ask,
    resume: Path | None = None,
    around: Callable[[Agent], Agent] | None = None,
) -> Session:
    """The same, for whoever has nothing else to do meanwhile."""
    return build_session(loaded, environ, ask, resume, around)


def build_hooks(loaded: Loaded, journal: Log) -> Hooks | None:
    """The user's hooks; None where there are none and nothing is wrong with any."""
    if loaded.hooks == DeclaredHooks():
        return None
    name = journal.path.stem if journal.path else "memory"
    common = {"session_id": name, "transcript_path": str(journal.path or "")}
    mute = bool(loaded.config.deny_agents)
    hooks = Hooks(loaded.hooks, common, lambda why: journal.tell(Waiting(why=why)), mute=mute)
    hooks.mode = loaded.config.permission_mode
    return hooks


def build_guard(agent: Agent, denials: Denials, events: Callable[[], Sequence[Event]]) -> Agent:
    """The agent, what files are kept from it; itself where none are."""
    from fugu_cli.agents.guarded import Guarded

    if not denials.of(agent.name):
        return agent
    return Guarded(agent, lambda: withheld.hidden(events(), agent.name, denials))


def secrets(environ: Mapping[str, str], entries: Sequence[AgentEntry]) -> dict[str, str]:
    """The environment, the variables that hold this pool's keys named so that they count whatever they are called."""
    keys = {f"{name}_KEY": environ.get(name, "").strip() for name in (e.api_key_env for e in entries) if name}
    return {**environ, **keys}


def build_workspace(config: Config, root: Path, readable: Sequence[Path] = (), logs: Sequence[Path] = ()) -> Workspace:
    """The working tree, its snapshots' store among the user's data, and the test command if one is configured.

    `readable`: folders outside that agents and their commands may read all the same. `logs`: of the sessions that are
    looked at; what they masked is masked in diffs as well.
    """
    sessions.hide_from_git(config.data, root)
    store = config.data / "snapshots" / sessions.folder(config.data, root).name
    box = build_box(config, root, store, readable)
    workspace = Workspace(root, store, test_command=config.test_command, test_timeout=config.test_timeout, box=box)
    workspace.mask = Remembered(logs, Mask(secrets(os.environ, config.agents), root).text).text
    return workspace


def build_box(config: Config, root: Path, store: Path, more: Sequence[Path] = ()) -> Box:
    """The sandbox of a folder's commands. What holds is found out when the first one runs."""
    wanted = config.sandbox
    writable, readable = ([root / path.expanduser() for path in paths] for paths in (wanted.writable, wanted.readable))
    rules = BoxRules(wanted.mode, wanted.network, tuple(writable), (*readable, *more), wanted.environment)
    return Box(root, store, rules, own=(config.data,))


def _commit(root: Path) -> str | None:
    """The commit that is checked out in `root`, whatever GIT_DIR says; None without git, without a repository or before
    its first commit."""
    git = program(root)
    if git is None:
        return None
    done = subprocess.run(
        [git, "rev-parse", "HEAD"],
        cwd=root,
        env={name: value for name, value in os.environ.items() if name not in LOCAL},
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    return done.stdout.strip() or None if done.returncode == 0 else None


def build_toolbox(servers: Servers | None = None, skills: Sequence[Skill] = (), rules: Sequence[str] = ()) -> Toolbox:
    """Every tool, the most used first, those of MCP `servers` last; `web_fetch` where one of the `rules` names it."""
    from fugu_cli.loop.lookup_tests import TESTS_BEFORE
    from fugu_cli.tools.acceptance_check import ACCEPTANCE_CHECK, RUN_CHECK
    from fugu_cli.tools.apply_patch import APPLY_PATCH
    from fugu_cli.tools.bash import BASH
    from fugu_cli.tools.diff import DIFF
    from fugu_cli.tools.edit import EDIT
    from fugu_cli.tools.files import READ, WRITE
    from fugu_cli.tools.job_tools import JOB_OUTPUT, JOB_STOP
    from fugu_cli.tools.run_tests import RUN_TESTS
    from fugu_cli.tools.search import GLOB, GREP, LIST
    from fugu_cli.tools.skill import describing, skill_tool
    from fugu_cli.tools.todo import TODO_LIST
    from fugu_cli.tools.web_fetch import web_fetch

    tools: list[AnyTool] = [READ, LIST, GLOB, GREP, EDIT, WRITE, APPLY_PATCH, BASH, RUN_TESTS, JOB_OUTPUT, JOB_STOP]
    tools += [TODO_LIST, DIFF, ACCEPTANCE_CHECK, RUN_CHECK, TESTS_BEFORE, *([skill_tool(skills)] if skills else [])]
    return Toolbox((*tools, *([web_fetch(rules)] if web.offered(rules) else [])), describing(skills), servers)


def build_budgets(config: Config, root: Path, own: Path | None) -> Budgets:
    """The budgets of a configuration. `own`: the session's log, whose spending is known from the log itself."""
    money = config.money
    elsewhere = Ledger(config.data, root, own) if money.day is not None or money.project is not None else None
    return Budgets(money.request, money.session, money.day, money.project, elsewhere)


def build_bench(
    config: Config, workspace: Workspace, ask: Ask, instructions: str = "", own: Path | None = None
) -> Bench:
    """The tools, the rules and the limits of a configuration. `own`: the session's log."""
    rules = Rules(
        mode=config.permission_mode,
        allow=(*config.allow, *permissions.load(config.data, workspace.root)),
        ask=config.ask,
        deny=config.deny,
        test_command=workspace.test_command,
    )
    workspace.unread = covering.unread(rules.deny)
    limits = Limits(budget=build_budgets(config, workspace.root, own), replies=config.steps_per_turn)
    tests = TestRules(when=config.tests.when, patience=config.tests.patience)
    return Bench(
        build_toolbox(), workspace, rules, ask, limits, instructions, remembers=config.tier == "ultra", tests=tests
    )


def build_coordinator(
    config: Config, members: tuple[Member, ...]
) -> tuple[Coordinator, str | None, Callable[[], None]]:
    """What decides in a configuration's tier: the coordinator it names, in `ultra` behind the Conductor."""
    planner = config.conductor
    idle = (planner.agent,) if planner.agent and (not planner.works or planner.agent == PLANNER) else ()
    found = _turn_by_turn(config.model_copy(update={"opt_out": (*config.opt_out, *idle)}), members)
    return found if config.tier == "fugu" else (build_conductor(config, members, found[0]), *found[1:])


def build_conductor(config: Config, members: tuple[Member, ...], turn_by_turn: Coordinator) -> Coordinator:
    """The Conductor, before the coordinator that takes over where its workflow ends."""
    from fugu_cli.conductor.conductor import Bounds, Conductor

    wanted = config.conductor
    works = wanted.works and wanted.agent != PLANNER
    bounds = Bounds(wanted.agent, wanted.max_steps, wanted.rounds, wanted.depth, wanted.agents, works)
    if config.coordinator.startswith("single:"):
        members = tuple(member for member in members if f"single:{member.name}" == config.coordinator)
        bounds = replace(bounds, agent="", works=True)
    return Conductor(members, bounds, config.deciding, turn_by_turn)


def _turn_by_turn(config: Config, members: tuple[Member, ...]) -> tuple[Coordinator, str | None, Callable[[], None]]:
    """The coordinator a configuration names, its checkpoint's hash, and what starts loading it.

    A learned one that cannot decide here (no torch, no backbone, a checkpoint that does not fit) leaves the decision to
    the cascade, and every decision says so.
    """
    from fugu_cli.coordinators import baselines, fixed

    settings = config.deciding
    if config.coordinator.startswith("single:"):
        return fixed.Single(config.coordinator.removeprefix("single:"), members, settings), None, _nothing
    if config.coordinator == "random":
        return fixed.Random(members, settings), None, _nothing
    if baselines.is_one(config.coordinator):
        return baselines.build(config.coordinator, members, settings), None, _nothing
    cascade = fixed.Cascade(members, settings)
    if config.coordinator == "cascade":
        return cascade, None, _nothing
    from fugu_cli.coordinators import trinity

    return trinity.build(trinity.Places(config.checkpoint, config.backbone, config.cache), members, settings, cascade)


def _nothing() -> None:
    """A rule needs no loading."""
