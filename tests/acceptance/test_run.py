"""The real binary against a server that speaks the real wire formats: the main job done, on both
wires.
"""

import json
import re
import subprocess

import pytest

from fugu_cli.session.events import Assigned, Finished, Replied
from fugu_cli.session.state import SessionState
from tests.acceptance.driving import Agent, Place, objects
from tests.acceptance.loopback import Loopback, Says, Use

READ = Says("I look.", (Use("read", {"path": "calc.txt"}),))
WRITE = Says("", (Use("write", {"path": "calc.txt", "content": "fixed\n"}),))
DONE = Says("I wrote what was missing.")
ACCEPT = Says("ACCEPT. The tests pass and the diff does it.")
WORKS = (READ, WRITE, DONE)

BUGGY = "def total(numbers):\n    return sum(numbers) + 1\n"
TESTED = "from basket import total\n\n\ndef test_total():\n    assert total([1, 2]) == 3\n"


def test_failing_tests_are_fixed_verified_and_reported(place: Place, server: Loopback) -> None:
    place.variables["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = ""  # as users run pytest
    place.files({"basket.py": BUGGY, "test_basket.py": TESTED, ".gitignore": "__pycache__/\n"})
    place.commit()
    place.configure(
        Agent("worker", price="{ input = 1.0, output = 10.0 }"),
        Agent("judge", "strong", "anthropic"),
        more="",
    )
    edit = Use("edit", {"path": "basket.py", "old": "sum(numbers) + 1", "new": "sum(numbers)"})
    server.play(
        "worker",
        Says("I look.", (Use("read", {"path": "basket.py"}), Use("glob", {"pattern": "*.py"}))),
        Says("", (edit,)),
        DONE,
    )
    server.play("judge", ACCEPT)
    done = place.fugu("run", "fix the failing tests")
    assert (done.code, done.out) == (0, "I wrote what was missing.\n"), done.err
    assert (place.repo / "basket.py").read_text() == BUGGY.replace(" + 1", "")
    for part in (
        "● worker worker",
        "● verifier judge",
        "+    return sum(numbers)\n",
        "✓ checks: 1 test passes",
        "verified by judge · 1 test passes",
    ):
        assert part in done.err
    events = place.events()
    assert [(event.agent, event.role) for event in events if isinstance(event, Assigned)] == [
        ("worker", "worker"),
        ("judge", "verifier"),
    ]
    assert {event.model for event in events if isinstance(event, Replied)} == {
        "worker-2026-01-01",
        "judge-2026-01-01",
    }
    assert list(SessionState(events).request.changes) == ["basket.py"]
    assert SessionState(events).cost == pytest.approx(0.0006)
    trace = place.fugu("trace", "latest")
    assert trace.code == 0
    for part in ("worker", "judge", "verifier", "✓ accepted"):
        assert part in trace.out
    shown = server.asked("judge")[0].text
    assert "-    return sum(numbers) + 1" in shown, "the Verifier is shown the diff"
    assert "The tests were run (" in shown, "the Verifier is shown the tests"


def test_two_servers_of_both_wires_hand_one_history_to_each_other(
    place: Place, server: Loopback
) -> None:
    """The Messages agent works and fails the tests; the Chat Completions agent goes on from its
    calls and results.
    """
    place.configure(Agent("first", "cheap", "anthropic"), Agent("second", "strong"))
    wrong = Says(
        "",
        (
            Use("write", {"path": "calc.txt", "content": "wrong\n"}),
            Use("grep", {"pattern": "wrong"}),
        ),
    )
    server.play("first", READ, wrong, Says("I try."), Says("Perhaps."), ACCEPT)
    server.play("second", *WORKS)
    done = place.fugu("run", "--until-tests-pass", "fix the tests")
    assert done.code == 0, done.err
    shown = server.asked("second")[0].text
    assert "Perhaps." in shown
    assert "wrong" in shown
    assert (place.repo / "calc.txt").read_text() == "fixed\n"


def test_the_final_object_says_how_it_ended(place: Place, server: Loopback) -> None:
    place.configure(
        Agent("json-worker", price="{ input = 1.0, output = 10.0 }"), Agent("json-judge", "strong")
    )
    server.play("json-worker", *WORKS)
    server.play("json-judge", ACCEPT)
    done = place.fugu("run", "--output-format", "json", "--output-dir", "../left", "fix the tests")
    assert done.code == 0, done.err
    (final,) = objects(done.out)
    assert (final["type"], final["subtype"], final["is_error"], final["num_turns"]) == (
        "result",
        "success",
        False,
        2,
    )
    assert final["result"] == "I wrote what was missing."
    assert final["session_id"] == place.sessions()[-1].stem
    assert final["usage"]["output_tokens"] == 40
    assert final["total_cost_usd"] == pytest.approx(0.0006)
    assert final["fugu"]["end"] == "verified by json-judge · 1 test passes"
    assert final["fugu"]["tests"]["after"] == {"ok": True, "passed": 1, "failed": 0, "skipped": 0}
    left = place.folder / "left"
    assert {path.name for path in left.iterdir()} == {
        "session.jsonl",
        "changes.patch",
        "trajectory.json",
        "summary.json",
        "prediction.jsonl",
    }
    assert (left / "session.jsonl").read_bytes() == place.sessions()[-1].read_bytes()
    assert "+fixed" in (left / "changes.patch").read_text()
    assert json.loads((left / "summary.json").read_text())["subtype"] == "success"
    predicted = json.loads((left / "prediction.jsonl").read_text())
    assert sorted(predicted) == ["instance_id", "model_name_or_path", "model_patch"]
    subprocess.run(["git", "checkout", "-q", "."], cwd=place.repo, check=True)
    patch = predicted["model_patch"].encode()
    subprocess.run(["git", "apply", "-"], cwd=place.repo, input=patch, check=True)
    assert (place.repo / "calc.txt").read_text() == "fixed\n"


def test_the_stream_tells_every_decision_call_and_result(place: Place, server: Loopback) -> None:
    place.configure(Agent("stream-worker"), Agent("stream-judge", "strong", "anthropic"))
    server.play("stream-worker", *WORKS)
    server.play("stream-judge", ACCEPT)
    done = place.fugu("run", "--output-format", "stream-json", "-p", "fix the tests")
    assert done.code == 0, done.err
    lines = objects(done.out)
    told = [(line["type"], line.get("subtype")) for line in lines]
    assert told[0] == ("system", "init")
    assert told[-1] == ("result", "success")
    assert [line["agent"] for line in lines if line.get("subtype") == "routing"] == [
        "stream-worker",
        "stream-judge",
    ]
    calls = [
        block["id"]
        for line in lines
        if line["type"] == "assistant"
        for block in line["message"]["content"]
        if block["type"] == "tool_use"
    ]
    results = [
        line["message"]["content"][0]["tool_use_id"] for line in lines if line["type"] == "user"
    ]
    assert calls == results
    assert len(calls) == 2
    assert {line["session_id"] for line in lines} == {place.sessions()[-1].stem}


def test_a_question_is_answered_by_one_agent_from_standard_input(
    place: Place, server: Loopback
) -> None:
    place.configure(Agent("answers"), Agent("unasked", "strong"))
    server.play("answers", READ, Says("It holds one word."))
    server.play("unasked", ACCEPT)
    done = place.fugu("run", stdin=b"what does calc.txt hold?\n")
    assert (done.code, done.out) == (0, "It holds one word.\n"), done.err
    assert server.asked("unasked") == []
    assert place.end() == Finished(reason="answered")


def test_a_second_request_goes_on_in_the_same_session(place: Place, server: Loopback) -> None:
    place.configure(Agent("remembers"))
    server.play("remembers", Says("The word is xyzzy."), Says("As I said: xyzzy."))
    assert place.fugu("run", "what is the word?").code == 0
    done = place.fugu("run", "--continue", "what was it again?")
    assert (done.code, done.out) == (0, "As I said: xyzzy.\n"), done.err
    assert "The word is xyzzy." in server.asked("remembers")[1].text
    assert len(place.sessions()) == 1


def test_a_forked_command_says_what_one_that_starts_anew_says(
    place: Place, server: Loopback
) -> None:
    """Most tests here fork their commands (forked.py)."""
    place.configure(Agent("same"))
    for words in (
        ["pool"],
        ["help", "undo"],
        ["trace", "latest"],
        ["run", "--mode"],
        ["run", "what is here?"],
    ):
        said = []
        for path in ("PATH", "PYTHONHASHSEED"):
            server.play("same", Says("Nothing."))
            place.variables = {"PYTHONHASHSEED": "1"} if path == "PYTHONHASHSEED" else {}
            done = place.fugu(*words)
            said.append(
                (done.code, done.out, re.sub(r"\d{8}-\d{6}-\w{4}|[\d.]+ ?m?s", "", done.err))
            )
        assert said[0] == said[1]


REFUSED = Says("I try it.", (Use("bash", {"command": "python3 -c 'print(1 + 1)' > out.txt"}),))


def test_a_right_answer_after_a_refused_call_is_done(place: Place, server: Loopback) -> None:
    place.commit()
    place.configure(Agent("worker"))
    server.play("worker", REFUSED, Says("add returns the sum of both."))
    done = place.fugu("run", "--permission-mode", "ask", "--output-format", "json", "what is it?")
    result = json.loads(done.out)
    assert (done.code, result["subtype"], result["is_error"]) == (0, "success", False)
    assert [call["tool_name"] for call in result["permission_denials"]] == ["bash"]


def test_a_request_given_up_after_a_refused_call_is_denied(place: Place, server: Loopback) -> None:
    place.commit()
    place.configure(Agent("worker"), Agent("judge", "strong", "anthropic"))
    server.play("worker", REFUSED, Says("UNABLE: I may not run Python."))
    server.play("judge", Says("UNABLE: nor may I."))
    done = place.fugu("run", "--permission-mode", "ask", "--output-format", "json", "what is it?")
    assert (done.code, json.loads(done.out)["subtype"]) == (4, "error_permission_denied")
    shown = server.asked("judge")[-1].text
    assert "`worker` said that it cannot do this: I may not run Python." in shown
