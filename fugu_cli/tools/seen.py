"""Which contents of files this process has shown to an agent or written for one.

The workspace holds one. A file that is there and was never shown, or has changed since, is not overwritten: whoever
changed it in between would lose their work.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from fugu_cli.policy.paths import there
from fugu_cli.tools.result import Result

OUTDATED = "was changed since it was read"


class Seen:
    """Digests by resolved path."""

    def __init__(self) -> None:
        self._digests: dict[Path, bytes] = {}

    def note(self, path: Path, data: bytes) -> None:
        """The agent knows that `path` holds `data`."""
        self._digests[path] = _digest(data)

    def note_file(self, path: Path) -> None:
        """The agent knows (a part of) what `path` holds now; for files too large to hold in memory."""
        with path.open("rb") as file:
            self._digests[path] = hashlib.file_digest(file, "sha256").digest()

    def recall(self, path: Path, at: float) -> None:
        """The agent saw or wrote `path` at `at` (seconds since the epoch), in a process that is gone.

        Counts only when the file was not written since.
        """
        if there(path) and path.is_file() and path.stat().st_mtime <= at:
            self.note_file(path)

    def refresh(self, path: Path) -> None:
        """fugu itself has put `path` to another state: known files stay known."""
        if path in self._digests:
            if path.is_file():
                self._digests[path] = _digest(path.read_bytes())
            else:
                del self._digests[path]

    def knows(self, path: Path) -> bool:
        """`path` was read or written in this process."""
        return path in self._digests

    def changed_outside(self, path: Path, data: bytes) -> bool:
        """`path`, which now holds `data`, is not as it was last seen."""
        return self.knows(path) and self._digests[path] != _digest(data)

    def refusal(self, path: Path, data: bytes, name: str) -> Result | None:
        """Why `path`, which now holds `data`, must not be overwritten; None when it may. `name` is how to call it."""
        if not self.knows(path):
            return Result(text=f"{name} exists and was not read yet. Read it first, then change it.", ok=False)
        if self.changed_outside(path, data):
            return Result(text=f"{name} {OUTDATED}. Read it again, then change it.", ok=False)
        return None


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()
