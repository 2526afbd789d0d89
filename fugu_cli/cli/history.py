"""Commands about the work of a session: `fugu trace`, `fugu blame`, `fugu undo`."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from fugu_cli import wiring
from fugu_cli.cli.current_folder import current_config, print_clean, read_records, say
from fugu_cli.cli.interface import has_terminal, is_screen_visible, supports_fullscreen
from fugu_cli.cli.output import print_lines
from fugu_cli.config.loader import LoadedConfig
from fugu_cli.engine import blame as blames
from fugu_cli.engine import recovery
from fugu_cli.engine import undo as engine_undo
from fugu_cli.engine.commit_blame import add_noted_authors
from fugu_cli.errors import StorageError, UsageError
from fugu_cli.formatting import first_line
from fugu_cli.safety.paths import is_folder
from fugu_cli.session import store
from fugu_cli.session.events import Recorded, ToolRan
from fugu_cli.session.log import Log
from fugu_cli.session.state import SessionState
from fugu_cli.tools.diff import change_diffs
from fugu_cli.tools.workspace import Workspace
from fugu_cli.ui import blame_text as shown
from fugu_cli.ui import trace as plain
from fugu_cli.ui.headless import coloured_diff, read_typed_line
from fugu_cli.ui.terminal_output import TerminalOutput

if TYPE_CHECKING:
    from fugu_cli.ui.turn_page import TurnSources


def can_open_trace() -> bool:
    """Return whether there is a terminal that can be drawn on."""
    return has_terminal() and is_screen_visible() and supports_fullscreen(os.environ)


def open_trace(session: str) -> int:
    """Show the decisions as the interface does: one row each, each of which can be opened."""
    from fugu_cli.app.session_protocol import InterfaceOptions
    from fugu_cli.ui.tui import run_trace

    loaded = current_config()
    path = store.find_session(loaded.config.data, loaded.root, session)
    records = read_records(path)
    options = InterfaceOptions(state=loaded.config.data / "interface")
    return run_trace(
        records, f"trace of {path.stem}", options, _turn_sources(loaded, path, records)
    )


def _turn_sources(loaded: LoadedConfig, path: Path, records: Sequence[Recorded]) -> TurnSources:
    from fugu_cli.ui.turn_page import TurnSources

    first = SessionState.of_records(records).opened
    root = loaded.root
    if first and is_folder(Path(first.repo)):
        root = Path(first.repo)
    workspace = wiring.build_workspace(loaded.config, root, logs=(path,))

    def patch_of(ran: ToolRan) -> str:
        """Return the diff of a call. The workspace runs in a loop of its own, because the screen's
        is busy.
        """
        with ThreadPoolExecutor(1) as thread:
            diffs = thread.submit(asyncio.run, change_diffs(workspace, ran.changes)).result()
        return "".join(diffs.values())

    return TurnSources(patch_of=patch_of)


def print_trace(session: str, turn: int | None, request: int | None, as_json: bool) -> int:
    """Print the session's table, one turn of it in full, or all as JSON."""
    if request is not None and turn is None:
        raise UsageError("--request needs --turn", hint="fugu trace SESSION --request 1 --turn 2")
    if as_json and turn is not None:
        raise UsageError(
            "--json and --turn exclude one another", hint="the JSON document holds every turn"
        )
    loaded = current_config()
    path = store.find_session(loaded.config.data, loaded.root, session)
    records = read_records(path)
    if turn is not None:
        from fugu_cli.ui.session_totals import FoldedSession
        from fugu_cli.ui.trace_rows import find_turn
        from fugu_cli.ui.turn_page import turn_text

        row = find_turn(FoldedSession(records).rows.rows, turn, request)
        print(
            turn_text(records, row, _turn_sources(loaded, path, records), min(_width(), TURN_WIDTH))
        )
    elif as_json:
        print(plain.trace_json(records, path.stem))
    else:
        print(plain.trace_text(records, path.stem, _width()))
    return 0


TURN_WIDTH = 120
"""Columns of a turn in full, at most."""


def _width() -> int:
    """Return the terminal's columns, or enough for every table if the output is a file or a pipe."""
    if "COLUMNS" in os.environ:
        return max(shutil.get_terminal_size().columns, 40)
    try:
        return max(os.get_terminal_size(1).columns, 40)
    except OSError:
        return 200


def blame(path: Path | None, session: str | None, shape: str) -> int:
    """Print who wrote the lines of a file, or of a session's changes.

    Raises UsageError if the file or session does not exist or is not text.
    """
    loaded = current_config()
    logs = store.session_paths(loaded.config.data, loaded.root)
    workspace = wiring.build_workspace(loaded.config, loaded.root, logs=logs)
    mask = workspace.mask
    if path is None:
        session_blame = asyncio.run(
            blames.blame_session(workspace, _find_session(loaded, session or "latest"))
        )
        if shape == "json":
            print(json.dumps(shown.session_blame_object(session_blame, mask), indent=2))
        else:
            print_lines(shown.session_blame_lines(session_blame, mask))
        return 0
    sessions = folder_sessions(loaded) if session is None else [_find_session(loaded, session)]

    async def blame_file() -> blames.FileBlame:
        return await add_noted_authors(
            workspace, await blames.blame_path(workspace, path, sessions)
        )

    file_blame = asyncio.run(blame_file())
    if shape == "json":
        print(json.dumps(shown.file_blame_object(file_blame, mask), indent=2))
    else:
        print_lines(shown.file_blame_lines(file_blame, mask))
    return 0


def folder_sessions(loaded: LoadedConfig) -> list[blames.NamedSession]:
    """Return the folder's sessions, the oldest first. Unreadable ones are reported and left out."""
    sessions: list[blames.NamedSession] = []
    for path in store.session_paths(loaded.config.data, loaded.root):
        try:
            sessions.append((path.stem, read_records(path)))
        except StorageError as error:
            say(f"left out: {error}")

    def beginning(session: blames.NamedSession) -> tuple[float, str]:
        """Return the time of the first event, since names are precise to a second only."""
        name, records = session
        return (records[0].at if records else 0.0, name)

    return sorted(sessions, key=beginning)


def _find_session(loaded: LoadedConfig, key: str) -> blames.NamedSession:
    path = store.find_session(loaded.config.data, loaded.root, key)
    records = read_records(path)
    state = SessionState.of_records(records)
    first = state.opened
    if first is None or state.request.asked is None:
        raise UsageError(
            f"nothing was asked in the session {path.stem} yet", hint="`fugu sessions` lists others"
        )
    if first.repo != store.recorded_root(loaded.root):
        raise UsageError(
            f"the session {path.stem} worked in {first.repo}, not in {loaded.root}",
            hint="call `fugu blame` in that folder",
        )
    return path.stem, records


def undo(session: str, yes: bool) -> int:
    """Ask, unless `yes`, then put the files back. Raises UsageError where it cannot ask or edits
    would be lost.
    """
    return asyncio.run(_undo_or_redo("undo", session, yes))


def redo(session: str, yes: bool) -> int:
    """Ask, unless `yes`, then bring back what the newest undo took. Raises UsageError likewise."""
    return asyncio.run(_undo_or_redo("redo", session, yes))


async def _undo_or_redo(action: Literal["undo", "redo"], session: str, yes: bool) -> int:
    preview = engine_undo.undo_preview if action == "undo" else engine_undo.redo_preview
    loaded = current_config()
    path = store.find_session(loaded.config.data, loaded.root, session)
    log = Log.open(path)
    try:
        workspace = wiring.build_workspace(loaded.config, loaded.root, logs=(path,))
        finished = await recovery.finish_interrupted_undo(log, workspace)
        if finished is not None:
            print_clean(recovery.finished_text(finished))
            if finished.kind == action:
                return 3 if finished.is_partial else 0
        try:
            patch = await preview(log, workspace)
        except engine_undo.NothingToUndo as nothing:
            print_clean(f"{nothing}: {nothing.hint}")
            return 0
        if not await _confirm(action, patch, yes):
            return 4
        if action == "redo":
            done = await engine_undo.redo_request(log, workspace)
        else:
            keep = [] if yes else await _paths_to_keep(log, workspace)
            done = await engine_undo.undo_request(log, workspace, keep)
    finally:
        log.close()
    print_clean(f"{_count_files(len(done.paths))} put back; `fugu run --continue` knows about it")
    if done.left_words:
        print_clean(done.left_words)
    return 3 if done.is_partial else 0


def rewind(point: str | None, session: str, *, files: bool, conversation: bool, yes: bool) -> int:
    """Go back to before a request or a turn of it; without one, list them. The conversation goes
    back in a copy of the session, whose id is printed. Raises UsageError where it cannot ask or
    edits would be lost."""
    if files and conversation:
        raise UsageError(
            "--files and --conversation exclude one another", hint="left out, both go back"
        )
    if point is not None:
        return asyncio.run(
            _rewind(point, session, files=not conversation, conversation=not files, yes=yes)
        )
    loaded = current_config()
    records = read_records(store.find_session(loaded.config.data, loaded.root, session))
    for candidate in engine_undo.rewind_points([record.event for record in records]):
        if candidate.turn:
            about = f"  {candidate.agent_and_role}"
        else:
            about = first_line(candidate.asked.said, 100)
        print_clean(f"{candidate.name:<5} {about}")
    return 0


async def _rewind(name: str, session: str, *, files: bool, conversation: bool, yes: bool) -> int:
    loaded = current_config()
    path = store.find_session(loaded.config.data, loaded.root, session)
    done = []
    log = Log.open(path)
    try:
        workspace = wiring.build_workspace(loaded.config, loaded.root, logs=(path,))
        point = engine_undo.find_point(log.events, name)
        if point.turn and not conversation:
            raise UsageError(
                "files alone go back to the beginning of a request", hint="leave --files out"
            )
        patch = await engine_undo.rewind_preview(log, workspace, point) if files else ""
        if patch:
            if not await _confirm("rewind", patch, yes):
                return 4
            done = await engine_undo.rewind_files(log, workspace, point)
    finally:
        log.close()
    if files:
        changed = {path for undone in done for path in undone.paths}
        say(f"{_count_files(len(changed))} put back")
    for undone in done:
        if undone.left_words:
            say(undone.left_words)
    if done:
        say(f"`fugu undo --redo --session {path.stem}` brings them back")
    if conversation:
        copy = store.fork_session(loaded.config.data, loaded.root, path, point.line)
        say(f"{path.stem} stays as it was; a copy that ends before {point.label} is")
        print_clean(copy.stem)
    return 3 if any(undone.is_partial for undone in done) else 0


async def _confirm(name: str, patch: str, yes: bool) -> bool:
    """Show the patch and ask for a yes. Ctrl-C answers at once, which a blocking `readline` would
    prevent.
    """
    screen = TerminalOutput()
    for line in coloured_diff(patch):
        screen.show(line)
    if yes:
        return True
    if not (sys.stdin is not None and sys.stdin.isatty() and screen.err.terminal):
        raise UsageError(
            f"{name} asks before it changes files, and there is no terminal", hint="add --yes"
        )
    screen.err.raw("put these files back? [y/N] ")
    return (await read_typed_line()).strip().lower() in {"y", "yes"}


async def _paths_to_keep(log: Log, workspace: Workspace) -> list[str]:
    """Ask about each file that the user may have changed while a command ran; those that stay."""
    screen, keep = TerminalOutput(), []
    for path, command in (await engine_undo.unclaimed_paths(log, workspace)).items():
        screen.err.raw(f"{path} changed while {command} ran: put it back, too? [y/N] ")
        if (await read_typed_line()).strip().lower() not in {"y", "yes"}:
            keep.append(path)
    return keep


def _count_files(count: int) -> str:
    return "1 file was" if count == 1 else f"{count} files were"
