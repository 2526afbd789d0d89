"""An evaluation: every arm on every task with every seed, several at once, resumable at any moment.

Tasks are checked first; jobs are taken task by task, so that an evaluation cut short compares the same tasks. A rollout
whose agents do not answer is left for the next time; a spent limit or a refused key ends it with everything kept. Where
the rollouts run is the engine's business (`Engine`): in this process, or spread over a cluster (spread.py).
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Protocol

from fugu_cli import __version__
from fugu_cli.errors import FuguError, StorageError
from fugu_cli.evaluation import capacity, rows, setup
from fugu_cli.evaluation.loop import Open, Outcome
from fugu_cli.evaluation.rollout import Job, rollout
from fugu_cli.evaluation.spending import Spending, Spent, Unanswered
from fugu_cli.events import Member
from fugu_cli.tasks import Expected, Problem, Question
from fugu_cli.tasks.checking import Checked, check, sha

ROWS = "rows.jsonl"
CHECKS = "checks.jsonl"

Opening = Callable[[Spending], Open]
"""Makes what opens sessions whose agents pay within its limits. Travels to other machines, so it must be picklable."""


class Engine(Protocol):
    """Where rollouts run."""

    async def do(self, job: Job) -> Outcome:
        """One of them. Raises Spent, Unanswered, and any FuguError of its own."""

    async def close(self) -> None:
        """Give back what it holds."""


class Here:
    """In this process."""

    def __init__(self, opening: Opening, folder: Path, spending: Spending) -> None:
        self._open = opening(spending)
        self._folder = folder

    async def do(self, job: Job) -> Outcome:
        return await rollout(job, self._open, self._folder)

    async def close(self) -> None:
        pass


@dataclass(frozen=True)
class Plan:
    """What is to be measured. `settings` are the limits by name that rows of one table share, `entries` what the
    configuration says of an agent's answers, by agent; `checkpoint` is as in setup.Setup."""

    problems: tuple[Problem, ...]
    arms: tuple[str, ...]
    seeds: int
    pool: tuple[Member, ...]
    settings: Mapping[str, str]
    entries: Mapping[str, str] = field(default_factory=dict)
    checkpoint: str = ""
    at_once: int = 1


@dataclass(frozen=True)
class Progress:
    """One rollout is done. `left` is an estimate in seconds."""

    row: Outcome
    done: int
    total: int
    left: float


Tell = Callable[[Progress | str], None]


@dataclass
class Ended:
    """What came of it. `missing` counts rollouts that are left; `stopped` is why, where one reason ended it."""

    missing: int = 0
    stopped: FuguError | None = None


async def run(plan: Plan, engine: Engine, folder: Path, tell: Tell) -> Ended:
    """Measure what is not measured yet. The rows are in `folder`. Raises ConfigError, SessionBusy and StorageError."""
    with setup.alone(folder):
        tasks = {problem.id: sha(problem) for problem in plan.problems}
        fixed = setup.Setup(
            version=__version__,
            pool=plan.pool,
            entries=plan.entries,
            settings=plan.settings,
            checkpoint=plan.checkpoint,
            tasks=tasks,
        )
        setup.settle(folder, fixed)
        ended = Ended()
        checks = await checked(plan.problems, folder, tell)
        done = {(row.arm, row.task, row.seed) for row in rows.read(folder / ROWS, Outcome)}
        jobs = [job for job in _jobs(plan, checks) if (job.arm, job.problem.id, job.seed) not in done]
        work = _Work(jobs, len(_jobs(plan, checks)), plan.at_once, folder, tell)
        await asyncio.gather(*(_worker(work, engine, ended) for _ in range(plan.at_once)))
        ended.missing = len(work.jobs) + work.postponed
        return ended


async def checked(problems: Sequence[Problem], folder: Path, tell: Callable[[str], None]) -> dict[str, Checked]:
    """Every task's check, made once. Questions need none."""
    known = {found.task: found for found in rows.read(folder / CHECKS, Checked)}
    checks = {}
    for problem in problems:
        if isinstance(problem, Question):
            continue
        found = known.get(problem.id)
        if found is None or not found.holds(problem):
            found = await check(problem)
            rows.append(folder / CHECKS, found)
        if found.refused or found.note:
            tell(f"{problem.id}: {'refused: ' if found.refused else ''}{found.refused or found.note}")
        checks[problem.id] = found
    return checks


def _jobs(plan: Plan, checks: Mapping[str, Checked]) -> list[Job]:
    usable = [p for p in plan.problems if p.id not in checks or not checks[p.id].refused]
    return [
        Job(
            arm=arm,
            problem=problem,
            seed=seed,
            expected=checks[problem.id].expected if problem.id in checks else Expected(),
        )
        for seed in range(plan.seeds)
        for problem in usable
        for arm in plan.arms
    ]


class _Work:
    """The jobs that are left, and how long such jobs take."""

    def __init__(self, jobs: Sequence[Job], total: int, at_once: int, folder: Path, tell: Tell) -> None:
        self.jobs = deque(jobs)
        self.postponed = 0
        self.stop = False
        self.tell = tell
        self.running = 0
        self._file = folder / ROWS
        self._total = total
        self._at_once = at_once
        self._took: dict[str, list[float]] = defaultdict(list)

    def keep(self, job: Job, row: Outcome, seconds: float) -> None:
        """A row, on the disk before anybody is told."""
        rows.append(self._file, row)
        self._took[job.arm].append(seconds)
        done = self._total - len(self.jobs) - self.running - self.postponed + 1
        self.tell(Progress(row, done, self._total, self._left()))

    def _left(self) -> float:
        every = [took for one in self._took.values() for took in one]
        each = {arm: fmean(took) for arm, took in self._took.items()}
        return sum(each.get(job.arm, fmean(every)) for job in self.jobs) / self._at_once


async def _worker(work: _Work, engine: Engine, ended: Ended) -> None:
    """Takes jobs until none is left or the evaluation is to stop."""
    while work.jobs and not work.stop:
        job = work.jobs.popleft()
        work.running += 1
        await capacity.room(lambda: work.running > 1)
        started = time.monotonic()
        try:
            row = await engine.do(job)
        except Unanswered as error:
            work.postponed += 1
            work.tell(f"{job.name}: {error}; left for the next time")
            if error.final:
                work.stop, ended.stopped = True, error
        except (Spent, StorageError) as error:
            work.postponed += 1
            work.stop, ended.stopped = True, ended.stopped or error
        else:
            work.keep(job, row, time.monotonic() - started)
        finally:
            work.running -= 1
