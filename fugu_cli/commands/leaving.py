"""How a run ends for those who read it: text or the final object, and the folder of `--output-dir`.

Beside running.py. Everything here is quick and synchronous: it is also done on the way out after a second Ctrl-C.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fugu_cli.commands.flags import Format
from fugu_cli.errors import FuguError, UsageError
from fugu_cli.events import Recorded
from fugu_cli.log import Log
from fugu_cli.ui import headless, output_dir, stream
from fugu_cli.ui.result import SUBTYPES, Ending, result
from fugu_cli.ui.screen import Screen


def name_of(log: Log) -> str:
    """The session's id."""
    return log.path.stem if log.path else "memory"


@dataclass(frozen=True)
class Told:
    """What there is to say of a run: its session, of which it wrote the lines from `since` on, and how it ended.

    Where its request was not even `heard`, nothing of earlier ones is repeated.
    """

    log: Log
    since: int
    end: Ending
    heard: bool = True

    @property
    def records(self) -> Sequence[Recorded]:
        """The lines that say what came of the request."""
        return self.log.records if self.heard else self.log.records[self.since :]


@dataclass(frozen=True)
class Leaving:
    """Where and in which form a run says how it ended. `folder` is that of `--output-dir`."""

    form: Format
    folder: Path | None
    screen: Screen
    started: float = field(default_factory=time.monotonic)

    @property
    def milliseconds(self) -> int:
        """How long the run took so far."""
        return int((time.monotonic() - self.started) * 1000)

    def close(self, told: Told, patch: bytes) -> None:
        """The end of a run that had a session: said on the screen and left in the folder."""
        report = headless.Report(
            name_of(told.log), str(told.log.path or ""), told.since, self.milliseconds, patch.decode("utf-8", "replace")
        )
        try:
            if self.form == Format.text:
                headless.close_text(told.records, self.screen, report, told.end)
            else:
                headless.close_json(told.records, self.screen, report, told.end)
        finally:
            self.write(told, patch)

    def write(self, told: Told, patch: bytes = b"") -> None:
        """The folder alone."""
        if self.folder is None:
            return
        name = name_of(told.log)
        summary = result(told.records, name, told.end, since=told.since, milliseconds=self.milliseconds)
        for said in output_dir.write(self.folder, told.log.records, name, summary, patch):
            self.screen.show(f"fugu: {said}")

    def refuse(self, error: FuguError, reason: str = "failed") -> None:
        """A run that could not begin: a program that reads standard output must learn it there."""
        final: dict[str, object] = {
            "type": "result",
            "subtype": SUBTYPES[reason],
            "is_error": True,
            "duration_ms": self.milliseconds,
            "num_turns": 0,
            "result": "",
            "session_id": "",
            "total_cost_usd": 0.0,
            "errors": [str(error), *([error.hint] if error.hint else [])],
        }
        if self.form != Format.text:
            self.screen.data(stream.text(final))
        if self.folder is not None:
            with contextlib.suppress(UsageError):
                output_dir.write(output_dir.prepare(self.folder), [], "", final, b"")
