"""What the gate rests on, beside the tables of `fugu eval outcomes:FILE`, for
results/outcome-replay.md. No model is needed.

    python tests/benchmarks/gate_limit.py lists FILE --model A --model B --model C
    python tests/benchmarks/gate_limit.py held FILE --model A --model B --model C
    python tests/benchmarks/gate_limit.py cached FILE --model A --model B --model C

`lists`: can anything pass that is not told how good the check is? Plays every fixed list of up to
four models, the same in all cells, and counts where it fails: chosen with hindsight, so no
coordinator without that knowledge does better but by luck. `held`: the list tuned on other tasks
beside the one tuned on other categories (or repositories), and the oracle that chooses by other
runs than it is judged by. `cached`: dollars with prompt caches, where tokens were recorded. A run
sends a prompt that grows evenly, and what was sent before is read at a tenth of the price; an agent
that comes back finds its own earlier prompt there, another one reads all of it at full price, and
both read it again at every turn.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

from fugu_cli.config.known_models import vendor_of
from fugu_cli.coordinators.rules import Cascade
from fugu_cli.training.evaluation import outcome_replay
from fugu_cli.training.evaluation.intervals import bootstrap
from fugu_cli.training.evaluation.outcome_replay import (
    BUDGETS,
    CHECKS,
    DRAWS,
    FOLDS,
    PRICE_OF_COST,
    SETTINGS,
    TURNS,
    ArmResult,
    CellResult,
    OutcomeLimits,
    OutcomeRun,
    OutcomeTask,
    TaskDraw,
)

CACHED = 0.1
"""Price of a token that is read from a prompt cache, in tokens that are not."""
WRITTEN = 5
"""Price of a token that is written."""


@dataclass(frozen=True)
class CachedRun(OutcomeRun):
    """`cost` with a prompt cache. `context`: tokens of its last prompt; `price`: USD for one that
    is not cached.
    """

    context: float = 0.0
    price: float = 0.0
    turns: int = 1


def cached(run: Mapping[str, Any]) -> CachedRun:
    """A recorded run as it would have been with a cache. A prompt that grows evenly over n turns is
    read in full once: 2 / (n + 1) of all its tokens."""
    tokens, turns = run["in"], max(run["turns"], 1)
    price = run["cost"] / ((tokens + WRITTEN * run["out"]) or 1)
    context = 2 * tokens / (turns + 1)
    paid = context + CACHED * (tokens - context) + WRITTEN * run["out"]
    return CachedRun(bool(run["ok"]), price * paid, context, price, turns)


def carried(draw: TaskDraw, failed: tuple[str, ...], name: str) -> float:
    """What it costs to read what was done before: from the cache where it is the agent's own."""
    own = draw.runs[name]
    run = own[failed.count(name) % len(own)]
    assert isinstance(run, CachedRun)
    total = 0.0
    for place, other in enumerate(failed):
        before = draw.runs[other][failed[:place].count(other) % len(draw.runs[other])]
        assert isinstance(before, CachedRun)
        first = CACHED if other == name else 1.0
        total += run.price * before.context * (first + CACHED * (run.turns - 1))
    return total


@dataclass(frozen=True)
class Pool:
    """The draws of a file's tasks, what a run of each model costs, and the fold of each task's
    category.
    """

    tasks: Sequence[OutcomeTask]
    draws: Sequence[Sequence[TaskDraw]]
    costs: Mapping[str, float]
    folds: Sequence[int]

    def limits(self, check: tuple[float, float], budget: float) -> OutcomeLimits:
        return OutcomeLimits(check, budget * max(self.costs.values()), self.costs)


def read(file: Path, models: Sequence[str]) -> tuple[Pool, dict[str, dict[str, Any]]]:
    """The pool, and the rows as they were recorded."""
    tasks = outcome_replay.read_outcomes(file, models)
    rows = {
        row["id"]: row for row in map(json.loads, gzip.decompress(file.read_bytes()).splitlines())
    }
    groups = [
        rows[task.id].get("category") or rows[task.id].get("repo") or task.id for task in tasks
    ]
    fold_of = {group: place % FOLDS for place, group in enumerate(sorted(set(groups)))}
    return pool_of(tasks, [fold_of[group] for group in groups]), rows


def pool_of(tasks: Sequence[OutcomeTask], folds: Sequence[int]) -> Pool:
    """Every task drawn as `fugu eval outcomes:FILE` draws it."""
    costs = {
        name: mean(run.cost for task in tasks for run in task.runs[name]) for name in tasks[0].runs
    }
    return Pool(
        tasks,
        [[outcome_replay.draw_of(task, draw) for draw in range(DRAWS)] for task in tasks],
        costs,
        folds,
    )


def lists(pool: Pool, _rows: Mapping[str, Any]) -> None:
    """The lists that fail in the fewest cells."""
    unit = max(pool.costs.values())
    cells: list[tuple[tuple[float, float], float, dict[tuple[str, ...], ArmResult], ArmResult]] = []
    for check in CHECKS:
        for budget in BUDGETS:
            limits = pool.limits(check, budget)
            chance = outcome_replay.played(
                "", lambda draw: outcome_replay.in_order(draw.order), pool.draws, limits
            )
            cells.append((check, budget, outcome_replay.every_list(pool.draws, limits), chance))
    counts = {}
    for order in cells[0][2]:
        found = [
            CellResult(
                check,
                budget,
                unit,
                {"it": every[order], "random order": chance},
                list(every.values()),
            )
            for check, budget, every, chance in cells
        ]
        counts[order] = len(outcome_replay.gate_failures("it", found))
    print(f"{len(counts)} lists; fewest failures:")
    for order, count in sorted(counts.items(), key=lambda one: one[1])[:5]:
        print(f"- {count}: {' > '.join(order)}")


def held(pool: Pool, _rows: Mapping[str, Any]) -> None:
    """Solved and spent by the list tuned on other tasks and on other categories, and by both
    oracles.
    """
    print(
        "| check, budget | tuned, tasks held out | categories held out | oracle | oracle after "
        "luck |\n"
        "|---|---|---|---|---|"
    )
    for check in (CHECKS[0], CHECKS[2]):
        for budget in BUDGETS:
            limits = pool.limits(check, budget)
            every = list(outcome_replay.every_list(pool.draws, limits).values())
            ways = [
                outcome_replay.tuned("", every),
                outcome_replay.tuned("", every, folds=pool.folds),
            ]
            ways += [
                outcome_replay.played("", _oracle(limits, first), pool.draws, limits)
                for first in (True, False)
            ]
            print(f"| {_where(check, limits.budget)} | " + " | ".join(map(_shown, ways)) + " |")


def _oracle(limits: OutcomeLimits, first: bool) -> outcome_replay.Arm:
    """The cheapest model whose first run is right; or, after luck, the one whose other runs are
    right most often.
    """

    def choose(draw: TaskDraw) -> outcome_replay.NextModel:
        order = sorted(
            (name for name, cost in limits.costs.items() if cost <= limits.budget),
            key=limits.costs.get,
        )
        judged = {
            name: draw.runs[name][:1] if first else draw.runs[name][1:] or draw.runs[name]
            for name in order
        }
        share = {name: mean(run.ok for run in runs) for name, runs in judged.items()}
        best = max(order, key=lambda name: (share[name], -order.index(name)), default=None)
        return outcome_replay.in_order([best] if best else [])

    return choose


def with_cache(pool: Pool, rows: Mapping[str, Any]) -> None:
    """Every way's reward against the list tuned for it, at the recorded costs and with a cache."""
    tasks = [
        OutcomeTask(
            task.id,
            {
                name: tuple(map(cached, rows[task.id]["outcomes"][name]["runs"]))
                for name in task.runs
            },
        )
        for task in pool.tasks
    ]
    print(
        "| costs, check, budget | tuned list | cascade | the same again | random order "
        "|\n|---|---|---|---|---|"
    )
    for title, own in (("recorded", pool), ("with a cache", pool_of(tasks, pool.folds))):
        members = outcome_replay.members_of(
            own.tasks, {name: vendor_of(name) for name in own.costs}
        )
        cascade = outcome_replay.DecidedByLog(Cascade(members, SETTINGS), members)
        for check in (CHECKS[0], CHECKS[2]):
            for budget in BUDGETS:
                limits = own.limits(check, budget)
                if title != "recorded":
                    limits = replace(limits, carried=carried)
                unit = max(own.costs.values())
                every = outcome_replay.every_list(own.draws, limits)
                best = outcome_replay.tuned("", list(every.values()), PRICE_OF_COST / unit)
                ways = [
                    outcome_replay.played("", cascade.on, own.draws, limits),
                    outcome_replay.tuned(
                        "", [every[(name,) * TURNS] for name in own.costs], PRICE_OF_COST / unit
                    ),
                    outcome_replay.played(
                        "", lambda draw: outcome_replay.in_order(draw.order), own.draws, limits
                    ),
                ]
                print(
                    f"| {title}: {_where(check, limits.budget)} | {_shown(best)} | "
                    + " | ".join(f"{_shown(way)}, {_gap(way, best, unit)}" for way in ways)
                    + " |"
                )


def _where(check: tuple[float, float], budget: float) -> str:
    return f"{check[0]:.0%}/{check[1]:.0%}, ${budget:.2f}"


def _shown(way: ArmResult) -> str:
    return f"{mean(way.solved):.1%}, ${mean(way.cost):.3f}"


def _gap(way: ArmResult, best: ArmResult, unit: float) -> str:
    """In points of reward, with a 95 % interval."""
    rewards = [
        [ok - PRICE_OF_COST * cost / unit for ok, cost in zip(one.solved, one.cost, strict=True)]
        for one in (way, best)
    ]
    found = bootstrap([[a - b] for a, b in zip(*rewards, strict=True)])
    return f"{100 * found.value:+.1f} [{100 * found.low:+.1f}, {100 * found.high:+.1f}]"


def main() -> None:
    """One of the three."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    studies = {"lists": lists, "held": held, "cached": with_cache}
    parser.add_argument("study", choices=studies)
    parser.add_argument("file", type=Path)
    parser.add_argument("--model", action="append", required=True)
    asked = parser.parse_args()
    studies[asked.study](*read(asked.file, asked.model))


if __name__ == "__main__":
    main()
