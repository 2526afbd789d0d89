"""`fugu commit`: a message written from the diff, trailers and a note that say who wrote what, and
git's own commit. `fugu pr`: title and description written from the commits, and the request made by
gh or glab, where they are.
"""

from __future__ import annotations

import asyncio
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel

from fugu_cli import prompts, wiring
from fugu_cli.cli.agent_answers import AgentQuestion, agent_answer, check_answering
from fugu_cli.cli.command_flags import CommitFlags, PullRequestFlags
from fugu_cli.cli.current_folder import current_config, current_path, print_clean, say
from fugu_cli.cli.history import folder_sessions
from fugu_cli.cli.interface import has_terminal
from fugu_cli.config.loader import LoadedConfig
from fugu_cli.coordinators.conductor.step_context import clip_middle
from fugu_cli.engine import commit_blame
from fugu_cli.engine.blame import NamedSession
from fugu_cli.engine.commit_blame import CommitBlame
from fugu_cli.errors import FuguError, UsageError
from fugu_cli.formatting import flatten, money, plural, sanitize
from fugu_cli.safety.git_process import NO_PROGRAMS, settings_variables
from fugu_cli.safety.programs import find_program, program_environment
from fugu_cli.session.state import SessionState
from fugu_cli.tools import commits
from fugu_cli.tools.commits import BlobChange, UserGit
from fugu_cli.tools.workspace import Workspace

KEPT_MESSAGE = "FUGU_EDITMSG"
"""In the git folder: the message of the newest try, for one that a hook refuses."""
NAMED = 5
"""Files that an error names."""
RECENT = 10
"""Messages of earlier commits that show the repository's style."""
LONGEST_REQUEST, MOST_REQUESTS = 600, 8
"""Characters of a request, and requests, that the writer of a message is shown."""
PROGRAMS = {
    "gh": "GitHub's gh (https://cli.github.com)",
    "glab": "GitLab's glab (https://docs.gitlab.com/cli)",
}


class _Message(BaseModel, extra="forbid"):
    message: str


@dataclass(frozen=True)
class _Pending:
    """The staged changes and the sessions that may have written them."""

    git: UserGit
    workspace: Workspace
    sessions: Sequence[NamedSession]
    before: str
    after: str

    def blame(self, after: str) -> CommitBlame:
        """Return the authors of the lines that a tree or a commit adds."""
        changed = commits.changed_blobs(self.git, self.before, after)
        blobs = {blob for change in changed for blob in (change.before, change.after) if blob}
        contents = commits.read_blobs(self.git, sorted(blobs)) if self.sessions and blobs else {}
        return asyncio.run(
            commit_blame.blame_commit(self.workspace, changed, contents, self.sessions)
        )


def commit(flags: CommitFlags) -> int:
    """Commit the staged changes, or those that the flags name. Raises UsageError if there are none,
    if git or a hook refuses, or if the user has to see the message and there is no terminal.
    """
    opens_editor = not flags.message and not flags.yes and not flags.dry_run
    if flags.message and not "".join(flags.message).strip():
        raise UsageError("the message is empty", hint='give one: fugu commit -m "..."')
    if flags.every and flags.paths:
        raise UsageError(
            "-a and paths exclude one another", hint="-a takes every change of tracked files"
        )
    if opens_editor and not has_terminal():
        raise UsageError(
            "the message opens in your editor, and there is no terminal",
            hint="add --yes, or -m MESSAGE",
        )
    loaded = current_config()
    pending = _find_pending(loaded, flags)
    if flags.message:
        message = "\n\n".join(flags.message)
    else:
        message = _write_message(loaded, pending, flags.agent)
    if flags.dry_run:
        print_clean(message)
        return 0
    blame = CommitBlame({}, (), {}) if flags.no_blame else pending.blame(pending.after)
    trailers: list[str] = []
    for agent, (lines, dollars) in commit_blame.agent_totals(blame.turns).items():
        trailer = f"Fugu-Agent: {flatten(agent)} {plural(lines, 'line')} {_dollars(dollars)}"
        trailers += ["--trailer", trailer]
    text = f"{message.strip()}\n".encode("utf-8", "replace")
    if trailers:
        text = pending.git.run("interpret-trailers", "--no-divider", *trailers, stdin=text)
    message_file = pending.git.git_dir / KEPT_MESSAGE
    message_file.write_bytes(text)
    _run_git_commit(pending.git, flags, message_file, opens_editor)
    if not flags.no_blame:
        _write_note(pending, blame)
    return 0


def _find_pending(loaded: LoadedConfig, flags: CommitFlags) -> _Pending:
    """Return the changes to commit.

    Raises UsageError if there are none, for unresolved conflicts, and for conflict marks in files.
    """
    git = commits.git_in(current_path())
    before = commits.head_tree(git)
    takes_index = not flags.every and not flags.paths
    unresolved = commits.unresolved_paths(git) if takes_index else ()
    if unresolved:
        raise UsageError(
            f"a merge left conflicts in {_names(unresolved)}",
            hint="resolve them, then stage with `git add`, or take all changes with -a",
        )
    after = commits.tree_to_commit(git, flags.paths or (), flags.every)
    if before == after and not git.read_line("rev-parse", "-q", "--verify", "MERGE_HEAD"):
        if takes_index:
            raise UsageError(
                "nothing is staged",
                hint="stage with `git add`, name paths, or take all changes of tracked files "
                "with -a",
            )
        raise UsageError(
            "there is nothing to commit",
            hint="new files are taken by `git add`, or by their names",
        )
    marked = commits.conflict_marked_paths(git, before, after)
    if marked:
        raise UsageError(
            f"there are conflict marks (<<<<<<<) in {_names(marked)}",
            hint="resolve them first; where they are meant, `git commit` takes them",
        )
    sessions = [] if flags.no_blame else folder_sessions(loaded)
    workspace = wiring.build_workspace(loaded.config, loaded.root)
    return _Pending(git, workspace, sessions, before, after)


def _names(paths: Sequence[str]) -> str:
    more = len(paths) - NAMED
    return ", ".join(paths[:NAMED]) + (f" and {plural(more, 'other file')}" if more > 0 else "")


def _write_message(loaded: LoadedConfig, pending: _Pending, agent: str | None) -> str:
    """Let an agent write the message. Return it without secrets and control characters."""
    check_answering(loaded)
    git = pending.git
    hidden = hidden_paths(loaded, commits.changed_blobs(git, pending.before, pending.after))
    recent = git.read_line("log", f"-{RECENT}", "--no-show-signature", "--format=%s")
    diff = commits.readable_diff(git, pending.before, pending.after, hidden)
    say("an agent writes the message")
    requests = "\n\n".join(_requests_of_lines(pending))
    data = (
        f"Newest messages:\n{recent or '(none)'}\n\n"
        f"What agents were asked that wrote lines of the diff:\n{requests or '(nothing)'}\n\n"
        f"Diff:\n{diff}{named_only(hidden)}"
    )
    question = AgentQuestion(prompts.load("git/commit"), data, _Message, agent or "")
    answer = asyncio.run(agent_answer(loaded, question))
    text = sanitize(answer.value.message).strip()
    if not text:
        raise UsageError(
            f"{answer.agent} wrote an empty message", hint='give one: fugu commit -m "..."'
        )
    return pending.workspace.mask(text)


def _requests_of_lines(pending: _Pending) -> list[str]:
    """Return the requests in which agents wrote lines of the staged change, oldest first."""
    shares = pending.blame(pending.after).turns
    places = {(share.cost.session, share.cost.request) for share in shares if share.lines}
    texts = []
    for name, records in pending.sessions:
        requests = SessionState.of_records(records).requests
        for number, request in enumerate(requests, start=1):
            if (name, number) in places and request.asked is not None:
                texts.append(f"- {clip_middle(request.asked.wanted, LONGEST_REQUEST)}")
    return texts[-MOST_REQUESTS:]


def hidden_paths(loaded: LoadedConfig, changed: Sequence[BlobChange]) -> list[str]:
    """Return the changed paths that some agent must not read."""
    from fugu_cli.safety.path_rules import Denials
    from fugu_cli.safety.policy.rule_matching import read_denial

    root, config = loaded.root, loaded.config
    is_unreadable = read_denial(config.deny)
    denials = Denials(config.deny_agents, root)
    agents = set[str]().union(*config.deny_agents.values())
    hidden = []
    for change in changed:
        is_denied = any(denials.denied(agent, change.path) for agent in agents)
        if is_denied or is_unreadable((root / change.path).resolve(), root):
            hidden.append(change.path)
    return hidden


def named_only(hidden: Sequence[str]) -> str:
    """Return the lines that name hidden files instead of their contents."""
    return (
        f"\nChanged as well, and not to be read by agents: {', '.join(hidden)}\n" if hidden else ""
    )


def _dollars(value: float) -> str:
    """Return an amount, rounded to cents if it has any."""
    return f"${value:.2f}" if value >= 0.01 else money(value)


def _run_git_commit(git: UserGit, flags: CommitFlags, kept: Path, edits: bool) -> None:
    before = git.read_line("rev-parse", "-q", "--verify", "HEAD")
    if flags.paths:
        git.as_the_user().run(*commits.add_command(git), "--", *flags.paths)
    scope: list[str] = []
    if flags.every:
        scope = ["-a"]
    elif flags.paths:
        scope = ["--", *flags.paths]
    code = git.show("commit", *(["-e"] if edits else []), "-F", str(kept), *scope)
    if code or before == git.read_line("rev-parse", "-q", "--verify", "HEAD"):
        again = shlex.join(["git", "commit", "-e", "-F", str(kept), *scope])
        raise UsageError(
            f"git did not commit (exit code {code}); its reason is above",
            hint=f"the message is kept: {again}",
        )
    kept.unlink(missing_ok=True)


def _write_note(pending: _Pending, blame: CommitBlame) -> None:
    """Attach the record of the authors to the commit. If hooks have changed the commit, its authors
    are looked up again.
    """
    commit, tree = (
        pending.git.read_line("rev-parse", "HEAD"),
        pending.git.read_line("rev-parse", "HEAD^{tree}"),
    )
    if tree != pending.after:
        blame = pending.blame(tree)
    if not blame.turns:
        return
    try:
        commits.write_note(pending.git, commit, commit_blame.record_text(blame, commit))
    except FuguError as error:
        say(f"{error}; {error.hint}")
        return
    shares = [
        f"{name} {plural(lines, 'line')}"
        for name, (lines, _) in commit_blame.agent_totals(blame.turns).items()
    ]
    say(f"{', '.join(shares)}: noted in {commits.NOTES_REF}")


class _Text(BaseModel, extra="forbid"):
    title: str
    description: str


@dataclass(frozen=True)
class _Branch:
    """A branch to merge into `base` on `remote`. `start` is the commit where it left the base."""

    name: str
    remote: str
    base: str
    start: str


def open_pull_request(flags: PullRequestFlags) -> int:
    """Open a pull or merge request.

    Raises UsageError if there is nothing to merge, no program that can do it, or nobody to ask.
    """
    asks = not flags.yes and not flags.dry_run
    if asks and not has_terminal():
        raise UsageError(
            "the text is shown before it is sent, and there is no terminal",
            hint="add --yes or --dry-run",
        )
    loaded = current_config()
    git = commits.git_in(current_path())
    branch = _current_branch(git, flags.base)
    program = ""
    if not flags.dry_run:
        program = _find_program(git, branch)
        _check_pushed(git, branch, push=flags.push)
    title, text = _write_description(loaded, git, branch, flags.agent or "")
    if flags.title:
        title = flatten(flags.title)
    print_clean(f"{title}\n\n{text}" if text else title)
    if flags.dry_run:
        return 0
    if asks and not _confirm(branch):
        return 4
    return _create_request(git, program, branch, title, text, draft=flags.draft)


def _current_branch(git: UserGit, base: str | None) -> _Branch:
    name = git.read_line("symbolic-ref", "-q", "--short", "HEAD")
    if not name:
        raise UsageError(
            "HEAD is detached: there is no branch to merge", hint="`git switch -c NAME` makes one"
        )
    # The remote is "." if the branch follows one of the same repository.
    remote = git.read_line("config", f"branch.{name}.remote").strip(".") or "origin"
    if not git.read_line("remote", "get-url", remote):
        raise UsageError(
            f"there is no remote {remote!r}", hint="`git remote add origin ADDRESS` adds one"
        )
    default = git.read_line(
        "symbolic-ref", "-q", "--short", f"refs/remotes/{remote}/HEAD"
    ).removeprefix(f"{remote}/")
    bases = [
        candidate
        for candidate in (base, default, "main", "master")
        if candidate and _commit_id(git, f"refs/remotes/{remote}/{candidate}")
    ]
    if not bases or (base and bases[0] != base):
        raise UsageError(
            f"{remote} has no branch {base or 'main'!r} here",
            hint="name one with --base, or fetch it",
        )
    if bases[0] == name:
        raise UsageError(
            f"{name} is the branch to merge into",
            hint="`git switch -c NAME` makes another for your work",
        )
    start = git.read_line("merge-base", f"refs/remotes/{remote}/{bases[0]}", "HEAD")
    if not start or start == _commit_id(git, "HEAD"):
        raise UsageError(
            f"{name} has no commit that {remote}/{bases[0]} lacks", hint="`fugu commit` makes one"
        )
    return _Branch(name, remote, bases[0], start)


def _commit_id(git: UserGit, name: str) -> str:
    return git.read_line("rev-parse", "-q", "--verify", "--end-of-options", f"{name}^{{commit}}")


def _find_program(git: UserGit, branch: _Branch) -> str:
    """Return gh or glab: the one that fits the remote's address, else the one that is installed."""
    address = git.read_line("remote", "get-url", branch.remote).lower()
    names = [
        name for name, host in (("gh", "github"), ("glab", "gitlab")) if host in address
    ] or list(PROGRAMS)
    for name in names:
        if path := find_program(name, git.top):
            return path
    raise UsageError(
        f"{' or '.join(names)} was not found",
        hint=f"install {' or '.join(PROGRAMS[n] for n in names)}",
    )


def _check_pushed(git: UserGit, branch: _Branch, *, push: bool) -> None:
    """Check that the remote has the branch. `push`: push it first, with the notes of authors."""
    if push:
        if git.show("push", "-u", branch.remote, branch.name):
            raise UsageError(f"{branch.name} could not be pushed; git's reason is above")
        if _commit_id(git, commits.NOTES_REF) and git.show(
            "push", "--quiet", branch.remote, commits.NOTES_REF
        ):
            say(
                f"{commits.NOTES_REF} was not pushed: {branch.remote} has notes that are not "
                f"here; fetch and merge them"
            )
    elif _commit_id(git, f"refs/remotes/{branch.remote}/{branch.name}") != _commit_id(git, "HEAD"):
        raise UsageError(
            f"{branch.remote} does not have all of {branch.name}", hint="--push pushes it first"
        )


def _write_description(
    loaded: LoadedConfig, git: UserGit, branch: _Branch, agent: str
) -> tuple[str, str]:
    """Let an agent write title and description. Return them without secrets and control characters."""
    check_answering(loaded)
    hidden = hidden_paths(loaded, commits.changed_blobs(git, branch.start, "HEAD"))
    messages = git.run("log", "--no-show-signature", "--format=%B", f"{branch.start}..HEAD").decode(
        "utf-8", "replace"
    )
    diff = commits.readable_diff(git, branch.start, "HEAD", hidden) + named_only(hidden)
    say("an agent writes the description")
    question = AgentQuestion(
        prompts.load("git/pr"), f"Commits:\n{messages}\n\nDiff:\n{diff}", _Text, agent
    )
    value = asyncio.run(agent_answer(loaded, question)).value
    mask = wiring.build_workspace(loaded.config, loaded.root).mask
    return flatten(mask(value.title)) or branch.name, sanitize(mask(value.description)).strip()


def _confirm(branch: _Branch) -> bool:
    import typer

    return typer.confirm(
        f"ask {branch.remote} to merge {branch.name} into {branch.base}?", err=True
    )


def _create_request(
    git: UserGit, program: str, branch: _Branch, title: str, body: str, *, draft: bool
) -> int:
    if Path(program).name.startswith("glab"):
        words = ["mr", "create", "--yes", f"--title={title}", f"--description={body}"]
        words += [f"--source-branch={branch.name}", f"--target-branch={branch.base}"]
    else:
        words = ["pr", "create", f"--title={title}", f"--body={body}"]
        words += [f"--head={branch.name}", f"--base={branch.base}"]
    if draft:
        words.append("--draft")
    environment = {
        **program_environment(git.top),
        **settings_variables(*NO_PROGRAMS, *git.programs_off),
    }
    done = subprocess.run([program, *words], env=environment, check=False)
    if done.returncode:
        raise UsageError(
            f"{Path(program).name} ended with code {done.returncode}; its reason is above"
        )
    return 0
