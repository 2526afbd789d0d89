"""The rule of places.py as bubblewrap's arguments. Pure but for looking whether a path is there. See bwrap(1)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from fugu_cli.sandbox.places import Places

CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "NET_BIND_SERVICE")
"""What root keeps; the same as in confine.py."""


def arguments(found: Places, private: str, *, network: bool) -> list[str]:
    """The options of `bwrap`."""
    options = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-pid", "--unshare-ipc"]
    for path in ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus"):  # root may write them otherwise
        options += ["--ro-bind-try", path, path]
    options += ["--die-with-parent", *(() if network else ("--unshare-net",)), "--bind", private, "/tmp"]
    if os.geteuid() == 0:
        options += ["--cap-drop", "ALL", *(word for name in CAPABILITIES for word in ("--cap-add", f"CAP_{name}"))]
    for path in sorted({*found.writable, *found.sealed, *found.readable, *found.hidden, *found.covered}, key=_depth):
        options += _about(path, found)
    return options


def _depth(path: str) -> int:
    return path.count("/")


def _about(path: str, found: Places) -> Iterator[str]:
    """One path's options; the order of the conditions decides where a path is in two lists."""
    if not os.path.lexists(path) or Path(path).is_symlink():
        return
    if path in found.hidden or path in found.covered:
        yield from ("--tmpfs", path) if Path(path).is_dir() else ("--ro-bind", os.devnull, path)
    if path in found.sealed or path in found.readable:
        yield from ("--ro-bind", path, path)
    elif path in found.writable:
        yield from ("--bind", path, path)
