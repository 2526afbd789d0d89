"""A session as a document: Markdown, HTML as the screen draws it with the trace, or JSON as
`stream-json` has it.

Reads the log alone; the same blocks and rows as the screen's. Used by `fugu export` and `/export`.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path

from fugu_cli.app import patches
from fugu_cli.app.event_text import describe_call
from fugu_cli.errors import UsageError
from fugu_cli.session.events import Recorded, ToolRan
from fugu_cli.session.state import SessionState
from fugu_cli.ui.block_drawing import transcript_fragments
from fugu_cli.ui.blocks import Block, EndBlock, NoteBlock, ReplyBlock, RequestBlock, ToolBlock
from fugu_cli.ui.drawing import LIGHT
from fugu_cli.ui.json_output import event_object, result_object, run_ending
from fugu_cli.ui.trace import trace_text
from fugu_cli.ui.transcript import transcript_blocks

WIDTH = 120
"""Columns of the HTML page."""


def session_markdown(records: Sequence[Recorded], session: str) -> str:
    """Return a session as Markdown: its requests, the agents' replies, tool calls and diffs."""
    del session  # a reader of the text needs no id
    parts = [_block_markdown(block) for block in transcript_blocks(records)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _block_markdown(block: Block) -> str:
    match block:
        case RequestBlock() if block.given_to:
            return f"**You, to {block.given_to}:** {block.text.strip()}"
        case RequestBlock():
            return f"## {block.text.strip()}"
        case ReplyBlock():
            return f"**{block.agent}**\n\n{''.join(block.texts).strip()}"
        case ToolBlock(result=ToolRan() as ran):
            patch = patches.patch_of_call(block.call) if ran.changes else ""
            patch = patches.shorten_patch(patch, patches.LONGEST_LINE_ON_PAGE)
            head = f"`{describe_call(block.call, block.root)}`: {'ok' if ran.ok else 'failed'}"
            return f"{head}\n\n```diff\n{patch}\n```" if patch else head
        case ToolBlock() if not block.permitted.allowed:
            return (
                f"`{describe_call(block.call, block.root)}`: not allowed ({block.permitted.reason})"
            )
        case NoteBlock():
            return f"> {block.text}"
        case EndBlock():
            return f"*{block.summary.line.text}*"
        case _:
            return ""


def session_html(records: Sequence[Recorded], session: str) -> str:
    """Return the trace and the unfolded conversation as one page that loads nothing else."""
    from rich.console import Console
    from rich.segment import Segments
    from rich.terminal_theme import DEFAULT_TERMINAL_THEME
    from rich.text import Text

    page = Console(
        record=True, file=io.StringIO(), width=WIDTH, color_system="truecolor", highlight=False
    )
    page.print(
        Text(f"fugu session {session}", "bold"), Text(trace_text(records, session, WIDTH)), sep="\n"
    )
    for fragment in transcript_fragments(transcript_blocks(records), unfolded=True):
        for line in fragment.painted(WIDTH, LIGHT):
            page.print(Segments(line), end="\n")
    return page.export_html(theme=DEFAULT_TERMINAL_THEME, inline_styles=True)


def session_json(records: Sequence[Recorded], session: str) -> str:
    """Return `events`, the objects of `stream-json`, and `result`, the last one."""
    state = SessionState()
    shown = []
    for record in records:
        state.add(record.event)
        shown.append(event_object(record, state.request, session))
    document = {
        "session_id": session,
        "requests": [request.asked.said for request in state.requests if request.asked],
        "events": [shown_event for shown_event in shown if shown_event is not None],
        "result": result_object(state, records, session, run_ending(state)),
    }
    return json.dumps(document, ensure_ascii=False, indent=1) + "\n"


FORMATS: dict[str, Callable[[Sequence[Recorded], str], str]] = {
    "md": session_markdown,
    "html": session_html,
    "json": session_json,
}
"""By the ending of the file that is written."""


def export_format(path: Path) -> str:
    """Return the format of a file by its name. Raises UsageError."""
    suffix = path.suffix.lower().removeprefix(".")
    if suffix == "markdown" or not suffix:
        return "md"
    if suffix not in FORMATS:
        raise UsageError(
            f"{path.name}: there is no format {suffix!r}",
            hint=f"name it with .{', .'.join(FORMATS)}",
        )
    return suffix


def write_new_file(path: Path, text: str, note_export: Callable[[bytes], None]) -> None:
    """Write an export, once `note_export` knows what it holds: it is no change of an agent's.
    Raises OSError, FileExistsError among them: nothing is overwritten."""
    data = text.encode("utf-8", "replace")
    note_export(data)
    with path.open("xb") as file:
        file.write(data)
