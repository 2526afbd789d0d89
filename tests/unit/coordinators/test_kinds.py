"""The kind head: reads requests with a backbone, is trained for one, and says why it cannot."""

import asyncio
import json
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fugu_cli.__main__ import called
from fugu_cli.coordinators import backbone, kinds
from fugu_cli.coordinators.backbone import Backbone
from fugu_cli.coordinators.kinds import (
    BackboneKindReader,
    KindFiles,
    KindHead,
    KindHeadMeta,
    build_kind_reader,
)
from fugu_cli.coordinators.skills import KINDS
from fugu_cli.errors import CoordinatorUnavailable, UsageError
from fugu_cli.training import kinds as training
from tests.unit.coordinators import tiny

WORDS = {
    kind: (letter * 12, f"{letter * 9} {letter * 3}", f"{letter * 5} {letter * 8}")
    for kind, letter in zip(KINDS, "abcdfghijk", strict=True)
}
"""Requests that a random backbone can tell apart: each kind is written with a letter of its own."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.folder(tmp_path_factory.mktemp("kinds") / "backbone")


@pytest.fixture(scope="module")
def loaded(folder: Path) -> Backbone:
    return backbone.load_backbone(folder, device="cpu")


def random_head(loaded: Backbone, identity: str | None = None) -> KindHead:
    weights = np.random.default_rng(0).normal(size=(len(KINDS), loaded.shape.width))
    meta = KindHeadMeta(backbone=identity or loaded.identity)
    return KindHead(meta, weights.astype(np.float32))


def files(tmp_path: Path, folder: Path) -> KindFiles:
    return KindFiles(str(folder), tmp_path / "cache", tmp_path / "heads")


def install(head: KindHead, tmp_path: Path, loaded: Backbone) -> None:
    (tmp_path / "heads").mkdir()
    kinds.save(head, kinds.head_file(tmp_path / "heads", loaded.identity))


def test_reading_gives_a_probability_for_every_kind(
    tmp_path: Path, folder: Path, loaded: Backbone
) -> None:
    install(random_head(loaded), tmp_path, loaded)
    reading = asyncio.run(build_kind_reader(files(tmp_path, folder)).read("fix the parser"))
    assert len(reading.probabilities) == len(KINDS)
    assert sum(reading.probabilities) == pytest.approx(1.0)
    assert reading.tokens > 0
    assert reading.milliseconds.forward > 0


def test_a_reading_does_not_depend_on_the_requests_before(loaded: Backbone) -> None:
    head = random_head(loaded)

    async def last_of(*requests: str) -> tuple[float, ...]:
        reader = BackboneKindReader(lambda _: (head, loaded))
        loaded.forget()
        for request in requests:
            reading = await reader.read(request)
        return reading.probabilities

    alone = asyncio.run(last_of("write tests"))
    assert asyncio.run(last_of("write docs", "fix it", "write tests")) == pytest.approx(
        alone, abs=0.02
    )


def test_a_long_request_is_cut_and_still_read_to_the_question(loaded: Backbone) -> None:
    short, long = (kinds.read_request(loaded, "a b " * count) for count in (200, 2000))
    assert short.tokens == long.tokens
    assert long.hidden == pytest.approx(short.hidden, abs=0.02)


def test_a_head_for_another_backbone_is_refused(
    tmp_path: Path, folder: Path, loaded: Backbone
) -> None:
    install(random_head(loaded, identity="another"), tmp_path, loaded)
    with pytest.raises(CoordinatorUnavailable, match="no kind head for the backbone"):
        asyncio.run(build_kind_reader(files(tmp_path, folder)).read("fix it"))


def test_a_damaged_head_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "kinds.safetensors"
    path.write_bytes(b"no tensors")
    with pytest.raises(CoordinatorUnavailable, match="is not a kind head"):
        kinds.load(path)


def test_without_the_backbone_nothing_is_downloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    absent = KindFiles("somebody/some-backbone", tmp_path / "cache", tmp_path / "heads")
    with pytest.raises(CoordinatorUnavailable, match="is not on this machine"):
        asyncio.run(build_kind_reader(absent).read("fix it"))
    embedded = KindFiles(None, tmp_path / "cache", tmp_path / "heads")
    with pytest.raises(CoordinatorUnavailable, match="is not there"):
        asyncio.run(build_kind_reader(embedded).read("fix it"))


def test_without_memory_it_says_so(loaded: Backbone) -> None:
    reader = BackboneKindReader(lambda _: (random_head(loaded), loaded))
    tiny.crowd(loaded)
    with pytest.raises(CoordinatorUnavailable, match="no memory"):
        asyncio.run(reader.read("a request that was never read"))


def test_a_request_that_waits_for_the_conversion_hears_how_far_it_is(
    loaded: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kinds, "REPORT_SECONDS", 0.01)
    heard = threading.Event()
    reported: list[str] = []

    def load(report: Callable[[str], None]) -> tuple[KindHead, Backbone]:
        report("made ready, once: 30%")
        heard.wait(10)
        return random_head(loaded), loaded

    def listen(step: str) -> None:
        reported.append(step)
        heard.set()

    reader = BackboneKindReader(load)
    reader.report = listen
    asyncio.run(reader.read("a request"))
    assert reported == ["made ready, once: 30%"]


def test_a_trained_head_finds_the_kinds_it_was_taught(tmp_path: Path, loaded: Backbone) -> None:
    path = tmp_path / "requests.jsonl"
    lines = [
        json.dumps({"text": text, "kind": kind, "source": "ignored"})
        for kind, texts in WORDS.items()
        for text in (*texts, f"{texts[0]} {texts[0]}", f"{texts[2]}!")
    ]
    path.write_text("\n".join(lines), encoding="utf-8")
    trained = training.train(training.read_rows(path), loaded, lambda message: None)
    assert trained.accuracy > 3 * trained.majority
    assert trained.majority == pytest.approx(0.1)
    reader = BackboneKindReader(lambda _: (trained.head, loaded))
    recognised = 0
    for kind, texts in WORDS.items():
        reading = asyncio.run(reader.read(texts[0]))
        recognised += KINDS[int(np.argmax(reading.probabilities))] == kind
    assert recognised >= 7


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"text": "fix it"}', "line 1 is not"),
        ('{"text": "fix it", "kind": "magic"}', "line 1 is not"),
        ('{"text": "fix it", "kind": "bug_fix"}', "fewer than 5 requests of the kind"),
    ],
)
def test_rows_that_cannot_be_used_are_refused(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(UsageError, match=message):
        training.read_rows(path)


def test_train_kinds_makes_the_head_that_sessions_with_that_backbone_use(
    tmp_path: Path,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("FUGU_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    lines = [json.dumps({"text": text * 2, "kind": kind}) for kind in KINDS for text in "abcde"]
    (tmp_path / "requests.jsonl").write_text("\n".join(lines), encoding="utf-8")
    assert called(["train", "kinds", "requests.jsonl", "--backbone", str(folder)]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert "the most frequent kind: 10.0%" in printed[0]
    heads = Path(printed[1]).parent
    reader = build_kind_reader(KindFiles(str(folder), tmp_path / "cache", heads))
    assert len(asyncio.run(reader.read("fix it")).probabilities) == len(KINDS)


def test_the_head_that_ships_is_of_the_embedded_backbone() -> None:
    head = kinds.load(kinds.SHIPPED)
    assert head.weights.shape == (len(KINDS), 896)
    assert len(head.meta.backbone) == 64
