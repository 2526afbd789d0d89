"""REINFORCE on a planted pool: the policy-gradient baseline that evolution is compared with (TRINITY).

Stands beside planted.py; nothing that fugu ships is trained by it. Actions are sampled from the two softmaxes, Adam
takes the steps, on offsets and head. Rewards count against the batch's mean, or, as in Williams' algorithm without a
baseline, as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fugu_cli.training.optimise import Numbers
from fugu_cli.training.planted import Episodes, Floats, Pool, States, sampled


@dataclass(frozen=True)
class Tuning:
    """How a learner learns: Adam's rate, and whether rewards count against their mean."""

    rate: float
    baseline: bool = True


@dataclass(frozen=True)
class Taken:
    """One turn: which signals were seen (size, n, kinds + 4), with what noise (n, width), and the gradient of the
    log-probability of what was decided by the logits (size, n, rows)."""

    signs: Floats
    noise: Floats
    slope: Floats


class Reinforce:
    """Points (size, count) of a pool, one by each tuning, moved by policy gradients on the same episodes."""

    def __init__(self, pool: Pool, tunings: Sequence[Tuning]) -> None:
        self.points: Numbers = np.zeros((len(tunings), pool.count))
        self._pool = pool
        self._rates = np.array([[one.rate] for one in tunings])
        self._based = np.array([[one.baseline] for one in tunings])
        self._mean = np.zeros_like(self.points)
        self._square = np.zeros_like(self.points)
        self._steps = 0

    def step(self, episodes: Episodes) -> None:
        """One gradient step from one batch."""
        pool, heads = self._pool, self._pool.heads(self.points)
        taken: list[Taken] = []

        def choose(turn: int, phases: States) -> tuple[States, States]:
            logits, count = pool.logits(heads, episodes, turn, phases), pool.plan.agents
            agents, first = _drawn(logits[..., :count], episodes.draws[:, turn, 0])
            roles, second = _drawn(logits[..., count:], episodes.draws[:, turn, 1])
            slope = np.concatenate([first, second], -1)
            taken.append(Taken(pool.signs(episodes, phases), episodes.noise[:, turn], slope))
            return agents, roles

        rewards = pool.run(episodes, choose, len(heads))
        worth = (rewards - rewards.mean(1, keepdims=True) * self._based).astype(np.float32)
        wanted = np.zeros_like(heads)
        for one in taken:
            slope = (one.slope * worth[..., None]).transpose(0, 2, 1)
            wanted += slope @ one.signs @ pool.signals
            wanted += (slope.reshape(-1, slope.shape[-1]) @ one.noise).reshape(wanted.shape)
        self._climb(self._gradient(wanted / worth.shape[1]))

    def _gradient(self, wanted: Floats) -> Numbers:
        """By the points (size, count), from that by the heads that offsets are multiplied into (size, rows, width)."""
        width, blocks, size = self._pool.plan.width, self._pool.plan.blocks, len(wanted)
        offsets = 1 + self.points[:, : blocks * width].reshape(size, blocks, width)
        head = self.points[:, blocks * width :].reshape(size, -1, width)
        factors = ((offsets / offsets.mean(2, keepdims=True)).prod(1) / self._pool.scale)[:, None]
        along = (wanted * head * factors).sum(1, keepdims=True)
        moved = along / offsets - along.sum(2, keepdims=True) / offsets.sum(2, keepdims=True)
        return np.concatenate([moved.reshape(size, -1), (wanted * factors).reshape(size, -1)], 1)

    def _climb(self, gradient: Numbers) -> None:
        """Adam with its usual constants."""
        self._steps += 1
        self._mean = 0.9 * self._mean + 0.1 * gradient
        self._square = 0.999 * self._square + 0.001 * gradient**2
        mean, square = self._mean / (1 - 0.9**self._steps), self._square / (1 - 0.999**self._steps)
        self.points = self.points + self._rates * mean / (np.sqrt(square) + 1e-8)


def _drawn(logits: Floats, draws: Numbers) -> tuple[States, Floats]:
    chosen, chances = sampled(logits, draws)
    return chosen, np.eye(logits.shape[-1], dtype=np.float32)[chosen] - chances
