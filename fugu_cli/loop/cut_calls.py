"""What a call had done to files when it was killed, found out afterwards and recorded beside it.

Between the log and the workspace; whoever goes on with a session, asks the next request or undoes one calls `settle`
first. What a file's own time says was written after the end of the process is the user's.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fugu_cli import views
from fugu_cli.agents.history import INTERRUPTED
from fugu_cli.events import (
    KILLED,
    NOTHING,
    Asked,
    Assigned,
    Attribute,
    Change,
    Event,
    Interrupted,
    Made,
    Permitted,
    ToolRan,
)
from fugu_cli.log import ALIVE, Log
from fugu_cli.messages import Call
from fugu_cli.policy import paths
from fugu_cli.tools.workspace import Workspace

GRACE = 0.1
"""Seconds by which the clock of a disk may be behind."""


async def settle(log: Log, workspace: Workspace) -> None:
    """Record what the killed calls of the newest request did. Where no snapshot tells, nothing. Raises StorageError."""
    facts = views.request(log.events)
    killed = [place for place, fact in enumerate(facts) if _was_killed(facts, place)]
    if not killed or not workspace.in_git:
        return
    first = len(log.events) - len(facts) + killed[0]
    before = _tree_before(log.events[: first + 1])
    made = _until(await workspace.since(before) if before else NOTHING, _end(log, first), workspace.root)
    for place in killed:
        fact = facts[place]
        assert isinstance(fact, Permitted)
        log.append(
            ToolRan(
                turn=fact.turn,
                call=_told(fact.call),
                output=INTERRUPTED,
                ok=False,
                changes=made.changes,
                attributes=made.attributes,
            )
        )
        made = NOTHING  # of calls that ran at the same time one is told of it all


def _was_killed(facts: Sequence[Event], place: int) -> bool:
    """A call in the repository that may have changed something began here and has no result."""
    fact = facts[place]
    older = isinstance(facts[0], Asked) and facts[0].snapshot  # an older log: calls have no snapshot of their own
    if not isinstance(fact, Permitted) or not fact.allowed or not (fact.snapshot or older):
        return False
    turn = next((e for e in reversed(facts[:place]) if isinstance(e, Assigned) and e.turn == fact.turn), None)
    results = {e.call.id for e in facts[place:] if isinstance(e, ToolRan) and e.turn == fact.turn}
    return not (turn and turn.worktree) and results.isdisjoint({fact.call.id, _told(fact.call).id})


def _told(call: Call) -> Call:
    """Whose result tells what this call did. It is no answer to it: nobody takes it for the tests', or an agent's."""
    return call.model_copy(update={"id": f"{call.id}-{KILLED}", "tool": KILLED})


def _tree_before(events: Sequence[Event]) -> str:
    known = (e.snapshot for e in reversed(events) if isinstance(e, Asked | Assigned | Permitted) and e.snapshot)
    return next(known, "")


def _end(log: Log, place: int) -> float:
    """When the call that began at this place of the log was killed, in seconds since the epoch: what the log says, else
    when its process was last known to live."""
    for record in log.records[place + 1 :]:
        if isinstance(record.event, Interrupted):
            return record.at + GRACE
    return log.left + 2 * ALIVE


def _until(made: Made, end: float, root: Path) -> Made:
    """Without what was written since. A file that is gone was deleted: to bring it back loses nothing."""

    def before_the_end(one: Change | Attribute) -> bool:
        try:
            return (root / paths.actual(one.path)).lstat().st_ctime <= end
        except OSError:
            return True

    changes, attributes = filter(before_the_end, made.changes), filter(before_the_end, made.attributes)
    return Made(tuple(changes), tuple(attributes))
