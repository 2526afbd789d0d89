"""The working tree: where tools work, and how it was before.

Every tool gets one, with its arguments, and nothing else. Inside a git repository the whole tree can be snapshotted and
put back; outside one, the files fugu's own tools changed can. Knows no log, no agent and no permission: paths were
judged before a tool runs.
"""

from __future__ import annotations

import copy
import os
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, TypeVar

from pydantic import BaseModel

from fugu_cli.atomic import write_whole
from fugu_cli.errors import StorageError
from fugu_cli.events import Change, Recorded, ToolRan, Undone, net
from fugu_cli.policy import paths
from fugu_cli.policy.arguments import Malformed, arguments_of
from fugu_cli.sandbox.box import Box
from fugu_cli.tools import Result, Say, Tool, blobs, clip, restoring
from fugu_cli.tools.extras import Extras
from fugu_cli.tools.git import OPTIONS, program
from fugu_cli.tools.jobs import Jobs
from fugu_cli.tools.repository import Repository, find_repository
from fugu_cli.tools.seen import Seen
from fugu_cli.tools.snapshots import Snapshots, as_changes, reading

Arguments = TypeVar("Arguments", bound=BaseModel)


@dataclass(frozen=True)
class Restored:
    """Files put back, files left alone because somebody changed them since, and what was taken back of `changes`."""

    paths: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()


class Observed(NamedTuple):
    """A tool's result with what it changed. `extras`: as in ToolRan."""

    result: Result
    changes: tuple[Change, ...] = ()
    extras: bool = False


class Workspace:
    """The folder `root` with its `store` (a folder of fugu's own, outside the repository) and its test command.

    `box` confines the commands that are run in it; without one they are not confined.
    """

    def __init__(
        self,
        root: Path,
        store: Path,
        *,
        test_command: str | None = None,
        test_timeout: float = 300.0,
        box: Box | None = None,
    ) -> None:
        self.root = Path(os.path.realpath(root))
        self.store = store
        self.test_command = test_command
        self.test_timeout = test_timeout
        self.box = box
        self.seen = Seen()
        repository = _usable(self.root)
        self.snapshots = Snapshots(self.root, store, repository) if repository else None
        self._hash_name = repository.hash_name if repository else "sha1"
        self._written: list[Change] = []
        self.jobs = Jobs()
        self.mask: Callable[[str], str] | None = None
        """Takes secrets out of the diffs that people and files are given."""
        self.unread: Callable[[Path, Path], bool] | None = None
        """Whether a file (resolved) of a working tree (its root) is kept out of what a search finds."""

    def apart(self) -> Workspace:
        """The same folder for an agent that works at the same time as others: what they saw, it has not seen."""
        other = copy.copy(self)
        other.seen = Seen()
        other._written = []
        return other

    @property
    def hash_name(self) -> str:
        """The hash that names contents: sha1, or the repository's own."""
        return self._hash_name

    @property
    def in_git(self) -> bool:
        """Snapshots can be taken."""
        return self.snapshots is not None

    async def snapshot(self) -> str | None:
        """The tree id of the working tree as it is, None outside git. Raises StorageError."""
        return await self.snapshots.take() if self.snapshots else None

    async def restore(self, tree: str, part: restoring.Part = restoring.ALL) -> tuple[str, ...]:
        """Put exactly that tree back, or a part of it; returns the paths that changed. Raises StorageError."""
        if self.snapshots is None:
            raise StorageError("there are no snapshots outside a git repository", hint="run `git init` first")
        changed = await restoring.restore(self.snapshots, tree, part)
        for path in changed:
            self.seen.refresh(Path(os.path.realpath(self.root / path)))
        return tuple(paths.shown(path) for path in changed)

    async def diff(self, a: str, b: str) -> tuple[Change, ...]:
        """What changed from tree `a` to tree `b`."""
        return as_changes(await self.snapshots.differences(a, b)) if self.snapshots and a != b else ()

    async def patch(self, a: str, b: str, *, whole: bool = False) -> bytes:
        """The same as a unified diff without secrets, to be read; `whole`: byte for byte as `git apply` takes it."""
        if self.snapshots is None or a == b:
            return b""
        return self.shown(await self.snapshots.patch(a, b, whole=whole))

    def shown(self, diff: bytes) -> bytes:
        """A diff without secrets."""
        if self.mask is None:
            return diff
        return self.mask(diff.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")

    def whole_secrets(self, text: str, limit: int = clip.LIMIT) -> str:
        """A text that is to be cut to `limit` characters, without secrets: one that the cut takes apart would not be
        recognised in what is left of it. Use clip for the cut: it tears no mark."""
        return text if self.mask is None or len(text) <= limit else self.mask(text)

    async def blob(self, name: str) -> bytes:
        """The content a Change names. Raises StorageError when it is not there any more."""
        data = blobs.kept(self.store / "objects", name)
        if data is None and self.snapshots is not None:
            async with self.snapshots.held(), reading(self.snapshots.git) as found:
                return await found.read(name)
        if data is None:
            raise StorageError(f"the content {name[:12]} is not in the store", hint="it cannot be put back")
        return data

    async def observe(self, tool: Tool[Arguments], arguments: Arguments, say: Say) -> Observed:
        """Run a tool; returns its result and every file it changed, ignored ones only when fugu itself wrote them."""
        if tool.effect == "reads":
            return Observed(await tool.run(arguments, self, say))
        self._written.clear()
        before = await self.snapshot()
        result = await tool.run(arguments, self, say)
        after = await self.snapshot()
        found = await self.diff(before, after) if before and after else ()
        known = {change.path for change in found}
        more = [c.model_copy(update={"beside": True}) for c in net(self._written).values() if c.path not in known]
        unseen = before != after and not found  # a commit in a nested repository changes the tree as well
        return Observed(result, (*found, *more), unseen and await self._extras(before) != await self._extras(after))

    async def _extras(self, tree: str | None) -> Extras:
        return await self.snapshots.extras(tree) if self.snapshots and tree else Extras()

    async def put_back(self, tree: str, changes: Iterable[Change]) -> Restored:
        """That tree, and of `changes` what no snapshot holds."""
        restored = await self.restore(tree)
        more = await self.restore_changes(change for change in changes if change.beside)
        return replace(more, paths=(*restored, *more.paths))

    async def restore_changes(self, changes: Iterable[Change]) -> Restored:
        """Put the files of `changes` (in the order they were made) back to `before`, where they still are `after`.

        For what no snapshot covers: work outside git, and ignored files. What is back already is left alone. Raises
        StorageError for what could not be put back, once all else is; doing it again is safe.
        """
        done, conflicts, failed = [], [], []
        for change in self.standing(changes):
            path = self.root / paths.actual(change.path)
            if self._now(change) != change.after:
                conflicts.append(change.path)
                continue
            try:
                restoring.put(path, await self.blob(change.before) if change.before else None, change.permissions)
            except StorageError as error:
                failed.append(error)
                continue
            self.seen.refresh(path)
            done.append(change)
        if failed:
            raise failed[0]
        return Restored(tuple(change.path for change in done), tuple(conflicts), tuple(done))

    def standing(self, changes: Iterable[Change]) -> list[Change]:
        """The net of `changes` without the files that are as they were before."""
        return [change for change in net(changes).values() if self._now(change) != change.before]

    def _now(self, change: Change) -> str | None:
        return blobs.of_file(self.root / paths.actual(change.path), self._hash_name)

    def write(self, path: Path, data: bytes, mode: int | None = None) -> None:
        """Write a file whole, as seen and as fugu's doing. `path` is resolved; `mode` as in `write_whole`. Raises
        StorageError, OSError."""
        old = path.read_bytes() if path.is_file() else None
        before = blobs.keep(self.store / "objects", old, self._hash_name) if old is not None else None
        write_whole(path, data, mode)
        self.seen.note(path, data)
        after = blobs.keep(self.store / "objects", data, self._hash_name)
        self._written.append(Change(path=_named(path, self.root), before=before, after=after))

    def remove(self, path: Path) -> None:
        """Delete a file, kept in the store. `path` is resolved. Raises StorageError, OSError."""
        before = blobs.keep(self.store / "objects", path.read_bytes(), self._hash_name)
        bits = path.stat().st_mode & 0o7777
        path.unlink()
        self._written.append(Change(path=_named(path, self.root), before=before, after=None, permissions=bits))


def resolve(workspace: Workspace, text: str) -> Path | Result:
    """Where a path an agent wrote leads, links followed; a Result when no file can have that name or nobody may look.

    Outside the repository is allowed here: policy asked before the tool was run.
    """
    found = paths.locate(text, workspace.root)
    if not isinstance(found, Path):
        return Result(text=f"`{text}` is not a path: {found.text}.", ok=False)
    try:
        found.stat()
    except (FileNotFoundError, NotADirectoryError):
        return found
    except OSError as error:  # in a folder that may not be looked into, a name too long for any file, a link to itself
        return Result(text=f"{clip.clip(text, 300)} cannot be used: {error.strerror}.", ok=False)
    return found


def recall(workspace: Workspace, records: Iterable[Recorded]) -> None:
    """Take up a session again: what its agents read or wrote, and nobody changed since, counts as seen.

    What fugu put back counts where it had been seen before, as in the process that did it (`Seen.refresh`).
    """
    newest: dict[str, float] = {}
    for record in records:
        if isinstance(record.event, Undone):
            newest = dict.fromkeys(newest, record.at)
        elif isinstance(record.event, ToolRan):
            newest |= dict.fromkeys(_touched(record.event), record.at)
    for name, at in newest.items():
        path = paths.locate(name, workspace.root)
        if isinstance(path, Path):
            workspace.seen.recall(path, at)


def _touched(event: ToolRan) -> list[str]:
    """Names of the files a call read or wrote."""
    given = arguments_of(event.call)
    named = [change.path for change in event.changes]
    if event.ok and not isinstance(given, Malformed) and isinstance(given.get("path"), str):
        named.append(str(given["path"]))
    return named


def _named(path: Path, root: Path) -> str:
    return paths.shown(path.relative_to(root).as_posix() if paths.inside(path, root) else str(path))


def _usable(root: Path) -> Repository | None:
    """The repository of `root`, unless git is missing or ignores `root` (a project inside a home kept in git)."""
    git = program(root)
    found = find_repository(root) if git else None
    if found is None or found.top == root:
        return found
    where = (f"--git-dir={found.folder}", f"--work-tree={found.top}")
    command = [git or "git", *OPTIONS, *where, "check-ignore", "-q", str(root)]
    ignored = subprocess.run(command, cwd=root, capture_output=True, check=False).returncode == 0
    return None if ignored else found
