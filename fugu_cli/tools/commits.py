"""The user's repository as the user's own git sees it: what a commit would hold, the commit, its
notes.

Hooks, filters, signing and the user's configuration count here, unlike in git_repositories.py.
Nothing is staged that was not named. Knows no agent and no session.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fugu_cli.errors import FuguError, UsageError
from fugu_cli.snapshots.git_repositories import (
    GIT_LOCAL_VARIABLES,
    GitOutput,
    find_repository,
    git_program,
)
from fugu_cli.system import temp_dirs

NOTES_REF = "refs/notes/fugu"
PLAIN_DIFF = ("--no-ext-diff", "--no-textconv", "--no-color", "--no-relative")
SUBMODULE = "160000"
LARGEST_TEXT = 4 << 20
"""Bytes of a file whose lines are looked at."""


@dataclass(frozen=True)
class BlobChange:
    """A file that differs between two trees. `before` and `after` are blobs, "" where there is no
    such file.
    """

    path: str
    before: str
    after: str


@dataclass(frozen=True)
class UserGit:
    """git in `cwd`, a folder of the working tree at `top`."""

    top: Path
    cwd: Path
    git_dir: Path

    def try_run(self, *arguments: str, given: bytes | None = None, **variables: str) -> GitOutput:
        """Run git to its end. Raises UsageError when git is missing."""
        done = subprocess.run(
            [self.program, *arguments], cwd=self.cwd, env=_environment() | variables, input=given or b"",
            capture_output=True, check=False,
        )  # fmt: skip
        return GitOutput(
            done.returncode, done.stdout, done.stderr.decode("utf-8", "replace").strip()
        )

    def run(self, *arguments: str, given: bytes | None = None, **variables: str) -> bytes:
        """Its output. Raises UsageError with git's words when it fails."""
        done = self.try_run(*arguments, given=given, **variables)
        if done.code:
            raise UsageError(f"git {arguments[0]} failed: {done.err or f'exit code {done.code}'}")
        return done.out

    def show(self, *arguments: str) -> int:
        """Run git with the terminal as its own: it may ask, open an editor, or sign. Returns its
        exit code.
        """
        return subprocess.run(
            [self.program, *arguments], cwd=self.cwd, env=_environment(), check=False
        ).returncode

    def said(self, *arguments: str) -> str:
        """One line of its output, "" where it fails."""
        done = self.try_run(*arguments)
        return "" if done.code else done.out.decode("utf-8", "replace").strip()

    @property
    def program(self) -> str:
        found = git_program(self.top)
        if found is None:
            raise UsageError("git was not found", hint="install git and make sure it is on PATH")
        return found


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in GIT_LOCAL_VARIABLES}


def git_in(cwd: Path) -> UserGit:
    """git in the repository that holds `cwd`. Raises UsageError where there is none."""
    found = find_repository(cwd.resolve())
    if found is None:
        raise UsageError(f"{cwd} is not in a git repository", hint="`git init` makes one")
    return UserGit(found.top, cwd, found.folder)


def head_tree(git: UserGit) -> str:
    """The tree of HEAD; the empty one before the first commit."""
    return git.said("rev-parse", "-q", "--verify", "HEAD^{tree}") or git.said(
        "hash-object", "-t", "tree", "--stdin"
    )


def tree_to_commit(git: UserGit, paths: Sequence[str], every: bool) -> str:
    """The tree that `git commit` would commit: with PATHS, with -a (`every`), or as it is staged.
    Raises UsageError.
    """
    if paths:
        return _tree_of_index(git, "add", "-A", "--", *paths, fresh=True)
    return _tree_of_index(git, *(["add", "-u", ":/"] if every else []))


def working_tree(git: UserGit) -> str:
    """The tree of all files as they are now, new ones too, but for what git ignores. Raises
    UsageError.
    """
    return _tree_of_index(git, "add", "-A", ":/")


def _tree_of_index(git: UserGit, *change: str, fresh: bool = False) -> str:
    """The tree of a copy of the user's index, of HEAD's where it is `fresh`, after one more change.
    Raises UsageError with git's reason."""
    with temp_dirs.temp_dir("index") as folder:
        index = folder / "index"
        if fresh:
            git.run("read-tree", head_tree(git), GIT_INDEX_FILE=str(index))
        elif (git.git_dir / "index").is_file():
            shutil.copyfile(git.git_dir / "index", index)
        if change:
            git.run(*change, GIT_INDEX_FILE=str(index))
        return git.run("write-tree", GIT_INDEX_FILE=str(index)).decode().strip()


def changed_blobs(git: UserGit, before: str, after: str) -> list[BlobChange]:
    """The files and links that differ between two trees or commits; no submodules."""
    fields = git.run("diff-tree", "-r", "-z", "--no-renames", "--full-index", before, after).split(
        b"\0"
    )
    found = []
    for head, name in zip(fields[::2], fields[1::2], strict=False):
        modes, ids = head.decode().lstrip(":").split()[:2], head.decode().split()[2:4]
        if SUBMODULE not in modes:
            found.append(
                BlobChange(os.fsdecode(name), *("" if set(id) == {"0"} else id for id in ids))
            )
    return found


def read_blobs(git: UserGit, names: Sequence[str]) -> dict[str, bytes]:
    """Contents by id, without those that are too large to be anybody's lines."""
    asked = "".join(f"{name}\n" for name in dict.fromkeys(names)).encode()
    sizes = (
        line.split()
        for line in git.run("cat-file", "--batch-check", given=asked).decode().splitlines()
    )
    small = [name for name, _, size in sizes if int(size) <= LARGEST_TEXT]
    out, at, found = (
        git.run("cat-file", "--batch", given="".join(f"{name}\n" for name in small).encode()),
        0,
        {},
    )
    for name in small:
        end = out.index(b"\n", at)
        size = int(out[at:end].split()[-1])
        found[name] = out[end + 1 : end + 1 + size]
        at = end + size + 2
    return found


def readable_diff(git: UserGit, before: str, after: str, hidden: Sequence[str] = ()) -> str:
    """The unified diff between two trees or commits, without the files in `hidden`."""
    without = [f":(exclude,top,literal){path}" for path in hidden]
    out = git.run("diff", *PLAIN_DIFF, "-M", before, after, "--", ":/", *without)
    return out.decode("utf-8", "replace")


def write_note(git: UserGit, commit: str, text: str) -> None:
    """Attach a note of fugu's to a commit, in the place of an older one. Raises FuguError."""
    done = git.try_run(
        "notes", f"--ref={NOTES_REF}", "add", "-f", "-F", "-", commit, given=text.encode()
    )
    if done.code:
        raise FuguError(
            f"the note of {commit[:12]} could not be written: {done.err}",
            hint="the commit itself is there",
        )
