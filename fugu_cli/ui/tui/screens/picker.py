"""One thing out of many: typed words narrow the list, the marked one is shown beside it.

Sessions, the history of what was typed, agents, themes. What is chosen is handed back; nothing happens here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.geometry import Size
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from fugu_cli.ui.tui.draw.lines import Line, Part, line, spread
from fugu_cli.ui.tui.draw.palette import Palette
from fugu_cli.ui.tui.draw.piece import Piece
from fugu_cli.ui.tui.front import Choice, Picked, Preview
from fugu_cli.ui.tui.screens import NARROW, SHORT
from fugu_cli.ui.tui.widgets.at_once import Search
from fugu_cli.ui.tui.widgets.pager import Pager


class Picker(ModalScreen[Picked | None]):
    """`keys` are further ways to choose, with a word about each: {"ctrl+f": "fork"}."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "leave", show=False, priority=True),
        Binding("escape", "leave", show=False),
        Binding("enter", "typed('choose', 'enter')", show=False, priority=True),
        Binding("up,ctrl+p", "typed('mark', -1)", show=False, priority=True),
        Binding("down,ctrl+n", "typed('mark', 1)", show=False, priority=True),
        Binding("pageup", "typed('mark', -10)", show=False, priority=True),
        Binding("pagedown", "typed('mark', 10)", show=False, priority=True),
        Binding("ctrl+f", "typed('choose', 'ctrl+f')", show=False, priority=True),
        Binding("ctrl+e", "typed('choose', 'ctrl+e')", show=False, priority=True),
    ]

    def __init__(
        self,
        palette: Palette,
        heading: str,
        choices: Sequence[Choice],
        preview: Preview | None = None,
        keys: dict[str, str] | None = None,
    ) -> None:
        super().__init__()
        self._palette = palette
        self._heading = heading
        self._every = tuple(choices)
        self._shown: list[Choice] = list(choices)
        self._preview = preview
        self._looked_at: str | None = None
        self._keys = keys or {}
        self._typed = ""

    def compose(self) -> ComposeResult:
        """A field, the list, the preview, the keys."""
        with Vertical(id="picker"):
            yield Static(self._heading, id="picker-heading", markup=False)
            yield Search(placeholder="type to search", id="picker-search", compact=True)
            with Horizontal(id="picker-body"):
                yield Pager(self._palette, id="picker-list")
                if self._preview is not None:
                    yield Pager(self._palette, lead="│ ", id="picker-preview")
            more = "".join(f" · {key} {words}" for key, words in self._keys.items())
            yield Static(f"enter chooses{more} · esc closes", id="picker-keys", markup=False)

    def on_mount(self) -> None:
        """Everything, the first one marked."""
        self._lay_out(self.app.size)
        self._fill()
        self.query_one(Search).focus()

    def on_resize(self, event: events.Resize) -> None:
        """Another size."""
        self._lay_out(event.size)

    def _lay_out(self, size: Size) -> None:
        """Where it is narrow, the preview stands below the list; where it is short as well, nowhere."""
        self.set_class(size.width < NARROW, "-narrow")
        self.set_class(size.height < SHORT, "-short")

    def on_input_changed(self, event: Input.Changed) -> None:
        """Fewer, or more."""
        self._narrow()

    def _narrow(self) -> None:
        typed = self.query_one(Search).value
        if typed != self._typed:
            self._typed = typed
            self._shown = [choice for choice in self._every if _matches(choice, typed.lower().split())]
            self._fill()

    def action_leave(self) -> None:
        """Nothing was chosen."""
        self.dismiss(None)

    def action_typed(self, action: str, argument: str | int) -> None:
        """What depends on what is shown, once all that was typed before has narrowed it."""
        self.query_one(Search).call_later(self._typed_before, getattr(self, f"_{action}"), argument)

    def _typed_before(self, act: Callable[[str | int], None], argument: str | int) -> None:
        self._narrow()
        act(argument)

    def _choose(self, key: str) -> None:
        """The marked one, in this way."""
        at = self.query_one("#picker-list", Pager).chosen
        if key != "enter" and key not in self._keys:
            return
        self.dismiss((key, self._shown[at].value) if at is not None and at < len(self._shown) else None)

    def _mark(self, by: int) -> None:
        """Mark another one."""
        pager = self.query_one("#picker-list", Pager)
        if self._shown:
            pager.chosen = min(max((pager.chosen or 0) + by, 0), len(self._shown) - 1)
            pager.show_block(pager.chosen)
            pager.refresh()
            self._look()

    def on_pager_clicked(self, event: Pager.Clicked) -> None:
        """Mark what was clicked; a second click chooses it."""
        if event.pager.id != "picker-list":
            return
        if event.pager.chosen == event.block:
            self._choose("enter")
            return
        event.pager.chosen = event.block
        event.pager.refresh()
        self._look()

    def _fill(self) -> None:
        pager = self.query_one("#picker-list", Pager)
        pager.column.cut(0)
        for index, choice in enumerate(self._shown):
            pager.column.put(index, [_piece(choice)])
        pager.chosen = 0 if self._shown else None
        pager.action_top()
        pager.grew()
        self._look()

    def _look(self) -> None:
        if self._preview is None:
            return
        at = self.query_one("#picker-list", Pager).chosen
        value = self._shown[at].value if at is not None else None
        if value != self._looked_at:
            self._looked_at = value
            self.run_worker(self._previewed(self._preview, value), exclusive=True)

    async def _previewed(self, preview: Preview, value: str | None) -> None:
        """In a thread: it may read a long file. A newer mark makes an older preview stop."""
        pieces = list(await asyncio.to_thread(preview, value)) if value is not None else []
        pager = self.query_one("#picker-preview", Pager)
        pager.column.cut(0)
        pager.column.put(0, pieces)
        pager.action_top()
        pager.grew()


def _matches(choice: Choice, words: Sequence[str]) -> bool:
    text = f"{choice.shown} {choice.about} {choice.value}".lower()
    return all(word in text for word in words)


def _piece(choice: Choice) -> Piece:
    def paint(width: int, palette: Palette) -> list[Line]:
        about: list[Part] = [(choice.about, palette.dim)]
        if width < 70:
            return [line([(choice.shown, palette.text), ("  ", ""), *about], width)]
        return [spread([(choice.shown, palette.text)], about, width)]

    return Piece(paint, exact=1)
