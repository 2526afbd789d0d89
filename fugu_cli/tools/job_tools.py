"""job_output and job_stop: what a background job has printed, and its end. bash starts jobs
(`background`).
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fugu_cli.messages import Call
from fugu_cli.safety.policy.call_arguments import MalformedArguments, arguments_of
from fugu_cli.session import views
from fugu_cli.tools.read_write import ToolArguments
from fugu_cli.tools.result import COMMAND_LIMIT, Say, ToolResult, truncate
from fugu_cli.tools.shell_commands import BackgroundJob
from fugu_cli.tools.workspace import Tool, Workspace

LONGEST = 120
"""Seconds one call may wait for an end."""
JOB_TOOLS = frozenset({"job_output", "job_stop"})


class JobStopArguments(ToolArguments):
    """Arguments of job_stop."""

    job: str = Field(description="its id, like job1")


class JobOutputArguments(JobStopArguments):
    """Arguments of job_output."""

    wait: Annotated[int, Field(ge=0, le=LONGEST, description="seconds to wait for its end")] = 0


async def job_output(given: JobOutputArguments, workspace: Workspace, say: Say) -> ToolResult:
    """Return the job's new output and its state."""
    job = _job(given.job, workspace)
    if isinstance(job, ToolResult):
        return job
    await workspace.jobs.wait(job, given.wait)
    return ToolResult(text=_described(job, workspace))


async def job_stop(given: JobStopArguments, workspace: Workspace, say: Say) -> ToolResult:
    """End it with all it has started; the rest of its output."""
    job = _job(given.job, workspace)
    if isinstance(job, ToolResult):
        return job
    await workspace.jobs.stop((job.name,), "agent")
    return ToolResult(text=_described(job, workspace))


def job_of_call(call: Call) -> str:
    """Return the job that a call of these tools names, "" for other calls."""
    given = arguments_of(call) if call.tool in JOB_TOOLS else {}
    return "" if isinstance(given, MalformedArguments) else str(given.get("job", "")).strip()


def _job(name: str, workspace: Workspace) -> BackgroundJob | ToolResult:
    """Return the job, or why there is none."""
    name = name.strip()
    found = workspace.jobs.find(name)
    if found is not None:
        return found
    if (how := workspace.jobs.gone(name)) is not None:
        return ToolResult(text=f"[{name}: {how}. Its output is not kept.]")
    known = workspace.jobs.names
    there = (
        f"There are {', '.join(known)}."
        if known
        else "None was started: bash with `background` starts one."
    )
    return ToolResult(text=f"There is no job `{name}`. {there}", ok=False)


def _described(job: BackgroundJob, workspace: Workspace) -> str:
    limit = workspace.output_limit(COMMAND_LIMIT)
    output = job.output.taken(over=job.end is not None).strip()
    said = truncate(workspace.whole_secrets(output, limit), limit) or "(nothing new)"
    how = (
        f"{job.name}: {views.describe_end(job.end)}"
        if job.end is not None
        else f"{job.name} is running"
    )
    return f"{said}\n[{how}, {job.seconds:.0f} s]"


JOB_OUTPUT = Tool(
    name="job_output",
    effect="reads",
    arguments=JobOutputArguments,
    run=job_output,
    native=True,
    worker=True,
)
JOB_STOP = Tool(
    name="job_stop",
    effect="reads",
    arguments=JobStopArguments,
    run=job_stop,
    native=True,
    worker=True,
)
