"""A command line as the simple commands that a shell would run.

Below everything else in this folder; pure. It expands nothing and runs nothing. A line of words,
quotes, `&& || ; |`, newlines, comments and redirections is read exactly as bash and dash read it.
Anything else is a fault of the line: its commands are then the best reading there is, good enough
to warn of what stands in them, never to call the line harmless.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import lru_cache


def names_of(text: str) -> frozenset[str]:
    """Return the words of a text as a set."""
    return frozenset(text.split())


def rows_of(text: str) -> dict[str, str]:
    """Return by name what each row `NAMES: TEXT` says of it."""
    rows: dict[str, str] = {}
    for row in text.strip().split("\n"):
        names, _, words = row.partition(": ")
        rows |= dict.fromkeys(names.split(), words)
    return rows


KEYWORDS = names_of(
    "if then elif else fi for while until do done case esac select function time coproc { } ! [[ in"
)
REDEFINING = names_of(
    "eval source . trap alias unalias enable shopt hash bind complete compgen fc history set shift "
    "declare typeset local export readonly unset read mapfile readarray getopts let"
)
"""Builtins after which words may mean something else, or which set variables."""
RUNNING_TEXT = names_of("eval source . trap alias")
"""The builtins among them that run a text."""
SETTING = names_of("printf wait")
"""Builtins that may set a variable where their first argument is an option."""
NESTED_DEEPEST = 5
PARTS_AT_MOST = 3_000
"""Words, blanks and operators of a line that are looked at."""

_BLANK = re.compile(r"[ \t]+|\\\n|#[^\n]*")
_OPERATOR = re.compile(
    r"&>>|<<<|<<-|;;&|&&|\|\||;;|;&|\|&|&>|<<|<\(|>\(|<>|<&|>>|>&|>\||[|;&()<>\n]"
)
_JOINING = names_of("&& || ; |") | {"\n"}
_REDIRECTING = names_of("< > << <<- <<< <> <& >& >> >| &> &>>")
_HEREDOC = re.compile(r"""[ \t]*(?P<quote>['"]?)(?P<end>[\w.-]+)(?P=quote)(?=[\s;&|<>)]|$)""")
_VARIABLE = r"(?P<expansion>\$(?:\{[A-Za-z_][A-Za-z0-9_]*\}|[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-]))"
_PIECE = re.compile(
    rf"""'(?P<single>[^']*)'|\\(?P<escaped>[^\n])|{_VARIABLE}"""
    r"""|(?P<bare>[^\s'"\\$`;&|<>()]+|\$(?![A-Za-z0-9_@*#?$!({\['"\\-]))"""
)
_QUOTED_PIECE = re.compile(
    rf"""\\(?P<escaped>["\\$`])|{_VARIABLE}"""
    r"""|(?P<quoted>[^"\\$`]+|\\(?!\n)|\$(?![A-Za-z0-9_@*#?$!({\[\\-]))"""
)
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)\+?=", re.ASCII)
_HOME = re.compile(r"(?:^|[=:])~")


@dataclass(frozen=True)
class Word:
    """A word without its quotes. `expands`: the shell makes something else of it, or several
    words; `globbed`: it is a pattern for names of files.
    """

    text: str
    expands: bool = False
    globbed: bool = False
    variable: str = ""
    """The variable that the word sets where it stands before a command."""

    @property
    def plain(self) -> bool:
        """The command gets this very text."""
        return not (self.expands or self.globbed)


@dataclass(frozen=True)
class Redirect:
    """A redirection. A heredoc's target is an empty word."""

    operator: str
    target: Word

    @property
    def writes(self) -> bool:
        """It writes a file."""
        if self.operator == ">&" and (self.target.text.isdigit() or self.target.text == "-"):
            return False
        return ">" in self.operator and self.target.text != "/dev/null"


@dataclass(frozen=True)
class Command:
    """A simple command. `operator` is the one before it, "" for the first."""

    words: tuple[Word, ...]
    assignments: tuple[tuple[str, Word], ...] = ()
    redirects: tuple[Redirect, ...] = ()
    operator: str = ""

    @property
    def name(self) -> str:
        """The program's name without its folder."""
        return self.words[0].text.rsplit("/", 1)[-1] if self.words else ""

    @property
    def arguments(self) -> list[str]:
        """The texts of the words behind the name."""
        return [word.text for word in self.words[1:]]

    @property
    def text(self) -> str:
        """The command for rules and for people: its words without their quotes."""
        return " ".join(word.text for word in self.words)


@dataclass(frozen=True)
class ShellLine:
    """The commands of a line. `fault` says why it is more than simple commands; `unreadable`: the
    commands may be others than these.
    """

    commands: tuple[Command, ...]
    fault: str = ""
    unreadable: bool = False
    is_cut: bool = False
    """It has more commands than these."""


@lru_cache(maxsize=64)
def parse_line(text: str) -> ShellLine:
    """Parse a command line."""
    if re.search(r"[\x00-\x08\x0b-\x1f\x7f]", text):
        return ShellLine((), "a control character", unreadable=True)
    reader = _Reader(text)
    reader.read_commands()
    if reader.heredocs:
        reader.blame("a heredoc without its end", unreadable=True)
    return ShellLine(tuple(reader.commands), reader.fault, reader.unreadable, reader.is_cut)


@dataclass
class _Reader:
    """The position in a line, and the commands before it. Those of a substitution come before the
    command that it stands in.
    """

    text: str
    position: int = 0
    depth: int = 0
    closing: str = ""
    """The character that ends the substitution or the subshell that is being read."""
    fault: str = ""
    unreadable: bool = False
    commands: list[Command] = field(default_factory=list)
    parts: int = 0
    is_cut: bool = False
    heredocs: list[re.Match[str]] = field(default_factory=list)
    """The beginnings of heredocs whose text has not come yet."""

    def blame(self, fault: str, *, unreadable: bool = False) -> None:
        """Remember the first fault."""
        self.fault = self.fault or fault
        self.unreadable = self.unreadable or unreadable

    def read_commands(self) -> None:
        """Read commands up to `closing`, or to the end of the line."""
        words: list[Word] = []
        redirects: list[Redirect] = []
        operator = ""
        while self.position < len(self.text):
            self.parts += 1
            if self.parts > PARTS_AT_MOST:
                self.blame("it is too long to be looked at", unreadable=True)
                self.is_cut, self.position = True, len(self.text)
                break
            if blank := _BLANK.match(self.text, self.position):
                self.position = blank.end()
                continue
            if self.closing and self.text.startswith(self.closing, self.position):
                self.position += 1
                break
            sign = _OPERATOR.match(self.text, self.position)
            if sign is None:
                start = self.position
                word = self._read_word()
                written = self.text[start : self.position]
                is_redirected = self.text.startswith(("<", ">"), self.position)
                if is_redirected and written.startswith("{"):
                    self.blame("a redirection that sets a variable", unreadable=True)
                if not (is_redirected and written.isascii() and written.isdigit()):
                    words.append(word)
                elif len(written) > 1:
                    self.blame("the descriptor of a redirection")
                continue
            self.position = sign.end()
            if sign.group() in _REDIRECTING:
                redirects.append(self._read_redirect(sign.group()))
                continue
            if not (words or redirects) and sign.group() in _JOINING - {"\n"}:
                self.blame(f"`{sign.group()}` without a command before it")
            self._add_command(words, redirects, operator)
            words, redirects, operator = [], [], sign.group().replace("\n", ";")
            if sign.group() == "\n":
                self._skip_heredocs()
            elif sign.group() not in _JOINING:
                self.blame(f"`{sign.group()}`")
                if sign.group().endswith("("):
                    self._read_nested(")")
        if not (words or redirects) and operator in {"&&", "||", "|"}:
            self.blame(f"`{operator}` without a command after it")
        self._add_command(words, redirects, operator)

    def _read_nested(self, closing: str) -> None:
        if self.depth == NESTED_DEEPEST:
            self.blame("commands nested too deeply", unreadable=True)
            self.position = len(self.text)
            return
        outer, self.closing = self.closing, closing
        self.depth += 1
        self.read_commands()
        self.depth -= 1
        self.closing = outer

    def _add_command(self, words: list[Word], redirects: list[Redirect], operator: str) -> None:
        while words and words[0].plain and words[0].text in KEYWORDS:
            self.blame(f"`{words[0].text}`")
            words = [] if words[0].text in {"for", "select", "case", "function"} else words[1:]
        assignments = []
        while words and words[0].variable:
            value = words[0].text.partition("=")[2]
            assignments.append((words[0].variable, replace(words[0], text=value, variable="")))
            words = words[1:]
        if not (words or assignments or redirects):
            return
        command = Command(tuple(words), tuple(assignments), tuple(redirects), operator)
        self.commands.append(command)
        name, arguments = command.name, command.arguments
        sets_options = name == "set" and all(
            re.fullmatch(r"[-+][euxo]+|pipefail", argument) for argument in arguments
        )
        sets_variable = name in SETTING and arguments[:1] and arguments[0].startswith("-")
        if (name in REDEFINING and not sets_options) or sets_variable:
            fault = f"`{name}`, after which words may mean something else"
            self.blame(fault, unreadable=name in RUNNING_TEXT)

    def _read_redirect(self, operator: str) -> Redirect:
        if operator in {"<<", "<<-"}:
            if heredoc := _HEREDOC.match(self.text, self.position):
                self.position = heredoc.end()
                self.heredocs.append(heredoc)
            else:
                self.blame("a heredoc whose end is not a plain word", unreadable=True)
            return Redirect("<<", Word(""))
        while self.text.startswith((" ", "\t"), self.position):
            self.position += 1
        target = self._read_word()
        if not target.text:
            self.blame("a redirection without a target", unreadable=True)
        if operator in {">&", "<&"} and target.text.startswith("-") and target.text != "-":
            self.blame("`>&-` and a word without a space between them", unreadable=True)
        return Redirect(operator, target)

    def _skip_heredocs(self) -> None:
        while self.heredocs and self.position < len(self.text):
            heredoc = self.heredocs[0]
            row = self.text[self.position :].partition("\n")[0]
            self.position += len(row) + 1
            ignores_tabs = heredoc.string[heredoc.start() - 1] == "-"
            if (row.lstrip("\t") if ignores_tabs else row) == heredoc["end"]:
                self.heredocs.pop(0)
            elif not heredoc["quote"] and re.search(r"[`\\]|\$[({]", row):
                self.blame("a substitution in a heredoc (quote its end, as in <<'END')")
                body = _Reader(row, depth=self.depth)
                body._read_nested("")
                self.commands += body.commands
                self.unreadable = self.unreadable or body.unreadable

    def _read_word(self) -> Word:
        text = ""
        unquoted = ""
        """The word as it is written, with one mark for each quoted or expanded part."""
        quoted = expands = False
        while self.position < len(self.text):
            char = self.text[self.position]
            if not quoted and (char in " \t\n;&|<>()" or char == self.closing):
                break
            start = self.position
            piece = (_QUOTED_PIECE if quoted else _PIECE).match(self.text, start)
            if char == '"':
                quoted = not quoted
                self.position += 1
                unquoted += '"'
            elif piece is None:
                self._read_faulty_piece(char)
                text += self.text[start : self.position]
                expands, unquoted = True, unquoted + "$"
            else:
                self.position = piece.end()
                part = piece.lastgroup or ""
                text += piece[part]
                expands = expands or part == "expansion"
                unquoted += piece[part] if part == "bare" else "$"
        if quoted:
            self.blame('a " that is never closed', unreadable=True)
        assigned = _ASSIGNED.match(unquoted)
        braces = unquoted.partition("{")[2]
        expands = expands or "," in braces or ".." in braces or _HOME.search(unquoted) is not None
        globbed = unquoted != "[" and re.search(r"[*?\[]", unquoted) is not None
        return Word(text, expands, globbed, assigned.group(1) if assigned is not None else "")

    def _read_faulty_piece(self, char: str) -> None:
        """Go past a part of a word that makes the line more than simple commands."""
        following = self.text[self.position + 1 : self.position + 2]
        self.position += 1
        if char == "`" or char + following == "$(":
            self.blame("a substitution", unreadable=char + following == "`\\")
            self.position += char == "$"
            self._read_nested(")" if char == "$" else "`")
        elif char + following == "${":
            self.blame("more than a name in ${...}")
            self.position += 1
        elif char == "'":
            self.blame("a ' that is never closed", unreadable=True)
            self.position = len(self.text)
        elif char.isspace():
            self.blame("a space that is no ordinary one", unreadable=True)
        else:
            self.blame(f"`{char}{following.strip()}`", unreadable=True)
            self.position += following == "\n"
