"""Coordinators on recorded outcomes: what they solve and spend is exact where nothing is left to
chance."""

import json
import os
from pathlib import Path

import pytest

from fugu_cli.__main__ import called
from fugu_cli.coordinators import checkpoint
from fugu_cli.training.evaluation import outcome_replay
from fugu_cli.training.evaluation.intervals import paired_difference
from fugu_cli.training.evaluation.outcome_replay import CellResult, OutcomeRun, OutcomeTask
from tests.unit.coordinators import tiny

SURE = (1.0, 0.0)
VENDORS = {"small": "a", "mid": "b", "big": "c"}
COSTS = {"small": 0.1, "mid": 0.4, "big": 1.0}


def task(number: int, *right: str) -> OutcomeTask:
    runs = {name: (OutcomeRun(name in right, cost),) for name, cost in COSTS.items()}
    return OutcomeTask(f"t{number}", runs, f"issue {number}")


TASKS = [
    task(0, "small", "mid", "big"),
    task(1, "mid", "big"),
    task(2, "big"),
    task(3),
    task(4, "small"),
]


def cells(tasks: list[OutcomeTask]) -> dict[tuple[tuple[float, float], float], CellResult]:
    members = outcome_replay.members_of(tasks, VENDORS)
    return {(cell.check, cell.budget): cell for cell in outcome_replay.play_tasks(members, tasks)}


def test_the_cascade_solves_what_some_model_of_its_way_solves_and_pays_for_all_of_them() -> None:
    arms = cells(TASKS)[SURE, 2.0].arms
    assert arms["cascade"].solved == (1.0, 1.0, 1.0, 0.0, 1.0)
    assert arms["cascade"].cost == pytest.approx(
        (0.1, 0.5, 1.5, 1.9, 0.1)
    )  # in the end only `mid` is not too dear
    assert arms["oracle"].solved == (1.0, 1.0, 1.0, 0.0, 1.0)
    assert arms["oracle"].cost == pytest.approx((0.1, 0.4, 1.0, 0.1, 0.1))


def test_no_run_is_begun_that_the_budget_does_not_pay() -> None:
    arms = cells(TASKS)[SURE, 0.5].arms
    assert arms["cascade"].solved == (1.0, 1.0, 0.0, 0.0, 1.0)
    assert (
        max(arm.cost[place] for arm in arms.values() for place in range(len(TASKS))) <= 0.5 + 1e-9
    )


def test_a_blind_check_ends_with_the_first_work() -> None:
    found = outcome_replay.play(
        outcome_replay.draw_of(task(7, "big"), 0),
        outcome_replay.in_order(["small", "big"]),
        outcome_replay.OutcomeLimits((1.0, 1.0), 9.0, COSTS),
    )
    assert (found.solved, found.spent, found.failed) == (False, 0.1, ())


def test_runs_of_one_model_are_drawn_without_replacement() -> None:
    both = OutcomeTask("t", {"one": (OutcomeRun(True, 1.0), OutcomeRun(False, 1.0))})
    limits = outcome_replay.OutcomeLimits(SURE, 9.0, {"one": 1.0})
    for draw in range(8):
        again = outcome_replay.play(
            outcome_replay.draw_of(both, draw), outcome_replay.in_order(["one"] * 2), limits
        )
        assert again.solved


def test_a_paired_difference_has_the_error_of_its_gaps() -> None:
    gap = paired_difference([1.0, 1.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0])
    assert (gap.mean, gap.error) == (0.25, pytest.approx(0.25))
    assert gap.in_points == "+25.0 ± 25.0"


@pytest.fixture
def outcomes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    rows = [
        {
            "id": one.id,
            "text": one.text,
            "outcomes": {n: {"ok": r[0].ok, "cost": r[0].cost} for n, r in one.runs.items()},
        }
        for one in TASKS
    ]
    (tmp_path / "o.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return "outcomes:o.jsonl"


MODELS = ("--model", "small", "--model", "mid", "--model", "big")


def test_the_page_has_every_check_and_ends_with_the_reward_beside_the_cascade(
    outcomes: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called(["eval", outcomes, *MODELS]) == 0
    out = capsys.readouterr().out
    assert [line for line in out.splitlines() if line.startswith("## ")] == [
        "## A check that passes 100% of right and 0% of wrong work",
        "## A check that passes 95% of right and 10% of wrong work",
        "## A check that passes 90% of right and 20% of wrong work",
        "## A check that passes 80% of right and 40% of wrong work",
        "## In reward, less the cascade",
    ]
    assert "| trinity" not in out


def test_a_checkpoint_is_played_beside_the_rules(
    outcomes: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tiny.folder(Path("backbone").absolute())
    checkpoint.save(tiny.checkpoint(tiny.meta(folder)), Path("tiny.safetensors"))
    (Path(os.environ["HOME"]) / ".fugurc").write_text(
        f'backbone = "{folder}"\ncheckpoint = "{Path("tiny.safetensors").absolute()}"\n'
    )
    assert called(["eval", outcomes, *MODELS, "--arm", "trinity"]) == 0
    out = capsys.readouterr().out
    assert len([line for line in out.splitlines() if line.startswith("| trinity | ")]) == 4
    assert (
        "| check, budget | tuned list | tuned list that changes the vendor | cascade, vendors"
        in out
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--arm", "single"), "only trinity can be added"),
        (("--model", "nobody"), "no outcomes of nobody; there are big, mid, small"),
    ],
)
def test_what_cannot_be_played_is_said(
    outcomes: str, words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called(["eval", outcomes, *MODELS, *words]) == 1
    assert said in capsys.readouterr().err
