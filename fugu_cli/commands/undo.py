"""`fugu undo` and `fugu redo`: the files as they stood before the newest request, and back."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from fugu_cli import sessions, undoing, wiring
from fugu_cli.commands.here import here, newline
from fugu_cli.errors import UsageError
from fugu_cli.events import Undone
from fugu_cli.log import Log
from fugu_cli.tools.workspace import Workspace
from fugu_cli.ui.ask import typed
from fugu_cli.ui.headless import coloured_diff
from fugu_cli.ui.screen import Screen


@dataclass(frozen=True)
class _Way:
    """Back or forth: what it is called, what it would change, and doing it."""

    name: str
    preview: Callable[[Log, Workspace], Awaitable[str]]
    go: Callable[[Log, Workspace], Awaitable[Undone]]


_BACK = _Way("undo", undoing.undo_preview, undoing.undo)
_FORTH = _Way("redo", undoing.redo_preview, undoing.redo)


def undo(session: str, yes: bool) -> int:
    """Ask, unless `yes`, then put the files back. Raises UsageError where it cannot ask or edits would be lost."""
    return asyncio.run(_go(_BACK, session, yes))


def redo(session: str, yes: bool) -> int:
    """Ask, unless `yes`, then bring back what the newest undo took. Raises UsageError likewise."""
    return asyncio.run(_go(_FORTH, session, yes))


async def _go(way: _Way, session: str, yes: bool) -> int:
    loaded = here()
    path = sessions.find(loaded.config.data, loaded.root, session)
    log = Log.open(path)
    try:
        workspace = wiring.build_workspace(loaded.config, loaded.root, logs=(path,))
        try:
            patch = await way.preview(log, workspace)
        except undoing.Nothing as nothing:
            newline(f"{nothing}: {nothing.hint}")
            return 0
        if not await _agreed(way.name, patch, yes):
            return 4
        done = await way.go(log, workspace)
    finally:
        log.close()
    newline(f"{_files_in_words(len(done.paths))} put back; `fugu run --continue` knows about it")
    if done.left:
        newline(done.reason.partition("; ")[2])
    return 3 if done.left else 0


async def _agreed(name: str, patch: str, yes: bool) -> bool:
    """What is asked must be seen, and Ctrl-C is an answer: at once, which a blocking `readline` would not be."""
    screen = Screen()
    for line in coloured_diff(patch):
        screen.show(line)
    if yes:
        return True
    if not (sys.stdin is not None and sys.stdin.isatty() and screen.err.terminal):
        raise UsageError(f"{name} asks before it changes files, and there is no terminal", hint="add --yes")
    screen.err.raw("put these files back? [y/N] ")
    return (await typed()).strip().lower() in {"y", "yes"}


def _files_in_words(count: int) -> str:
    return "1 file was" if count == 1 else f"{count} files were"
