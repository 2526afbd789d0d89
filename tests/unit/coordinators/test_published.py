"""The published checkpoint's loader, proven on a random vector of the same layout."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

from fugu_cli.coordinators import svf
from fugu_cli.coordinators.backbone_files import ModelShape, shape_of
from fugu_cli.coordinators.checkpoint import PUBLISHED_ROWS, PUBLISHED_SHA256, import_published
from fugu_cli.errors import ConfigError, CoordinatorUnavailable
from tests.unit.coordinators import tiny

QWEN3 = ModelShape(1024, 28, 16, 8, 128, 3072, 151936, True)


def vector(path: Path, size: int) -> str:
    """A random vector at `path`; its sha256."""
    np.save(path, np.random.default_rng(0).normal(0, 0.1, size))
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_vector_of_the_published_length_fits_qwen3(tmp_path: Path) -> None:
    found = vector(tmp_path / "a.npy", 19456)
    made = import_published(tmp_path / "a.npy", {}, "hash", QWEN3, sha256=found)
    assert made.meta.rows == PUBLISHED_ROWS
    assert made.head.shape == (10, 1024)
    assert [len(block) for block in made.offsets] == [1024] * 9
    assert np.allclose(made.head[9], np.load(tmp_path / "a.npy")[-1024:])


def test_rows_get_the_names_of_the_users_pool(tmp_path: Path) -> None:
    found = vector(tmp_path / "a.npy", 19456)
    mapping = {"gpt-5": "strong", "gemma-3-27b": "small"}
    made = import_published(tmp_path / "a.npy", mapping, "hash", QWEN3, sha256=found)
    assert made.meta.rows[0] == "strong"
    assert made.meta.rows[4] == "small"
    made.meta.check_pool(["small"])


def test_a_tiny_tied_qwen3_of_the_same_layout_takes_its_own_vector(tmp_path: Path) -> None:
    shape = shape_of(tiny.folder(tmp_path / "backbone"))
    found = vector(tmp_path / "a.npy", sum(svf.ranks(shape)) + 10 * shape.width)
    made = import_published(tmp_path / "a.npy", {}, "tiny-qwen3-0", shape, sha256=found)
    made.check("tiny-qwen3-0", shape)


def test_another_file_is_refused_by_its_hash(tmp_path: Path) -> None:
    vector(tmp_path / "a.npy", 19456)
    with pytest.raises(ConfigError, match="is not the published vector") as caught:
        import_published(tmp_path / "a.npy", {}, "hash", QWEN3)
    assert PUBLISHED_SHA256 in caught.value.hint


def test_another_backbone_is_refused(tmp_path: Path) -> None:
    found = vector(tmp_path / "a.npy", 19456)
    shape = shape_of(tiny.folder(tmp_path / "backbone"))
    with pytest.raises(CoordinatorUnavailable, match=r"for Qwen3-0\.6B; this backbone, 32 wide"):
        import_published(tmp_path / "a.npy", {}, "hash", shape, sha256=found)


def test_an_unknown_agent_in_the_map_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--map gpt-9=\.\.\.: the published agents are gpt-5"):
        import_published(tmp_path / "a.npy", {"gpt-9": "x"}, "hash", QWEN3)
