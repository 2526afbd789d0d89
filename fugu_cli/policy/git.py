"""What a git command does: reads, changes the repository in a way git can take back, or needs a yes every time.

Stands beside commands.py. Publishing, and throwing away work or history, needs the yes.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence

from fugu_cli.policy.commands import READS, RUNS, Finding, Level, given
from fugu_cli.policy.tables import names_of

READING = names_of(
    "status diff log show blame annotate ls-files ls-tree rev-parse rev-list describe shortlog cat-file name-rev "
    "merge-base whatchanged count-objects cherry range-diff grep for-each-ref show-ref version check-ignore check-attr "
    "diff-tree diff-index diff-files verify-commit verify-tag"
)
QUIET_OPTIONS = frozenset({"--no-pager", "-P", "--no-optional-locks", "--literal-pathspecs", "-C", "--version"})
VALUED = names_of("-C -c --git-dir --work-tree --namespace --config-env --super-prefix --attr-source")
"""Options before the subcommand whose value may be a word of its own."""

_LOSES = Finding(Level.EVERY, "it throws away work or history")
_PUBLISHES = Finding(Level.EVERY, "it publishes")
_CONFIGURES = Finding(Level.EVERY, "it changes what git does here")


def after_options(arguments: Sequence[str]) -> list[str]:
    """git's subcommand and what follows it, without the options before it."""
    rest = list(arguments)
    while rest and rest[0].startswith("-"):
        if rest.pop(0) in VALUED and rest:
            rest.pop(0)
    return rest


def judge_git(arguments: Sequence[str]) -> Finding:
    """`arguments` after `git`, all of them static."""
    rest = after_options(arguments)
    before = arguments[: len(arguments) - len(rest)]
    found = _subcommand(rest[0], rest[1:]) if rest else READS
    return max(_changed(before), found, key=lambda finding: finding.level)


def _changed(options: Sequence[str]) -> Finding:
    """What the options before the subcommand do to it."""
    if any("alias." in option for option in options):
        return Finding(Level.EVERY, "it gives a git command another meaning")
    values = {index + 1 for index, option in enumerate(options) if option == "-C"}
    odd = (o for index, o in enumerate(options) if index not in values and o not in QUIET_OPTIONS)
    option = next(odd, None)
    return READS if option is None else Finding(Level.RUNS, f"`git {option}` changes what git does")


def _subcommand(name: str, rest: Sequence[str]) -> Finding:
    if name in READING:
        return _reading(name, rest)
    return SPECIAL[name](rest) if name in SPECIAL else RUNS


def _reading(name: str, rest: Sequence[str]) -> Finding:
    programs = ("--output", "--ext-diff", "--textconv", "--open-files-in-pager", "--exec", "--upload-pack")
    letters = "O" if name == "grep" else ""
    if given(rest, letters, *programs):
        return Finding(Level.RUNS, f"with these options `git {name}` does more than read")
    return READS


def _only(reads: frozenset[str], *, bare: bool = True) -> Callable[[Sequence[str]], Finding]:
    """Reads when every argument is one of `reads` (or there is none)."""

    def judged(rest: Sequence[str]) -> Finding:
        return READS if (rest or bare) and set(rest) <= reads else RUNS

    return judged


def _branch(rest: Sequence[str]) -> Finding:
    if given(rest, "dDMCf", "--delete", "--force"):
        return _LOSES
    listing = {"-a", "-r", "-v", "-vv", "-l", "--all", "--list", "--show-current", "--remotes", "--no-color"}
    return READS if set(rest) <= listing or "--show-current" in rest or "--list" in rest[:1] else RUNS


def _tag(rest: Sequence[str]) -> Finding:
    if given(rest, "df", "--delete", "--force"):
        return _LOSES
    return READS if not rest or rest[0] in {"-l", "--list", "-n"} else RUNS


def _reset(rest: Sequence[str]) -> Finding:
    return _LOSES if given(rest, "", "--hard", "--merge", "--keep") else RUNS


def _clean(rest: Sequence[str]) -> Finding:
    return RUNS if given(rest, "n", "--dry-run") else _LOSES


def _checkout(rest: Sequence[str]) -> Finding:
    discards = given(rest, "fpB", "--force", "--patch", "--ours", "--theirs", "--pathspec-from-file")
    plain = [word for word in rest if not word.startswith("-")]
    of_a_commit = len(plain) > 1 and not given(rest, "bt", "--orphan", "--track")  # the files behind it
    named = any(word == "--" or "." in word or word.endswith("/") for word in rest)
    return _LOSES if discards or named or of_a_commit else RUNS


def _restore(rest: Sequence[str]) -> Finding:
    return RUNS if "--staged" in rest and not given(rest, "W", "--worktree") else _LOSES


def _switch(rest: Sequence[str]) -> Finding:
    return _LOSES if given(rest, "fC", "--force", "--discard-changes", "--force-create") else RUNS


def _stash(rest: Sequence[str]) -> Finding:
    if set(rest[:1]) & {"drop", "clear"}:
        return _LOSES
    return READS if set(rest[:1]) & {"list", "show"} else RUNS


def _commit(rest: Sequence[str]) -> Finding:
    return _LOSES if given(rest, "", "--amend") else RUNS


def _remote(rest: Sequence[str]) -> Finding:
    rest = list(itertools.dropwhile(lambda word: word in {"-v", "--verbose"}, rest))
    if not rest or rest[0] == "get-url":
        return READS
    if rest[0] == "show":
        return READS if "-n" in rest else Finding(Level.RUNS, "it asks the remote repository")
    return _CONFIGURES


def _config(rest: Sequence[str]) -> Finding:
    named = rest[1:] if set(rest[:1]) & {"--get", "get"} else rest
    return READS if len(named) == 1 and re.fullmatch(r"\w[\w-]*\..+", named[0]) else _CONFIGURES


def _reflog(rest: Sequence[str]) -> Finding:
    return _LOSES if set(rest) & {"expire", "delete"} else READS


def _worktree(rest: Sequence[str]) -> Finding:
    if rest[:1] == ["list"]:
        return READS
    return _LOSES if set(rest[:1]) & {"remove", "prune"} else RUNS


SPECIAL: dict[str, Callable[[Sequence[str]], Finding]] = {
    "branch": _branch,
    "tag": _tag,
    "reset": _reset,
    "clean": _clean,
    "checkout": _checkout,
    "restore": _restore,
    "switch": _switch,
    "stash": _stash,
    "commit": _commit,
    "remote": _remote,
    "config": _config,
    "reflog": _reflog,
    "worktree": _worktree,
    "submodule": _only(frozenset({"status", "summary"})),
    "notes": _only(frozenset({"list", "show"})),
    **dict.fromkeys(("push", "send-pack", "http-push", "send-email", "request-pull"), lambda rest: _PUBLISHES),
    **dict.fromkeys(
        ("subtree", "lfs", "svn", "p4"),
        lambda rest: _PUBLISHES if {"push", "dcommit", "submit"} & set(rest[:1]) else RUNS,
    ),
    **dict.fromkeys(
        ("rebase", "filter-branch", "filter-repo", "update-ref", "gc", "prune", "replace"),
        lambda rest: _LOSES,
    ),
}
