"""What the frontier of fixed ways asks for: how often somebody who knows the truth holds it, and how often a plan does.

    python tests/benchmarks/replay_limits.py --outcomes FILE

Writes results/replay-limits.md, in some minutes. No text is read and no head learned: this is about the yardstick of
`fugu train replay`, the best fixed way chosen with hindsight, and about what some 200 issues can teach at all. The
recorded outcomes are for measuring only.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from outcome_plans import RIDGE, CallCountPlan, Smoothing, smooth_cases

from fugu_cli.training import fitting, frontier, recorded_outcomes
from fugu_cli.training.frontier import PairedDifference, PolicyScores, paired_difference
from fugu_cli.training.pass_matrix import RowRates
from fugu_cli.training.recorded_outcomes import Issue, ReplayCase
from fugu_cli.training.replay import CheckRates, ReplayRules

MODELS = ("deepseek-v3.2-reasoner", "gpt-5-mini", "gemini-3-pro-preview")
LAMBDAS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.4, 0.8)
FOLDS, TURNS = 5, 4
PATH_ALONE = 1e9
"""A penalty beside which no slope is left: the plan does not see how long the runs were."""
PLANS = {
    "path alone, outcomes as they are": (1.0, PATH_ALONE),
    "path alone, outcomes smoothed": (0.0, PATH_ALONE),
    "path and calls, outcomes as they are": (1.0, RIDGE),
    "path and calls, outcomes half smoothed": (0.5, RIDGE),
    "path and calls, outcomes smoothed": (0.0, RIDGE),
}
CHOSEN = "the fixed way that the training issues choose"
TEMPLATE = Path(__file__).with_suffix(".template.md")
RESULT = Path(__file__).parent / "results" / "replay-limits.md"
Gaps = list[tuple[PairedDifference, PairedDifference]]
"""By lambda: against the best fixed way with hindsight, and against the one that the training issues choose."""


@dataclass(frozen=True)
class Pool:
    """A pool's cases, and every fixed way on them."""

    models: tuple[str, ...]
    cases: list[ReplayCase]
    check: CheckRates

    @property
    def fixed(self) -> list[PolicyScores]:
        """Every single row and every cascade."""
        names = self.models
        return [*frontier.single_policies(self.cases, names), *frontier.cascade_policies(self.cases, names, self.check)]

    @property
    def folds(self) -> list[NDArray[np.bool_]]:
        """As the study divides them: by repository."""
        return fitting.group_folds([case.group for case in self.cases], FOLDS, 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--outcomes", type=Path, required=True)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--pools", type=int, default=24)
    parser.add_argument("--out", type=Path, default=RESULT)
    given = parser.parse_args()
    issues, check = recorded_outcomes.read_issues(given.outcomes), CheckRates(0.95, 0.10)
    own = pool(issues, MODELS, check)
    known = list(told(own, issues, given.draws))
    ladders = drawn(issues, given.pools)
    rows = {
        name: [planned(pool(issues, models, check), issues, *how) for models in ladders] for name, how in PLANS.items()
    }
    chosen = [blind(pool(issues, models, check)) for models in ladders]
    given.out.write_text(page(known, chosen, rows, len(ladders)))


def pool(issues: Sequence[Issue], models: tuple[str, ...], check: CheckRates) -> Pool:
    """The cases of these models."""
    return Pool(models, recorded_outcomes.pool_cases(issues, recorded_outcomes.named_pool(issues, models, {})), check)


def told(own: Pool, issues: Sequence[Issue], draws: int) -> Iterator[list[PairedDifference]]:
    """Somebody who knows how likely each model is to solve each issue follows the fixed way that is truly best for each
    lambda, on as many issues as there are, drawn with their outcomes from that truth: by lambda, against the fixed
    way that is best on what was drawn."""
    truth = replace(own, cases=smooth_cases(own.cases, issues, own.models, Smoothing(trust=0.0)))
    fixed, draw = truth.fixed, np.random.default_rng(0)
    best = [int(np.argmax([arm.reward(price).mean() for arm in fixed])) for price in LAMBDAS]
    for _ in range(draws):
        places = draw.integers(0, len(truth.cases), len(truth.cases))
        here = replace(truth, cases=[ran(truth.cases[place], draw) for place in places]).fixed
        yield [
            paired_difference(here[way].reward(price), frontier.best_fixed(here, price).reward(price))
            for way, price in zip(best, LAMBDAS, strict=True)
        ]


def ran(case: ReplayCase, draw: np.random.Generator) -> ReplayCase:
    """Every model runs once."""
    rows: tuple[RowRates, ...] = tuple(replace(row, first=float(draw.random() < row.first)) for row in case.task.rows)
    return replace(case, task=replace(case.task, rows=rows))


def drawn(issues: Sequence[Issue], count: int) -> list[tuple[str, ...]]:
    """Pools of three that are a ladder: each a third dearer than the one before and right more often, none of them a
    model of the measured pool, the cheapest right on 30 % at least."""
    prices = recorded_outcomes.mean_costs(issues)
    solved = {
        model: float(np.mean([issue.outcomes[model].ok for issue in issues if model in issue.outcomes]))
        for model in prices
    }
    names = sorted((name for name in prices if name not in MODELS), key=prices.__getitem__)
    found = [
        three
        for three in combinations(names, 3)
        if solved[three[0]] > 0.3
        and all(prices[high] > 1.3 * prices[low] and solved[high] > solved[low] + 0.01 for low, high in pairwise(three))
    ]
    random.Random(0).shuffle(found)
    return found[:count]


def planned(here: Pool, issues: Sequence[Issue], trust: float, ridge: float) -> Gaps:
    """A plan of the training issues, followed by somebody who reads paths and calls without error."""
    seen = [
        smooth_cases(
            [case for case, out in zip(here.cases, held, strict=True) if not out],
            issues,
            here.models,
            Smoothing(trust=trust),
        )
        for held in here.folds
    ]
    fixed, found = here.fixed, []
    for price in LAMBDAS:
        solved, cost = np.zeros(len(here.cases)), np.zeros(len(here.cases))
        for held, known in zip(here.folds, seen, strict=True):
            plan = CallCountPlan(known, ReplayRules(here.check, TURNS, 0.0), price, ridge)
            solved[held], cost[held] = plan.followed([case for case, out in zip(here.cases, held, strict=True) if out])
        ours = PolicyScores("plan", solved, cost).reward(price)
        beside = (frontier.best_fixed(fixed, price), frontier.best_fixed_without_hindsight(fixed, here.folds, price))
        first, second = (paired_difference(ours, arm.reward(price)) for arm in beside)
        found.append((first, second))
    return found


def blind(here: Pool) -> Gaps:
    """The fixed way that the training issues choose."""
    fixed, found = here.fixed, []
    for price in LAMBDAS:
        chosen = frontier.best_fixed_without_hindsight(fixed, here.folds, price).reward(price)
        found.append(
            (paired_difference(chosen, frontier.best_fixed(fixed, price).reward(price)), PairedDifference(0.0, 0.0))
        )
    return found


def held(gap: PairedDifference) -> bool:
    """Not behind by more than a standard error."""
    return gap.difference >= -gap.error - 1e-12


def page(known: list[list[PairedDifference]], chosen: list[Gaps], rows: dict[str, list[Gaps]], count: int) -> str:
    """results/replay-limits.md."""
    every = np.array([[held(gap) for gap in gaps] for gaps in known])
    lambdas = [f"{price:g}" for price in LAMBDAS]
    return TEMPLATE.read_text().format(
        lambdas=", ".join(lambdas),
        prices=" | ".join(lambdas),
        rule="---|" * len(LAMBDAS),
        draws=len(known),
        shares=" | ".join(f"{share:.0%}" for share in every.mean(0)),
        all=f"{every.all(1).mean():.0%}",
        pools=count,
        rows="\n".join([row(CHOSEN, chosen), *(row(name, found) for name, found in rows.items())]),
    )


def row(name: str, pools: list[Gaps]) -> str:
    """One line: shares over pools and lambdas."""
    best, fair = (np.array([[held(gaps[part]) for gaps in one] for one in pools]) for part in (0, 1))
    means = [float(np.mean([gaps[part].difference for one in pools for gaps in one])) for part in (0, 1)]
    return (
        f"| {name} | {best.mean():.0%} | {best.all(1).sum()} of {len(pools)} | {means[0]:+.4f} "
        f"| {fair.mean():.0%} | {means[1]:+.4f} |"
    )


if __name__ == "__main__":
    main()
