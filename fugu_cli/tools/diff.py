"""diff: what was changed since a snapshot. fugu runs it as evidence; no agent is offered it."""

from __future__ import annotations

from fugu_cli.errors import StorageError
from fugu_cli.tools.read_write import ToolArguments
from fugu_cli.tools.recorded_diffs import unified_diff
from fugu_cli.tools.result import Say, ToolResult, truncate
from fugu_cli.tools.workspace import Tool, Workspace

LIMIT = 12_000


GONE = "No diff can be shown: the files as they were before the request are no longer stored. Read the changed files."


class DiffArguments(ToolArguments):
    """Arguments of diff: the tree id of a snapshot; path, content before and after (ids) of files that it has not."""

    since: str
    beside: tuple[tuple[str, str | None, str | None], ...] = ()


async def diff(given: DiffArguments, workspace: Workspace, say: Say) -> ToolResult:
    """A unified diff from the snapshot to now."""
    now = await workspace.history.snapshot()
    if now is None:
        return ToolResult(text="There are no snapshots outside a git repository.", ok=False)
    try:
        patch = await workspace.patch(given.since, now)
    except StorageError:
        return ToolResult(text=GONE, ok=False)
    for path, *sides in given.beside:
        before, after = [None if name is None else await workspace.history.blob(name) for name in sides]
        patch += workspace.shown(unified_diff(path, before, after).encode("utf-8", "surrogateescape"))
    return ToolResult(text=truncate(patch.decode("utf-8", "replace"), LIMIT) if patch else "(nothing was changed)")


DIFF = Tool(name="diff", effect="reads", arguments=DiffArguments, run=diff)
