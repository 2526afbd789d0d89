"""What a population costs: candidates that share one forward pass against one candidate after
another.

    python tests/benchmarks/evolve_shared.py --backbone FOLDER --store FOLDER [--population 32]
    [--tokens 256]

`one after another` puts each candidate's offsets on the backbone and reads the text, as a session
with that candidate would; its offsets change the second-to-last layer, so nothing read for another
candidate can be kept. `one after another, cached` starts from the cached input of that layer and
goes through the last two layers for each candidate. `shared` does so for all at once
(fugu_cli/training/fitting.py). All three give the same states; how near they are is shown.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from fugu_cli.coordinators import backbone as backbones
from fugu_cli.coordinators import svf
from fugu_cli.coordinators.backbone import Backbone
from fugu_cli.coordinators.svf import Vector
from fugu_cli.training.fitting import LastLayers


class Ways:
    """The same states, three ways."""

    def __init__(self, backbone: Backbone, store: Path) -> None:
        self._backbone = backbone
        self._adapter = svf.SvfAdapter(backbone.model, store / "svf" / backbone.identity[:16])
        self._shared = LastLayers(backbone, self._adapter, wide=False)
        self.count = sum(self._shared.sizes)
        self._ends = np.cumsum(self._shared.sizes)[:-1]
        self._zero = [np.zeros(size, np.float32) for size in svf.ranks(backbone.shape)]

    def below(self, texts: list[list[int]]) -> None:
        """Read the texts up to the second-to-last layer: done once for all candidates of all
        iterations.
        """
        self._texts = texts
        self._below = [self._shared.below(text[:-1]) for text in texts]

    def one_after_another(self, offsets: Vector) -> Vector:
        found = []
        for one in offsets:
            self._adapter.apply([self._zero[0], *np.split(one, self._ends), self._zero[8]])
            self._backbone.forget()
            found.append([self._backbone.read(text).hidden for text in self._texts])
        self._adapter.apply(self._zero)
        return np.array(found)

    def cached(self, offsets: Vector) -> Vector:
        return np.concatenate([self.shared(one[None]) for one in offsets])

    def shared(self, offsets: Vector) -> Vector:
        return np.stack([self._shared.states(below, offsets) for below in self._below], 1)


def took(run: Callable[[], Vector]) -> tuple[float, float, Vector]:
    wall, cpu = time.perf_counter(), time.process_time()
    found = run()
    return time.perf_counter() - wall, time.process_time() - cpu, found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backbone", type=Path, required=True)
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--population", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--texts", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=2)
    given = parser.parse_args()
    ways = Ways(
        backbones.load_backbone(given.backbone, device="cpu", cache=given.store), given.store
    )
    draw = np.random.default_rng(0)
    ways.below([draw.integers(1000, 50000, given.tokens).tolist() for _ in range(given.texts)])
    offsets = draw.normal(scale=0.03, size=(given.population, ways.count)).astype(np.float32)
    seconds: dict[str, list[tuple[float, float]]] = {}
    states: dict[str, Vector] = {}
    for _ in range(given.repeats):
        for name, way in (
            ("shared", ways.shared),
            ("cached", ways.cached),
            ("one", ways.one_after_another),
        ):
            wall, cpu, states[name] = took(lambda way=way: way(offsets))  # type: ignore[misc]
            seconds.setdefault(name, []).append((wall, cpu))
    middle = {
        name: [statistics.median(one[kind] for one in each) for kind in (0, 1)]
        for name, each in seconds.items()
    }
    flat = {name: state.reshape(-1, state.shape[-1]) for name, state in states.items()}
    norms = {name: np.linalg.norm(state, axis=1) for name, state in flat.items()}
    near = {
        name: float(((flat["shared"] * flat[name]).sum(1) / norms["shared"] / norms[name]).min())
        for name in flat
    }
    row = {"population": given.population, "tokens": given.tokens, "texts": given.texts}
    row |= {f"{name} s": round(each[0], 2) for name, each in middle.items()}
    row |= {f"{name} cpu s": round(each[1], 2) for name, each in middle.items()}
    row |= {"times faster": round(middle["one"][1] / middle["shared"][1], 1)}
    row |= {"times faster than cached": round(middle["cached"][1] / middle["shared"][1], 1)}
    print(
        json.dumps(row | {"least cosine": {name: round(value, 5) for name, value in near.items()}}),
        flush=True,
    )


if __name__ == "__main__":
    main()
