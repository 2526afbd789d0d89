"""Tests that passed before a request must pass when it is accepted, whatever it is about."""

import asyncio
import json
import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fugu_cli.__main__ import called
from fugu_cli.coordinators import CoordinatorSettings
from fugu_cli.engine import orchestrator
from fugu_cli.messages import Call, Prompt, Reply
from fugu_cli.session import verdicts
from fugu_cli.session.events import Finished, Member, Opened, ToolRan
from fugu_cli.session.log import Log
from fugu_cli.session.verdicts import EndLine
from tests.reacting import (
    CHECK,
    React,
    Reacting,
    Stage,
    calls,
    fails,
    repository,
    results,
    role,
    says,
)
from tests.unit.coordinators.conductor.staging import lists, planning
from tests.unit.coordinators.conductor.staging import play as planned

CHEAP = Member(name="cheap", provider="openai", model="c", slot="cheap")
STRONG = Member(name="strong", provider="openai", model="s", slot="strong")
GREEN = {"calc.txt": "fixed\n", "check.sh": CHECK}
RED = {"calc.txt": "broken\n", "check.sh": CHECK}


def writes(content: str) -> React:
    """A Worker that writes this into calc.txt; a Verifier that accepts whatever it is shown."""

    def react(prompt: Prompt) -> Reply:
        if role(prompt) == "verifier":
            return Reply(text="ACCEPT")
        tools = [result.tool for result in results(prompt)]
        if not tools:
            return calls(Call.make("1", "read", path="calc.txt"))
        write = Call.make("2", "write", path="calc.txt", content=content)
        return Reply(text="done") if "write" in tools else calls(write)

    return react


@dataclass
class Play:
    """Two agents in a small repository, and a request that is not about its tests."""

    stage: Stage
    log: Log = field(default_factory=Log.memory)

    def run(self, text: str = "rename fixed to mended") -> Finished:
        async def whole() -> Finished:
            await self.stage.begin(self.log, text, judged=False)
            return await self.again()

        return asyncio.run(whole())

    async def again(self) -> Finished:
        return await orchestrator.run(self.log, self.stage.team(), self.stage.environment())

    @property
    def roles(self) -> list[str]:
        return [turn.assigned.role for turn in self.log.state.request.turns]

    @property
    def looked_up(self) -> list[tuple[int, bool]]:
        """The turn of each look at how the tests stood before, and whether that was found out."""
        found = [event for event in self.log.events if isinstance(event, ToolRan)]
        return [(event.turn, event.ok) for event in found if event.call.tool == "tests_before"]

    @property
    def tests(self) -> list[tuple[int, bool]]:
        """The turn and the outcome of each run of the tests; turn 0 is before the first."""
        found = [event for event in self.log.events if isinstance(event, ToolRan)]
        return [(event.turn, event.ok) for event in found if event.call.tool == "run_tests"]


def play(
    tmp: Path, files: dict[str, str], cheap: React, strong: React = fails, **more: object
) -> Play:
    agents = {"cheap": Reacting("cheap", cheap), "strong": Reacting("strong", strong)}
    return Play(
        Stage(repository(tmp / "repo", files), tmp / "store", (CHEAP, STRONG), agents, **more)
    )  # type: ignore[arg-type]


def test_what_breaks_tests_that_passed_is_not_accepted_and_the_next_worker_mends_it(
    tmp_path: Path,
) -> None:
    found = play(tmp_path, GREEN, writes("mended\n"), writes("fixed and mended\n"))
    assert found.run() == Finished(
        reason="accepted",
        message="accepted by its own author cheap",
        accepted_by="author",
        judge="cheap",
    )
    assert found.roles == ["worker", "worker", "verifier"]
    assert found.tests == [(1, False), (2, True)]
    assert found.looked_up == [(1, True)]
    assert (
        found.log.state.request.turns[1].assigned.reason
        == "tests that passed before fail now: the next dearer agent"
    )


def test_while_they_fail_the_request_is_not_accepted_and_says_why(tmp_path: Path) -> None:
    found = play(
        tmp_path, GREEN, writes("mended\n"), writes("gone\n"), settings=CoordinatorSettings(turns=3)
    )
    end = found.run()
    assert end.reason == "turn_limit" and "Tests that passed before fail now." in end.message
    assert found.roles == ["worker", "worker", "worker"]


def test_tests_that_failed_before_decide_nothing(tmp_path: Path) -> None:
    found = play(tmp_path, RED, writes("mended\n"), says("ACCEPT"))
    assert found.run().reason == "accepted"
    assert (found.roles, found.tests, found.looked_up) == (
        ["worker", "verifier"],
        [(1, False)],
        [(1, True)],
    )
    assert verdicts.end_line(found.log.state.request) == EndLine(
        ("verified by strong", "1 test still fails (it failed before)"), "warn"
    )


def test_the_verifier_is_shown_how_failing_tests_stood_before(tmp_path: Path) -> None:
    found = play(tmp_path, RED, writes("mended\n"), says("ACCEPT"))
    found.run()
    strong = found.stage.agents["strong"]
    assert isinstance(strong, Reacting)
    told = "".join(message.model_dump_json() for message in strong.shown[-1].messages)
    assert "Before the request 1 failed." in told


def test_the_verifier_is_told_that_passing_tests_were_not_run_before(tmp_path: Path) -> None:
    found = play(tmp_path, GREEN, writes("fixed and mended\n"), says("ACCEPT"))
    found.run()
    assert found.tests == [(1, True)], "they would have been run before the change"
    strong = found.stage.agents["strong"]
    assert isinstance(strong, Reacting)
    told = "".join(message.model_dump_json() for message in strong.shown[-1].messages)
    assert "They were not run before the first change: which of them failed then" in told


@pytest.mark.parametrize("text", ["what is it?", "is it fixed?"])
def test_a_question_runs_no_tests(tmp_path: Path, text: str) -> None:
    found = play(tmp_path, GREEN, says("It is."))
    assert (found.run(text), found.tests) == (Finished(reason="answered"), [])


def test_a_request_that_is_opened_again_looks_nothing_up_twice(tmp_path: Path) -> None:
    found = play(
        tmp_path, GREEN, writes("mended\n"), writes("gone\n"), settings=CoordinatorSettings(turns=1)
    )
    assert found.run().reason == "turn_limit"
    found.log.append(Opened(version="1", repo=str(found.stage.root), pool=found.stage.members))
    assert asyncio.run(found.again()).reason == "turn_limit"
    assert (found.tests, found.looked_up) == ([(1, False), (2, False)], [(1, True)])


def test_a_workflow_does_not_end_as_accepted_either(tmp_path: Path) -> None:
    repository(tmp_path / "repo", GREEN)
    plan = planning(lists((0, "Write.", []), (1, "Judge it. ACCEPT or REVISE.", ["all"])))
    found = planned(tmp_path, plan, {"a": writes("mended\n"), "b": says("ACCEPT")})
    end = found.run("rename fixed to mended")
    assert end.reason == "unaccepted" and "Tests that passed before fail now." in end.message


BREAKS = (
    '{ tool = "read", arguments = { path = "calc.txt" } }',
    '{ tool = "write", arguments = { path = "calc.txt", content = "mended\\n" } }',
)


def project(*steps: str) -> None:
    """A repository whose tests pass, with a test command that is found; and a script beside it."""
    Path("script.toml").write_text("".join(f"[[step]]\n{step}\n" for step in steps))
    os.chdir(repository(Path("repo"), {**GREEN, "Makefile": "test:\n\t@sh check.sh\n"}))


def test_fugu_run_ends_with_3_where_tests_that_passed_fail(
    capsys: pytest.CaptureFixture[str],
) -> None:
    project(
        *(f"calls = [{call}]" for call in BREAKS), 'text = "Renamed."', *['text = "ACCEPT"'] * 3
    )
    words = [
        "run",
        "--script",
        "../script.toml",
        "--max-turns",
        "2",
        "--output-format",
        "json",
        "rename fixed to mended",
    ]
    assert called(words) == 3
    final = json.loads(capsys.readouterr().out)
    assert "Tests that passed before fail now." in final["fugu"]["message"]
    assert final["fugu"]["tests"] == {
        "before": {"ok": True, "failed": 0},
        "after": {"ok": False, "passed": 0, "failed": 1, "skipped": 0},
        "fixed": [],
        "broken": [],
        "removed": [],
        "not_run": [],
    }
    assert final["fugu"]["end"] == "stopped: turn limit · tests fail that passed before"
    assert called(["trace", "latest"]) == 0
    assert "Tests that passed before fail now" in capsys.readouterr().out


@pytest.mark.parametrize("more", [["--permission-mode", "plan"], ["--deny", "run_tests"]])
def test_where_nothing_may_run_no_tests_do(
    more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    project('text = "I would rename it."')
    assert called(["run", "--script", "../script.toml", *more, "rename fixed to mended"]) == 0
    assert "✓ tests" not in capsys.readouterr().err
    done = subprocess.run(["git", "status", "--porcelain"], capture_output=True, check=True)
    assert done.stdout == b""
