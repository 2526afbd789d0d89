"""How much of a result an agent gets of what a tool found, by the real binary."""

from __future__ import annotations

from fugu_cli.session.events import ToolRan
from tests.acceptance.driving import Agent, Place
from tests.acceptance.loopback import Loopback, Says, Use

LINES = "".join(f"line {number} of a long file\n" for number in range(3000))


def test_no_result_of_a_call_is_above_an_eighth_of_the_window(
    place: Place, server: Loopback
) -> None:
    place.configure(Agent("small", more="context = 16000"))
    place.files({"long.txt": LINES})
    look = Use("bash", {"command": "cat long.txt"})
    search = Use("grep", {"pattern": "line"})
    server.play("small", Says(calls=(look, search)), Says("Long."))
    assert place.fugu("run", "what is it?").code == 0
    results = [event.output for event in place.events() if isinstance(event, ToolRan)]
    assert results and all(len(output) <= 16000 * 3 // 8 + 100 for output in results)


def test_completed_is_done_and_shell_is_bash(place: Place, server: Loopback) -> None:
    place.configure(Agent("worker"))
    listed = Use("todo", {"todos": [{"content": "look", "status": "completed"}]})
    shell = Use("shell", {"command": ["bash", "-lc", "echo seen"]})
    server.play("worker", Says(calls=(listed, shell)), Says("Done."))
    assert place.fugu("run", "what is it?").code == 0
    first, second = server.asked("worker")[1].results
    assert first == "The list stands: 1 of 1 done."
    assert second.startswith("seen")


def test_no_internal_tool_is_offered_or_named(place: Place, server: Loopback) -> None:
    place.configure(Agent("worker"), Agent("other", "strong"))
    fix = Use("edit", {"path": "calc.txt", "old": "broken", "new": "fixed"})
    server.play("worker", Says(calls=(Use("nothing"), fix)), Says("Fixed."))
    server.play("other", Says("It is right.\n\nVERDICT: ACCEPT"))
    place.fugu("run", "mend calc.txt")
    requests = [*server.asked("worker"), *server.asked("other")]
    offered = {tool["function"]["name"] for request in requests for tool in request.body["tools"]}
    assert not offered & {"diff", "run_check", "tests_before"}
    named = server.asked("worker")[1].results[0].partition("The tools are: ")[2]
    assert named and not {"diff", "run_check"} & set(named.rstrip(".").split(", "))
