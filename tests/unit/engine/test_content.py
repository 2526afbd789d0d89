"""What a call's output depends on: the same id only while the same call would say the same."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from fugu_cli.engine import content_key
from fugu_cli.messages import Call
from fugu_cli.tools.workspace import Workspace
from tests.reacting import repository

FILES = {"a.py": "x = 1\n", "b.py": "y = 2\n", ".gitignore": "local.db\nout/\n.venv/\n.env\n"}


def bash(command: str) -> Call:
    return Call.make("1", "bash", command=command)


def made(tmp: Path) -> Workspace:
    root = repository(tmp / "repo", FILES)
    (root / "local.db").write_text("1")
    (root / "out").mkdir()
    (root / "out" / "log").write_text("1")
    return Workspace(root, tmp / "store", test_command="true")


def state(workspace: Workspace, call: Call) -> str:
    return asyncio.run(content_key.content_key(workspace, call))


READ = Call.make("1", "read", path="a.py")
EVERYWHERE = [
    Call.make("1", "list"),
    Call.make("1", "glob", pattern="*.py"),
    Call.make("1", "grep", pattern="x"),
    Call.make("1", "run_tests"),
    bash("cat local.db"),
    bash("ls out | wc -l"),
    bash("grep -rn x ."),
    bash("find . -name '*.py'"),
]


def write(name: str) -> Callable[[Path], object]:
    return lambda root: (root / name).write_text("changed")


@pytest.mark.parametrize("call", EVERYWHERE, ids=lambda call: call.arguments)
@pytest.mark.parametrize("name", ["a.py", "new.py", "local.db", "out/log", "out/new"])
def test_what_looks_at_many_files_depends_on_all_of_them_ignored_ones_too(
    tmp_path: Path, call: Call, name: str
) -> None:
    workspace = made(tmp_path)
    before = state(workspace, call)
    assert before
    kept = (workspace.root / name).read_text() if (workspace.root / name).exists() else None
    write(name)(workspace.root)
    assert state(workspace, call) not in {before, ""}
    if kept is None:
        (workspace.root / name).unlink()
    else:
        (workspace.root / name).write_text(kept)
    assert state(workspace, call) == before, "as it was: the same again"


def test_what_reads_one_file_depends_on_that_one(tmp_path: Path) -> None:
    workspace = made(tmp_path)
    before = state(workspace, READ)
    write("b.py")(workspace.root)
    assert state(workspace, READ) == before != ""
    write("a.py")(workspace.root)
    assert state(workspace, READ) != before


REFUSED = [
    Call.make("1", "read", path="../other"),
    Call.make("1", "read", path=".env"),
    Call.make("1", "read", path=".git/config"),
    Call.make("1", "read", path="missing.py"),
    Call.make("1", "list", path=".."),
    Call.make("1", "grep", pattern="x", path="/etc"),
    Call.make("1", "edit", path="a.py", old="x", new="y"),
    Call.make("1", "mystery", path="a.py"),
    Call(id="1", tool="read", arguments="{"),
    *map(
        bash,
        [
            "cat /etc/hostname",
            "cat ../other",
            "cat .git/HEAD",
            "git status",
            "date",
            "ls -l",
            "stat a.py",
            "find . -mmin -5",
            "find . -newer a.py",
            "sort -R a.py",
            "awk 'BEGIN{print rand()}'",
            "tail -f a.py",
            "pwd",
            "nproc",
            "python a.py",
            "X=1 cat a.py",
            "cat $NAME",
            "cat $(ls)",
            "cat a.py > b.py",
            "sed -i s/x/y/ a.py",
            "rm a.py",
            "",
        ],
    ),
]


@pytest.mark.parametrize("call", REFUSED, ids=lambda call: f"{call.tool} {call.arguments}")
def test_what_cannot_be_told_is_not_remembered(tmp_path: Path, call: Call) -> None:
    workspace = made(tmp_path)
    (workspace.root / ".env").write_text("KEY=1")
    assert state(workspace, call) == ""


def test_who_may_look_into_dependencies_is_not_remembered_where_there_are_some(
    tmp_path: Path,
) -> None:
    """Their files are too many to look at for every call; that they are there is known."""
    workspace = made(tmp_path)
    plain, down = bash("cat a.py"), bash("find . -name '*.py'")
    without = state(workspace, plain)
    assert state(workspace, down)
    (workspace.root / ".venv").mkdir()
    (workspace.root / ".venv" / "x.py").write_text("1")
    there = state(workspace, plain)
    assert there not in {without, ""}
    into = [down, bash("cat .venv/x.py"), bash("cat */x.py"), bash("ls -R"), bash("rg -uu x")]
    into += [
        Call.make("1", "list", path=".venv"),
        Call.make("1", "grep", pattern="x", path=".venv"),
    ]
    assert [state(workspace, call) for call in into] == [""] * len(into)
    (workspace.root / ".venv" / "x.py").write_text("2")
    assert state(workspace, plain) == there


def test_a_repository_inside_counts(tmp_path: Path) -> None:
    workspace = made(tmp_path)
    repository(workspace.root / "inner", {"f.txt": "1"})
    before = state(workspace, bash("cat inner/f.txt"))
    (workspace.root / "inner" / "f.txt").write_text("2")
    assert state(workspace, bash("cat inner/f.txt")) not in {before, ""}


def test_outside_git_only_what_reads_one_file_is_remembered(tmp_path: Path) -> None:
    root = tmp_path / "plain"
    root.mkdir()
    (root / "a.py").write_text("x")
    workspace = Workspace(root, tmp_path / "store")
    assert [bool(state(workspace, call)) for call in (READ, *EVERYWHERE)] == [True] + [False] * len(
        EVERYWHERE
    )


def test_where_too_much_is_ignored_nothing_is_remembered(tmp_path: Path) -> None:
    workspace = made(tmp_path)
    for number in range(3100):
        os.mkfifo(workspace.root / "out" / str(number)) if number % 1000 == 0 else (
            workspace.root / "out" / str(number)
        ).touch()
    assert state(workspace, bash("cat a.py")) == ""
    assert state(workspace, READ)


def test_a_worktree_of_the_same_content_is_the_same(tmp_path: Path) -> None:
    workspace = Workspace(repository(tmp_path / "one", FILES), tmp_path / "store")
    other = tmp_path / "two"
    subprocess.run(["git", "clone", "-q", str(workspace.root), str(other)], check=True)
    assert state(workspace, bash("cat a.py")) == state(
        Workspace(other, tmp_path / "more"), bash("cat a.py")
    )


@pytest.mark.parametrize(
    ("line", "content", "down"),
    [
        ("cat a.py b.py | head -n 3", True, False),
        ("cd src && ls", True, False),
        ("grep -rn x src", True, True),
        ("rg -n x", True, False),
        ("rg --hidden x", True, True),
        ("ls -la", False, False),
        ("cat a.py; date", False, False),
        ("diff -r a b", True, True),
        ("echo `date`", False, False),
        ("case x in", False, False),
    ],
)
def test_a_line_looks_at_content_only_if_all_of_it_does(
    line: str, content: bool, down: bool
) -> None:
    assert (content_key.reads_content_only(line), content_key.searches_recursively(line)) == (
        content,
        down,
    )
