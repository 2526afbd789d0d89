"""What a model thought in a tool loop goes back to its server, in the form in which it came."""

from typing import Any

import pytest

from tests.acceptance.driving import Agent, Place, ended
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


def reasoning_of(body: dict[str, Any]) -> list[object]:
    """What stands in a request's history of what the model thought, in the field where it stands."""
    entries: list[object] = []
    for message in body.get("messages") or body["input"]:
        content = message.get("content")
        if message.get("type") == "reasoning":
            entries.append(content)
        elif message.get("role") == "assistant" and isinstance(content, list):
            entries += [block["thinking"] for block in content if block["type"] == "thinking"]
        elif message.get("role") == "assistant":
            fields = {"reasoning_content", "reasoning", "reasoning_text"} & message.keys()
            entries += [(field, message[field]) for field in fields]
            if "<think>" in (content or ""):
                entries.append(content)
    return entries


@pytest.mark.parametrize(
    ("provider", "api", "field", "expected"),
    [
        ("openai", "", "reasoning_content", ("reasoning_content", "I need the file.")),
        ("openai", "", "reasoning", ("reasoning", "I need the file.")),
        ("openai", "", "reasoning_text", ("reasoning_text", "I need the file.")),
        ("openai", "", "content", "<think>\nI need the file.\n</think>\n\nI read it."),
        ("openai", "", "content.thinking", [{"type": "text", "text": "I need the file."}]),
        ("anthropic", "", "", "I need the file."),
        (
            "openai",
            "responses",
            "content",
            [{"type": "reasoning_text", "text": "I need the file."}],
        ),
    ],
    ids=[
        "reasoning_content",
        "reasoning",
        "reasoning_text",
        "think tags",
        "content parts",
        "messages",
        "responses",
    ],
)
def test_thoughts_go_back_as_they_came_also_after_a_killed_session_is_resumed(
    provider: str, api: str, field: str, expected: object, place: Place, server: Loopback
) -> None:
    place.configure(Agent("m", provider=provider, more=f'api = "{api}"' if api else ""))
    (place.repo / "a.txt").write_text("x\n")
    read = Use("read", {"path": "a.txt"})
    thought = Says("I read it.", calls=(read,), thinking="I need the file.", thinking_field=field)
    server.play("m", thought, Says("never arrives", pause=30))
    process = place.start("run", "what does a.txt say?")
    server.wait_for("m", 2)
    process.kill()
    ended(process)
    before = server.asked("m")[1]
    server.play("m", Says("It says x."))
    assert place.fugu("run", "--continue").code == 0
    (after,) = server.asked("m")
    assert reasoning_of(before.body) == [expected]
    assert reasoning_of(after.body) == [expected]

    server.play("m", Says("Still x."))
    assert place.fugu("run", "--continue", "and now?").code == 0
    assert reasoning_of(server.asked("m")[-1].body) == []


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
