"""git's configuration, read as git would read it: every setting, and what git obeys because of it.

git itself is never asked, for it could run something. Stands above paths.py; policy looks here for
settings that run programs, self_running_files.py for the files that git obeys.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fugu_cli.safety.paths import (
    GIT_MARKS,
    expand_home,
    inside,
    is_file,
    is_folder,
    path_exists,
    real_path,
)

INCLUDES_DEEP = 10
RUNNING_SETTING = re.compile(
    r"^(?!alias\.|include|branch\.|remote\.\S+\.(?:url|fetch)).*(?:fsmonitor|textconv|external"
    r"|\.command$|\.clean$|\.smudge$|\.process$|program|pager|editor|file$|path$|helper|sshcommand"
    r"|askpass|promisor|partialclone|showsignature)"
)
"""Settings of a repository itself that run a program, or lead to another file."""


class UnreadableConfiguration(Exception):
    """A configuration file holds something that is not read here; the message says what."""


@dataclass(frozen=True)
class GitSetting:
    """One setting, its name in small letters. `file` is None for one from the environment;
    `is_users`: it is the user's or the system's, not the repository's.
    """

    file: Path | None
    name: str
    value: str
    is_users: bool = True


def git_settings(folders: Sequence[Path]) -> Iterator[GitSetting]:
    """Yield every setting that git may find in one of these folders, including those of included
    files. Raises UnreadableConfiguration.
    """
    if "alias." in os.environ.get("GIT_CONFIG_PARAMETERS", ""):
        raise UnreadableConfiguration("aliases in GIT_CONFIG_PARAMETERS")
    count = os.environ.get("GIT_CONFIG_COUNT", "0")
    for index in range(int(count) if count.isdigit() else 0):
        name = os.environ.get(f"GIT_CONFIG_KEY_{index}", "").lower()
        yield GitSetting(None, name, os.environ.get(f"GIT_CONFIG_VALUE_{index}", ""))
    for file in _user_files():
        yield from _read_file(file)
    for folder in folders:
        for file in _repository_files(folder):
            for setting in _read_file(file):
                yield replace(setting, is_users=False)


def obeyed_paths(root: Path) -> list[Path]:
    """Return the paths below `root` that git obeys because its configuration names them: the
    folder of hooks, included files, and programs. What cannot be read, git does not obey either.
    """
    paths: list[Path] = []
    try:
        for setting in git_settings([root]):
            paths += [path for path in _obeyed_by(setting, root) if root in path.parents]
    except UnreadableConfiguration:
        pass
    return list(dict.fromkeys(paths))


def _obeyed_by(setting: GitSetting, root: Path) -> Iterator[Path]:
    if not setting.value:
        return
    if setting.name == "core.hookspath":
        yield real_path(root / expand_home(setting.value))
    elif _is_include(setting.name) and setting.file is not None:
        yield real_path(setting.file.parent / expand_home(setting.value))
    elif RUNNING_SETTING.search(setting.name):
        for word in re.findall(r"[^\s'\"!]+", setting.value):
            path = real_path(root / expand_home(word))
            if is_file(path) or ("/" in word and not is_folder(path)):
                yield path


def _is_include(name: str) -> bool:
    return name.startswith(("include.", "includeif.")) and name.endswith(".path")


def is_bare_repository(folder: Path) -> bool:
    """Return whether git may take the folder for a git folder. One with `commondir` keeps the rest
    elsewhere.
    """
    names = ("commondir", *(GIT_MARKS - {"HEAD"}))
    return path_exists(folder / "HEAD") and any(path_exists(folder / name) for name in names)


def _user_files() -> list[Path]:
    home = Path.home()
    files = []
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        if path := os.environ.get(name):
            files.append(Path(path))
    for system_folder in ("/etc", "/usr/local/etc", "/opt/homebrew/etc"):
        files.append(Path(system_folder, "gitconfig"))
    user_folder = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    return [*files, user_folder / "git/config", home / ".gitconfig"]


def _repository_files(folder: Path) -> list[Path]:
    for above in (folder, *folder.parents):
        git_folder = git_folder_at(above)
        if git_folder is not None:
            return [shared_git_folder(git_folder) / "config", git_folder / "config.worktree"]
    return []


def git_folder_at(folder: Path) -> Path | None:
    """Return the git folder of the repository at `folder`, None if there is none."""
    entry = folder / ".git"
    if path_exists(entry) and not is_folder(entry):
        return folder / _text(entry).strip().removeprefix("gitdir:").strip()
    if path_exists(entry):
        return entry
    return folder if is_bare_repository(folder) else None


def shared_git_folder(git_folder: Path) -> Path:
    """Return the git folder that worktrees share: that of the main checkout."""
    if path_exists(git_folder / "commondir"):
        return git_folder / _text(git_folder / "commondir").strip()
    return git_folder


def begins_repository(folder: Path, root: Path) -> Path | None:
    """Return the folder between `folder` and `root`, `root` excluded, where another repository
    begins; None where git in `folder` works on the repository of `root`.
    """
    while folder != root and inside(folder, root):
        if is_bare_repository(folder) or os.path.lexists(folder / ".git"):
            return folder
        folder = folder.parent
    return None


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8", "replace")
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        raise UnreadableConfiguration(f"git's configuration: {error}") from error


_SECTION = re.compile(r'\s*\[\s*([\w.-]+)(?:\s+"((?:[^"\\\n]|\\.)*)")?\s*\]')
_BLANK = re.compile(r"\s+|[#;][^\n]*")
_KEY = re.compile(r"([A-Za-z][A-Za-z0-9-]*)[ \t]*(?:(=)|(?=\n|$))")
_ESCAPES = {"n": "\n", "t": "\t", "b": "\b", "\n": "", "\\": "\\", '"': '"'}


def _read_file(file: Path, depth: int = 0) -> Iterator[GitSetting]:
    """Yield a file's settings and those of files that it includes, also of conditional includes."""
    if depth > INCLUDES_DEEP:
        raise UnreadableConfiguration("configuration of git that includes itself")
    text, position, section = _text(file), 0, ""
    while position < len(text):
        if (blank := _BLANK.match(text, position)) is not None:
            position = blank.end()
        elif (header := _SECTION.match(text, position)) is not None:
            position = header.end()
            section = header.group(1).lower()
            if header.group(2) is not None:
                section += f".{header.group(2).lower()}"
        elif (key := _KEY.match(text, position)) is not None and section:
            value, position = ("", key.end())
            if key.group(2):
                value, position = _read_value(text, key.end())
            setting = GitSetting(file, f"{section}.{key.group(1).lower()}", value)
            yield setting
            if _is_include(setting.name) and value:
                yield from _read_file(file.parent / expand_home(value), depth + 1)
        else:
            raise UnreadableConfiguration(f"git's configuration in {file}")


def _read_value(text: str, position: int) -> tuple[str, int]:
    """Return the value that begins at `position`, and the position of its end."""
    value, quoted, comment = "", False, False
    while position < len(text) and text[position] != "\n":
        char = text[position]
        position += 1
        if char == "\\" and not comment:
            if text[position : position + 1] not in _ESCAPES:
                raise UnreadableConfiguration("a strange escape in git's configuration")
            value += _ESCAPES[text[position]]
            position += 1
        elif char == '"' and not comment:
            quoted = not quoted
        elif char in "#;" and not quoted:
            comment = True
        elif not comment:
            value += char
    if quoted:
        raise UnreadableConfiguration("a quote in git's configuration that is never closed")
    return value.strip(), position
