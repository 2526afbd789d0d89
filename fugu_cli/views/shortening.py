"""What goes into prompts after a compaction: the newest summary, what is open beside it, and the facts it does not
stand for. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from fugu_cli.events import Asked, Assigned, Compacted, Event, Failed, Interrupted, Permitted, Replied, ToolRan
from fugu_cli.views.jobs import jobs
from fugu_cli.views.todo import listed, todo
from fugu_cli.views.turns import finished, request

_OF_A_TURN = (Assigned, Replied, Permitted, ToolRan, Failed, Interrupted)


BYTES = 3.5
"""Of a token, for guessing: code has more, prose fewer tokens than that. Other scripts have more, and more bytes."""


def size_of(text: str) -> int:
    """Bytes of a text."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def length(event: Event) -> int:
    """Bytes a fact puts into a prompt, about."""
    match event:
        case Replied():
            return size_of(event.text) + sum(size_of(call.arguments) for call in event.calls)
        case ToolRan():
            return size_of(event.output)
        case Assigned():
            return 100 + size_of(event.instruction)
        case _:
            return 100


def compacted(events: Sequence[Event]) -> Compacted | None:
    """The newest compaction."""
    return next((event for event in reversed(events) if isinstance(event, Compacted)), None)


def shortened(events: Sequence[Event]) -> tuple[str, Sequence[Event]]:
    """The newest summary and the facts after it; "" and all facts where nothing was compacted.

    A request that goes on after it keeps its words, and an open turn its assignment: both stay what they were.
    """
    newest = compacted(events)
    if newest is None:
        return "", events
    before, after = events[: newest.upto + 1], events[newest.upto + 1 :]
    return newest.summary, (*_going_on(before, after), *after)


def still_open(events: Sequence[Event]) -> str:
    """What the newest summary stands for and is not over: the todo list, while something of it is to be done, and
    background jobs. Not a part of the summary: what an agent may not see is taken out of the facts before."""
    newest = compacted(events)
    past = events[: newest.upto + 1] if newest is not None else ()
    items = todo(past)
    running = [job for job in jobs(past).values() if job.end is None]
    parts = []
    if any(item.status != "done" for item in items):
        parts.append("\n".join(["The todo list, as it stood:", *listed(items)]))
    if running:
        parts.append("\n".join(["Background jobs:", *(f"{job.name}: {job.call.arguments[:200]}" for job in running)]))
    return "\n\n".join(parts)


def _going_on(before: Sequence[Event], after: Sequence[Event]) -> list[Event]:
    """The request and the assignments in `before` that facts in `after` belong to."""
    until = next((index for index, event in enumerate(after) if isinstance(event, Asked)), len(after))
    open_turns = {event.turn for event in after[:until] if isinstance(event, _OF_A_TURN)}
    facts = request(before)
    if not facts or (finished(before) is not None and not open_turns):
        return []
    begun = [event for event in facts if isinstance(event, Assigned) and event.turn in open_turns]
    return [facts[0], *begun]
