"""A planted pool: a synthetic problem whose best (agent, role) is known at every transcript, to compare optimisers on.

Stands beside evolve.py as its proof. A transcript is a hidden state made of the task's kind, how far the work is, and
noise. Kinds need different agents; hard kinds need a plan first, by an agent that only plans well; the work must be
verified. Nothing of the session, of torch or of texts is used.

    phases   begun -> planned -> passed or failed, by a check that is right nine times in ten
    reward   1 where the newest work is right when a Verifier accepts it or K turns are over
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


@dataclass(frozen=True)
class Plan:
    """The sizes of a planted pool."""

    agents: int = 7
    kinds: int = 3
    width: int = 128
    turns: int = 5
    noise: float = 0.5
    """Of the state, in units of the signal."""
    common: float = 3.0
    """What all states share, in the same units: hidden states of real models share most of their length."""
    seed: int = 0


@dataclass(frozen=True)
class Episodes:
    """Tasks with everything that chance decides in them: `kinds` (n,), `noise` (n, turns, width), `luck` (n, turns, 2).

    The same episodes for every candidate are the common random numbers of SPEC 3.
    """

    kinds: States
    noise: Numbers
    luck: Numbers


class Pool:
    """The chances and the states of one planted pool."""

    def __init__(self, plan: Plan) -> None:
        draw = np.random.default_rng(plan.seed)
        self.plan = plan
        self._common = plan.common * draw.normal(size=plan.width)
        self._codes = draw.normal(size=(plan.kinds, plan.width))
        self._phases = draw.normal(size=(4, plan.width))
        self.work = np.full((plan.kinds, 2, plan.agents), 0.4)
        self.check = np.full((plan.kinds, plan.agents), 0.6)
        self.plans = np.full((plan.kinds, plan.agents), 0.5)
        for kind in range(plan.kinds):
            best, planner, judge = draw.permutation(plan.agents)[:3]
            hard = kind % 2 == 1
            self.work[kind, :, best] = (0.45, 0.8) if hard else 0.8
            self.plans[kind, planner] = 0.95
            self.check[kind, judge] = 0.98

    @property
    def rows(self) -> int:
        """Rows of the head: agents and roles."""
        return self.plan.agents + 3

    def episodes(self, count: int, seed: int) -> Episodes:
        """`count` tasks drawn at random."""
        draw = np.random.default_rng((self.plan.seed, seed))
        plan = self.plan
        return Episodes(
            kinds=draw.integers(plan.kinds, size=count),
            noise=plan.noise * draw.normal(size=(count, plan.turns, plan.width)),
            luck=draw.random((count, plan.turns, 2)),
        )

    def states(self, kinds: States, phases: States, noise: Numbers) -> Numbers:
        """Hidden states (n, width)."""
        states = self._common + self._codes[kinds] + self._phases[phases] + noise
        return np.asarray(states / np.sqrt(2 + self.plan.noise**2))

    def act(self, kinds: States, phases: States, chosen: tuple[States, States], luck: Numbers) -> Acted:
        """What one turn leads to. Work that is done is checked by the surroundings, nine times in ten rightly; a
        Verifier sees more: a good one accepts what is right and nothing else."""
        agents, roles = chosen
        planned = (phases == PLANNED).astype(np.int64)
        right = luck[:, 0] < self.work[kinds, planned, agents]
        seen = np.where(luck[:, 1] < 0.9, right, ~right)
        thought = (luck[:, 0] < self.plans[kinds, agents]) & (phases == BEGUN)
        after = np.where(roles == WORKER, np.where(seen, PASSED, FAILED), phases)
        after = np.where((roles == THINKER) & thought, PLANNED, after)
        return Acted(after, right, luck[:, 1] < self.check[kinds, agents])

    def play(self, head: Numbers, episodes: Episodes) -> Numbers:
        """Rewards (n,) of a head (rows, width) that always takes the highest logits."""
        count = self.plan.agents

        def greedy(seen: Seen) -> tuple[States, States]:
            logits = seen.hidden @ head.T
            return logits[:, :count].argmax(1), logits[:, count:].argmax(1)

        return self.run(episodes, greedy)

    def optimum(self, episodes: Episodes) -> Numbers:
        """Rewards (n,) of who knows what was planted: plan where the kind is hard, work by the best, verify by the
        sharpest, work again where the check failed."""

        def known(seen: Seen) -> tuple[States, States]:
            hard = (seen.kinds % 2 == 1) & (seen.phases == BEGUN)
            roles = np.where(hard, THINKER, np.where(seen.phases == PASSED, VERIFIER, WORKER))
            by_role = np.stack([table.argmax(-1)[seen.kinds] for table in (self.work[:, 1], self.plans, self.check)])
            return by_role[roles, np.arange(len(roles))], roles

        return self.run(episodes, known)

    def run(self, episodes: Episodes, choose: Choose) -> Numbers:
        """Rewards (n,): every episode to its end, all at once."""
        count = len(episodes.kinds)
        phases = np.full(count, BEGUN)
        correct, worked, ended = (np.zeros(count, bool) for _ in range(3))
        for turn in range(self.plan.turns):
            hidden = self.states(episodes.kinds, phases, episodes.noise[:, turn])
            agents, roles = choose(Seen(hidden, episodes.kinds, phases))
            roles = np.where((roles == VERIFIER) & ~worked, WORKER, roles)
            acted = self.act(episodes.kinds, phases, (agents, roles), episodes.luck[:, turn])
            working = (roles == WORKER) & ~ended
            correct = np.where(working, acted.right, correct)
            worked |= working
            verifying = roles == VERIFIER
            ended |= verifying & np.where(acted.sharp, correct, ~correct)
            phases = np.where(verifying, FAILED, acted.phases)
        return correct.astype(np.float64)


@dataclass(frozen=True)
class Seen:
    """What is known at one turn of every episode; a coordinator reads `hidden` (n, width) only."""

    hidden: Numbers
    kinds: States
    phases: States


@dataclass(frozen=True)
class Acted:
    """The phase after a turn, whether work done in it is right, and whether a Verifier in it judges rightly."""

    phases: States
    right: NDArray[np.bool_]
    sharp: NDArray[np.bool_]


Choose = Callable[[Seen], tuple[States, States]]
"""What is seen to the agents and the roles (n,) of the next turn."""
