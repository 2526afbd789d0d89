"""Does a reply say the same again and again? A small model that begins to does not stop by itself.

Under openai.py, for the embedded models, and text.py, which reads what such a reply said before. Pure.
"""

from __future__ import annotations

import re

LINES = 6
"""Of a passage that may be repeated."""
ONCE, SEVERAL = 8, 5
"""How often a line, and a passage of several, stands there in a row: files hold tables, but few so even."""
SHORTEST = 8
"""Characters of a passage: brackets may close in a row."""
_WITHIN = re.compile(r"(?s)(.{2,40}?)\1{24,}.{0,40}\Z")
_TAIL = 1600


def begins(text: str, known: str = "") -> int | None:
    """The place in `text` behind the first of the repetitions in which it ends, None where it does not end in any, or
    `known` (what the model was shown) holds them as well."""
    lines = text.split("\n")
    done, rest = lines[:-1], lines[-1]
    for length in range(1, min(LINES, len(done)) + 1):
        passage = done[-length:]
        if sum(len(line.strip()) for line in passage) < SHORTEST:
            continue
        times = 1
        while done[-length * (times + 1) : -length * times] == passage:
            times += 1
        if times >= (ONCE if length == 1 else SEVERAL) and "\n".join(passage * 3) not in known:
            return len("\n".join(done[: len(done) - length * (times - 1)])) + 1
    found = _WITHIN.search(rest[-_TAIL:])
    if found is None or found.group(1) * 12 in known or not found.group(1).strip():
        return None
    return len(text) - len(rest) + max(len(rest) - _TAIL, 0) + found.end(1)
