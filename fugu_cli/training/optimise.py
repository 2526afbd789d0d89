"""Optimisers that ask and tell: sep-CMA-ES (Ros & Hansen, 2008), and random search to compare it with.

Below evolve.py. Everything is maximised here; `cma` minimises, so it is told the negative. Must not know what a
candidate means or how it is judged.

Departures: the diagonal option of `cma` adapts the step size by two-point steps. The random numbers come from a
generator of our own, so that a run that was stopped goes on exactly.
"""

from __future__ import annotations

import math
import pickle
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from fugu_cli.errors import UsageError, installing

if TYPE_CHECKING:
    from cma import CMAEvolutionStrategy

Numbers = NDArray[np.float64]

SIGMA = 0.03
"""sigma0 of TRINITY's published run."""


def population_size(count: int) -> int:
    """4 + floor(3 ln N): 33 for N = 19,456 (the paper pins 32)."""
    return 4 + math.floor(3 * math.log(count))


class Optimiser(Protocol):
    """Proposes candidates and learns from what they were worth."""

    @property
    def mean(self) -> Numbers:
        """The result so far (N,): what is saved."""

    def ask(self) -> Numbers:
        """The next candidates (population, N)."""

    def tell(self, candidates: Numbers, fitness: Numbers) -> None:
        """What they were worth (population,), higher is better."""


@dataclass(frozen=True)
class Step:
    """How wide the search stands: the overall step size, and the spread of the single coordinates' steps."""

    sigma: float
    least: float
    middle: float
    most: float


class SepCMA:
    """sep-CMA-ES (Ros & Hansen, PPSN X 2008) through `cma` with CMA_diagonal: memory grows with N, not with N x N.

    mu is half the population, the weights are log-rank. The result is the distribution's mean, not the best sample.
    """

    def __init__(
        self,
        start: Numbers,
        population: int,
        *,
        sigma: float = SIGMA,
        seed: int = 0,
        more: Mapping[str, object] | None = None,
    ) -> None:
        """`start` (N,); `more` are other options of `cma`. Raises UsageError where `cma` is not installed or the
        population is too small."""
        if population < 4:
            raise UsageError(f"a population of {population} cannot be ranked", hint="give --population 4 or more")
        self._random = np.random.RandomState(seed)
        options = {
            "CMA_diagonal": True,
            "popsize": population,
            "randn": self._random.randn,
            "seed": np.nan,  # the generator above is seeded, the global one stays untouched
            "verbose": -9,
            "verb_log": 0,
            **(more or {}),
        }
        self._search: CMAEvolutionStrategy = _strategy()(start, sigma, options)

    @property
    def mean(self) -> Numbers:
        """(N,)."""
        return np.array(self._search.mean, dtype=np.float64)

    @property
    def step(self) -> Step:
        """Where the step sizes stand now."""
        scales = np.asarray(self._search.sigma_vec.scaling, dtype=np.float64) * np.sqrt(self._search.dC)
        return Step(float(self._search.sigma), float(scales.min()), float(np.median(scales)), float(scales.max()))

    @property
    def evaluations(self) -> int:
        """Candidates judged so far."""
        return int(self._search.countevals)

    def ask(self) -> Numbers:
        """(population, N)."""
        return np.array(self._search.ask(), dtype=np.float64)

    def tell(self, candidates: Numbers, fitness: Numbers) -> None:
        """Raises ValueError for a fitness that is no number: `cma` would go on with it for ever."""
        if not np.isfinite(fitness).all():
            raise ValueError("a candidate's fitness is not a number")
        self._search.tell(list(candidates), list(-fitness))

    def pack(self) -> bytes:
        """The whole search with its generator. Only ever read back by `unpack` from the run's own folder."""
        return pickle.dumps((self._random, self._search))

    @classmethod
    def unpack(cls, data: bytes) -> SepCMA:
        """The search exactly as it was."""
        _strategy()
        made = cls.__new__(cls)
        made._random, made._search = pickle.loads(data)
        return made


class RandomSearch:
    """Candidates from U[-width, width], the best one is the result: the paper's baseline (width 0.5)."""

    def __init__(self, count: int, population: int, *, width: float = 0.5, seed: int = 0) -> None:
        self._shape = (population, count)
        self._width = width
        self._draw = np.random.default_rng(seed)
        self._best = -math.inf
        self._found: Numbers = np.zeros(count)

    @property
    def mean(self) -> Numbers:
        """The best candidate seen (N,)."""
        return self._found

    def ask(self) -> Numbers:
        """(population, N)."""
        return self._draw.uniform(-self._width, self._width, self._shape)

    def tell(self, candidates: Numbers, fitness: Numbers) -> None:
        """Keep the best."""
        place = int(fitness.argmax())
        if fitness[place] > self._best:
            self._best, self._found = float(fitness[place]), candidates[place]


def _strategy() -> type[CMAEvolutionStrategy]:
    """`cma`, imported when it is needed; its wish for a plotting library is not passed on."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import cma
    except ImportError as error:
        raise UsageError("cma is not installed, so nothing can be evolved", hint=installing("cma>=4")) from error
    found: type[CMAEvolutionStrategy] = cma.CMAEvolutionStrategy
    return found


if TYPE_CHECKING:

    def _fits(sep: SepCMA, random: RandomSearch) -> tuple[Optimiser, Optimiser]:
        return sep, random
