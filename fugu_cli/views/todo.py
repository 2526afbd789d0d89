"""The todo list: what an agent's newest call of todo said is to be done. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from fugu_cli.events import Event, ToolRan
from fugu_cli.messages import Call

TODO = "todo"
Status = Literal["pending", "in_progress", "done"]
SIGNS: Mapping[str, str] = {"pending": "[ ]", "in_progress": "[>]", "done": "[x]"}


@dataclass(frozen=True)
class Item:
    """One thing to do."""

    text: str
    status: Status


def todo(events: Sequence[Event]) -> tuple[Item, ...]:
    """The list as it stands; empty where none was made. It lives as long as the session, until it is replaced."""
    for event in reversed(events):
        if isinstance(event, ToolRan) and event.call.tool == TODO and event.ok:
            return items_of(event.call)
    return ()


def items_of(call: Call) -> tuple[Item, ...]:
    """The list a call makes; what is no item is left out."""
    try:
        given = json.loads(call.arguments or "{}")
    except ValueError:
        return ()
    items = given.get("items") if isinstance(given, dict) else None
    return tuple(found for one in items or () if (found := _item(one))) if isinstance(items, list) else ()


def _item(one: object) -> Item | None:
    if not isinstance(one, dict) or not isinstance(one.get("text"), str):
        return None
    status = next((known for known in get_args(Status) if known == one.get("status", "pending")), None)
    return Item(one["text"], status) if status is not None else None


def summed(items: Sequence[Item]) -> str:
    """`2 of 5 done: run the tests`, with what is in progress."""
    if not items:
        return "empty"
    done = sum(item.status == "done" for item in items)
    now = next((item.text for item in items if item.status == "in_progress"), "")
    return f"{done} of {len(items)} done" + (f": {now}" if now else "")


def listed(items: Sequence[Item]) -> list[str]:
    """A line an item, with its sign before it."""
    return [f"{SIGNS[item.status]} {item.text}" for item in items]
