"""The pass matrix: how often each agent solved each task, and what that means for the slots of a pool.

Reads the rows of a measurement (JSONL, one model call each) and knows nothing of transcripts or heads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fugu_cli.errors import ConfigError

PRIOR = 1.0
"""Weight, in draws, of an agent's mean rate in each task's own: a handful of draws is no certainty."""


class Cell(BaseModel):
    """One call: what the draw `repeat` of a request gave (evaluation/one_pass.py). Other fields are not read.
    `seconds` are USD in a matrix of which any call was paid for: what counts is how they compare."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    task: str
    agent: str
    repeat: int
    ok: bool
    seconds: float = Field(ge=0, allow_inf_nan=False)
    prompt: str


@dataclass(frozen=True)
class Seat:
    """A row to be trained: `agent` of the measurement, drawing up to `attempts` times while the tests fail."""

    row: str
    agent: str
    attempts: int = 1


@dataclass(frozen=True)
class Rates:
    """One task and one row: the chance that a first turn solves it, that a later one does, and what each costs; and
    both for a first turn after another agent's, which begins with that agent's second draw (repair/aims.py). Rows of
    one `agent` are one model; "" is no other row's."""

    first: float
    again: float
    first_cost: float
    again_cost: float
    after: tuple[float, float] | None = None
    agent: str = ""


@dataclass(frozen=True)
class TaskRates:
    """One task: its request, and every row's rates in the order of the seats. Costs are relative: the dearest row's
    mean turn is 1."""

    task: str
    prompt: str
    rows: tuple[Rates, ...]


def read(path: Path) -> list[Cell]:
    """The rows of a measurement, the newest of each cell. Raises ConfigError naming the line that is none."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ConfigError(f"{path}: the pass matrix cannot be read: {error.strerror}") from error
    cells: dict[tuple[str, str, int], Cell] = {}
    for number, line in enumerate(lines, start=1):
        try:
            cell = Cell.model_validate_json(line)
        except ValidationError as error:
            if number == len(lines):
                break  # a measurement that is still being written
            raise ConfigError(f"{path}:{number}: not a row of a pass matrix: {error.errors()[0]['msg']}") from error
        cells[cell.agent, cell.task, cell.repeat] = cell
    return list(cells.values())


def rates(cells: Sequence[Cell], seats: Sequence[Seat], prior: float = PRIOR) -> tuple[TaskRates, ...]:
    """Every task that all seats' agents were measured on; with a `prior` of 0 exactly what was recorded. Raises
    ConfigError when there is none."""
    by_agent = {seat.agent: [cell for cell in cells if cell.agent == seat.agent] for seat in seats}
    common = set.intersection(*({cell.task for cell in found} for found in by_agent.values())) if by_agent else set()
    if not common:
        names = ", ".join(sorted({cell.agent for cell in cells})) or "nobody"
        raise ConfigError(f"no task was measured with every agent asked for; the matrix has rows of {names}")
    tables = [_table(seat, by_agent[seat.agent], prior) for seat in seats]
    prompts = {cell.task: cell.prompt for cell in cells}
    dearest = max(mean(rate.first_cost for rate in table.values()) for table in tables) or 1.0
    return tuple(
        TaskRates(task, prompts[task], tuple(_scaled(table[task], dearest) for table in tables))
        for task in sorted(common)
    )


def _table(seat: Seat, cells: Sequence[Cell], prior: float) -> Mapping[str, Rates]:
    """Rates by task. Every draw of a task, the greedy ones too, says how likely a later one is."""
    overall = mean(cell.ok for cell in cells)
    seconds = mean(cell.seconds for cell in cells)
    found = {}
    for task in {cell.task for cell in cells}:
        draws = {cell.repeat: cell.ok for cell in cells if cell.task == task}
        each = (sum(draws.values()) + prior * overall) / (len(draws) + prior)
        first, second = (float(draws[repeat]) if repeat in draws else each for repeat in (0, 1))
        after = _drawn(second, each, seat, seconds)
        rates = _drawn(first, each, seat, seconds)
        found[task] = replace(rates, after=(after.first, after.first_cost), agent=seat.agent)
    return found


def _drawn(first: float, each: float, seat: Seat, seconds: float) -> Rates:
    """A turn of `seat.attempts` draws that ends with the first success; its cost is the expected number of draws."""
    miss, attempts = 1 - each, seat.attempts
    tail = sum(miss**n for n in range(attempts - 1))
    return Rates(
        first=1 - (1 - first) * miss ** (attempts - 1),
        again=1 - miss**attempts,
        first_cost=seconds * (1 + (1 - first) * tail),
        again_cost=seconds * sum(miss**n for n in range(attempts)),
    )


def _scaled(rate: Rates, unit: float) -> Rates:
    after = (rate.after[0], rate.after[1] / unit) if rate.after else None
    return replace(rate, first_cost=rate.first_cost / unit, again_cost=rate.again_cost / unit, after=after)


def headroom(tasks: Sequence[TaskRates]) -> tuple[float, ...]:
    """The mean first-turn rate of every row, and last that of the oracle that knows the best row of each task."""
    rows = range(len(tasks[0].rows))
    singles = tuple(mean(task.rows[row].first for task in tasks) for row in rows)
    return (*singles, mean(max(rate.first for rate in task.rows) for task in tasks))
