"""A command line as the simple commands that a shell would run.

Below everything else in this folder; pure. It expands nothing and runs nothing. A line of words,
quotes, `&& || ; |`, newlines, comments and redirections is read exactly as bash and dash read it.
Anything else is a fault of the line: its commands are then the best reading there is, good enough
to warn of what stands in them, never to call the line harmless.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
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


FAULTY_OPERATORS = {
    "&": "it runs something in the background",
    "|&": "`|&`",
    "(": "a subshell or a function",
    ")": "a subshell or a function",
    ";;": "a case",
    ";&": "a case",
    ";;&": "a case",
    "<(": "a process substitution",
    ">(": "a process substitution",
}
KEYWORDS = names_of(
    "if then elif else fi for while until do done case esac select function time coproc { } ! [[ in"
)
REDEFINING = names_of(
    "eval source . trap alias unalias enable shopt hash bind complete compgen fc history set shift "
    "declare typeset local export readonly unset read mapfile readarray getopts let"
)
"""Builtins after which words may mean something else, or which set variables."""
NESTED_DEEPEST = 5

RUNNING_TEXT = names_of("eval source . trap alias")
"""The builtins among them that run a text."""

_BLANK = re.compile(r"[ \t]+|\\\n|#[^\n]*")
_OPERATOR = re.compile(r"&>>|<<<|<<-|;;&|&&|\|\||;;|;&|\|&|&>|<<|<\(|>\(|<>|<&|>>|>&|>\||[|;&()<>]")
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
_EXPANDED = re.compile(r"\{.*(?:,|\.\.)|(?:^|[=:])~", re.DOTALL)
"""Braces, or the home."""


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


@lru_cache(maxsize=64)
def parse_line(text: str) -> ShellLine:
    """Parse a command line."""
    return _Scanner(text, 0).scan()


@dataclass
class _Scanner:
    """The position in a line, and the command that is being read."""

    text: str
    depth: int
    position: int = 0
    fault: str = ""
    unreadable: bool = False
    commands: list[Command] = field(default_factory=list)
    words: list[Word] = field(default_factory=list)
    assignments: list[tuple[str, Word]] = field(default_factory=list)
    redirects: list[Redirect] = field(default_factory=list)
    operator: str = ""
    heredocs: list[re.Match[str]] = field(default_factory=list)
    """The beginnings of heredocs whose text has not come yet."""

    def scan(self) -> ShellLine:
        if re.search(r"[\x00-\x08\x0b-\x1f\x7f]", self.text):
            return ShellLine((), "a control character", unreadable=True)
        while self.position < len(self.text):
            if blank := _BLANK.match(self.text, self.position):
                self.position = blank.end()
            elif self.text[self.position] == "\n":
                self.position += 1
                self._end_command(";")
                self._skip_heredocs()
            elif operator := _OPERATOR.match(self.text, self.position):
                self._read_operator(operator.group())
            else:
                start = self.position
                word = self._read_word()
                written = self.text[start : self.position]
                if not (written.isdigit() and self.text.startswith(("<", ">"), self.position)):
                    self._add_word(word)
                elif len(written) > 1:
                    self._blame("the descriptor of a redirection")
        self._end_command("")
        if self.heredocs:
            self._blame("a heredoc without its end", unreadable=True)
        return ShellLine(tuple(self.commands), self.fault, self.unreadable)

    def _blame(self, fault: str, *, unreadable: bool = False) -> None:
        self.fault = self.fault or fault
        self.unreadable = self.unreadable or unreadable

    def _add_word(self, word: Word) -> None:
        if word.variable and not self.words:
            value = word.text.partition("=")[2]
            self.assignments.append((word.variable, Word(value, word.expands, word.globbed)))
        else:
            self.words.append(word)

    def _end_command(self, operator: str) -> None:
        """Add the command that ends here. `operator` is the one behind it."""
        while self.words and self.words[0].plain and self.words[0].text in KEYWORDS:
            keyword = self.words.pop(0).text
            self._blame(f"`{keyword}`")
            if keyword in {"for", "select", "case", "function"}:
                self.words = []
        if self.words or self.assignments or self.redirects:
            command = Command(
                tuple(self.words), tuple(self.assignments), tuple(self.redirects), self.operator
            )
            self.commands.append(command)
            sets_options = command.name == "set" and all(
                re.fullmatch(r"[-+][euxo]+|pipefail", argument) for argument in command.arguments
            )
            if command.name in REDEFINING and not sets_options:
                fault = f"`{command.name}`, after which words may mean something else"
                self._blame(fault, unreadable=command.name in RUNNING_TEXT)
        self.words, self.assignments, self.redirects = [], [], []
        self.operator = operator

    def _read_operator(self, operator: str) -> None:
        self.position += len(operator)
        if operator in FAULTY_OPERATORS:
            self._blame(FAULTY_OPERATORS[operator])
        if operator in FAULTY_OPERATORS or operator in {"&&", "||", ";", "|"}:
            self._end_command(operator)
        elif operator in {"<<", "<<-"}:
            if heredoc := _HEREDOC.match(self.text, self.position):
                self.position = heredoc.end()
                self.heredocs.append(heredoc)
                self.redirects.append(Redirect("<<", Word("")))
            else:
                self._blame("a heredoc whose end is not a plain word", unreadable=True)
        else:
            while self.text[self.position : self.position + 1] in {" ", "\t"}:
                self.position += 1
            target = self._read_word()
            self.redirects.append(Redirect(operator, target))
            if not target.text:
                self._blame("a redirection without a target", unreadable=True)
            if operator in {">&", "<&"} and target.text.startswith("-") and target.text != "-":
                self._blame("`>&-` and a word without a space between them", unreadable=True)

    def _skip_heredocs(self) -> None:
        while self.heredocs and self.position < len(self.text):
            heredoc = self.heredocs[0]
            end = self.text.find("\n", self.position)
            end = len(self.text) if end < 0 else end
            row = self.text[self.position : end]
            self.position = end + 1
            ignores_tabs = heredoc.string[heredoc.start() - 1] == "-"
            if (row.lstrip("\t") if ignores_tabs else row) == heredoc["end"]:
                self.heredocs.pop(0)
            elif not heredoc["quote"] and re.search(r"[`\\]|\$[({]", row):
                self._blame("a substitution in a heredoc (quote its end, as in <<'END')")
                self._read_nested(row)

    def _read_nested(self, text: str) -> None:
        """Add the commands of a text that the shell runs within the line."""
        if self.depth >= NESTED_DEEPEST:
            self._blame("substitutions nested too deeply", unreadable=True)
            return
        nested = _Scanner(text, self.depth + 1).scan()
        self.commands += nested.commands
        self.unreadable = self.unreadable or nested.unreadable

    def _read_word(self) -> Word:
        text = ""
        unquoted = ""
        """The word as it is written, with one mark for each quoted or expanded part."""
        quoted = expands = False
        while self.position < len(self.text):
            char = self.text[self.position]
            if not quoted and char in " \t\n;&|<>()":
                break
            piece = (_QUOTED_PIECE if quoted else _PIECE).match(self.text, self.position)
            if char == '"':
                quoted = not quoted
                self.position += 1
                unquoted += '"'
            elif piece is None:
                start = self.position
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
            self._blame('a " that is never closed', unreadable=True)
        assigned = _ASSIGNED.match(unquoted)
        expands = expands or _EXPANDED.search(unquoted) is not None
        globbed = unquoted != "[" and re.search(r"[*?\[]", unquoted) is not None
        return Word(text, expands, globbed, assigned.group(1) if assigned is not None else "")

    def _read_faulty_piece(self, char: str) -> None:
        """Go past a part of a word that makes the line more than simple commands."""
        following = self.text[self.position + 1 : self.position + 2]
        if char + following == "$(":
            self._blame("a substitution")
            self._read_nested(self._until_closed("(", ")"))
        elif char + following == "${":
            self._blame("more than a name in ${...}")
            self._read_nested(self._until_closed("{", "}"))
        elif char == "`":
            self._blame("a substitution", unreadable=following == "\\")
            end = self.text.find("`", self.position + 1)
            end = len(self.text) if end < 0 else end
            self._read_nested(self.text[self.position + 1 : end])
            self.position = end + 1
        elif char == "'":
            self._blame("a ' that is never closed", unreadable=True)
            self.position = len(self.text)
        elif char.isspace():
            self._blame("a space that is no ordinary one", unreadable=True)
            self.position += 1
        else:
            self._blame(f"`{char}{following.strip()}`", unreadable=True)
            self.position += 2 if following == "\n" else 1

    def _until_closed(self, opening: str, closing: str) -> str:
        """Return what stands up to the bracket that closes the next one, quotes not minded."""
        self.position += 1
        start, depth = self.position + 1, 0
        while self.position < len(self.text):
            char = self.text[self.position]
            depth += (char == opening) - (char == closing)
            self.position += 1
            if not depth:
                return self.text[start : self.position - 1]
        self._blame(f"a {opening} that is never closed", unreadable=True)
        return self.text[start:]
