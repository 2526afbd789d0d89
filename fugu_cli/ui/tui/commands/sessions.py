"""Commands about sessions: new ones, earlier ones, their names, what leaves them as a file."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from fugu_cli import log, sessions, views
from fugu_cli.errors import FuguError, UsageError
from fugu_cli.events import Asked, Event, Replied, ToolRan
from fugu_cli.ui.render import describe
from fugu_cli.ui.tui import place
from fugu_cli.ui.tui.draw import diff
from fugu_cli.ui.tui.draw.piece import Piece
from fugu_cli.ui.tui.draw.pieces import of_blocks
from fugu_cli.ui.tui.draw.story import told
from fugu_cli.ui.tui.draw.text import count, flat
from fugu_cli.ui.tui.front import Choice

if TYPE_CHECKING:
    from fugu_cli.loop.environment import Ask
    from fugu_cli.ui.tui.room import Room
    from fugu_cli.ui.tui.session import Session

PREVIEWED = 400
"""Lines of a session that its preview draws from."""


async def new(room: Room, argument: str) -> None:
    """Leave this session and begin another."""
    del argument
    await _open(room, room.desk.begin)


async def pick(room: Room, argument: str) -> None:
    """Choose among earlier sessions: resume one, or fork it."""
    found = await _listed(room)
    if not found:
        room.say("this folder has no session yet")
        return
    chosen = await asyncio.to_thread(_saying, found, argument)
    if not chosen:
        room.say(f"nobody said {argument!r} in a session of this folder; here are all")
    paths = {summary.id: summary.path for summary in found}
    picked = await room.front.pick(
        "Sessions of this folder",
        [_choice(summary) for summary in (chosen or found)],
        lambda id: _preview(paths[id]),
        {"ctrl+f": "forks", "ctrl+e": "renames"},
    )
    if picked is None:
        return
    key, id = picked
    if key == "ctrl+e":
        room.front.type(f"/rename {id} ")
    elif key == "ctrl+f":
        await _open(room, lambda ask: room.desk.fork(id, ask))
    else:
        await _resume(room, id)


def _saying(found: list[sessions.Summary], wanted: str) -> list[sessions.Summary]:
    """Those in which it was said, the ones that are called so first."""
    saying = [one for one in found if not wanted or sessions.says(one, wanted)]
    return sorted(saying, key=lambda one: wanted.casefold() not in one.title.casefold())


async def _listed(room: Room) -> list[sessions.Summary]:
    """The folder's sessions."""
    return list(await asyncio.to_thread(room.desk.listed))


async def resume(room: Room, argument: str) -> None:
    """Go on with a session by its id, or the newest other one."""
    if argument:
        await _resume(room, argument)
        return
    here = _id(room)
    others = [summary for summary in await _listed(room) if summary.id != here]
    if others:
        await _resume(room, others[0].id)
    else:
        room.say("this folder has no other session")


async def _resume(room: Room, id: str) -> None:
    if id == _id(room):
        room.say("this session is open already")
        return
    await _open(room, lambda ask: room.desk.resume(id, ask))


async def _open(room: Room, opening: Callable[[Ask], Awaitable[Session]]) -> bool:
    """Show another session. Not while something of this one is under way: it would be cut, and what waits dropped."""
    if room.work.running:
        raise UsageError("a request is being worked on", hint="wait for its end, or stop it with Esc")
    if room.work.queue:
        waiting = count(len(room.work.queue), "request")
        raise UsageError(f"{waiting} in the queue would be dropped", hint="Ctrl+S sends them, Up takes them back")
    return await room.open(opening)


async def fork(room: Room, argument: str) -> None:
    """Go on with a copy of this session, or of another one."""
    id = argument or _id(room)
    if not id:
        raise UsageError("this session is in no file, so there is nothing to copy")
    if await _open(room, lambda ask: room.desk.fork(id, ask)):
        room.say(f"this is a copy of {id}; the original stays as it was")


async def rename(room: Room, argument: str) -> None:
    """Give this session (or, with its id first, another one) a title."""
    known = {summary.id for summary in await asyncio.to_thread(room.desk.listed)}
    first, _, rest = argument.partition(" ")
    id, title = (first, rest.strip()) if first in known and rest.strip() else (_id(room), argument)
    if not id or not title:
        raise UsageError("a title is missing", hint="/rename TITLE, or /rename ID TITLE")
    await asyncio.to_thread(room.desk.rename, id, title)
    room.say(f"{id} is called {title!r} now", "good")


async def go_on(room: Room, argument: str) -> None:
    """Finish a request that was cut off."""
    del argument
    if room.work.running:
        raise UsageError("a request is being worked on", hint="wait for its end, or stop it with Esc")
    if not await room.work.go_on():
        room.say("the newest request has come to its end; ask something")


async def compact(room: Room, argument: str) -> None:
    """Shorten what agents read of earlier requests."""
    del argument
    await room.session.compact()


async def export(room: Room, argument: str) -> None:
    """Write the conversation as Markdown."""
    name = argument or f"fugu-{_id(room) or time.strftime('%Y%m%d-%H%M%S')}.md"
    text = markdown(list(room.session.log.events))
    try:
        await asyncio.to_thread(_write, place.typed(room.desk.root, name), text)
    except FileExistsError as error:
        raise UsageError(f"{name} exists already", hint="name another file: /export FILE") from error
    except (OSError, ValueError) as error:  # a ValueError: no file can be called that
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise FuguError(f"cannot write {name}: {why}", hint="name another file: /export FILE") from error
    room.say(f"written to {name}", "good")


async def leave(room: Room, argument: str) -> None:
    """Leave fugu."""
    del argument
    await room.front.leave()


def markdown(events: list[Event]) -> str:
    """A session for people: requests, replies with who gave them, tools and diffs."""
    parts: list[str] = []
    for facts in views.requests(events) if views.asked(events) else ():
        for event in facts:
            match event:
                case Asked():
                    parts.append(f"## {event.said.strip()}")
                case Replied() if event.text.strip():
                    parts.append(f"**{event.agent}**\n\n{event.text.strip()}")
                case ToolRan():
                    parts.append(_tool(event))
                case _:
                    continue
        end = views.finished(facts)
        if end is not None:
            parts.append(f"*{views.end_line(facts).text}*")
    return "\n\n".join(parts) + "\n"


def _tool(event: ToolRan) -> str:
    patch = diff.of_call(event.call) if event.changes else ""
    head = f"`{describe(event.call)}`: {'ok' if event.ok else 'failed'}"
    return f"{head}\n\n```diff\n{patch}\n```" if patch else head


def _write(path: Path, text: str) -> None:
    with path.open("x", encoding="utf-8", errors="replace") as file:
        file.write(text)


def _choice(summary: sessions.Summary) -> Choice:
    day = time.strftime("%d %b %H:%M", time.localtime(summary.newest))
    about = f"{day} · {summary.state.replace('_', ' ')} · {count(summary.requests, 'request')}"
    return Choice(summary.id, flat(summary.title, 200) or "(nothing asked)", about)


def _preview(path: Path) -> list[Piece]:
    """The end of a session, drawn as the conversation is."""
    try:
        found = log.examine(path)
    except FuguError as error:
        return [_sentence(str(error))]
    pieces = of_blocks(told(found.records[-PREVIEWED:]), unfolded=False)
    return [*pieces, _sentence(str(found.fault.error(path)))] if found.fault is not None else pieces


def _sentence(text: str) -> Piece:
    return Piece(lambda width, palette: diff.painted(text, width, palette), text)


def _id(room: Room) -> str:
    path = room.work.session.log.path if room.work.session else None
    return path.stem if path else ""
