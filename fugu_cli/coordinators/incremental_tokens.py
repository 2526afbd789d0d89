"""Token numbers of a text that grew: only its end is tokenised again, the rest is known from the last time.

Stands between a tokenizer and backbone.py; a transcript of 8,000 tokens costs 30 ms to tokenise, its newest line less
than one. Texts are cut where a line begins with a letter, which no tokenizer of FAMILY joins with the line before; that
the tokens from there on are those of the last time is checked, and where they are not the whole text is tokenised.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer

HALVES = re.compile("[\ud800-\udfff]")
"""Halves of characters, which no tokenizer takes: a stream may have been cut between them, a file name be no UTF-8."""
TAIL = 64
"""Characters at the end of a text that what follows it may join to another token."""


class Growing:
    """Remembers the newest text, its tokens and where in the text each begins. May be called from several threads."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._known: tuple[str, list[int], list[int]] = ("", [], [])

    def tokens(self, text: str) -> list[int]:
        """What the tokenizer gives for the whole of `text`."""
        text = whole(text)
        known, ids, starts = self._known
        shared = _shared(known, text)
        cut = _line(text, shared - 2 * TAIL)
        index = bisect_left(starts, cut)
        if cut and starts[index : index + 1] == [cut]:
            found = self._tokenizer.encode(text[cut:])
            same = bisect_left(starts, shared - TAIL) - 1 - index
            if same > 0 and found.ids[:same] == ids[index : index + same]:
                ids = ids[:index] + found.ids
                self._known = text, ids, starts[:index] + [cut + at for at, _ in found.offsets]
                return list(ids)
        found = self._tokenizer.encode(text)
        self._known = text, found.ids, [at for at, _ in found.offsets]
        return list(found.ids)


def whole(text: str) -> str:
    """`text` as a tokenizer takes it."""
    return HALVES.sub("\ufffd", text)


def _shared(one: str, other: str) -> int:
    """How many characters the two have in common at their beginning."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[low:middle] == other[low:middle] else (low, middle - 1)
    return low


def _line(text: str, limit: int) -> int:
    """Where the last line before `limit` begins that begins with a letter; 0 where there is none."""
    at = limit
    while at > 0:
        at = text.rfind("\n", 0, at)
        if at >= 0 and text[at + 1 : at + 2].isascii() and text[at + 1 : at + 2].isalpha():
            return at + 1
    return 0
