"""Recorded outcomes: what strong models did on real issues, as cases for replay."""

from __future__ import annotations

import gzip
import math
import random
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from pydantic import BaseModel, ConfigDict, ValidationError

from fugu_cli.errors import ConfigError
from fugu_cli.training.pass_matrix import RowRates, TaskRates

UNPRICED = 1.0


class RecordedRun(BaseModel):
    """One model on one issue. `cost` in USD and `calls` are None where they were not recorded."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    ok: bool
    cost: float | None = None
    calls: int | None = None


class Issue(BaseModel):
    """One line."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: str
    repo: str = ""
    text: str
    outcomes: Mapping[str, RecordedRun]


@dataclass(frozen=True)
class ReplayCase:
    """An issue as it is replayed: rates and relative costs by row, the model calls each row made
    (0: not recorded), and the group that a split never divides. `empty` rows have nobody; `looped`
    tasks were worked on in fugu's own loop."""

    task: TaskRates
    group: str
    calls: tuple[int, ...] = ()
    empty: frozenset[int] = frozenset()
    looped: bool = False


@dataclass(frozen=True)
class OutcomePool:
    """A model for each row, and what one run of it costs where that was not recorded. `unit` is the
    cost that counts as 1: the mean run of the dearest."""

    models: tuple[str | None, ...]
    prices: tuple[float, ...]
    unit: float


def read_issues(path: Path) -> list[Issue]:
    """The issues of a file. Raises ConfigError naming the line that is none."""
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode("utf-8")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: the outcomes cannot be read: {error}") from error
    issues = []
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            issues.append(Issue.model_validate_json(line))
        except ValidationError as error:
            raise ConfigError(
                f"{path}:{number}: not a line of outcomes: {error.errors()[0]['msg']}"
            ) from error
    if not issues:
        raise ConfigError(f"{path}: there are no outcomes in it")
    return issues


def mean_costs(issues: Sequence[Issue]) -> dict[str, float]:
    """The mean recorded cost of a run by model, in USD; models without one are left out."""
    found: dict[str, list[float]] = {}
    for issue in issues:
        for model, result in issue.outcomes.items():
            if result.cost is not None:
                found.setdefault(model, []).append(result.cost)
    return {model: mean(values) for model, values in found.items()}


def random_pool(
    issues: Sequence[Issue], count: int, draw: random.Random, prices: Mapping[str, float]
) -> OutcomePool:
    """A pool of `count` rows drawn at random, cheap ones first; sometimes one row has nobody. Where
    no cost was recorded prices are drawn too: each row up to ten times dearer than the one before
    (pool randomisation). Raises ConfigError for fewer models."""
    rates: dict[str, list[bool]] = {}
    for issue in issues:
        for model, result in issue.outcomes.items():
            rates.setdefault(model, []).append(result.ok)
    if len(rates) < count:
        raise ConfigError(
            f"outcomes of {count} models at least are needed; there are {', '.join(sorted(rates))}"
        )
    chosen = draw.sample(sorted(rates), count)
    recorded = {**mean_costs(issues), **prices}
    if set(chosen) <= set(recorded):
        chosen.sort(key=recorded.__getitem__)
        each = tuple(recorded[model] for model in chosen)
    else:  # who costs more is mostly better, not always
        chosen.sort(key=lambda model: mean(rates[model]) + draw.gauss(0, 0.05))
        steps = [1.0, *(10 ** draw.uniform(0.3, 1) for _ in chosen[1:])]
        each = tuple(math.prod(steps[: place + 1]) for place in range(count))
    models: list[str | None] = list(chosen)
    if draw.random() < 0.15:
        models[draw.randrange(count)] = None
    return OutcomePool(tuple(models), each, max(each))


def pool_cases(issues: Sequence[Issue], pool: OutcomePool) -> list[ReplayCase]:
    """The issues that every model of the pool was run on."""
    wanted = {model for model in pool.models if model is not None}
    return [_case(issue, pool) for issue in issues if wanted <= set(issue.outcomes)]


def _case(issue: Issue, pool: OutcomePool) -> ReplayCase:
    results = [None if model is None else issue.outcomes[model] for model in pool.models]
    rows = tuple(
        _rates(result, price, pool.unit) for result, price in zip(results, pool.prices, strict=True)
    )
    calls = tuple(result.calls or 0 if result else 0 for result in results)
    empty = frozenset(row for row, result in enumerate(results) if result is None)
    return ReplayCase(TaskRates(issue.id, issue.text, rows), issue.repo or issue.id, calls, empty)


def _rates(result: RecordedRun | None, price: float, unit: float) -> RowRates:
    if result is None:
        return RowRates(0.0, 0.0, 0.0, 0.0)
    cost = (price if result.cost is None else result.cost) / unit
    return RowRates(float(result.ok), float(result.ok), cost, cost)
