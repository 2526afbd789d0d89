"""What routing over the embedded pool is worth, from its recorded answers; no task is decided by a
head that saw it.

    python tests/benchmarks/embedded_routing.py --backbone DIR --store DIR

Reads results/embedded-pool/one_pass.jsonl, writes results/embedded-routing.md. No model is asked
for anything but the hidden states of transcripts, which are kept in --store.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from statistics import mean

import numpy as np

from fugu_cli.coordinators import backbone as backbones
from fugu_cli.coordinators.svf import Vector
from fugu_cli.training import fitting, pass_matrix
from fugu_cli.training.evolution import EvolutionSettings
from fugu_cli.training.search import HeadCandidates, HiddenStates
from tests.benchmarks.slots import frontier
from tests.benchmarks.slots.frontier import PolicyScores
from tests.benchmarks.slots.lessons import HeadTrainingSettings, learn_head
from tests.benchmarks.slots.outcomes import ReplayCase
from tests.benchmarks.slots.recipe import (
    EXACT_TESTS,
    REQUEST_TOKENS,
    VERIFIER_COST,
    Mixture,
    MixtureConfig,
    load_mixture,
)
from tests.benchmarks.slots.replay import (
    Replay,
    ReplayRules,
    ReplaySessionWriter,
    TranscriptSettings,
)

RESULTS = Path(__file__).parent / "results"
TABLE = RESULTS / "embedded-pool" / "one_pass.jsonl"
ROWS = ("cheap=small", "middle=coder", "strong=coder*5")
NAMES = ("small", "coder", "coder, up to 5 draws a turn")
PRICES = (0.1, 0.2, 0.3, 0.4, 0.42, 0.44, 0.45, 0.46, 0.5, 0.55, 0.6, 1.0, 2.0)
TURNS, FOLDS, DRAWS = 4, 5, 10_000
Gap = tuple[float, float, float]
HeadOf = Callable[[frozenset[str]], Vector]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backbone", type=Path, required=True)
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument(
        "--lambdas",
        dest="prices",
        type=float,
        nargs="+",
        default=[0.05, 0.1, 0.2, 0.3, 0.4, 0.6, 1, 2],
    )
    parser.add_argument("--iterations", type=int, default=8, help="of the evolution, at most")
    parser.add_argument("--out", type=Path, default=RESULTS / "embedded-routing.md")
    given = parser.parse_args()
    backbone = backbones.load_backbone(given.backbone)
    hidden_states = HiddenStates(backbone, given.store, print)
    learned: dict[float, PolicyScores] = {}
    for price in given.prices:
        course = HeadTrainingSettings(
            price=price,
            settings=EvolutionSettings(population=16, iterations=given.iterations, patience=4),
        )
        blend = MixtureConfig(course=course, turns=TURNS, folds=FOLDS, shown=12)
        mixture, _ = load_mixture(None, TABLE, ROWS, blend, (backbone, hidden_states))
        seats = mixture.made_of.seats
        recorded = pass_matrix.pass_rates(pass_matrix.read_matrix(TABLE), seats, prior=0.0)
        cases = [ReplayCase(task, task.task, looped=True) for task in recorded]
        writer = ReplaySessionWriter(
            seats, backbone, TranscriptSettings(request=REQUEST_TOKENS), blend.seed
        )
        learned[price] = decided(
            cases, writer, hidden_states, partial(_head, mixture, course, hidden_states)
        )
        print(price, learned[price].solved.mean(), learned[price].cost.mean(), flush=True)
    cells = [cell.seconds for cell in pass_matrix.read_matrix(TABLE) if cell.agent == "small"]
    unit = mean(cells) / recorded[0].rows[0].first_cost
    given.out.write_text(report(cases, learned, unit))
    print(given.out.read_text())


def _head(
    mixture: Mixture, course: HeadTrainingSettings, hidden_states: HiddenStates, out: frozenset[str]
) -> Vector:
    return learn_head(
        mixture.told(out), mixture.trial(out), course, hidden_states, lambda _: None
    ).head


def decided(
    cases: Sequence[ReplayCase],
    writer: ReplaySessionWriter,
    hidden_states: HiddenStates,
    head_of: HeadOf,
) -> PolicyScores:
    """Every task by the head of the fold that left it out."""
    solved, cost = np.zeros(len(cases)), np.zeros(len(cases))
    for held in fitting.group_folds([case.group for case in cases], FOLDS, 0):
        places = np.flatnonzero(held)
        head = head_of(frozenset(cases[place].group for place in places))
        played = Replay(writer, ReplayRules(EXACT_TESTS, TURNS, VERIFIER_COST)).play(
            HeadCandidates(head[None], hidden_states), [cases[place] for place in places]
        )
        solved[places], cost[places] = played.solved[0], played.cost[0]
    return PolicyScores("trinity, held out", solved, cost)


def arms(cases: Sequence[ReplayCase]) -> list[PolicyScores]:
    """Everything that needs no learning, with as many Workers' turns at most."""
    singles = [
        frontier.sequence_policy(name, cases, (row,) * TURNS, EXACT_TESTS)
        for row, name in enumerate(NAMES)
    ]
    cascade = frontier.sequence_policy("cascade", cases, (0, 1, *(2,) * (TURNS - 2)), EXACT_TESTS)
    orders = list(product(range(len(NAMES)), repeat=TURNS))
    every = [frontier.sequence_policy("", cases, order, EXACT_TESTS) for order in orders]
    drawn = PolicyScores(
        "random", np.mean([arm.solved for arm in every], 0), np.mean([arm.cost for arm in every], 0)
    )
    return [*singles, cascade, drawn]


def spread(values: np.ndarray) -> Gap:
    """The mean, and where 95 % of its bootstrap over tasks lie."""
    draw = np.random.default_rng(0)
    means = values[draw.integers(0, len(values), (DRAWS, len(values)))].mean(1)
    return float(values.mean()), float(np.quantile(means, 0.025)), float(np.quantile(means, 0.975))


def report(cases: Sequence[ReplayCase], learned: dict[float, PolicyScores], unit: float) -> str:
    others = arms(cases)
    singles = others[: len(NAMES)]
    best = max(
        singles, key=lambda arm: (round(float(arm.solved.mean()), 6), -float(arm.cost.mean()))
    )
    lines = [
        "# Routing over the embedded pool, from recorded answers",
        "",
        "Written by `tests/benchmarks/embedded_routing.py` from `embedded-pool/one_pass.jsonl`:",
        f"{len(cases)} development tasks, every answer graded once. Each way may take {TURNS} "
        f"Workers' turns and",
        "ends when the tests pass. Drawing an agent again succeeds as often as its recorded "
        "answers to that task did;",
        "a task that was answered once is taken to end the same way every time.",
        "",
        f"`trinity` is decided task by task by heads trained on the other tasks ({FOLDS} folds), "
        f"for each lambda: what",
        "a second costs. Its own Verifier's turn is paid for. Model seconds: the recorded mean "
        "of an answer by",
        "each agent, on a busy machine: their ratios are the sturdier part. Brackets: 95 % of a "
        "bootstrap over tasks.",
        "",
        f"| way | solved | model s a task | of the seconds of {best.name} | solved, less what "
        f"that solves | "
        "less the cascade | less random |",
        "|---|---|---|---|---|---|---|",
    ]
    rows = [(f"trinity, held out, lambda {price:g}", arm) for price, arm in learned.items()]
    for name, arm in [*rows, *((arm.name, arm) for arm in others)]:
        gaps = [spread(arm.solved - one.solved) for one in (best, others[-2], others[-1])]
        cells = [
            show(spread(arm.solved), 100, " %"),
            show(spread(arm.cost * unit), 1, ""),
            f"{arm.cost.mean() / best.cost.mean():.0%}",
            *(show(gap, 100, "") for gap in gaps),
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    good = [
        price
        for price, arm in learned.items()
        if at_least(arm, best) and arm.cost.mean() <= 0.7 * best.cost.mean()
    ]
    where = (
        f"reached at lambda {', '.join(f'{price:g}' for price in good)}"
        if good
        else "not reached at any lambda"
    )
    lines += [
        "",
        f"Best single agent: {best.name}, {best.solved.mean():.1%}. As many solved at no more "
        f"than 70 % of its",
        f"seconds: {where}.",
    ]
    return "\n".join(lines) + "\n"


def at_least(arm: PolicyScores, other: PolicyScores) -> bool:
    return float(arm.solved.mean()) >= float(other.solved.mean()) - 1e-9


def show(gap: Gap, factor: float, unit: str) -> str:
    middle, low, high = (value * factor for value in gap)
    return f"{middle:.1f}{unit} [{low:.1f}, {high:.1f}]"


if __name__ == "__main__":
    main()
