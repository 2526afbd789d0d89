"""The user ends a test run that fugu makes, and the request goes on without it."""

import asyncio
from pathlib import Path

from fugu_cli.engine import orchestrator
from fugu_cli.messages import Call, Prompt, Reply
from fugu_cli.session import verdicts
from fugu_cli.session.events import Finished, Member, ToolRan
from fugu_cli.session.live_events import OutputStreamed
from fugu_cli.session.log import Log
from fugu_cli.session.verdicts import EndLine
from tests.reacting import React, Reacting, Stage, calls, repository, results, role

MEMBERS = (
    Member(name="cheap", provider="openai", model="c", slot="cheap"),
    Member(name="strong", provider="openai", model="s", slot="strong"),
)
FILES = {"calc.txt": "one\n", "check.sh": "echo started; sleep 60; exit 1\n"}


def works() -> React:
    def react(prompt: Prompt) -> Reply:
        if role(prompt) == "verifier":
            return Reply(text="ACCEPT")
        steps = (
            Call.make("1", "read", path="calc.txt"),
            Call.make("2", "write", path="calc.txt", content="two\n"),
        )
        done = len(results(prompt))
        return calls(steps[done]) if done < len(steps) else Reply(text="done")

    return react


def test_a_run_that_is_ended_says_nothing_and_is_not_made_again(tmp_path: Path) -> None:
    agents = {member.name: Reacting(member.name, works()) for member in MEMBERS}
    stage = Stage(repository(tmp_path / "repo", FILES), tmp_path / "store", MEMBERS, agents)
    log, environment = Log.memory(), stage.environment()

    async def impatient() -> None:
        async for item in log.follow():
            if isinstance(item, OutputStreamed) and "started" in item.text:
                assert environment.test_canceller.cancel()
                return

    async def whole() -> Finished:
        await stage.begin(log, "change it", judged=False)
        watching = asyncio.create_task(impatient())
        end = await orchestrator.run(log, stage.team(), environment)
        await watching
        return end

    assert asyncio.run(asyncio.wait_for(whole(), 50)) == Finished(
        reason="accepted", message="verified by strong", accepted_by="verifier", judge="strong"
    )
    runs = [
        event
        for event in log.events
        if isinstance(event, ToolRan) and event.call.tool == "run_tests"
    ]
    assert [(run.ok, run.skipped) for run in runs] == [(False, True)]
    assert log.state.request.tests is None
    assert verdicts.end_line(log.state.request) == EndLine(
        ("verified by strong", "no tests ran"), "good"
    )
    shown = "".join(message.model_dump_json() for message in agents["strong"].shown[-1].messages)
    assert "The user ended the test run: no tests were run." in shown


def test_where_nothing_runs_there_is_nothing_to_end(tmp_path: Path) -> None:
    environment = Stage(
        repository(tmp_path / "repo", FILES), tmp_path / "store", MEMBERS, {}
    ).environment()
    assert not environment.test_canceller.cancel()
