"""Is a file's code still to be written? Then its tests say more than the file, and an answer is longer than it.

A plain rule over the lines, for every language alike; below agents, tools and the brief. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

LONGEST = 4000
"""Characters: in a longer file a function that is still to be written is one of many."""

_COMMENT = re.compile(r"\s*(?:#|//|/\*|\*|--|<!--)")
_DEF = re.compile(r"\s*(?:async )?def \w")
_QUOTE = re.compile(r"\s*[rR]?(\"{3}|'{3}|\"|')")
_NOTHING = re.compile(r"\s*(?:pass|\.\.\.|raise NotImplementedError\b.*)\s*(?:#.*)?")
_MARK = re.compile(
    r"\b(?:todo|unimplemented)!\s*[(\[{]"
    r"|\b(?:throw new \w+|panic|fail|error|raise)\b.{0,80}?(?:\bimplement|not (?:yet )?implemented)"
    r"|\bUnsupportedOperationException\b|\bTODO\(\s*\)|\bTODO:? implement",
    re.IGNORECASE,
)


def is_stub(text: str) -> bool:
    """The code `text` is short, and holds nothing or a function that says it is not written."""
    if len(text) > LONGEST:
        return False
    lines = text.splitlines()
    code = any(line.strip() and not _COMMENT.match(line) for line in lines)
    return not code or any(_MARK.search(line) for line in lines) or _empty_function(lines)


def _empty_function(lines: Sequence[str]) -> bool:
    """A Python function whose body is a docstring at most, and a word that it is nothing yet."""
    return next(_empty_bodies(lines), None) is not None


def _empty_bodies(lines: Sequence[str]) -> Iterator[int]:
    """The lines that say so, each the head itself where the word stands behind it."""
    for number, line in enumerate(lines):
        if _DEF.match(line) and line.rstrip().endswith((":", "...", "pass")):
            if not line.rstrip().endswith(":"):
                yield number
                continue
            body = _after_docstring(lines, _next_code(lines, number + 1))
            if body < len(lines) and _NOTHING.fullmatch(lines[body]):
                yield body


def body_to_write(lines: Sequence[str]) -> int | None:
    """The line that stands for the body of the only Python function that is nothing yet; None where there are several,
    or none, or it stands on the head's line."""
    found = list(_empty_bodies(lines))
    return found[0] if len(found) == 1 and _NOTHING.fullmatch(lines[found[0]]) else None


def _next_code(lines: Sequence[str], start: int) -> int:
    """The first line from `start` on that is no comment and not empty."""
    number = start
    while number < len(lines) and (not lines[number].strip() or lines[number].lstrip().startswith("#")):
        number += 1
    return number


def _after_docstring(lines: Sequence[str], start: int) -> int:
    """The first line of code of a body that begins at `start`."""
    opening = _QUOTE.match(lines[start]) if start < len(lines) else None
    if opening is None:
        return start
    mark = opening.group(1)
    if mark in lines[start][opening.end() :]:
        return _next_code(lines, start + 1)
    end = next((n for n in range(start + 1, len(lines)) if mark in lines[n]), len(lines))
    return _next_code(lines, end + 1)
