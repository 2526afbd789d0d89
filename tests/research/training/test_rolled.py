"""How a candidate's sessions are opened."""

from pathlib import Path

import numpy as np
import pytest

from fugu_cli.cli.train_evolve import ProgressEstimate, RolloutFitness
from fugu_cli.cli.training_flags import EvolveFlags
from fugu_cli.config import Config
from fugu_cli.training.search import HeadCandidates
from tests.research.evaluation.pool import suite, task
from tests.unit.coordinators import tiny


def test_decisions_are_drawn_in_training(tmp_path: Path) -> None:
    base = tiny.checkpoint(tiny.meta(tiny.folder(tmp_path / "backbone")))
    flags = EvolveFlags(suites=[str(suite(tmp_path, task("a")))])
    trial = RolloutFitness(flags, Config(), tmp_path / "out", base)
    opened = trial._opening(HeadCandidates(base.head[None], lambda _: np.zeros((0, 1), np.float32)), 0, 1)
    assert opened.config.sample
    assert not Config().sample


def test_a_long_iteration_says_how_far_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    now = 0.0
    pace = ProgressEstimate(8, lambda: now)
    for _ in range(8):
        now += 20.0
        pace.step()
    told = [line.split(" ", 1)[1] for line in capsys.readouterr().err.splitlines()]
    assert told == [
        "2 of 8 rollouts of this iteration; about 2 min left",
        "4 of 8 rollouts of this iteration; about 80 s left",
        "6 of 8 rollouts of this iteration; about 40 s left",
    ]
