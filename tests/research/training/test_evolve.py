"""The evolution's loop: its log, shaping, going on exactly, stopping early, and a folder that
refuses what it must.
"""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fugu_cli.errors import StorageError, UsageError
from fugu_cli.training.evolution import (
    Evolution,
    EvolutionIteration,
    EvolutionSettings,
    Evolved,
    FitnessWeights,
    RunFolder,
    RunState,
    TrialResult,
    entropy,
    fitness,
)
from fugu_cli.training.search import Candidates, HeadCandidates

SMALL = EvolutionSettings(population=6, iterations=6, sigma=0.3, seed=1)
WANTED = np.array([1.0, -1.0, 0.5])


class Bowl:
    """Solved is nearness to a point; the iteration's luck is the same for every candidate."""

    def __init__(
        self, *, validated: bool = True, flat: bool = False, stop: int | None = None
    ) -> None:
        self._flat = flat
        self.seen: list[tuple[int, int]] = []
        self._validated = validated
        self._stop = stop

    def play(self, candidates: Candidates, iteration: int) -> TrialResult:
        if iteration == self._stop:
            raise StorageError("no room")
        self.seen.append((iteration, candidates.size))
        return self._played(candidates, np.random.default_rng(iteration).normal(scale=0.01))

    def validate(self, candidates: Candidates) -> TrialResult | None:
        return self._played(candidates, 0.0) if self._validated else None

    def _played(self, candidates: Candidates, luck: float) -> TrialResult:
        assert isinstance(candidates, HeadCandidates)
        worth = -np.square(candidates.heads[:, 0] - WANTED).sum(1).astype(np.float64) + luck
        worth = worth * 0 if self._flat else worth
        flat = np.ones((candidates.size, 2))
        return TrialResult(
            np.stack([worth, worth], 1),
            flat * 0,
            flat,
            flat,
            np.ones((candidates.size, 3)),
            candidates.size,
        )


def breed(points: np.ndarray) -> Candidates:
    return HeadCandidates(
        points[:, None].astype(np.float32), lambda texts: np.zeros((len(texts), 3), np.float32)
    )


def save(mean: np.ndarray, path: Path) -> None:
    path.write_text(json.dumps(mean.tolist()))


def run(
    path: Path,
    settings: EvolutionSettings,
    trial: Bowl,
    tell: Callable[[EvolutionIteration], None] = lambda _: None,
) -> Evolved:
    folder = RunFolder(path, {"pool": ["a", "b"]}, save)
    folder.begin()
    return Evolution(settings, trial, breed, folder).run(np.zeros(3), tell)


def without_seconds(path: Path) -> list[dict[str, object]]:
    return [
        {**json.loads(line), "seconds": 0}
        for line in (path / "es_log.jsonl").read_text().splitlines()
    ]


def test_every_iteration_is_logged_and_leaves_a_checkpoint(tmp_path: Path) -> None:
    told: list[EvolutionIteration] = []
    found = run(tmp_path, SMALL, Bowl(), told.append)
    logged = without_seconds(tmp_path)
    assert [row["iteration"] for row in logged] == [1, 2, 3, 4, 5, 6]
    names = {"best", "mean", "sigma", "rows", "roles", "evaluations", "cost", "validation"}
    assert names <= set(logged[0])
    assert [row["evaluations"] for row in logged] == [6, 12, 18, 24, 30, 36]
    assert json.loads((tmp_path / "checkpoint.safetensors").read_text()) == found.vector.tolist()
    assert [row.iteration for row in told] == [1, 2, 3, 4, 5, 6]
    best = max(logged, key=lambda row: row["validation"])
    assert -np.square(found.vector - WANTED).sum() == pytest.approx(best["validation"], abs=1e-5)


def test_a_run_that_was_stopped_goes_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole", SMALL, Bowl())
    with pytest.raises(StorageError, match="no room"):
        run(tmp_path / "cut", SMALL, Bowl(stop=3))
    trial = Bowl()
    second = run(tmp_path / "cut", SMALL, trial)
    assert [iteration for iteration, _ in trial.seen] == [3, 4, 5]
    np.testing.assert_array_equal(second.vector, whole.vector)
    assert without_seconds(tmp_path / "cut") == without_seconds(tmp_path / "whole")


def test_more_iterations_go_on_from_a_finished_run(tmp_path: Path) -> None:
    run(tmp_path, SMALL, Bowl())
    more = run(tmp_path, SMALL.model_copy(update={"iterations": 8}), Bowl())
    assert len(more.history) == 8


def test_a_run_that_gains_nothing_ends_early(tmp_path: Path) -> None:
    settings = SMALL.model_copy(update={"iterations": 50, "patience": 4})
    found = run(tmp_path, settings, Bowl(flat=True))
    assert len(found.history) == 4
    assert found.stopped == "nothing gained in 4 iterations"
    unjudged = run(tmp_path / "unjudged", settings, Bowl(flat=True, validated=False))
    assert len(unjudged.history) == 5  # the first mean fitness is a gain


def test_without_validation_the_newest_mean_is_the_result(tmp_path: Path) -> None:
    found = run(tmp_path, SMALL, Bowl(validated=False))
    with np.load(tmp_path / "state.npz") as kept:
        np.testing.assert_array_equal(kept["best"], found.vector)
        assert kept["numbers"][1] == pytest.approx(max(row.mean for row in found.history), abs=1e-6)
    assert len(found.history) == 6


def test_a_changed_pool_is_refused_and_named(tmp_path: Path) -> None:
    run(tmp_path, SMALL, Bowl())
    changed = RunFolder(tmp_path, {"pool": ["a", "c"]}, save)
    with pytest.raises(UsageError, match='another pool: \\["a", "b"\\], now it is \\["a", "c"\\]'):
        changed.begin()


def test_a_log_that_is_shorter_than_the_run_is_refused(tmp_path: Path) -> None:
    run(tmp_path, SMALL.model_copy(update={"iterations": 2}), Bowl())
    (tmp_path / "es_log.jsonl").write_text("")
    with pytest.raises(
        StorageError, match=r"es_log.jsonl has 0 lines, the training is at iteration 2"
    ):
        run(tmp_path, SMALL, Bowl())


def test_a_full_disk_leaves_the_last_iteration_whole(tmp_path: Path) -> None:
    def full(_mean: np.ndarray, _path: Path) -> None:
        raise OSError(28, "No space left on device")

    run(tmp_path, SMALL.model_copy(update={"iterations": 2}), Bowl())
    before = (tmp_path / "state.npz").read_bytes()
    folder = RunFolder(tmp_path, {"pool": ["a", "b"]}, full)
    folder.begin()
    with pytest.raises(StorageError, match="No space left on device") as caught:
        Evolution(SMALL, Bowl(), breed, folder).run(np.zeros(3), lambda _: None)
    assert "goes on" in caught.value.hint
    assert (tmp_path / "state.npz").read_bytes() == before
    assert len(run(tmp_path, SMALL, Bowl()).history) == 6


@pytest.mark.parametrize("name", ["state.npz", "es_log.jsonl"])
def test_a_broken_file_of_a_run_is_named(tmp_path: Path, name: str) -> None:
    run(tmp_path, SMALL.model_copy(update={"iterations": 1}), Bowl())
    (tmp_path / name).write_text("no")
    with pytest.raises(StorageError, match=name):
        run(tmp_path, SMALL, Bowl())


def test_a_state_is_read_back_as_it_was(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, {}, lambda _mean, _path: None)
    folder.begin()
    folder.keep(RunState(3, b"\x00search", np.array([0.1, 0.2]), -0.5, 2), [])
    kept = folder.restore()
    assert kept is not None
    assert (kept.iteration, kept.search, kept.best_worth, kept.best_at) == (
        3,
        b"\x00search",
        -0.5,
        2,
    )
    np.testing.assert_array_equal(kept.best, [0.1, 0.2])


def test_a_state_that_was_cut_is_told_of(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, {}, lambda _mean, _path: None)
    folder.begin()
    folder.keep(RunState(3, b"x" * 5000, np.zeros(1000), -0.5, 2), [])
    file = tmp_path / "state.npz"
    file.write_bytes(file.read_bytes()[:3000])
    with pytest.raises(StorageError, match=r"state\.npz is no state of a training"):
        folder.restore()


def played(solved: list[list[float]], rows: list[list[float]]) -> TrialResult:
    table = np.array(solved)
    ones = np.ones_like(table)
    return TrialResult(
        table, ones * 0.5, ones * 2, np.array(rows), np.ones((len(rows), 3)), table.size
    )


def test_fitness_is_reward_and_its_shaping_terms() -> None:
    shaping = FitnessWeights(diversity=0.15, turns=0.1, cost=0.2)
    found = fitness(played([[1, 0], [1, 1]], [[1, 1], [2, 0]]), shaping)
    np.testing.assert_allclose(found, [0.5 + 0.15 * np.log(2) + 0.2 - 0.1, 1.0 + 0.2 - 0.1])
    assert entropy(np.array([0.0, 3.0])) == 0


def test_a_replication_that_failed_for_outside_reasons_is_dropped_not_zero() -> None:
    found = fitness(played([[1, np.nan], [1, 0]], [[1, 0], [1, 0]]), FitnessWeights(cost=0))
    np.testing.assert_allclose(found, [1.0, 0.5])
