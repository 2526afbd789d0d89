"""What an answer only stands in for: `# ... existing code ...`, `// rest of the file unchanged`, a body of three dots.

Below merging.py and merging_braces.py. Nobody means such a line to be written: what it stands for is in the file. Nor
is a docstring meant to go that an answer leaves out. Pure.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from itertools import takewhile

from fugu_cli.repair.python_code import Function, paired, parsed, span

_COMMENT = re.compile(r"\s*(?:#|//+|--|/\*+|\{/\*|<!--|\*)\s*(.*?)\s*(?:\*/\}?|-->)?\s*")
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


def stands_in(line: str, *, sure: bool = False) -> bool:
    """The line is a comment, or dots alone, that stands for code which is not there. `sure`: it can mean nothing else
    among the statements of a function."""
    if _ONLY_DOTS.fullmatch(line):
        return True
    said = _COMMENT.fullmatch(line)
    if said is None or not said[1]:
        return False
    dots = _DOTS.search(said[1]) is not None and (_ONLY_DOTS.fullmatch(said[1]) or _MEANT.search(said[1]))
    return bool(dots or _REST.fullmatch(said[1]) or (not sure and _UNCHANGED.fullmatch(said[1])))


def filled(shown: str, body: str) -> tuple[str, bool]:
    """The Python `body` with the functions of `shown` that it only stands in for, and with their docstrings where it
    has none; and whether anything else in it stood for what is left out. Such lines are gone."""
    old, new = parsed(shown), parsed(body)
    if old is None or new is None:
        return body, False
    lines, known = body.split("\n"), _known(shown)
    marks = {number for number, line in enumerate(lines) if line.strip() not in known and stands_in(line)}
    functions = [node for node in ast.walk(new) if isinstance(node, Function)]
    inside = {number for node in functions for number in range(*_reach(node, lines))}
    alone = {one.body[0].lineno - 1 for one in ast.walk(new) if isinstance(one, ast.ClassDef) and len(one.body) == 1}
    gone = set(marks - inside - alone)
    instead: dict[int, list[str]] = {}
    for was, now in _functions(old.body, new.body):
        start, end = _reach(now, lines)
        left = any(number in marks and stands_in(lines[number], sure=True) for number in range(start, end))
        empty = _says_nothing(now) and (_is_dots(now.body[-1]) or bool(marks & set(range(start, end))))
        if (left or empty) and not _says_nothing(was):
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
    if parsed(text) is not None:
        return text, bool(marks - inside)
    return body, False


def readable(shown: str, body: str) -> str:
    """The Python `body` with dots for the comments that stand in it for what is left out, where it cannot be read
    without: of a class or function nothing else may be there. As it is where that does not help."""
    if parsed(body) is not None:
        return body
    known = _known(shown)
    lines = [
        line[: len(line) - len(line.lstrip())] + "..." if line.strip() not in known and stands_in(line) else line
        for line in body.split("\n")
    ]
    text = "\n".join(lines)
    return body if parsed(text) is None else text


def _known(shown: str) -> set[str]:
    return {line.strip() for line in shown.split("\n")}


def _functions(old: Sequence[ast.stmt], new: Sequence[ast.stmt]) -> list[tuple[Function, Function]]:
    """Each function of `old`, methods among them, with the one of `new` that is to take its place."""
    found: list[tuple[Function, Function]] = []
    for was, now in paired(old, new)[0]:
        if isinstance(was, ast.ClassDef) and isinstance(now, ast.ClassDef):
            found += _functions(was.body, now.body)
        elif isinstance(was, Function) and isinstance(now, Function):
            found.append((was, now))
    return found


def _reach(node: ast.stmt, lines: Sequence[str]) -> tuple[int, int]:
    """Its lines with the comments at its end, which are no statements."""
    start, end = span(node)
    indent = node.col_offset
    more = takewhile(lambda line: not line.strip() or len(line) - len(line.lstrip()) > indent, lines[end:])
    below = [number for number, line in enumerate(more, start=end + 1) if line.strip()]
    return start, max(below, default=end)


def _ends_head(lines: Sequence[str], number: int, node: Function) -> bool:
    """The line `number` is the first below the head of the function, comments among its body."""
    above = lines[number - 1].split("#")[0].rstrip()
    return above.endswith(":") or number == node.lineno


def _says_nothing(node: Function) -> bool:
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
    start, end = span(node)
    return text.split("\n")[start:end]


def _moved(lines: Sequence[str], was: int, now: int) -> list[str]:
    """Lines that were indented by `was` characters, by `now` spaces; one that is indented less stays as it is."""
    if was == now:
        return list(lines)
    return [" " * now + line[was:] if line.strip() and not line[:was].strip() else line for line in lines]
