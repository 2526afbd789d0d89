"""Which requests of a session stand: undone ones do not, until they are redone. A pure fold.

Every request is a step, but those that ended without any change (a question); an undo takes the newest one that stands
back, a redo brings it again, a new request ends the redoing. What an undo took back is in its fact, which is how redo
finds it; in older logs its reason names the tree that it left.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from fugu_cli.events import Asked, Event, Finished, Interrupted, Merged, ToolRan, Undone

UNDONE = "undone by the user"
REDONE = "redone by the user"
TAKEN = "Then the user undid the newest request that stood: its changes to files are gone."
BROUGHT = "Then the user brought back what was undone last: its changes to files are there again."
_LEFT = re.compile(r"^(?:undone|redone) by the user, from tree ([0-9a-f]+)")


@dataclass(frozen=True)
class Standing:
    """Requests that stand, by their place in the session from 0; undos that can be redone. The next one last."""

    requests: tuple[int, ...]
    undone: tuple[Undone, ...]


def standing(events: Sequence[Event]) -> Standing:
    """What stands at the end of these facts."""
    done: list[int] = []
    taken: list[int] = []
    undone: list[Undone] = []
    number = -1
    idle, left_out = True, False
    for event in events:
        if isinstance(event, Asked):
            number += 1
            done.append(number)
            taken, undone, idle, left_out = [], [], True, False
        elif _may_have_changed(event):
            if left_out:  # a limit had stopped it, and it went on
                done.append(number)
            elif number in taken:  # undone, and it went on
                done.append(number)
                taken, undone = [], []
            idle, left_out = False, False
        elif isinstance(event, Finished) and idle and done and done[-1] == number:
            left_out = True
            done.pop()
        elif isinstance(event, Undone) and event.turn == 0:
            if event.redoes and taken:
                done.append(taken.pop())
                undone.pop()
            elif done:
                taken.append(done.pop())
                undone.append(event)
    return Standing(tuple(done), tuple(event for event in undone if any(event.made) or tree_left(event)))


def taken_back(events: Sequence[Event]) -> tuple[str, ...]:
    """What an agent is told of each undo and redo by the user among these facts, in their order."""
    undone = (event for event in events if isinstance(event, Undone) and not event.turn)
    return tuple(BROUGHT if event.redoes else TAKEN for event in undone)


def tree_left(undone: Undone) -> str:
    """The tree that an undo or redo of an older version left; "" where it names none."""
    found = _LEFT.match(undone.reason)
    return found.group(1) if found else ""


def _may_have_changed(event: Event) -> bool:
    """It changed files, or may have: what was cut off and what goes on in the background says nothing of that."""
    if isinstance(event, ToolRan):
        return bool(any(event.made) or event.job or event.extras)
    return isinstance(event, Interrupted) or (isinstance(event, Merged) and bool(event.changes))
