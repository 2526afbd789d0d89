"""The commands about what runs: background jobs, and the end of a test run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fugu_cli.errors import UsageError
from fugu_cli.ui.tui.draw.text import brief_seconds, count, flat, safe

if TYPE_CHECKING:
    from fugu_cli.tools.jobs import Job
    from fugu_cli.ui.tui.room import Room

STOP, ALL = "stop", "all"


def names(room: Room) -> Sequence[str]:
    """What completes the argument."""
    return (f"{STOP} {ALL}", *(f"{STOP} {job.name}" for job in _running(room)))


async def jobs(room: Room, argument: str) -> None:
    """List the jobs that run; `stop JOB` or `stop all` ends them with all they have started."""
    running = _running(room)
    if argument:
        await room.session.bench.workspace.jobs.stop(_meant(argument, running), "user")
        room.show()
    elif not running:
        room.say("no background job is running")
    else:
        lines = [line for job in running for line in _lines(job)]
        room.say(f"{count(len(running), 'background job')}; /jobs stop JOB ends one", "plain", "\n".join(lines))


async def skip(room: Room, argument: str) -> None:
    """End fugu's test run."""
    del argument
    if room.work.session is None or not room.session.bench.skip.now():
        room.say("no test run of fugu's is under way")


def _meant(argument: str, running: Sequence[Job]) -> list[str]:
    """The jobs to be stopped. Raises UsageError."""
    word, _, name = argument.partition(" ")
    named = [job.name for job in running if name.strip() in (job.name, ALL)]
    if word == STOP and named:
        return named
    known = ", ".join(job.name for job in running) or "none"
    raise UsageError(
        f"no running job is meant by {argument!r}", hint=f"/jobs stop JOB or /jobs stop all; there are {known}"
    )


def _lines(job: Job) -> list[str]:
    """The job, and what it printed last."""
    said = [line for line in safe(job.tail).splitlines() if line.strip()]
    head = f"{job.name}  {brief_seconds(job.seconds)}  {flat(job.command, 200)}"
    return [head, *([f"      {flat(said[-1], 200)}"] if said else [])]


def _running(room: Room) -> Sequence[Job]:
    return room.session.bench.workspace.jobs.running if room.work.session is not None else ()
