"""Changes to the files of a folder: compares snapshots, keeps contents, takes changes back.

Below the workspace, above the snapshots. Outside git there are no snapshots, but changes by fugu's
own tools are known. Restoring works from a list of changes and needs no repository. Each file is
replaced whole, and only if it is still as it was left.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path

from fugu_cli.errors import StorageError
from fugu_cli.safety import paths
from fugu_cli.safety.git_process import git_program
from fugu_cli.safety.paths import quoted_path
from fugu_cli.session.events import NO_EFFECTS, FileAttribute, FileChange, FileEffects
from fugu_cli.snapshots.git_repositories import (
    LARGEST_BLOB,
    BlobReader,
    Git,
    Repository,
    blob_id,
    file_state,
    find_repository,
    open_blobs,
    split_names,
    store_blob,
    user_git,
)
from fugu_cli.snapshots.snapshot_index import NESTED
from fugu_cli.snapshots.snapshots import Snapshots
from fugu_cli.snapshots.tree_extras import (
    EMPTY_FOLDER,
    EXECUTABLE_BITS,
    LARGE_FILE,
    PLAIN_BITS,
    TreeExtras,
    apply_attribute,
    current_attribute,
    parse_extras,
    remove_folder_or_pipe,
    repository_state,
)
from fugu_cli.system.atomic_files import executable_bits, link_atomically, write_atomically
from fugu_cli.system.resolved_files import (
    remove_empty_folders,
    resolved_entry,
    resolved_folder,
)

EXPORTS = "exports"
"""The file in the store that names the contents fugu itself wrote into the repository."""
COMPARISONS = 4
"""The newest comparisons of two trees are kept, because a call's changes are evidence, too."""


@dataclass(frozen=True)
class Restored:
    """The result of a restoration: `paths` were restored, `left` were left alone because somebody
    changed them since or no copy was kept, `effects` are the changes that were taken back.
    """

    paths: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    effects: FileEffects = NO_EFFECTS


class FileHistory:
    """The present and earlier files of `root`. `store` keeps their contents, named by the hash
    `hash_name` (sha1, or the repository's own). `repository` is looked up from `root` if it is not
    given.
    """

    def __init__(self, root: Path, store: Path, repository: Repository | None = None) -> None:
        self.root = root
        self.store = store
        repository = repository or _find_usable(root)
        self.snapshots = Snapshots(root, store, repository) if repository else None
        self.hash_name = repository.hash_name if repository else "sha1"
        self._newest_effects: dict[tuple[str, str], FileEffects] = {}

    @property
    def _git(self) -> Git | None:
        """git on the store, which works even if the repository is gone; None if no snapshot was
        ever taken.
        """
        if not (self.store / "HEAD").is_file():
            return None
        return (
            self.snapshots.git
            if self.snapshots
            else Git(self.store, self.root, self.store / "index", self.root)
        )

    async def snapshot(self) -> str | None:
        """Return the tree id of the present working tree, None outside git. Raises StorageError."""
        return await self.snapshots.take() if self.snapshots else None

    @property
    def not_checked_out(self) -> frozenset[str]:
        """Files that a sparse checkout left out of the working tree when the newest snapshot was
        taken.
        """
        return self.snapshots.index.not_checked_out if self.snapshots else frozenset()

    def note_export(self, data: bytes) -> None:
        """Record that fugu itself is about to write `data` for the user, so that the file is not
        counted as a change of a running call. Raises OSError.
        """
        if self.snapshots is None:
            return
        self.store.mkdir(parents=True, exist_ok=True)
        with (self.store / EXPORTS).open("a", encoding="utf-8") as file:
            file.write(f"{blob_id(data, self.hash_name)}\n")

    async def since(self, tree: str) -> FileEffects:
        """Return the changes since a snapshot, without fugu's own exports. Raises StorageError."""
        current = await self.snapshot()
        effects = await self.effects_between(tree, current) if current else NO_EFFECTS
        try:
            exports = set((self.store / EXPORTS).read_text(encoding="utf-8").split())
        except OSError:
            exports = set()
        changes: list[FileChange] = []
        for change in effects.changes:
            present = self._still_there(change) if change.after is None else change
            if present is not None and present.after not in exports:
                changes.append(present)
        return FileEffects(tuple(changes), effects.attributes)

    def _still_there(self, change: FileChange) -> FileChange | None:
        """Correct a deletion. If the file still exists, git only ignores it now: return the change to
        its present content, or None if that is the content from before.
        """
        path = self.root / paths.unquoted_path(change.path)
        if through_link(self.root, path) or not os.path.lexists(path):
            return change
        if path.lstat().st_size > LARGEST_BLOB:
            return None
        name, mode = file_state(path, self.hash_name)
        if name is None:
            return change
        if (name, mode) == (change.before, change.mode):
            return None
        self.keep(os.fsencode(path.readlink()) if path.is_symlink() else path.read_bytes())
        mode_before = change.mode if mode != change.mode else ""
        return change.model_copy(update={"after": name, "mode": mode, "mode_before": mode_before})

    async def effects_between(self, a: str, b: str) -> FileEffects:
        """Return the changes from tree `a` to tree `b`."""
        if self.snapshots is None or a == b:
            return NO_EFFECTS
        effects = self._newest_effects.get((a, b))
        if effects is None:
            effects = await _effects(self.snapshots.git, a, b)
            while len(self._newest_effects) >= COMPARISONS:
                del self._newest_effects[next(iter(self._newest_effects))]
            self._newest_effects[a, b] = effects
        return effects

    async def patch(
        self, a: str, b: str, *, whole: bool, context: int = 3, only: Sequence[str] = ()
    ) -> bytes:
        """Return a unified diff from `a` to `b`, or only of the pathspecs `only`.

        If `whole`, it holds binary contents, so that `git apply` accepts it; that may take half a
        minute for a large file. Otherwise it only says that binary files differ. `context` lines
        surround each change.
        """
        if self.snapshots is None or a == b:
            return b""
        return await self.snapshots.git.run(
            "diff-tree", "-p", "-r", "--no-renames", *(["--binary"] if whole else []), "--no-color", "--no-ext-diff",
            "--no-textconv", "--ignore-submodules=all", f"-U{context}", a, b, "--", *only,
        )  # fmt: skip

    def keep(self, data: bytes) -> str:
        """Store a content; returns its name. Raises StorageError."""
        return store_blob(self.store / "objects", data, self.hash_name)

    async def blob(self, name: str) -> bytes:
        """Return the content that a change names. Raises StorageError if it is gone."""
        async with self.contents() as reader:
            return await reader.read(name)

    def contents(self) -> AbstractAsyncContextManager[BlobReader]:
        """Open a reader for several contents."""
        return open_blobs(self.store / "objects", self._git)

    def standing(self, effects: FileEffects) -> RestorePlan:
        """Return the plan that takes back those of the changes which are still as they were left.
        Raises StorageError for an unreadable file.
        """
        net = effects.net
        changes: list[FileChange] = []
        attributes: list[FileAttribute] = []
        conflicts: list[str] = []
        unsnapshotted: list[str] = []
        large: list[str] = []
        nested: list[str] = []
        for change in net.changes:
            blob, mode = _state_of(self.root, change.path, self.hash_name)
            if _is_as_left(blob, mode, change.back):
                continue
            if _is_as_left(blob, mode, change):
                changes.append(change)
            elif change.beside:
                unsnapshotted.append(change.path)
            else:
                conflicts.append(change.path)
        for attribute in net.attributes:
            path = _inside(self.root, attribute.path)
            if attribute.nested:
                if repository_state(self.store, self.root, path) != attribute.before:
                    nested.append(attribute.path)
            elif attribute.large:
                if current_attribute(path, LARGE_FILE) != attribute.before:
                    large.append(attribute.path)
            elif (current := current_attribute(path, attribute.after)) == attribute.after:
                attributes.append(attribute)
            elif current != attribute.before and path.is_file() and attribute.path not in conflicts:
                conflicts.append(attribute.path)
        stands = FileEffects(tuple(changes), tuple(attributes))
        return RestorePlan(
            stands, tuple(conflicts), tuple(unsnapshotted), tuple(large), tuple(nested)
        )

    async def take_back(self, effects: FileEffects) -> Restored:
        """Undo changes (given in the order they were made) of each file that is still as it was
        left. Changes that were undone already are ignored, so it is safe to run this again. Raises
        StorageError for files that could not be restored, after all others were.
        """
        plan = self.standing(effects)
        async with self.contents() as contents:
            changed = await restore_files(self.root, plan.effects, contents, self._git)
        await self._leave_out([change for change in plan.effects.changes if change.sparse])
        return Restored(
            changed, (*plan.conflicts, *plan.beside, *plan.unkept, *plan.nested), plan.effects
        )

    async def _leave_out(self, changes: Sequence[FileChange]) -> None:
        """Mark files that are gone again as left out of a sparse checkout. git removed the mark
        when it saw the files, and would now call them deleted.
        """
        names = [paths.unquoted_path(change.path) for change in changes if change.before is None]
        gone = [name for name in names if not os.path.lexists(self.root / name)]
        if not gone or self.snapshots is None:
            return
        stdin = b"".join(os.fsencode(name) + b"\0" for name in gone)
        git = user_git(self.snapshots.repository, self.root)
        await git.try_run("update-index", "--skip-worktree", "-z", "--stdin", stdin=stdin)


def _find_usable(root: Path) -> Repository | None:
    """Return the repository of `root`, unless git is missing or ignores `root` (a project inside a
    home kept in git).
    """
    repository = find_repository(root) if git_program(root) else None
    if repository is None or repository.top == root:
        return repository
    ignored = user_git(repository, root).run_now("check-ignore", "-q", str(root))
    return None if ignored.code == 0 else repository


async def _extras(git: Git, snapshot: str) -> TreeExtras:
    """Return the part of a snapshot that its tree cannot hold."""
    done = await git.try_run("cat-file", "commit", snapshot)
    return parse_extras(done.out.partition(b"\n\n")[2]) if done.code == 0 else TreeExtras()


async def _changes(git: Git, a: str, b: str) -> dict[str, FileChange]:
    """Return the differences from tree `a` to tree `b` by path, without nested repositories."""
    output = await git.run("diff-tree", "-r", "-z", "--no-renames", "--no-abbrev", a, b)
    fields = output.split(b"\0")
    changes = {}
    for entry, name in zip(fields[0::2], fields[1::2], strict=False):
        old_mode, new_mode, old, new, _ = entry.decode().lstrip(":").split(" ")
        if NESTED in {old_mode, new_mode}:
            continue
        before = None if old_mode == ABSENT else old
        after = None if new_mode == ABSENT else new
        mode_changed = before is not None and after is not None and old_mode != new_mode
        path = os.fsdecode(name)
        changes[path] = FileChange(
            path=quoted_path(path),
            before=before,
            after=after,
            mode=old_mode if after is None else new_mode,
            mode_before=old_mode if mode_changed else "",
        )
    return changes


async def _effects(git: Git, a: str, b: str) -> FileEffects:
    changes = await _changes(git, a, b)
    before, after = await _extras(git, a), await _extras(git, b)
    modes: dict[str, tuple[str, str]] = {}
    for name, change in changes.items():
        old_mode = (change.mode_before or change.mode) if change.before else ""
        modes[name] = (old_mode, change.mode if change.after else "")
    if before != after:
        output = await git.run("ls-tree", "-r", "-z", "--full-tree", b)
        present: dict[str, str] = {}
        for line in filter(None, output.split(b"\0")):
            head, _, path = line.partition(b"\t")
            mode = head[:6].decode()
            if mode != NESTED:
                present[os.fsdecode(path)] = mode
        unchanged = before.odd() | after.odd()
        if (before.plain, before.executable) != (after.plain, after.executable):
            unchanged |= present.keys()
        for name in unchanged - modes.keys():
            mode = present.get(name, "")
            modes[name] = (mode, mode)
    attributes = []
    for name, (old_mode, new_mode) in sorted(modes.items()):
        old, new = before.at(name, old_mode), after.at(name, new_mode)
        if old != new:
            attributes.append(FileAttribute(path=quoted_path(name), before=old, after=new))
    return FileEffects(tuple(changes.values()), tuple(attributes))


ABSENT, LINK_MODE, EXECUTABLE_MODE = "000000", "120000", "100755"
RETRY_HINT = "clear what is in the way, then undo again"


@dataclass(frozen=True)
class RestorePlan:
    """A plan to restore files: it takes back the changes that still stand. `effects` are the
    changes to files that are as they were left. `conflicts` are the paths that were changed since,
    and `beside` are those among them that no snapshot holds. There is no copy of `unkept` (large
    files) and of `nested` repositories.
    """

    effects: FileEffects = NO_EFFECTS
    conflicts: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    unkept: tuple[str, ...] = ()
    nested: tuple[str, ...] = ()


def _state_of(root: Path, name: str, hash_name: str) -> tuple[str | None, str]:
    path = _inside(root, name)
    if through_link(root, path):
        return None, ""  # what is behind the link is not ours
    try:
        return file_state(path, hash_name)
    except OSError as error:
        raise StorageError(
            f"{path} cannot be read: {error.strerror}", hint="make it readable, then do this again"
        ) from error


def _is_as_left(blob: str | None, mode: str, change: FileChange) -> bool:
    """Return whether the file is as the change left it. The mode of a file that no snapshot holds
    is unknown.
    """
    if blob != change.after:
        return False
    return change.after is None or change.beside or mode == change.mode


async def restore_files(
    root: Path, effects: FileEffects, contents: BlobReader, git: Git | None
) -> tuple[str, ...]:
    """Restore files as they were before these effects. Return the paths that changed, as the os
    module gives them.

    `git` tells which files are ignored; None outside a repository. Ignore rules are restored first:
    a file that they ignore is not deleted. Raises StorageError if something could not be restored,
    after everything else was; it is safe to run this again.
    """
    removed = []
    for attribute in effects.attributes:
        is_made = _made_folder_or_pipe(attribute)
        if is_made and remove_folder_or_pipe(_inside(root, attribute.path), root):
            removed.append(attribute.path)
    rules: list[FileChange] = []
    others: list[FileChange] = []
    for change in effects.changes:
        is_rule = _inside(root, change.path).name == ".gitignore"
        (rules if is_rule else others).append(change)
    failed = await _apply(root, rules, contents)
    new_files = [change for change in others if change.before is None and not change.beside]
    ignored = await _ignored(git, new_files)
    restored = [change for change in others if change.path not in ignored]
    failed += await _apply(root, restored, contents)
    attributes = [attribute for attribute in effects.attributes if attribute.path not in ignored]
    with_attributes, failed_attributes = _restore_attributes(root, attributes)
    failed += failed_attributes
    count = len(rules) + len(restored) + len(effects.attributes)
    if failed:
        raise StorageError(
            f"{len(failed)} of {count} files could not be put back: {'; '.join(failed[:3])}",
            hint=RETRY_HINT,
        )
    changed = [change.path for change in rules + restored]
    return tuple(dict.fromkeys([*changed, *removed, *with_attributes]))


def _made_folder_or_pipe(attribute: FileAttribute) -> bool:
    """Return whether the change made a folder or a pipe."""
    return attribute.after == EMPTY_FOLDER or attribute.after.startswith("pipe")


def _restore_attributes(
    root: Path, attributes: Sequence[FileAttribute]
) -> tuple[list[str], list[str]]:
    """Restore modes, empty folders and pipes after the files. Return the changed paths and the
    failures.
    """
    done, failed = [], []
    for attribute in attributes:
        try:
            if apply_attribute(_inside(root, attribute.path), attribute.before):
                done.append(attribute.path)
        except OSError as error:
            failed.append(f"{attribute.path} ({error.strerror})")
    return done, failed


async def _ignored(git: Git | None, changes: Sequence[FileChange]) -> Collection[str]:
    """Return the files that the present rules ignore."""
    if not changes or git is None:
        return frozenset()
    # ./: no name is a pathspec
    stdin = b"".join(
        b"./" + os.fsencode(paths.unquoted_path(change.path)) + b"\0" for change in changes
    )
    done = await git.try_run("check-ignore", "--no-index", "-z", "--stdin", stdin=stdin)
    if done.code > 1:
        raise StorageError(
            f"git could not tell which files are ignored: {done.err}", hint="nothing was deleted"
        )
    return frozenset(paths.quoted_path(name.removeprefix("./")) for name in split_names(done.out))


async def _apply(root: Path, changes: Sequence[FileChange], contents: BlobReader) -> list[str]:
    """Apply changes, deletions first, so that a folder and a file can take each other's place.
    Return the failures.
    """
    failed = []
    for change in sorted(changes, key=lambda change: change.before is not None):
        path = _inside(root, change.path)
        try:
            if change.before is None:
                _delete(root, path, folders=not change.beside)
            else:
                await _write_back(root, path, change, await contents.read(change.before))
        except (OSError, StorageError) as error:
            failed.append(f"{change.path} ({getattr(error, 'strerror', None) or error})")
    return failed


def _delete(root: Path, path: Path, *, folders: bool) -> None:
    """Delete a file. `folders`: also the folders that are then empty."""
    if through_link(root, path):
        return  # its folder is a link now: what is behind it is not ours
    with (
        contextlib.suppress(FileNotFoundError, NotADirectoryError),
        resolved_folder(path.parent) as folder,
    ):
        (folder / path.name).unlink()
    if folders:
        remove_empty_folders(path.parent, root)


def _inside(root: Path, name: str) -> Path:
    """Return the path of a change. `name` is as recorded."""
    return root / paths.unquoted_path(name)


def through_link(root: Path, path: Path) -> bool:
    """Return whether a folder between the root and the path is a link."""
    return any(folder.is_symlink() for folder in path.parents if root in folder.parents)


async def _write_back(root: Path, path: Path, change: FileChange, data: bytes) -> None:
    """Restore content and mode of a file in one step, so that nobody sees one without the other."""
    if through_link(root, path):
        raise OSError(0, "its folder is a link")
    mode = change.mode_before or change.mode
    if mode == LINK_MODE:
        link_atomically(path, os.fsdecode(data))
        return
    is_new = not path.is_file() or path.is_symlink()
    if change.beside:
        bits = change.permissions or None if is_new else None
    elif is_new:
        bits = EXECUTABLE_BITS if mode == EXECUTABLE_MODE else PLAIN_BITS
    else:
        bits = _bits_as(mode, path.stat().st_mode & 0o7777)
        if change.before == change.after:
            with resolved_entry(path) as entry:
                entry.chmod(bits)
            return
    with resolved_folder(path.parent, make=True) as folder:
        write_atomically(path, data, bits, folder)


def _bits_as(mode: str, bits: int) -> int:
    """Return `bits` with or without the right to execute, as git's `mode` says."""
    if (mode == EXECUTABLE_MODE) == bool(bits & 0o100):
        return bits
    return executable_bits(bits, mode == EXECUTABLE_MODE)
