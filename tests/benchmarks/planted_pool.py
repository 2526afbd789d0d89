"""A synthetic pool whose best decision is known at every transcript, and REINFORCE on it: what
evolution is compared with; and random search, the paper's baseline.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fugu_cli.training.search import Numbers

WORKER, THINKER, VERIFIER = range(3)
BEGUN, PLANNED, PASSED, FAILED = range(4)

States = NDArray[np.int64]
Floats = NDArray[np.float32]
ChooseAgentAndRole = Callable[[int, States], tuple[States, States]]
"""The turn and the phases (..., n) to the agents and the roles (..., n) that act."""


@dataclass(frozen=True)
class PlantedPoolSettings:
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
    """What all states share, in the same units: hidden states of real models share most of their
    length.
    """
    scaled: bool = True
    """Each number of a state has its own unit, as in a real search (search_vector.py)."""
    sampled: bool = False
    """Decisions are drawn from the softmax, as the authors' code does, and not the highest
    logits.
    """
    seed: int = 0


@dataclass(frozen=True)
class PlantedEpisodes:
    """Tasks with everything that chance decides in them: `kinds` (n,), `noise` (n, turns, width),
    `luck` (n, turns, 2) of what is done, `draws` (n, turns, 2) of what is decided.

    The same episodes for every candidate are common random numbers: what differs is the candidate.
    """

    kinds: States
    noise: Floats
    luck: Numbers
    draws: Numbers


class PlantedPool:
    """The chances and the states of one planted pool."""

    def __init__(self, plan: PlantedPoolSettings) -> None:
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

    def episodes(self, count: int, seed: int) -> PlantedEpisodes:
        """`count` tasks drawn at random."""
        draw = np.random.default_rng((self.plan.seed, seed))
        turns = self.plan.turns
        return PlantedEpisodes(
            kinds=draw.integers(self.plan.kinds, size=count),
            noise=draw.standard_normal((count, turns, self.plan.width), np.float32) * self._spread,
            luck=draw.random((count, turns, 2)),
            draws=draw.random((count, turns, 2)),
        )

    def signs(self, episodes: PlantedEpisodes, phases: States) -> Floats:
        """Which `signals` (kinds + 4, width) states are sums of, before their noise: (..., n, kinds
        + 4), 0 or 1.
        """
        kinds, one = self.plan.kinds, np.eye(self.plan.kinds + 4, dtype=np.float32)
        return np.asarray(one[episodes.kinds] + one[kinds + phases])

    def _units(self) -> Floats:
        """The root mean square (width,) of the states of 64 requests, before anything was done."""
        asked = self.episodes(64, 10**7)
        states = self.signs(asked, np.full(64, BEGUN)) @ self.signals + asked.noise[:, 0]
        return _single(np.sqrt(np.square(states).mean(0)))

    def heads(self, points: Numbers) -> Floats:
        """What points (size, count) do to a state: (size, rows, width), the offsets multiplied into
        the head.
        """
        width, blocks = self.plan.width, self.plan.blocks
        offsets = 1 + points[:, : blocks * width].reshape(len(points), blocks, width)
        factors = (offsets / offsets.mean(2, keepdims=True)).prod(1) / self.scale
        return _single(
            points[:, blocks * width :].reshape(len(points), self.rows, width) * factors[:, None]
        )

    def play(self, points: Numbers, episodes: PlantedEpisodes) -> Numbers:
        """Rewards (size, n) of points (size, count): every candidate on all episodes."""
        heads = self.heads(points)

        def choose(turn: int, phases: States) -> tuple[States, States]:
            return self.decided(self.logits(heads, episodes, turn, phases), episodes.draws[:, turn])

        return self.run(episodes, choose, len(points))

    def logits(self, heads: Floats, episodes: PlantedEpisodes, turn: int, phases: States) -> Floats:
        """(size, n, rows) of heads (size, rows, width) in phases (size, n); states are never
        written out.
        """
        size, rows, width = heads.shape
        signals = (heads @ self.signals.T).transpose(0, 2, 1)
        noise = (
            (episodes.noise[:, turn] @ heads.reshape(-1, width).T)
            .reshape(-1, size, rows)
            .transpose(1, 0, 2)
        )
        own = signals[np.arange(size)[:, None], self.plan.kinds + phases]
        return np.asarray(signals[:, episodes.kinds] + own + noise)

    def decided(self, logits: Floats, draws: Numbers) -> tuple[States, States]:
        """Agents and roles (..., n) of logits (..., n, rows)."""
        both = logits[..., : self.plan.agents], logits[..., self.plan.agents :]
        if not self.plan.sampled:
            return both[0].argmax(-1), both[1].argmax(-1)
        return sample_actions(both[0], draws[:, 0])[0], sample_actions(both[1], draws[:, 1])[0]

    def optimum(self, episodes: PlantedEpisodes) -> Numbers:
        """Rewards (n,) of who knows what was planted: plan where the kind is hard, work by the
        best, verify by the sharpest, work again where the check failed."""
        kinds = episodes.kinds
        by_role = np.stack(
            [table.argmax(-1)[kinds] for table in (self.work[:, 1], self.plans, self.check)]
        )

        def known(_turn: int, phases: States) -> tuple[States, States]:
            hard = (kinds % 2 == 1) & (phases == BEGUN)
            roles = np.where(hard, THINKER, np.where(phases == PASSED, VERIFIER, WORKER))
            return by_role[roles, np.arange(len(kinds))], roles

        rewards: Numbers = self.run(episodes, known, 1)[0]
        return rewards

    def run(self, episodes: PlantedEpisodes, choose: ChooseAgentAndRole, size: int) -> Numbers:
        """Rewards (size, n): every episode to its end, all at once. Work that is done is checked by
        the surroundings, nine times in ten rightly; a Verifier sees more: a good one accepts what
        is right and nothing else."""
        kinds, count = episodes.kinds, len(episodes.kinds)
        phases = np.full((size, count), BEGUN)
        correct, worked, ended = (np.zeros((size, count), bool) for _ in range(3))
        for turn in range(self.plan.turns):
            agents, roles = choose(turn, phases)
            luck = episodes.luck[:, turn]
            roles = np.where((roles == VERIFIER) & ~worked, WORKER, roles)
            right = luck[:, 0] < self.work[kinds, (phases == PLANNED).astype(np.int64), agents]
            seen = np.where(luck[:, 1] < 0.9, right, ~right)
            thought = (
                (luck[:, 0] < self.plans[kinds, agents]) & (phases == BEGUN) & (roles == THINKER)
            )
            working, verifying = (roles == WORKER) & ~ended, roles == VERIFIER
            correct = np.where(working, right, correct)
            worked |= working
            ended |= verifying & np.where(luck[:, 1] < self.check[kinds, agents], correct, ~correct)
            phases = np.where(
                roles == WORKER, np.where(seen, PASSED, FAILED), np.where(thought, PLANNED, phases)
            )
            phases = np.where(verifying, FAILED, phases)
        return np.asarray(correct, np.float64)


def sample_actions(logits: Floats, draws: Numbers) -> tuple[States, Floats]:
    """What is drawn from the softmax of logits (..., n, k), and the chances it was drawn by."""
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    chances = weights / weights.sum(-1, keepdims=True)
    chosen = (chances.cumsum(-1) <= draws[:, None]).sum(-1)
    return np.minimum(chosen, logits.shape[-1] - 1), chances


def _single(numbers: Numbers) -> Floats:
    return np.asarray(numbers, np.float32)


@dataclass(frozen=True)
class ReinforceSettings:
    """How a learner learns: Adam's rate, and whether rewards count against their mean."""

    rate: float
    baseline: bool = True


@dataclass(frozen=True)
class TakenTurn:
    """One turn: which signals were seen (size, n, kinds + 4), with what noise (n, width), and the
    gradient of the log-probability of what was decided by the logits (size, n, rows)."""

    signs: Floats
    noise: Floats
    slope: Floats


class Reinforce:
    """Points (size, count) of a pool, one by each tuning, moved by policy gradients on the same
    episodes.
    """

    def __init__(self, pool: PlantedPool, tunings: Sequence[ReinforceSettings]) -> None:
        self.points: Numbers = np.zeros((len(tunings), pool.count))
        self._pool = pool
        self._rates = np.array([[one.rate] for one in tunings])
        self._based = np.array([[one.baseline] for one in tunings])
        self._mean = np.zeros_like(self.points)
        self._square = np.zeros_like(self.points)
        self._steps = 0

    def step(self, episodes: PlantedEpisodes) -> None:
        """One gradient step from one batch."""
        pool, heads = self._pool, self._pool.heads(self.points)
        taken: list[TakenTurn] = []

        def choose(turn: int, phases: States) -> tuple[States, States]:
            logits, count = pool.logits(heads, episodes, turn, phases), pool.plan.agents
            agents, first = _sampled_with_gradient(logits[..., :count], episodes.draws[:, turn, 0])
            roles, second = _sampled_with_gradient(logits[..., count:], episodes.draws[:, turn, 1])
            slope = np.concatenate([first, second], -1)
            taken.append(TakenTurn(pool.signs(episodes, phases), episodes.noise[:, turn], slope))
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
        """By the points (size, count), from that by the heads that offsets are multiplied into
        (size, rows, width).
        """
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


def _sampled_with_gradient(logits: Floats, draws: Numbers) -> tuple[States, Floats]:
    chosen, chances = sample_actions(logits, draws)
    return chosen, np.eye(logits.shape[-1], dtype=np.float32)[chosen] - chances


class Optimiser(Protocol):
    """Proposes candidates and learns from what they were worth."""

    @property
    def mean(self) -> Numbers:
        """The result so far (N,): what is saved."""

    def ask(self) -> Numbers:
        """The next candidates (population, N)."""

    def tell(self, candidates: Numbers, fitness: Numbers) -> None:
        """What they were worth (population,), higher is better."""


class RandomSearch:
    """Candidates from U[-width, width], the best one is the result: the paper's baseline (width
    0.5).
    """

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
