"""`fugu pr`: title and description written from the commits, and the request made by gh or glab, where they are."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel

from fugu_cli import prompts, wiring
from fugu_cli.cli.agent_answers import AgentQuestion, agent_answer, check_answering
from fugu_cli.cli.commit import hidden_paths, named_only
from fugu_cli.cli.current_folder import current_config, current_path, print_clean, say
from fugu_cli.cli.git_flags import PullRequestFlags
from fugu_cli.config.loader import LoadedConfig
from fugu_cli.errors import UsageError
from fugu_cli.tools import commits
from fugu_cli.tools.commits import UserGit
from fugu_cli.tools.git_repositories import search_path_outside
from fugu_cli.ui.formatting import flatten, sanitize

PROGRAMS = {"gh": "GitHub's gh (https://cli.github.com)", "glab": "GitLab's glab (https://docs.gitlab.com/cli)"}


class _Text(BaseModel, extra="forbid"):
    title: str
    description: str


@dataclass(frozen=True)
class _Branch:
    """What is to be merged: `name` of `remote`, into `base` there. `start`: the commit it left the base at."""

    name: str
    remote: str
    base: str
    start: str


def open_pull_request(flags: PullRequestFlags) -> int:
    """Make it. Raises UsageError where there is nothing to merge, no program that can, or nobody to be asked."""
    asks = not (flags.yes or flags.dry_run)
    if asks and not (sys.stdin and sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("the text is shown before it is sent, and there is no terminal", hint="add --yes or --dry-run")
    loaded = current_config()
    git = commits.git_in(current_path())
    branch = _branch(git, flags.base)
    program = "" if flags.dry_run else _program(git, branch)
    if not flags.dry_run:
        _check_pushed(git, branch, push=flags.push)
    title, text = _written(loaded, git, branch, flags.agent or "")
    title = flatten(flags.title) if flags.title else title
    print_clean(f"{title}\n\n{text}" if text else title)
    if flags.dry_run or (asks and not _agreed(branch)):
        return 0 if flags.dry_run else 4
    return _made(program, branch, (title, text), draft=flags.draft)


def _branch(git: UserGit, base: str | None) -> _Branch:
    name = git.said("symbolic-ref", "-q", "--short", "HEAD")
    if not name:
        raise UsageError("HEAD is detached: there is no branch to merge", hint="`git switch -c NAME` makes one")
    remote = git.said("config", f"branch.{name}.remote").strip(".") or "origin"  # a dot: it follows a branch of here
    if not git.said("remote", "get-url", remote):
        raise UsageError(f"there is no remote {remote!r}", hint="`git remote add origin ADDRESS` adds one")
    told = git.said("symbolic-ref", "-q", "--short", f"refs/remotes/{remote}/HEAD").removeprefix(f"{remote}/")
    known = [one for one in (base, told, "main", "master") if one and _commit(git, f"refs/remotes/{remote}/{one}")]
    if not known or (base and known[0] != base):
        raise UsageError(f"{remote} has no branch {base or 'main'!r} here", hint="name one with --base, or fetch it")
    if known[0] == name:
        raise UsageError(f"{name} is the branch to merge into", hint="`git switch -c NAME` makes another for your work")
    start = git.said("merge-base", f"refs/remotes/{remote}/{known[0]}", "HEAD")
    if not start or start == _commit(git, "HEAD"):
        raise UsageError(f"{name} has no commit that {remote}/{known[0]} lacks", hint="`fugu commit` makes one")
    return _Branch(name, remote, known[0], start)


def _commit(git: UserGit, name: str) -> str:
    return git.said("rev-parse", "-q", "--verify", "--end-of-options", f"{name}^{{commit}}")


def _program(git: UserGit, branch: _Branch) -> str:
    """gh or glab, as the remote's address says, else the one that is there."""
    address = git.said("remote", "get-url", branch.remote).lower()
    wanted = [name for name, host in (("gh", "github"), ("glab", "gitlab")) if host in address] or list(PROGRAMS)
    for name in wanted:
        if found := shutil.which(name, path=search_path_outside(git.top)):
            return found
    raise UsageError(f"{' or '.join(wanted)} was not found", hint=f"install {' or '.join(PROGRAMS[n] for n in wanted)}")


def _check_pushed(git: UserGit, branch: _Branch, *, push: bool) -> None:
    """The remote has what is to be merged. `push`: it gets it, and the notes of who wrote what."""
    if push:
        if git.show("push", "-u", branch.remote, branch.name):
            raise UsageError(f"{branch.name} could not be pushed; git's reason is above")
        if _commit(git, commits.NOTES_REF) and git.try_run("push", branch.remote, commits.NOTES_REF).code:
            say(
                f"{commits.NOTES_REF} was not pushed: {branch.remote} has notes that are not here; fetch and merge them"
            )
    elif _commit(git, f"refs/remotes/{branch.remote}/{branch.name}") != _commit(git, "HEAD"):
        raise UsageError(f"{branch.remote} does not have all of {branch.name}", hint="--push pushes it first")


def _written(loaded: LoadedConfig, git: UserGit, branch: _Branch, agent: str) -> tuple[str, str]:
    """Title and description by an agent of the pool, without secrets and without what a terminal obeys."""
    check_answering(loaded)
    hidden = hidden_paths(loaded, commits.changed_blobs(git, branch.start, "HEAD"))
    messages = git.run("log", "--no-show-signature", "--format=%B", f"{branch.start}..HEAD").decode("utf-8", "replace")
    diff = commits.readable_diff(git, branch.start, "HEAD", hidden) + named_only(hidden)
    say("an agent writes the description")
    asked = AgentQuestion(prompts.load("git/pr"), f"Commits:\n{messages}\n\nDiff:\n{diff}", _Text, agent)
    value = asyncio.run(agent_answer(loaded, asked)).value
    mask = wiring.build_workspace(loaded.config, loaded.root).mask or str
    return flatten(mask(value.title)) or branch.name, sanitize(mask(value.description)).strip()


def _agreed(branch: _Branch) -> bool:
    import typer

    return typer.confirm(f"ask {branch.remote} to merge {branch.name} into {branch.base}?", err=True)


def _made(program: str, branch: _Branch, text: tuple[str, str], *, draft: bool) -> int:
    title, body = text
    if Path(program).name.startswith("glab"):
        words = ["mr", "create", "--yes", f"--title={title}", f"--description={body}"]
        words += [f"--source-branch={branch.name}", f"--target-branch={branch.base}"]
    else:
        words = ["pr", "create", f"--title={title}", f"--body={body}", f"--head={branch.name}", f"--base={branch.base}"]
    done = subprocess.run([program, *words, *(["--draft"] if draft else [])], check=False)
    if done.returncode:
        raise UsageError(f"{Path(program).name} ended with code {done.returncode}; its reason is above")
    return 0
