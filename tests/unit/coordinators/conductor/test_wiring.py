"""The tier as a user gets it: from the configuration to a Conductor over the pool."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from fugu_cli import wiring
from fugu_cli.app.open_session import Session
from fugu_cli.app.request_queue import QueuedRequest, RequestQueue
from fugu_cli.config import ConductorEntry, Config
from fugu_cli.config.agent_pool import usable_pool
from fugu_cli.config.loader import LoadedConfig
from fugu_cli.config.schema import AgentEntry
from fugu_cli.coordinators.conductor.conductor import Conductor, offered_agents
from fugu_cli.coordinators.rules import Cascade
from fugu_cli.engine.environment import Permission
from fugu_cli.errors import ConfigError, UsageError
from fugu_cli.messages import Call
from fugu_cli.safety import policy
from fugu_cli.session.events import Planned
from tests.reacting import repository
from tests.unit.ui.tui.test_working import Heard

SCRIPT = """
[[step]]
text = "model_id = [0]\\nsubtasks = ['Say it.']\\naccess_list = [[]]"
usage = { input = 900, output = 60 }
[[step]]
text = "It holds a word."
[[step]]
text = "model_id = []\\nsubtasks = []\\naccess_list = []"
"""


async def no(_call: Call, _judgement: policy.Judgement) -> Permission:
    return "no"


def entry(tmp: Path, name: str = "one") -> AgentEntry:
    path = tmp / "script.toml"
    path.write_text(SCRIPT)
    return AgentEntry(name=name, provider="scripted", model=str(path))


async def opened(tmp: Path, tier: str) -> Session:
    config = Config(
        tier=tier,  # type: ignore[arg-type]
        coordinator="cascade",
        agents=(entry(tmp),),
        data_dir=tmp / "data",
        conductor=ConductorEntry(depth=0),
    )
    loaded = LoadedConfig(
        config=config, files=(), notes=(), root=repository(tmp / "repo"), trusted=False
    )
    return wiring.build_session(loaded, {}, no)


def test_a_request_of_the_ultra_tier_is_planned_and_kept(tmp_path: Path) -> None:
    async def whole() -> None:
        session = await opened(tmp_path, "ultra")
        try:
            await session.ask("what is it?")
            end = await session.run()
            assert (end.reason, end.message) == (
                "accepted",
                "a workflow of 1 step; kept by the planner one",
            )
            assert sum(isinstance(event, Planned) for event in session.log.events) == 2
        finally:
            await session.close()

    asyncio.run(whole())


def test_the_tier_is_changed_while_a_session_is_open(tmp_path: Path) -> None:
    async def whole() -> None:
        session = await opened(tmp_path, "fugu")
        try:
            assert isinstance(session.team.coordinator, Cascade)
            session.set_tier("ultra")
            assert isinstance(session.team.coordinator, Conductor)
            assert session.environment.remembers
            session.pin("one")
            assert isinstance(session.team.coordinator, Conductor), (
                "the one agent plans and does every step"
            )
            session.pin(None)
            session.set_tier("fugu")
            assert isinstance(session.team.coordinator, Cascade)
            with pytest.raises(UsageError, match="no tier 'max'"):
                session.set_tier("max")
        finally:
            await session.close()

    asyncio.run(whole())


def test_a_request_may_have_a_tier_of_its_own(tmp_path: Path) -> None:
    async def whole() -> None:
        work = RequestQueue(Heard())
        assert await work.open(lambda ask: opened(tmp_path, "fugu"))
        assert work.session is not None
        await work.submit(QueuedRequest("what is it?", tier="ultra"))
        events = work.session.log.events
        assert sum(isinstance(event, Planned) for event in events) == 2
        assert (work.session.tier, type(work.session.team.coordinator)) == ("fugu", Cascade)
        await work.close()

    asyncio.run(whole())


def test_an_embedded_planner_stands_beside_the_pool_and_only_plans(tmp_path: Path) -> None:
    config = Config(
        agents=(entry(tmp_path),), conductor=ConductorEntry(agent="embedded"), coordinator="cascade"
    )
    found = usable_pool(config, {})
    assert [(one.name, one.provider) for one in found] == [
        ("one", "scripted"),
        ("embedded", "local"),
    ]
    members = tuple(one.member() for one in found)
    conductor = wiring.build_conductor(config, members, Cascade(members, config.deciding))
    assert isinstance(conductor, Conductor)
    assert offered_agents(conductor._bounds, members, {}) == ("one",)


def test_a_planner_that_is_not_in_the_pool_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"conductor\.agent: no agent or model named onee"
    ) as caught:
        usable_pool(Config(agents=(entry(tmp_path),), conductor=ConductorEntry(agent="onee")), {})
    assert "did you mean 'one'" in caught.value.hint


def test_a_request_that_was_cut_goes_on_in_the_tier_it_was_asked_in(tmp_path: Path) -> None:
    async def whole() -> None:
        work = RequestQueue(Heard())
        assert await work.open(lambda ask: opened(tmp_path, "fugu"))
        assert work.session is not None
        work.session.set_tier("ultra")
        await work.session.ask("what is it?")
        work.session.set_tier("fugu")
        await work.go_on()
        events = work.session.log.events
        assert sum(isinstance(event, Planned) for event in events) == 2
        assert (work.session.tier, type(work.session.team.coordinator)) == ("fugu", Cascade)
        await work.close()

    asyncio.run(whole())
