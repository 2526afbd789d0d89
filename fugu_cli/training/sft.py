"""Stage 1 of training, the warm start: it makes soft targets from a pass matrix, renders
transcripts, and fits a head to their hidden states. Then it compares the head with the default on
held-out tasks.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import mean

import numpy as np

from fugu_cli.coordinators import Coordinator, svf, transcript
from fugu_cli.coordinators import checkpoint as checkpoints
from fugu_cli.coordinators.backbone import Backbone
from fugu_cli.coordinators.checkpoint import Checkpoint, CheckpointMeta, TrainingOrigin
from fugu_cli.coordinators.svf import Vector
from fugu_cli.errors import ConfigError
from fugu_cli.messages import Call
from fugu_cli.session.events import (
    EVIDENCE,
    ROLES,
    Asked,
    Assigned,
    Event,
    FileChange,
    Member,
    Opened,
    Permitted,
    Replied,
    Role,
    ToolRan,
)
from fugu_cli.session.state import SessionState
from fugu_cli.training import fitting
from fugu_cli.training.default_comparison import PlayedTask, compare_with_default
from fugu_cli.training.evaluation.intervals import Mean, wilson_of_mean
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
    row_values,
    softmax,
    turn_rate_and_cost,
)
from fugu_cli.training.search import HiddenStates

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
    """Return the policy of a head: the row with the highest logit."""
    return lambda task, history: int((head[:rows] @ see(task, history)).argmax())


def policy_summary(name: str, outcomes: Sequence[PolicyOutcome]) -> PolicySummary:
    """Return the means over tasks, with an interval for the first."""
    return PolicySummary(
        name,
        wilson_of_mean([outcome.solved for outcome in outcomes]),
        mean(outcome.cost for outcome in outcomes),
        mean(outcome.turns for outcome in outcomes),
    )


def policy_baselines(
    tasks: Sequence[TaskRates], names: Sequence[str], terms: ValueSettings
) -> list[PolicySummary]:
    """Return every single row in the loop, the cascade, a uniformly random row at each turn, and
    the oracle.
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
    """Return the exact mean outcome of a uniformly random row at every turn."""
    if left == 0:
        return PolicyOutcome(0.0, 0.0, 0.0)
    solved, costs, turns = [], [], []
    for row in range(len(task.rows)):
        rate, cost = turn_rate_and_cost(task, row, history)
        after_failure = _random(task, (*history, row), left - 1)
        failure_rate = 1 - rate
        solved.append(rate + failure_rate * after_failure.solved)
        costs.append(cost + failure_rate * after_failure.cost)
        turns.append(1 + failure_rate * after_failure.turns)
    return PolicyOutcome(mean(solved), mean(costs), mean(turns))


def policy_table(lines: Sequence[PolicySummary]) -> str:
    """Return the lines as a Markdown table."""
    rows = [_table_row(line) for line in lines]
    return "\n".join(
        ["| policy | solved | 95 % | cost | Worker turns |", "|---|---|---|---|---|", *rows]
    )


def _table_row(line: PolicySummary) -> str:
    solved = line.solved
    between = f"{solved.low:.0%} to {solved.high:.0%}"
    return f"| {line.name} | {solved.value:.1%} | {between} | {line.cost:.2f} | {line.turns:.2f} |"


@dataclass(frozen=True)
class DecisionExample:
    """A session up to a decision, and the target of the decision: a distribution over rows, and a
    role.
    """

    events: tuple[Event, ...]
    rows: tuple[float, ...]
    role: Role
    task: str
    """Examples of one task are never on both sides of a split."""
    weight: float = 1.0


def session_after(
    task: TaskRates,
    rows: Sequence[HeadRow],
    failed: FailedRows,
    solved_by: int | None = None,
    *,
    judged: bool = True,
) -> tuple[Event, ...]:
    """Return a session in which the rows `failed` worked on a task in vain, and `solved_by` then
    solved it.

    Agents are called by their rows' names. With `judged`, the session has the results of tests.
    """
    suite = "pytest" if judged else None
    events: list[Event] = [
        Asked(
            text=task.prompt,
            snapshot="tree",
            test_command=suite,
            until=(suite,) if suite else (),
        )
    ]
    if judged:
        events += _test_run(0, passes=False)
    attempts = [(row, False) for row in failed]
    if solved_by is not None:
        attempts.append((solved_by, True))
    for turn, (row, passes) in enumerate(attempts, start=1):
        call = Call.make(f"edit-{turn}", "edit", path="main.py")
        change = FileChange(path="main.py", before="a", after=f"b{turn}")
        name = rows[row].row
        events += [
            Assigned(turn=turn, agent=name, role="worker", by="matrix", snapshot="tree"),
            Replied(turn=turn, agent=name, text="", calls=(call,)),
            Permitted(turn=turn, call=call, allowed=True, by="policy"),
            ToolRan(turn=turn, call=call, output="ok", ok=True, changes=(change,)),
            Replied(turn=turn, agent=name, text="Done."),
        ]
        if judged:
            events += _test_run(turn, passes=passes)
    return tuple(events)


def _test_run(turn: int, *, passes: bool) -> list[Event]:
    call = Call(id=f"tests-{turn}", tool="run_tests")
    output = "3 passed in 0.1s" if passes else "1 failed, 2 passed in 0.1s"
    return [
        Permitted(turn=turn, call=call, allowed=True, by=EVIDENCE),
        ToolRan(turn=turn, call=call, output=output, ok=passes),
    ]


def matrix_examples(
    task: TaskRates,
    rows: Sequence[HeadRow],
    terms: ValueSettings,
    longer_histories: int,
    draw: random.Random,
) -> Iterator[DecisionExample]:
    """Yield the decisions of each task: at its beginning, after each row's failure, after
    `longer_histories` of two or three failures, and after the success of one row in each of these
    places.
    """
    histories: list[FailedRows] = [(), *((row,) for row in range(len(rows)))]
    for _ in range(longer_histories):
        length = draw.randint(2, 3)
        histories.append(tuple(draw.randrange(len(rows)) for _ in range(length)))
    for history in histories:
        worth = softmax(row_values(task, history, terms), terms.tau)
        weight = _reach(task, history)
        events = session_after(task, rows, history)
        yield DecisionExample(events, worth, "worker", task.task, weight)
        yield _verification(task, rows, terms, history, draw.randrange(len(rows)))
    unjudged = session_after(task, rows, (), judged=False)
    worth = softmax(row_values(task, (), terms), terms.tau)
    yield DecisionExample(unjudged, worth, "worker", task.task)
    yield _verification(task, rows, terms, (), draw.randrange(len(rows)), judged=False)


def _verification(
    task: TaskRates,
    rows: Sequence[HeadRow],
    terms: ValueSettings,
    failed: FailedRows,
    author: int,
    *,
    judged: bool = True,
) -> DecisionExample:
    """Return the decision after work that passes: the row that is most often right verifies, but
    never the author.
    """
    rates = [rate.first for rate in task.rows]
    shares = list(softmax(rates, terms.tau))
    if len(rows) > 1:
        shares[author] = 0.0
    total = sum(shares)
    solved = turn_rate_and_cost(task, author, failed)[0]
    return DecisionExample(
        session_after(task, rows, failed, author, judged=judged),
        tuple(share / total for share in shares),
        "verifier",
        task.task,
        _reach(task, failed) * max(solved, 0.1),
    )


def _reach(task: TaskRates, history: FailedRows) -> float:
    """Return the probability that all of `history` fail at this task, but at least 0.05, since the
    head must know this state when it occurs.
    """
    reached = 1.0
    for index, row in enumerate(history):
        reached *= 1 - turn_rate_and_cost(task, row, history[:index])[0]
    return max(reached, 0.05)


@dataclass(frozen=True)
class WarmStartSettings:
    """Everything that a warm start depends on besides the matrix and the backbone."""

    seats: tuple[HeadRow, ...]
    terms: ValueSettings = field(default_factory=ValueSettings)
    format: transcript.TranscriptFormat = "raw"
    workers_only: bool = False
    budget: int = 1536
    longer_histories: int = 4
    """Sessions with two or three failures for each task."""
    l2: float = 3e-2
    folds: int = 5
    seed: int = 0


@dataclass(frozen=True)
class DefaultPolicy:
    """The decisions without a checkpoint, over `members` named like the rows."""

    coordinator: Coordinator
    members: tuple[Member, ...]

    def choose_row(self, rows: Sequence[HeadRow]) -> ChooseRow:
        """Return a policy that lets the default coordinator choose the next Worker among `rows`."""
        names = [row.row for row in rows]
        opened = Opened(version="", repo="", pool=self.members)

        def choose(task: TaskRates, failed: FailedRows) -> int:
            events = (opened, *session_after(task, rows, failed))
            decision = asyncio.run(self.coordinator.decide(SessionState(events)))
            if isinstance(decision, Assigned) and decision.agent in names:
                return names.index(decision.agent)
            return failed[-1] if failed else 0

        return choose


@dataclass(frozen=True)
class WarmStartResult:
    """The checkpoint, and the held-out report as people read it."""

    checkpoint: Checkpoint
    report: str


class WarmStart:
    """Fits a head to a pass matrix with one backbone, whose hidden states are kept."""

    def __init__(
        self,
        recipe: WarmStartSettings,
        backbone: Backbone,
        hidden_states: HiddenStates,
        default: DefaultPolicy | None = None,
    ) -> None:
        """Create a warm start. The head is compared with `default`, None if the pool lacks its
        agents.
        """
        self._recipe = recipe
        self._backbone = backbone
        self._hidden_states = hidden_states
        self._default = default

    def run(
        self, tasks: Sequence[TaskRates], data: str, tell: Callable[[str], None]
    ) -> WarmStartResult:
        """Read the sessions, cross-validate, fit on all, and pack. Raise ConfigError for one
        task.
        """
        if len(tasks) < 2:
            raise ConfigError(
                f"{len(tasks)} tasks are too few: one is held out to tell what was learned of "
                f"the others"
            )
        decisions = self.decisions(tasks)
        tell(f"{len(tasks)} tasks, {len(decisions)} examples; reading them")
        try:
            examples = self.examples(decisions)
            outcomes, score = self._validate(tasks, examples, tell)
        finally:
            self._hidden_states.save()
        names = [seat.row for seat in self._recipe.seats]
        terms = self._recipe.terms
        lines = policy_baselines(tasks, names, terms)
        lines.append(policy_summary("learned, held out", list(outcomes.values())))
        comparison = "the default was not compared: the pool lacks agents of the matrix"
        if self._default is not None:
            tell("playing the same tasks with the default")
            choose = self._default.choose_row(self._recipe.seats)
            by_default = {task.task: follow_policy(task, choose, terms.turns) for task in tasks}
            lines.append(policy_summary("default", list(by_default.values())))
            verdict = compare_with_default(
                [PlayedTask(name, outcomes[name].solved, outcomes[name].cost) for name in outcomes],
                [PlayedTask(name, row.solved, row.cost) for name, row in by_default.items()],
                terms.cost,
            )
            comparison = verdict.text
        head = fitting.fit_head(examples, len(ROLES), l2=self._recipe.l2)
        report = {f"held-out {name}": round(value, 4) for name, value in vars(score).items()}
        for line in lines:
            report[f"{line.name}: solved"] = round(line.solved.value, 4)
            report[f"{line.name}: cost"] = round(line.cost, 4)
        meta = self.meta(data, len(decisions), report)
        checkpoint = checkpoints.make(svf.join(self._no_offsets(), head), meta)
        text = f"{policy_table(lines)}\n\n{score.text()}\n{comparison}"
        return WarmStartResult(checkpoint, text)

    def meta(self, data: str, count: int, report: dict[str, float]) -> CheckpointMeta:
        """Return what the checkpoint is valid for."""
        recipe, shape = self._recipe, self._backbone.shape
        rows = tuple(seat.row for seat in recipe.seats)
        return CheckpointMeta(
            backbone=self._backbone.identity,
            width=shape.width,
            ranks=svf.ranks(shape),
            rows=rows,
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

    def decisions(self, tasks: Sequence[TaskRates]) -> list[DecisionExample]:
        """Return all training decisions, the same for the same recipe and tasks."""
        recipe = self._recipe
        draw = random.Random(recipe.seed)
        return [
            example
            for task in tasks
            for example in matrix_examples(
                task, recipe.seats, recipe.terms, recipe.longer_histories, draw
            )
        ]

    def examples(self, decisions: Sequence[DecisionExample]) -> fitting.HeadExamples:
        """Return the decisions as numbers."""
        return fitting.HeadExamples(
            hidden=self._hidden_states(
                [self._text(SessionState(example.events)) for example in decisions]
            ),
            rows=np.array([example.rows for example in decisions], np.float32),
            roles=np.array([ROLES.index(example.role) for example in decisions], np.int64),
            weights=np.array([example.weight for example in decisions], np.float32),
            groups=tuple(example.task for example in decisions),
        )

    def _text(self, state: SessionState) -> str:
        return transcript.transcript_text(self._backbone, self._recipe, state)

    def _state_after(self, task: TaskRates, failed: FailedRows) -> Vector:
        text = self._text(SessionState(session_after(task, self._recipe.seats, failed)))
        state: Vector = self._hidden_states([text])[0]
        return state

    def _validate(
        self,
        tasks: Sequence[TaskRates],
        examples: fitting.HeadExamples,
        tell: Callable[[str], None],
    ) -> tuple[dict[str, PolicyOutcome], fitting.HeadScore]:
        """Return each task's outcome by a head that was fitted without it, and the mean score."""
        recipe = self._recipe
        outcomes: dict[str, PolicyOutcome] = {}
        scores: list[tuple[fitting.HeadScore, int]] = []
        folds = fitting.group_folds(examples.groups, recipe.folds, recipe.seed)
        for number, held_out in enumerate(folds, start=1):
            tell(f"fitting without part {number} of {len(folds)}, and judging by it")
            head = fitting.fit_head(examples.take(~held_out), len(ROLES), l2=recipe.l2)
            held_out_tasks = {
                group for group, is_out in zip(examples.groups, held_out, strict=True) if is_out
            }
            policy = head_policy(head, len(recipe.seats), self._state_after)
            for task in tasks:
                if task.task in held_out_tasks:
                    outcomes[task.task] = follow_policy(task, policy, recipe.terms.turns)
            score = fitting.score_head(head, examples.take(held_out))
            scores.append((score, int(held_out.sum())))
        return outcomes, fitting.mean_score(scores)

    def _no_offsets(self) -> tuple[Vector, ...]:
        return tuple(np.zeros(size, np.float32) for size in svf.ranks(self._backbone.shape))


def parse_head_rows(texts: Sequence[str]) -> tuple[HeadRow, ...]:
    """Parse rows in the head's order. Raises ConfigError for an invalid or repeated row."""
    rows = tuple(map(parse_head_row, texts))
    names = [row.row for row in rows]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ConfigError(
            f"two rows are called {twice[0]}", hint="give each --row a name of its own"
        )
    return rows


def parse_head_row(text: str) -> HeadRow:
    """Parse `strong=coder*5`: the row `strong` is the measured agent `coder` with up to five
    attempts.
    """
    row, equals, agent = text.partition("=")
    name, star, attempts = agent.partition("*")
    has_parts = bool(row and equals and name)
    has_attempts = not star or (attempts.isdigit() and int(attempts) > 0)
    if not has_parts or not has_attempts:
        raise ConfigError(
            f"--row {text}: write ROW=AGENT or ROW=AGENT*ATTEMPTS, as in strong=coder*5"
        )
    return HeadRow(row, name, int(attempts) if star else 1)
