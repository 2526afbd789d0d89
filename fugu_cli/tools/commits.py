"""The user's repository as the user's own git sees it: what a commit would hold, the commit, its
notes.

The user's own configuration counts here, unlike in git_repositories.py. What the repository's own
names (hooks, filters, file monitors, textconv, external diffs) runs only in the commit itself and
in a push. Nothing is staged that was not named. Knows no agent and no session.
"""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from fugu_cli.errors import FuguError, UsageError
from fugu_cli.safety.git_process import (
    NO_FETCH,
    GitOutput,
    repository_programs_off,
    run_git,
    show_git,
    users_environment,
)
from fugu_cli.safety.programs import use_repositories
from fugu_cli.snapshots.git_repositories import find_repository
from fugu_cli.system import temp_dirs

NOTES_REF = "refs/notes/fugu"
PLAIN_DIFF = ("--no-ext-diff", "--no-textconv", "--no-color", "--no-relative")
SUBMODULE = "160000"
LARGEST_TEXT = 4 << 20
"""Bytes of a file whose lines are looked at."""
FATAL = 128
"""The exit code of a git that could not do its work."""
FETCH_SECONDS = 5.0
"""Time in which a remote must send what a partial clone lacks."""
_CONFLICT = re.compile(rb"^(?:<{7,}|\|{7,}|>{7,})(?: |\r?$)", re.MULTILINE)
"""The marks of a conflict but for `=======`, which may underline a title."""


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
    """git with the user's own configuration, in `cwd`, a folder of the working tree at `top`.
    `git_repositories.Git` is for fugu's own store, with no configuration but ours.
    """

    top: Path
    cwd: Path
    git_dir: Path
    looks_only: bool = True
    """`run` and `try_run` start nothing that the repository names."""

    def try_run(self, *arguments: str, stdin: bytes = b"", **variables: str) -> GitOutput:
        """Run git to its end. It fetches only where a partial clone lacks what it needs. Raises
        UsageError when git is missing, and when the remote does not send that in time.
        """
        output = self._run(arguments, stdin, {**NO_FETCH, **variables})
        if output.code == FATAL and self._is_partial_clone():
            return self._run(arguments, stdin, variables, seconds=FETCH_SECONDS)
        return output

    def run(self, *arguments: str, stdin: bytes = b"", **variables: str) -> bytes:
        """Run git and return its output. Raises UsageError with git's message if it fails, and the
        errors of `try_run`.
        """
        output = self.try_run(*arguments, stdin=stdin, **variables)
        if output.code:
            reason = output.err or f"exit code {output.code}"
            raise UsageError(f"git {arguments[0]} failed: {reason}")
        return output.out

    def _run(
        self,
        arguments: Sequence[str],
        stdin: bytes,
        variables: Mapping[str, str],
        seconds: float | None = None,
    ) -> GitOutput:
        try:
            return run_git(
                self.top,
                *(self.programs_off if self.looks_only else ()),
                *arguments,
                environment={**users_environment(), **variables},
                cwd=self.cwd,
                stdin=stdin,
                seconds=seconds,
                as_the_user=not self.looks_only,
            )
        except TimeoutError as error:
            raise UsageError(
                f"the remote did not send what this partial clone lacks within {seconds:g} s",
                hint="check the network; `git diff` over the same change fetches it, however long it takes",
            ) from error

    def _is_partial_clone(self) -> bool:
        return not self._run(["config", "--get-regexp", r"^remote\..*\.promisor$"], b"", {}).code

    def show(self, *arguments: str) -> int:
        """Run git with the terminal as its own: it may ask, open an editor, sign, or run the
        repository's hooks, as when the user types the command. Returns its exit code.
        """
        return show_git(self.top, *arguments, cwd=self.cwd)

    def read_line(self, *arguments: str) -> str:
        """Return the one-line output of a git command, "" if it fails."""
        output = self.try_run(*arguments)
        return "" if output.code else output.out.decode("utf-8", "replace").strip()

    def as_the_user(self) -> UserGit:
        """Return git with the repository's own filters, for what is committed."""
        return replace(self, looks_only=False)

    @cached_property
    def programs_off(self) -> tuple[str, ...]:
        """Options with which git starts no program that the repository's configuration names."""
        return repository_programs_off(self.top, users_environment())


def git_in(cwd: Path) -> UserGit:
    """Return git in the repository that holds `cwd`. Raises UsageError if there is none."""
    repository = find_repository(cwd.resolve())
    if repository is None:
        raise UsageError(f"{cwd} is not in a git repository", hint="`git init` makes one")
    git = UserGit(repository.top, cwd, repository.folder)
    use_repositories(git, repository.top)
    return git


def head_tree(git: UserGit) -> str:
    """Return the tree of HEAD, the empty tree before the first commit."""
    return git.read_line("rev-parse", "-q", "--verify", "HEAD^{tree}") or git.read_line(
        "hash-object", "-t", "tree", "--stdin"
    )


def tree_to_commit(git: UserGit, paths: Sequence[str], every: bool) -> str:
    """Return the tree that `git commit` would commit: with PATHS, with -a (`every`), or as staged.
    Raises UsageError.
    """
    if paths:
        return _tree_of_index(git, *add_command(git), "--", *paths, fresh=True)
    return _tree_of_index(git, *(["add", "-u", ":/"] if every else []))


def working_tree(git: UserGit) -> str:
    """Return the tree of all present files that git does not ignore. Raises UsageError."""
    return _tree_of_index(git, *add_command(git), ":/")


def add_command(git: UserGit) -> list[str]:
    """Return the words of `git add -A` that take files outside a sparse checkout, too."""
    is_sparse = git.read_line("config", "--type=bool", "core.sparseCheckout") == "true"
    return ["add", "-A", *(["--sparse"] if is_sparse else [])]


def unresolved_paths(git: UserGit) -> list[str]:
    """Return the files that a merge, rebase or cherry-pick left to be resolved."""
    entries = git.run("ls-files", "--unmerged", "--full-name", "-z", "--", ":/").split(b"\0")
    return list(dict.fromkeys(os.fsdecode(entry.split(b"\t", 1)[1]) for entry in entries if entry))


def conflict_marked_paths(git: UserGit, before: str, after: str) -> list[str]:
    """Return the files to which the change between two trees adds the marks of a conflict.

    `git diff --check` alone passes over files that .gitattributes keeps out of diffs, as many
    repositories do with lock files. Those, too, are merged as text.
    """
    report = os.fsdecode(git.try_run("diff", *PLAIN_DIFF, "--check", before, after).out)
    flagged = set(re.findall(r"^(.*):\d+: leftover conflict marker$", report, re.MULTILINE))
    changes = [change for change in changed_blobs(git, before, after) if change.after]
    blobs = [blob for change in changes for blob in (change.before, change.after) if blob]
    contents = read_blobs(git, blobs)
    marked = []
    for change in changes:
        if change.after not in contents:  # too large to be read
            adds_marks = change.path in flagged
        else:
            marks_before = _conflict_marks(contents.get(change.before, b""))
            adds_marks = bool(_conflict_marks(contents[change.after]) - marks_before)
        if adds_marks:
            marked.append(change.path)
    return marked


def _conflict_marks(text: bytes) -> Counter[bytes]:
    """Count the conflict marks of a text, each with the lines up to the next one, so that a new
    conflict is not taken for an earlier one.
    """
    starts = [match.start() for match in _CONFLICT.finditer(text)]
    counts: Counter[bytes] = Counter()
    for start, end in zip(starts, [*starts[1:], len(text)], strict=False):
        part = text[start:end]
        if part.startswith(b">"):  # nothing of the conflict follows the last mark
            part = part.splitlines()[0]
        counts[part] += 1
    return counts


def _tree_of_index(git: UserGit, *change: str, fresh: bool = False) -> str:
    """Return the tree of a copy of the user's index (of HEAD's if `fresh`) after one change. Raises
    UsageError with git's message.
    """
    with temp_dirs.temp_dir("index") as folder:
        index = folder / "index"
        if fresh:
            git.run("read-tree", head_tree(git), GIT_INDEX_FILE=str(index))
        elif (git.git_dir / "index").is_file():
            shutil.copy2(git.git_dir / "index", index)  # its time tells git which files to reread
        if change:
            git.run(*change, GIT_INDEX_FILE=str(index))
        return git.run("write-tree", GIT_INDEX_FILE=str(index)).decode().strip()


def changed_blobs(git: UserGit, before: str, after: str) -> list[BlobChange]:
    """Return the files and links that differ between two trees or commits; no submodules."""
    output = git.run("diff-tree", "-r", "-z", "--no-renames", "--full-index", before, after)
    fields = output.split(b"\0")
    changes = []
    for head, name in zip(fields[::2], fields[1::2], strict=False):
        old_mode, new_mode, *ids, _ = head.decode().lstrip(":").split()
        if SUBMODULE not in (old_mode, new_mode):
            old, new = ("" if set(blob) == {"0"} else blob for blob in ids)
            changes.append(BlobChange(os.fsdecode(name), old, new))
    return changes


def read_blobs(git: UserGit, names: Sequence[str]) -> dict[str, bytes]:
    """Return contents by id, without those that are too large to be anybody's lines, or that a
    partial clone does not have.
    """
    requested = "".join(f"{name}\n" for name in dict.fromkeys(names)).encode()
    listing = git.run("cat-file", "--batch-check", stdin=requested).decode().splitlines()
    sizes = [line.split() for line in listing if not line.endswith(" missing")]
    small = [name for name, _, size in sizes if int(size) <= LARGEST_TEXT]
    output = git.run("cat-file", "--batch", stdin="".join(f"{name}\n" for name in small).encode())
    contents = {}
    position = 0
    for name in small:
        line_end = output.index(b"\n", position)
        size = int(output[position:line_end].split()[-1])
        contents[name] = output[line_end + 1 : line_end + 1 + size]
        position = line_end + size + 2
    return contents


def readable_diff(git: UserGit, before: str, after: str, hidden: Sequence[str] = ()) -> str:
    """Return the unified diff between two trees or commits, without the files in `hidden`."""
    exclusions = [f":(exclude,top,literal){path}" for path in hidden]
    diff = git.run("diff", *PLAIN_DIFF, "-M", before, after, "--", ":/", *exclusions)
    return diff.decode("utf-8", "replace")


def write_note(git: UserGit, commit: str, text: str) -> None:
    """Attach a note of fugu's to a commit, in the place of an older one. Raises FuguError."""
    output = git.try_run(
        "notes", f"--ref={NOTES_REF}", "add", "-f", "-F", "-", commit, stdin=text.encode()
    )
    if output.code:
        raise FuguError(
            f"the note of {commit[:12]} could not be written: {output.err}",
            hint="the commit itself is there",
        )
