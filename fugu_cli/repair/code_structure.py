"""Where functions begin and end, which are still to be written, and which lines only stand in for code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import TypeGuard

Span = tuple[str, int, int]
"""A function's name, its first line from 0 and the line after its last."""

_KEYWORDS = {"if", "for", "while", "switch", "catch", "match", "return", "function"}
_HEAD = re.compile(
    r"\s*(?:(?:export|default|pub(?:\([^)]*\))?|async|static|public|private|protected|unsafe|const|let|var)\s+)*"
    r"(?:(?:def|fn|func|function\*?)\s+(?:\([^)]*\)\s*)?(\w+)"
    r"|(\w+)\s*=\s*(?:async\s*)?(?:function\b|\([^)]*\)\s*=>|\w+\s*=>)"
    r"|(\w+)\s*\([^;]*\)[^;=]*\{\s*$)"
)
_TYPED = re.compile(
    r"\s*(?!(?:return|await|new|throw|else|case|yield|do|go|defer|if|for|while|match|let|const|var|switch|assert|impl|struct"
    r"|elif|catch|with)\b)(?!.*\bclass\b)(?:[\w:<>,\[\]*&?.@]+\s+)+[*&]*(\w+)\s*\([^;\"'`()]*\)[^;=()]*\{\s*"
)
"""A head of C or Java, where types stand before the name."""
_LONGEST = 200
_BEFORE = re.compile(r"\s*(?:#|//|/\*|\*|@)")
_HEAD_ENDS = re.compile(r"\s*\).*\{\s*")
"""The last line of a head that takes several: the body begins behind it."""
_CLOSING = re.compile(r"\s*[)\]}]")


def function_spans(path: str, content: str) -> list[Span]:
    """Every function of the file, in order."""
    return _python(content) if path.endswith((".py", ".pyi")) else brace_functions(content.split("\n"))


def function_name_on(line: str) -> str:
    """The name of the function that begins on this line of a language of braces; "" where none does."""
    found = _HEAD.match(line) or (_TYPED.fullmatch(line) if len(line) <= _LONGEST else None)
    name = next(filter(None, found.groups()), "") if found else ""
    return "" if name in _KEYWORDS else name


def _python(content: str) -> list[Span]:
    """Every function with its decorators; [] where the file cannot be parsed."""
    try:
        nodes = list(ast.walk(ast.parse(content)))
    except (SyntaxError, ValueError, RecursionError):
        return []
    found = [
        (
            node.name,
            min([node.lineno, *(one.lineno for one in node.decorator_list)]) - 1,
            node.end_lineno or node.lineno,
        )
        for node in nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return sorted(found, key=lambda span: span[1])


def brace_functions(lines: Sequence[str]) -> list[Span]:
    """Every function with the comment above it, as far as lines are indented: to the bracket below its head."""
    found: list[Span] = []
    for number, line in enumerate(lines):
        name = function_name_on(line)
        if not name:
            continue
        depth, end = _indent(line), number + 1
        while end < len(lines) and (
            not lines[end].strip() or _indent(lines[end]) > depth or _HEAD_ENDS.fullmatch(lines[end])
        ):
            end += 1
        if end < len(lines) and _CLOSING.match(lines[end]) and _indent(lines[end]) == depth:
            found.append((name, _above(lines, number), end + 1))
    return found


def _above(lines: Sequence[str], number: int) -> int:
    """The first line of the comment that ends above the line `number`; that line without one."""
    if number and lines[number - 1].rstrip().endswith("*/"):
        opened = next((n for n in range(number - 1, -1, -1) if "/*" in lines[n]), number)
        return opened if not lines[opened].partition("/*")[0].strip() else number
    while number and _BEFORE.match(lines[number - 1]):
        number -= 1
    return number


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
Import = ast.Import | ast.ImportFrom


def parse_python(text: str) -> ast.Module | None:
    """None where it cannot be read."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def line_span(node: ast.stmt) -> tuple[int, int]:
    """First line from 0, decorators among them, and the line after the last."""
    marks = node.decorator_list if isinstance(node, Definition) else []
    return min([node.lineno, *(mark.lineno for mark in marks)]) - 1, node.end_lineno or node.lineno


def is_main(node: ast.stmt) -> TypeGuard[ast.If]:
    """The block that runs where the file is run as a program."""
    return isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)


def pair_definitions(
    old: Sequence[ast.stmt], new: Sequence[ast.stmt]
) -> tuple[list[tuple[Definition, Definition]], list[Definition]]:
    """Each definition of `old` with the one of `new` that is to take its place, and those of `new` that are not there
    yet. Of several of one name (a property's getter and setter, overloads) those with the same decorators belong
    together, and else, where there are as many, those at the same place."""
    pairs: list[tuple[Definition, Definition]] = []
    added: list[Definition] = []
    names = dict.fromkeys(node.name for node in (*old, *new) if isinstance(node, Definition))
    for name in names:
        olds = [node for node in old if isinstance(node, Definition) and node.name == name]
        news = [node for node in new if isinstance(node, Definition) and node.name == name]
        if (len(olds) == 1 and len(news) == 1) or (len(olds) == len(news) and _marks(olds) == _marks(news)):
            pairs += zip(olds, news, strict=True)
            continue
        for node in news:
            mark = _marks([node])
            same = [one for one in olds if _marks([one]) == mark]
            if len(same) == 1:
                pairs.append((same[0], node))
            elif not olds or not same:
                added.append(node)
    return pairs, added


def _marks(nodes: Sequence[Definition]) -> list[list[str]]:
    return [[ast.unparse(mark) for mark in node.decorator_list] for node in nodes]


def has_no_body(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """The function has no body yet, or one that only says so."""
    body = node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body
    return all(_is_placeholder(statement) for statement in body)


def _is_placeholder(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Raise):
        raised = statement.exc.func if isinstance(statement.exc, ast.Call) else statement.exc
        return isinstance(raised, ast.Name) and raised.id == "NotImplementedError"
    empty = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return isinstance(statement, ast.Pass) or empty


LONGEST = 4000
"""Characters: in a longer file a function that is still to be written is one of many."""

_COMMENT_LINE = re.compile(r"\s*(?:#|//|/\*|\*|--|<!--)")
_DEF = re.compile(r"\s*(?:async )?def \w")
_QUOTE = re.compile(r"\s*[rR]?(\"{3}|'{3}|\"|')")
_NOTHING = re.compile(r"\s*(?:pass|\.\.\.|raise NotImplementedError\b.*)\s*(?:#.*)?")
_MARK = re.compile(
    r"\b(?:todo|unimplemented)!\s*[(\[{]"
    r"|\b(?:throw new \w+|panic|fail|error|raise)\b.{0,80}?(?:\bimplement|not (?:yet )?implemented)"
    r"|\bUnsupportedOperationException\b|\bTODO\(\s*\)|\bTODO:? implement",
    re.IGNORECASE,
)


def is_stub(text: str) -> bool:
    """The code `text` is short, and holds nothing or a function that says it is not written."""
    if len(text) > LONGEST:
        return False
    lines = text.splitlines()
    code = any(line.strip() and not _COMMENT_LINE.match(line) for line in lines)
    return not code or any(_MARK.search(line) for line in lines) or _empty_function(lines)


def _empty_function(lines: Sequence[str]) -> bool:
    """A Python function whose body is a docstring at most, and a word that it is nothing yet."""
    return next(_empty_bodies(lines), None) is not None


def _empty_bodies(lines: Sequence[str]) -> Iterator[int]:
    """The lines that say so, each the head itself where the word stands behind it."""
    for number, line in enumerate(lines):
        if _DEF.match(line) and line.rstrip().endswith((":", "...", "pass")):
            if not line.rstrip().endswith(":"):
                yield number
                continue
            body = _after_docstring(lines, _next_code(lines, number + 1))
            if body < len(lines) and _NOTHING.fullmatch(lines[body]):
                yield body


def body_to_write(lines: Sequence[str]) -> int | None:
    """The line that stands for the body of the only Python function that is nothing yet; None where there are several,
    or none, or it stands on the head's line."""
    found = list(_empty_bodies(lines))
    return found[0] if len(found) == 1 and _NOTHING.fullmatch(lines[found[0]]) else None


def _next_code(lines: Sequence[str], start: int) -> int:
    """The first line from `start` on that is no comment and not empty."""
    number = start
    while number < len(lines) and (not lines[number].strip() or lines[number].lstrip().startswith("#")):
        number += 1
    return number


def _after_docstring(lines: Sequence[str], start: int) -> int:
    """The first line of code of a body that begins at `start`."""
    opening = _QUOTE.match(lines[start]) if start < len(lines) else None
    if opening is None:
        return start
    mark = opening.group(1)
    if mark in lines[start][opening.end() :]:
        return _next_code(lines, start + 1)
    end = next((n for n in range(start + 1, len(lines)) if mark in lines[n]), len(lines))
    return _next_code(lines, end + 1)


_COMMENT_TEXT = re.compile(r"\s*(?:#|//+|--|/\*+|\{/\*|<!--|\*)\s*(.*?)\s*(?:\*/\}?|-->)?\s*")
_DOTS = re.compile(r"\.{3,}|…")
_ONLY_DOTS = re.compile(r"\s*(?:\.{3,}|…)\s*")
_CODE = r"(?:codes?|files?|class(?:es)?|functions?|methods?|imports?|tests?|fields?|members?|implementations?|logic)"
_MEANT = re.compile(rf"\b(?:rest|remaining|other|existing|previous|original|unchanged|same|omitted|{_CODE})\b", re.I)
_REST = re.compile(
    rf"(?:the\s+)?(?:rest|remainder)\s+of\s+(?:the|your|this)\s+{_CODE}\b.*"
    rf"|(?:all\s+)?(?:the\s+)?(?:other|remaining|existing)\s+{_CODE}(?:\s+(?:go(?:es)?\s+)?here)?[.:]?"
    rf"|(?:your\s+|the\s+)?{_CODE}\s+(?:goes\s+)?here[.:]?",
    re.IGNORECASE,
)
_UNCHANGED = re.compile(r"(?:.*\b(?:remains?|stays?|is|are)\s+)?(?:unchanged|the same as before)[.:]?", re.IGNORECASE)


def is_elision(line: str, *, sure: bool = False) -> bool:
    """The line is a comment, or dots alone, that stands for code which is not there. `sure`: it can mean nothing else
    among the statements of a function."""
    if _ONLY_DOTS.fullmatch(line):
        return True
    said = _COMMENT_TEXT.fullmatch(line)
    if said is None or not said[1]:
        return False
    dots = _DOTS.search(said[1]) is not None and (_ONLY_DOTS.fullmatch(said[1]) or _MEANT.search(said[1]))
    return bool(dots or _REST.fullmatch(said[1]) or (not sure and _UNCHANGED.fullmatch(said[1])))


def fill_elisions(shown: str, body: str) -> tuple[str, bool]:
    """The Python `body` with the functions of `shown` that it only stands in for, and with their docstrings where it
    has none; and whether anything else in it stood for what is left out. Such lines are gone."""
    old, new = parse_python(shown), parse_python(body)
    if old is None or new is None:
        return body, False
    lines, known = body.split("\n"), _known(shown)
    marks = {number for number, line in enumerate(lines) if line.strip() not in known and is_elision(line)}
    functions = [node for node in ast.walk(new) if isinstance(node, Function)]
    inside = {number for node in functions for number in range(*_reach(node, lines))}
    alone = {one.body[0].lineno - 1 for one in ast.walk(new) if isinstance(one, ast.ClassDef) and len(one.body) == 1}
    gone = set(marks - inside - alone)
    instead: dict[int, list[str]] = {}
    for was, now in _functions(old.body, new.body):
        start, end = _reach(now, lines)
        left = any(number in marks and is_elision(lines[number], sure=True) for number in range(start, end))
        empty = _has_empty_body(now) and (_is_dots(now.body[-1]) or bool(marks & set(range(start, end))))
        if (left or empty) and not _has_empty_body(was):
            gone |= set(range(start, end))
            instead[start] = _moved(_lines(was, shown), was.col_offset, now.col_offset)
        elif (told := _docstring(was, shown)) and ast.get_docstring(now) is None and now.body[0].lineno > now.lineno:
            place = next(n for n in range(now.body[0].lineno - 1, 0, -1) if _ends_head(lines, n, now))
            instead[place] = _moved(told, was.body[0].col_offset, now.body[0].col_offset)
    kept = [
        line
        for number, own in enumerate(lines)
        for line in (*instead.get(number, ()), *([] if number in gone else [own]))
    ]
    text = "\n".join(kept)
    if parse_python(text) is not None:
        return text, bool(marks - inside)
    return body, False


def with_parsable_elisions(shown: str, body: str) -> str:
    """The Python `body` with dots for the comments that stand in it for what is left out, where it cannot be read
    without: of a class or function nothing else may be there. As it is where that does not help."""
    if parse_python(body) is not None:
        return body
    known = _known(shown)
    lines = [
        line[: len(line) - len(line.lstrip())] + "..." if line.strip() not in known and is_elision(line) else line
        for line in body.split("\n")
    ]
    text = "\n".join(lines)
    return body if parse_python(text) is None else text


def _known(shown: str) -> set[str]:
    return {line.strip() for line in shown.split("\n")}


def _functions(old: Sequence[ast.stmt], new: Sequence[ast.stmt]) -> list[tuple[Function, Function]]:
    """Each function of `old`, methods among them, with the one of `new` that is to take its place."""
    found: list[tuple[Function, Function]] = []
    for was, now in pair_definitions(old, new)[0]:
        if isinstance(was, ast.ClassDef) and isinstance(now, ast.ClassDef):
            found += _functions(was.body, now.body)
        elif isinstance(was, Function) and isinstance(now, Function):
            found.append((was, now))
    return found


def _reach(node: ast.stmt, lines: Sequence[str]) -> tuple[int, int]:
    """Its lines with the comments at its end, which are no statements."""
    start, end = line_span(node)
    indent = node.col_offset
    more = takewhile(lambda line: not line.strip() or len(line) - len(line.lstrip()) > indent, lines[end:])
    below = [number for number, line in enumerate(more, start=end + 1) if line.strip()]
    return start, max(below, default=end)


def _ends_head(lines: Sequence[str], number: int, node: Function) -> bool:
    """The line `number` is the first below the head of the function, comments among its body."""
    above = lines[number - 1].split("#")[0].rstrip()
    return above.endswith(":") or number == node.lineno


def _has_empty_body(node: Function) -> bool:
    """Its body is `pass`, three dots or a text."""
    return all(
        isinstance(one, ast.Pass) or (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))
        for one in node.body
    )


def _is_dots(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and node.value.value is ...


def _docstring(node: Function, text: str) -> list[str]:
    """The lines of its docstring, where that stands on lines of its own."""
    told = ast.get_docstring(node) is not None and node.body[0].lineno > node.lineno
    return _lines(node.body[0], text) if told else []


def _lines(node: ast.stmt, text: str) -> list[str]:
    start, end = line_span(node)
    return text.split("\n")[start:end]


def _moved(lines: Sequence[str], was: int, now: int) -> list[str]:
    """Lines that were indented by `was` characters, by `now` spaces; one that is indented less stays as it is."""
    if was == now:
        return list(lines)
    return [" " * now + line[was:] if line.strip() and not line[:was].strip() else line for line in lines]
