"""sep-CMA-ES against random search and REINFORCE at the same number of episodes, on planted pools.

    python tests/benchmarks/evolve_planted.py [--width 128] [--seeds 100] [--iterations 60] [--out FILE]

Every pool plants its own best agents, planners and judges; what is kept are rewards on episodes nobody was trained
on, in shares of what who knows the plan reaches. REINFORCE is run at several learning rates, with a baseline and
without; sep-CMA-ES with 16 and with 32 episodes a candidate. Goes on where an earlier call stopped.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from fugu_cli.tools.atomic import write_whole
from fugu_cli.training.optimise import Optimiser, RandomSearch, SepCMA
from fugu_cli.training.planted import Plan, Pool
from fugu_cli.training.reinforce import Reinforce

RATES = (1e-5, 1e-4, 1e-3, 3e-3, 1e-2)
POPULATION, REPLICATIONS, BATCH, TEST = 32, (16, 32), 512, 4000
EVERY = 5


def searched(pool: Pool, search: Optimiser, batches: int, replications: int) -> list[float]:
    """Held-out rewards of the result after every few batches of 512 episodes."""
    test, found = pool.episodes(TEST, 10**6), []
    shape = (pool.rows, pool.plan.width)
    spent = POPULATION * replications // BATCH
    for number in range(0, batches, spent):
        candidates, episodes = search.ask(), pool.episodes(replications, number)
        search.tell(candidates, np.array([pool.play(one.reshape(shape), episodes).mean() for one in candidates]))
        if (number + spent) // EVERY > number // EVERY:
            found.append(float(pool.play(search.mean.reshape(shape), test).mean()))
    return found


def climbed(pool: Pool, rate: float, batches: int, *, baseline: bool = True) -> list[float]:
    """The same for REINFORCE."""
    test, found = pool.episodes(TEST, 10**6), []
    learner = Reinforce(pool, rate=rate, baseline=baseline, seed=pool.plan.seed)
    for number in range(batches):
        learner.step(pool.episodes(BATCH, 10**5 + number))
        if (number + 1) % EVERY == 0:
            found.append(float(pool.play(learner.head, test).mean()))
    return found


def arms(pool: Pool, batches: int) -> dict[str, Callable[[], list[float]]]:
    """What is compared, by name."""
    count, seed = pool.rows * pool.plan.width, pool.plan.seed
    made: dict[str, Callable[[], list[float]]] = {}
    for several in REPLICATIONS:
        search = SepCMA(np.zeros(count), POPULATION, seed=seed)
        made[f"sep-CMA-ES, {several} episodes a candidate"] = partial(searched, pool, search, batches, several)
    drawn = RandomSearch(count, POPULATION, seed=seed)
    made["random search"] = partial(searched, pool, drawn, batches, REPLICATIONS[0])
    for rate in RATES:
        made[f"REINFORCE {rate:g}"] = partial(climbed, pool, rate, batches)
        made[f"REINFORCE {rate:g}, no baseline"] = partial(climbed, pool, rate, batches, baseline=False)
    return made


def compared(pool: Pool, batches: int, known: dict[str, list[float]]) -> dict[str, list[float]]:
    """Curves in shares of the planted optimum; those that are known are not drawn again."""
    best = float(pool.optimum(pool.episodes(TEST, 10**6)).mean())
    ways = arms(pool, batches)
    return {name: known.get(name) or [round(value / best, 4) for value in way()] for name, way in ways.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--iterations", type=int, default=60, help="of 512 episodes")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "evolve_planted.jsonl")
    given = parser.parse_args()
    lines = given.out.read_text().splitlines() if given.out.is_file() else []
    rows = {row["seed"]: row for row in map(json.loads, lines)}
    for seed in range(given.seeds):
        known = rows.get(seed, {}).get("curves", {})
        curves = compared(Pool(Plan(width=given.width, seed=seed)), given.iterations, known)
        rows[seed] = {"seed": seed, "width": given.width, "curves": curves}
        write_whole(given.out, "".join(json.dumps(row) + "\n" for row in rows.values()).encode())
        print(seed, {name: curve[-1] for name, curve in curves.items()}, flush=True)


if __name__ == "__main__":
    main()
