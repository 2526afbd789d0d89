"""The question before a call: what it would touch or run, why policy asks, and the diff.

Takes the prompt's place while something is asked. The call is not run before an answer; questions
that come meanwhile wait behind this one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.strip import Strip
from textual.widget import Widget

from fugu_cli.app.approval_options import (
    ALONE,
    MOST_LISTED,
    ApprovalOption,
    ApprovalScope,
    Pending,
    approval_options,
    scope_of_key,
)
from fugu_cli.formatting import plural
from fugu_cli.ui import diff_drawing, diff_lines
from fugu_cli.ui.column import Fragment
from fugu_cli.ui.drawing import BLANK, Palette, StyledLine, plain_text, styled_line, wrap_lines
from fugu_cli.ui.tui.prompt import TYPING_PAUSE, PromptInput

if TYPE_CHECKING:
    from fugu_cli.app.approval_questions import ApprovalQuestion

TARGET_LINES = 6
LEAST_PATCH_LINES = 8
"""Lines of a change below which only what is added and removed is shown."""
SHORT_TERMINAL = 20
"""Lines of a terminal below which the answers stand on one line."""
REPEATED_KEY_SECONDS = 0.4
"""Seconds after a yes in which another yes does not count for the next question, which nobody can
have read yet."""


class Approval(Widget, can_focus=True):
    """The widget with the question and its answers. It is hidden while there is no question."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            Binding(key, f"answer('{key}')", show=False)
            for key in (*"ysantYN1234567", "escape", "enter")
        ),
        Binding("d", "whole", show=False),
        Binding("up,left", "move(-1)", show=False),
        Binding("down,right,tab", "move(1)", show=False),
    ]

    def __init__(self, palette: Palette, id: str = "approval") -> None:
        super().__init__(id=id)
        self.palette = palette
        self.display = False
        self.answer: Callable[[ApprovalScope], None] = lambda scope: None
        """Receives the user's answer to the question that is shown."""
        self._question: ApprovalQuestion | None = None
        self._patch = ""
        self._cut = False
        self._pending = ALONE
        self._at = 0
        self._lines: list[StyledLine] = []
        self._allowed: ApprovalQuestion | None = None
        self._allowed_at = 0.0

    @property
    def options(self) -> tuple[ApprovalOption, ...]:
        """The possible answers, without "yes to all" if not all waiting calls are listed."""
        if self._question is None:
            return ()
        options = approval_options(*self._question.asked, self._pending)
        hides_calls = len(self._pending.others) > _listed(self.app.size.height)
        if not hides_calls:
            return options
        return tuple(option for option in options if option.scope != "all")

    def ask(
        self, question: ApprovalQuestion | None, pending: Pending = ALONE, patch: str = ""
    ) -> None:
        """Show a question with the diff of its change and the calls that wait behind it. Without a
        question hide the widget.
        """
        was_shown = self.display
        if question is not self._question:
            self._at = 0
        self.display = question is not None
        self._question = question
        self._pending = pending
        self._patch = patch
        self._paint()
        if question is not None:
            self._take_focus()
        elif was_shown:
            self.screen.query_one(PromptInput).focus()

    def _take_focus(self) -> None:
        """Give the question the keys, unless somebody is typing: half a word must not be an answer."""
        prompt = self.screen.query_one(PromptInput)
        wait = TYPING_PAUSE - (time.monotonic() - prompt.typed_at)
        if not self.display:
            return
        if wait > 0 and prompt.has_focus:
            asyncio.get_running_loop().call_later(wait, self.call_next, self._take_focus)
        else:
            self.focus()

    def on_resize(self, event: events.Resize) -> None:
        """Fold the text again."""
        self._paint()

    def action_answer(self, key: str) -> None:
        """Give the answer with this key or number. Enter gives the marked one, Escape refuses. A
        letter that is no answer is typed into the prompt.
        """
        options = self.options
        if not options:
            return
        if key == "escape":
            scope: ApprovalScope | None = "no"
        elif key == "enter":
            scope = options[self._marked(options)].scope
        else:
            scope = scope_of_key(options, key)
            if scope is None:
                self.screen.query_one(PromptInput).type_letter(key)
        if scope is not None and (scope in ("no", "none", "feedback") or not self._pressed_on()):
            self.answer(scope)

    def _pressed_on(self) -> bool:
        """Return whether a yes was meant for the question before this one: its key was held down or
        pressed twice.
        """
        before, self._allowed_at = self._allowed_at, time.monotonic()
        is_new = self._allowed is not None and self._allowed is not self._question
        if is_new and self._allowed_at - before < REPEATED_KEY_SECONDS:
            return True
        self._allowed = self._question
        return False

    def action_move(self, by: int) -> None:
        """Mark another answer."""
        options = self.options
        if options:  # none, once the question is answered
            self._at = (self._marked(options) + by) % len(options)
            self._paint()

    def _marked(self, options: Sequence[ApprovalOption]) -> int:
        """Return the index of the marked option; there may be fewer than when it was marked."""
        return min(self._at, len(options) - 1)

    def action_whole(self) -> None:
        """Show everything that the call would do. If the question shows it already, the key is
        typed into the prompt.
        """
        if not self._patch and not self._cut:
            self.screen.query_one(PromptInput).type_letter("d")
        elif self._question is not None:
            from fugu_cli.ui.tui.overlays import Dialogs
            from fugu_cli.ui.turn_page import Section

            text = "\n".join(
                map(
                    plain_text,
                    diff_lines.approval_target_lines(*self._question.asked, 10_000, self.palette),
                )
            )
            pieces = [
                Fragment(
                    lambda width, palette: [
                        *wrap_lines(text, width, f"bold {palette.text}"),
                        BLANK,
                    ],
                    text,
                )
            ]
            if patch := self._patch:
                pieces.append(
                    Fragment(
                        lambda width, palette: diff_drawing.patch_lines(patch, width, palette),
                        patch,
                    )
                )
            title = "This would change" if patch else "This would run"
            Dialogs(self.app).read(title, [Section("", tuple(pieces))])

    def render_line(self, y: int) -> Strip:
        """Draw a line of the question."""
        width = self.size.width
        line = self._lines[y] if y < len(self._lines) else BLANK
        return Strip(line).adjust_cell_length(width).apply_style(self.rich_style)

    def _paint(self) -> None:
        question = self._question
        if question is None:
            return
        width, height, palette = (
            max(self.size.width or self.app.size.width - 4, 20),
            self.app.size.height,
            self.palette,
        )
        target = diff_lines.approval_target_lines(*question.asked, width, palette)
        self._cut = len(target) > TARGET_LINES
        if self._cut:
            rest = f"  … {plural(len(target) - TARGET_LINES, 'more line')}"
            target = [*target[:TARGET_LINES], styled_line([(rest, palette.dim)], width)]
        hint = (
            f"  {self._pending.number} of {self._pending.total}" if self._pending.total > 1 else ""
        )
        if self._cut:
            hint += "  d shows all of it"
        elif self._patch:
            hint += "  d shows the whole change"
        lines = diff_lines.approval_lines(*question.asked, target, width, palette, hint)
        lines += diff_lines.pending_lines(self._pending, width, palette, _listed(height))
        short = height < SHORT_TERMINAL
        available = height - len(lines) - (7 if short else 14)
        if self._patch and available > 1:
            most = min(available - 1, 16)
            # what changes, before what stands around it
            bare = most < LEAST_PATCH_LINES and len(self._patch.splitlines()) > most
            shown = diff_drawing.patch_lines(
                self._patch, width, palette, most, "changes" if bare else "untitled"
            )
            lines += [*shown, *([] if short else [BLANK])]
        options = self.options
        self._lines = [
            *lines,
            *diff_lines.option_lines(
                options, width, palette, at=self._marked(options), short=short
            ),
        ]
        self.styles.height = len(self._lines) + 2  # its border
        self.refresh(layout=True)


def _listed(height: int) -> int:
    """Return how many of the waiting calls get a line in a terminal of this height."""
    return 1 if height < SHORT_TERMINAL else MOST_LISTED
