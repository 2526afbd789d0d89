"""acceptance_check and run_check: a command that fails before the work and must pass before it is
accepted.

An agent sets the check (`acceptance_check`); fugu runs it again after every change (`run_check`,
which no agent is offered). A script that goes with it is in the log alone. Each run writes it to a
temporary folder of the confined shell, so nothing is left in the repository and a resumed session
still has it.
"""

from __future__ import annotations

import os
import re

from pydantic import Field

from fugu_cli.session import tool_facts
from fugu_cli.testing.runner_discovery import output_format
from fugu_cli.tools.bash import describe_exit
from fugu_cli.tools.read_write import ToolArguments
from fugu_cli.tools.result import Say, ToolResult, truncate
from fugu_cli.tools.run_tests import OUTPUT_PATTERNS, digest_output
from fugu_cli.tools.shell_commands import CommandContext, CommandResult, run_command
from fugu_cli.tools.workspace import Tool, Workspace

SECONDS = 120.0
NOT_RUN = frozenset({126, 127})
"""Exit codes of a shell that found nothing to run."""
FAILS = (
    "It fails now, as it must before the work. It is run again after every change; nothing is "
    "accepted while it fails."
)
PASSES = (
    "This is no check: it passes before the work. Set one that fails for the reason of the request."
)
NEITHER = "This is no check: it could not be run, or did not come to an end."
SUITE = "The project's tests are a check now: nothing is accepted while they fail."
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_BEFORE = """d=$(mktemp -d) || exit 126
trap 'rm -rf "$d"' EXIT
export SCRIPT="$d/{name}"
cat > "$SCRIPT"
exec < /dev/null
"""


class AcceptanceCheckArguments(ToolArguments):
    """Arguments of acceptance_check."""

    command: str = Field(
        description="run in the repository's root; exit code 0 means that the request is done"
    )
    script: str = Field(
        default="",
        description='a script that the command runs as "$SCRIPT"; leave out if not needed',
    )
    file: str = Field(
        default="check.py", description="the script's name, for runners that go by the ending"
    )


async def acceptance_check(
    arguments: AcceptanceCheckArguments, workspace: Workspace, say: Say
) -> ToolResult:
    """Run the new check on the original files, where it must fail. The test suite is not run again
    for this.
    """
    if arguments.command == workspace.test_command and not arguments.script:
        return ToolResult(text=SUITE)
    result = await _run_command(arguments, workspace, say)
    if isinstance(result, ToolResult):
        return result
    fails = result.code is not None and result.code > 0 and result.code not in NOT_RUN
    if fails:
        verdict = FAILS
    elif result.code == 0:
        verdict = PASSES
    else:
        verdict = NEITHER
    return ToolResult(
        text=f"{_describe_result(arguments.command, result, workspace)}\n{verdict}", ok=fails
    )


async def run_check(
    arguments: AcceptanceCheckArguments, workspace: Workspace, say: Say
) -> ToolResult:
    """Run the check on the files as they are now."""
    result = await _run_command(arguments, workspace, say)
    if isinstance(result, ToolResult):
        return result
    text = _describe_result(arguments.command, result, workspace)
    return ToolResult(text=text, ok=result.code == 0)


async def _run_command(
    arguments: AcceptanceCheckArguments, workspace: Workspace, say: Say
) -> CommandResult | ToolResult:
    command = arguments.command
    if "\0" in command or not command.strip() or not _NAME.fullmatch(arguments.file):
        return ToolResult(
            text="The command is one line of the shell, and `file` is a plain name.", ok=False
        )
    if arguments.script and "SCRIPT" not in command:
        return ToolResult(text='The command names the script as "$SCRIPT".', ok=False)
    environment: dict[str, str | None] = {}
    if arguments.script:
        folders = (str(workspace.root), os.environ.get("PYTHONPATH", ""))
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, folders))
        command = _BEFORE.replace("{name}", arguments.file) + command
    context = CommandContext(environment, workspace.sandbox, arguments.script.encode())
    try:
        return await run_command(command, workspace.root, SECONDS, say, context)
    except OSError as error:
        return ToolResult(text=f"The check could not be started: {error.strerror}.", ok=False)


def _describe_result(command: str, result: CommandResult, workspace: Workspace) -> str:
    """Return the output and how the command ended; a test runner's output is shown as run_tests
    shows it.
    """
    output = workspace.whole_secrets(result.output.strip())
    if output_format(command) in OUTPUT_PATTERNS:
        output = digest_output(output, command, str(workspace.root), ok=result.code == 0)
    shown = truncate(output) or "(no output)"
    return f"{shown}\n{describe_exit(result, SECONDS)}"


ACCEPTANCE_CHECK = Tool.of(tool_facts.ACCEPTANCE_CHECK, AcceptanceCheckArguments, acceptance_check)
RUN_CHECK = Tool.of(tool_facts.RUN_CHECK, AcceptanceCheckArguments, run_check)
