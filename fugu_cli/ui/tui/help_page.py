"""The help overlay: tables of keys, keys of marked rows, signs in the prompt, commands, and the names
of keys in .fugurc.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.cells import cell_len

from fugu_cli.ui.column import Fragment
from fugu_cli.ui.drawing import Palette, StyledLine, indent_lines, styled_line, wrap_lines
from fugu_cli.ui.tui.terminal_app import KEYS
from fugu_cli.ui.turn_page import Section

HelpRow = tuple[str, str]
"""A row of a table: the keys or the command, and its description."""
MARKED_ROWS: tuple[HelpRow, ...] = (
    ("up, down", "in the conversation or the trace (F6): mark another call or turn"),
    ("enter", "unfold the marked call; open the marked turn"),
    ("d u c b t", "on the marked outcome: diff, undo, commit, blame, why"),
    ("p x r", "on the marked turn: pin its agent, exclude it, ask again with it"),
    ("[ ]", "on a marked turn: resize the trace"),
    ("n N", "while something is looked for: the next and the previous match"),
)
PROMPT_SIGNS: tuple[HelpRow, ...] = (
    ("@", "complete a file and attach it"),
    ("/", "complete a command"),
    ("!", "run a command of yours; !! also tells its output with the next request"),
    ("up, down", "the history, at the first and the last line"),
)
WIDEST_KEYS = 32
"""The largest width of the first column."""


def help_sections(own_keys: Mapping[str, str], commands: Sequence[HelpRow]) -> list[Section]:
    """Return the tables of the help. `own_keys` are the user's keys by action."""
    keys = {
        name: own_keys.get(name, default).replace(",", ", ") for name, (default, _) in KEYS.items()
    }
    return [
        _section("Keys", [(keys[name], about) for name, (_, about) in KEYS.items()]),
        _section("Keys of what is marked", MARKED_ROWS),
        _section("In the prompt", PROMPT_SIGNS),
        _section("Commands", commands),
        _section("Names of the keys, for the table `keys` of .fugurc", list(keys.items())),
    ]


def _section(title: str, rows: Sequence[HelpRow]) -> Section:
    text = "\n".join(about for _, about in rows)
    return Section(
        title, (Fragment(lambda width, palette: _draw_table(rows, width, palette), text),)
    )


def _draw_table(rows: Sequence[HelpRow], width: int, palette: Palette) -> list[StyledLine]:
    """Draw two aligned columns. An entry too long for the first one gets a line of its own."""
    longest = max((cell_len(typed) for typed, _ in rows), default=0)
    margin = min(longest, WIDEST_KEYS, max(width // 3, 8)) + 4
    lines: list[StyledLine] = []
    for typed, about in rows:
        wrapped = wrap_lines(about, max(width - margin, 10), palette.text)
        if cell_len(typed) > margin - 4:
            lines.append(styled_line([(f"  {typed}", palette.accent)], width))
        else:
            gap = " " * (margin - 2 - cell_len(typed))
            head = styled_line([(f"  {typed}{gap}", palette.accent)], margin)
            lines.append([*head, *wrapped.pop(0)])
        lines += indent_lines(wrapped, (" " * margin, ""))
    return lines
