"""One rollout, opened as `fugu eval` opens it."""

import asyncio
import os
from pathlib import Path

import pytest

from fugu_cli.cli.rollout_sessions import RolloutSessionFactory
from fugu_cli.config.loader import load_config as configuration
from fugu_cli.coordinators import checkpoint
from fugu_cli.errors import UsageError
from fugu_cli.training.evaluation.engine import LocalEngine
from fugu_cli.training.evaluation.paid_calls import AgentUnanswered, Spending, SpendingLimits
from fugu_cli.training.evaluation.rollout import (
    ROLLOUTS_FOLDER,
    RolloutContext,
    RolloutJob,
    RolloutSession,
    rollout,
)
from fugu_cli.training.evaluation.runner import EvaluationPlan, run_evaluation
from fugu_cli.training.tasks import Question
from fugu_cli.training.tasks.loading import load_tasks
from tests.acceptance.loopback import KEY, running
from tests.research.evaluation.pool import configured, fixes, idles, suite, task
from tests.unit.coordinators import tiny


def test_what_the_cascade_decided_is_no_row_of_the_learned_coordinator_and_begins_anew(
    tmp_path: Path,
) -> None:
    """Its backbone comes to this machine after a first try without it."""
    rc, folder = Path(os.environ["HOME"]) / ".fugurc", tmp_path / "backbone"
    job = RolloutJob(arm="trinity", problem=load_tasks(suite(tmp_path, task("one"))).tasks[0])
    with running() as server:
        configured(rc.parent, server, ("idler", "cheap"), ("worker", "strong"))
        server.react("idler", idles)
        server.react("worker", fixes)
        rc.write_text(
            f'backbone = "{folder}"\ncheckpoint = '
            f'"{tmp_path / "made.safetensors"}"\n{rc.read_text()}'
        )
        opening = RolloutSessionFactory(
            configuration(tmp_path, os.environ).config, {"LOOPBACK_KEY": KEY}, tmp_path / "out"
        )
        opened = opening(Spending(tmp_path / "paid.jsonl", SpendingLimits()))
        elsewhere = tiny.folder(tmp_path / "elsewhere")
        about = tiny.meta(elsewhere, rows=("idler", "worker"))
        checkpoint.save(tiny.checkpoint(about), tmp_path / "made.safetensors")
        with pytest.raises(
            AgentUnanswered, match=f"in place of the checkpoint: .*no backbone at {folder}"
        ) as caught:
            asyncio.run(rollout(job, opened, tmp_path / "out"))
        assert caught.value.final
        assert list((tmp_path / "out" / ROLLOUTS_FOLDER / "trinity" / "one-0").iterdir()) == []
        elsewhere.rename(folder)
        row = asyncio.run(rollout(job, opened, tmp_path / "out"))
    assert (row.arm, row.task) == ("trinity", "one")
    assert '"by":"cascade"' not in (tmp_path / "out" / row.session).read_text()


def test_an_error_in_one_rollout_ends_the_others_before_the_evaluation_ends(tmp_path: Path) -> None:
    ended: list[int] = []

    async def open_session(context: RolloutContext) -> RolloutSession:
        await all_begun.wait()
        if context.seed == 1:
            raise UsageError("this rollout cannot begin")
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(context.seed)
        raise AssertionError

    question = Question(id="q", source="own", kind="number", prompt="2 + 2?", answer="4")
    plan = EvaluationPlan(
        problems=(question,), arms=("trinity",), seeds=3, pool=(), settings={}, at_once=3
    )
    engine = LocalEngine(
        open_session, Spending(tmp_path / "paid.jsonl", SpendingLimits()), tmp_path
    )

    all_begun = asyncio.Barrier(3)

    async def run() -> list[int]:
        with pytest.raises(UsageError, match="this rollout cannot begin"):
            await run_evaluation(plan, engine, tmp_path, lambda _progress: None)
        return list(ended)

    assert sorted(asyncio.run(run())) == [0, 2]
