"""A map of the repository for a prompt: its folders, and what the files define that matter most.

Files count by how often other files use what they define, by what the request names, and by how
many of the last commits changed them. Ignored files and links are left out. Definitions need
tree-sitter (the extra `map`); without it the map is the folders and their files.
"""

from __future__ import annotations

import asyncio
import math
import os
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from fugu_cli.errors import FuguError
from fugu_cli.extensions.file_outlines import Definition, FileOutline, read_outlines
from fugu_cli.safety.git_process import (
    NO_FETCH,
    git_program,
    repository_programs_off,
    run_git,
    users_environment,
)
from fugu_cli.safety.paths import quoted_path
from fugu_cli.safety.programs import program_environment
from fugu_cli.session.open_work import BYTES, byte_size
from fugu_cli.snapshots.git_repositories import find_repository
from fugu_cli.snapshots.repository_files import SKIPPED_FOLDERS, walk_files
from fugu_cli.tools import grammars
from fugu_cli.tools.search import ripgrep

LIST_SECONDS = 2.0
"""Seconds for the list of files, and for the list of commits."""
MOST_FILES = 20_000
MOST_WALKED = 5_000
"""Files that are looked at, with ripgrep and without it."""
MOST_OUTLINED = 2_000
"""Files whose definitions are read."""
LONGEST_LINE = 160
"""Characters of a line of the map."""
COMMITS = 50
"""Last commits whose files count more."""
NAMED_FILE, NAMED_DEFINITION = 20.0, 8.0
"""Weights of a file that the request names with its ending, and of a definition that it names. A
definition that one other file uses has the weight 1.
"""
POSSIBLE_USE = 0.02
"""Weight of a use in a file that does not name the defining file; any other use counts 1."""
DEFINITIONS_OF_A_FILE = 6
"""Definitions of a file that are shown."""
HEADING = "The files that matter most here, with the lines of what they define:"
_WORD = re.compile(r"[^\W\d]\w{2,}")


@dataclass(frozen=True)
class MapSize:
    """The size of a map: at most `tree_lines` of folders, and `tokens` of definitions."""

    tree_lines: int
    tokens: int


FOR_PLANNER = MapSize(tree_lines=40, tokens=600)
FOR_FIRST_TURN = MapSize(tree_lines=12, tokens=600)


@dataclass
class RepositoryMap:
    """Draws maps of the files below `root`. What was read of a file is kept until the file changes."""

    root: Path
    _outlines: dict[str, tuple[tuple[int, int], FileOutline]] = field(default_factory=dict)

    async def draw(
        self,
        request: str,
        size: MapSize,
        *,
        with_definitions: bool,
        may_read: Callable[[str], bool],
    ) -> str:
        """Return the map for a request. Definitions are shown of files that `may_read` allows."""
        files = await asyncio.to_thread(_list_files, self.root)
        tree = draw_tree(files, size.tree_lines)
        if not (with_definitions and grammars.are_installed()):
            return tree
        commits = await asyncio.to_thread(_commits_by_file, self.root)
        words = _words_of(request)
        outlines = await self._read(_most_promising(files, commits, request, words))
        lines = _definition_lines(outlines, commits, request, words, size.tokens, may_read)
        return "\n".join([tree, "", HEADING, *lines]) if lines else tree

    async def _read(self, files: Sequence[str]) -> dict[str, FileOutline]:
        """Return the outlines of `files`, reading those that have changed since the last time."""
        stamps = await asyncio.to_thread(_stamps, self.root, files)
        current = {
            path: (stamp, outline)
            for path, (stamp, outline) in self._outlines.items()
            if stamps.get(path) == stamp
        }
        changed = [path for path in files if path in stamps and path not in current]
        for path, outline in (await read_outlines(self.root, changed)).items():
            current[path] = (stamps[path], outline)
        self._outlines = current
        return {path: current[path][1] for path in files if path in current}


def _words_of(request: str) -> set[str]:
    """Return the words that may be names, in small letters: of `drop-table` also `drop_table`."""
    text = request.casefold()
    return {*_WORD.findall(text), *_WORD.findall(text.replace("-", "_"))}


def _list_files(root: Path) -> list[str]:
    """Return the paths of files below `root` that are not ignored, sorted, without links."""
    program = ripgrep(root)
    if program is not None:
        command = [program, "--no-config", "--files", "--hidden", "--no-messages", "--null"]
        try:
            done = subprocess.run(
                [*command, "--glob=!.git"],
                cwd=root,
                env=program_environment(root),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=LIST_SECONDS,
                check=False,
            )
            paths = sorted(os.fsdecode(path) for path in done.stdout.split(b"\0") if path)
            return [path for path in paths if not _is_skipped(path)][:MOST_FILES]
        except (OSError, subprocess.TimeoutExpired):
            pass
    walked = (path for path in walk_files(root, limit=MOST_WALKED) if not path.is_symlink())
    return sorted(path.relative_to(root).as_posix() for path in walked)


def _is_skipped(path: str) -> bool:
    return not SKIPPED_FOLDERS.isdisjoint(path.split("/")[:-1])


def draw_tree(files: Iterable[str], most_lines: int) -> str:
    """Return the folders with their files, a line for each, the upper ones first."""
    folders: dict[str, list[str]] = {}
    for path in files:
        folder, _, name = path.rpartition("/")
        folders.setdefault(folder, []).append(name)
    lines = []
    for folder in sorted(folders, key=lambda folder: (folder.count("/") + bool(folder), folder)):
        names = " ".join(map(quoted_path, folders[folder]))
        if len(names) > LONGEST_LINE:
            shown = names[:LONGEST_LINE].rpartition(" ")[0]
            names = f"{shown} and {len(folders[folder]) - shown.count(' ') - 1} more"
        lines.append(f"{quoted_path(folder)}/: {names}" if folder else names)
    if len(lines) > most_lines:
        more = len(lines) - most_lines + 1
        lines[most_lines - 1 :] = [f"and {more} more folders"]
    return "\n".join(lines)


def _commits_by_file(root: Path) -> Counter[str]:
    """Return in how many of the last commits each file was changed. Nothing that the repository
    names is run.
    """
    repository = find_repository(root)
    if repository is None or git_program(root) is None:
        return Counter()
    environment = {**users_environment(), **NO_FETCH, "GIT_OPTIONAL_LOCKS": "0"}
    words = ["log", f"-{COMMITS}", "--no-show-signature", "--no-renames", "--no-ext-diff"]
    try:
        output = run_git(
            repository.top,
            *repository_programs_off(repository.top, environment),
            *words,
            *("--no-textconv", "--format=", "--name-only", "--relative", "-z"),
            environment=environment,
            cwd=root,
            seconds=LIST_SECONDS,
        )
    except (OSError, FuguError):
        return Counter()
    if output.code:
        return Counter()
    return Counter(os.fsdecode(path) for path in output.out.split(b"\0") if path)


def _most_promising(
    files: Sequence[str], commits: Mapping[str, int], request: str, words: set[str]
) -> list[str]:
    """Return the source files to read, those first that matter most by name and commits."""
    sources = [path for path in files if grammars.ending_of(path) in grammars.SOURCE_ENDINGS]

    def order(path: str) -> tuple[float, int, int, str]:
        named = _named_value(path, request, words)
        return -named, -commits.get(path, 0), path.count("/"), path

    return sorted(sources, key=order)[:MOST_OUTLINED]


def _named_value(path: str, request: str, words: set[str]) -> float:
    """Return the weight of a file that the request names, either with its ending or by a word that
    may also mean something else.
    """
    name = PurePosixPath(path)
    if name.name in request:
        return NAMED_FILE
    return NAMED_DEFINITION if _module_name(path).casefold() in words else 0.0


def _stamps(root: Path, files: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Return the time and the size of each file, which tell whether it has changed."""
    stamps = {}
    for path in files:
        try:
            status = (root / path).lstat()
        except OSError:
            continue
        stamps[path] = (status.st_mtime_ns, status.st_size)
    return stamps


def _definition_lines(
    outlines: Mapping[str, FileOutline],
    commits: Mapping[str, int],
    request: str,
    words: set[str],
    tokens: int,
    may_read: Callable[[str], bool],
) -> list[str]:
    """Return the definitions of the files that matter most, as many as `tokens` hold, by path."""
    values = _definition_values(outlines, words)
    best: dict[str, list[Definition]] = {}
    scores: dict[str, float] = {}
    for path, outline in outlines.items():
        by_value = sorted(outline.definitions, key=lambda item: (-values[path, item], item.line))
        best[path] = by_value[:DEFINITIONS_OF_A_FILE]
        scores[path] = math.log1p(commits.get(path, 0))
        scores[path] += sum(values[path, item] for item in best[path])
        scores[path] += _named_value(path, request, words)
    shown: dict[str, list[str]] = {}
    room = tokens * BYTES
    for path in sorted(scores, key=lambda path: (-scores[path], path)):
        if not best[path] or not may_read(path):
            continue
        best[path].sort(key=lambda item: item.line)
        lines = [quoted_path(path), *(_definition_line(item, words) for item in best[path])]
        size = sum(byte_size(line) + 1 for line in lines)
        if size > room:
            break
        room -= size
        shown[path] = lines
    return [line for path in sorted(shown) for line in shown[path]]


def _definition_values(
    outlines: Mapping[str, FileOutline], words: set[str]
) -> dict[tuple[str, Definition], float]:
    """Return the weight of each definition: by the files that use its name, and by whether the
    request names it or one of its members.

    A file that uses the name and also names the defining file, as an import does, counts fully; in
    another file the name may mean something else.
    """
    defining: Counter[str] = Counter()
    for outline in outlines.values():
        defining.update({item.name for item in outline.definitions})
    looked_up = defining.keys() | {_module_name(path) for path in outlines}
    files_with: dict[str, set[str]] = {name: set() for name in looked_up}
    for path, outline in outlines.items():
        for name in outline.identifiers & looked_up:
            files_with[name].add(path)
    values = {}
    for path, outline in outlines.items():
        importing = files_with[_module_name(path)] - {path}
        for item in outline.definitions:
            using = files_with.get(item.name, set()) - {path}
            certain = len(using & importing)
            possible = (len(using) - certain) * POSSIBLE_USE / defining[item.name]
            value = math.sqrt(certain + possible)
            if not words.isdisjoint(name.casefold() for name in (item.name, *item.members)):
                value += NAMED_DEFINITION / defining[item.name]
            values[path, item] = value
    return values


def _module_name(path: str) -> str:
    """Return the name by which other files import this one, in most languages."""
    name = PurePosixPath(path)
    return name.parent.name if name.stem in ("__init__", "index", "mod") else name.stem


def _definition_line(item: Definition, words: set[str]) -> str:
    """Return a definition in a line, with as many members as fit, those first that the request
    names.
    """
    line = f"  {item.line}: {item.signature}"
    if not item.members:
        return line
    members = sorted(item.members, key=lambda name: name.casefold() not in words)
    text = ", ".join(members)
    room = LONGEST_LINE - len(line)
    if len(text) > room:
        shown = text[: max(room, 0)].rpartition(", ")[0]
        count = shown.count(", ") + bool(shown)
        text = f"{shown}{', ' * bool(shown)}and {len(members) - count} more"
    return f"{line}: {text}"
