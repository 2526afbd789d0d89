"""A tool call as an editor shows it: its kind, its files, and its changes as whole texts before and
after.

Reads files and recorded contents; runs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from acp.helpers import text_block, tool_content, tool_diff_content
from acp.schema import ContentToolCallContent, FileEditToolCallContent, ToolCallLocation, ToolKind

from fugu_cli.app.patches import LARGEST, LARGEST_READ, patch_of_call
from fugu_cli.errors import StorageError
from fugu_cli.formatting import sanitize
from fugu_cli.messages import Call
from fugu_cli.session.events import FileChange, ToolRan
from fugu_cli.session.tool_facts import facts_of
from fugu_cli.system.line_diffs import differing_lines
from fugu_cli.tools.workspace import Workspace
from fugu_cli.ui.json_output import arguments_object

Content = ContentToolCallContent | FileEditToolCallContent
EFFECT_KINDS: dict[str, ToolKind] = {"reads": "read", "writes": "edit", "runs": "execute"}
LONGEST_OUTPUT = 100_000
"""Characters of an output that are sent; the middle of a longer one is left out."""


def kind_of(call: Call) -> ToolKind:
    """Return the kind of a call for editors: the one that its tool names, else one that follows
    from the tool's effect.
    """
    tool = facts_of(call.tool)
    return tool.editor_kind or EFFECT_KINDS[tool.effect]


def text_content(text: str, language: str = "") -> ContentToolCallContent:
    """Return a text as content; with `language`, as a code block."""
    text = sanitize(text)
    if len(text) > LONGEST_OUTPUT:
        half = LONGEST_OUTPUT // 2
        left_out = f"[... {len(text) - LONGEST_OUTPUT:,} characters left out ...]"
        text = f"{text[:half]}\n{left_out}\n{text[-half:]}"
    if language:
        fence = "```"
        while fence in text:
            fence += "`"
        text = f"{fence}{language}\n{text}\n{fence}"
    return tool_content(text_block(text))


def locations_of(
    call: Call, root: Path, changes: Sequence[FileChange] = ()
) -> list[ToolCallLocation]:
    """Return the files that a call names or has changed, as absolute paths."""
    arguments = arguments_object(call)
    named_path, offset = arguments.get("path"), arguments.get("offset")
    paths: list[str] = []
    if isinstance(named_path, str) and named_path and kind_of(call) in ("read", "edit"):
        paths.append(named_path)
    paths += [change.path for change in changes]
    locations: list[ToolCallLocation] = []
    for path in dict.fromkeys(paths):
        line = None
        if path == named_path and isinstance(offset, int) and offset > 0:
            line = offset
        locations.append(ToolCallLocation(path=str(root / path), line=line))
    return locations


def proposed_change(call: Call, root: Path) -> list[Content]:
    """Return the change that an edit, write or apply_patch call would make; empty for other calls.

    Reads files, so it runs in a thread.
    """
    if call.tool == "apply_patch":
        patch = patch_of_call(call)
        return [text_content(patch, "diff")] if patch else []
    arguments = arguments_object(call)
    name = arguments.get("path")
    if not isinstance(name, str) or not name:
        return []
    path = root / name
    before = _read_text(path)
    content = arguments.get("content")
    if call.tool == "write" and isinstance(content, str):
        return [_diff(path, before, content)]
    old, new = arguments.get("old"), arguments.get("new")
    if call.tool != "edit" or not isinstance(old, str) or not isinstance(new, str):
        return []
    if before is None or not old or old not in before:
        return [_diff(path, old, new)]
    count = -1 if arguments.get("replace_all") is True else 1
    return [_diff(path, before, before.replace(old, new, count))]


async def changes_made(ran: ToolRan, workspace: Workspace) -> list[Content]:
    """Return the recorded changes of a call to files; empty if their contents are gone."""
    contents: list[Content] = []
    try:
        for change in ran.changes:
            if change.before != change.after:
                before = await _blob(workspace, change.before)
                after = await _blob(workspace, change.after)
                contents.append(_recorded_diff(workspace.root / change.path, before, after))
    except StorageError:
        return []
    return contents


async def _blob(workspace: Workspace, name: str | None) -> bytes | None:
    return None if name is None else await workspace.history.blob(name)


def _recorded_diff(path: Path, before: bytes | None, after: bytes | None) -> Content:
    """Return the change of a file. `before` is None for a new file, `after` for a deleted one."""
    new = after or b""
    if b"\0" in new or (before is not None and b"\0" in before):
        return text_content(f"{path}: {len(new):,} bytes that are not text")
    old_text = None if before is None else before.decode("utf-8", "replace")
    return _diff(path, old_text, new.decode("utf-8", "replace"))


def _diff(path: Path, before: str | None, after: str) -> Content:
    """Return the change of a text; of a large one, the part from the first to the last line that
    differs.
    """
    if before is not None and len(before) + len(after) > LARGEST:
        _, old, new = differing_lines(before.splitlines(True), after.splitlines(True))
        before, after = "".join(old), "".join(new)
    if len(before or "") + len(after) > LARGEST:
        return text_content(f"{path}: too large to compare, more than {LARGEST:,} characters")
    return tool_diff_content(str(path), after, before)


def _read_text(path: Path) -> str | None:
    try:
        if not path.is_file() or path.stat().st_size > LARGEST_READ:
            return None
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None
