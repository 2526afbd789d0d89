"""`fugu train conductor`: what carries workflows out, with a pool that speaks the real wire format,
and the command.
"""

import asyncio
import json
import os
import re
import threading
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from fugu_cli.cli import train_conductor as command
from fugu_cli.cli.eval import open_engine
from fugu_cli.cli.train_evolve import evolve
from fugu_cli.cli.training_flags import ConductorFlags, EvolveFlags, RolloutFlags
from fugu_cli.config.loader import load_config as configuration
from fugu_cli.errors import SessionBusy, UsageError
from fugu_cli.session.events import WorkflowStep
from fugu_cli.training import grpo
from fugu_cli.training.evaluation import results_folder
from fugu_cli.training.evaluation.paid_calls import PaidCall, SpendingLimitReached
from fugu_cli.training.evaluation.results_folder import locked_folder
from fugu_cli.training.grpo import FirstRound, PlannerExample, WorkflowResult
from fugu_cli.training.tasks.loading import load_tasks
from tests.acceptance.loopback import KEY, Answer, Asked, Says, running
from tests.research.evaluation.pool import configured, fixes, idles, suite, task
from tests.research.training.test_conductor_training import tiny_model

STEPS = (
    WorkflowStep(agent="idler", instruction="Say what you see."),
    WorkflowStep(agent="worker", instruction="Fix it.", access="all"),
)


def test_a_workflow_is_carried_out_once_with_tools_and_tests_and_paid_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problems = {one.id: one for one in load_tasks(suite(tmp_path, task("one"))).tasks}
    (tmp_path / "sum.jsonl").write_text(
        json.dumps({"id": "sum", "question": "2 + 2?", "answer": "4"})
    )
    problems |= {one.id: one for one in load_tasks(tmp_path / "sum.jsonl").questions}  # type: ignore[dict-item]
    with running() as server, asyncio.Runner() as loop:
        configured(Path(os.environ["HOME"]), server, ("idler", "cheap"), ("worker", "strong"))
        monkeypatch.setenv("LOOPBACK_KEY", KEY)
        config = configuration(tmp_path, os.environ).config
        engine = open_engine(RolloutFlags(), config, tmp_path / "out")
        trying = command.WorkflowRunner(problems, tmp_path / "out", engine, loop)
        server.react("idler", idles)
        server.react("worker", fixes)
        assert trying("one", STEPS) == WorkflowResult(right=True, answer="It is fixed.")
        asked = len(server.asked("worker"))
        assert (asked, len(server.asked("idler"))) == (3, 1)
        assert "ACCEPT: I see nothing wrong." in server.asked("worker")[0].text
        assert trying("one", STEPS) == WorkflowResult(right=True, answer="It is fixed.")
        assert trying("one", STEPS[:1]).right is False
        assert (len(server.asked("worker")), len(server.asked("idler"))) == (3, 1)
        server.play("worker", Says("Answer: 4"))
        assert trying("sum", STEPS[1:2]) == WorkflowResult(right=True, answer="Answer: 4")
        penniless = open_engine(RolloutFlags(max_requests=0), config, tmp_path / "poor")
        poor = command.WorkflowRunner(problems, tmp_path / "poor", penniless, loop)
        with pytest.raises(SpendingLimitReached, match="0 of 0 requests are made"):
            poor("one", STEPS)


def test_workflows_are_carried_out_at_the_same_time_and_each_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problems = {one.id: one for one in load_tasks(suite(tmp_path, task("one"), task("two"))).tasks}
    together = threading.Barrier(2)

    def waits(asked: Asked) -> Answer:
        if "You are the Worker now" in asked.text and not any(
            one["role"] == "tool" for one in asked.body["messages"]
        ):
            together.wait(60)
        return fixes(asked)

    with running() as server, asyncio.Runner() as loop:
        configured(Path(os.environ["HOME"]), server, ("worker", "strong"))
        monkeypatch.setenv("LOOPBACK_KEY", KEY)
        config = configuration(tmp_path, os.environ).config
        engine = open_engine(RolloutFlags(), config, tmp_path / "out")
        trying = command.WorkflowRunner(problems, tmp_path / "out", engine, loop, at_once=2)
        server.react("worker", waits)
        trying.ahead([("one", STEPS[1:]), ("two", STEPS[1:])])
        made = len(server.asked("worker"))
        assert [trying(name, STEPS[1:]).right for name in ("one", "two")] == [True, True]
        paid = results_folder.read_rows(tmp_path / "out" / "paid.jsonl", PaidCall)
        assert len(server.asked("worker")) == made == len(paid)


@pytest.mark.filterwarnings("ignore")
def test_two_trainings_do_not_write_to_one_folder(tmp_path: Path) -> None:
    suites, out = [str(suite(tmp_path, task("one")))], tmp_path / "out"
    with locked_folder(out):
        with pytest.raises(SessionBusy, match="another training writes to"):
            command.train_conductor(
                ConductorFlags(
                    suites=suites, model="absent", preset="small", form_only=True, out=out
                )
            )
        with pytest.raises(SessionBusy, match="another training writes to"):
            evolve(EvolveFlags(suites=suites, out=out))


@pytest.mark.filterwarnings("ignore")
def test_the_command_trains_logs_and_says_where_the_model_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    file = suite(tmp_path, task("one"), task("two"))
    given = ConductorFlags(
        suites=[str(file)],
        model=str(tiny_model(tmp_path / "model")),
        preset="small",
        steps=1,
        replies=2,
        tokens=4,
        form_only=True,
        out=tmp_path / "out",
    )
    assert command.train_conductor(given) == 0
    shown = capsys.readouterr()
    assert shown.out.split() == [str(tmp_path / "out" / "model")]
    said = [re.sub(r"^\d\d:\d\d:\d\d ", "", line) for line in shown.err.splitlines()]
    assert said[0] == f"reading the planner {tmp_path / 'model'}"
    assert re.fullmatch(r"step 1 of 1: reward 0\.00, readable 0%, right 0%; \d+ s", said[1])
    assert len(said) == 2  # no bars and warnings of the libraries
    assert [
        line.replies
        for line in results_folder.read_rows(tmp_path / "out" / grpo.GRPO_LOG, grpo.GrpoStep)
    ] == [2]


@pytest.mark.filterwarnings("ignore")
def test_a_folder_goes_on_with_more_steps_and_with_nothing_else_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    suites = [str(suite(tmp_path, task("one"), task("two")))]
    model, out = str(tiny_model(tmp_path / "model")), tmp_path / "out"
    given = ConductorFlags(
        suites=suites,
        model=model,
        preset="small",
        steps=1,
        replies=2,
        tokens=4,
        form_only=True,
        out=out,
    )
    assert command.train_conductor(given) == 0
    changed: list[tuple[dict[str, object], str]] = [
        (
            {"suites": [str(suite(tmp_path, task("one"), name="fewer"))]},
            'tasks: two: "[0-9a-f]+", now it is null',
        ),
        ({"model": str(tiny_model(tmp_path / "other"))}, 'model: ".*model", now it is ".*other"'),
        ({"agents": 2}, "agents: 7, now it is 2"),
        ({"max_steps": 2}, "max_steps: 5, now it is 2"),
        ({"form_only": False}, "form_only: true, now it is false"),
        ({"form_only": False, "recursion": True}, "form_only: true, now it is false"),
        ({"rate": 0.001}, "rate: 0.0005, now it is 0.001"),
    ]
    for words, message in changed:
        with pytest.raises(UsageError, match=f"was started with another {message}"):
            command.train_conductor(replace(given, **words))  # type: ignore[arg-type]
    assert command.train_conductor(replace(given, steps=2)) == 0
    assert [line.step for line in results_folder.read_rows(out / grpo.GRPO_LOG, grpo.GrpoStep)] == [
        1,
        2,
    ]


@pytest.mark.filterwarnings("ignore")
def test_a_task_that_judges_nothing_is_refused_and_another_pool_cannot_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOOPBACK_KEY", KEY)
    done = task("done", repo={"calc.txt": "fixed\n", "check.sh": "echo 1 passed\n"})
    model = str(tiny_model(tmp_path / "model"))
    flags = ConductorFlags(
        model=model, preset="small", steps=1, replies=2, tokens=4, out=tmp_path / "out", suites=[]
    )
    with running() as server:
        configured(Path(os.environ["HOME"]), server, ("worker", "strong"))
        with pytest.raises(UsageError, match="no task is left that could judge anything"):
            command.train_conductor(
                replace(flags, suites=[str(suite(tmp_path, done, name="none"))])
            )
        assert "done: refused: its tests pass before any work" in capsys.readouterr().err
        given = replace(flags, suites=[str(suite(tmp_path, task("one"), done))])
        assert command.train_conductor(given) == 0
        configured(Path(os.environ["HOME"]), server, ("idler", "cheap"), ("worker", "strong"))
        with pytest.raises(UsageError, match="was started with another pool"):
            command.train_conductor(given)


@pytest.mark.filterwarnings("ignore")
def test_a_recursion_trains_each_second_round_behind_its_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One task and one agent: all first prompts are the same, so a step that reads more tokens read
    a second round.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOOPBACK_KEY", KEY)
    out = tmp_path / "out"
    reply = 'model_id = [0]\nsubtasks = ["Fix it."]\naccess_list = [[]]'
    asked = PlannerExample(problem="one", prompt="", models=("worker",))
    results_folder.append_row(
        out / command.FIRST_ROUNDS,
        FirstRound(example=asked, reply=reply, right=True, answer="It is fixed."),
    )
    flags = ConductorFlags(
        suites=[str(suite(tmp_path, task("one")))],
        model=str(tiny_model(tmp_path / "model")),
        preset="small",
        steps=3,
        replies=2,
        tokens=4,
        recursion=True,
        out=out,
    )
    with running() as server:
        configured(Path(os.environ["HOME"]), server, ("worker", "strong"))
        assert command.train_conductor(flags) == 0
    state = json.loads((out / "checkpoint-3" / "trainer_state.json").read_text())
    read = [line["num_tokens"] for line in state["log_history"] if "num_tokens" in line]
    first, second, third = (after - before for before, after in pairwise([0, *read]))
    assert second > first + 100
    assert third <= first + 8


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"preset": "huge"}, "there is no preset 'huge'"),
        ({"recursion": True, "form_only": True}, "--recursion needs workflows to be carried out"),
        ({"suites": ["absent"]}, "absent: there is no such file or folder"),
        ({"model": "./absent", "form_only": True}, "there is no folder ./absent"),
    ],
)
def test_words_that_mean_nothing_are_refused(
    tmp_path: Path, words: dict[str, object], message: str
) -> None:
    flags = {"suites": [str(suite(tmp_path, task("one")))], "preset": "small"} | words
    with pytest.raises(UsageError, match=message):
        command.train_conductor(ConductorFlags(**flags))  # type: ignore[arg-type]
