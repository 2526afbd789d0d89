"""The changes of a folder outside git, from snapshots in a temporary store."""

from __future__ import annotations

import asyncio
import glob
import os
from collections.abc import Sequence
from pathlib import Path

from fugu_cli.errors import StorageError
from fugu_cli.safety.git_process import git_program
from fugu_cli.snapshots.file_history import FileHistory
from fugu_cli.snapshots.git_repositories import Repository, prepare_shadow_repository
from fugu_cli.system.atomic_files import write_atomically

SNAPSHOT_SECONDS = 20.0
"""Time for the first snapshot; a folder that takes longer is too large to be compared."""


class PlainFolder:
    """The earlier state of a folder outside git, to compare its present state with."""

    def __init__(self, history: FileHistory, before: str) -> None:
        self._history = history
        self._before = before

    @classmethod
    async def begin(cls, root: Path, store: Path, excluded: Sequence[Path]) -> PlainFolder:
        """Take the first snapshot of `root`, without the folders `excluded`. Raises StorageError."""
        if git_program(root) is None:
            raise StorageError("the program git cannot be found")
        empty = Repository(root, store / "empty", store / "empty")
        prepare_shadow_repository(empty.folder, empty, "")
        rules = "".join(
            f"/{glob.escape(str(path.relative_to(root)))}/\n"
            for path in excluded
            if path != root and path.is_relative_to(root)
        )
        write_atomically(empty.folder / "info" / "exclude", os.fsencode(rules))
        history = FileHistory(root, store / "snapshots", empty)
        try:
            async with asyncio.timeout(SNAPSHOT_SECONDS):
                before = await history.snapshot()
        except TimeoutError as error:
            raise StorageError(f"{root} cannot be read in {SNAPSHOT_SECONDS:g} s") from error
        assert before is not None
        return cls(history, before)

    async def changes(self) -> tuple[bytes, frozenset[str]]:
        """Return the changes since the first snapshot as a diff that `git apply` takes, and their
        paths. Raises StorageError.
        """
        after = await self._history.snapshot()
        assert after is not None
        patch = await self._history.patch(self._before, after, whole=True)
        effects = await self._history.effects_between(self._before, after)
        return patch, frozenset(change.path for change in effects.changes)
