"""A study of recorded outcomes: learn on some repositories, decide on the others, for every lambda and every check.

What `fugu train replay` runs and prints: the accuracy-cost frontier of what was learned beside everything that needs no
learning (frontier.py). Every case is decided by a head that saw no case of its repository.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from fugu_cli.coordinators.svf import Vector
from fugu_cli.errors import StorageError
from fugu_cli.messages import Value
from fugu_cli.training import budget_mixture, fit, frontier
from fugu_cli.training.candidates import Heads
from fugu_cli.training.evolve import Settings
from fugu_cli.training.frontier import Arm, Paired, paired
from fugu_cli.training.latent import Smoothing, smoothed
from fugu_cli.training.outcomes import Case, Issue
from fugu_cli.training.prior import Prior
from fugu_cli.training.replay import Check, Replay, Rules
from fugu_cli.training.replay_sessions import ReplaySessionWriter
from fugu_cli.training.replay_training import Course, ReplayTraining, examples, learn, warm_start
from fugu_cli.training.search_vector import HiddenStates
from fugu_cli.training.signals import Signals
from fugu_cli.training.trials import Replayed

Tell = Callable[[str], None]
Held = NDArray[np.bool_]

FITTED = Course(settings=Settings(iterations=0))
"""The fit alone, without an evolution after it."""
SMOOTHED = Smoothing()
METHOD = 3
"""How parts are learned: those of another number in a file of answers are left alone."""


@dataclass(frozen=True)
class Question:
    """What is asked: the lambdas, the checks, how many folds, and how many cases' texts are read for training. `talk`
    is what a Verifier's turn costs, as a share of a run: nothing, as a fixed cascade's check costs nothing either.
    `share` of the best single row's cost, on the training cases, is what the thrifty way may cost."""

    prices: tuple[float, ...] = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8)
    checks: tuple[Check, ...] = (Check(0.95, 0.10), Check(0.90, 0.20), Check(0.80, 0.40))
    folds: int = 5
    sample: int = 160
    turns: int = 4
    talk: float = 0.0
    seed: int = 0
    share: float = 0.42
    course: Course = FITTED
    smoothing: Smoothing = SMOOTHED


@dataclass(frozen=True)
class Answer:
    """One check and one lambda: what was learned, the best fixed way found with hindsight, and the paired difference of
    their rewards. `trained` is the fixed way that the training cases of every fold choose, `plan` a plan that
    reads the runs (signals.py), followed without a head."""

    check: Check
    price: float
    ours: Arm
    fixed: Arm
    trained: Arm
    plan: Arm

    @property
    def reward(self) -> Paired:
        """What was learned, against the best fixed way."""
        return self.over(self.ours, self.fixed)

    def over(self, first: Arm, second: Arm) -> Paired:
        """The difference of two arms' rewards at this lambda."""
        return paired(first.reward(self.price), second.reward(self.price))


class Part(Value):
    """A line of answers.jsonl: what was learned for one check and one lambda, by case."""

    study: str
    check: tuple[float, float]
    price: float
    solved: tuple[float, ...]
    cost: tuple[float, ...]


@dataclass(frozen=True)
class Findings:
    """Everything, with the baselines by check."""

    names: tuple[str, ...]
    unit: float
    singles: tuple[Arm, ...]
    oracle: Arm
    cascades: dict[Check, tuple[Arm, ...]]
    retries: dict[Check, tuple[Arm, ...]]
    answers: tuple[Answer, ...]
    thrifty: dict[Check, Arm]
    """The learned ways of all lambdas, mixed within a share of the best single row's cost."""


@dataclass(frozen=True)
class Recorded:
    """The cases of one pool, the models of its rows, and the issues they were made of: what other models did on them
    says what was luck. Without issues plans are made of the outcomes as they are."""

    cases: Sequence[Case]
    names: Sequence[str]
    issues: Sequence[Issue] = ()


class Study:
    """The cases of one pool, and how texts are seen."""

    def __init__(self, recorded: Recorded, writer: ReplaySessionWriter, hidden_states: HiddenStates) -> None:
        self._cases = list(recorded.cases)
        self._names = tuple(recorded.names)
        self._issues = tuple(recorded.issues)
        self._writer = writer
        self._states = hidden_states
        self._seen: dict[tuple[int, int, Smoothing], list[list[Case]]] = {}

    def sha(self, question: Question) -> str:
        """Names a study: its cases, its pool and what is asked of each of its parts."""
        asked = replace(question, prices=(), checks=())
        about = (METHOD, self._cases, self._names, self._issues, asked)
        return hashlib.sha256(repr(about).encode()).hexdigest()[:16]

    def run(self, question: Question, unit: float, file: Path, tell: Tell) -> Findings:
        """`unit` is the cost in USD that counts as 1. Parts that `file` holds are not learned again; those of another
        study in it are left alone. Raises StorageError."""
        sha = self.sha(question)
        known = {(part.check, part.price): part for part in _read(file) if part.study == sha}
        singles = frontier.singles(self._cases, self._names)
        cascades, retries, answers, thrifty = {}, {}, [], {}
        for check in question.checks:
            cascades[check] = tuple(frontier.cascades(self._cases, self._names, check))
            retries[check] = tuple(frontier.retries(self._cases, self._names, check))
            for price in question.prices:
                part = known.get(((check.right, check.wrong), price))
                if part is None:
                    part = self._part(question, check, price, sha)
                    _append(file, part)
                answers.append(self._answer(question, part, [*singles, *cascades[check]]))
                tell(said(answers[-1], unit))
            thrifty[check] = self._thrifty(question, check, [one.ours for one in answers if one.check == check])
        oracle = frontier.oracle(self._cases)
        return Findings(self._names, unit, tuple(singles), oracle, cascades, retries, tuple(answers), thrifty)

    def _thrifty(self, question: Question, check: Check, ours: Sequence[Arm]) -> Arm:
        """`ours` by lambda, mixed in every fold as its training cases say."""
        parts = np.zeros((len(ours), len(self._cases)))
        for held, known in self._folds(question):
            rules = Rules(check, question.turns, question.talk)
            plans = [(replace(rules, turns=budget(known, rules, price)), price) for price in question.prices]
            parts[:, held] = budget_mixture.chosen(known, plans, question.share)[:, None]
        return budget_mixture.mixed(f"learned, within {question.share:.0%}", ours, parts)

    def _answer(self, question: Question, part: Part, fixed: Sequence[Arm]) -> Answer:
        """What was learned, beside the `fixed` ways and plans that read the runs."""
        check, price = Check(*part.check), part.price
        folds = self._folds(question)
        solved, cost = np.zeros(len(self._cases)), np.zeros(len(self._cases))
        asked = (question.folds, question.seed, question.smoothing)
        if asked not in self._seen:
            self._seen[asked] = [smoothed(known, self._issues, self._names, asked[2]) for _, known in folds]
        for (held, _), seen in zip(folds, self._seen[asked], strict=True):
            plan = Signals(seen, Rules(check, question.turns, question.talk), price)
            judged = [case for case, out in zip(self._cases, held, strict=True) if out]
            solved[held], cost[held] = plan.followed(judged)
        return Answer(
            check,
            price,
            Arm(f"learned, lambda {price:g}", np.array(part.solved), np.array(part.cost)),
            frontier.best_fixed(fixed, price),
            frontier.trained_fixed(fixed, [held for held, _ in folds], price),
            Arm("a plan that reads the runs", solved, cost),
        )

    def _folds(self, question: Question) -> list[tuple[Held, list[Case]]]:
        """What is decided, and the cases of the other repositories."""
        groups = [case.group for case in self._cases]
        masks = fit.folds(groups, question.folds, question.seed)
        return [(held, [case for case, out in zip(self._cases, held, strict=True) if not out]) for held in masks]

    def _part(self, question: Question, check: Check, price: float, sha: str) -> Part:
        arm = self._learned(question, Rules(check, question.turns, question.talk), price)
        solved, cost = (tuple(float(value) for value in each) for each in (arm.solved, arm.cost))
        return Part(study=sha, check=(check.right, check.wrong), price=price, solved=solved, cost=cost)

    def _learned(self, question: Question, rules: Rules, price: float) -> Arm:
        """Every case decided by the head of the fold that does not know its repository."""
        solved, cost = np.zeros(len(self._cases)), np.zeros(len(self._cases))
        for held, known in self._folds(question):
            turns = budget(known, rules, price)
            head = self._head(known, question, replace(rules, turns=turns), price)
            places = np.flatnonzero(held)
            replay = Replay(self._writer, replace(rules, turns=turns))
            played = replay.play(Heads(head[None], self._states), [self._cases[place] for place in places])
            solved[places], cost[places] = played.solved[0], played.cost[0]
        return Arm(f"learned, lambda {price:g}", solved, cost)

    def _head(self, known: Sequence[Case], question: Question, rules: Rules, price: float) -> Vector:
        """The targets are computed from all known cases but those that validate an evolution; the texts of some are
        read."""
        course = question.course
        read = sample(known, question.sample, question.seed)
        shown, held = split(read) if course.settings.iterations else (read, [])
        lesson = ReplayTraining([*shown, *(case for case in known if case not in read)], self._writer, rules)
        course = replace(course, rules=rules, price=price, shown=len(shown))
        told = examples([lesson], course, self._states)
        if not course.settings.iterations:
            return warm_start(told, course)
        replay = Replay(self._writer, rules)
        trial = Replayed(replay, lambda draw: draw.sample(shown, max(2 * len(shown) // 3, 1)), held)
        return learn(told, trial, course, self._states, lambda _: None).head


def said(answer: Answer, unit: float) -> str:
    """A line for who waits."""
    ours, fixed, reward = answer.ours, answer.fixed, answer.reward
    return (
        f"check {answer.check.right:.0%}/{answer.check.wrong:.0%}, lambda {answer.price:g}: ours "
        f"{ours.solved.mean():.1%} at ${ours.cost.mean() * unit:.3f}; best fixed ({fixed.name}) "
        f"{fixed.solved.mean():.1%} at ${fixed.cost.mean() * unit:.3f}; reward {reward.difference:+.4f} "
        f"(s.e. {reward.error:.4f})"
    )


def budget(cases: Sequence[Case], rules: Rules, price: float) -> int:
    """The limit on turns that pays best on these cases, at most what the rules allow: where cost weighs much, giving up
    early does. The fewest of equals."""
    start = np.stack([np.zeros(len(cases)), np.ones(len(cases))])
    worth = [
        max(Prior(cases, replace(rules, turns=turns), price).worth((), start)) for turns in range(1, rules.turns + 1)
    ]
    return 1 + int(np.argmax(np.array(worth) >= max(worth) - 1e-3 * price))


def split(cases: list[Case]) -> tuple[list[Case], list[Case]]:
    """Two thirds to learn from, one third to say which iteration was best: a head knows the texts it was evolved on by
    heart, and with them who solved what."""
    cut = max(2 * len(cases) // 3, 1)
    return cases[:cut], cases[cut:] or cases[:cut]


def sample(cases: Sequence[Case], count: int, seed: int) -> list[Case]:
    """The same cases for every lambda, check and fold, as far as the fold has them: a text is read once."""
    order = sorted(cases, key=lambda case: random.Random(f"{seed}/{case.task.task}").random())
    return order[:count]


def _read(file: Path) -> list[Part]:
    """The parts of a file; a last line that was cut is left out."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines(keepends=True) if file.is_file() else []
        return [Part.model_validate_json(line) for line in lines if line.endswith("\n")]
    except (OSError, ValidationError) as error:
        raise StorageError(f"{file} does not hold the parts of a study: {error}", hint="give another --out") from error


def _append(file: Path, part: Part) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a", encoding="utf-8") as stream:
            stream.write(part.model_dump_json() + "\n")
    except OSError as error:
        raise StorageError(
            f"{file} cannot be written: {error}", hint="make room and run it again: it goes on"
        ) from error
