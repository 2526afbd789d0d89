"""What the configuration of a repository has git start is started by no look that fugu takes, and
no program of a repository is taken for one that fugu needs.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.acceptance.driving import Agent, Place
from tests.acceptance.loopback import Loopback, Says, Use


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def planted(place: Place) -> Path:
    """Programs of every kind in the configuration of the repository and of one inside it; each
    leaves its name in the file that is returned."""
    mark = place.folder / "mark"
    inner = place.repo / "inner"
    inner.mkdir()
    git(inner, "init", "-q")
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    (inner / ".gitattributes").write_text("*.txt filter=Inner diff=Inner\n")
    (inner / "own.txt").write_text("one\n")
    git(inner, "add", "-A")
    git(inner, *who, "commit", "-q", "-m", "start")
    git(place.repo, "add", "inner")
    place.files({".gitattributes": "*.txt filter=Evil diff=Evil\n", "note.txt": "one\n"})
    place.commit()
    place.files({"note.txt": "two\n", "new.txt": "new\n"})
    (inner / "own.txt").write_text("two\n")
    for name in (
        "core.fsmonitor",
        "core.pager",
        "diff.external",
        "filter.Evil.clean",
        "filter.Evil.smudge",
        "filter.Evil.process",
        "diff.Evil.textconv",
        "diff.Evil.command",
        "trailer.x.command",
        "core.sshCommand",
    ):
        git(place.repo, "config", name, f"echo {name} >> {mark}; false")
        own_name = name.replace("Evil", "Inner")
        git(inner, "config", own_name, f"echo inner {own_name} >> {mark}; false")
    git(place.repo, "config", "filter.Evil.required", "true")
    hook = place.repo / ".git" / "hooks" / "post-index-change"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\necho hook >> {mark}\n")
    hook.chmod(0o755)
    return mark


@pytest.fixture
def started(place: Place) -> Path:
    """A git that comes first on PATH and writes the words of each call into the file that is
    returned, a line each.
    """
    log, program = place.folder / "started", place.folder / "programs" / "git"
    program.parent.mkdir()
    program.write_text(
        f"#!/bin/sh\necho \"$*\" | tr '\\n' ' ' >> {log}\necho >> {log}\n"
        f'exec {shutil.which("git")} "$@"\n'
    )
    program.chmod(0o755)
    place.variables["PATH"] = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    return log


@pytest.fixture
def programs(place: Place) -> Path:
    """A folder of the repository comes first on PATH, with programs that write their name into the
    file that is returned, which no command in the sandbox can, before they do what is theirs.
    """
    mark, folder = place.folder / "started-by-name", place.repo / "bin"
    folder.mkdir()
    for name in (
        *(
            "git",
            "gcc",
            "rg",
            "bwrap",
            "sh",
            "bash",
            "env",
            "python",
            "python3",
            "gh",
            "glab",
            "uv",
        ),
        *("uname", "ssh", "gpg", "less", "vi", "vim", "nano", "notify", "xclip", "wl-paste"),
        *("gopls", "pyright-langserver", "typescript-language-server", "browser", "status"),
    ):
        program = folder / name
        program.write_text(
            f'#!/bin/sh\n(echo {name} "$*" >> {mark}) 2> {os.devnull}\n'
            f'exec {shutil.which(name) or "/bin/true"} "$@"\n'
        )
        program.chmod(0o755)
    (place.repo / "deep").mkdir()
    hook = {"type": "command", "command": "uname"}
    (place.home / ".agents").mkdir()
    (place.home / ".agents" / "hooks.json").write_text(
        json.dumps({"hooks": {"Stop": [{"hooks": [hook]}]}})
    )
    path = place.variables.get("PATH", os.environ["PATH"])
    place.variables["PATH"] = f"{folder}{os.pathsep}{path}"
    return mark


@pytest.mark.parametrize(
    "words",
    [
        ("review",),
        ("review", "--base", "HEAD"),
        ("commit", "-a", "--dry-run"),
        ("blame", "note.txt"),
    ],
)
def test_looking_at_a_repository_starts_none_of_its_programs(
    place: Place, server: Loopback, planted: Path, programs: Path, words: tuple[str, ...]
) -> None:
    place.configure(Agent("worker"))
    answer = Says(
        json.dumps({"message": "Change the note."} if "commit" in words else {"findings": []})
    )
    server.play("worker", answer, answer)
    place.fugu(*words)
    assert not planted.exists(), planted.read_text()
    assert not programs.exists(), programs.read_text()


def test_a_program_that_cannot_be_turned_off_stops_the_look(
    place: Place, server: Loopback, planted: Path
) -> None:
    place.configure(Agent("worker"))
    place.files({".gitattributes": "*.txt filter=a=b\n"})
    with (place.repo / ".git" / "config").open("a") as config:
        config.write(f'[filter "a=b"]\n\tclean = echo other >> {planted}\n')
    done = place.fugu("review")
    assert "filter.a=b.clean starts a program and cannot be turned off" in done.err
    assert not planted.exists(), planted.read_text()


@pytest.mark.parametrize("flags", [(), ("--worktree=apart",)])
def test_a_request_and_what_follows_it_start_none_of_its_programs(
    place: Place,
    server: Loopback,
    planted: Path,
    started: Path,
    programs: Path,
    flags: tuple[str, ...],
) -> None:
    place.configure(Agent("worker"))
    write = Use("write", {"path": "note.txt", "content": "three\n"})
    server.play("worker", Says("", (write,)), Says("Done."))
    steps: list[tuple[str, ...]] = [("doctor",), ("trust",), ("run", *flags, "change the note")]
    after: list[tuple[str, ...]] = [("sessions",), ("trace",), ("blame", "note.txt"), ("diff",)]
    last = [("undo",), ("login", "openai", "--no-check"), ("update",), ("doctor",)]
    for words in (*steps, *after, *last):
        place.fugu(*words, stdin=b"key\n", folder=place.repo / "deep")
        assert not planted.exists(), (words, planted.read_text())
        assert not programs.exists(), (words, programs.read_text())
    calls = started.read_text().splitlines()
    assert calls
    for options in ("core.fsmonitor=false", "core.hooksPath=/dev/null", "core.pager=cat"):
        assert [call for call in calls if options not in call] == []


def test_the_interface_starts_none_of_its_programs(place: Place, planted: Path) -> None:
    place.configure(Agent("worker"))
    place.variables.update(TERM="xterm-256color", COLUMNS="100", LINES="30")
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        [place.python, "-m", "fugu_cli"],
        cwd=place.repo,
        env=place.environ(),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    screen = b""
    try:
        while b"fugu" not in screen:
            screen += os.read(ours, 65536)
        time.sleep(1)  # what it asks git, it asks while the first screen is shown
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert not planted.exists(), planted.read_text()


def test_a_commit_runs_the_repositorys_filters_and_hooks_as_git_does(
    place: Place, server: Loopback
) -> None:
    place.configure(Agent("worker"))
    place.files({".gitattributes": "*.txt filter=upper\n", "note.txt": "one\n"})
    git(place.repo, "config", "filter.upper.clean", "tr a-z A-Z")
    git(place.repo, "add", "-A")
    done = place.fugu("commit", "-m", "Add a note.")
    assert done.code == 0, done.err
    shown = subprocess.run(
        ["git", "show", "HEAD:note.txt"], cwd=place.repo, capture_output=True, text=True, check=True
    )
    assert shown.stdout == "ONE\n"
