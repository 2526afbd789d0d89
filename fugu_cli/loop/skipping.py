"""Lets the user end a test run that fugu makes: the request goes on without it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from fugu_cli.tools.result import Result, Say
from fugu_cli.tools.toolbox import AnyTool
from fugu_cli.tools.workspace import Workspace

ENDED = "The user ended this run."


class Skip:
    """The test runs under way. One object for a session."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Result]] = set()
        self._ended: set[asyncio.Task[Result]] = set()

    def now(self) -> bool:
        """End the runs under way. False where there is none."""
        found = [task for task in self._running if not task.done()]
        for task in found:
            self._ended.add(task)
            task.cancel()
        return bool(found)

    def around(self, tool: AnyTool) -> AnyTool:
        """`tool` as one that the user can end: its result then says so."""

        async def run(arguments: object, workspace: Workspace, say: Say) -> Result:
            task = asyncio.ensure_future(tool.run(arguments, workspace, say))
            self._running.add(task)
            try:
                return await task
            except asyncio.CancelledError:
                if task in self._ended:
                    return Result(text=ENDED, ok=False, skipped=True)
                raise
            finally:
                self._running.discard(task)
                self._ended.discard(task)

        return replace(tool, run=run)
