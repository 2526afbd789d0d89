"""How much agents may reason, by the real binary: the flag, each wire, the log, the trace, who
takes none.
"""

import json

import pytest

from fugu_cli.session.events import Asked
from tests.acceptance.driving import Agent, Place
from tests.acceptance.loopback import Asked as Request
from tests.acceptance.loopback import Loopback, Refuses, Says

WIDE = "context = 200000"


@pytest.mark.parametrize(
    ("agent", "sent"),
    [
        (Agent("worker", more=WIDE), {"reasoning_effort": "high", "max_tokens": 32768}),
        (
            Agent("worker", more=f'{WIDE}\napi = "responses"'),
            {"reasoning": {"effort": "high", "summary": "auto"}, "max_output_tokens": 32768},
        ),
        (
            Agent("worker", provider="anthropic", more=WIDE),
            {"thinking": {"type": "enabled", "budget_tokens": 24576}, "max_tokens": 32768},
        ),
    ],
)
def test_the_flag_goes_to_each_wire_in_its_own_form_over_what_the_entry_says(
    place: Place, server: Loopback, agent: Agent, sent: dict[str, object]
) -> None:
    place.configure(
        Agent(agent.name, provider=agent.provider, more=agent.more + '\neffort = "low"')
    )
    server.play("worker", Says("A file."))
    done = place.fugu("-p", "what is it?", "--effort", "high")
    assert (done.code, done.out) == (0, "A file.\n"), done.err
    body = server.asked("worker")[0].body
    assert {key: body.get(key) for key in sent} == sent
    assert [event.effort for event in place.events() if isinstance(event, Asked)] == ["high"]
    shown = place.fugu("trace")
    assert "effort high" in shown.out
    told = json.loads(place.fugu("trace", "--json").out)
    assert [one["effort"] for one in told["requests"][0]["decisions"]] == ["high"]


def test_without_the_flag_the_entry_says_it_and_the_trace_shows_that(
    place: Place, server: Loopback
) -> None:
    place.configure(Agent("worker", more='effort = "low"'))
    server.play("worker", Says("A file."))
    assert place.fugu("-p", "what is it?").code == 0
    assert server.asked("worker")[0].body["reasoning_effort"] == "low"
    assert "effort low" in place.fugu("trace").out


def test_a_server_that_takes_none_is_asked_without_and_that_is_said_once(
    place: Place, server: Loopback
) -> None:
    def reaction(asked: Request) -> Says | Refuses:
        if "reasoning_effort" in asked.body:
            return Refuses(
                400, "Unsupported parameter: 'reasoning_effort' is not supported with this model."
            )
        return Says("A file.")

    place.configure(Agent("worker"))
    server.react("worker", reaction)
    done = place.fugu("-p", "what is it?", "--effort", "low")
    assert (done.code, done.out) == (0, "A file.\n"), done.err
    assert done.err.count("worker takes no effort") == 1


def test_an_agent_that_can_be_told_none_is_named_once(place: Place) -> None:
    (place.folder / "script.toml").write_text('[[step]]\ntext = "Done."\n')
    done = place.fugu(
        "-p", "what is it?", "--script", str(place.folder / "script.toml"), "--effort", "low"
    )
    assert (done.code, done.err.count("the effort low says nothing to scripted")) == (0, 1), (
        done.err
    )


def test_a_word_that_is_no_effort_is_refused(place: Place) -> None:
    place.configure(Agent("worker"))
    done = place.fugu("-p", "what is it?", "--effort", "huge")
    assert (done.code, "'huge' is not one of" in done.err) == (1, True), done.err
