"""What answers stand on: the crew and the limits of one endpoint. Values that wiring fills in; no behaviour.

Beside service.py. It must not know wires or HTTP.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fugu_cli.budgets import Budgets, Tab
from fugu_cli.coordinators import Coordinator
from fugu_cli.errors import AgentError
from fugu_cli.events import Member, Opened
from fugu_cli.log import Log
from fugu_cli.loop.environment import Bench
from fugu_cli.orchestrator import Crew
from fugu_cli.serve.asking import Refused

FUGU, ULTRA = "fugu", "fugu-ultra"
"""The two names of the pool as a whole, as in the Fugu report."""


@dataclass(frozen=True)
class House:
    """`opened` is the first line of every trace. `single`: the agent that answers for the pool, where one is pinned.

    `opted_out`: agents that the configuration keeps from every request. `longest`: an entry's own limit on reply
    tokens, by agent. `ultra` makes the Conductor's coordinator, None where there is none. `bench` is what a loop
    without the client's tools works on: no tools, an empty folder. `tab` opens a request's account, its log and where
    that will lie given; None where no budget is shared by requests.
    """

    opened: Opened
    crew: Crew
    bench: Bench
    budgets: Budgets = field(default_factory=Budgets)
    opted_out: frozenset[str] = frozenset()
    longest: Mapping[str, int] = field(default_factory=dict)
    single: str | None = None
    ultra: Callable[[], Coordinator] | None = None
    tab: Callable[[Log, Path], Tab] | None = None

    @property
    def members(self) -> Mapping[str, Member]:
        return self.crew.members

    @property
    def offered(self) -> Mapping[str, Member]:
        """The members that a client may ask for by name."""
        return {name: member for name, member in self.members.items() if name not in self.opted_out}


STATUS = {
    "refused": 502,
    "absent": 502,
    "invalid": 400,
    "limited": 429,
    "overloaded": 503,
    "network": 502,
    "timeout": 504,
    "protocol": 502,
    "credit": 402,
    "budget": 402,
}
"""What the client is told where an agent failed: the fault is behind this endpoint, never the client's own key."""

KINDS = {400: "invalid_request_error", 402: "insufficient_quota", 429: "rate_limit_error"}


def failed(kind: str, message: str, after: float | None = None) -> Refused:
    """The refusal for a failure of `AgentError.kind`, or of the budget."""
    status = STATUS.get(kind, 502)
    code = "budget_exceeded" if kind == "budget" else f"agent_{kind}"
    return Refused(status, message, kind=KINDS.get(status, "server_error"), code=code, after=after)


def words(error: AgentError) -> str:
    """The message with its hint."""
    return f"{str(error).rstrip('.')}; {error.hint}" if error.hint else str(error)
