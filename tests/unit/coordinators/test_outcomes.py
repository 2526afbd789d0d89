"""Outcomes of turns, read from logs: what judged a turn, what it counts, what it cost."""

import math
import random

import pytest

from fugu_cli.coordinators.outcomes import (
    LATER_TURN,
    Attempt,
    SessionOutcomes,
    count_outcomes,
    session_outcomes,
)
from fugu_cli.coordinators.skills import KINDS, SkillLine, SkillTable
from fugu_cli.messages import Usage
from fugu_cli.session.events import (
    Assigned,
    Event,
    Failed,
    FileChange,
    Finished,
    KindRead,
    Member,
    Opened,
    OutcomeCount,
    Price,
    Replied,
    Scores,
    Undone,
)
from fugu_cli.session.state import SessionState
from tests.facts import asked, assigned, checked, ran, replied, write

PRICE = Price(input=1.0, output=10.0)
MEMBERS = tuple(
    Member(name=name, provider="openai", model=name, slot="middle", price=PRICE)
    for name in ("first", "second", "third")
)
TABLE = SkillTable(
    models={},
    vendors={},
    kinds={kind: SkillLine(0.3, 1.5, 0.35) for kind in KINDS},
    efforts={},
)


def opened() -> Opened:
    return Opened(version="1", repo="/repo", pool=MEMBERS)


def work(turn: int, agent: str, *, ok: bool | None) -> list[Event]:
    """A Worker's turn that changes a file, and what the tests say of it."""
    call = write(f"w{turn}")
    events: list[Event] = [
        assigned(turn, agent),
        replied(turn, agent, "", call),
        *ran(turn, call, path="a.py"),
        replied(turn, agent, "Done."),
    ]
    return events if ok is None else [*events, *checked(turn, ok=ok)]


def verified(turn: int, agent: str, verdict: str) -> list[Event]:
    return [assigned(turn, agent, "verifier"), replied(turn, agent, f"VERDICT: {verdict}")]


def made(
    agent: str,
    succeeded: bool,
    kinds: dict[str, float],
    after: tuple[str, ...] = (),
    weight: float = 1.0,
) -> Attempt:
    return Attempt(agent, succeeded, weight, kinds, after, model=agent)


def attempts(*events: Event) -> list[tuple[str, bool, float]]:
    found = session_outcomes(SessionState([opened(), *events])).attempts
    return [(attempt.agent, attempt.succeeded, attempt.weight) for attempt in found]


def test_tests_that_pass_after_a_change_are_a_success() -> None:
    assert attempts(asked(), *work(1, "first", ok=True)) == [("first", True, 1.0)]


def test_tests_that_fail_are_a_failure_and_a_later_turn_counts_less() -> None:
    events = [asked(), *work(1, "first", ok=False), *work(2, "second", ok=True)]
    assert attempts(*events) == [("first", False, 1.0), ("second", True, LATER_TURN)]


def test_a_verdict_counts_half_where_no_check_judged() -> None:
    request = asked(judged=False, command=None)
    accepted = attempts(request, *work(1, "first", ok=None), *verified(2, "second", "ACCEPT"))
    revised = attempts(request, *work(1, "first", ok=None), *verified(2, "second", "REVISE"))
    assert accepted == [("first", True, 0.5)]
    assert revised == [("first", False, 0.5)]


def test_work_that_nothing_judged_is_no_outcome() -> None:
    assert attempts(asked(judged=False, command=None), *work(1, "first", ok=None)) == []


def test_an_agent_that_failed_before_it_answered_has_no_outcome() -> None:
    failed = Failed(turn=1, what="first", kind="network", message="reset")
    assert attempts(asked(), assigned(1, "first"), failed) == []


def test_each_request_of_a_session_begins_anew() -> None:
    request = [asked(), *work(1, "first", ok=False), Finished(reason="turn_limit", message="")]
    again = [asked("more"), *work(1, "second", ok=True)]
    assert attempts(*request, *again) == [("first", False, 1.0), ("second", True, 1.0)]


def test_the_kind_comes_from_the_decision_or_from_what_was_read_later() -> None:
    scores = Scores(
        rows=("first",),
        row_logits=(0.0,),
        row_probabilities=(1.0,),
        kinds=(("tests", 0.9), ("data", 0.1)),
    )
    decided = [asked(), *work(1, "first", ok=True)]
    decided[1] = Assigned(turn=1, agent="first", role="worker", by="trinity", scores=scores)
    read_later = KindRead(request=1, kinds=(("shell", 1.0),))
    assert session_outcomes(SessionState([opened(), *decided])).attempts[0].kinds == dict(
        scores.kinds
    )
    plain = [opened(), asked(), *work(1, "first", ok=True)]
    assert session_outcomes(SessionState([*plain, read_later])).attempts[0].kinds == {"shell": 1.0}
    assert session_outcomes(SessionState(plain)).kinds == {1: {}}


def test_a_turns_calls_are_what_it_cost() -> None:
    usage = Usage(input=1_000_000, output=100_000)
    reply = Replied(turn=1, agent="first", text="Done.", usage=usage)
    (price,) = session_outcomes(
        SessionState([opened(), asked(), assigned(1, "first"), reply])
    ).prices
    assert (price.agent, price.cost) == ("first", pytest.approx(2.0))


def test_a_completed_request_of_one_worker_tells_what_that_agent_costs_alone() -> None:
    usage = Usage(input=1_000_000, output=100_000)

    def paid(turn: int, agent: str) -> Event:
        return Replied(turn=turn, agent=agent, text="Done.", usage=usage)

    accepted = Finished(reason="accepted")
    first: list[Event] = [*work(1, "first", ok=True), paid(1, "first")]
    verified: list[Event] = [
        asked(),
        *first,
        assigned(2, "third", "verifier"),
        paid(2, "third"),
        accepted,
    ]
    mixed: list[Event] = [
        asked(),
        *work(1, "second", ok=False),
        paid(1, "second"),
        *work(2, "first", ok=True),
    ]
    stopped: list[Event] = [asked(), *first, Finished(reason="turn_limit")]
    unchanged: list[Event] = [
        asked(),
        assigned(1, "first"),
        paid(1, "first"),
        Finished(reason="answered"),
    ]
    events: list[Event] = [opened(), *verified, *mixed, accepted, *stopped, *unchanged]
    outcomes = session_outcomes(SessionState(events))
    assert [(solo.agent, solo.request) for solo in outcomes.solo_prices] == [("first", 1)]
    (count,) = [
        count for count in count_outcomes([outcomes], MEMBERS, TABLE) if count.solo_requests
    ]
    assert (count.agent, count.solo_requests) == ("first", 1.0)
    assert count.solo_cost == pytest.approx(2.0, rel=0.01)


def test_counts_are_kept_by_agent_and_kind() -> None:
    half = {"tests": 0.5, "data": 0.5}
    session = SessionOutcomes(attempts=(made("first", True, half), made("first", False, {})))
    counts = count_outcomes([session, session], MEMBERS, TABLE)
    assert counts == (
        OutcomeCount(agent="first", kind="", trials=2.0),
        OutcomeCount(agent="first", kind="data", successes=1.0, trials=1.0),
        OutcomeCount(agent="first", kind="tests", successes=1.0, trials=1.0),
    )


def test_agents_that_are_not_in_the_pool_are_not_counted() -> None:
    session = SessionOutcomes(attempts=(made("gone", True, {}),))
    assert count_outcomes([session], MEMBERS, TABLE) == ()


def test_a_second_agents_rate_is_corrected_for_what_the_first_failed_at() -> None:
    """In a simulated pool both agents solve half of all requests, and what is hard is hard for
    both. The second one is only asked where the first one failed, so its raw rate is too low.
    """
    chance = random.Random(3)
    sessions = []
    for _ in range(4000):
        rate = 1 / (1 + math.exp(-chance.gauss(0, 1.2)))
        first = made("first", chance.random() < rate, {})
        second = made("second", chance.random() < rate, {}, after=("first",), weight=LATER_TURN)
        asked_agents = (first,) if first.succeeded else (first, second)
        sessions.append(SessionOutcomes(attempts=asked_agents))
    later = [a for session in sessions for a in session.attempts if a.agent == "second"]
    raw_rate = sum(attempt.succeeded for attempt in later) / len(later)
    second_count = next(
        count for count in count_outcomes(sessions, MEMBERS, TABLE) if count.agent == "second"
    )
    assert raw_rate < 0.42
    assert second_count.successes / second_count.trials == pytest.approx(0.5, abs=0.04)


def test_work_that_the_user_took_back_has_failed() -> None:
    events = [opened(), asked(), *work(1, "first", ok=True)]
    change = FileChange(path="a.py", before="1", after=None)
    undone = Undone(snapshot=None, kind="undo", changes=(change,))
    attempt = session_outcomes(SessionState([*events, undone])).attempts
    assert [one.succeeded for one in attempt] == [False]


def test_outcomes_of_the_model_that_an_entry_named_before_are_not_counted() -> None:
    session = SessionOutcomes(attempts=(made("first", True, {}),))
    renamed = MEMBERS[0].model_copy(update={"model": "newer"})
    assert count_outcomes([session], [renamed], TABLE) == ()


def test_agents_that_follow_a_script_have_no_outcomes() -> None:
    pool = tuple(member.model_copy(update={"provider": "scripted"}) for member in MEMBERS)
    opening = Opened(version="1", repo="/repo", pool=pool)
    read = session_outcomes(SessionState([opening, asked(), *work(1, "first", ok=True)]))
    assert (read.attempts, read.prices) == ((), ())
