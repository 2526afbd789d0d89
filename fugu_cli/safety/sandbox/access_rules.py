"""The rule for what a command may read, write and not see, for every mechanism."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from fugu_cli.safety.paths import SECRET_FOLDERS, is_folder, is_secret, path_exists
from fugu_cli.safety.sandbox.git_access import git_folder_access
from fugu_cli.safety.sandbox.outward_links import linked_dependencies
from fugu_cli.safety.self_running_files import own_environments

SHOWN: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        (
            *(
                ".rustup",
                ".pyenv",
                ".nvm",
                ".volta",
                ".fnm",
                ".asdf",
                ".rbenv",
                ".rvm",
                ".jenv",
                ".goenv",
                ".nodenv",
            ),
            *(
                ".sdkman",
                ".bun",
                ".deno",
                ".dotnet",
                ".conda",
                ".virtualenvs",
                ".venv",
                ".venvs",
                ".npm",
                ".yarn",
            ),
            *(
                ".pnpm-store",
                ".ivy2",
                ".sbt",
                ".stack",
                ".ghcup",
                ".opam",
                ".mix",
                ".elan",
                ".juliaup",
                ".julia",
            ),
            *(
                ".foundry",
                ".gitconfig",
                ".gitignore",
                ".gitignore_global",
                ".gitattributes",
                ".editorconfig",
            ),
            *(".tool-versions", ".python-version", ".nvmrc", ".node-version", ".ruby-version"),
        ),
        (),
    ),
    ".cargo": ("credentials", "credentials.toml"),
    ".gem": ("credentials",),
    ".m2": ("settings.xml", "settings-security.xml"),
    ".gradle": ("gradle.properties",),
    ".nuget": ("NuGet",),
    ".pub-cache": ("credentials.json",),
    ".cabal": ("config",),
    ".hex": ("hex.config",),
}
"""Entries of a home that may be read, each with what is hidden in it."""

PARTLY: dict[str, dict[str, tuple[str, ...]]] = {
    ".local": {"bin": (), "lib": (), "pipx": ()},
    ".local/share": dict.fromkeys(
        ("uv", "pnpm", "mise", "rtx", "fnm", "pipx", "virtualenvs", "hatch"), ()
    ),
    ".config": {"git": ("credentials",), "go": (), "ruff": (), "black": (), "matplotlib": ()},
    ".cache": {
        **dict.fromkeys(
            ("pip", "uv", "go-build", "pypoetry", "yarn", "deno", "node-gyp", "pre-commit"), ()
        ),
        **dict.fromkeys(
            ("ms-playwright", "Cypress", "puppeteer", "electron", "ccache", "sccache", "torch"), ()
        ),
        "huggingface": ("token", "stored_tokens"),
    },
}
"""Entries of a home of which only these may be read."""

SYSTEM = (
    *(
        "/etc/shadow",
        "/etc/shadow-",
        "/etc/gshadow",
        "/etc/gshadow-",
        "/etc/sudoers",
        "/etc/sudoers.d",
        "/etc/ssh",
    ),
    *(
        "/etc/ssl/private",
        "/etc/krb5.keytab",
        "/etc/docker",
        "/var/spool/cron",
        "/var/lib/docker",
        "/run/secrets",
    ),
    *("/run/user", "/run/credentials", "/run/docker.sock", "/run/podman", "/run/containerd"),
)
"""Files that no command needs to see, whether only root can read them or not."""


DEPTH, ENTRIES, FOUND = 3, 5000, 300
"""The depth and number of entries that are searched for secret files in a home, and the most files
that are hidden.
"""
FRESH = 60.0
"""Seconds after which they are looked for again."""
PASSED = frozenset(
    {"node_modules", "site-packages", "venv", "env", "target", "build", "dist", "vendor"}
)
CERTIFICATES = frozenset({".pem", ".key"})
"""May hold a public certificate that programs need: hidden when they say that they hold a private
key.
"""


def hidden_paths(homes: tuple[Path, ...], spared: tuple[Path, ...] = ()) -> list[str]:
    """Return the existing paths that must not be read, sorted: of these homes, of other people's,
    and of the system.

    Nothing is searched in `spared` folders, in which commands work.
    """
    paths = [path for path in SYSTEM if os.path.lexists(path)]
    for home in homes:
        paths += _hidden_in_home(home)
        paths += _deeper(home, frozenset(spared), int(time.monotonic() / FRESH))
    for home in (Path("/root"), *_entries(Path("/home"))):
        if home.is_dir() and not any(
            home == own or home in own.parents or own in home.parents for own in homes
        ):
            paths.append(str(home))
    return sorted(dict.fromkeys(paths))


@lru_cache(maxsize=8)
def _deeper(home: Path, spared: frozenset[Path], period: int) -> tuple[str, ...]:
    """Return secret files in a home. Cached while `period` is the same, because the search may take
    tens of milliseconds.
    """
    return tuple(_secrets(home, spared))


def _secrets(home: Path, spared: frozenset[Path]) -> Iterator[str]:
    """Yield secret files in the folders of a home, the upper folders first."""
    waiting = deque((str(entry), 1) for entry in _entries(home) if not entry.name.startswith("."))
    passed = {str(path) for path in spared}
    entries = secrets = 0
    while waiting and entries < ENTRIES and secrets < FOUND:
        folder, depth = waiting.popleft()
        for name, folder_there in _listed(folder) if folder not in passed else ():
            entries += 1
            if name in SECRET_FOLDERS or (is_secret(name) and _private(Path(folder, name))):
                secrets += 1
                yield f"{folder}/{name}"
            elif folder_there and depth < DEPTH and not name.startswith(".") and name not in PASSED:
                waiting.append((f"{folder}/{name}", depth + 1))


def _listed(folder: str) -> list[tuple[str, bool]]:
    """Return the names in a folder, each with whether it is a folder; [] for a link or anything
    else.
    """
    try:
        if Path(folder).is_symlink():
            return []
        with os.scandir(folder) as inside:
            return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in inside]
    except OSError:
        return []


def _private(path: Path) -> bool:
    """Return whether a file that is named like a secret holds one. A certificate may be public."""
    if path.suffix not in CERTIFICATES:
        return not path.is_symlink()
    try:
        with path.open("rb") as file:
            return b"PRIVATE KEY" in file.read(100_000)
    except OSError:
        return False


def _hidden_in_home(home: Path) -> Iterator[str]:
    for entry in _entries(home):
        if entry.name in PARTLY:
            yield from _partly(home, entry.name)
        elif entry.name in SHOWN:
            yield from (
                str(entry / name) for name in SHOWN[entry.name] if os.path.lexists(entry / name)
            )
        elif entry.name.startswith(".") or is_secret(entry.name):
            yield str(entry)


def _partly(home: Path, name: str) -> Iterator[str]:
    shown = PARTLY[name]
    for entry in _entries(home / name):
        if f"{name}/{entry.name}" in PARTLY:
            yield from _partly(home, f"{name}/{entry.name}")
        elif entry.name in shown:
            yield from (
                str(entry / inner) for inner in shown[entry.name] if os.path.lexists(entry / inner)
            )
        else:
            yield str(entry)


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


_PATH = re.compile(r"/[^\s:;,=]+")
_LINE = re.compile(r"(?:\S+ +){7}(.+)")
_ESCAPED = re.compile(r"\\([0-7]{3})")


def listening_sockets(environ: Mapping[str, str], proc: Path = Path("/proc")) -> list[str]:
    """Return the existing sockets as absolute, resolved paths, sorted."""
    named = [
        *_bound(proc),
        *_mounted(proc),
        *(path for value in environ.values() for path in _PATH.findall(value)),
    ]
    return sorted({os.path.realpath(path) for path in named if _is_socket(path)})


def _bound(proc: Path) -> Iterator[str]:
    """Yield the name of every bound socket; a relative one as seen from every folder in which a
    process works.
    """
    names = [
        match.group(1)
        for line in _lines(proc / "net" / "unix")[1:]
        if (match := _LINE.fullmatch(line))
    ]
    yield from (name for name in names if name.startswith("/"))
    relative = sorted({name for name in names if not name.startswith(("/", "@"))})
    if relative:
        yield from (f"{folder}/{name}" for folder in _working(proc) for name in relative)


def _mounted(proc: Path) -> Iterator[str]:
    for line in _lines(proc / "self" / "mountinfo"):
        fields = line.split(" ")
        if len(fields) > 4:
            yield _ESCAPED.sub(lambda match: chr(int(match.group(1), 8)), fields[4])


def _working(proc: Path) -> set[Path]:
    """Return the working folders of the processes whose folders are readable."""
    folders = set()
    for entry in _entries(proc):
        if entry.name.isdigit():
            with contextlib.suppress(OSError):  # it has ended, or is another user's
                folders.add((entry / "cwd").readlink())
    return folders


def _lines(path: Path) -> list[str]:
    try:
        return path.read_bytes().decode("utf-8", "surrogateescape").split("\n")
    except OSError:
        return []


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(Path(path).stat().st_mode)
    except (OSError, ValueError):
        return False


RESOLVERS = ("/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager", "/run/nscd")
"""Of /run, what finding a host's address needs."""

CONFIGURATION_FILES = (
    *(".fugurc", ".mcp.json", ".agents/hooks.json", ".agents/skills", ".agents/commands"),
    *(".claude/settings.json", ".claude/settings.local.json"),
    *(".config/fugu/skills", ".config/fugu/commands"),
)
"""Files in the home that direct fugu and its agents, or that they run with the user's rights."""

PACKAGE = Path(__file__).resolve().parents[2]
"""Its folder: a test command may run a file of it."""


@dataclass(frozen=True)
class FileAccess:
    """Absolute, resolved paths as text. A deeper path goes before a shallower one."""

    writable: tuple[str, ...]
    sealed: tuple[str, ...]
    readable: tuple[str, ...]
    hidden: tuple[str, ...]
    covered: tuple[str, ...]
    """Sockets and folders of them, which no rule about files protects: whoever answers there works
    outside.
    """
    loose: tuple[str, ...] = ()
    """Files that are not there and must not come to be."""


@dataclass(frozen=True)
class AccessOptions:
    """Access that the user allows beyond the rule, and fugu's own folders: `own` is hidden, `cache`
    writable.
    """

    writable: tuple[Path, ...] = ()
    readable: tuple[Path, ...] = ()
    own: tuple[Path, ...] = ()
    cache: tuple[Path, ...] = ()
    network: bool = False
    git: Path | None = None
    """The `.git` that may be written: of the root, or in it."""
    sealed: tuple[Path, ...] = ()
    """More paths in the root that stay as they are: `.git` of repositories there, and files that
    others run.
    """
    opened: tuple[str, ...] = ()
    """Patterns of what may be written although others run it."""
    read_only: bool = False
    """The root is not written either."""


def file_access(root: Path, options: AccessOptions, environ: Mapping[str, str]) -> FileAccess:
    """Return the rule for commands in `root`, which is resolved, with the disk as it is now."""
    homes = _homes(environ)
    programs = tuple(_programs(environ, homes))
    git = git_folder_access(root, options.git)
    configuration = list(_configuration_files(root, homes))
    opened = [path for path in opened_paths(root, options.opened) if path_exists(path)]
    sealed = [
        *git.sealed,
        *own_environments(root),
        *(path for path in configuration if os.path.lexists(path)),
    ]
    writable = [*options.cache, *options.writable]
    if not options.read_only:
        writable += [root, *git.writable, *opened]
        writable += [above for path in sealed for above in _between(path, writable)]
        sealed += [path for path in _also_sealed(root, options) if path not in opened]
    readable = [
        *programs,
        *options.readable,
        *(homes if any(Path("/tmp") in home.parents for home in homes) else ()),
        *([root] if options.read_only else ()),
        *(map(Path, RESOLVERS) if options.network else ()),
    ]
    spared = [Path(os.path.realpath(path)) for path in (root, *writable, *options.readable)]

    def is_hidden(path: Path) -> bool:
        above = (path, *path.parents)
        is_own = any(folder in above for folder in options.own)
        is_spared = any(folder in above for folder in (*spared, *programs))
        return not is_own and not is_spared and _in_hiding(path, homes)

    readable += linked_dependencies(root, is_hidden)
    hidden = [
        *hidden_paths(homes, (*spared, *programs)),
        *(str(path) for path in options.own if path_exists(path)),
    ]
    written = _texts(writable)
    access = FileAccess(
        writable=written,
        sealed=_texts(sealed),
        readable=tuple(
            path
            for path in dict.fromkeys(str(path) for path in readable if path_exists(path))
            if path not in written
        ),
        hidden=tuple(
            path
            for path in dict.fromkeys(hidden)
            if path not in _texts([root, *writable, *options.readable])
        ),
        covered=tuple(_covered(environ)),
        loose=_texts([*git.loose, *(path for path in configuration if not os.path.lexists(path))]),
    )
    sockets = _reachable(listening_sockets(environ), access, options)
    return replace(access, covered=(*access.covered, *sockets))


def is_seen(path: Path, access: FileAccess, *, private_tmp: bool) -> bool:
    """Return whether a command can read a resolved path."""
    for folder in map(str, (path, *path.parents)):
        if folder in {*access.writable, *access.sealed, *access.readable}:
            return True
        if folder in {*access.hidden, *access.covered} or (private_tmp and folder == "/tmp"):
            return False
    return True


def _also_sealed(root: Path, options: AccessOptions) -> Iterator[Path]:
    """Yield what is laid over itself alone: the folders around it can be moved, and are looked
    after instead (NewFileGuard)."""
    yield from options.sealed
    language_server = root / "node_modules" / "typescript" / "lib"
    if is_folder(language_server):  # an editor loads it
        yield language_server


def opened_paths(root: Path, patterns: tuple[str, ...]) -> list[Path]:
    """Return the paths in `root` that patterns open: existing files, and folders that a pattern
    opens completely, whether they exist or not.
    """
    paths: list[Path] = []
    for pattern in patterns:
        whole = pattern.removesuffix("/**")
        named = [root / whole] if "*" not in whole else sorted(root.glob(pattern))
        real = (Path(os.path.realpath(path)) for path in named)
        paths += [path for path in real if root in path.parents]
    return paths


def _between(sealed: Path, writable: list[Path]) -> list[Path]:
    """Return the folders between a sealed path and the writable one around it.

    Each is mounted over itself, so that none can be moved away with the sealed path and replaced.
    """
    folders = [
        above for above in sealed.parents if any(folder in above.parents for folder in writable)
    ]
    return [above for above in folders if above not in writable]


def _texts(paths: list[Path]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(os.path.realpath(path) for path in paths))


def _homes(environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the home that is set, and the one the system knows."""
    named = [environ.get("HOME", ""), _system_home()]
    homes = [Path(os.path.realpath(name)) for name in named if name]
    return tuple(dict.fromkeys(home for home in homes if is_folder(home) and home != Path("/")))


def _system_home() -> str:
    try:
        import pwd

        return pwd.getpwuid(os.getuid()).pw_dir
    except (ImportError, KeyError):  # Windows, or a user without an entry
        return ""


def program_folders(environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the folders of the programs on PATH, of the Python that runs fugu, and of fugu, if
    they lie in hidden places. Commands can still use them.
    """
    return tuple(dict.fromkeys(_programs(environ, _homes(environ))))


def _programs(environ: Mapping[str, str], homes: tuple[Path, ...]) -> Iterator[Path]:
    for name in (
        "VIRTUAL_ENV",
        "CONDA_PREFIX",
        "PYENV_ROOT",
        "GOROOT",
        "JAVA_HOME",
        "CARGO_HOME",
        "RUSTUP_HOME",
    ):
        if (value := environ.get(name)) and _in_hiding(Path(value), homes):
            yield Path(os.path.realpath(value))
    for entry in environ.get("PATH", "").split(os.pathsep):
        if entry.startswith("/") and _in_hiding(Path(entry), homes):
            folder = Path(os.path.realpath(entry))
            yield folder.parent if is_virtual_environment(folder.parent) else folder
    for prefix in (sys.prefix, sys.base_prefix, PACKAGE):
        if _in_hiding(Path(prefix), homes):
            yield Path(os.path.realpath(prefix))


def is_virtual_environment(folder: Path) -> bool:
    """Return whether the folder has a `pyvenv.cfg`. Without it and its packages, its Python is
    another one.
    """
    return path_exists(folder / "pyvenv.cfg")


def _in_hiding(path: Path, homes: tuple[Path, ...]) -> bool:
    """Return whether the path may be hidden or covered; not a home itself, nor above one."""
    real = Path(os.path.realpath(path))
    if any(real == home or real in home.parents for home in homes):
        return False
    return Path("/tmp") in real.parents or any(home in real.parents for home in homes)


def _configuration_files(root: Path, homes: tuple[Path, ...]) -> Iterator[Path]:
    """Yield the user's files that fugu obeys without trust, if the home lies in the repository."""
    for home in homes:
        if home == root or root in home.parents:
            yield from (home / name for name in CONFIGURATION_FILES)


def _covered(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the folders that hold sockets of the system and the desktop."""
    for name in (
        "/run",
        environ.get("XDG_RUNTIME_DIR", ""),
        str(Path(environ.get("SSH_AUTH_SOCK", "")).parent),
    ):
        if name.startswith("/") and name not in {"/", "/tmp"} and is_folder(Path(name)):
            yield os.path.realpath(name)


def _reachable(sockets: list[str], shown: FileAccess, options: AccessOptions) -> Iterator[str]:
    """Yield the sockets that a command would see: not those below covered folders, and not those
    the user allowed.
    """
    visible = {*shown.writable, *shown.readable, *shown.sealed}
    invisible = {*shown.hidden, *shown.covered, "/tmp", "/dev", "/proc"}
    named = _texts([*options.writable, *options.readable])
    for path in sockets:
        above = next(
            (str(parent) for parent in Path(path).parents if str(parent) in visible | invisible),
            "/",
        )
        if path not in named and (above not in invisible or above in visible):
            yield path
