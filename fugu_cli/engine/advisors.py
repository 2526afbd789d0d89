"""Who may advise whom: the agent that the user named, or those that are more often right.

The answer follows from the pool and from the outcomes that the session's first request recorded, so
an agent is offered the same tools from its first call to its last, also after a resume.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import takewhile
from statistics import fmean

from fugu_cli.coordinators.action_space import blended_price
from fugu_cli.engine.environment import Environment
from fugu_cli.session.events import Assigned, Member, OutcomeCount, OutcomesKnown
from fugu_cli.session.state import SessionState

AUTO, OFF = "auto", "off"
"""Values of the setting `advisor` beside an agent's name."""


def advisors_of(asker: str, state: SessionState, environment: Environment) -> tuple[str, ...]:
    """Return the agents that may advise `asker`, the best first."""
    setting, pool = environment.advisor, state.pool
    if setting == OFF or len(pool) < 2 or asker not in pool or not _calls_tools(pool[asker]):
        return ()
    excluded = environment.never_advise | {asker}
    if environment.denials is not None:
        excluded |= {name for name in pool if environment.denials.of(name)}
    able = tuple(
        member for name, member in pool.items() if name not in excluded and _calls_tools(member)
    )
    if setting != AUTO:
        return tuple(member.name for member in able if member.name == setting)
    return _more_often_right(pool[asker], able, _first_outcomes(state)) if able else ()


def _calls_tools(member: Member) -> bool:
    return member.protocol == "native"


def _first_outcomes(state: SessionState) -> tuple[OutcomeCount, ...]:
    if not state.requests:
        return ()
    before_any_turn = takewhile(
        lambda event: not isinstance(event, Assigned), state.requests[0].events
    )
    known = [event for event in before_any_turn if isinstance(event, OutcomesKnown)]
    return known[-1].counts if known else ()


@lru_cache(maxsize=64)
def _more_often_right(
    asker: Member, others: tuple[Member, ...], outcomes: tuple[OutcomeCount, ...]
) -> tuple[str, ...]:
    """Return those of `others` whose success rate is higher than the asker's by more than what is
    uncertain about it, the highest first, of equal ones the cheapest.
    """
    from fugu_cli.coordinators import skills

    def typical_rate(member: Member) -> skills.SuccessRate:
        rates = [skills.success_rate(member, kind, outcomes) for kind in skills.KINDS]
        return skills.SuccessRate(
            rate=fmean(rate.rate for rate in rates),
            weight=fmean(rate.weight for rate in rates),
            own=rates[0].own,
            source=rates[0].source,
            error=fmean(rate.error for rate in rates),
        )

    own_rate = typical_rate(asker)
    rates = {member.name: typical_rate(member) for member in others}
    better = [
        member
        for member in others
        if rates[member.name].rate > own_rate.rate
        and skills.can_tell_apart(rates[member.name], own_rate)
    ]
    better.sort(key=lambda member: (-rates[member.name].rate, blended_price(member.price)))
    return tuple(member.name for member in better)
