"""`fugu blame`: who wrote each line of a file, or of what a session changed, and what that took. Changes nothing."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from fugu_cli import blame as blames
from fugu_cli import sessions, views, wiring
from fugu_cli.commands.flags import Shape
from fugu_cli.commands.here import facts, here, say
from fugu_cli.commands.printing import show
from fugu_cli.config.files import Loaded
from fugu_cli.errors import StorageError, UsageError
from fugu_cli.ui import blame as shown


def blame(path: Path | None, session: str | None, shape: Shape) -> int:
    """Print it. Raises UsageError for a file or a session that is not there or is no text."""
    loaded = here()
    logs = sessions.paths(loaded.config.data, loaded.root)
    workspace = wiring.build_workspace(loaded.config, loaded.root, logs=logs)
    mask = workspace.mask or str
    if path is None:
        made = asyncio.run(blames.of_session(workspace, _session(loaded, session or "latest")))
        if shape == Shape.json:
            print(json.dumps(shown.session_object(made, mask), indent=2))
        else:
            show(shown.session_lines(made, mask))
        return 0
    every = _sessions(loaded) if session is None else [_session(loaded, session)]
    of = asyncio.run(blames.of_path(workspace, path, every))
    if shape == Shape.json:
        print(json.dumps(shown.file_object(of, mask), indent=2))
    else:
        show(shown.file_lines(of, mask))
    return 0


def _sessions(loaded: Loaded) -> list[blames.Named]:
    """All of this folder, the oldest first. What cannot be read is said and left out."""
    found: list[blames.Named] = []
    for path in sessions.paths(loaded.config.data, loaded.root):
        try:
            found.append((path.stem, facts(path)))
        except StorageError as error:
            say(f"left out: {error}")
    # by their first lines: names of two that began in the same second say nothing of which was first
    return sorted(found, key=lambda named: (named[1][0].at if named[1] else 0.0, named[0]))


def _session(loaded: Loaded, key: str) -> blames.Named:
    path = sessions.find(loaded.config.data, loaded.root, key)
    records = facts(path)
    first = views.opened([record.event for record in records])
    if first is None or views.asked([record.event for record in records]) is None:
        raise UsageError(f"nothing was asked in the session {path.stem} yet", hint="`fugu sessions` lists others")
    if first.repo != sessions.place(loaded.root):
        raise UsageError(
            f"the session {path.stem} worked in {first.repo}, not in {loaded.root}",
            hint="call `fugu blame` in that folder",
        )
    return path.stem, records
