"""`fugu run`: one request to its end, and an exit code that can be trusted.

Opens a session through wiring, lets a reader of ui/ follow its log, turns signals into cancellation. The first line is
on the screen before anything heavy is imported.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from fugu_cli import __version__, signals
from fugu_cli.commands import prompt
from fugu_cli.commands.flags import Format, RunFlags, check_empty, check_session
from fugu_cli.errors import FuguError, UsageError
from fugu_cli.ui.pen import Pen


def run(flags: RunFlags) -> int:
    """The exit code: 0 accepted, 1 usage, 2 infrastructure, 3 a limit or not accepted, 4 aborted."""
    try:
        signals.at_once(signal.SIGINT)
        _check(flags)
        said = prompt.read(flags, sys.stdin)
        folder = _prepared(flags)
        if flags.output_format == Format.text:
            Pen(sys.stderr).line(f"fugu {__version__}: reading the repository")
        import asyncio

        from fugu_cli.commands.running import Run

        work = Run(flags, said, os.environ, folder)
        signals.held()
    except UsageError as error:
        _refused(flags, error)
        raise
    except KeyboardInterrupt:
        _refused(flags, FuguError("interrupted before the session was open"), "interrupted")
        raise
    finally:
        signals.unticking()
    return asyncio.run(work.to_its_end())


def _prepared(flags: RunFlags) -> Path | None:
    """The folder of `--output-dir`, ready to be written into. Raises UsageError."""
    if flags.output_dir is None:
        return None
    from fugu_cli.ui import output_dir

    return output_dir.prepare(Path(flags.output_dir))


def _refused(flags: RunFlags, error: FuguError, reason: str = "failed") -> None:
    """Programs learn of wrong words, and of an early signal, as well where they read: on standard output and in
    `--output-dir`."""
    if flags.output_format == Format.text and not flags.output_dir:
        return
    from fugu_cli.commands.leaving import Leaving
    from fugu_cli.ui.screen import Screen

    folder = Path(flags.output_dir) if flags.output_dir else None
    Leaving(flags.output_format, folder, Screen()).refuse(error, reason)


def _check(flags: RunFlags) -> None:
    """Flags that contradict one another, or say nothing. Raises UsageError."""
    check_session(flags)
    check_empty(output_dir=flags.output_dir)
    if flags.agent and flags.coordinator:
        raise UsageError("--agent and --coordinator exclude one another", hint="--agent NAME bypasses the coordinator")
    if flags.yolo and flags.permission_mode:
        raise UsageError("--yolo and --permission-mode exclude one another", hint="--yolo is --permission-mode yolo")
    if flags.script and flags.coordinator:
        raise UsageError("--script and --coordinator exclude one another", hint="such a run has one agent, the script")
    if flags.script and flags.agent not in (None, "scripted"):
        raise UsageError("--script and --agent exclude one another", hint="the script is the only agent of such a run")
