"""Where the functions of a file begin and end: Python by its own parser, languages of braces by how they are indented.

A rule of thumb for what small models are shown and what they leave out; below agents and the brief. Pure.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

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


def spans(path: str, content: str) -> list[Span]:
    """Every function of the file, in order."""
    return _python(content) if path.endswith((".py", ".pyi")) else in_braces(content.split("\n"))


def head(line: str) -> str:
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


def in_braces(lines: Sequence[str]) -> list[Span]:
    """Every function with the comment above it, as far as lines are indented: to the bracket below its head."""
    found: list[Span] = []
    for number, line in enumerate(lines):
        name = head(line)
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
