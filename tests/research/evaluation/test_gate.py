"""The gate that decides the default: which pools are drawn, what each criterion catches, and what
`fugu eval outcomes:FILE` says.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from fugu_cli.__main__ import called
from fugu_cli.config.known_models import vendor_of
from fugu_cli.coordinators.rules import Cascade
from fugu_cli.training.evaluation import default_gate
from fugu_cli.training.evaluation.default_gate import (
    CASCADE,
    CELLS,
    RANDOM,
    PoolRewards,
    RecordedSet,
    draw_pools,
    judge,
    play_pool,
    read_recorded_set,
    recorded_model,
)
from fugu_cli.training.evaluation.outcome_replay import SETTINGS

MODELS = ("gpt-5@high", "gpt-5@low", "claude-opus-4-5", "gemini-3-pro", "glm-4.6", "grok-4")
PRICES = (0.6, 0.3, 1.0, 0.8, 0.1, 0.5)
TASKS = 40


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """Outcomes of six entries: the later in the list, the fewer tasks are solved."""
    rows = []
    for number in range(TASKS):
        outcomes = {
            name: {"ok": (number * 7 + place) % 10 < 8 - place, "cost": price}
            for place, (name, price) in enumerate(zip(MODELS, PRICES, strict=True))
        }
        rows.append(json.dumps({"id": f"t{number}", "text": "mend it", "outcomes": outcomes}))
    path = tmp_path / "board.jsonl"
    path.write_text("\n".join(rows))
    return path


def plays(gaps: np.ndarray, random_order: float = 0.0) -> list[PoolRewards]:
    """Return pools in which the candidate is ahead by `gaps` (pools by cells), in points."""
    chance = np.random.default_rng(1)
    found = []
    for of_pool in gaps:
        cascade = chance.random((len(CELLS), TASKS))
        ahead = of_pool[:, None] / 100 + chance.normal(0, 0.01, cascade.shape)
        rewards = {
            "new": cascade + ahead,
            CASCADE: cascade,
            RANDOM: cascade + random_order / 100,
        }
        found.append(PoolRewards(("a", "b", "c"), rewards))
    return found


def failed_criteria(gaps: np.ndarray, random_order: float = 0.0) -> list[str]:
    result = judge({"one": plays(gaps, random_order), "two": plays(gaps, random_order)}, "new")
    return [criterion.name for criterion in result.criteria if not criterion.passes]


AHEAD = np.full((20, len(CELLS)), 3.0)


def test_a_candidate_that_is_ahead_everywhere_passes() -> None:
    assert failed_criteria(AHEAD) == []


def test_one_that_is_level_is_not_ahead() -> None:
    assert "ahead of the cascade" in failed_criteria(np.zeros((20, len(CELLS))))


def test_one_cell_that_is_much_behind_is_enough() -> None:
    gaps = AHEAD.copy()
    gaps[:, CELLS.index(((1.0, 0.0), 1.0))] = -3.0
    assert failed_criteria(gaps) == ["nowhere much behind"]


def test_one_pool_in_twenty_may_be_a_trap_and_two_may_not() -> None:
    gaps = np.full((20, len(CELLS)), 9.0)
    gaps[0] = -6.0
    assert failed_criteria(gaps) == []
    gaps[1] = -6.0
    assert failed_criteria(gaps) == ["no trap"]


def test_turns_that_a_random_order_uses_as_well_are_not_worth_it() -> None:
    assert failed_criteria(AHEAD, random_order=4.0) == ["ahead of a random order"]


def test_later_looks_must_be_surer() -> None:
    widths = []
    for look in (1, 2, 3, 4):
        result = judge({"one": plays(AHEAD)}, "new", look)
        interval = result.by_set["one"]
        widths.append(interval.high - interval.low)
    assert widths[0] < widths[1] < widths[2] == widths[3]


def test_pools_are_the_same_for_a_seed_and_have_no_model_twice(recorded: Path) -> None:
    read = read_recorded_set(recorded, vendor_of)
    pools = draw_pools(read, 50, "s")
    assert pools == draw_pools(read, 50, "s") != draw_pools(read, 50, "t")
    assert all(len({recorded_model(name) for name in pool}) == len(pool) for pool in pools)
    assert {len(pool) for pool in pools} == {3, 4, 5}
    assert all("grok-4" not in pool for pool in draw_pools(read, 20, "s", ["grok-4"]))


def test_a_model_that_few_tasks_were_run_on_is_not_drawn(recorded: Path) -> None:
    lines = [json.loads(line) for line in recorded.read_text().splitlines()]
    for row in lines[:2]:
        del row["outcomes"]["gpt-5@low"]
    recorded.write_text("\n".join(json.dumps(row) for row in lines))
    assert "gpt-5@low" not in read_recorded_set(recorded, vendor_of).models


def test_the_cascade_is_level_with_itself_and_the_tuned_list_is_no_worse(recorded: Path) -> None:
    read = read_recorded_set(recorded, vendor_of)
    assert isinstance(read, RecordedSet)
    played = play_pool(
        read,
        ("gpt-5@high", "glm-4.6", "grok-4"),
        {"again": lambda members: Cascade(members, SETTINGS)},
        draws=2,
    )
    assert not played.gap("again", CASCADE).any()
    assert played.gap(default_gate.ORACLE, default_gate.TUNED).mean() > 0
    assert played.gap(default_gate.TUNED, CASCADE).mean() > 0


def test_the_command_prints_the_criteria_and_its_exit_code_is_the_verdict(
    recorded: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(recorded.parent)
    monkeypatch.setattr(default_gate, "POOLS", 2)
    code = called(["eval", "outcomes:board.jsonl"])
    out, progress = capsys.readouterr()
    assert code == (0 if out.startswith("**trinity passes**") else 3)
    assert "| 1. ahead of the cascade |" in out and "| 4. ahead of a random order |" in out
    assert "board: pool 2 of 2" in progress


def test_a_table_of_skills_that_cannot_be_read_is_refused(
    recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called(["eval", f"outcomes:{recorded}", "--skills", str(recorded)]) == 1
    assert "not a table of skills" in capsys.readouterr().err
