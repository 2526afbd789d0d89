"""Characters as people see them: an emoji with a skin tone, a flag or an accented letter may be
several code points."""

from __future__ import annotations

import unicodedata

from wcwidth import iter_graphemes

LOOKED_AT = 1000
"""Code points around the cursor that are looked at."""


def last_character(text: str) -> str:
    """Return the last character of a text with all its code points, "" for an empty text."""
    characters = list(iter_graphemes(text[-LOOKED_AT:]))
    return characters[-1] if characters else ""


def first_character(text: str) -> str:
    """Return the first character of a text with all its code points, "" for an empty text."""
    return next(iter_graphemes(text[:LOOKED_AT]), "")


def is_joiner(character: str) -> bool:
    """Return whether a character is not seen itself but shapes those around it, as the one that
    joins the people of a family, or keeps two Persian letters apart."""
    return len(character) == 1 and unicodedata.category(character) == "Cf"
