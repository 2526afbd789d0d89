"""Undo of what a diff of snapshots does not show: modes, empty folders, ignored files, other
repositories.
"""

import asyncio
import subprocess
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest

from fugu_cli.engine import harness, undo
from fugu_cli.engine.environment import Environment, GatherEvidence, Permission
from fugu_cli.engine.tool_calls import run_call, run_evidence
from fugu_cli.errors import UsageError
from fugu_cli.messages import Call
from fugu_cli.safety import policy
from fugu_cli.session.events import Asked, Assigned, Finished, Replied, ToolRan
from fugu_cli.session.log import Log
from fugu_cli.tools.diff import request_patch
from fugu_cli.tools.workspace import Workspace
from tests.facts import STRONG, opened
from tests.unit.conftest import TOOLS

Work = Callable[[Log, Environment], Coroutine[None, None, None]]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with a program, an ignored file and another repository in it."""
    root = tmp_path / "project"
    for folder in (root, root / "lib"):
        folder.mkdir()
        subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    for name, text in {
        ".gitignore": "*.cfg\n",
        "run.sh": "#!/bin/sh\n",
        "local.cfg": "keep\n",
        "lib/l": "one\n",
    }.items():
        (root / name).write_text(text)
    return root


def tree(root: Path) -> dict[str, tuple[int, str]]:
    """Every file and folder with its mode and content."""
    return {
        path.relative_to(root).as_posix(): (
            path.stat().st_mode & 0o777,
            path.read_text() if path.is_file() else "",
        )
        for path in root.rglob("*")
        if ".git" not in path.parts
    }


async def never(call: Call, judgement: policy.Judgement) -> Permission:
    return "no"


def play(project: Path, what: Work) -> Log:
    log = Log.memory()
    workspace = Workspace(project, project.parent / "store")
    asyncio.run(what(log, Environment(TOOLS, workspace, policy.Rules(mode="yolo"), never)))
    return log


async def asks(log: Log, environment: Environment) -> None:
    log.append(opened().model_copy(update={"repo": str(environment.workspace.root)}))
    log.append(Asked(text="change it", snapshot=await environment.workspace.history.snapshot()))
    log.append(
        Assigned(
            turn=1,
            agent="strong",
            role="worker",
            by="single",
            snapshot=await environment.workspace.history.snapshot(),
        )
    )


async def does(log: Log, environment: Environment, tool: str, **arguments: object) -> None:
    call = Call.make(f"t1-0-{len(log.events)}", tool, **arguments)
    log.append(Replied(turn=1, agent="strong", calls=(call,), stop="calls"))
    await run_call(log, environment, 1, call)


async def rewrites(log: Log, environment: Environment) -> None:
    """An ignored file and one of another repository are changed, and one is made there, by tools of
    fugu's own.
    """
    for path, text in {"local.cfg": "lost\n", "lib/l": "two\n", "lib/new": "new\n"}.items():
        if not path.endswith("new"):
            await does(log, environment, "read", path=path)
        await does(log, environment, "write", path=path, content=text)


@pytest.mark.parametrize(
    "command",
    [
        "chmod +x run.sh",
        "chmod +x run.sh; echo 2 > other",
        "chmod 600 run.sh",
        "mkdir -p empty/folder",
    ],
)
def test_modes_and_empty_folders_are_undone_and_redone_exactly(project: Path, command: str) -> None:
    async def what(log: Log, environment: Environment) -> None:
        before = tree(project)
        await asks(log, environment)
        await does(log, environment, "bash", command=command)
        log.append(Finished(reason="answered"))
        after = tree(project)
        assert after != before
        await undo.undo_request(log, environment.workspace)
        assert tree(project) == before
        await undo.redo_request(log, environment.workspace)
        assert tree(project) == after

    play(project, what)


def test_a_mode_is_a_change_and_one_that_the_user_set_since_is_theirs(project: Path) -> None:
    async def what(log: Log, environment: Environment) -> None:
        await asks(log, environment)
        await does(log, environment, "bash", command="chmod +x run.sh")
        changed = log.state.request.changes
        assert [(change.mode_before, change.mode) for change in changed.values()] == [
            ("100644", "100755")
        ]
        await does(log, environment, "bash", command="chmod -x run.sh; echo 1 > one")
        assert list(log.state.request.changes) == ["one"]
        (project / "one").chmod(0o755)
        with pytest.raises(UsageError, match="edits made since in 1 file: one"):
            await undo.undo_request(log, environment.workspace)

    play(project, what)


def test_what_no_snapshot_holds_is_shown_undone_and_redone(project: Path) -> None:
    async def what(log: Log, environment: Environment) -> None:
        before = tree(project)
        await asks(log, environment)
        await rewrites(log, environment)
        after = tree(project)
        assert (
            b"--- a/local.cfg\n+++ b/local.cfg\n@@ -1 +1 @@\n-keep\n+lost\n"
            in await request_patch(environment.workspace, log.state)
        )
        assert "-lost\n+keep\n" in await undo.undo_preview(log, environment.workspace)
        done = await undo.undo_request(log, environment.workspace)
        assert (tree(project), set(done.paths)) == (before, {"local.cfg", "lib/l", "lib/new"})
        with pytest.raises(undo.NothingToUndo):
            await undo.undo_request(log, environment.workspace)
        assert "-keep\n+lost\n" in await undo.redo_preview(log, environment.workspace)
        await undo.redo_request(log, environment.workspace)
        assert tree(project) == after
        (project / "lib" / "l").write_text("the user's\n")
        done = await undo.undo_request(log, environment.workspace)
        assert done.left == ("lib/l",)
        assert tree(project) == before | {"lib/l": (0o644, "the user's\n")}
        await undo.redo_request(log, environment.workspace)
        assert (project / "local.cfg").read_text() == "lost\n"

    play(project, what)


def test_a_file_that_was_deleted_comes_back_with_its_permissions(project: Path) -> None:
    (project / "local.cfg").chmod(0o600)
    (project / "lib/l").chmod(0o750)
    before = tree(project)

    async def go(log: Log, environment: Environment) -> None:
        await asks(log, environment)
        patch = (
            "*** Begin Patch\n*** Delete File: local.cfg\n*** Delete File: lib/l\n*** End Patch\n"
        )
        for path in ("local.cfg", "lib/l"):
            await does(log, environment, "read", path=path)
        await does(log, environment, "apply_patch", patch=patch)
        log.append(Finished(reason="accepted"))
        after = tree(project)
        assert {"local.cfg", "lib/l"}.isdisjoint(after)
        await undo.undo_request(log, environment.workspace)
        assert tree(project) == before
        await undo.redo_request(log, environment.workspace)
        assert tree(project) == after
        await undo.undo_request(log, environment.workspace)
        assert tree(project) == before

    play(project, go)


def test_a_verifier_reads_it(
    project: Path,
) -> None:
    async def what(log: Log, environment: Environment) -> None:
        await asks(log, environment)
        await rewrites(log, environment)
        log.append(Assigned(turn=2, agent="strong", role="verifier", by="single"))
        step = harness.next_step(log.state, STRONG, environment)
        assert isinstance(step, GatherEvidence)
        await run_evidence(log, environment, 2, step.call)
        shown = log.events[-1]
        assert (
            isinstance(shown, ToolRan)
            and "-keep\n+lost\n" in shown.output
            and "+new\n" in shown.output
        )

    play(project, what)


def test_a_file_that_was_ignored_before_is_not_taken_for_a_new_one(project: Path) -> None:
    async def what(log: Log, environment: Environment) -> None:
        before = tree(project)
        await asks(log, environment)
        await does(log, environment, "bash", command="echo > .gitignore")
        assert log.state.request.changes["local.cfg"].before is None
        (project / ".gitignore").write_text("*.cfg\n")
        await undo.undo_request(log, environment.workspace)
        assert tree(project) == before

    play(project, what)
