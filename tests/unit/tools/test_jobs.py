"""Background jobs: what they print, how they end, and that none outlives its session."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from fugu_cli.messages import Call
from fugu_cli.session.events import JobEnded, ToolRan
from fugu_cli.session.state import SessionState
from fugu_cli.tools.bash import BASH
from fugu_cli.tools.job_tools import JOB_OUTPUT, JOB_STOP
from fugu_cli.tools.result import ToolResult
from fugu_cli.tools.shell_commands import KEPT_JOBS, MOST_JOBS
from fugu_cli.tools.toolbox import Toolbox
from fugu_cli.tools.workspace import Workspace
from tests.unit.conftest import Build
from tests.unit.tools.test_bash import LINUX, MINE, marked

BOX = Toolbox((BASH, JOB_OUTPUT, JOB_STOP))
Use = Callable[..., Awaitable[ToolResult]]


@pytest.fixture(autouse=True)
def mine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable that only this test's commands inherit."""
    monkeypatch.setenv(MINE, uuid.uuid4().hex)


def using(workspace: Workspace) -> Use:
    async def use(tool: str, **arguments: object) -> ToolResult:
        return await BOX.run(Call.make("1", tool, **arguments), workspace, lambda text: None)

    return use


def started(name: str) -> ToolResult:
    text = (
        f"Started as {name}, without a time limit. job_output says what it prints, job_stop ends "
        f"it."
    )
    return ToolResult(text=text, job=name)


def without_seconds(result: ToolResult) -> tuple[str, bool]:
    return result.text.rpartition(", ")[0], result.ok


def test_a_job_answers_at_once_and_says_what_it_printed_since_it_was_asked_last(
    plain: Build,
) -> None:
    async def story(use: Use, root: Path) -> None:
        command = "echo one; while [ ! -e go ]; do sleep 0.05; done; echo two >&2; exit 3"
        assert await use("bash", command=command, background=True) == started("job1")
        while not (said := await use("job_output", job="job1")).text.startswith("one\n"):
            assert said.text.startswith("(nothing new)\n[job1 is running, ")
            await asyncio.sleep(0.02)
        assert without_seconds(await use("job_output", job="job1")) == (
            "(nothing new)\n[job1 is running",
            True,
        )
        (root / "go").write_text("")
        ended = await use("job_output", job=" job1 ", wait=60)
        assert without_seconds(ended) == ("two\n[job1: exit code 3", True)
        assert without_seconds(await use("job_output", job="job1")) == (
            "(nothing new)\n[job1: exit code 3",
            True,
        )

    workspace = plain({})
    asyncio.run(story(using(workspace), workspace.root))


@LINUX
def test_a_stopped_job_ends_with_all_it_has_started(plain: Build) -> None:
    workspace = plain({})
    told: list[JobEnded] = []
    workspace.jobs.attach(SessionState(), told.append)

    async def story(use: Use) -> None:
        away = "(setsid nohup sleep 600 >/dev/null 2>&1 &)"
        await use(
            "bash",
            command=f"{away}; trap 'echo bye' TERM; echo up; sleep 600 & wait",
            background=True,
        )
        while (await use("job_output", job="job1")).text.startswith("(nothing"):
            await asyncio.sleep(0.02)
        while (
            len([line for line in marked() if "sleep 600" in line]) < 2
        ):  # it speaks before the second one runs
            await asyncio.sleep(0.02)
        assert without_seconds(await use("job_stop", job="job1")) == (
            "bye\n[job1: stopped by the agent",
            True,
        )
        assert marked() == []
        assert (
            without_seconds(await use("job_stop", job="job1"))[0]
            == "(nothing new)\n[job1: stopped by the agent"
        )

    asyncio.run(story(using(workspace)))
    assert [(end.job, end.by, end.code) for end in told] == [("job1", "agent", None)]


@LINUX
@pytest.mark.parametrize("way", ["closed", "left", "crashed"])
def test_no_job_outlives_its_session(plain: Build, way: str) -> None:
    workspace = plain({})
    told: list[JobEnded] = []
    workspace.jobs.attach(SessionState(), told.append)

    async def story(use: Use) -> None:
        await use("bash", command="sleep 600 & setsid sleep 600", background=True)
        await use("bash", command="true", background=True)
        await use("job_output", job="job2", wait=60)
        if way == "closed":
            await workspace.jobs.close()
            assert marked() == []
        if way == "crashed":
            raise ZeroDivisionError

    if way == "crashed":
        with pytest.raises(ZeroDivisionError):
            asyncio.run(story(using(workspace)))
    else:
        asyncio.run(story(using(workspace)))
    assert marked() == []
    assert [(end.job, end.by, end.code) for end in told] == [
        ("job2", "itself", 0),
        ("job1", "session", None),
    ]


def test_only_so_many_run_at_once(plain: Build) -> None:
    async def story(use: Use) -> None:
        for number in range(MOST_JOBS):
            assert await use("bash", command="sleep 600", background=True) == started(
                f"job{number + 1}"
            )
        names = ", ".join(f"job{number + 1}" for number in range(MOST_JOBS))
        crowded = ToolResult(
            text=(
                f"It was not started: {MOST_JOBS} jobs are running already ({names}). End one "
                f"with job_stop first."
            ),
            ok=False,
        )
        assert await use("bash", command="true", background=True) == crowded
        await use("job_stop", job="job3")
        assert await use("bash", command="sleep 600", background=True) == started(
            f"job{MOST_JOBS + 1}"
        )

    asyncio.run(story(using(plain({}))))


def test_what_a_job_prints_without_end_is_bounded(plain: Build) -> None:
    workspace = plain({})

    async def story(use: Use) -> None:
        await use("bash", command="yes 0123456789 | head -c 9000000; echo end", background=True)
        said = await use("job_output", job="job1", wait=60)
        assert said.text.startswith("0123456789\n")
        assert "end\n[job1: exit code 0, " in said.text
        assert len(said.text) < 30_200

    asyncio.run(story(using(workspace)))


def test_a_job_that_is_not_there_is_named_with_those_that_are(plain: Build) -> None:
    async def story(use: Use) -> None:
        assert await use("job_output", job="job1") == ToolResult(
            text="There is no job `job1`. None was started: bash with `background` starts one.",
            ok=False,
        )
        await use("bash", command="true", background=True)
        assert await use("job_stop", job="2") == ToolResult(
            text="There is no job `2`. There are job1.", ok=False
        )

    asyncio.run(story(using(plain({}))))


def test_a_job_of_a_session_taken_up_again_reads_ended_with_it(plain: Build) -> None:
    workspace = plain({})
    call = Call.make("1", "bash", command="serve", background=True)
    facts = [
        ToolRan(turn=1, call=call, output="", ok=True, job="job1"),
        ToolRan(turn=1, call=call, output="", ok=True, job="job2"),
        JobEnded(job="job2", command="serve", code=7),
    ]
    workspace.jobs.attach(SessionState(facts), lambda end: None)

    async def story(use: Use) -> None:
        gone = ToolResult(text="[job1: ended with the session. Its output is not kept.]")
        assert await use("job_output", job="job1") == gone
        assert await use("job_stop", job="job1") == gone
        assert await use("job_output", job="job2") == ToolResult(
            text="[job2: exit code 7. Its output is not kept.]"
        )
        assert await use("bash", command="true", background=True) == started("job3")

    asyncio.run(story(using(workspace)))


def test_the_output_of_the_newest_jobs_alone_is_kept(plain: Build) -> None:
    async def story(use: Use) -> None:
        for number in range(1, KEPT_JOBS + 2):
            await use("bash", command="echo said", background=True)
            await workspace.jobs.wait(workspace.jobs.find(f"job{number}"), 60)
        assert (await use("job_output", job="job1")).text.startswith("said\n")
        await use("bash", command="true", background=True)
        assert await use("job_output", job="job1") == ToolResult(
            text="[job1: exit code 0. Its output is not kept.]"
        )
        assert (await use("job_output", job="job2")).text.startswith("said\n")

    workspace = plain({})
    asyncio.run(story(using(workspace)))


def test_a_job_that_cannot_be_started_is_none(plain: Build) -> None:
    workspace = plain({})
    workspace.root.rmdir()

    async def story(use: Use) -> None:
        failed = await use("bash", command="true", background=True)
        assert (failed.ok, failed.job) == (False, "")
        workspace.root.mkdir()
        assert await use("bash", command="true", background=True) == started("job1")

    asyncio.run(story(using(workspace)))


def test_jobs_of_a_folder_that_goes_are_ended(plain: Build) -> None:
    workspace = plain({"tree/a.txt": "x"})
    other = workspace.apart("other")
    other.root = workspace.root / "tree"

    async def story() -> None:
        await using(other)("bash", command="sleep 600", background=True)
        await using(workspace)("bash", command="sleep 600", background=True)
        await workspace.jobs.close(workspace.root / "tree")
        assert [job.name for job in workspace.jobs.running] == ["job2"]

    asyncio.run(story())
