"""Unified diffs: of two contents, of recorded changes from the contents that the workspace keeps,
and of all that was changed since a snapshot. fugu runs the tool `diff` as evidence; no agent is
offered it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

from fugu_cli.errors import StorageError
from fugu_cli.safety.paths import unquoted_path
from fugu_cli.session import tool_facts
from fugu_cli.session.events import FileChange
from fugu_cli.session.state import SessionState
from fugu_cli.snapshots import git_repositories
from fugu_cli.system.line_diffs import unified_diff_lines
from fugu_cli.tools.read_write import ToolArguments
from fugu_cli.tools.result import Say, ToolResult, truncate
from fugu_cli.tools.workspace import Tool, Workspace

if TYPE_CHECKING:
    from fugu_cli.snapshots.plain_folder import PlainFolder


def unified_diff(
    path: str, before: bytes | None, after: bytes | None, *, largest: int | None = None
) -> str:
    """Return a diff for `git apply`. It is one sentence if the content is not text or more than
    `largest` characters differ. None stands for a file that did not exist.
    """
    old_name = "/dev/null" if before is None else f"a/{path}"
    new_name = "/dev/null" if after is None else f"b/{path}"
    old, new = before or b"", after or b""
    if b"\0" in old or b"\0" in new:
        sizes = f"{len(old)} -> {len(new)} bytes"
        return f"--- {old_name}\n+++ {new_name}\nbinary file, {sizes}\n"
    lines = unified_diff_lines(_lines(old), _lines(new), old_name, new_name, largest=largest)
    if lines is None:
        size = len(old) + len(new)
        return f"--- {path}\n+++ {path}\n@@ too large to compare: {size:,} bytes @@"
    text = []
    for line in lines:
        text.append(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n")
    return "".join(text)


def _lines(data: bytes) -> list[str]:
    return data.decode("utf-8", "surrogateescape").splitlines(keepends=True)


async def change_diffs(
    workspace: Workspace, changes: Iterable[FileChange]
) -> dict[FileChange, str]:
    """Return each change as a unified diff, or a note that its contents are gone."""
    unique_changes = list(dict.fromkeys(changes))
    names: list[str] = []
    for change in unique_changes:
        names += [name for name in (change.before, change.after) if name]
    contents = await read_contents(workspace, names)
    return {change: _change_diff(workspace, change, contents) for change in unique_changes}


def _change_diff(workspace: Workspace, change: FileChange, contents: dict[str, bytes]) -> str:
    sides = []
    for name in (change.before, change.after):
        data = None if name is None else contents.get(name)
        if name is not None and data is None:
            data = _content_on_disk(workspace, change.path, name)
            if data is None:
                return f"({change.path}: the content {name[:12]} is not in the store)\n"
        sides.append(data)
    return workspace.mask(unified_diff(change.path, *sides))


def _content_on_disk(workspace: Workspace, path: str, name: str) -> bytes | None:
    """Return the content of the file if it has this blob id, else None."""
    file = workspace.root / path
    data = file.read_bytes() if file.is_file() else b""
    return data if git_repositories.blob_id(data, workspace.history.hash_name) == name else None


async def request_patch(
    workspace: Workspace, state: SessionState, plain_folder: PlainFolder | None = None
) -> bytes:
    """Return the changes of the newest request as a diff, including files that fugu wrote and
    snapshots do not hold. `plain_folder` is compared outside git.
    """
    start = state.request.start_snapshot
    end = await workspace.history.snapshot() if start else None
    patch = await workspace.patch(start, end, whole=True) if start and end else b""
    snapshotted: frozenset[str] = frozenset()
    if plain_folder is not None:
        patch, snapshotted = await plain_folder.changes()
        patch = workspace.shown(patch)
    unsnapshotted = state.request.unsnapshotted_changes.items()
    inside = [
        change
        for path, change in unsnapshotted
        if not path.startswith("/") and path not in snapshotted
    ]
    diffs = await change_diffs(workspace, inside)
    return patch + "".join(diffs.values()).encode("utf-8", "surrogateescape")


async def read_contents(workspace: Workspace, names: Iterable[str]) -> dict[str, bytes]:
    """Return the contents with these ids, except those that are gone."""
    contents: dict[str, bytes] = {}
    async with workspace.history.contents() as source:
        for name in dict.fromkeys(names):
            with contextlib.suppress(StorageError):
                contents[name] = await source.read(name)
    return contents


LIMIT = 12_000
SMALL_FILE, SMALL_FILES = 2_500, 5_000
"""Bytes of a file that is shown whole, and of all such files."""
MOST_SMALL_FILES = 20
GONE = (
    "No diff can be shown: the files as they were before the request are no longer stored. Read "
    "the changed files."
)


class DiffArguments(ToolArguments):
    """Arguments of diff: `since` is the tree id of a snapshot. `beside` are files that no snapshot
    holds: the path, and the blobs before and after.
    """

    since: str
    beside: tuple[tuple[str, str | None, str | None], ...] = ()


async def diff(arguments: DiffArguments, workspace: Workspace, say: Say) -> ToolResult:
    """Return a unified diff from the snapshot to now. Small files are shown with all their lines."""
    since = arguments.since
    present = await workspace.history.snapshot()
    if present is None:
        return ToolResult(text="There are no snapshots outside a git repository.", ok=False)
    try:
        effects = await workspace.history.effects_between(since, present)
        small = _small_files(workspace, [unquoted_path(change.path) for change in effects.changes])
        if small:
            only_small = [f":(top,literal){path}" for path in small]
            without_small = [":(top)", *(f":(top,exclude,literal){path}" for path in small)]
            patch = await workspace.patch(since, present, context=SMALL_FILE, only=only_small)
            patch += await workspace.patch(since, present, only=without_small)
        else:
            patch = await workspace.patch(since, present)
    except StorageError:
        return ToolResult(text=GONE, ok=False)
    for path, before, after in arguments.beside:
        old = None if before is None else await workspace.history.blob(before)
        new = None if after is None else await workspace.history.blob(after)
        file_diff = unified_diff(path, old, new).encode("utf-8", "surrogateescape")
        patch += workspace.shown(file_diff)
    if not patch:
        return ToolResult(text="(nothing was changed)")
    return ToolResult(text=truncate(patch.decode("utf-8", "replace"), LIMIT))


def _small_files(workspace: Workspace, paths: Iterable[str]) -> list[str]:
    """Return the files that are small enough to be shown whole, as many as there is room for."""
    small: list[str] = []
    bytes_left = SMALL_FILES
    for path in paths:
        file = workspace.root / path
        if len(small) == MOST_SMALL_FILES or file.is_symlink() or not file.is_file():
            continue
        size = file.stat().st_size
        if size <= min(SMALL_FILE, bytes_left):
            small.append(path)
            bytes_left -= size
    return small


DIFF = Tool.of(tool_facts.DIFF, DiffArguments, diff)
