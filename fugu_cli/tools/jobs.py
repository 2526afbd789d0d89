"""Background jobs: commands that go on while the agent does. They live in this process and end with it.

Beside bash.py, which starts them, and job_tools.py, which tells agents of them. A `Jobs` belongs to a session's
workspace and is shared with its worktrees. Knows no log: what has ended is told to whoever asked (`attach`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from fugu_cli import views
from fugu_cli.errors import StorageError
from fugu_cli.events import Event, JobEnded
from fugu_cli.tools.process import Alive, Around, Output, alive

MOST = 8
"""Jobs that may run at once."""
KEPT = 16
"""Jobs that are over whose output is still kept."""
TAIL = 300
"""Characters of a job's newest output that people are shown."""
By = Literal["itself", "agent", "user", "undo", "session"]


class Crowded(Exception):
    """As many jobs run as may. For the agent, who gets it as a result."""


@dataclass
class Job:
    """A job of this process: what it said since it was asked last, and, when it is over, how it ended."""

    name: str
    command: str
    folder: Path
    output: Output = field(default_factory=lambda: Output(_unheard))
    began: float = field(default_factory=time.monotonic)
    tail: str = ""
    end: JobEnded | None = None
    by: By = "session"
    """Who ends it, where it is cancelled: asyncio does that to every task when the process goes."""

    def take(self, data: bytes) -> None:
        """More of its output."""
        self.output.take(data)
        self.tail = (self.tail + data.decode("utf-8", "replace"))[-TAIL:]

    @property
    def seconds(self) -> float:
        """How long it has run."""
        return self.end.seconds if self.end is not None else round(time.monotonic() - self.began, 3)


class Jobs:
    """The jobs of a session: those of this process, and the names of those of processes before it."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._gone: dict[str, JobEnded | None] = {}
        self._told: Callable[[JobEnded], object] = _untold

    def attach(self, events: Sequence[Event], told: Callable[[JobEnded], object]) -> None:
        """Take a session up: names in `events` are not given again. `told` hears of every end; it may raise
        StorageError."""
        self._gone = {job.name: job.end for job in views.jobs(events).values()}
        self._told = told

    def find(self, name: str) -> Job | None:
        """A job whose output is kept."""
        return self._jobs.get(name)

    def gone(self, name: str) -> str | None:
        """How a job ended whose output is not kept; None where there is none of that name."""
        if name not in self._gone:
            return None
        end = self._gone[name]
        return views.ended_how(end) if end is not None else "ended with the session"

    @property
    def running(self) -> tuple[Job, ...]:
        """Those that have not ended, the oldest first."""
        return tuple(job for job in self._jobs.values() if job.end is None)

    @property
    def names(self) -> tuple[str, ...]:
        """All names there are."""
        return (*self._gone, *self._jobs)

    async def start(self, command: str, folder: Path, around: Around) -> Job:
        """Start one. Raises Crowded, and what `alive` raises."""
        if len(self.running) >= MOST:
            named = ", ".join(job.name for job in self.running)
            raise Crowded(f"{MOST} jobs are running already ({named}). End one with job_stop first.")
        self._forget()
        job = Job(f"job{len(self.names) + 1}", command, folder)
        begun = asyncio.Event()
        self._jobs[job.name] = job
        task = self._tasks[job.name] = asyncio.create_task(self._live(job, around, begun))
        waiting = asyncio.create_task(begun.wait())
        try:
            await asyncio.wait((task, waiting), return_when=asyncio.FIRST_COMPLETED)
            if not begun.is_set():
                task.result()
        except BaseException:
            task.cancel()
            del self._jobs[job.name], self._tasks[job.name]
            await asyncio.wait((task,))
            raise
        finally:
            waiting.cancel()
        return job

    def _forget(self) -> None:
        over = [job for job in self._jobs.values() if job.end is not None]
        for job in over[:-KEPT]:
            self._gone[job.name] = job.end
            del self._jobs[job.name], self._tasks[job.name]

    async def _live(self, job: Job, around: Around, begun: asyncio.Event) -> None:
        """A job's whole life."""
        now: Alive | None = None
        try:
            async with alive(job.command, job.folder, job.take, around) as now:
                begun.set()
                await now.process.wait()
                job.by = "itself"
                await now.over()
        except OSError as error:
            if now is None:
                raise
            job.take(f"\n[{error}]".encode())
        finally:
            if now is not None:
                self._over(job, now)

    def _over(self, job: Job, now: Alive) -> None:
        job.output.over(job.command, now)
        code = now.process.returncode if job.by == "itself" else None
        job.end = JobEnded(job=job.name, command=job.command, by=job.by, code=code, seconds=job.seconds)
        try:
            self._told(job.end)
        except StorageError:
            return  # the disk is full: whoever writes next says so

    async def wait(self, job: Job, seconds: float) -> None:
        """Until it has ended, at most so long; what has been printed by now is read in any case."""
        await asyncio.sleep(0)
        if seconds and job.end is None:
            await asyncio.wait((self._tasks[job.name],), timeout=seconds)

    async def stop(self, names: Collection[str], by: By) -> tuple[str, ...]:
        """End these, those that ask for it politely first, and all they have started. Returns which were running."""
        found = [job for job in self.running if job.name in names]
        for job in found:
            job.by = by
            self._tasks[job.name].cancel()
        if found:
            await asyncio.wait([self._tasks[job.name] for job in found])
        return tuple(job.name for job in found)

    async def stop_in(self, folder: Path, by: By) -> None:
        """End those that run below `folder`: it goes."""
        await self.stop([job.name for job in self.running if job.folder.is_relative_to(folder)], by)

    async def close(self) -> None:
        """End all of them: the session is over."""
        await self.stop([job.name for job in self.running], "session")


def _unheard(text: str) -> None:
    """Nobody follows a job as it speaks."""


def _untold(end: JobEnded) -> None:
    """Nobody wants to know."""
