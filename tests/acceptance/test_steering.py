"""Messages to agents at work: in a workflow, while a call is asked about, over a kill, and where no
budget carries another reply.
"""

from __future__ import annotations

import threading

from fugu_cli.session.events import Asked as Request
from fugu_cli.session.events import Planned, SteeringGiven
from tests.acceptance.driving import Agent, Place
from tests.acceptance.loopback import Asked, Loopback, Reaction, Says
from tests.acceptance.test_run import ACCEPT, DONE, READ, WRITE
from tests.acceptance.test_sdk import Client
from tests.acceptance.test_workflows import lists, plans

MESSAGE = "and the docs as well"


def after(event: threading.Event, answer: Says) -> Reaction:
    """An answer that comes once the event is set."""

    def react(_: Asked) -> Says:
        assert event.wait(30)
        return answer

    return react


def steer(client: Client, text: str) -> None:
    """Send a message and wait until it is recorded."""
    client.say(text)
    while client.until("system")["subtype"] != "steered":
        pass


def test_in_a_workflow_all_running_steps_and_the_planner_read_a_message(
    place: Place, server: Loopback
) -> None:
    more = 'tier = "ultra"\nconductor = { agent = "c", rounds = 2 }'
    place.configure(Agent("a"), Agent("b", "middle"), Agent("c", "strong"), more=more)
    sent = threading.Event()
    for name in "ab":
        server.play(name, after(sent, READ), Says(f"seen by {name}"))
    again = "model_id = []\nsubtasks = []\naccess_list = []"
    server.play("c", Says(lists((0, "Look.", []), (1, "Look too.", []))), Says(again))
    client = Client(place)
    client.say("what does calc.txt say?")
    server.wait_for("a")
    server.wait_for("b")
    steer(client, MESSAGE)
    sent.set()
    client.until("result")
    assert client.leave()[0] == 0
    for name in "ab":
        first, second = server.asked(name)
        assert MESSAGE not in first.text
        assert second.text.index("broken") < second.text.index(MESSAGE)
    plan, next_round = server.asked("c")
    assert plans(plan) and MESSAGE not in plan.text
    assert MESSAGE in next_round.text
    events = place.events()
    given = {event.agent for event in events if isinstance(event, SteeringGiven)}
    assert given == {"a", "b", "c"}
    assert sum(isinstance(event, Planned) for event in events) == 2


def test_while_a_call_is_asked_about_a_message_waits_for_the_answer(
    place: Place, server: Loopback
) -> None:
    place.configure(Agent("worker"))
    server.play("worker", READ, WRITE, DONE, ACCEPT)
    client = Client(place, "--permission-prompt-tool", "stdio")
    client.say("fix the tests")
    question = client.until("control_request")
    steer(client, MESSAGE)
    assert len(server.asked("worker")) == 2
    assert (place.repo / "calc.txt").read_text() == "broken\n"
    client.answer(question, behavior="allow")
    assert client.until("result")["result"] == DONE.text
    assert client.leave() == (0, "")
    assert (place.repo / "calc.txt").read_text() == "fixed\n"
    third, verifies = server.asked("worker")[2:4]
    assert third.text.index(third.results[-1][:20]) < third.text.index(MESSAGE)
    assert MESSAGE in verifies.text


def test_messages_outlive_a_kill_whether_they_were_given_or_not(
    place: Place, server: Loopback
) -> None:
    place.configure(Agent("worker"))
    sent, never = threading.Event(), threading.Event()
    server.play("worker", after(sent, READ), after(never, DONE))
    client = Client(place)
    client.say("what does calc.txt say?")
    server.wait_for("worker")
    steer(client, "the first message")
    sent.set()
    server.wait_for("worker", 2)
    steer(client, "the second message")
    client.process.kill()
    client.leave()
    never.set()
    server.play("worker", DONE)
    done = place.fugu("run", "--continue")
    assert done.code == 0, done.err
    (request,) = server.asked("worker")
    assert request.text.count("the first message") == 1
    assert request.text.count("the second message") == 1
    assert sum(isinstance(event, Request) for event in place.events()) == 1


def test_a_message_opens_no_reply_that_the_budget_does_not_carry(
    place: Place, server: Loopback
) -> None:
    message = MESSAGE + " It has many words." * 800  # some 4,000 tokens
    price = "{ input = 1000.0, output = 1000.0 }"
    place.configure(Agent("worker", price=price), more="max_budget_usd = 9.5")
    sent = threading.Event()
    server.play("worker", after(sent, Says("It says broken.")))
    client = Client(place)
    client.say("what does calc.txt say?")
    server.wait_for("worker")
    steer(client, message)
    sent.set()
    result = client.until("result")
    client.leave()
    assert result["fugu"]["reason"] == "budget"
    assert len(server.asked("worker")) == 1
    requests = [event.text for event in place.events() if isinstance(event, Request)]
    assert requests == ["what does calc.txt say?", message]


def test_a_mode_that_is_changed_meanwhile_is_told_once_with_the_next_result(
    place: Place, server: Loopback
) -> None:
    place.configure(Agent("worker"))
    changed = threading.Event()
    server.play("worker", after(changed, READ), WRITE, DONE)
    client = Client(place, "--permission-prompt-tool", "stdio")
    client.say("fix the tests")
    server.wait_for("worker")
    assert client.control(subtype="set_permission_mode", mode="plan")["subtype"] == "success"
    changed.set()
    client.until("result")
    client.leave()
    assert (place.repo / "calc.txt").read_text() == "broken\n"
    first, second, third = server.asked("worker")[:3]
    heading = "The user has changed the permission mode."
    assert heading not in first.text
    assert "Mode: plan. Runs: reading. Refused:" in second.text.partition(heading)[2]
    assert second.text.index("broken") < second.text.index(heading)
    assert third.text.count(heading) == 1
    assert "Not allowed" in third.results[-1]


def test_a_mode_that_is_changed_during_a_last_word_is_told_to_the_verifier(
    place: Place, server: Loopback
) -> None:
    place.configure(Agent("worker"), Agent("judge", "middle"))
    changed = threading.Event()
    server.play("worker", READ, WRITE, after(changed, DONE))
    server.play("judge", ACCEPT)
    client = Client(place, "--permission-prompt-tool", "stdio")
    client.say("fix the tests")
    client.answer(client.until("control_request"), behavior="allow")
    server.wait_for("worker", 3)
    assert client.control(subtype="set_permission_mode", mode="plan")["subtype"] == "success"
    changed.set()
    assert client.until("result")["result"] == DONE.text
    client.leave()
    (verifies,) = server.asked("judge")
    assert verifies.text.count("The user has changed the permission mode.") == 1
    assert "Mode: plan. Runs: reading." in verifies.text
