"""`!`: a command of the user's own, run in the folder, its output in the conversation.

It is the user's command: no policy judges it and no log records it. With `!!` the output is told to the agents with the
next request, and then stands in it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from fugu_cli.processes import reap
from fugu_cli.ui.tui.draw.block import Note
from fugu_cli.ui.tui.draw.text import safe
from fugu_cli.ui.tui.front import Shows

SHOWN = 20_000
"""Characters of output that are kept."""
TOLD = 6_000


class Shell:
    """Runs one command at a time."""

    def __init__(self, root: Path, feed: Shows) -> None:
        self._root = root
        self._feed = feed
        self._process: asyncio.subprocess.Process | None = None
        self._untold: list[str] = []
        self.doing = ""
        self.began = 0.0

    @property
    def running(self) -> bool:
        """A command runs."""
        return self._process is not None

    async def run(self, command: str, *, tell: bool) -> None:
        """Run it to its end, its output shown as it comes. `tell`: the next request carries it."""
        index = self._feed.say(Note(f"$ {command}", "plain"))
        process = await asyncio.create_subprocess_shell(
            command,
            cwd=self._root,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, "PAGER": "cat", "GIT_PAGER": "cat", "TERM": "dumb"},
        )
        self._process, self.doing, self.began = process, f"running {command[:40]}", time.time()
        output = ""
        assert process.stdout is not None
        try:
            while piece := await process.stdout.read(8192):
                output = (output + piece.decode(errors="replace"))[-SHOWN:]
                self._feed.replace(index, Note(f"$ {command}", "plain", safe(output)))
            code = await process.wait()
        finally:
            self._end(process)
            await reap(process)
        ended = "" if code == 0 else f"\n[exit code {code}]"
        self._feed.replace(index, Note(f"$ {command}", "plain", (safe(output) + ended).strip("\n")))
        if tell:
            self._untold.append(f"[The user ran `{command}`; exit code {code}; its output:]\n{output[-TOLD:]}")

    def stop(self) -> bool:
        """End what runs, its children too. False when nothing does."""
        if self._process is None:
            return False
        self._end(self._process)
        return True

    def told(self, text: str) -> str:
        """A request with the output that waits to be told."""
        untold, self._untold = self._untold, []
        return "\n\n".join([text, *untold])

    def _end(self, process: asyncio.subprocess.Process) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        self._process, self.doing = None, ""
