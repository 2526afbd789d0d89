"""The screen people work in: how it starts and what its keys do.

On hearing.py, which listens to its parts, and stage.py, which lays them out. It paints first and loads after: the
session's machinery is imported in a thread behind the first paint, and what is typed meanwhile waits.
"""

from __future__ import annotations

import asyncio
import importlib
import time
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType

from fugu_cli.ui.tui import place
from fugu_cli.ui.tui.completing import Completing
from fugu_cli.ui.tui.files import Files
from fugu_cli.ui.tui.front import Choice, Standing
from fugu_cli.ui.tui.keeping import Look
from fugu_cli.ui.tui.screens.hearing import Hearing
from fugu_cli.ui.tui.widgets.approval import Approval
from fugu_cli.ui.tui.widgets.choices import Choices
from fugu_cli.ui.tui.widgets.conversation import Conversation
from fugu_cli.ui.tui.widgets.pager import Pager
from fugu_cli.ui.tui.widgets.prompt import Prompt
from fugu_cli.ui.tui.widgets.status import Status
from fugu_cli.ui.tui.widgets.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fugu_cli.ui.tui.draw.palette import Palette
    from fugu_cli.ui.tui.session import Desk, Options

DRAWING = ("rich.markdown", "rich.syntax")
"""What the first reply is drawn with."""
TWICE = 2.0
"""Seconds between two Ctrl-C that leave."""


class Main(Hearing):
    """A conversation with its trace."""

    AUTO_FOCUS = ""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "stop", show=False),
        Binding("ctrl+c", "typed('leave_twice')", show=False, priority=True),
        Binding("ctrl+d", "typed('leave_empty')", show=False, priority=True),
        Binding("ctrl+s", "typed('steer')", show=False, priority=True),
        Binding("shift+tab", "mode", show=False, priority=True),
        Binding("ctrl+t", "panel", show=False, priority=True),
        Binding("f6", "next_part", show=False, priority=True),
        Binding("ctrl+o", "fold", show=False, priority=True),
        Binding("ctrl+r", "recall", show=False, priority=True),
        Binding("ctrl+g", "typed('editor')", show=False, priority=True),
        Binding("ctrl+y", "line('/copy')", show=False, priority=True),
        Binding("f1", "line('/help')", show=False, priority=True),
        Binding("f2", "line('/skip')", show=False, priority=True),
        Binding("pageup", "page(-1)", show=False, priority=True),
        Binding("pagedown", "page(1)", show=False, priority=True),
        Binding("ctrl+home", "edge('top')", show=False, priority=True),
        Binding("ctrl+end", "edge('end')", show=False, priority=True),
    ]

    def __init__(self, desk: Desk, options: Options, palette: Palette, look: Look) -> None:
        super().__init__(palette, look, options.state)
        self._desk = desk
        self._options = options
        self._files = Files(desk.root)
        self._pressed = 0.0
        self.parting = ""

    def on_mount(self) -> None:
        """Paint, then load."""
        self.focus_prompt()
        prompt, choices = self.query_one(Prompt), self.query_one("#choices", Choices)
        prompt.wander = self.wander
        self._completing = Completing(prompt, choices, self._files, self._command_choices)
        root, tier = self._desk.root, self._options.tier
        standing = Standing(place.short(root), place.branch(root), tier, doing="starting", since=time.time())
        self.query_one(Status).tell(standing)
        self.call_after_refresh(lambda: self.run_worker(self._start()))

    async def _start(self) -> None:
        await asyncio.to_thread(self._load)
        from fugu_cli.ui.tui.feed import Feed
        from fugu_cli.ui.tui.room import Room

        self._feed = Feed(self.query_one(Conversation), self.query_one(Trace), self._shown)
        self.room = Room(self, self._desk, self._options, self._history)
        await self.room.start()
        if self._options.prompt and self.room.work.session is not None:
            self.run_worker(self.room.send(self._options.prompt))
        waiting, self._waiting = self._waiting, []
        for text in waiting:
            self.enter(text)

    def _shown(self) -> None:
        if self.room is not None:
            self.room.show()

    def _load(self) -> None:
        """Imports that take long, and the history. In a thread: the prompt takes keys meanwhile."""
        for name in ("fugu_cli.ui.tui.commands.obeying", "fugu_cli.ui.tui.feed", "fugu_cli.ui.tui.room", *DRAWING):
            importlib.import_module(name)
        self._history.load()
        self._desk.prepare()

    def _command_choices(self, text: str) -> Sequence[Choice]:
        if self.room is None:
            return ()
        from fugu_cli.ui.tui.commands.command import choices
        from fugu_cli.ui.tui.commands.own import every

        return choices(every(self.room), self.room, text)

    async def leave(self) -> None:
        """Close the session and go."""
        if self.room is not None:
            self.parting = self.room.parting()
            await self.room.close()
        self.app.exit(0)

    def action_line(self, text: str) -> None:
        """As if this had been typed."""
        self.enter(text)

    def action_stop(self) -> None:
        """Stop what runs; with nothing running, back to the prompt."""
        if self.room is None or not self.room.interrupt():
            self.focus_prompt()

    def action_typed(self, action: str) -> None:
        """What depends on the prompt's text, once all that was typed before is in it."""
        self.query_one(Prompt).call_later(getattr(self, f"_{action}"))

    def _leave_twice(self) -> None:
        """Copy a selection, or empty the prompt; pressed twice, leave."""
        prompt = self.query_one(Prompt)
        selected = self.get_selected_text() or prompt.selected_text
        if selected:
            self.app.copy_to_clipboard(selected)
            self.clear_selection()
            return
        now, before = time.monotonic(), self._pressed
        self._pressed = now
        if prompt.text:  # also the second time: it was typed since
            prompt.put("")
        elif now - before < TWICE:
            self.run_worker(self.leave())
            return
        elif self.room is not None:
            self.room.interrupt()
        self.remark("ctrl+c again leaves", TWICE)

    def _leave_empty(self) -> None:
        """Leave, when nothing is typed."""
        if not self.query_one(Prompt).text:
            self.run_worker(self.leave())

    def _steer(self) -> None:
        """Send what is typed or queued now, in the place of what runs."""
        from fugu_cli.ui.tui.commands.obeying import is_request

        prompt, room = self.query_one(Prompt), self.room
        text = prompt.text.strip()
        if room is not None and room.work.queue and not room.work.running and not text:
            self.run_worker(room.work.send_queued())
        elif room is None or not room.work.running or (text and not is_request(room, text)):
            prompt.action_send()
        else:
            room.steer(prompt.take() if text else "")

    def action_mode(self) -> None:
        """The next permission mode."""
        if self.room is not None:
            self.room.next_mode()

    def action_next_part(self) -> None:
        """The next part takes the keys."""
        every = (Approval, Prompt, Conversation, Trace)
        shown = [part for kind in every if (part := self.query_one(kind)).display and part.size.width]
        at = next((index for index, part in enumerate(shown) if part.has_focus), -1)
        shown[(at + 1) % len(shown)].focus()

    def action_fold(self) -> None:
        """Unfold all tool results, or fold them."""
        if self.room is not None:
            self.feed.fold()

    def action_recall(self) -> None:
        """Search what was typed before."""

        async def recall() -> None:
            texts = list(dict.fromkeys(reversed(self._history.texts)))
            picked = await self.pick("What was typed before", [Choice(text, " ".join(text.split())) for text in texts])
            if picked is not None:
                self.type(picked[1])

        self.run_worker(recall())

    def _editor(self) -> None:
        """Write in the user's editor."""
        from fugu_cli.ui.tui.editing import edited

        async def edit() -> None:
            prompt = self.query_one(Prompt)
            text = await edited(self.app, prompt.unfolded())
            if text is None:
                self.app.notify("no editor could be started; set $VISUAL or $EDITOR", severity="warning")
            else:
                prompt.put(text)

        self.run_worker(edit())

    def action_page(self, pages: int) -> None:
        """Scroll what has the focus, else the conversation."""
        focused = self.focused
        pager = focused if isinstance(focused, Pager) else self.query_one(Conversation)
        pager.action_page(pages)

    def action_edge(self, edge: str) -> None:
        """To the beginning or the end of the conversation."""
        pager = self.query_one(Conversation)
        pager.action_top() if edge == "top" else pager.action_end()
