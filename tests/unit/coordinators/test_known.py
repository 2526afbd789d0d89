"""Reading for a head: what was read before needs no backbone, and the backbone is loaded once, in
the background.
"""

import asyncio
import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from fugu_cli.coordinators import CoordinatorSettings, Decision, backbone, checkpoint, trinity
from fugu_cli.coordinators.backbone import Backbone
from fugu_cli.coordinators.checkpoint import Checkpoint
from fugu_cli.coordinators.rules import Cascade
from fugu_cli.coordinators.trinity import HeadReader, KnownLogits, Trinity, TrinityFiles
from fugu_cli.session.events import Assigned, Event, Scores
from fugu_cli.session.log import Log
from tests.facts import POOL, asked, opened
from tests.unit.coordinators import tiny
from tests.unit.coordinators.test_stopping import BROKEN, worked

SETTINGS = CoordinatorSettings()
RULE = Cascade(POOL, SETTINGS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.folder(tmp_path_factory.mktemp("known") / "backbone")


@pytest.fixture
def files(folder: Path, tmp_path: Path) -> TrinityFiles:
    """A checkpoint that reads a digest, and a cache of its own."""
    path = tmp_path / "a.safetensors"
    checkpoint.save(tiny.checkpoint(tiny.meta(folder, format="digest", budget=256)), path)
    return TrinityFiles(path, str(folder), tmp_path / "cache")


def decide(files: TrinityFiles, events: list[Event]) -> Assigned:
    found = asyncio.run(trinity.build_trinity(files, POOL, SETTINGS, RULE)[0].decide(events))
    assert isinstance(found, Assigned)
    return found


def scores(found: Assigned) -> Scores:
    assert found.scores is not None, found.reason
    return found.scores


def test_a_digest_that_was_read_before_is_decided_alike_without_torch(files: TrinityFiles) -> None:
    first = decide(files, BROKEN)
    code = (
        "import asyncio, sys\nfrom pathlib import Path\n"
        "from fugu_cli.coordinators import CoordinatorSettings, rules, trinity\n"
        "from fugu_cli.session.log import examine\n"
        "checkpoint, backbone, cache, log = sys.argv[1:]\n"
        "events = [one.event for one in examine(Path(log)).records]\n"
        "files = trinity.TrinityFiles(Path(checkpoint), backbone, Path(cache))\n"
        "pool, settings = events[0].pool, CoordinatorSettings()\n"
        "built, _, warm = trinity.build_trinity(files, pool, settings, rules.Cascade(pool, "
        "settings))\n"
        "warm()\nprint(asyncio.run(built.decide(events)).model_dump_json())\n"
        "print(sorted({'numpy', 'torch', 'transformers', 'tokenizers', 'safetensors'} & "
        "set(sys.modules)))"
    )
    log = files.cache / "log.jsonl"
    written = Log.create(log)
    for event in BROKEN:
        written.append(event)
    written.close()
    words = [
        sys.executable,
        "-c",
        code,
        str(files.checkpoint),
        str(files.backbone),
        str(files.cache),
        str(log),
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said, imported = done.stdout.splitlines()
    known = Assigned.model_validate_json(said)
    assert imported == "[]"
    assert scores(known).cached_tokens == scores(known).tokens == scores(first).tokens
    same = scores(first).model_copy(update={"cached_tokens": scores(known).cached_tokens})
    assert known.model_copy(update={"milliseconds": first.milliseconds}) == first.model_copy(
        update={"scores": same}
    )


def test_another_wording_is_the_same_decision(files: TrinityFiles) -> None:
    decide(files, [opened(), asked("Fix the typo", judged=False)])
    found = scores(decide(files, [opened(), asked("Bitte bau einen OAuth2-Server.", judged=False)]))
    assert found.cached_tokens == found.tokens


def test_what_was_not_read_before_is_read(files: TrinityFiles) -> None:
    decide(files, BROKEN)
    assert scores(decide(files, [*BROKEN, *worked(1, ok=False)])).cached_tokens == 0
    checkpoint.save(
        tiny.checkpoint(tiny.meta(Path(str(files.backbone)), format="digest"), seed=1),
        files.checkpoint,
    )  # type: ignore[arg-type]
    assert scores(decide(files, BROKEN)).cached_tokens == 0


@pytest.mark.parametrize(
    "damage", ["", "[]", "{", '{"KEY": [1, 2]}', '{"KEY": "x"}', '{"KEY": [9, "a", 1, 1, 1, 1, 1]}']
)
def test_a_damaged_file_is_as_good_as_none(files: TrinityFiles, damage: str) -> None:
    first = decide(files, BROKEN)
    path = files.cache / "decisions.json"
    (key,) = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(damage.replace("KEY", key), encoding="utf-8")
    again = decide(files, BROKEN)
    assert scores(again) == scores(first)
    assert list(json.loads(path.read_text(encoding="utf-8"))) == [key]


def test_a_file_that_cannot_be_written_is_no_fault(files: TrinityFiles) -> None:
    (files.cache / "decisions.json").mkdir(parents=True)
    assert decide(files, BROKEN).by == "trinity"


def test_the_oldest_are_forgotten(tmp_path: Path) -> None:
    known = KnownLogits(tmp_path, "c")
    for number in range(trinity.KNOWN_AT_MOST + 5):
        known.keep(trinity.ReadTranscript(str(number), (1.0, 2.0), 7, 0, trinity.DecisionTimings()))
    assert [known.find(str(number), 2) for number in (4, 5)] == [None, (7, (1.0, 2.0))]
    assert KnownLogits(tmp_path, "d").find("5", 2) is None


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
        assert isinstance(asyncio.run(Trinity(reader, POOL, SETTINGS).decide(BROKEN)), Assigned)
    assert loaded == [1]


def test_a_decision_that_is_cancelled_leaves_the_loading_alone(folder: Path) -> None:
    gate = threading.Event()

    def load() -> tuple[Checkpoint, Backbone]:
        gate.wait(5)
        return parts_of(folder)

    coordinator = Trinity(HeadReader(tiny.meta(folder), load), POOL, SETTINGS)

    async def story() -> Decision:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(coordinator.decide(BROKEN), 0.05)
        gate.set()
        return await coordinator.decide(BROKEN)

    assert isinstance(asyncio.run(story()), Assigned)
