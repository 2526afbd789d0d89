"""`fugu_cli.run` in a program of its own: the events, the questions, the end, and what cannot be
meant.
"""

import json
import subprocess
import sys
import time
from typing import Any

from tests.acceptance.driving import Agent, Place
from tests.acceptance.loopback import Asked, Loopback, Says
from tests.acceptance.test_run import ACCEPT, DONE, READ, WRITE

PROGRAM = """
import asyncio, json, fugu_cli

async def answer(tool, arguments, reason):
    print(json.dumps({"type": "asked", "tool": tool, "path": arguments.get("path"), "reason": reason}))
    return ANSWER

async def main():
    options = fugu_cli.RunOptions(OPTIONS)
    async for event in fugu_cli.run(PROMPT, options):
        print(json.dumps(event))

try:
    asyncio.run(main())
except fugu_cli.FuguError as error:
    print(json.dumps({"type": "raised", "error": str(error), "hint": error.hint}))
"""


def program(place: Place, text: str) -> list[dict[str, Any]]:
    """What a Python program prints, line by line."""
    done = subprocess.run(
        [sys.executable, "-c", text],
        cwd=place.folder,
        env=place.environ(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return [json.loads(line) for line in done.stdout.splitlines()]


def events(
    place: Place, options: str, prompt: str = "fix the tests", answer: str = "True"
) -> list[dict[str, Any]]:
    inside = f"folder={str(place.repo)!r}, {options}"
    text = (
        PROGRAM.replace("OPTIONS", inside).replace("PROMPT", repr(prompt)).replace("ANSWER", answer)
    )
    return program(place, text)


def fixing(place: Place, server: Loopback) -> None:
    place.configure(Agent("worker"), Agent("judge", "strong"))
    server.play("worker", READ, WRITE, DONE)
    server.play("judge", ACCEPT)


def test_a_request_is_carried_out_event_by_event(place: Place, server: Loopback) -> None:
    fixing(place, server)
    seen = events(place, "permission_mode='ask', answer=answer")
    asked = {
        "type": "asked",
        "tool": "write",
        "path": "calc.txt",
        "reason": "in ask mode every change is asked about",
    }
    assert [one for one in seen if one["type"] == "asked"] == [asked]
    kinds = [(one["type"], one.get("subtype")) for one in seen]
    assert (kinds[0], kinds[-1]) == (("system", "init"), ("result", "success"))
    assert [one["agent"] for one in seen if one.get("subtype") == "routing"] == ["worker", "judge"]
    assert (seen[-1]["result"], (place.repo / "calc.txt").read_text()) == (DONE.text, "fixed\n")


def test_words_are_a_no_that_the_agent_reads(place: Place, server: Loopback) -> None:
    fixing(place, server)
    seen = events(place, "permission_mode='ask', answer=answer", answer="'leave this file alone'")
    assert seen[-1]["permission_denials"][0]["tool_name"] == "write"
    assert "leave this file alone" in server.asked("worker")[2].text
    assert (place.repo / "calc.txt").read_text() == "broken\n"


def test_what_nobody_is_asked_is_denied(place: Place, server: Loopback) -> None:
    fixing(place, server)
    result = events(place, "permission_mode='ask'")[-1]
    assert [denial["tool_name"] for denial in result["permission_denials"]] == ["write"]
    assert (place.repo / "calc.txt").read_text() == "broken\n"


def test_what_cannot_be_meant_is_raised_with_what_to_do(place: Place, server: Loopback) -> None:
    place.configure(Agent("worker"))
    for options, prompt, words in (
        ("agent='nobody'", "hello", "nobody"),
        ("resume='nobody'", "hello", "nobody"),
        ("json_schema={'type': 'song'}", "hello", "schema"),
        ("", " ", "the prompt is empty"),
    ):
        [raised] = events(place, options, prompt)
        assert (raised["type"], words in raised["error"], bool(raised["hint"])) == (
            "raised",
            True,
            True,
        )
    assert place.sessions() == []


def test_the_sync_form_returns_the_result_and_a_session_is_gone_on_with(
    place: Place, server: Loopback
) -> None:
    place.configure(Agent("worker"))
    server.play("worker", Says('{"n": 4}'), Says("It was 4."))
    text = f"""
import json, fugu_cli
first = fugu_cli.run_sync("2 + 2?", fugu_cli.RunOptions(
    folder={str(place.repo)!r}, json_schema={{"type": "object", "required": ["n"]}}))
second = fugu_cli.run_sync("what was it?", fugu_cli.RunOptions(folder={str(place.repo)!r}, resume=first["session_id"]))
print(json.dumps([first["structured_output"], second["result"], first["session_id"] == second["session_id"]]))
"""
    assert program(place, text) == [[{"n": 4}, "It was 4.", True]]


def test_leaving_the_loop_interrupts_the_request(place: Place, server: Loopback) -> None:
    place.configure(Agent("worker"))
    server.play("worker", Says("slow", pause=60))
    text = f"""
import asyncio, contextlib, json, fugu_cli

async def main():
    run = fugu_cli.run("take your time", fugu_cli.RunOptions(folder={str(place.repo)!r}))
    async with contextlib.aclosing(run) as events:
        async for event in events:
            if event.get("subtype") == "routing":
                break
    print(json.dumps({{"left": True}}))

asyncio.run(main())
"""
    assert program(place, text) == [{"left": True}]
    assert place.end() is None


def test_a_message_that_is_refused_is_an_event_and_the_next_one_is_given(
    place: Place, server: Loopback
) -> None:
    def answer(_: Asked) -> Says:
        time.sleep(1.5)
        return Says("Done.")

    place.configure(Agent("worker"))
    server.play("worker", answer, Says("Both done."))
    text = PROGRAM.replace(
        "async def main():",
        "async def messages():\n    yield '/skill nonesuch'\n    await asyncio.sleep(0.7)\n"
        "    yield 'that as well'\n\nasync def main():",
    )
    inside = f"folder={str(place.repo)!r}, messages=messages()"
    seen = program(
        place,
        text.replace("OPTIONS", inside).replace("PROMPT", "'look'").replace("ANSWER", "True"),
    )
    (refused,) = [event for event in seen if event.get("subtype") == "steering_refused"]
    assert "nonesuch" in refused["error"]
    assert seen[-1]["result"] == "Both done."
    assert "that as well" in server.asked("worker")[-1].text
