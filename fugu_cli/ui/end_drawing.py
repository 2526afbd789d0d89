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
from fugu_cli.ui.turn_notes import wait_text

WIDEST_CARD, NARROWEST_CARD = 100, 40
"""Columns of a card, its frame included."""


def end_lines(block: EndBlock, width: int, palette: Palette) -> list[StyledLine]:
    """Draw the end of a request: a card if it has one and there is room, else a line with its
    numbers.
    """
    if block.is_card and palette is not TERMINAL and width >= NARROWEST_CARD:
        return _draw_card(block, min(width, WIDEST_CARD), palette)
    sign, tone = _sign(block, palette)
    text, numbers = block.summary.line.text, " · ".join(end_numbers(block))
    fits = cell_len(text) + cell_len(numbers) + 4 <= width
    head, *rest = wrap_lines(text, width - 2, f"bold {tone}")
    first = [*styled_line([(f"{sign} ", tone)], 2), *head]
    more = list(rest)
    if fits:
        first += styled_line([(f"  {numbers}", palette.dim)], width)
    else:
        more += wrap_lines(numbers, width - 2, palette.dim)
    more += _reason_lines(block, width - 2, palette)
    return [first, *indent_lines(more, ("  ", "")), BLANK]


def _draw_card(block: EndBlock, width: int, palette: Palette) -> list[StyledLine]:
    """Draw a frame with who accepted the work in its upper edge."""
    inner = width - 4
    sign, tone = _sign(block, palette)
    title, *clauses = block.summary.line.clauses
    if block.summary.by_other:
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
    state_tone = palette.text if block.summary.line.tone == "good" else tone
    if clauses:
        lines += wrap_lines(" · ".join(clauses), inner, state_tone)
    lines += _dotted_lines(end_numbers(block), inner, palette.dim)
    lines += _reason_lines(block, inner, palette)
    framed = [_framed(line, inner, palette) for line in lines]
    lower = styled_line([(f"╰{'─' * (width - 2)}╯", edge)], width)
    return [styled_line(upper, width), *framed, lower, BLANK]


def _framed(line: StyledLine, inner: int, palette: Palette) -> StyledLine:
    gap = max(inner - sum(cell_len(segment.text) for segment in line), 0)
    left = styled_line([("│ ", palette.dim)], 2)
    right = styled_line([(" " * gap + " │", palette.dim)], gap + 2)
    return [*left, *line, *right]


def _sign(block: EndBlock, palette: Palette) -> tuple[str, str]:
    """Return the sign of the end and its colour."""
    reason = block.finished.reason
    stopped = palette.bad if reason == "failed" else palette.warn
    tones = {"good": palette.good, "warn": palette.warn, "bad": stopped}
    tone = tones[block.summary.line.tone]
    if reason in ("accepted", "answered"):
        return "✓", tone
    if reason == "failed":
        return "✗", tone
    return "■", tone


def end_numbers(block: EndBlock) -> list[str]:
    """Return the numbers of the request: files, turns, time, tokens and cost."""
    numbers = []
    if block.summary.files:
        files = plural(block.summary.files, "file")
        if block.size is not None:
            added, removed = block.size
            files += f" +{added} -{removed}"
        numbers.append(files)
    turns = plural(block.summary.turns, "turn")
    if block.summary.subtasks:
        turns += f", {plural(block.summary.subtasks, 'subtask')}"
    numbers += [turns, short_duration(block.seconds)]
    if wait := wait_text(block.waited):
        numbers.append(wait)
    numbers += [
        f"{compact_number(block.summary.tokens)} tokens",
        block.summary.cost,
    ]
    if block.summary.checking:
        numbers.append(f"checking {block.summary.checking}")
    if block.summary.alone:
        numbers.append(block.summary.alone)
    return numbers


def _dotted_lines(parts: Sequence[str], width: int, style: str) -> list[StyledLine]:
    """Draw the parts with dots between them. Lines are broken between two parts where possible."""
    rows: list[str] = []
    for part in parts:
        if rows and cell_len(rows[-1]) + cell_len(part) + 3 <= width:
            rows[-1] += f" · {part}"
        else:
            rows.append(part)
    return [line for row in rows for line in wrap_lines(row, width, style)]


def _reason_lines(block: EndBlock, width: int, palette: Palette) -> list[StyledLine]:
    """Draw the reason why the request was stopped; no lines for one that was completed."""
    if block.finished.reason in ("accepted", "answered") or not block.summary.why:
        return []
    _, tone = _sign(block, palette)
    reason = sanitize_for_screen(with_commands(block.summary.why, palette))
    return wrap_lines(reason, width, tone)
