"""Learn a head from recorded outcomes: what is best on every path, a warm start from it, and
evolution.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from fugu_cli.coordinators.svf import Vector
from fugu_cli.session.events import ROLES
from fugu_cli.system import temp_dirs
from fugu_cli.training import fitting
from fugu_cli.training.evolution import (
    Evolution,
    EvolutionIteration,
    EvolutionSettings,
    Evolved,
    FitnessWeights,
    RunFolder,
    Trial,
)
from fugu_cli.training.search import Candidates, Encode, HeadLayout, HiddenStates
from tests.benchmarks.slots.frontier import paired_difference
from tests.benchmarks.slots.outcomes import ReplayCase
from tests.benchmarks.slots.plans import PathPlan
from tests.benchmarks.slots.replay import ReplayRules, ReplaySessionWriter

TellIteration = Callable[[EvolutionIteration], None]


@dataclass(frozen=True)
class HeadTrainingSettings:
    """How to learn. `price` is lambda: what a relative cost of 1 is worth. `tau` softens the
    targets, `seldom` leaves out paths that are met less often than that, `shown` is how many cases'
    texts a path is shown with at least."""

    rules: ReplayRules = field(default_factory=ReplayRules)
    price: float = 0.1
    tau: float = 0.02
    l2: float = 3e-2
    seldom: float = 0.04
    shown: int = 24
    settings: EvolutionSettings = field(
        default_factory=lambda: EvolutionSettings(iterations=20, patience=8)
    )

    def texts(self, weight: float) -> int:
        """With how many texts a path is shown that is met this often: up to four times as many. The
        first decision is met by every request, and stands on nothing but a text that must not move
        it."""
        return max(self.shown, round(4 * self.shown * weight))

    def evolving(self) -> EvolutionSettings:
        """Evolution weighs cost as the lesson does."""
        return self.settings.model_copy(update={"shaping": FitnessWeights(cost=self.price)})


@dataclass(frozen=True)
class ReplayDataset:
    """Cases that belong together (one pool, or one draw of it), told by one writer, with a
    weight.
    """

    cases: Sequence[ReplayCase]
    writer: ReplaySessionWriter
    rules: ReplayRules
    weight: float = 1.0


def replay_examples(
    lessons: Sequence[ReplayDataset], course: HeadTrainingSettings, see: Encode
) -> fitting.HeadExamples:
    """Every path of every lesson with some of its cases' texts: soft targets over the rows, the
    role, how often.
    """
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
    """The head (rows + roles, width): the evolved one where validation says that it is better, else
    the warm start's; and how evolution went."""

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
            evolved = Evolution(course.evolving(), trial, layout.breed, folder).run(
                layout.start(warm), tell
            )
    both = layout.breed(np.stack([layout.start(warm), evolved.vector]))
    head = layout.head(evolved.vector) if surely_better(trial, both, course.price) else warm
    return LearnedHead(head, warm, evolved)


def surely_better(trial: Trial, both: Candidates, price: float) -> bool:
    """The second of two candidates is better on validation, by more than its standard error: the
    best of many iterations on a few cases mostly was lucky."""
    played = trial.validate(both)
    if played is None:
        return True
    reward = played.solved - price * played.cost
    gap = paired_difference(reward[1], reward[0])
    return gap.difference > gap.error


def train_validation_split(cases: list[ReplayCase]) -> tuple[list[ReplayCase], list[ReplayCase]]:
    """Two thirds to learn from, one third to say which iteration was best: a head knows the texts
    it was evolved on by heart, and with them who solved what."""
    cut = max(2 * len(cases) // 3, 1)
    return cases[:cut], cases[cut:] or cases[:cut]


def sample_cases(cases: Sequence[ReplayCase], count: int, seed: int) -> list[ReplayCase]:
    """The same cases for every lambda, check and fold, as far as the fold has them: a text is read
    once.
    """
    order = sorted(cases, key=lambda case: random.Random(f"{seed}/{case.task.task}").random())
    return order[:count]
