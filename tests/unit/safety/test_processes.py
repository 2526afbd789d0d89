"""A child process ended: its exit code is taken, however often the one who ends it is cancelled."""

import asyncio
import contextlib
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from fugu_cli.safety import process_cleanup
from fugu_cli.system.processes import reap, wait_for_exit
from fugu_cli.tools.shell_commands import CommandContext, start_command


async def sleeper() -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec("sleep", "600")


def test_a_living_process_is_ended_and_its_code_returned() -> None:
    async def go() -> None:
        assert await reap(await sleeper()) == -signal.SIGKILL

    asyncio.run(go())


def test_a_process_that_has_ended_keeps_its_code() -> None:
    async def go() -> None:
        process = await asyncio.create_subprocess_exec("sh", "-c", "exit 7")
        await process.wait()
        assert await reap(process) == 7

    asyncio.run(go())


def test_its_pipe_is_closed_although_a_child_that_left_its_group_holds_it() -> None:
    async def go() -> None:
        script = "setsid sh -c 'echo $$; while :; do echo y; done' & exec sleep 600"
        process = await asyncio.create_subprocess_shell(script, stdout=asyncio.subprocess.PIPE)
        assert process.stdout is not None
        child = int(await process.stdout.readline())
        try:
            await asyncio.sleep(0.2)  # more comes than is read: the pipe is paused
            assert await reap(process) == -signal.SIGKILL
            await asyncio.wait_for(process.stdout.read(), 10)  # the end of the pipe
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)

    asyncio.run(go())


def test_the_code_of_one_that_has_just_ended_is_not_lost(caplog: pytest.LogCaptureFixture) -> None:
    """asyncio's own kill takes the code away from the watcher, which then reports 255 and says so
    on the terminal.
    """

    async def go() -> None:
        watcher = (
            asyncio.PidfdChildWatcher()
        )  # the usual one from Python 3.12 on: it waits in the loop
        watcher.attach_loop(asyncio.get_running_loop())
        asyncio.set_child_watcher(watcher)
        process = await asyncio.create_subprocess_exec("sh", "-c", "exit 7")
        time.sleep(0.3)  # nobody in the loop has heard of the end
        assert await reap(process) == 7

    if sys.version_info >= (3, 12) or not hasattr(os, "pidfd_open"):
        pytest.skip("the watcher cannot be chosen here")
    before = asyncio.get_child_watcher()
    try:
        asyncio.run(go())
    finally:
        asyncio.set_child_watcher(before)
    assert "returncode 255" not in caplog.text


def test_cancelled_again_and_again_it_takes_the_code_first() -> None:
    async def go() -> None:
        process = await sleeper()
        task = asyncio.create_task(reap(process))
        for _ in range(3):
            await asyncio.sleep(0)
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert process.returncode == -signal.SIGKILL

    asyncio.run(go())


def test_a_process_that_does_not_go_can_be_left(monkeypatch: pytest.MonkeyPatch) -> None:
    async def go() -> None:
        process = await sleeper()
        task = asyncio.create_task(wait_for_exit(process))
        await asyncio.sleep(0.01)
        monkeypatch.setattr("fugu_cli.system.processes.PATIENCE", 0.0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert process.returncode is None
        await reap(process)

    asyncio.run(go())


def test_a_command_that_is_cancelled_while_it_is_ended_is_over_before_its_loop_is(
    tmp_path: Path,
) -> None:
    stubborn = "trap '' TERM; echo ready; while :; do sleep 0.1; done"

    async def go() -> None:
        ready = asyncio.Event()
        codes: list[int | None] = []

        async def live() -> None:
            try:
                async with start_command(
                    stubborn, tmp_path, lambda said: ready.set(), CommandContext()
                ) as now:
                    await now.process.wait()
            finally:
                codes.append(now.process.returncode)

        task = asyncio.create_task(live())
        await ready.wait()
        task.cancel()
        await asyncio.sleep(0.1)  # it asks politely, and waits
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert codes != [None]

    asyncio.run(go())


def test_one_that_is_cancelled_again_while_it_starts_is_over_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[asyncio.subprocess.Process] = []
    start = asyncio.create_subprocess_exec

    async def slow(*words: str, **options: object) -> asyncio.subprocess.Process:
        process = await start(*words, **options)  # type: ignore[arg-type]
        made.append(process)
        await asyncio.sleep(0.2)
        return process

    async def go() -> None:
        task = asyncio.create_task(
            process_cleanup.start_process(
                ["sleep", "600"],
                tmp_path,
                dict(os.environ),
                process_cleanup.StandardStreams(-3, -3),
                None,
            )
        )
        while not made:
            await asyncio.sleep(0.01)
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert made[0].returncode is not None

    monkeypatch.setattr(asyncio, "create_subprocess_exec", slow)
    asyncio.run(go())
