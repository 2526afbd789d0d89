"""bash: a command in the repository with a time limit, its output and exit code. With `background`:
a job that keeps running (shell_commands.py).
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fugu_cli.session import tool_facts
from fugu_cli.tools.read_write import ToolArguments
from fugu_cli.tools.result import (
    COMMAND_LIMIT,
    Say,
    ToolResult,
    count_omitted_lines,
    truncate,
)
from fugu_cli.tools.shell_commands import CommandContext, CommandResult, TooManyJobs, run_command
from fugu_cli.tools.workspace import Tool, Workspace

DEFAULT, MOST = 120, 600


class BashArguments(ToolArguments):
    """Arguments of bash."""

    command: str = Field(description="command line, run in the repository's root")
    timeout: Annotated[int, Field(ge=1, le=MOST, description="seconds")] = DEFAULT
    background: Annotated[
        bool,
        Field(
            description="answer at once; the command goes on as a job",
        ),
    ] = False


async def bash(arguments: BashArguments, workspace: Workspace, say: Say) -> ToolResult:
    """Run a command. A failure is told by its exit code."""
    if "\0" in arguments.command or not arguments.command.strip():
        return ToolResult(text="The command is empty or holds a NUL character.", ok=False)
    if arguments.background:
        return await start_job(arguments.command, workspace)
    try:
        result = await run_command(
            arguments.command, workspace.root, arguments.timeout, say, _context(workspace)
        )
    except OSError as error:
        return ToolResult(text=f"The command could not be started: {error.strerror}.", ok=False)
    limit = workspace.output_limit(COMMAND_LIMIT)
    output = workspace.whole_secrets(result.output.strip(), limit)
    shown = truncate(output, limit)
    return ToolResult(
        text=f"{shown or '(no output)'}\n{describe_exit(result, arguments.timeout)}",
        ok=result.code == 0,
        restored=result.restored,
        omitted_lines=result.dropped_lines + count_omitted_lines(output, shown),
    )


def _context(workspace: Workspace) -> CommandContext:
    return CommandContext(sandbox=workspace.sandbox, reads_only=workspace.reads_only)


async def start_job(command: str, workspace: Workspace) -> ToolResult:
    """Start a job."""
    try:
        job = await workspace.jobs.start(command, workspace.root, _context(workspace))
    except OSError as error:
        return ToolResult(text=f"The command could not be started: {error.strerror}.", ok=False)
    except TooManyJobs as error:
        return ToolResult(text=f"It was not started: {error}", ok=False)
    text = (
        f"Started as {job.name}, without a time limit. job_output says what it prints, job_stop "
        f"ends it."
    )
    return ToolResult(text=text, job=job.name)


def describe_exit(result: CommandResult, limit: float) -> str:
    """Describe how a command ended."""
    if result.code is None:
        return f"[It did not end within {limit:g} s and was ended.]"
    many = "processes it left running were" if result.left > 1 else "process it left running was"
    leftovers = f" {result.left} {many} ended." if result.left else ""
    if result.code < 0:
        return f"[It was ended by signal {-result.code}.{leftovers}]"
    return f"[exit code {result.code}]{leftovers}"


BASH = Tool.of(tool_facts.BASH, BashArguments, bash)
