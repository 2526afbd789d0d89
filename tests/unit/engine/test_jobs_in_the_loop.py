"""Background jobs and the todo list in a session: who is told of them, who sees which, and what
ends them.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from fugu_cli.coordinators import CoordinatorSettings
from fugu_cli.coordinators.rules import Single
from fugu_cli.engine import harness, orchestrator, undo
from fugu_cli.engine.environment import Environment
from fugu_cli.messages import Call, FromTool, Prompt, Reply, ToolSpec
from fugu_cli.session.events import Asked, JobEnded, Member, Permitted, Role, ToolRan, Undone
from fugu_cli.session.log import Log
from fugu_cli.session.open_work import TodoItem, todo_summary
from fugu_cli.session.state import SessionState
from fugu_cli.tools.shell_commands import CommandContext
from fugu_cli.wiring import build_toolbox
from tests.facts import asked, assigned, opened
from tests.reacting import React, Reacting, Stage, calls, repository, results
from tests.unit.coordinators.conductor.staging import Play, everything, lists, planning, play

NEW = Call.make("2", "write", path="new.txt", content="x\n")
SERVES = Call.make("1", "bash", command="echo up; sleep 600", background=True)
ALONE = Member(name="alone", provider="openai", model="m", slot="strong")


def offered(tmp_path: Path, member: Member, role: Role) -> tuple[ToolSpec, ...]:
    """The tools of an agent in a role; a rule names web_fetch."""
    stage = Stage(tmp_path, tmp_path / "store", (member,), {})
    environment = replace(stage.environment(), toolbox=build_toolbox(rules=("web_fetch",)))
    events = [opened(), asked("do it", judged=False), assigned(1, member.name, role)]
    return harness.offered_tools(SessionState(events), environment)


def names(specs: tuple[ToolSpec, ...]) -> set[str]:
    return {spec.name for spec in specs}


def test_web_fetch_is_there_only_where_a_rule_names_it() -> None:
    assert "web_fetch" not in build_toolbox()
    assert "web_fetch" not in build_toolbox(rules=("bash(curl *)", "*"))
    assert "web_fetch" in build_toolbox(rules=("web_fetch(docs.python.org)",))


def staged(root: Path, react: React, **more: object) -> tuple[Stage, Environment, Log]:
    agents = {"alone": Reacting("alone", react)}
    single = Single("alone", (ALONE,), CoordinatorSettings())
    stage = Stage(
        repository(root / "repo"), root / "store", (ALONE,), agents, single, mode="yolo", **more
    )  # type: ignore[arg-type]
    log = Log.memory()
    environment = stage.environment()
    environment.workspace.jobs.attach(log.state, log.append)
    return stage, environment, log


def serves(prompt: Prompt) -> Reply:
    return Reply(text="it runs") if results(prompt) else calls(SERVES)


def serves_and_writes(prompt: Prompt) -> Reply:
    verifies = "You are the Verifier now" in everything(prompt)
    return Reply(text="ACCEPT") if verifies or results(prompt) else calls(SERVES, NEW)


def test_a_job_goes_on_after_its_request_and_undoing_that_ends_it(tmp_path: Path) -> None:
    stage, environment, log = staged(tmp_path, serves_and_writes, test_command=None)

    async def story() -> None:
        await stage.begin(log, "serve it", judged=False)
        await orchestrator.run(log, stage.team(), environment)
        jobs = environment.workspace.jobs
        assert [job.name for job in jobs.running] == ["job1"]
        earlier = await jobs.start("sleep 600", environment.workspace.root, CommandContext())
        assert (tmp_path / "repo" / "new.txt").exists()
        await undo.undo_request(log, environment.workspace)
        assert [job.name for job in jobs.running] == [earlier.name]
        assert not (tmp_path / "repo" / "new.txt").exists()

    asyncio.run(story())
    ran = next(event for event in log.events if isinstance(event, ToolRan))
    assert (ran.job, ran.call.tool) == ("job1", "bash")
    ends = [event for event in log.events if isinstance(event, JobEnded | Undone)]
    assert [event.type for event in ends] == ["job_ended", "undone", "job_ended"]
    assert isinstance(ends[0], JobEnded) and (ends[0].job, ends[0].by) == ("job1", "undo")
    assert log.state.jobs["job1"].end == ends[0]


def test_an_undo_that_is_refused_ends_no_job(tmp_path: Path) -> None:
    stage, environment, log = staged(tmp_path, serves_and_writes, test_command=None)

    async def story() -> None:
        await stage.begin(log, "serve it", judged=False)
        await orchestrator.run(log, stage.team(), environment)
        (tmp_path / "repo" / "new.txt").write_text("my own\n")
        with pytest.raises(undo.UsageError, match="edits made since"):
            await undo.undo_request(log, environment.workspace)
        assert [job.name for job in environment.workspace.jobs.running] == ["job1"]

    asyncio.run(story())


def test_a_step_of_a_workflow_does_not_see_another_steps_job(tmp_path: Path) -> None:
    plan = lists((0, "Serve it.", []), (1, "Look at it.", [0]))
    asks = Call.make("1", "job_output", job="job1")
    found = play(
        tmp_path,
        planning(plan),
        {
            "a": serves,
            "b": lambda prompt: Reply(text="so it is") if results(prompt) else calls(asks),
        },
        change=lambda stage: replace(stage, mode="yolo"),
    )
    found.run()
    denied = [
        event for event in found.log.events if isinstance(event, Permitted) and not event.allowed
    ]
    assert [(event.call.tool, event.reason) for event in denied] == [
        (
            "job_output",
            "job1 was started in another step, which is not shown here. Start a job of your own "
            "where you need one.",
        )
    ]
    shown = [
        message
        for prompt in found.shown("b")
        for message in prompt.messages
        if isinstance(message, FromTool)
    ]
    assert [message.text for message in shown] == [
        "Not allowed: job1 was started in another step, which is not shown here. Start a job of "
        "your own where you need one."
    ]


def test_a_worktrees_jobs_end_before_its_work_is_looked_at(tmp_path: Path) -> None:
    writes = Call.make("2", "write", path="calc.txt", content="fixed\n")

    def react(prompt: Prompt) -> Reply:
        return Reply(text="done") if results(prompt) else calls(SERVES, writes)

    job = "Repair calc.txt."
    plan = lists((0, job, []), (1, job, []))
    found = play(
        tmp_path,
        planning(plan),
        {"a": react, "b": react},
        change=lambda stage: replace(stage, mode="yolo"),
    )
    ended = _watched(found)
    assert sorted((end.job, end.by) for end in ended) == [("job1", "session"), ("job2", "session")]


def _watched(found: Play) -> list[JobEnded]:
    """The ends of jobs up to the end of the request, of which none runs then."""
    told: list[JobEnded] = []
    environment = found.environment()
    environment.workspace.jobs.attach(SessionState(), told.append)

    async def story() -> None:
        stage = found.stage()
        await stage.begin(found.log, "fix the tests")
        await orchestrator.run(found.log, stage.team(), environment)
        assert environment.workspace.jobs.running == ()

    asyncio.run(story())
    return told


def test_the_todo_list_is_what_the_newest_call_said(tmp_path: Path) -> None:
    first = Call.make(
        "1",
        "todo",
        items=[{"text": "look", "status": "in_progress"}, {"text": "act", "status": "pending"}],
    )
    second = Call.make(
        "2",
        "todo",
        items=[{"text": "look", "status": "done"}, {"text": "act", "status": "in_progress"}],
    )
    wrong = Call.make("3", "todo", items=[{"text": "look", "status": "begun"}])

    def react(prompt: Prompt) -> Reply:
        made = len(results(prompt))
        return Reply(text="done") if made == 3 else calls((first, second, wrong)[made])

    stage, environment, log = staged(tmp_path, react, test_command=None)

    async def story() -> None:
        await stage.begin(log, "do it", judged=False)
        await orchestrator.run(log, stage.team(), environment)

    asyncio.run(story())
    assert log.state.todo == (TodoItem("look", "done"), TodoItem("act", "in_progress"))
    ran = [event for event in log.events if isinstance(event, ToolRan)]
    assert [event.output for event in ran] == [
        "The list stands: 0 of 2 done: look.",
        "The list stands: 1 of 2 done: act.",
        "todo was not run: `items.0.status`: Input should be 'pending', 'in_progress' or 'done'. "
        "It takes items.",
    ]
    assert [event.changes for event in ran] == [(), (), ()]
    log.append(Asked(text="and then?"))
    assert todo_summary(log.state.todo) == "1 of 2 done: act", "it lives as long as the session"
