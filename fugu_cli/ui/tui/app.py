"""The application in a terminal: what the keys of its main screen do, and how what was typed before
the first paint gets there.
"""

from __future__ import annotations

import select
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.binding import BindingType

from fugu_cli.app.preferences import PreferencesFile
from fugu_cli.ui.tui.approval import Approval
from fugu_cli.ui.tui.find_bar import FindBar
from fugu_cli.ui.tui.main_screen import KeyActions, MainScreen, leave
from fugu_cli.ui.tui.pager import Pager
from fugu_cli.ui.tui.panels import Body, Conversation, Trace
from fugu_cli.ui.tui.prompt import SECOND_PRESS_SECONDS, PromptInput
from fugu_cli.ui.tui.screen_protocol import Choice
from fugu_cli.ui.tui.status_line import StatusBar
from fugu_cli.ui.tui.terminal_app import TerminalApp

if TYPE_CHECKING:
    from fugu_cli.app.session_protocol import InterfaceOptions, SessionOpener

MODE_SECONDS = 4.0
"""Seconds for which a mode is explained on the status line."""

KeyAction = Callable[[MainScreen], None]


def _after_typing(act: KeyAction) -> KeyAction:
    """Return the action delayed until everything typed before has reached the prompt."""

    def wait(main: MainScreen) -> None:
        main.query_one(PromptInput).call_later(act, main)

    return wait


def _line(text: str) -> KeyAction:
    """Return an action that acts as if the text had been typed."""
    return lambda main: main.enter(text)


def _stop(main: MainScreen) -> None:
    """Close the find bar if it is open, else stop the running work. If nothing runs, focus the
    prompt; the second time, offer the earlier requests.
    """
    if main.query_one(FindBar).close():
        return
    if main.controller is None or main.controller.interrupt():
        return
    prompt = main.query_one(PromptInput)
    if main.stopping.again() and not prompt.text:
        main.enter("/rewind")
    prompt.focus()


def _clear(main: MainScreen) -> None:
    """Copy a selection, or empty the prompt; pressed twice, leave."""
    prompt = main.query_one(PromptInput)
    selected = main.get_selected_text() or prompt.selected_text
    if selected:
        main.app.copy_to_clipboard(selected)
        main.clear_selection()
        return
    again = main.clearing.again()
    if prompt.text:  # also the second time: it was typed since
        prompt.put("")
    elif again:
        main.run_worker(leave(main))
        return
    elif main.controller is not None:
        main.controller.interrupt()
    main.query_one(StatusBar).remark("ctrl+c again leaves", SECOND_PRESS_SECONDS)


def _leave_empty(main: MainScreen) -> None:
    """Leave, when nothing is typed."""
    if not main.query_one(PromptInput).text:
        main.run_worker(leave(main))


def _steer(main: MainScreen) -> None:
    """Send what is typed or queued now, in the place of what runs."""
    from fugu_cli.ui.tui.commands import is_memory_line, is_request
    from fugu_cli.ui.tui.session_controller import steer

    prompt, controller = main.query_one(PromptInput), main.controller
    text = prompt.text.strip()
    if (
        controller is not None
        and controller.work.queue
        and not controller.work.running
        and not text
    ):
        main.run_worker(controller.work.send_queued())
    elif (
        controller is None
        or not controller.work.running
        or (text and (is_memory_line(text) or not is_request(controller, text)))
    ):
        prompt.action_send()
    else:
        steer(controller, prompt.take() if text else "")


def _next_mode(main: MainScreen) -> None:
    """Switch to the next permission mode."""
    from fugu_cli.ui.tui.session_controller import choose_mode

    if main.controller is not None and (message := choose_mode(main.controller)):
        main.query_one(StatusBar).remark(message, MODE_SECONDS)


def _next_part(main: MainScreen) -> None:
    """Give the keyboard focus to the next part; from the prompt to an open question."""
    part_types = (Approval, Conversation, Trace, PromptInput)
    shown = [
        part
        for part_type in part_types
        if (part := main.query_one(part_type)).display and part.size.width
    ]
    at = next((index for index, part in enumerate(shown) if part.has_focus), -1)
    shown[(at + 1) % len(shown)].focus()


def _recall(main: MainScreen) -> None:
    """Search what was typed before."""

    async def recall() -> None:
        if main.controller is None:
            return
        texts = list(dict.fromkeys(reversed(main.history.texts)))
        choices = [Choice(text, " ".join(text.split())) for text in texts]
        picked = await main.controller.view.dialogs.pick("History", choices)
        if picked is not None:
            main.controller.view.type(picked[1])

    main.run_worker(recall())


def _editor(main: MainScreen) -> None:
    """Write in the user's editor."""
    from fugu_cli.ui.tui.user_programs import edit_text, run_editor

    async def edit() -> None:
        prompt = main.query_one(PromptInput)
        text = await edit_text(prompt.unfolded(), partial(run_editor, main.app))
        if text is None:
            main.app.notify(
                "no editor could be started; set $VISUAL or $EDITOR", severity="warning"
            )
        else:
            prompt.put(text)

    main.run_worker(edit())


def _page(pages: int) -> KeyAction:
    """Scroll what has the focus, else the conversation."""

    def scroll(main: MainScreen) -> None:
        pager = main.focused if isinstance(main.focused, Pager) else main.query_one(Conversation)
        pager.action_page(pages)

    return scroll


def _request(by: int) -> KeyAction:
    """Return an action that scrolls to the next or previous request."""

    def move(main: MainScreen) -> None:
        from fugu_cli.ui.blocks import RequestBlock

        pager = main.query_one(Conversation)
        current = pager.column.block_at(pager.top)
        target = pager.next_block(current, by, lambda block: isinstance(block, RequestBlock))
        if target is not None:
            pager.action_go(pager.column.top_of(target))
        elif by > 0:
            pager.action_end()

    return move


KEY_ACTIONS: KeyActions = {
    "stop": _stop,
    "clear": _after_typing(_clear),
    "leave": _after_typing(_leave_empty),
    "steer": _after_typing(_steer),
    "mode": _next_mode,
    "trace": lambda main: main.query_one(Body).toggle_trace(),
    "focus": _next_part,
    "fold": lambda main: main.query_one(Conversation).fold(),
    "find": lambda main: main.query_one(FindBar).open(),
    "history": _recall,
    "editor": _after_typing(_editor),
    "copy": _line("/copy"),
    "help": _line("/help"),
    "skip": _line("/skip"),
    "page_up": _page(-1),
    "page_down": _page(1),
    "top": lambda main: main.query_one(Conversation).action_go(0),
    "end": lambda main: main.query_one(Conversation).action_end(),
    "previous_request": _request(-1),
    "next_request": _request(1),
}


SETTLE_INTERVAL, SETTLE_TRIES = 0.03, 100
"""Seconds for what was read from the terminal to arrive; how often it is looked whether all was
read.
"""


class FuguApp(TerminalApp):
    """fugu in a terminal."""

    CSS_PATH = "app.tcss"
    TITLE = "fugu"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = []

    def __init__(self, opener: SessionOpener, options: InterfaceOptions) -> None:
        preferences = PreferencesFile(options.state)
        super().__init__(options.theme or preferences.current.theme)
        self.set_keymap(dict(options.keys))
        self.main = MainScreen(opener, options, self.palette, preferences, KEY_ACTIONS)
        self._early: list[events.Key | events.Paste] | None = []

    def get_default_screen(self) -> MainScreen:
        """Return the main screen, the only one that always exists."""
        return self.main

    async def on_event(self, event: events.Event) -> None:
        """Keep keys that are typed before there is a prompt. At that time a terminal sends Enter as
        a line feed.
        """
        if self._early is None or not isinstance(event, events.Key | events.Paste):
            await super().on_event(event)
        elif isinstance(event, events.Key) and event.key == "ctrl+j":
            self._early.append(events.Key("enter", None))
        else:
            self._early.append(event)

    def on_descendant_focus(self) -> None:
        """Hand over the keys that were typed before the prompt existed."""
        if self._early is not None:
            self._settle(0 if self.is_headless else SETTLE_TRIES)

    def _settle(self, tries: int) -> None:
        """Wait for input that was typed before the terminal was ours and may still be unread."""
        if tries == 0:
            self._hand_over()
        else:
            self.set_timer(
                SETTLE_INTERVAL, partial(self._settle, tries - 1 if has_unread_input() else 0)
            )

    def _hand_over(self) -> None:
        early, self._early = self._early or [], None
        for event in early:
            if self.focused is not None:
                self.focused._forward_event(event)

    async def on_unmount(self) -> None:
        """Close the session, however the program ends, so that interrupted work is logged."""
        if self.main.controller is not None:
            await self.main.controller.close()


def has_unread_input() -> bool:
    """Return whether typed input has not been read yet."""
    try:
        return sys.__stdin__ is not None and bool(select.select([sys.__stdin__], [], [], 0)[0])
    except (OSError, ValueError):  # it is closed, or the system cannot say
        return False
