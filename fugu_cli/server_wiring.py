"""Builds what `fugu serve` answers with, from the configuration: the endpoint's half of wiring.

It decides nothing. Agents are shared by all requests. The loop without client-side tools has no
tools at all, and an empty folder of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fugu_cli import __version__, wiring
from fugu_cli.config import Config
from fugu_cli.config.agent_pool import has_assumed_price, usable_pool
from fugu_cli.config.loader import LoadedConfig
from fugu_cli.coordinators import Coordinator
from fugu_cli.engine.environment import Environment, Permission, Team, WaitLimit
from fugu_cli.extension_wiring import build_collector, watch
from fugu_cli.messages import Call
from fugu_cli.safety.path_rules import Denials
from fugu_cli.safety.policy import Judgement, Rules
from fugu_cli.safety.redaction import Redactor
from fugu_cli.server import EndpointLimits, ListenAddress
from fugu_cli.server.single_agent import EndpointSettings
from fugu_cli.session.events import Asked, Opened
from fugu_cli.session.log import Log
from fugu_cli.system.temp_dirs import temp_dir
from fugu_cli.tools.toolbox import Toolbox
from fugu_cli.tools.workspace import Workspace
from fugu_cli.wiring import (
    build_budgets,
    build_conductor,
    build_coordinator,
    build_guard,
    build_ledger,
    named_secrets,
)

if TYPE_CHECKING:
    from fugu_cli.extensions.telemetry import CollectorLink
    from fugu_cli.server.traces import Traces
    from fugu_cli.server.web.app import WebSources


async def run_server(
    loaded: LoadedConfig,
    address: ListenAddress,
    limits: EndpointLimits,
    print_line: Callable[[str], None],
) -> int:
    """Answer requests until a signal stops the endpoint, and return the exit code. `print_line`
    gets messages for people.
    """
    from fugu_cli.server import http_server
    from fugu_cli.server.service import EndpointService
    from fugu_cli.server.traces import Traces

    with temp_dir("serve") as scratch:
        settings = build_server(loaded, os.environ, scratch)
        collector = build_collector(os.environ, print_line)
        if isinstance(collector, str):
            print_line(collector)
        elif collector is not None:
            settings = replace(settings, watch=partial(watch_request, collector))
        secrets = named_secrets(os.environ, loaded.config.agents)
        # Each request has its own redactor, since a redactor holds back the end of a live text.
        service = EndpointService(
            settings, Traces(loaded.config.data, lambda: Redactor(secrets)), limits
        )
        print_line(
            f"models: fugu, fugu-ultra, {', '.join(settings.offered)}; decided by "
            f"{settings.opened.coordinator}"
        )
        web_sources = build_web_sources(loaded, service.traces) if address.web else None
        code = await http_server.serve(service, address, print_line, web_sources)
        if collector is not None and not isinstance(collector, str):
            await collector.finish()
        return code


def build_web_sources(loaded: LoadedConfig, traces: Traces) -> WebSources:
    """Build what the web page shows."""
    from fugu_cli.server.web.app import WebSources
    from fugu_cli.server.web.pages import AgentTable
    from fugu_cli.ui import skill_tables

    members = tuple(entry.member() for entry in usable_pool(loaded.config, os.environ))

    def skills() -> list[AgentTable]:
        outcomes = wiring.build_outcomes(loaded).known(members, ())
        sources = skill_tables.skill_rows(members, outcomes)
        rates = skill_tables.kind_rows(members, outcomes)
        return [
            AgentTable("Skills and costs", sources, skill_tables.OUTCOMES_NOTE),
            AgentTable("Success rates by kind of request", rates),
        ]

    return WebSources(loaded.config.data, traces, skills)


def watch_request(collector: CollectorLink, log: Log, id: str, parent_span: str) -> None:
    """Report a served request to the collector, from the newest request of its log on."""
    request = next((event for event in reversed(log.events) if isinstance(event, Asked)), None)
    watch(log, collector, id, parent_span).begin_request(request)


def build_server(
    loaded: LoadedConfig, environ: Mapping[str, str], scratch: Path
) -> EndpointSettings:
    """Build the endpoint's settings. `scratch` is an empty folder. Raises ConfigError for a pool
    that cannot be used.
    """
    # Answers of the loop are always verified: the client asked for the pool's answer, not for the
    # first reply.
    config = loaded.config.model_copy(update={"verify_answers": True, "tier": "fugu"})
    entries = usable_pool(config, environ)
    unlimited = [entry.model_copy(update={"max_tokens": None}) for entry in entries]
    members = tuple(
        entry.member(assumed_price=has_assumed_price(entry, config)) for entry in unlimited
    )
    breaker = wiring.build_circuit_breaker(unlimited, environ, data=config.data)
    agents = wiring.build_agents(
        unlimited, environ, wiring.AgentResources(config.cache, config.local_idle, breaker)
    )
    if config.deny_agents:
        denials = Denials(config.deny_agents, loaded.root)
        agents = {name: build_guard(agent, denials, tuple) for name, agent in agents.items()}
    coordinator, checkpoint, warm = build_coordinator(config, members)
    warm()
    by_name = {member.name: member for member in members}
    limit = WaitLimit(config.time.wait)
    ledger = build_ledger(config, loaded.root)
    budgets = build_budgets(config, ledger)

    known_outcomes = kinds = None
    if config.coordinator == "trinity":
        outcomes = wiring.build_outcomes(loaded)
        known_outcomes = partial(outcomes.known, members, ())
        scripted = any(entry.provider == "scripted" for entry in entries)
        if config.checkpoint is None and not scripted:
            kinds = wiring.build_kind_backlog(config, members, outcomes)
            kinds.prepare(Log.memory())

    def ultra() -> Coordinator:
        return build_conductor(config, members, coordinator)

    return EndpointSettings(
        opened=Opened(
            version=__version__,
            repo=str(loaded.root),
            pool=members,
            coordinator=config.coordinator,
            checkpoint=checkpoint,
            served=True,
        ),
        team=Team(
            by_name,
            agents,
            coordinator,
            breaker,
            limit,
            config.excluded_agents(by_name),
        ),
        environment=_environment(scratch),
        opted_out=frozenset(config.opt_out),
        max_reply_tokens={
            entry.name: entry.max_tokens for entry in entries if entry.max_tokens is not None
        },
        pinned_agent=_pinned_agent(config),
        budgets=budgets,
        ultra=ultra,
        known_outcomes=known_outcomes,
        kinds=kinds,
        open_account=ledger.tab,
    )


def _pinned_agent(config: Config) -> str | None:
    rule, _, name = config.coordinator.partition(":")
    return name if rule == "single" else None


def _environment(scratch: Path) -> Environment:
    workspace = Workspace(scratch, scratch)
    return Environment(Toolbox(()), workspace, Rules(mode="plan"), _no_permission)


async def _no_permission(call: Call, judgement: Judgement) -> Permission:
    return "headless"  # never asked: no tool is offered
