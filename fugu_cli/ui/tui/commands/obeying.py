"""What a typed line is: a command, a line for the user's shell, or a request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fugu_cli.errors import UsageError
from fugu_cli.skills.asking import refuse_left_out
from fugu_cli.ui.tui.commands.command import find, nearest
from fugu_cli.ui.tui.commands.own import every

if TYPE_CHECKING:
    from fugu_cli.ui.tui.room import Room


async def obey(room: Room, text: str) -> None:
    """Do it, to its end. Raises FuguError with what to tell the user."""
    text = text.replace("\0", "")  # from a paste: no name, no argument of a command and no file can hold it
    if not text:
        return
    room.history.add(text)
    await room.settled()
    if text.startswith("!"):
        await _shell(room, text)
    elif _is_command(text):
        await _command(room, text)
    else:
        await room.send(text)


def is_request(room: Room, text: str) -> bool:
    """Agents are asked for this, perhaps by a command that a file makes: the interface does not do it itself."""
    if not _is_command(text):
        return not text.startswith("!")
    command, _ = find(every(room), text)
    return command is not None and command.custom and text.split()[0] == f"/{command.name}"


async def _shell(room: Room, text: str) -> None:
    told = text.startswith("!!")
    command = text.lstrip("!").strip()
    if command:
        await room.shell.run(command, tell=told)


async def _command(room: Room, text: str) -> None:
    command, argument = find(every(room), text)
    if command is None:
        if room.work.session is not None:
            refuse_left_out("command", text.split()[0][1:], room.session.library)
        near = nearest(every(room), text)
        raise UsageError(
            f"there is no command {text.split()[0]}", hint=f"did you mean /{near}?" if near else "/help lists them"
        )
    if room.work.session is None and command.name not in ("new", "sessions", "resume", "help", "quit", "doctor"):
        raise UsageError("there is no session", hint="/new opens one")
    if command.needs_more and not argument:
        raise UsageError(f"/{command.name} needs more", hint=f"/{command.name} {command.usage}")
    await command.run(room, argument)


def _is_command(text: str) -> bool:
    return text.startswith("/") and not text.startswith("//") and not _is_path(text)


def _is_path(text: str) -> bool:
    """`/etc/hosts is wrong` is a request."""
    return "/" in text.split()[0][1:]
