"""Bounds on a JSON body, checked before it is parsed: a short text can hold millions of values, and
each value takes a hundred times its length in memory.
"""

from __future__ import annotations

import re

from fugu_cli.system.bounded_json import MAX_DEPTH, NestedTooDeeply

MOST_VALUES = 250_000
"""Values that a request may hold. A conversation of 10,000 messages has about 60,000."""

_UP_TO_DELIMITER = re.compile(rb'[^"\[\]{},]*+')
_IN_STRING = re.compile(rb'(?:[^"\\]*+\\.){0,10000}+[^"\\]*+', re.DOTALL)
"""Part of a string. The match is bounded, because no other thread runs during a match."""


class TooManyValues(ValueError):
    """The JSON text holds more than `MOST_VALUES` values."""


def check_bounds(body: bytes) -> None:
    """Raise TooManyValues or NestedTooDeeply if `body` exceeds a bound. Text that is not JSON
    passes: its parser reports it.
    """
    position = values = depth = 0
    while True:
        position = _end_of(_UP_TO_DELIMITER, body, position)
        if position == len(body):
            return
        delimiter = body[position : position + 1]
        position += 1
        match delimiter:
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
