"""Attempts to have the user's own next git command run something: made for real, in every kind of sandbox."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fugu_cli.sandbox.box import Rules
from fugu_cli.sandbox.gitfolders import RACY, GitFolders
from fugu_cli.sandbox.gitguard import GitGuard
from tests.sandbox.conftest import Make, World

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="there is a sandbox for Linux only")

ATTEMPTS = r"""
cp -r .git evil; git config -f evil/config core.fsmonitor "$E"; echo ../evil > .git/commondir
cp -r .git .g2; printf '[core]\nfsmonitor = "%s"\n' "$E" >> .g2/config; ln -s ../.g2 .git/commondir
git init -q sub; git -C sub config core.fsmonitor "$E"; git -C sub commit -q --allow-empty -m x; git add -f sub
mkdir sub; cp -r .git sub/gd; git config -f sub/gd/config core.fsmonitor "$E"; echo 'gitdir: gd' > sub/.git; git add sub
cp -r .git odd; git config -f odd/config core.fsmonitor "$E"; mkdir sub; ln -s ../odd sub/.git
rm vendor/lib/.git; cp -r .git/modules/lib vendor/lib/.git; git config -f vendor/lib/.git/config core.fsmonitor "$E"
mv .git/modules .git/m; cp -r .git/m .git/modules; git config -f .git/modules/lib/config core.fsmonitor "$E"
mv .git/modules/lib .git/l; cp -r .git/l .git/modules/lib; printf "#!/bin/sh\n$E" > .git/modules/lib/hooks/pre-commit
echo ../../../evil > .git/modules/lib/commondir; cp -r .git/modules/lib evil; git config -f evil/config core.fsmonitor "$E"
git config -f .git/config.worktree core.fsmonitor "$E"; git config -f .git/modules/lib/config.worktree core.fsmonitor "$E"
mv deep deep2; mkdir -p deep/hooks; printf "#!/bin/sh\n$E\n" > deep/hooks/pre-commit; chmod +x deep/hooks/*
mv deep/hooks deep/h; mkdir deep/hooks; printf "#!/bin/sh\n$E\n" > deep/hooks/pre-commit; chmod +x deep/hooks/*
git config -f included core.fsmonitor "$E"; git config -f later core.fsmonitor "$E"
git -C nested config core.fsmonitor "$E"; git -C nested config core.pager "$E"
printf "#!/bin/sh\n$E\n" > nested/.git/hooks/pre-commit; chmod +x nested/.git/hooks/pre-commit
rm -rf nested/.git/hooks; mkdir evil; printf "#!/bin/sh\n$E\n" > evil/pre-commit; chmod +x evil/*; ln -s ../../evil nested/.git/hooks
mv nested moved; cp -r moved nested; git -C nested config core.fsmonitor "$E"; git -C moved config core.fsmonitor "$E"
mkdir -p refs/heads; printf "#!/bin/sh\n$E\n" > refs/heads/main; chmod +x refs/heads/main; git -C nested config core.fsmonitor refs/heads/main
git init -q --bare sub; git -C sub config core.bare false; git -C sub config core.worktree ..; git -C sub config core.fsmonitor "$E"
git worktree add -q tree; mv .git/worktrees/tree w; mkdir evil; cp -r .git/. evil; git config -f evil/config core.fsmonitor "$E"; mkdir -p .git/worktrees/tree; cp -r w/. .git/worktrees/tree; echo ../../../evil > .git/worktrees/tree/commondir
"""  # noqa: E501


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True)


def furnish(world: World, beside: Path) -> None:
    """A submodule, a nested repository, hooks of the repository's own in a folder, and a further configuration."""
    git(beside, "init", "-q", "-b", "main", "library")
    git(beside / "library", "commit", "-q", "--allow-empty", "-m", "start")
    source = str(beside / "library")
    git(
        world.root,
        "-c",
        "protocol.file.allow=always",
        "submodule",
        "--quiet",
        "add",
        "--name",
        "lib",
        source,
        "vendor/lib",
    )
    git(world.root, "init", "-q", "-b", "main", "nested")
    git(world.root / "nested", "commit", "-q", "--allow-empty", "-m", "start")
    hooks = world.root / "deep" / "hooks"
    hooks.mkdir(parents=True)
    (hooks / "pre-commit").write_text("#!/bin/sh\ntrue\n")
    (hooks / "pre-commit").chmod(0o755)
    (world.root / "included").write_text("[user]\n\tname = A\n")
    for key, value in {"core.hooksPath": "deep/hooks", "extensions.worktreeConfig": "true"}.items():
        git(world.root, "config", key, value)
    git(world.root, "config", "--add", "include.path", "../included")
    git(world.root, "config", "--add", "include.path", "../later")


def as_the_user(world: World) -> None:
    """What somebody does next in the repository and in the folders below it."""
    for folder in (world.root, *world.root.iterdir(), world.root / "vendor" / "lib"):
        for words in (["status"], ["commit", "-q", "--allow-empty", "-m", "x"]) if folder.is_dir() else ():
            subprocess.run(["git", *words], cwd=folder, check=False, capture_output=True)


def clean(world: World) -> None:
    """Nothing of an attempt is there for the next one."""
    for name in ("evil", "odd", "sub", ".g2", "w", "moved", "deep2", "later", "refs", "tree"):
        subprocess.run(["rm", "-rf", name], cwd=world.root, check=True)
    for words in (["worktree", "prune"], ["branch", "-D", "tree"], ["rm", "-q", "--cached", "sub"]):
        subprocess.run(["git", *words], cwd=world.root, check=False, capture_output=True)


def test_no_git_command_of_the_users_runs_what_a_command_left_behind(world: World, tmp_path: Path) -> None:
    furnish(world, tmp_path)
    mark = world.outside / "ran"
    escaped = []
    for line in ATTEMPTS.strip().splitlines():
        world.run(f"E='touch {mark};false'\n{line}")
        as_the_user(world)
        if mark.exists():
            escaped.append(line)
            mark.unlink()
        clean(world)
    assert escaped == []
    config = (world.root / ".git" / "config").read_text()
    assert "hooksPath = deep/hooks" in config and "fsmonitor" not in config
    assert (world.root / "deep" / "hooks" / "pre-commit").read_text() == "#!/bin/sh\ntrue\n"


def test_what_git_needs_goes_on_working_in_repositories_inside_the_repository(make: Make, tmp_path: Path) -> None:
    world = make(Rules(environment=()))
    furnish(world, tmp_path)
    ended = world.run(
        "set -e; git init -q made; cd made; git commit -q --allow-empty -m a; git checkout -q -b b; "
        "git remote add o https://example.org/x.git; git config user.name B; cd ../nested; git checkout -q -b c; "
        "git config branch.c.merge refs/heads/main; git config branch.c.remote .; cd ..; git worktree add -q tree; "
        "git -C vendor/lib checkout -q -b d; git -C vendor/lib commit -q --allow-empty -m e"
    )
    assert (ended.code, "put back" in ended.output) == (0, False), ended.output
    settings = (world.root / "made" / ".git" / "config").read_text()
    assert "https://example.org/x.git" in settings and "name = B" in settings
    assert "merge = refs/heads/main" in (world.root / "nested" / ".git" / "config").read_text()
    git(world.root / "tree", "status")
    git(world.root / "vendor" / "lib", "log", "d")


def test_a_repository_that_a_command_makes_runs_nothing(make: Make) -> None:
    world = make(Rules())
    subprocess.run(["rm", "-rf", ".git"], cwd=world.root, check=True)
    mark = world.outside / "ran"
    world.run(f"git init -q .; git config core.fsmonitor 'touch {mark}'; git config user.name B; git add tracked.txt")
    assert "fsmonitor" not in (world.root / ".git" / "config").read_text()
    as_the_user(world)
    assert not mark.exists()
    assert "name = B" in (world.root / ".git" / "config").read_text()


def test_a_repository_that_a_large_tree_hid_is_not_taken_for_one_that_the_command_made(tmp_path: Path) -> None:
    nested = tmp_path / "projects" / "nested"
    for folder in (tmp_path / "cache", nested):
        folder.mkdir(parents=True)
    git(nested, "init", "-q")
    git(nested, "config", "alias.st", "status")
    hooks = nested / ".git" / "hooks"
    (hooks / "pre-commit").write_text("#!/bin/sh\ntrue\n")
    time.sleep(2 * RACY / 1e9)
    guard = GitGuard(GitFolders(tmp_path, most=3), shutil.which("git"))
    (tmp_path / "cache").rmdir()
    (hooks / "pre-push").write_text("#!/bin/sh\ntrue\n")
    assert guard.restore() == (hooks / "pre-push",)
    assert "st = status" in (nested / ".git" / "config").read_text()
    assert (hooks / "pre-commit").read_text() == "#!/bin/sh\ntrue\n" and not (hooks / "pre-push").exists()
