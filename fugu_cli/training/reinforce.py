"""REINFORCE on a planted pool: the policy-gradient baseline that evolution is compared with (SPEC 3).

Stands beside planted.py; nothing that fugu ships is trained by it. Actions are sampled from the two softmaxes, Adam
takes the steps. Rewards count against the batch's mean, or, as in Williams' algorithm without a baseline, as they are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fugu_cli.training.optimise import Numbers
from fugu_cli.training.planted import Episodes, Pool, Seen, States


@dataclass(frozen=True)
class Taken:
    """One turn: what was seen, and the gradient of its log-probability by the logits (n, rows)."""

    hidden: Numbers
    slope: Numbers


class Reinforce:
    """A head (rows, width), moved by policy gradients."""

    def __init__(self, pool: Pool, *, rate: float, baseline: bool = True, seed: int = 0) -> None:
        self._baseline = baseline
        self.head: Numbers = np.zeros((pool.rows, pool.plan.width))
        self._pool = pool
        self._rate = rate
        self._draw = np.random.default_rng(seed)
        self._mean = np.zeros_like(self.head)
        self._square = np.zeros_like(self.head)
        self._steps = 0

    def step(self, episodes: Episodes) -> None:
        """One gradient step from one batch."""
        taken: list[Taken] = []

        def sampled(seen: Seen) -> tuple[States, States]:
            logits = seen.hidden @ self.head.T
            count = self._pool.plan.agents
            agents, first = self._sample(logits[:, :count])
            roles, second = self._sample(logits[:, count:])
            taken.append(Taken(seen.hidden, np.concatenate([first, second], 1)))
            return agents, roles

        rewards = self._pool.run(episodes, sampled)
        worth = (rewards - rewards.mean() * self._baseline)[:, None]
        self._climb(sum(((one.slope * worth).T @ one.hidden for one in taken), self.head * 0) / len(rewards))

    def _sample(self, logits: Numbers) -> tuple[States, Numbers]:
        weights = np.exp(logits - logits.max(1, keepdims=True))
        chances = weights / weights.sum(1, keepdims=True)
        chosen = (chances.cumsum(1) > self._draw.random((len(logits), 1))).argmax(1)
        return chosen, np.eye(logits.shape[1])[chosen] - chances

    def _climb(self, gradient: Numbers) -> None:
        """Adam with its usual constants."""
        self._steps += 1
        self._mean = 0.9 * self._mean + 0.1 * gradient
        self._square = 0.999 * self._square + 0.001 * gradient**2
        mean, square = self._mean / (1 - 0.9**self._steps), self._square / (1 - 0.999**self._steps)
        self.head = self.head + self._rate * mean / (np.sqrt(square) + 1e-8)
