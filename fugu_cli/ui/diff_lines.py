"""The words and lines that people read before they approve a call, the same in the full screen,
inline mode and `fugu run`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fugu_cli.formatting import escape_for_approval, excerpt, flatten, plural, with_tilde
from fugu_cli.messages import Call
from fugu_cli.ui.drawing import (
    Palette,
    StyledLine,
    StyledPart,
    indent_lines,
    styled_line,
    wrap_lines,
)

if TYPE_CHECKING:
    from fugu_cli.app.approval_options import ApprovalOption, Pending
    from fugu_cli.safety.policy import Judgement


def approval_target_lines(
    call: Call, judgement: Judgement, width: int, palette: Palette, most: int | None = None
) -> list[StyledLine]:
    """Return the command, file or address that needs approval, in full or `most` characters of it."""
    # brings the events with it: not before the first paint
    from fugu_cli.app.event_text import (
        approval_target,
    )

    text = with_tilde(escape_for_approval(approval_target(call, judgement.target)).strip())
    if most is not None:
        text = excerpt(text, most, "d shows all of it")
    return wrap_lines(text, width, f"bold {palette.text}", "  ") if text else []


def approval_lines(
    call: Call,
    judgement: Judgement,
    target: Sequence[StyledLine],
    width: int,
    palette: Palette,
    hint: str = "",
) -> list[StyledLine]:
    """Draw a question about a call: the tool, the reason why policy asks, and `target`, the lines
    that show what the call would touch (`approval_target_lines`).
    """
    from fugu_cli.app.approval_options import ACCEPT_PLAN, question_heading
    from fugu_cli.session.tool_facts import ASK_USER

    head: list[StyledPart] = [(question_heading(call), f"bold {palette.warn}")]
    if call.tool == ACCEPT_PLAN:
        return [
            styled_line([*head, (hint, palette.dim)], width),
            *wrap_lines(judgement.reason, width, palette.dim),
        ]
    if call.tool == ASK_USER.name:
        return [styled_line([*head, (hint, palette.dim)], width), *target]
    why = "needs approval"
    if judgement.subtask:
        why += f" for the subtask {flatten(escape_for_approval(judgement.subtask), 80)}"
    why += f": {escape_for_approval(judgement.reason)}"
    lines = [styled_line([*head, (hint, palette.dim)], width)]
    return [*lines, *wrap_lines(why, width, palette.dim), *target]


def pending_lines(pending: Pending, width: int, palette: Palette, most: int) -> list[StyledLine]:
    """Draw the calls that will be asked about next. Of more than `most`, draw the number of the
    others.
    """
    from fugu_cli.app.event_text import describe_call

    shown = pending.others if len(pending.others) <= most else pending.others[: most - 1]
    lines: list[StyledLine] = []
    for pending_call in shown:
        lines += wrap_lines(
            f"then {escape_for_approval(describe_call(pending_call.call))}",
            width,
            palette.text,
            "     ",
        )
    more = len(pending.others) - len(shown)
    return (
        [*lines, styled_line([(f"then {plural(more, 'more call')}", palette.dim)], width)]
        if more
        else lines
    )


def option_lines(
    options: Sequence[ApprovalOption],
    width: int,
    palette: Palette,
    *,
    at: int | None = None,
    short: bool = False,
) -> list[StyledLine]:
    """Draw the answers, each on its own lines or if `short` side by side. `at` is marked. The range
    of an answer is never cut.
    """
    lines: list[StyledLine] = []
    for index, option in enumerate(options):
        tone = f"bold {palette.text}" if index == at else palette.text
        lead: StyledPart = ("› " if index == at else "  ", palette.accent)
        wrapped = wrap_lines(option.word if short else option.words, width - 4, tone)
        drawn = [
            [*styled_line([lead, (f"{option.key} ", f"bold {palette.accent}")], 4), *wrapped[0]]
        ]
        drawn += indent_lines(wrapped[1:], ("    ", ""))
        if (
            short
            and lines
            and len(drawn) == 1
            and _line_width(lines[-1]) + _line_width(drawn[0]) <= width
        ):
            lines[-1] = [*lines[-1], *drawn[0]]
        else:
            lines += drawn
    return lines


def _line_width(line: StyledLine) -> int:
    """Return the width of a line in cells."""
    return sum(segment.cell_length for segment in line)
