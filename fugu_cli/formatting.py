"""Foreign text made safe to print, and numbers, durations and money as short text. Imports nothing
of fugu.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    # OSC, DCS and their kind: titles, links, clipboards
    r"|\x1b[\]PX^_](?:[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)"
    r"|[^\x07\x1b\x9c\n]*)"  # those that do not end: no further than their line
    r"|\x1b[ -/]*[0-~]"  # two-character sequences
    r"|\x9b[0-?]*[ -/]*[@-~]"  # CSI in one byte
)
_CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2028\u2029\u2066-\u2069\ud800-\udfff]"
)
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff"
    "\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164"
    "\ufeff\uffa0\ufff9-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""Control characters, and others that do not show: they order, join, hide or carry letters."""


def sanitize(text: str) -> str:
    """Return the text without escape sequences; control characters other than newline and tab are
    shown, not sent.
    """
    plain = _ESCAPES.sub("", text.replace("\r\n", "\n"))
    return _CONTROL.sub(lambda match: _escape(ord(match.group())), plain)


def escape_invisible(text: str) -> str:
    """Return all of `text`: whatever does not show by itself is shown as `\\x1b`, only newlines and
    tabs stay.
    """
    return _INVISIBLE.sub(lambda match: _escape(ord(match.group())), text)


def _escape(code: int) -> str:
    if 0xDC80 <= code <= 0xDCFF:  # a byte of a file name that is not UTF-8
        return f"\\x{code - 0xDC00:02x}"
    if code > 0xFFFF:
        return f"\\U{code:08x}"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def with_tilde(text: str) -> str:
    """Return a text in which paths under the home folder begin with `~/`."""
    with suppress(RuntimeError):
        return text.replace(f"{Path.home()}/", "~/")
    return text


CLOCK_TIME_FROM = 1800.0
"""Seconds from which the end of a wait is told as a time of the day."""


def clock_time(at: float) -> str:
    """Return a time (seconds since the epoch) as people read it: `15:00`, `Tuesday 15:00`."""
    moment = time.localtime(at)
    is_today = moment[:3] == time.localtime()[:3]
    return time.strftime("%H:%M" if is_today else "%A %H:%M", moment)


def first_line(text: str, width: int = 100) -> str:
    """Return the first line that says something, cut to `width` characters."""
    line = next((line.strip() for line in sanitize(text).splitlines() if line.strip()), "")
    return shorten(line, width)


def shorten(text: str, width: int) -> str:
    """Return the text in at most `width` characters, the end replaced by dots."""
    return text if len(text) <= width else text[: max(width - 3, 0)] + "..."


def duration(value: float) -> str:
    """Return a duration: `310 ms`, `4.2 s`, `75 s`, `12 min 05 s`."""
    if value < 1:
        return f"{value * 1000:.0f} ms"
    if value < 10:
        return f"{value:.1f} s"
    if value < 180:
        return f"{value:.0f} s"
    return f"{int(value) // 60} min {int(value) % 60:02d} s"


def retrying_in(left: float) -> str:
    """Return the end of a countdown: `, retrying in 27 s`, `, until 15:00`, `, retrying now`."""
    if left >= CLOCK_TIME_FROM:
        return f", until {clock_time(time.time() + left)}"
    return f", retrying in {remaining_time(left)}" if left > 0 else ", retrying now"


def remaining_time(value: float) -> str:
    """Return seconds to come, rounded up, such as `27 s` or `12 min 05 s`."""
    return f"{math.ceil(value)} s" if value < 180 else duration(math.ceil(value))


def compact_number(value: int) -> str:
    """Return a number of tokens like `950`, `1.2k`, `35k` or `1.20M`."""
    if value < 1000:
        return str(value)
    if value < 10_000:
        return f"{value / 1000:.1f}k"
    return f"{value / 1000:.0f}k" if value < 1_000_000 else f"{value / 1_000_000:.2f}M"


def money(value: float) -> str:
    """USD: `$0`, `$0.0042`, `$1.20`."""
    if value == 0:
        return "$0"
    return f"${value:.4f}" if value < 0.1 else f"${value:.2f}"


def known_cost(value: float, *, unpriced: bool, estimated: bool = False) -> str:
    """USD of calls, of which some may have no known price: `unknown`, `$1.20 + unknown`.

    A tilde, `~$1.20`, says that a server did not count every call.
    """
    amount = f"~{money(value)}" if estimated else money(value)
    if not unpriced:
        return amount
    return f"{amount} + unknown" if value else "unknown"


def probability(value: float) -> str:
    """Return a probability like `.61`, at the ends `1.0` and `.00`."""
    text = f"{value:.2f}"
    return text[1:] if text.startswith("0") else "1.0"


_DROPPED = re.compile("[\u200b\u2060\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]")
_SUSPECT = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff\ufff9-\ufffb"
    "\U000e0000-\U000e007f]"
)
TAB = 4


def sanitize_for_screen(text: str) -> str:
    """Return `text` as lines of visible characters, without anything that a terminal obeys.

    In addition to `sanitize`, tabs become spaces, invisible characters are removed, line separators
    end lines, and a line that overwrites itself with carriage returns (a progress bar) is shown in
    its last state.
    """
    if not _SUSPECT.search(text):
        return text
    text = text.replace("\r\n", "\n").replace("\u2028", "\n").replace("\u2029", "\n")
    if "\r" in text:
        text = "\n".join(_last_state(line) for line in text.split("\n"))
    text = _DROPPED.sub("", sanitize(text))
    return text.expandtabs(TAB) if "\t" in text else text


def escape_for_approval(text: str) -> str:
    """Return all of `text`, for what people say yes to: what does not show is shown. Tabs become
    spaces.
    """
    return escape_invisible(text).expandtabs(TAB)


def _last_state(line: str) -> str:
    states = [part for part in line.split("\r") if part]
    return states[-1] if states else ""


def flatten(text: str, limit: int = 400) -> str:
    """Return the text on one line of at most `limit` characters, for titles and rows."""
    joined = " ".join(sanitize_for_screen(text[: 4 * limit]).split())
    return joined if len(joined) <= limit else joined[: limit - 1] + "…"


def excerpt(text: str, limit: int, whole: str) -> str:
    """Return the text, without its middle if it has more than `limit` characters. `whole` says
    where the whole text is.
    """
    if len(text) <= limit:
        return text
    tail = limit // 5
    left_out = f"… {len(text) - limit:,} characters are left out here; {whole} …"
    return f"{text[: limit - tail]}\n{left_out}\n{text[-tail:]}"


def plural(number: int, thing: str, things: str = "") -> str:
    """Return a count like `3 lines` or `1 line`."""
    return f"{number:,} {thing if number == 1 else things or thing + 's'}"


def short_duration(value: float) -> str:
    """Return a duration in at most six characters: `0.4s`, `12s`, `3m05s`, `2h10m`."""
    if value < 9.95:
        return f"{value:.1f}s"
    whole = round(value)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"


def aligned_rows(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """Return rows of cells as lines of text, made safe. The columns in `right` are aligned right."""
    safe_rows = [[sanitize(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*safe_rows, strict=True)]
    lines: list[str] = []
    for row in safe_rows:
        cells = []
        for index, (cell, width) in enumerate(zip(row, widths, strict=True)):
            cells.append(cell.rjust(width) if index in right else cell.ljust(width))
        lines.append("  ".join(cells).rstrip())
    return lines
