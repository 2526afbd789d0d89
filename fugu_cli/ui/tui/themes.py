"""The themes: fugu's own, the user's files, Textual's; and the terminal's background, which decides
where the user has chosen none. Under terminal_app.py and terminal_driver.py.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from rich.color import ColorSystem
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.color import Color, ColorParseError
from textual.filter import LineFilter
from textual.theme import BUILTIN_THEMES, Theme

from fugu_cli.ui.drawing import CONTRAST, DARK, LIGHT, PALETTES, Palette, terminal_colours

AUTO = "auto"
"""The theme that follows the terminal's background."""


def guess_palette() -> Palette:
    """Return the light palette if COLORFGBG says that the background is light, else the dark one."""
    ground = os.environ.get("COLORFGBG", "").rpartition(";")[2]
    return _shown_as(LIGHT if ground in {"7", "15"} else DARK)


def palette_of_ground(*, dark: bool) -> Palette:
    """Return the palette for a dark or a light background."""
    return _shown_as(DARK if dark else LIGHT)


def _shown_as(palette: Palette) -> Palette:
    """Return the palette as this terminal can show it. With 256 colours quiet backgrounds would all
    be the same black or white.
    """
    if terminal_colours() in (None, ColorSystem.TRUECOLOR):
        return palette
    greys, cursor, added, removed, added_words, removed_words = GROUNDS_OF_256[palette.dark]
    words = "#ffffff" if palette.dark else "#000000"
    return replace(
        palette,
        grounds=("#000000" if palette.name == CONTRAST.name else greys[0], *greys[1:]),
        added=f"{palette.added.partition(' on ')[0]} on {added}",
        removed=f"{palette.removed.partition(' on ')[0]} on {removed}",
        added_words=f"{words} on {added_words}",
        removed_words=f"{words} on {removed_words}",
        cursor=f"on {cursor}",
    )


DARK_GREYS = ("#121212", "#1c1c1c", "#262626")
LIGHT_GREYS = ("#ffffff", "#eeeeee", "#e4e4e4")
GROUNDS_OF_256 = {
    True: (DARK_GREYS, "#303030", "#005f00", "#5f0000", "#008700", "#870000"),
    False: (LIGHT_GREYS, "#e4e4e4", "#d7ffd7", "#ffd7d7", "#afffaf", "#ffafaf"),
}
"""Of dark and of light palettes: the grounds; that of the marked row; those of added and removed
lines; of the words in them.
"""


def find_palette(name: str) -> Palette | None:
    """Return a theme's palette: fugu's own, the user's, Textual's. Raises ConfigError for an
    invalid file.
    """
    if name in PALETTES:
        return _shown_as(PALETTES[name])
    theme = _other_themes().get(name) if name not in ("", AUTO) else None
    if theme is None:
        return None
    return _shown_as(_palette(theme if isinstance(theme, Theme) else _read_theme(theme)))


def theme_names() -> tuple[str, ...]:
    """Return the names that `find_palette` knows, and AUTO."""
    return (AUTO, *PALETTES, *_other_themes())


def _other_themes() -> dict[str, Theme | Path]:
    """Return the themes of Textual and of the user by name. The user's win."""
    by_name = {name: theme for name, theme in BUILTIN_THEMES.items() if not theme.ansi}
    return {**by_name, **{path.stem: path for path in sorted(themes_folder().glob("*.toml"))}}


def themes_folder() -> Path:
    """Return the folder of the user's themes: TOML files with the fields of a Textual theme."""
    from platformdirs import user_config_path

    return user_config_path("fugu") / "themes"


def _read_theme(path: Path) -> Theme:
    import tomllib

    from fugu_cli.errors import ConfigError

    try:
        theme = Theme(**{"name": path.stem, **tomllib.loads(path.read_text(encoding="utf-8"))})
        _palette(theme)
    except (OSError, ValueError, TypeError, ColorParseError) as error:
        message = f"the theme {path} cannot be used: {error}"
        raise ConfigError(
            message, hint="its fields are those of a Textual theme, colours like #1e1e2e"
        ) from error
    return theme


def _palette(theme: Theme) -> Palette:
    """Return the palette of a Textual theme. Its variable `syntax` names the pygments style of
    code.
    """
    colours = {
        name: Color.parse(value)
        for name, value in theme.to_color_system().generate().items()
        if name in USED
    }
    ground, text = colours["background"], colours["foreground"]

    def mixed(name: str, share: float) -> str:
        return ground.blend(colours[name], share).hex6

    text_colour = mixed("foreground", text.a)
    return Palette(
        name=theme.name,
        dark=theme.dark,
        grounds=(ground.hex6, ground.blend(text, 0.04).hex6, ground.blend(text, 0.09).hex6),
        text=text_colour,
        dim=mixed("foreground", 0.68),
        accent=colours["primary"].hex6,
        user=colours["secondary"].hex6,
        good=colours["success"].hex6,
        bad=colours["error"].hex6,
        warn=colours["warning"].hex6,
        added=f"{colours['success'].hex6} on {mixed('success', 0.12)}",
        removed=f"{colours['error'].hex6} on {mixed('error', 0.12)}",
        added_words=f"{text_colour} on {mixed('success', 0.32)}",
        removed_words=f"{text_colour} on {mixed('error', 0.32)}",
        code=theme.variables.get("syntax", "monokai" if theme.dark else "friendly"),
        cursor=f"on {mixed('foreground', 0.15)}",
    )


USED = {"background", "foreground", "primary", "secondary", "success", "warning", "error"}


def textual_theme(palette: Palette) -> Theme:
    """Return the Textual theme for a palette."""
    background, surface, panel = palette.grounds
    return Theme(
        name=palette.name,
        dark=palette.dark,
        primary=palette.accent,
        secondary=palette.user,
        accent=palette.accent,
        warning=palette.warn,
        error=palette.bad,
        success=palette.good,
        foreground=palette.text,
        background=background,
        surface=surface,
        panel=panel,
        variables={"border-blurred": panel, "muted": palette.dim},
    )


SEEN_DIFFERENCE = 0.2
"""Difference in brightness, of 1.0, from which a background marks what stands on it."""


class WithoutColours(LineFilter):
    """Removes all colours, as NO_COLOR asks. A background that marks something, such as the cursor
    or a selection, becomes reversed text.
    """

    def __init__(self, ground: str) -> None:
        """Create the filter for a theme whose background is `ground`."""
        super().__init__()
        self._ground = Color.parse(ground).brightness

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Return the segments without colours, with marking backgrounds as reversed text."""
        del background
        return [
            Segment(text, self._without_colours(style) if style is not None else None, control)
            for text, style, control in segments
        ]

    def _without_colours(self, style: Style) -> Style:
        plain = style.without_color
        ground = style.bgcolor
        if ground is None or ground.is_default:
            return plain
        difference = abs(Color.from_rich_color(ground).brightness - self._ground)
        return plain + Style(reverse=True) if difference > SEEN_DIFFERENCE else plain


@dataclass
class BackgroundTold(events.Event):
    """The terminal has reported the colour of its background."""

    dark: bool


ASK_BACKGROUND = "\x1b]11;?\x1b\\"
"""OSC 11: the answer comes with the keys."""
