"""`--output-dir`: what a run leaves for others - the session, the diff, a trajectory, a summary - on every exit.

Written at the end, a crash or Ctrl-C included; whatever of it cannot be made does not keep the rest from being written.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from fugu_cli import atomic
from fugu_cli.errors import UsageError
from fugu_cli.events import RECORDED, Recorded
from fugu_cli.policy.paths import there
from fugu_cli.sessions import LEFT
from fugu_cli.ui.atif import trajectory

SESSION, PATCH, TRAJECTORY, SUMMARY = LEFT


def prepare(folder: Path) -> Path:
    """The folder, made and writable before the run begins. Raises UsageError: better now than after the work.

    One that is made inside a repository is hidden from git: for undo its files would be edits of the user's own.
    """
    try:
        made = not folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
        if made and any(there(place / ".git") for place in folder.resolve().parents):
            (folder / ".gitignore").write_text("*\n", encoding="utf-8")
        probe = folder / f".fugu-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UsageError(
            f"cannot write into --output-dir {folder}: {error.strerror}", hint="give a folder you may write to"
        ) from error
    return folder.resolve()


def write(
    folder: Path, records: Sequence[Recorded], session: str, summary: dict[str, object], patch: bytes
) -> list[str]:
    """All four files. Returns a sentence for each that could not be written."""
    contents = {
        SESSION: b"".join(RECORDED.dump_json(record) + b"\n" for record in records),
        PATCH: patch,
        TRAJECTORY: json.dumps(trajectory(records, session), indent=1).encode() + b"\n",
        SUMMARY: json.dumps(summary, indent=2).encode() + b"\n",
    }
    return [said for name, data in contents.items() if (said := _written(folder / name, data))]


def _written(path: Path, data: bytes) -> str:
    try:
        with atomic.beside(path) as draft:
            draft.write_bytes(data)
    except OSError as error:
        return f"cannot write {path}: {error.strerror}"
    return ""
