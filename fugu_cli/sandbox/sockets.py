"""Unix sockets that programs outside listen on: an agent of keys, a container engine, the desktop.

Under places.py. No rule about files keeps a process from connecting to one: read-only mounts do not, and Landlock does
not. So each is covered. Known are those of this network namespace, those that are mounted here, and those that a
variable names. Reads the disk and /proc.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

_PATH = re.compile(r"/[^\s:;,=]+")
_LINE = re.compile(r"(?:\S+ +){7}(.+)")
_ESCAPED = re.compile(r"\\([0-7]{3})")


def sockets(environ: Mapping[str, str], proc: Path = Path("/proc")) -> list[str]:
    """Absolute, resolved paths of the sockets that are there, sorted."""
    named = [*_bound(proc), *_mounted(proc), *(path for value in environ.values() for path in _PATH.findall(value))]
    return sorted({os.path.realpath(path) for path in named if _is_socket(path)})


def _bound(proc: Path) -> Iterator[str]:
    """Every name that a process gave a socket; one that is relative, seen from every folder a process works in."""
    names = [found.group(1) for line in _lines(proc / "net" / "unix")[1:] if (found := _LINE.fullmatch(line))]
    yield from (name for name in names if name.startswith("/"))
    relative = sorted({name for name in names if not name.startswith(("/", "@"))})
    if relative:
        yield from (f"{folder}/{name}" for folder in _working(proc) for name in relative)


def _mounted(proc: Path) -> Iterator[str]:
    for line in _lines(proc / "self" / "mountinfo"):
        fields = line.split(" ")
        if len(fields) > 4:
            yield _ESCAPED.sub(lambda found: chr(int(found.group(1), 8)), fields[4])


def _working(proc: Path) -> set[Path]:
    """Folders that processes work in, as far as one may know."""
    found = set()
    for entry in proc.glob("[0-9]*/cwd"):
        with contextlib.suppress(OSError):
            found.add(entry.readlink())
    return found


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
