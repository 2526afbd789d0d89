"""Decides who may advise whom: the agent that the user named, or those that are more often right.

Only the pool and the outcomes recorded by the session's first request count, so an agent is offered
the same tools from its first call to its last, also after a resume.
"""

from __future__ import annotations

from functools import lru_cache
from statistics import fmean

from fugu_cli.coordinators.action_space import blended_price
from fugu_cli.engine.environment import Environment
from fugu_cli.session.events import Assigned, Member, OutcomeCount, OutcomesKnown
from fugu_cli.session.state import SessionState

AUTO, OFF = "auto", "off"
"""Values of the setting `advisor`; any other value is an agent's name."""


def advisors_of(asker: str, state: SessionState, environment: Environment) -> tuple[str, ...]:
    """Return the agents that may advise `asker`, the best first."""
    setting, pool = environment.advisor, state.pool
    if setting == OFF or len(pool) < 2 or asker not in pool or not _calls_tools(pool[asker]):
        return ()
    excluded = environment.never_advise | {asker}
    if environment.denials is not None:
        excluded |= {name for name in pool if environment.denials.of(name)}
    candidates = tuple(
        member for name, member in pool.items() if name not in excluded and _calls_tools(member)
    )
    if setting != AUTO:
        return tuple(member.name for member in candidates if member.name == setting)
    if not candidates:
        return ()
    return _more_often_right(pool[asker], candidates, _first_outcomes(state))


def _calls_tools(member: Member) -> bool:
    return member.protocol == "native"


def _first_outcomes(state: SessionState) -> tuple[OutcomeCount, ...]:
    """Return the outcomes that were recorded last before the session's first turn."""
    counts: tuple[OutcomeCount, ...] = ()
    if not state.requests:
        return counts
    for event in state.requests[0].events:
        if isinstance(event, Assigned):
            break
        if isinstance(event, OutcomesKnown):
            counts = event.counts
    return counts


@lru_cache(maxsize=64)
def _more_often_right(
    asker: Member, candidates: tuple[Member, ...], outcomes: tuple[OutcomeCount, ...]
) -> tuple[str, ...]:
    """Return the candidates whose success rate is higher than the asker's by more than the error of
    the two rates. The highest rate comes first, of equal rates the cheapest agent.
    """
    from fugu_cli.coordinators import skills

    def typical_rate(member: Member) -> skills.SuccessRate:
        rates = [skills.success_rate(member, task_kind, outcomes) for task_kind in skills.KINDS]
        return skills.SuccessRate(
            rate=fmean(rate.rate for rate in rates),
            weight=fmean(rate.weight for rate in rates),
            own=rates[0].own,
            source=rates[0].source,
            error=fmean(rate.error for rate in rates),
        )

    asker_rate = typical_rate(asker)
    rates = {member.name: typical_rate(member) for member in candidates}
    better = []
    for member in candidates:
        rate = rates[member.name]
        if rate.rate > asker_rate.rate and skills.can_tell_apart(rate, asker_rate):
            better.append(member)
    better.sort(key=lambda member: (-rates[member.name].rate, blended_price(member.price)))
    return tuple(member.name for member in better)
