"""How a candidate's sessions are opened."""

from pathlib import Path

import numpy as np

from fugu_cli.cli.train_evolve import RolloutFitness
from fugu_cli.cli.training_flags import EvolveFlags
from fugu_cli.config import Config
from fugu_cli.training.search import HeadCandidates
from tests.research.evaluation.pool import suite, task
from tests.unit.coordinators import tiny


def test_decisions_are_drawn_in_training(tmp_path: Path) -> None:
    base = tiny.checkpoint(tiny.meta(tiny.folder(tmp_path / "backbone")))
    flags = EvolveFlags(suites=[str(suite(tmp_path, task("a")))])
    trial = RolloutFitness(flags, Config(), tmp_path / "out", base)
    opened = trial._factory_of_candidate(
        HeadCandidates(base.head[None], lambda _: np.zeros((0, 1), np.float32)), 0, 1
    )
    assert opened.config.sample
    assert not Config().sample
