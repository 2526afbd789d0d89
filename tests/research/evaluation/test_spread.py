"""Rollouts on a local ray instance of two workers. Left out where ray is not installed."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

import fugu_cli
from fugu_cli.cli import eval as command
from fugu_cli.cli.training_flags import EngineName, EvalFlags
from fugu_cli.errors import FuguError
from fugu_cli.evaluation import results_folder
from fugu_cli.evaluation.paid_calls import SpendingLimits
from fugu_cli.evaluation.rollout import RolloutOutcome
from fugu_cli.evaluation.runner import RemoteResult, run_remote_job
from tests.acceptance.loopback import KEY, Refuses, running
from tests.research.evaluation.pool import configured, fixes, idles, suite, task

pytest.importorskip("ray")


@pytest.mark.filterwarnings("ignore")
def test_rollouts_are_spread_over_two_workers_and_kept_like_any_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    monkeypatch.setenv("LOOPBACK_KEY", KEY)
    monkeypatch.setenv("PYTHONPATH", str(Path(fugu_cli.__file__).parent.parent))
    monkeypatch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.chdir(tmp_path)
    file = suite(tmp_path, task("one"), task("two"))
    with running() as server:
        configured(Path(os.environ["HOME"]), server, ("idler", "cheap"), ("worker", "strong"))
        server.react("idler", idles)
        server.react("worker", fixes)
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
        flags = EvalFlags(
            suites=[str(file)],
            arms=["single:worker", "one-pass:idler"],
            out=tmp_path / "out",
            engine=EngineName.ray,
            rollouts=2,
        )
        assert command.evaluate(flags) == 0
        found = results_folder.read_rows(tmp_path / "out" / "rows.jsonl", RolloutOutcome)
        assert sorted((row.arm, row.task, row.ok) for row in found) == [
            ("one-pass:idler", "one", False),
            ("one-pass:idler", "two", False),
            ("single:worker", "one", True),
            ("single:worker", "two", True),
        ]
        assert len(list((tmp_path / "out" / "paid").glob("*.jsonl"))) == 4
        assert not ray.is_initialized()


@pytest.mark.filterwarnings("ignore")
def test_a_cluster_that_cannot_be_reached_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOPBACK_KEY", KEY)
    monkeypatch.setenv("RAY_ADDRESS", "no such address")
    with running() as server:
        configured(Path(os.environ["HOME"]), server, ("worker", "strong"))
        flags = EvalFlags(suites=[str(suite(tmp_path, task("one")))], arms=["single"], out=tmp_path / "out")
        with pytest.raises(FuguError, match="ray cannot be started or reached: Invalid address") as caught:
            command.evaluate(replace(flags, engine=EngineName.ray))
        assert caught.value.hint == "look at RAY_ADDRESS, or leave out --engine"


def test_a_worker_says_what_it_spent_and_why_there_is_no_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fugu_cli.cli.eval import RolloutSessionFactory
    from fugu_cli.config.loader import load_config as configuration
    from fugu_cli.evaluation.rollout import RolloutJob
    from fugu_cli.tasks.loading import load_tasks

    problem = load_tasks(suite(tmp_path, task("one"))).tasks[0]
    job = RolloutJob(arm="single:worker", problem=problem).model_dump_json()
    with running() as server:
        configured(Path(os.environ["HOME"]), server, ("worker", "strong"))
        config = configuration(tmp_path, os.environ).config
        opening = RolloutSessionFactory(config, (("LOOPBACK_KEY", KEY),), tmp_path / "out")
        server.react("worker", fixes)

        def worked(limits: SpendingLimits) -> RemoteResult:
            return RemoteResult.model_validate_json(run_remote_job(job, opening, str(tmp_path / "out"), limits))

        stopped = worked(SpendingLimits(requests=2))
        assert (stopped.row, stopped.why, stopped.requests) == (None, "spent", 2)
        server.play("worker", Refuses(401, "no such key"))
        refused = worked(SpendingLimits())
        assert (refused.why, refused.agent, refused.final, refused.requests) == ("unanswered", "worker", True, 0)
        server.react("worker", fixes)
        done = worked(SpendingLimits())
        assert done.row is not None
        assert (done.row.ok, done.row.calls, done.requests) == (True, 4, 2)
