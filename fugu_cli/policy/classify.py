"""A whole command line: what each simple command needs, and why. Wrappers are looked through, paths are resolved.

Stands above shell.py, programs.py, git.py and wrappers.py, below the judge. Reads the disk only to follow links, to
match globs and to look up aliases of git.
"""

from __future__ import annotations

import glob
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fugu_cli.policy import git, paths
from fugu_cli.policy.programs import (
    DELETERS,
    FIND,
    FREE,
    INTERPRETERS,
    PROBES,
    READERS,
    READS,
    RUNS,
    SAFE_VARIABLES,
    SHELLS,
    UNKNOWN,
    VERSION,
    WHY,
    WORKS_OUT,
    WRITERS,
    Finding,
    Level,
    arguments_of,
    base,
    destroys,
    is_own,
    known_risk,
    parsed,
    reads,
)  # fmt: skip
from fugu_cli.policy.shell import Command, Redirect, Unreadable, Word, read
from fugu_cli.policy.wrappers import aliased, carried, given_more, unwrapped

DEVICES = frozenset({"/dev/null", "/dev/zero", "/dev/urandom", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/tty"})
GLOB_LIMIT = 500
FOLDER_LIMIT = 16
MOST = 200
"""Commands of a line."""
ALIASES_DEEP = 5
LEAVES = Finding(Level.EVERY, "it leaves the repository")
OPTION = Finding(Level.EVERY, "the name of a file here is taken for an option")
_RISKY = {name for name, options in READERS.items() if {"!", "w"} & {*options.known.values()}}
_RISKY |= WRITERS | {"git", "find", "printf"}
"""Programs for which an option may write or run something."""


@dataclass(frozen=True)
class Judged:
    """A simple command with what it needs. `carried` is what it runs besides, `unclear` why nobody can tell what."""

    command: Command
    finding: Finding
    carried: tuple[Command, ...] = ()
    unclear: str = ""


@dataclass(frozen=True)
class Line:
    """What one command is judged with: all of its line, and where it may find itself."""

    commands: tuple[Command, ...]
    folders: tuple[Path, ...]
    root: Path


def classify(text: str, root: Path) -> list[Judged]:
    """Every simple command of the line. Raises Unreadable."""
    commands = tuple(itertools.chain.from_iterable(unwrapped(command) for command in read(text)))
    commands = _without_aliases(commands, root, folders_of(commands, root))
    line = Line(commands, tuple(folders_of(commands, root)), root)
    if any(base(one) == "let" for one in commands) and any(
        base(one) in {"read", "mapfile", "readarray"} for one in commands
    ):
        raise Unreadable("a sum with what is read, which may hold a command")
    return [_judged(command, line) for command in commands]


def _without_aliases(commands: Sequence[Command], root: Path, folders: Sequence[Path]) -> tuple[Command, ...]:
    """The commands with what aliases of git stand for, wherever in the line it may be that they are run."""
    for _ in range(ALIASES_DEEP):
        before = tuple(commands)
        commands = tuple(itertools.chain.from_iterable(aliased(one, folders) for one in before))
        if len(commands) > MOST:
            raise Unreadable("more commands than can be checked")
        if commands == before:
            return before
        folders = [*folders, *folders_of(commands, root)]
    raise Unreadable("an alias of git that stands for itself")


def _judged(command: Command, line: Line) -> Judged:
    inner = _without_aliases(tuple(carried(command)), line.root, line.folders)
    found = [*_by_name(command, line), *_by_paths(command, line)]
    found += [_redirected(redirect, line) for redirect in command.redirects]
    if any(not SAFE_VARIABLES.fullmatch(name) for name, _ in command.assignments):
        found.append(Finding(Level.RUNS, "it sets variables"))
    for one in inner:
        found += [*_by_name(one, line), *_by_paths(one, line)]
    unclear = next((why for one in (command, *inner) if (why := _unclear(one, line))), "")
    return Judged(command, max(found, key=lambda finding: finding.level), inner, unclear)


def _by_name(command: Command, line: Line) -> Iterator[Finding]:
    """By the command's name and arguments."""
    if not command.words or command.alias:
        yield READS
        return
    first, name = command.words[0], base(command)
    if first.dynamic or first.shape != first.text or (command.mark and command.mark in first.text):
        yield UNKNOWN
        return
    if name == "git":
        yield from _git(command, line)
    if is_own(command):
        yield Finding(Level.RUNS, "it runs a program of its own")
        return
    more = given_more(command, line.commands)
    risk = destroys(command) or known_risk(command) or _fed(command, line) or more
    if risk is not None:
        yield risk
    elif name in PROBES and (name, *arguments_of(command)) in VERSION:
        yield READS
    elif name != "git":
        yield reads(command)
    bare = any(word.globbed and word.text[:1] in "*?[" for word in command.words[1:])
    finds = (base(one) == "find" for one in line.commands if one.pipeline == command.pipeline)
    if (bare or (command.given_more and not any(finds))) and name in _RISKY and any(map(_has_dashed, line.folders)):
        yield OPTION


def _has_dashed(folder: Path) -> bool:
    return next(folder.glob("-*"), None) is not None


def _git(command: Command, line: Line) -> Iterator[Finding]:
    words = command.words[1:]
    at = git.subcommand_at([word.text for word in words])
    if at < len(words) and command.mark and command.mark in words[at].text:
        yield UNKNOWN
        return
    found = git.judge_git(words)
    yield max(found, RUNS, key=lambda one: one.level) if command.given_more else found
    if any(git.gives(*pair) for pair in _variables(line.commands)):
        yield git.GIVES
    yield from (git.elsewhere(folder, line.root) for folder in line.folders)


def _variables(commands: Iterable[Command]) -> Iterator[tuple[str, Word]]:
    """The variables that a line sets, by assignments and by builtins."""
    for command in commands:
        yield from command.assignments
        if base(command) in WORKS_OUT - {"[", "[[", "test", "wait"}:
            for word in command.words[1:]:
                name, _, value = word.text.partition("=")
                yield name, replace(word, text=value, shape=word.shape.partition("=")[2])


def _fed(command: Command, line: Line) -> Finding | None:
    """Programs that take what they run, or what they work on, from their input."""
    name, rest = base(command), command.words[1:]
    if name in SHELLS and any(word.dynamic for word in rest):
        return UNKNOWN
    script = [word for word in rest if not word.text.startswith("-")]
    if name in INTERPRETERS and not script and _is_fed(command, name, line):
        return Finding(Level.EVERY, f"it lets `{name}` run whatever it is given")
    return None


def _is_fed(command: Command, name: str, line: Line) -> bool:
    if name not in SHELLS:
        return command.piped  # a group or a loop around a shell may be what is fed
    return any(one.piped or any(r.op.startswith("<") for r in one.redirects) for one in line.commands)


def _unclear(command: Command, line: Line) -> str:
    """Why what it runs cannot be told from the line, "" where it can: then no rule that forbids can be checked."""
    name = base(command)
    if name in SHELLS and (any(word.dynamic for word in command.words) or _is_fed(command, name, line)):
        return f"`{name}` runs text that is known only when it runs"
    if name == "git" and any(one is git.GIVES for one in _git(command, line)):
        return git.GIVES.reason
    return ""


def folders_of(commands: Sequence[Command], root: Path) -> list[Path]:
    """Every folder a command may find itself in: a `cd` may fail, or be undone by a subshell."""
    folders = [root]
    for command in commands:
        for target in _changes_to(command):
            for folder in list(folders):
                folders += [path for path in expanded(target, folder, root) if path not in folders]
            if len(folders) > FOLDER_LIMIT:
                raise Unreadable("it changes folders too often")
    return folders


def _changes_to(command: Command) -> list[Word]:
    name, rest = base(command), command.words[1:]
    if name in {"cd", "pushd"}:
        given = [word for word in rest if word.text == "-" or not word.text.startswith("-")]
        return given[:1] or [Word("~")]
    if name in {"git", "make", "ninja", "tar"}:
        return [b for a, b in itertools.pairwise(rest) if a.text == "-C"]
    return []


def _by_paths(command: Command, line: Line) -> Iterator[Finding]:
    name = base(command)
    writes = name in WRITERS
    dynamic = next((word for word in _changes_to(command) if word.dynamic), None)
    if name == "cd" and (len(command.words) == 1 or command.words[1].text == "-"):
        yield LEAVES
    elif dynamic is not None:
        yield Finding(Level.EVERY, f"where `{dynamic.text}` leads is known only when it runs")
    for word in may_name_files(command):
        if word.dynamic and (writes or word.text.startswith(("$HOME", "${HOME", "~"))):
            yield Finding(Level.EVERY, f"where `{word.text}` leads is known only when it runs")
            continue
        for text in path_parts(word.text, name):
            yield from _by_path(command, replace(word, text=text), line)


def _by_path(command: Command, word: Word, line: Line) -> Iterator[Finding]:
    text = word.text
    if (
        deletes(command)
        and base(command) != "find"
        and any(_is_all(word, folder, line.root) for folder in line.folders)
    ):
        yield Finding(Level.DESTROYS, f"`{text}`: it is the whole repository; {WHY}")
        return
    for reason in _reasons(word, line, base(command) in WRITERS, kept=base(command) == "git"):
        lost = deletes(command) and not reason.startswith(("it may hold", "it says"))
        yield Finding(Level.DESTROYS if lost else Level.EVERY, f"`{text}`: {f'{reason}; {WHY}' if lost else reason}")


def deletes(command: Command) -> bool:
    """It takes files away: where they lie decides whether undo brings them back."""
    return base(command) in DELETERS or (base(command) == "find" and "-delete" in arguments_of(command))


def _is_all(word: Word, folder: Path, root: Path) -> bool:
    """The word is the repository, or a glob for everything that is plain to see in it."""
    if paths.locate(word.text, root, folder) == root:
        return True
    if not word.globbed or not paths.is_folder(root) or paths.locate(str(Path(word.text).parent), root, folder) != root:
        return False
    if re.fullmatch(r"[*?]+", _widened(word.text.rstrip("/").rpartition("/")[2])):
        return True
    seen = {path for path in root.iterdir() if not path.name.startswith(".")}
    return len(seen) > 1 and seen <= {Path(match) for match in _matches(word, folder)}


def _reasons(word: Word, line: Line, writes: bool, *, kept: bool = False) -> Iterator[str]:
    """Why the word needs a yes. `kept`: git may have the file, although it is not there now."""
    text = word.text
    if text.startswith("file:"):
        yield "it is outside the repository"
    if not text or "://" in text or text in DEVICES:
        return
    if text.startswith("~") and not text.startswith(("~/", "~ ")) and text != "~":
        yield "it is somebody's home"
    for folder in line.folders:
        for path in expanded(word, folder, line.root):
            reason = paths.special(path, line.root, writes=writes)
            if reason.startswith("it may hold") and not (writes or kept or paths.there(path)):
                continue  # a word that only sounds like a file of secrets
            if reason:
                yield reason


def expanded(word: Word, folder: Path, root: Path) -> Iterator[Path]:
    """Where the word leads from `folder`; a glob to everything it may match now, hidden names included."""
    found = paths.locate(word.text, root, folder)
    if isinstance(found, Path):
        yield found
    if word.globbed:
        yield from (paths.real(match) for match in _matches(word, folder))


def _matches(word: Word, folder: Path) -> Iterator[str]:
    """Rather too many than too few: what stands behind a bracket counts as `*`, for shells differ in sets."""
    pattern = _widened(word.text)
    matches = glob.iglob(str(folder / paths.expanded(pattern)))  # noqa: PTH207 - pathlib's cannot start at a root
    if any(part.startswith(".") and set(part) & set("*?[") for part in word.text.split("/")):
        matches = itertools.chain(matches, [str(folder / "..")])  # .* may match ..
    for index, match in enumerate(matches):
        if index >= GLOB_LIMIT:
            raise Unreadable(f"`{word.text}` matches too many files to check")
        yield match


def _widened(pattern: str) -> str:
    return "/".join(re.sub(r"\[.*", "*", part) for part in pattern.split("/"))


def _redirected(redirect: Redirect, line: Line) -> Finding:
    target = redirect.target
    if redirect.op in {"<<<", "<<"} or target.text in DEVICES:
        return READS
    if target.dynamic:
        where = "writes" if redirect.writes else "reads"
        return Finding(Level.EVERY if redirect.writes else Level.RUNS, f"where it {where} is known only when it runs")
    if redirect.writes and target.text.startswith("/dev/"):
        return Finding(Level.DESTROYS, f"`{target.text}` is a device")
    reason = next(_reasons(target, line, redirect.writes), "")
    if reason:
        return Finding(Level.EVERY, f"`{target.text}`: {reason}")
    return Finding(Level.RUNS, f"it writes `{target.text}`") if redirect.writes else READS


# ---- which words may name files ----

_MAGIC = re.compile(r"^(?:\([^)]*\)|[/!^]+)")
"""What git's pathspecs have before the path."""
_EXCLUDED = re.compile(r":(?:\([^)]*exclude|[!^])")
_MESSAGES = frozenset({"-m", "-am", "--message"})


def may_name_files(command: Command) -> Iterable[Word]:
    """The words that may name files: not a search pattern, not text to print. In doubt a word does."""
    name, words = base(command), list(command.words[1:])
    if is_own(command):
        words = list(command.words)
    elif (known := _file_words(name, words)) is not None:
        return known
    if name == "git":
        at = git.subcommand_at([word.text for word in words])
        match words[at].text if at < len(words) else "":
            case "grep":
                return [*words[:at], *_without_pattern(words[at + 1 :])]
            case "commit" | "tag" | "stash" | "merge" | "notes":
                return [b for a, b in zip([Word(""), *words], words, strict=False) if a.text not in _MESSAGES]
    return words


def _file_words(name: str, words: Sequence[Word]) -> list[Word] | None:
    """The words and values of options that name files, for a program of the table; None for any other."""
    if name in FREE:
        return list(words) if name in {"test", "[", "[["} else []
    if name == "find":
        return [b for a, b in zip([Word(""), *words], words, strict=False) if FIND.get(a.text) != "t"]
    if name not in READERS:
        return None
    found = parsed(READERS[name], words)
    return [*found.files, *(word for _, word in found.written)]


def _without_pattern(words: list[Word]) -> list[Word]:
    """The first argument of a search is its pattern, unless an option brought it."""
    if any(word.text in {"-e", "-f"} for word in words):
        return [b for a, b in zip([Word(""), *words], words, strict=False) if a.text != "-e"]
    if any(re.match(r"-\w*[ef]", word.text) for word in words):
        return words
    index = next((i for i, word in enumerate(words) if not word.text.startswith("-")), None)
    return words if index is None else words[:index] + words[index + 1 :]


def path_parts(text: str, name: str) -> Iterator[str]:
    """The parts of a word that may be a path, in a command called `name`."""
    if name == "git" and not _EXCLUDED.match(text):
        parts = text.split(":")  # REV:PATH, :PATH, :N:PATH, :/PATH, :(top)PATH; a date in REV has colons as well
        yield from (_MAGIC.sub("", ":".join(parts[at:])) for at in range(1, len(parts)))
    if text.startswith(("--exclude", "--ignore", "--glob", "--include", "!")) and not (
        text.partition("=")[0].endswith(("-from", "-file"))
    ):
        return
    if text.startswith("-"):
        if "=" in text:
            yield text.split("=", 1)[1]
        elif not text.startswith("--") and ("/" in text or text[2:3] in {"~", "."}):
            yield text[2:]
        return
    yield text.removeprefix("@")
    if "=" in text:
        yield text.split("=", 1)[1]
