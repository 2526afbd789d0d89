"""The working tree: where tools work, how it was before, and which files an agent has read.

Every tool gets one, with its arguments, and nothing else. Inside a git repository the whole tree
can be snapshotted and restored; outside one, the files fugu's own tools changed can. A file that
was not read, or was changed since, is not overwritten whole; a place in it that an agent quotes may
be changed. Knows no log and no permission: paths were judged before a tool runs.
"""

from __future__ import annotations

import copy
import hashlib
import os
import traceback
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from pydantic import BaseModel, JsonValue

from fugu_cli.errors import FuguError
from fugu_cli.messages import Call, Value
from fugu_cli.safety import paths
from fugu_cli.safety.paths import path_exists
from fugu_cli.safety.programs import use_repositories
from fugu_cli.safety.sandbox.command_sandbox import Sandbox
from fugu_cli.session.call_arguments import MalformedArguments, arguments_of
from fugu_cli.session.events import (
    NO_EFFECTS,
    FileChange,
    FileEffects,
    Recorded,
    ToolRan,
    Undone,
    net_changes,
)
from fugu_cli.session.tool_facts import READ, WRITE, ToolFacts, facts_of
from fugu_cli.snapshots.file_history import FileHistory, Restored
from fugu_cli.system.atomic_files import write_atomically
from fugu_cli.system.resolved_files import read_resolved, resolved_folder
from fugu_cli.tools import result as tools_result
from fugu_cli.tools.result import Say, ToolResult
from fugu_cli.tools.shell_commands import Jobs

Arguments = TypeVar("Arguments", bound=BaseModel)


class RawArguments(Value):
    """Arguments that are passed on unparsed, because only an MCP server knows what they mean."""

    values: dict[str, JsonValue]


@dataclass(frozen=True)
class ForeignSpec:
    """The description of a tool that is not fugu's own (MCP), for agents. `schema`: of its
    arguments, as JSON text. Agents see a `deferred` one once find_tools has found it."""

    description: str
    schema: str
    deferred: bool = False


@dataclass(frozen=True, kw_only=True)
class Tool(ToolFacts, Generic[Arguments]):
    """A tool: the facts about it, the type of its arguments and the function that does its work.

    `run` returns a ToolResult for every failure of the world (no such file, a command that fails).
    It may raise StorageError, and is cancelled when the user interrupts: then it ends what it
    started. Any other exception becomes a failed result (`run_tool`). A `foreign` tool takes
    RawArguments. `plan` works out what the call would do, and changes nothing; a ToolResult is what
    it would answer where it cannot succeed.
    """

    arguments: type[Arguments]
    run: Callable[[Arguments, Workspace, Say], Awaitable[ToolResult]]
    foreign: ForeignSpec | None = None
    plan: Callable[[Arguments, Workspace], object] | None = None

    @classmethod
    def of(
        cls,
        facts: ToolFacts,
        arguments: type[Arguments],
        run: Callable[[Arguments, Workspace, Say], Awaitable[ToolResult]],
        plan: Callable[[Arguments, Workspace], object] | None = None,
    ) -> Tool[Arguments]:
        """Return the tool with these facts."""
        return cls(**vars(facts), arguments=arguments, run=run, plan=plan)

    @property
    def facts(self) -> ToolFacts:
        """The facts about the tool, without its implementation."""
        return ToolFacts(**{field.name: getattr(self, field.name) for field in fields(ToolFacts)})


AskUser = Callable[[Call], Awaitable[str | None]]
"""Asks the user what a call of ask_user holds. Returns the answer, "" where the user gives none,
None where nobody can be asked.
"""
CHANGED_SINCE_READ = "was changed since it was read"


class ReadTracker:
    """The content of each file that the agent has read or written, as digests by resolved path."""

    def __init__(self) -> None:
        self._digests: dict[Path, bytes] = {}

    def note(self, path: Path, data: bytes) -> None:
        """Note that the agent knows the content `data` of `path`."""
        self._digests[path] = _digest(data)

    def note_file(self, path: Path) -> None:
        """Note that the agent knows a part of the present content of `path`. For files that are too
        large to be kept in memory.
        """
        with path.open("rb") as file:
            self._digests[path] = hashlib.file_digest(file, "sha256").digest()

    def recall(self, path: Path, at: float) -> None:
        """Note that the agent saw or wrote `path` at `at` (epoch seconds), in an earlier process.

        Ignored if the file was written since.
        """
        if path_exists(path) and path.is_file() and path.stat().st_mtime <= at:
            self.note_file(path)

    def refresh(self, path: Path) -> None:
        """Note the present content of a known file after fugu itself changed it."""
        if path in self._digests:
            if path.is_file():
                self._digests[path] = _digest(path.read_bytes())
            else:
                del self._digests[path]

    def knows(self, path: Path) -> bool:
        """Return whether `path` was read or written in this process."""
        return path in self._digests

    def has_changed(self, path: Path, data: bytes) -> bool:
        """Return whether `path`, which now holds `data`, has changed since it was last seen."""
        return self.knows(path) and self._digests[path] != _digest(data)


@dataclass(frozen=True)
class FileWriter:
    """The author and the content of a file that one of fugu's tools wrote. `agent` is "" if its
    name is not known.
    """

    digest: bytes
    agent: str


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


MOVED = (
    "{path} leads to another place now than when the call was judged. Make the call again, and it is "
    "judged as it is now."
)
CHARACTERS_PER_TOKEN = 3
"""Fewer than any tokenizer makes of code."""
SHORTEST_OUTPUT = 2000
"""Characters of a result that even the smallest window is shown."""
TRACEBACK_LIMIT = 6000
"""Characters of a traceback that are recorded."""


async def run_tool(
    tool: Tool[Arguments], arguments: Arguments, workspace: Workspace, say: Say
) -> ToolResult:
    """Run a tool. An exception that it does not handle becomes a failed result with the traceback.
    Raises FuguError, and whatever `say` raises, because neither is a fault of the tool.
    """
    error_of_listener: Exception | None = None

    def say_and_note_error(text: str) -> None:
        nonlocal error_of_listener
        try:
            say(text)
        except Exception as error:  # whatever it is, it is no fault of the tool
            error_of_listener = error
            raise

    try:
        return await tool.run(arguments, workspace, say_and_note_error)
    except FuguError:
        raise
    except Exception as error:  # noqa: BLE001 - one broken tool must not end the session
        if error_of_listener is not None:
            raise error_of_listener from None
        text = (
            f"{tool.name} failed with an error inside of the tool ({type(error).__name__}: "
            f"{tools_result.truncate(str(error), 500)}). The call may have had effects before that. "
            f"Do not repeat it unchanged: use other arguments, or another tool."
        )
        lines = "".join(traceback.format_exception(error))
        return ToolResult(
            text=text, ok=False, traceback=tools_result.truncate(lines, TRACEBACK_LIMIT)
        )


class ObservedResult(NamedTuple):
    """A tool's result, the changes to files while it ran, and the paths that fugu's own tools
    wrote.
    """

    result: ToolResult
    effects: FileEffects = NO_EFFECTS
    written: frozenset[str] = frozenset()


class Workspace:
    """The folder `root` with its `store` (a folder of fugu's own, outside the repository) and its
    test command.

    `sandbox` confines the commands that are run in it; without one they are not confined.
    """

    def __init__(
        self,
        root: Path,
        store: Path,
        *,
        test_command: str | None = None,
        test_timeout: float = 300.0,
        sandbox: Sandbox | None = None,
    ) -> None:
        self.root = Path(os.path.realpath(root))
        use_repositories(self, self.root)
        self.store = store
        self.test_command = test_command
        self.test_timeout = test_timeout
        self.sandbox = sandbox
        self.seen = ReadTracker()
        self.history = FileHistory(self.root, store)
        self._written: list[FileChange] = []
        self._agent = ""
        self._writers: dict[Path, FileWriter] = {}
        """By resolved path; one for all agents that work at the same time."""
        self.jobs = Jobs()
        self.window: int | None = None
        """The context of the agent whose call runs, in tokens; None if no agent made the call."""
        self.reads_only = False
        """True if commands must not write the repository, as far as the sandbox prevents it."""
        self.judged_paths: frozenset[Path] | None = None
        """The resolved paths that policy judged for the running call; None if no call runs."""
        self.ask_user: AskUser | None = None
        """Asks the user the question of a call of ask_user; None if nobody can be asked."""
        self.copies: Mapping[str, Workspace] = {}
        """The copies whose changes an agent chooses among, by the names of their steps."""
        self.mask: Callable[[str], str] = str
        """Masks secrets in the diffs that are shown or written to files."""
        self.unread: Callable[[Path, Path], bool] | None = None
        """Returns whether a search must leave out a file (resolved) of a working tree (its root)."""

    def apart(self, agent: str) -> Workspace:
        """Return the same folder for an agent that works at the same time as others, and has not
        seen the files that those have seen.
        """
        workspace = copy.copy(self)
        workspace.seen = ReadTracker()
        workspace._written = []
        workspace._agent = agent
        return workspace

    def quoting_refusal(self, path: Path, data: bytes, name: str) -> str:
        """Return why `path` must not be changed by quoting a part of it; "" if it may. If a rule
        forbids to read the file, the answer to a wrong quote would show lines of it.
        """
        if self.unread is None or not self.unread(path, self.root):
            return ""
        return self.overwriting_refusal(path, data, name)

    def overwriting_refusal(self, path: Path, data: bytes, name: str) -> str:
        """Return why `path`, which now holds `data`, must not be overwritten whole; "" if it may.
        `name` is the agent's name for it.
        """
        if not self.seen.knows(path):
            return (
                f"{name} exists and its present content was not read yet. Read it first, then "
                "change it."
            )
        changed = self.change_since_read(path, data, name)
        return f"{changed} Read it again, then change it." if changed else ""

    def change_since_read(self, path: Path, data: bytes, name: str) -> str:
        """Return a sentence on who changed `path`, which now holds `data`, since it was read; "" if
        nobody did.
        """
        if not self.seen.has_changed(path, data):
            return ""
        writer = self._writers.get(path)
        author = "a command, or somebody outside of fugu"
        if writer is not None and writer.digest == _digest(data):
            if writer.agent == self._agent:  # it changed a part since, without reading the rest
                author = "an agent, a command, or somebody outside of fugu"
            else:
                author = f"the agent `{writer.agent}`" if writer.agent else "another agent"
        return f"{name} {CHANGED_SINCE_READ}, by {author}."

    @property
    def in_git(self) -> bool:
        """True if snapshots can be taken."""
        return self.history.snapshots is not None

    async def patch(
        self, a: str, b: str, *, whole: bool = False, context: int = 3, only: Sequence[str] = ()
    ) -> bytes:
        """Return the changes from snapshot `a` to `b` as a unified diff without secrets.

        `only` are pathspecs. If `whole`, the diff is byte for byte as `git apply` needs it.
        """
        patch = await self.history.patch(a, b, whole=whole, context=context, only=only)
        return self.shown(patch)

    def shown(self, diff: bytes) -> bytes:
        """Mask secrets in a diff."""
        return self.mask(diff.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")

    def whole_secrets(self, text: str, limit: int = tools_result.OUTPUT_LIMIT) -> str:
        """Mask secrets in a text that will be cut to `limit` characters.

        A secret that the cut splits would not be recognised afterwards. Use `truncate` for the cut:
        it splits no mark.
        """
        return text if len(text) <= limit else self.mask(text)

    async def observe(
        self, tool: Tool[Arguments], arguments: Arguments, say: Say, before: str | None = None
    ) -> ObservedResult:
        """Run a tool, and return its result with its changes to files. Ignored files are included
        only if fugu itself wrote them. For a tool that writes, changes that somebody else made
        meanwhile are left out. `before` is a snapshot that was already taken for this call.
        """
        if tool.effect == "reads":
            return ObservedResult(await run_tool(tool, arguments, self, say))
        self._written.clear()
        before = before or await self.history.snapshot()
        not_checked_out = self.history.not_checked_out
        result = await run_tool(tool, arguments, self, say)
        observed = await self.history.since(before) if before else NO_EFFECTS
        written = net_changes(self._written)
        if tool.effect == "writes":
            observed = _effects_on(observed, frozenset(written))
        in_snapshots = {change.path for change in observed.changes}
        outside_snapshots = [
            change.model_copy(update={"beside": True})
            for change in written.values()
            if change.path not in in_snapshots
        ]
        kept_paths = {change.path for change in outside_snapshots}
        attributes = tuple(
            attribute
            for attribute in observed.attributes
            if not (attribute.large and attribute.path in kept_paths)
        )
        changes = []
        for change in observed.changes:
            is_new = change.before is None
            if is_new and paths.unquoted_path(change.path) in not_checked_out:
                change = change.model_copy(update={"sparse": True})
            changes.append(change)
        effects = FileEffects((*changes, *outside_snapshots), attributes)
        return ObservedResult(result, effects, frozenset(written))

    def for_call(self, window: int | None, judged_paths: frozenset[Path] | None) -> Workspace:
        """Return the same folder for a call of an agent that reads `window` tokens at most."""
        copied = copy.copy(self)
        copied.window, copied.judged_paths = window, judged_paths
        return copied

    def output_limit(self, most: int) -> int:
        """Return how many characters of a result the agent is shown: at most `most`, and at most an
        eighth of its context.
        """
        if self.window is None:
            return most
        return min(most, max(self.window * CHARACTERS_PER_TOKEN // 8, SHORTEST_OUTPUT))

    @property
    def sandbox_holds(self) -> bool:
        """True if the sandbox keeps commands from the network and from writing outside the
        repository, in git's folder, or in files that other programs run.
        """
        return self.sandbox is not None and self.sandbox.holds

    def read_only(self) -> Workspace:
        """Return the workspace for a command that only reads: it cannot write the repository."""
        copied = copy.copy(self)
        copied.reads_only = True
        return copied

    async def take_back(self, made: FileEffects) -> Restored:
        """Take changes back like `FileHistory.take_back`. Known files stay known."""
        restored = await self.history.take_back(made)
        for path in restored.paths:
            self.seen.refresh(Path(os.path.realpath(self.root / paths.unquoted_path(path))))
        return restored

    def write(self, path: Path, data: bytes, mode: int | None = None) -> None:
        """Write a whole file as fugu. A file that the agent knew stays known. `path` is resolved;
        `mode` as in `write_atomically`. Raises StorageError, OSError.
        """
        with resolved_folder(path.parent, make=True) as folder:
            old = read_resolved(path) if path.is_file() else None
            before = self.history.keep(old) if old is not None else None
            if self.sandbox is not None:
                self.sandbox.expect(path)
            write_atomically(path, data, mode, folder)
        # a place changed by quoting it does not show what else is in the file
        if old is None or (self.seen.knows(path) and not self.seen.has_changed(path, old)):
            self.seen.note(path, data)
        self._writers[path] = FileWriter(_digest(data), self._agent)
        self._written.append(
            FileChange(path=_named(path, self.root), before=before, after=self.history.keep(data))
        )

    def remove(self, path: Path) -> None:
        """Delete a file, kept in the store. `path` is resolved. Raises StorageError, OSError."""
        before = self.history.keep(read_resolved(path))
        with resolved_folder(path.parent) as folder:
            bits = (folder / path.name).lstat().st_mode & 0o7777
            (folder / path.name).unlink()
        self._written.append(
            FileChange(path=_named(path, self.root), before=before, after=None, permissions=bits)
        )


def _effects_on(effects: FileEffects, written: frozenset[str]) -> FileEffects:
    """Return the effects on the written paths and on the folders above them."""
    above = {
        parent.as_posix() for path in written for parent in Path(paths.unquoted_path(path)).parents
    }
    return FileEffects(
        tuple(change for change in effects.changes if change.path in written),
        tuple(
            attribute
            for attribute in effects.attributes
            if attribute.path in written
            or (not attribute.nested and paths.unquoted_path(attribute.path) in above)
        ),
    )


def resolve_path(workspace: Workspace, text: str) -> Path | ToolResult:
    """Resolve a path that an agent wrote, or return a ToolResult that says why it cannot be used.

    A path outside the repository is allowed here: policy was asked before the tool ran, about the
    place to which it led then.
    """
    path = paths.locate(text, workspace.root)
    if not isinstance(path, Path):
        return ToolResult(text=f"`{text}` is not a path: {path.text}.", ok=False)
    if workspace.judged_paths is not None and path not in workspace.judged_paths:
        return ToolResult(text=MOVED.format(path=text), ok=False)
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return path
    # in a folder that may not be looked into, a name too long for any file, a link to itself
    except OSError as error:
        return ToolResult(
            text=f"{tools_result.truncate(text, 300)} cannot be used: {error.strerror}.", ok=False
        )
    return path


@dataclass(frozen=True)
class _SeenFile:
    """A file that an agent saw whole at `at` (epoch seconds). `blob` is its content then, "" if
    unknown.
    """

    at: float
    blob: str = ""


def recall_reads(workspace: Workspace, records: Iterable[Recorded]) -> None:
    """Note which files the agents of a resumed session have seen: those that they read or wrote
    whole and that nobody changed since.

    An edit does not show the rest of its file: the file counts as seen only if it did before and
    the log shows no change by others in between. Files that fugu restored count if they had been
    seen before (`ReadTracker.refresh`).
    """
    seen_files: dict[Path, _SeenFile] = {}
    for record in records:
        event = record.event
        if isinstance(event, Undone):
            put_back = {_real_path(workspace, name) for name in event.paths}
            seen_files |= dict.fromkeys(seen_files.keys() & put_back, _SeenFile(record.at))
        elif isinstance(event, ToolRan):
            arguments = arguments_of(event.call)
            name = "" if isinstance(arguments, MalformedArguments) else arguments.get("path")
            if event.ok and event.call.tool == READ.name and isinstance(name, str):
                seen_files[_real_path(workspace, name)] = _SeenFile(record.at)
            _recall_changes(workspace, record.at, event, seen_files)
    for path, seen_file in seen_files.items():
        workspace.seen.recall(path, seen_file.at)


def _recall_changes(
    workspace: Workspace, at: float, event: ToolRan, seen_files: dict[Path, _SeenFile]
) -> None:
    """Update `seen_files` for the changes that a call made at `at`."""
    for change in event.changes:
        path = _real_path(workspace, change.path)
        seen_file = seen_files.pop(path, None)
        if change.after is None or not facts_of(event.call.tool).writes_files:
            continue
        is_whole = event.call.tool == WRITE.name or change.before is None
        was_seen = seen_file is not None and seen_file.blob == change.before
        if is_whole or was_seen:
            seen_files[path] = _SeenFile(at, change.after)


def _real_path(workspace: Workspace, name: str) -> Path:
    path = paths.locate(name, workspace.root)
    return path if isinstance(path, Path) else workspace.root


def _named(path: Path, root: Path) -> str:
    if paths.inside(path, root):
        return paths.quoted_path(path.relative_to(root).as_posix())
    return paths.quoted_path(str(path))
