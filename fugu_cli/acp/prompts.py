"""Turns the blocks of an editor's prompt into a request: the user's text with `@` mentions of
files, and attachments.

A file is mentioned and not copied into the request. fugu's own tools read it under the same rules
as every other file, and it counts as read if it is edited later. Looks at the disk; knows no
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
"""Bytes of the largest file that is compared with the editor's text of it."""


class PromptText(NamedTuple):
    """A prompt: the user's text, and the context and media that the editor sends with it."""

    text: str
    context: str
    media: tuple[Media, ...] = ()


def read_prompt(blocks: Sequence[PromptBlock], root: Path) -> PromptText:
    """Return the request in the repository at `root`.

    Raises UsageError for sound, for a picture that cannot be read, and for a prompt without text.
    """
    text = ""
    contexts: list[str] = []
    media: list[Media] = []
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
                    contexts.append(f'<context uri="{resource.uri}">\n{resource.text}\n</context>')
            case ImageContentBlock():
                piece = ""
                try:
                    picture = take_base64(block.data, "the picture", block.mime_type)
                except NotTaken as fault:
                    raise UsageError(str(fault), hint="send another picture") from fault
                media.append(picture)
            case _:
                raise UsageError(
                    f"a prompt holds {block.type} content that cannot be read",
                    hint="send text, pictures, files and links",
                )
        if text and piece and not text[-1].isspace() and not piece[0].isspace():
            text += " "
        text += piece
    if not text.strip():
        raise UsageError("the prompt says nothing", hint="write what is to be done")
    return PromptText(text, "\n\n".join(contexts), tuple(media))


def _mention(uri: str, root: Path, text: str | None = None) -> str:
    """Return `@path` for a file or folder in the repository, else "".

    With `text`, the file must contain it: an unsaved file in the editor differs from the disk.
    """
    url = urlsplit(uri)
    if url.scheme != "file" or url.netloc not in ("", "localhost"):
        return ""
    path = real_path(Path(unquote(url.path)))
    if path == root or not inside(path, root):
        return ""
    if text is not None and not _contains(path, text):
        return ""
    if not (is_file(path) or is_folder(path)):
        return ""
    name = path.relative_to(root).as_posix()
    mention = f"@{name}" if _PLAIN.fullmatch(name) else f'@"{name}"'
    lines = _LINES.search(url.fragment)
    if lines is not None and is_file(path):
        mention += f"#L{lines[1]}"
        if lines[2]:
            mention += f"-{lines[2]}"
    return mention


def _contains(path: Path, text: str) -> bool:
    try:
        if path.stat().st_size > LARGEST_COMPARED:
            return False
        return text.strip() in path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return False
