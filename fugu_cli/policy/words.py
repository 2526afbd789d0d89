"""Shell words and tokens: quotes, expansions, substitutions, redirections, heredocs.

The lower half of reading a command line (shell.py is the upper). It runs nothing and expands nothing: a word that the
shell would expand is marked `dynamic`, and what cannot be told apart with certainty raises Unreadable.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from fugu_cli.policy import sums


class Unreadable(Exception):
    """The line holds something policy does not read; the message says what. It is asked about, never guessed."""


@dataclass(frozen=True)
class Word:
    """One word. `text` is without its quotes; expansions stand in it as written."""

    text: str
    dynamic: bool = False
    globbed: bool = False
    quoted: bool = False
    braced: bool = False
    assigns: bool = False


@dataclass(frozen=True)
class Token:
    """A word, or an operator (`op`); `scripts` are the command lines inside its substitutions."""

    op: str = ""
    word: Word = Word("")
    scripts: tuple[str, ...] = ()


OPERATORS = ("&>>", "<<<", "<<-", "&&", "||", ";;", "|&", "&>", ">>", "<<", ">|", "<>", ">&", "<&", "|", "&", ";", "(",
             ")", "<", ">", "\n")  # fmt: skip
CONTINUED = "\\\n"
_ENDS_WORD = frozenset(" \t\n;&|<>()")
_BRACES = re.compile(r"\{.*(?:,|\.\.).*\}", re.DOTALL)
_ASSIGNS = re.compile(r"[A-Za-z_]\w*\+?=")
_NAME = re.compile(r"[A-Za-z_]\w*|[0-9@*#?$!-]")


@dataclass
class _Reader:
    """Where we are in the line, and what the word being read has turned out to hold."""

    text: str
    at: int = 0
    chars: list[str] = field(default_factory=list)
    bare: list[str] = field(default_factory=list)
    scripts: list[str] = field(default_factory=list)
    dynamic: bool = False
    globbed: bool = False
    quoted: bool = False
    heredocs: list[tuple[str, bool, bool]] = field(default_factory=list)

    def peek(self, length: int = 1) -> str:
        return self.text[self.at : self.at + length]

    def word(self) -> Token:
        text, bare = "".join(self.chars), "".join(self.bare)
        braced = _BRACES.search(bare) is not None
        if braced and (self.quoted or self.dynamic):
            raise Unreadable("braces with quotes or variables in them")
        named = _ASSIGNS.match(bare)
        assigns = named is not None and text.startswith(named.group())
        word = Word(text, self.dynamic, self.globbed, self.quoted, braced, assigns)
        token = Token(word=word, scripts=tuple(self.scripts))
        self.chars, self.bare, self.scripts = [], [], []
        self.dynamic = self.globbed = self.quoted = False
        return token


def tokens(line: str) -> list[Token]:
    """The line's tokens, comments and heredoc bodies taken out. Raises Unreadable."""
    reader = _Reader(line)
    found: list[Token] = []
    while reader.at < len(reader.text):
        char = reader.peek()
        if char in " \t":
            reader.at += 1
        elif reader.peek(2) == CONTINUED:
            reader.at += 2
        elif char == "#":
            end = reader.text.find("\n", reader.at)
            reader.at = len(reader.text) if end < 0 else end
        elif reader.peek(2) in {"<(", ">("} or char not in _ENDS_WORD:
            found.append(_word(reader))
        else:
            found.append(_operator(reader, found))
    if reader.heredocs:
        raise Unreadable("a heredoc without its end")
    return found


def _operator(reader: _Reader, found: list[Token]) -> Token:
    op = next(op for op in OPERATORS if reader.text.startswith(op, reader.at))
    reader.at += len(op)
    if op in {"<<", "<<-"}:
        _open_heredoc(reader, op)
        return Token(op="<<")
    if op == "\n":
        _skip_heredocs(reader)
    return Token(op=op)


def _open_heredoc(reader: _Reader, op: str) -> None:
    while reader.peek() in {" ", "\t"}:
        reader.at += 1
    if reader.peek() in _ENDS_WORD or not reader.peek():
        raise Unreadable("a heredoc without a name")
    start = reader.at
    word = _word(reader).word
    quoted = word.quoted or "\\" in reader.text[start : reader.at]
    reader.heredocs.append((word.text, quoted, op == "<<-"))


def _skip_heredocs(reader: _Reader) -> None:
    for name, quoted, tabs in reader.heredocs:
        while True:
            if reader.at >= len(reader.text):
                raise Unreadable(f"a heredoc without its end ({name})")
            end = reader.text.find("\n", reader.at)
            end = len(reader.text) if end < 0 else end
            line = reader.text[reader.at : end]
            reader.at = min(end + 1, len(reader.text))
            if (line.lstrip("\t") if tabs else line) == name:
                break
            if not quoted and ("$(" in line or "`" in line or "${" in line or line.endswith("\\")):
                raise Unreadable("a command inside a heredoc")
    reader.heredocs.clear()


def _word(reader: _Reader) -> Token:
    while reader.at < len(reader.text):
        char = reader.peek()
        if reader.peek(2) in {"<(", ">("}:
            reader.at += 2
            reader.scripts.append(_until_parenthesis(reader))
            reader.chars.append("<(...)")
            reader.dynamic = True
        elif char in _ENDS_WORD:
            break
        else:
            _piece(reader, char)
    return reader.word()


def _piece(reader: _Reader, char: str) -> None:
    """One character outside quotes, or what it opens."""
    reader.at += 1
    match char:
        case "\\" if reader.peek() == "\n":
            reader.at += 1
        case "\\":
            reader.chars.append(reader.peek() or char)
            reader.bare.append(char)
            reader.quoted = True
            reader.at += 1
        case "'":
            reader.chars.append(_until(reader, "'"))
            reader.bare.append(char)
            reader.quoted = True
        case '"':
            reader.bare.append(char)
            reader.quoted = True
            _double_quoted(reader)
        case "$" | "`":
            _expansion(reader, char, in_quotes=False)
        case _:
            reader.globbed |= char in "*?["
            reader.chars.append(char)
            reader.bare.append(char)


def _until(reader: _Reader, end: str) -> str:
    stop = reader.text.find(end, reader.at)
    if stop < 0:
        raise Unreadable(f"a {end} that is never closed")
    text = reader.text[reader.at : stop]
    reader.at = stop + 1
    return text


def _double_quoted(reader: _Reader) -> None:
    while True:
        char = reader.peek()
        reader.at += 1
        if not char:
            raise Unreadable('a " that is never closed')
        if char == '"':
            return
        if char == "\\" and reader.peek() in {'"', "\\", "$", "`", "\n"}:
            reader.chars.append(reader.peek().strip("\n"))
            reader.at += 1
        elif char in "$`":
            _expansion(reader, char, in_quotes=True)
        else:
            reader.chars.append(char)


def _expansion(reader: _Reader, char: str, *, in_quotes: bool) -> None:
    """After `$` or a backtick."""
    following = reader.peek()
    if char == "`":
        reader.scripts.append(_until(reader, "`"))
        if "\\" in reader.scripts[-1]:
            raise Unreadable("a backslash inside backticks")
        reader.chars.append("$(...)")
    elif reader.peek(2) == CONTINUED:
        raise Unreadable("an expansion broken over two lines")
    elif reader.peek(2) == "((":
        found = sums.read(reader.text, reader.at)
        if found is None:
            raise Unreadable("more than numbers and names in $((...))")
        reader.at, scripts = found
        reader.scripts += scripts
        reader.chars.append("$((...))")
    elif following == "(":
        reader.at += 1
        reader.scripts.append(_until_parenthesis(reader))
        reader.chars.append("$(...)")
    elif following == "{":
        reader.chars.append(_braced_name(reader))
    elif following in {"'", '"'} and not in_quotes:
        _dollar_quoted(reader)
    elif (name := _NAME.match(reader.text, reader.at)) is not None:
        reader.at = name.end()
        reader.chars.append("$" + name.group())
    else:
        reader.chars.append("$")
        return
    reader.dynamic = True


def _braced_name(reader: _Reader) -> str:
    inner = _until(reader, "}")
    if set(inner[1:]) & set("$`{'\"\\[@"):
        raise Unreadable("more than a name in ${...}")  # these can run commands
    return "$" + inner + "}"


def _dollar_quoted(reader: _Reader) -> None:
    """`$'...'` without escapes; anything else is not read."""
    if reader.peek() == '"':
        raise Unreadable('$"..."')
    reader.at += 1
    reader.chars.append(_until(reader, "'"))
    reader.bare.append("'")
    reader.quoted = True
    if "\\" in reader.chars[-1]:
        raise Unreadable("an escape in $'...'")


def _until_parenthesis(reader: _Reader) -> str:
    """The script up to the `)` that closes it; quotes and nested parentheses are respected."""
    start, depth = reader.at, 1
    while depth:
        char = reader.peek()
        reader.at += 1
        match char:
            case "":
                raise Unreadable("a ( that is never closed")
            case "(":
                depth += 1
            case ")":
                depth -= 1
            case "'":
                _until(reader, "'")
            case '"':
                _skip_double(reader)
            case "\\":
                reader.at += 1
            case "`":
                raise Unreadable("backticks inside a substitution")
            case "#" if reader.text[reader.at - 2] in " \t\n":
                raise Unreadable("a comment inside a substitution")
            case _:
                pass
    script = reader.text[start : reader.at - 1]
    if "<<" in script:
        raise Unreadable("a heredoc inside a substitution")
    return script


def _skip_double(reader: _Reader) -> None:
    """A double-quoted string inside a substitution; a substitution in it again is not read."""
    while (char := reader.peek()) != '"':
        if not char:
            raise Unreadable('a " that is never closed')
        if reader.peek(2) == "$(" or char == "`":
            raise Unreadable("a substitution inside quotes inside a substitution")
        reader.at += 2 if char == "\\" else 1
    reader.at += 1
