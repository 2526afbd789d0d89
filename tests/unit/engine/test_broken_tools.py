"""A tool that breaks costs a failed call, never the session."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fugu_cli.engine import orchestrator
from fugu_cli.errors import StorageError
from fugu_cli.messages import Call, Prompt, Reply
from fugu_cli.session.events import Finished, Member, ToolRan
from fugu_cli.session.log import Log
from fugu_cli.tools.result import Say, ToolResult
from fugu_cli.tools.workspace import Workspace
from tests.reacting import Reacting, Stage, calls, repository, results, role

ALONE = Member(name="alone", provider="openai", model="m", slot="strong")
Run = Callable[[Any, Workspace, Say], Awaitable[ToolResult]]


def work_with(root: Path, call: Call, **changes: object) -> tuple[Log, Finished]:
    """A request whose one call meets a tool with these fields replaced."""

    def react(prompt: Prompt) -> Reply:
        if role(prompt) == "verifier":
            return Reply(text="ACCEPT")
        return calls(call) if not results(prompt) else Reply(text="the tool is broken")

    agents = {"alone": Reacting("alone", react)}
    stage = Stage(
        repository(root / "repo"), root / "store", (ALONE,), agents, mode="yolo", test_command=None
    )
    environment = stage.environment()
    tool = replace(environment.toolbox[call.tool], **changes)  # type: ignore[arg-type]
    environment = replace(environment, toolbox=environment.toolbox.replaced(tool))
    log = Log.memory()

    async def story() -> Finished:
        await stage.begin(log, "look", judged=False)
        return await orchestrator.run(log, stage.team(), environment)

    return log, asyncio.run(story())


async def breaks(given: Any, workspace: Workspace, say: Say) -> ToolResult:
    say("half of it\n")
    raise KeyError("offset")


def test_an_exception_in_a_tool_is_its_result_and_the_log_has_the_traceback(tmp_path: Path) -> None:
    log, end = work_with(tmp_path, Call.make("1", "read", path="calc.txt"), run=breaks)
    assert (end.reason, end.message) == ("answered", "")
    ran = next(event for event in log.events if isinstance(event, ToolRan))
    assert not ran.ok and "KeyError" in ran.output and "File " not in ran.output
    assert "in breaks" in ran.traceback


def test_files_that_a_broken_tool_wrote_are_known(tmp_path: Path) -> None:
    async def writes_and_breaks(given: Any, workspace: Workspace, say: Say) -> ToolResult:
        workspace.write(workspace.root / "half.txt", b"half")
        raise RuntimeError("no more")

    call = Call.make("1", "write", path="new.txt", content="x")
    log, _ = work_with(tmp_path, call, run=writes_and_breaks)
    ran = next(event for event in log.events if isinstance(event, ToolRan))
    assert [change.path for change in ran.changes] == ["half.txt"]


def test_a_tool_that_cannot_tell_what_it_would_do_is_run_all_the_same(tmp_path: Path) -> None:
    def plan(given: object, workspace: Workspace) -> object:
        raise TypeError("no plan")

    call = Call.make("1", "write", path="new.txt", content="x\n")
    log, _ = work_with(tmp_path, call, plan=plan)
    assert (tmp_path / "repo/new.txt").read_text() == "x\n"
    assert next(event for event in log.events if isinstance(event, ToolRan)).ok


def test_a_full_disk_is_no_fault_of_a_tool(tmp_path: Path) -> None:
    async def cannot_store(given: Any, workspace: Workspace, say: Say) -> ToolResult:
        raise StorageError("the disk is full")

    with pytest.raises(StorageError):
        work_with(tmp_path / "a", Call.make("1", "read", path="calc.txt"), run=cannot_store)
