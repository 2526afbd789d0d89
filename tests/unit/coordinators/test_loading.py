"""Reading for a head: the backbone is loaded once, in the background; older ones are refused."""

import asyncio
import json
import threading
from pathlib import Path

import pytest
from safetensors.numpy import save_file

from fugu_cli.coordinators import CoordinatorSettings, Decision, backbone, trinity
from fugu_cli.coordinators.backbone import Backbone
from fugu_cli.coordinators.checkpoint import Checkpoint
from fugu_cli.coordinators.composed import ComposedHead
from fugu_cli.coordinators.trinity import HeadReader, Trinity, TrinityFiles
from fugu_cli.session.events import Assigned
from fugu_cli.session.state import SessionState
from tests.facts import POOL
from tests.unit.coordinators import tiny
from tests.unit.coordinators.test_stopping import BROKEN

SETTINGS = CoordinatorSettings()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.folder(tmp_path_factory.mktemp("loading") / "backbone")


@pytest.mark.parametrize(
    ("older", "reason"),
    [({"format": "digest"}, "reads a digest"), ({"kind": "slots"}, "rows")],
)
def test_an_older_checkpoint_is_refused_and_the_composed_head_decides(
    folder: Path, tmp_path: Path, older: dict[str, str], reason: str
) -> None:
    path = tmp_path / "a.safetensors"
    made = tiny.checkpoint(tiny.meta(folder))
    described = made.meta.model_dump(mode="json") | older
    save_file({"vector": made.vector}, path, metadata={"fugu": json.dumps(described)})
    files = TrinityFiles(path, str(folder), tmp_path / "cache")
    composed = ComposedHead(POOL, SETTINGS)
    coordinator, _, _ = trinity.build_trinity(files, POOL, SETTINGS, composed)
    decision = asyncio.run(coordinator.decide(SessionState(BROKEN)))
    alone = asyncio.run(composed.decide(SessionState(BROKEN)))
    assert isinstance(decision, Assigned)
    assert isinstance(alone, Assigned)
    assert (decision.agent, decision.role) == (alone.agent, alone.role)
    assert reason in decision.fallback


def parts_of(folder: Path) -> tuple[Checkpoint, Backbone]:
    return tiny.checkpoint(tiny.meta(folder)), backbone.load_backbone(folder, device="cpu")


def test_loading_begins_in_the_background_and_happens_once(folder: Path) -> None:
    gate, loaded = threading.Event(), []

    def load() -> tuple[Checkpoint, Backbone]:
        gate.wait(5)
        loaded.append(1)
        return parts_of(folder)

    reader = HeadReader(tiny.meta(folder), load)
    reader.warm()
    reader.warm()
    assert loaded == []
    gate.set()
    for _ in range(2):
        assert isinstance(
            asyncio.run(Trinity(reader, POOL, SETTINGS).decide(SessionState(BROKEN))), Assigned
        )
    assert loaded == [1]


def test_a_decision_that_is_cancelled_leaves_the_loading_alone(folder: Path) -> None:
    gate = threading.Event()

    def load() -> tuple[Checkpoint, Backbone]:
        gate.wait(5)
        return parts_of(folder)

    coordinator = Trinity(HeadReader(tiny.meta(folder), load), POOL, SETTINGS)

    async def story() -> Decision:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(coordinator.decide(SessionState(BROKEN)), 0.05)
        gate.set()
        return await coordinator.decide(SessionState(BROKEN))

    assert isinstance(asyncio.run(story()), Assigned)
