"""What the user took back and brought again, in an agent's history: without it, edits that are gone would be read there
as done.

Under context.py, beside the turns of a request. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from fugu_cli.events import Assigned, Event, Undone
from fugu_cli.messages import FromUser

UNDONE = (
    "[The user undid the newest request that stood: its changes to files are gone. Read a file before you change it.]"
)
REDONE = "[The user brought back what was undone last: its changes to files are there again.]"


def after(facts: Sequence[Event], turn: Assigned | None) -> list[FromUser]:
    """What is said of it behind this turn of a request, `facts`; None: before the first one."""
    said, newest = list[FromUser](), None
    for fact in facts:
        if isinstance(fact, Assigned):
            newest = fact
        elif isinstance(fact, Undone) and not fact.turn and newest is turn:
            said.append(FromUser(text=REDONE if fact.redoes else UNDONE))
    return said
