"""The question whether what a folder brings for agents shall count: at the start, and with `/trust`.

Knows no screen and no session: the dialogs ask, and whoever opens sessions keeps the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fugu_cli.formatting import plural, sanitize
from fugu_cli.ui.column import Fragment
from fugu_cli.ui.drawing import wrap_lines
from fugu_cli.ui.tui.screen_protocol import KeyAnswer
from fugu_cli.ui.turn_page import Section

if TYPE_CHECKING:
    from fugu_cli.app.session_protocol import SessionOpener
    from fugu_cli.ui.tui.screen_protocol import DialogsProtocol

TRUST_MEANING = "It may steer agents and run programs here: ignored until you trust this folder."
MOST_NAMES = 5
"""Files that the question names."""
MOST_SHOWN = 100
"""Files that are shown to who wants to look first."""
MOST_CHARACTERS = 50_000
"""Characters of each of them."""


async def ask_for_trust(opener: SessionOpener, dialogs: DialogsProtocol) -> bool | None:
    """Ask whether what the folder brings shall count. True and False are the user's answer; None:
    there is nothing to ask about. Raises FuguError where the answer cannot be kept.
    """
    if not opener.ignored:
        return None
    sections = await asyncio.to_thread(_sections, opener.root, opener.ignored)
    question = f"This folder brings {_ignored_names(opener)}."
    if opener.changed:
        question += f" Changed since you trusted it: {', '.join(opener.changed)}."
    if not await dialogs.choose(question, TRUST_MEANING, [KeyAnswer("y", "trust")], sections):
        await asyncio.to_thread(opener.decline)
        return False
    await asyncio.to_thread(opener.trust)
    return True


def ignored_note(opener: SessionOpener) -> str:
    """Return the note that names the ignored files, and says how to trust them."""
    return f"ignored until you trust this folder (/trust): {_ignored_names(opener)}"


def _ignored_names(opener: SessionOpener) -> str:
    names = [path.relative_to(opener.root).as_posix() for path in opener.ignored]
    more = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {plural(more, 'more')}" if more > 0 else "")


def _sections(root: Path, paths: Sequence[Path]) -> list[Section]:
    """Return the texts of files, and of the files in folders, each under its name."""
    sections: list[Section] = []
    for file in _files(paths):
        if len(sections) == MOST_SHOWN:
            sections.append(Section("more files are not shown", ()))
            break
        try:
            text = sanitize(file.read_bytes().decode("utf-8", "replace"))
        except OSError as error:
            text = f"(it cannot be read: {error.strerror})"
        if len(text) > MOST_CHARACTERS:
            text = (
                f"{text[:MOST_CHARACTERS]}\n[... {len(text) - MOST_CHARACTERS:,} more characters]"
            )
        sections.append(Section(file.relative_to(root).as_posix(), (_text_fragment(text),)))
    return sections


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            yield from (file for file in sorted(path.rglob("*")) if file.is_file())
        else:
            yield path


def _text_fragment(text: str) -> Fragment:
    return Fragment(lambda width, palette: wrap_lines(text, width, palette.text), text)
