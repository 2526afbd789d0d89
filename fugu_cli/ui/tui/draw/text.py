"""Text from models, tools and files, made safe for a line of the screen.

The lowest layer of everything that is drawn: whatever was not written by us passes through `safe`, or `exact`, before
it becomes a line. On top of ui/clean.py, which every output shares; here also what only a drawn line needs. Knows no
styles.
"""

from __future__ import annotations

import re

from fugu_cli.ui.clean import bare, clean

_UNSEEN = re.compile("[\u200b\u2060\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]")
_SUSPECT = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff\ufff9-\ufffb"
    "\U000e0000-\U000e007f]"
)
TAB = 4


def safe(text: str) -> str:
    """`text` as lines of visible characters that a terminal obeys in nothing.

    On top of `clean`: tabs become spaces, invisible characters go, line separators end lines, and of a line that
    rewrites itself with carriage returns (a progress bar) the last state stays.
    """
    if not _SUSPECT.search(text):
        return text
    text = text.replace("\r\n", "\n").replace("\u2028", "\n").replace("\u2029", "\n")
    if "\r" in text:
        text = "\n".join(_last_state(line) for line in text.split("\n"))
    text = _UNSEEN.sub("", clean(text))
    return text.expandtabs(TAB) if "\t" in text else text


def exact(text: str) -> str:
    """All of `text`, for what people say yes to: what does not show is shown. Tabs become spaces."""
    return bare(text).expandtabs(TAB)


def _last_state(line: str) -> str:
    states = [part for part in line.split("\r") if part]
    return states[-1] if states else ""


def flat(text: str, limit: int = 400) -> str:
    """`text` on one line of at most `limit` characters, for titles and rows."""
    joined = " ".join(safe(text[: 4 * limit]).split())
    return joined if len(joined) <= limit else joined[: limit - 1] + "…"


def count(number: int, thing: str, things: str = "") -> str:
    """`3 lines`, `1 line`."""
    return f"{number:,} {thing if number == 1 else things or thing + 's'}"


def brief_seconds(value: float) -> str:
    """A duration in at most six characters: `0.4s`, `12s`, `3m05s`, `2h10m`."""
    if value < 9.95:
        return f"{value:.1f}s"
    whole = round(value)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
