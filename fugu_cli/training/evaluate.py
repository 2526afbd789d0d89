"""What a head is worth: the policy it makes, followed in expectation over the tasks of a pass matrix.

Held-out tasks only, beside every single row, the cascade, a random choice and the oracle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean

from fugu_cli.coordinators.svf import Vector
from fugu_cli.statistics import Mean, bootstrap
from fugu_cli.training.matrix import TaskRates
from fugu_cli.training.values import Choose, History, Outcome, Terms, always, best, cascade, chance, follow

See = Callable[[TaskRates, History], Vector]
"""The hidden state (width,) of the transcript in which these rows have failed on this task."""


@dataclass(frozen=True)
class Line:
    """One policy over all tasks: share solved with its 95 % interval, relative cost and Worker turns per task."""

    name: str
    solved: Mean
    cost: float
    turns: float


def learned(head: Vector, rows: int, see: See) -> Choose:
    """The policy of a head: the row with the highest logit."""
    return lambda task, history: int((head[:rows] @ see(task, history)).argmax())


def summary(name: str, outcomes: Sequence[Outcome]) -> Line:
    """Means over tasks, and how sure the first is."""
    return Line(
        name,
        bootstrap([[outcome.solved] for outcome in outcomes]),
        mean(outcome.cost for outcome in outcomes),
        mean(outcome.turns for outcome in outcomes),
    )


def baselines(tasks: Sequence[TaskRates], names: Sequence[str], terms: Terms) -> list[Line]:
    """Every single row in the loop, the cascade, a uniformly random row at each turn, the oracle."""
    policies: list[tuple[str, Choose]] = [(f"{name} alone", always(row)) for row, name in enumerate(names)]
    policies += [("cascade", cascade)]
    lines = [summary(name, [follow(task, policy, terms.turns) for task in tasks]) for name, policy in policies]
    lines.append(summary("random", [_random(task, (), terms.turns - 1) for task in tasks]))
    lines.append(summary("oracle", [follow(task, best(terms), terms.turns) for task in tasks]))
    return lines


def _random(task: TaskRates, history: History, left: int) -> Outcome:
    """A uniformly random row at every turn, exactly: the mean over all of them."""
    if left == 0:
        return Outcome(0.0, 0.0, 0.0)
    parts = []
    for row in range(len(task.rows)):
        rate, price = chance(task, row, history)
        after = _random(task, (*history, row), left - 1)
        miss = 1 - rate
        parts.append((rate + miss * after.solved, price + miss * after.cost, 1 + miss * after.turns))
    return Outcome(*(mean(values) for values in zip(*parts, strict=True)))


def table(lines: Sequence[Line]) -> str:
    """The lines as a Markdown table."""
    rows = [_row(line) for line in lines]
    return "\n".join(["| policy | solved | 95 % | cost | Worker turns |", "|---|---|---|---|---|", *rows])


def _row(line: Line) -> str:
    solved = line.solved
    between = f"{solved.low:.0%} to {solved.high:.0%}"
    return f"| {line.name} | {solved.value:.1%} | {between} | {line.cost:.2f} | {line.turns:.2f} |"
