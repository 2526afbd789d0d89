"""An evaluation: every arm on every task with every seed, several at once, resumable, in this process or on a ray
cluster.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import time
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, Protocol

from fugu_cli import __version__
from fugu_cli.coordinators import action_space
from fugu_cli.errors import FuguError, StorageError, UsageError, installing
from fugu_cli.evaluation import results_folder
from fugu_cli.evaluation.paid_calls import AgentUnanswered, Spending, SpendingLimitReached, SpendingLimits
from fugu_cli.evaluation.rollout import OpenRolloutSession, RolloutJob, RolloutOutcome, rollout
from fugu_cli.messages import Value
from fugu_cli.session.events import Member
from fugu_cli.tasks import ExpectedTests, Problem, Question
from fugu_cli.tasks.grading import TaskCheck, check_task, problem_sha

COORDINATOR_ARMS = ("trinity", "conductor", "cascade", "random", "mixture-of-agents", "panel-judge-merge")
PER_AGENT_ARMS = ("one-pass", "single", "retry-same")
ALL_ARMS = (
    *COORDINATOR_ARMS[:2],
    *PER_AGENT_ARMS[:2],
    "random",
    "self-reflection",
    *COORDINATOR_ARMS[4:],
    "prompted",
    "cascade",
    "retry-same",
)
"""Every arm there is, in the order of the report."""
DEFAULT_ARMS = ("trinity", "single", "random", "cascade")


def expand_arms(words: Sequence[str], members: Sequence[Member], opted_out: Collection[str] = ()) -> tuple[str, ...]:
    """The arms that `words` name, each once, in their order; `all` names every one. `opted_out`: agents that the user
    keeps out, which are none of the `members`. Raises UsageError."""
    found: list[str] = []
    names = [member.name for member in members]
    for word in (one for given in words for one in (ALL_ARMS if given == "all" else (given,))):
        kind, _, name = word.partition(":")
        if kind not in ALL_ARMS or (name and kind in COORDINATOR_ARMS):
            raise UsageError(f"there is no arm {word!r}", hint=f"arms are {', '.join(ALL_ARMS)}, or all")
        if name in opted_out:
            raise UsageError(f"{word!r} names an agent that is opted out", hint=f"take {name} out of opt_out")
        if name and name not in names:
            raise UsageError(f"{word!r} names no agent of the pool", hint=f"the pool has {', '.join(names)}")
        if name or kind in COORDINATOR_ARMS:
            found.append(word)
        elif kind in PER_AGENT_ARMS:
            found += [f"{kind}:{one}" for one in names]
        else:
            found.append(f"{kind}:{action_space.by_strength(members)[-1].name}")
    return tuple(dict.fromkeys(found))


def report_order(arm: str) -> tuple[int, str]:
    """Where an arm stands in a report: by its kind, then by its name."""
    kind = arm.partition(":")[0]
    return ALL_ARMS.index(kind) if kind in ALL_ARMS else len(ALL_ARMS), arm


GIB_PER_ROLLOUT = 1.0
"""GiB that one rollout is reckoned with: its tests and its tools, not the models."""
FREE_GIB = 0.5
"""GiB that must be free before another rollout begins beside others."""
POLL_SECONDS = 1.0


def rollouts_at_once(rollouts: int | None, cores: int | None, memory: float | None) -> int:
    """The smallest of what was asked for, one rollout a core, and what the memory (GiB) holds; at least one.

    Without a word it is the cores of this process, four at most: providers limit requests before machines do.
    """
    if rollouts is None and cores is None and memory is None:
        return max(1, min(4, len(_cores())))
    limits = [rollouts, cores, None if memory is None else int(memory / GIB_PER_ROLLOUT)]
    return max(1, min(limit for limit in limits if limit is not None))


def _cores() -> set[int]:
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


def free_memory() -> float | None:
    """GiB of memory that are free for use; None where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    found = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return int(found[0]) / 2**20 if found else None


async def wait_for_memory(others: Callable[[], bool]) -> None:
    """Wait until there is memory for one more, or nobody else is at work whose end could free some."""
    while others() and (free := free_memory()) is not None and free < FREE_GIB:
        await asyncio.sleep(POLL_SECONDS)


ROWS_FILE = "rows.jsonl"
CHECKS_FILE = "checks.jsonl"

SessionsWithin = Callable[[Spending], OpenRolloutSession]
"""Makes what opens sessions whose agents pay within its limits. Travels to other machines, so it must be picklable."""


class RolloutEngine(Protocol):
    """Where rollouts run."""

    async def do(self, job: RolloutJob) -> RolloutOutcome:
        """One of them. Raises Spent, Unanswered, and any FuguError of its own."""

    async def close(self) -> None:
        """Give back what it holds."""


class LocalEngine:
    """In this process."""

    def __init__(self, opening: SessionsWithin, folder: Path, spending: Spending) -> None:
        self._open = opening(spending)
        self._folder = folder

    async def do(self, job: RolloutJob) -> RolloutOutcome:
        return await rollout(job, self._open, self._folder)

    async def close(self) -> None:
        pass


@dataclass(frozen=True)
class EvaluationPlan:
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
class EvaluationProgress:
    """One rollout is done. `left` is an estimate in seconds."""

    row: RolloutOutcome
    done: int
    total: int
    left: float


Tell = Callable[[EvaluationProgress | str], None]


@dataclass
class EvaluationEnd:
    """What came of it. `missing` counts rollouts that are left; `stopped` is why, where one reason ended it."""

    missing: int = 0
    stopped: FuguError | None = None


async def run_evaluation(plan: EvaluationPlan, engine: RolloutEngine, folder: Path, tell: Tell) -> EvaluationEnd:
    """Measure what is not measured yet. The rows are in `folder`. Raises ConfigError, SessionBusy and StorageError."""
    with results_folder.locked_folder(folder):
        tasks = {problem.id: problem_sha(problem) for problem in plan.problems}
        fixed = results_folder.EvaluationSetup(
            version=__version__,
            pool=plan.pool,
            entries=plan.entries,
            settings=plan.settings,
            checkpoint=plan.checkpoint,
            tasks=tasks,
        )
        results_folder.record_or_compare_setup(folder, fixed)
        ended = EvaluationEnd()
        checks = await check_tasks(plan.problems, folder, tell)
        done = {(row.arm, row.task, row.seed) for row in results_folder.read_rows(folder / ROWS_FILE, RolloutOutcome)}
        jobs = [job for job in _jobs(plan, checks) if (job.arm, job.problem.id, job.seed) not in done]
        work = _JobQueue(jobs, len(_jobs(plan, checks)), plan.at_once, folder, tell)
        await asyncio.gather(*(_worker(work, engine, ended) for _ in range(plan.at_once)))
        ended.missing = len(work.jobs) + work.postponed
        return ended


async def check_tasks(problems: Sequence[Problem], folder: Path, tell: Callable[[str], None]) -> dict[str, TaskCheck]:
    """Every task's check, made once. Questions need none."""
    known = {found.task: found for found in results_folder.read_rows(folder / CHECKS_FILE, TaskCheck)}
    checks = {}
    for problem in problems:
        if isinstance(problem, Question):
            continue
        found = known.get(problem.id)
        if found is None or not found.holds(problem):
            found = await check_task(problem)
            results_folder.append_row(folder / CHECKS_FILE, found)
        if found.refused or found.note:
            tell(f"{problem.id}: {'refused: ' if found.refused else ''}{found.refused or found.note}")
        checks[problem.id] = found
    return checks


def _jobs(plan: EvaluationPlan, checks: Mapping[str, TaskCheck]) -> list[RolloutJob]:
    usable = [p for p in plan.problems if p.id not in checks or not checks[p.id].refused]
    return [
        RolloutJob(
            arm=arm,
            problem=problem,
            seed=seed,
            expected=checks[problem.id].expected if problem.id in checks else ExpectedTests(),
        )
        for seed in range(plan.seeds)
        for problem in usable
        for arm in plan.arms
    ]


class _JobQueue:
    """The jobs that are left, and how long such jobs take."""

    def __init__(self, jobs: Sequence[RolloutJob], total: int, at_once: int, folder: Path, tell: Tell) -> None:
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
        """A row, on the disk before anybody is told."""
        results_folder.append_row(self._file, row)
        self._took[job.arm].append(seconds)
        done = self._total - len(self.jobs) - self.running - self.postponed + 1
        self.tell(EvaluationProgress(row, done, self._total, self._left()))

    def _left(self) -> float:
        every = [took for one in self._took.values() for took in one]
        each = {arm: fmean(took) for arm, took in self._took.items()}
        return sum(each.get(job.arm, fmean(every)) for job in self.jobs) / self._at_once


async def _worker(work: _JobQueue, engine: RolloutEngine, ended: EvaluationEnd) -> None:
    """Takes jobs until none is left or the evaluation is to stop."""
    while work.jobs and not work.stop:
        job = work.jobs.popleft()
        work.running += 1
        await wait_for_memory(lambda: work.running > 1)
        started = time.monotonic()
        try:
            row = await engine.do(job)
        except AgentUnanswered as error:
            work.postponed += 1
            work.tell(f"{job.name}: {error}; left for the next time")
            if error.final:
                work.stop, ended.stopped = True, error
        except (SpendingLimitReached, StorageError) as error:
            work.postponed += 1
            work.stop, ended.stopped = True, ended.stopped or error
        else:
            work.keep(job, row, time.monotonic() - started)
        finally:
            work.running -= 1


class RemoteResult(Value):
    """What comes back from a machine: a row, or why there is none; and what was spent."""

    row: RolloutOutcome | None = None
    why: Literal["", "spent", "unanswered", "failed"] = ""
    message: str = ""
    hint: str = ""
    agent: str = ""
    final: bool = False
    requests: int = 0
    usd: float = 0.0


def run_remote_job(job: str, opening: SessionsWithin, folder: str, limits: SpendingLimits) -> str:
    """One job as JSON, carried out in a process of its own; its Result as JSON. Picklable, as its arguments are."""
    return asyncio.run(
        _remote_result(RolloutJob.model_validate_json(job), opening, Path(folder), limits)
    ).model_dump_json()


async def _remote_result(
    job: RolloutJob, opening: SessionsWithin, folder: Path, limits: SpendingLimits
) -> RemoteResult:
    spending = Spending(folder / "paid" / f"{job.name.replace('/', '-')}.jsonl", SpendingLimits())
    before = spending.requests, spending.usd
    spending.limits = SpendingLimits(
        usd=None if limits.usd is None else limits.usd + before[1],
        requests=None if limits.requests is None else limits.requests + before[0],
    )
    found = RemoteResult()
    try:
        found = RemoteResult(row=await rollout(job, opening(spending), folder))
    except SpendingLimitReached as error:
        found = RemoteResult(why="spent", message=str(error), hint=error.hint)
    except AgentUnanswered as error:
        found = RemoteResult(
            why="unanswered", message=str(error), hint=error.hint, agent=error.agent, final=error.final
        )
    except FuguError as error:
        found = RemoteResult(why="failed", message=str(error), hint=error.hint)
    return found.model_copy(update={"requests": spending.requests - before[0], "usd": spending.usd - before[1]})


class RayEngine:
    """Rollouts on a ray cluster: the one that is there, or one on this machine."""

    def __init__(self, opening: SessionsWithin, folder: Path, spending: Spending, share: int) -> None:
        self._ray = _ray()
        self._opening = opening
        self._folder = folder
        self._spending = spending
        self._share = share
        for file in sorted((folder / "paid").glob("*.jsonl")):
            spent = Spending(file, SpendingLimits())
            spending.requests, spending.usd = spending.requests + spent.requests, spending.usd + spent.usd
        self._work: Any = self._ray.remote(num_cpus=1, max_retries=0)(run_remote_job)

    async def do(self, job: RolloutJob) -> RolloutOutcome:
        """Raises as `rollout` does, and Unanswered where a machine is gone."""
        limits = self._allowance()
        sent = job.model_dump_json(), self._opening, str(self._folder), limits
        try:
            answered = await asyncio.wrap_future(self._work.remote(*sent).future())
        except self._ray.exceptions.RayError as error:
            message = f"{job.name}: the machine that worked on it is gone: {type(error).__name__}"
            raise AgentUnanswered(message, agent="", final=False) from error
        result = RemoteResult.model_validate_json(answered)
        self._spending.requests += result.requests
        self._spending.usd += result.usd
        return _row_or_raise(result)

    async def close(self) -> None:
        """Leave the cluster; one that was started here ends."""
        self._ray.shutdown()

    def _allowance(self) -> SpendingLimits:
        """An equal share of what is left for each of the rollouts at once, so that together they stay within it."""
        left = self._spending.left()
        if (left.usd is not None and left.usd <= 0) or (left.requests is not None and left.requests <= 0):
            raise SpendingLimitReached("the limits of this evaluation are reached", hint="a larger limit goes on")
        usd = None if left.usd is None else left.usd / self._share
        requests = None if left.requests is None else max(1, left.requests // self._share)
        return replace(left, usd=usd, requests=requests)


def _row_or_raise(result: RemoteResult) -> RolloutOutcome:
    match result.why:
        case "spent":
            raise SpendingLimitReached(result.message, hint=result.hint)
        case "unanswered":
            raise AgentUnanswered(result.message, agent=result.agent, final=result.final, hint=result.hint)
        case "failed":
            raise FuguError(result.message, hint=result.hint)
        case "":
            assert result.row is not None
            return result.row


def _ray() -> Any:
    """The package, joined to a cluster. Raises UsageError without it."""
    if importlib.util.find_spec("ray") is None:
        raise UsageError("the engine ray needs the package 'ray'", hint=installing("ray>=2.40"))
    import ray

    try:
        if not ray.is_initialized():
            ray.init(log_to_driver=False, include_dashboard=False, configure_logging=False)
    except BaseException as error:
        if type(error) is not Exception and not isinstance(error, RuntimeError | OSError | ValueError):
            raise
        # ray raises a bare Exception where its own processes do not start in half a minute
        raise FuguError(
            f"ray cannot be started or reached: {error}", hint="look at RAY_ADDRESS, or leave out --engine"
        ) from error
    return ray
