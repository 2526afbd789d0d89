"""What a request of the ultra tier ends as, where its workflow came to its end and nothing was
changed.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fugu_cli.coordinators.conductor.conductor import ConductorSettings
from fugu_cli.messages import Call, Prompt, Reply
from fugu_cli.session.events import Assigned
from tests.reacting import React, calls, results, says
from tests.unit.coordinators.conductor.staging import Play, lists, planning, play

TWO_ROUNDS = ConductorSettings(agent="c", rounds=2)
PASSES = "echo '1 passed'\n"


def tries(call: Call, said: str) -> React:
    def react(prompt: Prompt) -> Reply:
        return Reply(text=said) if results(prompt) else calls(call)

    return react


def tried(
    tmp_path: Path, call: Call, said: str, *more: str, bounds: ConductorSettings = TWO_ROUNDS
) -> Play:
    """A workflow of one step, which makes the call and says what came of it; the tests pass all
    along.
    """
    found = play(
        tmp_path, planning(lists((0, "Do it.", [])), *more), {"a": tries(call, said)}, bounds=bounds
    )
    (found.root / "check.sh").write_text(PASSES)
    return found


@pytest.mark.parametrize("judged", [True, False])
def test_words_are_an_answer_whatever_was_refused_or_failed(tmp_path: Path, judged: bool) -> None:
    once = ConductorSettings(agent="c", rounds=1)
    remove = Call.make("1", "bash", command="rm calc.txt")
    edit = Call.make("1", "edit", path="calc.txt", old="not there", new="x")
    for call in (remove, edit):
        found = tried(tmp_path, call, "It is not there.", bounds=once)
        assert found.run("rename alpha to beta", judged=judged).reason == "answered"


def test_a_step_that_gives_up_is_taken_over_by_another_agent(tmp_path: Path) -> None:
    given_up = {"a": says("UNABLE: I see nothing."), "c": says("There are two files.")}
    found = play(tmp_path, planning(lists((0, "Look.", []))), given_up)
    end = found.run("what is here?")
    decisions = [event for event in found.log.events if isinstance(event, Assigned)]
    assert (end.reason, [turn.agent for turn in decisions]) == ("answered", ["a", "c"])


def test_in_plan_mode_they_are(tmp_path: Path) -> None:
    write = Call.make("1", "write", path="calc.txt", content="fixed")
    found = tried(
        tmp_path, write, "I would write it anew.", bounds=ConductorSettings(agent="c", rounds=1)
    )
    found.change = lambda stage: replace(stage, mode="plan")
    assert found.run("rename alpha to beta").reason == "answered"


def test_tests_that_passed_before_accept_nothing_where_nothing_was_changed(tmp_path: Path) -> None:
    look = Call.make("1", "list", path=".")
    found = tried(
        tmp_path, look, "There is nothing to do.", bounds=ConductorSettings(agent="c", rounds=1)
    )
    end = found.run("make it faster", judged=True)
    assert (end.reason, end.message) == ("answered", "a workflow of 1 step")


def test_the_end_says_how_many_workflows_there_were_and_why_not_another(tmp_path: Path) -> None:
    edit = Call.make("1", "edit", path="calc.txt", old="not there", new="x")
    found = tried(tmp_path, edit, "It is not there.", lists((1, "Do it.", [])))
    assert found.run("rename alpha to beta").message == "2 workflows, 2 steps in all"
    end = tried(tmp_path, edit, "It is not there.", "prose").run("rename alpha to beta")
    why = "the next workflow cannot be had (there is no JSON list of steps in it)"
    assert end.message == f"a workflow of 1 step; {why}"
