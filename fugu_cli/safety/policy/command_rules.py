"""The user's rules for a command line, for the commands in it and for the files they name.

A rule that forbids counts however the command is written, and a line in which the shell itself
could make up a command is refused while there is such a rule. A rule that allows counts for plain
commands. Stands above dangers.py and readers.py.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from fugu_cli.formatting import shorten
from fugu_cli.safety.paths import expand_home, real_path
from fugu_cli.safety.policy import git_commands
from fugu_cli.safety.policy.dangers import (
    COMMANDS_AT_MOST,
    SHELLS,
    WRAPPERS,
    WRITERS,
    TooManyCommands,
    all_commands,
    commands_within,
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
from fugu_cli.safety.policy.shell_line import Command, ShellLine, Word, parse_line

TOOL = "bash"
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
    """Return the first rule that covers a line, a command in it or a file that it names."""
    if not rules:
        return None
    line = parse_line(text)
    try:
        commands = all_commands(line, any_word=True)
        unclear = _why_unclear(line)
    except TooManyCommands as fault:
        commands, unclear = list(line.commands), str(fault)
    forms = [text, *(form for command in commands for form in _forms(command))]
    for rule in rules:
        about_commands = covers_tool(split_pattern(rule)[0], TOOL)
        about_files = split_pattern(rule)[0] in {"read", "edit", "write"}
        if any(match_command(rule, TOOL, form) for form in forms):
            return RuleMatch(rule)
        if about_files:
            for path, is_written in _named_files(commands, root):
                if forbids_path(rule, path, root, is_written):
                    return RuleMatch(rule)
        if (about_commands and unclear) or (about_files and line.unreadable):
            return RuleMatch(rule, unclear or line.fault)
        for command in commands if about_commands else ():
            if _could_match(rule, command):
                return RuleMatch(rule, f"`{command.text}` is known only when it runs")
    return None


def _why_unclear(line: ShellLine) -> str:
    """Return why the shell itself could make up a command in a line, "" where it could not."""
    if line.fault:
        return f"policy cannot read it: {line.fault}"
    return next(filter(None, map(_why_command_unclear, all_commands(line))), "")


def _why_command_unclear(command: Command) -> str:
    for name, word in command.assignments:
        if _SHELL_VARIABLE.fullmatch(name) or git_commands.variable_redirects_git(name, word.text):
            return f"the variable {name} changes what a command means"
    if not command.words:
        return ""
    name, arguments = command.name, command.arguments
    only_when_run = f"`{shorten(command.text, 80)}` is known only when it runs"
    if not command.words[0].plain or name in {"xargs", "parallel"}:
        return only_when_run
    if name in SHELLS | WRAPPERS and not all(word.plain for word in command.words):
        return only_when_run
    if name == "find" and any(inner.name not in READERS for inner in commands_within(command)):
        return only_when_run
    if name in {"printf", "wait"} and any(a[:2] in {"-v", "-p", "-n"} for a in arguments):
        return f"`{name}` may set a variable"
    if name in SHELLS:
        scripts = [argument for argument in arguments if not argument.startswith("-")]
        is_fed = command.operator == "|" or any("<" in r.operator for r in command.redirects)
        is_plain = scripts and not any(parse_line(script).fault for script in scripts)
        if is_fed or not is_plain or name not in {"sh", "bash", "dash", "ash"}:
            return only_when_run
    return _why_git_unclear(command) if name.lower() == "git" else ""


def _why_git_unclear(command: Command) -> str:
    options, rest = git_commands.split_options(command.arguments)
    if git_commands.gives_other_settings(options):
        return git_commands.OTHER_SETTINGS
    if not rest:
        return ""
    if git_commands.matches_row(git_commands.RUNNING, rest[0], rest[1:]):
        return "git runs a command that stands in its arguments"
    is_own = rest[0] in git_commands.KNOWN | git_commands.PUBLISHING | git_commands.REACHING
    if is_own:
        return ""
    if not command.words[1 + len(options)].plain:
        return f"`{shorten(command.text, 80)}` is known only when it runs"
    return f"`git {rest[0]}` may be an alias"


def _forms(command: Command) -> Iterator[str]:
    """Yield a command as it is written, and without what stands around its name."""
    if not command.words:
        return
    yield command.text
    arguments = command.arguments
    if command.name.lower() == "git":
        arguments = git_commands.split_options(arguments)[1]
    yield " ".join([command.name, *arguments])
    yield " ".join([command.name.lower(), *arguments])


def _could_match(rule: str, command: Command) -> bool:
    """Return whether words that the shell makes could turn a command into one that the rule is
    for.
    """
    words = list(command.words)
    if command.name.lower() == "git":
        options, rest = git_commands.split_options(command.arguments)
        words = [Word("git"), *command.words[1 + len(options) : 1 + len(options) + len(rest)]]
    pattern = split_pattern(rule)[1].replace(":*", " *").split()
    for word, part in zip(words, pattern, strict=False):
        if not word.plain:
            return True
        text = word.text.rsplit("/", 1)[-1] if word is words[0] else word.text
        if part == "*" or not fnmatchcase(text, part):
            return False
    return False


def allowing_rule(rules: Sequence[str], line: ShellLine, root: Path, *, writes: bool) -> str:
    """Return the rule that allows the commands of a line which do more than read, "" where one of
    them has none. `writes`: files of the repository may be written unasked.
    """
    everything = next((rule for rule in rules if split_pattern(rule)[1] in {"", "*"}
                       and split_pattern(rule)[0] == TOOL), "")  # fmt: skip
    if line.unreadable:
        return ""
    if everything:
        return everything
    if line.fault:
        return ""
    allowing = ""
    for command in line.commands:
        fault = read_fault(ShellLine((command,)), root)
        if fault is None or command.name == "cd":
            continue
        sets = [
            f"{name}={word.text}"
            for name, word in command.assignments
            if not HARMLESS_VARIABLE.fullmatch(name)
        ]
        text = " ".join([*sets, command.text])
        matching = [rule for rule in rules if match_command(rule, TOOL, text)]
        if command.name in {*READERS, "git", "find"} - {"sed"}:
            matching = [rule for rule in matching if fault.option in split_pattern(rule)[1]]
        written = [redirect.target for redirect in command.redirects if redirect.writes]
        may_write = writes or all(_may_write(rules, word, root) for word in written)
        if not matching or not may_write:
            return ""
        allowing = matching[0]
    return allowing


def _may_write(rules: Sequence[str], word: Word, root: Path) -> bool:
    path = real_path(root / word.text)
    return word.plain and any(match_path(r, "edit", path, root, forbids=False) for r in rules)


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
            yield re.sub(r"^[/!^]+(?=\w)", "", part) if separator == ":" else part
            index = text.find(separator, index + 1)
    if text.startswith("-") and len(text) > 2:
        yield text[2:]
    for start in ("$PWD/", "${PWD}/", "~+/"):
        if text.startswith(start):
            yield text.removeprefix(start)


def _paths_meant(text: str, globbed: bool, folder: Path) -> Iterator[Path]:
    if not text or "://" in text or "\0" in text:
        return
    if text.startswith("~") and not text.startswith("~/"):
        return
    yield real_path(folder / expand_home(text))
    if globbed:
        pattern = str(expand_home(re.sub(r"\[[^\]]*\]", "?", text))).lstrip("/")
        start = Path("/") if text.startswith(("/", "~")) else folder
        for count, path in enumerate(start.glob(pattern) if pattern else ()):
            if count == COMMANDS_AT_MOST:
                return
            yield real_path(path)
