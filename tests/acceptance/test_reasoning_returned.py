"""What a model thought in a tool loop goes back to its server, in the form in which it came."""

from tests.acceptance.driving import Agent, Place
from tests.acceptance.loopback import Loopback, Refuses, Says, Use


def test_thoughts_of_a_tool_loop_go_back_in_their_field_and_end_with_it(
    place: Place, server: Loopback
) -> None:
    place.configure(Agent("m"))
    (place.repo / "a.txt").write_text("x\n")
    read = Use("read", {"path": "a.txt"})
    server.play("m", Says(calls=(read,), thinking="I need the file."), Says("It says x."))
    assert place.fugu("run", "what does a.txt say?").code == 0
    first, second = server.asked("m")
    assert all("reasoning_content" not in message for message in first.body["messages"])
    call = next(message for message in second.body["messages"] if message["role"] == "assistant")
    assert call["reasoning_content"] == "I need the file."

    server.play("m", Says("Still x."))
    assert place.fugu("run", "--continue", "and now?").code == 0
    last = server.asked("m")[-1].body["messages"]
    assert all("reasoning_content" not in message for message in last)


def test_a_server_that_refuses_thoughts_gets_none(place: Place, server: Loopback) -> None:
    place.configure(Agent("m"))
    (place.repo / "a.txt").write_text("x\n")
    refusal = "'messages.2' : property 'reasoning_content' is unsupported"
    read = Use("read", {"path": "a.txt"})
    server.play("m", Says(calls=(read,), thinking="Hm."), Refuses(400, refusal), Says("It says x."))
    assert place.fugu("run", "what does a.txt say?").code == 0
    assert all("reasoning_content" not in item for item in server.asked("m")[-1].body["messages"])


def test_sealed_reasoning_names_its_call_by_the_id_that_the_call_has_in_the_history(
    place: Place, server: Loopback
) -> None:
    place.configure(Agent("m"))
    (place.repo / "a.txt").write_text("x\n")
    read = Use("read", {"path": "a.txt"})
    answers = [Says(calls=(read,), sealed=True), Says(calls=(read,), sealed=True), Says("x")]
    server.play("m", *answers)
    assert place.fugu("run", "what does a.txt say?").code == 0
    replies = [
        message
        for message in server.asked("m")[-1].body["messages"]
        if message["role"] == "assistant" and message.get("tool_calls")
    ]
    named = [reply["reasoning_details"][0]["id"] for reply in replies]
    assert named == [reply["tool_calls"][0]["id"] for reply in replies]
    assert len(set(named)) == 2
