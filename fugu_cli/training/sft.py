"""Stage 1 of training, the warm start: `fugu train sft`.

Pass matrix -> stories with soft targets -> transcripts -> hidden states -> a head fitted by mean KL -> checkpoint.
Reports what the head is worth on tasks it was not fitted to.

Departures from the paper: the target is softmax(Q / tau) of a turn's whole value (what follows a failure, and its
cost), not of its own reward alone; roles are learned from what the loop's rules make right; offsets only on request.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from fugu_cli.coordinators import checkpoint as checkpoints
from fugu_cli.coordinators import svf, transcript
from fugu_cli.coordinators.backbone import Backbone
from fugu_cli.coordinators.checkpoint import Checkpoint, Meta, Training
from fugu_cli.coordinators.slots import SLOTS
from fugu_cli.coordinators.svf import Vector
from fugu_cli.errors import ConfigError
from fugu_cli.events import ROLES, Event
from fugu_cli.training import evaluate, fit, matrix_sessions
from fugu_cli.training.candidates import See
from fugu_cli.training.matrix import Seat, TaskRates
from fugu_cli.training.matrix_sessions import MatrixSession
from fugu_cli.training.offsets import Descent, Tail, fit_offsets
from fugu_cli.training.states import named, states
from fugu_cli.training.values import History, Outcome, Terms, follow


@dataclass(frozen=True)
class Recipe:
    """Everything a warm start depends on beside the matrix and the backbone."""

    seats: tuple[Seat, ...]
    terms: Terms = field(default_factory=Terms)
    format: transcript.Format = "raw"
    workers_only: bool = False
    budget: int = 1536
    long_stories: int = 4
    """Stories of two and three failures per task."""
    l2: float = 3e-2
    folds: int = 5
    seed: int = 0
    descent: Descent | None = None
    """How to fit the offsets of the second-to-last layer too; None leaves them zero. The held-out report is the head's
    alone."""


@dataclass(frozen=True)
class Result:
    """The checkpoint, and the held-out report as people read it."""

    checkpoint: Checkpoint
    report: str


class WarmStart:
    """One run: the tasks, the stories told of them, and how transcripts are seen."""

    def __init__(self, recipe: Recipe, backbone: Backbone, store: Path) -> None:
        self._recipe = recipe
        self._backbone = backbone
        self._store = store
        self._seen: dict[tuple[str, History], Vector] = {}

    def run(self, tasks: Sequence[TaskRates], data: str, tell: Callable[[str], None]) -> Result:
        """Tell, read, cross-validate, fit on all, and pack. Raises ConfigError for one task."""
        if len(tasks) < 2:
            raise ConfigError(f"{len(tasks)} tasks are too few: one is held out to tell what was learned of the others")
        told = self.tell_all(tasks)
        tell(f"{len(tasks)} tasks, {len(told)} examples; reading them")
        examples = self.examples(told, tell)
        lines, scored = self._validate(tasks, examples)
        offsets, head = self._no_offsets(), fit.fit(examples, len(ROLES), l2=self._recipe.l2)
        if self._recipe.descent is not None:
            tell("fitting the offsets")
            offsets, head = self._with_offsets(told, examples, head)
        report = {f"held-out {name}": round(value, 4) for name, value in vars(scored).items()}
        report |= {
            f"{line.name}: {what}": round(value, 4)
            for line in lines
            for what, value in (("solved", line.solved.value), ("cost", line.cost))
        }
        made = checkpoints.make(svf.join(offsets, head), self.meta(data, len(told), report))
        return Result(made, f"{evaluate.table(lines)}\n\nheld-out examples: {scored}")

    def meta(self, data: str, count: int, report: dict[str, float]) -> Meta:
        """What the checkpoint is valid for."""
        recipe, shape = self._recipe, self._backbone.decoder.shape
        rows = tuple(seat.row for seat in recipe.seats)
        return Meta(
            backbone=self._backbone.identity,
            width=shape.width,
            ranks=svf.ranks(shape),
            rows=rows,
            kind="slots" if set(rows) <= set(SLOTS) else "agents",
            format=recipe.format,
            workers_only=recipe.workers_only,
            budget=recipe.budget,
            training=Training(
                stage="warm start", data=data, examples=count, seed=recipe.seed, report=tuple(report.items())
            ),
        )

    def tell_all(self, tasks: Sequence[TaskRates]) -> list[MatrixSession]:
        """All stories, the same for the same recipe and tasks."""
        recipe = self._recipe
        writer = matrix_sessions.MatrixSessionWriter(recipe.seats, random.Random(recipe.seed))
        told = [story for task in tasks for story in writer.task(task, recipe.terms, recipe.long_stories)]
        if len(recipe.seats) == len(SLOTS):
            general = matrix_sessions.general_requests(recipe.seed)
            told += [story for text in general.questions for story in writer.question(text, general.answers)]
            told += [story for text in general.changes for story in writer.change(text)]
        return told

    def examples(
        self, told: Sequence[MatrixSession], tell: Callable[[str], None], see: See | None = None
    ) -> fit.Examples:
        """Stories as numbers. `see` reads their texts where it is given, else they are read and kept in the store."""
        texts = [self.text(story.events) for story in told]

        def progress(done: int, total: int) -> None:
            if done % 50 == 0 or done == total:
                tell(f"  {done} of {total} transcripts read")

        return fit.Examples(
            hidden=see(texts) if see else states(self._backbone, texts, self._store, progress),
            rows=np.array([story.rows for story in told], np.float32),
            roles=np.array([ROLES.index(story.role) for story in told], np.int64),
            weights=np.array([story.weight for story in told], np.float32),
            groups=tuple(story.group for story in told),
        )

    def text(self, events: Sequence[Event]) -> str:
        """What the coordinator would read."""
        recipe = self._recipe
        lines = transcript.lines(events, {}, workers_only=recipe.workers_only)
        return self._backbone.write(transcript.fit(lines, recipe.budget, self._backbone.count), recipe.format)

    def see(self, task: TaskRates, history: History) -> Vector:
        """The state in which `history` has failed on `task`, worded by a seed of its own."""
        known = self._seen.get((task.task, history))
        if known is None:
            draw = random.Random(f"{self._recipe.seed}/{task.task}/{history}")
            text = self.text(matrix_sessions.MatrixSessionWriter(self._recipe.seats, draw).failing(task, history))
            known = self._seen[task.task, history] = states(self._backbone, [text], self._store, lambda *_: None)[0]
        return known

    def _validate(self, tasks: Sequence[TaskRates], examples: fit.Examples) -> tuple[list[evaluate.Line], fit.Scored]:
        """Every task is decided by a head that was fitted without it."""
        recipe, rows = self._recipe, len(self._recipe.seats)
        outcomes: list[Outcome] = []
        scores: list[tuple[fit.Scored, int]] = []
        for held in fit.folds(examples.groups, recipe.folds, recipe.seed):
            head = fit.fit(examples.take(~held), len(ROLES), l2=recipe.l2)
            out = {group for group, kept in zip(examples.groups, held, strict=True) if kept}
            policy = evaluate.learned(head, rows, self.see)
            outcomes += [follow(task, policy, recipe.terms.turns) for task in tasks if task.task in out]
            scores.append((fit.score(head, examples.take(held)), int(held.sum())))
        names = [seat.row for seat in recipe.seats]
        lines = evaluate.baselines(tasks, names, recipe.terms)
        return [*lines, evaluate.summary("learned, held out", outcomes)], _pooled(scores)

    def _no_offsets(self) -> tuple[Vector, ...]:
        return tuple(np.zeros(size, np.float32) for size in svf.ranks(self._backbone.decoder.shape))

    def _with_offsets(
        self, told: Sequence[MatrixSession], examples: fit.Examples, head: Vector
    ) -> tuple[tuple[Vector, ...], Vector]:
        """Offsets by gradient, then the head fitted anew to the states they lead to. The backbone is left as it was."""
        recipe = self._recipe
        assert recipe.descent is not None
        texts = [self.text(story.events) for story in told]
        decoder = self._backbone.decoder
        adapter = svf.Adapter(decoder, self._store / "svf" / self._backbone.identity[:16])
        tokens = [self._backbone.tokens(text) for text in texts]
        offsets = fit_offsets(Tail(decoder, adapter), tokens, examples, head, recipe.descent)
        try:
            adapter.apply(offsets)
            self._backbone.forget()
            moved = states(self._backbone, texts, self._store, lambda *_: None, offsets=named(offsets))
        finally:
            adapter.apply(self._no_offsets())
            self._backbone.forget()
        return offsets, fit.fit(replace(examples, hidden=moved), len(ROLES), l2=recipe.l2)


def _pooled(scores: Sequence[tuple[fit.Scored, int]]) -> fit.Scored:
    total = sum(count for _, count in scores)
    return fit.Scored(*(
        sum(getattr(scored, name) * count for scored, count in scores) / total
        for name in ("kl", "row_accuracy", "role_accuracy")
    ))  # fmt: skip


def seats(texts: Sequence[str]) -> tuple[Seat, ...]:
    """Rows in the head's order. Raises ConfigError for one that is none, and for two of one name."""
    found = tuple(map(seat, texts))
    names = [one.row for one in found]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ConfigError(f"two rows are called {twice[0]}", hint="give each --row a name of its own")
    return found


def seat(text: str) -> Seat:
    """`strong=coder*5`: the row `strong` is the measured agent `coder` with up to five draws."""
    row, equals, agent = text.partition("=")
    name, star, attempts = agent.partition("*")
    if not (row and equals and name) or (star and not (attempts.isdigit() and int(attempts))):
        raise ConfigError(f"--row {text}: write ROW=AGENT or ROW=AGENT*ATTEMPTS, as in strong=coder*5")
    return Seat(row, name, int(attempts) if star else 1)
