"""How long a reply may be, and what follows one that was cut before it said anything."""

from __future__ import annotations

import pytest

from fugu_cli.session.events import Assigned
from tests.acceptance.driving import Agent, Place
from tests.acceptance.loopback import Loopback, Refuses, Says

CUT = Says(thinking="I think and think.", cut=True)
WIRES = {
    "chat": Agent("worker", more="context = 200000"),
    "messages": Agent("worker", provider="anthropic", more="context = 200000"),
    "responses": Agent("worker", more='context = 200000\napi = "responses"'),
}


def limit(body: dict[str, int]) -> int:
    return body.get("max_tokens", body.get("max_output_tokens", 0))


@pytest.mark.parametrize("wire", WIRES)
def test_a_reply_cut_without_a_word_gets_twice_the_room_in_the_same_turn(
    place: Place, server: Loopback, wire: str
) -> None:
    place.configure(WIRES[wire])
    server.play("worker", CUT, CUT, Says("A file."))
    done = place.fugu("run", "what is it?")
    assert (done.code, done.out) == (0, "A file.\n"), done.err
    requests = server.asked("worker")
    assert [limit(request.body) for request in requests] == [32768, 65536, 131072]
    assert len({request.text for request in requests}) == 1
    assert len([event for event in place.events() if isinstance(event, Assigned)]) == 1


def test_a_reply_that_no_more_room_can_help_is_not_asked_for_again_and_another_agent_works(
    place: Place, server: Loopback
) -> None:
    small = Agent("worker", more="context = 16000")
    place.configure(small, Agent("larger", "strong", more="context = 200000"))
    server.play("worker", CUT, CUT)
    server.play("larger", Says("A file."))
    done = place.fugu("run", "what is it?")
    assert (done.code, done.out) == (0, "A file.\n"), done.err
    first, second = [limit(request.body) for request in server.asked("worker")]
    assert first == 8192 < second < 16000
    assert f"its reply reached the limit of {second:,} tokens before the first word" in done.err


def test_what_a_server_takes_is_asked_for_after_its_refusal_and_never_more(
    place: Place, server: Loopback
) -> None:
    place.configure(WIRES["chat"])
    said = "max_tokens is too large: 32768. This model supports at most 16384 completion tokens."
    server.play("worker", Refuses(400, said), CUT)
    done = place.fugu("run", "what is it?")
    assert (done.code, len(server.asked("worker"))) == (2, 2)
    words = " ".join(done.err.split())
    assert "a lower reasoning effort leaves more of them for words" in words
    assert [limit(request.body) for request in server.asked("worker")] == [32768, 16384]


def test_a_budget_shortens_a_reply_to_what_it_carries(place: Place, server: Loopback) -> None:
    priced = Agent("worker", price="{ input = 0.0, output = 100.0 }", more="context = 200000")
    place.configure(priced)
    server.play("worker", Says("A file."))
    done = place.fugu("run", "--max-budget-usd", "1.0", "what is it?")
    assert done.code == 0, done.err
    assert limit(server.asked("worker")[0].body) == 10000
    assert place.fugu("run", "--max-budget-usd", "0.4", "what is it?").code != 0
    assert len(server.asked("worker")) == 1
