"""The user's rules for a command line, for the commands in it and for the files they name.

A rule that forbids counts however the command is written, and a line in which the shell itself
could make up a command is refused while there is such a rule. A rule that allows counts for plain
commands. Stands above dangers.py and readers.py.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from fugu_cli.formatting import shorten
from fugu_cli.safety.paths import expand_home, real_path
from fugu_cli.safety.policy import git_commands
from fugu_cli.safety.policy.dangers import (
    COMMANDS_AT_MOST,
    LONGEST_PATH,
    SHELLS,
    WRAPPERS,
    WRITERS,
    TooManyCommands,
    all_commands,
    commands_within,
    has_arguments,
    possible_folders,
    writes_arguments,
)
from fugu_cli.safety.policy.readers import READERS, read_fault
from fugu_cli.safety.policy.rule_matching import (
    covers_tool,
    forbids_path,
    match_command,
    match_path,
    split_pattern,
)
from fugu_cli.safety.policy.shell_line import Command, ShellLine, Word, parse_line, rows_of

TOOL = "bash"
FOLDERS_DEEP = 100
_RUN_WHAT_THEY_READ = frozenset({"xargs", "parallel", "at", "batch", "crontab"})
"""Programs whose input holds commands or words of commands."""
PLAINLY = (
    "write simple commands, with their names and arguments in plain words, and one call for each"
)
COPIERS = frozenset({"cp", "mv", "ln", "install", "rsync", "scp"})
HARMLESS_VARIABLE = re.compile(r"LANG|LC_\w+|CI|NO_COLOR|FORCE_COLOR|TERM|COLUMNS|LINES|TZ")
_SHELL_VARIABLE = re.compile(
    r"PATH|IFS|ENV|CDPATH|GLOBIGNORE|SHELLOPTS|BASH\w*|LD_\w+|DYLD_\w+|PROMPT_COMMAND|PS4"
    r"|POSIXLY_CORRECT"
)
"""Variables that change what the rest of a line means."""
_GIT_RUNS = rows_of("""
rebase: --exec -x
difftool: --extcmd -x -t --tool
archive: --exec
grep: --open-files-in-pager -O
fetch pull clone ls-remote: --upload-pack -u
push send-pack: --receive-pack --exec
bisect: run view visualize
submodule: foreach
filter-branch mergetool: *
""")
"""By git's command, arguments with which it starts a program that stands in them."""
_PROGRAM_RUNS = rows_of("""
go: -exec --exec -toolexec --toolexec -vettool --vettool
cargo: --config
make gmake: --eval *=*
cmake: -E -P
npm pnpm yarn: --script-shell --node-options
mvn: *exec*:*
gcc cc g++ c++: -wrapper
tar: --to-command --checkpoint-action --use-compress-program -I --rsh-command --info-script -F
zip: -TT --unzip-command
""")
"""The same by program, for rules that allow."""


@dataclass(frozen=True)
class RuleMatch:
    """A rule, and why it counts where it is not sure that the line is what it means."""

    rule: str
    unclear: str = ""

    @property
    def reason(self) -> str:
        """The refusal in words."""
        if not self.unclear:
            return f"the rule {self.rule} forbids it"
        return f"the rule {self.rule} may forbid it: {self.unclear} ({PLAINLY})"


def forbidding_rule(rules: Sequence[str], text: str, root: Path) -> RuleMatch | None:
    """Return the first rule that covers a line, a command in it or a file that it names.

    Where it is unclear which commands will run, the first rule for commands counts as covering it.
    """
    if not rules:
        return None
    line = parse_line(text)
    unclear = f"policy cannot read it: {line.fault}" if line.fault else ""
    try:
        commands = all_commands(line, any_word=True)
        for command in all_commands(line):
            unclear = unclear or _why_unclear(command)
    except TooManyCommands as fault:
        commands = list(line.commands)
        unclear = unclear or str(fault)
    commands_with_words = [(command, _spelled_words(command)) for command in commands]
    commands_with_words = [(command, words) for command, words in commands_with_words if words]
    spellings = [text]
    for command, words in commands_with_words:
        name = words[0].text
        arguments = "".join(f" {word.text}" for word in words[1:])
        spellings += [command.text, name + arguments, name.lower() + arguments]
    for rule in rules:
        if any(match_command(rule, TOOL, spelling) for spelling in spellings):
            return RuleMatch(rule)
        tool, pattern = split_pattern(rule)
        if tool in {"read", "edit", "write"}:
            for path, is_written in _named_files(commands, root):
                if forbids_path(rule, path, root, is_written):
                    return RuleMatch(rule)
            if line.unreadable:
                return RuleMatch(rule, line.fault)
        elif covers_tool(tool, TOOL):
            if unclear:
                return RuleMatch(rule, unclear)
            for command, words in commands_with_words:
                if _could_match(pattern, words):
                    return RuleMatch(rule, _only_when_run(command))
    return None


def _only_when_run(command: Command) -> str:
    return f"`{shorten(command.text, 80)}` is known only when it runs"


def _why_unclear(command: Command) -> str:
    """Return why the shell or a program could make up another command, "" where none could."""
    for variable, word in command.assignments:
        changes_git = git_commands.variable_redirects_git(variable, word.text)
        if changes_git or _SHELL_VARIABLE.fullmatch(variable):
            return f"the variable {variable} changes what a command means"
    if not command.words:
        return ""
    name = command.name
    if not command.words[0].plain or name in _RUN_WHAT_THEY_READ:
        return _only_when_run(command)
    if name in SHELLS | WRAPPERS and not all(word.plain for word in command.words):
        return _only_when_run(command)
    if name in SHELLS and not _runs_readable_script(command):
        return _only_when_run(command)
    if name == "find" and any(inner.name not in READERS for inner in commands_within(command)):
        return _only_when_run(command)
    if name.lower() == "git":
        return _why_git_is_unclear(command)
    return ""


def _runs_readable_script(command: Command) -> bool:
    """Return whether a shell runs nothing but texts in its arguments that policy can read."""
    scripts = [argument for argument in command.arguments if not argument.startswith("-")]
    if command.operator == "|" or any("<" in r.operator for r in command.redirects):
        return False
    if not scripts or command.name not in {"sh", "bash", "dash", "ash"}:
        return False
    return not any(parse_line(script).fault for script in scripts)


def _why_git_is_unclear(command: Command) -> str:
    options, rest = git_commands.split_options(command.arguments)
    if git_commands.gives_other_settings(options):
        return git_commands.OTHER_SETTINGS
    if rest and rest[0] not in git_commands.KNOWN:
        is_plain = command.words[1 + len(options)].plain
        return f"`git {rest[0]}` may be an alias" if is_plain else _only_when_run(command)
    if _git_argument_that_runs(rest):
        return "git runs a command that stands in its arguments"
    return ""


def _git_argument_that_runs(arguments: Sequence[str]) -> str:
    """Return the pattern of _GIT_RUNS that git's arguments, its options left out, fit."""
    patterns = _GIT_RUNS.get(arguments[0], "").split() if arguments else ()
    return next((pattern for pattern in patterns if has_arguments(pattern, arguments[1:])), "")


def _argument_that_runs(command: Command) -> str:
    """Return the argument with which a command starts a program that stands in it, "" for none."""
    if command.name.lower() == "git":
        return _git_argument_that_runs(git_commands.split_options(command.arguments)[1])
    for pattern in _PROGRAM_RUNS.get(command.name, "").split():
        for argument in command.arguments:
            name = argument.partition("=")[0]
            is_same = fnmatchcase(argument, pattern) or fnmatchcase(name, pattern)
            is_shortened = len(name) > 3 and name.startswith("--") and pattern.startswith(name)
            has_value_behind = len(pattern) == 2 and argument.startswith(pattern)
            if is_same or is_shortened or has_value_behind:
                return name
    return ""


def _spelled_words(command: Command) -> list[Word]:
    """Return the words as rules spell them: a program without its folder, git without options."""
    if not command.words:
        return []
    name, rest = command.name, command.words[1:]
    if name.lower() == "git":
        name = "git"
        rest = rest[len(git_commands.split_options(command.arguments)[0]) :]
    return [replace(command.words[0], text=name), *rest]


def _could_match(pattern: str, words: Sequence[Word]) -> bool:
    """Return whether words that the shell makes could turn a command into one that the pattern is
    for.
    """
    for word, part in zip(words, pattern.replace(":*", " *").split(), strict=False):
        if not word.plain:
            return True
        if part == "*" or not fnmatchcase(word.text, part):
            return False
    return False


def allowing_rule(rules: Sequence[str], line: ShellLine, root: Path, *, writes: bool) -> str:
    """Return the rule that allows the commands of a line which do more than read, "" where one of
    them has none. `writes`: files of the repository may be written unasked.
    """
    if line.unreadable:
        return ""
    for rule in rules:
        tool, pattern = split_pattern(rule)
        if tool == TOOL and pattern in {"", "*"}:
            return rule
    if line.fault:
        return ""
    allowing = ""
    for command in line.commands:
        fault = read_fault(ShellLine((command,)), root)
        if fault is None or command.name == "cd":
            continue
        if any(_may_become_option(word) for word in command.words):
            return ""
        if not writes and not _may_write_redirects(command, rules, root):
            return ""
        allowing = _rule_for_command(rules, command, fault.option)
        if not allowing:
            return ""
    return allowing


def _rule_for_command(rules: Sequence[str], command: Command, option: str) -> str:
    """Return the first rule that allows a command. For a program that reads it must name `option`,
    with which the command does more; and it must name any argument that starts another program.
    """
    variables = [
        f"{name}={word.text} "
        for name, word in command.assignments
        if not HARMLESS_VARIABLE.fullmatch(name)
    ]
    text = "".join(variables) + command.text
    must_be_named = [_argument_that_runs(command)]
    if command.name in {*READERS, "git", "find"} - {"sed"}:
        must_be_named.append(option)
    for rule in rules:
        pattern = split_pattern(rule)[1]
        if match_command(rule, TOOL, text) and all(name in pattern for name in must_be_named):
            return rule
    return ""


def _may_write_redirects(command: Command, rules: Sequence[str], root: Path) -> bool:
    """Return whether a rule allows to edit every file that a command redirects to."""
    for redirect in command.redirects:
        if not redirect.writes:
            continue
        path = real_path(root / redirect.target.text)
        may_edit = any(match_path(rule, "edit", path, root, forbids=False) for rule in rules)
        if not (redirect.target.plain and may_edit):
            return False
    return True


def _may_become_option(word: Word) -> bool:
    """Return whether the shell may turn a word into an option: a file may be named like one."""
    return word.expands or (word.globbed and word.text[0] in "-*?[")


def _named_files(commands: Sequence[Command], root: Path) -> Iterator[tuple[Path, bool]]:
    """Yield the files that commands plainly name, with whether they are written."""
    folders = possible_folders(ShellLine(tuple(commands)), root)
    receivers = [command for command in commands if command.name in {"xargs", "parallel"}]
    receivers_write = any(WRITERS & set(command.arguments) for command in receivers)
    for command in commands:
        prints = command.name in {"echo", "printf"}
        writes = receivers_write if prints else writes_arguments(command)
        copies = command.name in COPIERS or command.arguments[:1] == ["mv"]
        named = [(word, writes) for word in command.words if receivers or not prints]
        named += [(redirect.target, redirect.writes) for redirect in command.redirects]
        for word, is_written in named:
            excludes = command.name == "git" and re.match(r":(?:\([^)]*exclude|[!^])", word.text)
            texts = () if excludes else _path_texts(word.text)
            for text, folder in itertools.product(texts, folders):
                for path in _paths_meant(text, word.globbed, folder):
                    yield path, is_written
                    if copies or receivers:
                        yield path, False


def _path_texts(text: str) -> Iterator[str]:
    """Yield the parts of a word that may be a path."""
    yield text.removeprefix("@")
    for separator in ("=", ":", ")"):
        index = text.find(separator)
        while index >= 0:
            part = text[index + 1 :]
            if len(part) <= LONGEST_PATH:
                yield re.sub(r"^[/!^]+(?=\w)", "", part) if separator == ":" else part
            index = text.find(separator, index + 1)
    if text.startswith("-") and len(text) > 2:
        yield text[2:]
    for start in ("$PWD/", "${PWD}/", "~+/"):
        if text.startswith(start):
            yield text.removeprefix(start)


def _paths_meant(text: str, globbed: bool, folder: Path) -> Iterator[Path]:
    if not text or "://" in text or "\0" in text or len(text) > LONGEST_PATH:
        return
    if text.startswith("~") and not text.startswith("~/"):
        return
    yield real_path(folder / expand_home(text))
    if globbed and os.path.normpath(text).count("/") < FOLDERS_DEEP:
        text = os.path.normpath(text)
        pattern = str(expand_home(re.sub(r"\[[^\]]*\]", "?", text))).lstrip("/")
        start = Path("/") if text.startswith(("/", "~")) else folder
        for count, path in enumerate(start.glob(pattern) if pattern else ()):
            if count == COMMANDS_AT_MOST:
                return
            yield real_path(path)
