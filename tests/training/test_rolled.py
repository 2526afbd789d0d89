"""How a candidate's sessions are opened."""

from pathlib import Path

import numpy as np

from fugu_cli.commands.rolled import Rolled
from fugu_cli.commands.train import EvolveFlags
from fugu_cli.config import Config
from fugu_cli.training.candidates import Heads
from tests.coordinators import tiny
from tests.evaluation.pool import suite, task


def test_decisions_are_drawn_in_training(tmp_path: Path) -> None:
    base = tiny.checkpoint(tiny.meta(tiny.folder(tmp_path / "backbone")))
    flags = EvolveFlags(suites=[str(suite(tmp_path, task("a")))])
    trial = Rolled(flags, Config(), tmp_path / "out", base)
    opened = trial._opening(Heads(base.head[None], lambda _: np.zeros((0, 1), np.float32)), 0, 1)
    assert opened.config.sample
    assert not Config().sample
