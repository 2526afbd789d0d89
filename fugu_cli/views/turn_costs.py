"""What each turn of a session took: calls, tokens, money, drawn again or not. A pure fold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from fugu_cli.events import Asked, Assigned, Failed, Planned, Recorded, Replied, Role
from fugu_cli.messages import Usage
from fugu_cli.views.spending import Paid, price
from fugu_cli.views.turns import pool


@dataclass(frozen=True)
class TurnCost:
    """One turn, numbered in its request, both from 1. Turn 0 is what an agent did for a request beside its turns: a
    plan, a summary. `dollars` at the prices the session knew; `models` are those that served."""

    session: str
    request: int
    turn: int
    agent: str
    role: Role | None = None
    at: float = 0.0
    models: tuple[str, ...] = ()
    calls: int = 0
    usage: Usage = field(default_factory=Usage)
    dollars: float = 0.0

    @property
    def place(self) -> tuple[str, int, int]:
        """The turn, among all sessions."""
        return (self.session, self.request, self.turn)


def turn_costs(session: str, records: Sequence[Recorded]) -> list[TurnCost]:
    """Every turn of the session in the order they began, those of undone requests and those nobody was paid for among
    them."""
    members = pool([record.event for record in records])
    found: dict[tuple[int, int, str], TurnCost] = {}
    request = 0
    for record in records:
        event = record.event
        if isinstance(event, Asked):
            request += 1
        elif isinstance(event, Assigned):
            key = (request, event.turn, event.agent)
            found.setdefault(key, TurnCost(session, *key, role=event.role, at=record.at))
        elif isinstance(event, Paid) and event.agent:
            key = (request, event.turn if isinstance(event, Replied | Failed) else 0, event.agent)
            known = found.get(key) or TurnCost(session, *key, at=record.at)
            found[key] = _more(known, event, price(event, members.get(event.agent)))
    return list(found.values())


def _more(known: TurnCost, paid: Paid, dollars: float) -> TurnCost:
    model = paid.model if isinstance(paid, Replied | Planned) else ""
    models = known.models if not model or model in known.models else (*known.models, model)
    usage, dollars = known.usage + paid.usage, known.dollars + dollars
    return replace(known, models=models, calls=known.calls + 1, usage=usage, dollars=dollars)
