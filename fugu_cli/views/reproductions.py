"""The request's reproduction: a script that failed before the work and must pass after it, and how it stands. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fugu_cli.events import EVIDENCE, Event, Merged, Permitted, ToolRan
from fugu_cli.views.turns import effective

REPRODUCE, RUN_REPRODUCTION = "reproduce", "run_reproduction"
"""The call of the agent that writes it, which is ok where the script fails before the work; and fugu's runs of it
after that, which are ok where it passes."""


@dataclass(frozen=True)
class Reproduction:
    """The newest one of the request. `ok`: it passed when it was run last; `stale`: something was changed since."""

    arguments: str
    output: str
    ok: bool = False
    stale: bool = False

    @property
    def passes(self) -> bool:
        """It passes on the working tree as it is."""
        return self.ok and not self.stale


def reproduction(events: Sequence[Event]) -> Reproduction | None:
    """The newest script of the newest request that failed before the work; None where nobody wrote one.

    What checks write themselves makes it no older. A call that was started and killed may have changed anything.
    """
    found: Reproduction | None = None
    changed = False
    killed: set[str] = set()
    own: set[str] = set()
    for event in effective(events):
        if isinstance(event, Permitted) and event.allowed:
            (own if event.by == EVIDENCE else killed).add(event.call.id)
        elif isinstance(event, ToolRan) and event.call.tool == RUN_REPRODUCTION:
            if found is not None and event.call.arguments == found.arguments:
                found, killed = replace(found, output=event.output, ok=event.ok, stale=False), set()
        elif isinstance(event, ToolRan) and event.call.id not in own:
            killed.discard(event.call.id)
            changed = changed or bool(event.changes)
            found = _written(event, changed) or _aged(found, event)
        elif isinstance(event, Merged):
            changed = changed or bool(event.changes)
            found = _aged(found, event)
    return replace(found, stale=True) if found is not None and killed else found


def _aged(found: Reproduction | None, event: ToolRan | Merged) -> Reproduction | None:
    return replace(found, stale=True) if found is not None and event.changes else found


def _written(event: ToolRan, changed: bool) -> Reproduction | None:
    """The one that this call has shown to be one. Where something was `changed` it was run on the tree from before."""
    if event.call.tool != REPRODUCE or not event.ok:
        return None
    return Reproduction(event.call.arguments, event.output, stale=changed)


def unmended(events: Sequence[Event]) -> bool:
    """There is a reproduction, and it does not pass, or not surely."""
    found = reproduction(events)
    return found is not None and not found.passes
