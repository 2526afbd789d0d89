"""The numbers of an evaluation: each arm, every pair of arms, turns by agent and role.

Pure: rows in, values out. `report.py` makes a report of them. Knows nothing of how a row was made.
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
"""A task and a seed: what arms are paired by."""


@dataclass(frozen=True)
class ArmSummary:
    """One arm: `solved` of all its tries; costs are means a try, `usd` and `seconds` (of model
    calls) with their intervals. `once`: no task was tried twice."""

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
    """Two arms on the tasks and seeds that both were run on. `difference` is the second's mean cost
    less the first's: USD where the pool has prices, else seconds of model calls."""

    first: str
    second: str
    paired: PairedCounts
    difference: Mean


@dataclass(frozen=True)
class EvaluationSummary:
    """The results of an evaluation. `priced`: costs are money, else seconds. `uses` counts turns by
    arm, agent and role. `oracle` is the share of tasks that at least one agent solved alone, if
    there are several agents.
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
    priced = any(row.usd for own in by_arm.values() for row in own)
    return EvaluationSummary(
        priced=priced,
        arms=tuple(_arm(name, own, sources) for name, own in by_arm.items()),
        pairs=tuple(
            _pair(first, second, by_arm, priced=priced) for first, second in _compared(list(by_arm))
        ),
        uses={name: _uses(own) for name, own in by_arm.items()},
        oracle=_oracle(by_arm),
    )


MOST_COMPARED = 5
"""Arms of which every two are compared; of more, each with the first."""


def _compared(arms: Sequence[str]) -> list[tuple[str, str]]:
    return [
        (first, second)
        for first, second in combinations(arms, 2)
        if len(arms) <= MOST_COMPARED or first == arms[0]
    ]


def _key(row: RolloutOutcome) -> TaskAndSeed:
    return row.task, row.seed


def _arm(name: str, rows: Sequence[RolloutOutcome], sources: Mapping[str, str]) -> ArmSummary:
    solved_by_source: dict[str, tuple[int, int]] = {}
    for source in dict.fromkeys(sources.values()):
        own = [row.ok for row in rows if sources[row.task] == source]
        if own:
            solved_by_source[source] = sum(own), len(own)
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
    by_task: dict[str, list[bool]] = defaultdict(list)
    for task, ok in tries:
        by_task[task].append(ok)
    return wilson_repeated(list(by_task.values()))


def _over_tasks(rows: Sequence[RolloutOutcome], values: Sequence[float]) -> Mean:
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
        before, after = first_rows[key], second_rows[key]
        difference = (
            after.usd - before.usd if priced else after.model_seconds - before.model_seconds
        )
        differences[key[0]].append(difference)
    return ArmPair(first, second, paired, bootstrap(list(differences.values())))


def _uses(rows: Sequence[RolloutOutcome]) -> dict[tuple[str, str], int]:
    total: dict[tuple[str, str], int] = defaultdict(int)
    for row in rows:
        for use in row.uses:
            total[use.agent, use.role] += use.turns
    return dict(total)


def _oracle(by_arm: Mapping[str, Sequence[RolloutOutcome]]) -> Proportion | None:
    singles = [
        {_key(row): row.ok for row in own}
        for name, own in by_arm.items()
        if name.startswith("single:")
    ]
    if len(singles) < 2:
        return None
    common = set.intersection(*(set(single) for single in singles))
    return _solved((key[0], any(single[key] for single in singles)) for key in common)
