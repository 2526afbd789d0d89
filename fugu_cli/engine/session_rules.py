"""The place and rules of a session, as agents read them with each request.

Recorded in `Asked.rules` when the request comes, so that a prompt is a function of the log. Git
status, files and date are those of that moment. A later request shows only what has changed
(message_history.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import time
from collections.abc import Sequence
from pathlib import Path

from fugu_cli.engine.environment import Environment
from fugu_cli.errors import FuguError
from fugu_cli.formatting import plural
from fugu_cli.safety.git_process import (
    NO_FETCH,
    git_program,
    repository_programs_off,
    run_git,
    users_environment,
)
from fugu_cli.safety.paths import quoted_path
from fugu_cli.safety.policy import Rules
from fugu_cli.safety.policy.decisions import CallClass, Decision, decide
from fugu_cli.safety.sandbox.command_sandbox import Sandbox
from fugu_cli.snapshots.git_repositories import find_repository

GIT_SECONDS = 2.0
"""A repository whose status takes longer is described without it."""
MOST_ENTRIES = 40
"""Entries of the top folder that are listed."""
MOST_CHANGED = 10
"""Changed files that are named."""
MOST_USER_RULES = 300
"""Characters of the user's own rules."""
FILE_TOOLS = "read, write, edit, apply_patch, list, glob and grep"
"""The tools that read and write files outside of the sandbox."""

WORDS = {
    CallClass.EDIT: "editing files of the repository",
    CallClass.TESTS: "the detected tests (run_tests)",
    CallClass.CHECK: "acceptance checks",
    CallClass.COMMAND: "other commands",
    CallClass.BUILD_FILE: "files that builds and tests run",
    CallClass.OUTSIDE: (
        "whatever leaves the repository, uses the network, writes git history, touches secrets, "
        "or writes files that other programs run by themselves (.git, hooks, CI, editor settings)"
    ),
    CallClass.FOREIGN_TOOL: "tools of MCP servers",
    CallClass.LOST: "what undo cannot bring back",
}
"""The classes of the table in `fugu help permissions`, but for reading, which always runs."""


async def session_rules(
    environment: Environment, *, has_copies: bool, has_foreign_tools: bool
) -> tuple[tuple[str, str], ...]:
    """Return what agents are told, as pairs of a name and a text, with the disk as it is now.

    `has_copies`: a turn may work in a copy of the repository.
    """
    return await asyncio.to_thread(_session_rules, environment, has_copies, has_foreign_tools)


def _session_rules(
    environment: Environment, has_copies: bool, has_foreign_tools: bool
) -> tuple[tuple[str, str], ...]:
    workspace, root = environment.workspace, environment.workspace.root
    copies = "; some steps are done in a copy of it, so use relative paths" if has_copies else ""
    rules = [("Folder", quoted_path(str(root)) + copies)]
    if environment.denials is None:  # names may be kept from some agents
        rules += [("Git", git_state(root)), ("Files", _files(root))]
    date = time.strftime("%A, %Y-%m-%d")
    rules.append(("Machine", f"{platform.system()} {platform.machine()}; {date}"))
    command = workspace.test_command
    rules.append(("Tests", f"`{command}`" if command else "no test command was found"))
    rules += mode_rules(environment, has_foreign_tools=has_foreign_tools)
    if own := _user_rules(environment.rules):
        rules.append(("User's rules", own))
    return tuple(rules)


def mode_rules(environment: Environment, *, has_foreign_tools: bool) -> tuple[tuple[str, str], ...]:
    """Return the rules that the permission mode decides, as pairs of a name and a text."""
    workspace = environment.workspace
    confinement = "bash runs what only reads"
    if environment.current_rules.mode != "plan":
        confinement = _confinement(workspace.sandbox)
    mode = _mode(environment, workspace.sandbox_holds, has_foreign_tools)
    return (("Mode", mode), ("Commands", confinement))


def git_state(root: Path) -> str:
    """Return the branch and what differs from its last commit. Nothing that the repository names is
    run.
    """
    repository = find_repository(root)
    if repository is None:
        return "no git repository"
    if git_program(root) is None:
        return "git is not installed"
    environment = {**users_environment(), **NO_FETCH, "GIT_OPTIONAL_LOCKS": "0"}
    words = ["status", "--porcelain=v1", "--branch", "-z", "--ignore-submodules=all"]
    try:
        options = repository_programs_off(repository.top, environment)
        output = run_git(
            repository.top,
            *options,
            *words,
            environment=environment,
            cwd=root,
            seconds=GIT_SECONDS,
        )
    except (OSError, FuguError):
        return "the status could not be read"
    if output.code:
        return "the status could not be read"
    head, *entries = os.fsdecode(output.out).split("\0")
    branch = head.removeprefix("## ").removeprefix("No commits yet on ").partition("...")[0]
    shown = "no branch" if branch.startswith("HEAD (") else f"branch {quoted_path(branch)}"
    changed = _changed_files(entries)
    if not changed:
        return f"{shown}, clean"
    names = ", ".join(changed[:MOST_CHANGED])
    more = f" and {len(changed) - MOST_CHANGED} more" if len(changed) > MOST_CHANGED else ""
    return f"{shown}; not committed: {names}{more}"


def _changed_files(entries: Sequence[str]) -> list[str]:
    """Return the files of a short status as `M path`; the old name of one that was renamed is left
    out.
    """
    changed = []
    remaining = iter(entries)
    for entry in remaining:
        if len(entry) > 3:
            changed.append(f"{entry[:2].strip()} {quoted_path(entry[3:])}")
            if "R" in entry[:2] or "C" in entry[:2]:
                next(remaining, None)
    return changed


def _files(root: Path) -> str:
    """Return the entries of the top folder, folders first and with a slash."""
    entries = []
    with contextlib.suppress(OSError), os.scandir(root) as scanned:
        entries = [(entry.name, entry.is_dir()) for entry in scanned if entry.name != ".git"]
    entries.sort(key=lambda entry: (not entry[1], entry[0]))
    names = [quoted_path(name) + "/" * is_folder for name, is_folder in entries]
    more = f" and {len(names) - MOST_ENTRIES} more" if len(names) > MOST_ENTRIES else ""
    return (" ".join(names[:MOST_ENTRIES]) or "none") + more


def _mode(environment: Environment, holds: bool, has_foreign_tools: bool) -> str:
    """Return what the mode runs, asks about and refuses, from the one table of decisions."""
    mode = environment.current_rules.mode
    if mode == "yolo":
        return "yolo: everything runs unasked, but for what a rule denies"
    runs, asked, refused = ["reading"], [], []
    for call_class, words in WORDS.items():
        if call_class is CallClass.FOREIGN_TOOL and not has_foreign_tools:
            continue
        match decide(mode, call_class, sandbox_holds=holds, somebody_to_ask=True):
            case Decision.RUN:
                runs.append(words)
            case Decision.ASK:
                asked.append(words)
            case Decision.REFUSE:
                refused.append(words)
    if len(runs) == 1 and not asked:
        return f"{mode}. Runs: reading. Refused: all else that writes, runs or fetches"
    sentences = [f"{mode}. Runs: {', '.join(runs)}"]
    if asked:
        answer = "The user is asked about"
        if not environment.somebody_to_ask:
            answer = "Refused, for nobody can be asked"
        sentences.append(f"{answer}: {', '.join(asked)}")
    if refused:
        sentences.append(f"Refused: {', '.join(refused)}")
    return ". ".join(sentences)


def _confinement(sandbox: Sandbox | None) -> str:
    """Return what commands can reach, and where they may leave scratch files."""
    if sandbox is None or sandbox.mechanism.kind == "none":
        return "bash, run_tests and acceptance checks are not confined: they run with the user's own rights"
    network = "with the network" if sandbox.settings.network else "without network"
    folder = "/tmp" if sandbox.mechanism.has_private_mounts else "$TMPDIR"
    more = [str(path) for path in sandbox.settings.writable]
    scratch = f"{folder} (private, for scratch files; {FILE_TOOLS} do not reach it)"
    places = ["the repository", *map(quoted_path, more), scratch]
    return (
        f"bash, run_tests and acceptance checks run in a sandbox, {network}; they write at most in "
        f"{', '.join(places)}"
    )


def _user_rules(rules: Rules) -> str:
    """Return the user's own rules, if they are few."""
    kinds = (("allowed", rules.allow), ("asked about", rules.ask), ("denied", rules.deny))
    text = "; ".join(f"{word}: {', '.join(patterns)}" for word, patterns in kinds if patterns)
    if len(text) <= MOST_USER_RULES:
        return text
    counts = [plural(len(patterns), f"rule {word}") for word, patterns in kinds if patterns]
    return ", ".join(counts)
