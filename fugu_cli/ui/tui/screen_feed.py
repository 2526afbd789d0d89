"""The full screen as the session controller uses it: its feed hands every event of the log to the
folds and shows what changed at most some twenty times a second; the desktop is notified when a long
request ends.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING

from textual.screen import Screen

from fugu_cli.app.preferences import PreferencesFile
from fugu_cli.formatting import escape_for_approval, flatten
from fugu_cli.session.events import Finished, Recorded, ToolRan
from fugu_cli.session.live_events import Live
from fugu_cli.ui.blocks import NoteBlock
from fugu_cli.ui.session_totals import FoldedSession, SessionTotals
from fugu_cli.ui.tui.approval import Approval
from fugu_cli.ui.tui.overlays import Dialogs
from fugu_cli.ui.tui.panels import Body, Conversation, Trace
from fugu_cli.ui.tui.prompt import PromptInput, QueuedTexts
from fugu_cli.ui.tui.screen_protocol import StatusLine, UpdateNote
from fugu_cli.ui.tui.status_line import StatusBar
from fugu_cli.ui.tui.terminal_app import TerminalApp

if TYPE_CHECKING:
    from textual.app import App

    from fugu_cli.app.approval_options import Pending
    from fugu_cli.app.approval_questions import ApprovalQuestion
    from fugu_cli.ui.first_screen import FirstScreen

LONG_REQUEST_SECONDS = 10.0
"""Seconds after which a request's end is worth a word."""


def notify_request_end(app: App[object], item: Recorded | Live, totals: SessionTotals) -> None:
    """Notify the desktop if this item ends a request that took long."""
    if app.app_focus or not isinstance(item, Recorded) or not isinstance(item.event, Finished):
        return
    if item.at - totals.asked_at >= LONG_REQUEST_SECONDS:
        send_notification(app, f"fugu: {item.event.reason.replace('_', ' ')}")


def notify_approval(app: App[object], question: ApprovalQuestion) -> None:
    """Notify the desktop that a question waits for an answer."""
    if not app.app_focus:
        send_notification(
            app,
            f"fugu asks: "
            f"{flatten(escape_for_approval(question.judgement.target or question.call.tool), 100)}",
        )


def send_notification(app: App[object], text: str) -> None:
    """Send a notification sequence and ring the bell."""
    app.bell()
    driver = app._driver  # textual has no public way to write a sequence
    if driver is not None:
        driver.write(notification_sequence(text, tmux="TMUX" in os.environ))


def notification_sequence(text: str, *, tmux: bool) -> str:
    """Return OSC 9 with `text`, for a terminal or through tmux."""
    plain = "".join(letter for letter in text if letter.isprintable())
    osc = f"\x1b]9;{plain}\x07"
    return f"\x1bPtmux;\x1b{osc}\x1b\\" if tmux else osc


FRAME_SECONDS = 0.045
"""Seconds between two repaints while something streams, at least."""
PAUSE_FACTOR = 4.0
"""So many times as long as a repaint took lies between it and the next."""
LONGEST_PAUSE = 0.3


class ScreenFeed:
    """Keeps the conversation and the trace on the screen up to date with the log."""

    def __init__(self, conversation: Conversation, trace: Trace) -> None:
        self.folded = FoldedSession()
        self.shown: Callable[[], None] = lambda: None
        """Called when something was shown."""
        self._conversation = conversation
        conversation.show(self.folded.transcript)  # notes come before a session, or without one
        self._trace = trace
        self._dirty: int | None = None
        self._row: int | None = None
        self._due = False
        self._last = 0.0
        self._pause = FRAME_SECONDS

    def replay(self, records: Sequence[Recorded], *, is_running: bool = False) -> None:
        """Show a session from its beginning. `is_running`: another process runs its calls."""
        self.folded = FoldedSession(records)
        if not is_running:
            self.folded.transcript.end_open_calls()
        self._conversation.show(self.folded.transcript)
        self._trace.show(self.folded.rows, self.folded.totals)
        self._dirty = self._row = None
        self.shown()

    def add_item(self, item: Recorded | Live) -> None:
        """Handle one more item of the log."""
        self._mark(*self.folded.add_item(item, time.time()))
        for index in self.folded.transcript.placed.inserted:
            self._conversation.inserted(index)

    def say(self, note: NoteBlock) -> UpdateNote:
        """Add a note that is in no log. Return a function that updates it."""
        transcript, shown = self.folded.transcript, [note]
        self._mark(transcript.say(note), None)

        def grow(grown: NoteBlock) -> None:
            if transcript is self.folded.transcript:
                index = transcript.placed.index(shown[0])
                shown[0] = transcript.blocks[index] = grown
                self._mark(index, None)

        return grow

    def totals_changed(self) -> None:
        """Update the totals, which hold more than the log."""
        self._mark(None, len(self.folded.rows.rows))

    def patched(self, ran: ToolRan, patch: str) -> None:
        """Show the diff of a call's changes."""
        index = self.folded.transcript.patched(ran, patch)
        if index is not None:
            self._mark(index, None)

    def show_start(self, start: FirstScreen) -> None:
        """Show suggestions in an empty session."""
        self._mark(self.folded.transcript.show_start(start), None)

    def measured(self, added: int, removed: int) -> None:
        """Show the lines that the newest request added and removed."""
        self._mark(self.folded.transcript.measured(added, removed), None)

    def _mark(self, block: int | None, row: int | None) -> None:
        self._dirty = _smaller_index(self._dirty, block)
        self._row = _smaller_index(self._row, row)
        if not self._due:
            self._due = True
            wait = self._pause - (time.monotonic() - self._last)
            # not a timer of Textual's: one that is over before it has begun to wait is never called
            asyncio.get_running_loop().call_later(
                max(wait, 0.0), self._conversation.call_next, self.flush
            )

    def flush(self) -> None:
        """Show what changed since the last time."""
        self._due, self._last = False, time.monotonic()
        self._conversation.call_after_refresh(self._note_drawn)
        dirty, self._dirty = self._dirty, None
        row, self._row = self._row, None
        if dirty is not None:
            self._conversation.changed(dirty)
        if row is not None:
            self._trace.changed(row)
        self.shown()

    def _note_drawn(self) -> None:
        """Record that the screen was drawn. A slow frame delays the next one, so that keys are
        handled at once.
        """
        self._pause = min(
            max(FRAME_SECONDS, PAUSE_FACTOR * (time.monotonic() - self._last)), LONGEST_PAUSE
        )


def _smaller_index(first: int | None, second: int | None) -> int | None:
    if first is None or second is None:
        return second if first is None else first
    return min(first, second)


class FullScreen:
    """The main screen as the session controller uses it."""

    def __init__(
        self,
        screen: Screen[None],
        feed: ScreenFeed,
        preferences: PreferencesFile,
        leave: Callable[[], Coroutine[None, None, None]],
    ) -> None:
        self.feed = feed
        self.dialogs = Dialogs(screen.app)
        self.preferences = preferences
        self.leave = leave
        self._screen = screen
        self._question: ApprovalQuestion | None = None

    def stand(self, standing: StatusLine) -> None:
        """Show the status line."""
        for status in self._screen.query(StatusBar):  # none, once the screen is being taken down
            status.stand(standing)

    def question(self, question: ApprovalQuestion | None, pending: Pending, patch: str) -> None:
        """Show the question. If the terminal is in the background, notify the desktop, too."""
        new = question is not None and question is not self._question
        self._question = question
        for approval in self._screen.query(Approval):
            approval.ask(question, pending, patch)
        if new and question is not None and self.preferences.current.notify is not False:
            notify_approval(self._screen.app, question)

    def show_queue(self, texts: Sequence[str], messages: Sequence[str]) -> None:
        """Show the queued requests, and the messages that wait for the next result."""
        for queue in self._screen.query(QueuedTexts):
            queue.show(texts, messages)

    def noticed(self, item: Recorded | Live) -> None:
        """Notify the desktop, unless the user does not want that or is looking."""
        if self.preferences.current.notify is not False:
            notify_request_end(self._screen.app, item, self.feed.folded.totals)

    def type(self, text: str) -> bool:
        """Put a text into the prompt. False: something is typed there, which stays."""
        prompt = self._screen.query_one(PromptInput)
        if prompt.text:
            return False
        prompt.put(text)
        prompt.focus()
        return True

    def wear(self, theme: str) -> None:
        """Change the colours."""
        assert isinstance(self._screen.app, TerminalApp)
        self._screen.app.choose_palette(theme)
        self.preferences.keep(theme=theme)

    def show_trace(self) -> None:
        """Show or hide the trace."""
        self._screen.query_one(Body).toggle_trace()

    def copy(self, text: str) -> None:
        """Copy to the clipboard."""
        self._screen.app.copy_to_clipboard(text)
