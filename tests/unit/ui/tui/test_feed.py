"""The log on the screen, on a machine that has other things to do."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from textual.app import App

from fugu_cli.session.events import Event, Replied
from fugu_cli.session.live_events import TextStreamed
from fugu_cli.ui.blocks import NoteBlock
from fugu_cli.ui.drawing import plain_text
from fugu_cli.ui.tui.app import FuguApp
from fugu_cli.ui.tui.panels import Conversation
from tests.unit.ui.tui.test_workflows import interleaved, recorded

Shown = Callable[[App[int]], str]


@contextmanager
def stalling() -> Iterator[None]:
    """The processor is taken away for some milliseconds whenever somebody asks for the time in the
    screen library.
    """

    def stalled(frame: FrameType, event: str, called: object) -> None:
        if event == "c_call" and called is time.monotonic and "textual" in frame.f_code.co_filename:
            time.sleep(0.003)

    sys.setprofile(stalled)
    try:
        yield
    finally:
        sys.setprofile(None)


def test_what_is_told_is_shown_also_when_the_processor_is_taken_away_meanwhile(
    opened: Callable[..., FuguApp], shown: Shown
) -> None:
    async def whole() -> None:
        app = opened()
        async with app.run_test(size=(100, 30)) as pilot:
            while app.main.controller is None or app.main.controller.work.session is None:
                await pilot.pause(0.01)
            await pilot.pause(0.2)
            with stalling():
                app.main.controller.feed.say(NoteBlock("told while it stalls"))
                await asyncio.sleep(0.2)
            app.main.controller.feed.say(NoteBlock("told afterwards"))
            await pilot.pause(0.3)
            text = shown(app)
            assert [
                words for words in ("told while it stalls", "told afterwards") if words not in text
            ] == []

    asyncio.run(whole())


def test_steps_that_are_watched_look_as_they_do_when_the_log_is_opened(
    opened: Callable[..., FuguApp],
) -> None:
    async def whole() -> None:
        app = opened()
        async with app.run_test(size=(100, 30)) as pilot:
            while app.main.controller is None or app.main.controller.work.session is None:
                await pilot.pause(0.01)
            feed, column = app.main.controller.feed, app.main.query_one(Conversation).column
            records = recorded(interleaved())
            feed.replay(records[:2])
            for record in records[2:]:
                for part in streamed(record.event):
                    feed.add_item(part)
                    feed.flush()
                feed.add_item(record)
                feed.flush()
            watched = [plain_text(column.line(y) or []) for y in range(column.stack.total)]
            feed.replay(records)
            assert [plain_text(column.line(y) or []) for y in range(column.stack.total)] == watched

    asyncio.run(whole())


def streamed(event: Event) -> Iterator[TextStreamed]:
    """What is heard before a reply is there."""
    if isinstance(event, Replied):
        for letter in event.text:
            yield TextStreamed(turn=event.turn, agent=event.agent, text=letter)
