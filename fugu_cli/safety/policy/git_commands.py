"""git commands by their effect: they read, write history, lose work, publish or destroy.

Stands above shell_line.py. Other settings, another repository and an alias can stand for anything:
no alias is followed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from fugu_cli.safety.git_configuration import RUNNING_SETTING, git_folder_at, git_settings
from fugu_cli.safety.policy.shell_line import ShellLine, names_of

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
_SHORT_OPTIONS = re.compile(r"-(?:\d+|[A-NP-RT-WYZa-eg-z]+\d*|L\d+,\+?\d+(?::.*)?)?")
"""Any but -O, whose value is run by grep, and -S, -X and -f, whose values may be files."""
_SEARCHING = names_of("log show diff whatchanged")
"""Subcommands for which -S and -G stand before a text to search for."""
KNOWN = READING | names_of(
    "add am apply archive bisect branch bundle checkout clean cherry-pick clone commit config "
    "difftool fast-export fast-import fetch filter-branch format-patch fsck gc hash-object help "
    "http-push init lfs ls-remote merge mergetool mktree mv notes p4 pack-objects pack-refs prune "
    "pull push read-tree rebase reflog remote repack replace request-pull reset restore revert rm "
    "send-email send-pack show-branch sparse-checkout stash submodule subtree svn switch "
    "symbolic-ref tag filter-repo "
    "update-index update-ref worktree write-tree commit-tree"
)
"""Commands of git itself. Any other word may be an alias, which can stand for anything."""
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
_GITLINK = b"\x00\x00\xe0\x00"
"""The mode of a nested repository in git's index."""
_HARMLESS_OPTIONS = names_of(
    "-c -C --no-pager -P -p --paginate --no-optional-locks --literal-pathspecs --version --help"
)
_TREE_ONLY = names_of(
    "-v -q -R -p0 -p1 -p2 --check --stat --numstat --summary --reverse --verbose --quiet "
    "--recount --whitespace --exclude --include --unidiff-zero --ignore-whitespace"
)
"""Options with which `git apply` writes at most files of the working tree."""
OTHER_SETTINGS = "it gives git other settings or another repository, which can run anything"

_FILTERED = r"(?=(?:.*\0)?(?:-l|--list|--(?:no-)?(?:contains|merged)|--points-at)[=\0])"
_OPTION = r"--[a-z-]+(?:=[^\0]*)?\0"
_LISTING_FORMS = {
    "branch": re.compile(
        rf"(?:{_FILTERED}(?:-[arvl\d]+\0|{_OPTION}|[^\0-][^\0]*\0)*|(?:-[arvl\d]+\0|{_OPTION})*)"
    ),
    "tag": re.compile(
        rf"(?:{_FILTERED}(?:-[ln\d]+\0|{_OPTION}|[^\0-][^\0]*\0)*|(?:-[ln\d]+\0|{_OPTION})*)"
    ),
    "stash": re.compile(r"(?:list|show)\0.*", re.DOTALL),
    "clean": re.compile(
        r"(?:-[dfqxX]*n[dfqxX]*|--dry-run)\0(?:-[dfnqxX]+\0|[^\0-][^\0]*\0)*", re.DOTALL
    ),
    "remote": re.compile(rf"(?:get-url\0(?:[^\0]*\0)*|(?:-v\0|{_OPTION})*)"),
    "reflog": re.compile(r"(?:-[^\0]*\0)*(?:(?:show|HEAD)\0.*)?", re.DOTALL),
    "worktree": re.compile(r"list\0.*", re.DOTALL),
    "config": re.compile(r"(?:(?:get|--get|--get-all|--local|--global)\0)*\w[\w-]*\.[\w.-]+\0"),
}
"""The forms of other subcommands that only read, their arguments each with a NUL behind it."""


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
    if not only_lists(subcommand, arguments):
        return f"`git {subcommand}` is not known to be read-only", ""
    for argument in arguments:
        if argument == "--":
            break
        option = argument.partition("=")[0]
        if argument.startswith("--"):
            is_harmless = option[2:] in READING_OPTIONS
        else:
            searches = subcommand in _SEARCHING and argument[:2] in {"-S", "-G"}
            is_harmless = searches or _SHORT_OPTIONS.fullmatch(argument) is not None
        if argument.startswith("-") and not is_harmless:
            return f"with `{option}` `git {subcommand}` may do more than read", option
    return None


def only_lists(subcommand: str, arguments: Sequence[str]) -> bool:
    """Return whether the subcommand reads, in this form where it has others that write."""
    form = _LISTING_FORMS.get(subcommand)
    if form is None:
        return subcommand in READING
    return form.fullmatch("".join(f"{argument}\0" for argument in arguments)) is not None


def writes_index(apply_arguments: Sequence[str]) -> bool:
    """Return whether `git apply` with these arguments writes more than files of the working tree."""
    options = [argument for argument in apply_arguments if argument.startswith("-")]
    return not _TREE_ONLY.issuperset(option.partition("=")[0] for option in options)


def settings_fault(root: Path) -> str:
    """Return why git may run a program of the repository's in a read, "" where it does not."""
    for setting in git_settings([root]):
        if not setting.is_users and RUNNING_SETTING.search(setting.name):
            return f"the repository's own setting {setting.name} may run a program"
    git_folder = git_folder_at(root) or root / ".git"
    try:
        for index in [*git_folder.glob("index"), *git_folder.glob("sharedindex.*")]:
            if _GITLINK in index.read_bytes():
                return "nested repositories have settings of their own"
    except OSError as error:
        return f"git's index cannot be read: {error.strerror}"
    return ""


def gives_other_settings(options: Sequence[str], variables: Sequence[tuple[str, str]] = ()) -> bool:
    """Return whether options before the subcommand, or variables, give git other settings, another
    repository or a program.
    """
    rest = list(options)
    while rest:
        option = rest.pop(0)
        value = rest.pop(0) if option in VALUED_OPTIONS and rest else ""
        if option == "-c" and not _HARMLESS_SETTING.fullmatch(value):
            return True
        if option not in _HARMLESS_OPTIONS:
            return True
    return any(variable_redirects_git(name, value) for name, value in variables)


def restored_files(line: ShellLine) -> list[str]:
    """Return the files that a line puts back by `git restore FILE` or `git checkout -- FILE` alone;
    nothing for any other line.
    """
    if line.fault or len(line.commands) != 1:
        return []
    command = line.commands[0]
    if command.assignments or command.redirects or not all(word.plain for word in command.words):
        return []
    match [word.text for word in command.words]:
        case ["git", "checkout", "--", *names] | ["git", "restore", "--", *names]:
            return names
        case ["git", "restore", *names] if not any(name[:1] in {"-", ":"} for name in names):
            return names
    return []


_ORDINARY_VARIABLE = re.compile(
    r"GIT_(?:(?:AUTHOR|COMMITTER)_(?:NAME|EMAIL|DATE)|TERMINAL_PROMPT|OPTIONAL_LOCKS|ADVICE)"
)
_PROGRAM_VARIABLES = names_of("PAGER EDITOR VISUAL HOME XDG_CONFIG_HOME")


def variable_redirects_git(name: str, value: str) -> bool:
    """Return whether a variable gives git other settings, another repository or a program."""
    if name in _PROGRAM_VARIABLES or name in {"GIT_PAGER", "GIT_EDITOR", "GIT_SEQUENCE_EDITOR"}:
        return value not in {"cat", "true", ":", "less"}
    return name.startswith("GIT_") and _ORDINARY_VARIABLE.fullmatch(name) is None
