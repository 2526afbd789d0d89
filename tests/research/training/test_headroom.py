"""A pass matrix says whether routing can pay, without taking luck for skill."""

import random

import pytest

from fugu_cli.training.evaluation.intervals import Mean
from fugu_cli.training.pass_matrix import MatrixCell, headroom, headroom_report


def cell(task: str, agent: str, repeat: int, cost: float, *, ok: bool = True) -> MatrixCell:
    return MatrixCell(task=task, agent=agent, repeat=repeat, ok=ok, seconds=cost, prompt="")


def draws(table: dict[str, dict[str, list[int]]], costs: dict[str, float]) -> list[MatrixCell]:
    return [
        cell(task, agent, repeat, costs[agent], ok=bool(ok))
        for task, row in table.items()
        for agent, oks in row.items()
        for repeat, ok in enumerate(oks)
    ]


def test_agents_that_are_good_at_different_tasks_leave_headroom() -> None:
    table = {f"t{n}": {"a": [n % 2] * 4, "b": [1 - n % 2] * 4} for n in range(20)}
    found = headroom(draws(table, {"a": 1.0, "b": 1.0}), "USD")
    all_twenty = Mean(
        1, pytest.approx(20 / (20 + 1.96**2), abs=1e-4), 1
    )  # Wilson's, closed form for all of n
    assert (found.oracle, found.fair, found.disagreement) == (all_twenty, all_twenty, 1.0)
    assert found.headroom.value == pytest.approx(0.5)
    assert found.pays
    assert "Routing can pay" in headroom_report(found)


def test_luck_is_no_headroom_where_there_are_repeats() -> None:
    luck = random.Random(3)
    table = {
        f"t{n}": {a: [luck.random() < 0.5 for _ in range(4)] for a in ("a", "b", "c")}
        for n in range(60)
    }
    found = headroom(draws(table, {"a": 1.0, "b": 1.0, "c": 1.0}), "USD")  # type: ignore[arg-type]
    assert found.oracle.value > 0.65
    assert found.fair is not None
    assert found.fair.value < 0.58
    assert not found.pays
    assert "Routing cannot pay" in headroom_report(found)


def test_the_order_of_the_agents_changes_nothing() -> None:
    luck = random.Random(0)
    rates = {"cheap": 0.5, "strong": 0.8}
    table = {
        f"t{n}": {a: [int(luck.random() < rate) for _ in range(2)] for a, rate in rates.items()}
        for n in range(80)
    }
    turned = {task: dict(reversed(row.items())) for task, row in table.items()}
    found, again = (
        headroom(draws(rows, {"cheap": 1.0, "strong": 2.0}), "USD") for rows in (table, turned)
    )
    assert (found.fair, found.headroom) == (again.fair, again.headroom)
    assert found.fair is not None
    assert found.fair.value == pytest.approx(0.6875)  # ties go to the strong one


def test_one_run_each_is_told_apart_from_proof() -> None:
    table = {f"t{n}": {"a": [n % 2], "b": [1 - n % 2]} for n in range(20)}
    found = headroom(draws(table, {"a": 1.0, "b": 1.0}), "USD")
    assert found.fair is None
    assert "luck looks like skill" in headroom_report(found)


def test_a_cheap_agent_that_is_nearly_as_good_can_save_money() -> None:
    table = {f"t{n}": {"small": [n % 4 > 0] * 2, "big": [1, 1]} for n in range(12)}
    found = headroom(draws(table, {"small": 0.01, "big": 1.0}), "USD")  # type: ignore[arg-type]
    assert (found.best, found.cheaper, found.pays) == ("big", "small", False)
    assert "It can save money: small costs less than half" in headroom_report(found)
    assert "| small | 75.0% | 46.8% to 91.1% | 0.01 |" in headroom_report(found)


def test_few_tasks_that_all_say_the_same_prove_nothing_and_many_do() -> None:
    few, many = (
        {f"t{n}": {"a": [1] * 2, "b": [1] * 2} for n in range(count)} for count in (4, 100)
    )
    found = headroom(draws(few, {"a": 1.0, "b": 1.0}), "USD")
    assert found.headroom == Mean(
        0, pytest.approx(-0.4899, abs=1e-4), pytest.approx(0.4899, abs=1e-4)
    )
    assert "They are too few to rule it out." in headroom_report(found)
    assert "Routing cannot pay on these tasks" in headroom_report(
        headroom(draws(many, {"a": 1.0, "b": 1.0}), "USD")
    )


def test_tasks_that_not_everybody_was_run_on_do_not_count() -> None:
    table = {"t0": {"a": [1], "b": [0]}, "t1": {"a": [1]}}
    found = headroom([*draws(table, {"a": 1.0, "b": 1.0}), cell("t1", "a", 1, 100.0)], "s")
    assert (found.tasks, found.agents) == (1, {"a": (1, 1.0), "b": (0, 1.0)})
    with pytest.raises(ValueError, match="no task was run with every agent"):
        headroom([cell("t0", "a", 0, 1.0), cell("t1", "b", 0, 1.0)], "s")
