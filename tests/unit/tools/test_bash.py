"""bash: exit codes, output, time limits, and no process left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from fugu_cli.messages import Call
from fugu_cli.safety.sandbox.command_limits import GIGABYTE, CommandLimits
from fugu_cli.tools.result import ToolResult
from fugu_cli.tools.shell_commands import CommandContext, run_command
from tests.unit.conftest import TOOLS, Build, use

MINE = "TEST_OF_BASH"
LINUX = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")


@pytest.fixture(autouse=True)
def mine(monkeypatch: pytest.MonkeyPatch) -> str:
    """A variable that only this test's commands inherit."""
    monkeypatch.setenv(MINE, uuid.uuid4().hex)
    return MINE


def marked() -> list[str]:
    """Command lines of all living processes this test has started."""
    needle = f"{MINE}={os.environ[MINE]}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and needle in (entry / "environ").read_bytes():
                state = (entry / "stat").read_bytes().rpartition(b")")[2].split()[0]
                if state not in {b"Z", b"X"}:
                    found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
    return found


def ignore(text: str) -> None:
    pass


def test_output_and_exit_code_are_told(plain: Build) -> None:
    workspace = plain({"a.txt": "x\n"})
    assert use(workspace, "bash", command="ls; echo oops >&2") == ToolResult(
        text="a.txt\noops\n[exit code 0]"
    )
    assert use(workspace, "bash", command="exit 3") == ToolResult(
        text="(no output)\n[exit code 3]", ok=False
    )
    assert use(workspace, "bash", command="kill -9 $$") == ToolResult(
        text="(no output)\n[It was ended by signal 9.]", ok=False
    )
    assert use(workspace, "bash", command="no-such-command").ok is False
    assert (
        use(workspace, "bash", command=" \n").text
        == "The command is empty or holds a NUL character."
    )


def test_a_command_has_no_input_no_terminal_and_no_pager(plain: Build) -> None:
    script = (
        'read x || echo "no input"; test -t 1 || echo "no terminal"; echo $PAGER $CI $TERM '
        "$GIT_TERMINAL_PROMPT"
    )
    assert (
        use(plain({}), "bash", command=script).text
        == "no input\nno terminal\ncat 1 dumb 0\n[exit code 0]"
    )


def test_git_takes_no_folder_for_a_bare_repository_only_because_it_stands_there(
    plain: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "user.name")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "Me")
    monkeypatch.setenv("CDPATH", "/")
    monkeypatch.setenv("OLDPWD", "/")
    workspace = plain({})
    subprocess.run(["git", "init", "-q", "--bare", "x.git"], cwd=workspace.root, check=True)
    hidden = use(
        workspace,
        "bash",
        command="git -C x.git branch || git config user.name; echo -$CDPATH$OLDPWD",
    )
    assert hidden.text.splitlines()[-3:] == ["Me", "-", "[exit code 0]"]
    assert use(workspace, "bash", command="git --git-dir=x.git branch").ok


def test_output_is_streamed_while_it_comes(plain: Build) -> None:
    said: list[str] = []
    call = Call.make(
        "1", "bash", command="echo one; sleep 0.3; printf 'tw\\303'; sleep 0.3; printf '\\266\\n'"
    )
    asyncio.run(TOOLS.run(call, plain({}), said.append))
    assert said == ["one\n", "tw", "ö\n"]


def test_long_output_is_cut_in_the_middle(plain: Build) -> None:
    result = use(plain({}), "bash", command="seq 1 100000")
    text = result.text
    assert text.startswith("1\n2\n3\n")
    assert text.endswith("\n99999\n100000\n[exit code 0]")
    assert "lines left out" in text
    assert len(text) < 30_100
    kept = len(text.splitlines()) - 2  # the note and the exit code
    assert result.omitted_lines == 100_000 - kept


def test_lines_that_were_dropped_while_a_command_ran_are_counted_as_well(plain: Build) -> None:
    result = use(plain({}), "bash", command="seq 1 600000")
    kept = len(result.text.splitlines()) - 2
    assert result.omitted_lines == 600_000 - kept


def test_endless_output_is_bounded_and_ends_with_its_time(plain: Build) -> None:
    said: list[str] = []
    ended = asyncio.run(run_command("yes", plain({}).root, 1, said.append))
    assert ended.code is None
    assert len(ended.output) < 1_300_000
    assert sum(map(len, said)) < 300_000


GREEDY = "python3 -c 'x = []\nwhile True: x.append(bytearray(10_000_000))'"
SHARING = """python3 -c '
import os, time
shared = bytearray(100_000_000)
for _ in range(6):
    if os.fork() == 0:
        time.sleep(2)
        os._exit(0)
time.sleep(2)
print("shared")'"""


@LINUX
@pytest.mark.parametrize(
    ("command", "limits", "told"),
    [
        (GREEDY, CommandLimits(300 << 20), "0.3 GB of memory"),
        (f"{GREEDY} & wait", CommandLimits(300 << 20), "0.3 GB of memory"),
        ("for i in $(seq 200); do sleep 60 & done; wait", CommandLimits(GIGABYTE, 50), "50 proc"),
        ("yes > big.txt", CommandLimits(GIGABYTE, file_size=1 << 20), "File size limit exceeded"),
        (SHARING, CommandLimits(300 << 20), "shared"),
    ],
)
def test_what_a_command_takes_is_bounded(
    command: str, limits: CommandLimits, told: str, plain: Build
) -> None:
    root = plain({}).root
    ended = asyncio.run(run_command(command, root, 30, ignore, CommandContext(limits=limits)))
    assert told in ended.output
    assert (ended.code == 0) is (command == SHARING)
    assert marked() == []


@LINUX
@pytest.mark.parametrize(
    "command",
    [
        "sleep 1000",
        "sleep 1000 & sleep 1000 & wait",
        "setsid sleep 1000 & sleep 1000",
        "trap '' TERM; sleep 1000; sleep 1000",
        f"{sys.executable} -c 'import os, time\nif os.fork() == 0:\n    os.setsid()\n    "
        f"os.fork()\ntime.sleep(1000)'",
        "kill -STOP $$; sleep 1000",
    ],
)
def test_everything_a_late_command_started_is_ended(command: str, plain: Build) -> None:
    told = use(plain({}), "bash", command=command, timeout=1)
    assert told == ToolResult(
        text="(no output)\n[It did not end within 1 s and was ended.]", ok=False
    )
    assert marked() == []


@LINUX
def test_what_a_finished_command_leaves_running_is_ended_and_said(plain: Build) -> None:
    told = use(plain({}), "bash", command="sleep 1000 & setsid sleep 1000 & echo started")
    assert told == ToolResult(text="started\n[exit code 0] 2 processes it left running were ended.")
    assert marked() == []


@LINUX
def test_a_cancelled_command_is_ended_with_all_its_children(plain: Build) -> None:
    async def cancelled() -> int:
        started = asyncio.Event()
        call = Call.make("1", "bash", command="setsid sleep 1000 & sleep 1000 & echo up; wait")
        task = asyncio.create_task(TOOLS.run(call, plain({}), lambda text: started.set()))
        await started.wait()
        running = len(marked())
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        assert task.cancelled()
        return running

    assert asyncio.run(cancelled()) >= 2
    assert marked() == []


@LINUX
def test_a_second_cancellation_ends_a_stubborn_command_at_once(plain: Build) -> None:
    async def twice() -> None:
        started = asyncio.Event()
        call = Call.make("1", "bash", command="trap '' TERM; echo up; while true; do sleep 1; done")
        task = asyncio.create_task(TOOLS.run(call, plain({}), lambda text: started.set()))
        await started.wait()
        task.cancel()
        await asyncio.sleep(0.1)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    asyncio.run(twice())
    assert marked() == []


def test_no_file_descriptor_is_left_open(plain: Build) -> None:
    workspace = plain({})
    use(workspace, "bash", command="true")
    before = len(os.listdir("/dev/fd"))  # noqa: PTH208
    for _ in range(5):
        use(workspace, "bash", command="echo x; sleep 100 & true")
    assert len(os.listdir("/dev/fd")) == before  # noqa: PTH208
