"""A tool call as an editor shows it: its kind, the places it touches, and what it changes as whole
texts before and after. Reads files and recorded contents; runs nothing.
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
from fugu_cli.safety.policy.call_arguments import UNKNOWN, access_of
from fugu_cli.session.events import FileChange, ToolRan
from fugu_cli.tools.workspace import Workspace
from fugu_cli.ui.json_output import arguments_object

Content = ContentToolCallContent | FileEditToolCallContent
KINDS: dict[str, ToolKind] = {
    "list": "search",
    "glob": "search",
    "grep": "search",
    "run_tests": "execute",
    "tests_before": "execute",
    "run_check": "execute",
    "job_output": "execute",
    "job_stop": "execute",
    "todo": "think",
    "task": "think",
    "skill": "read",
    "diff": "read",
    "web_fetch": "fetch",
    "web_search": "fetch",
}
"""Tools that are something else to an editor than what they declare."""
EFFECT_KINDS: dict[str, ToolKind] = {"reads": "read", "writes": "edit", "runs": "execute"}
LONGEST_OUTPUT = 100_000
"""Characters of an output that are sent; its middle is left out."""


def kind_of(call: Call) -> ToolKind:
    """What kind of tool a call is of: by its name, else by the effect that it declares. A server's
    are another kind.
    """
    access = access_of(call.tool)
    declared = access != UNKNOWN and not call.tool.startswith("mcp__")
    return KINDS.get(call.tool) or (EFFECT_KINDS[access.effect] if declared else "other")


def text_content(text: str, language: str = "") -> ContentToolCallContent:
    """A text; in a code block where it is not Markdown."""
    shown = sanitize(text)
    if len(shown) > LONGEST_OUTPUT:
        half = LONGEST_OUTPUT // 2
        shown = (
            f"{shown[:half]}\n[... {len(shown) - LONGEST_OUTPUT:,} characters left out "
            f"...]\n{shown[-half:]}"
        )
    fence = "```"
    while fence in shown:
        fence += "`"
    return tool_content(text_block(f"{fence}{language}\n{shown}\n{fence}" if language else shown))


def locations_of(
    call: Call, root: Path, changes: Sequence[FileChange] = ()
) -> list[ToolCallLocation]:
    """The files a call names or has changed, as absolute paths."""
    arguments = arguments_object(call)
    path, line = arguments.get("path"), arguments.get("offset")
    named = [path] if isinstance(path, str) and path and kind_of(call) in ("read", "edit") else []
    paths = dict.fromkeys([*named, *(change.path for change in changes)])
    first = line if isinstance(line, int) and line > 0 else None
    return [
        ToolCallLocation(path=str(root / one), line=first if one == path else None) for one in paths
    ]


def proposed_change(call: Call, root: Path) -> list[Content]:
    """What an edit, write or apply_patch call is about to do; nothing for other calls. For a
    thread.
    """
    arguments = arguments_object(call)
    path, content = arguments.get("path"), arguments.get("content")
    old, new = arguments.get("old"), arguments.get("new")
    if call.tool == "apply_patch":
        return [text_content(patch, "diff")] if (patch := patch_of_call(call)) else []
    if not isinstance(path, str) or not path:
        return []
    before = _text(root / path)
    if call.tool == "write" and isinstance(content, str):
        return [_diff(root / path, before, content)]
    if call.tool != "edit" or not isinstance(old, str) or not isinstance(new, str):
        return []
    if before is None or not old or old not in before:
        return [_diff(root / path, old, new)]
    return [
        _diff(
            root / path,
            before,
            before.replace(old, new, -1 if arguments.get("replace_all") is True else 1),
        )
    ]


async def changes_made(ran: ToolRan, workspace: Workspace) -> list[Content]:
    """What a call did to files, as the recorded contents say; nothing where they are not there any
    more.
    """
    found: list[Content] = []
    try:
        for change in ran.changes:
            if change.before != change.after:
                before, after = (
                    await _blob(workspace, change.before),
                    await _blob(workspace, change.after),
                )
                found.append(_recorded_diff(workspace.root / change.path, before, after))
    except StorageError:
        return []
    return found


async def _blob(workspace: Workspace, name: str | None) -> bytes | None:
    return None if name is None else await workspace.history.blob(name)


def _recorded_diff(path: Path, before: bytes | None, after: bytes | None) -> Content:
    if any(b"\0" in text for text in (before, after) if text):
        return text_content(f"{path}: {len(after or b''):,} bytes that are not text")
    return _diff(
        path,
        None if before is None else before.decode("utf-8", "replace"),
        (after or b"").decode("utf-8", "replace"),
    )


def _diff(path: Path, before: str | None, after: str) -> Content:
    if len(before or "") + len(after) > LARGEST:
        return text_content(
            f"{path}: too large to compare, {len(before or ''):,} and {len(after):,} characters"
        )
    return tool_diff_content(str(path), after, before)


def _text(path: Path) -> str | None:
    try:
        if not path.is_file() or path.stat().st_size > LARGEST_READ:
            return None
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None
