"""The download of the small models, with its progress on the screen."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from fugu_cli.errors import FuguError
from fugu_cli.formatting import flatten
from fugu_cli.ui.blocks import NoteBlock

if TYPE_CHECKING:
    from fugu_cli.app.session_protocol import ModelSetup
    from fugu_cli.local.sources import FetchProgress
    from fugu_cli.ui.tui.screen_protocol import FeedProtocol

BAR_CELLS = 24


class ModelDownload:
    """Downloads missing models, one download at a time. `doing` describes its progress, "" while
    none runs.
    """

    def __init__(self, setup: ModelSetup, feed: FeedProtocol, changed: Callable[[], None]) -> None:
        self._setup = setup
        self._feed = feed
        self._changed = changed
        self._task: asyncio.Task[None] | None = None
        self.doing = ""
        self.began = 0.0

    @property
    def running(self) -> bool:
        """True while a download runs."""
        return self._task is not None

    def begin(self, failed: Callable[[FuguError], None]) -> None:
        """Download in the background. `failed` is told what went wrong."""
        if self._task is None:
            self.doing, self.began = "downloading", time.time()
            self._task = asyncio.get_running_loop().create_task(self._run(failed))

    async def _run(self, failed: Callable[[FuguError], None]) -> None:
        grow = self._feed.say(NoteBlock("downloading", live=True))
        loop = asyncio.get_running_loop()

        def show(line: str, status: str) -> None:
            if self._task is not None and status != self.doing:
                self.doing = status
                grow(NoteBlock(line, live=True))
                self._changed()

        def report(progress: FetchProgress) -> None:
            share = min(progress.done / progress.total, 1.0) if progress.total else 1.0
            filled = "█" * int(share * BAR_CELLS)
            status = f"downloading {share:.0%} of {progress.total / 1e9:.1f} GB"
            line = f"{filled:░<{BAR_CELLS}} {status} · {flatten(progress.what, 100)}"
            loop.call_soon_threadsafe(show, line, status)

        end = NoteBlock("the models are here: enter sends the request", "good")
        try:
            await self._setup.download(report)
        except FuguError as error:
            failed(error)
            end = NoteBlock("the models were not downloaded; /login tries again", "warn")
        except asyncio.CancelledError:
            end = NoteBlock("the download was stopped; /login goes on with it", "warn")
            raise
        finally:
            self._task, self.doing = None, ""
            grow(end)
            self._changed()

    def stop(self) -> bool:
        """Stop the download and keep what is there. Return False if none is running."""
        return self._task is not None and self._task.cancel()
