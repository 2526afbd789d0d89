"""Output brought to a size a prompt can bear, and out of the terminal's hand.

Used by every tool before its result is recorded: what the model got is what is in the log. Pure.
"""

from __future__ import annotations

import re

from fugu_cli.masking import LENGTH, MARK

LIMIT = 8000
"""Characters of a tool's output, if it sets no limit of its own."""

_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_OVERWRITTEN = re.compile(r"(?<![^\n])[^\n]*\r(?=[^\r\n])")
"""From a line's start: tried at every character, a line of a megabyte would take hours."""
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def clip(text: str, limit: int = LIMIT) -> str:
    """`text` in at most about `limit` characters: cut in the middle, at line ends, saying how much was left out."""
    if len(text) <= limit:
        return text
    room = max(limit - 60, 20)
    head, tail = _cut_after(text, room // 2), _cut_before(text, len(text) - room // 2)
    return _joined(text[:head], text[head:tail], text[tail:])


def first(text: str, limit: int) -> str:
    """The beginning of a line, saying how much more there is."""
    if len(text) <= limit:
        return text
    kept = text[: whole(text, limit)]
    return f"{kept} [... {len(text) - len(kept):,} characters more]"


def clip_tail(text: str, limit: int = LIMIT) -> str:
    """The end of `text` in at most about `limit` characters, from the start of a line."""
    if len(text) <= limit:
        return text
    at = _cut_before(text, len(text) - max(limit - 60, 20))
    return _joined("", text[:at], text[at:])


def _cut_after(text: str, at: int) -> int:
    """The end of the line before `at`, or `at` itself where the line is longer than half of what there is."""
    line = text.rfind("\n", 0, at) + 1
    return line if line > at // 2 else whole(text, at)


def _cut_before(text: str, at: int) -> int:
    line = text.find("\n", max(at - 1, 0)) + 1
    return line if line and line - at < (len(text) - at) // 2 else whole(text, at)


def whole(text: str, at: int) -> int:
    """Where to cut `text` instead of at `at`, so that no mark of a secret is torn: before it."""
    found = MARK.search(text, max(at - LENGTH + 1, 0), at + LENGTH - 1)
    return found.start() if found is not None and found.end() > at else at


def _joined(head: str, left: str, tail: str) -> str:
    """Both ends with a line between them that says what is gone."""
    lines = left.count("\n")
    what = f"{lines:,} lines" if lines > 1 else f"{len(left):,} characters"
    border = "" if not head or head.endswith("\n") else "\n"
    return f"{head}{border}[... {what} left out ...]\n{tail}"


def plain(text: str) -> str:
    """What a terminal would show in the end: no escapes, no overwritten progress lines, no control characters."""
    text = _ESCAPE.sub("", text)
    text = _OVERWRITTEN.sub("", text)
    return _CONTROL.sub("", text.replace("\r\n", "\n").replace("\r", ""))
