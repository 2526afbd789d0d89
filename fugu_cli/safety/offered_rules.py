"""The rule that a yes may be remembered as: wide enough to be of use, never wider than what people
read beside the yes.

Only for one plain command, and for writing files inside the repository. A command that is compound,
wrapped or known only when it runs gets none: a yes is then one for this very call.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from fugu_cli.messages import Call
from fugu_cli.safety import policy
from fugu_cli.safety.paths import inside, locate, path_exists
from fugu_cli.safety.policy import rule_matching
from fugu_cli.safety.policy.dangers import (
    INTERPRETERS,
    RUNNERS,
    WRAPPERS,
    WRITERS,
    commands_within,
)
from fugu_cli.safety.policy.shell_line import Command, Word, names_of, parse_line
from fugu_cli.session.call_arguments import (
    MalformedArguments,
    arguments_of,
    named_paths,
)
from fugu_cli.session.tool_facts import facts_of

_PLAIN = re.compile(r"[A-Za-z0-9][\w.+-]*", re.ASCII)
_SUBCOMMAND = re.compile(r"[a-z][a-z0-9:_-]*", re.ASCII)
_TAKES_A_NAME = frozenset({"run", "run-script", "compose"})
"""Subcommands of which the next word says what is run."""
_FETCHES = frozenset({"install", "i", "add", "get", "create", "init", "exec", "dlx", "x"})
"""Subcommands of package managers that fetch or run whatever they are given."""
_OPEN = INTERPRETERS | WRITERS | WRAPPERS
_OPEN |= names_of(
    "curl wget find awk gawk mawk nawk sed docker podman psql mysql mariadb sqlite3 mongosh "
    "redis-cli java"
)
"""Programs whose arguments say what is run, or where it goes: any arguments would be anything."""
_NEEDS_SUBCOMMAND = frozenset({"make", "git", *RUNNERS})
_CHECKERS = names_of(
    "pytest unittest tox nox jest vitest mocha ava phpunit rspec mypy pyright ruff black isort flake8 "
    "pylint eslint prettier tsc rubocop"
)
"""Programs that test and check what the repository holds. Behind a runner a rule names them alone:
any other name there may be anything that the runner finds or fetches.
"""


def offered_rule(call: Call, judgement: policy.Judgement, rules: policy.Rules, root: Path) -> str:
    """Return the rule that remembers a yes to this call. "" if the yes holds for this very call
    alone, or only once.
    """
    if judgement.every_time:
        return ""
    arguments = arguments_of(call)
    if isinstance(arguments, MalformedArguments):
        return ""
    tool = facts_of(call.tool)
    if call.tool == "bash":
        rule = _command_rule(str(arguments.get(tool.command, "")), root)
    elif tool.effect == "writes" and tool.names_files:
        rule = _folder_rule(named_paths(tool, arguments), root)
    else:
        return ""
    if not rule or rule_matching.pattern_fault(rule):
        return ""
    return rule if is_allowed_by(call, rule, rules, root) else ""


def is_allowed_by(call: Call, rule: str, rules: policy.Rules, root: Path) -> bool:
    """Return whether the user's rules and this one allow the call."""
    if rule_matching.pattern_fault(rule):
        return False
    more = rules.model_copy(update={"allow": (*rules.allow, rule)})
    return policy.judge(call, more, root).verdict == "allow"


def _command_rule(text: str, root: Path) -> str:
    """Return `bash(pytest *)` or `bash(git commit *)`; "" for what is not one plain command."""
    line = parse_line(text)
    if line.fault or len(line.commands) != 1:
        return ""
    command = line.commands[0]
    alone = not (command.assignments or command.redirects)
    if not alone or not command.words or any(word.expands for word in command.words):
        return ""
    inner = commands_within(command)
    words = _leading_behind_runner(command, inner) if inner else _leading(command, root)
    return f"bash({' '.join(words)} *)" if words else ""


def _leading_behind_runner(command: Command, inner: Sequence[Command]) -> list[str]:
    """Return a runner and the checker that it runs, as in `python -m pytest`; [] for other
    commands, and if options stand between the two.
    """
    name, words = command.name, [word.text for word in command.words]
    verbs = RUNNERS.get(name, "").split()
    is_plain = all(word.plain for word in command.words[:3]) and words[0] == name
    if len(inner) != 1 or len(words) < 3 or not is_plain:
        return []
    if words[1] not in verbs or words[2] not in _CHECKERS or inner[0].words[0].text != words[2]:
        return []
    return words[:3]


def _leading(command: Command, root: Path) -> list[str]:
    """Return the program, with its subcommand if it has one; [] for a program that runs whatever it
    is given.
    """
    name, words = command.name, command.words
    if name in _OPEN or not _fits(words[0], _PLAIN):
        return []
    taken = [words[0].text]
    for word in words[1:3]:
        named = len(taken) == 1 or taken[-1] in _TAKES_A_NAME
        if not named or not _fits(word, _SUBCOMMAND) or path_exists(root / word.text):
            break
        taken.append(word.text)
    if len(taken) > 1 and taken[-1] in _TAKES_A_NAME:  # what it runs is not said in plain words
        return []
    if name != "git" and not _FETCHES.isdisjoint(taken[1:]):
        return []
    return taken if len(taken) > 1 or name not in _NEEDS_SUBCOMMAND else []


def _fits(word: Word, pattern: re.Pattern[str]) -> bool:
    return word.plain and pattern.fullmatch(word.text) is not None


def _folder_rule(names: Sequence[str], root: Path) -> str:
    """Return a rule like `edit(src/**)` for the folder that holds all files; for a file in the root
    that file alone.
    """
    files = []
    for name in names:
        path = locate(name, root)
        if isinstance(path, Path) and inside(path, root):
            files.append(path)
    if not files or len(files) < len(names):
        return ""
    folder = Path(os.path.commonpath([path.parent for path in files]))
    if folder != root:
        pattern = f"{_relative(folder, root)}/**"
    elif len(set(files)) == 1:
        pattern = _relative(files[0], root)
    else:
        return ""
    return f"edit({pattern})" if pattern.isprintable() else ""


def _relative(path: Path, root: Path) -> str:
    return rule_matching.escape_argument("edit", path.relative_to(root).as_posix())
