"""The user's own programs: a shell command after `!`, the editor on the text of the prompt, and the
command that prints a status line. No policy judges them and no log records them.
"""

from __future__ import annotations

import asyncio
import codecs
import json
import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from fugu_cli.errors import FuguError, UsageError
from fugu_cli.formatting import flatten, sanitize, sanitize_for_screen
from fugu_cli.safety.programs import find_program, program_environment, users_variables
from fugu_cli.system import temp_dirs
from fugu_cli.system.processes import reap
from fugu_cli.ui.blocks import NoteBlock
from fugu_cli.ui.tui.screen_protocol import FeedProtocol

if TYPE_CHECKING:
    from fugu_cli.ui.hyperlinks import FilePlace

KEPT_CHARACTERS = 20_000
"""Characters of output that are kept."""
REPORTED_CHARACTERS = 6_000


class ShellOutput:
    """The newest part of a command's output. `dropped` counts the lines before it;
    `begins_inside_line`: the beginning of its first line is missing too.
    """

    def __init__(self) -> None:
        self.text = ""
        self.dropped = 0
        self.begins_inside_line = False
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data: bytes) -> None:
        """Add output; b"" is its end."""
        self.text += self._decoder.decode(data, final=not data)
        excess = len(self.text) - KEPT_CHARACTERS
        if excess > 0:
            newline = self.text.find("\n", excess - 1)
            self.begins_inside_line = newline < 0
            cut = excess if newline < 0 else newline + 1
            self.dropped += self.text.count("\n", 0, cut)
            self.text = self.text[cut:]

    def note(self, heading: str, ended: str | None = None) -> NoteBlock:
        """Return the output as a note. `ended` is the line below it once the command is over."""
        text = sanitize_for_screen(self.text)
        if self.begins_inside_line:
            text = f"… {text}"
        if ended:
            text += ended if text.endswith("\n") or not text else f"\n{ended}"
        return NoteBlock(heading, "plain", text, live=ended is None, dropped=self.dropped)

    def report(self, command: str, code: int) -> str:
        """Return the output as agents read it."""
        cut = self.dropped or len(self.text) > REPORTED_CHARACTERS
        label = "the end of its output" if cut else "its output"
        return (
            f"[The user ran `{command}`; exit code {code}; "
            f"{label}:]\n{self.text[-REPORTED_CHARACTERS:]}"
        )


class UserShell:
    """Runs the user's own commands, one at a time. `doing` is the running command, "" if there is
    none.
    """

    def __init__(self, root: Path, feed: FeedProtocol) -> None:
        self._root = root
        self._feed = feed
        self._process: asyncio.subprocess.Process | None = None
        self._unreported: list[str] = []
        self._stopped = False
        self.doing = ""
        self.began = 0.0

    @property
    def running(self) -> bool:
        """True while a command runs."""
        return bool(self.doing)

    async def run(self, command: str, *, tell: bool, heading: str = "") -> int:
        """Run a command to its end and show its output as it comes. Return the exit code.

        `tell`: the next request carries the output. `heading` stands above the output instead of
        the command. Raises FuguError.
        """
        if self.running:
            raise UsageError("a command of yours is still running", hint="Esc stops it")
        self.doing = flatten(heading or f"running {command}", 48)
        self.began, self._stopped = time.time(), False
        try:
            output, code = await self._run(command, heading or f"$ {command}")
        finally:
            self._process, self.doing = None, ""
        if tell:
            self._unreported.append(output.report(command, code))
        return code

    async def _run(self, command: str, heading: str) -> tuple[ShellOutput, int]:
        output = ShellOutput()
        grow = self._feed.say(output.note(heading))
        process = self._process = await self._started(command)
        assert process.stdout is not None
        try:
            if self._stopped:  # before it had begun
                self.stop()
            while piece := await process.stdout.read(8192):
                output.feed(piece)
                grow(output.note(heading))
            code = await process.wait()
        finally:
            self.stop()
            await reap(process)
        output.feed(b"")
        self.doing = ""
        grow(output.note(heading, f"[exit code {code}]" if code else ""))
        return output, code

    async def _started(self, command: str) -> asyncio.subprocess.Process:
        try:
            return await asyncio.create_subprocess_shell(
                command,
                cwd=self._root,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
                env={**users_variables(), "PAGER": "cat", "GIT_PAGER": "cat", "TERM": "dumb"},
            )
        except (OSError, ValueError) as error:  # a ValueError: it holds a NUL
            why = error.strerror if isinstance(error, OSError) else str(error)
            raise FuguError(
                f"cannot run this: {why}", hint=f"commands are run in {self._root}"
            ) from error

    def stop(self) -> bool:
        """End the running command with its children. Return False if none runs."""
        if not self.running:
            return False
        self._stopped = True
        if self._process is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        return True

    @contextmanager
    def with_outputs(self, text: str) -> Iterator[str]:
        """Yield a request with the outputs that were not reported yet. If the request is refused,
        they stay for the next one.
        """
        outputs, self._unreported = self._unreported, []
        try:
            yield "\n\n".join([text, *outputs])
        except BaseException:  # a cancellation too: the outputs must not be lost
            self._unreported[:0] = outputs
            raise


STATUS_PAUSE, STATUS_SECONDS = 0.3, 5.0
"""Seconds between two runs of the command of the status line; seconds after which one is ended."""
STATUS_BYTES, STATUS_LINES = 20_000, 3
"""Of what it prints the first bytes and lines are read."""
STATUS_FAILURES = 3
"""Failures in a row after which it is not run again."""
_COLOUR = re.compile(r"(\x1b\[[\d;:]*m)")


class StatusCommand:
    """Runs the command of `[tui] status_line`, one run at a time, with Claude Code's JSON on its
    standard input.
    """

    def __init__(
        self,
        command: str,
        root: Path,
        read_status: Callable[[], dict[str, object]],
        show: Callable[[], None],
    ) -> None:
        """Create the command. `read_status` returns its input; `show` is called after it printed
        something.
        """
        self._command, self._root, self._read_status, self._show = command, root, read_status, show
        self._task: asyncio.Task[None] | None = None
        self._last_status: dict[str, object] = {}
        self._failures = 0
        self.lines: tuple[str, ...] = ()
        """The newest output of the command, with its colours."""
        self.fault = ""
        """Why it is not run any more."""

    def refresh(self) -> None:
        """Run the command soon, unless it is running or waiting."""
        if self._task is None and self._command and self._failures < STATUS_FAILURES:
            self._task = asyncio.get_running_loop().create_task(self._follow())

    async def close(self) -> None:
        """End the running command."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _follow(self) -> None:
        """Run the command again until its input, times aside, no longer changes."""
        try:
            while self._failures < STATUS_FAILURES:
                await asyncio.sleep(STATUS_PAUSE)
                status = self._read_status()
                if status == self._last_status:
                    return
                self._last_status = status
                self.lines = await self._output(status)
                self._show()
        finally:
            self._task = None

    async def _output(self, status: dict[str, object]) -> tuple[str, ...]:
        """Return the lines that the command prints, () if it fails or takes too long."""
        process = await asyncio.create_subprocess_shell(
            self._command,
            cwd=self._root,
            env=program_environment(self._root),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            data, code = await asyncio.wait_for(
                _exchange(process, json.dumps(_timed(status)).encode()), STATUS_SECONDS
            )
            why = f"exit code {code}" if code else ""
        except TimeoutError:
            data, why = b"", f"it took more than {STATUS_SECONDS:g} s"
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            await reap(process)
        self._failures = self._failures + 1 if why else 0
        if self._failures == STATUS_FAILURES:
            self.fault = f"the status line's command failed and is not run again: {why}"
        lines = data.decode("utf-8", "replace").rstrip().split("\n")[:STATUS_LINES]
        return () if why or lines == [""] else tuple(map(_coloured, lines))


def _coloured(line: str) -> str:
    """Keep only the colours among a line's escape sequences."""
    return "".join(
        part if index % 2 else sanitize(part)
        for index, part in enumerate(_COLOUR.split(line.rstrip()))
    )


async def _exchange(process: asyncio.subprocess.Process, payload: bytes) -> tuple[bytes, int]:
    """Return the first part of the output and the exit code, 0 if more came than is read."""
    assert process.stdin is not None and process.stdout is not None
    with suppress(OSError):
        process.stdin.write(payload)
        await process.stdin.drain()
        process.stdin.close()
    data = b""
    while len(data) < STATUS_BYTES and (piece := await process.stdout.read(STATUS_BYTES)):
        data += piece
    return data, 0 if len(data) >= STATUS_BYTES else await process.wait()


def _timed(status: dict[str, object]) -> dict[str, object]:
    cost, began = status["cost"], status.get("_began")
    assert isinstance(cost, dict)
    spent = time.time() - began if isinstance(began, float) else 0.0
    shown = {key: value for key, value in status.items() if key != "_began"}
    return {**shown, "cost": {**cost, "total_duration_ms": round(spent * 1000)}}


COMMON_EDITORS = ("nano", "vim", "vi", "notepad")


class SuspendableApp(Protocol):
    """An application that can lend the terminal to another program."""

    def suspend(self) -> AbstractContextManager[None]:
        """Lend the terminal to another program inside the block."""

    def batch_update(self) -> AbstractContextManager[None]:
        """Paint nothing inside the block."""


def editor_command() -> list[str] | None:
    """Return $VISUAL, $EDITOR, or the first common editor that is installed."""
    for name in ("VISUAL", "EDITOR"):
        if os.environ.get(name, "").strip():
            return shlex.split(os.environ[name])
    program = next((program for program in COMMON_EDITORS if find_program(program)), None)
    return [program] if program else None


GOTO_EDITORS = ("code", "code-insiders", "codium", "cursor", "windsurf")
COLON_EDITORS = ("subl", "zed", "hx", "helix")


def place_command(location: FilePlace) -> list[str]:
    """Return the command that opens a file at its line in the user's editor. Raises UsageError
    without an editor.
    """
    words = editor_command()
    if words is None:
        raise UsageError("no editor was found", hint="set $VISUAL or $EDITOR")
    name, path = Path(words[0]).name, str(location.path)
    if not location.line:
        return [*words, path]
    if name in GOTO_EDITORS:
        return [*words, "--goto", f"{path}:{location.line}"]
    return (
        [*words, f"{path}:{location.line}"]
        if name in COLON_EDITORS
        else [*words, f"+{location.line}", path]
    )


async def run_editor(app: SuspendableApp, words: Sequence[str]) -> None:
    """Give the terminal to an editor until it ends. Raises UsageError where it cannot be
    started.
    """
    with app.batch_update(), app.suspend():
        await asyncio.to_thread(start_program, words)


def start_program(words: Sequence[str]) -> None:
    """Run a program to its end. Raises UsageError where it cannot be started."""
    try:
        subprocess.run(words, env=program_environment(), check=False)
    except OSError as error:
        raise UsageError(
            f"cannot run {words[0]}: {error.strerror}", hint="set $VISUAL or $EDITOR"
        ) from error


async def edit_text(text: str, run: Callable[[Sequence[str]], Awaitable[None]]) -> str | None:
    """Let the user edit the text. `run` gives the terminal to the editor; running work goes on
    meanwhile. Return None if no editor could be started.
    """
    words = editor_command()
    if words is None:
        return None
    with temp_dirs.temp_dir("editing") as folder:
        path = folder / "request.md"
        path.write_text(text, encoding="utf-8", errors="replace")
        try:
            await run([*words, str(path)])
        except UsageError:
            return None
        return path.read_text(encoding="utf-8", errors="replace").rstrip("\n")
