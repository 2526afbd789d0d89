"""A command line taken apart into the simple commands that the shell would run, those in
substitutions included.

Below everything else here. It runs nothing and expands nothing: what is known only when it runs is
marked. Only what bash and dash read in one certain way is returned; all else raises Unreadable.
`[[` is read as the command that it is to dash, with what stands behind `&&` and `||` in it: bash
would run less. Pure.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

ONE = "\ue000"
"""In the shape of a word: text that is known only when it runs."""
MANY = "\ue001"
"""The same, where it may end this word and begin others."""
DEEPEST = 5
EXPANDED = 64
"""Words that one word with braces may become."""

SEPARATORS = frozenset({"|", "|&", "||", "&&", ";", "&", "\n", "(", ")"})
OPERATORS = (
    ";;&", "&>>", "<<<", "<<-", "&&", "||", ";;", ";&", "|&", "&>", ">>", "<<", ">|", "<>", ">&", "<&", "|", "&", ";",
    "(", ")", "<", ">", "\n",
)  # fmt: skip
PREFIXES = frozenset(
    {"if", "then", "else", "elif", "fi", "while", "until", "do", "done", "{", "}", "!", "time"}
)
UNREAD = frozenset({"case", "esac", "function", "select", "coproc"})
_ENDS_WORD = frozenset(" \t\n;&|<>()")
_STRANGE = re.compile(rf"[\x00-\x08\x0b-\x1f\x7f{ONE}{MANY}]")
_NAME = re.compile(r"[A-Za-z_]\w*|[0-9@*#?$!-]", re.ASCII)
_BRACED_NAME = re.compile(
    r"\{(?:[0-9@*\#?]|\#?[A-Za-z_]\w*|[A-Za-z_]\w*(?:\[[@*\d]\]|:?[-+?][\w "
    r"./,:%+=-]*|(?:\#\#?|%%?)[\w./*?:,=-]*"
    r"|//?[\w.*?: ,=-]+(?:/[\w.: ,=-]*)?|\^\^?|,,?))\}",
    re.ASCII,
)
"""`${...}` that holds no other expansion, no sum and no name of a name."""
_SUM = re.compile(r"(?:[\w\s+*/%<>=!&|^~?:,()-]|\d\#|\$\w+|\$\{\#?\w+\})*", re.ASCII)
_IN_SUM = re.compile(r"(?<![\w#])(?!0[xX])[A-Za-z_]|\$")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)\+?=(.*)", re.DOTALL | re.ASCII)
_DELIMITER = re.compile(r"[ \t]*(?:(['\"]?)([\w.+,:@%/-]+)\1|\\(\w+))(?=[ \t\n;&|<>)])")
_HELD = re.compile(r"`|\$[(\[{]|\\$")
"""What a heredoc's line may not hold when the shell expands it."""
_GROUP = re.compile(r"\{[^{},]*(?:,[^{},]*)+\}")
_PIECES = re.compile(f"({_GROUP.pattern})")
_RANGE = re.compile(r"\{(?:-?\d+\.\.-?\d+|[A-Za-z]\.\.[A-Za-z])\}")
_UNEXPANDED = re.compile(r"[^{}]*(?:\{(?:(?!\.\.)[^{},])*\}[^{}]*)*")
_EXPANDABLE = re.compile(
    rf"(?:[^{{}}]|{_GROUP.pattern}|{_RANGE.pattern}|\{{(?:(?!\.\.)[^{{}},])*\}})*"
)


class Unreadable(Exception):
    """The line holds something policy does not read; the message says what. It is asked about,
    never guessed.
    """


@dataclass(frozen=True)
class Word:
    """One word. `text` is without its quotes, expansions as they are written; `shape` has ONE and
    MANY for them.
    """

    text: str
    shape: str = ""
    dynamic: bool = False
    globbed: bool = False
    quoted: bool = False
    braced: bool = False
    assigns: bool = False

    def __post_init__(self) -> None:
        if not self.shape and self.text:
            object.__setattr__(self, "shape", self.text)


@dataclass(frozen=True)
class Redirect:
    """`op` with its target; fd copies like 2>&1 are left out. `option`: it is what this option of a
    command does.
    """

    op: str
    target: Word
    option: str = ""

    @property
    def writes(self) -> bool:
        return ">" in self.op


@dataclass(frozen=True)
class Command:
    """A simple command. `piped` says that its input is another one's output, `pipeline` which
    belong together.
    """

    words: tuple[Word, ...]
    assignments: tuple[tuple[str, Word], ...] = ()
    redirects: tuple[Redirect, ...] = ()
    piped: bool = False
    pipeline: int = 0
    given_more: bool = False
    """Further arguments come from somewhere else: xargs, find -exec."""
    mark: str = ""
    """What stands for them among the words, "" where they are added at the end."""
    alias: bool = False
    """It is an alias of git; what that stands for is a command of its own."""

    @property
    def text(self) -> str:
        """For rules and for people."""
        return " ".join(word.text for word in self.words)

    @property
    def shapes(self) -> list[str]:
        """The shape of each word, with what it is given by others."""
        found = [
            word.shape.replace(self.mark, MANY) if self.mark else word.shape for word in self.words
        ]
        return [*found, MANY] if self.given_more and not self.mark else found


@dataclass(frozen=True)
class _Token:
    """A word, or an operator (`op`). `inner` are the commands in its substitutions; `fd`: it
    numbers a redirection.
    """

    op: str = ""
    word: Word = Word("")
    inner: tuple[Command, ...] = ()
    fd: bool = False


@dataclass
class _Reader:
    """Where we are in the line, and what the word being read has turned out to hold."""

    text: str
    depth: int
    pipelines: Iterator[int]
    at: int = 0
    chars: list[str] = field(default_factory=list)
    shapes: list[str] = field(default_factory=list)
    bare: list[str] = field(default_factory=list)
    inner: list[Command] = field(default_factory=list)
    dynamic: bool = False
    globbed: bool = False
    quoted: bool = False
    heredocs: list[tuple[str, bool, bool]] = field(default_factory=list)

    def peek(self, length: int = 1) -> str:
        return self.text[self.at : self.at + length]

    def add(self, text: str, *, shape: str | None = None, bare: str = "") -> None:
        self.chars.append(text)
        self.shapes.append(text if shape is None else shape)
        self.bare.append(bare)

    def nested(self, text: str, at: int = 0) -> _Reader:
        if self.depth >= DEEPEST:
            raise Unreadable("substitutions nested too deeply")
        return _Reader(text, self.depth + 1, self.pipelines, at)


def parse_command_line(line: str) -> tuple[Command, ...]:
    """Every simple command of the line in order. Raises Unreadable."""
    if (strange := _STRANGE.search(line)) is not None:
        raise Unreadable(f"the control character {strange.group()!a}")
    return _parse_commands(_Reader(line, 0, itertools.count(1)))


def _parse_commands(reader: _Reader, *, nested: bool = False) -> tuple[Command, ...]:
    found = _tokens(reader, nested=nested)
    commands: list[Command] = []
    pipeline, before = 0, "\n"
    for part, after in _parts(found):
        if not part and after == "(":
            continue  # what a group is fed, its first command is fed
        if before not in {"|", "|&"}:
            pipeline = next(reader.pipelines)
        command = _command(part, piped=before in {"|", "|&"}, pipeline=pipeline)
        if after == "(" and (command.words or command.assignments):
            raise Unreadable("a function or an array")
        if command.words or command.assignments or command.redirects:
            commands.append(command)
        before = after
    return (*commands, *itertools.chain.from_iterable(token.inner for token in found))


def _tokens(reader: _Reader, *, nested: bool) -> list[_Token]:
    """The tokens up to the end, or up to the `)` that ends a substitution; comments and heredoc
    bodies taken out.
    """
    found: list[_Token] = []
    groups = 0
    while char := reader.peek():
        if char in " \t":
            reader.at += 1
        elif reader.peek(2) == "\\\n" and not reader.heredocs:
            reader.at += 2
        elif char == "#":
            if nested:
                raise Unreadable("a comment inside a substitution")
            end = reader.text.find("\n", reader.at)
            reader.at = len(reader.text) if end < 0 else end
        elif char not in _ENDS_WORD:
            found.append(_word(reader))
        elif char == ")" and not groups:
            if not nested:
                raise Unreadable("a ) without its (")
            reader.at += 1
            return found
        else:
            groups += {"(": 1, ")": -1}.get(char, 0)
            found.append(_operator(reader, nested))
    if nested or groups:
        raise Unreadable("a ( that is never closed")
    if reader.heredocs:
        raise Unreadable("a heredoc without its end")
    return found


def _operator(reader: _Reader, nested: bool) -> _Token:
    if reader.peek(2) in {"<(", ">("}:
        raise Unreadable("a process substitution")
    op = next(op for op in OPERATORS if reader.text.startswith(op, reader.at))
    reader.at += len(op)
    if op in {"<<", "<<-"}:
        if nested:
            raise Unreadable("a heredoc inside a substitution")
        named = _DELIMITER.match(reader.text, reader.at)
        if named is None:
            raise Unreadable("a heredoc whose end is not a plain word")
        quote, plain, escaped = named.groups()
        reader.heredocs.append((plain or escaped, bool(quote or escaped), op == "<<-"))
        reader.at = named.end()
        return _Token(op="<<")
    if op == "\n":
        _skip_heredocs(reader)
    if op.startswith((";;", ";&")) or (op == "(" and reader.peek() == "("):
        raise Unreadable("a case" if ";" in op else "a sum in ((...))")
    return _Token(op=op)


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
            if not quoted and _HELD.search(re.sub(rf"\${_BRACED_NAME.pattern}", "", line)):
                raise Unreadable(
                    "a command or a broken line inside a heredoc (quote its end, as in <<'END')"
                )
    reader.heredocs.clear()


def _word(reader: _Reader) -> _Token:
    start, opened = reader.at, bool(reader.heredocs)
    while (char := reader.peek()) and char not in _ENDS_WORD:
        _piece(reader, char)
    written = reader.text[start : reader.at]
    if opened and "\n" in written:
        raise Unreadable("a line break in a word behind a heredoc's begin")
    numbers = reader.peek() in {"<", ">"} and (
        written.isdigit() or re.fullmatch(r"\{\w+\}", written) is not None
    )
    if numbers and not (len(written) == 1 and written.isascii()):
        raise Unreadable(f"the descriptor `{written}` of a redirection")
    token = _Token(word=_made(reader), inner=tuple(reader.inner), fd=numbers)
    reader.chars, reader.shapes, reader.bare, reader.inner = [], [], [], []
    reader.dynamic = reader.globbed = reader.quoted = False
    return token


def _made(reader: _Reader) -> Word:
    text, bare, shape = "".join(reader.chars), "".join(reader.bare), "".join(reader.shapes)
    braced = _RANGE.search(bare) is not None or _UNEXPANDED.fullmatch(bare) is None
    if braced and (reader.quoted or reader.dynamic):
        raise Unreadable("braces with quotes or variables in them")
    if "[" in bare[:-1] and "]" in bare[bare.find("[") :]:
        shape = shape[: shape.find("[")] + MANY
    if bare.startswith("~"):
        shape = ONE + shape[shape.find("/") :] if "/" in shape else ONE
    elif re.search(r"[=:]~", bare):
        shape = ONE
    named = _ASSIGNMENT.match(bare)
    assigns = named is not None and text.startswith(named.group(1))
    return Word(text, shape or text, reader.dynamic, reader.globbed, reader.quoted, braced, assigns)


def _piece(reader: _Reader, char: str) -> None:
    """One character outside quotes, or what it opens."""
    reader.at += 1
    match char:
        case "\\" if reader.peek() in {"\n", ""}:
            raise Unreadable("a word that is broken over two lines")
        case "\\":
            reader.add(reader.peek(), bare="\\")
            reader.quoted = True
            reader.at += 1
        case "'":
            reader.add(_until(reader, "'"), bare="'")
            reader.quoted = True
        case '"':
            reader.add("", bare='"')
            reader.quoted = True
            _double_quoted(reader)
        case "$" | "`":
            _expansion(reader, char, in_quotes=False)
        case _ if char.isspace():
            raise Unreadable(f"the space {char!a} outside quotes")
        case _:
            reader.globbed |= char in "*?["
            reader.add(char, shape=MANY if char in "*?" else char, bare=char)


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
            reader.add(reader.peek().strip("\n"))
            reader.at += 1
        elif char in "$`":
            _expansion(reader, char, in_quotes=True)
        else:
            reader.add(char)


def _expansion(reader: _Reader, char: str, *, in_quotes: bool) -> None:
    """After `$` or a backtick."""
    start, shape = reader.at - 1, ONE if in_quotes else MANY
    following = reader.peek()
    if char == "`" or (following == "(" and reader.peek(2) != "(("):
        _substitution(reader, char, in_quotes)
    elif following == "(":
        _sum(reader)
    elif (following == '"' and not in_quotes) or following == "[" or reader.peek(2) == "\\\n":
        raise Unreadable(f"`{char}{following}`")
    elif following == "'" and not in_quotes:
        reader.at += 1
        reader.add(_until(reader, "'"), bare="'")
        reader.quoted = True
        if "\\" in reader.chars[-1]:
            raise Unreadable("an escape in $'...'")
        return
    elif (
        name := (_BRACED_NAME if following == "{" else _NAME).match(reader.text, reader.at)
    ) is not None:
        reader.at = name.end()
        shape = MANY if "@" in name.group() else shape
    elif following == "{":
        raise Unreadable("more than a name in ${...}")
    else:
        reader.add(char, bare=char)
        return
    reader.add(reader.text[start : reader.at], shape=shape)
    reader.dynamic = True


def _substitution(reader: _Reader, char: str, in_quotes: bool) -> None:
    if char == "`":
        script = _until(reader, "`")
        if "\\" in script or (in_quotes and '"' in script):
            raise Unreadable("a backslash or quotes inside backticks")
        reader.inner += _parse_commands(reader.nested(script))
        return
    inside = reader.nested(reader.text, reader.at + 1)
    reader.inner += _parse_commands(inside, nested=True)
    reader.at = inside.at


def _sum(reader: _Reader) -> None:
    """`$((...))` with numbers, names and operators. A name's value is worked out as well and may
    hold a command (`a[$(rm x)]`), so a sum with names counts as a command of its own, `let`."""
    end, depth = reader.at, 0
    while end < len(reader.text):
        depth += {"(": 1, ")": -1}.get(reader.text[end], 0)
        end += 1
        if depth == 0:
            break
    inner = reader.text[reader.at + 2 : end - 2]
    depths = itertools.accumulate({"(": 1, ")": -1}.get(char, 0) for char in inner)
    balanced = (
        min(depths, default=0) >= 0 and reader.text[end - 2 : end] == "))"
    )  # its last two close its first two
    if depth or not balanced or _SUM.fullmatch(inner) is None:
        raise Unreadable("more than numbers and names in $((...))")
    if _IN_SUM.search(inner):
        reader.inner.append(Command((Word("let"), Word("sum", ONE, dynamic=True))))
    reader.at = end


def _parts(found: list[_Token]) -> Iterator[tuple[list[_Token], str]]:
    part: list[_Token] = []
    for token in found:
        if token.op in SEPARATORS:
            yield part, token.op
            part = []
        else:
            part.append(token)
    yield part, "\n"


def _redirected(op: str, target: Word) -> list[Redirect]:
    """The redirection, or none where it only copies or closes a file descriptor."""
    if target.braced:
        raise Unreadable("braces in the target of a redirection")
    copies = op in {">&", "<&"}
    if copies and target.text.startswith("-") and target.text != "-":
        raise Unreadable(
            "`>&-` and a word without a space between them"
        )  # one word for dash, two for bash
    return [] if copies and re.fullmatch(r"\d-?|-", target.text) else [Redirect(op, target)]


def _command(part: list[_Token], *, piped: bool, pipeline: int) -> Command:
    words: list[Word] = []
    assignments: list[tuple[str, Word]] = []
    redirects: list[Redirect] = []
    pending = ""
    rest = _behind_prefixes(part)
    for at, token in enumerate(rest):
        if token.op:
            if pending:
                raise Unreadable("a redirection without a target")
            if token.op == "<<":
                redirects.append(Redirect("<<", Word("", quoted=True)))
            else:
                pending = token.op
        elif token.fd:
            continue
        elif pending:
            redirects += _redirected(pending, token.word)
            pending = ""
        elif (
            not words
            and token.word.assigns
            and (made := _ASSIGNMENT.fullmatch(token.word.text)) is not None
        ):
            value = token.word.shape.partition("=")[2]
            assignments.append((made.group(1), Word(made.group(2), value, token.word.dynamic)))
        elif at == 0 and token.word.text == "for" and not token.word.quoted:
            return Command((), ((_looped(rest), Word("", ONE, dynamic=True)),), (), piped, pipeline)
        else:
            words += _unbraced(token.word) if token.word.braced else [token.word]
    if pending or (words and words[0].text == "[[" and any(one.op == "<<" for one in redirects)):
        raise Unreadable("a redirection without a target")
    return Command(tuple(words), tuple(assignments), tuple(redirects), piped, pipeline)


def _behind_prefixes(part: list[_Token]) -> list[_Token]:
    """The part without `if`, `do`, `!` and their like: the word after one of them is a first one
    again.
    """
    at = 0
    while at < len(part) and not part[at].op and not part[at].fd:
        word = part[at].word
        if word.quoted or word.text not in PREFIXES | UNREAD:
            break
        if word.text in UNREAD:
            raise Unreadable(f"`{word.text}`")
        at += 1
        if word.text == "time":
            at += at < len(part) and part[at].word.text == "-p"
            if at < len(part) and part[at].word.text.startswith("-"):
                raise Unreadable("options of `time`, which shells read in two ways")
    return part[at:]


def _looped(part: list[_Token]) -> str:
    """The name that `for NAME in WORDS` sets; it runs nothing itself, its substitutions are read
    with all others.
    """
    name = part[1].word.text if len(part) > 1 else ""
    named = re.fullmatch(r"[A-Za-z_]\w*", name) is not None and not any(token.op for token in part)
    if any("$(" in token.word.shape or "`" in token.word.shape for token in part):
        raise Unreadable("a command inside quotes, where it may be worked out")
    if not named or (len(part) > 2 and part[2].word.text != "in"):
        raise Unreadable("a `for` that is not `for NAME in WORDS`")
    return name


def _unbraced(word: Word) -> list[Word]:
    """`a{b,c}` as bash expands it; of a range like {1..9} only that it is there. Raises
    Unreadable.
    """
    if _EXPANDABLE.fullmatch(word.text) is None:
        raise Unreadable("braces in braces")
    found = [""]
    for part in filter(None, _PIECES.split(_RANGE.sub(MANY, word.text))):
        inner = part[1:-1].split(",") if _GROUP.fullmatch(part) else [part]
        found = [one + piece for one in found for piece in inner]
        if len(found) > EXPANDED:
            raise Unreadable("braces that make too many words")
    return [
        replace(word, text=one.replace(MANY, "1"), shape=_shaped(one), braced=True)
        for one in found
        if one
    ]


def _shaped(text: str) -> str:
    star = re.sub(r"[*?]", MANY, text)
    return star[: star.find("[")] + MANY if "[" in star and "]" in star else star
