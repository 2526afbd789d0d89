"""The request's reproduction in the loop: who is asked for one, what a small model is told, and where it is run first.

Below bench.py, which runs the tools, and context.py. Written when something was changed already, it is run on a copy of
the files as they were before the request, laid out from the snapshot and removed again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fugu_cli import prompts, scratch, views
from fugu_cli.events import Event
from fugu_cli.loop import worktrees
from fugu_cli.messages import Call, ToolSpec
from fugu_cli.policy.arguments import Malformed, arguments_of
from fugu_cli.tools import Result, Say
from fugu_cli.tools.reproduce import Reproduce
from fugu_cli.tools.toolbox import AnyTool
from fugu_cli.tools.workspace import Workspace

OUTPUT = 500
"""Characters of what it printed that a brief has."""
NO_TREE = (
    "It was not run and does not count: something was changed already, and outside a git repository the files as they"
    " were before cannot be laid out."
)


def before_the_work(tool: AnyTool, events: Sequence[Event]) -> AnyTool:
    """`tool`; where it is `reproduce` and something was changed already, one that runs on the files as they were."""
    if tool.name != views.REPRODUCE or not views.changes(events):
        return tool
    tree = views.began(events)

    async def run(arguments: Reproduce, workspace: Workspace, say: Say) -> Result:
        if not tree or not workspace.in_git:
            return Result(text=NO_TREE, ok=False)
        with scratch.folder("before") as folder:
            before = await worktrees.make(workspace, tree, folder / "copy")
            return await tool.run(arguments, before, say)

    return replace(tool, run=run)


def wanted(events: Sequence[Event], tools: Sequence[ToolSpec]) -> bool:
    """The agent is told of the tool, and when its turn began nothing failed and nobody had written a reproduction."""
    if all(tool.name != views.REPRODUCE for tool in tools):
        return False
    turn = views.turns(events)[-1]
    before = views.before(events, turn)
    run = views.tests(before)
    return (run is None or run.ok) and views.reproduction(before) is None


def section(events: Sequence[Event]) -> str:
    """For a small model's brief: the script, while it fails, and what it prints; "" otherwise."""
    found = views.reproduction(events)
    given = arguments_of(Call(id="", tool=views.REPRODUCE, arguments=found.arguments)) if found is not None else {}
    if found is None or found.ok or isinstance(given, Malformed):
        return ""
    text = prompts.load("brief/reproduction")
    return prompts.fill(text, script=str(given["script"]).strip(), output=found.output[-OUTPUT:].strip()) + "\n\n"
