"""A study of recorded outcomes: learn a head on some repositories, decide on the others, for every lambda and check;
and its report.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fugu_cli.coordinators.svf import Vector
from fugu_cli.evaluation.results_folder import append_row, read_rows
from fugu_cli.messages import Value
from fugu_cli.session.events import ROLES
from fugu_cli.system import temp_dirs
from fugu_cli.training import fitting, frontier
from fugu_cli.training.evolution import (
    Evolution,
    EvolutionIteration,
    EvolutionSettings,
    Evolved,
    FitnessWeights,
    RunFolder,
    Trial,
)
from fugu_cli.training.frontier import PairedDifference, PolicyScores, paired_difference
from fugu_cli.training.planning import PathPlan
from fugu_cli.training.recorded_outcomes import ReplayCase
from fugu_cli.training.replay import CheckRates, Replay, ReplayRules
from fugu_cli.training.search import Candidates, Encode, HeadCandidates, HeadLayout, HiddenStates
from fugu_cli.training.synthetic_sessions import ReplaySessionWriter

TellIteration = Callable[[EvolutionIteration], None]


@dataclass(frozen=True)
class HeadTrainingSettings:
    """How to learn. `price` is lambda: what a relative cost of 1 is worth. `tau` softens the targets, `seldom` leaves
    out paths that are met less often than that, `shown` is how many cases' texts a path is shown with at least."""

    rules: ReplayRules = field(default_factory=ReplayRules)
    price: float = 0.1
    tau: float = 0.02
    l2: float = 3e-2
    seldom: float = 0.04
    shown: int = 24
    settings: EvolutionSettings = field(default_factory=lambda: EvolutionSettings(iterations=20, patience=8))

    def texts(self, weight: float) -> int:
        """With how many texts a path is shown that is met this often: up to four times as many. The first decision is
        met by every request, and stands on nothing but a text that must not move it."""
        return max(self.shown, round(4 * self.shown * weight))

    def evolving(self) -> EvolutionSettings:
        """Evolution weighs cost as the lesson does."""
        return self.settings.model_copy(update={"shaping": FitnessWeights(cost=self.price)})


@dataclass(frozen=True)
class ReplayDataset:
    """Cases that belong together (one pool, or one draw of it), told by one writer, with a weight."""

    cases: Sequence[ReplayCase]
    writer: ReplaySessionWriter
    rules: ReplayRules
    weight: float = 1.0


def replay_examples(
    lessons: Sequence[ReplayDataset], course: HeadTrainingSettings, see: Encode
) -> fitting.HeadExamples:
    """Every path of every lesson with some of its cases' texts: soft targets over the rows, the role, how often."""
    texts: list[str] = []
    rows, roles, weights, groups = [], [], [], []
    for lesson in lessons:
        for advice in PathPlan(lesson.cases, lesson.rules, course.price).advice(course.tau):
            if advice.weight < course.seldom:
                continue
            shown = lesson.cases[: course.texts(advice.weight)]
            for case in shown:
                texts.append(lesson.writer.scene(case, advice.path).text)
                rows.append(advice.rows)
                roles.append(advice.role)
                weights.append(lesson.weight * max(advice.weight, 0.05) / len(shown))
                groups.append(case.group)
    return fitting.HeadExamples(
        hidden=see(texts),
        rows=np.array(rows, np.float32),
        roles=np.array(roles, np.int64),
        weights=np.array(weights, np.float32),
        groups=tuple(groups),
    )


@dataclass(frozen=True)
class LearnedHead:
    """The head (rows + roles, width): the evolved one where validation says that it is better, else the warm start's;
    and how evolution went."""

    head: Vector
    warm: Vector
    evolved: Evolved


def warm_start_head(told: fitting.HeadExamples, course: HeadTrainingSettings) -> Vector:
    """The head that fits the examples."""
    return fitting.fit_head(told, len(ROLES), l2=course.l2)


def learn_head(
    told: fitting.HeadExamples,
    trial: Trial,
    course: HeadTrainingSettings,
    hidden_states: HiddenStates,
    tell: TellIteration,
) -> LearnedHead:
    """Warm start, then evolution in a folder that nobody keeps."""
    warm = warm_start_head(told, course)
    layout = HeadLayout(hidden_states, len(warm), told.hidden)
    with temp_dirs.temp_dir("lesson") as temporary:
        folder = RunFolder(temporary, {}, lambda _mean, _path: None)
        with folder.held():
            evolved = Evolution(course.evolving(), trial, layout.breed, folder).run(layout.start(warm), tell)
    both = layout.breed(np.stack([layout.start(warm), evolved.vector]))
    head = layout.head(evolved.vector) if surely_better(trial, both, course.price) else warm
    return LearnedHead(head, warm, evolved)


def surely_better(trial: Trial, both: Candidates, price: float) -> bool:
    """The second of two candidates is better on validation, by more than its standard error: the best of many
    iterations on a few cases mostly was lucky."""
    played = trial.validate(both)
    if played is None:
        return True
    reward = played.solved - price * played.cost
    gap = paired_difference(reward[1], reward[0])
    return gap.difference > gap.error


Tell = Callable[[str], None]
HeldOut = NDArray[np.bool_]

METHOD = 4
"""How parts are learned: those of another number in a file of answers are left alone."""


@dataclass(frozen=True)
class StudySettings:
    """What is asked: the lambdas, the checks, how many folds, and how many cases' texts are read for training. `talk`
    is what a Verifier's turn costs, as a share of a run: nothing, as a fixed cascade's check costs nothing either."""

    prices: tuple[float, ...] = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8)
    checks: tuple[CheckRates, ...] = (CheckRates(0.95, 0.10), CheckRates(0.90, 0.20), CheckRates(0.80, 0.40))
    folds: int = 5
    sample: int = 160
    turns: int = 4
    talk: float = 0.0
    seed: int = 0
    course: HeadTrainingSettings = field(default_factory=HeadTrainingSettings)


@dataclass(frozen=True)
class OperatingPoint:
    """One check and one lambda: what was learned, the best fixed way found with hindsight, and the paired difference of
    their rewards. `trained` is the fixed way that the training cases of every fold choose."""

    check: CheckRates
    price: float
    ours: PolicyScores
    fixed: PolicyScores
    trained: PolicyScores

    @property
    def reward(self) -> PairedDifference:
        """What was learned, against the best fixed way."""
        return self.over(self.ours, self.fixed)

    def over(self, first: PolicyScores, second: PolicyScores) -> PairedDifference:
        """The difference of two arms' rewards at this lambda."""
        return paired_difference(first.reward(self.price), second.reward(self.price))


class OperatingPointRow(Value):
    """A line of answers.jsonl: what was learned for one check and one lambda, by case."""

    study: str
    check: tuple[float, float]
    price: float
    solved: tuple[float, ...]
    cost: tuple[float, ...]


@dataclass(frozen=True)
class StudyFindings:
    """Everything, with the baselines by check."""

    names: tuple[str, ...]
    unit: float
    singles: tuple[PolicyScores, ...]
    oracle: PolicyScores
    cascades: dict[CheckRates, tuple[PolicyScores, ...]]
    answers: tuple[OperatingPoint, ...]


class Study:
    """The cases of one pool, the models of its rows, and how texts are seen."""

    def __init__(
        self,
        cases: Sequence[ReplayCase],
        names: Sequence[str],
        writer: ReplaySessionWriter,
        hidden_states: HiddenStates,
    ) -> None:
        self._cases = list(cases)
        self._names = tuple(names)
        self._writer = writer
        self._states = hidden_states

    def sha(self, question: StudySettings) -> str:
        """Names a study: its cases, its pool and what is asked of each of its parts."""
        asked = replace(question, prices=(), checks=())
        about = (METHOD, self._cases, self._names, asked)
        return hashlib.sha256(repr(about).encode()).hexdigest()[:16]

    def run(self, question: StudySettings, unit: float, file: Path, tell: Tell) -> StudyFindings:
        """`unit` is the cost in USD that counts as 1. Parts that `file` holds are not learned again; those of another
        study in it are left alone. Raises StorageError."""
        sha = self.sha(question)
        known = {(part.check, part.price): part for part in read_rows(file, OperatingPointRow) if part.study == sha}
        singles = frontier.single_policies(self._cases, self._names)
        cascades, answers = {}, []
        for check in question.checks:
            cascades[check] = tuple(frontier.cascade_policies(self._cases, self._names, check))
            for price in question.prices:
                part = known.get(((check.right, check.wrong), price))
                if part is None:
                    part = self._part(question, check, price, sha)
                    append_row(file, part)
                answers.append(self._answer(question, part, [*singles, *cascades[check]]))
                tell(progress_line(answers[-1], unit))
        oracle = frontier.oracle_scores(self._cases)
        return StudyFindings(self._names, unit, tuple(singles), oracle, cascades, tuple(answers))

    def _answer(
        self, question: StudySettings, part: OperatingPointRow, fixed: Sequence[PolicyScores]
    ) -> OperatingPoint:
        """What was learned, beside the `fixed` ways."""
        return OperatingPoint(
            CheckRates(*part.check),
            part.price,
            PolicyScores(f"learned, lambda {part.price:g}", np.array(part.solved), np.array(part.cost)),
            frontier.best_fixed(fixed, part.price),
            frontier.best_fixed_without_hindsight(fixed, [held for held, _ in self._folds(question)], part.price),
        )

    def _folds(self, question: StudySettings) -> list[tuple[HeldOut, list[ReplayCase]]]:
        """What is decided, and the cases of the other repositories."""
        groups = [case.group for case in self._cases]
        masks = fitting.group_folds(groups, question.folds, question.seed)
        return [(held, [case for case, out in zip(self._cases, held, strict=True) if not out]) for held in masks]

    def _part(self, question: StudySettings, check: CheckRates, price: float, sha: str) -> OperatingPointRow:
        arm = self._learned(question, ReplayRules(check, question.turns, question.talk), price)
        solved, cost = (tuple(float(value) for value in each) for each in (arm.solved, arm.cost))
        return OperatingPointRow(study=sha, check=(check.right, check.wrong), price=price, solved=solved, cost=cost)

    def _learned(self, question: StudySettings, rules: ReplayRules, price: float) -> PolicyScores:
        """Every case decided by the head of the fold that does not know its repository."""
        solved, cost = np.zeros(len(self._cases)), np.zeros(len(self._cases))
        for held, known in self._folds(question):
            turns = best_turn_limit(known, rules, price)
            head = self._head(known, question, replace(rules, turns=turns), price)
            places = np.flatnonzero(held)
            replay = Replay(self._writer, replace(rules, turns=turns))
            played = replay.play(HeadCandidates(head[None], self._states), [self._cases[place] for place in places])
            solved[places], cost[places] = played.solved[0], played.cost[0]
        return PolicyScores(f"learned, lambda {price:g}", solved, cost)

    def _head(self, known: Sequence[ReplayCase], question: StudySettings, rules: ReplayRules, price: float) -> Vector:
        """The targets are computed from all known cases; the texts of some are read."""
        shown = sample_cases(known, question.sample, question.seed)
        lesson = ReplayDataset([*shown, *(case for case in known if case not in shown)], self._writer, rules)
        course = replace(question.course, rules=rules, price=price, shown=len(shown))
        return warm_start_head(replay_examples([lesson], course, self._states), course)


def progress_line(answer: OperatingPoint, unit: float) -> str:
    """A line for who waits."""
    ours, fixed, reward = answer.ours, answer.fixed, answer.reward
    return (
        f"check {answer.check.right:.0%}/{answer.check.wrong:.0%}, lambda {answer.price:g}: ours "
        f"{ours.solved.mean():.1%} at ${ours.cost.mean() * unit:.3f}; best fixed ({fixed.name}) "
        f"{fixed.solved.mean():.1%} at ${fixed.cost.mean() * unit:.3f}; reward {reward.difference:+.4f} "
        f"(s.e. {reward.error:.4f})"
    )


def best_turn_limit(cases: Sequence[ReplayCase], rules: ReplayRules, price: float) -> int:
    """The limit on turns that pays best on these cases, at most what the rules allow: where cost weighs much, giving up
    early does. The fewest of equals."""
    start = np.stack([np.zeros(len(cases)), np.ones(len(cases))])
    worth = [
        max(PathPlan(cases, replace(rules, turns=turns), price).worth((), start)) for turns in range(1, rules.turns + 1)
    ]
    return 1 + int(np.argmax(np.array(worth) >= max(worth) - 1e-3 * price))


def train_validation_split(cases: list[ReplayCase]) -> tuple[list[ReplayCase], list[ReplayCase]]:
    """Two thirds to learn from, one third to say which iteration was best: a head knows the texts it was evolved on by
    heart, and with them who solved what."""
    cut = max(2 * len(cases) // 3, 1)
    return cases[:cut], cases[cut:] or cases[:cut]


def sample_cases(cases: Sequence[ReplayCase], count: int, seed: int) -> list[ReplayCase]:
    """The same cases for every lambda, check and fold, as far as the fold has them: a text is read once."""
    order = sorted(cases, key=lambda case: random.Random(f"{seed}/{case.task.task}").random())
    return order[:count]


def study_report(found: StudyFindings) -> str:
    """All of it."""
    single = best_single(found)
    parts = ["## Without learning", frontier_table(found, [*found.singles, found.oracle], single)]
    for check in dict.fromkeys(answer.check for answer in found.answers):
        parts.append(f"## With a check that passes {check.right:.0%} of right and {check.wrong:.0%} of wrong work")
        parts.append("Fixed ways, the best eight by accuracy:")
        best = sorted(found.cascades[check], key=lambda arm: -arm.solved.mean())[:8]
        parts.append(frontier_table(found, best, single))
        parts.append("Learned, every case by a head that saw no case of its repository:")
        parts.append(learned_table(found, check, single))
        parts.append("The best fixed way knows the judged cases; the one beside it is what the training cases choose.")
    return "\n\n".join(parts) + "\n"


def best_single(found: StudyFindings) -> PolicyScores:
    """The row that solves most alone."""
    return max(found.singles, key=lambda arm: float(arm.solved.mean()))


def frontier_table(found: StudyFindings, arms: Sequence[PolicyScores], single: PolicyScores) -> str:
    """Accuracy, cost, and the paired difference to the best single row."""
    lines = ["| way | solved | USD a case | of the best single's cost | solved, against it |", "|---|---|---|---|---|"]
    for arm in arms:
        gap = paired_difference(arm.solved, single.solved)
        lines.append(
            f"| {arm.name} | {arm.solved.mean():.1%} | {_usd(found, arm)} | {arm.cost.mean() / single.cost.mean():.0%} "
            f"| {100 * gap.difference:+.1f} ± {100 * gap.error:.1f} |"
        )
    return "\n".join(lines)


def learned_table(found: StudyFindings, check: CheckRates, single: PolicyScores) -> str:
    """By lambda: what was learned, and its reward against two fixed ways: the best with hindsight, and the one that the
    training cases choose."""
    lines = [
        "| lambda | solved | USD a case | of the best single's cost | solved, against it "
        "| best fixed way for this lambda | reward, against it | within one s.e. "
        "| chosen on the training cases | reward, against it | within one s.e. |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [_line(found, answer, single) for answer in found.answers if answer.check == check]
    return "\n".join(lines)


def _line(found: StudyFindings, answer: OperatingPoint, single: PolicyScores) -> str:
    ours, gap = answer.ours, paired_difference(answer.ours.solved, single.solved)
    fair = answer.over(answer.ours, answer.trained)
    cells = (
        f"{answer.price:g}",
        f"{ours.solved.mean():.1%}",
        _usd(found, ours),
        f"{ours.cost.mean() / single.cost.mean():.0%}",
        f"{100 * gap.difference:+.1f} ± {100 * gap.error:.1f}",
        f"{answer.fixed.name}: {answer.fixed.solved.mean():.1%} at {_usd(found, answer.fixed)}",
        _gap(answer.reward),
        _yes_or_no(answer.reward),
        f"{answer.trained.solved.mean():.1%} at {_usd(found, answer.trained)}",
        _gap(fair),
        _yes_or_no(fair),
    )
    return f"| {' | '.join(cells)} |"


def _gap(gap: PairedDifference) -> str:
    return f"{gap.difference:+.4f} ± {gap.error:.4f}"


def _yes_or_no(gap: PairedDifference) -> str:
    return "yes" if not_worse(gap) else "no"


def not_worse(gap: PairedDifference) -> bool:
    """Not further below than one paired standard error."""
    return gap.difference >= -gap.error - 1e-9


def _usd(found: StudyFindings, arm: PolicyScores) -> str:
    return f"${arm.cost.mean() * found.unit:.3f}"
