"""sep-CMA-ES against random search and REINFORCE at the same number of episodes, on planted pools.

    python tests/benchmarks/evolve_planted.py [--problem NAME ...] [--tune] [--seeds 20] [--out
    FILE]

Every pool plants its own best agents, planners and judges; what is kept are rewards on episodes
nobody was trained on, in shares of what who knows the plan reaches. With --tune, ways of running
sep-CMA-ES are compared with each other and REINFORCE's learning rates with each other, on pools of
their own; without, what was chosen there is measured on fresh pools. Goes on where an earlier call
stopped.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from cma.sigma_adaptation import CMAAdaptSigmaCSA
from planted_pool import (
    Optimiser,
    PlantedEpisodes,
    PlantedPool,
    PlantedPoolSettings,
    RandomSearch,
    Reinforce,
    ReinforceSettings,
)

from fugu_cli.training.evolution import SepCMA

RESULTS = Path(__file__).parent / "results"
PROBLEMS = {
    "small": PlantedPoolSettings(),
    "paper": PlantedPoolSettings(width=1024, blocks=9),
    "sampled": PlantedPoolSettings(width=1024, blocks=9, sampled=True),
}
EPISODES, BATCH, TEST, MARKS = 30_720, 512, 4000, 6
RATES = {
    "small": (1e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2),
    "paper": (1e-4, 3e-4, 1e-3, 3e-3, 1e-2),
    "sampled": (1e-6, 1e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2),
}
"""Adam's. 1e-6 is the one rate that the paper names, for its supervised baseline."""
TUNING, FRESH = 500, 1000
"""The first seed of the pools for choosing, and of those for measuring."""


@dataclass(frozen=True)
class Way:
    """How to run sep-CMA-ES: candidates, episodes a candidate, the first step, other options of
    `cma`, and whether the search is in units of the states' size."""

    population: int = 32
    episodes: int = 16
    sigma: float = 0.03
    more: Mapping[str, object] = field(default_factory=dict)
    scaled: bool = True


OWN = Way()
CSA = {"AdaptSigma": CMAAdaptSigmaCSA}
WAYS = {
    f"{one[0]} x {one[1]}": Way(*one)
    for one in ((16, 32), (32, 16), (64, 8), (128, 4), (32, 8), (16, 16))
}
WAYS |= {
    "32 x 16, CSA": Way(more=CSA),
    "32 x 16, CSA, damping 0.3": Way(more={**CSA, "CSA_dampfac": 0.3}),
    "32 x 16, fixed step": Way(more={"AdaptSigma": False}),
    "32 x 16, mean's step 0.5": Way(more={"CMA_cmean": 0.5}),
    "32 x 16, mean's step 2": Way(more={"CMA_cmean": 2}),
    "32 x 16, no learned scales": Way(more={"CMA_on": 0}),
    "32 x 16, mirrored": Way(more={"CMA_mirrors": True}),
    "32 x 16, raw numbers": Way(scaled=False),
    "64 x 8, raw numbers": Way(population=64, episodes=8, scaled=False),
}
WIDE = ("16 x 32", "32 x 16", "64 x 8")
SIGMAS = {f"32 x 16, first step {sigma:g}": Way(sigma=sigma) for sigma in (0.01, 0.1)}
"""Where the head decides by its highest logits the first step is no choice: twice the head decides
the same.
"""
MEASURED = {
    "small": ("64 x 8", "32 x 16"),
    "paper": ("32 x 16",),
    "sampled": ("32 x 16, first step 0.1", "32 x 16"),
}


@dataclass(frozen=True)
class Bench:
    """One pool with its test."""

    pool: PlantedPool
    test: PlantedEpisodes
    best: float

    def shares(self, points: np.ndarray) -> list[float]:
        """Of the optimum, on the test."""
        return [
            round(float(one) / self.best, 4) for one in self.pool.play(points, self.test).mean(1)
        ]


def environment(problem: str, seed: int, scaled: bool) -> Bench:
    pool = PlantedPool(replace(PROBLEMS[problem], seed=seed, scaled=scaled))
    test = pool.episodes(TEST, 10**6)
    return Bench(pool, test, float(pool.optimum(test).mean()))


def marks(rounds: int) -> set[int]:
    """After which rounds a curve has its points."""
    return {round(rounds * part / MARKS) for part in range(1, MARKS + 1)}


def searched(place: Bench, search: Optimiser, way: Way) -> list[float]:
    """Held-out rewards of the result, on the way; all candidates of an iteration meet the same
    episodes.
    """
    rounds, curve = EPISODES // (way.population * way.episodes), []
    wanted = marks(rounds)
    for number in range(rounds):
        candidates, episodes = search.ask(), place.pool.episodes(way.episodes, number)
        search.tell(candidates, place.pool.play(candidates, episodes).mean(1))
        if number + 1 in wanted:
            curve += place.shares(search.mean[None])
    return curve


def climbed(place: Bench, tunings: Sequence[ReinforceSettings]) -> list[list[float]]:
    """The same for REINFORCE by each tuning, on the same episodes."""
    learner, points = Reinforce(place.pool, tunings), []
    rounds = EPISODES // BATCH
    for number in range(rounds):
        learner.step(place.pool.episodes(BATCH, 10**5 + number))
        if number + 1 in marks(rounds):
            points.append(place.shares(learner.points))
    return [list(curve) for curve in zip(*points, strict=True)]


def named(tuning: ReinforceSettings, scaled: bool) -> str:
    return (
        f"REINFORCE "
        f"{tuning.rate:g}{'' if tuning.baseline else ', no baseline'}{'' if scaled else ', raw numbers'}"
    )


def curves(
    problem: str, seed: int, tune: bool, known: set[str]
) -> Iterator[tuple[str, list[float]]]:
    """Names and curves of what is not known yet."""
    for scaled in (True, False) if problem == "small" else (True,):
        tunings = [
            ReinforceSettings(rate, baseline)
            for rate in RATES[problem]
            for baseline in (True, False)
        ]
        learned = [one for one in tunings if named(one, scaled) not in known]
        ways = {
            name: way
            for name, way in chosen(problem, tune).items()
            if name not in known and way.scaled == scaled
        }
        drawn = scaled and "random search" not in known
        if not (learned or ways or drawn):
            continue
        place = environment(problem, seed, scaled)
        count = place.pool.count
        for name, way in ways.items():
            search = SepCMA(
                np.zeros(count), way.population, sigma=way.sigma, seed=seed, more=way.more
            )
            yield name, searched(place, search, way)
        if drawn:
            yield "random search", searched(place, RandomSearch(count, 32, seed=seed), OWN)
        if learned:
            yield from zip(
                [named(one, scaled) for one in learned], climbed(place, learned), strict=True
            )


def chosen(problem: str, tune: bool) -> dict[str, Way]:
    """The ways that are run: all that are compared, or those that won."""
    if not tune:
        return {name: (WAYS | SIGMAS)[name] for name in MEASURED[problem]}
    if problem == "small":
        return WAYS
    return {name: WAYS[name] for name in WIDE} | (SIGMAS if problem == "sampled" else {})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--problem", action="append", choices=list(PROBLEMS))
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--seeds", type=int, default=20, help="how many pools")
    parser.add_argument("--after", type=int, default=0, help="leave out so many")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    out: Path = given.out or RESULTS / (
        "evolve_tuning.jsonl" if given.tune else "evolve_planted.jsonl"
    )
    first = TUNING if given.tune else FRESH
    for seed in range(first + given.after, first + given.seeds):
        for problem in given.problem or PROBLEMS:
            rows = (
                [json.loads(line) for line in out.read_text().splitlines()] if out.is_file() else []
            )
            known = {row["arm"] for row in rows if (row["problem"], row["seed"]) == (problem, seed)}
            for name, curve in curves(problem, seed, given.tune, known):
                row = {"problem": problem, "seed": seed, "arm": name, "curve": curve}
                with out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
                print(problem, seed, name, curve[-1], flush=True)


if __name__ == "__main__":
    main()
