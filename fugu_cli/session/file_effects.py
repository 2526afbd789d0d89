"""Changes to files: contents, modes and attributes before and after, work taken over from a copy,
and work taken back. Pure values.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Literal, NamedTuple

from fugu_cli.messages import Value

THE_TESTS = "the tests"
"""The words for the command that ran when a file changed during a test run."""


class FileChange(Value):
    """A change of a file: the git blob ids before and after it, None if the file did not exist.
    `mode` is the file's mode after the change, or before it if the file is gone.
    """

    path: str
    before: str | None
    after: str | None
    mode: str = "100644"
    mode_before: str = ""
    """The mode before, if it was different."""
    beside: bool = False
    """No snapshot holds the file, because git ignores it or it lies outside the repository. One of
    fugu's own tools wrote it.
    """
    permissions: int = 0
    """The permission bits of a deleted file that no snapshot holds; 0 if unknown."""
    sparse: bool = False
    """git tracked the file, and a sparse checkout had left it out of the working tree."""
    while_ran: str = ""
    """The command that ran while the file changed, if the user may have changed it instead."""

    @property
    def back(self) -> FileChange:
        """The reverse change."""
        modes = {"mode": self.mode_before, "mode_before": self.mode} if self.mode_before else {}
        return self.model_copy(update={"before": self.after, "after": self.before, **modes})


class FileAttribute(Value):
    """A state that a git tree cannot hold, before and after.

    Permission bits, an empty folder, a named pipe, a file too large to keep (`large BYTES TIME`),
    or a nested repository (`repository STATE`). "" for a file with the usual bits, and for nothing.
    """

    path: str
    before: str
    after: str
    while_ran: str = ""
    """The same as `FileChange.while_ran`."""

    @property
    def back(self) -> FileAttribute:
        """The reverse change."""
        return self.model_copy(update={"before": self.after, "after": self.before})

    @property
    def large(self) -> bool:
        """True for a file that was too large to be copied."""
        return self.before.startswith("large ") or self.after.startswith("large ")

    @property
    def nested(self) -> bool:
        """True for a nested repository or submodule, of which no copy was kept."""
        return self.before.startswith("repository ") or self.after.startswith("repository ")


class FileEffects(NamedTuple):
    """Changes to files, in order."""

    changes: tuple[FileChange, ...] = ()
    attributes: tuple[FileAttribute, ...] = ()

    @property
    def back(self) -> FileEffects:
        """The reverse change."""
        return FileEffects(
            tuple(change.back for change in reversed(self.changes)),
            tuple(attribute.back for attribute in reversed(self.attributes)),
        )

    @property
    def unclaimed(self) -> dict[str, str]:
        """The command that ran while each path changed, for changes that may be the user's."""
        changed = {change.path: change.while_ran for change in self.changes}
        attributes = {attribute.path: attribute.while_ran for attribute in self.attributes}
        marked = attributes | changed
        return {path: while_ran for path, while_ran in marked.items() if while_ran}

    @property
    def paths(self) -> tuple[str, ...]:
        """The path of each effect."""
        changed = [change.path for change in self.changes]
        return (*changed, *(attribute.path for attribute in self.attributes))

    def without(self, paths: Collection[str]) -> FileEffects:
        """Return the effects on all other paths."""
        return FileEffects(
            tuple(change for change in self.changes if change.path not in paths),
            tuple(attribute for attribute in self.attributes if attribute.path not in paths),
        )

    @property
    def net(self) -> FileEffects:
        """The effects with one change for each path."""
        return FileEffects(
            tuple(net_changes(self.changes).values()), tuple(net_attributes(self.attributes))
        )


NO_EFFECTS = FileEffects()
"""Nothing was done to any file."""


def net_attributes(attributes: Iterable[FileAttribute]) -> list[FileAttribute]:
    """Merge the attributes, in the order they were set, into one for each path. Paths that are as
    before are left out.
    """
    net: dict[str, FileAttribute] = {}
    for attribute in attributes:
        first = net.get(attribute.path, attribute)
        while_ran = attribute.while_ran or first.while_ran
        net[attribute.path] = attribute.model_copy(
            update={"before": first.before, "while_ran": while_ran}
        )
    return [attribute for attribute in net.values() if attribute.before != attribute.after]


def net_changes(changes: Iterable[FileChange]) -> dict[str, FileChange]:
    """Merge the changes, in the order they were made, into one for each path. Paths that are as
    before are left out.
    """
    net: dict[str, FileChange] = {}
    for change in changes:
        first = net.get(change.path, change)
        mode = (first.mode_before or first.mode) if first.before else change.mode
        update = {
            "before": first.before,
            "mode_before": mode if mode != change.mode else "",
            "while_ran": change.while_ran or first.while_ran,
            "sparse": first.sparse,
        }
        net[change.path] = change.model_copy(update=update)
    return {
        path: change
        for path, change in net.items()
        if change.before != change.after or (change.after and change.mode_before)
    }


class Merged(Value):
    """Several agents did the same job, each in its own worktree, and the work of one was taken
    over.

    `chosen` is its turn, 0 if no work was good enough. `diffs` are (turn, unified diff, clipped) of
    all of them. `again`: the work is thrown away and the step done again, because it wrote a file
    of a parallel step.
    """

    type: Literal["merged"] = "merged"
    plan: int
    turns: tuple[int, ...]
    chosen: int = 0
    reason: str = ""
    again: bool = False
    open: bool = False
    """Not yet decided: a later step of the plan reads the diffs and chooses."""
    diffs: tuple[tuple[int, str], ...] = ()
    changes: tuple[FileChange, ...] = ()
    left: tuple[str, ...] = ()
    """Paths of the chosen work that were left alone: they are not as they were when it began."""

    @property
    def effects(self) -> FileEffects:
        """The changes that were taken over."""
        return FileEffects(self.changes)


class Undone(Value):
    """Files were restored to an earlier state.

    `undo`, `redo`: by the user, between requests. `rollback`: in older logs, by fugu, because the
    work of an attempt failed the tests. The attempt stays in the turn's events and is paid for; the
    agent tries again and does not read it.
    """

    type: Literal["undone"] = "undone"
    snapshot: str | None
    """The snapshot that was restored when an attempt was rolled back."""
    kind: Literal["undo", "redo", "rollback"] = "undo"
    turn: int = 0
    """The turn whose attempt was rolled back; 0 for an undo or redo."""
    reason: str = ""
    """Why an attempt was rolled back."""
    paths: tuple[str, ...] = ()
    changes: tuple[FileChange, ...] = ()
    attributes: tuple[FileAttribute, ...] = ()
    left: tuple[str, ...] = ()
    """Files of the request that were left alone: changed since."""
    unkept: tuple[str, ...] = ()
    """Files of the request that were left alone: too large to have been copied."""
    nested: tuple[str, ...] = ()
    """Nested repositories that commands of the request changed: no copy is kept of them."""
    kept: tuple[str, ...] = ()
    """Files that changed while a command ran, and that the user kept as they are."""
    moved: tuple[str, ...] = ()
    """Sentences on files that the sandbox moved away while the request ran, perhaps the user's."""

    @property
    def effects(self) -> FileEffects:
        """The changes that put the files back."""
        return FileEffects(self.changes, self.attributes)

    @property
    def words(self) -> str:
        """The reason, and the files that were left alone."""
        why = {"undo": "undone by the user", "redo": "redone by the user"}.get(
            self.kind, self.reason
        )
        return "; ".join(part for part in (why, self.left_words) if part)

    @property
    def left_words(self) -> str:
        """A clause about files that were left alone, and why; "" if none were."""
        groups = (
            ("left alone, because they were changed since", self.left),
            (
                "left alone, because files so large are not copied before a command",
                self.unkept,
            ),
            ("left alone, because it is a repository of its own", self.nested),
            ("kept, as you wanted", self.kept),
        )
        clauses = [f"{reason}: {', '.join(paths)}" for reason, paths in groups if paths]
        return "; ".join([*clauses, *self.moved])

    @property
    def is_partial(self) -> bool:
        """True if files were left alone although the user did not ask to keep them."""
        return bool(self.left or self.unkept or self.nested)

    @property
    def exception(self) -> str:
        """A sentence for agents about the files that were left alone. It follows another sentence."""
        return f" But: {self.left_words}." if self.left_words else ""


class UndoStarted(Value):
    """Files are about to be restored as `planned`. If no Undone follows, that was interrupted.
    `snapshot` holds the files as they were then, None outside git.
    """

    type: Literal["undo_started"] = "undo_started"
    planned: Undone
    snapshot: str | None = None
