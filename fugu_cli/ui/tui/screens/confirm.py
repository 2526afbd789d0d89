"""A yes or a no before something happens to the user's files, with what would happen."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Static

from fugu_cli.ui.tui.draw import diff
from fugu_cli.ui.tui.draw.palette import Palette
from fugu_cli.ui.tui.draw.piece import Piece
from fugu_cli.ui.tui.screens import NARROW
from fugu_cli.ui.tui.widgets.pager import Pager


class Confirm(ModalScreen[bool]):
    """Shows a patch and asks. Escape is no."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "answer(False)", show=False, priority=True),
        Binding("y,enter", "answer(True)", show=False),
        Binding("n,escape,q", "answer(False)", show=False),
    ]

    def __init__(self, palette: Palette, question: str, patch: str) -> None:
        super().__init__()
        self._palette = palette
        self._question = question
        self._patch = patch

    def compose(self) -> ComposeResult:
        """The question, the patch, the keys."""
        with Vertical(id="confirm"):
            yield Static(self._question, id="confirm-question", markup=False)
            yield Pager(self._palette, id="confirm-text")
            yield Static("y yes · n no · ↑ ↓ scroll", id="confirm-keys", markup=False)

    def on_mount(self) -> None:
        """Fill in the patch."""
        self.set_class(self.app.size.width < NARROW, "-narrow")
        pager = self.query_one(Pager)
        patch = self._patch or "(no file would change)"
        pager.column.put(0, [Piece(lambda width, palette: diff.painted(patch, width, palette), patch)])
        pager.grew()
        pager.focus()

    def on_resize(self, event: events.Resize) -> None:
        """Where it is narrow, there is no room for anything beside it."""
        self.set_class(event.size.width < NARROW, "-narrow")

    def action_answer(self, yes: bool) -> None:
        """The answer."""
        self.dismiss(yes)
