"""reproduce and run_reproduction: a script that fails before the work and must pass after it.

An agent writes the script (`reproduce`), the loop runs it again after every change (`run_reproduction`, of which no
agent is told). The script is in the log alone: each run puts it into a folder of its own, made by the confined shell in
the sandbox's temporary folder, so nothing is left in the repository and a session that is resumed has it still.
"""

from __future__ import annotations

import os
import re

from pydantic import Field

from fugu_cli.tools import Result, Say, Tool
from fugu_cli.tools.bash import outcome
from fugu_cli.tools.clip import clip
from fugu_cli.tools.files import Given
from fugu_cli.tools.process import Around, Ended, run_command
from fugu_cli.tools.workspace import Workspace

SECONDS = 120.0
NOT_RUN = frozenset({126, 127})
"""Exit codes of a shell that found nothing to run."""
FAILS = "It fails before the work, as a reproduction must. It is run again after every change."
PASSES = "This is no reproduction: it passes before the work. Write one that fails for the reason of the request."
NEITHER = "This is no reproduction: it could not be run, or did not come to an end."
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_BEFORE = """d=$(mktemp -d) || exit 126
trap 'rm -rf "$d"' EXIT
export SCRIPT="$d/{name}"
cat > "$SCRIPT"
exec < /dev/null
"""


class Reproduce(Given):
    """Arguments of reproduce."""

    script: str = Field(description="the script; exit code 0 means that the request is done")
    command: str = Field(description='how it is run in the repository\'s root: python "$SCRIPT"')
    file: str = Field(default="reproduction.py", description="its name, for runners that go by the ending")


async def reproduce(given: Reproduce, workspace: Workspace, say: Say) -> Result:
    """Run it as things were before the work: there it must fail."""
    ended = await _ended(given, workspace, say)
    if isinstance(ended, Result):
        return ended
    fails = ended.code is not None and ended.code > 0 and ended.code not in NOT_RUN
    said = FAILS if fails else PASSES if ended.code == 0 else NEITHER
    return Result(text=f"{_told(ended, workspace)}\n{said}", ok=fails)


async def run_reproduction(given: Reproduce, workspace: Workspace, say: Say) -> Result:
    """Run it as things are now."""
    ended = await _ended(given, workspace, say)
    return ended if isinstance(ended, Result) else Result(text=_told(ended, workspace), ok=ended.code == 0)


async def _ended(given: Reproduce, workspace: Workspace, say: Say) -> Ended | Result:
    if "SCRIPT" not in given.command or "\0" in given.command or not _NAME.fullmatch(given.file):
        return Result(text='The command names the script as "$SCRIPT", and `file` is a plain name.', ok=False)
    path = os.pathsep.join(filter(None, (str(workspace.root), os.environ.get("PYTHONPATH", ""))))
    around = Around({"PYTHONPATH": path}, workspace.box, given.script.encode())
    try:
        command = _BEFORE.replace("{name}", given.file) + given.command
        return await run_command(command, workspace.root, SECONDS, say, around)
    except OSError as error:
        return Result(text=f"The script could not be started: {error.strerror}.", ok=False)


def _told(ended: Ended, workspace: Workspace) -> str:
    said = clip(workspace.whole_secrets(ended.output.strip())) or "(no output)"
    return f"{said}\n{outcome(ended, SECONDS)}"


REPRODUCE = Tool(name="reproduce", effect="runs", arguments=Reproduce, run=reproduce, body="script", native=True)
RUN_REPRODUCTION = Tool(name="run_reproduction", effect="runs", arguments=Reproduce, run=run_reproduction)
