"""Where an acceptance check is run first: on the files as they were before the request.

Below tool_calls, which runs the tools. A check that is set after something was changed is run on a copy of the files,
laid out from the request's snapshot and removed again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fugu_cli import scratch, views
from fugu_cli.events import Event
from fugu_cli.loop import worktrees
from fugu_cli.tools.acceptance_check import AcceptanceCheck
from fugu_cli.tools.result import Result, Say
from fugu_cli.tools.toolbox import AnyTool
from fugu_cli.tools.workspace import Workspace

NO_TREE = (
    "It was not run and does not count: something was changed already, and outside a git repository the files as they"
    " were before cannot be laid out."
)


def before_the_work(tool: AnyTool, events: Sequence[Event]) -> AnyTool:
    """`tool`; where it sets a check and something was changed already, one that runs on the files as they were."""
    if tool.name != views.ACCEPTANCE_CHECK or not views.changes(events):
        return tool
    tree = views.began(events)

    async def run(arguments: AcceptanceCheck, workspace: Workspace, say: Say) -> Result:
        if not tree or not workspace.in_git:
            return Result(text=NO_TREE, ok=False)
        with scratch.folder("before") as folder:
            before = await worktrees.make(workspace, tree, folder / "copy")
            return await tool.run(arguments, before, say)

    return replace(tool, run=run)
