"""The one table of what runs, what is asked about and what is refused: `fugu help permissions`."""

from __future__ import annotations

from enum import Enum, auto
from typing import Literal, assert_never

Mode = Literal["plan", "ask", "edit", "auto", "yolo"]


class CallClass(Enum):
    """The class of a call, a column of the table."""

    READ = auto()
    """It only reads, inside the repository."""
    EDIT = auto()
    """It writes files of the repository that undo brings back."""
    BUILD_FILE = auto()
    """It writes a file that tests, builds or language servers run."""
    TESTS = auto()
    """It runs the detected tests."""
    CHECK = auto()
    """It runs a check that an agent sets."""
    COMMAND = auto()
    """It runs another command."""
    OUTSIDE = auto()
    """It leaves the repository, reaches the network, writes git history, touches a secret or
    writes a file that others run.
    """
    FOREIGN_TOOL = auto()
    """A tool that policy does not know, as those of MCP servers are."""
    LOST = auto()
    """Undo cannot bring back what it takes away."""


class Decision(Enum):
    """The answer of the table."""

    RUN = auto()
    ASK = auto()
    REFUSE = auto()


def decide(
    mode: Mode, call_class: CallClass, *, sandbox_holds: bool, somebody_to_ask: bool
) -> Decision:
    """Return the decision on a call that no rule speaks about."""
    decision = _by_table(mode, call_class, sandbox_holds)
    if decision is Decision.ASK and not somebody_to_ask:
        return Decision.REFUSE
    return decision


def _by_table(mode: Mode, call_class: CallClass, sandbox_holds: bool) -> Decision:
    if mode == "yolo":
        return Decision.RUN
    if call_class is CallClass.READ:
        return Decision.RUN
    if call_class is CallClass.LOST or mode == "plan":
        return Decision.REFUSE
    ask = Decision.REFUSE if mode == "auto" else Decision.ASK
    match call_class:
        case CallClass.EDIT:
            return Decision.ASK if mode == "ask" else Decision.RUN
        case CallClass.TESTS | CallClass.CHECK:
            return Decision.RUN if sandbox_holds else ask
        case CallClass.COMMAND | CallClass.BUILD_FILE:
            return Decision.RUN if sandbox_holds and mode != "ask" else ask
        case CallClass.OUTSIDE | CallClass.FOREIGN_TOOL:
            return ask
        case _:
            assert_never(call_class)
