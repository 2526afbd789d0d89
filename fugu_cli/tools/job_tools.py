"""job_output and job_stop: what a background job has printed, and its end. bash starts jobs (`background`)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fugu_cli import views
from fugu_cli.messages import Call
from fugu_cli.policy.arguments import Malformed, arguments_of
from fugu_cli.tools import Tool
from fugu_cli.tools.clip import clip
from fugu_cli.tools.files import Given
from fugu_cli.tools.jobs import Job
from fugu_cli.tools.result import Result, Say
from fugu_cli.tools.workspace import Workspace

LONGEST = 120
"""Seconds one call may wait for an end."""
TOOLS = frozenset({"job_output", "job_stop"})


class Named(Given):
    """Arguments of job_stop."""

    job: str = Field(description="its id, like job1")


class Asked(Named):
    """Arguments of job_output."""

    wait: Annotated[int, Field(ge=0, le=LONGEST, description="seconds to wait for its end")] = 0


async def job_output(given: Asked, workspace: Workspace, say: Say) -> Result:
    """What it printed since it was asked last, and how it stands."""
    job = _job(given.job, workspace)
    if isinstance(job, Result):
        return job
    await workspace.jobs.wait(job, given.wait)
    return Result(text=_told(job, workspace))


async def job_stop(given: Named, workspace: Workspace, say: Say) -> Result:
    """End it with all it has started; the rest of its output."""
    job = _job(given.job, workspace)
    if isinstance(job, Result):
        return job
    await workspace.jobs.stop((job.name,), "agent")
    return Result(text=_told(job, workspace))


def named(call: Call) -> str:
    """The job a call of these tools is about; "" for any other call."""
    given = arguments_of(call) if call.tool in TOOLS else {}
    return "" if isinstance(given, Malformed) else str(given.get("job", "")).strip()


def _job(name: str, workspace: Workspace) -> Job | Result:
    """The job, or why there is nothing of it."""
    name = name.strip()
    found = workspace.jobs.find(name)
    if found is not None:
        return found
    if (how := workspace.jobs.gone(name)) is not None:
        return Result(text=f"[{name}: {how}. Its output is not kept.]")
    known = workspace.jobs.names
    there = f"There are {', '.join(known)}." if known else "None was started: bash with `background` starts one."
    return Result(text=f"There is no job `{name}`. {there}", ok=False)


def _told(job: Job, workspace: Workspace) -> str:
    said = clip(workspace.whole_secrets(job.output.taken(over=job.end is not None).strip())) or "(nothing new)"
    how = f"{job.name}: {views.ended_how(job.end)}" if job.end is not None else f"{job.name} is running"
    return f"{said}\n[{how}, {job.seconds:.0f} s]"


JOB_OUTPUT = Tool(name="job_output", effect="reads", arguments=Asked, run=job_output, native=True, worker=True)
JOB_STOP = Tool(name="job_stop", effect="reads", arguments=Named, run=job_stop, native=True, worker=True)
