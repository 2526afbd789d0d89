"""git commands by their effect: they read, write history, lose work, publish or destroy.

Stands above shell_line.py. A word that is no git command is looked up as an alias in the files
that git would read; git itself is never asked. Other settings or another repository can run
anything.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fugu_cli.safety.git_configuration import git_folder_at, git_settings
from fugu_cli.safety.policy.shell_line import Command, Word, names_of, parse_line

READING = names_of(
    "status diff log show blame annotate ls-files ls-tree rev-parse rev-list describe shortlog "
    "cat-file name-rev merge-base count-objects cherry range-diff grep for-each-ref show-ref "
    "version check-ignore check-attr diff-tree diff-index diff-files whatchanged"
)
"""Subcommands that only read with the options below."""
READING_OPTIONS = names_of(
    "abbrev abbrev-commit abbrev-ref absolute-git-dir after all ancestry-path author before "
    "branch branches cached cc cherry-pick children color color-words committer contains count "
    "cumulative get get-all global local "
    "date decorate deleted diff-algorithm diff-filter dirstat exact-match exclude exclude-standard "
    "exit-code extended-regexp files-with-matches find-renames first-parent fixed-strings follow "
    "format full-history full-name full-tree function-context git-common-dir git-dir graph grep "
    "heads histogram ignore-all-space ignore-blank-lines ignore-case ignore-space-at-eol "
    "ignore-space-change ignore-submodules ignored invert-grep invert-match is-ancestor "
    "is-bare-repository is-inside-work-tree is-shallow-repository left-right line-number "
    "line-porcelain list long max-count max-depth max-parents merge-base merged merges minimal "
    "min-parents modified name-only name-status names-only no-abbrev no-color no-contains "
    "no-decorate no-ext-diff no-index-refresh no-merged no-merges no-notes no-patch no-prefix "
    "no-renames no-textconv no-walk numbered numstat object-only oneline only-matching or others "
    "patch patch-with-stat patience perl-regexp pickaxe-all pickaxe-regex points-at porcelain "
    "pretty quiet raw regexp-ignore-case relative relative-date remotes reverse right-only root "
    "shortstat short show-current show-function show-prefix show-toplevel show-cdup "
    "simplify-by-decoration since since-as-filter size skip sort source staged stat stat-count "
    "stat-width summary symbolic-full-name tags text topo-order unified unmerged until untracked "
    "untracked-files verbose verify walk-reflogs word-diff word-diff-regex word-regexp"
)
"""Long options that only say what is read and how it is shown, in any of these subcommands."""
_SHORT_OPTIONS = re.compile(r"-(?:\d+|[A-NP-Za-z]+\d*|)")
"""Any but -O, whose value is run by grep and read by diff."""
_VALUE_IN_WORD = re.compile(r"-[SGLU].*")
KNOWN = READING | names_of(
    "add am apply archive bisect branch bundle checkout clean cherry-pick clone commit config "
    "difftool fast-export fast-import fetch filter-branch format-patch fsck gc hash-object help "
    "http-push init ls-remote merge mergetool mktree mv notes pack-objects pack-refs prune pull "
    "push read-tree rebase reflog remote repack replace request-pull reset restore revert rm "
    "send-email send-pack show-branch sparse-checkout stash submodule switch symbolic-ref tag "
    "update-index update-ref worktree write-tree commit-tree"
)
"""Commands of git itself, which no alias can take the place of."""
VALUED_OPTIONS = names_of(
    "-C -c --git-dir --work-tree --namespace --config-env --super-prefix --attr-source"
)
"""Options before the subcommand whose value may be a word of its own."""
_HARMLESS_SETTING = re.compile(
    r"(?:user\.(?:name|email)|color\.\w+|core\.(?:quotepath|autocrlf|abbrev)|advice\.\w+"
    r"|log\.\w+|diff\.(?:renames|noprefix|algorithm|context)|init\.defaultbranch"
    r"|(?:commit|tag)\.gpgsign)=.*|(?:core\.pager|pager\.\w+)=(?:cat|less|)",
    re.IGNORECASE,
)
_RUNNING_SETTING = re.compile(
    r"^(?!alias\.|include|branch\.|remote\.\S+\.(?:url|fetch)).*(?:fsmonitor|textconv|external"
    r"|\.command$|\.clean$|\.smudge$|\.process$|program|pager|editor|file$|path$|helper|sshcommand"
    r"|askpass|promisor|partialclone)"
)
"""Settings of a repository itself that run a program, or lead to another file."""
_RUNNING_OPTIONS = names_of(
    "--exec -x --extcmd --open-files-in-pager -O --upload-pack -u --receive-pack run foreach "
    "--index-filter --tree-filter --msg-filter --env-filter"
)
"""Options and words of git commands behind which a command stands."""
_GITLINK = b"\x00\x00\xe0\x00"
"""The mode of a nested repository in git's index."""
OTHER_SETTINGS = "it gives git other settings or another repository, which can run anything"


@dataclass(frozen=True)
class Danger:
    """Why a command stands in the table's last column. `every_time`: a yes holds for one call;
    `lost`: undo does not bring back what it takes away.
    """

    reason: str
    every_time: bool = True
    lost: bool = False


def split_options(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the options before git's subcommand, and the subcommand with what follows."""
    index = 0
    while index < len(arguments) and arguments[index].startswith("-"):
        index += 2 if arguments[index] in VALUED_OPTIONS else 1
    return list(arguments[:index]), list(arguments[index:])


def reading_fault(subcommand: str, arguments: Sequence[str]) -> tuple[str, str] | None:
    """Return why a subcommand with these arguments may do more than read, with the option to
    blame; None where it only reads.
    """
    if subcommand in _LISTING:
        fault = _LISTING[subcommand](arguments)
        return (
            (f"`git {subcommand}` with these arguments does more than read", "")
            if fault
            else (_option_fault(subcommand, arguments))
        )
    if subcommand not in READING:
        return f"`git {subcommand}` is not known to be read-only", ""
    return _option_fault(subcommand, arguments)


def _option_fault(subcommand: str, arguments: Sequence[str]) -> tuple[str, str] | None:
    for argument in arguments:
        if argument == "--":
            return None
        name = argument[2:].partition("=")[0] if argument.startswith("--") else ""
        is_known = not argument.startswith("-") or name in READING_OPTIONS
        if argument.startswith("-") and not name:
            has_value = subcommand != "grep" and _VALUE_IN_WORD.fullmatch(argument)
            is_known = bool(_SHORT_OPTIONS.fullmatch(argument) or has_value)
        if not is_known:
            option = f"--{name}" if name else argument
            return f"with `{option}` `git {subcommand}` may do more than read", option
    return None


def _plain_words(arguments: Sequence[str]) -> list[str]:
    return [argument for argument in arguments if not argument.startswith("-")]


_FILTERS = ("--list", "--contains", "--no-contains", "--merged", "--no-merged", "--points-at")


def _lists_only(letters: str) -> Callable[[Sequence[str]], bool]:
    """Return whether a subcommand does more than list: words need an option that filters, short
    options must be of `letters`.
    """

    def does_more(arguments: Sequence[str]) -> bool:
        short = [a[1:] for a in arguments if re.fullmatch(r"-[A-Za-z]\w*", a)]
        filters = any(a.partition("=")[0] in _FILTERS or a == "-l" for a in arguments)
        if any(set(word) - set(letters + "0123456789") for word in short):
            return True
        return bool(_plain_words(arguments)) and not filters

    return does_more


def _config_does_more(arguments: Sequence[str]) -> bool:
    words = [a for a in arguments if a not in {"--get", "--get-all", "get", "--local", "--global"}]
    return len(words) != 1 or re.fullmatch(r"\w[\w-]*\.[\w.-]+", words[0]) is None


_LISTING: dict[str, Callable[[Sequence[str]], bool]] = {
    "branch": _lists_only("arvl"),
    "tag": _lists_only("ln"),
    "stash": lambda arguments: arguments[:1] not in (["list"], ["show"]),
    "remote": lambda arguments: bool(_plain_words(arguments)) and arguments[:1] != ["get-url"],
    "reflog": lambda arguments: _plain_words(arguments)[:1] not in ([], ["show"], ["HEAD"]),
    "worktree": lambda arguments: arguments[:1] != ["list"],
    "config": _config_does_more,
}
"""Subcommands that only read in some forms."""


def settings_fault(root: Path, subcommand: str) -> str:
    """Return why git may run a program of the repository's in a read, "" where it does not."""
    for setting in git_settings([root]):
        if not setting.is_users and _RUNNING_SETTING.search(setting.name):
            return f"the repository's own setting {setting.name} may run a program"
    if subcommand in _COMPARING and _has_nested_repositories(root):
        return "it looks into nested repositories, which have settings of their own"
    return ""


_COMPARING = frozenset({"status", "diff", "diff-files", "diff-index", "describe"})
"""Subcommands that look at the files of the working tree."""


def _has_nested_repositories(root: Path) -> bool:
    git_folder = git_folder_at(root)
    if git_folder is None:
        return False
    try:
        indexes = [*git_folder.glob("index"), *git_folder.glob("sharedindex.*")]
        return any(_GITLINK in index.read_bytes() for index in indexes)
    except OSError:
        return True


def git_danger(arguments: Sequence[str]) -> Danger | None:
    """Return what a git command does to history or to other repositories, by its arguments alone;
    None where it does nothing to them.
    """
    options, rest = split_options(arguments)
    if gives_other_settings(options):
        return Danger(OTHER_SETTINGS)
    if not rest or rest[0] in READING:
        return None
    subcommand, arguments = rest[0], rest[1:]
    if subcommand in _LISTING and not _LISTING[subcommand](arguments):
        return None
    if subcommand in _DESTROYING and _DESTROYING[subcommand](arguments):
        return Danger("it destroys what undo cannot restore", lost=True)
    if subcommand in {"push", "send-pack", "http-push", "send-email", "request-pull", "svn", "p4"}:
        return Danger("it publishes")
    if subcommand in {"fetch", "pull", "clone", "ls-remote", "submodule", "lfs", "subtree"}:
        return Danger("it reaches another repository", every_time=False)
    if subcommand not in KNOWN:
        return None
    if subcommand in {"config", "remote"}:
        return Danger("it changes what git does here")
    if subcommand in _LOSING and _LOSING[subcommand](arguments):
        return Danger("it throws away work or history")
    return Danger("it writes git history", every_time=False)


def gives_other_settings(options: Sequence[str]) -> bool:
    """Return whether options before the subcommand give git other settings or a repository."""
    index = 0
    while index < len(options):
        option = options[index]
        if option == "-c":
            if not _HARMLESS_SETTING.fullmatch("".join(options[index + 1 : index + 2])):
                return True
        elif option not in {"-C", "--no-pager", "-P", "-p", "--paginate", "--no-optional-locks",
                            "--literal-pathspecs", "--version", "--help"}:  # fmt: skip
            return True
        index += 2 if option in VALUED_OPTIONS else 1
    return False


def has_option(arguments: Sequence[str], letters: str, *longs: str) -> bool:
    """Return whether one of these short or long options, shortened too, is among the arguments."""
    for argument in arguments:
        if argument.startswith("--"):
            name = argument.partition("=")[0]
            if len(name) > 2 and any(long.startswith(name) for long in longs):
                return True
        elif argument.startswith("-") and set(argument[1:]) & set(letters):
            return True
    return False


def _always(arguments: Sequence[str]) -> bool:
    del arguments
    return True


def _clean_destroys(arguments: Sequence[str]) -> bool:
    forced = sum(a.count("f") for a in arguments if re.fullmatch(r"-\w+", a))
    dry = has_option(arguments, "n", "--dry-run")
    return not dry and (has_option(arguments, "xX") or forced > 1)


_DESTROYING: dict[str, Callable[[Sequence[str]], bool]] = {
    "prune": _always,
    "filter-branch": _always,
    "filter-repo": _always,
    "stash": lambda a: bool({"drop", "clear"} & set(a[:1])),
    "reflog": lambda a: bool({"expire", "delete", "drop"} & set(a[:1])),
    "branch": lambda a: (
        has_option(a, "D") or (has_option(a, "d", "--delete") and has_option(a, "f", "--force"))
    ),
    "clean": _clean_destroys,
    "gc": lambda a: any(word.startswith("--prune=") for word in a),
    "worktree": lambda a: a[:1] == ["remove"] and has_option(a, "f", "--force"),
    "update-ref": lambda a: has_option(a, "d", "--stdin"),
}
_LOSING: dict[str, Callable[[Sequence[str]], bool]] = {
    **dict.fromkeys(("rebase", "update-ref", "gc", "replace", "symbolic-ref", "restore"), _always),
    "branch": lambda a: has_option(a, "dDMCf", "--delete", "--force"),
    "tag": lambda a: has_option(a, "df", "--delete", "--force"),
    "reset": lambda a: has_option(a, "", "--hard", "--merge", "--keep"),
    "clean": lambda a: not has_option(a, "n", "--dry-run"),
    "checkout": lambda a: (
        has_option(a, "fpB", "--force", "--patch", "--ours", "--theirs")
        or "--" in a
        or any("." in word or word.endswith("/") for word in a)
        or (len(_plain_words(a)) > 1 and not has_option(a, "bt", "--orphan", "--track"))
    ),
    "switch": lambda a: has_option(a, "fC", "--force", "--discard-changes", "--force-create"),
    "commit": lambda a: has_option(a, "", "--amend"),
    "worktree": lambda a: bool({"remove", "prune"} & set(a[:1])),
}


def restored_files(arguments: Sequence[str]) -> list[str]:
    """Return the files that `git restore FILE` and `git checkout -- FILE` put back; nothing for
    any other git command.
    """
    match list(arguments):
        case ["checkout", "--", *names]:
            return names
        case ["restore", *names]:
            names = names[1:] if names[:1] == ["--"] else names
            return [] if any(name.startswith(("-", ":")) for name in names) else names
    return []


def runs_a_command(arguments: Sequence[str]) -> bool:
    """Return whether a git command starts a program that stands in its arguments."""
    words = {argument.partition("=")[0] for argument in arguments}
    return bool(words & _RUNNING_OPTIONS) or any(a.startswith(("-O", "-x")) for a in arguments)


def aliased_commands(command: Command, folders: Sequence[Path]) -> list[Command]:
    """Return the commands that aliases make of a git command. Raises as `alias_expansions`."""
    options, rest = split_options(command.arguments)
    if not rest:
        return []
    before, behind = command.words[: 1 + len(options)], command.words[2 + len(options) :]
    commands: list[Command] = []
    for expansion in alias_expansions(rest[0], folders):
        if isinstance(expansion, str):
            arguments = " ".join(word.text for word in behind)
            commands += parse_line(f"{expansion} {arguments}").commands
        else:
            commands.append(Command((*before, *expansion, *behind)))
    return commands


def alias_expansions(subcommand: str, folders: Sequence[Path]) -> list[list[Word] | str]:
    """Return what aliases make of a word that is no command of git: words, or a line of shell.

    Raise UnreadableConfiguration, and ValueError for an alias that cannot be read or a word that
    git may take for another one.
    """
    if subcommand in KNOWN:
        return []
    key, expansions, guesses = subcommand.lower(), [], False
    for setting in git_settings(folders):
        if setting.name in {f"alias.{key}", f"alias.{key}.command"} and setting.value:
            expansions.append(setting.value)
        elif setting.name == "help.autocorrect":
            guesses = setting.value.lower() not in {"", "0", "false", "no", "off", "never", "show"}
    if not expansions and guesses and shutil.which(f"git-{subcommand}") is None:
        raise ValueError(f"git may take `{subcommand}` for another command (help.autocorrect)")
    made: list[list[Word] | str] = []
    for expansion in expansions:
        if expansion.lstrip().startswith("!"):
            made.append(expansion.lstrip()[1:])
        else:
            made.append([Word(word) for word in shlex.split(expansion)])
    return made


_ORDINARY_VARIABLE = re.compile(
    r"GIT_(?:(?:AUTHOR|COMMITTER)_(?:NAME|EMAIL|DATE)|TERMINAL_PROMPT|OPTIONAL_LOCKS|ADVICE)"
)
_PROGRAM_VARIABLES = names_of("PAGER EDITOR VISUAL HOME XDG_CONFIG_HOME")


def variable_redirects_git(name: str, value: str) -> bool:
    """Return whether a variable gives git other settings, another repository or a program."""
    if name in _PROGRAM_VARIABLES or name in {"GIT_PAGER", "GIT_EDITOR", "GIT_SEQUENCE_EDITOR"}:
        return value not in {"cat", "true", ":", "less"}
    return name.startswith("GIT_") and _ORDINARY_VARIABLE.fullmatch(name) is None
