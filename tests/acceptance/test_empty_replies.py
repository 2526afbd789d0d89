"""The real binary when an agent says nothing at all: that is no answer, and nobody verifies it."""

import pytest

from fugu_cli.session.events import Assigned, Failed, Replied
from tests.acceptance.driving import Agent, Place
from tests.acceptance.loopback import Loopback, Says, Use

NOTHING = Says("")
ANSWER = Says("It says that something is broken.")
WRITE = Says("", (Use("write", {"path": "new.txt", "content": "new\n"}),))
ACCEPT = Says("ACCEPT: it is right.")
WIRES = {
    "chat": {"provider": "openai"},
    "responses": {"provider": "openai", "more": 'api = "responses"'},
    "messages": {"provider": "anthropic"},
}


def roles(place: Place) -> list[tuple[str, str]]:
    return [(event.agent, event.role) for event in place.events() if isinstance(event, Assigned)]


def failures(place: Place) -> list[tuple[str, str, int]]:
    """Who failed, how, and what was paid for that."""
    found = (event for event in place.events() if isinstance(event, Failed))
    return [(event.what, event.kind, event.usage.output) for event in found]


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("coordinator", ["cascade", "random"])
def test_the_next_agent_answers_for_one_that_says_nothing(
    place: Place, server: Loopback, wire: str, coordinator: str
) -> None:
    place.configure(Agent("mute", **WIRES[wire]), Agent("other", "strong", **WIRES[wire]))
    configured = place.home / ".fugurc"
    configured.write_text(configured.read_text().replace('"cascade"', f'"{coordinator}"'))
    server.play("mute", *[NOTHING] * 8)
    server.play("other", ANSWER)
    done = place.fugu("run", "what does calc.txt say?")
    assert (done.code, done.out.strip()) == (0, ANSWER.text), done.err
    assert roles(place)[-1] == ("other", "worker")
    assert "verifier" not in {role for _, role in roles(place)}, "there is nothing to verify"
    assert failures(place) in ([], [("mute", "protocol", 20)]), "both calls were paid for"
    assert len(server.asked("mute")) == 2 * len(failures(place))
    assert len(failures(place)) == 1 or coordinator == "random", "the first one is asked first"


def test_an_agent_alone_is_asked_once_more(place: Place, server: Loopback) -> None:
    place.configure(Agent("only"))
    server.play("only", NOTHING, ANSWER)
    done = place.fugu("run", "what does calc.txt say?")
    assert (done.code, done.out.strip(), roles(place)) == (0, ANSWER.text, [("only", "worker")]), (
        done.err
    )
    assert [event.usage.output for event in place.events() if isinstance(event, Replied)] == [20]


def test_an_agent_alone_that_stays_silent_ends_the_request_with_the_reason(
    place: Place, server: Loopback
) -> None:
    place.configure(Agent("only"))
    server.play("only", *[NOTHING] * 8)
    done = place.fugu("run", "what does calc.txt say?")
    assert (done.code, done.out, failures(place)) == (2, "", [("only", "protocol", 20)])
    assert "the reply is empty: no text and no tool call" in done.err


def test_who_changed_something_may_end_in_silence(place: Place, server: Loopback) -> None:
    place.configure(Agent("first"), Agent("second", "strong"))
    server.play("first", WRITE, NOTHING)
    server.play("second", ACCEPT)
    done = place.fugu("run", "fix it")
    assert (done.code, failures(place)) == (0, []), done.err
    assert roles(place) == [("first", "worker"), ("second", "verifier")]


def test_a_verifier_that_says_nothing_gives_no_verdict(place: Place, server: Loopback) -> None:
    place.configure(Agent("first"), Agent("second", "strong"), Agent("third", "strong"))
    server.play("first", WRITE, Says("Done."))
    server.play("second", *[NOTHING] * 8)
    server.play("third", ACCEPT)
    done = place.fugu("run", "fix it")
    assert done.code == 0, done.err
    assert [role for _, role in roles(place)].count("worker") == 1, "nobody works again"
