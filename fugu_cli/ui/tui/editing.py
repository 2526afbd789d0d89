"""The user's own editor on the text of the prompt."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import subprocess
from contextlib import AbstractContextManager
from typing import Protocol

from fugu_cli import scratch

COMMON = ("nano", "vim", "vi", "notepad")


class Suspends(Protocol):
    """Gives the terminal away for a while."""

    def suspend(self) -> AbstractContextManager[None]:
        """The terminal belongs to somebody else inside."""

    def batch_update(self) -> AbstractContextManager[None]:
        """Nothing is painted inside."""


def command() -> list[str] | None:
    """$VISUAL, $EDITOR, or the first common editor there is."""
    for name in ("VISUAL", "EDITOR"):
        if os.environ.get(name, "").strip():
            return shlex.split(os.environ[name])
    found = next((program for program in COMMON if shutil.which(program)), None)
    return [found] if found else None


async def edited(app: Suspends, text: str) -> str | None:
    """The text as it was left in the editor, None where none could be started. What is under way goes on meanwhile."""
    words = command()
    if words is None:
        return None
    with scratch.folder("editing") as folder:
        path = folder / "request.md"
        path.write_text(text, encoding="utf-8", errors="replace")
        try:
            with app.batch_update(), app.suspend():
                await asyncio.to_thread(subprocess.run, [*words, str(path)], check=False)
        except OSError:
            return None
        return path.read_text(encoding="utf-8", errors="replace").rstrip("\n")
