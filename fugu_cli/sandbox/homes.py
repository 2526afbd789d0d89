"""Which parts of a home a command may see: what toolchains need, and nothing that may hold a key.

The rule, for `fugu help safety`: entries whose name starts with a dot are hidden, unless they are named here; of those,
the files that hold credentials are hidden all the same, and so are files elsewhere in the home, a few folders down,
that by their names hold secrets. Data, and the function that applies it.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from fugu_cli.policy.paths import SECRET_FOLDERS, is_secret

SHOWN: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        (
            *(".rustup", ".pyenv", ".nvm", ".volta", ".fnm", ".asdf", ".rbenv", ".rvm", ".jenv", ".goenv", ".nodenv"),
            *(".sdkman", ".bun", ".deno", ".dotnet", ".conda", ".virtualenvs", ".venv", ".venvs", ".npm", ".yarn"),
            *(".pnpm-store", ".ivy2", ".sbt", ".stack", ".ghcup", ".opam", ".mix", ".elan", ".juliaup", ".julia"),
            *(".foundry", ".gitconfig", ".gitignore", ".gitignore_global", ".gitattributes", ".editorconfig"),
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
    ".local/share": dict.fromkeys(("uv", "pnpm", "mise", "rtx", "fnm", "pipx", "virtualenvs", "hatch"), ()),
    ".config": {"git": ("credentials",), "go": (), "ruff": (), "black": (), "matplotlib": ()},
    ".cache": {
        **dict.fromkeys(("pip", "uv", "go-build", "pypoetry", "yarn", "deno", "node-gyp", "pre-commit"), ()),
        **dict.fromkeys(("ms-playwright", "Cypress", "puppeteer", "electron", "ccache", "sccache", "torch"), ()),
        "huggingface": ("token", "stored_tokens"),
    },
}
"""Entries of a home of which only these may be read."""

SYSTEM = (
    *("/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/sudoers", "/etc/sudoers.d", "/etc/ssh"),
    *("/etc/ssl/private", "/etc/krb5.keytab", "/etc/docker", "/var/spool/cron", "/var/lib/docker", "/run/secrets"),
    *("/run/user", "/run/credentials", "/run/docker.sock", "/run/podman", "/run/containerd"),
)
"""What no command needs to see, readable only to root or not."""


DEPTH, ENTRIES, FOUND = 3, 5000, 300
"""How far down, through how many entries, files of secrets are looked for in a home, and how many are hidden."""
FRESH = 60.0
"""Seconds after which they are looked for again."""
PASSED = frozenset({"node_modules", "site-packages", "venv", "env", "target", "build", "dist", "vendor"})
CERTIFICATES = frozenset({".pem", ".key"})
"""May hold a public certificate that programs need: hidden when they say that they hold a private key."""


def hidden(homes: tuple[Path, ...], spared: tuple[Path, ...] = ()) -> list[str]:
    """Existing paths that must not be read, sorted: of these homes, of other people's, and of the system. In `spared`
    folders, which commands work in, nothing is looked for."""
    found = [path for path in SYSTEM if os.path.lexists(path)]
    for home in homes:
        found += _of(home)
        found += _deeper(home, frozenset(spared), int(time.monotonic() / FRESH))
    for home in (Path("/root"), *_entries(Path("/home"))):
        if home.is_dir() and not any(home == own or home in own.parents or own in home.parents for own in homes):
            found.append(str(home))
    return sorted(dict.fromkeys(found))


@lru_cache(maxsize=8)
def _deeper(home: Path, spared: frozenset[Path], now: int) -> tuple[str, ...]:
    """Looked for again when `now` is another: it may take tens of milliseconds."""
    return tuple(_secrets(home, spared))


def _secrets(home: Path, spared: frozenset[Path]) -> Iterator[str]:
    """Files of secrets in the folders of a home, the upper ones first."""
    waiting = deque((str(entry), 1) for entry in _entries(home) if not entry.name.startswith("."))
    passed = {str(path) for path in spared}
    seen = found = 0
    while waiting and seen < ENTRIES and found < FOUND:
        folder, depth = waiting.popleft()
        for name, folder_there in _listed(folder) if folder not in passed else ():
            seen += 1
            if name in SECRET_FOLDERS or (is_secret(name) and _private(Path(folder, name))):
                found += 1
                yield f"{folder}/{name}"
            elif folder_there and depth < DEPTH and not name.startswith(".") and name not in PASSED:
                waiting.append((f"{folder}/{name}", depth + 1))


def _listed(folder: str) -> list[tuple[str, bool]]:
    """Names in a folder that is no link, each with whether it is a folder; nothing of what is none."""
    try:
        if Path(folder).is_symlink():
            return []
        with os.scandir(folder) as inside:
            return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in inside]
    except OSError:
        return []


def _private(path: Path) -> bool:
    if path.suffix not in CERTIFICATES:
        return not path.is_symlink()
    try:
        with path.open("rb") as file:
            return b"PRIVATE KEY" in file.read(100_000)
    except OSError:
        return False


def _of(home: Path) -> Iterator[str]:
    for entry in _entries(home):
        if entry.name in PARTLY:
            yield from _partly(home, entry.name)
        elif entry.name in SHOWN:
            yield from (str(entry / name) for name in SHOWN[entry.name] if os.path.lexists(entry / name))
        elif entry.name.startswith(".") or is_secret(entry.name):
            yield str(entry)


def _partly(home: Path, name: str) -> Iterator[str]:
    shown = PARTLY[name]
    for entry in _entries(home / name):
        if f"{name}/{entry.name}" in PARTLY:
            yield from _partly(home, f"{name}/{entry.name}")
        elif entry.name in shown:
            yield from (str(entry / inner) for inner in shown[entry.name] if os.path.lexists(entry / inner))
        else:
            yield str(entry)


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []
