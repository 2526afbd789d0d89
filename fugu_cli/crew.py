"""From pool entries to agents that can be called: which class speaks to which provider, in which wrappers.

The part of wiring that names the agents. Everything is imported when an entry needs it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

from fugu_cli import prompts
from fugu_cli.agents import Agent
from fugu_cli.config.entry import AgentEntry
from fugu_cli.config.tables import Phases
from fugu_cli.events import Compacted, Event, Planned, Replied

if TYPE_CHECKING:
    from fugu_cli.agents.access import Access, Timeouts
    from fugu_cli.agents.circuit_breaker import CircuitBreaker
    from fugu_cli.models.local import Lease


@dataclass(frozen=True)
class Places:
    """Where models are kept, and how many seconds an unused local one stays loaded.

    `breaker`: what all agents of a process share about failures and rate limits; None where each call stands alone.
    """

    cache: Path
    idle: float
    breaker: CircuitBreaker | None = None


def build(
    entries: Sequence[AgentEntry], environ: Mapping[str, str], places: Places, events: Sequence[Event] = ()
) -> dict[str, Agent]:
    """An agent per entry, by name. Nothing is started or called. `events`: the session so far; scripts go on there."""
    made = {entry.name: _with_protocol(entry, _provider(entry, environ, places, events)) for entry in entries}
    if places.breaker is None:
        return made
    from fugu_cli.agents.circuit_breaker import Watched

    return {name: Watched(agent, places.breaker) for name, agent in made.items()}


def _with_protocol(entry: AgentEntry, agent: Agent) -> Agent:
    """The wrappers: the entry's own sampling, then the protocol for models that do not call tools natively."""
    from fugu_cli.agents.sampling import Sampling

    agent = Sampling(agent, temperature=entry.temperature, max_tokens=entry.max_tokens)
    if entry.protocol == "schema":
        from fugu_cli.repair.schema import Schema

        return Schema(agent, prompts.load("protocols/schema"))
    if entry.protocol == "text":
        from fugu_cli.repair.text import Text

        return Text(agent, prompts.load("protocols/text"))
    return agent


def _provider(entry: AgentEntry, environ: Mapping[str, str], places: Places, events: Sequence[Event]) -> Agent:
    from fugu_cli.agents.retry import Retrying

    match entry.provider:
        case "openai" if entry.api == "responses":
            from fugu_cli.agents.responses import Responses

            return Retrying(Responses(access(entry, environ)), breaker=places.breaker)
        case "openai":
            from fugu_cli.agents.openai import OpenAI

            return Retrying(OpenAI(access(entry, environ)), breaker=places.breaker)
        case "anthropic":
            from fugu_cli.agents.anthropic import Anthropic

            return Retrying(Anthropic(access(entry, environ)), breaker=places.breaker)
        case "local":
            return Retrying(_local(entry, places))
        case "scripted":
            from fugu_cli.agents.scripted import Scripted, load

            return Retrying(Scripted(entry.name, load(Path(entry.model)), _replies(events, entry.name)))
        case _:
            assert_never(entry.provider)


def circuit_breaker(entries: Sequence[AgentEntry]) -> CircuitBreaker:
    """For these entries. Two of one model and one key are one account to the server."""
    from fugu_cli.agents.circuit_breaker import CircuitBreaker

    return CircuitBreaker({entry.name: f"{entry.base_url} {entry.api_key_env} {entry.model}" for entry in entries})


def access(entry: AgentEntry, environ: Mapping[str, str]) -> Access:
    """How an entry is reached, with the key that is in the environment."""
    from fugu_cli.agents.access import Access

    variable = entry.api_key_env or ""
    return Access(
        name=entry.name,
        model=entry.model,
        base_url=entry.base_url or "",
        key=environ.get(variable, "").strip() if variable else "",
        key_env=variable,
        effort=entry.effort or "",
        timeouts=timeouts(entry.timeout),
        headers=entry.headers,
        body=entry.body,
    )


def timeouts(said: float | Phases | None) -> Timeouts:
    """The phases that were said, over the usual ones."""
    from fugu_cli.agents.access import Timeouts

    if not isinstance(said, Phases):
        return Timeouts() if said is None else Timeouts(first_token=said)
    usual = Timeouts()
    return Timeouts(
        connect=said.connect or usual.connect,
        first_token=said.first or usual.first_token,
        between=said.between or usual.between,
        whole=said.total or usual.whole,
    )


def _local(entry: AgentEntry, places: Places) -> Agent:
    from fugu_cli.agents.local import Local, Small
    from fugu_cli.models.local import lease
    from fugu_cli.repair.enough import over
    from fugu_cli.repair.infill import fill

    async def start() -> Lease:
        return await lease(entry.model, context=entry.context or 16384, cache=places.cache, idle=places.idle)

    return Local(entry.name, entry.model, start, Small(over, fill))


def _replies(events: Sequence[Event], name: str) -> int:
    """How often the agent has replied, plans and summaries included: a script goes on there, also after a kill."""
    return sum(isinstance(event, Replied | Planned | Compacted) and event.agent == name for event in events)
