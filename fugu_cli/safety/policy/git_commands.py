"""What a git command does: reads, changes the repository in a way git can take back, or needs a yes
every time.

Stands beside programs.py, below wrappers.py. By subcommand, with the options that keep one a
reader; publishing, and throwing away work or history, needs the yes. A word that is no git command
is looked up as an alias, in the files that git would read; git itself is never asked. Another
configuration or another repository can run anything.
"""

from __future__ import annotations

import itertools
import re
import shlex
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from fugu_cli.safety.git_configuration import (
    UnreadableConfiguration,
    git_settings,
    is_bare_repository,
)
from fugu_cli.safety.paths import inside, path_exists
from fugu_cli.safety.policy.programs import (
    FOUND,
    READS,
    RUNS,
    UNKNOWN,
    CommandRisk,
    RiskLevel,
    has_option,
    names_of,
)
from fugu_cli.safety.policy.shell_parser import Unreadable, Word

READING = names_of(
    "status diff log show blame annotate ls-files ls-tree rev-parse rev-list describe shortlog "
    "cat-file name-rev "
    "merge-base count-objects cherry range-diff grep for-each-ref show-ref version check-ignore "
    "check-attr "
    "check-ref-format check-mailmap diff-tree diff-index diff-files verify-commit verify-tag"
)
OPTIONS = names_of(
    "abbrev abbrev-commit abbrev-ref absolute-git-dir after after-context ahead-behind all "
    "all-match always "
    "ancestry-path and anchored author author-date-order basic-regexp batch batch-all-objects "
    "batch-check before "
    "before-context binary bisect boundary branch branches break-rewrites broken buffer cached "
    "candidates cc check "
    "cherry cherry-mark cherry-pick clear-decorations color color-by-age color-lines color-moved "
    "color-moved-ws "
    "color-words column combined-all-paths committer compact-summary contains context count "
    "creation-factor "
    "cumulative date date-order debug decorate decorate-refs decorate-refs-exclude deduplicate "
    "default deleted "
    "dense dereference diff-algorithm diff-filter diff-merges directory dirstat dirty disk-usage "
    "do-walk dst-prefix "
    "dual-color email encoding eol error-unmatch exact-match exclude exclude-first-parent-only "
    "exclude-from "
    "exclude-hidden exclude-per-directory exclude-standard exists exit-code expand-tabs "
    "extended-regexp file "
    "files-with-matches files-without-match find-copies find-copies-harder find-object "
    "find-renames first-parent "
    "fixed-strings flags follow follow-symlinks for-each-ref fork-point format from full-diff "
    "full-history "
    "full-index full-name full-tree function-context git-dir git-common-dir git-path glob graph "
    "grep grep-reflog "
    "group hash head heading heads histogram human-readable ignore-all-space ignore-blank-lines "
    "ignore-case "
    "ignore-cr-at-eol ignore-matching-lines ignore-missing ignore-rev ignore-revs-file "
    "ignore-space-at-eol "
    "ignore-space-change ignore-submodules ignored incremental independent indexed-objects "
    "inter-hunk-context "
    "invert-grep invert-match irreversible-delete is-ancestor is-bare-repository is-inside-git-dir "
    "is-inside-work-tree is-shallow-repository ita-invisible-in-index ita-visible-in-index "
    "killed left-only "
    "left-right line-number line-porcelain line-prefix list local-env-vars log-size long mailmap "
    "match max-age "
    "max-count max-depth max-parents maximal-only merge merge-base merged merges min-age "
    "min-parents minimal "
    "modified name-only name-status names-only no-abbrev no-abbrev-commit no-ahead-behind "
    "no-color no-color-moved "
    "no-column no-contains no-decorate no-diff-merges no-empty no-exclude-standard no-ext-diff "
    "no-find-copies-harder no-follow no-graph no-index no-indent-heuristic no-mailmap "
    "no-max-parents no-merged "
    "no-merges no-min-parents no-notes no-patch no-prefix no-recurse-submodules no-relative "
    "no-rename-empty "
    "no-renames no-revs no-standard-notes no-textconv no-untracked-files no-walk non-matching "
    "not notes null "
    "numbered numstat object-only objects octopus oneline only-matching or others patch "
    "patch-with-raw "
    "patch-with-stat patience peel-tag perl-regexp pickaxe-all pickaxe-regex points-at porcelain "
    "pretty prefix "
    "quiet raw recurse-submodules recursive reflog regexp-ignore-case relative relative-date "
    "remerge-diff remotes "
    "rename-empty renames resolve-undo reverse revs-only right-only root score-debug "
    "shared-index-path short "
    "shortstat show-cdup show-current show-email show-function show-name show-notes show-number "
    "show-object-format "
    "show-prefix show-pulls show-ref-format show-signature show-stash show-stats "
    "show-superproject-working-tree "
    "show-toplevel simplify-by-decoration simplify-merges since since-as-filter size skip "
    "skip-to rotate-to sort "
    "source sparse sq-quote src-prefix stage start-at stat stat-count stat-graph-width "
    "stat-name-width stat-width "
    "stdin submodule summary symbolic symbolic-full-name tags text topo-order topo-steps unified "
    "unmerged unordered "
    "unpacked unsorted-input until untracked untracked-files use-mailmap verbose verify "
    "walk-reflogs with-tree "
    "word-diff word-diff-regex word-regexp ws-error-highlight z"
)
"""Long options that only say what is read and how it is shown, in any of these commands."""
RUNNING_LONG = names_of("--exec --extcmd --open-files-in-pager --upload-pack --receive-pack")
RUNNING_SHORT = {"rebase": "-x", "difftool": "-x", "grep": "-O", "clone": "-u"}
"""Options whose values are run, and their short forms."""
RUNNING = names_of("ext-diff textconv filters open-files-in-pager exec upload-pack receive-pack")
KNOWN = READING | names_of(
    "add am apply archive bisect branch bundle checkout cherry-pick clean clone commit config "
    "fetch filter-branch "
    "format-patch fsck gc help init merge mv notes pull push rebase reflog remote repack replace "
    "reset restore "
    "revert rm show-branch sparse-checkout stash submodule switch symbolic-ref tag update-index "
    "update-ref worktree "
    "write-tree read-tree commit-tree hash-object ls-remote mktree pack-objects pack-refs prune "
    "send-email "
    "send-pack http-push fast-export fast-import difftool mergetool"
)
"""Commands of git itself, which no alias can take the place of."""
QUIET = frozenset({
    "--no-pager", "-P", "--no-optional-locks", "--literal-pathspecs", "--glob-pathspecs", "--noglob-pathspecs",
    "--icase-pathspecs", "--no-replace-objects", "--version", "--help", "-h", "-v", "--html-path", "--man-path",
})  # fmt: skip
VALUED = names_of(
    "-C -c --git-dir --work-tree --namespace --config-env --super-prefix --attr-source"
)
"""Options before the subcommand whose value may be a word of its own."""
_HARMLESS = re.compile(
    r"(?:user\.(?:name|email)|color\.\w+|core\.(?:quotepath|autocrlf|safecrlf|filemode|abbrev)|advice\.\w+|log\.\w+|column\.\w+"
    r"|i18n\.\w+|diff\.(?:renames|noprefix|mnemonicprefix|algorithm|context)|init\.defaultbranch|merge\.conflictstyle"
    r"|gc\.auto|commit\.gpgsign|tag\.gpgsign)(?:=.*)?|(?:core\.pager|pager\.\w+)=(?:cat|less|more|false|true|)",
    re.IGNORECASE | re.DOTALL,
)
"""`-c` settings that can run nothing."""
_ORDINARY = re.compile(
    r"GIT_(?:(?:AUTHOR|COMMITTER)_(?:NAME|EMAIL|DATE)|TERMINAL_PROMPT|OPTIONAL_LOCKS|MERGE_AUTOEDIT|ADVICE)"
)
_HOMES = names_of("HOME XDG_CONFIG_HOME")
"""Variables by which git finds its configuration."""
_PAGERS = names_of("GIT_PAGER GIT_EDITOR GIT_SEQUENCE_EDITOR PAGER EDITOR VISUAL")
_SAID_OFF = names_of("0 false no off never show prompt")

_LOSES = CommandRisk(RiskLevel.EVERY, "it throws away work or history")
_PUBLISHES = CommandRisk(RiskLevel.EVERY, "it publishes")
_CONFIGURES = CommandRisk(RiskLevel.EVERY, "it changes what git does here")
REDIRECTS_GIT = CommandRisk(
    RiskLevel.EVERY, "it gives git another configuration or repository, which can run anything"
)


def subcommand_at(arguments: Sequence[str]) -> int:
    """Where git's subcommand stands among what follows `git`; their number where there is none."""
    at = 0
    while at < len(arguments) and arguments[at].startswith("-"):
        at += 2 if arguments[at] in VALUED else 1
    return min(at, len(arguments))


def after_options(arguments: Sequence[str]) -> list[str]:
    """git's subcommand and what follows it, without the options before it."""
    return list(arguments[subcommand_at(arguments) :])


def judge_git(words: Sequence[Word]) -> CommandRisk:
    """What stands behind `git`."""
    texts = [word.text for word in words]
    at = subcommand_at(texts)
    if at < len(words) and words[at].shape != words[at].text:
        return UNKNOWN
    found = [
        _changed(texts[:at]),
        _subcommand(texts[at], texts[at + 1 :]) if at < len(texts) else READS,
    ]
    if any(word.dynamic for word in words):
        found.append(RUNS if not any(word.dynamic for word in words[:at]) else REDIRECTS_GIT)
    return max(found, key=lambda finding: finding.level)


def _changed(options: Sequence[str]) -> CommandRisk:
    """What the options before the subcommand do to it. Where -C leads is looked at in
    classification.py.
    """
    found = READS
    rest = iter(options)
    for option in rest:
        if option == "-C":
            next(rest, None)
        elif option in {"-p", "--paginate"} or (
            option == "-c" and _HARMLESS.fullmatch(next(rest, ""))
        ):
            found = CommandRisk(RiskLevel.RUNS, f"`git {option}` changes what git does")
        elif option not in QUIET:
            return REDIRECTS_GIT
    return found


def _subcommand(name: str, rest: Sequence[str]) -> CommandRisk:
    if name in _ALWAYS or (name in _DESTROYS and _DESTROYS[name](rest)):
        return FOUND
    if name in READING:
        return _reading(name, rest)
    return SPECIAL[name](rest) if name in SPECIAL else RUNS


def _reading(name: str, rest: Sequence[str]) -> CommandRisk:
    """READS while every option is one that only reads."""
    for option in itertools.takewhile(lambda word: word != "--", rest):
        long = option[2:].partition("=")[0] if option.startswith("--") else ""
        if (
            long in RUNNING
            or long == "output"
            or (name == "grep" and option[:1] == "-" and "O" in option)
        ):
            shown = f"--{long}" if long else option
            return CommandRisk(
                RiskLevel.RUNS, f"with `{shown}` `git {name}` does more than read", shown
            )
        if (long and long not in OPTIONS) or (
            option[:1] == "-" and not long and not _short(option)
        ):
            return CommandRisk(
                RiskLevel.RUNS, f"with `{option}` `git {name}` may do more than read"
            )
    return READS


def _short(option: str) -> bool:
    """Short options only read in these commands, but for one of `grep`."""
    return option == "-" or option[1:2].isalnum()


def files_written(arguments: Sequence[str]) -> list[tuple[str, str]]:
    """The files that options of a reading command write, each with its option."""
    name, *rest = [*after_options(arguments), ""]
    if name not in READING | {"stash", "reflog"}:
        return []
    split = [(word.partition("="), after) for word, after in itertools.pairwise(rest)]
    return [
        (option, value if equals else after)
        for (option, equals, value), after in split
        if option == "--output"
    ]


def _listing(rest: Sequence[str], *, words: Sequence[str] = ()) -> CommandRisk:
    """READS for options that only read, and for words only with one of the options that `words`
    names.
    """
    plain = [word for word in rest if not word.startswith("-")]
    if plain and not {word.partition("=")[0] for word in rest} & set(words):
        return RUNS
    return _reading("", rest)


_FILTERS = ("-l", "--list", "--contains", "--no-contains", "--merged", "--no-merged", "--points-at")


def _branch(rest: Sequence[str]) -> CommandRisk:
    if has_option(rest, "dDMCf", "--delete", "--force"):
        return _LOSES
    clusters = [word for word in rest if re.fullmatch(r"-[A-Za-z]+", word)]
    if not all(set(word) <= set("-arvlqi") for word in clusters):
        return RUNS
    return _listing(rest, words=_FILTERS)


def _tag(rest: Sequence[str]) -> CommandRisk:
    if has_option(rest, "df", "--delete", "--force"):
        return _LOSES
    if not all(re.fullmatch(r"-l|-n\d*|-i|-ln?", word) for word in rest if re.match(r"-\w", word)):
        return RUNS
    return _listing(
        rest, words=(*_FILTERS, "-n", *(word for word in rest if word.startswith("-n")))
    )


def _reset(rest: Sequence[str]) -> CommandRisk:
    return _LOSES if has_option(rest, "", "--hard", "--merge", "--keep") else RUNS


def _clean(rest: Sequence[str]) -> CommandRisk:
    return RUNS if has_option(rest, "n", "--dry-run") else _LOSES


def _checkout(rest: Sequence[str]) -> CommandRisk:
    discards = has_option(
        rest, "fpB", "--force", "--patch", "--ours", "--theirs", "--pathspec-from-file"
    )
    plain = [word for word in rest if not word.startswith("-")]
    of_a_commit = len(plain) > 1 and not has_option(
        rest, "bt", "--orphan", "--track"
    )  # the files behind it
    named = any(word == "--" or "." in word or word.endswith("/") for word in rest)
    return _LOSES if discards or named or of_a_commit else RUNS


def _restore(rest: Sequence[str]) -> CommandRisk:
    return RUNS if "--staged" in rest and not has_option(rest, "W", "--worktree") else _LOSES


def _switch(rest: Sequence[str]) -> CommandRisk:
    return (
        _LOSES if has_option(rest, "fC", "--force", "--discard-changes", "--force-create") else RUNS
    )


def _stash(rest: Sequence[str]) -> CommandRisk:
    if set(rest[:1]) & {"drop", "clear"}:
        return _LOSES
    return _reading("stash", rest[1:]) if set(rest[:1]) & {"list", "show"} else RUNS


def _commit(rest: Sequence[str]) -> CommandRisk:
    return _LOSES if has_option(rest, "", "--amend") else RUNS


def _remote(rest: Sequence[str]) -> CommandRisk:
    rest = list(itertools.dropwhile(lambda word: word in {"-v", "--verbose"}, rest))
    if not rest or rest[0] == "get-url":
        return READS
    if rest[0] == "show":
        return (
            READS if "-n" in rest else CommandRisk(RiskLevel.RUNS, "it asks the remote repository")
        )
    return _CONFIGURES


def _config(rest: Sequence[str]) -> CommandRisk:
    places = {"--global", "--local", "--system", "--worktree", "--show-origin", "--show-scope"}
    named = [word for word in rest if word not in places]
    named = named[1:] if set(named[:1]) & {"--get", "--get-all", "get"} else named
    return READS if len(named) == 1 and re.fullmatch(r"\w[\w-]*\..+", named[0]) else _CONFIGURES


def _reflog(rest: Sequence[str]) -> CommandRisk:
    if set(rest) & {"expire", "delete", "drop", "write"}:
        return _LOSES
    plain = [word for word in rest if not word.startswith("-")][:1]
    return (
        _reading("reflog", rest)
        if not plain or plain[0] in {"show", "list", "exists", "HEAD"}
        else RUNS
    )


def _worktree(rest: Sequence[str]) -> CommandRisk:
    if rest[:1] == ["list"]:
        return READS
    return _LOSES if set(rest[:1]) & {"remove", "prune"} else RUNS


def _only(reads: frozenset[str]) -> Callable[[Sequence[str]], CommandRisk]:
    """Reads when every argument is one of `reads` (or there is none)."""
    return lambda rest: READS if set(rest) <= reads else RUNS


SPECIAL: dict[str, Callable[[Sequence[str]], CommandRisk]] = {
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
    **dict.fromkeys(
        ("push", "send-pack", "http-push", "send-email", "request-pull"), lambda rest: _PUBLISHES
    ),
    **dict.fromkeys(
        ("subtree", "lfs", "svn", "p4"),
        lambda rest: _PUBLISHES if {"push", "dcommit", "submit"} & set(rest[:1]) else RUNS,
    ),
    **dict.fromkeys(
        (
            "rebase",
            "filter-branch",
            "filter-repo",
            "update-ref",
            "gc",
            "prune",
            "replace",
            "symbolic-ref",
        ),
        lambda rest: _LOSES,
    ),
}
_ALWAYS = names_of("prune filter-branch filter-repo")
_DESTROYS: dict[str, Callable[[Sequence[str]], bool]] = {
    "stash": lambda rest: bool({"drop", "clear"} & set(rest[:1])),
    "reflog": lambda rest: bool({"expire", "delete", "drop"} & set(rest[:1])),
    "branch": lambda rest: (
        has_option(rest, "D")
        or (has_option(rest, "d", "--delete") and has_option(rest, "f", "--force"))
    ),
    "clean": lambda rest: (
        not has_option(rest, "n", "--dry-run") and (has_option(rest, "xX") or _forced(rest) > 1)
    ),
    "gc": lambda rest: any(word.startswith("--prune=") for word in rest),
    "worktree": lambda rest: rest[:1] == ["remove"] and has_option(rest, "f", "--force"),
    "update-ref": lambda rest: has_option(rest, "d", "--stdin"),
}


def _forced(rest: Sequence[str]) -> int:
    """How often -f is given: twice, `git clean` takes nested repositories as well."""
    return sum(
        word.count("f") if not word.startswith("--") else word == "--force"
        for word in rest
        if word.startswith("-")
    )


# ---- configuration and repositories ----


def redirects_git(name: str, value: Word) -> bool:
    """This variable, set in a line in which git runs, gives it another configuration or
    repository.
    """
    if name in _PAGERS:
        return value.shape not in {"cat", "true", ":", "", "less", "more"}
    return name in _HOMES or (name.startswith("GIT_") and _ORDINARY.fullmatch(name) is None)


def other_repository_risk(folder: Path, root: Path) -> CommandRisk:
    """What git would do in `folder`: nothing more than in `root` where no other repository begins
    on the way.
    """
    below = folder
    while below != root and inside(below, root):
        if is_bare_repository(below):
            return REDIRECTS_GIT
        if path_exists(below / ".git"):
            return CommandRisk(
                RiskLevel.RUNS, f"`{below.name}` is a repository of its own, with its own settings"
            )
        below = below.parent
    return READS


def git_aliases(name: str, folders: Sequence[Path]) -> list[str]:
    """All that git's configuration says `name` stands for, wherever it is run. Raises
    Unreadable.
    """
    if name in KNOWN:
        return []
    try:
        found = [(setting.name, setting.value) for setting in git_settings(folders)]
    except UnreadableConfiguration as error:
        raise Unreadable(str(error)) from error
    key = name.lower()
    said = [
        value
        for setting, value in found
        if setting in {f"alias.{key}", f"alias.{key}.command"} and value
    ]
    guesses = [
        value
        for setting, value in found
        if setting == "help.autocorrect" and value.lower() not in _SAID_OFF
    ]
    if not said and guesses and shutil.which(f"git-{name}") is None:
        raise Unreadable(f"git may take `{name}` for another command (help.autocorrect)")
    return said


def expand_alias(alias: str, behind: Sequence[Word]) -> list[Word] | str:
    """An alias as words behind `git`, or as a line of shell. Raises Unreadable."""
    if alias.lstrip().startswith("!"):
        return alias.lstrip()[1:]
    try:
        words = shlex.split(alias)
    except ValueError as error:
        raise Unreadable(f"the alias `{alias}` of git") from error
    return [*map(Word, words), *behind]
