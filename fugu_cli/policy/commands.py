"""What a simple command does: only reads, runs something, or needs a yes every time.

Stands between shell.py and the judge. Tables first, then the few commands whose arguments decide (git has its own
module). An unknown command runs something; nothing is taken to be harmless because it is not known.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from fugu_cli.policy.shell import Command, Word
from fugu_cli.policy.tables import EVERY_TIME, FIND_WRITES, PUBLISHES, REFUSED, SHOWS_KEYS


class Level(IntEnum):
    """How much a command needs: nothing, a yes where the mode says so, a yes every time, a rule that names it."""

    READS = 0
    RUNS = 1
    EVERY = 2
    DESTROYS = 3


@dataclass(frozen=True)
class Finding:
    """A level with its reason."""

    level: Level
    reason: str


READS = Finding(Level.READS, "it only reads")
RUNS = Finding(Level.RUNS, "it runs something")

SAFE_VARIABLES = re.compile(r"LANG|LC_\w+|CI|NO_COLOR|FORCE_COLOR|TERM|COLUMNS|LINES|TZ")
_SED_ADDRESS = r"(?:\d+|\$|/(?:[^/\\\n]|\\.)*/)"
_SED_LINES = rf"{_SED_ADDRESS}(?:,(?:{_SED_ADDRESS}|\+\d+))? *!?[pd=q]?"
_SED_SCRIPT = re.compile(
    r"[\d$,;~+! \t{}p=qd]*|" + _SED_LINES + r"(?: *; *" + _SED_LINES + r")*"
    r"|[\d$,]*s(?P<d>[/|#,])(?:(?!(?P=d))[^\\\n]|\\.)*(?P=d)(?:(?!(?P=d))[^\\\n]|\\.)*(?P=d)[gIip\d]*"
)
_AWK_DANGER = re.compile(r"[|>@]|system|getline|ENVIRON|ARGV|close|fflush|^-[^F]")
_JQ_DANGER = re.compile(r"\benv\b|\$ENV|input_filename|\binclude\b|\bimport\b")
_UPLOADS = ("--data", "--form", "--upload-file", "--request", "--config", "--json", "--post", "--body", "--method")


def refuses(command: Command) -> Finding | None:
    """A reason why a reader does more than read; None when it only reads."""
    name, arguments = base(command), [word.text for word in command.words[1:]]
    if any(word.dynamic for word in command.words):
        return Finding(Level.RUNS, "what it reads is known only when it runs")
    letters, longs = REFUSED.get(name, ("", ()))
    if any(_option(argument, letters, longs) for argument in arguments):
        return Finding(Level.RUNS, f"with these options `{name}` does more than read")
    if name == "find":
        return _find(arguments)
    if _odd(name, arguments):
        return Finding(Level.RUNS, f"with these arguments `{name}` may do more than read")
    return None


def _odd(name: str, arguments: Sequence[str]) -> bool:
    """The arguments themselves hold a program, or name a file to write."""
    positional = [argument for argument in arguments if not argument.startswith("-")]
    match name:
        case "uniq":
            return len(positional) > 1
        case "date":
            return any(not argument.startswith("+") for argument in positional)
        case "[[":  # numbers are worked out, and a name's value may hold a command
            return any(argument in {"-eq", "-ne", "-lt", "-le", "-gt", "-ge"} for argument in arguments)
        case "set":
            return any(not re.fullmatch(r"[-+][euxo]+|pipefail", argument) for argument in arguments)
        case "sed":
            return not _plain_sed(arguments, positional)
        case "awk":
            return any(_AWK_DANGER.search(argument) for argument in arguments)
        case "jq":
            return any(_JQ_DANGER.search(argument) for argument in arguments)
        case _:
            return False


def _plain_sed(arguments: Sequence[str], positional: Sequence[str]) -> bool:
    """The script is addresses with p, d, =, q, or one s command without the flags that write or run."""
    expressions = [b for a, b in itertools.pairwise(arguments) if a in {"-e", "--expression"}]
    strange = [a for a in arguments if a.startswith("-") and a not in {"-n", "-e", "-E", "-r", "-ne", "-nE", "-z"}]
    scripts = expressions or list(positional[:1])
    return bool(scripts) and not strange and "-ne" not in arguments[1:] and all(map(_SED_SCRIPT.fullmatch, scripts))


def _option(argument: str, letters: str, longs: Sequence[str]) -> bool:
    if argument.startswith("--"):
        given = argument.split("=", 1)[0]
        return len(given) > 2 and any(long.startswith(given) or given.startswith(long) for long in longs)
    return argument.startswith("-") and bool(set(argument[1:]) & set(letters))


def _find(arguments: Sequence[str]) -> Finding | None:
    if "-delete" in arguments:
        return Finding(Level.EVERY, "it deletes what it finds")
    if FIND_WRITES & set(arguments):
        return Finding(Level.RUNS, "with these options `find` writes or asks")
    return None


def base(command: Command) -> str:
    """The command's name without its folder, as the tables know it."""
    return command.words[0].text.rsplit("/", 1)[-1] if command.words else ""


def known_risk(command: Command) -> Finding | None:
    """What needs a yes every time by the command's name and arguments alone."""
    name, arguments = base(command), [word.text for word in command.words[1:]]
    name = "mkfs" if name.startswith("mkfs.") else name
    if name in EVERY_TIME:
        sets = EVERY_TIME[name] == SHOWS_KEYS and name != "printenv" and arguments not in ([], ["-p"], ["-x"])
        return None if sets else Finding(Level.EVERY, EVERY_TIME[name])
    said = [argument for argument in arguments if not argument.startswith("-")]
    if name in PUBLISHES and PUBLISHES[name] & set(said[:3]):
        return Finding(Level.EVERY, "it acts on something outside the repository")
    if name == "rm":
        return _remove(command.words[1:])
    if name in {"chmod", "chown", "chgrp"} and (name == "chown" or given(arguments, "R", "--recursive")):
        return Finding(Level.EVERY, "it changes who may use many files")
    if name in {"curl", "wget"} and given(arguments, "dFTXK" if name == "curl" else "", *_UPLOADS):
        return Finding(Level.EVERY, "it sends something out")
    if name in {"npm", "pnpm", "yarn"} and {"-g", "--global"} & set(arguments):
        return Finding(Level.EVERY, "it installs for the whole system")
    return None


def given(arguments: Sequence[str], letters: str, *longs: str) -> bool:
    """One of these short options (alone or in a cluster) or long ones (shortened too) is among the arguments."""
    return any(_option(argument, letters, longs) for argument in arguments)


def _remove(words: Sequence[Word]) -> Finding | None:
    targets = [word for word in words if not word.text.startswith("-")]
    if any(word.dynamic for word in targets):
        return Finding(Level.EVERY, "what it deletes is known only when it runs")
    everything = {"*", ".", "./", "./*", ".*", "*/", "**"}
    if any(word.text in everything for word in targets):
        return Finding(Level.EVERY, "it deletes everything here")
    return None
