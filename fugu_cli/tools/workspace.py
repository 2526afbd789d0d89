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
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

from pydantic import BaseModel

from fugu_cli.atomic import write_whole
from fugu_cli.errors import StorageError
from fugu_cli.events import NOTHING, Change, Made, Recorded, ToolRan, Undone, net
from fugu_cli.policy import paths
from fugu_cli.policy.arguments import Malformed, arguments_of
from fugu_cli.sandbox.box import Box
from fugu_cli.tools import Tool, blobs, clip, restoring
from fugu_cli.tools.blobs import Blobs
from fugu_cli.tools.git import OPTIONS, Git, program
from fugu_cli.tools.jobs import Jobs
from fugu_cli.tools.repository import Repository, find_repository
from fugu_cli.tools.result import Result, Say
from fugu_cli.tools.seen import Seen
from fugu_cli.tools.snapshots import Snapshots, as_changes

Arguments = TypeVar("Arguments", bound=BaseModel)


@dataclass(frozen=True)
class Restored:
    """Files put back, files left alone because somebody changed them since or no copy was kept, and what was taken
    back."""

    paths: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    made: Made = NOTHING


class Observed(NamedTuple):
    """A tool's result with what it did to files."""

    result: Result
    made: Made = NOTHING


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

    async def restore(self, tree: str) -> tuple[str, ...]:
        """Put exactly that tree back; returns the paths that changed. Raises StorageError."""
        if self.snapshots is None:
            raise StorageError("there are no snapshots outside a git repository", hint="run `git init` first")
        return (await self.take_back(await self.since(tree))).paths

    async def since(self, tree: str) -> Made:
        """What was done to files since a snapshot. Raises StorageError."""
        now = await self.snapshot()
        found = await self.made(tree, now) if now else NOTHING
        changes = (self._still_there(change) if change.after is None else change for change in found.changes)
        return Made(tuple(change for change in changes if change is not None), found.attributes)

    def _still_there(self, change: Change) -> Change | None:
        """A file that is in no snapshot any more was removed, or is ignored now: then what it holds is kept. None where
        that is what it held before."""
        path = self.root / paths.actual(change.path)
        if restoring.through_link(self.root, path) or not os.path.lexists(path):
            return change
        if path.lstat().st_size > blobs.LARGEST:
            return None
        name, mode = blobs.state(path, self._hash_name)
        if name is None or (name, mode) == (change.before, change.mode):
            return change if name is None else None
        data = os.fsencode(path.readlink()) if path.is_symlink() else path.read_bytes()
        blobs.keep(self.store / "objects", data, self._hash_name)
        return change.model_copy(
            update={"after": name, "mode": mode, "mode_before": change.mode if mode != change.mode else ""}
        )

    async def made(self, a: str, b: str) -> Made:
        """What was done to files from tree `a` to tree `b`."""
        return await self.snapshots.made(a, b) if self.snapshots else NOTHING

    async def diff(self, a: str, b: str) -> tuple[Change, ...]:
        """The changes alone."""
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
        async with self.contents() as found:
            return await found.read(name)

    def contents(self) -> AbstractAsyncContextManager[Blobs]:
        """Many of them, read one after the other."""
        return blobs.reading(self.store / "objects", self._git)

    @property
    def _git(self) -> Git | None:
        """git on the store, also where the repository is gone; None where no snapshot was ever taken."""
        if not (self.store / "HEAD").is_file():
            return None
        return self.snapshots.git if self.snapshots else Git(self.store, self.root, self.store / "index", self.root)

    async def observe(
        self, tool: Tool[Arguments], arguments: Arguments, say: Say, before: str | None = None
    ) -> Observed:
        """Run a tool; returns its result and what it did to files, ignored ones only when fugu itself wrote them.

        `before`: a snapshot that was taken for this call already.
        """
        if tool.effect == "reads":
            return Observed(await tool.run(arguments, self, say))
        self._written.clear()
        before = before or await self.snapshot()
        result = await tool.run(arguments, self, say)
        found = await self.since(before) if before else NOTHING
        known = {change.path for change in found.changes}
        more = [c.model_copy(update={"beside": True}) for c in net(self._written).values() if c.path not in known]
        kept = {change.path for change in more}
        attributes = tuple(one for one in found.attributes if not (one.large and one.path in kept))
        return Observed(result, Made((*found.changes, *more), attributes))

    async def take_back(self, made: Made) -> Restored:
        """Undo what was done (in the order it was done), of each file where it still is as it was left.

        What is back already is left alone. Raises StorageError for what could not be put back, once all else is; doing
        it again is safe.
        """
        found = self.standing(made)
        async with self.contents() as contents:
            changed = await restoring.take_back(self.root, found.made, contents, self._git)
        for path in changed:
            self.seen.refresh(Path(os.path.realpath(self.root / paths.actual(path))))
        return Restored(changed, (*found.conflicts, *found.beside, *found.unkept), found.made)

    def standing(self, made: Made) -> restoring.Standing:
        """What of it still stands. Raises StorageError for a file that may not be read."""
        return restoring.standing(self.root, made, self._hash_name)

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
