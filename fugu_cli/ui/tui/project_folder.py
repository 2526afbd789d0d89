"""The folder of the session: its short name, its branch, and its files, found fast for `@`. Reads
files only, so that the first paint waits for no process.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote


def short_path(root: Path) -> str:
    """Return the folder with `~` for the home."""
    with suppress(ValueError, RuntimeError):
        return f"~/{root.relative_to(Path.home()).as_posix()}".rstrip("/.") or "~"
    return str(root)


def typed_path(root: Path, name: str) -> Path:
    """Return the path of a typed name: below `root`, or with `~/` below the home."""
    return Path.home() / name[2:] if name.startswith("~/") else root / name


def git_branch(root: Path) -> str:
    """Return the checked-out branch, the beginning of a commit id without one, "" outside git."""
    for folder in (root, *root.parents):
        git = folder / ".git"
        with suppress(OSError, UnicodeDecodeError):
            if git.is_file():
                git = folder / git.read_text(encoding="utf-8").partition("gitdir:")[2].strip()
            head = (git / "HEAD").read_text(encoding="utf-8").strip()
            return head.removeprefix("ref: refs/heads/") if head.startswith("ref:") else head[:8]
    return ""


MOST_FILES = 200_000
SLICE = 4000
FRESH_SECONDS = 20.0
"""Seconds after which the list is made again."""
SKIPPED = frozenset(
    {".git", ".hg", "node_modules", ".venv", "venv", "__pycache__", ".mypy_cache", ".tox", "target"}
)
_UNTYPED = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
"""Control characters, and bytes of a name that is not UTF-8."""

Superseded = Callable[[], bool]
"""Something newer was asked: stop."""


class FolderFiles:
    """The paths under `root`, relative to it and with forward slashes, followed by the absolute
    paths of the `added` folders.
    """

    def __init__(self, root: Path, added: Sequence[Path] = ()) -> None:
        self._root = root
        self._added = added
        self._paths: list[str] = []
        self._lowered: list[str] = []
        self._at = 0.0

    def refresh(self) -> None:
        """List again when the list is old. For a thread."""
        if time.monotonic() - self._at < FRESH_SECONDS and self._paths:
            return
        paths = sorted(
            filter(mentionable, list_files(self._root)), key=lambda path: (path.count("/"), path)
        )
        for folder in self._added:
            paths += filter(
                mentionable, (f"{folder.as_posix()}/{path}" for path in sorted(list_files(folder)))
            )
        self._lowered = [path.lower() for path in paths]
        self._paths = paths
        self._at = time.monotonic()

    def search(
        self, query: str, most: int = 20, superseded: Superseded = lambda: False
    ) -> list[str]:
        """Return the best matches, the best first. Runs in a thread and stops when `superseded`."""
        if not query:
            return self._paths[:most]
        needle = query.lower()
        ranked: list[tuple[int, int, str]] = []
        for start in range(0, len(self._paths), SLICE):
            if superseded():
                return []
            for index, path in enumerate(self._lowered[start : start + SLICE], start):
                rank = _rank(needle, path)
                if rank is not None:
                    ranked.append((rank, len(path), self._paths[index]))
            time.sleep(0)  # let the screen have its turn
        return [path for _, _, path in sorted(ranked)[:most]]


def mention(path: str) -> str:
    """Return the mention of a file for a request."""
    return f'@"{path}"' if any(letter.isspace() for letter in path) else f"@{path}"


def mentionable(path: str) -> bool:
    """Return whether a mention can name the file: its name has no quotation mark, and all its
    letters can be typed.
    """
    quoted = mention(path).startswith('@"')
    return _UNTYPED.search(path) is None and not (quoted and '"' in path)


def mention_of_clipboard(root: Path, state: Path) -> str:
    """Return the mention of the clipboard's picture, "" without one. Runs in a thread."""
    from fugu_cli.tools import mentions
    from fugu_cli.ui import clipboard

    path = clipboard.paste_picture(state / mentions.PASTED, root)
    return f"{mention(str(path))} " if path is not None and mentionable(str(path)) else ""


SHOWN_BESIDE = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".pdf")
"""Endings of files that agents are shown as they are."""


def mentions_of_paths(root: Path, text: str) -> str:
    """Return mentions of pasted paths of pictures and PDFs, "" for other text.

    Terminals write dropped files quoted, escaped, or as `file://`.
    """
    if "\n" in text.strip() or not text.strip().lower().rstrip("'\"").endswith(SHOWN_BESIDE):
        return ""
    try:
        words = [text.strip()] if typed_path(root, text.strip()).is_file() else shlex.split(text)
        names = [
            unquote(word.removeprefix("file://")) if word.startswith("file://") else word
            for word in words
        ]
        all_exist = all(
            name.lower().endswith(SHOWN_BESIDE) and typed_path(root, name).is_file()
            for name in names
        )
    except (OSError, ValueError, RuntimeError):
        return ""
    return " ".join(map(mention, names)) + " " if all_exist and all(map(mentionable, names)) else ""


def _rank(needle: str, path: str) -> int | None:
    """Return the rank of a match, 0 is best: the name begins with it, the name holds it, the path
    holds it, the letters come in this order.
    """
    name = path.rpartition("/")[2]
    if name.startswith(needle):
        return 0
    if needle in name:
        return 1
    if needle in path:
        return 2
    if _in_order(needle, name):
        return 3
    return 4 if _in_order(needle, path) else None


def _in_order(letters: str, text: str) -> bool:
    """Return whether the path contains the letters in this order. One pass, because a regular
    expression may try too many ways.
    """
    at = -1
    for letter in letters:
        at = text.find(letter, at + 1)
        if at < 0:
            return False
    return True


def list_files(root: Path) -> list[str]:
    """Return the files below `root`, at most `MOST`, by ripgrep if it is installed."""
    from fugu_cli.safety.programs import find_program, program_environment

    bundled = Path(sysconfig.get_path("scripts")) / ("rg.exe" if sys.platform == "win32" else "rg")
    program = str(bundled) if bundled.is_file() else find_program("rg", root)
    if program is not None:
        command = [
            program,
            "--no-config",
            "--files",
            "--hidden",
            "--no-messages",
            "--glob",
            "!.git",
            "--null",
        ]
        try:
            done = subprocess.run(
                command,
                cwd=root,
                env=program_environment(root),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=30,
            )
        except (OSError, subprocess.TimeoutExpired):
            return list(_walked(root))
        paths = done.stdout.split(b"\0")[:MOST_FILES]
        return [os.fsdecode(path).replace(os.sep, "/") for path in paths if path]
    return list(_walked(root))


def _walked(root: Path) -> Iterator[str]:
    folders, count = [(root, "")], 0
    while folders:
        folder, prefix = folders.pop()
        try:
            entries = list(os.scandir(folder))
        except OSError:
            continue
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in SKIPPED:
                    folders.append((Path(entry.path), f"{prefix}{entry.name}/"))
            else:
                yield prefix + entry.name
                count += 1
        if count >= MOST_FILES:
            return
