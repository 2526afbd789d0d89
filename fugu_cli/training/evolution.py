"""Stage 2 of training: sep-CMA-ES (Ros & Hansen, PPSN X 2008) over a checkpoint by the fitness of
its decisions, as in TRINITY (arXiv 2512.04695), and the folder that a run is kept in and continued
from.

x_k = m + sigma D z_k, z_k ~ N(0, I), k = 1 ... lambda; the best mu = lambda / 2 move m, sigma and
the diagonal D by log-rank weights. J = mean reward + w_div H(agents) + w_turn x turns - w_cost x
cost. The result is m.

Departures: x is in units of the hidden states' root mean square; cost is weighed; a trial may
validate m, and then the best of all m is the result; a run ends where nothing was gained for a
while.
"""

from __future__ import annotations

import math
import pickle
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from zipfile import BadZipFile

import numpy as np
from pydantic import JsonValue

from fugu_cli.errors import StorageError, UsageError, installing
from fugu_cli.messages import Value
from fugu_cli.system import atomic_files
from fugu_cli.training.evaluation.results_folder import Row, begin_run, read_rows
from fugu_cli.training.search import Candidates, Numbers

if TYPE_CHECKING:
    from cma import CMAEvolutionStrategy

SIGMA = 0.03
"""sigma0 of TRINITY's published run."""


def population_size(count: int) -> int:
    """Return 4 + floor(3 ln N): 33 for N = 19,456 (the paper uses 32)."""
    return 4 + math.floor(3 * math.log(count))


class SepCMA:
    """sep-CMA-ES (Ros & Hansen, PPSN X 2008) through `cma` with CMA_diagonal: memory grows with N,
    not with N x N.

    mu is half the population, the weights are log-rank. The result is the distribution's mean, not
    the best sample.
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
        """Create a search from `start` (N,). `more` are other options of `cma`.

        Raises UsageError if `cma` is not installed or the population is too small.
        """
        if population < 4:
            raise UsageError(
                f"a population of {population} cannot be ranked", hint="give --population 4 or more"
            )
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
        self._search: CMAEvolutionStrategy = cma_strategy()(start, sigma, options)

    @property
    def mean(self) -> Numbers:
        """The mean (N,)."""
        return np.array(self._search.mean, dtype=np.float64)

    @property
    def sigma(self) -> float:
        """The step size now."""
        return float(self._search.sigma)

    @property
    def evaluations(self) -> int:
        """The number of candidates judged so far."""
        return int(self._search.countevals)

    def ask(self) -> Numbers:
        """Return new candidates (population, N)."""
        return np.array(self._search.ask(), dtype=np.float64)

    def tell(self, candidates: Numbers, fitness: Numbers) -> None:
        """Report the candidates' fitness. Raises ValueError for a fitness that is no number, with
        which `cma` would go on for ever.
        """
        if not np.isfinite(fitness).all():
            raise ValueError("a candidate's fitness is not a number")
        self._search.tell(list(candidates), list(-fitness))

    def pack(self) -> bytes:
        """Return the whole search with its generator. Only `unpack` reads it, from the run's own
        folder.
        """
        return pickle.dumps((self._random, self._search))

    @classmethod
    def unpack(cls, data: bytes) -> SepCMA:
        """Return the search exactly as it was packed."""
        cma_strategy()
        search = cls.__new__(cls)
        search._random, search._search = pickle.loads(data)
        return search


def cma_strategy() -> type[CMAEvolutionStrategy]:
    """Import `cma` when it is needed, without its warning about a plotting library."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import cma
    except ImportError as error:
        raise UsageError(
            "cma is not installed, so nothing can be evolved",
            hint=f"it is part of the extra `train`: {installing('cma>=4')}",
        ) from error
    strategy: type[CMAEvolutionStrategy] = cma.CMAEvolutionStrategy
    return strategy


LOG_FILE, STATE_FILE = "es_log.jsonl", "state.npz"


@dataclass(frozen=True)
class RunState:
    """After `iteration` iterations: the packed search, the best mean (N,), the best validation or
    fitness, and when it was reached."""

    iteration: int
    search: bytes
    best: Numbers
    best_worth: float
    best_at: int


class RunFolder:
    """`about` is everything that must not change on the way; `save` writes the checkpoint of a
    mean.
    """

    def __init__(
        self, path: Path, about: Mapping[str, JsonValue], save: Callable[[Numbers, Path], None]
    ) -> None:
        self.path = path
        self._about = dict(about)
        self._save = save

    def begin(self) -> None:
        """Begin a run or go on with it, in a folder that the caller has locked. Raises UsageError
        if its run was started with other settings.
        """
        begin_run(self.path, self._about)

    def restore(self) -> RunState | None:
        """Return the stored state, None before the first iteration. Raises StorageError for an
        invalid file.
        """
        file = self.path / STATE_FILE
        if not file.is_file():
            return None
        try:
            with file.open("rb") as file_object, np.load(file_object, allow_pickle=False) as arrays:
                numbers = arrays["numbers"]
                search = arrays["search"].tobytes()
                return RunState(
                    int(numbers[0]), search, arrays["best"], float(numbers[1]), int(numbers[2])
                )
        except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
            raise StorageError(
                f"{file} is no state of a training: {error}", hint="give another folder with --out"
            ) from error

    def keep(self, state: RunState, history: Sequence[Value]) -> None:
        """Store an iteration: the log first, the state last, so that a state never knows more than
        its log.
        """
        lines = "".join(row.model_dump_json() + "\n" for row in history)
        write_run_file(self.path / LOG_FILE, lines.encode())
        try:
            self._save(state.best, self.path / "checkpoint.safetensors")
        except OSError as error:
            raise _disk_error(self.path, error) from error
        _write_state(self.path / STATE_FILE, state)

    def history(self, row_type: type[Row], count: int) -> list[Row]:
        """Return the log's first `count` lines. Raises ConfigError for an invalid line,
        StorageError for fewer lines.
        """
        file = self.path / LOG_FILE
        rows = read_rows(file, row_type)[:count]
        if len(rows) < count:
            raise StorageError(
                f"{file} has {len(rows)} lines, the training is at iteration {count}",
                hint="put it back, or give another folder with --out",
            )
        return rows


def _write_state(file: Path, state: RunState) -> None:
    numbers = np.array([state.iteration, state.best_worth, state.best_at], np.float64)
    with _replacing(file) as draft:
        np.savez(
            draft, numbers=numbers, search=np.frombuffer(state.search, np.uint8), best=state.best
        )


def write_run_file(file: Path, data: bytes) -> None:
    """Write a file whole or not at all. Raises StorageError if the disk is full."""
    with _replacing(file) as draft:
        draft.write_bytes(data)


@contextmanager
def _replacing(file: Path) -> Iterator[Path]:
    """Yield a new file that replaces `file` when it is complete. Raises StorageError if the disk is
    full.
    """
    try:
        with atomic_files.replacement_file(file) as draft:
            yield draft
    except OSError as error:
        raise _disk_error(file, error) from error


def _disk_error(path: Path, error: OSError) -> StorageError:
    return StorageError(
        f"{path} cannot be written: {error.strerror or error}",
        hint="make room and run the same command again: it goes on after its last full iteration",
    )


class FitnessWeights(Value):
    """The weights of the fitness' terms. The published run had .15, .1 and 0."""

    diversity: float = 0.0
    turns: float = 0.0
    cost: float = 0.05


class EvolutionSettings(Value):
    """The settings of an evolution. `population` None is 4 + floor(3 ln N).

    `patience` is the number of iterations without a better validation (or mean fitness, if nothing
    is validated) before the run ends early, 0 for never.
    """

    population: int | None = 32
    iterations: int = 60
    replications: int = 16
    sigma: float = SIGMA
    seed: int = 0
    patience: int = 0
    shaping: FitnessWeights = FitnessWeights()


class EvolutionIteration(Value):
    """A line of es_log.jsonl: the results of one iteration.

    `rows` and `roles` are shares of all turns. `cost` is what calls cost in USD; `mean_cost` is the
    relative cost that the fitness weighs.
    """

    iteration: int
    best: float
    mean: float
    worst: float
    validation: float | None
    reward: float
    mean_cost: float
    mean_turns: float
    sigma: float
    rows: tuple[float, ...]
    roles: tuple[float, ...]
    evaluations: int
    dropped: int
    cost: float
    seconds: float


@dataclass(frozen=True)
class TrialResult:
    """The results of `size` candidates on n cases each.

    `solved` (a share), `cost` (relative) and `turns` are arrays (size, n), NaN if a replication
    failed for outside reasons. `rows` (size, L) and `roles` (size, 3) count the turns of each row
    and role.
    """

    solved: Numbers
    cost: Numbers
    turns: Numbers
    rows: Numbers
    roles: Numbers
    evaluations: int
    usd: float = 0.0


class Trial(Protocol):
    """Judges candidates. All randomness depends on the iteration alone, so all candidates meet the
    same tasks, pools and seeds (common random numbers).
    """

    def play(self, candidates: Candidates, iteration: int) -> TrialResult:
        """Play every candidate on the iteration's tasks, times its replications."""

    def validate(self, candidates: Candidates) -> TrialResult | None:
        """Play the candidates on the fixed validation tasks; None if there are none."""


MakeCandidates = Callable[[Numbers], Candidates]
"""Vectors (size, N) in the search's units to candidates."""
Tell = Callable[[EvolutionIteration], None]


@dataclass(frozen=True)
class Evolved:
    """The best mean (N,) in the search's units, and every iteration."""

    vector: Numbers
    history: tuple[EvolutionIteration, ...]
    stopped: str


def fitness(played: TrialResult, shaping: FitnessWeights) -> Numbers:
    """Return the fitness of each candidate (size,). Replications that failed for outside reasons
    are NaN and dropped, never 0.
    """
    reward, cost, turns = (
        np.nanmean(part, axis=1) for part in (played.solved, played.cost, played.turns)
    )
    diverse = np.array([entropy(rows) for rows in played.rows])
    return np.asarray(
        reward + shaping.diversity * diverse + shaping.turns * turns - shaping.cost * cost
    )


def entropy(counts: Numbers) -> float:
    """Return the entropy of a histogram, in nats."""
    shares = counts[counts > 0] / max(counts.sum(), 1e-12)
    return float(-(shares * np.log(shares)).sum())


class Evolution:
    """One run in one folder."""

    def __init__(
        self, settings: EvolutionSettings, trial: Trial, breed: MakeCandidates, folder: RunFolder
    ) -> None:
        self._settings = settings
        self._trial = trial
        self._breed = breed
        self._folder = folder

    def run(self, start: Numbers, tell: Tell) -> Evolved:
        """Run from `start` (N,), or resume the folder's run. However it ends, the folder stays
        valid.
        """
        state = self._folder.restore() or self._first(start)
        search = SepCMA.unpack(state.search)
        history = self._folder.history(EvolutionIteration, state.iteration)
        stopped = "all iterations done"
        while state.iteration < self._settings.iterations:
            if self._settled(state):
                stopped = f"nothing gained in {self._settings.patience} iterations"
                break
            row, state = self._iterate(search, state)
            history.append(row)
            self._folder.keep(state, history)
            tell(row)
        return Evolved(state.best, tuple(history), stopped)

    def _first(self, start: Numbers) -> RunState:
        size = self._settings.population or population_size(len(start))
        search = SepCMA(start, size, sigma=self._settings.sigma, seed=self._settings.seed)
        worth = self._validated(start)
        return RunState(0, search.pack(), start, -np.inf if worth is None else worth, 0)

    def _settled(self, state: RunState) -> bool:
        patience = self._settings.patience
        return patience > 0 and state.iteration - state.best_at >= patience

    def _iterate(self, search: SepCMA, state: RunState) -> tuple[EvolutionIteration, RunState]:
        started = time.monotonic()
        candidates = search.ask()
        played = self._trial.play(self._breed(candidates), state.iteration)
        worth = fitness(played, self._settings.shaping)
        search.tell(candidates, worth)
        validation = self._validated(search.mean)
        reached = float(worth.mean()) if validation is None else validation
        better = reached > state.best_worth
        number = state.iteration + 1
        best = search.mean if better or validation is None else state.best
        gained = (reached, number) if better else (state.best_worth, state.best_at)
        row = _row(number, played, worth, search)
        row = row.model_copy(
            update={
                "validation": _rounded(validation),
                "seconds": round(time.monotonic() - started, 3),
            }
        )
        return row, RunState(number, search.pack(), best, *gained)

    def _validated(self, vector: Numbers) -> float | None:
        played = self._trial.validate(self._breed(vector[None]))
        return None if played is None else float(fitness(played, self._settings.shaping)[0])


def _row(number: int, played: TrialResult, worth: Numbers, search: SepCMA) -> EvolutionIteration:
    return EvolutionIteration(
        iteration=number,
        best=round(float(worth.max()), 6),
        mean=round(float(worth.mean()), 6),
        worst=round(float(worth.min()), 6),
        validation=None,
        reward=round(float(np.nanmean(played.solved)), 6),
        mean_cost=round(float(np.nanmean(played.cost)), 6),
        mean_turns=round(float(np.nanmean(played.turns)), 4),
        sigma=float(f"{search.sigma:.6g}"),
        rows=_shares(played.rows.sum(0)),
        roles=_shares(played.roles.sum(0)),
        evaluations=search.evaluations,
        dropped=int(np.isnan(played.solved).sum()),
        cost=round(played.usd, 6),
        seconds=0.0,
    )


def _shares(counts: Numbers) -> tuple[float, ...]:
    return tuple(round(float(count), 4) for count in counts / max(counts.sum(), 1e-12))


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)
