"""The list to choose from: what is marked is shown beside it, and looking at it keeps nobody from
typing.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence

from textual import events
from textual.app import App

from fugu_cli.ui.column import Fragment
from fugu_cli.ui.drawing import styled_line
from fugu_cli.ui.tui.app import FuguApp
from fugu_cli.ui.tui.overlays import Picker
from fugu_cli.ui.tui.screen_protocol import Choice

Shown = Callable[[App[int]], str]


def test_keys_are_heard_while_a_preview_is_made_and_only_the_marked_ones_is_shown(
    opened: Callable[..., FuguApp], shown: Shown
) -> None:
    may = threading.Event()

    def preview(value: str) -> Sequence[Fragment]:
        if value == "slow":
            may.wait(10)
        return [
            Fragment(
                lambda width, palette: [styled_line([(f"all of {value}", palette.text)], width)],
                exact=1,
            )
        ]

    async def whole() -> None:
        app = opened()
        async with app.run_test(size=(110, 30)) as pilot:
            picker = Picker(
                app.main.palette,
                "Which?",
                [Choice("slow", "slow"), Choice("fast", "fast")],
                preview,
            )
            app.push_screen(picker)
            await pilot.pause(0.1)
            await pilot.press("down")
            for _ in range(300):
                if "all of fast" in shown(app):
                    break
                await pilot.pause(0.01)
            may.set()
            await pilot.pause(0.1)
            assert "all of fast" in shown(app)
            assert "all of slow" not in shown(app)
            await pilot.press("escape")

    asyncio.run(whole())


def test_what_is_typed_at_once_narrows_the_list_before_enter_chooses(
    opened: Callable[..., FuguApp],
) -> None:
    async def whole() -> list[object]:
        app, chosen = opened(), []
        async with app.run_test(size=(110, 30)) as pilot:
            choices = [Choice(name, name) for name in ("one", "two", "three", "thirty", "thirteen")]
            app.push_screen(Picker(app.main.palette, "Which?", choices), chosen.append)
            await pilot.pause(0.1)
            for key in (*"tho", "backspace", "i", "down", "enter"):
                app.post_message(events.Key(key, key if len(key) == 1 else None))
            for _ in range(300):
                if chosen:
                    break
                await pilot.pause(0.01)
        return chosen

    assert asyncio.run(whole()) == [("enter", "thirteen")]
