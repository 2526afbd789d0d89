"""What tools changed, as diffs of the contents that were before and after, fetched from the workspace's store.

Beside room.py. The log names the contents of every changed file by their hashes; the diff of a call's arguments
(draw/diff.py) stands in until they are fetched, or where they are gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from fugu_cli.diffs import unified
from fugu_cli.errors import StorageError
from fugu_cli.events import Change, ToolRan
from fugu_cli.ui.tui.draw import diff

Blob = Callable[[str], Awaitable[bytes]]
"""The content of a hash. Raises StorageError when it is not there."""

LARGEST = 200_000
"""Bytes of a file that are still compared."""


class Patches:
    """Diffs by change; every change is fetched once."""

    def __init__(self) -> None:
        self._known: dict[Change, str] = {}

    def of(self, ran: ToolRan) -> str:
        """The diff of what a call changed, as far as it is known; else what the call itself says."""
        if not ran.changes:
            return ""
        if any(change not in self._known for change in ran.changes):
            return diff.of_call(ran.call)
        return "\n".join(self._known[change].rstrip("\n") for change in ran.changes)

    async def fetch(self, ran: ToolRan, blob: Blob) -> bool:
        """Fetch what is not known yet of a call's changes. False when nothing new was learned."""
        wanted = [change for change in ran.changes if change not in self._known]
        for change in wanted:
            try:
                before, after = await _content(change.before, blob), await _content(change.after, blob)
            except StorageError:
                return False
            self._known[change] = await asyncio.to_thread(_compared, change.path, before, after)
        return bool(wanted)


async def _content(name: str | None, blob: Blob) -> bytes | None:
    return None if name is None else await blob(name)


def _compared(path: str, before: bytes | None, after: bytes | None) -> str:
    size = len(before or b"") + len(after or b"")
    if size > LARGEST:
        return f"--- {path}\n+++ {path}\n@@ too large to compare: {size:,} bytes @@"
    return unified(path, before, after)
