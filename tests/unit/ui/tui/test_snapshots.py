"""Every panel at four sizes, as text: a log, some keys, and the terminal made larger and smaller.

`PYTEST_SNAPSHOTS=write pytest tests/unit/ui/tui/test_snapshots.py` writes them anew; look at the
difference first.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.cells import cell_len
from textual.app import App
from textual.pilot import Pilot

from fugu_cli.app.session_protocol import InterfaceOptions
from fugu_cli.session.events import Recorded
from fugu_cli.ui.tui.app import FuguApp
from fugu_cli.ui.tui.overlays import TraceApp

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


def compare(name: str, size: tuple[int, int], text: str) -> None:
    text = re.sub(
        r"( was shown ─[^\n]*\n).*", r"\1", text, flags=re.DOTALL
    )  # prompts are nobody's screen
    assert max(map(cell_len, text.splitlines())) <= size[0]
    path = SNAPSHOTS / f"{name}-{size[0]}x{size[1]}.txt"
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


QUESTION = """
[[step]]
text = "I write a file."
calls = [{ tool = "write", arguments = { path = "new.txt", content = "one\\ntwo\\n" } }]
"""


def test_a_question_looks_as_it_did(
    opened: Callable[..., FuguApp], shown: Callable[[App[int]], str]
) -> None:
    def timeless(app: App[int]) -> str:
        text = re.sub(r" (◐ needs approval) \d\ds", r"\1 0.0s", shown(app))  # it is flush right
        return re.sub(r"\d+\.\ds", "0.0s", text)

    async def look() -> dict[tuple[int, int], str]:
        app = opened()
        app.main.opener.scripts = {"small": QUESTION}  # type: ignore[attr-defined]
        async with app.run_test(size=SIZES[0]) as pilot:
            await settled(app, shown)
            await pilot.press(*"go", "enter")
            for _ in range(300):
                if (
                    "Allow write?" in shown(app)
                    and app.focused is not None
                    and app.focused.id == "approval"
                ):
                    break
                await asyncio.sleep(0.02)
            return await at_every_size(app, pilot, timeless)

    for size, text in asyncio.run(look()).items():
        compare("question", size, text)
