"""The workspace: what a tool changed is observed, what was seen is remembered."""

from __future__ import annotations

import asyncio
import time

from fugu_cli.messages import Call
from fugu_cli.session.events import FileChange, FileEffects, Recorded, ToolRan
from fugu_cli.snapshots.git_repositories import blob_id
from fugu_cli.tools.result import ToolResult
from fugu_cli.tools.workspace import ObservedResult, Workspace, recall_reads
from tests.unit.conftest import TOOLS, Build, lay, restore, use

ONE, TWO = blob_id(b"1\n"), blob_id(b"2\n")


def observe(workspace: Workspace, tool: str, **arguments: object) -> ObservedResult:
    found, given = TOOLS.parse(Call.make("1", tool, **arguments))
    assert found is not None
    return asyncio.run(workspace.observe(found, given, lambda text: None))


def test_what_a_command_changed_is_observed(repo: Build) -> None:
    workspace = repo({"a.py": "1\n", "b.py": "1\n"})
    result, (changes, _), _ = observe(
        workspace, "bash", command="echo 2 > a.py; rm b.py; echo 1 > c.py; chmod +x c.py"
    )
    assert result == ToolResult(text="(no output)\n[exit code 0]")
    assert changes == (
        FileChange(path="a.py", before=ONE, after=TWO),
        FileChange(path="b.py", before=ONE, after=None),
        FileChange(path="c.py", before=None, after=ONE, mode="100755"),
    )


def test_reading_changes_nothing_and_costs_no_snapshot(repo: Build) -> None:
    workspace = repo({"a.py": "1\n"})
    lay(workspace.root, {"new.py": "by hand\n"})
    assert observe(workspace, "read", path="a.py") == ObservedResult(ToolResult(text="1\t1"))
    assert not workspace.store.exists()


def test_an_ignored_file_fugu_wrote_is_observed_and_can_be_put_back(repo: Build) -> None:
    workspace = repo({".gitignore": "*.local\n"})
    lay(workspace.root, {"x.local": "1\n"})
    use(workspace, "read", path="x.local")
    changes = observe(workspace, "write", path="x.local", content="2\n").effects.changes
    assert changes == (FileChange(path="x.local", before=ONE, after=TWO, beside=True),)
    asyncio.run(workspace.take_back(FileEffects(changes)))
    assert (workspace.root / "x.local").read_text() == "1\n"


def test_outside_git_what_fugus_tools_wrote_is_observed(plain: Build) -> None:
    workspace = plain({"a.py": "1\n", "b.py": "1\n"})
    (workspace.root / "b.py").chmod(0o604)
    for name in ("a.py", "b.py"):
        use(workspace, "read", path=name)
    patch = (
        "--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-1\n+2\n--- a/b.py\n+++ /dev/null\n@@ -1 +0,0 "
        "@@\n-1\n"
    )
    changes = observe(workspace, "apply_patch", patch=patch).effects.changes
    assert changes == (
        FileChange(path="a.py", before=ONE, after=TWO, beside=True),
        FileChange(path="b.py", before=ONE, after=None, beside=True, permissions=0o604),
    )
    asyncio.run(workspace.take_back(FileEffects(changes)))
    assert [(workspace.root / name).read_text() for name in ("a.py", "b.py")] == ["1\n", "1\n"]
    assert (workspace.root / "b.py").stat().st_mode & 0o777 == 0o604


def test_a_draw_that_was_rolled_back_can_be_written_again_without_reading(repo: Build) -> None:
    workspace = repo({"a.py": "1\n"})
    use(workspace, "read", path="a.py")
    before = asyncio.run(workspace.history.snapshot()) or ""
    assert use(workspace, "write", path="a.py", content="2\n").ok
    assert asyncio.run(restore(workspace, before)) == ("a.py",)
    assert use(workspace, "write", path="a.py", content="3\n").ok


def test_a_session_taken_up_again_knows_what_it_read_or_wrote_whole_unless_it_changed_since(
    repo: Build,
) -> None:
    def ran(tool: str, path: str, before: str | None = None, *, ok: bool = True) -> Recorded:
        call = Call.make("1", tool, path=path)
        made = (
            () if tool in ("read", "grep") else (FileChange(path=path, before=before, after=ONE),)
        )
        event = ToolRan(turn=1, call=call, output="", ok=ok, changes=made)
        return Recorded(seq=0, at=time.time() + 5, event=event)

    calls = {
        "read.py": [ran("read", "read.py")],
        "read-long-ago.py": [ran("read", "read-long-ago.py").model_copy(update={"at": 1.0})],
        "not-read.py": [ran("read", "not-read.py", ok=False)],
        "searched.py": [ran("grep", "searched.py")],
        "made.py": [ran("write", "made.py")],
        "made-and-edited.py": [
            ran("write", "made-and-edited.py"),
            ran("edit", "made-and-edited.py", ONE),
        ],
        "edited-by-the-user-between.py": [
            ran("write", "edited-by-the-user-between.py"),
            ran("edit", "edited-by-the-user-between.py", TWO),
        ],
        "only-edited.py": [ran("edit", "only-edited.py", TWO)],
        "changed-by-a-command.py": [
            ran("read", "changed-by-a-command.py"),
            ran("bash", "changed-by-a-command.py", TWO),
        ],
    }
    workspace = repo(dict.fromkeys(calls, "1\n"))
    recall_reads(workspace, [record for records in calls.values() for record in records])
    written = {name for name in calls if use(workspace, "write", path=name, content="2\n").ok}
    assert written == {"read.py", "made.py", "made-and-edited.py"}


def test_a_diff_to_be_read_says_of_binary_files_that_they_differ(repo: Build) -> None:
    workspace = repo({"data.bin": b"\0one"})
    before = asyncio.run(workspace.history.snapshot())
    lay(workspace.root, {"data.bin": b"\0two"})
    shown = use(workspace, "diff", since=before).text
    assert (
        shown.endswith("Binary files a/data.bin and b/data.bin differ\n")
        and "GIT binary patch" not in shown
    )


def test_the_diff_since_a_snapshot_is_shown(repo: Build) -> None:
    workspace = repo({"a.py": "1\n"})
    before = asyncio.run(workspace.history.snapshot())
    assert use(workspace, "diff", since=before) == ToolResult(text="(nothing was changed)")
    lay(workspace.root, {"a.py": "2\n"})
    assert use(workspace, "diff", since=before).text.endswith(
        "--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-1\n+2\n"
    )


def test_of_a_small_file_the_diff_shows_all_lines_and_of_a_long_one_the_changed_ones(
    repo: Build,
) -> None:
    lines = [f"line {number}\n" for number in range(1, 41)]
    workspace = repo({"small.py": "".join(lines), "lo *ng.py": "".join(lines) * 20})
    before = asyncio.run(workspace.history.snapshot())
    changed = "".join([*lines[:39], "last\n"])
    lay(workspace.root, {"small.py": changed, "lo *ng.py": "".join(lines) * 19 + changed})
    shown = use(workspace, "diff", since=before).text
    small, long = shown.split("diff --git")[1:]
    assert " line 1\n" in small and "+last\n" in small
    assert " line 30\n" not in long and " line 37\n" in long and "+last\n" in long
