"""list, glob and grep: what is where. glob and grep are ripgrep, so files that git ignores are not
found.

Three tools that only read. Files that hold secrets are searched only when a path names them.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import re
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field

from fugu_cli.safety.paths import SECRET_FOLDERS, is_secret, quoted_path
from fugu_cli.safety.policy import rule_matching
from fugu_cli.safety.programs import find_program, program_environment
from fugu_cli.session import tool_facts
from fugu_cli.snapshots import repository_files
from fugu_cli.system.processes import reap
from fugu_cli.system.resolved_files import open_resolved, resolved_folder
from fugu_cli.tools.read_write import ToolArguments
from fugu_cli.tools.result import Say, ToolResult, cut_between_marks, truncate, truncate_line
from fugu_cli.tools.workspace import Tool, Workspace, resolve_path

MOST = 200
"""Entries or matches shown."""
SECONDS = 60
COLUMNS, TAKEN = 300, 2000
"""Characters of a line that are shown; of ripgrep more are taken, so that no secret is cut before
it is masked.
"""
_FOUND = re.compile(
    rb"(?P<aside>--|[^\0\n]*: binary file matches[^\0\n]*)\n|(?P<path>[^\0]+)\0(?P<text>[^\n]*)\n?"
)
"""A line of ripgrep's: what stands between two groups or for a binary file, or a file's path, which
may hold line breaks, and what stands in the file."""
_PASSED_OVER = re.compile(
    rb"rg: (?P<path>.+?)(?:: IO error for operation on .+)?: [^:]+ \(os error \d+\)"
)
"""Matches ripgrep's message about a file or folder that it could not read."""
_NUMBER = re.compile(r"(?P<line>\d+)(?:(?P<match>:)(?P<column>\d+):|-)")
"""A matching line's number and the byte at which the match begins, from 1; or the number of a line
beside one.
"""
AROUND = 100
"""Bytes shown before a match that begins beyond what is shown of a long line."""
SEARCHED = 50_000_000
"""Bytes of a file in which such a line is looked up."""
BYTES = 2_000_000
"""Output of ripgrep taken before it is stopped."""
OPENED = "/dev/fd/"
"""Before the number of a file that ripgrep gets opened."""
NOTHING = "Nothing in "
"""The start of grep's answer when no line matches."""


class ListArguments(ToolArguments):
    """Arguments of list."""

    path: str = Field(default=".", description="folder")
    depth: Annotated[int, Field(ge=1, le=5, description="levels")] = 1


class GlobArguments(ToolArguments):
    """Arguments of glob."""

    pattern: str = Field(description="like *.py, src/**/*.ts, {a,b}/*.md")
    path: str = Field(default=".", description="folder to look in")


class GrepArguments(ToolArguments):
    """Arguments of grep."""

    pattern: str = Field(description="regular expression")
    path: str = Field(default=".", description="file or folder")
    glob: str = Field(default="", description="only files like *.py")
    ignore_case: bool = False
    context: Annotated[int, Field(ge=0, le=20, description="lines around each match")] = 0


async def list_folder(arguments: ListArguments, workspace: Workspace, say: Say) -> ToolResult:
    """List a folder: folders with a slash, large files with their size."""
    path = resolve_path(workspace, arguments.path)
    if isinstance(path, ToolResult):
        return path
    if not path.is_dir():
        reason = "is a file; use read" if path.is_file() else "is not there"
        return ToolResult(text=f"{arguments.path} {reason}.", ok=False)
    try:
        lines = _entries(path, arguments.depth, "")
    except OSError as error:
        return ToolResult(text=f"{arguments.path} cannot be listed: {error.strerror}.", ok=False)
    more = f"\n({len(lines) - MOST} more)" if len(lines) > MOST else ""
    return ToolResult(text=("\n".join(lines[:MOST]) or "(empty)") + more)


def _entries(folder: Path, depth: int, indent: str) -> list[str]:
    lines: list[str] = []
    with resolved_folder(folder) as opened:
        with os.scandir(opened) as scanned:
            entries = sorted(scanned, key=lambda entry: (not _is_folder(entry), entry.name))
        for entry in entries:
            if entry.name == ".git" or len(lines) > 10 * MOST:
                continue
            name = quoted_path(entry.name)
            if entry.is_symlink():
                lines.append(f"{indent}{name} -> {quoted_path(str(Path(entry).readlink()))}")
            elif not entry.is_dir():
                size = entry.stat(follow_symlinks=False).st_size
                lines.append(f"{indent}{name}" + (f" ({size:,} bytes)" if size >= 100_000 else ""))
            else:
                lines.append(f"{indent}{name}/")
                if depth > 1 and entry.name not in repository_files.SKIPPED_FOLDERS:
                    try:
                        lines += _entries(folder / entry.name, depth - 1, indent + "  ")
                    except OSError as error:
                        lines[-1] += f" ({error.strerror})"
    return lines


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Return whether it is a folder or a link to one. Unreadable links are not."""
    try:
        return entry.is_dir()
    except OSError:
        return False


async def glob(arguments: GlobArguments, workspace: Workspace, say: Say) -> ToolResult:
    """Find files whose path matches, or for a pattern without a slash their name."""
    folder = resolve_path(workspace, arguments.path)
    if isinstance(folder, ToolResult):
        return folder
    if not folder.is_dir():
        return ToolResult(text=f"{arguments.path} is not a folder.", ok=False)
    answer = await _ripgrep(["--files", "--null", "--sort=path"], workspace.root, folder)
    if isinstance(answer, ToolResult):
        return answer
    output, note = answer
    pattern = arguments.pattern.removeprefix(f"{folder}/").removeprefix("./")
    pattern = pattern if "/" in pattern else f"**/{pattern}"
    # brackets may be a set, or stand in a name, as in `app/[id]/page.tsx`
    regexes = [
        rule_matching.glob_regex(variant) for variant in (pattern, pattern.replace("[", "[[]"))
    ]
    names = [os.fsdecode(name).removeprefix("./") for name in output.split(b"\0") if name]
    paths = [
        quoted_path(str(Path(arguments.path) / name))
        for name in names
        if any(regex.fullmatch(name) for regex in regexes)
    ]
    if not paths:
        return ToolResult(
            text=f"No file matches {arguments.pattern} (files git ignores are not looked at).{note}"
        )
    more = f"\n({len(paths) - MOST} more; use a narrower pattern)" if len(paths) > MOST else ""
    return ToolResult(text="\n".join(paths[:MOST]) + more + note)


async def grep(arguments: GrepArguments, workspace: Workspace, say: Say) -> ToolResult:
    """Find matching lines, as path:number:line."""
    path = resolve_path(workspace, arguments.path)
    if isinstance(path, ToolResult):
        return path
    if not (path.is_file() or path.is_dir()):
        reason = "is neither a file nor a folder" if path.exists() else "is not there"
        return ToolResult(text=f"{arguments.path} {reason}.", ok=False)
    options = [
        "--line-number",
        "--column",
        "--no-heading",
        "--with-filename",
        "--null",
        "--sort=path",
    ]
    options += [f"--context={arguments.context}"] if arguments.context else []
    options += [f"--max-columns={TAKEN}", "--max-columns-preview"]
    options += ["--ignore-case"] if arguments.ignore_case else []
    if arguments.glob:
        # ripgrep takes globs from the searched folder; agents write them from the root, too
        above = _full_name(path, workspace.root, "")
        given = (arguments.glob, arguments.glob.removeprefix(f"{above}/"))
        globs = dict.fromkeys(
            variant for glob in given for variant in (glob, glob.replace("[", "[[]"))
        )
        options += [f"--glob={pattern}" for pattern in globs]
    options += ["--regexp", arguments.pattern]
    answer = await _ripgrep(options, workspace.root, path)
    if isinstance(answer, ToolResult):
        return answer
    output, note = answer
    is_hidden = functools.cache(lambda name: _is_hidden(name, path, workspace))
    full_name = functools.partial(_full_name, path, workspace.root)
    lines = list(_matching_lines(output, full_name, is_hidden, workspace))
    if not lines:
        return ToolResult(text=f"{NOTHING}{arguments.path} matches {arguments.pattern}.{note}")
    text = "\n".join(lines[:MOST])
    if len(lines) > MOST:
        text += f"\n({len(lines) - MOST} more lines; narrow the search)"
    return ToolResult(text=truncate(workspace.whole_secrets(text + note)))


def _is_hidden(name: str, searched: Path, workspace: Workspace) -> bool:
    """Return whether the file's lines are hidden: it holds secrets and was not asked for, or rules
    forbid reading it.
    """
    path = workspace.root / name
    below = path.relative_to(searched).parts if path.is_relative_to(searched) else ()
    if below and (is_secret(path.name) or not SECRET_FOLDERS.isdisjoint(below)):
        return True
    return workspace.unread is not None and workspace.unread(path, workspace.root)


def _full_name(searched: Path, root: Path, name: str) -> str:
    """Return the path, relative to `root` if it is below it, of a file that ripgrep names.
    `searched` is the folder or file that it searched.
    """
    path = searched if name.startswith(OPENED) else searched / name
    return os.path.relpath(path, root) if path.is_relative_to(root) else str(path)


def _matching_lines(
    output: bytes,
    full_name: Callable[[str], str],
    is_hidden: Callable[[str], bool],
    workspace: Workspace,
) -> Iterator[str]:
    """Yield ripgrep's lines with path and number."""
    read_lines = functools.lru_cache(maxsize=1)(lambda path: _read_lines(workspace.root / path))
    for match in _FOUND.finditer(output):
        if (aside := match["aside"]) is not None:
            name, colon, words = os.fsdecode(aside).partition(": binary file matches")
            yield f"{quoted_path(full_name(name))}{colon}{words}" if colon else name
            continue
        path = full_name(os.fsdecode(match["path"]))
        if is_hidden(path):
            continue
        text = match["text"].decode("utf-8", "replace")
        number = _NUMBER.match(text)
        if number is None or not number["match"]:
            text = truncate_line(workspace.whole_secrets(text, COLUMNS), COLUMNS)
            yield f"{quoted_path(path)}{'-' if number else ':'}{text}"
            continue
        column = int(number["column"])
        shown = ""
        if column > COLUMNS - AROUND:
            lines = read_lines(path)[int(number["line"]) - 1 :][:1]
            shown = _excerpt(lines[0], column, workspace) if lines else ""
        if not shown:
            line = workspace.whole_secrets(text[number.end() :], COLUMNS)
            shown = truncate_line(line, COLUMNS)
        yield f"{quoted_path(path)}:{number['line']}:{shown}"


def _read_lines(path: Path) -> list[bytes]:
    """Return the file's lines, [] if it is unreadable, too large, or in UTF-16, which ripgrep reads
    as UTF-8.
    """
    try:
        with open_resolved(path) as file:
            data = file.read() if os.fstat(file.fileno()).st_size <= SEARCHED else b""
    except OSError:
        return []
    return [] if data.startswith((b"\xff\xfe", b"\xfe\xff")) else data.split(b"\n")


def _excerpt(line: bytes, column: int, workspace: Workspace) -> str:
    """Return the text around the match in a long line, without secrets. "" if the line is short or
    the match is in a secret.
    """
    if len(line) <= COLUMNS:
        return ""
    match = column - 1
    before = line[max(match - TAKEN, 0) : match].decode("utf-8", "ignore")
    after = line[match : match + TAKEN].decode("utf-8", "ignore")
    head, tail = workspace.whole_secrets(before, 0), workspace.whole_secrets(after, 0)
    if workspace.whole_secrets(before + after, 0) != head + tail:
        return ""
    head = head[cut_between_marks(head, max(len(head) - AROUND, 0)) :]
    tail = tail[: cut_between_marks(tail, COLUMNS - AROUND)]
    bytes_before = max(match - len(head.encode()), 0)
    bytes_after = max(len(line) - match - len(tail.encode()), 0)
    excerpt = f"[... {bytes_before:,} bytes ...]{head}{tail}"
    return f"{excerpt}[... {bytes_after:,} bytes more]" if bytes_after else excerpt


@functools.cache
def ripgrep(root: Path) -> str | None:
    """Return the ripgrep program: from its wheel beside this Python, else from PATH, but never from
    the repository.
    """
    for folder in (Path(sys.executable).parent, Path(sysconfig.get_path("scripts"))):
        if os.access(folder / "rg", os.X_OK):
            return str(folder / "rg")
    return find_program("rg", root)


async def _ripgrep(
    options: Sequence[str], root: Path, searched: Path
) -> tuple[bytes, str] | ToolResult:
    """Run ripgrep on `searched`, a resolved folder or file. Hidden files are searched, git's own
    folder is not. The folder or file is opened first, so that no link that is swapped into the path
    is followed. Return its output and a line about unreadable places, or a ToolResult if it fails.
    """
    program = ripgrep(root)
    if program is None:
        text = (
            "ripgrep (rg) is missing: it belongs to fugu's installation. Use list and read instead."
        )
        return ToolResult(text=text, ok=False)
    words = [program, "--no-config", "--color=never", "--hidden", *options, "--glob=!.git", "--"]
    descriptors: list[int] = []
    try:
        with contextlib.ExitStack() as stack:
            if searched.is_dir():
                folder = stack.enter_context(resolved_folder(searched))
                words.append("./")
            else:
                folder = Path("/")
                descriptors.append(stack.enter_context(open_resolved(searched)).fileno())
                is_opened = os.access(f"{OPENED}{descriptors[0]}", os.R_OK)
                words.append(f"{OPENED}{descriptors[0]}" if is_opened else str(searched))
            process = await asyncio.create_subprocess_exec(
                *words,
                cwd=folder,
                env=program_environment(root),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                pass_fds=descriptors,
            )
    except OSError as error:  # the folder may not be entered, or an argument is too long
        return ToolResult(text=f"The search could not be started: {error.strerror}.", ok=False)
    try:
        async with asyncio.timeout(SECONDS):
            output, errors = await _read_output(process)
    except TimeoutError:
        return ToolResult(
            text=f"The search took more than {SECONDS} s. Search in a smaller folder.", ok=False
        )
    finally:
        await reap(process)
    messages = errors.splitlines()
    unreadable = [
        quoted_path(os.fsdecode(match["path"]).removeprefix("./"))
        for match in map(_PASSED_OVER.fullmatch, messages)
        if match
    ]
    if process.returncode == 2 and not output and len(unreadable) < max(len(messages), 1):
        if b"not allowed in a regex" in errors:
            return ToolResult(
                text="The search goes line by line: a pattern cannot hold a line break.", ok=False
            )
        return ToolResult(
            text=f"The search failed: {truncate(errors.decode('utf-8', 'replace').strip(), 1000)}",
            ok=False,
        )
    if not unreadable:
        return output, ""
    more = f" and {len(unreadable) - 3} more" if len(unreadable) > 3 else ""
    return output, f"\n(could not be looked into: {', '.join(unreadable[:3])}{more})"


async def _read_output(process: asyncio.subprocess.Process) -> tuple[bytes, bytes]:
    """Read both streams to their ends, or the first `BYTES` of the output."""
    assert process.stdout is not None
    assert process.stderr is not None
    errors = asyncio.ensure_future(process.stderr.read())
    output = b""
    while len(output) < BYTES and (chunk := await process.stdout.read(65536)):
        output += chunk
    if len(output) >= BYTES:
        process.kill()
    await process.wait()
    return output, await errors


LIST = Tool.of(tool_facts.LIST, ListArguments, list_folder)
GLOB = Tool.of(tool_facts.GLOB, GlobArguments, glob)
GREP = Tool.of(tool_facts.GREP, GrepArguments, grep)
