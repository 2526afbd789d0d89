"""Coordinators: given what has happened, what next?

`trinity.py` is the default (the learned head), `fixed.py` the rules (cascade, single, random) that need no torch. A
coordinator is a function of the log: it has no memory, asks nobody and changes nothing. What has to be done to decide
(a planner's call, a test run) is a decision too, and the loop does it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from fugu_cli.events import Assigned, Event, Finished, Planned
from fugu_cli.messages import Prompt, Reply


@dataclass(frozen=True)
class Planning:
    """Ask an agent for a plan; `read` makes the fact of what it replied."""

    agent: str
    prompt: Prompt
    read: Callable[[Reply], Planned]


@dataclass(frozen=True)
class Together:
    """Turns that may run at once: what they read does not depend on one another."""

    turns: tuple[Assigned, ...]


@dataclass(frozen=True)
class Check:
    """Run the project's tests before anything else is decided."""


@dataclass(frozen=True)
class Merge:
    """Several turns did the same job in worktrees: record their diffs and take over `chosen`'s work; or, while it
    is `open`, record only the diffs `among` which a later step chooses."""

    plan: int
    turns: tuple[int, ...]
    chosen: int
    reason: str
    open: bool = False
    among: tuple[int, ...] = ()


Decision = Assigned | Planned | Finished | Planning | Together | Check | Merge


class Coordinator(Protocol):
    """Decides the next step of the request at the end of the log."""

    async def decide(self, events: Sequence[Event]) -> Decision:
        """Called only between turns: the newest turn is closed. Raises CoordinatorUnavailable when it cannot decide."""
