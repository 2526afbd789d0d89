"""A file's bytes as text and back, with nothing lost: newlines, byte order mark, bytes that are not UTF-8.

Between the disk and the tools that read and edit. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from difflib import SequenceMatcher

BOM = b"\xef\xbb\xbf"
_SNIFFED = 8192


@dataclass(frozen=True)
class TextFile:
    """Decoded: `text` has `\\n` only where `newline` is uniform, foreign bytes as surrogates (PEP 383)."""

    text: str
    newline: str = "\n"
    bom: bool = False
    foreign: int = 0

    @property
    def shown(self) -> str:
        """For people and models: foreign bytes as U+FFFD."""
        return self.text.encode("utf-8", "surrogateescape").decode("utf-8", "replace") if self.foreign else self.text

    def encode(self, text: str) -> bytes:
        """`text` as this file would hold it."""
        if self.newline == "\r\n":
            text = text.replace("\r\n", "\n").replace("\n", "\r\n")
        return BOM * self.bom + text.encode("utf-8", "surrogateescape")

    def ended(self, text: str) -> str:
        """`text` with line ends as this file has them, where it has both kinds and the text only newlines: lines that
        stay keep theirs, others get what most have."""
        if "\r\n" not in self.text or "\r" in text:
            return text
        before, after = self.text.split("\n")[:-1], text.split("\n")
        usual = "\r" if 2 * self.text.count("\r\n") > len(before) else ""
        ended = [line + usual for line in after[:-1]]
        same = SequenceMatcher(None, [line.removesuffix("\r") for line in before], after[:-1]).get_matching_blocks()
        for old, new, size in same:
            ended[new : new + size] = before[old : old + size]
        return "\n".join([*ended, after[-1]])

    def misfit(self, text: str) -> str:
        """A character that `text` has more than this file, in whose encoding it would not be written; "" where all fit.

        A file that is nowhere UTF-8 is in another encoding; U+FFFD is how its bytes were shown.
        """
        if not self.foreign:
            return ""
        own, more = (_beyond_ascii(part) for part in (self.text, text))
        return min(more - own if not own else (more - own) & {"\ufffd"}, default="")


def _beyond_ascii(text: str) -> set[str]:
    return {char for char in set(text) if not char.isascii() and not "\udc80" <= char <= "\udcff"}


MISFIT = "is not UTF-8, and `{char}` would be written as UTF-8. Write ASCII, or use a command that knows the encoding"
"""What is said of a file and the `char` that `misfit` found."""


def is_binary(data: bytes) -> bool:
    """By a NUL near the start, as git judges."""
    return b"\0" in data[:_SNIFFED]


def decode(data: bytes) -> TextFile:
    """Any bytes. A file with both kinds of line ends keeps its carriage returns in the text."""
    bom = data.startswith(BOM)
    text = data.removeprefix(BOM).decode("utf-8", "surrogateescape")
    foreign = sum("\udc80" <= char <= "\udcff" for char in text) if not text.isascii() else 0
    file = TextFile(text, "\n", bom, foreign)
    returns = text.count("\r\n")
    if returns and returns == text.count("\n"):
        file = replace(file, text=text.replace("\r\n", "\n"), newline="\r\n")
    return file


def describe(data: bytes) -> str:
    """What a binary file is, as far as its first bytes tell."""
    kinds = {
        b"\x89PNG": "a PNG image", b"\xff\xd8\xff": "a JPEG image", b"GIF8": "a GIF image", b"%PDF": "a PDF",
        b"PK\x03\x04": "a zip archive", b"\x1f\x8b": "gzip data", b"\x7fELF": "a program or library",
        b"\xff\xfe": "UTF-16 text", b"\xfe\xff": "UTF-16 text", b"SQLite": "an SQLite database", b"GGUF": "a model",
    }  # fmt: skip
    return next((kind for start, kind in kinds.items() if data.startswith(start)), "binary data")
