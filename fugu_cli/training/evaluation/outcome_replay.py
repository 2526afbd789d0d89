"""Replays coordinators on recorded outcomes: which models they would have asked, at what cost, and
what these solved.

No agent is called. `default_gate.py` judges by this which coordinator is the default; `runner.py`
measures real sessions instead. The cascade and a checkpoint decide as in a session, from a log in
which every Worker's turn that the check refused has failed. They must not know which model solves
what; only the oracle does.

Nothing is invented: a model with four recorded runs on a task has these four attempts, and then
they repeat. A Thinker changes nothing and costs nothing.
"""

from __future__ import annotations

import asyncio
import functools
import gzip
import json
import math
import random
import zlib
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement, pairwise
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

from fugu_cli.coordinators import Coordinator, CoordinatorSettings, action_space
from fugu_cli.coordinators.composed import USUAL_RUN_TOKENS, ComposedHead, expected_costs
from fugu_cli.coordinators.rules import Cascade
from fugu_cli.coordinators.trinity import HeadReader, ReadTranscript
from fugu_cli.errors import ConfigError
from fugu_cli.messages import EFFORTS, Call
from fugu_cli.session.events import (
    BUDGET,
    EVIDENCE,
    Asked,
    Assigned,
    BudgetLeft,
    Event,
    Exclusion,
    FileChange,
    Masked,
    Member,
    Opened,
    Permitted,
    Price,
    Replied,
    ToolRan,
)
from fugu_cli.session.state import SessionState
from fugu_cli.training.evaluation.intervals import Mean, bootstrap, paired_difference

CHECKS = ((1.0, 0.0), (0.95, 0.10), (0.90, 0.20), (0.80, 0.40))
"""Shares of right and of wrong work that a check passes."""
BUDGETS = (0.5, 1.0, 2.0)
"""For a task, in mean runs of the dearest model."""
TURNS = 4
"""Workers of one request at most; the fifth turn is a Verifier's."""
DRAWS = 24
"""Times that every task is played: which run comes first, and what an unsure check says."""
FOLDS = 5


@dataclass(frozen=True)
class OutcomeRun:
    """One run of a model on a task."""

    ok: bool
    cost: float


@dataclass(frozen=True)
class OutcomeTask:
    """The runs of each model on one task."""

    id: str
    runs: Mapping[str, tuple[OutcomeRun, ...]]
    text: str = ""
    """The request; a learned coordinator reads it."""


def read_outcomes(path: Path, models: Sequence[str]) -> list[OutcomeTask]:
    """Return the tasks of a file on which all `models` were run, without the runs of others. Raises
    ConfigError.
    """
    tasks = read_all_outcomes(path)
    recorded: set[str] = set()
    chosen = []
    for task in tasks:
        recorded.update(task.runs)
        if all(name in task.runs for name in models):
            runs = {name: task.runs[name] for name in models}
            chosen.append(OutcomeTask(task.id, runs, task.text))
    missing = [name for name in models if name not in recorded]
    if missing:
        raise ConfigError(
            f"{path}: no outcomes of {missing[0]}; there are {', '.join(sorted(recorded))}"
        )
    if len(chosen) < FOLDS:
        raise ConfigError(
            f"{path}: at least {FOLDS} tasks with outcomes of all these models are needed, and it has {len(chosen)}"
        )
    return chosen


def read_all_outcomes(path: Path) -> list[OutcomeTask]:
    """Return the tasks of a file (JSONL, perhaps gzipped). A line's `outcomes` hold for a model one
    run, or `runs`. Raises ConfigError.
    """
    try:
        data = path.read_bytes()
        lines = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode().splitlines()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        hint = "`fugu help outcomes` says what such a file holds"
        raise ConfigError(f"{path}: the outcomes cannot be read: {why}", hint=hint) from error
    tasks = []
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
            runs = {name: _runs(recorded) for name, recorded in row["outcomes"].items()}
            text = row.get("text") or ""
            tasks.append(OutcomeTask(row["id"], {n: own for n, own in runs.items() if own}, text))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(f"{path}:{number}: not a line of outcomes: {error!r}") from error
    return tasks


def _runs(recorded: Mapping[str, Any]) -> tuple[OutcomeRun, ...]:
    runs = recorded.get("runs", [recorded])
    return tuple(
        OutcomeRun(bool(run["ok"]), float(run["cost"]))
        for run in runs
        if run.get("cost") is not None
    )


def members_of(tasks: Sequence[OutcomeTask], vendors: Mapping[str, str]) -> tuple[Member, ...]:
    """Return the pool: each model priced so that a usual run costs the mean of its runs, in the
    slot of that price. A name may end with `@EFFORT`.
    """
    prices = {}
    for name in vendors:
        cost = mean(run.cost for task in tasks for run in task.runs[name])
        per_million = cost / USUAL_RUN_TOKENS * 1e6
        prices[name] = Price(input=per_million, output=per_million)
    slots = action_space.assign_slots(prices)
    members = []
    for name, vendor in vendors.items():
        model, _, effort = name.partition("@")
        members.append(
            Member(
                name=name,
                provider="openai",
                model=model,
                effort=next((level for level in EFFORTS if level == effort), ""),
                slot=slots[name],
                price=prices[name],
                vendor=vendor,
            )
        )
    return tuple(members)


NextModel = Callable[[tuple[str, ...], frozenset[str], float], str | None]
"""Return the model to ask after these failed, without those that are too expensive now, with so
many dollars left; None to stop.
"""


def in_order(models: Sequence[str]) -> NextModel:
    """Return a policy that asks models in order, without those that are too expensive at their
    turn.
    """

    def following(failed: tuple[str, ...], too_dear: frozenset[str], _dollars: float) -> str | None:
        start = 0  # behind the models that were asked already, and those passed over before them
        for name in failed:
            start = models.index(name, start) + 1
        for name in models[start:]:
            if name not in too_dear:
                return name
        return None

    return following


class DecidedByLog:
    """A coordinator as it ships, deciding on logs.

    The decision depends only on the failures so far and on the models that are affordable, so it is
    cached by these.
    """

    def __init__(self, coordinator: Coordinator, members: Sequence[Member]) -> None:
        self._coordinator = coordinator
        self._members = tuple(members)
        self._plans = isinstance(coordinator, ComposedHead)
        self._decisions: dict[tuple[str, tuple[str, ...], frozenset[str], float], str | None] = {}
        costs = expected_costs(members, ()).values()
        self._sums = [
            sorted(sum(runs) for runs in _up_to(attempts, costs)) for attempts in range(TURNS + 1)
        ]

    def on(self, draw: TaskDraw) -> NextModel:
        """Return how it decides on this task's request."""

        def following(
            failed: tuple[str, ...], too_dear: frozenset[str], dollars: float
        ) -> str | None:
            reach = self._reach(dollars, TURNS - len(failed)) if self._plans else math.inf
            key = draw.text, failed, too_dear, reach
            if key not in self._decisions:
                self._decisions[key] = self._decide(*key)
            return self._decisions[key]

        return following

    def _reach(self, dollars: float, attempts: int) -> float:
        """Round `dollars` down to the cost of a list of up to `attempts` runs, since all amounts
        between two such costs pay for the same lists. Return infinity if every list is affordable.
        """
        costs = self._sums[attempts]
        if dollars >= costs[-1]:
            return math.inf
        affordable = bisect_right(costs, dollars)
        return costs[max(affordable - 1, 0)]

    def _decide(
        self, text: str, failed: tuple[str, ...], too_dear: frozenset[str], dollars: float
    ) -> str | None:
        events = [*failed_log(self._members, failed, text)]
        excluded = tuple(
            (name, Exclusion(kind=BUDGET, message="too dear")) for name in sorted(too_dear)
        )
        events.append(Masked(agents=excluded))
        if math.isfinite(dollars):
            events.append(BudgetLeft(dollars=dollars + ROUNDING))
        while True:
            decision = asyncio.run(self._coordinator.decide(SessionState(events)))
            if not isinstance(decision, Assigned):
                return None
            if decision.role == "worker":
                return decision.agent
            events += [
                decision,
                Replied(turn=decision.turn, agent=decision.agent, text="Look again."),
            ]


ROUNDING = 1e-9
"""USD that a sum of costs may be off."""


def _up_to(attempts: int, costs: Collection[float]) -> Iterator[tuple[float, ...]]:
    """Yield the costs of every list of at most so many runs, including the empty list."""
    for count in range(attempts + 1):
        yield from combinations_with_replacement(costs, count)


class ReadingOnce(HeadReader):
    """A coordinator that reads each log once: models that are too expensive are masked, which
    changes no word of the transcript.
    """

    async def read(
        self, state: SessionState, settled: Callable[[Sequence[float]], bool]
    ) -> ReadTranscript:
        """Read a transcript once. The first mask decides whether it is read again for its rounding."""
        key: object = tuple(event for event in state.events if not isinstance(event, Masked))
        if key not in self._found:
            self._found[key] = await super().read(state, settled)
        return self._found[key]

    @functools.cached_property
    def _found(self) -> dict[object, ReadTranscript]:
        return {}


def failed_log(members: Sequence[Member], failed: Sequence[str], text: str = "") -> Iterator[Event]:
    """Yield a request whose tests fail, and the turns of models that worked on it without success."""
    yield Opened(version="", repo="/", pool=tuple(members))
    yield Asked(text=text, test_command="check", until=("check",))
    for turn, name in enumerate(failed, start=1):
        write, check = Call.make(f"w{turn}", "write"), Call(id=f"c{turn}", tool="run_tests")
        yield Assigned(turn=turn, agent=name, role="worker", by="cascade")
        yield Replied(turn=turn, agent=name, calls=(write,), stop="calls")
        yield Permitted(turn=turn, call=write, allowed=True, by="policy")
        changed = FileChange(path="a", before=str(turn - 1), after=str(turn))
        yield ToolRan(turn=turn, call=write, output="", ok=True, changes=(changed,))
        yield Replied(turn=turn, agent=name, text="Done.")
        yield Permitted(turn=turn, call=check, allowed=True, by=EVIDENCE)
        yield ToolRan(turn=turn, call=check, output="1 failed", ok=False)


@dataclass(frozen=True)
class TaskDraw:
    """The random part of a replay, the same for every arm: the order of each model's runs, an order
    of the models, a number for each check.
    """

    runs: Mapping[str, tuple[OutcomeRun, ...]]
    order: tuple[str, ...]
    checks: tuple[float, ...]
    text: str = ""


def draw_of(task: OutcomeTask, draw: int) -> TaskDraw:
    """Return the draw, the same for the same task and number."""
    chance = random.Random(f"{task.id}/{draw}")
    runs = {name: tuple(chance.sample(own, len(own))) for name, own in sorted(task.runs.items())}
    order = tuple(chance.sample(list(runs), len(runs)))
    return TaskDraw(runs, order, tuple(chance.random() for _ in range(TURNS)), task.text)


@dataclass(frozen=True)
class OutcomeLimits:
    """The check and the budget of a task.

    `check` has the shares of right and of wrong work that pass. `budget` is in USD. `costs` has the
    expected cost of a run of each model; a run that costs more than is left is not begun. `carried`
    is the extra cost of a run that continues others' work, since recorded runs began from the
    start.
    """

    check: tuple[float, float]
    budget: float
    costs: Mapping[str, float]
    carried: Callable[[TaskDraw, tuple[str, ...], str], float] = lambda _draw, _failed, _name: 0.0


class Attempted(NamedTuple):
    """The state of a task: whether the final work is right, the money spent, the models whose work
    the check refused, and whether any passed.
    """

    solved: bool = False
    spent: float = 0.0
    failed: tuple[str, ...] = ()
    passed: bool = False


def attempt(work: Attempted, draw: TaskDraw, name: str, limits: OutcomeLimits) -> Attempted:
    """Return the state after one more run; unchanged if there is nothing to do, or it would be too
    expensive.
    """
    if work.passed or len(work.failed) == TURNS or name in _too_dear(work, limits):
        return work
    own = draw.runs[name]
    run = own[work.failed.count(name) % len(own)]
    passed = draw.checks[len(work.failed)] < limits.check[0 if run.ok else 1]
    spent = work.spent + run.cost + limits.carried(draw, work.failed, name)
    return Attempted(run.ok, spent, work.failed if passed else (*work.failed, name), passed)


def play(draw: TaskDraw, following: NextModel, limits: OutcomeLimits) -> Attempted:
    """Play a task to its end. Unfinished work is left as it is."""
    work = Attempted()
    while not work.passed and len(work.failed) < TURNS:
        too_dear = _too_dear(work, limits)
        name = following(work.failed, too_dear, limits.budget - work.spent)
        if name is None or name in too_dear:
            break
        work = attempt(work, draw, name, limits)
    return work


def _too_dear(work: Attempted, limits: OutcomeLimits) -> frozenset[str]:
    """Return the models whose next run is expected to cost more than is left."""
    left = limits.budget - work.spent + ROUNDING
    return frozenset(name for name, cost in limits.costs.items() if cost > left)


@dataclass(frozen=True)
class ArmResult:
    """An arm on every task: the mean over its draws."""

    name: str
    solved: tuple[float, ...]
    cost: tuple[float, ...]


Arm = Callable[[TaskDraw], NextModel]
"""Return how an arm decides for a draw. Only the oracle looks at the runs."""
Tasks = Sequence[Sequence[TaskDraw]]
"""Every task's draws."""


def _result(name: str, works: Sequence[Sequence[Attempted]]) -> ArmResult:
    solved, cost = [], []
    for works_of_task in works:
        solved.append(sum(work.solved for work in works_of_task) / len(works_of_task))
        cost.append(sum(work.spent for work in works_of_task) / len(works_of_task))
    return ArmResult(name, tuple(solved), tuple(cost))


def played(name: str, arm: Arm, tasks: Tasks, limits: OutcomeLimits) -> ArmResult:
    """Play an arm on every task in every draw."""
    return _result(name, [[play(draw, arm(draw), limits) for draw in draws] for draws in tasks])


def every_list(tasks: Tasks, limits: OutcomeLimits) -> dict[tuple[str, ...], ArmResult]:
    """Play every order of up to four models, with repeats. Each continues a shorter one."""
    results: dict[tuple[str, ...], ArmResult] = {}

    def grow(order: tuple[str, ...], works: Sequence[Sequence[Attempted]]) -> None:
        for name in limits.costs:
            longer = []
            for works_of_task, draws in zip(works, tasks, strict=True):
                pairs = zip(works_of_task, draws, strict=True)
                longer.append([attempt(work, draw, name, limits) for work, draw in pairs])
            results[(*order, name)] = _result("", longer)
            if len(order) < TURNS - 1:
                grow((*order, name), longer)

    grow((), [[Attempted()] * len(draws) for draws in tasks])
    return results


def tuned(
    name: str, lists: Sequence[ArmResult], price: float = 0.0, folds: Sequence[int] = ()
) -> ArmResult:
    """Return the result of a list that is chosen without hindsight.

    Each fold is played with the list that is best on the tasks of the other folds: by solved tasks,
    less `price` for each dollar, the cheaper of equals. `folds` gives the fold of each task; by
    default they take turns.
    """
    tasks = range(len(lists[0].solved))
    solved, cost = [0.0] * len(tasks), [0.0] * len(tasks)
    fold_of_task = folds or [task % FOLDS for task in tasks]
    for fold in range(FOLDS):
        other_tasks = [task for task in tasks if fold_of_task[task] != fold]
        ranks = []
        for played_list in lists:
            solved_sum = sum(played_list.solved[task] for task in other_tasks)
            cost_sum = sum(played_list.cost[task] for task in other_tasks)
            ranks.append((solved_sum - price * cost_sum, -cost_sum))
        best = lists[ranks.index(max(ranks))]
        for task in tasks:
            if fold_of_task[task] == fold:
                solved[task], cost[task] = best.solved[task], best.cost[task]
    return ArmResult(name, tuple(solved), tuple(cost))


def _oracle(limits: OutcomeLimits) -> Arm:
    """Return the oracle: the cheapest model whose first run is right, the cheapest of all if none
    is.
    """
    affordable = [name for name, cost in limits.costs.items() if cost <= limits.budget]
    affordable.sort(key=limits.costs.__getitem__)

    def decide(draw: TaskDraw) -> NextModel:
        for name in affordable:
            if draw.runs[name][0].ok:
                return in_order([name])
        return in_order(affordable[:1])

    return decide


def _changes_vendor(models: Sequence[str], pool: Mapping[str, Member]) -> bool:
    """Return whether no two neighbours of similar price have the same vendor."""
    return not any(
        action_space.vendor_key(pool[first]) == action_space.vendor_key(pool[second])
        and action_space.near_price(pool[first], pool[second])
        for first, second in pairwise(models)
    )


PRICE_OF_COST = 0.1
"""The price of a run of the dearest model, in solved tasks: reward is solved less this price."""
SETTINGS = CoordinatorSettings(turns=TURNS + 1)


@dataclass(frozen=True)
class CellResult:
    """The results of all arms with one check and one budget.

    The budget is in mean runs of the dearest model; one costs `unit` USD. `lists` has the result of
    every list of models.
    """

    check: tuple[float, float]
    budget: float
    unit: float
    arms: Mapping[str, ArmResult]
    lists: Sequence[ArmResult]


class OutcomeComparison:
    """Plays every arm with one pool on the same draws of each task.

    `learned` decides in the arm `trinity`; None leaves that arm out.
    """

    def __init__(
        self, members: Sequence[Member], tasks: Tasks, learned: Coordinator | None = None
    ) -> None:
        self._pool = {member.name: member for member in members}
        self._tasks = tasks
        self._costs = expected_costs(members, ())
        unknown = [member.model_copy(update={"vendor": ""}) for member in members]
        self._deciding = {
            "cascade": DecidedByLog(Cascade(members, SETTINGS), members),
            "cascade, vendors unknown": DecidedByLog(Cascade(unknown, SETTINGS), unknown),
        }
        if learned is not None:
            self._deciding["trinity"] = DecidedByLog(learned, members)

    def cell(self, check: tuple[float, float], budget: float) -> CellResult:
        """Play every arm with one check and one budget. The tuned list comes first."""
        unit = max(self._costs.values())
        limits = OutcomeLimits(check, budget * unit, self._costs)
        lists = every_list(self._tasks, limits)
        changing = [result for order, result in lists.items() if _changes_vendor(order, self._pool)]
        single = [result for order, result in lists.items() if len(order) == 1]
        repeated = [lists[(name,) * TURNS] for name in self._pool]
        arms = [
            tuned("tuned list", list(lists.values())),
            tuned("tuned list that changes the vendor", changing),
        ]
        for name, coordinator in self._deciding.items():
            arms.append(played(name, coordinator.on, self._tasks, limits))
        arms += [
            tuned("best single", single),
            tuned("the same again", repeated),
            played("random order", lambda draw: in_order(draw.order), self._tasks, limits),
            played("oracle", _oracle(limits), self._tasks, limits),
        ]
        by_name = {arm.name: arm for arm in arms}
        return CellResult(check, budget, unit, by_name, list(lists.values()))


def reward(arm: ArmResult, unit: float) -> list[float]:
    """Return the reward of an arm on every task, where a run of the dearest model costs `unit`."""
    return [
        solved - PRICE_OF_COST * cost / unit
        for solved, cost in zip(arm.solved, arm.cost, strict=True)
    ]


def play_tasks(
    members: Sequence[Member], tasks: Sequence[OutcomeTask], learned: Coordinator | None = None
) -> list[CellResult]:
    """Play every arm with each check and budget, check by check."""
    draws_by_task = []
    for task in tasks:
        draws_by_task.append([draw_of(task, number) for number in range(DRAWS)])
    comparison = OutcomeComparison(members, draws_by_task, learned)
    return [comparison.cell(check, budget) for check in CHECKS for budget in BUDGETS]


def report(
    members: Sequence[Member], tasks: Sequence[OutcomeTask], cells: Sequence[CellResult]
) -> str:
    """Return the results of all checks and budgets as Markdown. Each arm is compared with the tuned
    list on the same tasks.
    """
    headings = []
    for budget in BUDGETS:
        dollars = budget * cells[0].unit
        headings.append(f"at most ${dollars:.2f}: solved, spent | points over the tuned list")
    parts = [_pool_table(members, tasks)]
    for right, wrong in CHECKS:
        by_budget = [cell for cell in cells if cell.check == (right, wrong)]
        lines = [
            f"## A check that passes {right:.0%} of right and {wrong:.0%} of wrong work",
            "",
            f"| way | {' | '.join(headings)} |",
            "|---" * (1 + 2 * len(headings)) + "|",
        ]
        tuned_list = [cell.arms["tuned list"] for cell in by_budget]
        for name in by_budget[0].arms:
            lines.append(_arm_line([cell.arms[name] for cell in by_budget], tuned_list))
        parts.append("\n".join(lines))
    parts.append("\n".join(["## In reward, less the cascade", "", *_reward_lines(cells)]))
    return "\n\n".join(parts) + "\n"


def _reward_lines(cells: Sequence[CellResult]) -> list[str]:
    """Return the reward of each arm less that of the cascade, as a Markdown table."""
    arms = [name for name in cells[0].arms if name != "cascade"]
    lines = [
        f"Reward is solved, less {PRICE_OF_COST:g} for what a run of the dearest model costs. Shown "
        "are points and standard errors of paired differences.",
        "",
        f"| check, budget | {' | '.join(arms)} |",
        "|---" * (1 + len(arms)) + "|",
    ]
    for cell in cells:
        cascade = reward(cell.arms["cascade"], cell.unit)
        gaps = [
            paired_difference(reward(cell.arms[name], cell.unit), cascade).in_points
            for name in arms
        ]
        lines.append(f"| {_where(cell)} | {' | '.join(gaps)} |")
    return lines


def _where(cell: CellResult) -> str:
    return f"check {cell.check[0]:.0%}/{cell.check[1]:.0%}, at most ${cell.budget * cell.unit:.2f}"


def _pool_table(members: Sequence[Member], tasks: Sequence[OutcomeTask]) -> str:
    lines = [
        f"{len(tasks)} tasks.",
        "",
        "| model | vendor | slot | USD a run | solved alone |",
        "|---|---|---|---|---|",
    ]
    costs = expected_costs(members, ())
    for member in members:
        alone = bootstrap([[float(run.ok) for run in task.runs[member.name]] for task in tasks])
        lines.append(
            f"| {member.name} | {member.vendor or '?'} | {member.slot} | "
            f"{costs[member.name]:.3f} | {_percent(alone)} |"
        )
    return "\n".join(lines)


def _arm_line(arms: Sequence[ArmResult], references: Sequence[ArmResult]) -> str:
    """Return the table line of one arm, which is in `arms` once for each budget."""
    cells = [arms[0].name]
    for arm, reference in zip(arms, references, strict=True):
        cells.append(f"{mean(arm.solved):.1%}, ${mean(arm.cost):.3f}")
        gaps = [[mine - theirs] for mine, theirs in zip(arm.solved, reference.solved, strict=True)]
        cells.append("" if arm is reference else _points(bootstrap(gaps)))
    return f"| {' | '.join(cells)} |"


def _percent(value: Mean) -> str:
    return f"{value.value:.1%} [{value.low:.1%}, {value.high:.1%}]"


def _points(value: Mean) -> str:
    return f"{100 * value.value:+.1f} [{100 * value.low:+.1f}, {100 * value.high:+.1f}]"
