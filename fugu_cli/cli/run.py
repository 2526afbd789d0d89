"""`fugu run`: checks the flags, reads the request from the argument, a file or standard input, and
starts the run. Light: the first line is printed before anything heavy is imported.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import stat
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from fugu_cli import __version__
from fugu_cli.cli.flags import OutputFormat, RequestInput, RunFlags, check_empty, check_session
from fugu_cli.errors import FuguError, UsageError
from fugu_cli.system import signals
from fugu_cli.system.bounded_json import parse_json
from fugu_cli.ui.output_stream import OutputStream

REQUEST_HINT = 'give one: fugu run "...", -p "...", --prompt-file FILE, or a pipe'
STDIN_TIMEOUT = 3.0
"""Seconds after which a pipe that nobody has written to counts as empty."""
LARGEST_REQUEST = 1_000_000
"""Characters of standard input: no agent reads more at once, and `yes |` has no end."""


def read_request(flags: RunFlags, stdin: TextIO | None) -> RequestInput:
    """Read the request. Raises UsageError for several, none, or an empty one.

    Standard input is the request if it is given as `-`, or if nothing else is given.
    """
    sources = {"an argument": flags.text, "-p": flags.prompt, "--prompt-file": flags.prompt_file}
    used = [name for name, value in sources.items() if value is not None]
    if len(used) > 1:
        raise UsageError(f"there are {len(used)} prompts: {' and '.join(used)}", hint=REQUEST_HINT)
    if flags.accept_plan:
        return RequestInput(None)
    if not used and (flags.go_on or flags.resume):
        return RequestInput(_read_piped(stdin) or None)
    if not used and (stdin is None or stdin.isatty()):
        raise UsageError("there is no prompt", hint=REQUEST_HINT)
    text, reads_pipe = _read_text(flags, stdin)
    if not text.strip():
        raise UsageError("the prompt is empty", hint=REQUEST_HINT)
    return RequestInput(text.strip("\n"), _read_piped(stdin) if reads_pipe else "")


def _read_text(flags: RunFlags, stdin: TextIO | None) -> tuple[str, bool]:
    """Return the request's text, and whether standard input may hold more."""
    if flags.prompt_file is not None:
        return _read_file(flags.prompt_file, "--prompt-file"), True
    text = flags.text if flags.text is not None else flags.prompt
    if text not in (None, "-"):
        return text, True
    if stdin is None:
        raise UsageError("standard input is closed", hint=REQUEST_HINT)
    return read_stdin(stdin), False


def _read_piped(stdin: TextIO | None) -> str:
    """Return the text on standard input beside a request from elsewhere, "" if there is none."""
    if stdin is None or stdin.isatty() or not _has_input(stdin):
        return ""
    text = read_stdin(stdin)
    return text.strip("\n") if text.strip() else ""


def _has_input(stdin: TextIO) -> bool:
    """Return whether there is input: an unread file, or a pipe that sends something in time."""
    try:
        source = stdin.fileno()
    except OSError:  # it is nothing that a shell could have put there
        return False
    mode = os.fstat(source).st_mode
    if stat.S_ISREG(mode):
        return os.lseek(source, 0, os.SEEK_CUR) == 0
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        return False
    if select.select([source], [], [], STDIN_TIMEOUT)[0]:
        return True
    _say_waiting(
        f"standard input said nothing for {STDIN_TIMEOUT:.0f} s and is not read (`< /dev/null` "
        f"keeps fugu from waiting)"
    )
    return False


def read_stdin(stdin: TextIO) -> str:
    """Read all of standard input. Raises UsageError if it is not text."""
    timer = threading.Timer(STDIN_TIMEOUT, _say_waiting, ("reading standard input to its end",))
    timer.daemon = True
    timer.start()
    try:
        text = stdin.read(LARGEST_REQUEST + 1)
        text.encode("utf-8")  # some locales let bytes through that are none
    except UnicodeError as error:
        raise UsageError(
            "standard input is not UTF-8 text", hint="convert it, or name a file in the request"
        ) from error
    except OSError as error:
        raise UsageError(
            f"standard input cannot be read: {error.strerror}", hint="`< /dev/null` closes it"
        ) from error
    finally:
        timer.cancel()
    if len(text) > LARGEST_REQUEST:
        raise UsageError(
            f"standard input holds more than {LARGEST_REQUEST:,} characters",
            hint="name a file in the request",
        )
    return text.removeprefix("\ufeff")


def read_schema(text: str | None) -> str:
    """Read the schema of `--json-schema`, "" without one. Raises UsageError for an invalid one."""
    if text is None:
        return ""
    import json

    from fugu_cli.engine.structured_answer import schema_fault

    inline = text.lstrip().startswith("{")
    name = "the given text" if inline else text
    hint = "give a file that holds a JSON schema, or the schema itself"
    if not text.strip():
        raise UsageError("--json-schema is empty", hint=hint)
    if not inline:
        text = _read_file(Path(text), "--json-schema")
    try:
        schema = parse_json(text)
    except ValueError as error:
        raise UsageError(f"--json-schema: {name} is no JSON: {error}", hint=hint) from error
    if fault := schema_fault(schema):
        raise UsageError(f"--json-schema: {name} is no JSON schema: {fault}", hint=hint)
    return json.dumps(schema, ensure_ascii=False)


def _say_waiting(text: str) -> None:
    print(f"fugu: {text}", file=sys.stderr, flush=True)


def _read_file(path: Path, flag: str) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text", hint="save it as UTF-8") from error
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", hint=f"check {flag}") from error


def run(flags: RunFlags) -> int:
    """Run a request. Return 0 accepted, 1 usage, 2 infrastructure, 3 a limit or not accepted, 4
    aborted.
    """
    if not flags.background:
        return _run(flags)
    if flags.output_format != OutputFormat.text:
        error = UsageError(
            f"--background and --output-format {flags.output_format} exclude one another",
            hint="nobody reads the output; --output-dir keeps it",
        )
        _report_refusal(flags, error)
        raise error
    from fugu_cli.cli.background import run_in_background

    return run_in_background(lambda detach: _run(flags, detach))


def _run(flags: RunFlags, detach: Callable[[str], None] | None = None) -> int:
    """Run a request, in a worktree of its own if the user wants one. `detach`: see RunParts."""
    if flags.worktree is None:
        return _run_in_folder(flags, detach)
    from fugu_cli.cli.worktree import work_in_worktree

    return work_in_worktree(
        flags,
        lambda flags: _run_in_folder(flags, detach),
        lambda code: code == 0,
        lambda error: _report_refusal(flags, error),
    )


def _run_in_folder(flags: RunFlags, detach: Callable[[str], None] | None) -> int:
    try:
        signals.raise_on_signals(signal.SIGINT)
        _check_flags(flags)
        schema = read_schema(flags.json_schema)
        request = read_request(flags, sys.stdin)
        folder = _prepare_output(flags)
        if flags.output_format == OutputFormat.text:
            OutputStream(sys.stderr).line(f"fugu {__version__}: reading the repository")
        import asyncio

        from fugu_cli.cli.run_session import RequestRun, RunParts

        work = RequestRun(flags, request, os.environ, RunParts(folder, schema, detach))
        signals.hold_signals()
    except UsageError as error:
        _report_refusal(flags, error)
        raise
    except KeyboardInterrupt:
        _report_refusal(flags, FuguError("interrupted before the session was open"), "interrupted")
        raise
    finally:
        signals.unticking()
        gc.freeze()  # what is imported stays: no collection looks at it again
        gc.enable()
    return asyncio.run(work.to_its_end())


def _prepare_output(flags: RunFlags) -> Path | None:
    """Prepare the folder of `--output-dir`. Raises UsageError."""
    if flags.output_dir is None:
        return None
    from fugu_cli.ui import run_artifacts

    return run_artifacts.prepare_output_dir(Path(flags.output_dir))


def _report_refusal(flags: RunFlags, error: FuguError, reason: str = "failed") -> None:
    """Report a wrong command line or an early signal to programs, on standard output and in
    `--output-dir`.
    """
    if flags.output_format == OutputFormat.text and not flags.output_dir:
        return
    from fugu_cli.cli.output import RunOutput
    from fugu_cli.ui.terminal_output import TerminalOutput

    folder = Path(flags.output_dir) if flags.output_dir else None
    RunOutput(flags.output_format, folder, TerminalOutput()).refuse(error, reason)


def _check_flags(flags: RunFlags) -> None:
    """Raise UsageError for flags that contradict one another."""
    check_session(flags)
    check_empty(output_dir=flags.output_dir)
    if flags.agent and flags.coordinator:
        raise UsageError(
            "--agent and --coordinator exclude one another",
            hint="--agent NAME bypasses the coordinator",
        )
    if flags.accept_plan:
        _check_accept_plan(flags)
    if flags.yolo and flags.permission_mode:
        raise UsageError(
            "--yolo and --permission-mode exclude one another",
            hint="--yolo is --permission-mode yolo",
        )
    if flags.script and flags.coordinator:
        raise UsageError(
            "--script and --coordinator exclude one another",
            hint="such a run has one agent, the script",
        )
    if flags.script and flags.agent not in (None, "scripted"):
        raise UsageError(
            "--script and --agent exclude one another",
            hint="the script is the only agent of such a run",
        )


def _check_accept_plan(flags: RunFlags) -> None:
    """Raise UsageError for flags that contradict --accept-plan."""
    if not (flags.go_on or flags.resume):
        raise UsageError("--accept-plan needs a session", hint="add --continue or --resume ID")
    if flags.text is not None or flags.prompt is not None or flags.prompt_file is not None:
        raise UsageError(
            "--accept-plan takes no prompt",
            hint='change the plan first: fugu run --continue --permission-mode plan "..."',
        )
    if flags.permission_mode == "plan":
        raise UsageError(
            "plan mode carries nothing out", hint="--permission-mode edit, ask, auto or yolo"
        )
