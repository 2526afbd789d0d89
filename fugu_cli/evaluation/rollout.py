"""One rollout: a coordinator on a task or question with a seed, in the engine's own loop, from nothing to a row.

A rollout is a session. Its log and its working tree stay in a folder until the row is written, so one that was killed
goes on where it was, and no reply is asked for twice. Above tasks and the orchestrator; who works is the caller's
business: it gives what opens a session (`Open`).
"""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from fugu_cli import log as logs
from fugu_cli import views
from fugu_cli.errors import StorageError
from fugu_cli.evaluation import rows
from fugu_cli.evaluation.loop import Open, Outcome, Place, Session, Use, spent
from fugu_cli.evaluation.spending import Unanswered
from fugu_cli.events import Event, Failed, Finished, Interrupted, Recorded
from fugu_cli.messages import Value
from fugu_cli.tasks import Expected, Problem, Question, Task
from fugu_cli.tasks.grading import grade
from fugu_cli.tasks.questions import right, task_of
from fugu_cli.tasks.repository import materialise

FOLDER = "rollouts"
LEARNED = "trinity"
"""The arm whose decisions a session leaves to the cascade where the learned coordinator cannot load."""

PAUSES = "pauses.jsonl"


class Pause(Value):
    """A rollout that was stopped with so many facts in its log, and went on at `until` (seconds since 1970)."""

    records: int
    until: float


class Job(Value):
    """What is to be rolled out. `expected` is what is known of its tests (checking.py)."""

    arm: str
    problem: Problem
    seed: int = 0
    expected: Expected = Expected()

    @property
    def name(self) -> str:
        """Unique among the jobs of an evaluation, and a path."""
        return f"{self.arm.replace(':', '-')}/{self.problem.id}-{self.seed}"


async def rollout(job: Job, open_session: Open, folder: Path) -> Outcome:
    """Carry the job out, or on from where it was killed, and grade it. Data lies below `folder`.

    Raises what opening and running raise: Spent and Unanswered among them, which leave everything to be continued. The
    latter also where the arm `trinity` was decided by the cascade.
    """
    own = folder / FOLDER / job.name
    resumed = time.time()
    task = task_of(job.problem) if isinstance(job.problem, Question) else job.problem
    repository, before = own / "repository", _found(own)
    if before is None:
        _emptied(own)
        await materialise(task, repository)
    earlier = _earlier(own, before, resumed)
    place = Place(job.arm, task, repository, own / "data", job.seed, before, isinstance(job.problem, Question))
    session = await open_session(place)
    started = time.monotonic()
    try:
        end = await _driven(session, task)
        events = tuple(session.log.events)
        path = session.log.path
    finally:
        await session.close()
    seconds = time.monotonic() - started + earlier
    if job.arm == LEARNED:
        _by_itself(job, events, own)
    solved = await _solved(job, events, repository)
    kept = _kept(own, path)
    row = _row(job, events, end, solved)
    return row.model_copy(update={"seconds": round(seconds, 3), "session": str(kept.relative_to(folder))})


async def _driven(session: Session, task: Task) -> Finished:
    """To the end of its one request; not again where the log has that end already."""
    if views.asked(session.log.events) is None:
        await session.ask(task.prompt)
    return views.finished(session.log.events) or await session.run()


async def _solved(job: Job, events: Sequence[Event], repository: Path) -> bool:
    if isinstance(job.problem, Question):
        return await right(job.problem, views.answer(events))
    return (await grade(job.problem, repository, job.expected)).ok


def _by_itself(job: Job, events: Sequence[Event], own: Path) -> None:
    """Raises Unanswered where the cascade stood in: no row of this arm, and the rollout begins anew the next time."""
    stood_in = next((turn.assigned for turn in views.turns(events) if turn.assigned.by == "cascade"), None)
    if stood_in is None:
        return
    _emptied(own)
    raise Unanswered(
        f"{job.name}: the cascade decided in place of the learned coordinator: {stood_in.reason}",
        agent="",
        final=True,
        hint="`fugu coordinator bench` says whether it can decide on this machine",
    )


def _row(job: Job, events: Sequence[Event], end: Finished, solved: bool) -> Outcome:
    turns = views.turns(events)
    uses = Counter((turn.assigned.agent, turn.assigned.role) for turn in turns)
    failures = [event for event in events if isinstance(event, Failed)]
    return Outcome(
        task=job.problem.id,
        arm=job.arm,
        ok=solved,
        accepted=end.reason == "accepted",
        reason=end.reason,
        turns=len(turns),
        seconds=0.0,
        spent=spent(events),
        session="",
        failures=tuple(f"{failure.what}: {failure.kind}: {failure.message}" for failure in failures),
        seed=job.seed,
        usd=views.cost(events),
        uses=tuple(Use(agent=agent, role=role, turns=count) for (agent, role), count in uses.items()),
    )


def _found(own: Path) -> Path | None:
    """The log of a rollout that was killed and can go on: with its request and its working tree, and nothing cut off in
    the middle of what an agent did. Any other begins anew and finds its replies kept."""
    if not (own / "repository" / ".git").is_dir():
        return None
    for path in sorted((own / "data").rglob("*.jsonl")):
        events = [record.event for record in logs.read(path)]
        cut = any(isinstance(event, Interrupted) for event in events)
        killed = any(
            run.permitted.allowed and run.result is None and not run.evidence
            for turn in views.turns(events)
            for run in turn.runs
        )
        if views.asked(events) is not None and not cut and not killed:
            return path
    return None


def _earlier(own: Path, before: Path | None, now: float) -> float:
    """How long the session was worked on before it was stopped, without the pauses; notes that it goes on `now`."""
    records: list[Recorded] = logs.read(before) if before is not None and before.is_file() else []
    if not records:
        return 0.0
    pauses = [
        pause.until - records[pause.records - 1].at
        for pause in rows.read(own / PAUSES, Pause)
        if pause.records < len(records)
    ]
    rows.append(own / PAUSES, Pause(records=len(records), until=now))
    return max(0.0, records[-1].at - records[0].at - sum(pauses))


def _emptied(own: Path) -> None:
    try:
        for folder in (own, _going(own)):
            if folder.exists():
                shutil.rmtree(folder)
        own.mkdir(parents=True)
    except OSError as error:
        raise StorageError(f"{own}: cannot be made anew for a rollout: {error}") from error


def _kept(own: Path, path: Path | None) -> Path:
    """The log beside the folder, and the folder gone: a thousand working trees are nobody's wish. It goes under another
    name: one that was killed in the middle of that, before its row was written, must not go on with half a tree."""
    kept = own.parent / f"{own.name}.jsonl"
    try:
        if path is not None and path.is_file():
            shutil.copyfile(path, kept)
        own.rename(_going(own))
    except OSError as error:
        raise StorageError(f"{kept}: the session cannot be kept: {error}") from error
    shutil.rmtree(_going(own), ignore_errors=True)
    return kept


def _going(own: Path) -> Path:
    return own.with_name(f"{own.name}.going")
