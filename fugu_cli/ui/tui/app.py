"""The application and its main screen: how it starts, what its keys do, how it ends. Paints first and loads after: a
thread imports the session's modules behind the first paint, and typed text waits.
"""

from __future__ import annotations

import asyncio
import importlib
import select
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.binding import BindingType
from textual.widgets import TextArea

from fugu_cli.ui.tui import project_folder
from fugu_cli.ui.tui.approval import Approval
from fugu_cli.ui.tui.main_layout import Body, MainLayout
from fugu_cli.ui.tui.panels import Conversation, Pager, Trace
from fugu_cli.ui.tui.preferences import InputHistory, PreferencesFile
from fugu_cli.ui.tui.project_folder import FolderFiles
from fugu_cli.ui.tui.prompt import ChoiceList, PromptCompletion, PromptInput
from fugu_cli.ui.tui.screen_protocol import Choice, StatusLine
from fugu_cli.ui.tui.status_line import StatusBar
from fugu_cli.ui.tui.terminal_app import TerminalApp, bound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fugu_cli.session.events import Recorded
    from fugu_cli.session.live_events import Live
    from fugu_cli.ui.approval_options import Pending
    from fugu_cli.ui.drawing import Palette
    from fugu_cli.ui.trace_rows import TurnRow
    from fugu_cli.ui.tui.approval_questions import ApprovalQuestion
    from fugu_cli.ui.tui.screen_feed import ScreenFeed
    from fugu_cli.ui.tui.session_controller import SessionController
    from fugu_cli.ui.tui.session_protocol import InterfaceOptions, SessionOpener


class MainHandlers(MainLayout):
    """`controller` is None until the session's machinery is loaded; what is typed before there is a session waits."""

    def __init__(self, palette: Palette, preferences: PreferencesFile, state: Path) -> None:
        super().__init__(palette, preferences)
        self.controller: SessionController | None = None
        self._feed: ScreenFeed | None = None
        self._history = InputHistory(state)
        self._completing: PromptCompletion | None = None
        self._waiting: list[str] = []
        self._asked: ApprovalQuestion | None = None

    @property
    def feed(self) -> ScreenFeed:
        """The conversation as it is shown. Only to be asked for once the machinery is loaded."""
        assert self._feed is not None
        return self._feed

    def _key(self) -> str:
        return super()._key() if self.controller is not None else ""

    def enter(self, text: str) -> None:
        """A line from the prompt: a command, the user's shell, a request. Before there is a session it waits."""
        if self.controller is None or not self.controller.started:
            self._waiting.append(text)
            self.show_queue(self._waiting)
            return
        from fugu_cli.ui.tui.commands import run_input

        self.query_one(Conversation).action_end()
        self.run_worker(run_input(self.controller, text.strip()))

    def on_prompt_input_submitted(self, event: PromptInput.Submitted) -> None:
        """Something was typed and sent."""
        self.enter(event.text)

    def on_prompt_input_mode_changed(self) -> None:
        """vi's mode is shown."""
        vi = self.query_one(PromptInput).vi
        if self.controller is not None and vi is not None:
            self.controller.vi_mode = vi.mode
            self.controller.show()

    def on_paste(self, event: events.Paste) -> None:
        """Pasted while something else has the keys (a question, the conversation): it is meant for the prompt."""
        self.query_one(PromptInput).post_message(events.Paste(event.text))

    def wander(self, by: int) -> None:
        """Up from the first line, or down from the last: back and forth in the history. Up takes queued text back."""
        prompt = self.query_one(PromptInput)
        controller = self.controller
        if by < 0 and not prompt.text and controller is not None and controller.work.queue:
            queued = controller.work.queue.pop()
            prompt.put(queued.typed or queued.text)
            controller.changed()
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
        if self.controller is not None:
            self.controller.answer(event.scope)

    def on_approval_enlarged(self, event: Approval.Enlarged) -> None:
        """All that a call would do is wanted: what it is aimed at, then the change."""
        from fugu_cli.ui import diff_drawing
        from fugu_cli.ui.column import Fragment
        from fugu_cli.ui.drawing import BLANK, wrap_lines
        from fugu_cli.ui.trace_drawing import Section

        target, patch = event.target, event.patch
        pieces = [Fragment(lambda width, palette: [*wrap_lines(target, width, f"bold {palette.text}"), BLANK], target)]
        if patch:
            pieces.append(Fragment(lambda width, palette: diff_drawing.patch_lines(patch, width, palette), patch))
        self.dialogs.read("This would change" if patch else "This would run", [Section("", tuple(pieces))])

    def on_trace_wished(self, event: Trace.Wished) -> None:
        """Something with a turn: open it, pin or exclude its agent, ask again with it."""
        agent = event.row.assigned.agent
        match event.wish:
            case "open":
                self.open_row(event.row)
            case "pin":
                pinned = self.controller is not None and self.controller.work.pinned == agent
                self.enter("/pin auto" if pinned else f"/pin {agent}")
            case "exclude":
                self.enter(f"/exclude {agent}")
            case "retry":
                self.type(f"/retry {agent}")

    def on_trace_resized(self, event: Trace.Resized) -> None:
        """The panel's edge."""
        self.query_one(Body).widen(event.by)

    def on_pager_clicked(self, event: Pager.Clicked) -> None:
        """A click on a tool call unfolds it."""
        if self.controller is not None and event.pager.id == "conversation":
            self.feed.turn(event.block)

    def on_conversation_followed(self, event: Conversation.Followed) -> None:
        """A link: of a file in the editor, of the web in the browser."""
        if not event.link.startswith("file:"):
            self.app.open_url(event.link)
        elif self.controller is not None:
            from urllib.parse import unquote, urlsplit

            parts = urlsplit(event.link)
            self.enter(f"/open {unquote(parts.path)}{f':{parts.fragment}' if parts.fragment else ''}")

    def on_conversation_marking(self, event: Conversation.Marking) -> None:
        """Another tool call is to be marked."""
        from fugu_cli.ui.block_drawing import foldable

        if self.controller is not None:
            conversation = self.query_one(Conversation)
            conversation.mark(self.feed.next_block(conversation.chosen, event.by, foldable), event.by)

    def show_trace(self, turn: str) -> None:
        """Show or hide the trace; with a number, that turn in full."""
        if turn:
            self.open_turn(turn)
        else:
            self.action_panel()

    def action_panel(self) -> None:
        """Show or hide the trace."""
        shown = not self.has_class("-panel")
        self.query_one(Body).show_panel(shown)
        if not shown and self.query_one(Trace).has_focus:
            self.focus_prompt()
        elif shown and self.has_class("-narrow"):
            self.query_one(Trace).focus()

    def noticed(self, item: Recorded | Live) -> None:
        """A word to the desktop, unless it is not wanted or somebody looks."""
        from fugu_cli.ui.tui import screen_feed

        if self.preferences.left.notify is not False:
            screen_feed.notify_request_end(self.app, item, self.feed.tally)

    def question(self, question: ApprovalQuestion | None, pending: Pending, patch: str) -> None:
        """Ask; where nobody looks, with a word to the desktop."""
        from fugu_cli.ui.tui import screen_feed

        new = question is not None and question is not self._asked
        self._asked = question
        super().question(question, pending, patch)
        if new and question is not None and self.preferences.left.notify is not False:
            screen_feed.notify_approval(self.app, question)

    def open_turn(self, number: str) -> None:
        """A turn of the newest request by its number."""
        from fugu_cli.ui.trace_rows import TurnRow

        rows = [row for row in self.controller.feed.rows.rows if isinstance(row, TurnRow)] if self.controller else []
        found = [row for row in rows if str(row.assigned.turn) == number]
        if found:
            self.open_row(found[-1])
        elif self.controller is not None:
            self.controller.say(f"there is no turn {number}", "warn")

    def open_row(self, row: TurnRow) -> None:
        """A turn in full; left and right go to the ones beside it."""
        from fugu_cli.ui.trace_drawing import TurnSources
        from fugu_cli.ui.tui.overlays import turn_pages

        controller = self.controller
        if controller is not None:
            sources = TurnSources(controller.session.prompt, controller.patches.of)
            records = controller.session.log.records
            self.dialogs.turn_pages(turn_pages(controller.feed.rows, row, records, sources))


MARKDOWN_MODULES = ("rich.markdown", "rich.syntax")
"""What the first reply is drawn with."""
SECOND_PRESS_SECONDS = 2.0
"""Seconds between two Ctrl-C that leave."""
MODE_SECONDS = 4.0
"""Seconds for which a mode is explained on the status line."""


class MainScreen(MainHandlers):
    """A conversation with its trace."""

    AUTO_FOCUS = ""
    BINDINGS: ClassVar[list[BindingType]] = [
        bound("stop", "stop", priority=False),
        bound("clear", "typed('leave_twice')"),
        bound("leave", "typed('leave_empty')"),
        bound("steer", "typed('steer')"),
        bound("mode", "mode"),
        bound("trace", "panel"),
        bound("focus", "next_part"),
        bound("fold", "fold"),
        bound("history", "recall"),
        bound("editor", "typed('editor')"),
        bound("copy", "line('/copy')"),
        bound("help", "line('/help')"),
        bound("skip", "line('/skip')"),
        bound("page_up", "page(-1)"),
        bound("page_down", "page(1)"),
        bound("top", "edge('top')"),
        bound("end", "edge('end')"),
        bound("previous_request", "request(-1)"),
        bound("next_request", "request(1)"),
    ]

    def __init__(
        self, opener: SessionOpener, options: InterfaceOptions, palette: Palette, preferences: PreferencesFile
    ) -> None:
        super().__init__(palette, preferences, options.state)
        self._opener = opener
        self._options = options
        self._files = FolderFiles(opener.root, options.added)
        self._pressed = self._stopped = 0.0
        self.parting = ""

    def on_mount(self) -> None:
        """Paint, then load."""
        self.focus_prompt()
        prompt, choices = self.query_one(PromptInput), self.query_one("#choices", ChoiceList)
        prompt.wander = self.wander
        if self._options.vi:
            from fugu_cli.ui.tui.vi_keys import ViKeys

            prompt.vi = ViKeys(prompt)
        prompt.picture = partial(project_folder.mention_of_clipboard, self._opener.root, self._options.state)
        prompt.paths = partial(project_folder.mentions_of_paths, self._opener.root)
        self._completing = PromptCompletion(prompt, choices, self._files, self._command_choices, self._resource_names)
        root, tier = self._opener.root, self._options.tier
        standing = StatusLine(
            project_folder.short_path(root), project_folder.git_branch(root), tier, doing="starting", since=time.time()
        )
        self.query_one(StatusBar).tell(standing)
        self.call_after_refresh(lambda: self.run_worker(self._start()))

    async def _start(self) -> None:
        await asyncio.to_thread(self._load)
        from fugu_cli.ui.hyperlinks import LinkFinder
        from fugu_cli.ui.tui.screen_feed import ScreenFeed
        from fugu_cli.ui.tui.session_controller import SessionController

        self.query_one(Conversation).links = LinkFinder(self._opener.root)
        self._feed = ScreenFeed(self.query_one(Conversation), self.query_one(Trace), self._shown)
        self.controller = SessionController(self, self._opener, self._options, self._history)
        await self.controller.start()
        if isinstance(self.app, TerminalApp) and self.app.fault:
            self.controller.say(self.app.fault, "warn")
        if self._options.prompt and self.controller.work.session is not None:
            self.enter(self._options.prompt)
        waiting, self._waiting = self._waiting, []
        for text in waiting:
            self.enter(text)

    def _shown(self) -> None:
        if self.controller is not None:
            self.controller.show()

    def _load(self) -> None:
        """Imports that take long, and the history. In a thread: the prompt takes keys meanwhile."""
        for name in (
            "fugu_cli.ui.tui.commands",
            "fugu_cli.ui.tui.screen_feed",
            "fugu_cli.ui.tui.session_controller",
            *MARKDOWN_MODULES,
        ):
            importlib.import_module(name)
        self._history.load()
        self._opener.prepare()

    def _resource_names(self) -> Sequence[str]:
        session = self.controller.work.session if self.controller is not None else None
        return session.servers.resources if session is not None and session.servers is not None else ()

    def _command_choices(self, text: str) -> Sequence[Choice]:
        if self.controller is None:
            return ()
        from fugu_cli.ui.tui.commands import all_commands, command_choices

        return command_choices(all_commands(self.controller), self.controller, text)

    async def leave(self) -> None:
        """Close the session and go."""
        if self.controller is not None:
            from fugu_cli.ui.tui import session_status

            self.parting = session_status.parting_words(self.controller)
            await self.controller.close()
        self.app.exit(0)

    def action_line(self, text: str) -> None:
        """As if this had been typed."""
        self.enter(text)

    def action_stop(self) -> None:
        """Stop what runs; with nothing running, back to the prompt; twice, back to an earlier request."""
        if self.controller is None or self.controller.interrupt():
            return
        now, before = time.monotonic(), self._stopped
        self._stopped = now
        if now - before < SECOND_PRESS_SECONDS and not self.query_one(PromptInput).text:
            self.enter("/rewind")
        self.focus_prompt()

    def action_typed(self, action: str) -> None:
        """What depends on the prompt's text, once all that was typed before is in it."""
        self.query_one(PromptInput).call_later(getattr(self, f"_{action}"))

    def _leave_twice(self) -> None:
        """Copy a selection, or empty the prompt; pressed twice, leave."""
        prompt = self.query_one(PromptInput)
        selected = self.get_selected_text() or prompt.selected_text
        if selected:
            self.app.copy_to_clipboard(selected)
            self.clear_selection()
            return
        now, before = time.monotonic(), self._pressed
        self._pressed = now
        if prompt.text:  # also the second time: it was typed since
            prompt.put("")
        elif now - before < SECOND_PRESS_SECONDS:
            self.run_worker(self.leave())
            return
        elif self.controller is not None:
            self.controller.interrupt()
        self.remark("ctrl+c again leaves", SECOND_PRESS_SECONDS)

    def _leave_empty(self) -> None:
        """Leave, when nothing is typed."""
        if not self.query_one(PromptInput).text:
            self.run_worker(self.leave())

    def _steer(self) -> None:
        """Send what is typed or queued now, in the place of what runs."""
        from fugu_cli.ui.tui.commands import is_request

        prompt, controller = self.query_one(PromptInput), self.controller
        text = prompt.text.strip()
        if controller is not None and controller.work.queue and not controller.work.running and not text:
            self.run_worker(controller.work.send_queued())
        elif controller is None or not controller.work.running or (text and not is_request(controller, text)):
            prompt.action_send()
        else:
            controller.steer(prompt.take() if text else "")

    def action_mode(self) -> None:
        """The next permission mode."""
        from fugu_cli.ui.tui.request_queue import next_mode

        if self.controller is not None and (said := self.controller.set_mode(next_mode(self.controller.work.mode))):
            self.remark(said, MODE_SECONDS)

    def action_next_part(self) -> None:
        """The next part gets the keyboard focus."""
        every = (Approval, PromptInput, Conversation, Trace)
        shown = [part for kind in every if (part := self.query_one(kind)).display and part.size.width]
        at = next((index for index, part in enumerate(shown) if part.has_focus), -1)
        shown[(at + 1) % len(shown)].focus()

    def action_fold(self) -> None:
        """Unfold all tool results, or fold them."""
        if self.controller is not None:
            self.feed.fold()

    def action_recall(self) -> None:
        """Search what was typed before."""

        async def recall() -> None:
            texts = list(dict.fromkeys(reversed(self._history.texts)))
            picked = await self.dialogs.pick("History", [Choice(text, " ".join(text.split())) for text in texts])
            if picked is not None:
                self.type(picked[1])

        self.run_worker(recall())

    def _editor(self) -> None:
        """Write in the user's editor."""
        from fugu_cli.ui.tui.user_programs import edit_text

        async def edit() -> None:
            prompt = self.query_one(PromptInput)
            text = await edit_text(self.app, prompt.unfolded())
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

    def action_request(self, by: int) -> None:
        """To the request before what is seen of the conversation, or after it."""
        from fugu_cli.ui.blocks import RequestBlock

        pager = self.query_one(Conversation)
        if self.controller is None:
            return
        found = self.feed.next_block(pager.column.block_at(pager.top), by, lambda one: isinstance(one, RequestBlock))
        if found is not None:
            pager.go_to(found)
        elif by > 0:
            pager.action_end()

    def action_edge(self, edge: str) -> None:
        """To the beginning or the end of the conversation."""
        pager = self.query_one(Conversation)
        pager.action_top() if edge == "top" else pager.action_end()


SETTLE_INTERVAL, SETTLE_TRIES = 0.03, 100
"""Seconds for what was read from the terminal to arrive; how often it is looked whether all was read."""


class FuguApp(TerminalApp):
    """fugu in a terminal."""

    CSS_PATH = "app.tcss"
    TITLE = "fugu"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = []

    def __init__(self, opener: SessionOpener, options: InterfaceOptions) -> None:
        preferences = PreferencesFile(options.state)
        super().__init__(options.theme or preferences.left.theme)
        self.set_keymap(dict(options.keys))
        self.main = MainScreen(opener, options, self.palette, preferences)
        self._early: list[events.Key | events.Paste] | None = []

    def get_default_screen(self) -> MainScreen:
        """The main screen is the only one that is always there."""
        return self.main

    async def on_event(self, event: events.Event) -> None:
        """What is typed before there is a prompt waits for it. Before that a terminal makes a line feed of Enter."""
        if self._early is None or not isinstance(event, events.Key | events.Paste):
            await super().on_event(event)
        elif isinstance(event, events.Key) and event.key == "ctrl+j":
            self._early.append(events.Key("enter", None))
        else:
            self._early.append(event)

    def on_descendant_focus(self) -> None:
        """The prompt can take keys now; first come those that were typed too early, once all of them are here."""
        if self._early is not None:
            self._settle(0 if self.is_headless else SETTLE_TRIES)

    def _settle(self, tries: int) -> None:
        """What was typed before the terminal was ours may lie unread, or be on its way from the thread that reads."""
        if tries == 0:
            self._hand_over()
        else:
            self.set_timer(SETTLE_INTERVAL, partial(self._settle, tries - 1 if has_unread_input() else 0))

    def _hand_over(self) -> None:
        early, self._early = self._early or [], None
        for event in early:
            if self.focused is not None:
                self.focused._forward_event(event)

    async def on_unmount(self) -> None:
        """However it ends, the session is closed: what was cut is in the log."""
        if self.main.controller is not None:
            await self.main.controller.close()


def has_unread_input() -> bool:
    """Something that was typed has not been read."""
    try:
        return sys.__stdin__ is not None and bool(select.select([sys.__stdin__], [], [], 0)[0])
    except (OSError, ValueError):  # it is closed, or the system cannot say
        return False
