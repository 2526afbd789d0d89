"""A checkpoint over slots is proven beside the rule cascade, on what its head did not see."""

import json
from pathlib import Path

import numpy as np
import pytest

from fugu_cli.coordinators import backbone, checkpoint
from fugu_cli.coordinators.backbone import Backbone
from fugu_cli.training.evolution import EvolutionSettings
from fugu_cli.training.search import HiddenStates
from tests.benchmarks.slots.frontier import PairedDifference, PolicyScores, paired_difference
from tests.benchmarks.slots.lessons import HeadTrainingSettings
from tests.benchmarks.slots.recipe import (
    CascadeComparison,
    HeldOutComparison,
    Mixture,
    MixtureConfig,
    compare_with_cascade,
    load_mixture,
    with_comparison,
)
from tests.research.training.test_replay import file_of, lines
from tests.unit.coordinators import tiny

ROWS = ("cheap=small", "middle=mid", "strong=big")
SETTINGS = EvolutionSettings(population=4, iterations=1, replications=2)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Backbone:
    return backbone.load_backbone(
        tiny.folder(tmp_path_factory.mktemp("proving") / "backbone"), device="cpu"
    )


def mixed(loaded: Backbone, folder: Path, hidden_states: HiddenStates) -> Mixture:
    """Issues without prices, and tasks that only the dearest agent solves: its draws end in all
    ways a loop can.
    """
    rows = lines(6)
    cells = [
        {
            "task": f"t{n}",
            "agent": agent,
            "repeat": r,
            "ok": agent == "big",
            "seconds": cost,
            "prompt": f"fix `a{n}.py`",
        }
        for n in range(3)
        for agent, cost in (("small", 1), ("mid", 2), ("big", 5))
        for r in range(2)
    ]
    (folder / "matrix.jsonl").write_text("".join(f"{json.dumps(cell)}\n" for cell in cells))
    blend = MixtureConfig(course=HeadTrainingSettings(settings=SETTINGS), pools=2, shown=2, folds=2)
    issues = file_of(folder / "o.jsonl", rows)
    return load_mixture(issues, folder / "matrix.jsonl", ROWS, blend, (loaded, hidden_states))[0]


def test_both_sources_are_judged_by_heads_that_did_not_see_them(
    loaded: Backbone, tmp_path: Path
) -> None:
    hidden_states = HiddenStates(loaded, tmp_path / "states", lambda _: None)
    mixture = mixed(loaded, tmp_path, hidden_states)
    said: list[str] = []
    found = compare_with_cascade(
        mixture, hidden_states, np.zeros((6, loaded.shape.width), np.float32), said.append
    )
    assert [proof.source for proof in found.learned] == ["issues, pools drawn", "loop"]
    assert [proof.source for proof in found.before] == ["issues, pools drawn", "loop"]
    assert len(said) == 2
    loop = found.learned[1]
    assert len(loop.ours.solved) == 3
    assert all(0 <= value <= 1 for value in loop.ours.solved)
    np.testing.assert_allclose(loop.cascade.solved, found.before[1].cascade.solved)
    assert found.record()["loop: cases"] == 3.0


def proof(source: str, gap: float, error: float) -> HeldOutComparison:
    ours = PolicyScores("learned", np.array([0.5, 1.0]), np.array([0.2, 0.4]))
    rule = PolicyScores("cascade", np.array([1.0, 1.0]), np.array([0.5, 0.7]))
    return HeldOutComparison(source, ours, rule, PairedDifference(gap, error))


def test_worse_is_what_two_standard_errors_do_not_explain() -> None:
    found = CascadeComparison(
        (proof("issues", -0.03, 0.02), proof("loop", -0.05, 0.02)), (proof("issues", 0.01, 0.02),)
    )
    assert found.worse == ("loop",)
    assert found.table().splitlines()[2:] == [
        "| issues | 2 | held out | 75.0% | 0.300 | -0.0300 ± 0.0200 |",
        "| loop | 2 | held out | 75.0% | 0.300 | -0.0500 ± 0.0200 |",
        "| issues | 2 | checkpoint before | 75.0% | 0.300 | +0.0100 ± 0.0200 |",
        "| issues | 2 | rule cascade | 100.0% | 0.600 | +0.0000 |",
        "| loop | 2 | rule cascade | 100.0% | 0.600 | +0.0000 |",
    ]
    record = CascadeComparison((proof("loop", 0.02, 0.01),), (proof("loop", -0.1, 0.02),)).record()
    assert record == {
        "loop: cases": 2.0,
        "loop: solved, held out": 0.75,
        "loop: cost, held out": 0.3,
        "loop: solved by the cascade": 1.0,
        "loop: cost of the cascade": 0.6,
        "loop: reward over the cascade": 0.02,
        "loop: its standard error": 0.01,
        "loop: reward over the cascade, checkpoint before": -0.1,
    }


def test_the_proof_is_kept_in_the_checkpoint(tmp_path: Path) -> None:
    made = tiny.checkpoint(tiny.meta(tiny.folder(tmp_path / "backbone")))
    lines = CascadeComparison((proof("loop", 0.02, 0.01),), ()).record()
    checkpoint.save(with_comparison(made, lines), tmp_path / "proven.safetensors")
    found = checkpoint.load(tmp_path / "proven.safetensors")
    assert found.meta.training.report == (*made.meta.training.report, *lines.items())
    assert found.digest == made.digest


def test_the_same_issue_under_several_pools_counts_once_for_the_error() -> None:
    first, second = np.array([1.0, 1.0, 0.0, 0.0]), np.zeros(4)
    assert paired_difference(first, second, ["a", "a", "b", "b"]) == PairedDifference(0.5, 0.5)
    assert paired_difference(first[::2], second[::2]) == PairedDifference(0.5, 0.5)
    assert paired_difference(first, second).error == pytest.approx(first.std(ddof=1) / 2)
    assert paired_difference(first, second, ["a"] * 4) == PairedDifference(0.5, 0.0)
