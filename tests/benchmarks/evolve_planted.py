"""sep-CMA-ES against random search and REINFORCE at the same number of episodes, on planted pools.

    python tests/benchmarks/evolve_planted.py [--width 1024] [--seeds 3] [--iterations 60] [--out FILE]

Every pool plants its own best agents, planners and judges; what is shown are rewards on episodes nobody was trained
on, in percent of what who knows the plan reaches. REINFORCE is run at several learning rates and the best is shown.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np

from fugu_cli.training.optimise import Numbers, Optimiser, RandomSearch, SepCMA
from fugu_cli.training.planted import Plan, Pool
from fugu_cli.training.reinforce import Reinforce

RATES = (1e-5, 1e-4, 1e-3, 1e-2)
POPULATION, REPLICATIONS, BATCH, TEST = 32, 16, 512, 4000
EVERY = 5


def searched(pool: Pool, search: Optimiser, iterations: int) -> list[float]:
    """Held-out rewards of the result after every few iterations."""
    test, found = pool.episodes(TEST, 10**6), []
    shape = (pool.rows, pool.plan.width)
    for number in range(iterations):
        candidates, episodes = search.ask(), pool.episodes(REPLICATIONS, number)
        search.tell(candidates, np.array([pool.play(one.reshape(shape), episodes).mean() for one in candidates]))
        if (number + 1) % EVERY == 0:
            found.append(float(pool.play(search.mean.reshape(shape), test).mean()))
    return found


def climbed(pool: Pool, rate: float, iterations: int) -> list[float]:
    """The same for REINFORCE, which sees the same number of episodes in batches of 512."""
    test, found = pool.episodes(TEST, 10**6), []
    learner = Reinforce(pool, rate=rate, seed=pool.plan.seed)
    for number in range(iterations * POPULATION * REPLICATIONS // BATCH):
        learner.step(pool.episodes(BATCH, 10**5 + number))
        if (number + 1) % EVERY == 0:
            found.append(float(pool.play(learner.head, test).mean()))
    return found


def compared(plan: Plan, iterations: int) -> dict[str, list[float]]:
    """Curves in shares of the planted optimum."""
    pool = Pool(plan)
    best = float(pool.optimum(pool.episodes(TEST, 10**6)).mean())
    count = pool.rows * plan.width
    started: Numbers = np.zeros(count)
    curves = {
        "sep-CMA-ES": searched(pool, SepCMA(started, POPULATION, seed=plan.seed), iterations),
        "random search": searched(pool, RandomSearch(count, POPULATION, seed=plan.seed), iterations),
    }
    curves |= {f"REINFORCE {rate:g}": climbed(pool, rate, iterations) for rate in RATES}
    return {name: [round(value / best, 4) for value in curve] for name, curve in curves.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=60)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "evolve_planted.jsonl")
    given = parser.parse_args()
    done = {json.loads(line)["seed"] for line in given.out.read_text().splitlines()} if given.out.is_file() else set()
    for seed in sorted(set(range(given.seeds)) - done):
        started = time.monotonic()
        curves = compared(Plan(width=given.width, seed=seed), given.iterations)
        row = {"seed": seed, "width": given.width, "seconds": round(time.monotonic() - started), "curves": curves}
        with given.out.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(seed, {name: curve[-1] for name, curve in curves.items()}, row["seconds"], flush=True)


if __name__ == "__main__":
    main()
