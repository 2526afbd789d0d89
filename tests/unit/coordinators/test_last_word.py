"""What ends a request without a Verifier: an agent's last word, or that what was asked for may not
be done.
"""

from typing import Literal

import pytest

from fugu_cli.coordinators.action_space import end_by_refusals, roles_out
from fugu_cli.messages import Call
from fugu_cli.session.events import ROLE, Event, Permitted
from tests.facts import asked, assigned, opened, ran, replied, write
from tests.unit.coordinators.test_stopping import end, said

ASKED = [opened(), asked("add a function foo to the parser", judged=False, command=None)]
DEPLOY = Call.make("c1", "bash", command="make deploy")
REFUSED = Permitted(turn=1, call=DEPLOY, allowed=False, by="headless", reason="it runs something")
TOLD = [opened(), asked("deploy it with make deploy", judged=False, command=None)]


def tried(*facts: Event, call: Call = DEPLOY) -> list[Event]:
    """A Worker's turn in which it made a call, with what came of it."""
    return [
        assigned(1, "strong"),
        replied(1, "strong", "I try.", call),
        *facts,
        replied(1, "strong", "I may not."),
    ]


@pytest.mark.parametrize("stop", ["length", "refusal", "cut"])
def test_half_a_reply_and_a_refusal_are_no_answer_and_nothing_to_verify(
    stop: Literal["length", "refusal", "cut"],
) -> None:
    half = replied(1, "strong", "I will add it by").model_copy(update={"stop": stop})
    events = [*ASKED, assigned(1, "strong"), half]
    assert end(events) is None
    assert "verifier" in roles_out(events)
    assert end(events, turns=1) == "turn_limit"


def test_a_turn_that_was_closed_over_its_calls_gave_no_answer() -> None:
    look = Call.make("c1", "read", path="a.py")
    events = [*ASKED, assigned(1, "strong"), replied(1, "strong", "Looking.", look), *ran(1, look)]
    assert end(events) is None
    assert "verifier" in roles_out(events)
    assert end([*events, *said(2, "There is one already.")]) == "answered"


def test_a_call_that_was_killed_may_have_changed_something_and_somebody_goes_on_with_it() -> None:
    call = write("c1")
    killed = Permitted(turn=1, call=call, allowed=True, by="policy")
    assert roles_out([*ASKED, assigned(1, "strong"), replied(1, "strong", "", call), killed]) == {
        "verifier": "the work came to no last word"
    }


@pytest.mark.parametrize("by", ["policy", "headless", "hook"])
def test_a_request_whose_work_was_refused_ends_as_that(by: str) -> None:
    events = [*TOLD, *tried(REFUSED.model_copy(update={"by": by}))]
    assert end(events) == end(events, verify=True) == "denied"
    found = end_by_refusals(events)
    assert (
        found is not None and f"this was refused: bash ({by}: it runs something)." in found.message
    )


def test_what_the_agent_reads_afterwards_does_not_make_a_refusal_good_but_another_way_does() -> (
    None
):
    look, other = (
        Call.make("c2", "read", path="Makefile"),
        Call.make("c3", "bash", command="make -C . deploy"),
    )
    assert end([*TOLD, *tried(REFUSED, *ran(1, look))]) == "denied"
    assert end([*TOLD, *tried(REFUSED, *ran(1, other))]) == "answered"
    assert end([*TOLD, *tried(*ran(1, other), REFUSED)]) == "denied"


def test_a_refusal_does_not_end_what_changed_something_and_what_the_user_refused_the_user_knows() -> (
    None
):
    assert end([*TOLD, *tried(REFUSED, *ran(1, write("c2"), path="a.py"))]) is None
    for by in ("user", "session"):
        assert end([*TOLD, *tried(REFUSED.model_copy(update={"by": by}))]) == "answered"


@pytest.mark.parametrize(
    "fact",
    [
        REFUSED.model_copy(update={"by": ROLE}),
        REFUSED.model_copy(update={"by": "policy", "plan_mode": True}),
        REFUSED.model_copy(update={"call": Call.make("c1", "read", path=".env")}),
    ],
    ids=["its role has no such tool", "plan mode", "it would only read"],
)
def test_not_every_call_that_was_not_allowed_was_the_work(fact: Permitted) -> None:
    assert end([*TOLD, *tried(fact, call=fact.call)]) == "answered"
