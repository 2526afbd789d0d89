"""The repository's files: walked without entering dependencies, builds and caches, and decoded
without loss.

Walking is for suggestions, finding tests and implicated files; tools that search for an agent use
ripgrep (search.py). Decoding keeps newlines, byte order mark and bytes that are not UTF-8.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path

from fugu_cli.safety.paths import quoted_path

SKIPPED_FOLDERS = frozenset({
    ".git", ".hg", ".svn", "node_modules", ".venv", "venv", "env", "site-packages", "dist-packages", "__pycache__",
    ".tox", ".nox", ".mypy_cache", ".pytest_cache", ".ruff_cache", "target", "dist", "build", ".next", ".gradle",
    ".idea", "vendor", ".eggs",
})  # fmt: skip
WALK_LIMIT = 20_000


def walk_files(root: Path, *, depth: int = 12, limit: int = WALK_LIMIT) -> Iterator[Path]:
    """Yield readable files below `root`, at most `limit`: a folder's own files first, sorted.

    Folders in `SKIPPED_FOLDERS` and links to folders are left out.
    """
    count, waiting = 0, [(root, 0)]
    while waiting:
        folder, below = waiting.pop()
        names, folders = _inside(folder)
        for name in names:
            count += 1
            if count > limit:
                return
            yield folder / name
        if below < depth:
            waiting += [
                (folder / name, below + 1)
                for name in reversed(folders)
                if name not in SKIPPED_FOLDERS
            ]


def _inside(folder: Path) -> tuple[list[str], list[str]]:
    """Return the names of a folder's files and folders. Pipes and devices are left out, since
    opening one may block.
    """
    try:
        with os.scandir(folder) as inside:
            entries = sorted(inside, key=lambda entry: entry.name)
    except OSError:
        return [], []
    folders = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    return [entry.name for entry in entries if _is_file(entry)], folders


def _is_file(entry: os.DirEntry[str]) -> bool:
    """Return whether it is a regular file or a link to one."""
    try:
        return entry.is_file()
    except OSError:
        return False


class FileIndex:
    """The files below `root` by name, looked up when first asked for."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._by_name: dict[str, list[Path]] | None = None

    def ending(self, tail: str, most: int = 2) -> list[Path]:
        """Return the files whose path ends with `tail`; [] if there are more than `most`."""
        if self._by_name is None:
            self._by_name = {}
            for path in walk_files(self._root, limit=5000):
                self._by_name.setdefault(path.name, []).append(path)
        tail = tail.lstrip("./")
        same = [
            path
            for path in self._by_name.get(Path(tail).name, [])
            if path.as_posix().endswith(f"/{tail}")
        ]
        return same if len(same) <= most else []


def similar_paths(root: Path, mistaken: Path) -> list[str]:
    """Return up to three files in `root` that a mistaken path may mean, nearest first."""
    name = mistaken.name.casefold()
    files = list(walk_files(root, limit=5000))
    same = [path for path in files if path.name.casefold() == name]
    if not same:
        by_name = {path.name: path for path in files}
        same = [
            by_name[close]
            for close in difflib.get_close_matches(mistaken.name, by_name, n=3, cutoff=0.75)
        ]
    same.sort(
        key=lambda path: (
            -sum(a == b for a, b in zip(path.parts[::-1], mistaken.parts[::-1], strict=False))
        )
    )
    return [quoted_path(path.relative_to(root).as_posix()) for path in same[:3]]


BOM = b"\xef\xbb\xbf"
_SNIFFED = 8192
COMPARED = 4_000_000
"""Pairs of lines up to which two texts are compared exactly."""


@dataclass(frozen=True)
class TextFile:
    """Decoded: `text` has `\\n` between lines, foreign bytes as surrogates (PEP 383). `returns`
    says of each line that ends whether it ends with `\\r\\n`."""

    text: str
    returns: tuple[bool, ...] = ()
    bom: bool = False
    foreign: int = 0

    @property
    def shown(self) -> str:
        """The text for people and models, with foreign bytes as U+FFFD."""
        return (
            self.text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
            if self.foreign
            else self.text
        )

    def encode(self, text: str) -> bytes:
        """Return `text` as this file would hold it.

        Existing lines and their replacements keep their line ends; additional ones get the usual
        end. In a file with both kinds, a text with `\\r\\n` is written unchanged.
        """
        mixed = any(self.returns) and not all(self.returns)
        is_as_written = mixed and "\r\n" in text
        if any(self.returns) and not is_as_written:
            text = self._with_line_ends(text.replace("\r\n", "\n"), mixed=mixed)
        return BOM * self.bom + text.encode("utf-8", "surrogateescape")

    def _with_line_ends(self, text: str, *, mixed: bool) -> str:
        """Return the text with `\\r\\n` where the file has it. `mixed`: the file has both line ends."""
        if not mixed:
            return text.replace("\n", "\r\n")
        old_lines = self.text.split("\n")[:-1]
        *new_lines, last = text.split("\n")
        most_return = 2 * sum(self.returns) > len(self.returns)
        returns = [most_return] * len(new_lines)
        for old, new, size in _matching_runs(old_lines, new_lines):
            returns[new : new + size] = self.returns[old : old + size]
        parts = []
        for line, ends_with_return in zip(new_lines, returns, strict=True):
            parts.append(f"{line}\r\n" if ends_with_return else f"{line}\n")
        return "".join([*parts, last])

    def misfit(self, text: str) -> str:
        """Return a new character of `text` that this file's encoding would not write, "" if all
        fit.

        A file without UTF-8 is in another encoding; U+FFFD is how its bytes were shown.
        """
        if not self.foreign:
            return ""
        own, more = (_beyond_ascii(part) for part in (self.text, text))
        return min(more - own if not own else (more - own) & {"\ufffd"}, default="")


def _beyond_ascii(text: str) -> set[str]:
    return {char for char in set(text) if not char.isascii() and not "\udc80" <= char <= "\udcff"}


MISFIT = (
    "is not UTF-8, and `{char}` would be written as UTF-8. Write ASCII, or use a command that "
    "knows the encoding"
)
"""The message about a file and the `char` that `misfit` returned."""


def is_binary(data: bytes) -> bool:
    """Return whether there is a NUL near the start, as git judges."""
    return b"\0" in data[:_SNIFFED]


def decode_text(data: bytes) -> TextFile:
    """Decode any bytes."""
    bom = data.startswith(BOM)
    text = data.removeprefix(BOM).decode("utf-8", "surrogateescape")
    foreign = sum("\udc80" <= char <= "\udcff" for char in text) if not text.isascii() else 0
    if "\r\n" not in text:
        return TextFile(text, (), bom, foreign)
    returns = tuple(line.endswith("\r") for line in text.split("\n")[:-1])
    return TextFile(text.replace("\r\n", "\n"), returns, bom, foreign)


def _matching_runs(before: Sequence[str], after: Sequence[str]) -> Iterator[tuple[int, int, int]]:
    """Yield the runs of lines that are in both texts or replace each other: start in the first,
    start in the second, length.
    """
    most = min(len(before), len(after))
    head = next((at for at in range(most) if before[at] != after[at]), most)
    tail = next((at for at in range(most - head) if before[-1 - at] != after[-1 - at]), most - head)
    yield 0, 0, head
    old, new = before[head : len(before) - tail], after[head : len(after) - tail]
    matcher = SequenceMatcher(None, old, new, autojunk=len(old) * len(new) > COMPARED)
    for _, start, end, first, last in matcher.get_opcodes():
        yield head + start, head + first, min(end - start, last - first)
    yield len(before) - tail, len(after) - tail, tail


def describe_binary(data: bytes) -> str:
    """Describe a binary file by its first bytes."""
    descriptions = {
        b"\x89PNG": "a PNG image", b"\xff\xd8\xff": "a JPEG image", b"GIF8": "a GIF image", b"%PDF": "a PDF",
        b"PK\x03\x04": "a zip archive", b"\x1f\x8b": "gzip data", b"\x7fELF": ("a program or "
            "library"),
        b"\xff\xfe": "UTF-16 text", b"\xfe\xff": "UTF-16 text", b"SQLite": "an SQLite database", b"GGUF": "a model",
    }  # fmt: skip
    return next(
        (description for start, description in descriptions.items() if data.startswith(start)),
        "binary data",
    )


def media_kind(start: bytes) -> str:
    """Return `picture`, `pdf` or "" by the first bytes of a file."""
    webp = start[:4] == b"RIFF" and start[8:12] == b"WEBP"
    if webp or start.startswith((b"\x89PNG\r\n", b"\xff\xd8\xff", b"GIF8")):
        return "picture"
    return "pdf" if start.startswith(b"%PDF-") else ""
