"""The question before a call: what it would touch or run, why policy asks, and the diff. Takes the prompt's place
while something is asked.

Takes the prompt's place while something is asked. The call is not run before an answer; questions that come meanwhile
wait behind this one.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from fugu_cli.ui import diff_drawing, diff_lines
from fugu_cli.ui.approval_options import ALONE, MOST_LISTED, ApprovalOption, ApprovalScope, Pending, approval_options
from fugu_cli.ui.drawing import BLANK, Palette, StyledLine, plain_text, styled_line
from fugu_cli.ui.formatting import plural

if TYPE_CHECKING:
    from fugu_cli.ui.tui.approval_questions import ApprovalQuestion

TARGET_LINES = 6
LEAST_PATCH_LINES = 8
"""Lines of a change below which only what is added and removed is shown."""
SHORT_TERMINAL = 20
"""Lines of a terminal below which the answers stand on one line."""
REPEATED_KEY_SECONDS = 0.4
"""Seconds after a yes in which a further one is no answer to the next question: nobody has read it."""


class Approval(Widget, can_focus=True):
    """Hidden while nothing is asked."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(key, f"key('{key}')", show=False) for key in ("y", "s", "a", "n", "t", "Y", "N")),
        *(Binding(str(number), f"number({number})", show=False) for number in range(1, 8)),
        Binding("escape", "answer('no')", show=False),
        Binding("d", "whole", show=False),
        Binding("up,left", "move(-1)", show=False),
        Binding("down,right,tab", "move(1)", show=False),
        Binding("enter", "choose", show=False),
    ]

    @dataclass
    class Answered(Message):
        """The user's answer to the question that was shown."""

        scope: ApprovalScope

    @dataclass
    class Enlarged(Message):
        """The user wants to see the whole target and the whole change."""

        target: str
        patch: str

    def __init__(self, palette: Palette, id: str = "approval") -> None:
        super().__init__(id=id)
        self.palette = palette
        self.display = False
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
        """The answers there are. A yes to calls that are not listed is none of them."""
        made = approval_options(*self._question.asked, self._pending) if self._question is not None else ()
        hidden = len(self._pending.others) > self._listed
        return tuple(one for one in made if not (hidden and one.scope == "all"))

    @property
    def _listed(self) -> int:
        """How many of the calls behind the question have a line."""
        return 1 if self.app.size.height < SHORT_TERMINAL else MOST_LISTED

    def ask(self, question: ApprovalQuestion | None, pending: Pending = ALONE, patch: str = "") -> None:
        """Show a question with the change it is about, and what waits beside it; None hides it."""
        if question is not self._question:
            self._at = 0
        self._question, self._pending, self._patch = question, pending, patch
        self.display = question is not None
        self._paint()

    def on_resize(self, event: events.Resize) -> None:
        """Fold the text again."""
        self._paint()

    def action_answer(self, scope: ApprovalScope) -> None:
        """This answer."""
        refuses = scope in ("no", "none", "feedback")
        if scope in [one.scope for one in self.options] and (refuses or not self._pressed_on()):
            self.post_message(self.Answered(scope))

    def action_key(self, key: str) -> None:
        """The answer with this key."""
        for one in self.options:
            if one.key == key:
                self.action_answer(one.scope)

    def action_number(self, number: int) -> None:
        """The answer in this place."""
        if number <= len(self.options):
            self.action_answer(self.options[number - 1].scope)

    def _pressed_on(self) -> bool:
        """A yes that was meant for the question before this one: its key is held down, or was pressed twice."""
        before, self._allowed_at = self._allowed_at, time.monotonic()
        other = self._allowed is not None and self._allowed is not self._question
        if other and self._allowed_at - before < REPEATED_KEY_SECONDS:
            return True
        self._allowed = self._question
        return False

    def action_move(self, by: int) -> None:
        """Mark another answer."""
        self._at = (self._at + by) % len(self.options)
        self._paint()

    def action_choose(self) -> None:
        """The marked answer."""
        self.action_answer(self.options[self._at].scope)

    def action_whole(self) -> None:
        """Everything that the call would do."""
        if self._question is not None and (self._patch or self._cut):
            target = diff_lines.approval_target_lines(*self._question.asked, 10_000, self.palette)
            self.post_message(self.Enlarged("\n".join(map(plain_text, target)), self._patch))

    def render_line(self, y: int) -> Strip:
        """A line of the question."""
        width = self.size.width
        made = self._lines[y] if y < len(self._lines) else BLANK
        return Strip(made).adjust_cell_length(width).apply_style(self.rich_style)

    def _paint(self) -> None:
        question = self._question
        if question is None:
            return
        width, palette = max(self.size.width or self.app.size.width - 4, 20), self.palette
        lines = self._asked(question, width)
        short = self.app.size.height < SHORT_TERMINAL
        room = self.app.size.height - len(lines) - (7 if short else 14)
        if self._patch and room > 1:
            most = min(room - 1, 16)
            bare = (
                most < LEAST_PATCH_LINES and len(self._patch.splitlines()) > most
            )  # what changes, before what stands around it
            shown = diff_drawing.patch_lines(self._patch, width, palette, most, "changes" if bare else "untitled")
            lines += [*shown, *([] if short else [BLANK])]
        self._lines = [*lines, *diff_lines.option_lines(self.options, width, palette, at=self._at, short=short)]
        self.styles.height = len(self._lines) + 2  # its border
        self.refresh(layout=True)

    def _asked(self, question: ApprovalQuestion, width: int) -> list[StyledLine]:
        palette = self.palette
        target = diff_lines.approval_target_lines(*question.asked, width, palette)
        self._cut = len(target) > TARGET_LINES
        if self._cut:
            rest = f"  … {plural(len(target) - TARGET_LINES, 'more line')}"
            target = [*target[:TARGET_LINES], styled_line([(rest, palette.dim)], width)]
        pending = self._pending
        waiting = f"  {pending.number} of {pending.total}" if pending.total > 1 else ""
        whole = "  d shows all of it" if self._cut else "  d shows the whole change" if self._patch else ""
        return [
            *diff_lines.approval_lines(question.asked, target, width, palette, waiting + whole),
            *diff_lines.pending_lines(pending, width, palette, self._listed),
        ]
