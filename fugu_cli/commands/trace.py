"""`fugu trace`: reads a finished or running session; prints its decisions, or opens them in a terminal."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fugu_cli import sessions, views, wiring
from fugu_cli.commands.here import facts, here
from fugu_cli.commands.interface import fullscreen, seen
from fugu_cli.config.files import Loaded
from fugu_cli.contents import diffs
from fugu_cli.errors import UsageError
from fugu_cli.events import Assigned, Change, Event, Member, Recorded, ToolRan
from fugu_cli.messages import Prompt
from fugu_cli.policy.paths import is_folder
from fugu_cli.ui import trace as plain
from fugu_cli.ui import trace_turn
from fugu_cli.ui.rows import Row


def can_be_opened() -> bool:
    """There is somebody to look, and a terminal that can be drawn on."""
    watched = sys.stdin is not None and sys.stdin.isatty() and sys.stdout is not None and sys.stdout.isatty()
    return watched and seen() and fullscreen(os.environ)


def opened(session: str) -> int:
    """Show the decisions as the interface does: one row each, each of which can be opened."""
    from fugu_cli.ui.tui import Options, run_trace
    from fugu_cli.ui.tui.draw.detail import Sources

    loaded = here()
    path = sessions.find(loaded.config.data, loaded.root, session)
    records = facts(path)
    workspace = wiring.build_workspace(loaded.config, _root(loaded, records), logs=(path,))

    def patch_of(ran: ToolRan) -> str:
        """The workspace answers in a loop of its own: the screen's is busy showing this."""
        with ThreadPoolExecutor(1) as thread:
            made = thread.submit(asyncio.run, diffs(workspace, ran.changes)).result()
        return "".join(made.values())

    def prompt_of(events: Sequence[Event], member: Member) -> Prompt:
        return wiring.harness(member).prompt(events, member, (), "")

    options = Options(state=loaded.config.data / "interface")
    return run_trace(records, f"trace of {path.stem}", options, Sources(prompt_of, patch_of))


def trace(session: str, turn: int | None, request: int | None, as_json: bool) -> int:
    """Print the session's table, one turn of it in full, or all as JSON."""
    if request is not None and turn is None:
        raise UsageError("--request needs --turn", hint="fugu trace SESSION --request 1 --turn 2")
    if as_json and turn is not None:
        raise UsageError("--json and --turn exclude one another", hint="the JSON document holds every turn")
    loaded = here()
    path = sessions.find(loaded.config.data, loaded.root, session)
    records = facts(path)
    if turn is not None:
        print(asyncio.run(_turn(loaded, path, records, trace_turn.find(records, turn, request))))
    elif as_json:
        print(plain.as_json(records, path.stem))
    else:
        print(plain.text(records, path.stem, _width()))
    return 0


def _width() -> int:
    """The terminal's columns; wide enough for every table where the output is a file or a pipe."""
    if "COLUMNS" in os.environ:
        return max(shutil.get_terminal_size().columns, 40)
    try:
        return max(os.get_terminal_size(1).columns, 40)
    except OSError:
        return 200


async def _turn(loaded: Loaded, path: Path, records: Sequence[Recorded], row: Row) -> str:
    workspace = wiring.build_workspace(loaded.config, _root(loaded, records), logs=(path,))
    changes = await diffs(workspace, row.turn.changes)
    return trace_turn.text(records, row, _shown, lambda change: _known(changes, change))


def _root(loaded: Loaded, records: Sequence[Recorded]) -> Path:
    """Where the session worked, if that is still there."""
    first = views.opened([record.event for record in records])
    return Path(first.repo) if first and is_folder(Path(first.repo)) else loaded.root


def _known(changes: dict[Change, str], change: Change) -> str:
    return changes.get(change, "")


def _shown(events: Sequence[Event]) -> Prompt | None:
    """The prompt of the call at the end of `events`; None where a client of `fugu serve` made it, or the agent is in no
    pool. Tools and AGENTS.md are no facts, so they are not shown again."""
    assigned = next(event for event in reversed(events) if isinstance(event, Assigned))
    member = views.pool(events).get(assigned.agent)
    return None if member is None or views.served(events) else wiring.harness(member).prompt(events, member, (), "")
