"""Commands about skills and custom commands: what there is, and a request that follows a skill."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fugu_cli.ui.tui.room import Room


def names(room: Room) -> Sequence[str]:
    """The skills of the session."""
    return tuple(skill.name for skill in room.work.session.library.skills) if room.work.session else ()


async def skill(room: Room, argument: str) -> None:
    """Ask for something, with what a skill says: `/skill NAME TEXT`."""
    await room.send(f"/skill {argument}")


async def skills(room: Room, argument: str) -> None:
    """The skills and custom commands there are, and what is left out."""
    del argument
    from fugu_cli.skills.listing import listed

    room.say("skills and custom commands", "plain", listed(room.session.library, room.desk.root))
