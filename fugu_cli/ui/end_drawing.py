"""Draws the end of a request: a card where files were changed or work was accepted, else a line."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len

from fugu_cli.formatting import compact_number, plural, sanitize_for_screen, short_duration
from fugu_cli.ui.blocks import EndBlock
from fugu_cli.ui.drawing import (
    BLANK,
    TERMINAL,
    Palette,
    StyledLine,
    StyledPart,
    indent_lines,
    styled_line,
    with_commands,
    wrap_lines,
)

WIDEST_CARD, NARROWEST_CARD = 100, 40
"""Columns of a card, its frame included."""


def end_lines(block: EndBlock, width: int, palette: Palette) -> list[StyledLine]:
    """Return how the request ended, with its numbers."""
    if block.is_card and palette is not TERMINAL and width >= NARROWEST_CARD:
        return _card(block, min(width, WIDEST_CARD), palette)
    sign, tone = _sign(block, palette)
    text, numbers = block.line.text, " · ".join(_numbers(block))
    fits = cell_len(text) + cell_len(numbers) + 4 <= width
    head, *rest = wrap_lines(text, width - 2, f"bold {tone}")
    first = [
        *styled_line([(f"{sign} ", tone)], 2),
        *head,
        *styled_line([(f"  {numbers}", palette.dim)], width)[: int(fits)],
    ]
    more = [*rest, *([] if fits else wrap_lines(numbers, width - 2, palette.dim))]
    more += _why(block, width - 2, palette)
    return [first, *indent_lines(more, ("  ", "")), BLANK]


def _card(block: EndBlock, width: int, palette: Palette) -> list[StyledLine]:
    """Draw a frame with who accepted the work in its upper edge."""
    inner = width - 4
    sign, tone = _sign(block, palette)
    title, *clauses = block.line.clauses
    if block.by_other:
        title = f"{title}, who wrote none of it"
    edge = palette.dim
    if cell_len(title) + 8 <= width:
        upper: list[StyledPart] = [("╭ ", edge), (f"{sign} ", tone), (title, f"bold {tone}")]
        lines: list[StyledLine] = []
    else:
        upper = [("╭─", edge)]
        lines = wrap_lines(f"{sign} {title}", inner, f"bold {tone}", "  ")
    used = sum(cell_len(text) for text, _ in upper)
    upper.append((f" {'─' * (width - used - 2)}╮", edge))
    state_tone = palette.text if block.line.tone == "good" else tone
    if clauses:
        lines += wrap_lines(" · ".join(clauses), inner, state_tone)
    lines += _joined(_numbers(block), inner, palette.dim)
    lines += _why(block, inner, palette)
    framed = [_framed(line, inner, palette) for line in lines]
    lower = styled_line([(f"╰{'─' * (width - 2)}╯", edge)], width)
    return [styled_line(upper, width), *framed, lower, BLANK]


def _framed(line: StyledLine, inner: int, palette: Palette) -> StyledLine:
    gap = max(inner - sum(cell_len(segment.text) for segment in line), 0)
    left, right = (
        styled_line([("│ ", palette.dim)], 2),
        styled_line([(" " * gap + " │", palette.dim)], gap + 2),
    )
    return [*left, *line, *right]


def _sign(block: EndBlock, palette: Palette) -> tuple[str, str]:
    """Return the sign of the end and its colour."""
    reason = block.finished.reason
    stopped = palette.bad if reason == "failed" else palette.warn
    tones = {"good": palette.good, "warn": palette.warn, "bad": stopped}
    if reason in ("accepted", "answered"):
        return "✓", tones[block.line.tone]
    return ("✗" if reason == "failed" else "■"), tones[block.line.tone]


def _numbers(block: EndBlock) -> list[str]:
    """Return the files, and what the request took."""
    numbers = []
    if block.files:
        size = f" +{block.size[0]} -{block.size[1]}" if block.size is not None else ""
        numbers.append(plural(block.files, "file") + size)
    numbers += [
        plural(block.turns, "turn"),
        short_duration(block.seconds),
        f"{compact_number(block.tokens)} tokens",
        block.cost,
    ]
    if block.checking:
        numbers.append(f"checking {block.checking}")
    if block.alone:
        numbers.append(block.alone)
    return numbers


def _joined(parts: Sequence[str], width: int, style: str) -> list[StyledLine]:
    """Return the parts with dots between them, a new line only between two parts."""
    rows: list[str] = []
    for part in parts:
        if rows and cell_len(rows[-1]) + cell_len(part) + 3 <= width:
            rows[-1] += f" · {part}"
        else:
            rows.append(part)
    return [line for row in rows for line in wrap_lines(row, width, style)]


def _why(block: EndBlock, width: int, palette: Palette) -> list[StyledLine]:
    """Return why the request was stopped, nothing for one that came to its end."""
    if block.finished.reason in ("accepted", "answered") or not block.why:
        return []
    _, tone = _sign(block, palette)
    return wrap_lines(sanitize_for_screen(with_commands(block.why, palette)), width, tone)
