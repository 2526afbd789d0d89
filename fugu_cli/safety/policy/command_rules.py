"""Which of the user's rules covers a command line, the commands in it and the files that they
name.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fugu_cli.safety.policy.classification import (
    ClassifiedCommand,
    expand_word,
    may_name_files,
    path_parts,
    possible_folders,
)
from fugu_cli.safety.policy.git_commands import after_options
from fugu_cli.safety.policy.programs import (
    SAFE_VARIABLES,
    WRITERS,
    RiskLevel,
    command_arguments,
    has_option,
    program_name,
)
from fugu_cli.safety.policy.rule_matching import (
    EVERYTHING,
    covers_tool,
    forbids_path,
    match_command,
    match_path,
    split_pattern,
)
from fugu_cli.safety.policy.shell_parser import MANY, ONE, Command, Word

TOOL = "bash"
PLAINLY = (
    "write simple commands, with their names and arguments in plain words, and one call for each"
)
"""How a line is written so that rules can be checked."""
IN_PLACE = frozenset({"sed", "perl", "ruby"})
"""Programs that write the files they are given with `-i`."""
COPIERS = frozenset({"cp", "mv", "ln", "install", "rsync", "scp"})
"""Programs by which what a file holds is found elsewhere."""
CHANGING = frozenset({"rm", "mv", "restore", "checkout", "apply", "clean"})
"""Commands of git that change the files they name."""


@dataclass(frozen=True)
class RuleMatch:
    """A rule, and why it counts where it is not sure that the line is what it means."""

    rule: str
    unclear: str = ""

    @property
    def forbids(self) -> str:
        if not self.unclear:
            return f"the rule {self.rule} forbids it"
        return f"the rule {self.rule} may forbid it: {self.unclear} ({PLAINLY})"


def forbidding_rule(
    rules: Sequence[str],
    line: str,
    judged: Sequence[ClassifiedCommand],
    root: Path,
    unread: str = "",
) -> RuleMatch | None:
    """The first rule that covers the line, a part of it, or a file that it names.

    `unread` says why the line could not be read: then every rule that could forbid a command does.
    """
    commands = [made for one in judged for made in (one.command, *one.carried)]
    surely = [
        line,
        *(form for command in commands for form in _forms(command, command_arguments(command))),
    ]
    maybe = [form for command in commands if _open(command) for form in _open_forms(command)]
    why = (
        f"policy cannot read it: {unread}"
        if unread
        else next((one.unclear for one in judged if one.unclear), "")
    )
    files = list(_files(commands, root)) if any(map(_about_files, rules)) else []
    for rule in rules:
        if any(match_command(rule, TOOL, form) for form in surely):
            return RuleMatch(rule)
        if any(forbids_path(rule, path, root, written) for path, written in files):
            return RuleMatch(rule)
        about_commands = covers_tool(split_pattern(rule)[0], TOOL)
        if (about_commands and why) or (unread and _about_files(rule)):
            return RuleMatch(rule, why)
        if about_commands and (form := next((one for one in maybe if _could_match(rule, one)), "")):
            return RuleMatch(rule, f"`{_plain(form)}` is known only when it runs")
    return None


def allowing_rule(
    rules: Sequence[str], judged: Sequence[ClassifiedCommand], root: Path, *, writes: bool
) -> str:
    """The rule that allows the commands which run something, when every one of them has one.

    `writes`: files in the repository may be written unasked; else a rule for a command allows no
    redirection to one.
    """
    found = ""
    for one in judged:
        if one.finding.level is RiskLevel.READS:
            continue
        text = _with_variables(one.command)
        options = {one.finding.option, *(redirect.option for redirect in one.command.redirects)} - {
            ""
        }
        rule = next(
            (rule for rule in rules if match_command(rule, TOOL, text) and _names(rule, options)),
            "",
        )
        if not rule or not one.command.words:
            return ""
        bare = split_pattern(rule)[1] in {"", "*"}
        if not (
            writes
            or bare
            or all(_may_write(rules, path, root) for path in _redirected(one.command, root))
        ):
            return ""
        found = rule
    return found


def _names(rule: str, options: set[str]) -> bool:
    """A rule for a reader allows an option by which it writes or runs something only when it names
    that option.
    """
    argument = split_pattern(rule)[1]
    return argument in EVERYTHING or all(option in argument for option in options)


def _forms(command: Command, arguments: Sequence[str]) -> Iterator[str]:
    """As it is written, and without what stands around its name: a folder before it, git's own
    options.
    """
    if not command.words:
        return
    name = command.words[0].shape
    yield " ".join([name, *arguments])
    plain = name.rsplit("/", 1)[-1]
    rest = after_options(arguments) if plain.lower() == "git" else arguments
    yield " ".join([plain, *rest])
    yield " ".join([plain.lower(), *rest])  # where letter case does not tell files apart


def _open(command: Command) -> bool:
    """Some of its words are known only when it runs."""
    return command.given_more or any(ONE in shape or MANY in shape for shape in command.shapes)


def _open_forms(command: Command) -> Iterator[str]:
    """The forms of such a command. One whose name is not known may run what stands behind it."""
    yield from _forms(command, command.shapes[1:])
    if (
        program_name(command) == "git"
    ):  # what is known only when it runs may be an option before the subcommand
        rest = itertools.dropwhile(
            lambda shape: ONE in shape or MANY in shape, after_options(command.shapes[1:])
        )
        yield " ".join(["git", *rest])
    if command.words and command.words[0].shape != command.words[0].text:
        for at in range(1, len(command.words)):
            yield from _forms(replace(command, words=command.words[at:]), command.shapes[at + 1 :])


def _plain(form: str) -> str:
    return re.sub(f"[{ONE}{MANY}]+", "...", form)


def _could_match(rule: str, form: str) -> bool:
    """Some text that the form could be when it runs is one that the rule is for."""
    argument = split_pattern(rule)[1]
    if argument in EVERYTHING:
        return True
    argument = f"{argument[:-2]} *" if argument.endswith(":*") else argument
    whole = [argument, argument[:-2]] if argument.endswith(" *") else [argument]
    words = re.sub(f" *{MANY}[{MANY}{ONE}]* *", MANY, form)  # it may be no word at all
    return any(_meet([*_tokens(one, "*")], [*_tokens(words, MANY)]) for one in whole)


def _tokens(text: str, star: str) -> Iterator[str]:
    """Characters, "?" for any one, "*" for any text, "+" for any text without a space in it."""
    at = 0
    while at < len(text):
        char = text[at]
        at += 1
        if char == star:
            yield "**"
        elif char == ONE:
            yield "++"
        elif star == "*" and (char == "?" or (char == "[" and "]" in text[at + 1 :])):
            at = text.find("]", at + 1) + 1 if char == "[" else at
            yield "??"
        else:
            yield char


def _meet(left: Sequence[str], right: Sequence[str]) -> bool:
    """Two patterns have a text in common."""
    states, seen = {(0, 0)}, set[tuple[int, int]]()
    while states:
        state = states.pop()
        if state in seen:
            continue
        seen.add(state)
        one, other = state
        if one == len(left) and other == len(right):
            return True
        a, b = left[one] if one < len(left) else "", right[other] if other < len(right) else ""
        if a in {"**", "++"}:
            states.add((one + 1, other))
        if b in {"**", "++"}:
            states.add((one, other + 1))
        if a and b and _agree(a, b):
            states.add((one + (a not in {"**", "++"}), other + (b not in {"**", "++"})))
    return False


def _agree(a: str, b: str) -> bool:
    """One character fits both."""
    if "++" in (a, b):
        return " " not in (a, b)
    return a == b or len(a) == 2 or len(b) == 2


def _with_variables(command: Command) -> str:
    """What it sets is a part of what is run; but for what changes nothing but its looks."""
    sets = [
        f"{name}={word.text}"
        for name, word in command.assignments
        if not SAFE_VARIABLES.fullmatch(name)
    ]
    return " ".join([*sets, command.text])


def _about_files(rule: str) -> bool:
    return split_pattern(rule)[0] in {"read", "edit", "write"}


def _may_write(rules: Sequence[str], path: Path, root: Path) -> bool:
    return any(match_path(rule, "edit", path, root, forbids=False) for rule in rules)


def _redirected(command: Command, root: Path) -> Iterator[Path]:
    for redirect in command.redirects:
        if redirect.writes and not redirect.target.text.startswith("/dev/"):
            yield from expand_word(redirect.target, root, root)


def _files(commands: Sequence[Command], root: Path) -> Iterator[tuple[Path, bool]]:
    """The files that the commands plainly name, and whether they write them."""
    folders, given = (
        possible_folders(commands, root),
        [command for command in commands if command.given_more],
    )
    for command in commands:
        for word, written in _named(command, root, given):
            if (
                word.text
                and not word.dynamic
                and "://" not in word.text
                and not _of_somebody(word.text)
            ):
                yield from (
                    (path, written)
                    for folder in folders
                    for path in expand_word(word, folder, root)
                )


def _named(command: Command, root: Path, given: Sequence[Command]) -> Iterator[tuple[Word, bool]]:
    """`given`: commands of the line that take names from elsewhere, of those that are printed
    too.
    """
    name, written = program_name(command), _writes(command)
    printed = bool(given) and name in {"echo", "printf"}
    for word in command.words[1:] if printed else may_name_files(command):
        for text in path_parts(word.text, name):
            named = _below_root(replace(word, text=text), root)
            yield named, written or (printed and any(map(_writes, given)))
            if printed or _copies(command):
                yield named, False
    for one in command.redirects:
        if given or not one.op.startswith("<<"):
            yield _below_root(one.target, root), one.writes


def _copies(command: Command) -> bool:
    """What its files hold is found elsewhere behind it."""
    name = program_name(command)
    return name in COPIERS or (
        name == "git" and after_options(command_arguments(command))[:1] == ["mv"]
    )


def _writes(command: Command) -> bool:
    """It writes, moves or removes the files that it names."""
    name, words = program_name(command), command_arguments(command)
    if name == "git":
        return next(iter(after_options(words)), "") in CHANGING
    in_place = name in IN_PLACE and has_option(words, "i", "--in-place")
    return (
        in_place
        or name in WRITERS
        or (name == "find" and "-delete" in words)
        or any(w[:3] == "of=" for w in words)
    )


def _below_root(word: Word, root: Path) -> Word:
    """`$PWD/FILE` is a file that is plainly named, as long as no command changes the folder."""
    for start in ("$PWD/", "${PWD}/", "~+/"):
        if word.text.startswith(start) and "$" not in (rest := word.text[len(start) :]):
            return replace(word, text=f"{root}/{rest}", dynamic=False)
    return word


def _of_somebody(text: str) -> bool:
    """It stands in a home that is not the user's."""
    return text.startswith("~") and text != "~" and not text.startswith("~/")
