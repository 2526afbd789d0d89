"""The limits of a command: memory, processes, file size. The launcher (launcher.py) enforces them."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from functools import cache
from pathlib import Path

GIGABYTE = 1 << 30
LEAST_MEMORY = 2 * GIGABYTE
MOST_PROCESSES = 4096
LARGEST_FILE = 16 * GIGABYTE
LEAST_FILE = 1 << 26
"""Bytes that a file may have on any disk, however full."""


@dataclass(frozen=True)
class CommandLimits:
    """The limits of one command and all that it starts, in bytes and processes."""

    memory: int
    processes: int = MOST_PROCESSES
    file_size: int = LARGEST_FILE

    @property
    def options(self) -> list[str]:
        """The launcher's options."""
        values = {
            "--memory": self.memory,
            "--processes": self.processes,
            "--file-size": self.file_size,
        }
        return [word for name, value in values.items() for word in (name, str(value))]


def default_limits(folder: Path, memory: int | None = None) -> CommandLimits:
    """Return the limits of a command in `folder`: half of the machine's memory unless `memory` says
    otherwise, and files that leave half of the free disk."""
    try:
        free = shutil.disk_usage(folder).free
    except OSError:
        free = LARGEST_FILE
    file_size = max(min(LARGEST_FILE, free // 2), LEAST_FILE)
    return CommandLimits(memory or max(_machine_memory() // 2, LEAST_MEMORY), file_size=file_size)


@cache
def _machine_memory() -> int:
    """Return the bytes of memory of this machine, or of the container that it is."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        try:
            limit = Path("/sys/fs/cgroup", name).read_text(encoding="ascii").strip()
        except OSError:
            continue
        if limit.isdigit():
            memory = min(memory, int(limit))
    return memory


def exceeded_text(exceeded: str, limits: CommandLimits) -> str:
    """Tell an agent which limit ended its command; "" if none did."""
    match exceeded:
        case "memory":
            what = f"it used more than {limits.memory / GIGABYTE:.1f} GB of memory"
            hint = "do the work in smaller pieces; only the user can raise `memory` in [sandbox]"
        case "processes":
            what = f"it started more than {limits.processes:,} processes"
            hint = "run fewer at once"
        case _:
            return ""
    return f"It was ended: {what}; {hint}."
