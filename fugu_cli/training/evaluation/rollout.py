"""One rollout: a coordinator and a pool on a task or question with a seed, in the engine's own
loop, from nothing to a row. A rollout that was killed continues from its log.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Protocol

from fugu_cli.errors import FuguError, SessionBusy, StorageError
from fugu_cli.messages import Usage, Value
from fugu_cli.session import log as logs
from fugu_cli.session.events import (
    Event,
    Failed,
    Finished,
    Interrupted,
    Planned,
    Replied,
    WorkflowStep,
)
from fugu_cli.session.log import Log
from fugu_cli.session.state import SessionState
from fugu_cli.training.evaluation.paid_calls import AgentUnanswered
from fugu_cli.training.tasks import ExpectedTests, Problem, Question, Task
from fugu_cli.training.tasks.grading import grade
from fugu_cli.training.tasks.questions import is_right, question_as_task
from fugu_cli.training.tasks.repository import create_repository


class RolloutSession(Protocol):
    """The parts of an open session that a rollout needs."""

    @property
    def log(self) -> Log:
        """Its facts."""

    async def ask(self, text: str) -> None:
        """Record the request."""

    async def run(self) -> Finished:
        """Run the request to its end, within the session's limits."""

    async def close(self) -> None:
        """Give back what it holds."""


class CheckpointChoice(Value):
    """The checkpoint that decides in a rollout, None for success rates, and whether its decisions
    are drawn.
    """

    file: Path | None
    sample: bool


@dataclass(frozen=True)
class RolloutContext:
    """The circumstances of a rollout: arm, task, repository, folder for the session's data,
    repetition, log to resume, and whether it is a question that only an answer solves.
    `checkpoint` and `steps` are as in RolloutJob.
    """

    arm: str
    task: Task
    repository: Path
    data: Path
    seed: int = 0
    resume: Path | None = None
    question: bool = False
    checkpoint: CheckpointChoice | None = None
    steps: tuple[WorkflowStep, ...] = ()


OpenRolloutSession = Callable[[RolloutContext], Awaitable[RolloutSession]]


class AgentSpending(Value):
    """An agent's share of a rollout: model calls (rolled-back attempts included), tokens, seconds
    of waiting.
    """

    agent: str
    calls: int
    input: int
    cached: int
    output: int
    seconds: float


class AgentUse(Value):
    """The number of turns that an agent took in a role."""

    agent: str
    role: str
    turns: int


class RolloutOutcome(Value):
    """A row. `ok` is the grade, `accepted` what the engine said of itself; `session` the log,
    relative to the rows.

    `seed` counts repetitions, `usd` is what the pool's prices make of it.
    """

    task: str
    arm: str
    ok: bool
    accepted: bool
    reason: str
    turns: int
    seconds: float
    spent: tuple[AgentSpending, ...]
    session: str
    failures: tuple[str, ...] = ()
    seed: int = 0
    usd: float = 0.0
    uses: tuple[AgentUse, ...] = ()

    @property
    def calls(self) -> int:
        return sum(spent.calls for spent in self.spent)

    @property
    def model_seconds(self) -> float:
        return sum(spent.seconds for spent in self.spent)

    @property
    def input(self) -> int:
        return sum(spent.input for spent in self.spent)

    @property
    def output(self) -> int:
        return sum(spent.output for spent in self.spent)


def agent_spending(events: Sequence[Event]) -> tuple[AgentSpending, ...]:
    """Return the cost of a session by agent, in the order of their first reply."""
    replies = [event for event in events if isinstance(event, Replied | Planned)]
    total: list[AgentSpending] = []
    for agent in dict.fromkeys(reply.agent for reply in replies):
        own = [reply for reply in replies if reply.agent == agent]
        usage = sum((reply.usage for reply in own), Usage())
        seconds = round(sum(reply.seconds for reply in own), 3)
        total.append(
            AgentSpending(
                agent=agent,
                calls=len(own),
                input=usage.input,
                cached=usage.cached,
                output=usage.output,
                seconds=seconds,
            )
        )
    return tuple(total)


ROLLOUTS_FOLDER = "rollouts"
PAUSE = 900.0
"""Seconds without a fact from which on a rollout was stopped for that time."""
LEARNED_ARM = "trinity"
"""The arm whose decisions a session leaves to the cascade where the learned coordinator cannot
load.
"""


class RolloutJob(Value):
    """A rollout to run, in any process that sees its folder.

    `expected` is what is known of its tests. `folder` is below the folder of the whole evaluation.
    `checkpoint`: None for the configured one. `steps`: a workflow to carry out, whatever the arm.
    """

    arm: str
    problem: Problem
    seed: int = 0
    expected: ExpectedTests = ExpectedTests()
    folder: str = ""
    checkpoint: CheckpointChoice | None = None
    steps: tuple[WorkflowStep, ...] = ()

    @property
    def name(self) -> str:
        """The job's name, unique in its evaluation; also a path."""
        return f"{self.arm.replace(':', '-')}/{self.problem.id}-{self.seed}"


class RolloutLost(FuguError):
    """A rollout has no process: it died several times, or another one works on it. What was done is
    kept.
    """


async def rollout(job: RolloutJob, open_session: OpenRolloutSession, base: Path) -> RolloutOutcome:
    """Run or resume the job and grade it. Its data lie below `base`, in the job's folder.

    Raises what opening and running raise: SpendingLimitReached and AgentUnanswered leave everything
    to be continued. The latter is also raised if the cascade decided for the arm `trinity`.
    """
    folder = base / job.folder
    own = folder / ROLLOUTS_FOLDER / job.name
    task = question_as_task(job.problem) if isinstance(job.problem, Question) else job.problem
    repository, before = own / "repository", _resumable_log(own)
    if before is None:
        _empty_folder(own)
        await create_repository(task, repository)
    records = logs.read(before) if before is not None else []
    gaps = (
        later_record.at - earlier_record.at for earlier_record, later_record in pairwise(records)
    )
    earlier = sum(gap for gap in gaps if gap < PAUSE)
    context = RolloutContext(
        arm=job.arm,
        task=task,
        repository=repository,
        data=own / "data",
        seed=job.seed,
        resume=before,
        question=isinstance(job.problem, Question),
        checkpoint=job.checkpoint,
        steps=job.steps,
    )
    try:
        session = await open_session(context)
    except SessionBusy as error:  # a node that was cut off still works on it
        raise RolloutLost(f"another process works on it: {error}") from error
    started = time.monotonic()
    try:
        end = await _run_request(session, task)
        events = tuple(session.log.events)
        path = session.log.path
    finally:
        await session.close()
    seconds = time.monotonic() - started + earlier
    if job.arm == LEARNED_ARM:
        _require_own_decisions(job, events, own)
    solved = await _solved(job, events, repository)
    kept = _keep_log(own, path)
    row = _row(job, events, end, solved)
    return row.model_copy(
        update={"seconds": round(seconds, 3), "session": str(kept.relative_to(folder))}
    )


async def _run_request(session: RolloutSession, task: Task) -> Finished:
    """Run the only request to its end, unless the log has that end already."""
    if session.log.state.request.asked is None:
        await session.ask(task.prompt)
    return session.log.state.request.finished or await session.run()


async def _solved(job: RolloutJob, events: Sequence[Event], repository: Path) -> bool:
    if isinstance(job.problem, Question):
        return await is_right(job.problem, SessionState(events).request.answer)
    return (await grade(job.problem, repository, job.expected)).ok


def _require_own_decisions(job: RolloutJob, events: Sequence[Event], own: Path) -> None:
    """Raise AgentUnanswered if another coordinator decided in place of the checkpoint. The rollout is
    then no row of this arm, and starts again the next time.
    """
    stood_in = next(
        (
            turn.assigned
            for turn in SessionState(events).request.turns
            if turn.assigned.fallback or turn.assigned.by == "cascade"
        ),
        None,
    )
    if stood_in is None:
        return
    _empty_folder(own)
    raise AgentUnanswered(
        f"{job.name}: another coordinator decided in place of the checkpoint: "
        f"{stood_in.fallback or stood_in.reason}",
        agent="",
        final=True,
        hint="`fugu coordinator bench` says whether it can decide on this machine",
    )


def _row(job: RolloutJob, events: Sequence[Event], end: Finished, solved: bool) -> RolloutOutcome:
    state = SessionState(events)
    turns = state.request.turns
    uses = Counter((turn.assigned.agent, turn.assigned.role) for turn in turns)
    failures = [event for event in events if isinstance(event, Failed)]
    return RolloutOutcome(
        task=job.problem.id,
        arm=job.arm,
        ok=solved,
        accepted=end.reason == "accepted",
        reason=end.reason,
        turns=len(turns),
        seconds=0.0,
        spent=agent_spending(events),
        session="",
        failures=tuple(
            f"{failure.what}: {failure.kind}: {failure.message}" for failure in failures
        ),
        seed=job.seed,
        usd=state.cost,
        uses=tuple(
            AgentUse(agent=agent, role=role, turns=count) for (agent, role), count in uses.items()
        ),
    )


def _resumable_log(own: Path) -> Path | None:
    """Return the log of a killed rollout that can go on: it has its request and working tree, and
    no interrupted work.

    Any other starts again and finds its replies stored.
    """
    if not (own / "repository" / ".git").is_dir():
        return None
    for path in sorted((own / "data").rglob("*.jsonl")):
        state = SessionState.of_records(logs.read(path))
        cut = any(isinstance(event, Interrupted) for event in state.events)
        killed = any(
            run.permitted.allowed and run.result is None and not run.evidence
            for turn in state.request.turns
            for run in turn.runs
        )
        if state.request.asked is not None and not cut and not killed:
            return path
    return None


def _empty_folder(own: Path) -> None:
    try:
        for folder in (own, _log_path(own)):
            if folder.exists():
                shutil.rmtree(folder)
        own.mkdir(parents=True)
    except OSError as error:
        raise StorageError(f"{own}: cannot be made again for a rollout: {error}") from error


def _keep_log(own: Path, path: Path | None) -> Path:
    """Move the log beside the folder and remove the folder, since nobody wants a thousand working
    trees.

    The folder is renamed first: a rollout killed meanwhile must not go on with half a tree.
    """
    kept = own.parent / f"{own.name}.jsonl"
    try:
        if path is not None and path.is_file():
            shutil.copyfile(path, kept)
        own.rename(_log_path(own))
    except OSError as error:
        raise StorageError(f"{kept}: the session cannot be kept: {error}") from error
    shutil.rmtree(_log_path(own), ignore_errors=True)
    return kept


def _log_path(own: Path) -> Path:
    return own.with_name(f"{own.name}.going")
