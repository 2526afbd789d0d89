"""edit: one piece of a file replaced by another.

The piece must stand in the file exactly, or but for white space, and only once; who can quote it
knows the file, so that it need not have been read. A miss shows the nearest lines.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from pydantic import Field

from fugu_cli.snapshots import repository_files
from fugu_cli.tools import text_edits
from fugu_cli.tools.read_write import PlannedFile, ToolArguments, not_a_file, written
from fugu_cli.tools.result import Say, ToolResult
from fugu_cli.tools.workspace import Tool, Workspace, resolve_path

_LINE = re.compile(r"[^\n]*\n|[^\n]+")


class EditArguments(ToolArguments):
    """Arguments of edit."""

    path: str = Field(description="file, relative to the repository")
    old: str = Field(description="the piece to replace, as it stands in the file")
    new: str = Field(description="what to put there")
    replace_all: bool = Field(default=False, description="replace every occurrence")


async def edit(given: EditArguments, workspace: Workspace, say: Say) -> ToolResult:
    """Replace `old` by `new`."""
    return written(_planned(given, workspace), workspace)


def _planned(given: EditArguments, workspace: Workspace) -> PlannedFile | ToolResult:
    path = resolve_path(workspace, given.path)
    if isinstance(path, ToolResult):
        return path
    if (refusal := not_a_file(path, given.path, workspace)) is not None:
        return refusal
    try:
        data = path.read_bytes()
        if repository_files.is_binary(data):
            return ToolResult(
                text=f"{given.path} is {repository_files.describe_binary(data)}: not text.",
                ok=False,
            )
    except OSError as error:
        return ToolResult(text=f"{given.path} cannot be changed: {error.strerror}.", ok=False)
    if reason := workspace.quoting_refusal(path, data, given.path):
        return ToolResult(text=reason, ok=False)
    planned = _replaced(path, data, given)
    is_there = given.old in repository_files.decode_text(data).text
    if isinstance(planned, ToolResult) and not is_there:
        changed = workspace.change_since_read(path, data, given.path)
        return planned.model_copy(update={"text": f"{changed} {planned.text}".strip()})
    return planned


def _replaced(path: Path, data: bytes, given: EditArguments) -> PlannedFile | ToolResult:
    file = repository_files.decode_text(data)
    changed = replace_piece(file.text, given.old, given.new, every=given.replace_all)
    if isinstance(changed, ToolResult):
        foreign = (
            f" ({file.foreign} bytes of the file are not UTF-8: leave them out of old.)"
            if file.foreign
            else ""
        )
        return ToolResult(text=f"{given.path}: {changed.text}{foreign}", ok=False)
    text, count, tolerant = changed
    if char := file.misfit(text):
        return ToolResult(
            text=f"{given.path} {repository_files.MISFIT.format(char=char)}. Nothing was changed.",
            ok=False,
        )
    made = file.encode(text)
    if made == data:
        return ToolResult(
            text=f"{given.path}: old and new are the same: nothing changed.", ok=False
        )
    how = " (found but for white space; indented as the file is)" if tolerant else ""
    return PlannedFile(
        path,
        given.path,
        made,
        f"Changed {given.path}: {count} place{'s' if count > 1 else ''}{how}.",
    )


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
        lines = [text.count("\n", 0, at) + 1 for at in _starts(text, old)]
        return ToolResult(text=_ambiguous(lines), ok=False)
    return _by_lines(
        text,
        text_edits.without_line_numbers(old),
        text_edits.without_line_numbers(new),
        every=every,
    )


def _by_lines(text: str, old: str, new: str, *, every: bool) -> tuple[str, int, bool] | ToolResult:
    ends = _LINE.findall(text)
    file = [line.rstrip("\n") for line in ends]
    found = text_edits.find_matches(file, old.split("\n"), new.split("\n"))
    if not found:
        return ToolResult(text=_missed(file, old), ok=False)
    if len(found) > 1 and not every:
        return ToolResult(text=_ambiguous([place.start + 1 for place in found]), ok=False)
    for place in reversed(found):
        ends[place.start : place.end] = _ended(
            place.lines if new else (), ends[place.start : place.end]
        )
    return "".join(ends), len(found), True


def _ended(lines: Sequence[str], there: Sequence[str]) -> list[str]:
    """Return `lines` with newlines. The last one has one only if the last replaced line has."""
    ended = [f"{line}\n" for line in lines]
    if ended and not there[-1].endswith("\n"):
        ended[-1] = ended[-1].removesuffix("\n")
    return ended


def _starts(text: str, old: str) -> list[int]:
    found, at = [], text.find(old)
    while at >= 0:
        found.append(at)
        at = text.find(old, at + len(old))
    return found


def _ambiguous(lines: list[int]) -> str:
    where = ", ".join(str(line) for line in lines[:10])
    return (
        f"old stands {len(lines)} times (lines {where}). Give more lines around it, or set "
        f"replace_all."
    )


def _missed(file: list[str], old: str) -> str:
    near = text_edits.nearest_lines(file, old.split("\n"))
    if near is None:
        return (
            "the old text was not found in the file, nor anything like it. Read the file and "
            "copy the piece exactly."
        )
    return (
        f"the old text was not found in the file. The nearest lines "
        f"are:\n{text_edits.numbered_region(file, *near)}"
    )


EDIT = Tool(
    name="edit", effect="writes", arguments=EditArguments, run=edit, paths=("path",), plan=_planned
)
