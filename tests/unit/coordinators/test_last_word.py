"""What ends a request without a Verifier: an agent's last word, or that agents gave it up."""

import asyncio
from typing import Literal

import pytest

from fugu_cli.coordinators import CoordinatorSettings
from fugu_cli.coordinators.action_space import request_end, roles_out
from fugu_cli.coordinators.rules import Cascade
from fugu_cli.messages import Call
from fugu_cli.session.events import ROLE, Assigned, Event, Finished, Member, Opened, Permitted
from fugu_cli.session.state import SessionState
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
    assert "verifier" in roles_out(SessionState(events))
    assert end(events, turns=1) == "turn_limit"


def test_a_turn_that_was_closed_over_its_calls_gave_no_answer() -> None:
    look = Call.make("c1", "read", path="a.py")
    events = [*ASKED, assigned(1, "strong"), replied(1, "strong", "Looking.", look), *ran(1, look)]
    assert end(events) is None
    assert "verifier" in roles_out(SessionState(events))
    assert end([*events, *said(2, "There is one already.")]) == "answered"


def test_a_call_that_was_killed_may_have_changed_something_and_somebody_goes_on_with_it() -> None:
    call = write("c1")
    killed = Permitted(turn=1, call=call, allowed=True, by="policy")
    assert roles_out(
        SessionState([*ASKED, assigned(1, "strong"), replied(1, "strong", "", call), killed])
    ) == {"verifier": "the work came to no last word"}


@pytest.mark.parametrize("by", ["policy", "headless", "hook", "user"])
def test_words_end_a_request_as_done_whatever_was_refused(by: str) -> None:
    assert end([*TOLD, *tried(REFUSED.model_copy(update={"by": by}))]) == "answered"


def test_what_was_refused_stands_in_the_message_of_a_request_that_was_given_up() -> None:
    given_up = [*tried(REFUSED)[:-1], replied(1, "strong", "UNABLE: I may not run make.")]
    found = request_end(SessionState([*TOLD, *given_up]), turns=1, verify_answers=False)
    assert found is not None and found.reason == "denied"
    assert "this was refused: bash (headless: it runs something)." in found.message


@pytest.mark.parametrize(
    "fact",
    [
        REFUSED.model_copy(update={"by": ROLE}),
        REFUSED.model_copy(update={"by": "policy", "plan_mode": True}),
    ],
    ids=["its role has no such tool", "plan mode"],
)
def test_not_every_call_that_was_not_allowed_was_in_the_way(fact: Permitted) -> None:
    given_up = [*tried(fact)[:-1], replied(1, "strong", "UNABLE: I may not run make.")]
    assert end([*TOLD, *given_up], turns=1) == "unaccepted"


GAVE_UP = "UNABLE: I cannot tell."
GPT = Member(name="gpt", provider="openai", model="m-gpt", slot="strong")
OPUS = Member(name="opus", provider="openai", model="m-opus", slot="strong")
TEAM = Opened(version="1", repo="/repo", pool=(GPT, OPUS))
BEGUN = [TEAM, asked("add a flag", judged=False, command=None)]


def next_turn(events: list[Event]) -> tuple[str, str]:
    """Return who is next by the cascade, in which role."""
    decision = asyncio.run(Cascade((GPT, OPUS), CoordinatorSettings()).decide(SessionState(events)))
    assert isinstance(decision, Assigned)
    return decision.agent, decision.role


def gave_up(turn: int, agent: str) -> list[Event]:
    return [assigned(turn, agent), replied(turn, agent, GAVE_UP)]


def worked(turn: int, agent: str) -> list[Event]:
    call = write(f"c{turn}")
    return [
        assigned(turn, agent),
        replied(turn, agent, "", call),
        *ran(turn, call, path="a.py"),
        replied(turn, agent, "I changed it."),
    ]


def test_who_gave_up_may_verify_what_another_agent_did() -> None:
    assert next_turn([*BEGUN, *gave_up(1, "gpt"), *worked(2, "opus")]) == ("gpt", "verifier")


def test_work_is_not_verified_after_the_agent_that_was_to_revise_it_gave_up() -> None:
    revise = [assigned(2, "opus", "verifier"), replied(2, "opus", "REVISE: it is not documented.")]
    events = [*BEGUN, *worked(1, "gpt"), *revise, *gave_up(3, "opus")]
    assert next_turn(events) == ("gpt", "worker")


def test_who_gave_up_is_asked_again_once_the_session_is_opened_again() -> None:
    events = [*BEGUN, *gave_up(1, "gpt"), *gave_up(2, "opus"), Finished(reason="unaccepted")]
    assert next_turn([*events, TEAM])[1] in {"worker", "thinker"}
