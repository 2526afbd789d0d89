"""edit: one piece of a file replaced by another.

The piece must occur exactly once; white space may differ. Whoever can quote it knows the file, so
the file need not have been read. A miss shows the nearest lines.
"""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import Field

from fugu_cli.session import tool_facts
from fugu_cli.snapshots import repository_files
from fugu_cli.system.resolved_files import read_resolved
from fugu_cli.tools import text_edits
from fugu_cli.tools.read_write import PlannedFile, ToolArguments, not_a_file, write_planned
from fugu_cli.tools.result import Say, ToolResult
from fugu_cli.tools.workspace import Tool, Workspace, resolve_path

_LINE = re.compile(r"[^\n]*\n|[^\n]+")


class EditArguments(ToolArguments):
    """Arguments of edit."""

    path: str = Field(description="file, relative to the repository")
    old: str = Field(description="the piece to replace, as it stands in the file")
    new: str = Field(description="what to put there")
    replace_all: bool = Field(default=False, description="replace every occurrence")


async def edit(arguments: EditArguments, workspace: Workspace, say: Say) -> ToolResult:
    """Replace `old` by `new`."""
    return write_planned(_plan(arguments, workspace), workspace)


def _plan(arguments: EditArguments, workspace: Workspace) -> PlannedFile | ToolResult:
    path = resolve_path(workspace, arguments.path)
    if isinstance(path, ToolResult):
        return path
    if (refusal := not_a_file(path, arguments.path, workspace)) is not None:
        return refusal
    try:
        data = read_resolved(path)
        if repository_files.is_binary(data):
            return ToolResult(
                text=f"{arguments.path} is {repository_files.describe_binary(data)}: not text.",
                ok=False,
            )
    except OSError as error:
        return ToolResult(text=f"{arguments.path} cannot be changed: {error.strerror}.", ok=False)
    if reason := workspace.quoting_refusal(path, data, arguments.path):
        return ToolResult(text=reason, ok=False)
    planned = _plan_replacement(path, data, arguments)
    is_there = arguments.old in repository_files.decode_text(data).text
    if isinstance(planned, ToolResult) and not is_there:
        changed = workspace.change_since_read(path, data, arguments.path)
        return planned.model_copy(update={"text": f"{changed} {planned.text}".lstrip()})
    return planned


def _plan_replacement(
    path: Path, data: bytes, arguments: EditArguments
) -> PlannedFile | ToolResult:
    name = arguments.path
    file = repository_files.decode_text(data)
    replacement = replace_piece(
        file.text, arguments.old, arguments.new, every=arguments.replace_all
    )
    if isinstance(replacement, ToolResult):
        foreign = ""
        if file.foreign:
            foreign = f" ({file.foreign} bytes of the file are not UTF-8: leave them out of old.)"
        return ToolResult(text=f"{name}: {replacement.text}{foreign}", ok=False)
    text, count, ignored_white_space = replacement
    if char := file.misfit(text):
        return ToolResult(
            text=f"{name} {repository_files.MISFIT.format(char=char)}. Nothing was changed.",
            ok=False,
        )
    new_data = file.encode(text)
    if new_data == data:
        return ToolResult(text=f"{name}: old and new are the same: nothing changed.", ok=False)
    message = f"Changed {name}: {count} place{'s' if count > 1 else ''}"
    if ignored_white_space:
        message += " (found but for white space; indented as the file is)"
    return PlannedFile(path, name, new_data, f"{message}.")


def replace_piece(
    text: str, old: str, new: str, *, every: bool = False
) -> tuple[str, int, bool] | ToolResult:
    """Replace `old` in `text`, whose lines end with `\\n`. Pure.

    Return the new text, the number of replacements, and whether white space was ignored; or the
    reason why not.
    """
    old, new = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
    if old == new:
        return ToolResult(text="old and new are the same: nothing changed.", ok=False)
    if not old:
        if text:
            return ToolResult(
                text="old is empty; name the piece to replace, or use write.", ok=False
            )
        return new, 1, False
    count = text.count(old)
    if count == 1 or (count and every):
        return text.replace(old, new), count, False
    if count:
        lines = [text.count("\n", 0, at) + 1 for at in _occurrences(text, old)]
        return ToolResult(text=_ambiguous(lines), ok=False)
    old = text_edits.without_line_numbers(old)
    new = text_edits.without_line_numbers(new)
    return _replace_lines(text, old, new, every=every)


def _replace_lines(
    text: str, old: str, new: str, *, every: bool
) -> tuple[str, int, bool] | ToolResult:
    """Replace lines, even if their white space differs."""
    lines = _LINE.findall(text)
    bare_lines = [line.rstrip("\n") for line in lines]
    matches = text_edits.find_matches(bare_lines, old.split("\n"), new.split("\n"))
    if not matches:
        return ToolResult(text=_describe_miss(bare_lines, old), ok=False)
    if len(matches) > 1 and not every:
        return ToolResult(text=_ambiguous([match.start + 1 for match in matches]), ok=False)
    for match in reversed(matches):
        replaced = lines[match.start : match.end]
        new_lines = [f"{line}\n" for line in match.lines] if new else []
        if new_lines and not replaced[-1].endswith("\n"):
            new_lines[-1] = new_lines[-1].removesuffix("\n")
        lines[match.start : match.end] = new_lines
    return "".join(lines), len(matches), True


def _occurrences(text: str, old: str) -> list[int]:
    positions = []
    position = text.find(old)
    while position >= 0:
        positions.append(position)
        position = text.find(old, position + len(old))
    return positions


def _ambiguous(lines: list[int]) -> str:
    where = ", ".join(str(line) for line in lines[:10])
    return (
        f"old stands {len(lines)} times (lines {where}). Give more lines around it, or set "
        f"replace_all."
    )


def _describe_miss(lines: list[str], old: str) -> str:
    nearest = text_edits.nearest_lines(lines, old.split("\n"))
    if nearest is None:
        return (
            "the old text was not found in the file, nor anything like it. Read the file and "
            "copy the piece exactly."
        )
    return (
        f"the old text was not found in the file. The nearest lines "
        f"are:\n{text_edits.numbered_region(lines, *nearest)}"
    )


EDIT = Tool.of(tool_facts.EDIT, EditArguments, edit, _plan)
