"""Tool memory shared across the workflows of a conversation: what was read or run, by whom, and what came back.

Derived from the log: a ToolRan that says on which content it depended (`state`) is an entry, keyed by the call and that
content. An entry is offered to a later workflow only while the content is still the same; how that is found out is the
caller's business. Small models are not offered what fugu looked at itself: it does so for them again. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from fugu_cli import views
from fugu_cli.events import EVIDENCE, Asked, Assigned, Event, Permitted, Planned, Replied, ToolRan
from fugu_cli.messages import Call, Usage

MOST = 12
"""Entries offered to one step, the newest first, and their characters in all."""
ROOM = 12_000
READING = frozenset({"read", "list", "glob", "grep", "run_tests", "bash"})
State = Callable[[Call], Awaitable[str]]
"""The content a call would depend on now; "" where nobody can tell."""


def known(events: Sequence[Event], plan: int) -> list[int]:
    """Lines of what workflows (and turns) before plan `plan` of the newest request found out, newest first, each call
    with the same content once. What changed something, failed or does not say what it depended on is left out."""
    bound = _bound(events, plan)
    found: dict[tuple[tuple[str, str], str], int] = {}
    for line in range(bound - 1, -1, -1):
        event = events[line]
        if isinstance(event, ToolRan) and _usable(event):
            found.setdefault((key(event.call), event.state), line)
    return list(found.values())


def _usable(event: ToolRan) -> bool:
    return bool(event.state) and event.ok and not event.changes and event.call.tool in READING


def key(call: Call) -> tuple[str, str]:
    """The same for calls that ask the same, however their arguments are written."""
    try:
        return call.tool, json.dumps(json.loads(call.arguments), sort_keys=True)
    except ValueError:
        return call.tool, call.arguments


def _bound(events: Sequence[Event], plan: int) -> int:
    """The line of the plan, or of the outermost one it is inside of: what came before it were earlier workflows."""
    lines = [line for line in range(len(events)) if isinstance(events[line], Planned)]
    start = next(line for line in range(len(events) - 1, -1, -1) if isinstance(events[line], Asked))
    own = [line for line in lines if line > start]
    within = [event.within for line in own if isinstance(event := events[line], Planned)]
    while (outer := within[plan - 1]) is not None:
        plan = outer[0]
    return own[plan - 1]


async def fresh(events: Sequence[Event], plan: int, state: State, *, brief: bool = False) -> tuple[int, ...]:
    """The entries that still hold: what they depended on is as it was. In the order they were made. `brief`: for a
    small model."""
    chosen: list[int] = []
    room = ROOM
    states: dict[tuple[str, str], str] = {}
    for line in known(events, plan):
        ran = events[line]
        assert isinstance(ran, ToolRan)
        if brief and _by_fugu(events, line):
            continue
        size = min(len(ran.output), 2000)
        if len(chosen) == MOST or size > room:
            break
        asked = key(ran.call)
        if asked not in states:
            states[asked] = await state(ran.call)
        if ran.state == states[asked]:
            chosen.append(line)
            room -= size
    return tuple(sorted(chosen))


def who(events: Sequence[Event], line: int) -> str:
    """The agent that made the call of an entry, "fugu" where it was fugu itself."""
    ran = events[line]
    assert isinstance(ran, ToolRan)
    for event in reversed(events[:line]):
        if isinstance(event, Asked):
            break
        if isinstance(event, Assigned) and event.turn == ran.turn and not _by_fugu(events, line):
            return event.agent
    return "fugu"


def _by_fugu(events: Sequence[Event], line: int) -> bool:
    ran = events[line]
    assert isinstance(ran, ToolRan)
    made = (event for event in reversed(events[:line]) if isinstance(event, Permitted))
    return next(one.by == EVIDENCE for one in made if one.turn == ran.turn and one.call == ran.call)


@dataclass(frozen=True)
class Saved:
    """What the memory did for a step: entries offered, those of them called for again all the same, and the tokens of
    the model calls that were not needed, less those the entries took in the prompt (four characters a token)."""

    offered: int = 0
    repeated: int = 0
    tokens: int = 0

    @property
    def calls(self) -> int:
        return self.offered - self.repeated


def saved(events: Sequence[Event], turn: views.Turn) -> Saved:
    """An estimate from what the same calls took when they were made: their share of the replies that made them."""
    lines = turn.assigned.remembers
    made = {key(run.permitted.call) for run in turn.runs if not run.evidence}
    repeated = tokens = 0
    for line in lines:
        ran = events[line]
        assert isinstance(ran, ToolRan)
        tokens -= min(len(ran.output), 2000) // 4
        if key(ran.call) in made:
            repeated += 1
        else:
            tokens += _spent_on(events, line)
    return Saved(len(lines), repeated, tokens)


def _spent_on(events: Sequence[Event], line: int) -> int:
    """Tokens of the model call that asked for a tool, shared among the calls of that reply."""
    ran = events[line]
    assert isinstance(ran, ToolRan)
    for event in reversed(events[:line]):
        if isinstance(event, Assigned | Asked) and getattr(event, "turn", 0) in (0, ran.turn):
            break
        if isinstance(event, Replied) and any(call.id == ran.call.id for call in event.calls):
            used: Usage = event.usage
            return (used.input + used.output) // len(event.calls)
    return 0
