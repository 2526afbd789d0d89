"""Every panel at four sizes, as text, and a question with its colours: a log, some keys, and the
terminal made larger and smaller.

`PYTEST_SNAPSHOTS=write pytest tests/unit/ui/tui/test_snapshots.py` writes them anew; look at the
difference first.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.color import ColorSystem
from rich.color_triplet import ColorTriplet
from rich.console import COLOR_SYSTEMS
from rich.segment import Segment
from rich.style import Style
from textual.app import App
from textual.pilot import Pilot

from fugu_cli.app.session_protocol import InterfaceOptions
from fugu_cli.session.events import Recorded
from fugu_cli.ui.tui.app import FuguApp
from fugu_cli.ui.tui.overlays import TraceApp
from tests.unit.ui.tui.conftest import START
from tests.unit.ui.tui.demo import DemoSessionOpener

SNAPSHOTS = Path(__file__).parents[3] / "snapshots" / "tui"
SIZES = [(80, 24), (200, 50), (60, 20), (120, 35)]
Keys = list[str]

PANELS: dict[str, Keys] = {
    "conversation": [],
    "unfolded": ["ctrl+o", "ctrl+home"],
    "trace": ["ctrl+t"],
    "commands": ["/"],
    "command-values": [*"/theme "],
    "files": ["@", "k"],
    "turn": [*"/trace 1", "enter"],
    "turn-shown": [*"/trace 1", "enter", "3"],
    "help": ["f1"],
    "sessions": [*"/sessions", "enter"],
    "pool": [*"/pool", "enter"],
    "themes": [*"/theme", "enter"],
    "history": ["ctrl+r"],
    "permissions": [*"/permissions", "enter"],
    "cost": [*"/cost", "enter"],
    "lines": [*"one", "ctrl+j", *"two", "ctrl+j", *"three"],
}


ESCAPE = re.compile(r"\x1b\[[\d;]*m")


def compare(name: str, size: tuple[int, int], text: str, suffix: str = "txt") -> None:
    text = re.sub(
        r"( was shown ─[^\n]*\n).*", r"\1", text, flags=re.DOTALL
    )  # prompts are nobody's screen
    assert max(map(cell_len, ESCAPE.sub("", text).splitlines())) <= size[0]
    path = SNAPSHOTS / f"{name}-{size[0]}x{size[1]}.{suffix}"
    if os.environ.get("PYTEST_SNAPSHOTS") == "write":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n", encoding="utf-8")
    assert path.is_file(), f"{path.name} is missing; see this module's first lines"
    assert text + "\n" == path.read_text(encoding="utf-8")


async def settled(app: App[int], shown: Callable[[App[int]], str]) -> str:
    """The screen once nothing changes any more."""
    before, same = "", 0
    for _ in range(400):
        await asyncio.sleep(0.02)
        now = shown(app)
        same = same + 1 if now == before and "starting" not in now else 0
        if same >= 6:
            return now
        before = now
    raise AssertionError("the screen does not come to rest:\n" + before)


async def at_every_size(
    app: App[int], pilot: Pilot[int], shown: Callable[[App[int]], str]
) -> dict[tuple[int, int], str]:
    """The screen at each of SIZES."""
    texts = {}
    for size in SIZES:
        await pilot.resize_terminal(*size)
        texts[size] = await settled(app, shown)
    return texts


@pytest.mark.parametrize("name", PANELS)
def test_a_panel_looks_as_it_did(
    name: str, opened: Callable[..., FuguApp], stored: str, shown: Callable[[App[int]], str]
) -> None:
    async def look() -> dict[tuple[int, int], str]:
        app = opened(resume=stored)
        async with app.run_test(size=SIZES[0]) as pilot:
            await settled(app, shown)
            for key in PANELS[name]:
                await pilot.press(key)
                if key == "enter":
                    await settled(app, shown)
            return await at_every_size(app, pilot, shown)

    for size, text in asyncio.run(look()).items():
        compare(name, size, text)


@pytest.mark.parametrize(
    ("name", "keys"), [("trace-view", []), ("trace-view-turn", ["up", "up", "enter"])]
)
def test_the_trace_of_a_finished_log_looks_as_it_did(
    name: str, keys: Keys, sample: list[Recorded], shown: Callable[[App[int]], str]
) -> None:
    async def look() -> dict[tuple[int, int], str]:
        app = TraceApp(
            sample,
            "session 20251009-085320-cafe",
            InterfaceOptions(state=Path.home() / "state", theme="dark"),
        )
        async with app.run_test(size=SIZES[0]) as pilot:
            await pilot.press(*keys)
            return await at_every_size(app, pilot, shown)

    for size, text in asyncio.run(look()).items():
        compare(name, size, text)


REPLIED = '[[step]]\ntext = "Before."\n'
QUESTION = f"""
{REPLIED * 5}
[[step]]
text = "I change a file."
calls = [{{ tool = "edit", arguments = {{ path = "kept.txt", old = "mine", new = "ours" }} }}]
"""
"""A script for an agent that has replied five times in the stored session."""

TRUECOLOR = {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
COLOUR_MODES = {
    "dark": ("dark", TRUECOLOR),
    "light": ("light", TRUECOLOR),
    "no-color": ("dark", {**TRUECOLOR, "NO_COLOR": "1"}),
    "256-colours": ("dark", {"TERM": "xterm-256color"}),
}
"""Theme and environment by name."""


def with_colours(app: App[int]) -> str:
    """Return the screen with escape sequences, as this terminal would get them. Every text differs
    enough from its background to be read, or has the terminal's own colours where none are wanted.
    """
    system = COLOR_SYSTEMS[app.console.color_system or "truecolor"]
    lines = []
    for strip in app.screen._compositor.render_strips():
        line = ""
        for segment in Segment.simplify(strip):
            style = segment.style or Style.null()
            if app.no_color:
                assert style == style.without_color, (segment.text, str(style))
            elif re.search(r"\w", segment.text):
                assert contrast(style, system) >= 4.5, (segment.text, str(style))
            line += style.update_link(None).render(segment.text, color_system=system)
        lines.append(line)
    return "\n".join(lines)


def contrast(style: Style, system: ColorSystem) -> float:
    """Return the contrast ratio of text and background, as WCAG 2 defines it."""
    assert style.color is not None and style.bgcolor is not None
    darker, lighter = sorted(
        luminance(colour.downgrade(system).get_truecolor())
        for colour in (style.color, style.bgcolor)
    )
    return (lighter + 0.05) / (darker + 0.05)


def luminance(colour: ColorTriplet) -> float:
    """Return the relative luminance of a colour, as WCAG 2 defines it."""
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in colour.normalized
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("mode", COLOUR_MODES)
def test_a_question_looks_as_it_did_in_colour(
    mode: str,
    opener: DemoSessionOpener,
    stored: str,
    shown: Callable[[App[int]], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every mode at every size, but one screen only: a conversation, its trace and a question show
    most of the palette. `cat` shows a snapshot as it looked.
    """
    theme, environ = COLOUR_MODES[mode]
    monkeypatch.setattr(time, "time", lambda: START + 1000)  # nothing takes long
    for name in ("NO_COLOR", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    opener.scripts = {"small": QUESTION}

    async def look() -> dict[tuple[int, int], str]:
        options = InterfaceOptions(state=Path.home() / "state", theme=theme, resume=stored)
        app = FuguApp(opener, options)
        async with app.run_test(size=SIZES[0]) as pilot:
            await settled(app, shown)
            await pilot.press(*"go", "enter")
            for _ in range(300):
                if (
                    "Allow edit?" in shown(app)
                    and app.focused is not None
                    and app.focused.id == "approval"
                ):
                    break
                await asyncio.sleep(0.02)
            return await at_every_size(app, pilot, with_colours)

    for size, text in asyncio.run(look()).items():
        compare(f"question-{mode}", size, text, "ansi")
