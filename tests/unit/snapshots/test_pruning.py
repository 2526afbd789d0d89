"""Pruning: what a session needs stays, the rest goes."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from fugu_cli.errors import StorageError
from fugu_cli.snapshots import snapshots
from fugu_cli.snapshots.snapshots import PRUNED
from fugu_cli.tools.workspace import Workspace
from tests.unit.conftest import Build, lay, restore


def test_what_a_session_names_stays_and_the_rest_goes(repo: Build, tmp_path: Path) -> None:
    workspace = repo({"a.txt": "1\n"})
    taken = []
    for number in range(4):
        lay(workspace.root, {"a.txt": f"{number} changed\n", f"new{number}.txt": f"{number}\n"})
        (workspace.root / f"empty{number}").mkdir()
        taken.append(asyncio.run(workspace.history.snapshot()) or "")
    session = tmp_path / "s.jsonl"
    session.write_text(f'{{"snapshot": "{taken[1]}", "before": "{"0" * 40}"}}\n')
    assert workspace.history.snapshots is not None
    assert not snapshots.gc_is_due(workspace.store), "nothing is a day old"
    old = time.time() - snapshots.DAY
    os.utime(workspace.store / PRUNED, (old, old))
    assert snapshots.gc_is_due(workspace.store)
    assert asyncio.run(snapshots.prune_snapshots(workspace.history.snapshots, [session])) == 0, (
        "what is younger than a day stays"
    )
    assert asyncio.run(snapshots.prune_snapshots(workspace.history.snapshots, [session], "now")) > 3
    assert not snapshots.gc_is_due(workspace.store)
    asyncio.run(restore(workspace, taken[1]))
    assert (workspace.root / "a.txt").read_text() == "1 changed\n"
    assert (workspace.root / "empty1").is_dir() and not (workspace.root / "new2.txt").exists()
    with pytest.raises(StorageError):
        asyncio.run(restore(Workspace(workspace.root, workspace.store), taken[2]))
    assert asyncio.run(workspace.history.snapshot()) == taken[1]


def test_a_session_that_cannot_be_read_keeps_everything(repo: Build, tmp_path: Path) -> None:
    workspace = repo({"a.txt": "1\n"})
    assert workspace.history.snapshots is not None
    with pytest.raises(StorageError, match="cannot read"):
        asyncio.run(
            snapshots.prune_snapshots(workspace.history.snapshots, [tmp_path / "gone.jsonl"], "now")
        )


def test_a_store_without_sessions_goes_after_a_day(tmp_path: Path) -> None:
    for name in ("used", "unused", "young"):
        (tmp_path / "snapshots" / name).mkdir(parents=True)
        (tmp_path / "snapshots" / name / PRUNED).touch()
    (tmp_path / "sessions" / "used").mkdir(parents=True)
    (tmp_path / "sessions" / "used" / "s.jsonl").touch()
    old = time.time() - 2 * snapshots.DAY
    for name in ("used", "unused"):
        os.utime(tmp_path / "snapshots" / name / PRUNED, (old, old))
    assert snapshots.remove_unused_stores(tmp_path) == 1
    assert sorted(path.name for path in (tmp_path / "snapshots").iterdir()) == ["used", "young"]


def test_a_session_in_a_new_store_removes_those_that_nobody_uses(
    repo: Build, tmp_path: Path
) -> None:
    workspace = repo({"a.txt": "1\n"})
    asyncio.run(workspace.history.snapshot())
    unused = tmp_path / "snapshots" / "unused"
    unused.mkdir(parents=True)
    session = tmp_path / "sessions" / "s.jsonl"
    asyncio.run(snapshots.collect_garbage(tmp_path, workspace.history.snapshots, session))
    assert (unused.exists(), workspace.store.is_dir()) == (False, True)
