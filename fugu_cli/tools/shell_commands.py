"""Shell commands: run to their end or to a time limit, or as background jobs. Output is streamed,
nothing is left behind.

Below bash, run_tests, hooks and job_tools. A command gets a session of its own, no input but what
it is given, no terminal and no pager. Whatever it leaves running is ended
(safety/process_cleanup.py), be it finished, late or cancelled. A `Jobs` belongs to a session's
workspace and is shared with its worktrees; jobs end with this process. Knows no log: the end of a
job is reported to the callback given to `attach`.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import errno
import os
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from fugu_cli.errors import StorageError
from fugu_cli.safety.git_process import LOCAL_VARIABLES, settings_variables
from fugu_cli.safety.paths import GIT_MARKS
from fugu_cli.safety.programs import (
    find_program,
    users_variables,
    without_libraries_inside,
)
from fugu_cli.safety.sandbox.command_sandbox import Launch, Sandbox
from fugu_cli.session.events import JobEnded
from fugu_cli.session.open_work import describe_end
from fugu_cli.session.state import SessionState
from fugu_cli.tools.result import Say, plain_text

if TYPE_CHECKING:
    from fugu_cli.safety.sandbox.command_limits import CommandLimits

KEPT = 400_000
"""Characters kept of each end of the output."""
STREAMED = 200_000
"""Characters streamed live; a command that never stops talking is not followed further."""
WORD = 500
"""Characters of the longest word that waits to be finished."""
LINGER = 0.3
"""Seconds the output is still read after the command itself has ended while others hold it open."""
QUIET = {
    "GIT_OPTIONAL_LOCKS": "0",  # `git status` writes no index on the way
    "CI": "1",
    "TERM": "dumb",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_EDITOR": "true",
    "EDITOR": "true",
    "DEBIAN_FRONTEND": "noninteractive",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONUNBUFFERED": "1",
    "NO_COLOR": "1",
}
"""No prompts, no pagers, no colours; and no .pyc files, which go stale when a file changes twice
within a second.
"""
SHELL = ("CDPATH", "GLOBIGNORE", "SHELLOPTS", "BASHOPTS", "OLDPWD")
"""They would have a shell read a command otherwise than policy did; `cd -` would lead to where the
user was before.
"""
DROPPED = frozenset(
    {*LOCAL_VARIABLES, *SHELL, "FORCE_COLOR", "PYTEST_CURRENT_TEST", "PYTEST_ADDOPTS"}
)


REFUSED = (os.strerror(errno.EROFS), os.strerror(errno.EACCES), "insufficient permission")
"""Words of git and other programs that could not write."""
SEALED = (
    "`.git` could only be read here, for git writes it only in a command line without other "
    "programs that run code. "
    "Run the git commands in a line of their own, without other settings or variables for git"
)
"""The note for an agent whose command may have tried to let git write beside other programs."""


@dataclass(frozen=True)
class CommandResult:
    """The end of a command. `code` is None after a timeout.

    `left` counts processes that were still running. `whole`: no output was dropped, else
    `dropped_lines` is the number of its lines that were. `restored` are sentences about files that
    were put back or moved away.
    """

    output: str
    code: int | None
    seconds: float
    left: int = 0
    whole: bool = True
    dropped_lines: int = 0
    restored: tuple[str, ...] = ()


class CommandOutput:
    """Collects a command's output and drops the middle if it is too long. `say` is given each piece
    as it comes.
    """

    def __init__(self, say: Say) -> None:
        self._say = say
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._head = ""
        self._tail = ""
        self._dropped = 0
        self._dropped_line_ends = 0
        self._streamed = 0

    def take(self, data: bytes, *, final: bool = False) -> None:
        text = self._decoder.decode(data, final)
        if self._streamed < STREAMED and text:
            self._say(text)
            self._streamed += len(text)
        missing = KEPT - len(self._head)
        self._head += text[:missing]
        self._tail += text[missing:]
        if len(self._tail) > 2 * KEPT:
            self._dropped += len(self._tail) - KEPT
            self._dropped_line_ends += self._tail.count("\n", 0, len(self._tail) - KEPT)
            self._tail = self._tail[-KEPT:]

    @property
    def whole(self) -> bool:
        """True if no output was dropped."""
        return not self._dropped

    @property
    def dropped_lines(self) -> int:
        """The number of printed lines that `text` leaves out."""
        line_ends_of_note = 2
        return max(self._dropped_line_ends - line_ends_of_note, 0)

    @property
    def text(self) -> str:
        dropped = f"\n[... {self._dropped:,} characters left out ...]\n" if self._dropped else ""
        return plain_text(self._head + dropped + self._tail)

    def take_new(self, *, over: bool = True) -> str:
        """Return and forget the output since the last call. Until the command is `over`, the last
        word of an unfinished line is held back, because it may be half of a secret.
        """
        text = self.text
        last_word = ""
        if not over and not text[-1:].isspace():
            last_word = "".join(text[-WORD:].split()[-1:])
        self._head, self._tail, self._dropped = last_word, "", 0
        return text.removesuffix(last_word)

    def add_closing_notes(self, running: RunningCommand) -> None:
        """Add the notes at the end of a command: restored files, and why git could not write."""
        self.take(b"", final=True)
        if (
            running.launch is not None
            and running.launch.git_sealed
            and _could_not_write_git(self.text)
        ):
            self.take(f"\n[{SEALED}]".encode())
        if running.launch is not None and running.process.returncode:
            sentence = running.launch.sealed_file_note(self.text)
            self.take(f"\n[{sentence}]".encode() if sentence else b"")
        for sentence in running.restored:
            self.take(f"\n[{sentence}]".encode())
        if running.exceeded:
            self.take(f"\n[{running.exceeded}]".encode())


@dataclass(frozen=True)
class CommandContext:
    """The environment of a command: variables (None removes one), sandbox, standard input.

    `through` transforms each piece of output. `errors` gets standard error; None: it goes where the
    output goes.
    """

    variables: Mapping[str, str | None] = field(default_factory=dict)
    sandbox: Sandbox | None = None
    stdin: bytes = b""
    through: Callable[[bytes], bytes] = bytes
    errors: Callable[[bytes], None] | None = None
    limits: CommandLimits | None = None
    """None: those of this machine, or what the sandbox's settings say."""
    reads_only: bool = False
    """It cannot write the repository, where the sandbox holds."""


@dataclass
class RunningCommand:
    """A running command. `silent` is set when no process holds its output any more. After its end
    `left` is the number of processes that it left running, and `restored` are sentences on files
    that it was not allowed to change.
    """

    process: asyncio.subprocess.Process
    silent: asyncio.Event
    left: int = 0
    restored: tuple[str, ...] = ()
    launch: Launch | None = None
    """The confinement of the command, None if there was none."""
    exceeded: str = ""
    """The limit that ended it, as a sentence."""

    async def wait(self) -> None:
        """Wait until it has ended and its output is complete."""
        await self.process.wait()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.silent.wait(), LINGER)


@contextlib.asynccontextmanager
async def start_command(
    command: str, folder: Path, take: Callable[[bytes], None], context: CommandContext
) -> AsyncIterator[RunningCommand]:
    """Run `command` with bash (or sh) in `folder`. When the block is left, also by a cancellation,
    all its processes are ended. Raises OSError if it cannot be started, and UsageError if the
    sandbox that was asked for does not work.
    """
    # not in runs without a command
    from fugu_cli.safety.process_cleanup import StandardStreams, start_process
    from fugu_cli.safety.sandbox.command_limits import default_limits, exceeded_text

    call_id = uuid.uuid4().hex
    launch = None
    if context.sandbox is not None:
        launch = await asyncio.to_thread(
            context.sandbox.launch, command, read_only=context.reads_only
        )
    environment = _environment(call_id, folder, context, launch)
    with contextlib.ExitStack() as stack:
        stdin = stack.enter_context(_open_stdin(context.stdin))
        output = stack.enter_context(contextlib.closing(_Pipe(take)))
        errors = None
        if context.errors is not None:
            errors = stack.enter_context(contextlib.closing(_Pipe(context.errors)))
        streams = StandardStreams(
            stdin, output.write_end, errors.write_end if errors is not None else None
        )
        memory = launch.settings.memory if launch is not None else None
        limits = context.limits or default_limits(folder, memory)
        shell = find_program("bash", folder) or "/bin/sh"
        process = await start_process(
            [shell, "-c", command], folder, environment, streams, launch, limits
        )
        output.close_write_end()
        if errors is not None:
            errors.close_write_end()
        running = RunningCommand(process.process, output.closed, launch=launch)
        try:
            yield running
        finally:
            try:
                running.left = await process.end(call_id)
                running.exceeded = exceeded_text(process.exceeded, limits)
            finally:
                running.restored = launch.guard.restore() if launch is not None else ()
        await process.process.wait()


_slots: ContextVar[asyncio.Semaphore | None] = ContextVar("slots", default=None)


@contextlib.contextmanager
def command_slots(slots: asyncio.Semaphore) -> Iterator[None]:
    """Make each command of `run_command` wait for one of `slots`, in all tasks begun in the block.
    Otherwise commands that share a machine with many others would exceed their time limits.
    """
    token = _slots.set(slots)
    try:
        yield
    finally:
        _slots.reset(token)


async def run_command(
    command: str, folder: Path, seconds: float, say: Say, context: CommandContext = CommandContext()
) -> CommandResult:
    """Run `command` in `folder` for at most `seconds`, counted from when a slot is free
    (`command_slots`). Raises the errors of `start_command`.
    """
    output = CommandOutput(say)
    timed_out = False

    def add_output(data: bytes) -> None:
        output.take(context.through(data))

    async with _slots.get() or contextlib.nullcontext():
        start = time.monotonic()
        async with start_command(command, folder, add_output, context) as running:
            try:
                async with asyncio.timeout(seconds):
                    await running.wait()
            except TimeoutError:
                timed_out = True
        taken = time.monotonic() - start
    output.add_closing_notes(running)
    return CommandResult(
        output.text,
        code=None if timed_out else running.process.returncode,
        seconds=taken,
        left=0 if timed_out else running.left,
        whole=output.whole,
        dropped_lines=output.dropped_lines,
        restored=running.restored,
    )


def _could_not_write_git(output: str) -> bool:
    """Return whether git seems to have failed because it could not write its folder."""
    return ".git" in output and any(words in output for words in REFUSED)


@contextlib.contextmanager
def _open_stdin(data: bytes) -> Iterator[int]:
    """Yield a descriptor for reading `data`. It is an unnamed file, so that no task has to write
    into a pipe.
    """
    if not data:
        yield asyncio.subprocess.DEVNULL
        return
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.seek(0)
        yield file.fileno()


class _Pipe:
    """A pipe whose data is given to `take` as it arrives; `closed` is set when no process holds its
    other end any more. asyncio's own pipes are not used: with them, waiting for a process would
    also wait for all that inherited its output.
    """

    def __init__(self, take: Callable[[bytes], None]) -> None:
        self._take = take
        self._read_end, self.write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        self.closed = asyncio.Event()
        asyncio.get_running_loop().add_reader(self._read_end, self._fill)

    def _fill(self) -> bool:
        try:
            data = os.read(self._read_end, 65536)
        except BlockingIOError:
            return False
        if data:
            self._take(data)
            return True
        asyncio.get_running_loop().remove_reader(self._read_end)
        self.closed.set()
        return False

    def close_write_end(self) -> None:
        """Close our copy of the command's end."""
        os.close(self.write_end)
        self.write_end = -1

    def close(self) -> None:
        """Read what is still in the pipe and close it."""
        for _ in range(64):
            if self.closed.is_set() or not self._fill():
                break
        asyncio.get_running_loop().remove_reader(self._read_end)
        os.close(self._read_end)
        if self.write_end >= 0:
            os.close(self.write_end)


def _environment(
    call_id: str, folder: Path, context: CommandContext, launch: Launch | None
) -> dict[str, str]:
    from fugu_cli.safety.process_cleanup import CALL_VARIABLE

    environment = users_variables()
    if launch is None or launch.access is None or launch.writes_git:
        # even a command that only reads, which runs unasked, would load them
        environment = without_libraries_inside(environment, folder)
    inherited = {name: value for name, value in environment.items() if name not in DROPPED}
    sandboxed = launch.variables() if launch is not None else {}
    variables = {
        **inherited,
        **QUIET,
        **_no_bare_repository(folder),
        **sandboxed,
        **context.variables,
        CALL_VARIABLE: call_id,
    }
    return {name: value for name, value in variables.items() if value is not None}


def _no_bare_repository(folder: Path) -> dict[str, str]:
    """Return variables that keep git from taking the folder for a bare repository, whose settings
    could run anything.
    """
    if all((folder / name).exists() for name in GIT_MARKS):
        return {}
    return settings_variables("-c", "safe.bareRepository=explicit")


MOST_JOBS = 8
"""Jobs that may run at once."""
KEPT_JOBS = 16
"""Jobs that are over whose output is still kept."""
TAIL = 300
"""Characters of a job's newest output that people are shown."""
JobEnder = Literal["itself", "agent", "user", "undo", "session"]


class TooManyJobs(Exception):
    """Raised when the limit of running jobs is reached. The agent gets the message as a result."""


@dataclass
class BackgroundJob:
    """A background job of this process: its new output since it was last asked for, and its end."""

    name: str
    command: str
    folder: Path
    output: CommandOutput = field(default_factory=lambda: CommandOutput(_ignore_output))
    began: float = field(default_factory=time.monotonic)
    tail: str = ""
    end: JobEnded | None = None
    by: JobEnder = "session"
    """The party that ends the job when its task is cancelled. asyncio cancels every task at exit.
    """

    def take(self, data: bytes) -> None:
        """Add output."""
        self.output.take(data)
        self.tail = (self.tail + data.decode("utf-8", "replace"))[-TAIL:]

    def record_end(self, running: RunningCommand) -> JobEnded:
        """Record the end of its command."""
        self.output.add_closing_notes(running)
        code = running.process.returncode if self.by == "itself" else None
        self.end = JobEnded(
            job=self.name, command=self.command, by=self.by, code=code, seconds=self.seconds
        )
        return self.end

    @property
    def seconds(self) -> float:
        """The duration in seconds."""
        return self.end.seconds if self.end is not None else round(time.monotonic() - self.began, 3)


class Jobs:
    """The background jobs of a session: those of this process, and the names of those of earlier
    processes.
    """

    def __init__(self) -> None:
        self._jobs: dict[str, BackgroundJob] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._gone: dict[str, JobEnded | None] = {}
        self._notify: Callable[[JobEnded], object] = _ignore_end

    def attach(self, state: SessionState, notify: Callable[[JobEnded], object]) -> None:
        """Continue a session: names of its jobs are not given again. `notify` is called at the end
        of every job; it may raise StorageError.
        """
        self._gone = {job.name: job.end for job in state.jobs.values()}
        self._notify = notify

    def find(self, name: str) -> BackgroundJob | None:
        """Return a job whose output is kept."""
        return self._jobs.get(name)

    def gone(self, name: str) -> str | None:
        """Describe the end of a job whose output is no longer kept; None if there was no job of
        that name.
        """
        if name not in self._gone:
            return None
        end = self._gone[name]
        return describe_end(end) if end is not None else "ended with the session"

    @property
    def running(self) -> tuple[BackgroundJob, ...]:
        """The running jobs, the oldest first."""
        return tuple(job for job in self._jobs.values() if job.end is None)

    @property
    def names(self) -> tuple[str, ...]:
        """All job names."""
        return (*self._gone, *self._jobs)

    async def start(self, command: str, folder: Path, context: CommandContext) -> BackgroundJob:
        """Start a job. Raises TooManyJobs, and the errors of `start_command`."""
        if len(self.running) >= MOST_JOBS:
            names = ", ".join(job.name for job in self.running)
            raise TooManyJobs(
                f"{MOST_JOBS} jobs are running already ({names}). End one with job_stop first."
            )
        ended = [job for job in self._jobs.values() if job.end is not None]
        for job in ended[:-KEPT_JOBS]:
            self._gone[job.name] = job.end
            del self._jobs[job.name], self._tasks[job.name]
        job = BackgroundJob(f"job{len(self.names) + 1}", command, folder)
        started = asyncio.Event()
        self._jobs[job.name] = job
        task = self._tasks[job.name] = asyncio.create_task(self._run(job, context, started))
        start_waiter = asyncio.create_task(started.wait())
        try:
            await asyncio.wait((task, start_waiter), return_when=asyncio.FIRST_COMPLETED)
            if not started.is_set():
                task.result()
        except BaseException:  # a cancellation too: the command must not run on without a name
            task.cancel()
            del self._jobs[job.name], self._tasks[job.name]
            await asyncio.wait((task,))
            raise
        finally:
            start_waiter.cancel()
        return job

    async def _run(
        self, job: BackgroundJob, context: CommandContext, started: asyncio.Event
    ) -> None:
        """Run a job from start to end."""
        running: RunningCommand | None = None
        try:
            async with start_command(job.command, job.folder, job.take, context) as running:
                started.set()
                await running.process.wait()
                job.by = "itself"
                await running.wait()
        except OSError as error:
            if running is None:
                raise
            job.take(f"\n[{error}]".encode())
        finally:
            if running is not None:
                end = job.record_end(running)
                # the disk is full: whoever writes next says so
                with contextlib.suppress(StorageError):
                    self._notify(end)

    async def wait(self, job: BackgroundJob, seconds: float) -> None:
        """Wait until the job has ended, at most `seconds`. Its output so far is read in either
        case.
        """
        await asyncio.sleep(0)
        if seconds and job.end is None:
            await asyncio.wait((self._tasks[job.name],), timeout=seconds)

    async def stop(self, names: Collection[str], by: JobEnder) -> tuple[str, ...]:
        """End jobs with all processes that they started, and return the names of those that were
        running.
        """
        jobs = [job for job in self.running if job.name in names]
        for job in jobs:
            job.by = by
            self._tasks[job.name].cancel()
        if jobs:
            await asyncio.wait([self._tasks[job.name] for job in jobs])
        return tuple(job.name for job in jobs)

    async def close(self, below: Path | None = None) -> None:
        """End all jobs, or those that run `below` a folder that is about to be removed."""
        names = [
            job.name for job in self.running if below is None or job.folder.is_relative_to(below)
        ]
        await self.stop(names, "session")


def _ignore_output(text: str) -> None:
    """Ignore the output: nobody follows a job."""


def _ignore_end(end: JobEnded) -> None:
    """Ignore the end."""
