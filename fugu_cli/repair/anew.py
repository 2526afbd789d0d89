"""A function without its body: what mending has not mended, a small model is asked to write anew.

Below aims.py, beside excerpts.py. A small model that is shown wrong code hands it back; shown the function's name and
what is said of it, it writes it as it has often seen it (figures: tests/benchmarks/results/embedded-pool.md). Only
where something says what the function is to do: from its tests alone it would do what they ask, and no more. Pure.
"""

from __future__ import annotations

import ast
import re
import textwrap
from dataclasses import dataclass
from itertools import takewhile

from fugu_cli.repair import functions
from fugu_cli.repair.excerpts import blamed, meant
from fugu_cli.repair.python_code import unwritten
from fugu_cli.repair.stubs import is_stub

MOST_LINES = 60
"""Of a body that is written anew: what a longer one does is in no docstring."""
TOLD = 2000
"""Characters shown of what a file says of a function outside of it."""

MARK = "TODO: implement"
_PLACEHOLDERS = {
    (".py", ".pyi"): f"raise NotImplementedError  # {MARK}",
    (".js", ".jsx", ".mjs", ".cjs", ".ts", ".tsx"): f'throw new Error("not implemented"); // {MARK}',
    (".rs",): f"todo!() // {MARK}",
    (".go",): f'panic("not implemented") // {MARK}',
    (".java", ".kt"): f'throw new UnsupportedOperationException("not implemented"); // {MARK}',
}
_WORDS = re.compile(r"(?!\s*(?:@|#\[)).*\w{2,}")
"""In the comment above a function: no attribute."""
_COMMENT = re.compile(r"\s*#.*\w{2,}")


@dataclass(frozen=True)
class Anew:
    """The `shown` lines, in which `placeholder` stands for the body of a function that is to be written. `told`: what
    the file says of it outside of them."""

    shown: str
    placeholder: str
    told: str = ""

    @property
    def alone(self) -> str:
        """What is shown where the rest of the file is not."""
        return "\n".join(filter(None, [self.told, self.shown]))


def without_body(path: str, content: str, function: str) -> Anew | None:
    """The `function`, a part of the file's `content`, without its body; None where nothing says what it is to do,
    where it is long, and where it has no body to leave out."""
    placeholder = next((line for suffixes, line in _PLACEHOLDERS.items() if path.endswith(suffixes)), f"// {MARK}")
    if MARK in content:
        return None
    cut = _python if path.endswith((".py", ".pyi")) else _braces
    lines = function.split("\n")
    found = cut(lines, content)
    if found is None or not 0 < found[1] - found[0] <= MOST_LINES:
        return None
    start, end, told = found
    indent = lines[start][: len(lines[start]) - len(lines[start].lstrip())]
    return Anew("\n".join([*lines[:start], f"{indent}{placeholder}", *lines[end:]]), placeholder, told)


def in_file(path: str, content: str, output: str, request: str) -> tuple[tuple[str, Anew], ...]:
    """Each function that the tests' `output` leads to, or else the request, and the whole file without its body; of one
    inside another, the outer one's."""
    found = blamed(path, content, output) or meant(path, content, request)
    outer = [one for one in found if not any(one in other and one != other for other in found)]
    cut = [(function, without_body(path, content, function)) for function in outer]
    return tuple((old, Anew(content.replace(old, new.shown), new.placeholder)) for old, new in cut if new is not None)


def _python(lines: list[str], content: str) -> tuple[int, int, str] | None:
    """First line of the body after its docstring, the line after its last, and what is said of the function elsewhere
    where it has no docstring."""
    try:
        tree, file = ast.parse(textwrap.dedent("\n".join(lines))), ast.parse(content)
    except (SyntaxError, ValueError, RecursionError):
        return None
    node = tree.body[0] if len(tree.body) == 1 else None
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return None
    first, documented = node.body[0], ast.get_docstring(node) is not None
    if unwritten(node):
        return None  # it is as it would be shown
    start = (first.end_lineno or first.lineno) if documented else first.lineno - 1
    told = "" if documented else _comment_above(lines, content) or _told_by(file, node.name, content)
    on_own_lines = start >= node.lineno and not (documented and len(node.body) == 1)
    return (start, len(lines), told) if (documented or told) and on_own_lines else None


def _told_by(file: ast.Module, name: str, content: str) -> str:
    """The texts of the file's own that are about this function, for they name it, or there is no other, as they stand
    there, and a line's end; "" without any."""
    texts = [
        (node.value.value, "\n".join(content.split("\n")[node.lineno - 1 : node.end_lineno]))
        for node in file.body
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ]
    others = [node for node in file.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)]
    sole = len(others) == 1
    found = [text for said, text in texts if sole or re.search(rf"\b{re.escape(name)}\b", said)]
    told = "\n\n".join(found)
    return f"{told if len(told) <= TOLD else told[:TOLD].rpartition(chr(10))[0]}\n\n" if found else ""


def _comment_above(lines: list[str], content: str) -> str:
    """The lines of the comment right above the function; "" where there is none."""
    before = content[: content.index("\n".join(lines))].rstrip("\n").split("\n")
    found = list(takewhile(lambda line: line.lstrip().startswith("#"), reversed(before)))[::-1]
    return "\n".join(found) if found and _COMMENT.match(found[-1]) else ""


def _braces(lines: list[str], _content: str) -> tuple[int, int, str] | None:
    """The same where a line that ends with a brace opens the body, and the last line closes it."""
    head = next((number for number, line in enumerate(lines) if functions.head(line)), len(lines))
    opened = next((number for number in range(head, len(lines)) if lines[number].rstrip().endswith("{")), None)
    if opened is None or not any(_WORDS.match(line) for line in lines[:head]):
        return None
    if is_stub("\n".join(lines[opened + 1 : -1])):
        return None
    return (opened + 1, len(lines) - 1, "")
