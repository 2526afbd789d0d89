"""Open work: the todo list, background jobs, found tools, requests that are not undone, and what a
compaction leaves in prompts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Literal, get_args

from fugu_cli.messages import Call, Media
from fugu_cli.session.events import (
    Asked,
    Assigned,
    Event,
    Finished,
    Interrupted,
    JobEnded,
    Merged,
    Replied,
    ToolRan,
    Undone,
)
from fugu_cli.system.bounded_json import parse_json

TODO = "todo"
Status = Literal["pending", "in_progress", "done"]
SIGNS: Mapping[str, str] = {"pending": "[ ]", "in_progress": "[>]", "done": "[x]"}


@dataclass(frozen=True)
class TodoItem:
    """One thing to do."""

    text: str
    status: Status


def items_of(call: Call) -> tuple[TodoItem, ...]:
    """Return the items of a call's todo list, without invalid ones."""
    try:
        arguments = parse_json(call.arguments or "{}")
    except ValueError:
        return ()
    values = None
    if isinstance(arguments, dict):
        values = arguments.get("items", arguments.get("todos"))
    if not isinstance(values, list):
        return ()
    return tuple(item for item in map(_item, values) if item)


def _item(entry: object) -> TodoItem | None:
    if not isinstance(entry, dict):
        return None
    text = entry.get("text", entry.get("content"))
    word = status_word(entry.get("status", "pending"))
    status = next((status for status in get_args(Status) if status == word), None)
    return TodoItem(text, status) if status is not None and isinstance(text, str) else None


def status_word(word: object) -> object:
    """Return the word for a status; other agents' lists say `completed`."""
    return "done" if word == "completed" else word


def todo_summary(items: Sequence[TodoItem]) -> str:
    """Return a summary like `2 of 5 done: run the tests`, with the item that is in progress."""
    if not items:
        return "empty"
    done = sum(item.status == "done" for item in items)
    current = next((item.text for item in items if item.status == "in_progress"), "")
    return f"{done} of {len(items)} done" + (f": {current}" if current else "")


def todo_lines(items: Sequence[TodoItem]) -> list[str]:
    """Return a line for each item, with its sign before it."""
    return [f"{SIGNS[item.status]} {item.text}" for item in items]


@dataclass(frozen=True)
class RecordedJob:
    """A background job: its name, the bash call that started it, and its end. `end` is None while
    it runs.
    """

    name: str
    call: Call
    end: JobEnded | None = None


def describe_end(end: JobEnded) -> str:
    """Describe how a job ended."""
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


BYTES = 3.5
"""The estimated bytes of a token. Code has more tokens than that says, and prose fewer."""


def byte_size(text: str) -> int:
    """Return the size of a text in bytes."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def prompt_bytes(event: Event) -> int:
    """Estimate the bytes that an event adds to a prompt."""
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
    return int(sum(item.tokens for item in media) * BYTES)


UNDO_NOTICE = "Then the user undid the newest request that stood: its changes to files are gone."
REDO_NOTICE = (
    "Then the user brought back what was undone last: its changes to files are there again."
)


@dataclass(frozen=True)
class UndoHistory:
    """The requests that were not undone, by their index in the session, and the undos that can be
    redone. The next one is last in both.
    """

    requests: tuple[int, ...]
    undone: tuple[Undone, ...]


class UndoFold:
    """Folds a session's events into the requests that can be undone and the undos that can be
    redone.
    """

    def __init__(self) -> None:
        self._standing: list[int] = []
        self._taken_back: list[int] = []
        self._undone: list[Undone] = []
        self._number = -1
        self._is_idle, self._is_left_out = True, False

    def add(self, event: Event) -> None:
        """Add the next event of the session."""
        if isinstance(event, Asked):
            self._number += 1
            self._standing.append(self._number)
            self._taken_back, self._undone = [], []
            self._is_idle, self._is_left_out = True, False
        elif _may_have_changed(event):
            if self._is_left_out:  # a limit had stopped it, and it went on
                self._standing.append(self._number)
            elif self._number in self._taken_back:  # undone, and it went on
                self._standing.append(self._number)
                self._taken_back, self._undone = [], []
            self._is_idle, self._is_left_out = False, False
        elif isinstance(event, Finished):
            if self._is_idle and self._standing and self._standing[-1] == self._number:
                self._is_left_out = True
                self._standing.pop()
        elif isinstance(event, Undone) and event.turn == 0:
            if event.kind == "redo" and self._taken_back:
                self._standing.append(self._taken_back.pop())
                self._undone.pop()
            elif self._standing:
                self._taken_back.append(self._standing.pop())
                self._undone.append(event)

    def copy(self) -> UndoFold:
        """Return a copy that can be given other events."""
        fold = copy(self)
        fold._standing, fold._taken_back = list(self._standing), list(self._taken_back)
        fold._undone = list(self._undone)
        return fold

    def history(self) -> UndoHistory:
        """Return the undoable requests and redoable undos after the newest event."""
        redoable = tuple(event for event in self._undone if any(event.effects))
        return UndoHistory(tuple(self._standing), redoable)


def undo_notices(events: Sequence[Event]) -> tuple[str, ...]:
    """Return a notice for agents about each undo and redo by the user, in order, with the files
    that were left alone.
    """
    undone = (event for event in events if isinstance(event, Undone) and not event.turn)
    return tuple(
        (REDO_NOTICE if event.kind == "redo" else UNDO_NOTICE) + event.exception for event in undone
    )


def _may_have_changed(event: Event) -> bool:
    """Return whether the call changed files, or may have: a call that was cut off or runs in the
    background.
    """
    if isinstance(event, ToolRan):
        return bool(any(event.effects) or event.job)
    return isinstance(event, Interrupted) or (isinstance(event, Merged) and bool(event.changes))
