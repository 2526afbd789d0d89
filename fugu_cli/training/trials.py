"""Trials: where candidates are judged (evolve.Trial) - the replay of outcomes, several trials at once.

The pools of a replay are drawn anew in every iteration, by the iteration's number alone: all candidates meet the same
cases, pools and chances. Must not know how candidates are made.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fugu_cli.training.candidates import Candidates
from fugu_cli.training.outcomes import Case
from fugu_cli.training.replay import Played, Replay

Draw = Callable[[random.Random], Sequence[Case]]
"""The cases of one iteration."""


@dataclass(frozen=True)
class Replayed:
    """Recorded outcomes. `draw` gives an iteration's cases; `held` those that say which iteration was best."""

    replay: Replay
    draw: Draw
    held: Sequence[Case] = ()
    seed: int = 0

    def play(self, candidates: Candidates, iteration: int) -> Played:
        """Every candidate on the iteration's cases."""
        return self.replay.play(candidates, self.draw(random.Random(f"{self.seed}/{iteration}")))

    def validate(self, candidates: Candidates) -> Played | None:
        """Every candidate on the cases held out."""
        return self.replay.play(candidates, self.held) if self.held else None


@dataclass(frozen=True)
class Together:
    """Several trials with a weight each, all on the same head: cases side by side, in the shares of their weights."""

    parts: Sequence[tuple[Replayed, float]]

    def play(self, candidates: Candidates, iteration: int) -> Played:
        """All parts' cases."""
        return _joined([(part.play(candidates, iteration), weight) for part, weight in self.parts])

    def validate(self, candidates: Candidates) -> Played | None:
        """All parts' held-out cases."""
        found = [(part.validate(candidates), weight) for part, weight in self.parts]
        return _joined([(played, weight) for played, weight in found if played is not None]) if found else None


def _joined(played: Sequence[tuple[Played, float]]) -> Played:
    """One table: every part's cases repeated to its weight's share of the mean."""
    total = sum(weight for _, weight in played)
    count = sum(one.solved.shape[1] for one, _ in played)
    scaled = [(one, weight / total * count / one.solved.shape[1]) for one, weight in played]

    def side_by_side(name: str) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        return np.concatenate([getattr(one, name) * factor for one, factor in scaled], 1)

    return Played(
        side_by_side("solved"),
        side_by_side("cost"),
        side_by_side("turns"),
        sum(one.rows * factor for one, factor in scaled),
        sum(one.roles * factor for one, factor in scaled),
        sum(one.evaluations for one, _ in played),
        sum(one.usd for one, _ in played),
    )


def sampled(cases: Sequence[Case], count: int, draw: random.Random) -> Sequence[Case]:
    """`count` cases without replacement; all of them where there are no more."""
    return cases if count >= len(cases) else draw.sample(list(cases), count)
