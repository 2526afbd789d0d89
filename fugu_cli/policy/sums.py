"""Arithmetic in a command line: `$((...))`.

Below words.py. Numbers, names and operators are read. A name's value is worked out as well and may hold a command
(`a[$(rm x)]`), so a sum with names counts as a command of its own, `let`. Pure.
"""

from __future__ import annotations

import re

_PLAIN = re.compile(r"[\w\s+\-*/%<>=!&|^~?:,()$#{}]*")
_NAME = re.compile(r"(?<!\w)[A-Za-z_$]")


def read(text: str, start: int) -> tuple[int, tuple[str, ...]] | None:
    """The end of the sum whose two parentheses open at `start`, and what it runs; None where it holds more, or is no
    sum but a group in a substitution."""
    end, depth = start, 0
    while end < len(text):
        depth += {"(": 1, ")": -1}.get(text[end], 0)
        end += 1
        if depth == 0:
            break
    inner = text[start + 2 : end - 2]
    if depth or text[end - 2 : end] != "))" or not _balanced(inner):
        return None
    if "$(" in inner or _PLAIN.fullmatch(inner) is None:
        return None
    return end, ("let sum",) if _NAME.search(inner) else ()


def _balanced(inner: str) -> bool:
    """Its last two parentheses close its first two."""
    depth = 0
    for char in inner:
        depth += {"(": 1, ")": -1}.get(char, 0)
        if depth < 0:
            return False
    return depth == 0
