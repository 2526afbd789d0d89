import asyncio
import os
import shutil
import subprocess
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest

from fugu_cli.engine import recovery, undo
from fugu_cli.errors import StorageError, UsageError
from fugu_cli.messages import Call
from fugu_cli.session.events import (
    Asked,
    Assigned,
    FileChange,
    FileEffects,
    Finished,
    Interrupted,
    Permitted,
    Replied,
    ToolRan,
    Undone,
)
from fugu_cli.session.log import Log
from fugu_cli.snapshots.git_repositories import blob_id
from fugu_cli.tools.read_write import WRITE
from fugu_cli.tools.workspace import Workspace
from fugu_cli.ui import run_artifacts


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with a file."""
    root = tmp_path / "project"
    root.mkdir()
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    (root / "kept.txt").write_text("mine\n")
    return root


async def request(log: Log, workspace: Workspace, change: Callable[[Path], None]) -> None:
    """A request in which fugu makes this change."""
    log.append(Asked(text="change it", snapshot=""))
    before = await workspace.history.snapshot()
    change(workspace.root)
    made = await workspace.history.since(before) if before else FileEffects()
    call = Call.make(f"t1-0-{len(log.events)}", "bash", command="change")
    log.append(Assigned(turn=1, agent="small", role="worker", by="cascade"))
    log.append(Replied(turn=1, agent="small", calls=(call,)))
    log.append(Permitted(turn=1, call=call, allowed=True, by="policy", snapshot=before))
    log.append(
        ToolRan(
            turn=1, call=call, output="", ok=True, changes=made.changes, attributes=made.attributes
        )
    )


def state(root: Path) -> dict[str, tuple[str, bool]]:
    """Every file with its content (a link's target) and whether it can be executed."""
    return {
        path.relative_to(root).as_posix(): (
            (str(path.readlink()), False)
            if path.is_symlink()
            else (path.read_text(), os.access(path, os.X_OK))
        )
        for path in sorted(root.rglob("*"))
        if ".git" not in path.parts and (path.is_symlink() or path.is_file())
    }


def play(project: Path, what: Callable[[Log, Workspace], Coroutine[None, None, None]]) -> Log:
    log = Log.memory()
    asyncio.run(what(log, Workspace(project, project.parent / "store")))
    return log


def everything(root: Path) -> None:
    """Create, change, delete, link, make executable."""
    (root / "new").mkdir()
    (root / "new" / "file.txt").write_text("new\n")
    (root / "kept.txt").unlink()
    (root / "link").symlink_to("new/file.txt")
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)


def test_undo_and_redo_restore_the_tree_exactly(project: Path) -> None:
    before = state(project)

    async def what(log: Log, workspace: Workspace) -> None:
        await request(log, workspace, everything)
        after = state(project)
        preview = await undo.undo_preview(log, workspace)
        assert "+++ b/kept.txt" in preview and "-new" in preview
        assert state(project) == after
        await undo.undo_request(log, workspace)
        assert state(project) == before
        await undo.redo_request(log, workspace)
        assert state(project) == after
        await undo.undo_request(log, workspace)
        assert state(project) == before

    log = play(project, what)
    assert [event.kind for event in log.events if isinstance(event, Undone)] == [
        "undo", "redo", "undo",
    ]  # fmt: skip


def test_each_undo_goes_one_request_further_back(project: Path) -> None:
    async def what(log: Log, workspace: Workspace) -> None:
        states = [state(project)]
        for number in range(3):
            await request(
                log, workspace, lambda root, n=number: (root / f"{n}.txt").write_text("x") and None
            )
            states.append(state(project))
        for expected in reversed(states[:-1]):
            await undo.undo_request(log, workspace)
            assert state(project) == expected
        with pytest.raises(UsageError, match="there is nothing to undo"):
            await undo.undo_request(log, workspace)
        for expected in states[1:]:
            await undo.redo_request(log, workspace)
            assert state(project) == expected
        with pytest.raises(UsageError, match="there is nothing to redo"):
            await undo.redo_request(log, workspace)

    play(project, what)


def test_undo_refuses_when_an_edit_made_since_to_a_file_of_the_request_would_be_lost(
    project: Path,
) -> None:
    async def what(log: Log, workspace: Workspace) -> None:
        await request(
            log, workspace, lambda root: (root / "changed.txt").write_text("fugu\n") and None
        )
        (project / "changed.txt").write_text("the user\n")
        for way in (undo.undo_preview, undo.undo_request):
            with pytest.raises(
                UsageError, match=r"undo would lose edits made since in 1 file: changed\.txt"
            ):
                await way(log, workspace)
        assert (project / "changed.txt").read_text() == "the user\n"

    assert not any(isinstance(event, Undone) for event in play(project, what).events)


def test_undo_and_redo_leave_every_other_file_alone_whoever_changed_it(project: Path) -> None:
    def change(root: Path) -> None:
        (root / "fugu.txt").write_text("fugu\n")

    async def what(log: Log, workspace: Workspace) -> None:
        (project / "gone.txt").write_text("mine\n")
        await request(log, workspace, change)
        await request(Log.memory(), Workspace(project, project.parent / "store"), everything)
        (project / "mine.txt").write_text("mine\n")
        (project / "gone.txt").unlink()
        others = state(project)
        assert "fugu.txt" in await undo.undo_preview(log, workspace)
        assert (await undo.undo_request(log, workspace)).paths == ("fugu.txt",)
        assert state(project) == {name: held for name, held in others.items() if name != "fugu.txt"}
        (project / "kept.txt").write_text("by hand\n")
        assert (await undo.redo_request(log, workspace)).paths == ("fugu.txt",)
        assert state(project) == others | {"kept.txt": ("by hand\n", False)}

    play(project, what)


def test_a_file_that_was_edited_since_is_left_alone_and_the_rest_taken_back(project: Path) -> None:
    def change(root: Path) -> None:
        for name in ("kept.txt", "dev.log"):
            (root / name).write_text("fugu\n")

    async def what(log: Log, workspace: Workspace) -> None:
        await request(log, workspace, change)
        (project / "dev.log").write_text("fugu\nmore\n")
        preview = await undo.undo_preview(log, workspace)
        assert "dev.log: stays as it is, for it was changed since\n" in preview
        undone = await undo.undo_request(log, workspace)
        assert (undone.paths, undone.left) == (("kept.txt",), ("dev.log",))
        redone = await undo.redo_request(log, workspace)
        assert (redone.paths, redone.left) == (("kept.txt",), ())
        assert state(project) == {
            "kept.txt": ("fugu\n", False),
            "dev.log": ("fugu\nmore\n", False),
        }

    play(project, what)


def test_an_undo_that_stopped_half_way_is_finished_and_redone_whole(project: Path) -> None:
    before = state(project)

    async def what(log: Log, workspace: Workspace) -> None:
        await request(log, workspace, everything)
        after = state(project)
        (project / "new" / "file.txt").chmod(0o600)
        await request(log, workspace, lambda root: (root / "more.txt").write_text("x") and None)
        await undo.undo_request(log, workspace)
        folder = project / "kept.txt"
        folder.mkdir()
        (folder / "in the way").write_text("")
        with pytest.raises(StorageError, match="could not be put back"):
            await undo.undo_request(log, workspace)
        assert not (project / "run.sh").exists()
        shutil.rmtree(folder)
        with pytest.raises(undo.NothingToUndo, match="the interrupted undo is finished: 4 files"):
            await undo.undo_preview(log, workspace)
        assert state(project) == before
        await undo.redo_request(log, workspace)
        assert state(project) == after

    play(project, what)


def test_what_a_command_had_done_when_it_was_cut_off_is_undone_and_later_edits_are_not(
    project: Path,
) -> None:
    before = state(project)

    async def what(log: Log, workspace: Workspace) -> None:
        log.append(Asked(text="run it", snapshot=""))
        call = Call.make("t1-0-0", "bash", command="make")
        log.append(Assigned(turn=1, agent="small", role="worker", by="cascade"))
        log.append(Replied(turn=1, agent="small", calls=(call,)))
        tree = await workspace.history.snapshot()
        log.append(Permitted(turn=1, call=call, allowed=True, by="policy", snapshot=tree))
        (project / "made.txt").write_text("half\n")
        (project / "kept.txt").unlink()
        log.append(Interrupted(turn=1))
        await asyncio.sleep(2 * recovery.GRACE_SECONDS)
        (project / "mine.txt").write_text("the user\n")
        after = state(project)
        await undo.undo_request(log, workspace)
        assert state(project) == before | {"mine.txt": ("the user\n", False)}
        await undo.redo_request(log, workspace)
        assert state(project) == after
        (project / "made.txt").write_text("the user\n")
        undone = await undo.undo_request(log, workspace)
        assert (undone.paths, undone.left) == (("kept.txt",), ("made.txt",))
        assert (project / "made.txt").read_text() == "the user\n"

    play(project, what)


def test_files_of_an_output_folder_do_not_stand_in_the_way(project: Path) -> None:
    (project / "out").mkdir()

    async def what(log: Log, workspace: Workspace) -> None:
        await request(
            log, workspace, lambda root: (root / "kept.txt").write_text("fugu\n") and None
        )
        run_artifacts.write_artifacts(project / "out", log.records, "s1", {}, b"a diff\n")
        await undo.undo_request(log, workspace)
        assert (project / "kept.txt").read_text() == "mine\n" and (
            project / "out" / "summary.json"
        ).exists()

    play(project, what)


def test_redo_refuses_after_edits_of_its_files_and_ends_with_a_new_request(project: Path) -> None:
    async def what(log: Log, workspace: Workspace) -> None:
        await request(log, workspace, lambda root: (root / "a.txt").write_text("a") and None)
        await undo.undo_request(log, workspace)
        (project / "a.txt").write_text("edited\n")
        with pytest.raises(UsageError, match=r"redo would lose edits made since in 1 file: a\.txt"):
            await undo.redo_preview(log, workspace)
        await request(log, workspace, lambda root: (root / "b.txt").write_text("b") and None)
        with pytest.raises(UsageError, match="there is nothing to redo"):
            await undo.redo_request(log, workspace)

    play(project, what)


def test_undo_needs_nothing_of_the_repository(project: Path) -> None:
    subprocess.run(["git", "add", "."], cwd=project, check=True)
    before = state(project)

    def wreck(root: Path) -> None:
        everything(root)
        shutil.rmtree(root / ".git")

    async def what(log: Log, workspace: Workspace) -> None:
        await request(log, workspace, wreck)
        log.append(Finished(reason="accepted"))
        after = state(project)
        again = Workspace(project, project.parent / "store")
        assert not again.in_git
        await undo.undo_request(log, again)
        assert state(project) == before
        await undo.redo_request(log, again)
        assert state(project) == after

    play(project, what)


def test_a_request_that_changed_nothing_leaves_nothing_to_undo(project: Path) -> None:
    async def what(log: Log, workspace: Workspace) -> None:
        await request(log, workspace, lambda root: None)
        with pytest.raises(UsageError, match="there is nothing to undo"):
            await undo.undo_preview(log, workspace)

    play(project, what)


def test_a_question_does_not_stand_in_the_way_of_undo(project: Path) -> None:
    before = state(project)

    async def what(log: Log, workspace: Workspace) -> None:
        await request(log, workspace, everything)
        log.append(Finished(reason="accepted"))
        after = state(project)
        await request(log, workspace, lambda root: None)
        log.append(Finished(reason="answered"))
        await undo.undo_request(log, workspace)
        assert state(project) == before
        with pytest.raises(UsageError, match="there is nothing to undo"):
            await undo.undo_request(log, workspace)
        await undo.redo_request(log, workspace)
        assert state(project) == after

    play(project, what)


def test_a_request_that_a_limit_stopped_and_that_went_on_is_undone(project: Path) -> None:
    before = state(project)

    async def what(log: Log, workspace: Workspace) -> None:
        snapshot = await workspace.history.snapshot()
        log.append(Asked(text="change it", snapshot=snapshot))
        log.append(Finished(reason="turn_limit"))
        everything(workspace.root)
        now = await workspace.history.snapshot()
        changes = (
            (await workspace.history.effects_between(snapshot, now)).changes
            if snapshot and now
            else ()
        )
        log.append(
            ToolRan(turn=1, call=Call.make("t1-0-0", "bash"), output="", ok=True, changes=changes)
        )
        log.append(Finished(reason="accepted"))
        await undo.undo_request(log, workspace)
        assert state(project) == before

    play(project, what)


def test_a_request_that_was_undone_and_goes_on_counts_what_it_does_then(project: Path) -> None:
    async def what(log: Log, workspace: Workspace) -> None:
        await request(log, workspace, lambda root: (root / "first.txt").write_text("x") and None)
        tests = Call.make("e1-0", "run_tests")
        log.append(Permitted(turn=1, call=tests, allowed=True, by="evidence"))
        log.append(ToolRan(turn=1, call=tests, output="1 passed", ok=True))
        await undo.undo_request(log, workspace)
        await undo.redo_request(log, workspace)
        await undo.undo_request(log, workspace)
        assert list(log.state.request.changes) == ["first.txt"], (
            "what an undone request did is still told"
        )
        undone = state(project)
        log.append(Replied(turn=1, agent="small", text="I go on."))
        run = log.state.request.tests
        assert (log.state.request.changes, run and run.stale) == ({}, True)
        with pytest.raises(UsageError, match="there is nothing to undo"):
            await undo.undo_request(log, workspace)
        (project / "second.txt").write_text("x")
        made = FileChange(path="second.txt", before=None, after=blob_id(b"x"))
        log.append(
            ToolRan(turn=1, call=Call.make("t1-0-9", "bash"), output="", ok=True, changes=(made,))
        )
        assert list(log.state.request.changes) == ["second.txt"]
        with pytest.raises(UsageError, match="there is nothing to redo"):
            await undo.redo_request(log, workspace)
        await undo.undo_request(log, workspace)
        assert state(project) == undone

    play(project, what)


def test_without_anything_asked_there_is_nothing_to_undo(project: Path) -> None:
    async def what(log: Log, workspace: Workspace) -> None:
        with pytest.raises(UsageError, match="there is nothing to undo"):
            await undo.undo_request(log, workspace)

    play(project, what)


def test_outside_git_the_preview_is_a_real_diff_and_what_was_changed_since_is_left_alone(
    project: Path,
) -> None:
    shutil.rmtree(project / ".git")

    async def what(log: Log, workspace: Workspace) -> None:
        log.append(Asked(text="write two files"))
        log.append(Assigned(turn=1, agent="small", role="worker", by="cascade"))
        for name in ("one.txt", "two.txt"):
            call = Call.make(f"t1-0-{name}", "write", path=name, content="x\n")
            log.append(Replied(turn=1, agent="small", calls=(call,)))
            log.append(Permitted(turn=1, call=call, allowed=True, by="policy"))
            ran = await workspace.observe(
                WRITE, WRITE.arguments(path=name, content="x\n"), lambda text: None
            )
            log.append(ToolRan(turn=1, call=call, output="", ok=True, changes=ran.effects.changes))
        assert "--- a/one.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n" in await undo.undo_preview(
            log, workspace
        )
        (project / "two.txt").write_text("the user\n")
        done = await undo.undo_request(log, workspace)
        assert (done.paths, done.left) == (("one.txt",), ("two.txt",))
        assert (await undo.redo_request(log, workspace)).paths == ("one.txt",)
        await undo.undo_request(log, workspace)
        log.append(Asked(text="something else"))
        with pytest.raises(undo.NothingToUndo):
            await undo.redo_request(log, workspace)

    play(project, what)
    assert state(project) == {"kept.txt": ("mine\n", False), "two.txt": ("the user\n", False)}


def test_a_rewind_over_an_edit_between_two_requests_touches_nothing(project: Path) -> None:
    async def what(log: Log, workspace: Workspace) -> None:
        await request(log, workspace, lambda root: (root / "a.txt").write_text("agent\n") and None)
        (project / "a.txt").write_text("mine\n")
        await request(
            log, workspace, lambda root: (root / "a.txt").write_text("agent again\n") and None
        )
        first, second = undo.rewind_points(log.events)
        with pytest.raises(
            UsageError, match=r"rewind would lose edits made between two requests: a\.txt"
        ):
            await undo.rewind_files(log, workspace, first)
        assert (project / "a.txt").read_text() == "agent again\n"
        await undo.rewind_files(log, workspace, second)
        assert (project / "a.txt").read_text() == "mine\n"

    log = play(project, what)
    assert [event.kind for event in log.events if isinstance(event, Undone)] == ["undo"]


def test_a_rewind_passes_requests_that_are_undone_or_put_back_by_hand(project: Path) -> None:
    before = state(project)

    async def what(log: Log, workspace: Workspace) -> None:
        for name in ("a", "b", "c"):
            await request(
                log, workspace, lambda root, name=name: (root / name).write_text("x") and None
            )
        await undo.undo_request(log, workspace)
        (project / "b").unlink()
        first, *_ = undo.rewind_points(log.events)
        assert "--- a/a" in await undo.rewind_preview(log, workspace, first)
        done = await undo.rewind_files(log, workspace, first)
        assert ([one.paths for one in done], state(project)) == ([(), ("a",)], before)
        assert await undo.rewind_preview(log, workspace, first) == ""

    play(project, what)
