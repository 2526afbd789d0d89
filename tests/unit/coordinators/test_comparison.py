"""A session's decisions made again on the same facts."""

import asyncio

from fugu_cli.coordinators import CoordinatorSettings
from fugu_cli.coordinators.rules import Cascade, Single
from fugu_cli.engine.decision_replay import (
    RecordedDecision,
    ReplayedDecision,
    decision_points,
    replay_decisions,
)
from fugu_cli.session.events import Assigned, Event, Finished, Member, Planned
from tests.facts import POOL, SMALL, STRONG, asked, assigned, checked, opened, ran, replied, write

END = Finished(reason="accepted")


def session() -> list[Event]:
    """The cascade's own way but for the last turn, which `strong` took."""
    return [
        opened(), asked(), *checked(0, ok=False),
        assigned(1, "small"), replied(1, "small", "I see nothing."),
        assigned(2, "coder"), replied(2, "coder", "", write("w")), *ran(2, write("w"), path="a.py"),
        replied(2, "coder", "Done."), *checked(2, ok=True, id="f"),
        assigned(3, "strong", "verifier"), replied(3, "strong", "ACCEPT"), END,
    ]  # fmt: skip


def compared(events: list[Event], pool: tuple[Member, ...] | None = None) -> list[ReplayedDecision]:
    return asyncio.run(
        replay_decisions(
            events,
            decision_points(events)[0],
            lambda members: Cascade(members, CoordinatorSettings()),
            pool,
        ),
    )


def test_every_decision_is_made_again_on_exactly_the_facts_before_it() -> None:
    found = compared(session())
    said = [
        (one.replayed.agent, one.replayed.role) if isinstance(one.replayed, Assigned) else "end"
        for one in found
    ]
    assert said == [("small", "worker"), ("coder", "worker"), ("small", "verifier"), "end"]
    assert [(one.same, one.same_agent, one.same_role) for one in found] == [
        (True, True, True),
        (True, True, True),
        (False, False, True),
        (True, None, None),
    ]


def test_an_end_where_the_other_goes_on_is_no_agreement() -> None:
    events = [*session()[:-3], Finished(reason="accepted")]
    last = compared(events)[-1]
    assert (last.same, last.same_agent, isinstance(last.replayed, Assigned)) == (False, None, True)
    limit = ReplayedDecision(RecordedDecision(1, 9, Finished(reason="turn_limit")), END, POOL)
    assert not limit.same


def test_another_pool_is_chosen_from_where_it_is_given() -> None:
    found = compared(session(), (STRONG,))
    assert [one.replayed.agent for one in found if isinstance(one.replayed, Assigned)] == [
        "strong"
    ] * 3
    assert [one.pool for one in found] == [(STRONG,)] * 4


def test_each_place_has_the_pool_its_session_had_then() -> None:
    later = opened().model_copy(update={"pool": (SMALL,)})
    events = [*session(), later, asked(), assigned(1, "small"), replied(1, "small", "Done.")]
    asked_for: list[tuple[Member, ...]] = []

    def build(members: tuple[Member, ...]) -> Single:
        asked_for.append(members)
        return Single(members[0].name, members, CoordinatorSettings())

    asyncio.run(replay_decisions(events, decision_points(events)[0], build))
    assert asked_for == [POOL, (SMALL,)]


def test_steps_of_a_workflow_and_ends_that_nobody_decided_are_left_out() -> None:
    step = assigned(1, "coder").model_copy(update={"plan": 1})
    planned: list[Event] = [
        asked(),
        Planned(steps=(), text=""),
        step,
        replied(1, "coder", "x"),
        END,
    ]
    stopped: list[Event] = [asked(), assigned(1, "small"), Finished(reason="budget")]
    events = [opened(), *planned, *stopped]
    assert decision_points(events) == ([RecordedDecision(2, 7, assigned(1, "small"))], 1)
