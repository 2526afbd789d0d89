"""The table's commands and, after them, those that files of the user's or the repository's make."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fugu_cli.ui.tui.commands.command import Command
from fugu_cli.ui.tui.commands.table import COMMANDS

if TYPE_CHECKING:
    from fugu_cli.skills.command import Custom
    from fugu_cli.ui.tui.room import Room


def every(room: Room) -> Sequence[Command]:
    """All commands there are in the session."""
    session = room.work.session
    return COMMANDS if session is None else (*COMMANDS, *(_command(one) for one in session.library.commands))


def _command(one: Custom) -> Command:
    async def run(room: Room, argument: str) -> None:
        await room.send(f"/{one.name} {argument}".rstrip())

    return Command(one.name, one.about, run, one.hint, custom=True)
