"""Bounds on what a body holds, checked before anything is built from it: a short text can hold
millions of values, each of which takes a hundred times its length in memory.
"""

from __future__ import annotations

import re

from fugu_cli.system.bounded_json import MAX_DEPTH, NestedTooDeeply

MOST_VALUES = 250_000
"""Values that the JSON of a request may hold. A conversation of 10,000 messages has some 60,000."""

_BETWEEN = re.compile(rb'[^"\[\]{},]*+')
_IN_STRING = re.compile(rb'(?:[^"\\]*+\\.){0,10000}+[^"\\]*+', re.DOTALL)
"""Part of a string: bounded, as other threads stand still during a match."""


class TooManyValues(ValueError):
    """A JSON text with more values than `MOST_VALUES`."""


def check_bounds(body: bytes) -> None:
    """Raise TooManyValues or NestedTooDeeply where the JSON text `body` exceeds a bound. What is no JSON is
    left to whoever parses it."""
    position = values = depth = 0
    while True:
        position = _end_of(_BETWEEN, body, position)
        if position == len(body):
            return
        mark = body[position : position + 1]
        position += 1
        match mark:
            case b'"':
                position = _end_of_string(body, position)
            case b"[" | b"{":
                depth += 1
                values += 1
            case b"]" | b"}":
                depth -= 1
            case b",":
                values += 1
        if values > MOST_VALUES:
            raise TooManyValues(f"the request holds more than {MOST_VALUES} values")
        if depth > MAX_DEPTH:
            raise NestedTooDeeply


def _end_of_string(body: bytes, position: int) -> int:
    while True:
        position = _end_of(_IN_STRING, body, position)
        if body[position : position + 1] == b'"':
            return position + 1
        if position + 1 >= len(body):
            return len(body)


def _end_of(pattern: re.Pattern[bytes], body: bytes, position: int) -> int:
    match = pattern.match(body, position)
    return match.end() if match is not None else position
