"""The user's rules for a command line, for the commands in it and for the files they name.

A rule that forbids counts however the command is written, and a line in which the shell itself
could make up a command is refused while there is such a rule. A rule that allows counts for plain
commands. Stands above dangers.py and readers.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from fugu_cli.safety.git_configuration import UnreadableConfiguration
from fugu_cli.safety.paths import expand_home, real_path
from fugu_cli.safety.policy import git_commands
from fugu_cli.safety.policy.dangers import (
    COMMANDS_AT_MOST,
    SHELLS,
    WRAPPERS,
    WRITERS,
    commands_within,
    possible_folders,
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
_PRINTING = frozenset({"echo", "printf"})
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
        commands, unclear = list(_all_commands(line, root)), _why_unclear(line)
    except (UnreadableConfiguration, ValueError) as fault:
        commands, unclear = list(line.commands), str(fault)
    forms = [text, *(form for command in commands for form in _forms(command))]
    for rule in rules:
        about_commands = covers_tool(split_pattern(rule)[0], TOOL)
        if any(match_command(rule, TOOL, form) for form in forms):
            return RuleMatch(rule)
        if any(forbids_path(rule, path, root, is_written) for path, is_written in
               (_named_files(commands, root) if _is_about_files(rule) else ())):  # fmt: skip
            return RuleMatch(rule)
        if (about_commands and unclear) or (line.unreadable and _is_about_files(rule)):
            return RuleMatch(rule, unclear or line.fault)
        if about_commands:
            for command in commands:
                if _could_match(rule, command):
                    return RuleMatch(rule, f"`{command.text}` is known only when it runs")
    return None


def _all_commands(line: ShellLine, root: Path) -> Iterator[Command]:
    """Yield the commands of a line with all that could be one: what stands behind the name of any
    program that is no reader, quoted lines, and what aliases of git stand for.
    """
    folders = possible_folders(line, root)
    waiting, count = list(line.commands), 0
    seen: set[tuple[str, ...]] = set()
    while waiting:
        command = waiting.pop(0)
        key = tuple(word.text for word in command.words)
        if key in seen:
            continue
        seen.add(key)
        count += 1
        if count > COMMANDS_AT_MOST:
            raise ValueError("more commands than can be checked")
        yield command
        waiting += _commands_behind(command)
        if command.name.lower() == "git":
            waiting += git_commands.aliased_commands(command, folders)


def _commands_behind(command: Command) -> Iterator[Command]:
    name, words = command.name, command.words
    if name in READERS or not words:
        return
    if name.startswith("git-"):
        yield Command((Word("git"), Word(name.removeprefix("git-")), *words[1:]))
    if name == "git" and not git_commands.runs_a_command(command.arguments):
        return
    yield from commands_within(command)
    runs_words = (
        name in WRAPPERS or name in SHELLS or name in {"find", "git"} or "/ld" in words[0].text
    )
    for index, word in enumerate(words[1:], start=1):
        value = word.text.partition("=")[2] if word.text.startswith("-") else word.text
        if name != "git" and not runs_words and " " not in value:
            continue
        if " " in value.strip():
            yield from parse_line(value).commands
        elif runs_words:
            yield Command(words[index:])
        for option in ("-x", "-O"):
            if name == "git" and word.text.startswith(option) and word.text != option:
                yield from parse_line(word.text.removeprefix(option)).commands


def _why_unclear(line: ShellLine) -> str:
    """Return why the shell itself could make up a command in a line, "" where it could not."""
    if line.fault:
        return f"policy cannot read it: {line.fault}"
    for command in line.commands:
        if reason := _why_command_unclear(command):
            return reason
    return ""


def _why_command_unclear(command: Command) -> str:
    for name, word in command.assignments:
        if _SHELL_VARIABLE.fullmatch(name) or git_commands.variable_redirects_git(name, word.text):
            return f"the variable {name} changes what a command means"
    if not command.words:
        return ""
    name, arguments = command.name, command.arguments
    inner_commands = list(commands_within(command))
    hands_over_a_name = name == "find" and "{}" in arguments and bool(inner_commands)
    hands_over_a_name = hands_over_a_name and any(
        inner.name not in READERS for inner in inner_commands
    )
    if not command.words[0].plain or hands_over_a_name:
        return f"`{command.text}` is known only when it runs"
    if name in {"xargs", "parallel"}:
        return f"what `{name}` runs is known only when it runs"
    if name in {"printf", "wait"} and any(a[:2] in {"-v", "-p", "-n"} for a in arguments):
        return f"`{name}` may set a variable"
    if name in SHELLS | WRAPPERS and any(not word.plain for word in command.words[1:]):
        return f"`{name}` runs text that is known only when it runs"
    if name in SHELLS:
        return _why_shell_unclear(command)
    if name in WRAPPERS:
        return next(filter(None, map(_why_command_unclear, inner_commands)), "")
    options = git_commands.split_options(arguments)[0] if name == "git" else []
    return git_commands.OTHER_SETTINGS if git_commands.gives_other_settings(options) else ""


def _why_shell_unclear(command: Command) -> str:
    """Return why nobody can tell what a shell runs: it is fed, or its script is not plain."""
    scripts = [argument for argument in command.arguments if not argument.startswith("-")]
    is_fed = command.operator == "|" or any("<" in r.operator for r in command.redirects)
    if not scripts or is_fed or command.name not in {"sh", "bash", "dash", "ash"}:
        return f"`{command.name}` runs text that is known only when it runs"
    for script in scripts:
        if " " in script and (reason := _why_unclear(parse_line(script))):
            return reason
    return ""


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
        fault = read_fault(command, root)
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


def _is_about_files(rule: str) -> bool:
    return split_pattern(rule)[0] in {"read", "edit", "write"}


def _named_files(commands: Sequence[Command], root: Path) -> Iterator[tuple[Path, bool]]:
    """Yield the files that commands plainly name, with whether they are written."""
    folders = [root]
    receivers = [command for command in commands if command.name in {"xargs", "parallel"}]
    receivers_write = any(WRITERS & set(command.arguments) for command in receivers)
    for command in commands:
        if command.name in {"cd", "pushd"} or "-C" in command.arguments[:1]:
            named = command.words[-1 if command.name != "git" else 2 :][:1]
            folders += [real_path(root / expand_home(word.text)) for word in named]
    for command in commands:
        arguments = command.arguments
        is_written = command.name in WRITERS | {"dd"} or "-delete" in arguments or (
            command.name in {"sed", "perl", "ruby"}
            and git_commands.has_option(arguments, "i", "--in-place")
        )  # fmt: skip
        if command.name == "git":
            subcommand = git_commands.split_options(arguments)[1][:1]
            is_written = bool({"rm", "mv", "restore", "checkout", "apply", "clean"} & {*subcommand})
        is_copied = command.name in COPIERS
        if command.name == "git":
            is_copied = subcommand == ["mv"]
        words = command.words
        if command.name in _PRINTING:
            words, is_written = command.words if receivers else (), receivers_write
        named_words = [(word, is_written) for word in words]
        named_words += [(redirect.target, redirect.writes) for redirect in command.redirects]
        for word, written in named_words:
            excludes = command.name == "git" and re.match(r":(?:\([^)]*exclude|[!^])", word.text)
            for text in () if excludes else _path_texts(word.text):
                for folder in folders:
                    for path in _paths_meant(text, word.globbed, folder):
                        yield path, written
                        if is_copied or receivers:
                            yield path, False


def _path_texts(text: str) -> Iterator[str]:
    """Yield the parts of a word that may be a path."""
    yield text.removeprefix("@")
    for separator in ("=", ":", ")"):
        index = text.find(separator)
        while index >= 0:
            yield (
                re.sub(r"^[/!^]+(?=\w)", "", text[index + 1 :])
                if separator == ":"
                else text[index + 1 :]
            )
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
