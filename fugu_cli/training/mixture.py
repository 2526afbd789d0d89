"""A checkpoint over slots for any pool: learned from recorded outcomes with pools drawn at random, and from a pass
matrix of the embedded pool. The recipe of the checkpoint that ships.

    warm start   stories (sft.py) for everyday requests and the loop's side ways; prior.py for replayed paths
    evolution    replay of issues under pools drawn anew in every iteration, and of the loop's tasks, half each
    proof        repositories and tasks held out, beside the rule cascade, before anything is written

Either source may be missing. Knows nothing of files but the folder that keeps states.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from pydantic import JsonValue

from fugu_cli.coordinators.svf import Vector
from fugu_cli.errors import ConfigError
from fugu_cli.training import fit, frontier, outcomes
from fugu_cli.training.candidates import Heads
from fugu_cli.training.frontier import Arm, Paired, paired
from fugu_cli.training.matrix import Seat, TaskRates
from fugu_cli.training.outcomes import Case, Issue
from fugu_cli.training.replay import Check, Replay, Rules
from fugu_cli.training.replay_sessions import Reading, ReplaySessionWriter
from fugu_cli.training.replay_training import Course, ReplayTraining, examples
from fugu_cli.training.search_vector import HiddenStates
from fugu_cli.training.study import sample, split
from fugu_cli.training.trials import Replayed, Together

TESTS = Check(1.0, 0.0)
"""The embedded pool's tasks are judged by their own tests."""

TALK = 0.3
"""What a Verifier's turn costs the embedded models, as a share of a Worker's: 2.7 s of 8.9 s, the means of 10 and 34
turns of `coder` in its own loop over 14 development tasks."""


@dataclass(frozen=True)
class Ingredients:
    """What is learned from. `stories` are examples told by the warm start of a pass matrix, or None."""

    seats: tuple[Seat, ...]
    issues: Sequence[Issue] = ()
    tasks: Sequence[TaskRates] = ()
    stories: fit.Examples | None = None


@dataclass(frozen=True)
class Blend:
    """How. `pools` are drawn for the warm start and for the proof; `shown` issues' texts are read for training."""

    check: Check = field(default_factory=Check)
    course: Course = field(default_factory=Course)
    reading: Reading = field(default_factory=Reading)
    pools: int = 6
    shown: int = 16
    turns: int = 4
    folds: int = 4
    seed: int = 0


@dataclass(frozen=True)
class _Compared:
    """Two ways to decide the same cases, and the issue of each: the same one under several pools."""

    ours: Arm
    rule: Arm
    of: tuple[str, ...]


@dataclass(frozen=True)
class Proof:
    """One source, decided by heads that did not know its repositories or tasks, against the rule cascade."""

    source: str
    ours: Arm
    cascade: Arm
    reward: Paired

    @property
    def worse(self) -> bool:
        """By more than chance explains: two paired standard errors."""
        return self.reward.difference < -2 * self.reward.error - 1e-9


class Mixture:
    """Trials, lessons and proofs from the ingredients."""

    def __init__(
        self, made_of: Ingredients, blend: Blend, writer: ReplaySessionWriter, hidden_states: HiddenStates
    ) -> None:
        self.made_of = made_of
        self.blend = blend
        self._writer = writer
        self._states = hidden_states
        self._looped = [Case(task, task.task, looped=True) for task in made_of.tasks]

    def about(self) -> dict[str, JsonValue]:
        """What of the data a run depends on, for its folder."""
        models = sorted({model for issue in self.made_of.issues for model in issue.outcomes})
        return {
            "issues": len(self.made_of.issues),
            "pool": [*models, *(f"{seat.row}={seat.agent}*{seat.attempts}" for seat in self.made_of.seats)],
            "tasks": [task.task for task in self.made_of.tasks],
        }

    def lessons(self, without: frozenset[str] = frozenset()) -> list[ReplayTraining]:
        """Issues under some drawn pools, and the loop's tasks; repositories and tasks in `without` are unknown."""
        found = [
            ReplayTraining(
                self._known(self._issues(number), without), self._writer, self._rules(), 1 / self.blend.pools
            )
            for number in range(self.blend.pools if self.made_of.issues else 0)
        ]
        looped = [case for case in self._looped if case.group not in without]
        if looped:
            found.append(ReplayTraining(looped, self._writer, Rules(TESTS, self.blend.turns, TALK)))
        return found

    def trial(self, without: frozenset[str] = frozenset()) -> Together:
        """Both sources at once, half of the fitness each."""
        replay = Replay(self._writer, self._rules())
        loop = Replay(self._writer, Rules(TESTS, self.blend.turns, TALK))
        parts: list[tuple[Replayed, float]] = []
        if self.made_of.issues:
            held = [case for number in range(self.blend.pools) for case in self._shown(number, without)[1]]

            def drawn(draw: random.Random) -> Sequence[Case]:
                return self._shown(draw.randrange(10**6), without)[0]

            parts.append((Replayed(replay, drawn, held, self.blend.seed), 1.0))
        looped = [case for case in self._looped if case.group not in without]
        if looped:
            learned, validated = split(sample(looped, len(looped), self.blend.seed))
            parts.append((Replayed(loop, lambda draw: learned, validated, self.blend.seed), 1.0))
        return Together(parts)

    def told(self, without: frozenset[str] = frozenset()) -> fit.Examples:
        """The warm start's examples."""
        course = replace(self.blend.course, shown=self.blend.shown)
        found = examples(self.lessons(without), course, self._states)
        found = replace(found, weights=found.weights / found.weights.sum())
        stories = self.made_of.stories
        if stories is None:
            return found
        kept = stories.take(np.array([group not in without for group in stories.groups]))
        return _joined(replace(kept, weights=kept.weights / kept.weights.sum()), found)

    def groups(self) -> list[str]:
        """Repositories and tasks, as folds divide them."""
        repos = sorted({issue.repo or issue.id for issue in self.made_of.issues})
        return [*repos, *(case.group for case in self._looped)]

    def provable(self) -> None:
        """Raises ConfigError where there is but one group: nothing is left to learn from."""
        if len(known := set(self.groups())) < 2:
            raise ConfigError(f"a proof needs two repositories or tasks at least; there is {', '.join(known)}")

    def prove(self, head_of: Callable[[frozenset[str]], Vector]) -> list[Proof]:
        """Cross-validated: `head_of` learns without some groups, which are then decided by it."""
        groups = self.groups()
        parts: dict[str, list[_Compared]] = {}
        for held in fit.folds(groups, self.blend.folds, self.blend.seed):
            out = frozenset(group for group, kept in zip(groups, held, strict=True) if kept)
            head = head_of(out)
            for source, cases, rules in self._held(out):
                ours, rule = self._compared(head, cases, rules)
                parts.setdefault(source, []).append(_Compared(ours, rule, tuple(case.task.task for case in cases)))
        return [_proof(source, both, self.blend.course.price) for source, both in parts.items()]

    def _held(self, out: frozenset[str]) -> list[tuple[str, list[Case], Rules]]:
        issues = [case for number in range(self.blend.pools) for case in self._issues(number) if case.group in out]
        issues = sample([case for case in issues if not case.empty], 4 * self.blend.shown, self.blend.seed)
        looped = [case for case in self._looped if case.group in out]
        both = [("issues, pools drawn", issues, self._rules()), ("loop", looped, Rules(TESTS, self.blend.turns, TALK))]
        return [part for part in both if part[1]]

    def _compared(self, head: Vector, cases: Sequence[Case], rules: Rules) -> tuple[Arm, Arm]:
        played = Replay(self._writer, rules).play(Heads(head[None], self._states), cases)
        order = [*range(len(self.made_of.seats))]
        if cases[0].looped:  # the strongest goes on until the limit
            order += [order[-1]] * rules.turns
        rule = frontier.sequence("cascade", cases, order[: rules.turns], rules.check, rules.talk)
        return Arm("learned", played.solved[0], played.cost[0]), rule

    def _rules(self) -> Rules:
        return Rules(self.blend.check, self.blend.turns)

    def _issues(self, number: int) -> list[Case]:
        draw = random.Random(f"{self.blend.seed}/{number}")
        pool = outcomes.drawn(self.made_of.issues, len(self.made_of.seats), draw, {})
        return outcomes.cases(self.made_of.issues, pool)

    def _shown(self, number: int, without: frozenset[str]) -> tuple[list[Case], list[Case]]:
        """The same few issues under every pool, their texts are read once: to learn from, and to validate."""
        known = self._known(self._issues(number), without)
        wanted = self._read(without)
        return split([case for case in known if case.task.task in wanted] or known[: self.blend.shown])

    def _known(self, cases: Sequence[Case], without: frozenset[str]) -> list[Case]:
        """Known cases, those whose texts are read first."""
        wanted = self._read(without)
        known = [case for case in cases if case.group not in without]
        return sorted(known, key=lambda case: wanted.get(case.task.task, len(wanted)))

    def _read(self, without: frozenset[str]) -> dict[str, int]:
        """The issues whose texts are read, in their order."""
        found = sample_issues(self.made_of.issues, self.blend.shown, without, self.blend.seed)
        return {issue.id: place for place, issue in enumerate(found)}


def sample_issues(issues: Sequence[Issue], count: int, without: frozenset[str], seed: int) -> list[Issue]:
    """The same few for every pool."""
    order = sorted(issues, key=lambda issue: random.Random(f"{seed}/{issue.id}").random())
    return [issue for issue in order if (issue.repo or issue.id) not in without][:count]


def _joined(first: fit.Examples, second: fit.Examples) -> fit.Examples:
    return fit.Examples(
        np.concatenate([first.hidden, second.hidden]),
        np.concatenate([first.rows, second.rows]),
        np.concatenate([first.roles, second.roles]),
        np.concatenate([first.weights, second.weights]),
        (*first.groups, *second.groups),
    )


def _proof(source: str, parts: Sequence[_Compared], price: float) -> Proof:
    ours, rule = (_joined_arms(arms) for arms in zip(*((part.ours, part.rule) for part in parts), strict=True))
    of = [issue for part in parts for issue in part.of]
    return Proof(source, ours, rule, paired(ours.reward(price), rule.reward(price), of))


def _joined_arms(arms: Sequence[Arm]) -> Arm:
    solved, cost = (np.concatenate(list(each)) for each in zip(*((arm.solved, arm.cost) for arm in arms), strict=True))
    return Arm(arms[0].name, solved, cost)
