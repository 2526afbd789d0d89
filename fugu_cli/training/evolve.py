"""Stage 2 of training: evolution of a checkpoint by what its decisions are worth (TRINITY).

Candidates come from sep-CMA-ES (optimise.py), decide (candidates.py) and are judged in a trial; this module is the
loop around them: shaping, the log, a checkpoint after every iteration, going on exactly where a run stopped, stopping
early. Must not know where rewards come from.

    fitness = mean reward + w_div * H(agents) + w_turn * mean turns - w_cost * mean cost

Departures: the head is searched in units of the hidden state's size (as in fit.py), so that one sigma fits offsets and
head; the result is the mean of the iteration that did best on validation, where a trial offers one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fugu_cli.messages import Value
from fugu_cli.training.candidates import Candidates
from fugu_cli.training.optimise import SIGMA, Numbers, SepCMA, population_size
from fugu_cli.training.replay import Played
from fugu_cli.training.runs import Folder, State


class Shaping(Value):
    """The weights of the fitness' terms. The published run had .15, .1 and 0."""

    diversity: float = 0.0
    turns: float = 0.0
    cost: float = 0.05


class Settings(Value):
    """How to evolve. `population` None is 4 + floor(3 ln N). `patience`: iterations without a better validation (or
    mean fitness, where a trial validates nothing) before the run ends early, 0 for never."""

    population: int | None = 32
    iterations: int = 60
    replications: int = 16
    sigma: float = SIGMA
    seed: int = 0
    patience: int = 0
    shaping: Shaping = Shaping()


class Iteration(Value):
    """A line of es_log.jsonl. `rows` and `roles` are shares of all turns taken; `cost` is USD, where calls were paid
    for, `mean_cost` the relative one that the fitness weighs."""

    iteration: int
    best: float
    mean: float
    worst: float
    validation: float | None
    reward: float
    mean_cost: float
    mean_turns: float
    sigma: float
    sigma_vec: tuple[float, float, float]
    rows: tuple[float, ...]
    roles: tuple[float, ...]
    evaluations: int
    dropped: int
    cost: float
    seconds: float


class Trial(Protocol):
    """Judges candidates. Everything chance decides depends on the iteration alone: all candidates meet the same tasks,
    pools and seeds (common random numbers)."""

    def play(self, candidates: Candidates, iteration: int) -> Played:
        """Every candidate on the iteration's tasks, times its replications."""

    def validate(self, candidates: Candidates) -> Played | None:
        """The same for tasks that are always the same; None where there are none."""


Breed = Callable[[Numbers], Candidates]
"""Vectors (size, N) in the search's units to candidates."""
Tell = Callable[[Iteration], None]


@dataclass(frozen=True)
class Evolved:
    """The best mean (N,) in the search's units, and every iteration."""

    vector: Numbers
    history: tuple[Iteration, ...]
    stopped: str


def fitness(played: Played, shaping: Shaping) -> Numbers:
    """By candidate (size,). Replications that failed for outside reasons are NaN and dropped, never 0."""
    reward, cost, turns = (np.nanmean(part, axis=1) for part in (played.solved, played.cost, played.turns))
    diverse = np.array([entropy(rows) for rows in played.rows])
    return np.asarray(reward + shaping.diversity * diverse + shaping.turns * turns - shaping.cost * cost)


def entropy(counts: Numbers) -> float:
    """H of a histogram, in nats."""
    shares = counts[counts > 0] / max(counts.sum(), 1e-12)
    return float(-(shares * np.log(shares)).sum())


class Evolution:
    """One run in one folder."""

    def __init__(self, settings: Settings, trial: Trial, breed: Breed, folder: Folder) -> None:
        self._settings = settings
        self._trial = trial
        self._breed = breed
        self._folder = folder

    def run(self, start: Numbers, tell: Tell) -> Evolved:
        """From `start` (N,), or from where the folder's run stopped. Whatever ends it leaves the folder whole."""
        state = self._folder.restore() or self._first(start)
        search = SepCMA.unpack(state.search)
        history = self._folder.history(Iteration, state.iteration)
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

    def _first(self, start: Numbers) -> State:
        size = self._settings.population or population_size(len(start))
        search = SepCMA(start, size, sigma=self._settings.sigma, seed=self._settings.seed)
        worth = self._validated(start)
        return State(0, search.pack(), start, -np.inf if worth is None else worth, 0)

    def _settled(self, state: State) -> bool:
        patience = self._settings.patience
        return patience > 0 and state.iteration - state.best_at >= patience

    def _iterate(self, search: SepCMA, state: State) -> tuple[Iteration, State]:
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
        row = row.model_copy(update={"validation": _short(validation), "seconds": round(time.monotonic() - started, 3)})
        return row, State(number, search.pack(), best, *gained)

    def _validated(self, vector: Numbers) -> float | None:
        played = self._trial.validate(self._breed(vector[None]))
        return None if played is None else float(fitness(played, self._settings.shaping)[0])


def _row(number: int, played: Played, worth: Numbers, search: SepCMA) -> Iteration:
    step = search.step
    return Iteration(
        iteration=number,
        best=round(float(worth.max()), 6),
        mean=round(float(worth.mean()), 6),
        worst=round(float(worth.min()), 6),
        validation=None,
        reward=round(float(np.nanmean(played.solved)), 6),
        mean_cost=round(float(np.nanmean(played.cost)), 6),
        mean_turns=round(float(np.nanmean(played.turns)), 4),
        sigma=float(f"{step.sigma:.6g}"),
        sigma_vec=(round(step.least, 6), round(step.middle, 6), round(step.most, 6)),
        rows=_shares(played.rows.sum(0)),
        roles=_shares(played.roles.sum(0)),
        evaluations=search.evaluations,
        dropped=int(np.isnan(played.solved).sum()),
        cost=round(played.usd, 6),
        seconds=0.0,
    )


def _shares(counts: Numbers) -> tuple[float, ...]:
    return tuple(round(float(count), 4) for count in counts / max(counts.sum(), 1e-12))


def _short(value: float | None) -> float | None:
    return None if value is None else round(value, 6)
