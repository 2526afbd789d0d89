"""The worktrees of a workflow: what was done in one is taken over exactly, or said to be gone; and
who removes them.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from fugu_cli.engine import parallel_turns
from fugu_cli.errors import StorageError
from fugu_cli.messages import Prompt, Reply
from fugu_cli.session import store
from fugu_cli.session.events import Asked, Assigned, Finished, Interrupted, Merged
from fugu_cli.session.log import Log
from fugu_cli.tools import worktrees
from fugu_cli.tools.workspace import Workspace
from tests.reacting import React, repository
from tests.unit.coordinators.conductor.staging import Play, lists, planning, play
from tests.unit.coordinators.conductor.test_running import writes

JOB = "Repair calc.txt."
PLAN = lists((0, JOB, []), (1, JOB, []), (2, "Compare them.", [0, 1]))


class Cut(Exception):
    """The process ends here."""


def cut_while_choosing(tmp_path: Path, log: Log) -> tuple[Play, list[bool]]:
    """Two have done the same job, and the process ends while the third chooses; what is added to
    the list lets it.
    """
    may: list[bool] = []

    def chooses(prompt: Prompt) -> Reply:
        if not may:
            raise Cut
        numbers = [merged.diffs for merged in log.state.request.merges if merged.open][-1]
        return Reply(text=f"CHOOSE {numbers[0][0]}")

    reacts: dict[str, React] = {
        "a": writes("fixed by a\n"),
        "b": writes("fixed by b\n"),
        "c": chooses,
    }
    return play(tmp_path, planning(PLAN), reacts, log=log), may


def test_what_is_in_a_worktree_that_is_gone_is_never_taken_over_but_done_again(
    tmp_path: Path,
) -> None:
    log = Log.create(tmp_path / "s.jsonl")
    found, may = cut_while_choosing(tmp_path, log)
    with pytest.raises(Cut):
        found.run("fix the tests", judged=True)
    home = store.worktrees_folder(tmp_path, log.path)
    assert sorted(path.name for path in home.iterdir()) == ["1-1-1", "1-1-2", "session"]
    shutil.rmtree(home / "1-1-1")
    may.append(True)
    with pytest.raises(StorageError, match=r"the work of turn 1 \(a\) is gone") as raised:
        asyncio.run(found.again())
    assert "`fugu run --continue`" in raised.value.hint
    assert [event.turn for event in found.of(Interrupted) if isinstance(event, Interrupted)] == [
        1,
        3,
    ]
    assert (tmp_path / "repo" / "calc.txt").read_text() == "broken\n"
    assert asyncio.run(found.again()) == Finished(
        reason="accepted",
        message="a workflow of 3 steps; tests pass, nobody reviewed",
        accepted_by="tests",
    )
    merged = found.of(Merged)[-1]
    assert isinstance(merged, Merged)
    assert (merged.chosen, [change.path for change in merged.changes]) == (2, ["calc.txt"])
    assert (tmp_path / "repo" / "calc.txt").read_text() == "fixed by b\n"
    log.close()


def test_work_that_is_gone_is_said_beside_a_turn_outside_the_plan(tmp_path: Path) -> None:
    log = Log.create(tmp_path / "s.jsonl")
    found, _ = cut_while_choosing(tmp_path, log)
    with pytest.raises(Cut):
        found.run("fix the tests", judged=True)
    log.append(Assigned(turn=4, agent="a", role="worker", by="cascade"))
    log.append(Interrupted(turn=4, reason="it was cut"))
    shutil.rmtree(store.worktrees_folder(tmp_path, log.path) / "1-1-1")
    workspace = Workspace(tmp_path / "repo", tmp_path / "snapshots" / "repo")
    group = log.state.request.turns[:2]
    with pytest.raises(StorageError, match=r"the work of turn 1 \(a\) is gone"):
        asyncio.run(parallel_turns.ensure_worktrees(log, workspace, group))
    log.close()


def test_worktrees_go_when_nobody_can_go_on_with_them(tmp_path: Path) -> None:
    logs = {
        name: tmp_path / "elsewhere" / f"{name}.jsonl" for name in ("open", "cut", "over", "gone")
    }
    held = {name: Log.create(path) for name, path in logs.items()}
    for name, path in logs.items():
        log = held[name]
        log.append(Asked(text="one"))
        log.append(Finished(reason="answered"))
        if name != "over":
            log.append(Asked(text="two"))
        if name != "open":
            log.close()
        home = store.worktrees_folder(tmp_path, path)
        for worktree in ("1-1-1", "2-1-1"):
            (home / worktree).mkdir(parents=True)
        (home / store.OWNER).write_text(str(path))
    logs["gone"].unlink()
    parallel_turns.remove_unused_worktrees(tmp_path)
    held["open"].close()
    left = sorted(
        str(path.relative_to(tmp_path / "worktrees"))
        for path in (tmp_path / "worktrees").glob("*/*-*")
    )
    names = {name: store.worktrees_folder(tmp_path, path).name for name, path in logs.items()}
    assert left == [f"{names['cut']}/2-1-1", f"{names['open']}/1-1-1", f"{names['open']}/2-1-1"]
    assert not list((tmp_path / "worktrees").glob(f"*{parallel_turns.REMOVING}"))


def test_a_fork_has_worktrees_of_its_own(tmp_path: Path) -> None:
    root = tmp_path / "repo"
    log = Log.create(store.new_path(tmp_path, root))
    found, may = cut_while_choosing(tmp_path, log)
    with pytest.raises(Cut):
        found.run("fix the tests", judged=True)
    log.close()
    assert log.path is not None
    may.append(True)
    for path in (store.fork_session(tmp_path, root, log.path), log.path):
        (root / "calc.txt").write_text("broken\n")
        found.log = log = Log.open(path)
        found.agents["c"]._react = planning(PLAN)  # type: ignore[attr-defined]
        found, may = cut_while_choosing(tmp_path, log)
        may.append(True)
        assert asyncio.run(found.again()).reason == "accepted"
        assert (root / "calc.txt").read_text() == "fixed by a\n"
        log.close()


Made = Callable[[Path], object]


def taken_over(
    tmp_path: Path, made: Made, meanwhile: Made = lambda root: None
) -> tuple[Path, tuple[str, ...]]:
    """The repository after what `made` did in a worktree is taken over, twice, and the paths left
    alone.
    """
    files = {
        "calc.txt": "broken\n",
        "run.sh": "echo hi\n",
        "on.sh": "echo on\n",
        "d/x.txt": "x\n",
        "d/y/z.txt": "z\n",
    }
    (tmp_path / "repo" / "d" / "y").mkdir(parents=True)
    for name, text in files.items():
        (tmp_path / "repo" / name).write_text(text)
    (tmp_path / "repo" / "on.sh").chmod(0o755)
    root = repository(tmp_path / "repo", files)

    async def whole() -> tuple[str, ...]:
        workspace = Workspace(root, tmp_path / "data" / "store")
        tree = await workspace.history.snapshot()
        assert tree is not None
        worktree = await worktrees.make_worktree(workspace, tree, tmp_path / "w")
        made(worktree.root)
        changes = await worktrees.worktree_changes(worktree, workspace, tree)
        meanwhile(root)
        done, left = await worktrees.apply_changes(workspace, changes)
        assert (await worktrees.apply_changes(workspace, changes)) == (done, left), (
            "again it does no harm"
        )
        return left

    return root, asyncio.run(whole())


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o111


@pytest.mark.parametrize("hash_name", ["sha1", "sha256"])
def test_a_worktree_is_made_whatever_the_users_hooks_and_the_repositorys_hashes_are(
    hash_name: str, tmp_path: Path
) -> None:
    root, hook = tmp_path / "repo", tmp_path / "hooks" / "reference-transaction"
    root.mkdir()
    subprocess.run(["git", "init", "-q", f"--object-format={hash_name}"], cwd=root, check=True)
    (root / "a.txt").write_text("a\n")
    hook.parent.mkdir()
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\nexit 1\n")
    hook.chmod(0o755)
    (Path.home() / ".gitconfig").write_text(f"[core]\n\thooksPath = {hook.parent}\n")

    async def taken() -> bool:
        workspace = Workspace(root, tmp_path / "store")
        tree = str(await workspace.history.snapshot())
        made = await worktrees.make_worktree(workspace, tree, tmp_path / "copy")
        (made.root / "a.txt").write_text("b\n")
        changes = await worktrees.worktree_changes(made, workspace, tree)
        return await worktrees.apply_changes(workspace, changes) == (changes, ())

    assert asyncio.run(taken())
    assert (root / "a.txt").read_text() == "b\n"
    assert not (tmp_path / "ran").exists()


def test_files_in_a_tracked_folder_named_like_an_environment_are_taken_over(tmp_path: Path) -> None:
    (tmp_path / "repo" / "env").mkdir(parents=True)
    (tmp_path / "repo" / "env" / "world.py").write_text("x = 1\n")
    (tmp_path / "repo" / ".venv").mkdir()

    def made(root: Path) -> None:
        (root / "env" / "agent.py").write_text("y = 2\n")
        (root / ".venv" / "new.py").write_text("not ours\n")

    root, left = taken_over(tmp_path, made)
    assert ((root / "env" / "agent.py").read_text(), left) == ("y = 2\n", ())


@pytest.mark.parametrize("below", ["", "pkg/core"])
def test_what_the_repository_ignores_is_not_taken_over(tmp_path: Path, below: str) -> None:
    top = tmp_path / "repo"
    root = top / below
    root.mkdir(parents=True)
    (root / "a.txt").write_text("a\n")
    subprocess.run(["git", "init", "-q"], cwd=top, check=True)
    (top / ".git" / "info" / "exclude").write_text("*.cache\n# no rule\n")
    inside = f"/{below}" if below else ""
    (top / ".gitignore").write_text(
        f"out/\n*.log\n!kept.log\n{inside}/made\nelsewhere/x.txt\n**/deep/*.o\n"
    )
    names = ["x.cache", "out/y", "z.log", "kept.log", "made/w", "x.txt", "s/deep/v.o", "b.txt"]

    async def taken() -> list[str]:
        workspace = Workspace(root, tmp_path / "store")
        tree = str(await workspace.history.snapshot())
        made = await worktrees.make_worktree(workspace, tree, tmp_path / "copy")
        for name in names:
            (made.root / name).parent.mkdir(parents=True, exist_ok=True)
            (made.root / name).write_text("new\n")
        return [change.path for change in await worktrees.worktree_changes(made, workspace, tree)]

    assert asyncio.run(taken()) == ["b.txt", "kept.log", "x.txt"]


def test_the_tests_of_a_worktree_find_the_submodules_and_their_files_are_left_alone(
    tmp_path: Path,
) -> None:
    root = repository(tmp_path / "repo", {"a.txt": "a\n"})
    repository(tmp_path / "lib", {"x.txt": "x\n"})
    added = ["submodule", "add", "-q", str(tmp_path / "lib"), "deps/my [lib]"]
    subprocess.run(["git", "-c", "protocol.file.allow=always", *added], cwd=root, check=True)

    async def taken() -> tuple[str, str, list[str]]:
        workspace = Workspace(root, tmp_path / "store")
        tree = str(await workspace.history.snapshot())
        made = await worktrees.make_worktree(workspace, tree, tmp_path / "copy")
        (made.root / "a.txt").write_text("b\n")
        state = subprocess.run(
            ["git", "status", "--short"], cwd=made.root, check=True, capture_output=True, text=True
        )
        changes = await worktrees.worktree_changes(made, workspace, tree)
        await worktrees.apply_changes(workspace, changes)
        return (
            (made.root / "deps" / "my [lib]" / "x.txt").read_text(),
            state.stdout,
            [one.path for one in changes],
        )

    assert asyncio.run(taken()) == ("x\n", " M a.txt\n", ["a.txt"])
    assert (root / "deps" / "my [lib]" / ".git").is_file()


def test_modes_are_taken_over(tmp_path: Path) -> None:
    def made(root: Path) -> None:
        (root / "run.sh").chmod(0o755)
        (root / "on.sh").write_text("echo more\n")
        (root / "on.sh").chmod(0o644)

    root, left = taken_over(tmp_path, made)
    assert (bool(mode(root / "run.sh")), bool(mode(root / "on.sh")), left) == (True, False, ())
    assert (root / "on.sh").read_text() == "echo more\n"


def test_a_file_takes_the_place_of_a_folder_and_a_folder_that_of_a_file(tmp_path: Path) -> None:
    def made(root: Path) -> None:
        shutil.rmtree(root / "d")
        (root / "d").write_text("a file\n")
        (root / "run.sh").unlink()
        (root / "run.sh").mkdir()
        (root / "run.sh" / "inner").write_text("inner\n")
        (root / "calc.txt").unlink()
        (root / "calc.txt").symlink_to("d")

    root, left = taken_over(tmp_path, made)
    assert ((root / "d").read_text(), (root / "run.sh" / "inner").read_text(), left) == (
        "a file\n",
        "inner\n",
        (),
    )
    assert str((root / "calc.txt").readlink()) == "d"


def test_what_somebody_else_put_in_the_way_stays(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "x.txt").write_text("x\n")

    def made(root: Path) -> None:
        shutil.rmtree(root / "d")
        (root / "d").write_text("a file\n")
        (root / "new").mkdir()
        (root / "new" / "one").write_text("1\n")

    def meanwhile(root: Path) -> None:
        (root / "new").symlink_to(tmp_path / "outside")
        (root / "d" / "mine.txt").write_text("mine\n")

    root, left = taken_over(tmp_path, made, meanwhile)
    assert sorted(left) == ["d", "new/one"]
    assert [path.name for path in (root / "d").iterdir()] == ["mine.txt"]
    assert [path.name for path in (tmp_path / "outside").iterdir()] == ["x.txt"]
