"""The status line as a line: where, in which mode, what it took so far, what is being waited for.

For the last line of the screen and the one below the inline prompt. Counts nothing; it is given a `Standing`.
"""

from __future__ import annotations

from rich.cells import cell_len

from fugu_cli.ui.clean import count, money
from fugu_cli.ui.tui.draw.lines import Line, Part, line, spread
from fugu_cli.ui.tui.draw.palette import Palette
from fugu_cli.ui.tui.draw.text import brief_seconds
from fugu_cli.ui.tui.front import Standing


def status(now: Standing, clock: float, width: int, palette: Palette) -> Line:
    """Left what lasts, right what is going on. Where both do not fit: what is going on first, and no hint.

    `clock` is the time, in seconds since the epoch.
    """
    doing, lasting = _doing(now, clock, palette), _lasting(now, width, palette)
    needs = sum(cell_len(text) for text, _ in (*lasting, *doing)) + 2
    if needs <= width:
        return spread(lasting, doing, width)
    if now.doing or now.queued or now.remark:
        return line([*doing, ("  ", ""), *lasting], width)
    return line(lasting, width)


def _doing(now: Standing, clock: float, palette: Palette) -> list[Part]:
    queued: list[Part] = [(f"{now.queued} queued ", palette.warn)] if now.queued else []
    if now.remark:
        return [(now.remark, palette.warn)]
    if not now.doing:
        return [*queued, (now.hint, palette.dim)]
    spent = brief_seconds(max(clock - now.since, 0.0))
    return [*queued, (f"◐ {now.doing} {spent}", palette.accent), (" esc stops", palette.dim)]


def _lasting(now: Standing, width: int, palette: Palette) -> list[Part]:
    place = now.place + (f" ({now.branch})" if now.branch and width >= 70 else "")
    words = {"plan": palette.good, "auto": palette.warn, "yolo": palette.bad}.get(now.mode, palette.text)
    tail = [f"pinned {now.pinned}"] if now.pinned else []
    if now.context is not None:
        tail.append(f"ctx {round(now.context * 100)}%")
    if now.tokens:
        tail += [f"{count(now.tokens)} tok", money(now.cost)]
    made: list[Part] = [(f"{place} · {now.tier} · ", palette.dim), (now.mode, words)]
    return [*made, *((f" · {part}", palette.dim) for part in tail)]
