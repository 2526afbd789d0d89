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


OPERATORS = (
    "&>>", "<<<", "<<-", ";;&", "&&", "||", ";;", ";&", "|&", "&>", "<<", "<(", ">(", "<>", "<&",
    ">>", ">&", ">|", "|", ";", "&", "(", ")", "<", ">",
)  # fmt: skip
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

_NAME = re.compile(r"[A-Za-z_]\w*|[0-9@*#?$!-]", re.ASCII)
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)\+?=", re.ASCII)
_HEREDOC_END = re.compile(r"""[ \t]*(?:'([\w.-]+)'|"([\w.-]+)"|([\w.-]+))(?=[\s;&|<>)]|$)""")
_BRACES = re.compile(r"\{.*(?:,|\.\.)", re.DOTALL)
_ENDS_WORD = frozenset(" \t\n;&|<>()")


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
        """Whether the command gets this very text."""
        return not (self.expands or self.globbed)


@dataclass(frozen=True)
class Redirect:
    """A redirection. A heredoc's target is an empty word."""

    operator: str
    target: Word

    @property
    def writes(self) -> bool:
        """Whether it writes a file."""
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
    heredoc_ends: list[tuple[str, bool, bool]] = field(default_factory=list)
    """Word, whether it was quoted, and whether tabs before it are ignored."""

    def scan(self) -> ShellLine:
        if re.search(r"[\x00-\x08\x0b-\x1f\x7f]", self.text):
            return ShellLine((), "a control character", unreadable=True)
        while self.position < len(self.text):
            char = self.text[self.position]
            if char in " \t":
                self.position += 1
            elif self.text.startswith("\\\n", self.position):
                self.position += 2
            elif char == "#":
                end = self.text.find("\n", self.position)
                self.position = len(self.text) if end < 0 else end
            elif char == "\n":
                self.position += 1
                self._end_command(";")
                self._skip_heredocs()
            elif char in _ENDS_WORD:
                self._read_operator()
            else:
                word, written = self._read_word()
                redirects = self.text.startswith(("<", ">"), self.position)
                if not (written.isdigit() and redirects):
                    self._add_word(word)
                elif len(written) > 1:
                    self._blame("the descriptor of a redirection")
        self._end_command("")
        if self.heredoc_ends:
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
            sets_options = command.name == "set" and all(
                re.fullmatch(r"[-+][euxo]+|pipefail", argument) for argument in command.arguments
            )
            if command.name in REDEFINING and not sets_options:
                self._blame(
                    f"`{command.name}`, after which words may mean something else",
                    unreadable=command.name in {"eval", "source", ".", "trap", "alias"},
                )
            self.commands.append(command)
        self.words, self.assignments, self.redirects = [], [], []
        self.operator = operator

    def _read_operator(self) -> None:
        operator = next(op for op in OPERATORS if self.text.startswith(op, self.position))
        self.position += len(operator)
        if operator in FAULTY_OPERATORS:
            self._blame(FAULTY_OPERATORS[operator])
            self._end_command(operator)
        elif operator in {"&&", "||", ";", "|"}:
            self._end_command(operator)
        elif operator in {"<<", "<<-"}:
            self._begin_heredoc(operator)
        else:
            while self.text[self.position : self.position + 1] in {" ", "\t"}:
                self.position += 1
            target, _ = self._read_word()
            self.redirects.append(Redirect(operator, target))
            if not target.text:
                self._blame("a redirection without a target", unreadable=True)
            if operator in {">&", "<&"} and target.text.startswith("-") and target.text != "-":
                self._blame("`>&-` and a word without a space between them", unreadable=True)

    def _begin_heredoc(self, operator: str) -> None:
        end = _HEREDOC_END.match(self.text, self.position)
        if end is None:
            self._blame("a heredoc whose end is not a plain word", unreadable=True)
            return
        self.position = end.end()
        word = end.group(1) or end.group(2) or end.group(3)
        self.heredoc_ends.append((word, end.group(3) is None, operator == "<<-"))
        self.redirects.append(Redirect("<<", Word("")))

    def _skip_heredocs(self) -> None:
        while self.heredoc_ends:
            word, quoted, ignores_tabs = self.heredoc_ends[0]
            end = self.text.find("\n", self.position)
            end = len(self.text) if end < 0 else end
            row = self.text[self.position : end]
            if self.position >= len(self.text):
                return
            self.position = end + 1
            if (row.lstrip("\t") if ignores_tabs else row) == word:
                self.heredoc_ends.pop(0)
            elif not quoted and re.search(r"[`\\]|\$[({]", row):
                self._blame("a substitution in a heredoc (quote its end, as in <<'END')")
                self._read_commands_within(row)

    def _read_commands_within(self, text: str) -> None:
        """Add the commands of the substitutions that a text may hold."""
        for inner in re.findall(r"\$\(([^()]*)\)|`([^`]*)`", text):
            self._add_nested("".join(inner))

    def _add_nested(self, text: str) -> None:
        if self.depth >= NESTED_DEEPEST:
            self._blame("substitutions nested too deeply", unreadable=True)
            return
        inner = _Scanner(text, self.depth + 1).scan()
        self.commands += inner.commands
        self.unreadable = self.unreadable or inner.unreadable

    def _read_word(self) -> tuple[Word, str]:
        """Return the word that begins here, and how it is written."""
        start = self.position
        chars: list[str] = []
        bare: list[str] = []
        expands = globbed = False
        while self.position < len(self.text) and self.text[self.position] not in _ENDS_WORD:
            char = self.text[self.position]
            self.position += 1
            if char == "'":
                chars.append(self._until("'"))
                bare.append("'")
            elif char == '"':
                text, inner_expands = self._double_quoted()
                chars.append(text)
                bare.append('"')
                expands = expands or inner_expands
            elif char == "\\":
                escaped = self.text[self.position : self.position + 1]
                if escaped in {"", "\n"}:
                    self._blame("a word that is broken over two lines", unreadable=True)
                self.position += 1
                chars.append(escaped)
                bare.append("\\")
            elif char in "$`":
                text, made_by_shell = self._expansion(char, quoted=False)
                chars.append(text)
                bare.append("$")
                expands = expands or made_by_shell
            else:
                if char.isspace():
                    self._blame("a space that is no ordinary one", unreadable=True)
                globbed = globbed or char in "*?["
                expands = expands or (char == "~" and (not bare or bare[-1] in {"=", ":"}))
                chars.append(char)
                bare.append(char)
        unquoted = "".join(bare)
        globbed = globbed and unquoted != "["
        assigned = _ASSIGNED.match(unquoted)
        expands = expands or _BRACES.search(unquoted) is not None
        variable = assigned.group(1) if assigned is not None else ""
        written = self.text[start : self.position]
        return Word("".join(chars), expands, globbed, variable), written

    def _until(self, quote: str) -> str:
        end = self.text.find(quote, self.position)
        if end < 0:
            self._blame(f"a {quote} that is never closed", unreadable=True)
            end = len(self.text)
        text = self.text[self.position : end]
        self.position = end + 1
        return text

    def _double_quoted(self) -> tuple[str, bool]:
        chars: list[str] = []
        expands = False
        while self.position < len(self.text):
            char = self.text[self.position]
            self.position += 1
            following = self.text[self.position : self.position + 1]
            if char == '"':
                return "".join(chars), expands
            if char == "\\" and following in {'"', "\\", "$", "`", "\n"}:
                if following == "\n":
                    self._blame("a quoted word that is broken over two lines", unreadable=True)
                chars.append(following.strip("\n"))
                self.position += 1
            elif char in "$`":
                text, made_by_shell = self._expansion(char, quoted=True)
                chars.append(text)
                expands = expands or made_by_shell
            else:
                chars.append(char)
        self._blame('a " that is never closed', unreadable=True)
        return "".join(chars), expands

    def _expansion(self, char: str, *, quoted: bool) -> tuple[str, bool]:
        """Return what `$` or a backtick begins, as it is written, and whether it expands."""
        start = self.position - 1
        following = self.text[self.position : self.position + 1]
        if following == "\\":
            self._blame(f"`{char}\\`", unreadable=True)
        if char == "`":
            self._blame("a substitution")
            self._add_nested(self._until("`"))
        elif following == "(":
            self._blame("a substitution")
            self._add_nested(self._until_closed("(", ")"))
        elif following == "{":
            inner = self._until_closed("{", "}")
            if re.fullmatch(r"[A-Za-z_]\w*", inner, re.ASCII) is None:
                self._blame("more than a name in ${...}")
                self._read_commands_within(inner)
        elif following in {"'", '"'} and not quoted:
            self._blame(f"`${following}`", unreadable=True)
        elif (name := _NAME.match(self.text, self.position)) is not None:
            self.position = name.end()
        elif following == "[":
            self._blame("`$[`", unreadable=True)
        else:
            return char, False
        return self.text[start : self.position], True

    def _until_closed(self, opening: str, closing: str) -> str:
        """Return what stands up to the bracket that closes the one here, quotes not minded."""
        start, open_brackets = self.position + 1, 0
        while self.position < len(self.text):
            char = self.text[self.position]
            open_brackets += (char == opening) - (char == closing)
            self.position += 1
            if not open_brackets:
                return self.text[start : self.position - 1]
        self._blame(f"a {opening} that is never closed", unreadable=True)
        return self.text[start:]
