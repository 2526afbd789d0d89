"""A whole command line: what each simple command needs, and why.

Stands above shell_parser.py, programs.py, git_commands.py and wrappers.py, below the judge. Reads
the disk only to follow links, to match globs and to look up aliases of git.
"""

from __future__ import annotations

import glob
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fugu_cli.safety import paths
from fugu_cli.safety.policy import git_commands
from fugu_cli.safety.policy.programs import (
    DELETERS,  # fmt: skip
    DESTROYS_REASON,  # fmt: skip
    FIND,  # fmt: skip
    FREE,  # fmt: skip
    INTERPRETERS,  # fmt: skip
    PROBES,  # fmt: skip
    READERS,  # fmt: skip
    READS,  # fmt: skip
    RUNS,  # fmt: skip
    SAFE_VARIABLES,  # fmt: skip
    SHELLS,  # fmt: skip
    UNKNOWN,  # fmt: skip
    VERSION,  # fmt: skip
    WORKS_OUT,  # fmt: skip
    WRITERS,  # fmt: skip
    CommandRisk,  # fmt: skip
    RiskLevel,  # fmt: skip
    command_arguments,  # fmt: skip
    destroys,  # fmt: skip
    is_local_program,  # fmt: skip
    known_risk,  # fmt: skip
    parse_arguments,  # fmt: skip
    program_name,  # fmt: skip
    reader_risk,  # fmt: skip
)
from fugu_cli.safety.policy.shell_parser import (
    Command,
    Redirect,
    Unreadable,
    Word,
    parse_command_line,
)
from fugu_cli.safety.policy.wrappers import (
    commands_run_by,
    expand_git_alias,
    unwrap,
    with_piped_arguments,
)

DEVICES = frozenset(
    {
        "/dev/null",
        "/dev/zero",
        "/dev/urandom",
        "/dev/stdin",
        "/dev/stdout",
        "/dev/stderr",
        "/dev/tty",
    }
)
GLOB_LIMIT = 500
FOLDER_LIMIT = 16
MOST = 200
"""Commands of a line."""
ALIASES_DEEP = 5
LEAVES = CommandRisk(RiskLevel.EVERY, "it leaves the repository")
OPTION = CommandRisk(RiskLevel.EVERY, "the name of a file here is taken for an option")
_RISKY = {name for name, options in READERS.items() if {"!", "w"} & {*options.known.values()}}
_RISKY |= WRITERS | {"git", "find", "printf"}
"""Programs for which an option may write or run something."""


@dataclass(frozen=True)
class ClassifiedCommand:
    """A simple command with what it needs. `carried` is what it runs besides, `unclear` why nobody
    can tell what.
    """

    command: Command
    finding: CommandRisk
    carried: tuple[Command, ...] = ()
    unclear: str = ""


@dataclass(frozen=True)
class LineContext:
    """What one command is judged with: all of its line, and where it may find itself."""

    commands: tuple[Command, ...]
    folders: tuple[Path, ...]
    root: Path
    added: tuple[Path, ...] = ()
    """Folders that may be used as the repository is. What a command deletes there no undo brings
    back.
    """


def classify(text: str, root: Path, added: tuple[Path, ...] = ()) -> list[ClassifiedCommand]:
    """Every simple command of the line. Raises Unreadable."""
    commands = tuple(
        itertools.chain.from_iterable(unwrap(command) for command in parse_command_line(text))
    )
    commands = _without_aliases(commands, root, possible_folders(commands, root))
    line = LineContext(commands, tuple(possible_folders(commands, root)), root, added)
    if any(program_name(one) == "let" for one in commands) and any(
        program_name(one) in {"read", "mapfile", "readarray"} for one in commands
    ):
        raise Unreadable("a sum with what is read, which may hold a command")
    return [_judged(command, line) for command in commands]


def _without_aliases(
    commands: Sequence[Command], root: Path, folders: Sequence[Path]
) -> tuple[Command, ...]:
    """The commands with what aliases of git stand for, wherever in the line it may be that they are
    run.
    """
    for _ in range(ALIASES_DEEP):
        before = tuple(commands)
        commands = tuple(
            itertools.chain.from_iterable(expand_git_alias(one, folders) for one in before)
        )
        if len(commands) > MOST:
            raise Unreadable("more commands than can be checked")
        if commands == before:
            return before
        folders = [*folders, *possible_folders(commands, root)]
    raise Unreadable("an alias of git that stands for itself")


def _judged(command: Command, line: LineContext) -> ClassifiedCommand:
    inner = _without_aliases(tuple(commands_run_by(command)), line.root, line.folders)
    found = [*_by_name(command, line), *_by_paths(command, line)]
    found += [_redirected(redirect, line) for redirect in command.redirects]
    if any(not SAFE_VARIABLES.fullmatch(name) for name, _ in command.assignments):
        found.append(CommandRisk(RiskLevel.RUNS, "it sets variables"))
    for one in inner:
        found += [*_by_name(one, line), *_by_paths(one, line)]
    unclear = next((why for one in (command, *inner) if (why := _unclear(one, line))), "")
    return ClassifiedCommand(command, max(found, key=lambda finding: finding.level), inner, unclear)


def _by_name(command: Command, line: LineContext) -> Iterator[CommandRisk]:
    """By the command's name and arguments."""
    if not command.words or command.alias:
        yield READS
        return
    first, name = command.words[0], program_name(command)
    if first.dynamic or first.shape != first.text or (command.mark and command.mark in first.text):
        yield UNKNOWN
        return
    if name == "git":
        yield from _git(command, line)
    if is_local_program(command):
        yield CommandRisk(RiskLevel.RUNS, "it runs a program of its own")
        return
    more = with_piped_arguments(command, line.commands)
    risk = destroys(command) or known_risk(command) or _fed(command, line) or more
    if risk is not None:
        yield risk
    elif name in PROBES and (name, *command_arguments(command)) in VERSION:
        yield READS
    elif name != "git":
        yield reader_risk(command)
    bare = any(word.globbed and word.text[:1] in "*?[" for word in command.words[1:])
    finds = (
        program_name(one) == "find" for one in line.commands if one.pipeline == command.pipeline
    )
    if (
        (bare or (command.given_more and not any(finds)))
        and name in _RISKY
        and any(map(_has_dashed, line.folders))
    ):
        yield OPTION


def _has_dashed(folder: Path) -> bool:
    return next(folder.glob("-*"), None) is not None


def _git(command: Command, line: LineContext) -> Iterator[CommandRisk]:
    words = command.words[1:]
    at = git_commands.subcommand_at([word.text for word in words])
    if at < len(words) and command.mark and command.mark in words[at].text:
        yield UNKNOWN
        return
    found = git_commands.judge_git(words)
    yield max(found, RUNS, key=lambda one: one.level) if command.given_more else found
    if any(git_commands.redirects_git(*pair) for pair in _variables(line.commands)):
        yield git_commands.REDIRECTS_GIT
    yield from (git_commands.other_repository_risk(folder, line.root) for folder in line.folders)


def _variables(commands: Iterable[Command]) -> Iterator[tuple[str, Word]]:
    """The variables that a line sets, by assignments and by builtins."""
    for command in commands:
        yield from command.assignments
        if program_name(command) in WORKS_OUT - {"[", "[[", "test", "wait"}:
            for word in command.words[1:]:
                name, _, value = word.text.partition("=")
                yield name, replace(word, text=value, shape=word.shape.partition("=")[2])


def _fed(command: Command, line: LineContext) -> CommandRisk | None:
    """Programs that take what they run, or what they work on, from their input."""
    name, rest = program_name(command), command.words[1:]
    if name in SHELLS and any(word.dynamic for word in rest):
        return UNKNOWN
    script = [word for word in rest if not word.text.startswith("-")]
    if name in INTERPRETERS and not script and _is_fed(command, name, line):
        return CommandRisk(RiskLevel.EVERY, f"it lets `{name}` run whatever it is given")
    return None


def _is_fed(command: Command, name: str, line: LineContext) -> bool:
    if name not in SHELLS:
        return command.piped  # a group or a loop around a shell may be what is fed
    return any(
        one.piped or any(r.op.startswith("<") for r in one.redirects) for one in line.commands
    )


def _unclear(command: Command, line: LineContext) -> str:
    """Why what it runs cannot be told from the line, "" where it can: then no rule that forbids can
    be checked.
    """
    name = program_name(command)
    if name in SHELLS and (
        any(word.dynamic for word in command.words) or _is_fed(command, name, line)
    ):
        return f"`{name}` runs text that is known only when it runs"
    if name == "git" and any(one is git_commands.REDIRECTS_GIT for one in _git(command, line)):
        return git_commands.REDIRECTS_GIT.reason
    return ""


def possible_folders(commands: Sequence[Command], root: Path) -> list[Path]:
    """Every folder a command may find itself in: a `cd` may fail, or be undone by a subshell."""
    folders = [root]
    for command in commands:
        for target in _changes_to(command):
            for folder in list(folders):
                folders += [
                    path for path in expand_word(target, folder, root) if path not in folders
                ]
            if len(folders) > FOLDER_LIMIT:
                raise Unreadable("it changes folders too often")
    return folders


def _changes_to(command: Command) -> list[Word]:
    name, rest = program_name(command), command.words[1:]
    if name in {"cd", "pushd"}:
        given = [word for word in rest if word.text == "-" or not word.text.startswith("-")]
        return given[:1] or [Word("~")]
    if name in {"git", "make", "ninja", "tar"}:
        return [b for a, b in itertools.pairwise(rest) if a.text == "-C"]
    return []


def _by_paths(command: Command, line: LineContext) -> Iterator[CommandRisk]:
    name = program_name(command)
    writes = name in WRITERS
    dynamic = next((word for word in _changes_to(command) if word.dynamic), None)
    if name == "cd" and (len(command.words) == 1 or command.words[1].text == "-"):
        yield LEAVES
    elif dynamic is not None:
        yield CommandRisk(
            RiskLevel.EVERY, f"where `{dynamic.text}` leads is known only when it runs"
        )
    for word in may_name_files(command):
        if word.dynamic and (writes or word.text.startswith(("$HOME", "${HOME", "~"))):
            yield CommandRisk(
                RiskLevel.EVERY, f"where `{word.text}` leads is known only when it runs"
            )
            continue
        for text in path_parts(word.text, name):
            yield from _by_path(command, replace(word, text=text), line)


def _by_path(command: Command, word: Word, line: LineContext) -> Iterator[CommandRisk]:
    text = word.text
    if (
        deletes(command)
        and program_name(command) != "find"
        and any(_is_all(word, folder, line.root) for folder in line.folders)
    ):
        yield CommandRisk(
            RiskLevel.DESTROYS, f"`{text}`: it is the whole repository; {DESTROYS_REASON}"
        )
        return
    line = replace(line, added=()) if deletes(command) else line
    for reason in _reasons(
        word, line, program_name(command) in WRITERS, kept=program_name(command) == "git"
    ):
        lost = deletes(command) and reason not in (paths.MAY_HOLD_SECRETS, paths.SAYS_RIGHTS)
        yield CommandRisk(
            RiskLevel.DESTROYS if lost else RiskLevel.EVERY,
            f"`{text}`: {f'{reason}; {DESTROYS_REASON}' if lost else reason}",
        )


def deletes(command: Command) -> bool:
    """It takes files away: where they lie decides whether undo brings them back."""
    return program_name(command) in DELETERS or (
        program_name(command) == "find" and "-delete" in command_arguments(command)
    )


def _is_all(word: Word, folder: Path, root: Path) -> bool:
    """The word is the repository, or a glob for everything that is plain to see in it."""
    if paths.locate(word.text, root, folder) == root:
        return True
    if (
        not word.globbed
        or not paths.is_folder(root)
        or paths.locate(str(Path(word.text).parent), root, folder) != root
    ):
        return False
    if re.fullmatch(r"[*?]+", _widened(word.text.rstrip("/").rpartition("/")[2])):
        return True
    seen = {path for path in root.iterdir() if not path.name.startswith(".")}
    return len(seen) > 1 and seen <= {Path(match) for match in _matches(word, folder)}


def _reasons(word: Word, line: LineContext, writes: bool, *, kept: bool = False) -> Iterator[str]:
    """Why the word needs a yes. `kept`: git may have the file, although it is not there now."""
    text = word.text
    if text.startswith("file:"):
        yield "it is outside the repository"
    if not text or "://" in text or text in DEVICES:
        return
    if text.startswith("~") and not text.startswith(("~/", "~ ")) and text != "~":
        yield "it is somebody's home"
    for folder in line.folders:
        for path in expand_word(word, folder, line.root):
            base = next((added for added in line.added if paths.inside(path, added)), line.root)
            reason = paths.protected_reason(path, base, writes=writes)
            if reason == paths.MAY_HOLD_SECRETS and not (writes or kept or paths.path_exists(path)):
                continue  # a word that only sounds like a file of secrets
            if reason:
                yield reason


def expand_word(word: Word, folder: Path, root: Path) -> Iterator[Path]:
    """Where the word leads from `folder`; a glob to everything it may match now, hidden names
    included.
    """
    found = paths.locate(word.text, root, folder)
    if isinstance(found, Path):
        yield found
    if word.globbed:
        yield from (paths.real_path(match) for match in _matches(word, folder))


def _matches(word: Word, folder: Path) -> Iterator[str]:
    """Rather too many than too few: what stands behind a bracket counts as `*`, for shells differ
    in sets.
    """
    pattern = _widened(word.text)
    matches = glob.iglob(str(folder / paths.expand_home(pattern)))  # noqa: PTH207 - pathlib's cannot start at a root
    if any(part.startswith(".") and set(part) & set("*?[") for part in word.text.split("/")):
        matches = itertools.chain(matches, [str(folder / "..")])  # .* may match ..
    for index, match in enumerate(matches):
        if index >= GLOB_LIMIT:
            raise Unreadable(f"`{word.text}` matches too many files to check")
        yield match


def _widened(pattern: str) -> str:
    return "/".join(re.sub(r"\[.*", "*", part) for part in pattern.split("/"))


def _redirected(redirect: Redirect, line: LineContext) -> CommandRisk:
    target = redirect.target
    if redirect.op in {"<<<", "<<"} or target.text in DEVICES:
        return READS
    if target.dynamic:
        where = "writes" if redirect.writes else "reads"
        return CommandRisk(
            RiskLevel.EVERY if redirect.writes else RiskLevel.RUNS,
            f"where it {where} is known only when it runs",
        )
    if redirect.writes and target.text.startswith("/dev/"):
        return CommandRisk(RiskLevel.DESTROYS, f"`{target.text}` is a device")
    reason = next(_reasons(target, line, redirect.writes), "")
    if reason:
        return CommandRisk(RiskLevel.EVERY, f"`{target.text}`: {reason}")
    return CommandRisk(RiskLevel.RUNS, f"it writes `{target.text}`") if redirect.writes else READS


# ---- which words may name files ----

_MAGIC = re.compile(r"^(?:\([^)]*\)|[/!^]+)")
"""What git's pathspecs have before the path."""
_EXCLUDED = re.compile(r":(?:\([^)]*exclude|[!^])")
_MESSAGES = frozenset({"-m", "-am", "--message"})


def may_name_files(command: Command) -> Iterable[Word]:
    """The words that may name files: not a search pattern, not text to print. In doubt a word
    does.
    """
    name, words = program_name(command), list(command.words[1:])
    if is_local_program(command):
        words = list(command.words)
    elif (known := _file_words(name, words)) is not None:
        return known
    if name == "git":
        at = git_commands.subcommand_at([word.text for word in words])
        match words[at].text if at < len(words) else "":
            case "grep":
                return [*words[:at], *_without_pattern(words[at + 1 :])]
            case "commit" | "tag" | "stash" | "merge" | "notes":
                return [
                    b
                    for a, b in zip([Word(""), *words], words, strict=False)
                    if a.text not in _MESSAGES
                ]
    return words


def _file_words(name: str, words: Sequence[Word]) -> list[Word] | None:
    """The words and values of options that name files, for a program of the table; None for any
    other.
    """
    if name in FREE:
        return list(words) if name in {"test", "[", "[["} else []
    if name == "find":
        return [
            b for a, b in zip([Word(""), *words], words, strict=False) if FIND.get(a.text) != "t"
        ]
    if name not in READERS:
        return None
    found = parse_arguments(READERS[name], words)
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
        parts = text.split(
            ":"
        )  # REV:PATH, :PATH, :N:PATH, :/PATH, :(top)PATH; a date in REV has colons as well
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
