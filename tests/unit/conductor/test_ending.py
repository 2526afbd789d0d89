"""What a request of the ultra tier ends as, where its workflow came to its end and nothing was
changed.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from fugu_cli.coordinators.conductor.conductor import CONTINUE_HINT, ConductorSettings
from fugu_cli.messages import Call, Prompt, Reply
from tests.reacting import React, calls, results
from tests.unit.conductor.staging import KEEP, Play, lists, planning, play

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
def test_a_refusal_is_not_accepted_whatever_the_planner_and_the_tests_say(
    tmp_path: Path, judged: bool
) -> None:
    found = tried(tmp_path, Call.make("1", "bash", command="rm calc.txt"), "I may not.", KEEP)
    end = found.run("delete the file calc.txt", judged=judged)
    assert (end.reason, "rm calc.txt" in end.message) == ("denied", True)


def test_what_was_refused_is_planned_once_more_where_the_user_goes_on(tmp_path: Path) -> None:
    found = tried(
        tmp_path,
        Call.make("1", "bash", command="rm calc.txt"),
        "Done.",
        lists((0, "Do it now.", [])),
    )
    assert found.run("delete the file calc.txt").reason == "denied"
    found.change = lambda stage: replace(stage, mode="yolo")
    found.log.append(found.log.events[0])
    asyncio.run(found.again())
    assert not (found.root / "calc.txt").exists()


@pytest.mark.parametrize("judged", [True, False])
def test_words_after_an_edit_that_failed_are_no_answer(tmp_path: Path, judged: bool) -> None:
    edit = Call.make("1", "edit", path="calc.txt", old="not there", new="x")
    found = tried(tmp_path, edit, "It is not there.", bounds=ConductorSettings(agent="c", rounds=1))
    assert found.run("rename alpha to beta", judged=judged).reason == "unaccepted"


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
    end = found.run("rename alpha to beta")
    assert (
        end.message == f"2 workflows, 2 steps in all; nobody accepted the result. {CONTINUE_HINT}"
    )
    end = tried(tmp_path, edit, "It is not there.", "prose").run("rename alpha to beta")
    why = "the next workflow cannot be had (there are no lists in it)"
    assert (
        end.message == f"a workflow of 1 step; {why}; nobody accepted the result. {CONTINUE_HINT}"
    )
