"""Web addresses and places in files (`README.md:12`) on styled lines as links (OSC 8), which the
terminal opens. Knows the session's folder and which files are there; what is shown is not changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style

from fugu_cli.formatting import with_tilde
from fugu_cli.ui.drawing import StyledLine

_LINK = re.compile(
    r"(?P<url>https?://[\w.\-~:/?#\[\]@!$&'()*+,;=%]+)"
    r"|(?<![\w/.:~@+-])(?P<path>(?:~/|\.{0,2}/)?(?:[\w.@+-]+/)*[\w@+-][\w.@+-]*\.?[\w+-]+)(?::(?P<line>\d{1,7}))?(?::\d{1,5})?"
)
_PLACE = re.compile(r"(?P<path>.+?)(?::(?P<line>\d{1,7}))?(?::\d{1,5})?")
_TRAILING = ".,;:!?'*_"


@dataclass(frozen=True)
class FilePlace:
    """A file and a line in it, 0 if no line is named."""

    path: Path
    line: int = 0

    @property
    def link(self) -> str:
        """The address that a terminal opens."""
        return self.path.as_uri() + (f"#{self.line}" if self.line else "")

    def shown(self, root: Path) -> str:
        """Return the path relative to `root`, with its line."""
        inside = self.path.is_relative_to(root.resolve())
        name = str(self.path.relative_to(root.resolve())) if inside else with_tilde(str(self.path))
        return f"{name}:{self.line}" if self.line else name


class LinkFinder:
    """Finds links in the text of one folder's session."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def linked(self, line: StyledLine, width: int) -> StyledLine:
        """Add links to the line; return it unchanged without any.

        A name that fills the line to its `width` may continue below, so it becomes no link.
        """
        text = "".join(segment.text for segment in line)
        if "/" not in text and "." not in text:
            return line
        full = len(text) if cell_len(text) >= width else -1
        links = [
            (start, end, address) for start, end, address in self._addresses(text) if end != full
        ]
        return _with_links(line, links) if links else line

    def places(self, text: str) -> Iterator[FilePlace]:
        """Yield the existing files that a text names."""
        for match in _LINK.finditer(text):
            if (
                match["path"]
                and _like_a_path(match["path"])
                and (path := self._file(match["path"])) is not None
            ):
                yield FilePlace(path, int(match["line"] or 0))

    def place(self, text: str) -> FilePlace | None:
        """Return the file and line that a path, or `path:line`, names; None if there is no such file."""
        match = _PLACE.fullmatch(text.strip())
        path = self._file(match["path"]) if match else None
        return FilePlace(path, int(match["line"] or 0)) if match and path is not None else None

    def _addresses(self, text: str) -> Iterator[tuple[int, int, str]]:
        for match in _LINK.finditer(text):
            if match["url"]:
                url = match["url"].rstrip(_TRAILING)
                if "(" not in url:
                    url = url.removesuffix(")")
                yield match.start(), match.start() + len(url), url
            elif _like_a_path(match["path"]):
                path = self._file(match["path"])
                if path is not None:
                    link = FilePlace(path, int(match["line"] or 0)).link
                    yield match.start(), match.end(), link

    def _file(self, name: str) -> Path | None:
        """Return the file of this name, None if there is none."""
        name = name.removeprefix("@")
        try:
            path = Path(name).expanduser() if name.startswith("~/") else self._root / name
            return path.resolve() if path.is_file() else None
        except (OSError, ValueError, RuntimeError):
            return None


def _like_a_path(word: str) -> bool:
    return "/" in word or "." in word


def _with_links(line: StyledLine, links: Sequence[tuple[int, int, str]]) -> StyledLine:
    edges = sorted({edge for start, end, _ in links for edge in (start, end)})
    segments: StyledLine = []
    at = 0
    for segment in line:
        words, style = segment.text, segment.style or Style.null()
        cuts = [0, *(edge - at for edge in edges if at < edge < at + len(words)), len(words)]
        for begin, end in pairwise(cuts):
            address = next((link for start, stop, link in links if start <= at + begin < stop), "")
            segments.append(
                Segment(words[begin:end], style + Style(link=address) if address else style)
            )
        at += len(words)
    return segments
