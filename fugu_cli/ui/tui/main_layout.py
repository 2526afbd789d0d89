"""The main screen without its session: its parts, their layout, and what can be laid over them. Painted before
anything else of fugu is imported.

Under app.py. Painted before anything else of fugu is imported, so it must not know the log, the session or its parts.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.screen import Screen
from textual.widgets import Static

from fugu_cli.ui.drawing import Palette
from fugu_cli.ui.tui.approval import Approval
from fugu_cli.ui.tui.panels import Conversation, Pager, Trace
from fugu_cli.ui.tui.preferences import PreferencesFile
from fugu_cli.ui.tui.prompt import ChoiceList, PromptInput
from fugu_cli.ui.tui.screen_protocol import Choice, StatusLine
from fugu_cli.ui.tui.status_line import ActivityLine, StatusBar
from fugu_cli.ui.tui.terminal_app import NARROW_COLUMNS, SHORT_LINES, TerminalApp

if TYPE_CHECKING:
    from fugu_cli.ui.approval_options import Pending
    from fugu_cli.ui.hyperlinks import FilePlace
    from fugu_cli.ui.trace_drawing import Section
    from fugu_cli.ui.tui.approval_questions import ApprovalQuestion
    from fugu_cli.ui.tui.overlays import PageAt
    from fugu_cli.ui.tui.screen_protocol import PickedChoice, Preview

HINTS = {
    "prompt": "/help · ctrl+t trace · shift+tab mode",
    "trace": "enter opens · p pins · x excludes · r retries · [ ] resize",
    "conversation": "↑ ↓ mark · enter unfolds · esc back",
    "approval": "",
}
"""What the status line says while nothing is under way, by who has the keys."""
TYPING_PAUSE = 0.7
"""Seconds without a key after which a question may take the keys."""
PANEL_WIDTHS = (28, 100)
"""The panel's least and greatest width."""


class Dialogs:
    """What is laid over the main screen."""

    def __init__(self, app: TerminalApp) -> None:
        self._app = app

    def read(self, text: str, sections: Sequence[Section]) -> None:
        """A text over the whole screen."""
        from fugu_cli.ui.tui.overlays import single_page

        self.turn_pages(single_page(text, sections))

    def turn_pages(self, page: PageAt) -> None:
        """Pages over the whole screen."""
        from fugu_cli.ui.tui.overlays import Reader

        self._app.push_screen(Reader(self._app.palette, page))

    async def confirm(self, question: str, patch: str) -> bool:
        """A yes or a no, with the patch it is about. Only in a worker."""
        from fugu_cli.ui.tui.overlays import Confirm

        return await self._app.push_screen_wait(Confirm(self._app.palette, question, patch))

    async def enter_text(self, heading: str, *, secret: bool = False) -> str:
        """A line that the user types."""
        from fugu_cli.ui.tui.overlays import TextEntry

        typed: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._app.push_screen(TextEntry(heading, secret=secret), typed.set_result)
        return await typed or ""

    async def pick(
        self,
        heading: str,
        choices: Sequence[Choice],
        preview: Preview | None = None,
        keys: dict[str, str] | None = None,
    ) -> PickedChoice | None:
        """One of many. Only in a worker."""
        from fugu_cli.ui.tui.overlays import Picker

        return await self._app.push_screen_wait(Picker(self._app.palette, heading, choices, preview, keys))

    async def edit_file(self, place: FilePlace) -> None:
        """A file in the user's editor."""
        from fugu_cli.ui.tui.user_programs import place_command, run_editor

        await run_editor(self._app, place_command(place))


class Body(Horizontal):
    """Conversation and trace, and the edge between them."""

    def __init__(self, palette: Palette, preferences: PreferencesFile) -> None:
        super().__init__(Conversation(palette), Trace(palette), id="body")
        self._preferences = preferences
        self._narrow_panel = False
        """The trace is shown where there is room for one of the two. Not remembered: the conversation comes first."""

    def lay_out(self, columns: int) -> None:
        """Show what has room in a terminal of so many columns."""
        narrow, left = columns < NARROW_COLUMNS, self._preferences.left
        self.screen.set_class(narrow, "-narrow")
        wide = left.panel if left.panel is not None else columns >= 110
        self.screen.set_class(self._narrow_panel if narrow else wide, "-panel")
        self.widen(0)

    def show_panel(self, shown: bool) -> None:
        """Show or hide the trace: beside the conversation, where that is remembered, or in its place."""
        self.screen.set_class(shown, "-panel")
        if self.screen.has_class("-narrow"):
            self._narrow_panel = shown
        else:
            self._preferences.keep(panel=shown)

    def widen(self, by: int) -> None:
        """Move the edge between conversation and trace, and remember it."""
        least, greatest = PANEL_WIDTHS
        columns = self.screen.size.width
        width = self._preferences.left.panel_width or max(min(columns * 2 // 5, 56), least)
        width = min(max(width + by, least), min(greatest, max(columns - 30, least)))
        if not self.screen.has_class("-narrow"):
            self.query_one(Trace).styles.width = width
        if by:
            self._preferences.keep(panel_width=width)


class MainLayout(Screen[None]):
    """Conversation and trace side by side, below them the question, the prompt and the status line."""

    def __init__(self, palette: Palette, preferences: PreferencesFile) -> None:
        super().__init__()
        self.palette = palette
        self.preferences = preferences
        self._remark = ""
        self._standing: StatusLine | None = None

    @property
    def dialogs(self) -> Dialogs:
        """Texts, questions and choices."""
        assert isinstance(self.app, TerminalApp)
        return Dialogs(self.app)

    def compose(self) -> ComposeResult:
        """The parts, from top to bottom."""
        yield Body(self.palette, self.preferences)
        yield ActivityLine(self.palette)
        yield Static("", id="queue", markup=False)
        yield ChoiceList(self.palette, id="choices")
        yield Approval(self.palette)
        with Horizontal(id="entry"):
            yield Static("›", id="mark", markup=False)
            yield PromptInput()
        yield StatusBar(self.palette)

    def on_resize(self, event: events.Resize) -> None:
        """Narrow and short terminals are laid out differently."""
        self.set_class(event.size.height < SHORT_LINES, "-short")
        self._tell()
        self.query_one(Body).lay_out(event.size.width)

    def wear(self, theme: str) -> None:
        """Other colours, from now on."""
        assert isinstance(self.app, TerminalApp)
        self.app.choose_palette(theme)
        self.preferences.keep(theme=theme)

    def show_queue(self, texts: Sequence[str]) -> None:
        """What waits to be sent."""
        lines = [f"queued: {' '.join(text.split())[:200]}" for text in texts[:3]]
        more = [f"… and {len(texts) - 3} more"] if len(texts) > 3 else []
        for queue in self.query("#queue").results(Static):
            queue.display = bool(texts)
            queue.update("\n".join([*lines, *more]))

    def focus_prompt(self) -> None:
        """The prompt gets the keyboard focus."""
        self.query_one(PromptInput).focus()

    def stand(self, standing: StatusLine) -> None:
        """The status line."""
        self._standing = standing
        self._tell()

    def remark(self, text: str, seconds: float) -> None:
        """Say something on the status line for a while."""
        self._remark = text
        self.on_descendant_focus()
        if text:
            self.set_timer(seconds, lambda: self.remark("", 0.0))

    def on_descendant_focus(self) -> None:
        """What the keys do depends on who has them."""
        self._tell()

    def _tell(self) -> None:
        """What is under way has a line of its own, where there is room for it."""
        for status in self.query(StatusBar):
            now = replace(self._standing or status.standing, hint=self._hint(), key=self._key(), remark=self._remark)
            own_line = self._standing is not None and not self.has_class("-short")
            for activity in self.query(ActivityLine):
                activity.tell(now if own_line else StatusLine())
            status.tell(replace(now, doing="", since=0.0, until=0.0, written=0) if own_line else now)

    def _hint(self) -> str:
        return HINTS.get(self.focused.id or "", "") if self.focused is not None else ""

    def _key(self) -> str:
        """What a key does while something is under way."""
        asked = any(approval.display for approval in self.query(Approval))
        if asked:
            return "esc denies" if isinstance(self.focused, Approval) else "f6 answers · esc stops"
        return self._hint().replace("esc back", "esc stops") if isinstance(self.focused, Pager) else "esc stops"

    def question(self, question: ApprovalQuestion | None, pending: Pending, patch: str) -> None:
        """Ask; with nothing to ask the prompt has the keys again."""
        for approval in self.query(Approval):  # none, once the screen is being taken down
            if question is not None:
                approval.ask(question, pending, patch)
                self._turn_to_question()
            elif approval.display:
                approval.ask(None)
                self.focus_prompt()

    def _turn_to_question(self) -> None:
        """Give the question the keys, but not while somebody is typing: half a word must not be an answer."""
        approval, prompt = self.query_one(Approval), self.query_one(PromptInput)
        wait = TYPING_PAUSE - (time.monotonic() - prompt.typed_at)
        if not approval.display:
            return
        if wait > 0 and prompt.has_focus:
            asyncio.get_running_loop().call_later(wait, self.call_next, self._turn_to_question)
        else:
            approval.focus()

    def copy(self, text: str) -> None:
        """Into the clipboard."""
        self.app.copy_to_clipboard(text)

    def type(self, text: str) -> bool:
        """Put a text into the prompt. False: something is typed there, which stays."""
        prompt = self.query_one(PromptInput)
        if prompt.text:
            return False
        prompt.put(text)
        self.focus_prompt()
        return True
