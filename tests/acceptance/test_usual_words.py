"""The words that users of other agents type, by the real binary: `-p`, `--model`,
`--append-system-prompt`.
"""

import json

import pytest

from fugu_cli.session.events import Assigned
from tests.acceptance.driving import Agent, Place
from tests.acceptance.loopback import Loopback, Says


@pytest.mark.parametrize(
    "words",
    [
        ("-p", "what is it?", "--model", "second"),
        ("--model", "second", "-p", "what is it?"),
        ("--model=second", "--prompt=what is it?"),
        ("-p", "--model", "second", "what is it?"),
        ("--print", "what is it?", "--model=second"),
        ("run", "--agent", "second", "what is it?"),
    ],
)
def test_a_prompt_without_a_command_is_a_run_and_a_model_is_an_agent(
    place: Place, server: Loopback, words: tuple[str, ...]
) -> None:
    place.configure(Agent("first"), Agent("second", "middle"))
    server.play("second", Says("A file."))
    done = place.fugu(*words)
    assert (done.code, done.out) == (0, "A file.\n"), done.err
    assert [(event.agent, event.by) for event in place.events() if isinstance(event, Assigned)] == [
        ("second", "single")
    ]


def test_a_flag_without_a_text_takes_standard_input(place: Place, server: Loopback) -> None:
    place.configure(Agent("worker"))
    server.play("worker", Says("A file."))
    done = place.fugu("-p", "--output-format", "json", stdin=b"what is it?")
    assert (done.code, json.loads(done.out)["result"]) == (0, "A file."), done.err
    assert "what is it?" in server.asked("worker")[0].text


def test_what_is_appended_stands_behind_the_instructions_of_files(
    place: Place, server: Loopback
) -> None:
    place.configure(Agent("worker"))
    (place.home / ".agents").mkdir()
    (place.home / ".agents/AGENTS.md").write_text("Speak French.\n")
    server.play("worker", Says("Un fichier."))
    done = place.fugu("-p", "what is it?", "--append-system-prompt", "Be brief.")
    assert done.code == 0, done.err
    system = server.asked("worker")[0].body["messages"][0]
    assert system["role"] == "system"
    assert system["content"].index("Speak French.") < system["content"].index("Be brief.")
    assert system["content"].count("Be brief.") == 1


def test_an_empty_one_is_refused_and_a_prompt_of_another_command_stays_its_own(
    place: Place,
) -> None:
    place.configure(Agent("worker"))
    done = place.fugu("-p", "what is it?", "--append-system-prompt", "")
    assert (done.code, "--append-system-prompt is empty" in done.err) == (1, True)
    done = place.fugu("doctor", "-p", "x")
    assert (done.code, "No such option" in done.err) == (1, True)


def test_a_tool_call_that_came_as_text_is_carried_out_and_an_example_is_not(
    place: Place, server: Loopback
) -> None:
    place.configure(Agent("m"))
    call = (
        '<tool_call>\n{"name": "write", "arguments": {"path": "made.txt", "content": '
        '"x\\n"}}\n</tool_call>'
    )
    server.play("m", Says(f"I write it.\n{call}"), Says("Done."), Says("ACCEPT"))
    done = place.fugu("run", "make a file")
    assert (done.code, (place.repo / "made.txt").read_text()) == (0, "x\n"), done.err
    assert len(server.asked("m")[1].results) == 1
    server.play(
        "m", Says(f"A call looks so:\n```\n{call.replace('made', 'other')}\n```\nIt writes a file.")
    )
    assert place.fugu("run", "what does a call look like?").code == 0
    assert not (place.repo / "other.txt").exists()
