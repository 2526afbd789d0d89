"""`fugu commit`: a message written from the diff, trailers and a note that say who wrote what, and git's own commit."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel

from fugu_cli import prompts, wiring
from fugu_cli.cli.agent_answers import AgentQuestion, agent_answer, check_answering
from fugu_cli.cli.current_folder import current_config, current_path, print_clean, say
from fugu_cli.cli.git_flags import CommitFlags
from fugu_cli.cli.history import folder_sessions
from fugu_cli.config.loader import LoadedConfig
from fugu_cli.engine import commit_blame
from fugu_cli.engine.blame import NamedSession
from fugu_cli.engine.commit_blame import CommitBlame
from fugu_cli.errors import FuguError, UsageError
from fugu_cli.tools import commits
from fugu_cli.tools.commits import BlobChange, UserGit
from fugu_cli.tools.workspace import Workspace
from fugu_cli.ui.formatting import flatten, money, plural, sanitize

KEPT_MESSAGE = "FUGU_EDITMSG"
"""In the git folder: the message of the newest try, for one that a hook refuses."""
RECENT = 10
"""Messages of earlier commits that show the repository's style."""


class _Message(BaseModel, extra="forbid"):
    message: str


@dataclass(frozen=True)
class _Pending:
    """What is going to be committed, and by whom it is."""

    git: UserGit
    workspace: Workspace
    sessions: Sequence[NamedSession]
    before: str
    after: str

    def blame(self, after: str) -> CommitBlame:
        """Who wrote what a tree or a commit adds."""
        changed = commits.changed_blobs(self.git, self.before, after)
        names = [name for change in changed for name in (change.before, change.after) if name]
        contents = commits.read_blobs(self.git, names) if self.sessions and names else {}
        return asyncio.run(commit_blame.blame_commit(self.workspace, changed, contents, self.sessions))


def commit(flags: CommitFlags) -> int:
    """Commit what is staged, or what the flags name. Raises UsageError where there is nothing, where git or a hook
    refuses, and where the message would have to be looked at and there is no terminal."""
    edits = not (flags.message or flags.yes or flags.dry_run)
    if flags.message and not "".join(flags.message).strip():
        raise UsageError("the message is empty", hint='give one: fugu commit -m "..."')
    if flags.every and flags.paths:
        raise UsageError("-a and paths exclude one another", hint="-a takes every change of tracked files")
    if edits and not (sys.stdin and sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("the message opens in your editor, and there is no terminal", hint="add --yes, or -m MESSAGE")
    loaded = current_config()
    pending = _pending(loaded, flags)
    message = "\n\n".join(flags.message) if flags.message else _written_message(loaded, pending, flags.agent)
    if flags.dry_run:
        print_clean(message)
        return 0
    found = CommitBlame({}, (), {}) if flags.no_blame else pending.blame(pending.after)
    kept = pending.git.git_dir / KEPT_MESSAGE
    kept.write_bytes(_with_trailers(pending.git, message, found))
    _run_git_commit(pending.git, flags, kept, edits)
    if not flags.no_blame:
        _write_note(pending, found)
    return 0


def _pending(loaded: LoadedConfig, flags: CommitFlags) -> _Pending:
    git = commits.git_in(current_path())
    before = commits.head_tree(git)
    after = commits.tree_to_commit(git, flags.paths or (), flags.every)
    if before == after and not git.said("rev-parse", "-q", "--verify", "MERGE_HEAD"):
        raise UsageError(
            "there is nothing to commit" if flags.every or flags.paths else "nothing is staged",
            hint="stage with `git add`, name paths, or take all changes of tracked files with -a",
        )
    sessions = [] if flags.no_blame else folder_sessions(loaded)
    workspace = wiring.build_workspace(loaded.config, loaded.root)
    return _Pending(git, workspace, sessions, before, after)


def _written_message(loaded: LoadedConfig, pending: _Pending, agent: str | None) -> str:
    """A message by an agent of the pool, without secrets and without what a terminal obeys."""
    check_answering(loaded)
    git = pending.git
    hidden = hidden_paths(loaded, commits.changed_blobs(git, pending.before, pending.after))
    recent = git.said("log", f"-{RECENT}", "--no-show-signature", "--format=%s")
    diff = commits.readable_diff(git, pending.before, pending.after, hidden)
    say("an agent writes the message")
    data = f"Newest messages:\n{recent or '(none)'}\n\nDiff:\n{diff}{named_only(hidden)}"
    asked = AgentQuestion(prompts.load("git/commit"), data, _Message, agent or "")
    answer = asyncio.run(agent_answer(loaded, asked))
    text = sanitize(answer.value.message).strip()
    if not text:
        raise UsageError(f"{answer.agent} wrote an empty message", hint='give one: fugu commit -m "..."')
    return pending.workspace.mask(text) if pending.workspace.mask is not None else text


def hidden_paths(loaded: LoadedConfig, changed: Sequence[BlobChange]) -> list[str]:
    """Those whose contents no agent is shown: a rule keeps agents, or one of them, from reading them."""
    from fugu_cli.safety.path_rules import Denials
    from fugu_cli.safety.policy.rule_matching import read_denial

    root, config = loaded.root, loaded.config
    unread, denials = read_denial(config.deny), Denials(config.deny_agents, root)
    names = {agent for agents in config.deny_agents.values() for agent in agents}
    return [
        one.path
        for one in changed
        if unread((root / one.path).resolve(), root) or any(denials.denied(name, one.path) for name in names)
    ]


def named_only(hidden: Sequence[str]) -> str:
    """What stands in the place of their contents."""
    return f"\nChanged as well, and not to be read by agents: {', '.join(hidden)}\n" if hidden else ""


def _with_trailers(git: UserGit, message: str, found: CommitBlame) -> bytes:
    trailers = [
        f"Fugu-Agent: {flatten(agent)} {plural(lines, 'line')} {_dollars(dollars)}"
        for agent, (lines, dollars) in commit_blame.agent_totals(found.turns).items()
    ]
    words = [word for trailer in trailers for word in ("--trailer", trailer)]
    text = f"{message.strip()}\n".encode("utf-8", "replace")
    return git.run("interpret-trailers", "--no-divider", *words, given=text) if words else text


def _dollars(value: float) -> str:
    """With cents where there are any."""
    return f"${value:.2f}" if value >= 0.01 else money(value)


def _run_git_commit(git: UserGit, flags: CommitFlags, kept: Path, edits: bool) -> None:
    before = git.said("rev-parse", "-q", "--verify", "HEAD")
    if flags.paths:
        git.run("add", "-A", "--", *flags.paths)
    more = ["-e"] if edits else []
    more += ["-a"] if flags.every else ["--", *flags.paths] if flags.paths else []
    code = git.show("commit", "-F", str(kept), *more)
    if code or before == git.said("rev-parse", "-q", "--verify", "HEAD"):
        raise UsageError(
            f"git did not commit (exit code {code}); its reason is above",
            hint=f"the message is kept: git commit -e -F {kept}",
        )
    kept.unlink(missing_ok=True)


def _write_note(pending: _Pending, found: CommitBlame) -> None:
    """Attach the record of who wrote what. Hooks may have changed what was committed: then it is looked at again."""
    commit, tree = pending.git.said("rev-parse", "HEAD"), pending.git.said("rev-parse", "HEAD^{tree}")
    if tree != pending.after:
        found = pending.blame(tree)
    if not found.turns:
        return
    try:
        commits.write_note(pending.git, commit, commit_blame.record_text(found, commit))
    except FuguError as error:
        say(f"{error}; {error.hint}")
        return
    told = [f"{name} {plural(lines, 'line')}" for name, (lines, _) in commit_blame.agent_totals(found.turns).items()]
    say(f"{', '.join(told)}: noted in {commits.NOTES_REF}")
