"""Checkpoints: what is saved comes back, and what does not fit is refused with a sentence."""

import json
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from fugu_cli.coordinators import checkpoint as checkpoints
from fugu_cli.coordinators.backbone_files import shape_of
from fugu_cli.coordinators.checkpoint import Checkpoint, CheckpointMeta, TrainingOrigin
from fugu_cli.errors import CoordinatorUnavailable
from tests.unit.coordinators import tiny


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tiny.folder(tmp_path / "backbone")


@pytest.fixture
def made(folder: Path) -> Checkpoint:
    training = TrainingOrigin(
        stage="warm start", data="35 tasks", examples=12, seed=3, report=(("kl", 0.25),)
    )
    return tiny.checkpoint(tiny.meta(folder, training=training, budget=900), offsets=0.1)


def same(left: Checkpoint, right: Checkpoint) -> bool:
    return (
        left.meta == right.meta
        and np.array_equal(left.vector, right.vector)
        and left.digest == right.digest
    )


def test_our_own_form_comes_back_as_it_was(made: Checkpoint, tmp_path: Path) -> None:
    checkpoints.save(made, tmp_path / "sub" / "a.safetensors")
    assert same(checkpoints.load(tmp_path / "sub" / "a.safetensors"), made)


def test_a_flat_vector_comes_back_as_it_was(made: Checkpoint, tmp_path: Path) -> None:
    checkpoints.save_vector(made, tmp_path / "a.npy")
    stored = np.load(tmp_path / "a.npy")
    assert (stored.dtype, stored.shape) == (np.float64, made.vector.shape)
    assert same(checkpoints.load_vector(tmp_path / "a.npy", made.meta), made)


def test_the_digest_is_of_the_numbers_and_what_they_are_valid_for(
    made: Checkpoint, folder: Path
) -> None:
    other = made.meta.model_copy(update={"training": TrainingOrigin()})
    assert Checkpoint(other, made.head, made.offsets).digest == made.digest
    assert tiny.checkpoint(made.meta, seed=1).digest != made.digest
    assert (
        Checkpoint(tiny.meta(folder, format="chat"), made.head, made.offsets).digest != made.digest
    )


def test_a_checkpoint_without_roles_has_a_row_per_agent_only(folder: Path) -> None:
    made = tiny.checkpoint(tiny.meta(folder, roles=False, rows=("a", "b")))
    assert made.head.shape == (2, tiny.WIDTH)


def pack(path: Path, vector: np.ndarray, about: CheckpointMeta | str) -> Path:
    text = about if isinstance(about, str) else about.model_dump_json()
    save_file({"vector": vector}, path, metadata={"fugu": text})
    return path


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CoordinatorUnavailable, match="there is no checkpoint at"):
        checkpoints.load(tmp_path / "none.safetensors")


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "cut in the numbers": lambda data: data[:-100],
    "cut in the header": lambda data: data[:20],
    "empty": lambda data: b"",
    "noise": lambda data: b"\xff" * 200,
    "no metadata": lambda data: struct.pack("<Q", 2) + b"{}",
}


@pytest.mark.parametrize("damage", list(DAMAGE))
def test_a_damaged_file_is_refused(made: Checkpoint, tmp_path: Path, damage: str) -> None:
    path = tmp_path / "a.safetensors"
    checkpoints.save(made, path)
    path.write_bytes(DAMAGE[damage](path.read_bytes()))
    with pytest.raises(CoordinatorUnavailable, match="is not a whole checkpoint of fugu") as caught:
        checkpoints.load(path)
    assert "leave `checkpoint` out" in caught.value.hint


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e9])
def test_numbers_that_no_training_gives_are_refused(
    made: Checkpoint, tmp_path: Path, bad: float
) -> None:
    vector = made.vector.copy()
    vector[5] = bad
    with pytest.raises(CoordinatorUnavailable, match="not finite or far too large"):
        checkpoints.load(pack(tmp_path / "a.safetensors", vector, made.meta))


def test_a_vector_of_another_length_is_refused(made: Checkpoint, tmp_path: Path) -> None:
    path = pack(tmp_path / "a.safetensors", made.vector[:-1], made.meta)
    with pytest.raises(
        CoordinatorUnavailable, match=r"holds \d+ numbers, 3 rows on this backbone need \d+"
    ):
        checkpoints.load(path)


def test_another_format_version_is_refused(made: Checkpoint, tmp_path: Path) -> None:
    text = json.dumps(json.loads(made.meta.model_dump_json()) | {"format_version": 2})
    with pytest.raises(CoordinatorUnavailable, match="format version 2, this fugu reads 1"):
        checkpoints.load(pack(tmp_path / "a.safetensors", made.vector, text))


@pytest.mark.parametrize("text", ["[]", "{", '{"format_version": 1, "rows": 3}'])
def test_metadata_that_says_nothing_is_refused(made: Checkpoint, tmp_path: Path, text: str) -> None:
    with pytest.raises(CoordinatorUnavailable, match="does not say what it is valid for"):
        checkpoints.load(pack(tmp_path / "a.safetensors", made.vector, text))


def test_another_backbone_is_refused_by_its_hash_and_by_its_layout(
    made: Checkpoint, folder: Path
) -> None:
    shape = shape_of(folder)
    made.check("tiny-qwen3-0", shape)
    with pytest.raises(CoordinatorUnavailable, match="made for the backbone"):
        made.check("f" * 64, shape)
    wider = type(shape)(**{**vars(shape), "width": 64})
    with pytest.raises(CoordinatorUnavailable, match="layout"):
        made.check("tiny-qwen3-0", wider)


def test_another_pool_is_refused(folder: Path) -> None:
    named = tiny.checkpoint(tiny.meta(folder, rows=("a", "b")))
    named.meta.check_pool(["b", "c"])
    with pytest.raises(CoordinatorUnavailable, match="chooses among a, b; none is in the pool"):
        named.meta.check_pool(["c"])


@pytest.mark.parametrize("content", [b"", b"not numpy", b"\x93NUMPY\x01\x00"])
def test_a_file_that_is_no_vector_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.npy").write_bytes(content)
    with pytest.raises(CoordinatorUnavailable, match=r"is not a whole \.npy file"):
        checkpoints.read_npy(tmp_path / "a.npy")


def test_pickles_and_whole_numbers_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(CoordinatorUnavailable, match="is not a whole"):
        checkpoints.read_npy(tmp_path / "a.npy")
    np.save(tmp_path / "b.npy", np.arange(5))
    with pytest.raises(CoordinatorUnavailable, match="floating-point"):
        checkpoints.read_npy(tmp_path / "b.npy")
