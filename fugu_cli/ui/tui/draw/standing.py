"""The status line as a line: where, in which mode, what it took so far, what is being waited for.

For the last line of the screen and the one below the inline prompt. Counts nothing; it is given a `Standing`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rich.cells import cell_len, set_cell_size

from fugu_cli.ui.clean import clean, count, retrying_in, spent
from fugu_cli.ui.tui.draw.lines import Line, Part, line
from fugu_cli.ui.tui.draw.palette import Palette
from fugu_cli.ui.tui.draw.text import brief_seconds
from fugu_cli.ui.tui.front import Standing

NAMED = 16
"""Cells of what is going on that are left of it where there is little room."""


def status(now: Standing, clock: float, width: int, palette: Palette) -> Line:
    """Left what lasts, right what is going on. Where both do not fit, first the word on the keys is left out, then a
    long `doing` is cut, then the place; what is going on and the mode come last.

    `clock` is the time, in seconds since the epoch.
    """
    for left in _lasting(now, clock, palette):
        for right in _doing(now, clock, width - _cells(left) - 2, palette):
            gap = width - _cells(left) - _cells(right)
            if gap >= (2 if right else 0):
                return line([*left, (" " * gap, ""), *right], width)
    return line([*_brief(now, palette), ("  ", ""), (now.mode, _tone(now, palette))], width)


def _doing(now: Standing, clock: float, room: int, palette: Palette) -> Iterator[list[Part]]:
    """What is going on, in ever fewer words."""
    queued = _queued(now, palette)
    if now.remark or not now.doing:
        hint = "ctrl+s sends it" if now.queued else now.hint
        yield [(now.remark, palette.warn)] if now.remark else [*queued, (hint, palette.dim)]
        yield _brief(now, palette)
        return
    spent = retrying_in(now.until - clock) if now.until else f" {brief_seconds(max(clock - now.since, 0.0))}"
    going: list[Part] = [*queued, (f"◐ {now.doing}{spent}", palette.accent)]
    yield [*going, (f" {now.key}", palette.dim)]
    yield going
    left = room - _cells([*queued, (f"◐ …{spent}", "")])
    if left >= min(NAMED, cell_len(now.doing)):
        yield [*queued, (f"◐ {set_cell_size(now.doing, left).rstrip()}…{spent}", palette.accent)]


def _brief(now: Standing, palette: Palette) -> list[Part]:
    if now.remark:
        return [(now.remark, palette.warn)]
    going: list[Part] = [(f"◐ {now.doing}", palette.accent)] if now.doing else []
    return [*_queued(now, palette), *going]


def _queued(now: Standing, palette: Palette) -> list[Part]:
    return [(f"{now.queued} queued ", palette.warn)] if now.queued else []


def _lasting(now: Standing, clock: float, palette: Palette) -> Iterator[list[Part]]:
    """What lasts, in ever fewer words: without the branch, the folders around this one, the place, the numbers, and who
    is unavailable."""
    out = _unavailable(now, clock, palette)
    folder = now.place.rpartition("/")[2]
    branch = f" ({now.branch})" if now.branch else ""
    for place in (f"{now.place}{branch} · ", f"{folder}{branch} · ", f"{folder} · ", ""):
        yield [(f"{place}{now.tier} · ", palette.dim), *_mode(now, palette), *out, *_numbers(now, palette)]
    yield [*_mode(now, palette), *out]
    yield _mode(now, palette)
    yield _mode(replace(now, pinned=""), palette)


def _mode(now: Standing, palette: Palette) -> list[Part]:
    pinned: list[Part] = [(f" · pinned {now.pinned}", palette.dim)] if now.pinned else []
    return [(now.mode, _tone(now, palette)), *pinned]


def _unavailable(now: Standing, clock: float, palette: Palette) -> list[Part]:
    """Who is unavailable, and when the first may be tried again."""
    out = [(until, name) for name, until in now.unavailable if until > clock]
    if not out:
        return []
    who = clean(out[0][1]) if len(out) == 1 else f"{len(out)} agents"
    return [(f" · {who} unavailable{retrying_in(min(out)[0] - clock)}", palette.warn)]


def _tone(now: Standing, palette: Palette) -> str:
    return {"plan": palette.good, "auto": palette.warn, "yolo": palette.bad}.get(now.mode, palette.text)


def _numbers(now: Standing, palette: Palette) -> list[Part]:
    made = [f"ctx {round(now.context * 100)}%"] if now.context is not None else []
    if now.tokens:
        made += [f"{count(now.tokens)} tok", spent(now.cost, unpriced=now.unpriced)]
    if now.jobs:
        made.append(f"{now.jobs} {'job' if now.jobs == 1 else 'jobs'}")
    return [(f" · {part}", palette.dim) for part in made]


def _cells(parts: Sequence[Part]) -> int:
    return sum(cell_len(text) for text, _ in parts)
