"""job_output and job_stop: what a background job has printed, and its end. bash starts jobs
(`background`).
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fugu_cli.messages import Call
from fugu_cli.session import tool_facts
from fugu_cli.session.call_arguments import MalformedArguments, arguments_of
from fugu_cli.session.open_work import describe_end
from fugu_cli.tools.read_write import ToolArguments
from fugu_cli.tools.result import COMMAND_LIMIT, Say, ToolResult, truncate
from fugu_cli.tools.shell_commands import BackgroundJob
from fugu_cli.tools.workspace import Tool, Workspace

LONGEST = 120
"""Seconds one call may wait for an end."""


class JobStopArguments(ToolArguments):
    """Arguments of job_stop."""

    job: str = Field(description="its id, like job1")


class JobOutputArguments(JobStopArguments):
    """Arguments of job_output."""

    wait: Annotated[int, Field(ge=0, le=LONGEST, description="seconds to wait for its end")] = 0


async def job_output(arguments: JobOutputArguments, workspace: Workspace, say: Say) -> ToolResult:
    """Return the job's new output and its state."""
    job = _find_job(arguments.job, workspace)
    if isinstance(job, ToolResult):
        return job
    await workspace.jobs.wait(job, arguments.wait)
    return ToolResult(text=_describe_job(job, workspace))


async def job_stop(arguments: JobStopArguments, workspace: Workspace, say: Say) -> ToolResult:
    """End a job with all its processes, and return the rest of its output."""
    job = _find_job(arguments.job, workspace)
    if isinstance(job, ToolResult):
        return job
    await workspace.jobs.stop((job.name,), "agent")
    return ToolResult(text=_describe_job(job, workspace))


def job_of_call(call: Call) -> str:
    """Return the job that a call of these tools names, "" for other calls."""
    if call.tool not in {JOB_OUTPUT.name, JOB_STOP.name}:
        return ""
    arguments = arguments_of(call)
    if isinstance(arguments, MalformedArguments):
        return ""
    return str(arguments.get("job", "")).strip()


def _find_job(name: str, workspace: Workspace) -> BackgroundJob | ToolResult:
    """Return the job, or why there is none."""
    name = name.strip()
    job = workspace.jobs.find(name)
    if job is not None:
        return job
    end = workspace.jobs.gone(name)
    if end is not None:
        return ToolResult(text=f"[{name}: {end}. Its output is not kept.]")
    names = ", ".join(workspace.jobs.names)
    if names:
        hint = f"There are {names}."
    else:
        hint = "None was started: bash with `background` starts one."
    return ToolResult(text=f"There is no job `{name}`. {hint}", ok=False)


def _describe_job(job: BackgroundJob, workspace: Workspace) -> str:
    """Return the job's new output and whether it runs."""
    limit = workspace.output_limit(COMMAND_LIMIT)
    output = job.output.take_new(over=job.end is not None).strip()
    shown = truncate(workspace.whole_secrets(output, limit), limit) or "(nothing new)"
    state = f"{job.name} is running"
    if job.end is not None:
        state = f"{job.name}: {describe_end(job.end)}"
    return f"{shown}\n[{state}, {job.seconds:.0f} s]"


JOB_OUTPUT = Tool.of(tool_facts.JOB_OUTPUT, JobOutputArguments, job_output)
JOB_STOP = Tool.of(tool_facts.JOB_STOP, JobStopArguments, job_stop)
