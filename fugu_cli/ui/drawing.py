"""Palettes and styled lines, used by everything drawn on a terminal. Knows neither the log nor
Textual.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size
from rich.color import ColorSystem
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


@dataclass(frozen=True)
class Palette:
    """Styles in rich's words. `grounds`: the colours behind everything, behind tool output and
    code, and behind what the user said. `added_words` and `removed_words` are for what differs
    within a line, whose syntax has no colours. `code` names a pygments style."""

    name: str
    dark: bool
    grounds: tuple[str, str, str]
    text: str
    dim: str
    accent: str
    user: str
    good: str
    bad: str
    warn: str
    added: str
    removed: str
    added_words: str
    removed_words: str
    code: str
    cursor: str

    @property
    def quiet(self) -> str:
        """The style behind tool output and code."""
        return f"on {self.grounds[1]}" if self.grounds[1] else ""

    @property
    def request(self) -> str:
        """The style behind what the user said."""
        return f"on {self.grounds[2]}" if self.grounds[2] else ""

    def role(self, role: str) -> str:
        """Return the colour of a role."""
        return {"worker": self.accent, "thinker": self.user, "verifier": self.warn}.get(
            role, self.text
        )


DARK = Palette(
    name="dark",
    dark=True,
    grounds=("#10141a", "#161b22", "#1d2430"),
    text="#d8dee9",
    dim="#929cac",
    accent="#5fb3f9",
    user="#c792ea",
    good="#7ec77b",
    bad="#f07178",
    warn="#e6b455",
    added="#8fd18b on #16281b",
    removed="#f08c92 on #2d1a1e",
    added_words="#d8dee9 on #24512e",
    removed_words="#d8dee9 on #5c2a31",
    code="monokai",
    cursor="on #26303f",
)
LIGHT = Palette(
    name="light",
    dark=False,
    grounds=("#ffffff", "#f6f8fa", "#eaeef2"),
    text="#24292f",
    dim="#606775",
    accent="#0860c9",
    user="#8250df",
    good="#1a7f37",
    bad="#cf222e",
    warn="#9a6700",
    added="#116329 on #dafbe1",
    removed="#82071e on #ffebe9",
    added_words="#24292f on #aceebb",
    removed_words="#24292f on #ffcecb",
    code="friendly",
    cursor="on #e4ecf7",
)
CONTRAST = Palette(
    name="contrast",
    dark=True,
    grounds=("#000000", "#121212", "#262626"),
    text="#ffffff",
    dim="#c8c8c8",
    accent="#00d7ff",
    user="#ff87ff",
    good="#00ff5f",
    bad="#ff5f5f",
    warn="#ffff00",
    added="#00ff5f on #002b10",
    removed="#ff8787 on #3a0000",
    added_words="#ffffff on #005f22",
    removed_words="#ffffff on #870000",
    code="monokai",
    cursor="on #444444",
)
TERMINAL = Palette(
    name="terminal",
    dark=True,
    grounds=("", "", ""),
    text="",
    dim="dim",
    accent="cyan",
    user="bold",
    good="green",
    bad="red",
    warn="yellow",
    added="green",
    removed="red",
    added_words="bold underline",
    removed_words="bold underline",
    code="ansi_dark",
    cursor="reverse",
)
"""The terminal's own colours: for lines of `fugu run` and other commands, whatever the ground
is.
"""


def without_colours(palette: Palette) -> Palette:
    """Return a palette that only has bold, dim, underlined and reversed text."""
    return Palette(
        name=palette.name,
        dark=palette.dark,
        grounds=("", "", ""),
        text="",
        dim="dim",
        accent="bold",
        user="bold",
        good="",
        bad="bold",
        warn="bold",
        added="",
        removed="",
        added_words="bold underline",
        removed_words="bold underline",
        code="ansi_dark",
        cursor="reverse",
    )


PALETTES = {palette.name: palette for palette in (DARK, LIGHT, CONTRAST)}


StyledLine = list[Segment]
StyledPart = tuple[str, str]
"""Text and its style."""

BLANK: StyledLine = []


@cache
def parse_style(words: str) -> Style:
    """Parse a style, once for the same words."""
    return Style.parse(words) if words else Style.null()


@cache
def _console(palette: Palette) -> Console:
    from rich.console import Console  # takes long
    from rich.theme import Theme

    return Console(
        theme=Theme(_markdown_styles(palette)),
        file=io.StringIO(),
        width=80,
        force_terminal=True,
        color_system="truecolor",
        legacy_windows=False,
        markup=False,
        emoji=False,
        highlight=False,
    )


def _markdown_styles(palette: Palette) -> dict[str, str]:
    """Return the palette's colours under rich's names for the parts of Markdown."""
    return {
        **dict.fromkeys([f"markdown.h{level}" for level in range(1, 7)], ""),
        "markdown.code": palette.warn,
        "markdown.code_block": palette.text,
        "markdown.link": palette.accent,
        "markdown.link_url": f"{palette.dim} underline",
        "markdown.block_quote": palette.dim,
        "markdown.item.bullet": palette.accent,
        "markdown.item.number": palette.accent,
        "markdown.list": palette.text,
        "markdown.hr": palette.dim,
        "markdown.table.border": palette.dim,
        "markdown.table.header": "bold",
    }


def render_rich(
    renderable: RenderableType, width: int, palette: Palette = DARK
) -> list[StyledLine]:
    """Draw any rich object in lines of at most `width` cells."""
    console = _console(palette)
    options = console.options.update(width=max(width, 1))
    return [
        _trimmed(_without_default_background(line))
        for line in console.render_lines(renderable, options, pad=False)
    ]


def _without_default_background(line: StyledLine) -> StyledLine:
    """Remove the default background, which would be the terminal's and not the theme's."""
    return [
        Segment(text, _without_background(words)) for text, words, control in line if not control
    ]


@cache
def _without_background(words: Style | None) -> Style:
    if words is None or words.bgcolor is None or not words.bgcolor.is_default:
        return words or Style.null()
    return (
        Style.combine([words.without_color, Style(color=words.color)])
        if words.color
        else words.without_color
    )


def _trimmed(line: StyledLine) -> StyledLine:
    """Remove trailing spaces that only fill the line."""
    while line and not line[-1].text.strip() and not (line[-1].style and line[-1].style.bgcolor):
        line = line[:-1]
    return line


GUTTER = Style(meta={"gutter": True})
"""A part of a line that is not copied with it: a number, a sign."""


def wrap_lines(text: str, width: int, words: str = "", indent: str = "") -> list[StyledLine]:
    """Wrap safe text at words. Lines after the first begin with `indent`."""
    narrow = max(width - cell_len(indent), 4)
    lines: list[StyledLine] = []
    for paragraph in text.split("\n"):
        rest = paragraph
        if indent and not lines:
            first = Text(paragraph).wrap(_console(DARK), max(width, 4), overflow="fold")[0].plain
            lines.append([Segment(first.rstrip(), parse_style(words))])
            rest = paragraph[len(first) :].lstrip(" ")
            if not rest:
                continue
        for piece in Text(rest).wrap(_console(DARK), narrow, overflow="fold"):
            lead = [Segment(indent)] if indent else []
            lines.append([*lead, Segment(piece.plain.rstrip(), parse_style(words))])
    return lines


def fold_text(text: Text, width: int) -> list[StyledLine]:
    """Wrap a styled text at words."""
    console = _console(DARK)
    lines = [text] if text.cell_len <= width else text.wrap(console, width, overflow="fold")
    return [[segment for segment in line.render(console) if segment.text != "\n"] for line in lines]


def styled_line(parts: Iterable[StyledPart], width: int) -> StyledLine:
    """Join the parts in one line, cut with an ellipsis if it is too long."""
    segments: StyledLine = []
    available = width
    for text, words in parts:
        size = cell_len(text)
        if size > available:
            if available > 0:
                segments.append(
                    Segment(set_cell_size(text, available - 1) + "…", parse_style(words))
                )
            break
        segments.append(Segment(text, parse_style(words)))
        available -= size
    return segments


def justified_line(
    left: Sequence[StyledPart], right: Sequence[StyledPart], width: int
) -> StyledLine:
    """Draw `left` and `right` at the ends of one line. If both do not fit, `right` is left out."""
    needs = sum(cell_len(text) for text, _ in right)
    available = width - needs - 1
    if needs == 0 or available < 8:
        return styled_line(left, width)
    segments = styled_line(left, available)
    used = sum(cell_len(segment.text) for segment in segments)
    return [*segments, Segment(" " * (width - needs - used)), *styled_line(right, needs)]


def indent_lines(lines: Iterable[StyledLine], lead: StyledPart) -> list[StyledLine]:
    """Put `lead` before every line."""
    first = Segment(lead[0], parse_style(lead[1]))
    return [[first, *rest] for rest in lines]


def on_ground(lines: Iterable[StyledLine], width: int, ground: str) -> list[StyledLine]:
    """Fill the lines to `width` with the background `ground`; return them unchanged without one."""
    if not ground:
        return list(lines)
    under = parse_style(ground)
    filled_lines = []
    for line in lines:
        filled = [Segment(text, under + words if words else under) for text, words, _ in line]
        padding = width - sum(segment.cell_length for segment in filled)
        filled_lines.append([*filled, Segment(" " * padding, under)] if padding > 0 else filled)
    return filled_lines


def plain_text(line: StyledLine) -> str:
    """Return the text of a line."""
    return "".join(segment.text for segment in line).rstrip()


COLOUR_SYSTEMS = {
    "truecolor": ColorSystem.TRUECOLOR,
    "256": ColorSystem.EIGHT_BIT,
    "standard": ColorSystem.STANDARD,
}


def terminal_colours() -> ColorSystem | None:
    """Return the terminal's colour system, None without colours (NO_COLOR, a dumb terminal)."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM", "") in ("", "dumb"):
        return None
    if re.search("truecolor|24bit", os.environ.get("COLORTERM", "")):
        return COLOUR_SYSTEMS["truecolor"]
    return COLOUR_SYSTEMS["256" if "256" in os.environ.get("TERM", "") else "standard"]


def ansi_text(lines: Iterable[StyledLine], system: ColorSystem | None) -> str:
    """Return the lines with escape sequences and newlines; plain text without colours."""
    return "".join(_ansi_line(line, system) + "\n" for line in lines)


def _ansi_line(line: StyledLine, system: ColorSystem | None) -> str:
    if system is None:
        return "".join(segment.text for segment in line).rstrip()
    return "".join(
        (segment.style or Style.null()).render(segment.text, color_system=system)
        for segment in line
    )


COMMANDS = {
    "`fugu run --continue`": "/continue",
    "`fugu models pull`": "/login",
    "`fugu login` keeps another key.": "/login keeps another key, /retry NAME tries one as it is.",
    "`fugu login`": "/login",
    "`fugu doctor`": "/doctor",
    "`fugu pool` shows": "/pool shows",
    "begin a new session": "use /compact or /new",
    "`fugu undo`": "/undo",
    "another one with `--agent`": "another one with /model",
    "`--opt-out ": "`/exclude ",
    "`fugu pool check` tries each one": "/retry tries them again",
    "`fugu pool check` tries each agent": "/pool shows who is unavailable, and until when",
}
"""Shell commands and their slash commands inside the interface."""


def with_commands(text: str, palette: Palette) -> str:
    """Replace shell commands in a sentence by the interface's own, unless it is printed in the
    shell.
    """
    for shell, own in COMMANDS.items() if palette is not TERMINAL else ():
        text = text.replace(shell, own)
    return text
