"""bash: a command in the repository, with a time limit; what it printed and how it ended. Or, with `background`, a job
that goes on (jobs.py)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fugu_cli.tools import Tool
from fugu_cli.tools.clip import clip
from fugu_cli.tools.files import Given
from fugu_cli.tools.jobs import Crowded
from fugu_cli.tools.process import Around, Ended, run_command
from fugu_cli.tools.result import NATIVE, Result, Say
from fugu_cli.tools.workspace import Workspace

DEFAULT, MOST = 120, 600


class Bash(Given):
    """Arguments of bash."""

    command: str = Field(description="command line, run in the repository's root")
    timeout: Annotated[int, Field(ge=1, le=MOST, description="seconds")] = DEFAULT
    background: Annotated[
        bool, Field(description="answer at once; the command goes on as a job", json_schema_extra=NATIVE)
    ] = False


async def bash(given: Bash, workspace: Workspace, say: Say) -> Result:
    """Run a command. A failure is told by its exit code."""
    if "\0" in given.command or not given.command.strip():
        return Result(text="The command is empty or holds a NUL character.", ok=False)
    if given.background:
        return await in_background(given.command, workspace)
    try:
        ended = await run_command(given.command, workspace.root, given.timeout, say, Around(box=workspace.box))
    except OSError as error:
        return Result(text=f"The command could not be started: {error.strerror}.", ok=False)
    said = clip(workspace.whole_secrets(ended.output.strip())) or "(no output)"
    return Result(text=f"{said}\n{outcome(ended, given.timeout)}", ok=ended.code == 0)


async def in_background(command: str, workspace: Workspace) -> Result:
    """Start a job."""
    try:
        job = await workspace.jobs.start(command, workspace.root, Around(box=workspace.box))
    except OSError as error:
        return Result(text=f"The command could not be started: {error.strerror}.", ok=False)
    except Crowded as error:
        return Result(text=f"It was not started: {error}", ok=False)
    text = f"Started as {job.name}, without a time limit. job_output says what it prints, job_stop ends it."
    return Result(text=text, job=job.name)


def outcome(ended: Ended, limit: float) -> str:
    """How a command ended, in words."""
    if ended.code is None:
        return f"[It did not end within {limit:g} s and was ended.]"
    many = "processes it left running were" if ended.left > 1 else "process it left running was"
    left = f" {ended.left} {many} ended." if ended.left else ""
    if ended.code < 0:
        return f"[It was ended by signal {-ended.code}.{left}]"
    return f"[exit code {ended.code}]{left}"


BASH = Tool(name="bash", effect="runs", arguments=Bash, run=bash)
