"""The content that a call's output depends on, as one id: a file's blob, or the whole tree for
calls that read many files.

The tool memory of workflows keys its entries by it. "" where it cannot be told, so that nothing is
remembered: outside the repository, what needs a yes, a command that reads more than what files
hold. Files that git ignores and nested repositories count too; caches, dependencies and
environments count by their names only. Changes nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fugu_cli.messages import Call
from fugu_cli.safety import paths, policy
from fugu_cli.safety.policy.shell_line import Command, names_of, parse_line
from fugu_cli.session.call_arguments import MalformedArguments, arguments_of
from fugu_cli.session.tool_facts import facts_of
from fugu_cli.snapshots import git_repositories, repository_files
from fugu_cli.snapshots.git_repositories import split_names
from fugu_cli.snapshots.snapshot_index import NESTED
from fugu_cli.snapshots.snapshots import Snapshots
from fugu_cli.tools.workspace import Workspace

CONTENT = names_of(
    "cat head tail wc grep egrep fgrep rg find ls sed awk sort uniq cut tr nl diff cmp comm "
    "md5sum sha1sum sha256sum "
    "sha512sum cksum jq od hexdump strings rev tac paste fold expand join column basename "
    "dirname echo printf true "
    "false test [ seq cd :"
)
_LS = set("1aAFpdBmxCRrNQ")
_FIND = names_of(
    "-name -iname -path -ipath -wholename -iwholename -regex -iregex -regextype -type -maxdepth "
    "-mindepth -prune -not "
    "-and -or -a -o -print -print0 -empty -true -false -depth"
)
_TEST = names_of("-e -f -d -L -h -n -z -a -o")
_WORDS = {
    "awk": ("rand", "time", "ENVIRON", "PROCINFO"),
    "sort": ("-R", "--random"),
    "printf": ("%(",),
    "tail": ("-f",),
}
"""Parts of arguments by which a command says something else each time, or never ends."""
_HIDDEN = ("-u", "--unrestricted", "--no-ignore", "--hidden", "-.")


def reads_content_only(text: str) -> bool:
    """Return whether every simple command of the line looks at content or names only."""
    line = parse_line(text)
    return bool(line.commands) and not line.fault and all(map(_reads_content_only, line.commands))


def searches_recursively(text: str) -> bool:
    """Return whether some command of the line goes down into every folder, or into any that a
    pattern matches, those that git ignores included.
    """
    return any(
        any(word.globbed for word in command.words)
        or _searches_recursively(command.name, command.arguments)
        for command in parse_line(text).commands
    )


def _reads_content_only(command: Command) -> bool:
    name, arguments = command.name, command.arguments
    if name not in CONTENT or command.assignments:
        return False
    options = [argument for argument in arguments if argument.startswith("-") and argument != "-"]
    if name == "ls":
        return all(not option.startswith("--") and set(option[1:]) <= _LS for option in options)
    if name == "find":
        return all(option in _FIND for option in options)
    if name in {"test", "["}:
        return all(option in _TEST for option in options)
    return not any(part in argument for argument in arguments for part in _WORDS.get(name, ()))


def _searches_recursively(name: str, arguments: Sequence[str]) -> bool:
    short = {
        letter
        for a in arguments
        if a.startswith("-") and not a.startswith("--")
        for letter in a[1:]
    }
    match name:
        case "find":
            return True
        case "ls":
            return "R" in short
        case "grep" | "egrep" | "fgrep":
            return bool(short & {"r", "R"}) or any(
                a.startswith(("--recursive", "--dereference-r")) for a in arguments
            )
        case "diff":
            return "r" in short or "--recursive" in arguments
        case "rg":
            return any(argument.startswith(_HIDDEN) for argument in arguments)
        case _:
            return False


UNREAD = repository_files.SKIPPED_FOLDERS | {
    ".hypothesis",
    ".coverage",
    "htmlcov",
    ".import_linter_cache",
    ".DS_Store",
    ".cache",
}
"""Names of what nobody but its own tool looks into, and of what would take long to look through."""
MOST = 3000
"""Files that are looked at; where there are more, nothing can be told."""
SMALL = 65_536
"""Bytes up to which a file is known by its content; larger ones by size and time."""


@dataclass(frozen=True)
class IgnoredContent:
    """Content of an ignored path. `name` is its id, "" if nothing is there. `unread`: only the name
    of the file counts, because its content was not read.
    """

    name: str = ""
    unread: bool = False


async def ignored_content(snapshots: Snapshots) -> IgnoredContent | None:
    """Return the ignored content that exists now, None if it cannot be listed."""
    listing = ("ls-files", "-z", "-o", "-i", "--directory", "--exclude-standard", "--", ".")
    names = split_names(await snapshots.git.run(*listing))
    entries = (await snapshots.git.run("ls-files", "-z", "-s", "--", ".")).split(b"\0")
    names += [
        os.fsdecode(entry.partition(b"\t")[2])
        for entry in entries
        if entry.startswith(NESTED.encode())
    ]
    return (
        await asyncio.to_thread(_hash_files, snapshots.root, names) if names else IgnoredContent()
    )


def _hash_files(root: Path, names: Sequence[str]) -> IgnoredContent | None:
    hashed = hashlib.sha1(usedforsecurity=False)
    count, unread = 0, False
    for name in sorted(names):
        for path in _below(root / name):
            count += 1
            if count > MOST:
                return None
            unread = unread or path.name in UNREAD
            hashed.update(os.fsencode(path.relative_to(root)) + b"\0" + _content(path) + b"\0")
    return IgnoredContent(hashed.hexdigest(), unread)


def _below(path: Path) -> Iterator[Path]:
    """Yield a path and everything below it. Links are not followed. Folders named in UNREAD are
    yielded, but not entered.
    """
    yield path
    if path.name in UNREAD or path.is_symlink() or not path.is_dir():
        return
    for folder, folders, files in os.walk(path):
        yield from (Path(folder) / name for name in sorted([*folders, *files]))
        folders[:] = [name for name in folders if name not in UNREAD]  # os.walk enters the rest


def _content(path: Path) -> bytes:
    """Return a small file's hash, a larger one's size and time, or where a link leads; nothing for
    what is never read.
    """
    try:
        if path.is_symlink():
            return os.fsencode(path.readlink())
        if path.name in UNREAD or path.is_dir():
            return b""
        status = path.stat()
        if not path.is_file() or status.st_size > SMALL:
            return b"%d %d" % (status.st_size, status.st_mtime_ns)
        return hashlib.sha1(path.read_bytes(), usedforsecurity=False).digest()
    except OSError:
        return b"gone"


_NAMES = re.compile(r"[/\s\"'=:;|<>()]+")
LARGEST_KEYED_FILE = 2_000_000
"""Bytes of a file that is looked at."""


@dataclass(frozen=True)
class TreeContent:
    """The content of the whole working tree. `name` is its id, "" outside git. `unread`: some files
    are not part of the id.
    """

    name: str = ""
    unread: bool = False


async def tree_content(workspace: Workspace) -> TreeContent:
    """Return the content of the tree and of what git ignores, without caches, dependencies and
    environments. Raises StorageError.
    """
    tree = await workspace.history.snapshot()
    if tree is None or workspace.history.snapshots is None:
        return TreeContent()
    ignored = await ignored_content(workspace.history.snapshots)
    if ignored is None:
        return TreeContent()
    return TreeContent(f"{tree}+{ignored.name}" if ignored.name else tree, ignored.unread)


async def content_key(workspace: Workspace, call: Call, whole: TreeContent | None = None) -> str:
    """Return an id of the content that the call reads. As long as it is the same, the call would
    say the same. `whole` is the tree's content if it is known already.
    """
    arguments = arguments_of(call)
    if isinstance(arguments, MalformedArguments):
        return ""
    if call.tool == "run_tests":
        return (whole or await tree_content(workspace)).name
    if not only_reads(workspace, call):
        return ""
    if call.tool == "read":
        return _blob(workspace, arguments.get("path"))
    command = str(arguments.get("command", "")) if call.tool == "bash" else ""
    tool = facts_of(call.tool)
    searches = tool.remembered and tool.reads_files
    if searches or (call.tool == "bash" and reads_content_only(command)):
        content = whole or await tree_content(workspace)
        return (
            "" if content.unread and _into_unread(call.tool, arguments, command) else content.name
        )
    return ""


def only_reads(workspace: Workspace, call: Call) -> bool:
    """Return whether the call only reads, inside the repository, and needs no question."""
    return policy.judge(call, policy.Rules(mode="ask"), workspace.root).verdict == "allow"


def _into_unread(tool: str, arguments: dict[str, object], command: str) -> bool:
    """Return whether the call may read files that a listing of the tree does not name."""
    if tool == "bash" and searches_recursively(command):
        return True
    named = [
        command,
        str(arguments.get("path", "")),
        str(arguments.get("pattern", "")) if tool == "glob" else "",
    ]
    return bool(UNREAD.intersection(_NAMES.split(" ".join(named))))


def _blob(workspace: Workspace, name: object) -> str:
    path = paths.locate(name, workspace.root) if isinstance(name, str) else None
    if not isinstance(path, Path) or not paths.inside(path, workspace.root):
        return ""
    try:
        return (
            git_repositories.blob_id(path.read_bytes())
            if path.is_file() and path.stat().st_size <= LARGEST_KEYED_FILE
            else ""
        )
    except OSError:
        return ""
