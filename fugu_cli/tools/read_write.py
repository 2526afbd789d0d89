"""read and write: a file shown with line numbers, a picture or PDF shown as it is, a file written
whole. Also the base class of tool arguments.

Paths were judged before; what a file holds is checked here: binary, too large, not UTF-8, changed
since.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, BinaryIO

from pydantic import BaseModel, ConfigDict, Field
from pydantic.json_schema import SkipJsonSchema

from fugu_cli.session import tool_facts
from fugu_cli.snapshots import repository_files
from fugu_cli.system.resolved_files import open_resolved, read_resolved
from fugu_cli.tools.result import Say, ToolResult, truncate_line
from fugu_cli.tools.workspace import Tool, Workspace, resolve_path

LARGE = 2_000_000
"""Bytes from which a file is read in parts only."""
SHOWN = 50_000
"""Characters of one reading at most."""
WHOLE = 120_000
"""Characters of a file that fugu reads for a small model, some 3,000 lines: a longer one it cannot
know its way in.
"""
LINE = 2_000


class ToolArguments(BaseModel):
    """Arguments of a tool: frozen, numbers taken for text where text is meant."""

    model_config = ConfigDict(frozen=True, coerce_numbers_to_str=True, defer_build=True)


class ReadArguments(ToolArguments):
    """Arguments of read."""

    path: str = Field(description="file, relative to the repository")
    offset: Annotated[int, Field(ge=1, description="first line, of a PDF first page, from 1")] = 1
    limit: Annotated[
        int, Field(ge=1, description="lines (50,000 characters at most), or pages")
    ] = 2000
    plain: SkipJsonSchema[bool] = False


class WriteArguments(ToolArguments):
    """Arguments of write."""

    path: str = Field(description="file, relative to the repository")
    content: str = Field(description="the whole new content")


async def read(arguments: ReadArguments, workspace: Workspace, say: Say) -> ToolResult:
    """Show a file, or a part of it."""
    path = resolve_path(workspace, arguments.path)
    if isinstance(path, ToolResult):
        return path
    if (refusal := not_a_file(path, arguments.path, workspace)) is not None:
        return refusal
    try:
        with open_resolved(path) as file:
            size = os.fstat(file.fileno()).st_size
            beginning = file.read(8192)
        media_kind = None if arguments.plain else repository_files.media_kind(beginning)
        if media_kind:
            return await _read_media(path, arguments, size, media_kind)
        return _read_text(path, arguments, workspace, size, beginning)
    except OSError as error:
        return ToolResult(text=f"{arguments.path} cannot be read: {error.strerror}.", ok=False)


def _read_text(
    path: Path, arguments: ReadArguments, workspace: Workspace, size: int, beginning: bytes
) -> ToolResult:
    """Read a text file of `size` bytes that begins with `beginning`. Raises OSError."""
    if repository_files.is_binary(beginning):
        return ToolResult(
            text=(
                f"{arguments.path} is {repository_files.describe_binary(beginning)}, {size:,} bytes: "
                f"not text."
            ),
            ok=False,
        )
    if size > LARGE:
        return _read_part(path, arguments, workspace, size)
    data = read_resolved(path)
    file_text = repository_files.decode_text(data)
    if arguments.plain and len(file_text.text) > WHOLE:
        return ToolResult(
            text=f"{arguments.path} has {len(file_text.text):,} characters: too long to show whole.",
            ok=False,
        )
    workspace.seen.note(path, data)
    if arguments.plain:
        return ToolResult(text=file_text.shown)
    lines = file_text.shown.removesuffix("\n").split("\n") if file_text.text else []
    limit = workspace.output_limit(SHOWN)
    return _numbered(_masked(lines, workspace), arguments, len(lines), file_text.foreign, limit)


async def _read_media(
    path: Path, arguments: ReadArguments, size: int, media_kind: str
) -> ToolResult:
    """Read a picture, a PDF, or the text of some of its pages. Raises OSError."""
    from fugu_cli.tools import media

    largest = media.MOST_READ if media_kind == "picture" else media.MOST_OF_A_PDF
    try:
        if size > largest:
            raise media.NotTaken(media.too_large(arguments.path, size, largest))
        data = await asyncio.to_thread(read_resolved, path)
        if media_kind == "pdf" and {"offset", "limit"} & arguments.model_fields_set:
            count = arguments.limit if "limit" in arguments.model_fields_set else None
            return ToolResult(
                text=await asyncio.to_thread(
                    media.pdf_pages, data, arguments.path, arguments.offset, count
                )
            )
        media_read = await asyncio.to_thread(media.take, data, arguments.path)
    except media.NotTaken as error:
        return ToolResult(text=str(error), ok=False)
    media_read = media_read.model_copy(update={"name": path.name})
    return ToolResult(text=f"[{media_read.described}]", media=(media_read,))


def not_a_file(path: Path, name: str, workspace: Workspace) -> ToolResult | None:
    """Return why `path` is not a file, with similar names, or None."""
    if path.is_dir():
        return ToolResult(text=f"{name} is a folder. Use list to see what is in it.", ok=False)
    if not path.exists():
        near = repository_files.similar_paths(workspace.root, path)
        hint = (
            f" Did you mean {' or '.join(near)}?" if near else " Use glob or list to find the file."
        )
        return ToolResult(text=f"There is no file {name}.{hint}", ok=False)
    if not path.is_file():
        return ToolResult(text=f"{name} is not a regular file.", ok=False)
    return None


def _read_part(path: Path, arguments: ReadArguments, workspace: Workspace, size: int) -> ToolResult:
    """Read the requested part of a large file without loading all of it."""
    if not {"offset", "limit"} & arguments.model_fields_set:
        text = (
            f"{arguments.path} is large: {size:,} bytes. Read a part with offset and limit, "
            f'for example {{"path": "{arguments.path}", "offset": 1, "limit": 200}}, or find the '
            f"place with grep."
        )
        return ToolResult(text=text, ok=False)
    with open_resolved(path) as file:
        start = arguments.offset - 1
        part = islice(_short_lines(file), start, start + min(arguments.limit, SHOWN))
        lines = [line.rstrip(b"\r\n").decode("utf-8", "replace") for line in part]
    workspace.seen.note_file(path)
    shown = [""] * (arguments.offset - 1) + _masked(lines, workspace)
    return _numbered(shown, arguments, None, 0, workspace.output_limit(SHOWN))


def _masked(lines: list[str], workspace: Workspace) -> list[str]:
    """Mask secrets in lines that will be cut."""
    return [workspace.whole_secrets(line, LINE) for line in lines]


def _short_lines(file: BinaryIO) -> Iterator[bytes]:
    """Yield lines, each cut short, because a large file may be one line."""
    while line := file.readline(4 * LINE):
        rest = line
        while rest and not rest.endswith(b"\n"):
            rest = file.readline(65536)
        yield line


def _numbered(
    lines: list[str], arguments: ReadArguments, total: int | None, foreign: int, limit: int
) -> ToolResult:
    """Return the lines as `12<TAB>text`, as many as fit into `limit` characters, and a note on the
    rest.
    """
    offset = arguments.offset
    if not lines and offset == 1:
        return ToolResult(text="(the file is empty)")
    if offset > len(lines):
        return ToolResult(text=f"{arguments.path} has only {len(lines):,} lines.", ok=False)
    shown: list[str] = []
    length = 0
    for number, line in enumerate(lines[offset - 1 : offset - 1 + arguments.limit], start=offset):
        numbered = f"{number}\t{truncate_line(line, LINE)}"
        length += len(numbered) + 1
        if length > limit and shown:
            break
        shown.append(numbered)
    last = offset + len(shown) - 1
    notes = []
    if total is None:
        notes.append(f"lines {offset}-{last}; go on with offset={last + 1}")
    elif last < total:
        notes.append(f"lines {offset}-{last} of {total:,}; go on with offset={last + 1}")
    if foreign:
        notes.append(f"{foreign} bytes are not UTF-8 and shown as \ufffd")
    return ToolResult(text="\n".join(shown) + "".join(f"\n({note})" for note in notes))


@dataclass(frozen=True)
class PlannedFile:
    """A file to be written, with the message for the agent. `name` is the agent's name for it."""

    path: Path
    name: str
    data: bytes
    message: str


async def write(arguments: WriteArguments, workspace: Workspace, say: Say) -> ToolResult:
    """Create a file, or replace its whole content."""
    return write_planned(_plan(arguments, workspace), workspace)


def write_planned(planned: PlannedFile | ToolResult, workspace: Workspace) -> ToolResult:
    """Write a planned file. A refusal is returned as it is."""
    if isinstance(planned, ToolResult):
        return planned
    try:
        workspace.write(planned.path, planned.data)
    except OSError as error:
        return ToolResult(text=f"{planned.name} cannot be written: {error.strerror}.", ok=False)
    return ToolResult(text=planned.message)


def _plan(arguments: WriteArguments, workspace: Workspace) -> PlannedFile | ToolResult:
    path = resolve_path(workspace, arguments.path)
    if isinstance(path, ToolResult):
        return path
    if not path.exists():
        return PlannedFile(
            path,
            arguments.path,
            arguments.content.encode(),
            f"Created {arguments.path} ({_count_lines(arguments.content)}).",
        )
    if (refusal := not_a_file(path, arguments.path, workspace)) is not None:
        return refusal
    try:
        return _plan_overwrite(path, arguments, workspace)
    except OSError as error:
        return ToolResult(text=f"{arguments.path} cannot be written: {error.strerror}.", ok=False)


def _plan_overwrite(
    path: Path, arguments: WriteArguments, workspace: Workspace
) -> PlannedFile | ToolResult:
    """Plan an overwrite that keeps newlines, byte order mark and the final newline of the file."""
    old = read_resolved(path)
    if repository_files.is_binary(old):
        return ToolResult(
            text=(
                f"{arguments.path} is {repository_files.describe_binary(old)}: it is not replaced "
                f"by text."
            ),
            ok=False,
        )
    file = repository_files.decode_text(old)
    content = arguments.content
    if file.text.endswith("\n") and content and not content.endswith("\n"):
        content += "\n"
    data = file.encode(content)
    if data == old:
        return ToolResult(
            text=f"This is the same as what is in {arguments.path}: nothing changed.", ok=False
        )
    if file.foreign:
        text = (
            f"{arguments.path} is not UTF-8: writing it whole would lose {file.foreign} bytes. Use "
            f"edit for single places."
        )
        return ToolResult(text=text, ok=False)
    if refusal := workspace.overwriting_refusal(path, old, arguments.path):
        return ToolResult(text=refusal, ok=False)
    return PlannedFile(
        path,
        arguments.path,
        data,
        f"Wrote {arguments.path} ({_count_lines(file.text)} before, {_count_lines(content)} now).",
    )


def _count_lines(text: str) -> str:
    count = text.count("\n") + (not text.endswith("\n")) if text else 0
    return f"{count:,} line" if count == 1 else f"{count:,} lines"


READ = Tool.of(tool_facts.READ, ReadArguments, read)
WRITE = Tool.of(tool_facts.WRITE, WriteArguments, write, _plan)
