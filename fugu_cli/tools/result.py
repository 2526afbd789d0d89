"""Results of tools, messages while they run, and the cutting of long output."""

from __future__ import annotations

import re
from collections.abc import Callable

from fugu_cli.messages import Media, PaidValue
from fugu_cli.safety.redaction import MARK, MARK_LENGTH
from fugu_cli.session.events import TestReport

Say = Callable[[str], None]
"""Takes pieces of output while a tool runs."""


class ToolResult(PaidValue):
    """A tool's answer to the agent. A failure is an answer too: `ok` is False and the text says
    what to do next.

    `job` is the background job that the call has started, "" where it has started none. `tests`,
    `media`, `found`, `paid`, `traceback`, `restored`, `omitted_lines`: as in ToolRan.
    """

    text: str
    ok: bool = True
    job: str = ""
    skipped: bool = False
    tests: TestReport | None = None
    media: tuple[Media, ...] = ()
    found: tuple[str, ...] = ()
    traceback: str = ""
    restored: tuple[str, ...] = ()
    omitted_lines: int = 0


OUTPUT_LIMIT = 8000
"""Characters of a tool's output, if it sets no limit of its own."""
COMMAND_LIMIT = 30_000
"""Characters of a command's output."""

_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_OVERWRITTEN = re.compile(r"(?<![^\n])[^\n]*\r(?=[^\r\n])")
"""From a line's start: tried at every character, a line of a megabyte would take hours."""
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def truncate(text: str, limit: int = OUTPUT_LIMIT) -> str:
    """Cut `text` to about `limit` characters in the middle, at line ends, with a note of what was
    left out.
    """
    if len(text) <= limit:
        return text
    shown = max(limit - 60, 20)
    head, tail = _cut_after(text, shown // 2), _cut_before(text, len(text) - shown // 2)
    return _join_ends(text[:head], text[head:tail], text[tail:])


def count_omitted_lines(text: str, shown: str) -> int:
    """Return how many lines of `text` are not in `shown`, to which `truncate` has cut it."""
    if shown == text:
        return 0
    kept = shown.count("\n")  # the lines of both ends, as the note is one more
    return max(text.count("\n") + 1 - kept, 0)


def truncate_line(text: str, limit: int) -> str:
    """Cut a line to its beginning, with a note of how much is missing."""
    if len(text) <= limit:
        return text
    kept = text[: cut_between_marks(text, limit)]
    return f"{kept} [... {len(text) - len(kept):,} characters more]"


def truncate_start(text: str, limit: int = OUTPUT_LIMIT) -> str:
    """Cut `text` to its end, in about `limit` characters, from the start of a line."""
    if len(text) <= limit:
        return text
    at = _cut_before(text, len(text) - max(limit - 60, 20))
    return _join_ends("", text[:at], text[at:])


def _cut_after(text: str, at: int) -> int:
    """Return the end of the line before `at`, or `at` itself if that line is longer than half of
    the text.
    """
    line = text.rfind("\n", 0, at) + 1
    return line if line > at // 2 else cut_between_marks(text, at)


def _cut_before(text: str, at: int) -> int:
    line = text.find("\n", max(at - 1, 0)) + 1
    return line if line and line - at < (len(text) - at) // 2 else cut_between_marks(text, at)


def cut_between_marks(text: str, at: int) -> int:
    """Return the place to cut `text` at or before `at`, so that no masked secret is split."""
    match = MARK.search(text, max(at - MARK_LENGTH + 1, 0), at + MARK_LENGTH - 1)
    return match.start() if match is not None and match.end() > at else at


def _join_ends(head: str, omitted: str, tail: str) -> str:
    """Join both ends with a line about the part left out."""
    lines = omitted.count("\n")
    amount = f"{lines:,} lines" if lines > 1 else f"{len(omitted):,} characters"
    border = "" if not head or head.endswith("\n") else "\n"
    return f"{head}{border}[... {amount} left out ...]\n{tail}"


def plain_text(text: str) -> str:
    """Return the text that a terminal would finally show: no escapes, no overwritten progress
    lines, no control characters.
    """
    text = _ESCAPE.sub("", text)
    text = _OVERWRITTEN.sub("", text)
    return _CONTROL.sub("", text.replace("\r\n", "\n").replace("\r", ""))
