"""What the configuration of a repository has git start is started by no look that fugu takes."""

from __future__ import annotations

import json
import subprocess
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
    git(inner, *who, "commit", "-q", "--allow-empty", "-m", "start")
    git(place.repo, "add", "inner")
    place.files({".gitattributes": "*.txt filter=Evil diff=Evil\n", "note.txt": "one\n"})
    place.commit()
    place.files({"note.txt": "two\n", "new.txt": "new\n"})
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
        for folder in (place.repo, inner):
            git(folder, "config", name, f"echo {name} >> {mark}; false")
    git(place.repo, "config", "filter.Evil.required", "true")
    hook = place.repo / ".git" / "hooks" / "post-index-change"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\necho hook >> {mark}\n")
    hook.chmod(0o755)
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
    place: Place, server: Loopback, planted: Path, words: tuple[str, ...]
) -> None:
    place.configure(Agent("worker"))
    answer = Says(
        json.dumps({"message": "Change the note."} if "commit" in words else {"findings": []})
    )
    server.play("worker", answer, answer)
    place.fugu(*words)
    assert not planted.exists(), planted.read_text()


@pytest.mark.parametrize("flags", [(), ("--worktree=apart",)])
def test_a_request_and_what_follows_it_start_none_of_its_programs(
    place: Place, server: Loopback, planted: Path, flags: tuple[str, ...]
) -> None:
    place.configure(Agent("worker"))
    write = Use("write", {"path": "note.txt", "content": "three\n"})
    server.play("worker", Says("", (write,)), Says("Done."))
    steps: list[tuple[str, ...]] = [("doctor",), ("trust",), ("run", *flags, "change the note")]
    for words in (*steps, ("diff",), ("undo",), ("doctor",)):
        place.fugu(*words)
        assert not planted.exists(), (words, planted.read_text())


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
