"""The constant beginning of every transcript: read once, kept on the disk, found again by the next process."""

from pathlib import Path

import numpy as np
import pytest

from fugu_cli.coordinators import backbone, checkpoint
from fugu_cli.coordinators.backbone import Backbone
from fugu_cli.coordinators.checkpoint import Checkpoint
from fugu_cli.coordinators.transcript import TranscriptMessage
from fugu_cli.coordinators.trinity import load_parts
from tests.unit.coordinators import tiny

SYSTEM = "<|system|>You are helpful.<|end|>"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tiny.folder(tmp_path / "backbone")
    (path / "chat_template.jinja").write_text(SYSTEM + tiny.TEMPLATE)
    return path


def loaded(folder: Path) -> Backbone:
    return backbone.load_backbone(folder, device="cpu")


def made(folder: Path, format: str) -> Checkpoint:
    return tiny.checkpoint(tiny.meta(folder, format=format))


def test_every_transcript_begins_with_it(folder: Path) -> None:
    one = loaded(folder)
    for format, least in (("raw", "user"), ("chat", "<|system|>You are helpful.<|end|><|user|")):
        tokens = backbone.constant_prefix(one, made(folder, format))
        text = one.tokenizer.decode(tokens)
        assert text.startswith(least)
        for words in ("fix it", "Why?", "\n", "你好"):
            assert one.tokens(one.write((TranscriptMessage("user", words),), format))[: len(tokens)] == tokens  # type: ignore[arg-type]


def test_another_process_finds_it_and_reads_on_as_if_it_had_read_it(folder: Path, tmp_path: Path) -> None:
    first, second = loaded(folder), loaded(folder)
    about = made(folder, "chat")
    count = backbone.restore_prefix(first, about, tmp_path / "store")
    (file,) = (tmp_path / "store").iterdir()
    stamp = file.stat().st_mtime_ns
    assert backbone.restore_prefix(second, about, tmp_path / "store") == count
    assert file.stat().st_mtime_ns == stamp
    tokens = first.tokens(first.write((TranscriptMessage("user", "fix the tests"),), "chat"))
    one, other = first.read(tokens), second.read(tokens)
    assert one.cached == other.cached == count > 20
    assert np.array_equal(one.hidden, other.hidden)


@pytest.mark.parametrize("content", [b"", b"broken", None])
def test_a_broken_file_is_written_anew(folder: Path, tmp_path: Path, content: bytes | None) -> None:
    store = tmp_path / "store"
    about = made(folder, "chat")
    backbone.restore_prefix(loaded(folder), about, store)
    (file,) = store.iterdir()
    good = file.read_bytes()
    file.write_bytes(good[: len(good) // 2] if content is None else content)
    assert backbone.restore_prefix(loaded(folder), about, store) > 20
    assert file.read_bytes() == good


def test_it_belongs_to_one_checkpoint(folder: Path, tmp_path: Path) -> None:
    """Other offsets give other keys and values."""
    for seed in (0, 1):
        path = tmp_path / f"{seed}.safetensors"
        checkpoint.save(tiny.checkpoint(tiny.meta(folder, format="chat"), seed=seed, offsets=0.3), path)
        found, one = load_parts(path, folder, tmp_path / "cache")
        tokens = one.tokens(one.write((TranscriptMessage("user", "fix the tests"),), "chat"))
        warm = one.read(tokens)
        one.forget()
        np.testing.assert_allclose(warm.hidden, one.read(tokens).hidden, atol=0.15)
        assert warm.cached > 20
        assert found.meta.format == "chat"
    assert len(list((tmp_path / "cache" / "prefixes").iterdir())) == 2


def test_a_snapshot_of_another_shape_is_not_taken(folder: Path) -> None:
    one = loaded(folder)
    tokens = one.tokens("user: fix it")
    state = one.snapshot(tokens)
    one.forget()
    assert not one.restore(tokens[:-1], state)
    assert not one.restore(tokens, {"keys": state["keys"]})
    assert one.read(tokens).cached == 0


def test_a_store_that_cannot_be_written_costs_only_time(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert backbone.restore_prefix(loaded(folder), made(folder, "chat"), tmp_path / "file" / "store") > 20
