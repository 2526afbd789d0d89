"""A checkpoint to begin with: what it says of transcripts and its offsets hold for what is read and
what is written.
"""

import os
from pathlib import Path

import numpy as np
import pytest

from fugu_cli.cli.train import backbone_for_checkpoint
from fugu_cli.config import Config
from fugu_cli.coordinators import checkpoint, trinity
from fugu_cli.coordinators.checkpoint import Checkpoint
from tests.unit.coordinators import tiny


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkpoint:
    """Unlike a new one in everything that a checkpoint says of transcripts; begun.safetensors holds
    it.
    """
    monkeypatch.chdir(tmp_path)
    about = tiny.meta(
        tiny.folder(tmp_path / "backbone"), format="chat", workers_only=True, budget=700
    )
    made = tiny.checkpoint(about, offsets=0.05)
    checkpoint.save(made, tmp_path / "begun.safetensors")
    (Path(os.environ["HOME"]) / ".fugurc").write_text(f'backbone = "{tmp_path / "backbone"}"\n')
    return made


def test_training_reads_the_states_that_sessions_read(start: Checkpoint, tmp_path: Path) -> None:
    config = Config(backbone=str(tmp_path / "backbone"))
    text = "user: fix the tests of calc.py\nassistant:"
    _, backbone = trinity.load_parts(
        tmp_path / "begun.safetensors", tmp_path / "backbone", tmp_path
    )
    live = backbone.read(backbone.tokens(text)).hidden
    plain, states = backbone_for_checkpoint(config)
    assert not np.allclose(states([text])[0], live, atol=0.05)
    _, states = backbone_for_checkpoint(config, start)
    np.testing.assert_allclose(states([text])[0], live, atol=1e-6)
    _, states = backbone_for_checkpoint(config)  # from the disk: other offsets, other states
    np.testing.assert_array_equal(states([text])[0], plain.read(plain.tokens(text)).hidden)
