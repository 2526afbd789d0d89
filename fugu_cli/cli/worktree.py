"""`--worktree`: a session in a git worktree of its own, and its work brought back to where fugu was
called.

What cannot be brought back whole stays where it is, and a line says where. Nothing is committed,
merged or pushed.
"""

from __future__ import annotations

import os
import re
import secrets
import shlex
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from fugu_cli.cli.current_folder import current_config, current_path, say
from fugu_cli.cli.flags import InterfaceFlags, RunFlags
from fugu_cli.config import trust
from fugu_cli.errors import StorageError, UsageError
from fugu_cli.formatting import plural
from fugu_cli.session import store
from fugu_cli.session.log import Log
from fugu_cli.tools import commits
from fugu_cli.tools.commits import UserGit
from fugu_cli.tools.worktrees import ENVIRONMENTS

PATHS = ("prompt_file", "output_dir", "mcp_config", "json_schema", "script", "add_dirs")
"""Flags that name files, from the folder where fugu was called."""
UNFINISHED = 3
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,60}")
CACHES = (
    "__pycache__",
    ".pytest_cache",
    ".mypy_cache",
    ".ruff_cache",
    ".hypothesis",
    *ENVIRONMENTS,
)
"""Ignored names that are no work: a worktree that holds no others may be removed."""


@dataclass(frozen=True)
class OpenWorktree:
    """A worktree that fugu works in.

    `main_repo` is the repository that it belongs to, `base` the commit at which it began, and
    `data` the folder of sessions. It is `trusted` if it has exactly the files that the user trusts
    in the repository.
    """

    name: str
    main_repo: UserGit
    worktree_repo: UserGit
    base: str
    trusted: bool
    data: Path

    @property
    def branch(self) -> str:
        return f"fugu/{self.name}"

    @property
    def where(self) -> str:
        return f"{self.worktree_repo.top} (branch {self.branch})"


SomeFlags = TypeVar("SomeFlags", RunFlags, InterfaceFlags)


def work_in_worktree(
    flags: SomeFlags,
    start: Callable[[SomeFlags], int],
    brings_back: Callable[[int], bool],
    refused: Callable[[UsageError], None] = lambda _: None,
) -> int:
    """Call `start` with the flags inside the worktree that they name, and return its exit code.

    `brings_back` decides by that code whether the work is brought back. `refused` gets the error if
    there can be no worktree. Raises what `start` raises.
    """
    paths: dict[str, Any] = {}
    for name in PATHS:
        path = _absolute(getattr(flags, name, None))
        if path is not None:
            paths[name] = path
    try:
        worktree = enter_worktree(flags.worktree or "")
    except UsageError as error:
        refused(error)
        raise
    code = UNFINISHED
    try:
        trust = flags.trust or worktree.trusted
        code = start(replace(flags, worktree=None, trust=trust, **paths))
    finally:
        bring_back(worktree, lambda: brings_back(code), finished=code == 0)
    return code


def _absolute(value: Any) -> Any:
    """Return a path, or each of a list, as an absolute one of the same type. JSON text, an empty
    text and None stay unchanged.
    """
    if isinstance(value, list):
        return [_absolute(item) for item in value]
    if not value or (isinstance(value, str) and value.lstrip().startswith("{")):
        return value
    return type(value)(Path(value).expanduser().absolute())


def asks_to_bring_back(code: int) -> bool:
    """Ask the user whether to bring the work here."""
    import typer

    del code
    return typer.confirm("bring the work here?", err=True)


def enter_worktree(name: str) -> OpenWorktree:
    """Make the worktree `name`, or continue in an existing one, and change into it. "" makes up a
    name.

    Raises UsageError outside git, before the first commit, and if git cannot make it.
    """
    main_repo = commits.git_in(current_path())
    head = main_repo.read_line("rev-parse", "-q", "--verify", "HEAD")
    if not head:
        raise UsageError(
            "a worktree begins at a commit, and there is none yet", hint="commit something first"
        )
    name = name or f"{time.strftime('%m%d-%H%M%S')}-{secrets.token_hex(2)}"
    branch = f"fugu/{name}"
    if not NAME.fullmatch(name) or main_repo.try_run("check-ref-format", "--branch", branch).code:
        raise UsageError(
            f"{name!r} is no name for a worktree", hint="letters, digits, dots and dashes"
        )
    folder = main_repo.top.parent / f"{main_repo.top.name}.worktrees" / name
    if not (folder / ".git").exists():
        if main_repo.read_line("rev-parse", "-q", "--verify", f"refs/heads/{branch}"):
            main_repo.run("worktree", "add", str(folder), branch)
        else:
            main_repo.run("worktree", "add", str(folder), "-b", branch, head)
        _link_environments(main_repo.top, folder)
    worktree_repo = commits.git_in(folder)
    base = worktree_repo.read_line("merge-base", "HEAD", head) or head
    loaded = current_config()
    trusted = trust.holds_what_is_trusted(loaded.trust_data, main_repo.top, folder)
    worktree = OpenWorktree(name, main_repo, worktree_repo, base, trusted, loaded.config.data)
    say(f"working in {worktree.where}, from {base[:12]}")
    uncommitted = main_repo.read_line("status", "--porcelain")
    if uncommitted:
        count = plural(len(uncommitted.splitlines()), "change")
        say(f"{count} in {main_repo.top} not committed: the worktree has none of them")
    below = folder / main_repo.cwd.resolve().relative_to(main_repo.top)
    os.chdir(below if below.is_dir() else folder)
    return worktree


def _link_environments(top: Path, folder: Path) -> None:
    """Link ignored folders that tests need. A link that git would not ignore is removed."""
    for name in ENVIRONMENTS:
        if (top / name).is_dir() and not os.path.lexists(folder / name):
            (folder / name).symlink_to(top / name)
            if commits.git_in(folder).try_run("check-ignore", "-q", name).code:
                (folder / name).unlink()


def bring_back(worktree: OpenWorktree, wants_back: Callable[[], bool], *, finished: bool) -> None:
    """Put the work into the files where fugu was called, as uncommitted changes, and remove the
    worktree.

    It stays if `wants_back` says no, if the work was committed or does not fit, and if nothing was
    done yet in a session that has not `finished`.
    """
    os.chdir(worktree.main_repo.cwd)
    name, top = shlex.quote(worktree.name), shlex.quote(str(worktree.worktree_repo.top))
    if worktree.worktree_repo.read_line("rev-parse", "HEAD") != worktree.base:
        rest = (
            " and changes that are not committed"
            if worktree.worktree_repo.read_line("status", "--porcelain")
            else ""
        )
        say(
            f"the work is in {worktree.where}: it has commits{rest}. `git merge {worktree.branch}` "
            f"brings the commits here"
        )
        return
    after = commits.working_tree(worktree.worktree_repo)
    patch = worktree.worktree_repo.run(
        "diff",
        *commits.PLAIN_DIFF,
        "--binary",
        "--full-index",
        "--no-renames",
        worktree.base,
        after,
    )
    begun = not finished and store.session_paths(worktree.data, worktree.worktree_repo.top)
    if not patch and not begun:
        _remove(worktree, "nothing was changed")
        return
    if not patch or not wants_back():
        say(f"the work is in {worktree.where}, and was not brought here:")
        say(
            f"`fugu --worktree={name} --continue` goes on there, `git -C {top} diff "
            f"{worktree.base[:12]}` shows it"
        )
        return
    done = UserGit(
        worktree.main_repo.top, worktree.main_repo.top, worktree.main_repo.git_dir
    ).try_run("apply", "--whitespace=nowarn", stdin=patch)
    if done.code:
        why = done.err.splitlines()[0] if done.err else f"exit code {done.code}"
        say(f"the work does not fit to the files here ({why}) and stays in {worktree.where}.")
        say(
            f"Commit it there (`cd {top} && fugu commit .`), then `git merge {worktree.branch}` here"
        )
        return
    _remove(worktree, "the work was brought here, as changes that are not committed")


def _remove(worktree: OpenWorktree, message: str) -> None:
    """Remove the worktree and its branch if nothing is lost. Its sessions move to the repository."""
    status = worktree.worktree_repo.try_run("status", "--porcelain", "-z", "--ignored").out.split(
        b"\0"
    )
    ignored = [os.fsdecode(entry[3:]) for entry in status if entry.startswith(b"!!")]
    others = [path for path in ignored if Path(path.rstrip("/")).name not in CACHES]
    if others:
        say(f"{message}; files that git ignores stay in {worktree.where}: {', '.join(others[:3])}")
        return
    moved: list[Path] = []
    try:
        moved = _move_sessions(worktree)
    except (StorageError, OSError) as error:
        say(f"its sessions stay those of {worktree.worktree_repo.top}: {error}")
    done = worktree.main_repo.try_run(
        "worktree", "remove", "--force", str(worktree.worktree_repo.top)
    )
    if done.code:
        say(f"{message}; the worktree stays in {worktree.where}: {done.err}")
        return
    worktree.main_repo.try_run("branch", "-D", worktree.branch)
    with suppress(OSError):
        worktree.worktree_repo.top.parent.rmdir()
    say(message)
    for path in moved:
        say(f"log: {path}")


def _move_sessions(worktree: OpenWorktree) -> list[Path]:
    """Move the sessions to the repository, so that trace, blame and commit find them. Return their
    paths. Raises StorageError, OSError.
    """
    data, all_moved = worktree.data, list[Path]()
    for path in store.session_paths(data, worktree.worktree_repo.top):
        moved = store.move_session(data, worktree.main_repo.top, path)
        all_moved.append(moved)
        log = Log.open(moved)
        try:
            if (opened := log.state.opened) is not None:
                log.append(opened.model_copy(update={"repo": str(worktree.main_repo.top)}))
        finally:
            log.close()
    source, target = (
        data / "snapshots" / store.session_folder(data, git.top).name
        for git in (worktree.worktree_repo, worktree.main_repo)
    )
    own = ("index*", "*.lock", *(("config", "info", "HEAD") if (target / "HEAD").exists() else ()))
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns(*own), dirs_exist_ok=True)
    return all_moved
