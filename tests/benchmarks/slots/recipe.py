"""A checkpoint over slots for any pool, learned from recorded outcomes under random pools and from
a pass matrix, and compared with the rule cascade on held-out data. The recipe of an earlier
checkpoint, which read `raw`; slot_checkpoint.py makes the one that ships.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from pydantic import JsonValue

from fugu_cli.coordinators import checkpoint as checkpoints
from fugu_cli.coordinators import svf
from fugu_cli.coordinators.action_space import SLOTS
from fugu_cli.coordinators.backbone import Backbone
from fugu_cli.coordinators.checkpoint import Checkpoint, CheckpointMeta, TrainingOrigin
from fugu_cli.coordinators.svf import Vector
from fugu_cli.errors import ConfigError
from fugu_cli.training import fitting, pass_matrix
from fugu_cli.training.pass_matrix import HeadRow, TaskRates, ValueSettings
from fugu_cli.training.search import HeadCandidates, HeadLayout, HiddenStates, checkpoint_vector
from fugu_cli.training.search import Numbers as Numbers_slot_mixture
from fugu_cli.training.sft import WarmStart, WarmStartSettings, parse_head_row
from tests.benchmarks.slots import frontier, outcomes
from tests.benchmarks.slots.frontier import (
    Numbers,
    PairedDifference,
    PolicyScores,
    paired_difference,
)
from tests.benchmarks.slots.lessons import (
    HeadTrainingSettings,
    ReplayDataset,
    learn_head,
    replay_examples,
    sample_cases,
    train_validation_split,
)
from tests.benchmarks.slots.outcomes import Issue, ReplayCase
from tests.benchmarks.slots.replay import (
    CheckRates,
    CombinedTrial,
    Replay,
    ReplayRules,
    ReplaySessionWriter,
    ReplayTrial,
    TranscriptSettings,
)

EXACT_TESTS = CheckRates(1.0, 0.0)
"""The embedded pool's tasks are judged by their own tests."""

VERIFIER_COST = 0.3
"""What a Verifier's turn costs the embedded models, as a share of a Worker's: 2.7 s of 8.9 s, the
means of 10 and 34 turns of `coder` in its own loop over 14 development tasks."""


@dataclass(frozen=True)
class MixtureData:
    """What is learned from. `stories` are examples told by the warm start of a pass matrix, or
    None.
    """

    seats: tuple[HeadRow, ...]
    issues: Sequence[Issue] = ()
    tasks: Sequence[TaskRates] = ()
    stories: fitting.HeadExamples | None = None


@dataclass(frozen=True)
class MixtureConfig:
    """How. `pools` are drawn for the warm start and for the proof; `shown` issues' texts are read
    for training.
    """

    check: CheckRates = field(default_factory=CheckRates)
    course: HeadTrainingSettings = field(default_factory=HeadTrainingSettings)
    reading: TranscriptSettings = field(default_factory=TranscriptSettings)
    pools: int = 6
    shown: int = 16
    turns: int = 4
    folds: int = 4
    seed: int = 0


@dataclass(frozen=True)
class _PairedScores:
    """Two ways to decide the same cases, and the issue of each: the same one under several
    pools.
    """

    ours: PolicyScores
    rule: PolicyScores
    of: tuple[str, ...]


@dataclass(frozen=True)
class HeldOutComparison:
    """One source, decided by heads that did not know its repositories or tasks, against the rule
    cascade.
    """

    source: str
    ours: PolicyScores
    cascade: PolicyScores
    reward: PairedDifference

    @property
    def worse(self) -> bool:
        """By more than chance explains: two paired standard errors."""
        return self.reward.difference < -2 * self.reward.error - 1e-9


class Mixture:
    """Trials, lessons and proofs from the ingredients."""

    def __init__(
        self,
        made_of: MixtureData,
        blend: MixtureConfig,
        writer: ReplaySessionWriter,
        hidden_states: HiddenStates,
    ) -> None:
        self.made_of = made_of
        self.blend = blend
        self._writer = writer
        self._states = hidden_states
        self._looped = [ReplayCase(task, task.task, looped=True) for task in made_of.tasks]

    def about(self) -> dict[str, JsonValue]:
        """What of the data a run depends on, for its folder."""
        models = sorted({model for issue in self.made_of.issues for model in issue.outcomes})
        return {
            "issues": len(self.made_of.issues),
            "pool": [
                *models,
                *(f"{seat.row}={seat.agent}*{seat.attempts}" for seat in self.made_of.seats),
            ],
            "tasks": [task.task for task in self.made_of.tasks],
        }

    def lessons(self, without: frozenset[str] = frozenset()) -> list[ReplayDataset]:
        """Issues under some drawn pools, and the loop's tasks; repositories and tasks in `without`
        are unknown.
        """
        found = [
            ReplayDataset(
                self._known(self._issues(number), without),
                self._writer,
                self._rules(),
                1 / self.blend.pools,
            )
            for number in range(self.blend.pools if self.made_of.issues else 0)
        ]
        looped = [case for case in self._looped if case.group not in without]
        if looped:
            found.append(
                ReplayDataset(
                    looped, self._writer, ReplayRules(EXACT_TESTS, self.blend.turns, VERIFIER_COST)
                )
            )
        return found

    def trial(self, without: frozenset[str] = frozenset()) -> CombinedTrial:
        """Both sources at once, half of the fitness each."""
        replay = Replay(self._writer, self._rules())
        loop = Replay(self._writer, ReplayRules(EXACT_TESTS, self.blend.turns, VERIFIER_COST))
        parts: list[tuple[ReplayTrial, float]] = []
        if self.made_of.issues:
            held = [
                case
                for number in range(self.blend.pools)
                for case in self._shown(number, without)[1]
            ]

            def drawn(draw: random.Random) -> Sequence[ReplayCase]:
                return self._shown(draw.randrange(10**6), without)[0]

            parts.append((ReplayTrial(replay, drawn, held, self.blend.seed), 1.0))
        looped = [case for case in self._looped if case.group not in without]
        if looped:
            learned, validated = train_validation_split(
                sample_cases(looped, len(looped), self.blend.seed)
            )
            parts.append((ReplayTrial(loop, lambda draw: learned, validated, self.blend.seed), 1.0))
        return CombinedTrial(parts)

    def told(self, without: frozenset[str] = frozenset()) -> fitting.HeadExamples:
        """The warm start's examples."""
        course = replace(self.blend.course, shown=self.blend.shown)
        found = replay_examples(self.lessons(without), course, self._states)
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
            raise ConfigError(
                f"a proof needs two repositories or tasks at least; there is {', '.join(known)}"
            )

    def prove(self, head_of: Callable[[frozenset[str]], Vector]) -> list[HeldOutComparison]:
        """Cross-validated: `head_of` learns without some groups, which are then decided by it."""
        groups = self.groups()
        parts: dict[str, list[_PairedScores]] = {}
        for held in fitting.group_folds(groups, self.blend.folds, self.blend.seed):
            out = frozenset(group for group, kept in zip(groups, held, strict=True) if kept)
            head = head_of(out)
            for source, cases, rules in self._held(out):
                ours, rule = self._compared(head, cases, rules)
                parts.setdefault(source, []).append(
                    _PairedScores(ours, rule, tuple(case.task.task for case in cases))
                )
        return [
            _comparison(source, both, self.blend.course.price) for source, both in parts.items()
        ]

    def _held(self, out: frozenset[str]) -> list[tuple[str, list[ReplayCase], ReplayRules]]:
        issues = [
            case
            for number in range(self.blend.pools)
            for case in self._issues(number)
            if case.group in out
        ]
        issues = sample_cases(
            [case for case in issues if not case.empty], 4 * self.blend.shown, self.blend.seed
        )
        looped = [case for case in self._looped if case.group in out]
        both = [
            ("issues, pools drawn", issues, self._rules()),
            ("loop", looped, ReplayRules(EXACT_TESTS, self.blend.turns, VERIFIER_COST)),
        ]
        return [part for part in both if part[1]]

    def _compared(
        self, head: Vector, cases: Sequence[ReplayCase], rules: ReplayRules
    ) -> tuple[PolicyScores, PolicyScores]:
        played = Replay(self._writer, rules).play(HeadCandidates(head[None], self._states), cases)
        order = [*range(len(self.made_of.seats))]
        if cases[0].looped:  # the strongest goes on until the limit
            order += [order[-1]] * rules.turns
        rule = frontier.sequence_policy(
            "cascade", cases, order[: rules.turns], rules.check, rules.talk
        )
        return PolicyScores("learned", played.solved[0], played.cost[0]), rule

    def _rules(self) -> ReplayRules:
        return ReplayRules(self.blend.check, self.blend.turns)

    def _issues(self, number: int) -> list[ReplayCase]:
        draw = random.Random(f"{self.blend.seed}/{number}")
        pool = outcomes.random_pool(self.made_of.issues, len(self.made_of.seats), draw, {})
        return outcomes.pool_cases(self.made_of.issues, pool)

    def _shown(
        self, number: int, without: frozenset[str]
    ) -> tuple[list[ReplayCase], list[ReplayCase]]:
        """The same few issues under every pool, their texts are read once: to learn from, and to
        validate.
        """
        known = self._known(self._issues(number), without)
        wanted = self._read(without)
        return train_validation_split(
            [case for case in known if case.task.task in wanted] or known[: self.blend.shown]
        )

    def _known(self, cases: Sequence[ReplayCase], without: frozenset[str]) -> list[ReplayCase]:
        """Known cases, those whose texts are read first."""
        wanted = self._read(without)
        known = [case for case in cases if case.group not in without]
        return sorted(known, key=lambda case: wanted.get(case.task.task, len(wanted)))

    def _read(self, without: frozenset[str]) -> dict[str, int]:
        """The issues whose texts are read, in their order."""
        found = sample_issues(self.made_of.issues, self.blend.shown, without, self.blend.seed)
        return {issue.id: place for place, issue in enumerate(found)}


def sample_issues(
    issues: Sequence[Issue], count: int, without: frozenset[str], seed: int
) -> list[Issue]:
    """The same few for every pool."""
    order = sorted(issues, key=lambda issue: random.Random(f"{seed}/{issue.id}").random())
    return [issue for issue in order if (issue.repo or issue.id) not in without][:count]


def _joined(first: fitting.HeadExamples, second: fitting.HeadExamples) -> fitting.HeadExamples:
    return fitting.HeadExamples(
        np.concatenate([first.hidden, second.hidden]),
        np.concatenate([first.rows, second.rows]),
        np.concatenate([first.roles, second.roles]),
        np.concatenate([first.weights, second.weights]),
        (*first.groups, *second.groups),
    )


def _comparison(source: str, parts: Sequence[_PairedScores], price: float) -> HeldOutComparison:
    ours, rule = (
        _joined_arms(arms) for arms in zip(*((part.ours, part.rule) for part in parts), strict=True)
    )
    of = [issue for part in parts for issue in part.of]
    return HeldOutComparison(
        source, ours, rule, paired_difference(ours.reward(price), rule.reward(price), of)
    )


def _joined_arms(arms: Sequence[PolicyScores]) -> PolicyScores:
    solved, cost = (
        np.concatenate(list(each))
        for each in zip(*((arm.solved, arm.cost) for arm in arms), strict=True)
    )
    return PolicyScores(arms[0].name, solved, cost)


Tell = Callable[[str], None]


@dataclass(frozen=True)
class CascadeComparison:
    """By source: heads that had not seen what they were judged on, and `before`, another
    checkpoint's head on the same cases (which may have seen them)."""

    learned: tuple[HeldOutComparison, ...]
    before: tuple[HeldOutComparison, ...]

    @property
    def worse(self) -> tuple[str, ...]:
        """The sources on which the cascade is better by more than chance explains."""
        return tuple(proof.source for proof in self.learned if proof.worse)

    def record(self) -> dict[str, float]:
        """For a checkpoint's record."""
        found: dict[str, float] = {}
        for proof in self.learned:
            found |= {
                f"{proof.source}: cases": float(len(proof.ours.solved)),
                f"{proof.source}: solved, held out": _mean(proof.ours.solved),
                f"{proof.source}: cost, held out": _mean(proof.ours.cost),
                f"{proof.source}: solved by the cascade": _mean(proof.cascade.solved),
                f"{proof.source}: cost of the cascade": _mean(proof.cascade.cost),
                f"{proof.source}: reward over the cascade": round(proof.reward.difference, 4),
                f"{proof.source}: its standard error": round(proof.reward.error, 4),
            }
        for proof in self.before:
            found[f"{proof.source}: reward over the cascade, checkpoint before"] = round(
                proof.reward.difference, 4
            )
        return found

    def table(self) -> str:
        """As people read it."""
        lines = [
            "| judged on | cases | head | solved | cost | reward, against the cascade |",
            "|---|---|---|---|---|---|",
        ]
        for name, proofs in (("held out", self.learned), ("checkpoint before", self.before)):
            for proof in proofs:
                gap = f"{proof.reward.difference:+.4f} ± {proof.reward.error:.4f}"
                lines.append(
                    f"| {proof.source} | {len(proof.ours.solved)} | {name} | "
                    f"{_scores_text(proof.ours)} | {gap} |"
                )
        for proof in self.learned:
            lines.append(
                f"| {proof.source} | {len(proof.ours.solved)} | rule cascade "
                f"| {_scores_text(proof.cascade)} | +0.0000 |"
            )
        return "\n".join(lines)


def compare_with_cascade(
    mixture: Mixture, hidden_states: HiddenStates, before: Vector | None, tell: Tell
) -> CascadeComparison:
    """Every repository and task decided by a head that was learned without it, as the mixture's
    blend says.
    """

    def head_of(out: frozenset[str]) -> Vector:
        learned = learn_head(
            mixture.told(out),
            mixture.trial(out),
            mixture.blend.course,
            hidden_states,
            lambda _: None,
        )
        tell(f"learned without {len(out)} repositories and tasks")
        return learned.head

    known = () if before is None else tuple(mixture.prove(lambda _: before))
    return CascadeComparison(tuple(mixture.prove(head_of)), known)


def _mean(values: Numbers) -> float:
    return round(float(values.mean()), 4)


def _scores_text(arm: PolicyScores) -> str:
    return f"{arm.solved.mean():.1%} | {arm.cost.mean():.3f}"


REQUEST_TOKENS = 64
"""Tokens of a recorded issue's text that are read: nothing of its difficulty is in it."""

TellLine = Callable[[str], None]


def load_mixture(
    issues: Path | None,
    table: Path | None,
    rows: Sequence[str],
    blend: MixtureConfig,
    reading: tuple[Backbone, HiddenStates],
) -> tuple[Mixture, fitting.HeadExamples]:
    """The mixture of the files, and its warm start's examples. `rows` as in `fugu train sft`, for
    the pass matrix.
    """
    backbone, hidden_states = reading
    seats = tuple(parse_head_row(text) for text in rows) or tuple(
        HeadRow(slot, slot) for slot in SLOTS
    )
    if tuple(one.row for one in seats) != SLOTS:
        raise ConfigError(
            f"the rows are the slots {', '.join(SLOTS)}, in this order",
            hint="--row cheap=AGENT ...",
        )
    tasks = (
        pass_matrix.pass_rates(pass_matrix.read_matrix(table), seats) if table is not None else ()
    )
    recorded = outcomes.read_issues(issues) if issues is not None else ()
    told = None
    if tasks:
        like = blend.reading
        terms = ValueSettings(turns=blend.turns, cost=blend.course.price)
        recipe = WarmStartSettings(
            seats, terms, like.format, like.workers_only, like.budget, seed=blend.seed
        )
        start = WarmStart(recipe, backbone, Path())
        told = start.examples(start.tell_all(tasks), lambda _: None, hidden_states)
    writer = ReplaySessionWriter(
        seats, backbone, replace(blend.reading, request=REQUEST_TOKENS), blend.seed
    )
    mixture = Mixture(MixtureData(seats, recorded, tasks, told), blend, writer, hidden_states)
    return mixture, mixture.told()


def with_comparison(made: Checkpoint, lines: dict[str, float]) -> Checkpoint:
    """With the comparison in its record."""
    training = made.meta.training.model_copy(
        update={"report": (*made.meta.training.report, *lines.items())}
    )
    return checkpoints.make(made.vector, made.meta.model_copy(update={"training": training}))


def load_start(path: Path) -> Checkpoint:
    """A checkpoint to begin with. Raises ConfigError where it is not over slots and roles."""
    found = checkpoints.load(path)
    if found.meta.rows != SLOTS or not found.meta.roles:
        raise ConfigError(f"{path} is no checkpoint over slots and roles", hint="leave --start out")
    return found


def new_checkpoint(head: Vector, backbone: Backbone, reading: TranscriptSettings) -> Checkpoint:
    """A new checkpoint over slots, without offsets."""
    sizes = svf.ranks(backbone.shape)
    meta = CheckpointMeta(
        backbone=backbone.identity,
        width=backbone.shape.width,
        ranks=sizes,
        rows=SLOTS,
        format=reading.format,
        workers_only=reading.workers_only,
        budget=reading.budget,
    )
    return Checkpoint(meta, head, tuple(np.zeros(size, np.float32) for size in sizes))


def mixture_record(mixture: Mixture, start: Checkpoint | None) -> str:
    """For a checkpoint's record."""
    about = mixture.about()
    data = (
        f"{about['issues']} recorded issues with random pools; {len(mixture.made_of.tasks)} "
        f"tasks of a pass matrix"
    )
    return data if start is None else f"{data}; from {start.digest[:12]}"


def checkpoint_at(
    base: Checkpoint, layout: HeadLayout, point: Numbers_slot_mixture, training: TrainingOrigin
) -> Checkpoint:
    """A point of the search as a checkpoint that reads like `base`."""
    vector = checkpoint_vector(base.offsets, layout.offsets(point), layout.head(point))
    return checkpoints.make(vector, base.meta.model_copy(update={"training": training}))
