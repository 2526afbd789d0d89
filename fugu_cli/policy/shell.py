"""A command line taken apart into the simple commands the shell would run, those in substitutions included.

Stands between words.py and commands.py. It says what is there; what a command does is said elsewhere. Only what is
read with certainty is returned: functions, `case` and arrays raise Unreadable. `[[` is read as the command that it is
to a plain sh, with what stands behind `&&` and `||` in it: bash would run less.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from fugu_cli.policy.words import Token, Unreadable, Word, tokens

__all__ = ["Command", "Redirect", "Unreadable", "Word", "read"]

SEPARATORS = frozenset({"|", "|&", "||", "&&", ";", "&", "\n", "(", ")"})
PREFIXES = frozenset({"if", "then", "else", "elif", "fi", "while", "until", "do", "done", "{", "}", "!", "time"})
TIMES = dict.fromkeys(("time", "-p"), frozenset({"-p", "--"}))
"""Options of the shell's own `time`, by the word before."""
UNREAD = frozenset({"case", "esac", "function", "select", "coproc"})
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)\+?=(.*)", re.DOTALL)
DEPTH = 5


@dataclass(frozen=True)
class Redirect:
    """`op` with its target; fd copies like 2>&1 are left out."""

    op: str
    target: Word

    @property
    def writes(self) -> bool:
        return ">" in self.op


@dataclass(frozen=True)
class Command:
    """A simple command. `piped` says that its input is another one's output, `pipeline` which belong together."""

    words: tuple[Word, ...]
    assignments: tuple[tuple[str, Word], ...] = ()
    redirects: tuple[Redirect, ...] = ()
    piped: bool = False
    pipeline: int = 0
    given_more: bool = False
    """Further arguments come from somewhere else: xargs, find -exec."""
    mark: str = ""
    """What stands for them among the words, "" where they are added at the end."""

    @property
    def text(self) -> str:
        """For rules and for people."""
        return " ".join(word.text for word in self.words)


def read(line: str, depth: int = 0) -> tuple[Command, ...]:
    """Every simple command of the line in order. Raises Unreadable."""
    if depth > DEPTH:
        raise Unreadable("substitutions nested too deeply")
    found = tokens(line)
    commands: list[Command] = []
    pipeline, before = depth * 1000, "\n"
    for part, after in _parts(found):
        if not part and after == "(":
            continue  # what a group is fed, its first command is fed
        if before not in {"|", "|&"}:
            pipeline += 1
        command = _command(part, piped=before in {"|", "|&"}, pipeline=pipeline)
        if after == "(" and (command.words or command.assignments):
            raise Unreadable("a function or an array")
        if command.words or command.assignments or command.redirects:
            commands.append(command)
        before = after
    for token in found:
        for script in token.scripts:
            commands += read(script, depth + 1)
    return tuple(commands)


def _parts(found: list[Token]) -> Iterator[tuple[list[Token], str]]:
    part: list[Token] = []
    for token in found:
        if token.op == ";;":
            raise Unreadable("a case")
        if token.op in SEPARATORS:
            yield part, token.op
            part = []
        else:
            part.append(token)
    yield part, "\n"


def _command(part: list[Token], *, piped: bool, pipeline: int) -> Command:
    words: list[Word] = []
    assignments: list[tuple[str, Word]] = []
    redirects: list[Redirect] = []
    pending, prefix = "", ""
    first = True
    for token in _without_for(part):
        if token.op == "<<":
            redirects.append(Redirect("<<", Word("", quoted=True)))
        elif token.op:
            if pending:
                raise Unreadable("a redirection without a target")
            pending = token.op
            if words and words[-1].text.isdigit() and not words[-1].quoted:
                words.pop()  # the number of a file descriptor; a real last argument that is a number loses nothing
        elif pending:
            if not (pending in {">&", "<&"} and re.fullmatch(r"\d+|-", token.word.text)):
                redirects.append(Redirect(pending, token.word))
            pending = ""
        elif first and not token.word.quoted and token.word.text in PREFIXES | TIMES.get(prefix, frozenset()):
            prefix = token.word.text
            continue  # the word after it is a first one again
        elif first and token.word.text in UNREAD and not token.word.quoted:
            raise Unreadable(f"`{token.word.text}`")
        elif not words and token.word.assigns and (found := _ASSIGNMENT.fullmatch(token.word.text)) is not None:
            assignments.append((found.group(1), Word(found.group(2), token.word.dynamic)))
        else:
            words += (
                [replace(token.word, text=text) for text in _unbraced(token.word.text)]
                if token.word.braced
                else [token.word]
            )
        first = False
    if pending:
        raise Unreadable("a redirection without a target")
    return Command(tuple(words), tuple(assignments), tuple(redirects), piped, pipeline)


def _without_for(part: list[Token]) -> list[Token]:
    """`for x in a b` runs nothing itself; its substitutions are read with all others."""
    rest = part
    while rest and rest[0].word.text in PREFIXES and not rest[0].op:
        rest = rest[1:]
    return [] if rest and rest[0].word.text == "for" and not rest[0].op else part


def _unbraced(text: str, limit: int = 64) -> list[str]:
    """`a{b,c}` as the shell expands it; of a range like {1..9} only that it is there. Raises Unreadable."""
    found = [text]
    done: list[str] = []
    while found:
        if len(found) + len(done) > limit:
            raise Unreadable("braces that expand to too many words")
        one = found.pop(0)
        inner = re.search(r"\{([^{}]*(?:,|\.\.)[^{}]*)\}", one)
        if inner is None:
            done.append(one)
            continue
        parts = inner.group(1).split(",") if "," in inner.group(1) else [inner.group(1).split("..")[0]]
        found[:0] = [one[: inner.start()] + part + one[inner.end() :] for part in parts]
    return done
