"""diff: what was changed since a snapshot. fugu runs it as evidence; no agent is told of it."""

from __future__ import annotations

from fugu_cli.diffs import unified
from fugu_cli.errors import StorageError
from fugu_cli.tools import Tool
from fugu_cli.tools.clip import clip
from fugu_cli.tools.files import Given
from fugu_cli.tools.result import Result, Say
from fugu_cli.tools.workspace import Workspace

LIMIT = 12_000


GONE = "No diff can be shown: the files as they were before the request are no longer stored. Read the changed files."


class Diff(Given):
    """Arguments of diff: the tree id of a snapshot; path, content before and after (ids) of files that it has not."""

    since: str
    beside: tuple[tuple[str, str | None, str | None], ...] = ()


async def diff(given: Diff, workspace: Workspace, say: Say) -> Result:
    """A unified diff from the snapshot to now."""
    now = await workspace.snapshot()
    if now is None:
        return Result(text="There are no snapshots outside a git repository.", ok=False)
    try:
        patch = await workspace.patch(given.since, now)
    except StorageError:
        return Result(text=GONE, ok=False)
    for path, *sides in given.beside:
        before, after = [None if name is None else await workspace.blob(name) for name in sides]
        patch += workspace.shown(unified(path, before, after).encode("utf-8", "surrogateescape"))
    return Result(text=clip(patch.decode("utf-8", "replace"), LIMIT) if patch else "(nothing was changed)")


DIFF = Tool(name="diff", effect="reads", arguments=Diff, run=diff)
