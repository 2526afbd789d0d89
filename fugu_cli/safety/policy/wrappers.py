"""What a simple command really runs: `timeout`, `xargs`, `find -exec`, `sh -c` and git's aliases
are taken off.

Stands between programs.py and classification.py. What cannot be told apart for certain raises
Unreadable.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import shlex
from collections.abc import Iterator, Sequence, Set
from dataclasses import replace
from pathlib import Path

from fugu_cli.safety.paths import is_secret
from fugu_cli.safety.policy import git_commands
from fugu_cli.safety.policy.programs import (
    EVERY_TIME,  # fmt: skip
    READ_SHELLS,  # fmt: skip
    READERS,  # fmt: skip
    REDEFINES,  # fmt: skip
    RUNS,  # fmt: skip
    SHELL_VARIABLES,  # fmt: skip
    SHELLS,  # fmt: skip
    WORKS_OUT,  # fmt: skip
    WRITERS,  # fmt: skip
    CommandRisk,  # fmt: skip
    RiskLevel,  # fmt: skip
    command_arguments,  # fmt: skip
    has_option,  # fmt: skip
    is_local_program,  # fmt: skip
    names_of,  # fmt: skip
    parse_arguments,  # fmt: skip
    program_name,  # fmt: skip
    program_table,  # fmt: skip
)
from fugu_cli.safety.policy.shell_parser import (
    Command,
    Redirect,
    Unreadable,
    Word,
    parse_command_line,
)

DEEPEST = 5
MOST = 40
"""Commands that one of these may run, in all readings of it."""

WRAPPERS = program_table("""
nice c# : n=t : adjustment=t
timeout c : fpv ks=t : foreground preserve-status kill-after=t signal=t verbose
stdbuf c : ioe=t : input=t output=t error=t
command c : p :
exec c : cl a=t :
setsid c : cfw : ctty fork wait
ionice c : t cnpPu=t : class=t classdata=t ignore
time c : pqv f=t : format=t portability quiet verbose
sudo c : ABbEHeiKklnPSsVvN aCcDghpRrTtUu=t : non-interactive login set-home shell background stdin user=t group=t
  preserve-env=?
doas c : nsL aCu=t :
nohup builtin busybox toybox c : :
xargs c : 0rtpxo nPILsdEJRS=t eil=? : null no-run-if-empty verbose interactive exit max-args=t max-procs=t delimiter=t
  max-chars=t replace=? max-lines=? eof=?
env c : i0v u=t : ignore-environment unset=t null debug
""")
"""Commands that run another one, with the options of theirs that only say how."""
_BASH_ONLY = re.compile(r"&>|\$'|\|&|<<<|\+=|\[\[|\btime\b")
_LOADER = re.compile(r"ld\.so|ld-[\w.-]+\.so\.\d+")
"""The dynamic loader, which runs the program it is given."""
_SKIPPED = {"timeout": 1}
"""Words before the command."""

RUNNERS: dict[str, tuple[frozenset[str], int]] = {
    **dict.fromkeys(
        names_of("uv poetry pipenv pdm rye hatch pixi conda mamba"), (frozenset({"run"}), 0)
    ),
    **dict.fromkeys(names_of("npm pnpm yarn bun"), (frozenset({"exec", "dlx", "x"}), 0)),
    **dict.fromkeys(names_of("bundle mise"), (frozenset({"exec"}), 0)),
    "direnv": (frozenset({"exec"}), 1),
    **dict.fromkeys(
        names_of(
            "npx bunx uvx watch parallel script strace ltrace unbuffer chronic xvfb-run "
            "caffeinate prlimit unshare "
            "nsenter systemd-run fakeroot setarch linux32 linux64"
        ),
        (frozenset(), 0),
    ),
    **dict.fromkeys(names_of("flock taskset chrt chroot su runuser"), (frozenset(), 1)),
}
"""Commands that run another one and are known by their own name still: the subcommands that do,
none where all do, and words before the other command."""
PLAIN = frozenset(
    {"--", "-y", "--yes", "-q", "--quiet", "-s", "--silent", "--locked", "--frozen", "--no-sync"}
)
"""Options of theirs that take no word."""
PASSES = {"sort": 0, "head": 0, "tail": 0, "uniq": 0, "grep": 1, "egrep": 1, "fgrep": 1}
"""Commands that print lines of their input, and how many words they take that are no files."""
TELLS_NAMES = names_of("ls stat file wc du basename dirname realpath readlink echo printf test [")
"""Readers that say nothing of what is in a file."""


def unwrap(command: Command, depth: int = 0) -> Iterator[Command]:
    """The command that really runs; for `sh -c`, xargs, sudo, find -exec what they run as well.
    Raises Unreadable.
    """
    if depth > DEEPEST:
        raise Unreadable("wrappers nested too deeply")
    name, own = program_name(command), is_local_program(command)
    _refuse(command, name)
    inner, counts = _inside(command, name)
    if counts or own:  # what lies in the repository is only called like a wrapper, and may be one
        yield _with_written(command, name)
    for one in inner:
        yield from unwrap(one, depth + 1)


def _inside(command: Command, name: str) -> tuple[list[Command], bool]:
    """What a command runs, and whether it counts itself. Raises Unreadable."""
    rest = command.words[1:]
    inner: Sequence[Word] = ()
    if name == "env":
        return [_env(command)], False
    if name == "find":
        made = replace(command, redirects=(), given_more=True, mark="{}")
        return [replace(made, words=words) for words in _executed(rest)], True
    if name == "xargs":
        inner = _after_options(name, rest) or (Word("echo"),)
        command = replace(command, given_more=True, mark=_mark(rest[: len(rest) - len(inner)]))
    elif name in WRAPPERS and rest and not (name == "command" and rest[0].text in {"-v", "-V"}):
        inner = _after_options(name, rest)
        inner = (
            (Word("env"), *inner) if inner and name in EVERY_TIME else inner
        )  # sudo takes variables as env does
    elif name in SHELLS and (script := _script(name, rest)) is not None:
        if command.mark and command.mark in script.text:
            raise Unreadable(f"a `{name} -c` that is put together from what it is given")
        parts = [
            replace(part, piped=part.piped or command.piped)
            for part in _read_script(name, script.text)
        ]
        return [*parts, replace(command, words=())], False
    elif _LOADER.fullmatch(name) and rest:
        if rest[0].text.startswith("-"):
            raise Unreadable(f"the option `{rest[0].text}` of `{name}`")
        inner = rest
    elif name.endswith(".exe"):
        inner = (Word(name.removesuffix(".exe")), *rest)
    elif name.startswith("git-"):
        inner = (Word("git"), Word(name.removeprefix("git-")), *rest)
    return [replace(command, words=tuple(inner))] if inner else [], not inner or name in EVERY_TIME


def _refuse(command: Command, name: str) -> None:
    """Raise Unreadable for what changes the meaning of words, and for words that may hold a command
    themselves.
    """
    shapes = [word.shape for word in command.words[1:]]
    if name in REDEFINES:
        hint = (
            " (start a program by its path instead, as in .venv/bin/python)"
            if name in {"source", "."}
            else ""
        )
        raise Unreadable(f"`{name}`, after which words may mean something else{hint}")
    if name in {"mapfile", "readarray"} and any(re.match(r"-\w*C", one) for one in shapes):
        raise Unreadable(f"`{command.text}`, which runs a command for each line")
    set_to = itertools.takewhile(lambda one: one != "--", shapes)
    if name == "set" and not all(
        re.fullmatch(r"[-+][euxovfC]+|pipefail|errexit|nounset|xtrace", one) for one in set_to
    ):
        raise Unreadable(f"`{command.text}`, after which words may mean something else")
    if name in {"declare", "typeset", "local"} and any(
        re.fullmatch(r"[-+]\w*n\w*", one) for one in shapes
    ):
        raise Unreadable(f"`{command.text}`, a name for another variable")
    named = {one.partition("=")[0] for one in shapes} if name in WORKS_OUT | {"unset"} else set()
    changed = (named | {name for name, _ in command.assignments}) & SHELL_VARIABLES
    if changed:
        raise Unreadable(f"the variable {min(changed)}, which changes how a shell reads")
    held = [value.shape for _, value in command.assignments] + (shapes if name in WORKS_OUT else [])
    if any("$(" in one or "`" in one for one in held):
        raise Unreadable("a command inside quotes, where it may be worked out")


def _with_written(command: Command, name: str) -> Command:
    """The files that options of a reader write are written like those of a redirection."""
    if name == "git":
        texts = git_commands.files_written(command_arguments(command))
        written = [
            (option, Word(text, dynamic=any(w.dynamic for w in command.words)))
            for option, text in texts
        ]
    elif name in READERS and name != "find":
        written = parse_arguments(READERS[name], command.words[1:]).written
    else:
        return command
    added = tuple(Redirect(">", word, option or "a second file") for option, word in written)
    return replace(command, redirects=(*command.redirects, *added))


def _after_options(name: str, words: Sequence[Word]) -> tuple[Word, ...]:
    """The command behind a wrapper's options. Raises Unreadable for one that is not in the
    table.
    """
    found = parse_arguments(WRAPPERS[name], words)
    if found.odd or any(word.dynamic for word in words[: len(words) - len(found.plain)]):
        raise Unreadable(
            f"the option `{found.odd or 'that is known only when it runs'}` of `{name}`"
        )
    return tuple(found.plain[_SKIPPED.get(name, 0) :])


def _mark(options: Sequence[Word]) -> str:
    """What xargs replaces by what it is given, "" where it adds that at the end."""
    found = parse_arguments(WRAPPERS["xargs"], options)
    for option, value in found.options:
        if option in {"-I", "-J", "-i", "--replace"}:
            return value.text or "{}"
    return ""


def _env(command: Command) -> Command:
    rest, assignments = list(_after_options("env", command.words[1:])), list(command.assignments)
    while rest and (rest[0].text == "-" or "=" in rest[0].text):
        word = rest.pop(0)
        if word.text != "-":
            name, _, value = word.text.partition("=")
            assignments.append(
                (name, replace(word, text=value, shape=word.shape.partition("=")[2]))
            )
    return replace(
        command, words=tuple(rest) or (Word("printenv"),), assignments=tuple(assignments)
    )


def _script(name: str, words: Sequence[Word]) -> Word | None:
    """The script of `sh -c`, when it is plain; None where there is none. Raises Unreadable."""
    texts, at = [word.text for word in words], 0
    while at < len(texts) and texts[at].startswith(("-", "+")) and texts[at - 1 : at] != ["--"]:
        at += (
            2
            if texts[at : at + 2] in (["-o", "pipefail"], ["-o", "errexit"], ["-o", "nounset"])
            else 1
        )
    options = [one for one in texts[:at] if not one.startswith("--") and "c" in one]
    plain = all(
        re.fullmatch(r"-[ceuxvlns]*o?|pipefail|errexit|nounset|--|--\w+", one) for one in texts[:at]
    )
    odd = {"--rcfile", "--init-file"} & set(texts[:at]) or texts[at - 1 : at] == ["-o"]
    if (options and name not in READ_SHELLS) or not plain or odd:
        raise Unreadable(f"`{name} {' '.join(texts[:at])}`")
    return words[at] if options and at < len(words) and not words[at].dynamic else None


def _read_script(name: str, text: str) -> tuple[Command, ...]:
    """The script of a shell. One that is not sure to be bash may read some things as plain text.
    Raises Unreadable.
    """
    found = parse_command_line(text)
    if name != "bash" and (
        _BASH_ONLY.search(text) or any(word.braced for one in found for word in one.words)
    ):
        raise Unreadable(f"what only bash reads in a script for `{name}`")
    return found


def expand_git_alias(command: Command, folders: Sequence[Path]) -> Iterator[Command]:
    """What an alias of git stands for, and the command itself marked as judged by that. Raises
    Unreadable.
    """
    words = command.words[1:]
    at = git_commands.subcommand_at([word.text for word in words])
    if program_name(command) != "git" or command.alias or at == len(words):
        yield command
        return
    said = git_commands.git_aliases(words[at].text, folders)
    yield replace(command, alias=bool(said))
    for alias in said:
        made = git_commands.expand_alias(alias, words[at + 1 :])
        if not isinstance(made, str):
            yield from unwrap(replace(command, words=(command.words[0], *words[:at], *made)))
            continue
        arguments = " ".join(shlex.quote(word.text) for word in words[at + 1 :])
        given_more = command.given_more or any(word.dynamic for word in words)
        for part in parse_command_line(f"{made} {arguments}"):
            yield from unwrap(replace(part, given_more=part.given_more or given_more))


def commands_run_by(command: Command) -> Iterator[Command]:
    """What a command such as `uv run` or `watch` runs besides: it is that command still, and what
    these need as well.

    Where an option may have taken the next word for its value, both readings are given. Raises
    Unreadable.
    """
    seen: set[str] = set()
    waiting = [command]
    while waiting:
        for one in _run_by(waiting.pop()):
            if one.text in seen:
                continue
            if len(seen) == MOST:
                raise Unreadable("more commands than can be checked")
            seen.add(one.text)
            waiting.append(one)
            yield one


def _run_by(runner: Command) -> Iterator[Command]:
    if program_name(runner) == "git":
        yield from _run_by_git(runner)
        return
    rest = _behind_runner(runner)
    skipped = RUNNERS.get(program_name(runner), (frozenset(), 0))[1]
    for index, word in enumerate(rest):
        if word.text.startswith("-"):
            continue
        whole = replace(runner, words=tuple(rest[index:]), assignments=(), redirects=())
        if program_name(runner) == "parallel":
            words = itertools.takewhile(lambda word: not word.text.startswith(":::"), whole.words)
            whole = replace(
                whole, words=tuple(words), given_more=True, mark="{}" if "{}" in whole.text else ""
            )
        for made in _whole_lines(word) or (whole,):
            with contextlib.suppress(Unreadable):
                yield from unwrap(made)
        before = rest[index - 1].text if index else ""
        if not before.startswith("-") or "=" in before or before in PLAIN:
            if not skipped:
                return
            skipped -= 1


def _run_by_git(runner: Command) -> Iterator[Command]:
    """What `git bisect run`, `git submodule foreach` and options such as `git rebase --exec`
    run.
    """
    words = list(runner.words[1:])
    rest = words[git_commands.subcommand_at([word.text for word in words]) :]
    match [word.text for word in rest[:2]]:
        case ["bisect", "run"] | ["submodule", "foreach"]:
            inner = list(itertools.dropwhile(lambda word: word.text.startswith("-"), rest[2:]))
        case [subcommand, _]:
            inner = [
                *_values(
                    rest,
                    {git_commands.RUNNING_SHORT.get(subcommand, ""), *git_commands.RUNNING_LONG},
                )
            ]
        case _:
            return
    if inner:
        plain = replace(runner, words=tuple(inner), assignments=(), redirects=())
        for made in (
            itertools.chain.from_iterable(map(_whole_lines, inner)) if len(inner) < 2 else (plain,)
        ):
            yield from unwrap(made)
        if len(inner) == 1 and not _whole_lines(inner[0]):
            yield from unwrap(plain)


def _values(words: Sequence[Word], options: Set[str]) -> Iterator[Word]:
    """The values of these options, in the next word or in their own."""
    yield from (value for option, value in itertools.pairwise(words) if option.text in options)
    for word, option in itertools.product(words, options - {""}):
        start = f"{option}=" if option.startswith("--") else option
        if word.text.startswith(start) and word.text != start:
            yield replace(word, text=word.text[len(start) :], shape=word.shape[len(start) :])


def _behind_runner(command: Command) -> list[Word]:
    """The words after the name of a runner and its subcommand; none for other commands."""
    name, rest = program_name(command), list(command.words[1:])
    if name in {"python", "python3"}:
        return rest[1:] if rest and rest[0].text == "-m" else []
    if name not in RUNNERS:
        return []
    subcommands = RUNNERS[name][0]
    if not subcommands:
        return rest
    at = next((index for index, word in enumerate(rest) if not word.text.startswith("-")), None)
    return rest[at + 1 :] if at is not None and rest[at].text in subcommands else []


def _whole_lines(word: Word) -> tuple[Command, ...]:
    """A quoted word with spaces in it, taken for a command line; () where it cannot be one."""
    if word.dynamic or " " not in word.text.strip():
        return ()
    try:
        return parse_command_line(word.text)
    except Unreadable:
        return ()


def _executed(words: Sequence[Word]) -> Iterator[tuple[Word, ...]]:
    """The commands of find's -exec and -execdir."""
    part: list[Word] | None = None
    for word in words:
        if part is None:
            part = [] if word.text in {"-exec", "-execdir", "-ok", "-okdir"} else None
        elif word.text in {";", "+"}:
            yield tuple(part)
            part = None
        else:
            part.append(word)
    if part:
        raise Unreadable("an -exec without its end")


def with_piped_arguments(command: Command, commands: Sequence[Command]) -> CommandRisk | None:
    """Arguments that come from xargs or find: trusted to be files in here only when what made them
    lists just those.
    """
    if not command.given_more:
        return None
    name = program_name(command)
    if name in WRITERS or (
        name == "git" and not git_commands.after_options(command_arguments(command))
    ):
        return CommandRisk(RiskLevel.EVERY, f"`{name}` works on whatever it is given")
    others = [
        c for c in commands if c.pipeline == command.pipeline and not c.given_more and c.words
    ]
    if name not in TELLS_NAMES and any(map(_picks_secrets, others)):
        return CommandRisk(RiskLevel.EVERY, "what it is given may hold secrets")
    listed = (
        others
        and _lists(others[0])
        and all(map(_passes, others[1:]))
        and not any(c.redirects for c in others)
    )
    return RUNS if name in READERS and (command.redirects or not listed) else None


def _picks_secrets(command: Command) -> bool:
    """A find for names that usually hold keys or passwords."""
    words = [word.text for word in command.words] if program_name(command) == "find" else []
    return any(
        option in {"-name", "-iname"}
        and before not in {"!", "-not"}
        and is_secret(value.rstrip("*"))
        for before, option, value in zip(words, words[1:], words[2:], strict=False)
    )


def _lists(command: Command) -> bool:
    """It prints names of files that are there, and nothing else."""
    name, arguments = program_name(command), [word.text for word in command.words[1:]]
    match name:
        case "find":
            return not any(
                argument.startswith(("-printf", "-files0-from")) for argument in arguments
            )
        case "ls":
            return True
        case "fd":
            return not has_option(arguments, "", "--format")
        case "rg":
            return has_option(arguments, "l", "--files") and not has_option(
                arguments, "r", "--replace"
            )
        case "grep" | "egrep" | "fgrep":
            return has_option(arguments, "lL", "--files-with") and not has_option(
                arguments, "", "--label"
            )
        case "git":
            rest = git_commands.after_options(arguments)
            return rest[:1] == ["ls-files"] and not has_option(rest, "", "--format")
        case _:
            return False


def _passes(command: Command) -> bool:
    """It prints lines of its input, and of nothing else."""
    name, words = program_name(command), [word.text for word in command.words[1:]]
    named = [word for word in words if not word.startswith("-") and not word.isdigit()]
    return command.piped and name in PASSES and len(named) <= PASSES[name]
