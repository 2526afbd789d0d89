"""The blocks of an editor's prompt as a request: the user's words, with files that they name as `@`
mentions, and what else comes with them.

A file is mentioned and not copied into the request: it is read through fugu's own tools, under the
same rules as every other, and counts as read where it is edited later. Looks at the disk; knows no
session.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from acp.schema import (
    AudioContentBlock,
    EmbeddedResourceContentBlock,
    ImageContentBlock,
    ResourceContentBlock,
    TextContentBlock,
    TextResourceContents,
)

from fugu_cli.errors import UsageError
from fugu_cli.messages import Media
from fugu_cli.safety.paths import inside, is_file, is_folder, real_path
from fugu_cli.tools.media import NotTaken, take_base64

PromptBlock = (
    TextContentBlock
    | ImageContentBlock
    | AudioContentBlock
    | ResourceContentBlock
    | EmbeddedResourceContentBlock
)
_LINES = re.compile(r"L(\d+)(?:[:-]L?(\d+))?")
_PLAIN = re.compile(r"[\w./-]+")
LARGEST_COMPARED = 4_000_000
"""Bytes of a file that is compared with what the editor says stands in it."""


class PromptText(NamedTuple):
    """`said` are the user's words; `beside` and `media` are what the editor sends with them."""

    said: str
    beside: str
    media: tuple[Media, ...] = ()


def read_prompt(blocks: Sequence[PromptBlock], root: Path) -> PromptText:
    """The request in the repository at `root`. Raises UsageError for sound, for a picture that
    cannot be read, and where nothing is said."""
    said, beside, media = "", list[str](), list[Media]()
    for block in blocks:
        match block:
            case TextContentBlock():
                piece = block.text
            case ResourceContentBlock():
                piece = _mention(block.uri, root) or f"[{block.title or block.name}]({block.uri})"
            case EmbeddedResourceContentBlock(resource=TextResourceContents() as resource):
                piece = _mention(resource.uri, root, resource.text)
                if not piece:
                    piece = resource.uri
                    beside.append(f'<context uri="{resource.uri}">\n{resource.text}\n</context>')
            case ImageContentBlock():
                piece = ""
                media.append(_picture(block))
            case _:
                raise UsageError(
                    f"a prompt holds {block.type} content that cannot be read",
                    hint="send text, pictures, files and links",
                )
        gap = " " if said and piece and not (said[-1:].isspace() or piece[:1].isspace()) else ""
        said += gap + piece
    if not said.strip():
        raise UsageError("the prompt says nothing", hint="write what is to be done")
    return PromptText(said, "\n\n".join(beside), tuple(media))


def _picture(block: ImageContentBlock) -> Media:
    try:
        return take_base64(block.data, "the picture", block.mime_type)
    except NotTaken as fault:
        raise UsageError(str(fault), hint="send another picture") from fault


def _mention(uri: str, root: Path, text: str | None = None) -> str:
    """`@path` of a file or folder in the repository; "" for anything else, and where `text` is not
    what the file holds."""
    address = urlsplit(uri)
    if address.scheme != "file" or address.netloc not in ("", "localhost"):
        return ""
    path = real_path(Path(unquote(address.path)))
    if path == root or not inside(path, root) or (text is not None and not _holds(path, text)):
        return ""
    if not (is_file(path) or is_folder(path)):
        return ""
    name = path.relative_to(root).as_posix()
    lines = _LINES.search(address.fragment)
    place = (
        f"#L{lines[1]}" + (f"-{lines[2]}" if lines[2] else "")
        if lines is not None and is_file(path)
        else ""
    )
    return f"@{name}{place}" if _PLAIN.fullmatch(name) else f'@"{name}"{place}'


def _holds(path: Path, text: str) -> bool:
    """The text stands in the file; one that was changed in the editor and not saved differs."""
    try:
        return path.stat().st_size <= LARGEST_COMPARED and text.strip() in path.read_text(
            encoding="utf-8"
        )
    except (OSError, ValueError):
        return False
