"""`fugu pr` with real git and a remote on this machine; gh and glab are stand-ins that keep how
they were called.
"""

import json
import shutil
import subprocess

import pytest

from tests.acceptance.driving import Agent, Place
from tests.acceptance.loopback import Loopback, Says

BODY = "It was `broken`; $(touch owned)\n\nTested."
TEXT = Says(json.dumps({"title": "calc: fix \x1b[31mthe sum", "description": BODY}))


def git(place: Place, *words: str) -> str:
    return subprocess.run(
        ["git", *words],
        cwd=place.repo,
        env=place.environ(),
        check=True,
        capture_output=True,
        text=True,
    ).stdout


def prepared(place: Place, server: Loopback, *programs: str, host: str = "github") -> None:
    """A remote with main, and a branch with one commit more."""
    place.configure(Agent("worker"))
    server.play("worker", TEXT)
    remote = place.folder / f"{host}.git"
    git(place, "init", "-q", "--bare", str(remote))
    git(place, "branch", "-M", "main")
    git(place, "remote", "add", "origin", str(remote))
    git(place, "push", "-q", "origin", "main")
    git(place, "switch", "-qc", "work")
    place.files({"calc.txt": "fixed\n"})
    git(place, "commit", "-qam", "calc: fix it")
    git(place, "notes", "--ref=fugu", "add", "-m", "{}", "HEAD")
    commands = place.folder / "bin"
    commands.mkdir()
    for name in programs:
        (commands / name).write_text(
            f'#!/bin/sh\nprintf "%s\\0" {name} "$@" > {place.folder}/called\n'
        )
        (commands / name).chmod(0o755)
    for name in ("git", "sh"):
        (commands / name).symlink_to(shutil.which(name) or name)
    place.variables["PATH"] = str(commands)  # a machine may have a gh of its own


def called(place: Place) -> list[str]:
    return (place.folder / "called").read_text().split("\0")[:-1]


def test_gh_is_called_with_what_an_agent_wrote_once_the_branch_is_pushed(
    place: Place, server: Loopback
) -> None:
    prepared(place, server, "gh", "glab")
    done = place.fugu("pr", "--yes")
    assert (done.code, "origin does not have all of work" in done.err, server.asked("worker")) == (
        1,
        True,
        [],
    )
    done = place.fugu("pr", "--yes", "--push", "--draft")
    assert done.code == 0, done.err
    assert called(place) == [
        "gh", "pr", "create", "--title=calc: fix the sum", ("--body=It was `broken`; $(touch "
            "owned)\n\nTested."),
        "--head=work", "--base=main", "--draft",
    ]  # fmt: skip
    assert {"refs/heads/work", "refs/notes/fugu"} < set(git(place, "ls-remote", "origin").split())
    (asked,) = server.asked("worker")
    assert ("calc: fix it" in asked.text, "+fixed" in asked.text) == (True, True)
    assert list(place.folder.rglob("owned")) == []


def test_git_that_gh_starts_runs_no_program_of_the_repository(
    place: Place, server: Loopback
) -> None:
    prepared(place, server, "gh")
    monitor, mark = place.folder / "monitor", place.folder / "monitored"
    monitor.write_text(f"#!/bin/sh\necho x > {mark}\n")
    monitor.chmod(0o755)
    (place.folder / "bin" / "gh").write_text("#!/bin/sh\nexec git status\n")
    git(place, "push", "-q", "origin", "work")
    git(place, "config", "core.fsmonitor", str(monitor))
    git(place, "status")
    assert mark.exists(), "git runs what the setting names"
    mark.unlink()
    done = place.fugu("pr", "--yes", "--push")
    assert done.code == 0, done.err
    assert not mark.exists()


def test_glab_is_called_for_gitlab(place: Place, server: Loopback) -> None:
    prepared(place, server, "gh", "glab", host="gitlab")
    assert place.fugu("pr", "--yes", "--push", "--title", "My own").code == 0
    assert called(place)[:5] == ["glab", "mr", "create", "--yes", "--title=My own"]
    assert called(place)[-2:] == ["--source-branch=work", "--target-branch=main"]


def test_a_dry_run_needs_no_program_and_makes_nothing(place: Place, server: Loopback) -> None:
    prepared(place, server)
    done = place.fugu("pr", "--dry-run")
    assert (done.code, done.out) == (
        0,
        "calc: fix the sum\n\nIt was `broken`; $(touch owned)\n\nTested.\n",
    ), done.err
    assert "refs/heads/work" not in git(place, "ls-remote", "origin")


@pytest.mark.parametrize(
    ("before", "given", "said"),
    [
        ((), ("--yes",), "gh was not found"),
        ((), (), "there is no terminal"),
        (("checkout", "-q", "--detach"), ("--yes",), "HEAD is detached"),
        (("switch", "-q", "main"), ("--yes",), "main is the branch to merge into"),
        (
            ("switch", "-qc", "empty", "main"),
            ("--yes",),
            "empty has no commit that origin/main lacks",
        ),
        (("remote", "remove", "origin"), ("--yes",), "there is no remote 'origin'"),
        ((), ("--yes", "--base", "nowhere"), "origin has no branch 'nowhere' here"),
    ],
)
def test_bad_input_is_one_line_before_anything_is_spent(
    place: Place, server: Loopback, before: tuple[str, ...], given: tuple[str, ...], said: str
) -> None:
    prepared(place, server)
    if before:
        git(place, *before)
    done = place.fugu("pr", *given)
    assert (done.code, said in done.err, server.asked("worker")) == (1, True, []), done.err
