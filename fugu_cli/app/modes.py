"""Permission modes and efforts, as every front end names them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fugu_cli.errors import UsageError
from fugu_cli.messages import EFFORTS, Effort

if TYPE_CHECKING:
    from fugu_cli.safety import policy
    from fugu_cli.safety.policy import Mode

AUTO = "auto"
"""The word that gives a decision back to the coordinator, or to an agent's entry."""
MODE_CYCLE: tuple[policy.Mode, ...] = ("plan", "ask", "edit", "auto")
"""The modes that the mode key cycles through. yolo is only for the command line and `/mode`."""
MODE_HELP: dict[str, str] = {
    "plan": "only reads, and makes a plan",
    "ask": "asks before changes, and before commands but reads and tests",
    "edit": "changes files, and runs commands in the sandbox; asks about the rest",
    "auto": "as edit, but never asks: refuses the rest",
    "yolo": "never asks",
}
"""Each mode in one line."""


def all_modes() -> tuple[Mode, ...]:
    """Return the modes by policy's names."""
    return ("plan", "ask", "edit", "auto", "yolo")


def modes_up_to(loosest: Mode) -> tuple[Mode, ...]:
    """Return the modes that allow no more than `loosest`."""
    modes = all_modes()
    return modes[: modes.index(loosest) + 1]


def effort_named(word: str) -> Effort:
    """Return the effort that a word means. Raises UsageError."""
    if word == AUTO:
        return ""
    for effort in EFFORTS:
        if effort == word:
            return effort
    raise UsageError(f"there is no effort {word!r}", hint=f"there are {AUTO}, {', '.join(EFFORTS)}")
