"""What routing over the embedded pool is worth, from its recorded answers; no task is decided by a head that saw it.

    python tests/benchmarks/embedded_routing.py --backbone DIR --store DIR

Reads results/embedded-pool/one_pass.jsonl, writes results/embedded-routing.md. No model is asked for anything but the
hidden states of transcripts, which are kept in --store.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from statistics import mean

import numpy as np

from fugu_cli.coordinators import backbone as backbones
from fugu_cli.coordinators.svf import Vector
from fugu_cli.training import fit, frontier, matrix
from fugu_cli.training.evolve import Settings
from fugu_cli.training.frontier import Arm
from fugu_cli.training.lessons import Course, learn
from fugu_cli.training.minds import Heads
from fugu_cli.training.mixture import TESTS, Blend
from fugu_cli.training.outcomes import Case
from fugu_cli.training.replay import Replay, Rules
from fugu_cli.training.sight import Sight
from fugu_cli.training.slotted import REQUEST, mixture_of
from fugu_cli.training.storyteller import Reading, Storyteller

RESULTS = Path(__file__).parent / "results"
TABLE = RESULTS / "embedded-pool" / "one_pass.jsonl"
ROWS = ("cheap=small", "middle=coder", "strong=coder*5")
NAMES = ("small", "coder", "coder, up to 5 draws a turn")
TURNS, FOLDS, DRAWS = 4, 5, 10_000
Gap = tuple[float, float, float]
HeadOf = Callable[[frozenset[str]], Vector]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbone", type=Path, required=True)
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--lambda", dest="price", type=float, default=0.1)
    parser.add_argument("--iterations", type=int, default=8, help="of the evolution, at most")
    parser.add_argument("--out", type=Path, default=RESULTS / "embedded-routing.md")
    given = parser.parse_args()
    backbone = backbones.load(given.backbone)
    sight = Sight(backbone, given.store, print)
    course = Course(price=given.price, settings=Settings(population=16, iterations=given.iterations, patience=4))
    blend = Blend(course=course, turns=TURNS, folds=FOLDS, shown=12)
    mixture, _ = mixture_of(None, TABLE, ROWS, blend, (backbone, sight))
    seats = mixture.made_of.seats
    recorded = matrix.rates(matrix.read(TABLE), seats, prior=0.0)
    cases = [Case(task, task.task, looped=True) for task in recorded]
    teller = Storyteller(seats, backbone, Reading(request=REQUEST), blend.seed)

    def head_of(out: frozenset[str]) -> Vector:
        return learn(mixture.told(out), mixture.trial(out), blend.course, sight, lambda _: None).head

    ours = decided(cases, teller, sight, head_of)
    cells = [cell.seconds for cell in matrix.read(TABLE) if cell.agent == "small"]
    unit = mean(cells) / recorded[0].rows[0].first_cost
    given.out.write_text(report(cases, ours, unit, given.price))
    print(given.out.read_text())


def decided(cases: Sequence[Case], teller: Storyteller, sight: Sight, head_of: HeadOf) -> Arm:
    """Every task by the head of the fold that left it out."""
    solved, cost = np.zeros(len(cases)), np.zeros(len(cases))
    for held in fit.folds([case.group for case in cases], FOLDS, 0):
        places = np.flatnonzero(held)
        head = head_of(frozenset(cases[place].group for place in places))
        played = Replay(teller, Rules(TESTS, TURNS)).play(Heads(head[None], sight), [cases[place] for place in places])
        solved[places], cost[places] = played.solved[0], played.cost[0]
    return Arm("trinity, held out", solved, cost)


def arms(cases: Sequence[Case]) -> list[Arm]:
    """Everything that needs no learning, with as many Workers' turns at most."""
    singles = [frontier.sequence(name, cases, (row,) * TURNS, TESTS) for row, name in enumerate(NAMES)]
    cascade = frontier.sequence("cascade", cases, (0, 1, *(2,) * (TURNS - 2)), TESTS)
    orders = list(product(range(len(NAMES)), repeat=TURNS))
    every = [frontier.sequence("", cases, order, TESTS) for order in orders]
    drawn = Arm("random", np.mean([arm.solved for arm in every], 0), np.mean([arm.cost for arm in every], 0))
    return [*singles, cascade, drawn]


def spread(values: np.ndarray) -> Gap:
    """The mean, and where 95 % of its bootstrap over tasks lie."""
    draw = np.random.default_rng(0)
    means = values[draw.integers(0, len(values), (DRAWS, len(values)))].mean(1)
    return float(values.mean()), float(np.quantile(means, 0.025)), float(np.quantile(means, 0.975))


def report(cases: Sequence[Case], ours: Arm, unit: float, price: float) -> str:
    everyone = [ours, *arms(cases)]
    singles = everyone[1:4]
    best = max(singles, key=lambda arm: (round(float(arm.solved.mean()), 6), -float(arm.cost.mean())))
    lines = [
        "# Routing over the embedded pool, from recorded answers",
        "",
        "Written by `tests/benchmarks/embedded_routing.py` from `embedded-pool/one_pass.jsonl`:",
        f"{len(cases)} development tasks, every answer graded once. Each way may take {TURNS} Workers' turns and",
        "ends when the tests pass. Drawing an agent again succeeds as often as its recorded answers to that task did;",
        "a task that was answered once is taken to end the same way every time.",
        "",
        f"`trinity` is decided task by task by heads trained on the other tasks ({FOLDS} folds, lambda {price:g});",
        "its own Verifier's turn is paid for. Model seconds: the recorded mean of an answer by each agent, on a busy",
        "machine: their ratios are the sturdier part. Brackets hold 95 % of a bootstrap over tasks.",
        "",
        "| way | solved | model s a task | trinity's solved less this | trinity's s less this |",
        "|---|---|---|---|---|",
    ]
    for arm in everyone:
        gaps = [ours.solved - arm.solved, (ours.cost - arm.cost) * unit]
        cells = [
            show(spread(arm.solved), 100, " %"),
            show(spread(arm.cost * unit), 1, ""),
            *(["-", "-"] if arm is ours else [show(spread(gaps[0]), 100, " points"), show(spread(gaps[1]), 1, "")]),
        ]
        lines.append(f"| {arm.name} | {' | '.join(cells)} |")
    share = ours.cost.mean() / best.cost.mean()
    held = ours.solved.mean() >= best.solved.mean() - 1e-9
    lines += [
        "",
        f"Best single agent: {best.name}.",
        f"Trinity solves {ours.solved.mean():.1%} against its {best.solved.mean():.1%},",
        f"at {share:.0%} of its model seconds. At least as many solved at no more than 70 % of the seconds:",
        "reached." if held and share <= 0.7 else "not reached.",
    ]
    return "\n".join(lines) + "\n"


def show(gap: Gap, factor: float, unit: str) -> str:
    middle, low, high = (value * factor for value in gap)
    return f"{middle:.1f}{unit} [{low:.1f}, {high:.1f}]"


if __name__ == "__main__":
    main()
