"""The main screen's ears: what its parts tell, and what is done about it.

Between stage.py, which lays the parts out, and main.py, which has the keys.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from textual import events
from textual.widgets import TextArea

from fugu_cli.ui.tui.keeping import History, Look
from fugu_cli.ui.tui.screens.stage import Stage
from fugu_cli.ui.tui.widgets.approval import Approval
from fugu_cli.ui.tui.widgets.conversation import Conversation
from fugu_cli.ui.tui.widgets.pager import Pager
from fugu_cli.ui.tui.widgets.prompt import Prompt
from fugu_cli.ui.tui.widgets.trace import Trace

if TYPE_CHECKING:
    from fugu_cli.events import Live, Recorded
    from fugu_cli.ui.tui.completing import Completing
    from fugu_cli.ui.tui.draw.palette import Palette
    from fugu_cli.ui.tui.draw.rows import TurnRow
    from fugu_cli.ui.tui.feed import Feed
    from fugu_cli.ui.tui.room import Room
    from fugu_cli.ui.tui.working import Question


class Hearing(Stage):
    """`room` is None until the session's machinery is loaded; what is typed before there is a session waits."""

    def __init__(self, palette: Palette, look: Look, state: Path) -> None:
        super().__init__(palette, look, state)
        self.room: Room | None = None
        self._feed: Feed | None = None
        self._history = History(state)
        self._completing: Completing | None = None
        self._waiting: list[str] = []
        self._asked: Question | None = None

    @property
    def feed(self) -> Feed:
        """The conversation as it is shown. Only to be asked for once the machinery is loaded."""
        assert self._feed is not None
        return self._feed

    def _key(self) -> str:
        return super()._key() if self.room is not None else ""

    def enter(self, text: str) -> None:
        """A line from the prompt: a command, the user's shell, a request. Before there is a session it waits."""
        if self.room is None or not self.room.started:
            self._waiting.append(text)
            self.show_queue(self._waiting)
            return
        self.query_one(Conversation).action_end()
        self.run_worker(self._obey(self.room, text.strip()))

    async def _obey(self, room: Room, text: str) -> None:
        from fugu_cli.errors import FuguError
        from fugu_cli.ui.tui.commands.obeying import obey

        try:
            await obey(room, text)
        except FuguError as error:
            room.failed(error)

    def on_prompt_submitted(self, event: Prompt.Submitted) -> None:
        """Something was typed and sent."""
        self.enter(event.text)

    def on_paste(self, event: events.Paste) -> None:
        """Pasted while something else has the keys (a question, the conversation): it is meant for the prompt."""
        self.query_one(Prompt).post_message(events.Paste(event.text))

    def wander(self, by: int) -> None:
        """Up from the first line, or down from the last: back and forth in the history. Up takes queued text back."""
        prompt = self.query_one(Prompt)
        room = self.room
        if by < 0 and not prompt.text and room is not None and room.work.queue:
            queued = room.work.queue.pop()
            prompt.put(queued.typed or queued.text)
            room.changed()
            return
        text = self._history.walk(by, prompt.text)
        if text is not None:
            prompt.put(text)

    def on_text_area_changed(self, event: TextArea.Changed) -> None:
        """Completions follow the text."""
        if self._completing is not None:
            self._completing.changed()

    def on_approval_answered(self, event: Approval.Answered) -> None:
        """A question was answered."""
        if self.room is not None:
            self.room.answer(event.scope)

    def on_approval_opened(self, event: Approval.Opened) -> None:
        """All that a call would do is wanted: what it is aimed at, then the change."""
        from fugu_cli.ui.tui.draw import diff
        from fugu_cli.ui.tui.draw.detail import Section
        from fugu_cli.ui.tui.draw.lines import BLANK, wrapped
        from fugu_cli.ui.tui.draw.piece import Piece

        target, patch = event.target, event.patch
        pieces = [Piece(lambda width, palette: [*wrapped(target, width, f"bold {palette.text}"), BLANK], target)]
        if patch:
            pieces.append(Piece(lambda width, palette: diff.painted(patch, width, palette), patch))
        self.read("This would change" if patch else "This would run", [Section("", tuple(pieces))])

    def on_trace_wished(self, event: Trace.Wished) -> None:
        """Something with a turn: open it, pin or exclude its agent, ask again with it."""
        agent = event.row.assigned.agent
        match event.wish:
            case "open":
                self.open_row(event.row)
            case "pin":
                pinned = self.room is not None and self.room.work.pinned == agent
                self.enter("/pin auto" if pinned else f"/pin {agent}")
            case "exclude":
                self.enter(f"/exclude {agent}")
            case "retry":
                self.type(f"/retry {agent}")

    def on_trace_resized(self, event: Trace.Resized) -> None:
        """The panel's edge."""
        self.widen(event.by)

    def on_pager_clicked(self, event: Pager.Clicked) -> None:
        """A click on a tool call unfolds it."""
        if self.room is not None and event.pager.id == "conversation":
            self.feed.turn(event.block)

    def on_conversation_marking(self, event: Conversation.Marking) -> None:
        """Another tool call is to be marked."""
        if self.room is not None:
            self.query_one(Conversation).mark(self.feed.next_foldable(event.by), event.by)

    def show_trace(self, turn: str) -> None:
        """Show or hide the trace; with a number, that turn in full."""
        if turn:
            self.open_turn(turn)
        else:
            self.action_panel()

    def action_panel(self) -> None:
        """Show or hide the trace."""
        shown = not self.has_class("-panel")
        self.set_class(shown, "-panel")
        self.keep(panel=shown)
        if not shown and self.query_one(Trace).has_focus:
            self.focus_prompt()
        elif shown and self.has_class("-narrow"):
            self.query_one(Trace).focus()

    def noticed(self, item: Recorded | Live) -> None:
        """A word to the desktop, unless it is not wanted or somebody looks."""
        from fugu_cli.ui.tui import notifying

        if self.look.notify is not False:
            notifying.heard(self.app, item, self.feed.tally)

    def question(self, question: Question | None, behind: int, patch: str) -> None:
        """Ask; where nobody looks, with a word to the desktop."""
        from fugu_cli.ui.tui import notifying

        new = question is not None and question is not self._asked
        self._asked = question
        super().question(question, behind, patch)
        if new and question is not None and self.look.notify is not False:
            notifying.asked(self.app, question)

    def open_turn(self, number: str) -> None:
        """A turn of the newest request by its number."""
        from fugu_cli.ui.tui.draw.rows import TurnRow

        rows = [row for row in self.room.feed.rows.rows if isinstance(row, TurnRow)] if self.room else []
        found = [row for row in rows if str(row.assigned.turn) == number]
        if found:
            self.open_row(found[-1])
        elif self.room is not None:
            self.room.say(f"there is no turn {number}", "warn")

    def open_row(self, row: TurnRow) -> None:
        """A turn in full; left and right go to the ones beside it."""
        from fugu_cli.ui.tui.draw.detail import Sources
        from fugu_cli.ui.tui.screens.turns import pages

        room = self.room
        if room is not None:
            sources = Sources(room.session.prompt, room.patches.of)
            records = room.session.log.records
            self.turn_pages(pages(room.feed.rows, row, records, sources))
