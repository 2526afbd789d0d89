"""Every coordinator that ships, held to the sessions of `sessions.toml`: what may come next in
each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from fugu_cli.coordinators import Coordinator, Decision, action_space
from fugu_cli.coordinators.baselines import LLMRouter
from fugu_cli.coordinators.composed import ComposedHead
from fugu_cli.coordinators.rules import Cascade, Random, Single
from fugu_cli.session.events import ROLES, Assigned, Event
from fugu_cli.session.state import SessionState
from tests.facts import replied
from tests.unit.coordinators.sessions import Session, sessions, shown

SESSIONS = sessions()


def held(coordinator: str) -> pytest.MarkDecorator:
    """Every session, by name; those that this coordinator is known to get wrong must fail."""

    def marks(session: Session) -> list[pytest.MarkDecorator]:
        why = session.known.get(coordinator)
        return [pytest.mark.xfail(reason=why, strict=True, raises=AssertionError)] if why else []

    given = [pytest.param(session, id=session.name, marks=marks(session)) for session in SESSIONS]
    return pytest.mark.parametrize("session", given)


def decide(coordinator: Coordinator, events: Sequence[Event]) -> Decision:
    return asyncio.run(coordinator.decide(SessionState(events)))


def test_each_session_has_a_name_of_its_own_and_what_is_right_is_not_forbidden() -> None:
    assert len({session.name for session in SESSIONS}) == len(SESSIONS) >= 60
    for session in SESSIONS:
        assert not set(session.next) & set(session.never), session.name
        assert set(session.known) <= {"cascade", "single", "trinity", "random", "router"}, (
            session.name
        )


@held("cascade")
def test_the_cascade(session: Session) -> None:
    decision = decide(Cascade(session.pool, session.settings), session.events)
    assert session.is_right(decision), shown(decision)


@held("trinity")
def test_the_learned_coordinator_chooses_the_right_role(session: Session) -> None:
    """Who it is follows from success rates and costs, not from the slots that the sessions name."""
    roles = {allowed.split()[1] for allowed in session.next}
    decision = decide(ComposedHead(session.pool, session.settings), session.events)
    assert shown(decision).split()[1] in roles, shown(decision)


@held("single")
def test_a_single_agent_is_in_the_right_role(session: Session) -> None:
    """Whoever it is; where it is out, the request ends. No other agent is there to think for it, so
    it works.
    """
    roles = {one.split()[1].replace("thinker", "worker") for one in session.next}
    for member in session.pool:
        decision = decide(Single(member.name, session.pool, session.settings), session.events)
        out = action_space.agents_out(SessionState(session.events), session.settings.opt_out)
        gave_up = action_space.agents_that_gave_up(SessionState(session.events))
        does = shown(decision).split()[1]
        ends = {"failed", "unaccepted"} | (roles - set(ROLES))
        assert does in (ends if member.name in {**out, **gave_up} else roles), (member.name, does)


@held("random")
def test_no_draw_is_forbidden(session: Session) -> None:
    for seed in range(20):
        decision = decide(
            Random(session.pool, replace(session.settings, seed=seed)), session.events
        )
        assert not session.is_forbidden(decision), (seed, shown(decision))


@held("router")
def test_nothing_forbidden_is_done_whatever_a_model_that_chooses_says(session: Session) -> None:
    for chooser in {session.pool[0], session.pool[-1]}:
        router = LLMRouter(chooser.name, session.pool, session.settings)
        for decision in _told(router, session.events, len(session.pool)):
            assert not session.is_forbidden(decision), (chooser.name, shown(decision))


def _told(router: LLMRouter, events: Sequence[Event], agents: int) -> Iterator[Decision]:
    """What the router does after each reply that names an agent and a role; its own decision where
    it asks nobody.
    """
    first = decide(router, events)
    if not (isinstance(first, Assigned) and first.chooses):
        yield first
        return
    for number in range(agents):
        for role in ROLES:
            said = replied(first.turn, first.agent, f"Agent: {number}\nRole: {role}")
            yield decide(router, [*events, first, said])
