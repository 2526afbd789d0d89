"""The pass matrix: how often each agent solved each task, as `fugu train matrix` measures it.

From it follow the value of a turn, by which a coordinator is trained, and the headroom: how much
routing could gain with this pool.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations
from pathlib import Path
from statistics import mean

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fugu_cli.errors import ConfigError
from fugu_cli.formatting import plural
from fugu_cli.training.evaluation.intervals import Mean, bootstrap, wilson, wilson_repeated

PRIOR = 1.0
"""Weight, in runs, of an agent's mean rate in its rate on one task: a few runs are no certainty."""


class MatrixCell(BaseModel):
    """One run of an agent on a task; `repeat` counts the runs from 0. Other fields are ignored.

    `seconds` are USD in a matrix in which any call was paid for: only their ratios are used.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    task: str
    agent: str
    repeat: int
    ok: bool
    seconds: float = Field(ge=0, allow_inf_nan=False)
    prompt: str


@dataclass(frozen=True)
class HeadRow:
    """A row of the head to be trained. In the measurement it is `agent`, with up to `attempts`
    attempts in a turn while the tests fail.
    """

    row: str
    agent: str
    attempts: int = 1


@dataclass(frozen=True)
class RowRates:
    """The success rates and costs of one row on one task: of its first turn and of a later turn.

    `after` has the rate and the cost of a first turn that follows another agent's turn, measured on
    the second run. Rows with the same `agent` are one model; "" stands for a model of its own.
    """

    first: float
    again: float
    first_cost: float
    again_cost: float
    after: tuple[float, float] | None = None
    agent: str = ""


@dataclass(frozen=True)
class TaskRates:
    """One task: its request, and every row's rates in the order of the seats. Costs are relative:
    the dearest row's mean turn is 1."""

    task: str
    prompt: str
    rows: tuple[RowRates, ...]


def read_matrix(path: Path) -> list[MatrixCell]:
    """Read a measurement, the newest row of each cell. Raises ConfigError for an invalid line."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        hint = "`fugu train matrix TASKS --out FOLDER` writes FOLDER/matrix.jsonl when it ends"
        raise ConfigError(
            f"{path}: the pass matrix cannot be read: {error.strerror}", hint=hint
        ) from error
    cells: dict[tuple[str, str, int], MatrixCell] = {}
    for number, line in enumerate(lines, start=1):
        try:
            cell = MatrixCell.model_validate_json(line)
        except ValidationError as error:
            if number == len(lines):
                break  # a measurement that is still being written
            raise ConfigError(
                f"{path}:{number}: not a row of a pass matrix: {error.errors()[0]['msg']}"
            ) from error
        cells[cell.agent, cell.task, cell.repeat] = cell
    return list(cells.values())


def pass_rates(
    cells: Sequence[MatrixCell], seats: Sequence[HeadRow], prior: float = PRIOR
) -> tuple[TaskRates, ...]:
    """Return the rates of every task that all seats' agents were measured on. With a `prior` of 0
    they are the recorded ones.

    Raises ConfigError if there is no such task.
    """
    by_agent: dict[str, list[MatrixCell]] = {seat.agent: [] for seat in seats}
    for cell in cells:
        if cell.agent in by_agent:
            by_agent[cell.agent].append(cell)
    tasks_by_agent = [{cell.task for cell in own_cells} for own_cells in by_agent.values()]
    common = set.intersection(*tasks_by_agent) if tasks_by_agent else set()
    if not common:
        names = ", ".join(sorted({cell.agent for cell in cells})) or "nobody"
        raise ConfigError(
            f"no task was measured with every agent asked for; the matrix has rows of {names}"
        )
    tables = [_table(seat, by_agent[seat.agent], prior) for seat in seats]
    prompts = {cell.task: cell.prompt for cell in cells}
    mean_costs = [mean(rate.first_cost for rate in table.values()) for table in tables]
    dearest = max(mean_costs) or 1.0
    task_rates = []
    for task in sorted(common):
        rows = tuple(_scaled(table[task], dearest) for table in tables)
        task_rates.append(TaskRates(task, prompts[task], rows))
    return tuple(task_rates)


def _table(seat: HeadRow, cells: Sequence[MatrixCell], prior: float) -> Mapping[str, RowRates]:
    """Return a seat's rates by task. All runs of a task, the first one included, count for later
    turns.
    """
    overall_rate = mean(cell.ok for cell in cells)
    seconds = mean(cell.seconds for cell in cells)
    by_task = {}
    for task in {cell.task for cell in cells}:
        successes = {cell.repeat: cell.ok for cell in cells if cell.task == task}
        rate = (sum(successes.values()) + prior * overall_rate) / (len(successes) + prior)
        first = float(successes.get(0, rate))
        second = float(successes.get(1, rate))
        rates = _turn_rates(first, rate, seat.attempts, seconds)
        after = _turn_rates(second, rate, seat.attempts, seconds)
        by_task[task] = replace(rates, after=(after.first, after.first_cost), agent=seat.agent)
    return by_task


def _turn_rates(first: float, later: float, attempts: int, seconds: float) -> RowRates:
    """Return the rates of turns that make up to `attempts` attempts and end with the first success.

    `first` is the success rate of the very first attempt, `later` that of all others, `seconds` the
    time of one. A cost is `seconds` times the expected number of attempts.
    """
    failure = 1 - later
    expected_after_first = sum(failure**count for count in range(attempts - 1))
    expected_again = sum(failure**count for count in range(attempts))
    return RowRates(
        first=1 - (1 - first) * failure ** (attempts - 1),
        again=1 - failure**attempts,
        first_cost=seconds * (1 + (1 - first) * expected_after_first),
        again_cost=seconds * expected_again,
    )


def _scaled(rate: RowRates, unit: float) -> RowRates:
    after = (rate.after[0], rate.after[1] / unit) if rate.after else None
    return replace(
        rate, first_cost=rate.first_cost / unit, again_cost=rate.again_cost / unit, after=after
    )


FailedRows = tuple[int, ...]
"""Rows whose Worker turns failed, oldest first."""
ChooseRow = Callable[[TaskRates, FailedRows], int]
"""A policy: the row of the next Worker turn."""


@dataclass(frozen=True)
class ValueSettings:
    """`turns` is K; one of them verifies. `cost` is the weight of a turn's relative cost, `tau` the
    softness.
    """

    turns: int = 5
    cost: float = 0.1
    tau: float = 0.1


@dataclass(frozen=True)
class PolicyOutcome:
    """The expected result of a policy on one task: solved, relative cost, Worker turns."""

    solved: float
    cost: float
    turns: float


def turn_rate_and_cost(task: TaskRates, row: int, history: FailedRows) -> tuple[float, float]:
    """Return the success rate and the cost of a turn by `row` after the failed turns in `history`.

    They depend on whether the row's model has failed already, or only other models have.
    """
    rates = task.rows[row]
    for failed_row in history:
        is_same_model = bool(rates.agent) and rates.agent == task.rows[failed_row].agent
        if row == failed_row or is_same_model:
            return rates.again, rates.again_cost
    if history and rates.after:
        return rates.after
    return rates.first, rates.first_cost


def row_values(task: TaskRates, history: FailedRows, terms: ValueSettings) -> tuple[float, ...]:
    """Return the value Q of every row, all zero when no turns are left."""
    turns_left = terms.turns - 1 - len(history)
    if turns_left <= 0:
        return (0.0,) * len(task.rows)
    values = []
    for row in range(len(task.rows)):
        rate, cost = turn_rate_and_cost(task, row, history)
        value_after_failure = 0.0
        if rate < 1 and turns_left > 1:
            value_after_failure = max(*row_values(task, (*history, row), terms), 0.0)
        values.append(rate - terms.cost * cost + (1 - rate) * value_after_failure)
    return tuple(values)


def softmax(worth: Sequence[float], tau: float) -> tuple[float, ...]:
    """Return softmax(worth / tau)."""
    top = max(worth)
    weights = [math.exp((value - top) / tau) for value in worth]
    return tuple(weight / sum(weights) for weight in weights)


def follow_policy(task: TaskRates, choose: ChooseRow, turns: int) -> PolicyOutcome:
    """Return the expected outcome of a policy on one task."""
    solved = 0.0
    cost = 0.0
    worker_turns = 0.0
    unsolved = 1.0
    history: FailedRows = ()
    for _ in range(turns - 1):
        row = choose(task, history)
        rate, turn_cost = turn_rate_and_cost(task, row, history)
        solved += unsolved * rate
        cost += unsolved * turn_cost
        worker_turns += unsolved
        unsolved *= 1 - rate
        history = (*history, row)
    return PolicyOutcome(solved, cost, worker_turns)


def cascade_policy(task: TaskRates, history: FailedRows) -> int:
    """Choose the next row after each failure, from the first."""
    return min(len(history), len(task.rows) - 1)


def fixed_policy(row: int) -> ChooseRow:
    """Return a policy that always chooses one row."""
    return lambda task, history: row


def oracle_policy(terms: ValueSettings) -> ChooseRow:
    """Return the policy that knows every task's rates and chooses the best row."""

    def choose(task: TaskRates, history: FailedRows) -> int:
        values = row_values(task, history, terms)
        return values.index(max(values))

    return choose


WORTH_KNOWING = 0.05
"""Headroom that is not ruled out below this is nothing to train for."""
RANDOM_AGENT = ""
"""No agent has this name."""
Ranks = Mapping[str, tuple[float, float]]
"""Over all tasks: an agent's rate, then how little it costs."""


@dataclass(frozen=True)
class Headroom:
    """The gain of choosing the right agent for each task over the best agent alone.

    `agents` has the mean rate and cost of each agent, `solved` the rate of each and of a random
    choice (RANDOM_AGENT), with intervals. `oracle` chooses with hindsight; `fair` is judged on
    other repeats than it chose by (None without repeats). `disagreement` is the share of tasks on
    which two agents differ, a mean over all pairs.

    Shares have Wilson's interval, since a bootstrap over tasks that were all solved would be sure
    of 100 %. `headroom` is a difference and has a bootstrap interval.
    """

    agents: Mapping[str, tuple[float, float]]
    solved: Mapping[str, Mean]
    best: str
    oracle: Mean
    fair: Mean | None
    headroom: Mean
    disagreement: float
    tasks: int
    repeats: int
    unit: str

    @property
    def pays(self) -> bool:
        """Return whether choosing well solves more, beyond luck."""
        return self.headroom.low > 0

    @property
    def cheaper(self) -> str | None:
        """An agent that costs much less than the best and solves nearly as many of its tasks:
        routing can save money even without headroom.
        """
        rate, cost = self.agents[self.best]
        cheaper_agents = [
            name
            for name, (own, price) in self.agents.items()
            if price < 0.5 * cost and own > 0.5 * rate
        ]
        return min(cheaper_agents, key=lambda name: self.agents[name][1], default=None)


def headroom(draws: Sequence[MatrixCell], unit: str) -> Headroom:
    """Return the headroom of the tasks that every agent was run on. Raises ValueError if there is
    none.
    """
    agents = list(dict.fromkeys(draw.agent for draw in draws))
    table: dict[str, dict[str, list[bool]]] = {}
    for draw in sorted(draws, key=lambda draw: draw.repeat):
        table.setdefault(draw.task, {}).setdefault(draw.agent, []).append(draw.ok)
    table = {task: row for task, row in table.items() if len(row) == len(agents)}
    if not table:
        raise ValueError("no task was run with every agent")
    rows = list(table.values())
    rates, costs, solved = {}, {}, {}
    for agent in agents:
        outcomes_by_task = [row[agent] for row in rows]
        own_draws = [draw for draw in draws if draw.agent == agent and draw.task in table]
        rates[agent] = mean(map(mean, outcomes_by_task))
        costs[agent] = mean(draw.seconds for draw in own_draws)
        solved[agent] = _interval(rates[agent], outcomes_by_task)
    all_outcomes = [list(chain.from_iterable(row.values())) for row in rows]
    solved[RANDOM_AGENT] = _interval(mean(rates.values()), all_outcomes)
    ranks = {agent: (rates[agent], -costs[agent]) for agent in agents}
    best = max(agents, key=ranks.__getitem__)
    repeats = min(len(outcomes) for row in rows for outcomes in row.values())
    gains = [_gain(row, best, ranks) for row in rows]
    luckiest = [max(row.values(), key=mean) for row in rows]
    fair: Mean | None = None
    if repeats > 1:
        shares, outcomes = [], []
        for row in rows:
            first, second = _fair(row, ranks)
            shares.append(mean((mean(first), mean(second))))
            outcomes.append([*first, *second])
        fair = _interval(mean(shares), outcomes)
    return Headroom(
        agents={agent: (rates[agent], costs[agent]) for agent in agents},
        solved=solved,
        best=best,
        oracle=_interval(mean(mean(oks) for oks in luckiest), luckiest),
        fair=fair,
        headroom=_gain_interval(gains),
        disagreement=_disagreement(rows, agents),
        tasks=len(rows),
        repeats=repeats,
        unit=unit,
    )


def _interval(value: float, tries: Sequence[Sequence[bool]]) -> Mean:
    """Return `value`, a mean over tasks, with Wilson's interval of all `tries`."""
    share = wilson_repeated(tries)
    return Mean(value, min(value, share.low), max(value, share.high))


def _gain_interval(gains: Sequence[float]) -> Mean:
    """Return the mean of gains with its interval.

    If all gains are equal, a bootstrap claims certainty, however few they are. The interval is then
    as wide as that of a share of 0 of so many tasks.
    """
    mean_gain = bootstrap([[gain] for gain in gains])
    margin = wilson(0, len(gains)).high if mean_gain.low == mean_gain.high else 0.0
    return Mean(mean_gain.value, mean_gain.low - margin, mean_gain.high + margin)


def _gain(row: Mapping[str, Sequence[bool]], best: str, ranks: Ranks) -> float:
    """Return how much choosing adds on one task. With repeats, some of them choose and the others
    judge.
    """
    if min(len(oks) for oks in row.values()) > 1:
        chosen = mean(map(mean, _fair(row, ranks)))
    else:
        chosen = max(mean(oks) for oks in row.values())
    return chosen - mean(row[best])


def _fair(row: Mapping[str, Sequence[bool]], ranks: Ranks) -> tuple[Sequence[bool], Sequence[bool]]:
    """Choose an agent by the even repeats and one by the odd repeats; return the outcomes of each
    in the other half.

    Ties go to the agent that is better on all tasks; by position in the pool, headroom would depend
    on the order of entries.
    """
    by_even = max(row, key=lambda agent: (mean(row[agent][0::2]), ranks[agent]))
    by_odd = max(row, key=lambda agent: (mean(row[agent][1::2]), ranks[agent]))
    return row[by_even][1::2], row[by_odd][0::2]


def _disagreement(rows: Sequence[Mapping[str, Sequence[bool]]], agents: Sequence[str]) -> float:
    pairs = list(combinations(agents, 2))
    if not pairs:
        return 0.0
    return mean(mean(row[a][0] != row[b][0] for row in rows) for a, b in pairs)


def headroom_report(headroom: Headroom, missing: int = 0) -> str:
    """Return a table of the measurement and a verdict whether training on this pool can pay. There
    is no verdict while `missing` runs are to be measured.
    """
    lines = [
        f"{plural(headroom.tasks, 'task')}, {plural(headroom.repeats, 'run')} of each agent on each",
        "",
        f"| agent | solved | 95 % | {headroom.unit} a run |",
        "|---|---|---|---|",
    ]
    lines += [
        _table_row(agent, headroom.solved[agent], f"{cost:.4g}")
        for agent, (_, cost) in headroom.agents.items()
    ]
    costs = [cost for _, cost in headroom.agents.values()]
    lines.append(_table_row("random choice", headroom.solved[RANDOM_AGENT], f"{mean(costs):.4g}"))
    lines.append(_table_row("oracle, with hindsight", headroom.oracle, "-"))
    if headroom.fair is not None:
        lines.append(
            _table_row("oracle, judged on other runs than it chose by", headroom.fair, "-")
        )
    gain = headroom.headroom
    lines += [
        "",
        f"headroom over {headroom.best}: {100 * gain.value:+.1f} points "
        f"(95 % {100 * gain.low:+.1f} to {100 * gain.high:+.1f})",
        f"disagreement between two agents: {headroom.disagreement:.1%} of the tasks",
        "",
    ]
    if missing:
        runs = plural(missing, "run")
        lines.append(f"Still to be measured: {runs}. Whether routing can pay is not said before.")
    else:
        lines.append(_verdict(headroom))
    return "\n".join(lines)


def _table_row(name: str, solved: Mean, cost: str) -> str:
    return f"| {name} | {solved.value:.1%} | {solved.low:.1%} to {solved.high:.1%} | {cost} |"


def _verdict(headroom: Headroom) -> str:
    if headroom.pays and headroom.repeats == 1:
        return (
            "Routing may pay, but with one run of each agent luck looks like skill: run it again "
            "with --repeats 4 before you train."
        )
    if headroom.pays:
        return (
            "Routing can pay: choosing the right agent for a task solves more than the best "
            "agent alone."
        )
    if headroom.cheaper is not None:
        return (
            f"Choosing by the task does not solve more than {headroom.best} alone. It can save money: "
            f"{headroom.cheaper} costs less than half and solves more than half as much, so trying "
            "it first and escalating when a check fails can pay. Train on whole sessions "
            "(`fugu train evolve`), not on the request's text."
        )
    alone = (
        f"{headroom.best} alone does as well as any choice, and no other agent "
        "solves more than half as much for less than half the cost."
    )
    if headroom.headroom.high > WORTH_KNOWING:
        return (
            f"These tasks do not show that routing pays: {alone} They are too few to rule it out."
        )
    return f"Routing cannot pay on these tasks: {alone}"
