"""Commands as macOS starts them, with a stand-in for `sandbox-exec`: what the trial tries is what
commands run in.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fugu_cli.safety.sandbox import mechanisms
from fugu_cli.safety.sandbox.command_sandbox import Sandbox, SandboxSettings
from fugu_cli.tools.shell_commands import CommandContext, CommandResult, run_command
from tests.unit.safety.sandbox.worlds import BWRAP

CONFINES = f"""#!{sys.executable} -IS
import os, re, sys
profile, command = sys.argv[2], sys.argv[3:]
mounts = []
for action, operations, path in re.findall(r'^\\((\\w+) ([\\w* -]+) \\(subpath "(.*)"\\)\\)', profile, re.M):
    if "file-write*" in operations.split() and os.path.exists(path):
        mounts += ["--bind" if action == "allow" else "--ro-bind", path, path]
network = [] if "(allow network* system-socket)" in profile else ["--unshare-net"]
program = {BWRAP!r}
os.execv(program, [program, "--ro-bind", "/", "/", "--dev", "/dev", *network, *mounts, "--", *command])
"""
DOES_NOT_CONFINE = '#!/bin/sh\nshift 2\nexec "$@"\n'


@pytest.fixture
def sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sandbox]:
    """The sandbox of a repository on a Mac without `sandbox-exec`."""
    (tmp_path / "repository" / ".git").mkdir(parents=True)
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(mechanisms, "SANDBOX_EXEC", str(tmp_path / "sandbox-exec"))
    mechanisms.find_mechanism.cache_clear()
    yield Sandbox(tmp_path / "repository", tmp_path / "store", SandboxSettings())
    mechanisms.find_mechanism.cache_clear()


def _install(program: str) -> None:
    path = Path(mechanisms.SANDBOX_EXEC)
    path.write_text(program)
    path.chmod(0o755)


def _run(sandbox: Sandbox, command: str) -> CommandResult:
    context = CommandContext(sandbox=sandbox)
    return asyncio.run(run_command(command, sandbox.root, 20.0, lambda text: None, context))


@pytest.mark.skipif(BWRAP is None, reason="the stand-in confines with bubblewrap")
def test_commands_run_in_the_sandbox_that_passed_the_trial(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    _install(CONFINES)
    assert sandbox.mechanism.kind == "seatbelt"
    assert sandbox.holds
    attempts = (
        f"echo x > inside; echo x > {tmp_path}/outside; echo x > .git/new; echo x > $TMPDIR/t"
    )
    result = _run(sandbox, f"{attempts}; cat $TMPDIR/t; (exit 3)")
    assert result.code == 3
    assert "\nx\n" in result.output
    assert (sandbox.root / "inside").is_file()
    assert not (tmp_path / "outside").exists()
    assert not (sandbox.root / ".git" / "new").exists()


def test_a_sandbox_exec_that_lets_everything_through_is_not_believed(sandbox: Sandbox) -> None:
    _install(DOES_NOT_CONFINE)
    assert not sandbox.holds
    assert "a command can write the git folder" in sandbox.mechanism.why
    assert "commands are not confined" in sandbox.notes()[0]
    assert _run(sandbox, "pwd").output == f"{sandbox.root}\n"


@pytest.mark.parametrize("platform", ["darwin", "win32", "freebsd14"])
def test_a_platform_that_confines_nothing_holds_nothing(
    sandbox: Sandbox, platform: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    assert not sandbox.holds
    assert sandbox.mechanism.kind == "none"
    assert _run(sandbox, "pwd").output == f"{sandbox.root}\n"
