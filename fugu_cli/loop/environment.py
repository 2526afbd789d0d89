"""Where turns are taken, by whom and under which rules: the values that wiring builds and the loop hands on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from fugu_cli import policy, views
from fugu_cli.agents import Agent
from fugu_cli.agents.circuit_breaker import CircuitBreaker
from fugu_cli.budgets import Limit
from fugu_cli.coordinators import Coordinator
from fugu_cli.denials import Denials
from fugu_cli.events import (
    Event,
    Member,
)
from fugu_cli.hooks.running import Hooks
from fugu_cli.loop.evidence import TestRules
from fugu_cli.loop.skipping import Skip
from fugu_cli.messages import Call, Prompt, ToolSpec
from fugu_cli.tools.toolbox import Toolbox
from fugu_cli.tools.workspace import Workspace

Permission = Literal["once", "session", "no", "headless"]
Ask = Callable[[Call, policy.Judgement], Awaitable[Permission]]
"""The one question that flows in: may this call run? Where nobody can be asked the answer is `headless`: no."""


LONGEST = 180.0
"""Seconds that a server is waited for at a stretch, where the user has set no limit."""


@dataclass(frozen=True)
class WaitLimit:
    """How long a request waits at a stretch while no agent is available. Tests bring their sleep.

    `seconds` None: where a server said how long, but `LONGEST` at most. A number: after any failure, that long; 0: the
    request ends.
    """

    seconds: float | None = None
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    @property
    def most(self) -> float:
        """Seconds at most."""
        return LONGEST if self.seconds is None else self.seconds


@dataclass(frozen=True)
class Limits:
    """What ends a request early. Money in USD, a request's where it is a number; `deadline` on the monotonic clock."""

    budget: Limit = None
    deadline: float | None = None
    replies: int = 30
    brief_replies: int = 6
    """Replies in one draw of a small model (`schema`, `text`): more lead nowhere."""


@dataclass(frozen=True)
class Crew:
    """Who works: the members of the pool by name, each one's agent, and the coordinator that chooses among them."""

    members: Mapping[str, Member]
    agents: Mapping[str, Agent]
    coordinator: Coordinator
    breaker: CircuitBreaker | None = None
    """Who is unavailable after a failure; None where every failure stands until the request's end."""
    wait_limit: WaitLimit = field(default_factory=WaitLimit)
    """How long a request waits when no agent is available."""
    never: frozenset[str] = frozenset()
    """Members that the coordinator never chooses: opted out, excluded, or beside a pinned one."""
    harnesses: Mapping[str, Harness] = field(default_factory=dict)
    """How agents take a turn, by name; an agent that is not here calls tools."""


class Voice(Protocol):
    """Whom turns speak to, where it is not the user of a repository: an endpoint's client. Plans and summaries are no
    turns: nobody but fugu reads them."""

    def put(self, prompt: Prompt, events: Sequence[Event], now: views.Turn) -> Prompt:
        """The prompt of a turn's call as it is put to its agent."""

    def say(self, now: views.Turn, text: str) -> None:
        """A piece of a turn's reply arrived."""

    def wait(self, now: views.Turn) -> None:
        """A turn's call waits, and may then be tried again. Raises AgentError where it must not be."""


@dataclass(frozen=True)
class Bench:
    """Where and under which rules they work."""

    toolbox: Toolbox
    workspace: Workspace
    rules: policy.Rules
    ask: Ask
    limits: Limits = Limits()
    instructions: str = ""
    remembers: bool = False
    """What a call depended on is recorded with its result: the tool memory of workflows needs it."""
    denials: Denials | None = None
    """Files that are kept from some agents."""
    hooks: Hooks | None = None
    """The user's own commands around agents' calls."""
    nearer: Callable[[Path], Mapping[str, str]] | None = None
    """Standing instructions for a path in the repository, each under its heading; None where nobody is shown any."""
    voice: Voice | None = None
    """Whom turns speak to; None: the user of the repository."""
    tests: TestRules = field(default_factory=TestRules)
    """When fugu runs the test suite."""
    skip: Skip = field(default_factory=Skip)
    """With which the user ends a test run of fugu's."""


@dataclass(frozen=True)
class Evidence:
    """Run this tool as fugu, for the agent."""

    call: Call


@dataclass(frozen=True)
class Reply:
    """Ask the agent for its next reply."""


@dataclass(frozen=True)
class Run:
    """Judge and run the agent's call."""

    call: Call


@dataclass(frozen=True)
class RollBack:
    """The attempt failed: put the files back to how they stood when the turn began."""

    reason: str


@dataclass(frozen=True)
class Closed:
    """The turn is over; the coordinator decides next."""


Step = Evidence | Reply | Run | RollBack | Closed


class Harness(Protocol):
    """How models of one kind take a turn. `events` always end in the turn that is asked about."""

    @property
    def has_history(self) -> bool:
        """Its prompts hold the whole history, which can be summed up when it grows too long."""

    def next_step(self, events: Sequence[Event], member: Member, bench: Bench) -> Step:
        """What the turn needs next."""

    def prompt(self, events: Sequence[Event], member: Member, tools: Sequence[ToolSpec], instructions: str) -> Prompt:
        """The next model call. `instructions`: the user's standing ones (AGENTS.md)."""

    def tools(self, events: Sequence[Event], member: Member, bench: Bench) -> tuple[ToolSpec, ...]:
        """The tools that the agent may use now."""

    def refuses(self, call: Call, events: Sequence[Event], member: Member, bench: Bench) -> str:
        """Why the agent must not make this call, whatever the user permits; "" where policy judges it."""
