"""Output of commands: coloured lines on a terminal, and the result of a run as text, JSON or a
folder (`--output-dir`).

Fast and synchronous, because it also runs after a second Ctrl-C.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from fugu_cli.cli.flags import OutputFormat
from fugu_cli.errors import FuguError, UsageError
from fugu_cli.session.events import Recorded
from fugu_cli.session.log import Log
from fugu_cli.session.state import SessionState
from fugu_cli.ui import headless, json_output
from fugu_cli.ui.json_output import RunEnding, result_object
from fugu_cli.ui.terminal_output import TerminalOutput, rich_to_ansi

if TYPE_CHECKING:
    import asyncio

    from fugu_cli.app.open_session import Session

ABORTED = 4
"""Exit code of a command that a second signal ends."""


def print_lines(lines: Sequence[Text]) -> None:
    """Print lines on standard output."""
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    without_colours = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    if is_terminal and not without_colours:
        print(rich_to_ansi(Text("\n").join(lines)))
    else:
        print("\n".join(line.plain for line in lines))


def take_standard_streams() -> tuple[int, int]:
    """Reserve standard input and output for a protocol. Other output goes to standard error, and
    started programs read nothing.
    """
    source, sink = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return source, sink


def watch_client(sink: int) -> asyncio.Event:
    """Return an event that is set when the client no longer reads `sink`, and at the first signal. A
    second signal ends the process at once.
    """
    import asyncio

    from fugu_cli.system import signals
    from fugu_cli.system.reader_watch import call_when_reader_leaves

    stopped, loop = asyncio.Event(), asyncio.get_running_loop()

    def stop() -> None:
        if stopped.is_set():
            os._exit(ABORTED)
        stopped.set()

    signals.call_on_signals(loop, stop)
    call_when_reader_leaves(loop, sink, stopped.set)
    return stopped


def session_name(log: Log) -> str:
    """Return the session's id."""
    return log.path.stem if log.path else "memory"


def init_of(session: Session) -> json_output.Object:
    """Return the first object of the JSON output, which describes the session."""
    opened = session.log.state.opened
    return json_output.init_object(
        json_output.StreamInit(
            session=session_name(session.log),
            cwd=str(session.root),
            mode=session.environment.rules.mode,
            coordinator=session.config.decided_by,
            pool=tuple(session.team.members.values()),
            tools=session.environment.toolbox.names,
            servers=session.servers.names if session.servers is not None else (),
            commands=tuple(command.name for command in session.library.commands),
            skills=tuple(skill.name for skill in session.library.skills),
            plugins=opened.plugins if opened is not None else (),
        )
    )


@dataclass(frozen=True)
class RunEnd:
    """A finished run: its log, its first event `since`, and its end.

    `ignored` are files that were not read because the folder is not trusted. If the request was not
    even `is_recorded`, results of earlier requests are not repeated.
    """

    log: Log
    since: int
    end: RunEnding
    is_recorded: bool = True
    ignored: tuple[str, ...] = ()

    @property
    def records(self) -> Sequence[Recorded]:
        """The lines that say how the request ended."""
        return self.log.records if self.is_recorded else self.log.records[self.since :]

    @property
    def state(self) -> SessionState:
        """The state that follows from `records`."""
        return self.log.state if self.is_recorded else SessionState.of_records(self.records)


@dataclass(frozen=True)
class RunOutput:
    """The form and place of a run's result. `folder` is that of `--output-dir`."""

    form: OutputFormat
    folder: Path | None
    screen: TerminalOutput
    started: float = field(default_factory=time.monotonic)

    @property
    def milliseconds(self) -> int:
        """The run's duration so far, in milliseconds."""
        return int((time.monotonic() - self.started) * 1000)

    def close(self, run_end: RunEnd, patch: bytes) -> None:
        """Show the end of a run and write its folder."""
        report = headless.RunReport(
            session_name(run_end.log),
            str(run_end.log.path or ""),
            run_end.since,
            self.milliseconds,
            patch.decode("utf-8", "replace"),
            run_end.ignored,
        )
        try:
            print_form = headless.print_result_object
            if self.form == OutputFormat.text:
                print_form = headless.print_end
            print_form(run_end.state, run_end.records, self.screen, report, run_end.end)
        finally:
            self.write(run_end, patch)

    def write(self, run_end: RunEnd, patch: bytes = b"") -> None:
        """Write the folder."""
        if self.folder is None:
            return
        from fugu_cli.ui import run_artifacts

        name = session_name(run_end.log)
        summary = result_object(
            run_end.state,
            run_end.records,
            name,
            run_end.end,
            since=run_end.since,
            milliseconds=self.milliseconds,
            ignored=run_end.ignored,
        )
        faults = run_artifacts.write_artifacts(
            self.folder, run_end.log.records, name, summary, patch
        )
        for fault in (*faults, *run_artifacts.write_media(self.folder, run_end.log.path)):
            self.screen.show(f"fugu: {fault}")

    def refuse(self, error: FuguError, reason: str = "failed") -> None:
        """Report a run that could not begin, also on standard output for programs."""
        final = json_output.refused_object(error, reason, self.milliseconds)
        if self.form != OutputFormat.text:
            self.screen.data(json_output.json_line(final))
        if self.folder is not None:
            from fugu_cli.ui import run_artifacts

            with contextlib.suppress(UsageError):
                run_artifacts.write_artifacts(
                    run_artifacts.prepare_output_dir(self.folder), [], "", final, b""
                )
