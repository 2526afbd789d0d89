"""Rules on recorded outcomes: whom they would have asked, what that would have cost and solved. No agent is called.

Stands beside `runner.py`, which measures real sessions. The cascade decides as it does in a session: from a log, in
which every Worker's turn that the check refused has failed. It must not know which model solves what; only the oracle
does. What is not recorded is not made up: a model that was run four times on a task has four tries there, and then its
runs come again; a Thinker changes nothing and costs nothing.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import random
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

from fugu_cli.coordinators import CoordinatorSettings, action_space
from fugu_cli.coordinators.rules import Cascade
from fugu_cli.errors import ConfigError
from fugu_cli.evaluation.intervals import Mean, bootstrap
from fugu_cli.messages import Call
from fugu_cli.session.events import (
    BUDGET,
    EVIDENCE,
    Asked,
    Assigned,
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


def read_outcomes(path: Path, models: Sequence[str]) -> list[OutcomeTask]:
    """The tasks of a file (JSONL, perhaps gzipped) on which all `models` were run. A line's `outcomes` hold for a model
    one run, or `runs`. Raises ConfigError."""
    try:
        data = path.read_bytes()
        lines = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode().splitlines()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        hint = "`fugu help evaluation` says what such a file holds"
        raise ConfigError(f"{path}: the outcomes cannot be read: {why}", hint=hint) from error
    tasks, known = [], set()
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
            known |= row["outcomes"].keys()
            found = {name: _runs(row["outcomes"][name]) for name in models if name in row["outcomes"]}
            if all(found.get(name) for name in models):
                tasks.append(OutcomeTask(row["id"], found))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(f"{path}:{number}: not a line of outcomes: {error!r}") from error
    if missing := [name for name in models if name not in known]:
        raise ConfigError(f"{path}: no outcomes of {missing[0]}; there are {', '.join(sorted(known))}")
    if len(tasks) < FOLDS:
        raise ConfigError(f"{path}: {len(tasks)} tasks have outcomes of all of these models, {FOLDS} are needed")
    return tasks


def _runs(told: Mapping[str, Any]) -> tuple[OutcomeRun, ...]:
    runs = told.get("runs", [told])
    return tuple(OutcomeRun(bool(run["ok"]), float(run["cost"])) for run in runs if run.get("cost") is not None)


def members_of(tasks: Sequence[OutcomeTask], vendors: Mapping[str, str]) -> tuple[Member, ...]:
    """The pool: each model at the mean cost of its runs, with the slot that has."""
    costs = {name: mean(run.cost for task in tasks for run in task.runs[name]) for name in vendors}
    prices = {name: Price(input=cost, output=cost) for name, cost in costs.items()}
    slots = action_space.assign_slots(prices)
    return tuple(
        Member(name=name, provider="openai", model=name, slot=slots[name], price=prices[name], vendor=vendor)
        for name, vendor in vendors.items()
    )


NextModel = Callable[[tuple[str, ...], frozenset[str]], str | None]
"""Whom to ask after these have failed, without those that are too dear now; None: nobody."""


def in_order(models: Sequence[str]) -> NextModel:
    """One after the other, without those that are too dear when it is their turn."""

    def following(failed: tuple[str, ...], too_dear: frozenset[str]) -> str | None:
        left = list(models)
        for name in failed:
            del left[: left.index(name) + 1]
        return next((name for name in left if name not in too_dear), None)

    return following


class DecidedByCascade:
    """The rule as it ships, on logs. The same failures give the same decision, so each is asked for once."""

    def __init__(self, members: Sequence[Member], turns: int = TURNS) -> None:
        self._members = tuple(members)
        self._rule = Cascade(members, CoordinatorSettings(turns=turns + 1))
        self._known: dict[tuple[tuple[str, ...], frozenset[str]], str | None] = {}

    def __call__(self, failed: tuple[str, ...], too_dear: frozenset[str]) -> str | None:
        key = failed, too_dear
        if key not in self._known:
            self._known[key] = self._decide(failed, too_dear)
        return self._known[key]

    def _decide(self, failed: tuple[str, ...], too_dear: frozenset[str]) -> str | None:
        events = [*failed_log(self._members, failed)]
        out = tuple((name, Exclusion(kind=BUDGET, message="too dear")) for name in sorted(too_dear))
        events.append(Masked(agents=out))
        while True:
            decision = asyncio.run(self._rule.decide(events))
            if not isinstance(decision, Assigned):
                return None
            if decision.role == "worker":
                return decision.agent
            events += [decision, Replied(turn=decision.turn, agent=decision.agent, text="Look again.")]


def failed_log(members: Sequence[Member], failed: Sequence[str]) -> Iterator[Event]:
    """A request whose tests fail, and the turns of those who worked on it in vain."""
    yield Opened(version="", repo="/", pool=tuple(members))
    yield Asked(text="", test_command="check", until=("check",))
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
    """What chance decides, the same for every arm: the order of each model's runs, an order of the models, and a number
    for each check."""

    runs: Mapping[str, tuple[OutcomeRun, ...]]
    order: tuple[str, ...]
    checks: tuple[float, ...]


def draw_of(task: OutcomeTask, draw: int) -> TaskDraw:
    """The same for the same task and draw."""
    chance = random.Random(f"{task.id}/{draw}")
    runs = {name: tuple(chance.sample(own, len(own))) for name, own in sorted(task.runs.items())}
    order = tuple(chance.sample(list(runs), len(runs)))
    return TaskDraw(runs, order, tuple(chance.random() for _ in range(TURNS)))


@dataclass(frozen=True)
class OutcomeLimits:
    """`check`: which share of right and of wrong work passes. `budget`: USD for a task. `costs`: what a run of each
    model is expected to cost; where that is more than is left, it is not begun."""

    check: tuple[float, float]
    budget: float
    costs: Mapping[str, float]


class Attempted(NamedTuple):
    """How a task stands: whether the work that was left is right, what was spent, whose work the check refused, and
    whether it has passed any."""

    solved: bool = False
    spent: float = 0.0
    failed: tuple[str, ...] = ()
    passed: bool = False


def attempt(work: Attempted, draw: TaskDraw, name: str, limits: OutcomeLimits) -> Attempted:
    """One more run; as it was where nothing is to be done, or that would be too dear."""
    if work.passed or len(work.failed) == TURNS or limits.costs[name] > limits.budget - work.spent:
        return work
    own = draw.runs[name]
    run = own[work.failed.count(name) % len(own)]
    passed = draw.checks[len(work.failed)] < limits.check[0 if run.ok else 1]
    return Attempted(run.ok, work.spent + run.cost, work.failed if passed else (*work.failed, name), passed)


def play(draw: TaskDraw, following: NextModel, limits: OutcomeLimits) -> Attempted:
    """A task to its end. Work that nobody goes on with is left as it is."""
    work = Attempted()
    while not work.passed and len(work.failed) < TURNS:
        left = limits.budget - work.spent
        name = following(work.failed, frozenset(name for name, cost in limits.costs.items() if cost > left))
        if name is None:
            break
        work = attempt(work, draw, name, limits)
    return work


@dataclass(frozen=True)
class ArmResult:
    """An arm on every task: the mean over its draws."""

    name: str
    solved: tuple[float, ...]
    cost: tuple[float, ...]


Arm = Callable[[TaskDraw], NextModel]
"""How an arm decides where chance has it so. Only the oracle looks at the runs."""
Tasks = Sequence[Sequence[TaskDraw]]
"""Every task's draws."""


def _result(name: str, found: Sequence[Sequence[Attempted]]) -> ArmResult:
    solved = tuple(sum(one.solved for one in each) / len(each) for each in found)
    return ArmResult(name, solved, tuple(sum(one.spent for one in each) / len(each) for each in found))


def played(name: str, arm: Arm, tasks: Tasks, limits: OutcomeLimits) -> ArmResult:
    """Play an arm on every task in every draw."""
    return _result(name, [[play(draw, arm(draw), limits) for draw in draws] for draws in tasks])


def every_list(tasks: Tasks, limits: OutcomeLimits) -> dict[tuple[str, ...], ArmResult]:
    """Every order of up to four models, with repeats. Each goes on where a shorter one ended."""
    found: dict[tuple[str, ...], ArmResult] = {}

    def grow(order: tuple[str, ...], works: Sequence[Sequence[Attempted]]) -> None:
        for name in limits.costs:
            longer = [
                [attempt(work, draw, name, limits) for work, draw in zip(*each, strict=True)]
                for each in zip(works, tasks, strict=True)
            ]
            found[(*order, name)] = _result("", longer)
            if len(order) < TURNS - 1:
                grow((*order, name), longer)

    grow((), [[Attempted()] * len(draws) for draws in tasks])
    return found


def tuned(name: str, lists: Sequence[ArmResult]) -> ArmResult:
    """In every fold the one of `lists` that solves most of the tasks that are not in it, the cheaper of equals: what
    choosing without hindsight reaches."""
    solved, cost = [0.0] * len(lists[0].solved), [0.0] * len(lists[0].solved)
    for fold in range(FOLDS):
        known = [place for place in range(len(solved)) if place % FOLDS != fold]
        best = max(lists, key=lambda one: (sum(one.solved[i] for i in known), -sum(one.cost[i] for i in known)))
        for place in range(fold, len(solved), FOLDS):
            solved[place], cost[place] = best.solved[place], best.cost[place]
    return ArmResult(name, tuple(solved), tuple(cost))


def _oracle(limits: OutcomeLimits) -> Arm:
    """The cheapest model whose first run is right, the cheapest of all where none is."""
    order = sorted((name for name, cost in limits.costs.items() if cost <= limits.budget), key=limits.costs.__getitem__)
    return lambda draw: in_order([name for name in order if draw.runs[name][0].ok][:1] or order[:1])


def _changes_vendor(models: Sequence[str], pool: Mapping[str, Member]) -> bool:
    """No two neighbours of about one price are of one vendor."""
    return not any(
        action_space.vendor_key(pool[one]) == action_space.vendor_key(pool[other])
        and action_space.near_price(pool[one], pool[other])
        for one, other in pairwise(models)
    )


def compare(members: Sequence[Member], tasks: Tasks, check: tuple[float, float], budget: float) -> list[ArmResult]:
    """Every arm with this check and budget (in mean runs of the dearest model). The tuned list comes first."""
    pool = {member.name: member for member in members}
    costs = {name: action_space.blended_price(member.price) for name, member in pool.items()}
    limits = OutcomeLimits(check, budget * max(costs.values()), costs)
    lists = every_list(tasks, limits)
    changing = [found for order, found in lists.items() if _changes_vendor(order, pool)]
    with_vendors = DecidedByCascade(members)
    without = DecidedByCascade([member.model_copy(update={"vendor": ""}) for member in members])
    return [
        tuned("tuned list", list(lists.values())),
        tuned("tuned list that changes the vendor", changing),
        played("cascade", lambda draw: with_vendors, tasks, limits),
        played("cascade, vendors unknown", lambda draw: without, tasks, limits),
        tuned("best single", [found for order, found in lists.items() if len(order) == 1]),
        tuned("the same again", [lists[(name,) * TURNS] for name in pool]),
        played("random order", lambda draw: in_order(draw.order), tasks, limits),
        played("oracle", _oracle(limits), tasks, limits),
    ]


def report(members: Sequence[Member], tasks: Sequence[OutcomeTask]) -> str:
    """All checks and budgets, as Markdown. Differences are to the tuned list on the same tasks."""
    dearest = max(action_space.blended_price(member.price) for member in members)
    draws = [[draw_of(task, draw) for draw in range(DRAWS)] for task in tasks]
    heads = [f"${budget * dearest:.2f}" for budget in BUDGETS]
    parts = [_pool_table(members, tasks)]
    for right, wrong in CHECKS:
        by_budget = [compare(members, draws, (right, wrong), budget) for budget in BUDGETS]
        lines = [
            f"## A check that passes {right:.0%} of right and {wrong:.0%} of wrong work",
            "",
            "| way | "
            + " | ".join(f"at most {head}: solved, spent | points over the tuned list" for head in heads)
            + " |",
            "|---" * (1 + 2 * len(heads)) + "|",
        ]
        lines += [_line([found[place] for found in by_budget], [found[0] for found in by_budget]) for place in range(8)]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def _pool_table(members: Sequence[Member], tasks: Sequence[OutcomeTask]) -> str:
    lines = [
        f"{len(tasks)} tasks.",
        "",
        "| model | vendor | slot | USD a run | solved alone |",
        "|---|---|---|---|---|",
    ]
    for member in members:
        alone = bootstrap([[float(run.ok) for run in task.runs[member.name]] for task in tasks])
        cost = action_space.blended_price(member.price)
        lines.append(f"| {member.name} | {member.vendor or '?'} | {member.slot} | {cost:.3f} | {_percent(alone)} |")
    return "\n".join(lines)


def _line(arms: Sequence[ArmResult], against: Sequence[ArmResult]) -> str:
    cells = [arms[0].name]
    for arm, other in zip(arms, against, strict=True):
        cells.append(f"{mean(arm.solved):.1%}, ${mean(arm.cost):.3f}")
        gaps = [[mine - theirs] for mine, theirs in zip(arm.solved, other.solved, strict=True)]
        cells.append("" if arm is other else _points(bootstrap(gaps)))
    return f"| {' | '.join(cells)} |"


def _percent(value: Mean) -> str:
    return f"{value.value:.1%} [{value.low:.1%}, {value.high:.1%}]"


def _points(value: Mean) -> str:
    return f"{100 * value.value:+.1f} [{100 * value.low:+.1f}, {100 * value.high:+.1f}]"
