"""The real binary when a server asks to wait: another agent takes the turn, the last one is waited
for.
"""

from collections.abc import Mapping

import pytest

from fugu_cli.session.events import Assigned, Failed, Replied
from fugu_cli.session.state import SessionState
from tests.acceptance.driving import Agent, Place, objects
from tests.acceptance.loopback import Breaks, Loopback, Refuses, Says

WIRES = {
    "chat": {"provider": "openai"},
    "responses": {"provider": "openai", "more": 'api = "responses"'},
    "messages": {"provider": "anthropic"},
}
ANSWER = Says("It adds two numbers.")
ASKS = ("run", "what does calc.txt say?")


def limited(seconds: float, **more: str) -> Refuses:
    return Refuses(429, "slow down", "rate_limit_error", {"retry-after": f"{seconds:g}", **more})


def agents(wire: str) -> tuple[Agent, Agent]:
    """A cheap one and a strong one on the same wire."""
    return Agent("first", **WIRES[wire]), Agent("second", "strong", **WIRES[wire])


def answered_by(place: Place) -> list[str]:
    return [event.agent for event in place.events() if isinstance(event, Replied)]


RESETS: list[Mapping[str, str]] = [
    {"retry-after": "1000"},
    {"retry-after-ms": "1000000"},
    {"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "16m40s"},
    {
        "anthropic-ratelimit-tokens-remaining": "0",
        "anthropic-ratelimit-tokens-reset": "2999-01-01T00:00:00Z",
    },
]


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("headers", RESETS)
def test_an_agent_that_is_asked_to_wait_gives_way_at_once(
    place: Place, server: Loopback, wire: str, headers: Mapping[str, str]
) -> None:
    place.configure(*agents(wire))
    server.play("first", Refuses(429, "slow down", "rate_limit_error", headers))
    server.play("second", ANSWER)
    done = place.fugu(*ASKS)
    assert (done.code, done.out.strip()) == (0, ANSWER.text), done.err
    assert (len(server.asked("first")), len(server.asked("second"))) == (1, 1)
    assert [event.kind for event in place.events() if isinstance(event, Failed)] == ["limited"]


def test_a_plan_that_is_used_up_is_known_to_the_next_session(
    place: Place, server: Loopback
) -> None:
    place.configure(*agents("chat"))
    server.play("first", limited(7200.0))
    server.react("second", lambda _: ANSWER)
    for _ in range(2):
        done = place.fugu(*ASKS)
        assert (done.code, done.out.strip()) == (0, ANSWER.text), done.err
    assert (len(server.asked("first")), len(server.asked("second"))) == (1, 2)
    shown = place.fugu("pool").out
    assert "unavailable: first (limited: used up until " in shown and "`/retry first`" in shown


@pytest.mark.parametrize("status", [500, 503, 529])
def test_an_overloaded_server_that_asks_to_wait_gives_way_too(
    place: Place, server: Loopback, status: int
) -> None:
    place.configure(*agents("chat"))
    server.play("first", Refuses(status, "busy", "overloaded_error", {"retry-after": "1000"}))
    server.play("second", ANSWER)
    assert place.fugu(*ASKS).code == 0
    assert (len(server.asked("first")), answered_by(place)) == (1, ["second"])


@pytest.mark.parametrize("wire", WIRES)
def test_one_agent_alone_is_waited_for_and_the_wait_is_one_line(
    place: Place, server: Loopback, wire: str
) -> None:
    place.configure(agents(wire)[0])
    server.play("first", limited(2), ANSWER)
    done = place.fugu(*ASKS)
    assert (done.code, done.out.strip()) == (0, ANSWER.text), done.err
    lines = [line.strip() for line in done.err.splitlines() if "retrying" in line]
    assert lines == ["first: rate limited, retrying 1 of 4 in 2 s"]
    assert len(SessionState(place.events()).request.turns) == 1, "it is waited for inside its turn"


def test_a_named_agent_is_waited_for_though_another_is_idle(place: Place, server: Loopback) -> None:
    place.configure(*agents("chat"))
    server.play("first", limited(4), ANSWER)
    assert place.fugu("run", "--agent", "first", ASKS[1]).code == 0
    assert answered_by(place) == ["first"]


def test_of_two_limited_agents_the_one_that_is_back_first_is_waited_for(
    place: Place, server: Loopback
) -> None:
    place.configure(*agents("chat"))
    server.play("first", limited(7), ANSWER)
    server.play("second", limited(1000))
    done = place.fugu(*ASKS)
    assert (done.code, answered_by(place)) == (0, ["first"]), done.err
    assert done.err.count("waiting for first, retrying in") == 1
    assert [event.agent for event in place.events() if isinstance(event, Assigned)] == [
        "first",
        "second",
        "first",
    ]


def test_a_wait_that_is_too_long_ends_the_request_and_says_how_long(
    place: Place, server: Loopback
) -> None:
    place.configure(agents("chat")[0])
    server.play("first", limited(1000))
    done = place.fugu(*ASKS)
    assert done.code == 2
    assert len(server.asked("first")) == 1


def test_the_user_may_forbid_waiting(place: Place, server: Loopback) -> None:
    place.configure(agents("chat")[0], more="time_limit = { wait = 0 }")
    server.play("first", limited(60))
    assert place.fugu(*ASKS).code == 2
    assert len(server.asked("first")) == 1


def test_agents_of_one_account_are_limited_together(place: Place, server: Loopback) -> None:
    place.configure(Agent("first"), Agent("twin", more="effort = 'low'"), Agent("second", "strong"))
    text = (place.home / ".fugurc").read_text().replace('model = "twin"', 'model = "first"')
    (place.home / ".fugurc").write_text(text)
    server.play("first", limited(1000))
    server.play("second", ANSWER)
    assert place.fugu(*ASKS).code == 0
    assert (len(server.asked("first")), answered_by(place)) == (1, ["second"])


def test_a_broken_stream_is_said_in_one_line_and_its_text_nowhere(
    place: Place, server: Loopback
) -> None:
    place.configure(agents("messages")[0])
    server.play("first", Breaks("reset"), Breaks("cut"), ANSWER)
    done = place.fugu(*ASKS)
    assert (done.code, done.out.strip()) == (0, ANSWER.text), done.err
    lines = [
        line.strip().partition(" in ")[0] for line in done.err.splitlines() if "retrying" in line
    ]
    assert lines == [f"first: connection lost, retrying {number} of 4" for number in (1, 2)]
    assert "Let me" not in done.err + done.out


def test_a_retry_is_a_line_of_the_stream_with_its_numbers(place: Place, server: Loopback) -> None:
    place.configure(agents("responses")[0])
    server.play("first", limited(0.1), ANSWER)
    done = place.fugu("run", "--output-format", "stream-json", ASKS[1])
    (line,) = (one for one in objects(done.out) if one.get("subtype") == "api_retry")
    told = {
        name: line[name]
        for name in ("agent", "attempt", "max_retries", "retry_delay_ms", "error_status")
    }
    assert told == {
        "agent": "first",
        "attempt": 1,
        "max_retries": 4,
        "retry_delay_ms": 100,
        "error_status": 429,
    }


def unreachable_agents(*hosts: str) -> list[Agent]:
    return [
        Agent(f"{host}-{slot}", slot=slot, url=f"http://{host}.invalid/v1")
        for host in hosts
        for slot in ("cheap", "strong")
    ]


@pytest.mark.parametrize("tier", ["fugu", "ultra"])
def test_without_a_network_one_line_names_all_hosts_and_one_says_what_to_do(
    place: Place, tier: str
) -> None:
    place.configure(*unreachable_agents("one", "two"))
    done = place.fugu("run", "--tier", tier, "hello")
    assert done.code == 2, done.err
    lines = [line for line in done.err.splitlines() if ".invalid" in line]
    assert len(lines) == 1, done.err
    assert all(f"{host}.invalid (its name is not found)" in lines[0] for host in ("one", "two"))
    assert done.err.count("HTTPS_PROXY") == 1
    assert "retrying" not in done.err
    failures = [event for event in place.events() if isinstance(event, Failed)]
    assert len({failure.unreachable for failure in failures}) == len(failures) == 2


def test_a_host_that_refuses_connections_is_one_line_and_another_takes_the_turn(
    place: Place, server: Loopback
) -> None:
    place.configure(
        Agent("first", url="http://127.0.0.1:1/v1"), Agent("second", "strong", **WIRES["chat"])
    )
    server.play("second", ANSWER)
    done = place.fugu(*ASKS)
    assert (done.code, answered_by(place)) == (0, ["second"]), done.err
    assert done.err.count("no connection to 127.0.0.1:1") == 1
    assert "retrying" not in done.err
    headings = [line for line in done.err.splitlines() if line.startswith("●")]
    assert len(headings) == 1
    assert "second" in headings[0]
