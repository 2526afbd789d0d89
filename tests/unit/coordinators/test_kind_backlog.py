"""Kinds of requests that were decided without: read later, so that their outcomes count by kind."""

import asyncio
from pathlib import Path

import numpy as np
import pytest

from fugu_cli.coordinators import CoordinatorSettings, backbone
from fugu_cli.coordinators.composed import ComposedHead
from fugu_cli.coordinators.kind_backlog import MOST_UNREAD, KindBacklog
from fugu_cli.coordinators.kinds import BackboneKindReader, KindHead, KindHeadMeta
from fugu_cli.coordinators.outcome_store import OutcomeStore
from fugu_cli.coordinators.skills import KINDS
from fugu_cli.session import log
from fugu_cli.session.events import KindRead, Opened, OutcomesKnown
from fugu_cli.session.log import Log
from tests.facts import asked
from tests.unit.coordinators import tiny
from tests.unit.coordinators.test_outcome_store import AGENT, session_in


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> tuple[KindHead, backbone.Backbone]:
    folder = tiny.folder(tmp_path_factory.mktemp("backlog") / "backbone")
    loaded = backbone.load_backbone(folder, device="cpu")
    weights = np.random.default_rng(0).normal(size=(len(KINDS), loaded.shape.width))
    return KindHead(KindHeadMeta(backbone=loaded.identity), weights.astype(np.float32)), loaded


def backlog(data: Path, root: Path, parts: tuple[KindHead, backbone.Backbone]) -> KindBacklog:
    reader = BackboneKindReader(lambda _: parts)
    head = ComposedHead((AGENT,), CoordinatorSettings(), reader)
    return KindBacklog(head, reader, OutcomeStore(data, root, lambda _: True))


def open_log(data: Path, root: Path) -> Log:
    journal = Log.create(data / "newest.jsonl")
    journal.append(Opened(version="1", repo=str(root), pool=(AGENT,)))
    journal.append(asked())
    return journal


def kinds_counted(data: Path, root: Path) -> set[str]:
    known = OutcomeStore(data, root, lambda _: True).known((AGENT,), ())
    return {count.kind for count in known.counts}


def test_many_requests_without_a_kind_are_read_and_their_outcomes_count_by_kind(
    tmp_path: Path, parts: tuple[KindHead, backbone.Backbone]
) -> None:
    root = tmp_path / "repo"
    for _ in range(MOST_UNREAD):
        session_in(tmp_path, root)
    assert kinds_counted(tmp_path, root) == {""}
    journal = open_log(tmp_path, root)
    kinds = backlog(tmp_path, root, parts)

    async def read_at_two_ends() -> None:
        await asyncio.gather(kinds.read(journal), kinds.read(journal))

    asyncio.run(read_at_two_ends())
    readings = [event for event in journal.events if isinstance(event, KindRead)]
    assert [reading.session for reading in readings].count("") == 1
    assert len(readings) == MOST_UNREAD + 1
    assert len({(reading.session, reading.request) for reading in readings}) == len(readings)
    records = tuple(journal.records)
    journal.close()
    known = OutcomeStore(tmp_path, root, lambda _: True).known((AGENT,), records, journal.path)
    assert {count.kind for count in known.counts} == set(KINDS)
    assert sum(count.trials for count in known.counts) == pytest.approx(MOST_UNREAD, abs=0.1)


def test_a_few_requests_wait_until_the_model_is_loaded_for_something_else(
    tmp_path: Path, parts: tuple[KindHead, backbone.Backbone]
) -> None:
    root = tmp_path / "repo"
    session_in(tmp_path, root)
    journal = open_log(tmp_path, root)
    waiting = backlog(tmp_path, root, parts)
    asyncio.run(waiting.read(journal))
    assert not any(isinstance(event, KindRead) for event in journal.events)
    waiting.reader.warm().result()
    asyncio.run(waiting.read(journal))
    assert sum(isinstance(event, KindRead) for event in journal.events) == 2
    asyncio.run(waiting.read(journal))
    assert sum(isinstance(event, KindRead) for event in journal.events) == 2
    journal.close()
    assert len(log.read(journal.path)) == 4


def test_one_agent_needs_no_kind(tmp_path: Path, parts: tuple[KindHead, backbone.Backbone]) -> None:
    alone = backlog(tmp_path, tmp_path / "repo", parts)
    assert not alone.head.kind_matters(OutcomesKnown())
    journal = open_log(tmp_path, tmp_path / "repo")
    decision = asyncio.run(alone.head.decide(journal.state))
    journal.close()
    assert not alone.reader.is_loaded
    assert decision.type == "assigned" and decision.reason == "only choice"
