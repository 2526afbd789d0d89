"""Unified diffs of long texts: equal lines at the beginning and the end are left out before the
texts are compared.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

CONTEXT_LINES = 3


def differing_lines(
    old: Sequence[str], new: Sequence[str]
) -> tuple[int, Sequence[str], Sequence[str]]:
    """Return the number of lines that are left out before, and both texts from the first to the
    last line that differs, with three lines of context.
    """
    shorter = min(len(old), len(new))
    same_start = 0
    while same_start < shorter and old[same_start] == new[same_start]:
        same_start += 1
    same_end = 0
    while same_end < shorter - same_start and old[-1 - same_end] == new[-1 - same_end]:
        same_end += 1
    skipped = max(same_start - CONTEXT_LINES, 0)
    left_out = max(same_end - CONTEXT_LINES, 0)
    return skipped, old[skipped : len(old) - left_out], new[skipped : len(new) - left_out]


def unified_diff_lines(
    old: Sequence[str],
    new: Sequence[str],
    old_name: str,
    new_name: str,
    *,
    line_end: str = "\n",
    largest: int | None = None,
) -> list[str] | None:
    """Return the lines of the unified diff; None where more than `largest` characters differ.

    `line_end` ends the headers, as in difflib.
    """
    skipped, old, new = differing_lines(old, new)
    if largest is not None and sum(map(len, old)) + sum(map(len, new)) > largest:
        return None
    diff = difflib.unified_diff(old, new, old_name, new_name, lineterm=line_end, n=CONTEXT_LINES)
    return [_moved_hunk(line, skipped) for line in diff]


def _moved_hunk(line: str, lines: int) -> str:
    """Return the header of a hunk with its line numbers raised by `lines`; other lines unchanged."""
    header = re.fullmatch(r"@@ -(\d+)(.*) \+(\d+)(.*) @@(\n?)", line)
    if header is None:
        return line
    old, old_length, new, new_length, line_end = header.groups()
    return f"@@ -{int(old) + lines}{old_length} +{int(new) + lines}{new_length} @@{line_end}"
