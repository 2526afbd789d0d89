"""Config -> House: what `fugu serve` answers with. The endpoint's half of wiring.

Builds and hands over; decides nothing. Agents are shared by all requests; the loop without a client's tools works on no
tools at all, in an empty folder of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from fugu_cli import __version__, crew
from fugu_cli.config import Config
from fugu_cli.config.files import Loaded
from fugu_cli.config.pool import pool
from fugu_cli.coordinators import Coordinator
from fugu_cli.denials import Denials
from fugu_cli.events import Opened
from fugu_cli.ledger import Ledger
from fugu_cli.loop.environment import Bench, Permission, WaitLimit
from fugu_cli.masking import Mask
from fugu_cli.messages import Call
from fugu_cli.orchestrator import Crew
from fugu_cli.policy import Judgement, Rules
from fugu_cli.scratch import folder
from fugu_cli.serve.house import House
from fugu_cli.serve.places import Bounds, Place
from fugu_cli.tools.toolbox import Toolbox
from fugu_cli.tools.workspace import Workspace
from fugu_cli.wiring import build_budgets, build_conductor, build_coordinator, build_guard, harness, secrets


async def serve(loaded: Loaded, place: Place, bounds: Bounds, said: Callable[[str], None]) -> int:
    """Answer until it is told to stop. `said` gets the lines for people. Returns the exit code."""
    from fugu_cli.serve import running
    from fugu_cli.serve.service import Service
    from fugu_cli.serve.traces import Traces

    with folder("serve") as scratch:
        house = build(loaded, os.environ, scratch)
        mask = Mask(secrets(os.environ, loaded.config.agents))
        service = Service(house, Traces(loaded.config.data, mask), bounds)
        said(f"models: fugu, fugu-ultra, {', '.join(house.offered)}; decided by {house.opened.coordinator}")
        return await running.serve(service, place, said)


def build(loaded: Loaded, environ: Mapping[str, str], scratch: Path) -> House:
    """The house of a configuration. `scratch` is an empty folder. Raises ConfigError for a pool that cannot be used."""
    # An answer of the loop is always judged: the client asked for the pool's answer, not for the first one.
    config = loaded.config.model_copy(update={"verify_answers": True, "tier": "fugu"})
    entries = pool(config, environ)
    free = [entry.model_copy(update={"max_tokens": None}) for entry in entries]
    members = tuple(entry.member() for entry in free)
    breaker = crew.circuit_breaker(free)
    agents = crew.build(free, environ, crew.Places(config.cache, config.local_idle, breaker))
    if config.deny_agents:
        denials = Denials(config.deny_agents, loaded.root)
        agents = {name: build_guard(agent, denials, tuple) for name, agent in agents.items()}
    coordinator, checkpoint, warm = build_coordinator(config, members)
    warm()
    by_name = {member.name: member for member in members}
    limit = WaitLimit(config.time.wait)
    budgets = build_budgets(config, loaded.root, None)

    def ultra() -> Coordinator:
        return build_conductor(config, members, coordinator)

    return House(
        opened=Opened(
            version=__version__,
            repo=str(loaded.root),
            pool=members,
            coordinator=config.coordinator,
            checkpoint=checkpoint,
            served=True,
        ),
        crew=Crew(
            by_name,
            agents,
            coordinator,
            breaker,
            limit,
            config.never(by_name),
            {member.name: harness(member) for member in members},
        ),
        bench=_bench(scratch),
        opted_out=frozenset(config.opt_out),
        longest={entry.name: entry.max_tokens for entry in entries if entry.max_tokens is not None},
        single=_single(config),
        budgets=budgets,
        ultra=ultra,
        tab=budgets.elsewhere.tab if isinstance(budgets.elsewhere, Ledger) else None,
    )


def _single(config: Config) -> str | None:
    rule, _, name = config.coordinator.partition(":")
    return name if rule == "single" else None


def _bench(scratch: Path) -> Bench:
    workspace = Workspace(scratch, scratch)
    return Bench(Toolbox(()), workspace, Rules(mode="plan"), _nobody)


async def _nobody(call: Call, judgement: Judgement) -> Permission:
    """There is nothing to permit: no tool is offered."""
    return "headless"
