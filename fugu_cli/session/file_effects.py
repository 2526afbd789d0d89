"""What was done to files: contents, modes and other attributes, each as it was before and after. Pure values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from fugu_cli.messages import Value


class FileChange(Value):
    """A file a tool changed: git blob ids before and after; None where it did not exist. `mode` is the one it has, or
    had.

    `beside`: no snapshot holds the file (git ignores it, or it lies in another repository or outside): a tool of fugu's
    own wrote it.
    """

    path: str
    before: str | None
    after: str | None
    mode: str = "100644"
    mode_before: str = ""
    """Where it was another."""
    beside: bool = False
    permissions: int = 0
    """Bits that a deleted file had, for one that no snapshot holds; 0 where nobody knows."""

    @property
    def back(self) -> FileChange:
        """What takes it back."""
        modes = {"mode": self.mode_before, "mode_before": self.mode} if self.mode_before else {}
        return self.model_copy(update={"before": self.after, "after": self.before, **modes})


class FileAttribute(Value):
    """What a git tree cannot hold of a path, before and after: permission bits, an empty folder, a named pipe, a file
    too large to keep (`large BYTES TIME`), a nested repository (`repository STATE`). "" for a file with the usual bits,
    and for nothing."""

    path: str
    before: str
    after: str

    @property
    def back(self) -> FileAttribute:
        """What takes it back."""
        return self.model_copy(update={"before": self.after, "after": self.before})

    @property
    def large(self) -> bool:
        """It tells of a file of which no copy was kept."""
        return self.before.startswith("large ") or self.after.startswith("large ")

    @property
    def nested(self) -> bool:
        """It tells of a nested repository, a submodule perhaps, of which no copy was kept."""
        return self.before.startswith("repository ") or self.after.startswith("repository ")


class FileEffects(NamedTuple):
    """What was done to files, in the order it was done."""

    changes: tuple[FileChange, ...] = ()
    attributes: tuple[FileAttribute, ...] = ()

    @property
    def back(self) -> FileEffects:
        """What takes it back."""
        changes, attributes = reversed(self.changes), reversed(self.attributes)
        return FileEffects(tuple(one.back for one in changes), tuple(one.back for one in attributes))

    @property
    def net(self) -> FileEffects:
        """One change for each path."""
        return FileEffects(tuple(net_changes(self.changes).values()), tuple(net_attributes(self.attributes)))


NO_EFFECTS = FileEffects()
"""Nothing was done to any file."""


def net_attributes(attributes: Iterable[FileAttribute]) -> list[FileAttribute]:
    """Attributes in the order they were set as one for each path; none for what is as it was."""
    found: dict[str, FileAttribute] = {}
    for one in attributes:
        found[one.path] = one.model_copy(update={"before": found.get(one.path, one).before})
    return [one for one in found.values() if one.before != one.after]


def net_changes(changes: Iterable[FileChange]) -> dict[str, FileChange]:
    """Changes in the order they were made as one for each path; none for what is as it was."""
    made: dict[str, FileChange] = {}
    for change in changes:
        first = made.get(change.path, change)
        mode = (first.mode_before or first.mode) if first.before else change.mode
        update = {"before": first.before, "mode_before": mode if mode != change.mode else ""}
        made[change.path] = change.model_copy(update=update)
    return {path: one for path, one in made.items() if one.before != one.after or (one.after and one.mode_before)}
