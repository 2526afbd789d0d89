"""What a command is, and how a line that begins with `/` finds its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

from fugu_cli.ui.tui.front import Choice

if TYPE_CHECKING:
    from fugu_cli.ui.tui.room import Room

Run = Callable[["Room", str], Awaitable[None]]
Values = Callable[["Room"], Sequence[str]]


def no_values(room: Room) -> Sequence[str]:
    """For commands that take anything, or nothing."""
    del room
    return ()


@dataclass(frozen=True)
class Command:
    """`usage` names its arguments ("" for none, [optional]), `values` what completes the first one."""

    name: str
    about: str
    run: Run
    usage: str = ""
    values: Values = no_values
    also: tuple[str, ...] = ()
    custom: bool = False
    """A file says what it does: its usage is a hint."""

    @property
    def takes_more(self) -> bool:
        """It is meant to have an argument."""
        return bool(self.usage) and not self.usage.startswith("[")

    @property
    def needs_more(self) -> bool:
        """It cannot be run without an argument."""
        return self.takes_more and not self.custom


def find(commands: Sequence[Command], line: str) -> tuple[Command | None, str]:
    """The command a line means and its argument."""
    name, *rest = line.strip().removeprefix("/").split(maxsplit=1) or [""]
    argument = rest[0] if rest else ""
    for command in commands:
        if name in (command.name, *command.also):
            return command, argument
    starting = [command for command in commands if name and command.name.startswith(name)]
    return (starting[0] if len(starting) == 1 else None), argument


def nearest(commands: Sequence[Command], line: str) -> str:
    """The name that may have been meant, "" when none is near."""
    name = line.strip().removeprefix("/").partition(" ")[0]
    found = get_close_matches(name, [command.name for command in commands], 1)
    return found[0] if found else ""


def choices(commands: Sequence[Command], room: Room, line: str) -> list[Choice]:
    """What completes the line that was typed so far."""
    name, space, argument = line.removeprefix("/").partition(" ")
    if space:
        command, _ = find(commands, f"/{name}")
        values = command.values(room) if command else ()
        wanted = argument.strip().lower()
        return [
            Choice(f"/{name} {value}", value)
            for value in values
            if value.lower().startswith(wanted) and value != wanted
        ]
    beginning = [command for command in commands if command.name.startswith(name)]
    inside = [command for command in commands if name in command.name and command not in beginning]
    return [_choice(command) for command in (*beginning, *inside)]


def _choice(command: Command) -> Choice:
    shown = f"/{command.name} {command.usage}".rstrip()
    return Choice(f"/{command.name}{' ' if command.takes_more else ''}", f"{shown:<24}", command.about)
