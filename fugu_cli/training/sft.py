"""Stage 1 of training, the warm start: pass matrix, soft targets, transcripts, hidden states, a
fitted head; and what the head is worth on held-out tasks.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import mean

import numpy as np

from fugu_cli.coordinators import checkpoint as checkpoints
from fugu_cli.coordinators import svf, transcript
from fugu_cli.coordinators.action_space import SLOTS, assign_slots
from fugu_cli.coordinators.backbone import Backbone
from fugu_cli.coordinators.checkpoint import Checkpoint, CheckpointMeta, TrainingOrigin
from fugu_cli.coordinators.svf import Vector
from fugu_cli.errors import ConfigError
from fugu_cli.session.events import ROLES, Event, Member, Opened, Price
from fugu_cli.training import fitting, synthetic_sessions
from fugu_cli.training.evaluation.intervals import Mean, wilson_of_mean
from fugu_cli.training.fitting import DescentSettings, LastLayers, fit_offsets
from fugu_cli.training.pass_matrix import (
    ChooseRow,
    FailedRows,
    HeadRow,
    PolicyOutcome,
    TaskRates,
    ValueSettings,
    cascade_policy,
    fixed_policy,
    follow_policy,
    oracle_policy,
    turn_rate_and_cost,
)
from fugu_cli.training.search import Encode, hidden_states_of, states_name
from fugu_cli.training.synthetic_sessions import MatrixSession

EncodeHistory = Callable[[TaskRates, FailedRows], Vector]
"""The hidden state (width,) of the transcript in which these rows have failed on this task."""


@dataclass(frozen=True)
class PolicySummary:
    """One policy over all tasks: share solved with its 95 % interval, relative cost and Worker
    turns per task.
    """

    name: str
    solved: Mean
    cost: float
    turns: float


def head_policy(head: Vector, rows: int, see: EncodeHistory) -> ChooseRow:
    """The policy of a head: the row with the highest logit."""
    return lambda task, history: int((head[:rows] @ see(task, history)).argmax())


def policy_summary(name: str, outcomes: Sequence[PolicyOutcome]) -> PolicySummary:
    """Means over tasks, and how sure the first is."""
    return PolicySummary(
        name,
        wilson_of_mean([outcome.solved for outcome in outcomes]),
        mean(outcome.cost for outcome in outcomes),
        mean(outcome.turns for outcome in outcomes),
    )


def policy_baselines(
    tasks: Sequence[TaskRates], names: Sequence[str], terms: ValueSettings
) -> list[PolicySummary]:
    """Every single row in the loop, the cascade, a uniformly random row at each turn, the
    oracle.
    """
    policies: list[tuple[str, ChooseRow]] = [
        (f"{name} alone", fixed_policy(row)) for row, name in enumerate(names)
    ]
    policies += [("cascade", cascade_policy)]
    lines = [
        policy_summary(name, [follow_policy(task, policy, terms.turns) for task in tasks])
        for name, policy in policies
    ]
    lines.append(policy_summary("random", [_random(task, (), terms.turns - 1) for task in tasks]))
    lines.append(
        policy_summary(
            "oracle", [follow_policy(task, oracle_policy(terms), terms.turns) for task in tasks]
        )
    )
    return lines


def _random(task: TaskRates, history: FailedRows, left: int) -> PolicyOutcome:
    """A uniformly random row at every turn, exactly: the mean over all of them."""
    if left == 0:
        return PolicyOutcome(0.0, 0.0, 0.0)
    parts = []
    for row in range(len(task.rows)):
        rate, price = turn_rate_and_cost(task, row, history)
        after = _random(task, (*history, row), left - 1)
        miss = 1 - rate
        parts.append(
            (rate + miss * after.solved, price + miss * after.cost, 1 + miss * after.turns)
        )
    return PolicyOutcome(*(mean(values) for values in zip(*parts, strict=True)))


def policy_table(lines: Sequence[PolicySummary]) -> str:
    """The lines as a Markdown table."""
    rows = [_table_row(line) for line in lines]
    return "\n".join(
        ["| policy | solved | 95 % | cost | Worker turns |", "|---|---|---|---|---|", *rows]
    )


def _table_row(line: PolicySummary) -> str:
    solved = line.solved
    between = f"{solved.low:.0%} to {solved.high:.0%}"
    return f"| {line.name} | {solved.value:.1%} | {between} | {line.cost:.2f} | {line.turns:.2f} |"


@dataclass(frozen=True)
class WarmStartSettings:
    """Everything a warm start depends on beside the matrix and the backbone."""

    seats: tuple[HeadRow, ...]
    terms: ValueSettings = field(default_factory=ValueSettings)
    format: transcript.TranscriptFormat = "raw"
    workers_only: bool = False
    budget: int = 1536
    long_stories: int = 4
    """Stories of two and three failures per task."""
    l2: float = 3e-2
    folds: int = 5
    seed: int = 0
    descent: DescentSettings | None = None
    """How to fit the offsets of the second-to-last layer too; None leaves them zero. The held-out
    report is the head's alone."""


@dataclass(frozen=True)
class WarmStartResult:
    """The checkpoint, and the held-out report as people read it."""

    checkpoint: Checkpoint
    report: str


class WarmStart:
    """One run: the tasks, their stories, and how transcripts are seen."""

    def __init__(self, recipe: WarmStartSettings, backbone: Backbone, store: Path) -> None:
        self._recipe = recipe
        self._backbone = backbone
        self._store = store
        self._seen: dict[tuple[str, FailedRows], Vector] = {}
        self._opened: tuple[Event, ...] = ()
        """Of a digest, which tells what agents cost."""

    def run(
        self, tasks: Sequence[TaskRates], data: str, tell: Callable[[str], None]
    ) -> WarmStartResult:
        """Tell, read, cross-validate, fit on all, and pack. Raises ConfigError for one task."""
        if len(tasks) < 2:
            raise ConfigError(
                f"{len(tasks)} tasks are too few: one is held out to tell what was learned of "
                f"the others"
            )
        if self._recipe.format == "digest":
            self._opened = (Opened(version="", repo="", pool=pool_of(self._recipe.seats, tasks)),)
        told = self.tell_all(tasks)
        tell(f"{len(tasks)} tasks, {len(told)} examples; reading them")
        examples = self.examples(told, tell)
        lines, scored = self._validate(tasks, examples)
        offsets, head = (
            self._no_offsets(),
            fitting.fit_head(examples, len(ROLES), l2=self._recipe.l2),
        )
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
        return WarmStartResult(made, f"{policy_table(lines)}\n\n{scored.text()}")

    def meta(self, data: str, count: int, report: dict[str, float]) -> CheckpointMeta:
        """What the checkpoint is valid for."""
        recipe, shape = self._recipe, self._backbone.shape
        rows = tuple(seat.row for seat in recipe.seats)
        return CheckpointMeta(
            backbone=self._backbone.identity,
            width=shape.width,
            ranks=svf.ranks(shape),
            rows=rows,
            kind="slots" if set(rows) <= set(SLOTS) else "agents",
            format=recipe.format,
            workers_only=recipe.workers_only,
            budget=recipe.budget,
            training=TrainingOrigin(
                stage="warm start",
                data=data,
                examples=count,
                seed=recipe.seed,
                report=tuple(report.items()),
            ),
        )

    def tell_all(self, tasks: Sequence[TaskRates]) -> list[MatrixSession]:
        """All stories, the same for the same recipe and tasks."""
        recipe = self._recipe
        writer = synthetic_sessions.MatrixSessionWriter(recipe.seats, random.Random(recipe.seed))
        return [
            example
            for task in tasks
            for example in writer.task(task, recipe.terms, recipe.long_stories)
        ]

    def examples(
        self, told: Sequence[MatrixSession], tell: Callable[[str], None], see: Encode | None = None
    ) -> fitting.HeadExamples:
        """Stories as numbers. `see` reads their texts where it is given, else they are read and
        kept in the store.
        """
        texts = [self.text(example.events) for example in told]

        def progress(done: int, total: int) -> None:
            if done % 50 == 0 or done == total:
                tell(f"  {done} of {total} transcripts read")

        return fitting.HeadExamples(
            hidden=see(texts)
            if see
            else hidden_states_of(self._backbone, texts, self._store, progress),
            rows=np.array([example.rows for example in told], np.float32),
            roles=np.array([ROLES.index(example.role) for example in told], np.int64),
            weights=np.array([example.weight for example in told], np.float32),
            groups=tuple(example.group for example in told),
        )

    def text(self, events: Sequence[Event]) -> str:
        """What the coordinator would read."""
        return transcript.transcript_text(
            self._backbone, self._recipe, (*self._opened, *events), {}
        )

    def see(self, task: TaskRates, history: FailedRows) -> Vector:
        """The state in which `history` has failed on `task`, worded by a seed of its own."""
        known = self._seen.get((task.task, history))
        if known is None:
            draw = random.Random(f"{self._recipe.seed}/{task.task}/{history}")
            text = self.text(
                synthetic_sessions.MatrixSessionWriter(self._recipe.seats, draw).failing(
                    task, history
                )
            )
            known = self._seen[task.task, history] = hidden_states_of(
                self._backbone, [text], self._store, lambda *_: None
            )[0]
        return known

    def _validate(
        self, tasks: Sequence[TaskRates], examples: fitting.HeadExamples
    ) -> tuple[list[PolicySummary], fitting.HeadScore]:
        """Every task is decided by a head that was fitted without it."""
        recipe, rows = self._recipe, len(self._recipe.seats)
        outcomes: list[PolicyOutcome] = []
        scores: list[tuple[fitting.HeadScore, int]] = []
        for held in fitting.group_folds(examples.groups, recipe.folds, recipe.seed):
            head = fitting.fit_head(examples.take(~held), len(ROLES), l2=recipe.l2)
            out = {group for group, kept in zip(examples.groups, held, strict=True) if kept}
            policy = head_policy(head, rows, self.see)
            outcomes += [
                follow_policy(task, policy, recipe.terms.turns)
                for task in tasks
                if task.task in out
            ]
            scores.append((fitting.score_head(head, examples.take(held)), int(held.sum())))
        names = [seat.row for seat in recipe.seats]
        lines = policy_baselines(tasks, names, recipe.terms)
        return [*lines, policy_summary("learned, held out", outcomes)], fitting.mean_score(scores)

    def _no_offsets(self) -> tuple[Vector, ...]:
        return tuple(np.zeros(size, np.float32) for size in svf.ranks(self._backbone.shape))

    def _with_offsets(
        self, told: Sequence[MatrixSession], examples: fitting.HeadExamples, head: Vector
    ) -> tuple[tuple[Vector, ...], Vector]:
        """Offsets by gradient, then the head fitted again to the states they lead to. The backbone
        is left as it was."""
        recipe = self._recipe
        assert recipe.descent is not None
        texts = [self.text(example.events) for example in told]
        adapter = svf.SvfAdapter(
            self._backbone.model, self._store / "svf" / self._backbone.identity[:16]
        )
        tokens = [self._backbone.tokens(text) for text in texts]
        offsets = fit_offsets(
            LastLayers(self._backbone, adapter, wide=True), tokens, examples, head, recipe.descent
        )
        try:
            adapter.apply(offsets)
            self._backbone.forget()
            moved = hidden_states_of(
                self._backbone, texts, self._store, lambda *_: None, offsets=states_name(offsets)
            )
        finally:
            adapter.apply(self._no_offsets())
            self._backbone.forget()
        return offsets, fitting.fit_head(replace(examples, hidden=moved), len(ROLES), l2=recipe.l2)


def pool_of(seats: Sequence[HeadRow], tasks: Sequence[TaskRates]) -> tuple[Member, ...]:
    """The rows as agents of a pool, at the mean costs of their turns."""
    costs = {
        seat.row: mean(task.rows[index].first_cost for task in tasks)
        for index, seat in enumerate(seats)
    }
    prices = {row: Price(input=cost, output=cost) for row, cost in costs.items()}
    slots = assign_slots(prices) | {slot: slot for slot in SLOTS if slot in prices}
    return tuple(
        Member(name=row, provider="", model=row, slot=slots[row], price=price)
        for row, price in prices.items()
    )


def parse_head_rows(texts: Sequence[str]) -> tuple[HeadRow, ...]:
    """Rows in the head's order. Raises ConfigError for one that is none, and for two of one
    name.
    """
    found = tuple(map(parse_head_row, texts))
    names = [one.row for one in found]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ConfigError(
            f"two rows are called {twice[0]}", hint="give each --row a name of its own"
        )
    return found


def parse_head_row(text: str) -> HeadRow:
    """`strong=coder*5`: the row `strong` is the measured agent `coder` with up to five draws."""
    row, equals, agent = text.partition("=")
    name, star, attempts = agent.partition("*")
    if not (row and equals and name) or (star and not (attempts.isdigit() and int(attempts))):
        raise ConfigError(
            f"--row {text}: write ROW=AGENT or ROW=AGENT*ATTEMPTS, as in strong=coder*5"
        )
    return HeadRow(row, name, int(attempts) if star else 1)
