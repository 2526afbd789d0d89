"""How many rollouts fit this machine at once: cores, memory, and what memory is free right now.

Under running.py. Knows nothing of rollouts but what one needs.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

MEMORY = 1.0
"""GiB that one rollout is reckoned with: its tests and its tools, not the models."""
FLOOR = 0.5
"""GiB that must be free before another rollout begins beside others."""
GLANCE = 1.0


def at_once(rollouts: int | None, cores: int | None, memory: float | None) -> int:
    """The smallest of what was asked for, one rollout a core, and what the memory (GiB) holds; at least one.

    Without a word it is the cores of this process, four at most: providers limit requests before machines do.
    """
    if rollouts is None and cores is None and memory is None:
        return max(1, min(4, len(_cores())))
    limits = [rollouts, cores, None if memory is None else int(memory / MEMORY)]
    return max(1, min(limit for limit in limits if limit is not None))


def _cores() -> set[int]:
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


def available() -> float | None:
    """GiB of memory that are free for use; None where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    found = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return int(found[0]) / 2**20 if found else None


async def room(others: Callable[[], bool]) -> None:
    """Wait until there is memory for one more, or nobody else is at work whose end could free some."""
    while others() and (free := available()) is not None and free < FLOOR:
        await asyncio.sleep(GLANCE)
