"""The main screen: conversation and trace, below them the question, the prompt and the status line.
Each part does what is its own; here is what connects them with the session.

Under app.py. Painted before anything else of fugu is imported, so it imports the log, the session
and its parts later: a thread does behind the first paint, and typed text waits.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import unquote, urlsplit

from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.screen import Screen
from textual.widgets import Static

from fugu_cli.app.preferences import InputHistory, PreferencesFile
from fugu_cli.ui.drawing import Palette
from fugu_cli.ui.tui import project_folder
from fugu_cli.ui.tui.approval import Approval
from fugu_cli.ui.tui.find_bar import FindBar
from fugu_cli.ui.tui.pager import EntryPager
from fugu_cli.ui.tui.panels import Body, Conversation, Trace
from fugu_cli.ui.tui.project_folder import FolderFiles
from fugu_cli.ui.tui.prompt import (
    ChoiceList,
    PromptCompletion,
    PromptInput,
    QueuedTexts,
    SecondPress,
)
from fugu_cli.ui.tui.screen_protocol import Choice, StatusLine
from fugu_cli.ui.tui.status_line import ActivityLine, StatusBar
from fugu_cli.ui.tui.terminal_app import KEYS, SHORT_LINES, TerminalApp, bound

if TYPE_CHECKING:
    from fugu_cli.app.session_protocol import InterfaceOptions, SessionOpener
    from fugu_cli.ui.tui.session_controller import SessionController

KeyActions = Mapping[str, Callable[["MainScreen"], None]]
"""The actions of terminal_app.KEYS, by name."""
KEYS_OF_OTHERS = ("send", "queue", "new_line", "paste", "undo_typing", "suspend")
"""Keys that the prompt and the application handle."""


class MainScreen(Screen[None]):
    """The main screen. `controller` is None until the slow modules are loaded; text that is entered
    before there is a session waits.
    """

    AUTO_FOCUS = ""
    BINDINGS: ClassVar[list[BindingType]] = [
        bound(name, f"key('{name}')", priority=name != "stop")
        for name in KEYS
        if name not in KEYS_OF_OTHERS
    ]

    def __init__(
        self,
        opener: SessionOpener,
        options: InterfaceOptions,
        palette: Palette,
        preferences: PreferencesFile,
        keys: KeyActions,
    ) -> None:
        super().__init__()
        self.opener, self.options = opener, options
        self.palette, self.preferences = palette, preferences
        self.controller: SessionController | None = None
        self.history = InputHistory(options.state)
        self.completing: PromptCompletion | None = None
        self.clearing, self.stopping = SecondPress(), SecondPress()
        self.parting = ""
        self._keys = keys
        self._waiting: list[tuple[str, bool]] = []
        """Lines entered before there is a session, each with whether it was typed."""

    def compose(self) -> ComposeResult:
        """Yield the parts from top to bottom."""
        root, tier = self.opener.root, self.options.tier
        folder, branch = project_folder.short_path(root), project_folder.git_branch(root)
        yield Body(self.palette, self.preferences)
        yield FindBar()
        yield ActivityLine(self.palette)
        yield QueuedTexts()
        yield ChoiceList(self.palette, id="choices")
        yield Approval(self.palette)
        with Horizontal(id="entry"):
            yield Static("›", id="mark", markup=False)
            yield PromptInput()
        # without a time: the first start may wait for the user's answers
        yield StatusBar(self.palette, StatusLine(folder, branch, tier, doing="starting", key=""))

    def on_mount(self) -> None:
        """Paint the first frame, then load the rest."""
        prompt = self.query_one(PromptInput)
        prompt.focus()
        prompt.wander = partial(_wander, self)
        prompt.is_working = lambda: self.controller is not None and self.controller.work.running
        if self.options.vi:
            from fugu_cli.ui.tui.vi_keys import ViKeys

            prompt.vi = ViKeys(prompt)
        prompt.picture = partial(
            project_folder.mention_of_clipboard, self.opener.root, self.options.state
        )
        prompt.paths = partial(project_folder.mentions_of_paths, self.opener.root)
        self.completing = PromptCompletion(
            prompt,
            self.query_one(ChoiceList),
            FolderFiles(self.opener.root, self.options.added),
            lambda text: _command_choices(self.controller, text),
            lambda: _resource_names(self.controller),
        )
        self.call_after_refresh(lambda: self.run_worker(self._start()))

    def on_resize(self, event: events.Resize) -> None:
        """Lay out narrow and short terminals differently."""
        self.set_class(event.size.height < SHORT_LINES, "-short")
        self.query_one(StatusBar).draw_again()
        self.query_one(Body).lay_out(event.size.width)

    async def _start(self) -> None:
        await asyncio.to_thread(_load, self.opener, self.history)
        from fugu_cli.ui.hyperlinks import LinkFinder
        from fugu_cli.ui.tui.screen_feed import FullScreen, ScreenFeed
        from fugu_cli.ui.tui.session_controller import SessionController

        prompt, conversation = self.query_one(PromptInput), self.query_one(Conversation)
        conversation.links = LinkFinder(self.opener.root)
        feed = ScreenFeed(conversation, self.query_one(Trace))
        view = FullScreen(self, feed, self.preferences, partial(leave, self))
        controller = self.controller = SessionController(
            view, self.opener, self.options, self.history
        )
        feed.shown = controller.show
        self.query_one(Approval).answer = controller.answer
        prompt.vi_key = partial(_show_vi_mode, controller, prompt)
        await controller.start()
        if isinstance(self.app, TerminalApp) and self.app.fault:
            controller.say(self.app.fault, "warn")
        if self.options.prompt and controller.work.session is not None:
            self.enter(self.options.prompt)
        waiting, self._waiting = self._waiting, []
        for text, typed in waiting:
            self.enter(text, typed=typed)

    def enter(self, text: str, *, queued: bool = False, typed: bool = False) -> None:
        """Handle a line of the prompt: a command, a shell command, a request, a message for the
        agents at work, or a line for the memory. `queued`: a request for afterwards. `typed`: see
        `PromptInput.Submitted`. Before there is a session it waits.
        """
        if self.controller is None or not self.controller.started:
            self._waiting.append((text, typed))
            self.query_one(QueuedTexts).show([waiting for waiting, _ in self._waiting])
            return
        from fugu_cli.ui.tui.commands import run_input

        self.query_one(Conversation).action_end()
        self.run_worker(run_input(self.controller, text.strip(), queued=queued, typed=typed))

    def action_key(self, name: str) -> None:
        """Run the action of a key in terminal_app.KEYS."""
        self._keys[name](self)

    def on_prompt_input_submitted(self, event: PromptInput.Submitted) -> None:
        """Send the typed text."""
        self.enter(event.text, queued=event.queued, typed=event.typed)

    def on_text_area_changed(self) -> None:
        """Update the completions."""
        if self.completing is not None:
            self.completing.changed()

    def on_key(self, event: events.Key) -> None:
        """Type a key into the prompt if the focused part does not use it."""
        letter = event.character
        is_bound = event.key in self.active_bindings
        if letter and event.is_printable and not is_bound:
            event.stop()
            self.query_one(PromptInput).type_letter(letter)

    def on_paste(self, event: events.Paste) -> None:
        """Pass a paste on to the prompt if something else has the focus."""
        self.query_one(PromptInput).post_message(events.Paste(event.text))

    def on_conversation_followed(self, event: Conversation.Followed) -> None:
        """Open a link: a file in the editor, an address in the browser."""
        parts = urlsplit(event.link)
        if parts.scheme != "file":
            self.app.open_url(event.link)
        elif self.controller is not None:
            self.enter(
                f"/open {unquote(parts.path)}{f':{parts.fragment}' if parts.fragment else ''}"
            )

    def on_conversation_command_chosen(self, event: Conversation.CommandChosen) -> None:
        """Run what a key of the marked outcome stands for."""
        self.enter(event.command)

    def on_entry_pager_match_wanted(self, event: EntryPager.MatchWanted) -> None:
        """Go to the next or the previous match."""
        self.query_one(FindBar).action_step(event.by)

    def on_mark_moved(self) -> None:
        """Show the keys of what is marked now."""
        self.query_one(StatusBar).draw_again()

    def on_trace_wished(self, event: Trace.Wished) -> None:
        """Act on a turn: open it, pin or exclude its agent, ask again with it."""
        from fugu_cli.ui.tui.session_commands import open_turn

        agent, controller = event.row.assigned.agent, self.controller
        if controller is None:
            return
        match event.wish:
            case "open":
                open_turn(controller, event.row)
            case "pin":
                self.enter("/pin auto" if controller.work.pinned == agent else f"/pin {agent}")
            case "exclude":
                self.enter(f"/exclude {agent}")
            case "retry":
                controller.view.type(f"/retry {agent}")


async def leave(main: MainScreen) -> None:
    """Close the session and end the application."""
    if main.controller is not None:
        from fugu_cli.ui.tui import session_status

        main.parting = main.parting or session_status.parting_words(main.controller)
        await main.controller.close()
    main.app.exit(0)


def _show_vi_mode(controller: SessionController, prompt: PromptInput) -> None:
    if prompt.vi is not None:
        controller.vi_mode = prompt.vi.mode
        controller.show()


MARKDOWN_MODULES = ("rich.markdown", "rich.syntax")
"""Modules that draw the first reply."""


def _load(opener: SessionOpener, history: InputHistory) -> None:
    """Import slow modules and load the history, in a thread, so that the prompt takes keys
    meanwhile.
    """
    for name in ("commands", "screen_feed", "session_controller"):
        importlib.import_module(f"fugu_cli.ui.tui.{name}")
    for name in MARKDOWN_MODULES:
        importlib.import_module(name)
    history.load()
    opener.prepare()


def _wander(main: MainScreen, by: int) -> None:
    """Step through the history: up from the first line, down from the last. Up also takes queued
    text back.
    """
    prompt, controller = main.query_one(PromptInput), main.controller
    if by < 0 and not prompt.text and controller is not None and controller.work.queue:
        queued = controller.work.queue.pop()
        prompt.put(queued.typed or queued.text)
        controller.changed()
    elif (text := main.history.walk(by, prompt.text)) is not None:
        prompt.put(text)


def _command_choices(controller: SessionController | None, text: str) -> Sequence[Choice]:
    if controller is None:
        return ()
    from fugu_cli.ui.tui.commands import all_commands, command_choices

    return command_choices(all_commands(controller), controller, text)


def _resource_names(controller: SessionController | None) -> Sequence[str]:
    session = controller.work.session if controller is not None else None
    return session.servers.resources if session is not None and session.servers is not None else ()
