"""The lines of a session on disk, and the one reader of the forms that earlier versions wrote.

`opened` says the format of the lines from there on. Sessions without that number are format 0, of
version 0.1.0. log.py writes and reads through this; nobody else knows how lines looked before. To
change a name on disk: raise `FORMAT`, and convert the lines of the earlier format in `_convert`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fugu_cli.messages import Value
from fugu_cli.session.events import FORMAT, RECORDED, Opened, Recorded
from fugu_cli.system.bounded_json import parse_json

REMOVED = {
    "replied": ("filled", "aimed", "logprob"),
    "tool_ran": ("extras",),
    "undone": ("tree",),
}
"""Fields of format 0 that say nothing in a session of version 0.1.0, by type of event."""
REMOVED_OF_AGENTS = ("thinking", "attempts", "infill")
"""The same, of the agents of a pool."""
WRITTEN_SINCE = {
    "asked": "answer_schema",
    "assigned": "fallback",
    "permitted": "plan_mode",
    "tool_ran": "found",
    "undone": "kind",
}
"""Fields that every session of format 0 has; a line without its field is of an earlier one."""


class UnreadableFormat(ValueError):
    """A session of a form that is no longer read."""


_field_names: dict[frozenset[str], set[str]] = {}


def _share_field_names(value: Value) -> None:
    """Let all values that were read with the same fields share the set of their names.

    pydantic keeps such a set in each value. In a long session they are half of the memory of its
    events. Values are frozen, and a copy of one gets a set of its own.
    """
    names = value.__pydantic_fields_set__
    shared = _field_names.setdefault(frozenset(names), names)
    object.__setattr__(value, "__pydantic_fields_set__", shared)
    for part in value.__dict__.values():
        if isinstance(part, Value):
            _share_field_names(part)
        elif isinstance(part, tuple):
            for item in part:
                if isinstance(item, Value):
                    _share_field_names(item)


class LineReader:
    """Parses the lines of one session in their order."""

    def __init__(self) -> None:
        self._format = 0

    def parse(self, line: bytes) -> Recorded:
        """Parse a line. Raises ValidationError if it is not an event, and UnreadableFormat."""
        if self._format == FORMAT:
            record = RECORDED.validate_json(line)
        else:
            record = self._parse_earlier(line)
        if isinstance(record.event, Opened):
            self._format = record.event.format
        _share_field_names(record.event)
        return record

    def _parse_earlier(self, line: bytes) -> Recorded:
        """Parse a line of an earlier format, or the first line of a session."""
        try:
            record = parse_json(line.decode())
        except ValueError:
            return RECORDED.validate_json(line)  # which says what is wrong with it
        event = record.get("event") if isinstance(record, dict) else None
        if isinstance(event, dict) and event.get("format", 0) == 0:
            _convert(event)
        return RECORDED.validate_python(record)


def _convert(event: dict[str, Any]) -> None:
    """Turn an event of format 0 into one of today's, in place. Raises UnreadableFormat."""
    event_type = str(event.get("type"))
    if event_type in WRITTEN_SINCE and WRITTEN_SINCE[event_type] not in event:
        raise UnreadableFormat
    for field in REMOVED.get(event_type, ()):
        event.pop(field, None)
    if event_type == "opened":
        event["format"] = 0
        pool = event.get("pool")
        for member in pool if isinstance(pool, list) else ():
            if isinstance(member, dict):
                _convert_agent(member)


def _convert_agent(member: dict[str, Any]) -> None:
    if "documents" not in member:
        raise UnreadableFormat
    for field in REMOVED_OF_AGENTS:
        member.pop(field, None)
    if member.get("protocol") == "schema":
        member["protocol"] = "text"
    if member.get("reasoning") == "beside":
        member["reasoning"] = "within"


def encode_lines(records: Iterable[Recorded]) -> bytes:
    """Return whole lines in today's format."""
    lines = bytearray()
    for record in records:
        if isinstance(record.event, Opened):
            opened = record.event.model_copy(update={"format": FORMAT})
            record = record.model_copy(update={"event": opened})
        lines += RECORDED.dump_json(record) + b"\n"
    return bytes(lines)
