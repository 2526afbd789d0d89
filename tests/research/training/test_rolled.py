"""How a candidate's sessions are opened."""

import asyncio
from pathlib import Path

import numpy as np
import pytest

from fugu_cli.cli.train_evolve import RolloutFitness
from fugu_cli.cli.training_flags import EvolveFlags
from fugu_cli.config import Config
from fugu_cli.errors import StorageError
from fugu_cli.training.evaluation.rollout import RolloutJob, RolloutOutcome
from fugu_cli.training.search import HeadCandidates
from fugu_cli.training.tasks import Task
from fugu_cli.training.tasks.grading import TaskCheck
from tests.research.evaluation.pool import suite, task
from tests.unit.coordinators import tiny


def test_decisions_are_drawn_in_training(tmp_path: Path) -> None:
    base = tiny.checkpoint(tiny.meta(tiny.folder(tmp_path / "backbone")))
    jobs: list[RolloutJob] = []

    class Engine:
        cores = 1

        async def check(self, checked: Task) -> TaskCheck:
            return TaskCheck(task=checked.id, sha="")

        async def do(self, job: RolloutJob) -> RolloutOutcome:
            jobs.append(job)
            raise StorageError("stopped")

    flags = EvolveFlags(suites=[str(suite(tmp_path, task("a")))], replications=1)
    candidates = HeadCandidates(base.head[None], lambda _: np.zeros((0, 1), np.float32))
    with asyncio.Runner() as loop, pytest.raises(StorageError, match="stopped"):
        trial = RolloutFitness(flags, Config(), tmp_path / "out", base, Engine(), loop)  # type: ignore[arg-type]
        trial.play(candidates, 1)
    assert jobs[0].checkpoint is not None
    assert jobs[0].checkpoint.sample
    assert not Config().sample
