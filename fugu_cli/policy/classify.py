"""A whole command line: what it needs, and why. Wrappers are looked through, paths are resolved.

Stands above shell.py, commands.py, git.py and paths.py, below the judge. Reads the disk only to follow links.
"""

from __future__ import annotations

import glob
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fugu_cli.policy import paths
from fugu_cli.policy.commands import READS, RUNS, SAFE_VARIABLES, Finding, Level, base, known_risk, refuses
from fugu_cli.policy.destroying import WHY, deletes, destroys
from fugu_cli.policy.git import after_options, judge_git
from fugu_cli.policy.naming import may_name_files, path_parts
from fugu_cli.policy.shell import Command, Redirect, Word, read
from fugu_cli.policy.tables import INTERPRETERS, PROBES, READERS, SHELLS, SYSTEM_FOLDERS, VERSION, WRITERS
from fugu_cli.policy.words import Unreadable
from fugu_cli.policy.wrappers import carried, given_more, unwrapped

DEVICES = frozenset({"/dev/null", "/dev/zero", "/dev/urandom", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/tty"})
GLOB_LIMIT = 500
FOLDER_LIMIT = 16


@dataclass(frozen=True)
class Judged:
    """A simple command with what it needs."""

    command: Command
    finding: Finding


def classify(line: str, root: Path) -> list[Judged]:
    """Every simple command of the line. Raises Unreadable."""
    commands = list(itertools.chain.from_iterable(unwrapped(command) for command in read(line)))
    if len(commands) > 200:
        raise Unreadable("more commands than can be checked")
    folders = folders_of(commands, root)
    return [Judged(command, _worst(command, commands, folders, root)) for command in commands]


def _worst(command: Command, commands: Sequence[Command], folders: Sequence[Path], root: Path) -> Finding:
    found = [_by_name(command, commands), *_by_paths(command, folders, root)]
    found += [_redirected(redirect, folders, root) for redirect in command.redirects]
    if any(not SAFE_VARIABLES.fullmatch(name) for name, _ in command.assignments):
        found.append(Finding(Level.RUNS, "it sets variables"))
    for inner in tuple(carried(command)):  # all of them first: too many are refused before paths are looked at
        found += [_by_name(inner, commands), *_by_paths(inner, folders, root)]
    return max(found, key=lambda finding: finding.level)


def _by_name(command: Command, commands: Sequence[Command]) -> Finding:
    """By the command's name and arguments."""
    if not command.words:
        return READS
    first, name = command.words[0], base(command)
    if (
        first.dynamic
        or (first.globbed and first.text not in {"[", "[["})
        or (command.mark and command.mark in first.text)
    ):
        return Finding(Level.EVERY, "what it runs is known only when it runs")
    if "/" in first.text and first.text.rpartition("/")[0] not in SYSTEM_FOLDERS:
        return Finding(Level.RUNS, "it runs a program of its own")
    risk = destroys(command) or known_risk(command) or _fed(command, commands) or given_more(command, commands)
    if risk is not None:
        return risk
    if name == "git":
        return _git(command)
    if name in PROBES and len(command.words) == 2 and (name, command.words[1].text) in VERSION:
        return READS
    return (refuses(command) or READS) if name in READERS else RUNS


def _git(command: Command) -> Finding:
    words = command.words[1:]
    rest = after_options([word.text for word in words])
    if rest and (words[-len(rest)].dynamic or (command.mark and command.mark in rest[0])):
        return Finding(Level.EVERY, "what it runs is known only when it runs")
    found = judge_git([word.text for word in words])
    unknown = command.given_more or any(word.dynamic for word in words)
    return max(found, RUNS, key=lambda finding: finding.level) if unknown else found


def _fed(command: Command, commands: Sequence[Command]) -> Finding | None:
    """Programs that take what they run, or what they work on, from their input."""
    name, given = base(command), command.words[1:]
    if name in SHELLS | {"source", "."} and any(word.dynamic for word in given):
        return Finding(Level.EVERY, "what it runs is known only when it runs")
    script = [word for word in given if not word.text.startswith("-")]
    fed = command.piped
    if name in SHELLS:  # a group or a loop around it may be what is fed
        fed = any(c.piped or any(r.op.startswith("<") for r in c.redirects) for c in commands)
    if name in INTERPRETERS and not script and fed:
        return Finding(Level.EVERY, f"it lets `{name}` run whatever it is given")
    return None


def folders_of(commands: Sequence[Command], root: Path) -> list[Path]:
    """Every folder a command may find itself in: a `cd` may fail, or be undone by a subshell."""
    folders = [root]
    for command in commands:
        target = _changes_to(command)
        if target is None:
            continue
        for folder in list(folders):
            found = paths.locate(target, root, folder)
            if isinstance(found, Path) and found not in folders:
                folders.append(found)
        if len(folders) > FOLDER_LIMIT:
            raise Unreadable("it changes folders too often")
    return folders


def _changes_to(command: Command) -> str | None:
    name, rest = base(command), [word.text for word in command.words[1:]]
    if name in {"cd", "pushd"}:
        given = [word for word in rest if word == "-" or not word.startswith("-")]
        return given[0] if given else "~"
    if name in {"git", "make", "ninja", "tar"} and "-C" in rest[:-1]:
        return rest[rest.index("-C") + 1]
    return None


def _by_paths(command: Command, folders: Sequence[Path], root: Path) -> Iterator[Finding]:
    name = base(command)
    writes = name in WRITERS
    if name == "cd" and (len(command.words) == 1 or command.words[1].text == "-"):
        yield Finding(Level.EVERY, "it leaves the repository")
    for word in may_name_files(command):
        if word.dynamic and (writes or word.text.startswith(("$HOME", "${HOME", "~"))):
            yield Finding(Level.EVERY, f"where `{word.text}` leads is known only when it runs")
            continue
        for text in path_parts(word.text, name):
            if (
                name != "find"
                and deletes(command)
                and any(paths.locate(text, root, folder) == root for folder in folders)
            ):
                yield Finding(Level.DESTROYS, f"`{text}`: it is the whole repository; {WHY}")
                continue
            reason = _reason(replace(word, text=text), folders, root, writes, kept=name == "git")
            if reason:
                lost = deletes(command) and not reason.startswith("it may hold") and not reason.startswith("it says")
                yield Finding(
                    Level.DESTROYS if lost else Level.EVERY, f"`{text}`: {f'{reason}; {WHY}' if lost else reason}"
                )


def _reason(word: Word, folders: Sequence[Path], root: Path, writes: bool, *, kept: bool = False) -> str:
    """Why the word needs a yes, "" where it does not. `kept`: git may have the file, although it is not there now."""
    text = word.text
    if text.startswith("file:"):
        return "it is outside the repository"
    if not text or "://" in text or text in DEVICES:
        return ""
    if text.startswith("~") and not text.startswith(("~/", "~ ")) and text != "~":
        return "it is somebody's home"
    for folder in folders:
        for path in expanded(word, folder, root):
            reason = paths.special(path, root, writes=writes)
            if reason.startswith("it may hold") and not (writes or kept or paths.there(path)):
                continue  # a word that only sounds like a file of secrets
            if reason:
                return reason
    return ""


def expanded(word: Word, folder: Path, root: Path) -> Iterator[Path]:
    """Where the word leads from `folder`; a glob to everything it matches now, hidden names included."""
    found = paths.locate(word.text, root, folder)
    if isinstance(found, Path):
        yield found
    if not word.globbed:
        return
    matches = glob.iglob(str(folder / Path(word.text).expanduser()))  # noqa: PTH207 - pathlib's cannot start at a root
    if any(part.startswith(".") and set(part) & set("*?[") for part in word.text.split("/")):
        matches = itertools.chain(matches, [str(folder / "..")])  # .* may match ..
    for index, match in enumerate(matches):
        if index >= GLOB_LIMIT:
            raise Unreadable(f"`{word.text}` matches too many files to check")
        yield paths.real(match)


def _redirected(redirect: Redirect, folders: Sequence[Path], root: Path) -> Finding:
    target = redirect.target
    if redirect.op in {"<<<", "<<"} or target.text in DEVICES:
        return READS
    if target.dynamic:
        where = "writes" if redirect.writes else "reads"
        return Finding(Level.EVERY if redirect.writes else Level.RUNS, f"where it {where} is known only when it runs")
    if redirect.writes and target.text.startswith("/dev/"):
        return Finding(Level.DESTROYS, f"`{target.text}` is a device")
    reason = _reason(target, folders, root, redirect.writes)
    if reason:
        return Finding(Level.EVERY, f"`{target.text}`: {reason}")
    return Finding(Level.RUNS, f"it writes `{target.text}`") if redirect.writes else READS
