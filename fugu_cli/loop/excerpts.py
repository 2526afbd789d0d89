"""The functions of a long file that a small model is to mend: asked for the whole file, it writes for minutes.

Below context.py, which shows them in the file's place and has the answer put back there. What a failing test calls, and
where it broke, says which they are; several are shown together first (Python), then each has its draw. Pure.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from fugu_cli.agents.text import LONG

MOST = 6000
"""Characters of a function: a longer one is asked for by edits, like all of its file."""

_CALLED = re.compile(r"\b(\w{2,})\(")
_KEYWORDS = {"if", "for", "while", "switch", "catch", "match", "return", "function"}
_HEAD = re.compile(
    r"\s*(?:(?:export|default|pub(?:\([^)]*\))?|async|static|public|private|protected|unsafe|const|let|var)\s+)*"
    r"(?:(?:def|fn|func|function\*?)\s+(?:\([^)]*\)\s*)?(\w+)"
    r"|(\w+)\s*=\s*(?:async\s*)?(?:function\b|\([^)]*\)\s*=>|\w+\s*=>)"
    r"|(\w+)\s*\([^;]*\)[^;=]*\{\s*$)"
)
_BEFORE = re.compile(r"\s*(?:#|//|/\*|\*|@)")
_CLOSING = re.compile(r"\s*[)\]}]")


def in_turn(path: str, content: str, output: str) -> list[str]:
    """What is to be mended, draw by draw: lines without the last one's end. [] where the file is short, or nothing in
    the tests' output leads to a function."""
    found = list(blamed(path, content, output)) if len(content) > LONG else []
    together = "\n\n\n".join(found)
    if (
        len(found) > 1
        and len(together) <= MOST // 2
        and path.endswith(".py")
        and not any(one[0].isspace() for one in found)
    ):
        return [together, *found]
    return found


def blamed(path: str, content: str, output: str) -> tuple[str, ...]:
    """The functions that the tests' output leads to, each once: where it broke, the last place first; then what is
    called, in the order of the output."""
    spans = _spans(path, content)
    found: list[_Span] = []
    places = rf'(?:^|[\s"(/]){re.escape(path)}(?::|", line )(\d+)'
    for place in reversed([int(number) for number in re.findall(places, output, re.MULTILINE)]):
        found += [span for span in spans if span[1] < place <= span[2]][-1:]
    for name in dict.fromkeys(_CALLED.findall(output)):
        found += [span for span in spans if span[0] == name]
    return _texts(content, found)


def meant(path: str, content: str, request: str) -> tuple[str, ...]:
    """The functions that the request names, else the one function there is."""
    spans = _spans(path, content)
    words = set(re.findall(r"\w+", request))
    return _texts(content, [span for span in spans if span[0] in words] or (spans if len(spans) == 1 else []))


_Span = tuple[str, int, int]
"""A function's name, its first line from 0 and the line after its last."""


def _spans(path: str, content: str) -> list[_Span]:
    return _python(content) if path.endswith((".py", ".pyi")) else _indented(content.split("\n"))


def _texts(content: str, spans: Sequence[_Span]) -> tuple[str, ...]:
    """Those that are not too long and can be found again."""
    lines = content.split("\n")
    texts = ["\n".join(lines[start:end]) for _, start, end in spans]
    return tuple(dict.fromkeys(text for text in texts if len(text) <= MOST and content.count(text) == 1))


def _python(content: str) -> list[_Span]:
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


def _indented(lines: Sequence[str]) -> list[_Span]:
    """The same in a language of braces, as far as its lines are indented: to the bracket below the function's head."""
    found: list[_Span] = []
    for number, line in enumerate(lines):
        head = _HEAD.match(line)
        name = next(filter(None, head.groups()), "") if head else ""
        if not name or name in _KEYWORDS:
            continue
        depth, end = _indent(line), number + 1
        while end < len(lines) and (not lines[end].strip() or _indent(lines[end]) > depth):
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
