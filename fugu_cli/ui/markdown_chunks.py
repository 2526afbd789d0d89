"""Markdown cut into chunks while it arrives, so that what is done is drawn once. Knows no
screen.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

FENCE_LINES = 40
LIST_LINES = 24
CHUNK_LINES = 60
CHUNK_CHARACTERS = 2000

_FENCE = re.compile(r"^(\s*)(`{3,}|~{3,})([^`]*)$")
_ITEM = re.compile(r"^\s*(?:[-*+]|\d{1,9}[.)])\s")
_HEADING = re.compile(r"^#{1,6}\s")


@dataclass(frozen=True)
class MarkdownChunk:
    """A part of a text that can be drawn alone. `joined`: what follows belongs to the same block,
    without a gap.
    """

    text: str
    joined: bool = False


class MarkdownChunker:
    """Takes text piece by piece. `done` only grows; `tail` is the chunk that may still change."""

    def __init__(self) -> None:
        self.done: list[MarkdownChunk] = []
        self._lines: list[str] = []
        self._size = 0
        self._partial = ""
        self._fence = ""
        self._opener = ""
        self._gap = False

    @property
    def tail(self) -> MarkdownChunk | None:
        """Return the part that has arrived but is not complete, None if nothing of it is visible."""
        text = "\n".join([*self._lines, self._partial])
        return MarkdownChunk(text) if text.strip() else None

    def feed(self, text: str) -> None:
        """Add text."""
        *whole_lines, rest = (self._partial + text).split("\n")
        for line in whole_lines:
            self._line(line)
        self._partial = rest
        while len(self._partial) > CHUNK_CHARACTERS:
            self._cut_long()

    def chunks(self) -> list[MarkdownChunk]:
        """Return all chunks, the unfinished one included."""
        return [*self.done, self.tail] if self.tail else list(self.done)

    def _cut_long(self) -> None:
        """Cut a very long line at a space, or anywhere."""
        at = self._partial.rfind(" ", CHUNK_CHARACTERS // 2, CHUNK_CHARACTERS)
        at = at if at > 0 else CHUNK_CHARACTERS
        rest = self._partial[at:]
        self._line(self._partial[:at])
        self._partial = rest if self._fence else rest.lstrip(" ")
        self._close(joined=True)

    def _line(self, line: str) -> None:
        while len(line) > CHUNK_CHARACTERS:
            self._partial = line
            self._cut_long()
            line, self._partial = self._partial, ""
        if self._fence:
            self._add(line)
            fence = _FENCE.match(line)
            if fence and fence.group(2).startswith(self._fence) and not fence.group(3).strip():
                self._fence = ""
                if self._lines[0] == self._opener:
                    self._close()
            elif len(self._lines) >= FENCE_LINES or self._size > CHUNK_CHARACTERS:
                self._close(joined=True)
        else:
            self._outside(line)

    def _outside(self, line: str) -> None:
        blank = not line.strip()
        if blank:
            self._gap = bool(self._lines)
            if self._lines:
                self._add(line)
            return
        fence = _FENCE.match(line)
        new_block = self._starts(line) or (
            fence is not None and not fence.group(1).strip() and len(fence.group(1)) < 2
        )
        if self._lines and new_block:
            self._close()
        self._gap = False
        if fence:
            self._fence, self._opener = fence.group(2), line
        self._add(line)
        if _HEADING.match(line):
            self._close()
        elif not fence and (len(self._lines) > CHUNK_LINES or self._size > CHUNK_CHARACTERS):
            self._close(joined=True)

    def _starts(self, line: str) -> bool:
        """Return whether the line begins something that can be drawn on its own."""
        if _HEADING.match(line):
            return True
        indented = line[0] in " \t"
        if self._gap and not indented:
            in_list = bool(_ITEM.match(self._lines[0]))
            return not (in_list and _ITEM.match(line)) or len(self._lines) > LIST_LINES
        return bool(_ITEM.match(line)) and not indented and len(self._lines) > LIST_LINES

    def _add(self, line: str) -> None:
        self._lines.append(line)
        self._size += len(line) + 1

    def _close(self, *, joined: bool = False) -> None:
        text = "\n".join(self._lines).rstrip()
        if text:
            self.done.append(MarkdownChunk(text, joined))
        self._lines, self._size, self._gap = [], 0, False
        if self._fence and joined:
            self._add(self._opener)
