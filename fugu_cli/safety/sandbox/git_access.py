"""Git in the sandbox: where a repository's git folders are, what in them may be written, and which
command lines may write them.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fugu_cli.safety.git_configuration import obeyed_paths
from fugu_cli.safety.git_process import git_program, run_git, users_environment
from fugu_cli.safety.paths import (
    GIT_MARKS,
    inside,
    is_folder,
    locate,
    path_exists,
    protected_reason,
    real_path,
)
from fugu_cli.safety.policy.readers import read_fault
from fugu_cli.safety.policy.shell_line import Command, ShellLine, Word, parse_line
from fugu_cli.safety.self_running_files import RunBy, entries_run_by_others, self_running_file

MOST = 50_000
"""Folders that are looked into, the upper ones first; the rest of a larger tree is not. How far
down that comes changes with every folder that is made or removed."""
RACY = 100_000_000
"""Nanoseconds: what changed so shortly before it was listed may have changed after that as well."""


@dataclass(frozen=True)
class _Listed:
    """A listing of a folder: a stamp that shows whether it changed, its subfolders, and whether git
    would take it for a git folder.
    """

    stamp: tuple[int, int]
    folders: tuple[str, ...]
    entry: bool
    bare: bool
    run_by_others: tuple[str, ...]
    """Names of what others run without a further word (self_running_files.py), but for `.git`."""


class GitFolders:
    """The git folders at and below the resolved `root`. Remembers what it saw between searches.

    `cut`: the newest search did not reach all of them.
    """

    def __init__(self, root: Path, most: int = MOST) -> None:
        self.root = root
        self.cut = False
        self._most = most
        self._began = time.time_ns()
        self._listings: dict[str, _Listed] = {}

    def older(self, path: Path) -> bool:
        """Return whether the file at `path` is unchanged since before the first search."""
        try:
            return path.lstat().st_ctime_ns < self._began - RACY
        except OSError:
            return False

    def entries(self) -> tuple[Path, ...]:
        """Return every `.git` in the working tree: folders, files and links."""
        return tuple(Path(path, ".git") for path, listed in self._look().items() if listed.entry)

    def folders(self, entries: tuple[Path, ...]) -> frozenset[Path]:
        """Return the git folders inside the root: those that `entries` lead to, the bare ones, and the
        git folders inside all of these (submodules, worktrees).
        """
        folders = {Path(path) for path, listed in self._listings.items() if listed.bare}
        for entry in entries:
            folder = self._behind(entry)
            if folder is not None:
                folders.add(folder)
        held = {inner for folder in folders for inner in _held(folder)}
        return frozenset(folders | held)

    def run_by_others(self) -> list[Path]:
        """Return what others run without a further word, the upper folders first; git's own folders
        have their own rules. A folder stands for all that is in it.
        """
        paths = list(filter(path_exists, obeyed_paths(self.root)))
        for folder, listed in self._look().items():
            paths += [Path(folder, name) for name in listed.run_by_others]
        return list(dict.fromkeys(paths))

    def _behind(self, entry: Path) -> Path | None:
        """Return the folder that an entry is or leads to, if it lies in the root."""
        folder = entry
        if entry.is_file():
            with entry.open("rb") as file:
                word, _, named = file.read(4096).partition(b":")
            folder = entry.parent / os.fsdecode(named.strip()) if word == b"gitdir" else entry
        real = Path(os.path.realpath(folder))
        return real if real.is_dir() and self.root in real.parents else None

    def _look(self) -> dict[str, _Listed]:
        listings: dict[str, _Listed] = {}
        waiting = deque([str(self.root)])
        while waiting and len(listings) < self._most:
            path = waiting.popleft()
            listed = _list(path, str(self.root), self._listings.get(path))
            if listed is not None:
                listings[path] = listed
                waiting += [f"{path}/{name}" for name in listed.folders]
        self._listings, self.cut = listings, bool(waiting)
        return listings


def nested_git_folders(git_folders: GitFolders, root: Path) -> tuple[Path, ...]:
    """Return the `.git` folders of nested repositories that commands must not change.

    Those that existed before the first search, and that the repository around them does not ignore.
    """
    around: dict[Path, list[Path]] = {}
    entries = sorted(git_folders.entries(), key=lambda entry: len(entry.parts))
    folders = [entry.parent for entry in entries]
    for entry in entries:
        if (
            entry.parent != root
            and entry.is_dir()
            and not entry.is_symlink()
            and git_folders.older(entry / "config")
        ):
            above = next(
                (parent for parent in entry.parent.parents if parent in folders or parent == root),
                root,
            )
            around.setdefault(above, []).append(entry)
    return tuple(
        entry for above, inner in around.items() for entry in _not_ignored(above, inner, root)
    )


def _not_ignored(above: Path, entries: list[Path], root: Path) -> Iterator[Path]:
    """Yield the entries that the repository at `above` does not ignore; all if it is no repository."""
    names = {os.fsencode(entry.parent.relative_to(above)): entry for entry in entries}
    ignored: set[bytes] = set()
    if (above / ".git").exists() and git_program(root) is not None:
        output = run_git(
            root, "check-ignore", "--no-index", "-z", "--stdin",
            environment=users_environment(), cwd=above, stdin=b"\0".join(names),
        )  # fmt: skip
        ignored = set(output.out.split(b"\0"))
    yield from (entry for name, entry in names.items() if name not in ignored)


def _list(path: str, root: str, earlier: _Listed | None) -> _Listed | None:
    try:
        status = os.lstat(path)
        stamp = (status.st_ino, status.st_ctime_ns)
        if earlier is not None and earlier.stamp == stamp:
            return earlier
        if not stat.S_ISDIR(status.st_mode):
            return None
        with os.scandir(path) as inside:
            kinds = {entry.name: entry.is_dir(follow_symlinks=False) for entry in inside}
    except OSError:
        return None
    if time.time_ns() - status.st_ctime_ns < RACY:
        stamp = (0, 0)
    folders = tuple(name for name, folder in kinds.items() if folder and name != ".git")
    names = entries_run_by_others(path.removeprefix(root), kinds)
    return _Listed(stamp, folders, ".git" in kinds, kinds.keys() >= GIT_MARKS, names)


def _held(folder: Path) -> Iterator[Path]:
    """Yield the git folders of submodules and working trees inside a git folder."""
    for parent, names, files in os.walk(folder / "modules"):
        if "HEAD" in files:
            yield Path(parent)
            names[:] = [name for name in names if name in {"modules", "worktrees"}]
    yield from _children(folder / "worktrees")


def _children(folder: Path) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if path.is_dir()]
    except OSError:
        return []


_WORKTREE = re.compile(r"^\s*worktree\s*=\s*\"?([^\"\n]+?)\"?\s*$", re.MULTILINE | re.IGNORECASE)


@dataclass(frozen=True)
class GitFolderAccess:
    """The git folders that a command may write, and the paths in them that it may not."""

    writable: tuple[Path, ...] = ()
    sealed: tuple[Path, ...] = ()
    loose: tuple[Path, ...] = ()
    """Files that git would obey if they existed. They cannot be sealed, so they are watched
    instead.
    """


def git_folder_access(root: Path, opened: Path | None = None) -> GitFolderAccess:
    """Return the access to the git folder of the repository at `root`; empty if there is none.
    `opened` is the `.git` that may be written now.
    """
    entry = root / ".git"
    if entry.is_symlink() or not entry.exists():
        return GitFolderAccess(sealed=(entry,) if entry.exists() else ())
    folder = entry if entry.is_dir() else _pointed_to(entry)
    if folder is None:
        return GitFolderAccess(sealed=(entry,))
    common = folder if folder == entry else _common(folder)
    whole = tuple(dict.fromkeys((common, folder)))
    named = obeyed_paths(root)
    if opened is None or not _leads_into(opened, entry, whole):
        return _split((), [entry, *whole, *named])
    own = [] if folder == entry else [entry, *_of_tree(folder)]
    return _split(whole, [*own, *_sealed(common), *named])


def _leads_into(opened: Path, entry: Path, whole: tuple[Path, ...]) -> bool:
    """Return whether a `.git` is the repository's own, or that of a submodule or working tree which
    it keeps.
    """
    if opened == entry:
        return True
    behind = _pointed_to(opened)
    return behind is not None and any(folder in behind.parents for folder in whole)


def _split(writable: tuple[Path, ...], sealed: list[Path]) -> GitFolderAccess:
    existing = tuple(dict.fromkeys(path for path in sealed if os.path.lexists(path)))
    missing = tuple(dict.fromkeys(path for path in sealed if not os.path.lexists(path)))
    return GitFolderAccess(tuple(dict.fromkeys(writable)), existing, missing)


def _sealed(folder: Path) -> Iterator[Path]:
    """Yield hooks and configuration of a git folder, its working trees and its submodules; the
    folder itself if a link stands for them.
    """
    hooks, config = folder / "hooks", folder / "config"
    if hooks.is_symlink() or config.is_symlink() or not config.is_file():
        yield folder
        return
    with contextlib.suppress(OSError):
        hooks.mkdir(exist_ok=True)
    yield from (hooks, config, folder / "config.worktree", folder / "commondir")
    for tree in _children(folder / "worktrees"):
        yield from _of_tree(tree)
    for module in _modules(folder / "modules"):
        yield from (module / name for name in ("hooks", "config", "config.worktree", "commondir"))


def _of_tree(folder: Path) -> Iterator[Path]:
    """Yield the sealed files of a linked working tree's git folder."""
    yield from (folder / name for name in ("commondir", "config.worktree"))


def _modules(folder: Path) -> Iterator[Path]:
    for parent, folders, files in os.walk(folder):
        if "HEAD" in files:
            yield Path(parent)
            folders[:] = [name for name in folders if name == "modules"]


def _pointed_to(entry: Path) -> Path | None:
    if not entry.is_file():
        return None
    text = entry.read_text(encoding="utf-8", errors="surrogateescape")
    if not text.startswith("gitdir:"):
        return None
    folder = Path(os.path.realpath(entry.parent / text.removeprefix("gitdir:").strip()))
    return folder if folder.is_dir() and _points_back(folder, entry) else None


def _points_back(folder: Path, entry: Path) -> bool:
    """Return whether the git folder says that it belongs here. Otherwise a file `.git` could open
    any folder for writing.
    """
    with contextlib.suppress(OSError):
        named = (folder / "gitdir").read_text(encoding="utf-8", errors="surrogateescape").strip()
        return Path(os.path.realpath(folder / named)) == entry
    with contextlib.suppress(OSError):
        config = (folder / "config").read_text(encoding="utf-8", errors="surrogateescape")
        setting = _WORKTREE.search(config)
        if setting is None:
            return False
        return Path(os.path.realpath(folder / setting.group(1))) == entry.parent
    return False


def _common(folder: Path) -> Path:
    """Return the repository of a linked working tree's git folder inside its `worktrees`, or the
    folder itself.

    A `commondir` that leads elsewhere must not open that folder.
    """
    with contextlib.suppress(OSError):
        named = (folder / "commondir").read_text(encoding="utf-8", errors="surrogateescape").strip()
        common = Path(os.path.realpath(folder / named))
        return common if folder.parent == common / "worktrees" else folder
    return folder


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


PLAIN = _names(
    "add am apply branch checkout clean commit commit-tree gc hash-object maintenance mv notes "
    "pack-refs prune "
    "read-tree reflog repack replace rerere reset restore rm sparse-checkout stash switch "
    "symbolic-ref tag "
    "update-index update-ref worktree write-tree"
)
"""Commands of git that write and start no program but git itself, its hooks and what the
configuration names.
"""
FREE = _names("add branch checkout commit mv reset restore rm switch tag")
"""Git commands whose arguments name no file to write, so that the files need not be known before
the line runs.
"""
WRITING = re.compile(r"--ou(?!rs$).*|--index-o.*|--uns.*|--(expire|filter)-t.*")
"""An argument that names one, or any: `git diff --output=FILE`, `git apply --unsafe-paths`."""
STARTING: dict[str, re.Pattern[str]] = {
    "merge": re.compile(r"-[^-]*s.*|--str.*"),
    "cherry-pick": re.compile(r"--str.*"),
    "revert": re.compile(r"--str.*"),
    "rebase": re.compile(r"-[^-]*[sx].*|--str.*|--ex.*|--e"),
    "fetch": re.compile(r"--up.*"),
    "pull": re.compile(r"-[^-]*s.*|--str.*|--up.*"),
    "push": re.compile(r"--rec.*|--rep.*|--ex.*|--e"),
    "bisect": re.compile(r"run|replay|visualize|view"),
    "submodule": re.compile(r"foreach|add|set-url"),
}
"""Commands of git, each with the arguments that start a program or lead to a repository which
starts its own.
"""
REMOTE = re.compile(r"[\w-]+|(?:https|ssh|git)://.*")
"""Allowed remotes: a configured name or another machine, but no folder, which may have hooks."""
BEFORE = _names("--no-pager -P --no-optional-locks --literal-pathspecs")
SETTINGS = re.compile(
    r"(user|author|committer)\.\w+|(color|advice|log)\.[\w.]+|core\.(quotepath|autocrlf|abbrev)|(commit|tag)\.gpgsign"
    r"|init\.defaultbranch|merge\.conflictstyle|diff\.(renames|algorithm)|pull\.(ff|rebase)|rebase\.autostash",
    re.IGNORECASE,
)
"""Settings that may be given with `-c`: they start nothing and lead nowhere."""
VARIABLES = re.compile(r"GIT_(AUTHOR|COMMITTER)_(NAME|EMAIL|DATE)|LANG|LC_\w+|CI|NO_COLOR|TZ")
PRINTING, MAKING = _names("echo printf cat"), _names("mkdir rmdir touch rm")
"""Programs that may write files of the working tree in such a line: the first by redirection, the
others by name. None of them makes a link, through which the next could write elsewhere.
"""
STILL = _names("add commit tag branch push notes")
"""Commands of git that may stand beside those: they write no file of the working tree, hence no
link.
"""
DEVICES = _names("/dev/null /dev/stdout /dev/stderr")
_MESSAGE = re.compile(
    r"""([^'"\\`$#<]*)"\$\(cat <<'(\w+)'\n(?:(?!\2$).*\n)*\2\n\s*\)"([^'"\\`$#<]*)""",
    re.MULTILINE | re.ASCII,
)
"""A line with one quoted heredoc that stands for a word, as messages of commits are written:
nothing in it is run.
"""


def git_folder_written_by(text: str, root: Path) -> Path | None:
    """Return the `.git` of the repository that git, alone in the line, works on; None where it is
    not alone, or works on several. `root` is resolved; the line runs in it.

    Beside git may stand readers, one `cd`, and, where git writes no file of the working tree,
    programs that write plain files.
    """
    message = _MESSAGE.fullmatch(text.strip())
    if message is not None:
        text = f'{message.group(1)}"message"{message.group(3)}'
    line = parse_line(text.strip())
    if line.fault:
        return None
    git_commands: list[tuple[Command, bool]] = []  # each with whether it only reads
    moves: list[Command] = []
    has_writers = git_writes_files = False
    for command in line.commands:
        is_reader = read_fault(ShellLine((command,)), root) is None
        if command.name == "cd":
            moves.append(command)
        if _is_git(command):
            git_commands.append((command, is_reader))
            git_writes_files = git_writes_files or not (is_reader or _is_still(command))
        elif command.name == "git":
            return None
        elif not is_reader:
            has_writers = True
            if not _writes(command, root):
                return None
    if not git_commands or len(moves) > 1 or (has_writers and git_writes_files):
        return None
    folder = _target(moves[0].words[1:], root) if moves else root
    if folder is None:
        return None
    git_folders = set()
    for command, is_reader in git_commands:
        git_folders.add(_entry(command, folder, root, moved=bool(moves), reads=is_reader))
    return git_folders.pop() if len(git_folders) == 1 else None


def _writes(command: Command, root: Path) -> bool:
    """Return whether a command does nothing but write files, none of which git or anybody else
    runs.
    """
    if not command.words or command.assignments or command.operator == "|":
        return False
    written = [redirect.target for redirect in command.redirects if redirect.writes]
    if command.words[0].text in MAKING:
        written += [word for word in command.words[1:] if not word.text.startswith("-")]
    elif command.words[0].text in PRINTING:
        if any(word.text.startswith("-v") or word.expands for word in command.words):
            return False
    else:
        return False
    return all(word.plain and _is_ordinary(word.text, root) for word in written)


def _is_ordinary(text: str, root: Path) -> bool:
    path = real_path(root / text)
    if protected_reason(path, root, writes=True):
        return False
    file = self_running_file(path, root)
    return file is None or file.run_by is not RunBy.OTHERS


def _is_still(command: Command) -> bool:
    """Return whether a git command writes no file of the working tree."""
    texts = [word.text for word in command.words[1:]]
    return texts[:1] != [] and (texts[0] in STILL or (len(texts) == 3 and texts[:2] in _BRANCHING))


_BRANCHING = (["checkout", "-b"], ["switch", "-c"])


def _is_git(command: Command) -> bool:
    return bool(command.words) and command.words[0].text == "git" and command.words[0].plain


def _target(words: Sequence[Word], root: Path) -> Path | None:
    """Return the folder that `cd` or `-C` leads to, None if that is not plain."""
    if len(words) != 1 or not words[0].plain:
        return None
    path = locate(words[0].text, root)
    return path if isinstance(path, Path) and is_folder(path) else None


def _entry(command: Command, folder: Path, root: Path, *, moved: bool, reads: bool) -> Path | None:
    """Return the `.git` a git command works on, None if the command is not plain.

    `moved`: it follows a `cd`, which may fail, so that a named folder is unknown.
    """
    if any(not VARIABLES.fullmatch(name) for name, _ in command.assignments):
        return None
    if any(
        redirect.writes and redirect.target.text not in DEVICES for redirect in command.redirects
    ):
        return None
    words = list(command.words[1:])
    working_folder: Path | None = folder
    while words and words[0].text.startswith("-"):
        option = words.pop(0)
        if option.text == "-C" and not moved and working_folder == root:
            working_folder = _target(words[:1], root)
            words = words[1:]
        elif option.text == "-c" and words and SETTINGS.fullmatch(words[0].text.partition("=")[0]):
            words = words[1:]
        elif option.text not in BEFORE:
            return None
    if working_folder is None or not words or not words[0].plain:
        return None
    only_reads = reads and not any(WRITING.fullmatch(word.text) for word in words)
    if only_reads or _plain(words[0].text, words[1:]):
        return _nearest_git_entry(working_folder, root)
    return None


def _plain(name: str, arguments: Sequence[Word]) -> bool:
    if name in FREE:
        return True
    texts = [word.text for word in arguments]
    if any(not word.plain or WRITING.fullmatch(word.text) for word in arguments):
        return False
    if name not in STARTING:
        return name in PLAIN
    if any(STARTING[name].fullmatch(text) for text in texts):
        return False
    named = [text for text in texts if not text.startswith("-")]
    return (
        name not in {"fetch", "pull", "push"} or not named or REMOTE.fullmatch(named[0]) is not None
    )


def _nearest_git_entry(folder: Path, root: Path) -> Path | None:
    """Return the nearest `.git` at or above a folder in the root, None if a bare repository comes
    first.
    """
    if not inside(folder, root):
        return None
    for parent in (folder, *folder.parents):
        if os.path.lexists(parent / ".git"):
            return parent / ".git"
        if parent == root or all(path_exists(parent / name) for name in GIT_MARKS):
            return None
    return None
