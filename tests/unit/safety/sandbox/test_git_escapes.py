"""Attempts to have the user's own next git command run something: made for real, in every kind of
sandbox.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from fugu_cli.safety.sandbox.command_sandbox import SandboxSettings
from fugu_cli.safety.sandbox.git_access import RACY, GitFolders
from fugu_cli.safety.sandbox.restoration import GitGuard
from tests.unit.safety.sandbox.attempts import as_the_user, attempts, furnish, ran
from tests.unit.safety.sandbox.conftest import Make
from tests.unit.safety.sandbox.worlds import World

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="there is a sandbox for Linux only")


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True)


def test_no_git_command_of_the_users_runs_what_a_command_left_behind(world: World) -> None:
    assert [(attempt.lines, did) for attempt, did in ran(world, attempts("runs")) if did] == []
    config = (world.root / ".git" / "config").read_text()
    assert "hooksPath = deep/hooks" in config and "fsmonitor" not in config
    assert (world.root / "deep" / "hooks" / "pre-commit").read_text() == "#!/bin/sh\ntrue\n"


def test_what_git_needs_goes_on_working_in_repositories_inside_the_repository(make: Make) -> None:
    world = make(SandboxSettings(environment=()))
    furnish(world)
    for line in (
        "set -e; git init -q made; cd made; git commit -q --allow-empty -m a; git checkout -q -b b; "
        "git remote add o https://example.org/x.git; git config user.name B",
        "git -C nested checkout -q -b c",
        "git worktree add -q tree",
        "git -C vendor/lib checkout -q -b d && git -C vendor/lib commit -q --allow-empty -m e",
        "cd kept && git checkout -q -b e && git commit -q --allow-empty -m f",
    ):
        ended = world.run(line)
        assert (ended.code, ended.output) == (0, ""), line
    settings = (world.root / "made" / ".git" / "config").read_text()
    assert "https://example.org/x.git" in settings and "name = B" in settings
    git(world.root / "nested", "log", "c")
    git(world.root / "tree", "status")
    git(world.root / "vendor" / "lib", "log", "d")
    git(world.root / "kept", "log", "e")


def test_a_repository_that_a_command_makes_runs_nothing(make: Make) -> None:
    world = make(SandboxSettings())
    subprocess.run(["rm", "-rf", ".git"], cwd=world.root, check=True)
    mark = world.outside / "ran"
    world.run(
        f"git init -q .; git config core.fsmonitor 'touch {mark}'; git config user.name B; git "
        f"add tracked.txt"
    )
    assert "fsmonitor" not in (world.root / ".git" / "config").read_text()
    as_the_user(world)
    assert not mark.exists()
    assert "name = B" in (world.root / ".git" / "config").read_text()


def test_a_repository_that_a_large_tree_hid_is_not_taken_for_one_that_the_command_made(
    tmp_path: Path,
) -> None:
    nested = tmp_path / "projects" / "nested"
    for folder in (tmp_path / "cache", nested):
        folder.mkdir(parents=True)
    git(nested, "init", "-q")
    git(nested, "config", "alias.st", "status")
    hooks = nested / ".git" / "hooks"
    (hooks / "pre-commit").write_text("#!/bin/sh\ntrue\n")
    time.sleep(2 * RACY / 1e9)
    guard = GitGuard(GitFolders(tmp_path, most=3))
    (tmp_path / "cache").rmdir()
    (hooks / "pre-push").write_text("#!/bin/sh\ntrue\n")
    assert guard.restore() == (
        f"{hooks / 'pre-push'} was changed and put back: commands may not write it",
    )
    assert "st = status" in (nested / ".git" / "config").read_text()
    assert (hooks / "pre-commit").read_text() == "#!/bin/sh\ntrue\n" and not (
        hooks / "pre-push"
    ).exists()
