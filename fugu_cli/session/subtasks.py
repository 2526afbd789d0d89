"""Subtasks in the log: the facts as a subtask stands in them, and those that it is assigned by. Pure.

A subtask is a turn that an agent's `task` call began. It reads its own prompt and nothing of the request around it, so
its facts are those of a request that asks this prompt alone. Below turns.py; knows no prompts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fugu_cli.session.events import Asked, Assigned, Event, Exclusion, Finished, Masked, Opened, Replied, Subtask

TASK = "task"
"""The tool whose call begins one. It changes nothing itself: what its subtask did is in that one's own facts."""
BY_FILE = "file"
"""`Assigned.by` of a subtask whose subagent's file names the agent."""


def events_of_subtask(opened: Sequence[Event], begin: Assigned, later: Sequence[Event]) -> tuple[Event, ...]:
    """A log whose only request is the subtask that `begin` began. `opened`: the facts before it; `later`: its own."""
    assert begin.subtask is not None
    asked = Asked(text=begin.instruction, effort=begin.subtask.effort)
    return (*_openings(opened), asked, begin.model_copy(update={"instruction": ""}), *later)


def lines_of_subtasks(events: Sequence[Event]) -> frozenset[int]:
    """The places of the facts of subtasks, which no other turn reads."""
    found: set[int] = set()
    inside: set[int] = set()
    for place, event in enumerate(events):
        if isinstance(event, Asked):
            inside.clear()
        elif isinstance(event, Assigned) and event.subtask is not None:
            inside.add(event.turn)
        if inside and getattr(event, "turn", 0) in inside:
            found.add(place)
    return frozenset(found)


def events_to_assign(
    events: Sequence[Event], task: Subtask, prompt: str, out: Mapping[str, Exclusion]
) -> tuple[Event, ...]:
    """What a coordinator reads to choose who does it: what the same subagent did last, whose prompt may be cached, and
    the new prompt. `out`: who cannot do it now."""
    masked = (Masked(agents=tuple(sorted(out.items()))),) if out else ()
    return (*_openings(events), *_last_of(events, task), Asked(text=prompt, effort=task.effort), *masked)


def _openings(events: Sequence[Event]) -> tuple[Event, ...]:
    return tuple(event for event in events if isinstance(event, Opened))


def _last_of(events: Sequence[Event], task: Subtask) -> tuple[Event, ...]:
    """The newest subtask of the same subagent that was answered, as a request of its own."""
    for place in range(len(events) - 1, -1, -1):
        begin = events[place]
        if isinstance(begin, Assigned) and begin.subtask is not None and begin.subtask.name == task.name:
            said = [e for e in events[place:] if isinstance(e, Replied) and e.turn == begin.turn][-1:]
            if said and not said[0].calls:
                assigned = begin.model_copy(update={"instruction": "", "subtask": None})
                return (Asked(text=begin.instruction), assigned, *said, Finished(reason="answered"))
    return ()
