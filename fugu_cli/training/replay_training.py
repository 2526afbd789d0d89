"""Lessons: a head learned on replayed cases - a warm start from what is best on average, then evolution.

Between the cases (outcomes.py) and a head; used by cross-validation (study.py) and by the shipped checkpoint's recipe.
No rule is written by hand here: the targets come from dynamic programming over the training cases, evolution from what
decisions were worth.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from fugu_cli import scratch
from fugu_cli.coordinators.svf import Vector
from fugu_cli.events import ROLES
from fugu_cli.training import fit
from fugu_cli.training.candidates import Candidates, See
from fugu_cli.training.evolve import Evolution, Evolved, Iteration, Settings, Shaping, Trial
from fugu_cli.training.frontier import paired
from fugu_cli.training.outcomes import Case
from fugu_cli.training.prior import Prior
from fugu_cli.training.replay import Rules
from fugu_cli.training.replay_sessions import ReplaySessionWriter
from fugu_cli.training.runs import Folder
from fugu_cli.training.search_vector import HeadLayout, HiddenStates

Tell = Callable[[Iteration], None]


@dataclass(frozen=True)
class Course:
    """How to learn. `price` is lambda: what a relative cost of 1 is worth. `tau` softens the targets, `seldom` leaves
    out paths that are met less often than that, `shown` is how many cases' texts a path is shown with at least."""

    rules: Rules = field(default_factory=Rules)
    price: float = 0.1
    tau: float = 0.02
    l2: float = 3e-2
    seldom: float = 0.04
    shown: int = 24
    settings: Settings = field(default_factory=lambda: Settings(iterations=20, patience=8))

    def texts(self, weight: float) -> int:
        """With how many texts a path is shown that is met this often: up to four times as many. The first decision is
        met by every request, and stands on nothing but a text that must not move it."""
        return max(self.shown, round(4 * self.shown * weight))

    def evolving(self) -> Settings:
        """Evolution weighs cost as the lesson does."""
        return self.settings.model_copy(update={"shaping": Shaping(cost=self.price)})


@dataclass(frozen=True)
class ReplayTraining:
    """Cases that belong together (one pool, or one draw of it), told by one writer, with a weight."""

    cases: Sequence[Case]
    writer: ReplaySessionWriter
    rules: Rules
    weight: float = 1.0


def examples(lessons: Sequence[ReplayTraining], course: Course, see: See) -> fit.Examples:
    """Every path of every lesson with some of its cases' texts: soft targets over the rows, the role, how often."""
    texts: list[str] = []
    rows, roles, weights, groups = [], [], [], []
    for lesson in lessons:
        for advice in Prior(lesson.cases, lesson.rules, course.price).advice(course.tau):
            if advice.weight < course.seldom:
                continue
            shown = lesson.cases[: course.texts(advice.weight)]
            for case in shown:
                texts.append(lesson.writer.scene(case, advice.path).text)
                rows.append(advice.rows)
                roles.append(advice.role)
                weights.append(lesson.weight * max(advice.weight, 0.05) / len(shown))
                groups.append(case.group)
    return fit.Examples(
        hidden=see(texts),
        rows=np.array(rows, np.float32),
        roles=np.array(roles, np.int64),
        weights=np.array(weights, np.float32),
        groups=tuple(groups),
    )


@dataclass(frozen=True)
class Learned:
    """The head (rows + roles, width): the evolved one where validation says that it is better, else the warm start's;
    and how evolution went."""

    head: Vector
    warm: Vector
    evolved: Evolved


def warm_start(told: fit.Examples, course: Course) -> Vector:
    """The head that fits the examples."""
    return fit.fit(told, len(ROLES), l2=course.l2)


def learn(told: fit.Examples, trial: Trial, course: Course, hidden_states: HiddenStates, tell: Tell) -> Learned:
    """Warm start, then evolution in a folder that nobody keeps."""
    warm = warm_start(told, course)
    layout = HeadLayout(hidden_states, len(warm), told.hidden)
    with scratch.folder("lesson") as temporary:
        folder = Folder(temporary, {}, lambda _mean, _path: None)
        with folder.held():
            evolved = Evolution(course.evolving(), trial, layout.breed, folder).run(layout.start(warm), tell)
    both = layout.breed(np.stack([layout.start(warm), evolved.vector]))
    head = layout.head(evolved.vector) if surely(trial, both, course.price) else warm
    return Learned(head, warm, evolved)


def surely(trial: Trial, both: Candidates, price: float) -> bool:
    """The second of two candidates is better on validation, by more than its standard error: the best of many
    iterations on a few cases mostly was lucky."""
    played = trial.validate(both)
    if played is None:
        return True
    reward = played.solved - price * played.cost
    gap = paired(reward[1], reward[0])
    return gap.difference > gap.error
