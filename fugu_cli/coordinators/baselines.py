"""Baselines on the same engine: what a learned coordinator has to be better than (`fugu help evaluation`).

`one-pass:NAME` one turn of one agent; `retry-same:NAME` the same agent while the tests fail; `self-reflection:NAME` one
agent that looks at its own work five times. `panels.py` has those that ask several agents, `prompted.py` the one that
asks an agent whom to ask. They are functions of the log like every coordinator and can be named in a configuration, but
nobody needs them for work.

Departures from the papers: they answer questions, these work in a repository with tools and tests. So what they sample
in parallel is asked one after the other, and a run ends when the tests or acceptance checks pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fugu_cli import prompts, views
from fugu_cli.coordinators import masks, slots
from fugu_cli.coordinators.settings import Settings
from fugu_cli.events import Assigned, Event, Finished, Member

NAMED = ("one-pass", "retry-same", "self-reflection", "prompted")
"""Those that are about one agent: `retry-same:NAME`."""
PLAIN = ("mixture-of-agents", "panel-judge-merge")
ROUNDS = 5
"""Of self-reflection."""


def is_one(coordinator: str) -> bool:
    """Whether these words name a baseline."""
    kind, _, name = coordinator.partition(":")
    return coordinator in PLAIN or (kind in NAMED and bool(name))


def build(coordinator: str, members: Sequence[Member], settings: Settings) -> Coordinator:
    """The baseline that `is_one` knows."""
    from fugu_cli.coordinators import panels
    from fugu_cli.coordinators.prompted import Prompted

    kind, _, name = coordinator.partition(":")
    match kind:
        case "one-pass":
            return Rounds("one-pass", name, 1)
        case "retry-same":
            return Rounds("retry-same", name, settings.turns)
        case "self-reflection":
            return Rounds("self-reflection", name, 1 + ROUNDS)
        case "mixture-of-agents":
            return panels.mixture(members, settings)
        case "panel-judge-merge":
            return panels.fusion(members, settings)
        case "prompted":
            return Prompted(name, members, settings)
        case _:
            raise ValueError(f"{coordinator!r} is no baseline")


class Rounds:
    """One agent as Worker, `most` times at most; a reflecting one is told to look critically from its second turn."""

    def __init__(self, kind: str, name: str, most: int) -> None:
        self._kind = kind
        self._name = name
        self._most = most

    async def decide(self, events: Sequence[Event]) -> Assigned | Finished:
        """The same again, until the tests pass or all turns are taken."""
        out = masks.agents_out(events)
        if self._name in out:
            return masks.nobody({self._name: out[self._name]})
        taken = taken_turns(events)
        if taken and (len(taken) >= self._most or passing(events) or self._answered(events)):
            return over(events, f"{self._kind}: {len(taken)} of {self._most} turns were taken")
        return Assigned(
            turn=masks.next_turn(events),
            agent=self._name,
            role="worker",
            by=self._kind,
            reason=f"turn {len(taken) + 1} of at most {self._most}",
            instruction=prompts.load("evaluation/reflect") if taken and self._kind == "self-reflection" else "",
        )

    def _answered(self, events: Sequence[Event]) -> bool:
        """Nothing speaks against it: asking again would be another sample, not a retry. Reflection goes on."""
        return self._kind == "retry-same" and not views.against(events)


def taken_turns(events: Sequence[Event]) -> list[views.Turn]:
    """The turns that came to an end."""
    return [turn for turn in views.turns(events) if not turn.failed and not turn.interrupted]


def passing(events: Sequence[Event]) -> bool:
    """There are acceptance checks, and all of them pass now; or the tests pass after a change."""
    run = views.tests(events)
    checked = bool(views.checks(events)) or (run is not None and run.passes and bool(views.changes(events)))
    return checked and not views.against(events)


def over(events: Sequence[Event], what: str) -> Finished:
    """The end of a baseline's own protocol: the tests' word, an answer, or neither."""
    if passing(events):
        return Finished(reason="accepted", message=f"{what}; the tests pass")
    if not views.checks(events) and not views.changes(events):
        return Finished(reason="answered", message=what)
    said = f"; {why}" if (why := views.against(events)) else ""
    return Finished(reason="turn_limit", message=f"{what}{said}")


def strongest(members: Sequence[Member], out: Sequence[str] | dict[str, str]) -> Member | None:
    """The strongest agent that can act."""
    return next((member for member in reversed(slots.by_strength(members)) if member.name not in out), None)


if TYPE_CHECKING:
    from fugu_cli.coordinators import Coordinator

    _rounds: Coordinator = Rounds("", "", 1)
