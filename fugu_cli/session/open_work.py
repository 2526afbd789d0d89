"""What still stands: the todo list, background jobs, found tools, requests that are not undone, and
what a compaction leaves in prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from fugu_cli.messages import Call, Media
from fugu_cli.session.events import (
    Asked,
    Assigned,
    Compacted,
    Event,
    Failed,
    Finished,
    Interrupted,
    JobEnded,
    Merged,
    Permitted,
    Replied,
    ToolRan,
    Undone,
)
from fugu_cli.session.turns import finished, request
from fugu_cli.system.bounded_json import parse_json

TODO = "todo"
Status = Literal["pending", "in_progress", "done"]
SIGNS: Mapping[str, str] = {"pending": "[ ]", "in_progress": "[>]", "done": "[x]"}


@dataclass(frozen=True)
class TodoItem:
    """One thing to do."""

    text: str
    status: Status


def todo(events: Sequence[Event]) -> tuple[TodoItem, ...]:
    """The list as it stands; empty where none was made. It lives as long as the session, until it
    is replaced.
    """
    for event in reversed(events):
        if isinstance(event, ToolRan) and event.call.tool == TODO and event.ok:
            return items_of(event.call)
    return ()


def items_of(call: Call) -> tuple[TodoItem, ...]:
    """The list a call makes; what is no item is left out."""
    try:
        given = parse_json(call.arguments or "{}")
    except ValueError:
        return ()
    items = given.get("items") if isinstance(given, dict) else None
    return (
        tuple(found for one in items or () if (found := _item(one)))
        if isinstance(items, list)
        else ()
    )


def _item(one: object) -> TodoItem | None:
    if not isinstance(one, dict) or not isinstance(one.get("text"), str):
        return None
    status = next(
        (known for known in get_args(Status) if known == one.get("status", "pending")), None
    )
    return TodoItem(one["text"], status) if status is not None else None


def todo_summary(items: Sequence[TodoItem]) -> str:
    """`2 of 5 done: run the tests`, with what is in progress."""
    if not items:
        return "empty"
    done = sum(item.status == "done" for item in items)
    now = next((item.text for item in items if item.status == "in_progress"), "")
    return f"{done} of {len(items)} done" + (f": {now}" if now else "")


def todo_lines(items: Sequence[TodoItem]) -> list[str]:
    """A line an item, with its sign before it."""
    return [f"{SIGNS[item.status]} {item.text}" for item in items]


@dataclass(frozen=True)
class RecordedJob:
    """One job: its name, the call of bash that started it, and its end, None while there is
    none.
    """

    name: str
    call: Call
    end: JobEnded | None = None


def jobs(events: Sequence[Event]) -> dict[str, RecordedJob]:
    """Every job that `events` say was started, by name, the oldest first."""
    found: dict[str, RecordedJob] = {}
    for event in events:
        if isinstance(event, ToolRan) and event.job:
            found[event.job] = RecordedJob(event.job, event.call)
        elif isinstance(event, JobEnded) and event.job in found:
            found[event.job] = replace(found[event.job], end=event)
    return found


def found_tools(events: Sequence[Event]) -> frozenset[str]:
    """The tools of MCP servers that find_tools has named, and those that were called: agents may
    call them from then on."""
    ran = [event for event in events if isinstance(event, ToolRan)]
    return frozenset(
        {*(name for event in ran for name in event.found), *(event.call.tool for event in ran)}
    )


def describe_end(end: JobEnded) -> str:
    """How a job ended, in words."""
    match end.by:
        case "itself" if end.code is not None and end.code < 0:
            return f"signal {-end.code}"
        case "itself":
            return f"exit code {end.code}"
        case "agent":
            return "stopped by the agent"
        case "user":
            return "stopped by the user"
        case "undo":
            return "stopped: the files were put back"
        case "session":
            return "ended with the session"


_OF_A_TURN = (Assigned, Replied, Permitted, ToolRan, Failed, Interrupted)


BYTES = 3.5
"""Of a token, for guessing: code has more, prose fewer tokens than that. Other scripts have more,
and more bytes.
"""


def byte_size(text: str) -> int:
    """Bytes of a text."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def prompt_bytes(event: Event) -> int:
    """Bytes a fact puts into a prompt, about."""
    match event:
        case Replied():
            return byte_size(event.text) + sum(byte_size(call.arguments) for call in event.calls)
        case ToolRan():
            return byte_size(event.output) + _media_bytes(event.media)
        case Asked():
            return 100 + _media_bytes(event.media)
        case Assigned():
            return 100 + byte_size(event.instruction)
        case _:
            return 100


def _media_bytes(media: Sequence[Media]) -> int:
    return int(sum(one.tokens for one in media) * BYTES)


def has_picture(events: Sequence[Event]) -> bool:
    """The newest request came with a picture, or a tool has returned one for it."""
    return any(
        one.is_picture
        for fact in request(events)
        if isinstance(fact, Asked | ToolRan)
        for one in fact.media
    )


def refused_media(events: Sequence[Event], agent: str) -> frozenset[str]:
    """Pictures and PDFs, by `sha`, that the agent's provider refused in this session."""
    return frozenset(
        sha
        for event in events
        if isinstance(event, Replied) and event.agent == agent
        for sha in event.refused
    )


def newest_compaction(events: Sequence[Event]) -> Compacted | None:
    """The newest compaction."""
    return next((event for event in reversed(events) if isinstance(event, Compacted)), None)


def after_compaction(events: Sequence[Event]) -> tuple[str, Sequence[Event]]:
    """The newest summary and the facts after it; "" and all facts where nothing was compacted.

    A request that goes on after it keeps its words, and an open turn its assignment: both stay what
    they were.
    """
    newest = newest_compaction(events)
    if newest is None:
        return "", events
    before, after = events[: newest.upto + 1], events[newest.upto + 1 :]
    return newest.summary, (*_going_on(before, after), *after)


def still_open(events: Sequence[Event]) -> str:
    """What the newest summary stands for and is not over: the todo list, while something of it is
    to be done, and background jobs. Not a part of the summary: what an agent may not see is taken
    out of the facts before."""
    newest = newest_compaction(events)
    past = events[: newest.upto + 1] if newest is not None else ()
    items = todo(past)
    running = [job for job in jobs(past).values() if job.end is None]
    parts = []
    if any(item.status != "done" for item in items):
        parts.append("\n".join(["The todo list, as it stood:", *todo_lines(items)]))
    if running:
        parts.append(
            "\n".join(
                [
                    "Background jobs:",
                    *(f"{job.name}: {job.call.arguments[:200]}" for job in running),
                ]
            )
        )
    return "\n\n".join(parts)


def _going_on(before: Sequence[Event], after: Sequence[Event]) -> list[Event]:
    """The request and the assignments in `before` that facts in `after` belong to."""
    until = next(
        (index for index, event in enumerate(after) if isinstance(event, Asked)), len(after)
    )
    open_turns = {event.turn for event in after[:until] if isinstance(event, _OF_A_TURN)}
    facts = request(before)
    if not facts or (finished(before) is not None and not open_turns):
        return []
    begun = [event for event in facts if isinstance(event, Assigned) and event.turn in open_turns]
    return [facts[0], *begun]


UNDO_NOTICE = "Then the user undid the newest request that stood: its changes to files are gone."
REDO_NOTICE = (
    "Then the user brought back what was undone last: its changes to files are there again."
)


@dataclass(frozen=True)
class UndoHistory:
    """Requests that stand, by their place in the session from 0; undos that can be redone. The next
    one last.
    """

    requests: tuple[int, ...]
    undone: tuple[Undone, ...]


def undo_history(events: Sequence[Event]) -> UndoHistory:
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
            if event.kind == "redo" and taken:
                done.append(taken.pop())
                undone.pop()
            elif done:
                taken.append(done.pop())
                undone.append(event)
    return UndoHistory(
        tuple(done), tuple(event for event in undone if any(event.made) or event.tree)
    )


def undo_notices(events: Sequence[Event]) -> tuple[str, ...]:
    """For agents: each undo and redo by the user among these facts, in their order, with what was
    left alone.
    """
    undone = (event for event in events if isinstance(event, Undone) and not event.turn)
    return tuple(
        (REDO_NOTICE if event.kind == "redo" else UNDO_NOTICE) + event.exception for event in undone
    )


def _may_have_changed(event: Event) -> bool:
    """It changed files, or may have: what was cut off and what goes on in the background says
    nothing of that.
    """
    if isinstance(event, ToolRan):
        return bool(any(event.made) or event.job or event.extras)
    return isinstance(event, Interrupted) or (isinstance(event, Merged) and bool(event.changes))
