"""An evaluation: every arm on every task with every seed, several at once, resumable."""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from statistics import fmean

from fugu_cli import __version__
from fugu_cli.coordinators import action_space
from fugu_cli.errors import FuguError, StorageError, UsageError
from fugu_cli.session.events import Member
from fugu_cli.training.evaluation import results_folder
from fugu_cli.training.evaluation.engine import RolloutEngine, gather_or_cancel
from fugu_cli.training.evaluation.paid_calls import AgentUnanswered, SpendingLimitReached
from fugu_cli.training.evaluation.rollout import RolloutJob, RolloutLost, RolloutOutcome
from fugu_cli.training.tasks import ExpectedTests, Problem, Question, Task
from fugu_cli.training.tasks.grading import TaskCheck, problem_sha

COORDINATOR_ARMS = (
    "trinity",
    "conductor",
    "cascade",
    "random",
    "mixture-of-agents",
    "panel-judge-merge",
)
ADVISED = "advised"
"""The arm with one agent in every role, which may ask the strongest agent for advice."""
PER_AGENT_ARMS = ("one-pass", "single", "retry-same", ADVISED)
ALL_ARMS = (
    *COORDINATOR_ARMS[:2],
    *PER_AGENT_ARMS[:2],
    ADVISED,
    "random",
    "self-reflection",
    *COORDINATOR_ARMS[4:],
    "prompted",
    "cascade",
    "retry-same",
)
"""Every arm there is, in the order of the report."""
DEFAULT_ARMS = ("trinity", "single", "random", "cascade")


def expand_arms(
    words: Sequence[str], members: Sequence[Member], opted_out: Collection[str] = ()
) -> tuple[str, ...]:
    """Return the arms that `words` name, each once; `all` names every one.

    `opted_out` are agents that the user excludes and that are not in `members`. Raises UsageError.
    """
    arms: list[str] = []
    names = [member.name for member in members]
    strongest = action_space.by_strength(members)[-1].name
    named: list[str] = []
    for word in words:
        named += ALL_ARMS if word == "all" else [word]
    for word in named:
        rule, _, name = word.partition(":")
        if rule not in ALL_ARMS or (name and rule in COORDINATOR_ARMS):
            raise UsageError(
                f"there is no arm {word!r}", hint=f"arms are {', '.join(ALL_ARMS)}, or all"
            )
        if name in opted_out:
            raise UsageError(
                f"{word!r} names an agent that is opted out", hint=f"take {name} out of opt_out"
            )
        if name and name not in names:
            raise UsageError(
                f"{word!r} names no agent of the pool", hint=f"the pool has {', '.join(names)}"
            )
        if rule == ADVISED and name == strongest:
            raise UsageError(
                f"{word!r}: no agent of the pool is stronger than {name}", hint="name another agent"
            )
        if name or rule in COORDINATOR_ARMS:
            arms.append(word)
        elif rule == ADVISED:
            arms += [f"{rule}:{agent}" for agent in names if agent != strongest]
        elif rule in PER_AGENT_ARMS:
            arms += [f"{rule}:{agent}" for agent in names]
        else:
            arms.append(f"{rule}:{strongest}")
    return tuple(dict.fromkeys(arms))


def report_order(arm: str) -> tuple[int, str]:
    """Return the sort key of an arm in a report: its kind, then its name."""
    rule = arm.partition(":")[0]
    return ALL_ARMS.index(rule) if rule in ALL_ARMS else len(ALL_ARMS), arm


ROWS_FILE = "rows.jsonl"
CHECKS_FILE = "checks.jsonl"


@dataclass(frozen=True)
class EvaluationPlan:
    """An evaluation to run.

    `settings` are the limits that rows of one table share. `entries` are each agent's reply
    settings. `checkpoint` is as in EvaluationSetup.
    """

    problems: tuple[Problem, ...]
    arms: tuple[str, ...]
    seeds: int
    pool: tuple[Member, ...]
    settings: Mapping[str, str]
    entries: Mapping[str, str] = field(default_factory=dict)
    checkpoint: str = ""
    at_once: int = 1


@dataclass(frozen=True)
class EvaluationProgress:
    """One rollout is done. `left` is an estimate in seconds."""

    row: RolloutOutcome
    done: int
    total: int
    left: float


Tell = Callable[[EvaluationProgress | str], None]


@dataclass
class EvaluationEnd:
    """The end of an evaluation. `missing` counts rollouts that were not done; `stopped` is the
    reason if it was stopped early.
    """

    missing: int = 0
    stopped: FuguError | None = None


async def run_evaluation(
    plan: EvaluationPlan, engine: RolloutEngine, folder: Path, tell: Tell
) -> EvaluationEnd:
    """Measure what is not measured yet. The rows are in `folder`, which the caller has locked.
    Raises ConfigError and StorageError, and UsageError where every task is refused."""
    tasks = {problem.id: problem_sha(problem) for problem in plan.problems}
    fixed = results_folder.EvaluationSetup(
        version=__version__,
        pool=plan.pool,
        entries=plan.entries,
        settings=plan.settings,
        checkpoint=plan.checkpoint,
        tasks=tasks,
        sources={problem.id: problem.source for problem in plan.problems},
        rollouts_at_once=plan.at_once,
        commands_at_once=engine.cores,
    )
    results_folder.record_or_compare_setup(folder, fixed)
    ended = EvaluationEnd()
    checks = await check_tasks(plan.problems, engine, folder, tell)
    done = {
        (row.arm, row.task, row.seed)
        for row in results_folder.read_rows(folder / ROWS_FILE, RolloutOutcome)
    }
    every = _jobs(plan, checks)
    if not every:
        raise no_task_left()
    jobs = [job for job in every if (job.arm, job.problem.id, job.seed) not in done]
    work = _JobQueue(jobs, len(every), plan.at_once, folder, tell)
    await gather_or_cancel([_worker(work, engine, ended) for _ in range(plan.at_once)])
    ended.missing = len(work.jobs) + work.postponed
    return ended


async def check_tasks(
    problems: Sequence[Problem], engine: RolloutEngine, folder: Path, tell: Callable[[str], None]
) -> dict[str, TaskCheck]:
    """Return every task's check, made once. Questions need none."""
    checks_made = {
        check.task: check for check in results_folder.read_rows(folder / CHECKS_FILE, TaskCheck)
    }

    async def checked(task: Task) -> TaskCheck:
        check = checks_made.get(task.id)
        if check is not None and check.holds(task):
            return check
        check = await engine.check(task)
        results_folder.append_row(folder / CHECKS_FILE, check)
        return check

    tasks = [problem for problem in problems if not isinstance(problem, Question)]
    checks = await gather_or_cancel([checked(task) for task in tasks])
    for check in checks:
        if check.refused:
            tell(f"{check.task}: refused: {check.refused}")
        elif check.note:
            tell(f"{check.task}: {check.note}")
    return {check.task: check for check in checks}


def no_task_left() -> UsageError:
    """Return the error for an evaluation whose tasks were all refused."""
    return UsageError(
        "no task is left that could judge anything",
        hint="`fugu help evaluation` says what a task needs",
    )


def _jobs(plan: EvaluationPlan, checks: Mapping[str, TaskCheck]) -> list[RolloutJob]:
    jobs = []
    for seed in range(plan.seeds):
        for problem in plan.problems:
            check = checks.get(problem.id)
            if check is not None and check.refused:
                continue
            expected = check.expected if check is not None else ExpectedTests()
            for arm in plan.arms:
                jobs.append(RolloutJob(arm=arm, problem=problem, seed=seed, expected=expected))
    return jobs


class _JobQueue:
    """The jobs that are left, the rows that are done, and an estimate of the time left."""

    def __init__(
        self, jobs: Sequence[RolloutJob], total: int, at_once: int, folder: Path, tell: Tell
    ) -> None:
        self.jobs = deque(jobs)
        self.postponed = 0
        self.stop = False
        self.tell = tell
        self.running = 0
        self._file = folder / ROWS_FILE
        self._total = total
        self._at_once = at_once
        self._took: dict[str, list[float]] = defaultdict(list)

    def keep(self, job: RolloutJob, row: RolloutOutcome, seconds: float) -> None:
        """Store the row of a finished job, then report it."""
        results_folder.append_row(self._file, row)
        self._took[job.arm].append(seconds)
        done = self._total - len(self.jobs) - self.running - self.postponed + 1
        self.tell(EvaluationProgress(row, done, self._total, self._left()))

    def _left(self) -> float:
        """Estimate the seconds until all jobs are done. An arm without a finished job is expected
        to take as long as the others.
        """
        mean_of_all = fmean(chain.from_iterable(self._took.values()))
        mean_seconds = {arm: fmean(seconds) for arm, seconds in self._took.items()}
        total = sum(mean_seconds.get(job.arm, mean_of_all) for job in self.jobs)
        return total / self._at_once


async def _worker(work: _JobQueue, engine: RolloutEngine, ended: EvaluationEnd) -> None:
    """Take jobs until none is left or the evaluation must stop."""
    while work.jobs and not work.stop:
        job = work.jobs.popleft()
        work.running += 1
        started = time.monotonic()
        try:
            row = await engine.do(job)
        except AgentUnanswered as error:
            work.postponed += 1
            work.tell(f"{job.name}: {error}; left for the next time")
            if error.final:
                work.stop, ended.stopped = True, error
        except RolloutLost as error:
            work.postponed += 1
            work.tell(f"{job.name}: {error}; left for the next time")
        except (SpendingLimitReached, StorageError) as error:
            work.postponed += 1
            work.stop, ended.stopped = True, ended.stopped or error
        else:
            work.keep(job, row, time.monotonic() - started)
        finally:
            work.running -= 1
