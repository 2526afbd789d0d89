"""What an agent is told about the session with a request, and what a later request adds."""

from __future__ import annotations

import json

from tests.acceptance.driving import Agent, Place
from tests.acceptance.loopback import Asked, Loopback, Says, Use

DONE = Says("Nothing was to be changed.")


def told(request: Asked) -> dict[str, str]:
    """The rules of the newest request, by name."""
    messages = [message for message in request.body["messages"] if message["role"] == "user"]
    text = str(messages[-1]["content"])
    begin = text.index("[The session" if "[The session" in text else "[Changed")
    lines = text[begin:].partition("\n\n")[0].splitlines()[1:]
    return {name: value for name, _, value in (line.partition(": ") for line in lines)}


def test_the_first_request_says_where_it_works_and_what_the_mode_refuses(
    place: Place, server: Loopback
) -> None:
    place.configure(Agent("worker"), more='test_command = "sh check.sh"\ndeny = ["bash(curl *)"]')
    place.files({"calc.txt": "changed\n", "new file.txt": "new\n"})
    server.play("worker", DONE)
    done = place.fugu("run", "what is this?")
    assert done.code == 0, done.err
    rules = told(server.asked("worker")[0])
    assert rules["Folder"] == str(place.repo)
    assert rules["Git"].endswith("not committed: M calc.txt, ?? new file.txt")
    assert rules["Files"] == "calc.txt check.sh new file.txt"
    assert rules["Tests"] == "`sh check.sh`"
    asked, _, refused = (
        rules["Mode"].partition(". Refused, for nobody can be asked: ")[2].partition(". Refused: ")
    )
    assert asked.startswith("whatever leaves the repository"), rules["Mode"]
    assert refused == "what undo cannot bring back", "that is refused whoever could be asked"
    assert rules["Commands"].startswith("bash, run_tests and acceptance checks run in a sandbox")
    assert (
        "read, write, edit, apply_patch, list, glob and grep do not reach it" in rules["Commands"]
    )
    assert rules["User's rules"] == "denied: bash(curl *)"


def test_plan_mode_says_that_it_only_reads(place: Place, server: Loopback) -> None:
    place.configure(Agent("worker"))
    server.play("worker", Says(calls=(Use("write", {"path": "a", "content": "b"}),)), DONE)
    place.fugu("run", "--permission-mode", "plan", "make a")
    first, second = server.asked("worker")[:2]
    assert (
        told(first)["Mode"] == "plan. Runs: reading. Refused: all else that writes, runs or fetches"
    )
    assert told(first)["Commands"] == "bash runs what only reads"
    assert second.results[-1].endswith("say in your answer what is to be done.")


def test_a_later_request_adds_only_what_changed_and_keeps_the_text_before_it(
    place: Place, server: Loopback
) -> None:
    place.configure(Agent("worker"))
    server.play("worker", DONE)
    place.fugu("run", "what is this?")
    place.files({"calc.txt": "changed\n"})
    server.play("worker", DONE)
    place.fugu("run", "--continue", "and now?")
    (request,) = server.asked("worker")
    assert list(told(request)) == ["Git"]
    place.fugu("run", "--continue", "and again?")
    last = server.asked("worker")[-1]
    kept = json.dumps(request.body["messages"][:-1])[:-1]
    assert json.dumps(last.body["messages"]).startswith(kept)
    assert "[Changed" not in str(last.body["messages"][-1]["content"])


def test_a_subtask_is_told_the_same_rules(place: Place, server: Loopback) -> None:
    place.configure(Agent("worker"))
    task = Use("task", {"description": "look", "prompt": "Look around."})

    def react(request: Asked) -> Says:
        if "Look around." in request.text and "what is this?" not in request.text:
            return Says("I looked.")
        return Says("Done.") if request.results else Says(calls=(task,))

    server.react("worker", react)
    done = place.fugu("run", "what is this?")
    assert done.code == 0, done.err
    first, second = server.asked("worker")[:2]
    assert told(second) == told(first)
