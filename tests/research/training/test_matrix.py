"""The pass matrix: rates from draws, what several attempts make of them, and what a turn is
worth.
"""

import json
from pathlib import Path

import pytest

from fugu_cli.errors import ConfigError
from fugu_cli.training.evaluation.intervals import wilson_of_mean
from fugu_cli.training.pass_matrix import (
    HeadRow,
    MatrixCell,
    PolicyOutcome,
    RowRates,
    TaskRates,
    ValueSettings,
    cascade_policy,
    fixed_policy,
    follow_policy,
    oracle_policy,
    pass_rates,
    read_matrix,
    row_values,
    softmax,
    turn_rate_and_cost,
)
from fugu_cli.training.sft import PolicySummary, policy_baselines, policy_summary, policy_table

HALF = TaskRates("t", "fix", (RowRates(0.5, 0.5, 1.0, 1.0), RowRates(0.2, 0.2, 0.1, 0.1)))


def cell(agent: str, task: str, repeat: int, *, ok: bool, seconds: float = 2.0) -> MatrixCell:
    return MatrixCell(
        task=task, agent=agent, repeat=repeat, ok=ok, seconds=seconds, prompt=f"fix {task}"
    )


def test_one_draw_is_the_greedy_answer_and_later_turns_are_sampled() -> None:
    cells = [cell("a", "t", 0, ok=True), *[cell("a", "t", n, ok=n == 1) for n in range(1, 5)]]
    found = pass_rates(cells, [HeadRow("middle", "a")])
    each = (2 + 0.4) / 6
    assert found == (
        TaskRates("t", "fix t", (RowRates(1.0, pytest.approx(each), 1.0, 1.0, (1.0, 1.0), "a"),)),
    )


def test_several_attempts_end_with_the_first_success() -> None:
    cells = [cell("a", "t", 0, ok=False), *[cell("a", "t", n, ok=n <= 2) for n in range(1, 5)]]
    found = pass_rates(cells, [HeadRow("strong", "a", 3)])[0].rows[0]
    assert found.first == pytest.approx(1 - 0.6**2)
    assert found.again == pytest.approx(1 - 0.6**3)
    assert found.again_cost == pytest.approx(found.first_cost * (1 + 0.6 + 0.36) / (1 + 1 + 0.6))


def test_a_few_draws_are_drawn_towards_the_agents_mean() -> None:
    cells = [cell("a", task, n, ok=task == "easy") for task in ("easy", "hard") for n in range(3)]
    found = {task.task: task.rows[0].again for task in pass_rates(cells, [HeadRow("middle", "a")])}
    assert found == {"easy": pytest.approx(3.5 / 4), "hard": pytest.approx(0.5 / 4)}


def test_only_tasks_that_every_agent_tried_count() -> None:
    cells = [cell("a", "x", 0, ok=True), cell("a", "y", 0, ok=True), cell("b", "y", 0, ok=False)]
    assert [
        task.task for task in pass_rates(cells, [HeadRow("cheap", "b"), HeadRow("strong", "a")])
    ] == ["y"]
    with pytest.raises(
        ConfigError,
        match="no task was measured with every agent asked for; the matrix has rows of a, b",
    ):
        pass_rates(cells, [HeadRow("cheap", "c")])


def test_costs_are_relative_to_the_dearest_row() -> None:
    cells = [cell("a", "t", 0, ok=True, seconds=2.0), cell("b", "t", 0, ok=True, seconds=8.0)]
    assert [
        rate.first_cost
        for rate in pass_rates(cells, [HeadRow("cheap", "a"), HeadRow("strong", "b")])[0].rows
    ] == [
        0.25,
        1.0,
    ]


def test_rows_are_read_and_the_newest_of_a_cell_counts(tmp_path: Path) -> None:
    rows = [{**cell("a", "t", 0, ok=ok).model_dump(), "reply": "x"} for ok in (False, True)]
    path = tmp_path / "m.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows) + '\n{"task": "cut')
    assert read_matrix(path) == [cell("a", "t", 0, ok=True)]


def test_a_line_that_is_no_row_is_named(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text('{"task": 1}\n' + cell("a", "t", 0, ok=True).model_dump_json() + "\n")
    with pytest.raises(ConfigError, match=r"m\.jsonl:1: not a row of a pass matrix"):
        read_matrix(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_matrix(tmp_path / "none")


def test_a_turn_is_worth_its_rate_its_cost_and_what_follows_a_failure() -> None:
    last = row_values(HALF, (0, 0), ValueSettings(turns=4, cost=0.1))
    assert last == (pytest.approx(0.4), pytest.approx(0.19))
    before = row_values(HALF, (0,), ValueSettings(turns=4, cost=0.1))
    assert before == (pytest.approx(0.4 + 0.5 * 0.4), pytest.approx(0.19 + 0.8 * 0.4))
    assert row_values(HALF, (0, 0, 0), ValueSettings(turns=4)) == (0.0, 0.0)


def test_a_row_that_failed_draws_again() -> None:
    task = TaskRates("t", "", (RowRates(1.0, 0.3, 1.0, 2.0),))
    assert [turn_rate_and_cost(task, 0, ()), turn_rate_and_cost(task, 0, (0,))] == [
        (1.0, 1.0),
        (0.3, 2.0),
    ]


def test_a_model_goes_on_in_another_row_and_begins_with_the_second_draw_after_another_model() -> (
    None
):
    cells = [
        cell("a", "t", 0, ok=True),
        cell("a", "t", 1, ok=False),
        cell("b", "t", 0, ok=False),
        cell("b", "t", 1, ok=True),
    ]
    (task,) = pass_rates(
        cells, [HeadRow("cheap", "a"), HeadRow("middle", "b"), HeadRow("strong", "b", 2)], prior=0.0
    )
    assert [
        turn_rate_and_cost(task, 1, history)[0] for history in ((), (0,), (1,), (2,), (0, 2))
    ] == [
        0.0,
        1.0,
        0.5,
        0.5,
        0.5,
    ]
    assert [turn_rate_and_cost(task, 2, history)[0] for history in ((), (0,), (1,))] == [
        0.5,
        1.0,
        0.75,
    ]
    assert turn_rate_and_cost(task, 0, (1,)) == (0.0, 0.5), (
        "its second draw; the dearest row takes two"
    )


def test_soft_targets_sum_to_one_and_harden_with_tau() -> None:
    assert sum(softmax((0.1, 0.5, 0.2), 0.1)) == pytest.approx(1)
    assert softmax((0.1, 0.5), 0.001) == (pytest.approx(0, abs=1e-9), pytest.approx(1))


def test_policies_are_followed_in_expectation() -> None:
    assert follow_policy(HALF, fixed_policy(0), 4) == PolicyOutcome(0.875, 1.75, 1.75)
    assert follow_policy(HALF, cascade_policy, 3).solved == pytest.approx(0.5 + 0.5 * 0.2)
    assert follow_policy(
        HALF, oracle_policy(ValueSettings(turns=3, cost=10.0)), 3
    ).cost == pytest.approx(0.1 + 0.8 * 0.1)


def test_the_baselines_are_every_row_the_cascade_random_and_the_oracle() -> None:
    lines = policy_baselines([HALF], ["dear", "cheap"], ValueSettings(turns=2, cost=0.0))
    sure, seldom = wilson_of_mean([0.5]), wilson_of_mean([0.2])
    assert [line for line in lines if line.name != "random"] == [
        PolicySummary("dear alone", sure, 1.0, 1.0),
        PolicySummary("cheap alone", seldom, 0.1, 1.0),
        PolicySummary("cascade", sure, 1.0, 1.0),
        PolicySummary("oracle", sure, 1.0, 1.0),
    ]
    drawn = lines[3]
    assert (drawn.name, drawn.solved.value, drawn.cost) == (
        "random",
        pytest.approx(0.35),
        pytest.approx(0.55),
    )
    assert policy_table(lines).splitlines()[2] == "| dear alone | 50.0% | 5% to 95% | 1.00 | 1.00 |"
    mixed = policy_summary(
        "both", [PolicyOutcome(1.0, 1.0, 1.0), PolicyOutcome(0.0, 1.0, 1.0)] * 10
    )
    assert 0.2 < mixed.solved.low < 0.4 < mixed.solved.value < 0.6 < mixed.solved.high < 0.8
    four = policy_summary("all solved", [PolicyOutcome(1.0, 1.0, 1.0)] * 4).solved
    assert (four.value, round(four.low, 2), four.high) == (1.0, 0.51, 1.0)
