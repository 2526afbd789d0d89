"""The numbers of an evaluation: each arm, every pair of arms, turns by agent and role.

Computed from the rows that `runner.py` wrote; `report.py` makes a report of them. Reads and writes
no files.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean

from fugu_cli.training.evaluation.intervals import (
    Mean,
    PairedCounts,
    Proportion,
    bootstrap,
    mcnemar,
    wilson_repeated,
)
from fugu_cli.training.evaluation.rollout import RolloutOutcome

TaskAndSeed = tuple[str, int]
"""A task and a seed, by which the rows of two arms are paired."""


@dataclass(frozen=True)
class ArmSummary:
    """The results of one arm.

    Costs, tokens, calls and turns are means per try. `seconds` are those of model calls, `wall` the
    whole time of a try. `wrongly` counts accepted tries that solved nothing. `by_source` has for
    each suite the solved tries and all tries. With `once`, no task was tried twice.
    """

    name: str
    solved: Proportion
    usd: Mean
    seconds: Mean
    wall: float
    tokens_in: float
    tokens_out: float
    calls: float
    turns: float
    accepted: int
    wrongly: int
    by_source: Mapping[str, tuple[int, int]]
    once: bool


@dataclass(frozen=True)
class ArmPair:
    """Two arms on the tasks and seeds that both were run on.

    `difference` is the mean cost of the second less that of the first: in USD if the pool has
    prices, else in seconds of model calls.
    """

    first: str
    second: str
    paired: PairedCounts
    difference: Mean


@dataclass(frozen=True)
class EvaluationSummary:
    """The results of an evaluation.

    If `priced`, costs are in USD, else in seconds. `uses` has for each arm the turns by agent and
    role. `oracle` is the share of tasks that at least one agent solved alone; None if fewer than
    two agents worked alone.
    """

    priced: bool
    arms: tuple[ArmSummary, ...]
    pairs: tuple[ArmPair, ...]
    uses: Mapping[str, Mapping[tuple[str, str], int]]
    oracle: Proportion | None


def summarise(rows: Sequence[RolloutOutcome], sources: Mapping[str, str]) -> EvaluationSummary:
    """Summarise the rows whose task is in `sources` (task id -> suite). Arms stay in the order of
    the rows.
    """
    by_arm: dict[str, list[RolloutOutcome]] = defaultdict(list)
    for row in rows:
        if row.task in sources:
            by_arm[row.arm].append(row)
    priced = any(row.usd for row in rows if row.task in sources)
    arms = list(by_arm)
    if len(arms) <= MOST_COMPARED:
        compared = list(combinations(arms, 2))
    else:
        compared = [(arms[0], arm) for arm in arms[1:]]
    return EvaluationSummary(
        priced=priced,
        arms=tuple(_arm(name, own_rows, sources) for name, own_rows in by_arm.items()),
        pairs=tuple(_pair(first, second, by_arm, priced=priced) for first, second in compared),
        uses={name: _uses(own_rows) for name, own_rows in by_arm.items()},
        oracle=_oracle(by_arm),
    )


MOST_COMPARED = 5
"""Up to so many arms, every two are compared; of more arms, each is compared with the first."""


def _key(row: RolloutOutcome) -> TaskAndSeed:
    return row.task, row.seed


def _arm(name: str, rows: Sequence[RolloutOutcome], sources: Mapping[str, str]) -> ArmSummary:
    solved_by_source: dict[str, tuple[int, int]] = {}
    for source in dict.fromkeys(sources.values()):
        outcomes = [row.ok for row in rows if sources[row.task] == source]
        if outcomes:
            solved_by_source[source] = sum(outcomes), len(outcomes)
    return ArmSummary(
        name=name,
        solved=_solved((row.task, row.ok) for row in rows),
        usd=_over_tasks(rows, [row.usd for row in rows]),
        seconds=_over_tasks(rows, [row.model_seconds for row in rows]),
        wall=fmean(row.seconds for row in rows),
        tokens_in=fmean(row.input for row in rows),
        tokens_out=fmean(row.output for row in rows),
        calls=fmean(row.calls for row in rows),
        turns=fmean(row.turns for row in rows),
        accepted=sum(row.accepted for row in rows),
        wrongly=sum(row.accepted and not row.ok for row in rows),
        by_source=solved_by_source,
        once=len({row.task for row in rows}) == len(rows),
    )


def _solved(tries: Iterable[tuple[str, bool]]) -> Proportion:
    """Return the solved share of tries, each a task and its outcome."""
    by_task: dict[str, list[bool]] = defaultdict(list)
    for task, ok in tries:
        by_task[task].append(ok)
    return wilson_repeated(list(by_task.values()))


def _over_tasks(rows: Sequence[RolloutOutcome], values: Sequence[float]) -> Mean:
    """Return the mean over tasks of `values`, one value for each row."""
    groups: dict[str, list[float]] = defaultdict(list)
    for row, value in zip(rows, values, strict=True):
        groups[row.task].append(value)
    return bootstrap(list(groups.values()))


def _pair(
    first: str,
    second: str,
    by_arm: Mapping[str, Sequence[RolloutOutcome]],
    *,
    priced: bool,
) -> ArmPair:
    first_rows = {_key(row): row for row in by_arm[first]}
    second_rows = {_key(row): row for row in by_arm[second]}
    common = [key for key in first_rows if key in second_rows]
    first_solved = {key: first_rows[key].ok for key in common}
    second_solved = {key: second_rows[key].ok for key in common}
    paired = mcnemar(first_solved, second_solved, task=lambda key: key[0])
    differences: dict[str, list[float]] = defaultdict(list)
    for key in common:
        first_row, second_row = first_rows[key], second_rows[key]
        if priced:
            difference = second_row.usd - first_row.usd
        else:
            difference = second_row.model_seconds - first_row.model_seconds
        differences[first_row.task].append(difference)
    return ArmPair(first, second, paired, bootstrap(list(differences.values())))


def _uses(rows: Sequence[RolloutOutcome]) -> dict[tuple[str, str], int]:
    total: dict[tuple[str, str], int] = defaultdict(int)
    for row in rows:
        for use in row.uses:
            total[use.agent, use.role] += use.turns
    return dict(total)


def _oracle(by_arm: Mapping[str, Sequence[RolloutOutcome]]) -> Proportion | None:
    singles = []
    for name, rows in by_arm.items():
        if name.startswith("single:"):
            singles.append({_key(row): row.ok for row in rows})
    if len(singles) < 2:
        return None
    common = set.intersection(*map(set, singles))
    tries = []
    for key in common:
        task, _ = key
        tries.append((task, any(single[key] for single in singles)))
    return _solved(tries)
