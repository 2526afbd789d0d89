"""Paths as policy and tools both see them: one way to resolve, one list of what is special.

Stands below the tools: what is judged here is what they open, because both call `locate`. Knows no
tool.
"""

from __future__ import annotations

import os
import re
import unicodedata
from fnmatch import translate
from functools import cache
from pathlib import Path

from fugu_cli.messages import Value

SECRETS = (
    ".env", ".env.*", "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "id_rsa*", "id_dsa*", "id_ecdsa*",
    "id_ed25519*", ".netrc", "_netrc", ".pypirc", ".npmrc", ".git-credentials", ".htpasswd", ".pgpass", ".my.cnf",
    "credentials", "credentials.*", "secrets", "secrets.*", "service-account*.json", "*.kdbx", ".dockercfg",
)  # fmt: skip
NOT_SECRETS = (
    "*.pub",
    "*.example",
    "*.sample",
    "*.template",
    "*.dist",
    "*.py",
    "*.js",
    "*.ts",
    "*.go",
    "*.rs",
    "*.md",
)
SECRET_FOLDERS = frozenset({".ssh", ".aws", ".gnupg", ".kube", ".docker", ".azure"})
GIT_MARKS = frozenset({"HEAD", "objects", "refs"})
"""The entries that make a folder a git folder."""
GIT_FILES = frozenset({
    "head", "config", "config.worktree", "hooks", "info", "index", "objects", "refs", "logs", "packed-refs",
    "commondir", "worktrees", "modules",
})  # fmt: skip
"""The entries of a git folder, in small letters."""
OWN_RIGHTS = frozenset(
    {".fugurc", "agents.md", "claude.md", "gemini.md", ".cursorrules", ".mcp.json"}
)
OWN_FOLDERS = frozenset({".agents", ".claude"})
OUTSIDE = "it is outside the repository"
OF_GIT = "it belongs to git itself"
MAY_HOLD_SECRETS = "it may hold secrets"
SAYS_RIGHTS = "it says what fugu may do"
"""Files and folders that tell fugu what it may do, or agents what to do: a repository must not
widen its own rights.
"""

_ESCAPE = re.compile(rb"\\([0-7]{3}|.)", re.DOTALL)
_LETTERS = {b"n": b"\n", b"t": b"\t", b"r": b"\r"}


class PathFault(Value):
    """A path that names nothing: the text says why, for the agent."""

    text: str


def quoted_path(path: str) -> str:
    """Return `path` as text that is valid anywhere: names with control characters or outside UTF-8
    in git's quotes.

    `path` is as the os module gives it (surrogates for foreign bytes). `unquoted_path` reverses
    this.
    """
    raw = os.fsencode(path)
    try:
        raw.decode()
    except UnicodeDecodeError:
        return _quoted(raw)
    return _quoted(raw) if path.startswith('"') or not path.isprintable() else path


def _quoted(raw: bytes) -> str:
    quoted = '"'
    for byte in raw:
        is_plain = 32 <= byte < 127 and byte not in b'"\\'
        quoted += chr(byte) if is_plain else f"\\{byte:03o}"
    return quoted + '"'


def unquoted_path(text: str) -> str:
    """Return the path that `quoted_path` shows as `text`; other text is a path already."""
    if len(text) < 2 or not (text.startswith('"') and text.endswith('"')):
        return text
    inner = text[1:-1].encode("utf-8", "surrogateescape")

    def plain(match: re.Match[bytes]) -> bytes:
        code = match.group(1)
        return bytes([int(code, 8) & 255]) if len(code) == 3 else _LETTERS.get(code, code)

    return os.fsdecode(_ESCAPE.sub(plain, inner))


def locate(text: str, root: Path, base: Path | None = None) -> Path | PathFault:
    """Resolve `text` with all links; relative to `base` (default `root`), `~` is the user's home.

    A name that exists only in the other form of Unicode (`é` as one character or two) means that
    one.
    """
    path = unquoted_path(text)
    if not path.strip():
        return PathFault(text="the path is empty")
    if "\0" in path:
        return PathFault(text="the path holds a NUL character")
    if path == "~" or path.startswith("~/"):
        path = str(Path(path).expanduser())
    try:
        forms = (
            path,
            *(unicodedata.normalize(form, path) for form in ("NFC", "NFD") if not path.isascii()),
        )
        places = [(base or root) / form for form in forms]
        return real_path(next(filter(path_exists, places), places[0]))
    except (ValueError, UnicodeEncodeError) as error:
        return PathFault(text=f"no file can have this name: {error}")


def expand_home(path: str | Path) -> Path:
    """Expand `~` and `~NAME`; a path with an unknown user stays as it is."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def real_path(path: str | Path) -> Path:
    """Resolve all links; a path with an unreadable link (another process's, in /proc) is only made
    absolute.
    """
    try:
        return Path(os.path.realpath(path))
    except OSError:
        return Path(os.path.abspath(path))  # noqa: PTH100 - pathlib has none that takes `..` out without looking


def inside(path: Path, root: Path) -> bool:
    """Return whether `path` is `root` or below it. Both must be resolved."""
    return path == root or root in path.parents


def path_exists(path: Path) -> bool:
    """Return whether something exists at `path`. False if that cannot be told, or the name is too
    long.
    """
    return os.path.exists(path)  # noqa: PTH110 - pathlib's raises for both


def is_file(path: Path) -> bool:
    """Return whether it is a file or a link to one. False if that cannot be told."""
    return os.path.isfile(path)  # noqa: PTH113 - pathlib's raises where a link leads to what may not be looked into


def is_folder(path: Path) -> bool:
    """Return whether it is a folder or a link to one. False if that cannot be told."""
    return os.path.isdir(path)  # noqa: PTH112 - as above


def protected_reason(path: Path, root: Path, *, writes: bool) -> str:
    """Return why touching `path` needs a yes every time, "" if it does not. Letter case does not
    matter.
    """
    if not inside(path, root):
        return OUTSIDE
    parts = [part.casefold() for part in path.relative_to(root).parts]
    if ".git" in parts or _in_git_folder(path, root):
        return OF_GIT
    if is_secret(path.name) or SECRET_FOLDERS & set(parts):
        return MAY_HOLD_SECRETS
    if writes and parts and (parts[-1] in OWN_RIGHTS or OWN_FOLDERS & set(parts)):
        return SAYS_RIGHTS
    return ""


def _in_git_folder(path: Path, root: Path) -> bool:
    """Return whether the path lies in a git folder of another name (a bare repository), or would
    complete one.
    """
    below = path
    while below != root:
        others = GIT_MARKS - {below.name}
        if below.name.casefold() in GIT_FILES and all(
            path_exists(below.parent / name) for name in others
        ):
            return True
        below = below.parent
    return False


def is_secret(name: str) -> bool:
    """Return whether such a file usually holds keys or passwords."""
    low = name.casefold()
    return bool(_any_of(SECRETS).match(low)) and not _any_of(NOT_SECRETS).match(low)


@cache
def _any_of(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(map(translate, patterns)))
