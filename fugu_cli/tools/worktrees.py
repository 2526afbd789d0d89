"""A copy of the working tree for one agent, and what is taken over from it.

A worktree is a repository of its own in fugu's data folder, made from a snapshot; the user's .git
is not touched. It lacks what git ignores, but for the environments the tests need (links);
repositories inside it are links, too, and so are files too large to be kept in a snapshot. Knows no
agent and no plan.
"""

from __future__ import annotations

import contextlib
import fnmatch
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from fugu_cli.errors import StorageError
from fugu_cli.safety.git_process import own_environment, start_git
from fugu_cli.session.events import FileChange, FileEffects
from fugu_cli.snapshots.git_repositories import (
    GIT_OPTIONS,
    Repository,
    communicate,
)
from fugu_cli.snapshots.snapshot_index import NESTED
from fugu_cli.tools.result import cut_between_marks
from fugu_cli.tools.workspace import Workspace

ENVIRONMENTS = (".venv", "venv", "env", "node_modules")
TEXT = ("utf-8", "surrogateescape")
"""The encoding of file names, which may hold any bytes."""
COPY_MESSAGE = "The files as this copy began, with what was not committed"
DIFF = 20_000
"""Characters of a diff that are kept in the log."""


async def make_worktree(workspace: Workspace, tree: str, folder: Path) -> Workspace:
    """Make the worktree of `tree` at `folder`, or use the one that exists. Raises StorageError."""
    root = folder / "tree"
    if not worktree_exists(folder):
        shutil.rmtree(folder, ignore_errors=True)
        root.mkdir(parents=True)
        await _fill_worktree(workspace, tree, root)
        (folder / "made").write_text(tree, encoding="utf-8")
    worktree = Workspace(
        root,
        folder / "store",
        test_command=workspace.test_command,
        test_timeout=workspace.test_timeout,
        sandbox=workspace.sandbox.at(root) if workspace.sandbox else None,
    )
    worktree.ask_user = workspace.ask_user
    worktree.jobs, worktree.unread, worktree.mask = workspace.jobs, workspace.unread, workspace.mask
    return worktree


def worktree_exists(folder: Path) -> bool:
    """Return whether the worktree exists and is complete."""
    return (folder / "made").exists() and (folder / "tree" / ".git" / "HEAD").exists()


async def _fill_worktree(workspace: Workspace, tree: str, root: Path) -> None:
    """Make a repository at `root` with the files of `tree` as its only commit. It borrows the
    objects of the user's repository and of the store.
    """
    assert workspace.history.snapshots is not None
    repository = workspace.history.snapshots.repository
    init = ["init", "-q", "--template="]
    if workspace.history.hash_name != "sha1":
        init.append(f"--object-format={workspace.history.hash_name}")
    await _git(workspace.root, root, *init)
    git = root / ".git"
    (git / "info").mkdir(exist_ok=True)
    (git / "objects" / "info").mkdir(parents=True, exist_ok=True)
    borrowed = f"{workspace.store / 'objects'}\n{repository.objects}\n"
    (git / "objects" / "info" / "alternates").write_text(borrowed, *TEXT)
    attributes = "* -text -ident -filter -working-tree-encoding\n"
    (git / "info" / "attributes").write_text(attributes, *TEXT)
    await _git(workspace.root, root, "read-tree", tree)
    await _git(workspace.root, root, "checkout-index", "-a", "-q")
    missing = await _remove_nested(workspace, root)
    missing += [name for name in ENVIRONMENTS if not (root / name).exists()]
    rules = _outer_ignore_rules(workspace.root, repository)
    rules += ["/" + re.sub(r"([\\*?\[\s])", r"\\\1", name) for name in missing]
    (git / "info" / "exclude").write_text("".join(f"{rule}\n" for rule in rules), *TEXT)
    tree_id = await _git(workspace.root, root, "write-tree")
    commit_tree = [
        "-c",
        "user.name=fugu",
        "-c",
        "user.email=fugu@localhost",
        "commit-tree",
        tree_id,
    ]
    if head := await _head(workspace):
        commit_tree += ["-p", head]
    commit = await _git(workspace.root, root, *commit_tree, "-m", COPY_MESSAGE)
    await _git(workspace.root, root, "update-ref", "HEAD", commit)
    for name in missing:
        if (workspace.root / name).exists():
            (root / name).symlink_to(workspace.root / name)


async def _head(workspace: Workspace) -> str:
    """Return the commit that the repository has checked out; "" if it has none or its history is
    incomplete (a shallow clone).
    """
    assert workspace.history.snapshots is not None
    repository = workspace.history.snapshots.repository
    if repository.top != workspace.root or (repository.common / "shallow").exists():
        return ""
    try:
        return await _git(workspace.root, workspace.root, "rev-parse", "--verify", "HEAD^{commit}")
    except StorageError:
        return ""


async def _remove_nested(workspace: Workspace, root: Path) -> list[str]:
    """Remove nested repositories and large files from the copy's index, since the tree only names
    them.
    """
    entries = (await _git(workspace.root, root, "ls-files", "-s", "-z")).split("\0")
    names = [entry.partition("\t")[2] for entry in entries if entry.startswith(NESTED)]
    for name in names:
        await _git(workspace.root, root, "update-index", "--force-remove", "--", name)
        with contextlib.suppress(FileNotFoundError):
            (root / name).rmdir()
    return names


def _outer_ignore_rules(root: Path, repository: Repository) -> list[str]:
    """Return git's ignore rules from outside `root`, rewritten for a repository whose top is
    `root`.
    """
    parents = [folder for folder in reversed(root.parents) if folder.is_relative_to(repository.top)]
    files = [
        (repository.top, repository.common / "info" / "exclude"),
        *((parent, parent / ".gitignore") for parent in parents),
    ]
    rules: list[str] = []
    for folder, file in files:
        with contextlib.suppress(OSError):
            lines = file.read_text(*TEXT).splitlines()
            inside = root.relative_to(folder).parts
            rules += [rule for line in lines if (rule := _rule_inside(line, inside))]
    return rules


def _rule_inside(rule: str, folders: Sequence[str]) -> str:
    """Return an ignore rule from the view of the innermost folder, "" if it does not concern files
    there.
    """
    negation, body = ("!", rule[1:]) if rule.startswith("!") else ("", rule)
    if not body.strip() or body.startswith("#"):
        return ""
    if "/" not in body.rstrip("/"):
        return rule
    parts = body.removeprefix("/").split("/")
    for folder in folders:
        if parts[0] == "**":
            return negation + "/".join(parts)
        if not fnmatch.fnmatchcase(folder, parts[0]) or not any(parts[1:]):
            return ""
        parts = parts[1:]
    return f"{negation}/{'/'.join(parts)}"


async def _git(project: Path, root: Path, *arguments: str) -> str:
    """Run git in the worktree at `root`, which has a git folder of its own and needs no
    `git_repositories.Git`. The program comes from outside `project`.
    """
    process = await start_git(
        project, *GIT_OPTIONS, *arguments, environment=own_environment(), cwd=root
    )
    output, errors = await communicate(process)
    if process.returncode:
        reason = errors.decode("utf-8", "replace").strip()
        raise StorageError(
            f"a worktree could not be made in {root}: {reason}",
            hint="check free space with `df -h`",
        )
    return output.decode("utf-8", "surrogateescape").strip()


async def worktree_diff(worktree: Workspace, tree: str) -> str:
    """Return the changes in a worktree since `tree` as a unified diff, cut to a limit."""
    snapshot = await worktree.history.snapshot()
    if not snapshot:
        return ""
    diff = (await worktree.patch(tree, snapshot)).decode("utf-8", "replace")
    if len(diff) <= DIFF:
        return diff
    end = cut_between_marks(diff, DIFF)
    return f"{diff[:end]}\n[... {len(diff) - end} characters left out ...]\n"


async def worktree_changes(
    worktree: Workspace, workspace: Workspace, tree: str
) -> tuple[FileChange, ...]:
    """Return the changes in a worktree since `tree`. Their contents are kept in the repository's
    own store.
    """
    snapshot = await worktree.history.snapshot()
    changes = (await worktree.history.effects_between(tree, snapshot)).changes if snapshot else ()
    for change in changes:
        if change.after is not None:
            workspace.history.keep(await worktree.history.blob(change.after))
    return changes


async def apply_changes(
    workspace: Workspace, changes: Sequence[FileChange]
) -> tuple[tuple[FileChange, ...], tuple[str, ...]]:
    """Make changes in the repository. Return those that were made, and the paths that were left
    alone because they have been changed or something is in the way.

    A file that is already as it should be counts as made, so that it is safe to run this again.
    """
    inverse = FileEffects(tuple(changes)).back  # taking this back makes the changes
    with contextlib.suppress(StorageError):
        await workspace.history.take_back(inverse)
    remaining = workspace.history.standing(inverse)
    left = {*remaining.conflicts, *(change.path for change in remaining.effects.changes)}
    return tuple(change for change in changes if change.path not in left), tuple(sorted(left))


def remove_worktree(folder: Path) -> None:
    """Remove the worktree. Its work is in the log and the store."""
    with contextlib.suppress(OSError):
        shutil.rmtree(folder)
