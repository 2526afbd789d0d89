"""`fugu blame`: who wrote each line of a file, or of what a session changed, and what that took. Changes nothing."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

from fugu_cli import blame as blames
from fugu_cli import log, sessions, views, wiring
from fugu_cli.commands.flags import Shape
from fugu_cli.commands.here import here
from fugu_cli.commands.printing import show
from fugu_cli.config_files import Loaded
from fugu_cli.errors import StorageError, UsageError
from fugu_cli.policy import paths
from fugu_cli.tools.workspace import Workspace
from fugu_cli.ui import blame as shown
from fugu_cli.views.blame import edits, together

WITHOUT = "`fugu blame` without a path shows what the newest session changed"


def blame(path: Path | None, session: str | None, shape: Shape) -> int:
    """Print it. Raises UsageError for a file or a session that is not there or is no text."""
    loaded = here()
    workspace = wiring.build_workspace(loaded.config, loaded.root)
    mask = workspace.mask or str
    if path is None:
        made = asyncio.run(blames.of_session(workspace, _session(loaded, session or "latest")))
        if shape == Shape.json:
            print(json.dumps(shown.session_object(made, mask), indent=2))
        else:
            show(shown.session_lines(made, mask))
        return 0
    of = _file(loaded, workspace, path, session)
    if shape == Shape.json:
        print(json.dumps(shown.file_object(of, mask), indent=2))
    else:
        show(shown.file_lines(of, mask))
    return 0


def _file(loaded: Loaded, workspace: Workspace, path: Path, session: str | None) -> blames.FileBlame:
    every = _sessions(loaded) if session is None else [_session(loaded, session)]
    found = Path(os.path.realpath(path))
    if not paths.inside(found, workspace.root):
        raise UsageError(f"{path} is not in {workspace.root}", hint="call `fugu blame` in the file's own repository")
    name = paths.shown(found.relative_to(workspace.root).as_posix())
    if found.is_dir():
        raise UsageError(f"{path} is a folder", hint=f"name a file; {WITHOUT}")
    if not found.exists():
        raise UsageError(f"there is no file {path}{_deleted(name, every)}", hint=WITHOUT)
    try:
        made = asyncio.run(blames.of_file(workspace, name, every))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", hint="check the file's permissions") from error
    if any(b"\0" in line.text for line in made.lines):
        raise UsageError(f"{path} is binary and has no lines", hint=WITHOUT)
    return made


def _deleted(name: str, every: list[blames.Named]) -> str:
    """Who deleted it, where that was an agent."""
    found = together(edit for session in every for edit in edits(*session))
    newest = next(((e, c) for e in reversed(found) for c in e.changes if c.path == name), None)
    if newest is None or newest[1].after is not None:
        return ""
    author = newest[0].author
    return f": {author.agent} deleted it in request {author.request}, turn {author.turn} of session {author.session}"


def _sessions(loaded: Loaded) -> list[blames.Named]:
    """All of this folder, the oldest first. What cannot be read is said and left out."""
    found: list[blames.Named] = []
    for path in sorted(sessions.paths(loaded.config.data, loaded.root)):
        try:
            found.append((path.stem, log.read(path)))
        except StorageError as error:
            print(f"fugu: left out: {error}", file=sys.stderr)
    return found


def _session(loaded: Loaded, key: str) -> blames.Named:
    path = sessions.find(loaded.config.data, loaded.root, key)
    records = log.read(path)
    first = views.opened([record.event for record in records])
    if first is None or views.asked([record.event for record in records]) is None:
        raise UsageError(f"nothing was asked in the session {path.stem} yet", hint="`fugu sessions` lists others")
    if Path(first.repo) != loaded.root:
        raise UsageError(
            f"the session {path.stem} worked in {first.repo}, not in {loaded.root}",
            hint="call `fugu blame` in that folder",
        )
    return path.stem, records
