"""Undo after the real binary was killed, after edits elsewhere, and of what no snapshot holds."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from fugu_cli.session.events import Assigned, Finished, Permitted
from fugu_cli.session.log import HEARTBEAT_SECONDS
from tests.acceptance.driving import Place, ended
from tests.acceptance.test_jobs import script, step

EMPTY = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
"""The id of a file that holds nothing."""


def files(root: Path) -> dict[str, str]:
    return {
        path.relative_to(root).as_posix(): path.read_text()
        for path in sorted(root.rglob("*"))
        if path.is_file() and ".git" not in path.parts
    }


def bash(command: str) -> str:
    return step(("bash", {"command": command}))


DONE = (step(text="Done."), step(text="ACCEPT"))


@pytest.mark.parametrize("made", [1, 7, 30])
@pytest.mark.parametrize("go_on", [True, False])
def test_what_only_the_agent_made_is_undone_after_a_kill_and_later_edits_stay(
    place: Place, made: int, go_on: bool
) -> None:
    before = files(place.repo)
    slow = (
        "rm check.sh; for i in $(seq 60); do echo $i > made$i; echo $i > calc.txt; sleep 0.02; done"
    )
    process = place.start("run", *script(place, bash(slow), *DONE), "make them")
    while not (place.repo / f"made{made}").exists():
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    ended(process)
    time.sleep(3 * HEARTBEAT_SECONDS)
    (place.repo / "mine.txt").write_text("by hand\n")
    if go_on:
        again = place.fugu("run", "--continue", *script(place, bash("echo more > more"), *DONE))
        assert again.code in {0, 3}, again.err
    undone = place.fugu("undo", "--yes")
    assert (undone.code, files(place.repo)) == (0, before | {"mine.txt": "by hand\n"}), undone.err
    redone = place.fugu("redo", "--yes")
    assert (
        redone.code,
        (place.repo / f"made{made}").exists(),
        (place.repo / "check.sh").exists(),
    ) == (0, True, False)


def test_a_repository_that_a_command_destroyed_does_not_take_undo_with_it(place: Place) -> None:
    before = files(place.repo)
    flags = script(place, bash("rm -rf .git calc.txt; echo 1 > check.sh"), *DONE)
    place.configure(more='sandbox = { mode = "off" }')
    assert place.fugu("run", *flags, "wreck it").code in {0, 3}
    if (place.repo / ".git").exists():
        shutil.rmtree(place.repo / ".git")
    undone = place.fugu("undo", "--yes")
    assert (undone.code, files(place.repo)) == (0, before), undone.err


def test_a_file_that_was_moved_away_while_a_command_ran_is_named_by_undo(place: Place) -> None:
    flags = script(place, bash("echo fixed > calc.txt; echo mine > .envrc"), *DONE)
    assert place.fugu("run", *flags, "change it").code in {0, 3}
    assert not (place.repo / ".envrc").exists()
    undone = place.fugu("undo", "--yes")
    moved_back = re.search(r"`(mv \S+ \S+)` brings it back", undone.out.replace("\n", " "))
    assert undone.code == 0 and moved_back is not None, undone.out
    subprocess.run(moved_back[1], shell=True, check=True)
    assert (place.repo / ".envrc").read_text() == "mine\n"


def test_a_question_leaves_nothing_in_the_store(place: Place) -> None:
    assert place.fugu(
        "run", *script(place, step(("read", {"path": "calc.txt"})), *DONE), "what is it?"
    ).code in {0, 3}
    assert not any(isinstance(event, Permitted) and event.snapshot for event in place.events())
    assert not list(place.home.rglob("snapshots/*/objects"))


def test_a_large_file_that_a_command_changed_is_named_at_once_and_by_undo(place: Place) -> None:
    with (place.repo / "data.bin").open("wb") as file:
        file.truncate(30 << 30)
    flags = script(place, bash("truncate -s 5 data.bin; echo fixed > calc.txt"), *DONE)
    done = place.fugu("run", *flags, "--time-limit", "60", "cut it")
    assert done.code in {0, 3} and "undo cannot bring back data.bin" in done.err
    undone = place.fugu("undo", "--yes")
    assert (undone.code, (place.repo / "calc.txt").read_text()) == (3, "broken\n")
    assert "data.bin" in undone.out + undone.err and (place.repo / "data.bin").stat().st_size == 5


def test_what_a_command_did_in_a_submodule_is_named_at_once_and_by_undo(
    place: Place, tmp_path: Path
) -> None:
    library = tmp_path / "library"
    subprocess.run(["git", "init", "-q", library], check=True)
    (library / "lib.py").write_text("x = 1\n")
    for words in (
        ("add", "-A"),
        ("-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-qm", "start"),
    ):
        subprocess.run(["git", *words], cwd=library, check=True)
    added = (
        "-c",
        "protocol.file.allow=always",
        "submodule",
        "add",
        "-q",
        str(library),
        "vendor/lib",
    )
    subprocess.run(["git", *added], cwd=place.repo, check=True)
    place.commit()
    within = step(("edit", {"path": "vendor/lib/lib.py", "old": "x = 1", "new": "x = 2"}))
    edited = place.fugu(
        "run",
        *script(place, step(("read", {"path": "vendor/lib/lib.py"})), within, *DONE),
        "edit it",
    )
    assert edited.code in {0, 3} and "repository of its own" not in edited.err, edited.err
    undone = place.fugu("undo", "--yes")
    assert (undone.code, (place.repo / "vendor/lib/lib.py").read_text()) == (0, "x = 1\n"), (
        undone.err
    )
    done = place.fugu(
        "run",
        *script(place, bash("echo 2 >> vendor/lib/lib.py; echo fixed > calc.txt"), *DONE),
        "go",
    )
    assert (
        done.code in {0, 3}
        and "undo cannot bring back vendor/lib: a repository of its own" in done.err
    )
    undone = place.fugu("undo", "--yes")
    assert (undone.code, (place.repo / "calc.txt").read_text()) == (3, "broken\n")
    assert "left alone, because it is a repository of its own: vendor/lib\n" in undone.out
    steps = [bash("echo mended > calc.txt"), *DONE, bash("echo 3 >> vendor/lib/lib.py"), *DONE]
    for go_on in ((), ("--continue",)):
        done = place.fugu("run", *go_on, *script(place, *steps), "again")
        assert done.code in {0, 3}, done.err
    undone = place.fugu("undo", "--yes")
    assert (undone.code, undone.err) == (3, "vendor/lib: stays as it is, for no copy was kept\n")
    assert (
        undone.out.startswith("0 files were put back; ")
        and "left alone, because it is" in undone.out
    )
    undone = place.fugu("undo", "--yes")
    assert (undone.code, (place.repo / "calc.txt").read_text()) == (0, "broken\n"), undone.err


def test_a_time_limit_ends_a_snapshot_as_well(place: Place) -> None:
    with (place.repo / "data.bin").open("wb") as file:
        file.truncate(300 << 30)
    subprocess.run(
        ["git", "update-index", "--add", "--cacheinfo", f"100644,{EMPTY},data.bin"],
        cwd=place.repo,
        check=True,
    )
    done = place.fugu(
        "run", *script(place, bash("echo fixed > calc.txt"), *DONE), "--time-limit", "2", "mend it"
    )
    assert isinstance(place.events()[-1], Finished), done.err
    assert ((place.repo / "calc.txt").read_text(), place.left_behind()) == ("broken\n", [])


def test_rewind_lists_where_to_go_and_puts_files_and_conversation_back(place: Place) -> None:
    before = files(place.repo)
    steps = [bash("echo one > one"), *DONE, bash("echo two > two"), *DONE]
    for name in ("one", "two"):
        done = place.fugu("run", *GO_ON[name], *script(place, *steps), f"make {name}")
        assert done.code == 0, done.err
    listed = place.fugu("rewind")
    assert [line.split() for line in listed.out.splitlines()] == [
        ["1", "make", "one"], ["1.2", "scripted,", "verifier"], ["2", "make", "two"], ["2.2", "scripted,", "verifier"],
    ]  # fmt: skip
    asked = place.fugu("rewind", "2")
    assert (asked.code, files(place.repo)) == (1, before | {"one": "one\n", "two": "two\n"})
    assert "rewind asks before it changes files, and there is no terminal" in asked.err
    gone = place.fugu("rewind", "2", "--yes")
    assert (gone.code, files(place.repo)) == (0, before | {"one": "one\n"}), gone.err
    original = place.fugu("sessions", "--json")
    assert "`fugu undo --redo --session " in gone.err, original.out
    shown = place.fugu("rewind", "--session", gone.out.strip())
    assert [line.split()[0] for line in shown.out.splitlines()] == ["1", "1.2"]
    alone = place.fugu("rewind", "1", "--files", "--yes", "--session", gone.out.strip())
    assert (alone.code, alone.out, files(place.repo)) == (0, "", before), alone.err
    talk = place.fugu("rewind", "1.2", "--conversation", "--session", gone.out.strip())
    assert "unfinished" in next(
        line for line in place.fugu("sessions").out.splitlines() if talk.out.strip() in line
    )
    for wrong in (("9",), ("1.2", "--files"), ("1", "--files", "--conversation")):
        assert place.fugu("rewind", *wrong).code == 1
    assert files(place.repo) == before


GO_ON: dict[str, tuple[str, ...]] = {"one": (), "two": ("--continue",)}


def wait_for_call(place: Place, sessions: int) -> None:
    """Wait until the newest of so many sessions runs a call."""
    while len(place.sessions()) < sessions or not any(
        isinstance(event, Permitted) for event in place.events()
    ):
        time.sleep(0.02)
    time.sleep(0.3)


def saved_while(place: Place, command: str, *more: str) -> list[str]:
    """The roles that acted in a request in which the user saves files while `command` runs."""
    flags = script(place, bash(command), *DONE)
    process = place.start("run", *flags, *more, "look around")
    wait_for_call(place, sessions=1)
    (place.repo / "mine.txt").write_text("by hand\n")
    (place.repo / "calc.txt").write_text("by hand\n")
    assert ended(process).code == 0
    return [event.role for event in place.events() if isinstance(event, Assigned)]


MINE = {"mine.txt": "by hand\n", "calc.txt": "by hand\n"}


def test_what_the_user_saves_while_a_command_reads_is_the_users(place: Place) -> None:
    before = files(place.repo)
    assert saved_while(place, "sleep 2; ls") == ["worker"]
    blamed = place.fugu("blame", "calc.txt")
    assert "scripted" not in blamed.out
    undone = place.fugu("undo", "--yes")
    assert (undone.code, files(place.repo)) == (0, before | MINE), undone.err


def test_what_changed_while_a_command_ran_is_verified_and_asked_about_at_undo(place: Place) -> None:
    before = files(place.repo)
    command = "python3 -c 'import time; time.sleep(2)'"  # for all that is known, it wrote the files
    assert saved_while(place, command) == ["worker", "verifier"]
    asked = place.fugu("undo")
    assert (asked.code, files(place.repo)) == (1, before | MINE)
    assert "changed while `python3 -c 'import time; time.sleep(2)'` ran" in asked.err
    assert place.fugu("undo", "--yes").code == 0
    assert files(place.repo) == before
    assert place.fugu("redo", "--yes").code == 0
    assert files(place.repo) == before | MINE


def test_an_export_is_no_change_of_a_command_that_runs(place: Place) -> None:
    before = files(place.repo)
    assert place.fugu("run", *script(place, *DONE), "what is it?").code == 0
    session = place.sessions()[0].stem
    flags = script(place, bash("python3 -c 'import time; time.sleep(3)'"), *DONE)
    process = place.start("run", *flags, "look")
    wait_for_call(place, sessions=2)
    assert place.fugu("export", session, "-o", "export.md").code == 0
    assert ended(process).code == 0
    assert place.fugu("undo", "--yes").code == 0
    assert set(files(place.repo)) == {*before, "export.md"}


def test_undo_in_a_sparse_checkout_leaves_tree_and_index_as_before(place: Place) -> None:
    place.files({"src/a.txt": "a\n", "docs/d.txt": "d\n"})
    place.commit()

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=place.repo, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    git("sparse-checkout", "set", "src")
    before = git("ls-files", "-t"), git("status", "--porcelain"), files(place.repo)
    written = step(("write", {"path": "docs/d.txt", "content": "other\n"}))
    assert place.fugu("run", *script(place, written, *DONE), "write it").code in {0, 3}
    assert "docs/d.txt" in git("status", "--porcelain")
    undone = place.fugu("undo", "--yes")
    after = git("ls-files", "-t"), git("status", "--porcelain"), files(place.repo)
    assert (undone.code, after) == (0, before), undone.err
