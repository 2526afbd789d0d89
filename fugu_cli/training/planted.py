"""A planted pool: a synthetic problem whose best (agent, role) is known at every transcript, to compare optimisers on.

Stands beside evolve.py as its proof. A transcript is a hidden state made of the task's kind, how far the work is, and
noise. Kinds need different agents; hard kinds need a plan first, by an agent that only plans well; the work must be
verified. Nothing of the session, of torch or of texts is used.

    phases   begun -> planned -> passed or failed, by a check that is right nine times in ten
    reward   1 where the newest work is right when a Verifier accepts it or K turns are over
    point    [ blocks x width offsets | rows x width head, in units of the states' size where `scaled` ]
             a block turns a state x into (1 + delta) x and keeps the energy
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fugu_cli.training.optimise import Numbers

WORKER, THINKER, VERIFIER = range(3)
BEGUN, PLANNED, PASSED, FAILED = range(4)

States = NDArray[np.int64]
Floats = NDArray[np.float32]
Choose = Callable[[int, States], tuple[States, States]]
"""The turn and the phases (..., n) to the agents and the roles (..., n) that act."""


@dataclass(frozen=True)
class Plan:
    """The sizes of a planted pool."""

    agents: int = 7
    kinds: int = 3
    width: int = 128
    blocks: int = 0
    """Of offsets before the head: nine in TRINITY."""
    turns: int = 5
    noise: float = 0.5
    """Of the state, in units of the signal."""
    common: float = 3.0
    """What all states share, in the same units: hidden states of real models share most of their length."""
    scaled: bool = True
    """Each number of a state has its own unit, as in a real search (search_vector.py)."""
    sampled: bool = False
    """Decisions are drawn from the softmax, as the authors' code does, and not the highest logits."""
    seed: int = 0


@dataclass(frozen=True)
class Episodes:
    """Tasks with everything that chance decides in them: `kinds` (n,), `noise` (n, turns, width), `luck` (n, turns, 2)
    of what is done, `draws` (n, turns, 2) of what is decided.

    The same episodes for every candidate are common random numbers: what differs is the candidate.
    """

    kinds: States
    noise: Floats
    luck: Numbers
    draws: Numbers


class Pool:
    """The chances and the states of one planted pool."""

    def __init__(self, plan: Plan) -> None:
        draw = np.random.default_rng(plan.seed)
        self.plan = plan
        self.rows = plan.agents + 3
        self.count = (plan.blocks + self.rows) * plan.width
        unit = np.sqrt(2 + plan.noise**2)
        common = plan.common * draw.normal(size=plan.width)
        codes = draw.normal(size=(plan.kinds, plan.width))
        phases = draw.normal(size=(4, plan.width))
        self.signals = _single(np.concatenate([codes + common, phases]) / unit)
        self._spread = np.float32(plan.noise / unit)
        self.scale = self._units() if plan.scaled else np.ones(plan.width, np.float32)
        self.work = np.full((plan.kinds, 2, plan.agents), 0.4)
        self.check = np.full((plan.kinds, plan.agents), 0.6)
        self.plans = np.full((plan.kinds, plan.agents), 0.5)
        for kind in range(plan.kinds):
            best, planner, judge = draw.permutation(plan.agents)[:3]
            hard = kind % 2 == 1
            self.work[kind, :, best] = (0.45, 0.8) if hard else 0.8
            self.plans[kind, planner] = 0.95
            self.check[kind, judge] = 0.98

    def episodes(self, count: int, seed: int) -> Episodes:
        """`count` tasks drawn at random."""
        draw = np.random.default_rng((self.plan.seed, seed))
        turns = self.plan.turns
        return Episodes(
            kinds=draw.integers(self.plan.kinds, size=count),
            noise=draw.standard_normal((count, turns, self.plan.width), np.float32) * self._spread,
            luck=draw.random((count, turns, 2)),
            draws=draw.random((count, turns, 2)),
        )

    def signs(self, episodes: Episodes, phases: States) -> Floats:
        """Which `signals` (kinds + 4, width) states are sums of, before their noise: (..., n, kinds + 4), 0 or 1."""
        kinds, one = self.plan.kinds, np.eye(self.plan.kinds + 4, dtype=np.float32)
        return np.asarray(one[episodes.kinds] + one[kinds + phases])

    def _units(self) -> Floats:
        """The root mean square (width,) of the states of 64 requests, before anything was done."""
        asked = self.episodes(64, 10**7)
        states = self.signs(asked, np.full(64, BEGUN)) @ self.signals + asked.noise[:, 0]
        return _single(np.sqrt(np.square(states).mean(0)))

    def heads(self, points: Numbers) -> Floats:
        """What points (size, count) do to a state: (size, rows, width), the offsets multiplied into the head."""
        width, blocks = self.plan.width, self.plan.blocks
        offsets = 1 + points[:, : blocks * width].reshape(len(points), blocks, width)
        factors = (offsets / offsets.mean(2, keepdims=True)).prod(1) / self.scale
        return _single(points[:, blocks * width :].reshape(len(points), self.rows, width) * factors[:, None])

    def play(self, points: Numbers, episodes: Episodes) -> Numbers:
        """Rewards (size, n) of points (size, count): every candidate on all episodes."""
        heads = self.heads(points)

        def choose(turn: int, phases: States) -> tuple[States, States]:
            return self.decided(self.logits(heads, episodes, turn, phases), episodes.draws[:, turn])

        return self.run(episodes, choose, len(points))

    def logits(self, heads: Floats, episodes: Episodes, turn: int, phases: States) -> Floats:
        """(size, n, rows) of heads (size, rows, width) in phases (size, n); states are never written out."""
        size, rows, width = heads.shape
        signals = (heads @ self.signals.T).transpose(0, 2, 1)
        noise = (episodes.noise[:, turn] @ heads.reshape(-1, width).T).reshape(-1, size, rows).transpose(1, 0, 2)
        own = signals[np.arange(size)[:, None], self.plan.kinds + phases]
        return np.asarray(signals[:, episodes.kinds] + own + noise)

    def decided(self, logits: Floats, draws: Numbers) -> tuple[States, States]:
        """Agents and roles (..., n) of logits (..., n, rows)."""
        both = logits[..., : self.plan.agents], logits[..., self.plan.agents :]
        if not self.plan.sampled:
            return both[0].argmax(-1), both[1].argmax(-1)
        return sampled(both[0], draws[:, 0])[0], sampled(both[1], draws[:, 1])[0]

    def optimum(self, episodes: Episodes) -> Numbers:
        """Rewards (n,) of who knows what was planted: plan where the kind is hard, work by the best, verify by the
        sharpest, work again where the check failed."""
        kinds = episodes.kinds
        by_role = np.stack([table.argmax(-1)[kinds] for table in (self.work[:, 1], self.plans, self.check)])

        def known(_turn: int, phases: States) -> tuple[States, States]:
            hard = (kinds % 2 == 1) & (phases == BEGUN)
            roles = np.where(hard, THINKER, np.where(phases == PASSED, VERIFIER, WORKER))
            return by_role[roles, np.arange(len(kinds))], roles

        rewards: Numbers = self.run(episodes, known, 1)[0]
        return rewards

    def run(self, episodes: Episodes, choose: Choose, size: int) -> Numbers:
        """Rewards (size, n): every episode to its end, all at once. Work that is done is checked by the surroundings,
        nine times in ten rightly; a Verifier sees more: a good one accepts what is right and nothing else."""
        kinds, count = episodes.kinds, len(episodes.kinds)
        phases = np.full((size, count), BEGUN)
        correct, worked, ended = (np.zeros((size, count), bool) for _ in range(3))
        for turn in range(self.plan.turns):
            agents, roles = choose(turn, phases)
            luck = episodes.luck[:, turn]
            roles = np.where((roles == VERIFIER) & ~worked, WORKER, roles)
            right = luck[:, 0] < self.work[kinds, (phases == PLANNED).astype(np.int64), agents]
            seen = np.where(luck[:, 1] < 0.9, right, ~right)
            thought = (luck[:, 0] < self.plans[kinds, agents]) & (phases == BEGUN) & (roles == THINKER)
            working, verifying = (roles == WORKER) & ~ended, roles == VERIFIER
            correct = np.where(working, right, correct)
            worked |= working
            ended |= verifying & np.where(luck[:, 1] < self.check[kinds, agents], correct, ~correct)
            phases = np.where(roles == WORKER, np.where(seen, PASSED, FAILED), np.where(thought, PLANNED, phases))
            phases = np.where(verifying, FAILED, phases)
        return np.asarray(correct, np.float64)


def sampled(logits: Floats, draws: Numbers) -> tuple[States, Floats]:
    """What is drawn from the softmax of logits (..., n, k), and the chances it was drawn by."""
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    chances = weights / weights.sum(-1, keepdims=True)
    chosen = (chances.cumsum(-1) <= draws[:, None]).sum(-1)
    return np.minimum(chosen, logits.shape[-1] - 1), chances


def _single(numbers: Numbers) -> Floats:
    return np.asarray(numbers, np.float32)
