"""edit: one piece of a file replaced by another.

The piece must stand in the file exactly, or but for white space, and only once. A miss shows the nearest lines.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from pydantic import Field

from fugu_cli.errors import StorageError
from fugu_cli.tools import Tool, matching, textfile
from fugu_cli.tools.files import Given, not_a_file
from fugu_cli.tools.result import Result, Say
from fugu_cli.tools.workspace import Workspace, resolve

_LINE = re.compile(r"[^\n]*\n|[^\n]+")


class Edit(Given):
    """Arguments of edit."""

    path: str = Field(description="file, relative to the repository")
    old: str = Field(description="the piece to replace, as it stands in the file")
    new: str = Field(description="what to put there")
    replace_all: bool = Field(default=False, description="replace every occurrence")


async def edit(given: Edit, workspace: Workspace, say: Say) -> Result:
    """Replace `old` by `new`."""
    path = resolve(workspace, given.path)
    if isinstance(path, Result):
        return path
    if (refusal := not_a_file(path, given.path, workspace)) is not None:
        return refusal
    try:
        data = path.read_bytes()
        if textfile.is_binary(data):
            return Result(text=f"{given.path} is {textfile.describe(data)}: not text.", ok=False)
        if (refusal := workspace.seen.refusal(path, data, given.path)) is not None:
            return refusal
        return _replace(path, data, given, workspace)
    except StorageError:
        raise
    except OSError as error:
        return Result(text=f"{given.path} cannot be changed: {error.strerror}.", ok=False)


def _replace(path: Path, data: bytes, given: Edit, workspace: Workspace) -> Result:
    file = textfile.decode(data)
    changed = replaced(file.text, given.old, given.new, every=given.replace_all)
    if isinstance(changed, Result):
        foreign = f" ({file.foreign} bytes of the file are not UTF-8: leave them out of old.)" if file.foreign else ""
        return Result(text=f"{given.path}: {changed.text}{foreign}", ok=False)
    text, count, tolerant = changed
    if char := file.misfit(text):
        return Result(text=f"{given.path} {textfile.MISFIT.format(char=char)}. Nothing was changed.", ok=False)
    written = file.encode(text)
    if written == data:
        return Result(text=f"{given.path}: old and new are the same: nothing changed.", ok=False)
    workspace.write(path, written)
    how = " (found but for white space; indented as the file is)" if tolerant else ""
    return Result(text=f"Changed {given.path}: {count} place{'s' if count > 1 else ''}{how}.")


def replaced(text: str, old: str, new: str, *, every: bool = False) -> tuple[str, int, bool] | Result:
    """`text`, whose lines end with `\\n`, with `old` replaced, how often, and whether white space had to be overlooked;
    or why not. Pure."""
    old, new = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
    if old == new:
        return Result(text="old and new are the same: nothing changed.", ok=False)
    if not old:
        if text:
            return Result(text="old is empty; name the piece to replace, or use write.", ok=False)
        return new, 1, False
    count = text.count(old)
    if count == 1 or (count and every):
        return text.replace(old, new), count, False
    if count:
        lines = [text.count("\n", 0, at) + 1 for at in _starts(text, old)]
        return Result(text=_ambiguous(lines), ok=False)
    return _by_lines(text, matching.unnumbered(old), matching.unnumbered(new), every=every)


def _by_lines(text: str, old: str, new: str, *, every: bool) -> tuple[str, int, bool] | Result:
    ends = _LINE.findall(text)
    file = [line.rstrip("\n") for line in ends]
    found = matching.places(file, old.split("\n"), new.split("\n"))
    if not found:
        return Result(text=_missed(file, old), ok=False)
    if len(found) > 1 and not every:
        return Result(text=_ambiguous([place.start + 1 for place in found]), ok=False)
    for place in reversed(found):
        ends[place.start : place.end] = _ended(place.lines if new else (), ends[place.start : place.end])
    return "".join(ends), len(found), True


def _ended(lines: Sequence[str], there: Sequence[str]) -> list[str]:
    """`lines` with their ends; the last one's is that of the last one they replace, be it none."""
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
    return f"old stands {len(lines)} times (lines {where}). Give more lines around it, or set replace_all."


def _missed(file: list[str], old: str) -> str:
    near = matching.nearest(file, old.split("\n"))
    if near is None:
        return "old does not stand in the file, nor anything like it. Read the file and copy the piece exactly."
    return f"old does not stand in the file. The nearest lines are:\n{matching.region(file, *near)}"


EDIT = Tool(name="edit", effect="writes", arguments=Edit, run=edit)
