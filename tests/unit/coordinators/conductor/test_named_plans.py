"""Plans by name: what a prompted planner is shown, what it may write, and writers that work at once."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fugu_cli.coordinators.conductor.plan_lists import InvalidPlan
from fugu_cli.coordinators.conductor.plan_steps import PlanLimits, parse_workflow
from fugu_cli.messages import Call, FromTool, Prompt, Reply
from fugu_cli.session.events import Assigned, Merged, ToolRan, WorkflowStep
from tests.reacting import React
from tests.unit.coordinators.conductor.staging import everything, newest, planning, plans, play

FORM = PlanLimits(("a", "b"), by_name=True, outputs=("step-1",), prefix="round-2-step-", keeps=True)


def objects(*steps: dict[str, object]) -> str:
    return f"I divide it so.\n\n```json\n{json.dumps(steps, indent=1)}\n```"


def step(agent: str, task: str, **more: object) -> dict[str, object]:
    return {"agent": agent, "task": task, "reads": [], **more}


def writes(*paths: str) -> React:
    """Write the files, each with the first one's name, then say so."""

    def react(prompt: Prompt) -> Reply:
        if isinstance(prompt.messages[-1], FromTool):
            return Reply(text=f"Wrote {paths[0]}.")
        made = [
            Call.make(f"w{number}", "write", path=path, content=f"{paths[0]}\n")
            for number, path in enumerate(paths)
        ]
        return Reply(text="", calls=tuple(made))

    return react


def test_a_plan_names_agents_and_outputs_in_objects_or_lists() -> None:
    first = WorkflowStep(agent="b", instruction="Mend.", opens=("step-1",), accepts=False)
    last = WorkflowStep(agent="a", instruction="Judge.", access=(0,), accepts=True)
    written = objects(
        step("b", "Mend.", reads=["step-1"]),
        step("a", "Judge.", reads=["round-2-step-1"], accepts=True),
    )
    assert parse_workflow(written, FORM) == (first, last)
    lists = 'model_id = ["b", "a"]\nsubtasks = ["Mend.", "Judge."]\naccess_list = [["step-1"], [0]]'
    by_lists = parse_workflow(lists, FORM)
    assert not isinstance(by_lists, InvalidPlan)
    assert [(s.agent, s.access, s.opens) for s in by_lists] == [
        ("b", (), ("step-1",)),
        ("a", (0,), ()),
    ]
    assert parse_workflow("All is well.\n\n[]", FORM) == ()


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        (step("x", "Do."), "`agent` is 'x'; the agents are a, b"),
        (step("a", ""), "`task` is '', not a text"),
        (step("a", "Do.", reads=["step-9"]), "`reads` holds 'step-9'; it may hold step-1"),
        (step("a", "Do.", reads=[0]), "`reads` holds 0; it may hold step-1"),
        (step("a", "Do.", files=["../x"]), "`files` holds '../x'; name files and folders"),
        (step("a", "Do.", accepts="yes"), "`accepts` is 'yes', not true or false"),
        (step("a", "Do.", divide=True), "`divide` cannot be used here"),
        (step("a", "Do.", subtask="x"), "there is no field `subtask`; a step has agent, task,"),
    ],
)
def test_what_is_wrong_with_a_step_is_said_with_its_name(
    given: dict[str, object], fault: str
) -> None:
    plan = parse_workflow(objects(given), FORM)
    assert isinstance(plan, InvalidPlan)
    assert plan.text.startswith(f"round-2-step-1: {fault}")


def test_writers_of_different_files_work_at_once_in_copies_and_no_author_judges(
    tmp_path: Path,
) -> None:
    plan = objects(
        step("a", "Write one.", files=["one.txt"]),
        step("b", "Write two.", files=["two.txt"]),
        step("a", "Judge it.", reads="all", accepts=True),
    )
    accept = lambda prompt: Reply(text="Both are there.\nVERDICT: ACCEPT")  # noqa: E731
    reacts = {"a": writes("one.txt"), "b": writes("two.txt"), "c": accept}
    found = play(tmp_path, planning(plan), reacts)
    end = found.run("write two files")
    assert (end.reason, end.accepted_by, end.judge) == ("accepted", "verifier", "c"), end
    assert [bool(each.worktree) for each in found.of(Assigned)] == [True, True, False]
    assert (tmp_path / "repo" / "one.txt").exists() and (tmp_path / "repo" / "two.txt").exists()
    assert found.log.state.request.answer == "Wrote one.txt.\n\nWrote two.txt."
    asked = everything(found.shown("c")[1])
    assert "Judge it." in asked and "two.txt" in asked and "VERDICT: ACCEPT" in asked
    assert "while others work at the same time on other files" in everything(found.shown("a")[0])
    planner = found.shown("c")[0]
    assert "- a: cheap, m-a" in newest(planner) and "divide" in planner.system


def test_without_a_judge_the_user_reads_of_every_change_that_the_last_writer_did_not_read_of(
    tmp_path: Path,
) -> None:
    plan = objects(
        step("a", "Write one."),
        step("b", "Write two."),
        step("c", "Write three.", reads=["step-2"]),
    )
    reacts = {"a": writes("one.txt"), "b": writes("two.txt"), "c": writes("three.txt")}
    found = play(tmp_path, planning(plan), reacts)
    found.run("write three files")
    assert found.log.state.request.answer == "Wrote one.txt.\n\nWrote three.txt."
    whole = "describe in it what the steps above changed as well"
    assert whole in everything(found.shown("c")[-1])
    assert whole not in everything(found.shown("a")[0]) + everything(found.shown("b")[0])


def test_a_step_that_wrote_a_file_of_another_is_done_again_after_it(tmp_path: Path) -> None:
    plan = objects(
        step("a", "Write one.", files=["one.txt"]), step("b", "Write two.", files=["two.txt"])
    )
    reacts = {"a": writes("one.txt"), "b": writes("two.txt", "one.txt")}
    found = play(tmp_path, planning(plan), reacts)
    found.run("write two files")
    merges = [(merge.turns, merge.chosen, merge.again) for merge in found.of(Merged)]
    assert merges == [((1,), 1, False), ((2,), 0, True)]
    again = everything(found.shown("b")[-1])
    assert "that work was thrown away: it wrote one.txt, a file of step-1." in again
    assert "You work in the repository itself, not in a copy." in again
    assert (tmp_path / "repo" / "one.txt").read_text() == "one.txt\n", "it was not read again"
    assert (tmp_path / "repo" / "two.txt").exists()


def test_a_choice_before_a_call_counts_and_one_that_is_missing_is_asked_for_once(
    tmp_path: Path,
) -> None:
    plan = objects(
        step("a", "Write it."),
        step("b", "Write it."),
        step("c", "Choose.", reads="all"),
        step("a", "Describe it.", reads="all"),
    )
    questions: list[str] = []

    def chooses(prompt: Prompt) -> Reply:
        questions.append(newest(prompt))
        run = Call.make(f"t{len(questions)}", "run_tests", change="step-2")
        replies = (
            Reply(text="I look at the second.", calls=(run,)),
            Reply(text="The second is better."),
            Reply(text="CHOOSE step-2\nI look again.", calls=(run,)),
            Reply(text="It is the better one."),
        )
        return replies[len(questions) - 1]

    def a(prompt: Prompt) -> Reply:
        if "Describe it." in newest(prompt):
            return Reply(text="It is a file.")
        return writes("one.txt")(prompt)

    reacts = {"a": a, "b": writes("two.txt"), "c": chooses}
    change = lambda stage: replace(stage, test_command="ls | cat", mode="yolo")  # noqa: E731
    found = play(tmp_path, planning(plan), reacts, change=change)
    found.run("write a file")
    tried = [ran.output for ran in found.of(ToolRan) if "step-2" in ran.call.arguments]
    assert len(tried) == 2
    assert all("two.txt" in output and "one.txt" not in output for output in tried)
    assert questions[2].startswith("You named none of the changes.")
    assert "Other agents have the same task" in everything(found.shown("a")[0])
    assert found.of(Merged)[-1].chosen == 2
    assert (tmp_path / "repo" / "two.txt").exists()
    assert not (tmp_path / "repo" / "one.txt").exists()
    described = newest(found.shown("a")[-1])
    assert '<output of="step-1" by="a" change="not in the repository">' in described
    assert "What you changed in step-1 was not taken over: the change of step-2 was." in described


def test_a_part_that_was_divided_and_is_half_done_is_finished_by_one_agent(tmp_path: Path) -> None:
    outer = objects({"divide": True, "task": "Write two files.", "reads": []})
    inner = objects(step("b", "Write one."), step("a", "Write two.", reads=["step-1.1"]))
    gives_up = lambda prompt: Reply(text="UNABLE: no")  # noqa: E731

    def planner(prompt: Prompt) -> Reply:
        return Reply(text=inner if "This part is step-1" in newest(prompt) else outer)

    def c(prompt: Prompt) -> Reply:
        is_last = "This part was divided" in everything(prompt)
        return writes("two.txt")(prompt) if is_last else gives_up(prompt)

    found = play(tmp_path, planner, {"a": gives_up, "b": writes("one.txt"), "c": c})
    found.run("write two files")
    assert [turn.step for turn in found.of(Assigned)] == [0, 1, 1, 0]
    told = everything(found.shown("c")[-1])
    assert "Wrote one.txt." in told and "step-1.2: Write two." in told
    assert "`b` changed one.txt." in told and "+one.txt" in told, "no diff of the parts"
    assert "describe the whole part in your report" in told
    assert "It was not done: an agent said that it cannot do this: no." in told
    assert (tmp_path / "repo" / "one.txt").exists() and (tmp_path / "repo" / "two.txt").exists()


def test_whoever_takes_a_step_over_reads_who_began_it_and_what_stands(tmp_path: Path) -> None:
    plan = objects(step("a", "Write it."))
    found = play(tmp_path, planning(plan), {"a": lambda prompt: Reply(text="UNABLE: no")})
    found.run("write a file")
    taken = everything(found.shown("c")[1])
    assert not plans(found.shown("c")[1])
    assert (
        "`a` began this part and changed nothing; then it said that it cannot do this: no" in taken
    )
