"""Coordinators: given the log, what happens next?

Holds the `Coordinator` protocol, the decisions there are, and the settings that all coordinators
share. `composed.py` is the default (success rates, costs and the kind of a request); `trinity.py`
decides with a checkpoint; `rules.py` needs no model; `conductor/` plans whole workflows. A
coordinator is a function of the log: it has no memory and runs nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from fugu_cli.messages import Prompt, Reply
from fugu_cli.session.events import Assigned, Finished, Planned, Steered
from fugu_cli.session.state import SessionState


@dataclass(frozen=True)
class AskPlanner:
    """Ask an agent for a plan. `read` makes an event of its reply. `reads_instructions`: it is
    shown the user's standing instructions as well. `steering`: what the user has written meanwhile,
    as the prompt shows it.
    """

    agent: str
    prompt: Prompt
    read: Callable[[Reply], Planned]
    reads_instructions: bool = False
    steering: tuple[Steered, ...] = ()


@dataclass(frozen=True)
class ParallelTurns:
    """Turns that may run at the same time, because none reads what another one writes."""

    turns: tuple[Assigned, ...]


@dataclass(frozen=True)
class RunSuite:
    """Run the project's tests before anything else is decided."""


@dataclass(frozen=True)
class MergeTurns:
    """Turns worked in copies: record their diffs and take over `chosen`'s work; or, while it is
    `open`, record only the diffs `among` which a later step chooses. `again`: the step is done
    again in the repository.
    """

    plan: int
    turns: tuple[int, ...]
    chosen: int
    reason: str
    open: bool = False
    among: tuple[int, ...] = ()
    again: bool = False


Decision = Assigned | Planned | Finished | AskPlanner | ParallelTurns | RunSuite | MergeTurns


class Coordinator(Protocol):
    """Decides the next step of the request at the end of the log."""

    async def decide(self, state: SessionState) -> Decision:
        """Return the next decision. Called only between turns, so that the newest turn is closed.
        Raises CoordinatorUnavailable if the coordinator cannot decide.
        """


@dataclass(frozen=True)
class CoordinatorSettings:
    """`turns` is TRINITY's K; `sample`, `temperature` and `seed` only matter to coordinators that
    draw.

    `verify_answers`: an answer that changed nothing needs a Verifier too. `opt_out` names agents
    never to be assigned.
    """

    turns: int = 5
    verify_answers: bool = False
    opt_out: frozenset[str] = frozenset()
    roles: bool = True
    """False: one agent a request and no roles (arXiv 2606.21228), also with a checkpoint that has
    them.
    """
    sample: bool = False
    temperature: float = 1.0
    seed: int = 0
