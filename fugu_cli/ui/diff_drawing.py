"""A patch as lines: line numbers, colours of the language, marks on the words that differ; side by
side where there is room. Under diff_lines.py's patches; knows nothing of calls and of permission.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Literal

from rich.segment import Segment
from rich.style import Style
from rich.text import Text

from fugu_cli.app.patches import LONGEST_LINE, LONGEST_LINE_ON_PAGE, shorten_patch
from fugu_cli.formatting import escape_for_approval, plural
from fugu_cli.ui.drawing import (
    GUTTER,
    Palette,
    StyledLine,
    fold_text,
    indent_lines,
    on_ground,
    parse_style,
    wrap_lines,
)

if TYPE_CHECKING:
    from rich.syntax import Syntax

SIDE_BY_SIDE, FRAME, LEAST_BESIDE = 160, 10, 80
"""Columns of a terminal from which the old and the new stand beside each other; most columns of the
frames around a patch; columns of a patch that are needed for it."""
MOST_COLOURED = 2000
"""Lines of a patch that are coloured by their language."""
ALIKE = 0.5
"""Words are compared only if two lines have at least this similarity (0 to 1)."""
LONGEST_COMPARED = 400
"""Characters of a line whose words are compared."""
_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_NOISE = re.compile(r"index [0-9a-f]+\.\.[0-9a-f]+( \d+)?|(new|deleted) file mode \d+")
"""Lines of git's diff that people need not read."""
_GIT = re.compile(r"diff --git a/.* b/(.*)")
_WORDS = re.compile(r"\w+|\s+|.")
Kind = Literal["file", "gap", "same", "old", "new", "other"]
Shape = Literal["whole", "untitled", "beside", "changes"]
"""All of a patch; without the name of a single file, which stands elsewhere; the same with the old
and the new beside each other; what is added and removed alone."""


@dataclass(frozen=True)
class PatchRow:
    """A line of a patch. `old` and `new` are its numbers in the two files; `marks` the parts that
    differ from its counterpart."""

    kind: Kind
    text: str
    old: int = 0
    new: int = 0
    path: str = ""
    marks: tuple[tuple[int, int], ...] = ()


def patch_lines(
    patch: str, width: int, palette: Palette, most: int | None = None, shape: Shape = "whole"
) -> list[StyledLine]:
    """Draw a patch in colours. Of more than `most` lines, draw the first ones and the number of the
    others.

    People approve it, so invisible characters are shown, and cut lines say that they are cut.
    """
    longest = LONGEST_LINE_ON_PAGE if most is None else LONGEST_LINE
    patch = shorten_patch(patch.replace("\r\n", "\n"), longest)
    rows = list(patch_rows(escape_for_approval(patch)))
    if shape != "whole" and sum(row.kind == "file" for row in rows) == 1:
        rows = [row for row in rows if row.kind != "file"]
    if shape == "changes" and any(row.kind in ("old", "new") for row in rows):
        rows = [row for row in rows if row.kind not in ("same", "gap")]
    shown = rows if most is None or len(rows) <= most + 1 else rows[:most]
    side_by_side = shape == "beside" or width + FRAME >= SIDE_BY_SIDE
    lines = _draw_rows(_mark_differences(shown), width, palette, side_by_side)
    if len(shown) < len(rows):
        lines += wrap_lines(f"… {plural(len(rows) - len(shown), 'more line')}", width, palette.dim)
    return lines


def indented_patch(
    patch: str, width: int, palette: Palette, most: int | None = None, terminal: int = 0
) -> list[StyledLine]:
    """Draw an indented patch for the conversation, where the line above names its file.

    `terminal` is the terminal's width if something stands beside the conversation.
    """
    shape: Shape = "beside" if terminal >= SIDE_BY_SIDE and width >= LEAST_BESIDE else "untitled"
    return indent_lines(patch_lines(patch, width - 4, palette, most, shape), ("    ", ""))


KINDS: dict[str, Kind] = {"+": "new", "-": "old", " ": "same", "": "same"}


def patch_rows(patch: str) -> Iterator[PatchRow]:
    """Yield the rows of a unified diff. Lines of a patch without line numbers are kept as they are."""
    old = new = left_old = left_new = 0
    path = named_path = ""
    first = True
    for line in patch.removesuffix("\n").split("\n") if patch else ():
        if left_old > 0 or left_new > 0:
            row_kind = KINDS.get(line[:1], "other")
            yield PatchRow(row_kind, line if row_kind == "other" else line[1:], old, new, path)
            if row_kind in ("same", "old"):
                old, left_old = old + 1, left_old - 1
            if row_kind in ("same", "new"):
                new, left_new = new + 1, left_new - 1
        elif match := _HUNK.match(line):
            old, new = int(match[1]), int(match[3])
            left_old, left_new = int(match[2] or 1), int(match[4] or 1)
            if not first:
                yield PatchRow("gap", line[match.end() :].strip())
            first = False
        elif line.startswith(("--- ", "+++ ")):
            named = line[4:].partition("\t")[0]
            path = path if named == "/dev/null" else re.sub(r"^[ab]/", "", named)
            if line.startswith("+++ "):
                if path != named_path:
                    yield PatchRow("file", path)
                first, named_path = True, ""
        elif match := _GIT.fullmatch(line):
            path = named_path = match[1]
            yield PatchRow("file", path)
        elif not _NOISE.fullmatch(line):
            yield PatchRow("other", line)


def _mark_differences(rows: Sequence[PatchRow]) -> list[PatchRow]:
    """Return the rows with marks on the words that differ between corresponding lines."""
    marked = list(rows)
    at = 0
    while at < len(marked):
        olds = _run(marked, at, "old")
        news = _run(marked, at + olds, "new")
        for offset in range(min(olds, news)):
            left, right = _differences(marked[at + offset].text, marked[at + olds + offset].text)
            marked[at + offset] = replace(marked[at + offset], marks=left)
            marked[at + olds + offset] = replace(marked[at + olds + offset], marks=right)
        at += max(olds + news, 1)
    return marked


def _run(rows: Sequence[PatchRow], start: int, kind: Kind) -> int:
    end = start
    while end < len(rows) and rows[end].kind == kind:
        end += 1
    return end - start


Marks = tuple[tuple[int, int], ...]


def _differences(old: str, new: str) -> tuple[Marks, Marks]:
    """Return the words that differ between two lines; nothing if the lines have little in common."""
    if max(len(old), len(new)) > LONGEST_COMPARED:
        return (), ()
    before, after = _WORDS.findall(old), _WORDS.findall(new)
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    if matcher.ratio() < ALIKE:
        return (), ()
    left, right = [], []
    for operation, a, b, c, d in matcher.get_opcodes():
        if operation != "equal":
            left.append((len("".join(before[:a])), len("".join(before[:b]))))
            right.append((len("".join(after[:c])), len("".join(after[:d]))))
    return _not_empty(left), _not_empty(right)


def _not_empty(spans: Sequence[tuple[int, int]]) -> Marks:
    return tuple((start, end) for start, end in spans if start < end)


def _draw_rows(
    rows: Sequence[PatchRow], width: int, palette: Palette, side_by_side: bool
) -> list[StyledLine]:
    numbers = max((len(str(max(row.old, row.new))) for row in rows), default=1)
    coloured = len(rows) <= MOST_COLOURED
    lines: list[StyledLine] = []
    at = 0
    has_two_columns = side_by_side and _has_both_sides(rows, 0)
    while at < len(rows):
        row = rows[at]
        if row.kind == "file":
            has_two_columns = side_by_side and _has_both_sides(rows, at + 1)
            lines += wrap_lines(row.text, width, f"bold {palette.text}")
        elif row.kind == "gap":
            lines += wrap_lines(f"{'⋮':>{numbers}} {row.text}".rstrip(), width, palette.dim)
        elif row.kind == "other":
            lines += _plain(row.text, width, palette)
        elif has_two_columns:
            olds = _run(rows, at, "old")
            news = _run(rows, at + olds, "new")
            lefts, rights = rows[at : at + olds], rows[at + olds : at + olds + news]
            pairs = max(olds, news)
            if not pairs:
                lines += _pair(row, row, width, numbers, palette, coloured)
            for offset in range(pairs):
                left = lefts[offset] if offset < olds else None
                right = rights[offset] if offset < news else None
                lines += _pair(left, right, width, numbers, palette, coloured)
            at += max(olds + news, 1)
            continue
        else:
            lines += _row_lines(row, width, numbers, palette, coloured)
        at += 1
    return lines


def _has_both_sides(rows: Sequence[PatchRow], start: int) -> bool:
    """Return whether the file whose rows begin at `start` existed before and still does. A new or
    removed file would stand beside an empty half.
    """
    kinds = set()
    for row in rows[start:]:
        if row.kind == "file":
            break
        kinds.add(row.kind)
    return "same" in kinds or {"old", "new"} <= kinds


def _plain(text: str, width: int, palette: Palette) -> list[StyledLine]:
    """Draw a line without a number: of a patch as models write it, or about the file."""
    if text.startswith(("*** ", "diff ")):
        return wrap_lines(text, width, f"bold {palette.text}", "  ")
    if text.startswith("@@"):
        return wrap_lines(text, width, palette.accent, "  ")
    if text.startswith("+"):
        words = palette.added
    elif text.startswith("-"):
        words = palette.removed
    else:
        words = palette.dim
    lines = wrap_lines(text, width, words, "  ")
    return on_ground(lines, width, _ground(words)) if text.startswith(("+", "-")) else lines


@cache
def _ground(words: str) -> str:
    """Return the background of a style as a style."""
    return f"on {words.rpartition(' on ')[2]}" if " on " in words else ""


def _row_lines(
    row: PatchRow, width: int, numbers: int, palette: Palette, coloured: bool
) -> list[StyledLine]:
    """Draw a line with its number and sign. Text that does not fit continues below."""
    number = row.old if row.kind == "old" else row.new
    sign = {"old": "-", "new": "+"}.get(row.kind, " ")
    words = {"old": palette.removed, "new": palette.added}.get(row.kind, palette.dim)
    lead = f"{number:>{numbers}} {sign} "
    available = max(width - len(lead), 4)
    folded = fold_text(_code(row, palette, coloured), available) or [[]]
    tone = parse_style(words) + GUTTER
    lines = [
        [Segment(lead, tone), *folded[0]],
        *([Segment(" " * len(lead), tone), *more] for more in folded[1:]),
    ]
    return on_ground(lines, width, _ground(words) if sign != " " else "")


def _pair(
    left: PatchRow | None,
    right: PatchRow | None,
    width: int,
    numbers: int,
    palette: Palette,
    coloured: bool,
) -> list[StyledLine]:
    """Draw the old line on the left and the new one on the right."""
    half = (width - 3) // 2
    sides = [
        _row_lines(row, half, numbers, palette, coloured) if row is not None else []
        for row in (left, right)
    ]
    if left is right and left is not None:
        sides[0] = _row_lines(replace(left, new=left.old), half, numbers, palette, coloured)
    bar = Segment(" │ ", parse_style(palette.dim) + GUTTER)
    lines = []
    for at in range(max(map(len, sides))):
        first = sides[0][at] if at < len(sides[0]) else []
        gap = half - sum(segment.cell_length for segment in first)
        lines.append(
            [*first, Segment(" " * gap), bar, *(sides[1][at] if at < len(sides[1]) else [])]
        )
    return lines


def _code(row: PatchRow, palette: Palette, coloured: bool) -> Text:
    """Return a line in its language's colours, with its marks."""
    plain = {"old": palette.removed, "new": palette.added}.get(row.kind, palette.text)
    lexer = _lexer(row.path.rpartition("/")[2], palette.code) if coloured and row.path else None
    if lexer is None:
        text = Text(row.text, style=plain)
    else:
        text = Text(row.text, style=palette.text)
        for span in lexer.highlight(row.text).spans:
            text.stylize(_foreground(span.style), span.start, span.end)
    for start, end in row.marks:
        text.stylize(
            palette.removed_words if row.kind == "old" else palette.added_words, start, end
        )
    return text


@cache
def _foreground(words: str | Style) -> Style:
    """Return a token's style without background, since the line has its own."""
    style = parse_style(words) if isinstance(words, str) else words
    return Style(color=style.color, bold=style.bold, italic=style.italic, underline=style.underline)


@cache
def _lexer(name: str, style: str) -> Syntax | None:
    """Return the highlighter for a file name, None if its language is unknown."""
    from rich.syntax import Syntax  # takes long

    lexer = Syntax.guess_lexer(name)
    return (
        Syntax("", lexer, theme=style, background_color="default") if lexer != "default" else None
    )
