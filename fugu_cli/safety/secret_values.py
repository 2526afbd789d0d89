"""Decides which values are secrets: those of variables and of `.env` files, by name and by form.

Below redaction.py, which finds them in texts, and the sandbox, which keeps such variables from
commands.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
import unicodedata
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from fugu_cli.safety.paths import is_secret

NAMES = re.compile(
    r"(^|_)(API_?KEYS?|KEYS?|TOKENS?|SECRETS?|PASS|PASSPHRASE|CREDENTIALS?|PAT|AUTH|DSN)(_|$)"
    r"|APIKEY|SECRET|PASSW(OR)?D|_PWD$|^(SSH|LDAP|MYSQL|FTP)PASS$|^OTEL_\w*_HEADERS$",
    re.IGNORECASE,
)
"""Names of variables whose values are secrets."""
SHORTEST = 6
"""Characters of the shortest value that is a secret."""
LONG = 16
"""Characters from which on a single word or number is one as well: few words are as long, and those
are seldom.
"""
RACY = 100_000_000
"""Nanoseconds: a folder that changed so shortly before it was listed may have changed after that as
well.
"""
FOLDERS = 5_000
"""Folders in which `.env` files are looked for, the upper ones first."""
DEPENDENCIES = frozenset(
    {".git", ".hg", ".svn", "node_modules", "site-packages", "__pycache__", ".venv", "venv"}
)
"""Folders that hold other people's files."""
_LINE = re.compile(
    r"^\ufeff?[ \t]*(?:export[ \t]+)?([A-Za-z_]\w*)[ \t]*=[ \t]*(.*?)[ \t]*$", re.MULTILINE
)
"""A file may begin with a byte order mark."""
_LETTERS = re.compile(r"[^\W\d_]+")
Stamp = tuple[str, int, int]
"""A file's path, time and size."""


def secrets_in(variables: Iterable[tuple[str, str]]) -> set[str]:
    """Return the parts of variables' values that are masked, for names and values of variables."""
    secrets: set[str] = set()
    for name, value in variables:
        if NAMES.search(name) is not None and not _is_path(value):
            secrets |= _secrets_of(name, value)
    return secrets


def _secrets_of(name: str, value: str) -> set[str]:
    """Return the parts of a secret variable's value that are masked: the value, or each of its
    lines.
    """
    if name.endswith("_HEADERS"):  # NAME=VALUE,NAME=VALUE
        return {
            secret
            for pair in value.split(",")
            if not is_word(secret := unquote(pair.partition("=")[2]).strip(), name)
        }
    lines = (
        [value]
        if "\n" not in value
        else [line.strip() for line in value.splitlines() if "-----" not in line]
    )
    return {line for line in lines if not is_word(line, name)}


def is_word(value: str, name: str = "") -> bool:
    """Return whether the value of the variable `name` is too ordinary to be masked: masks would
    hide it in normal text.

    It is shorter than SHORTEST; or one word in small letters, capitals or capitalised, or without
    letters, and shorter than LONG; or it only repeats words of the name.
    """
    if len(value) < SHORTEST:
        return True
    if not value.isascii():  # without vowel signs and accents
        value = "".join(char for char in value if unicodedata.category(char)[0] != "M")
    if not any(char.isalpha() for char in value):
        return len(value) < LONG
    if value.isalpha() and value in {value.lower(), value.upper(), value.capitalize()}:
        return len(value) < LONG or value.casefold() in name.casefold()
    words = set(_LETTERS.findall(value.casefold()))
    return not any(char.isdigit() for char in value) and words <= set(name.casefold().split("_"))


def _is_path(value: str) -> bool:
    """Return whether it is the path of a key file rather than a key, which may begin with a slash
    as well.
    """
    return (
        value.startswith("/")
        and "\0" not in value
        and os.path.lexists(Path(value).parent)
        and value.count("/") > 1
    )


class _Folder(NamedTuple):
    """The last listing of a folder: names of `.env` files, folders, and links that may lead to
    some.
    """

    changed: int = 0
    names: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    links: tuple[str, ...] = ()


class EnvFiles:
    """`.env` files below a folder, and in the folders that links lead to. A folder is listed again
    only when it has changed."""

    def __init__(self, root: Path) -> None:
        self._root = str(root)
        self._listed: dict[str, _Folder] = {}

    def look(self) -> Iterator[Stamp]:
        """Yield their paths, with a stamp that changes when they do."""
        waiting, links = [self._root], list[str]()
        for folder in waiting:  # it grows meanwhile
            listed = self._folder(folder)
            waiting += listed.folders[: max(FOLDERS - len(waiting), 0)]
            links += listed.links
            yield from _stamps(folder, listed.names)
        for folder in links[:FOLDERS]:  # not what is below them: they may lead anywhere
            yield from _stamps(folder, self._folder(folder).names)

    def _folder(self, folder: str) -> _Folder:
        try:
            changed = os.stat(folder).st_mtime_ns  # noqa: PTH116 - for every fact, in every folder
            earlier = self._listed.get(folder)
            if earlier is not None and earlier.changed == changed:
                return earlier
            with os.scandir(folder) as scan:
                entries = sorted(scan, key=lambda entry: entry.name)
        except OSError:
            return _Folder()
        inside = [
            f"{folder}/{e.name}"
            for e in entries
            if e.is_dir(follow_symlinks=False) and e.name not in DEPENDENCIES
        ]
        names = tuple(e.name for e in entries if e.name.startswith(".env") and is_secret(e.name))
        links = tuple(
            path
            for e in entries
            if e.is_symlink() and os.path.isdir(path := f"{folder}/{e.name}")  # noqa: PTH112
        )
        listed = _Folder(changed, names, tuple(inside), links)
        if time.time_ns() - changed > RACY:
            self._listed[folder] = listed
        return listed


def _stamps(folder: str, names: tuple[str, ...]) -> Iterator[Stamp]:
    for name in names:
        with contextlib.suppress(OSError):
            status = os.stat(f"{folder}/{name}")  # noqa: PTH116
            if stat.S_ISREG(status.st_mode):  # a pipe would be waited for
                yield f"{folder}/{name}", status.st_mtime_ns, status.st_size


def in_file(path: Path) -> set[str]:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")[:100_000]
    except OSError:
        return set()
    return secrets_in(assigned(text))


def assigned(text: str) -> list[tuple[str, str]]:
    """Return the NAME=VALUE lines without quotes and comments."""
    pairs = []
    for name, value in _LINE.findall(text):
        quoted = value[:1] in {'"', "'"}
        if quoted:
            value = value[1:].partition(value[0])[0]
        else:
            value = value.partition(" #")[0].rstrip()
        pairs.append((name, value))
    return pairs
