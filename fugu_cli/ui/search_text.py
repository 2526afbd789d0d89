"""The text in which Ctrl+F searches: that of the conversation's blocks and of the trace's rows."""

from __future__ import annotations

from typing import assert_never

from fugu_cli.app.event_text import decision_why, request_notes, tool_name
from fugu_cli.ui.blocks import (
    Block,
    DecisionBlock,
    EndBlock,
    NoteBlock,
    PlanBlock,
    ReplyBlock,
    RequestBlock,
    ThinkingBlock,
    ToolBlock,
    WelcomeBlock,
)
from fugu_cli.ui.drawing import DARK, plain_text
from fugu_cli.ui.end_drawing import WIDEST_CARD, end_lines
from fugu_cli.ui.trace_rows import PlanRow, RequestRow, TraceRow, TurnRow


def block_text(block: Block) -> str:
    """Return the block's text, with what is folded."""
    match block:
        case RequestBlock():
            return "\n".join((block.text, *block.attachments))
        case DecisionBlock():
            why = decision_why(block.assigned, block.reason, block.unavailable)
            return f"{block.assigned.role} {block.assigned.agent} {why}"
        case ReplyBlock():
            return "".join(block.texts)
        case ThinkingBlock():
            return block.text
        case ToolBlock():
            call = f"{tool_name(block.call)} {block.target}"
            output = block.result.output if block.result is not None else block.live
            return "\n".join((call, block.patch, block.inside, output))
        case PlanBlock():
            return "\n".join(f"{step.agent} {step.instruction}" for step in block.planned.steps)
        case NoteBlock():
            return f"{block.text}\n{block.detail}"
        case EndBlock():
            return "\n".join(map(plain_text, end_lines(block, WIDEST_CARD, DARK)))
        case WelcomeBlock():
            return ""
        case _:
            assert_never(block)


def row_text(row: TraceRow) -> str:
    """Return the words of a row of the trace."""
    match row:
        case RequestRow():
            return "\n".join([row.asked.said, *request_notes(row.asked)])
        case PlanRow():
            return "\n".join(f"{step.agent} {step.instruction}" for step in row.planned.steps)
        case TurnRow():
            assigned = row.assigned
            why = decision_why(assigned, assigned.reason, row.unavailable)
            return "\n".join([f"{assigned.role} {assigned.agent} {why}", *row.notes])
