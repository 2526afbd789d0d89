"""The files that fugu read for a small model before its first reply of an attempt. Pure."""

from __future__ import annotations

from fugu_cli import views
from fugu_cli.loop.opening import opening_ids, path_of

ROOM = 24_000
"""Characters of all files that a small model is shown: some 7,000 tokens, with its answer what its context holds."""


def files_shown(turn: views.Turn) -> dict[str, str]:
    """Path -> content of the files fugu read when the turn opened; of a long one functions may be shown, not all."""
    return {path: content for path, content in files_read(turn).items() if not is_long(content)}


def files_read(turn: views.Turn) -> dict[str, str]:
    """The same with the long ones."""
    opening = opening_ids(turn)
    read = [run for run in turn.runs if run.permitted.call.id in opening and run.permitted.call.tool == "read"]
    return {path_of(run) or "": run.result.output for run in read if run.evidence and run.result and run.result.ok}


def is_long(content: str) -> bool:
    """A small model is not shown such a file whole."""
    return len(content) > ROOM
