"""A disk that is full at any write, and a clock that jumps: the log is whole, nothing is lost,
nothing runs twice.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fugu_cli.engine import orchestrator
from fugu_cli.errors import StorageError
from fugu_cli.session import log as logs
from fugu_cli.session.events import Asked, Permitted
from fugu_cli.session.log import Log
from fugu_cli.tools.workspace import recall_reads
from fugu_cli.ui import trace
from tests.acceptance.test_crash import appends, stage_of
from tests.reacting import Stage, repository

LIMITS = (1, 150, 400, 1100, 2600, 5800)


async def whole(stage: Stage, path: Path) -> str:
    """A session from its beginning or from where it is to its end; how it ended."""
    log = Log.open(path) if path.exists() else Log.create(path)
    try:
        if not any(isinstance(event, Asked) for event in log.events):
            await stage.begin(log)
        environment = stage.environment()
        recall_reads(environment.workspace, log.records)
        return (await orchestrator.run(log, stage.team(), environment)).reason
    finally:
        log.close()


def limited(stage: Stage, path: Path, most: int) -> int:
    """The same in a process that may write no file larger than `most` bytes: 0, or 2 for a failure
    of the world.
    """
    child = os.fork()
    if child == 0:
        code = 70
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
            asyncio.run(whole(stage, path))
            code = 0
        except StorageError:
            code = 2
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.skipif(sys.platform != "linux", reason="limits of file sizes as Linux has them")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_disk_that_is_full_at_any_write_loses_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    codes, faults = [], []
    for most in LIMITS:
        world = tmp_path / str(most)
        stage = stage_of("native", world)
        repository(stage.root)
        (world / "counter").touch()
        path = world / "s.jsonl"
        codes.append(limited(stage, path, most))
        kept = path.read_bytes() if path.exists() else b""
        assert not path.exists() or logs.examine(path).fault is None
        end = asyncio.run(whole(stage_of("native", world), path))
        faults += [f"at {most} bytes: {fault}" for fault in after(world, path, kept, end)]
    assert faults == []
    assert set(codes) == {0, 2} or codes == [2] * len(LIMITS), codes


def after(world: Path, path: Path, kept: bytes, end: str) -> Iterator[str]:
    """What is not as it should be once there was room again, in words."""
    data = path.read_bytes()
    events = [record.event for record in logs.read(path)]
    if end != "accepted" or (world / "repo" / "calc.txt").read_text() != "fixed\n":
        yield f"it ends as {end}"
    if not data.startswith(kept[: kept.rfind(b"\n") + 1]):
        yield "the log does not begin as it was"
    calls = [event.call for event in events if isinstance(event, Permitted) and event.allowed]
    if len({call.id for call in calls}) != len(calls):
        yield "a call was made twice"
    if (world / "counter").read_text().count("ran") > sum(map(appends, calls)):
        yield "the command ran more often than it was started"


@pytest.mark.parametrize("jump", [-86_400.0, 86_400.0 * 365, 0.0])
def test_a_clock_that_jumps_changes_nothing_but_the_times(tmp_path: Path, jump: float) -> None:
    stage = stage_of("native", tmp_path)
    repository(stage.root)
    (tmp_path / "counter").touch()
    times = iter(1e9 + (jump if number % 3 else -jump) + number for number in range(10_000))
    log = Log(None, [], lambda: next(times))

    async def play() -> str:
        await stage.begin(log)
        return (await orchestrator.run(log, stage.team(), stage.environment())).reason

    assert asyncio.run(play()) == "accepted"
    assert [record.seq for record in log.records] == list(range(len(log.records)))
    assert trace.trace_text(log.records, "session").count("accepted by") >= 1
