"""Some functions of a file become the file again: small models leave out what they do not change.

Stands beside written.py, under the text protocol. Pure. It adds and replaces definitions and never takes one away; what
it cannot read, or what holds more than imports and definitions, it leaves alone. Python is parsed; in languages of
braces only functions that are not indented are told apart.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from fugu_cli import functions

_IMPORT = re.compile(r"(?:import|use|#include|package|using)\b|(?:const|let|var)\b.*\brequire\(")
_AROUND = re.compile(rf"\s*(?://|/\*|\*)|{_IMPORT.pattern}|module\.exports\b|export (?:default|\{{)|['\"]use strict")
"""What may stand around functions without being new: comments, imports, exports."""
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def completed(shown: str, body: str) -> str:
    """`body` with what it leaves out of the file `shown`: its definitions, or some of them, put into the file; the
    docstring on top. As it is where nothing is left out."""
    old, new = _parsed(shown), _parsed(body)
    if old is None and new is None:
        return _completed_in_braces(shown, body)
    if old is None or new is None or not _names(new.body):
        return body
    if not _names(old.body) - _names(new.body):
        bare = ast.get_docstring(old) is not None and ast.get_docstring(new) is None
        head = shown.split("\n")[: _span(old.body[0])[1]] if bare else []
        return "\n".join([*head, "", body.lstrip("\n")]) if head else body
    if not _plain(new):
        return body
    lines = shown.split("\n")
    for node in reversed(old.body):  # from the end, so that the lines before stay where they are
        _replace(lines, node, new, body)
    added = [node for node in new.body if isinstance(node, Definition) and node.name not in _names(old.body)]
    for node in added:
        while lines and not lines[-1].strip():
            lines.pop()
        lines += ["", "", *_lines(node, body), ""]
    return "\n".join(_with_imports(lines, old, new, body))


def _completed_in_braces(shown: str, body: str) -> str:
    lines, written = shown.split("\n"), body.split("\n")
    old, new = _outermost(lines), _outermost(written)
    rest = set(range(len(written))) - {number for start, end in new.values() for number in range(start, end)}
    others = [written[number] for number in sorted(rest) if written[number].strip()]
    both = old.keys() & new.keys()
    bare = [name for name in both if functions.head(written[new[name][0]]) and not functions.head(lines[old[name][0]])]
    if not (old.keys() - new.keys() or bare) or not both or not all(map(_AROUND.match, others)):
        return body
    added = [name for name in new if name not in old]
    last = max(old[name][1] for name in both)
    lines[last:last] = [line for name in added for line in ("", *written[slice(*new[name])])]
    for name in sorted(both, key=lambda name: -old[name][0]):
        (start, end), (first, after) = old[name], new[name]
        if name in bare:  # without a comment of its own: the one there is stays
            start = next(number for number in range(start, end) if functions.head(lines[number]))
        lines[start:end] = written[first:after]
    imports = [line for line in others if _IMPORT.match(line) and line not in lines]
    place = max((number + 1 for number, line in enumerate(lines) if _IMPORT.match(line)), default=0)
    return "\n".join([*lines[:place], *imports, *lines[place:]])


def _outermost(lines: Sequence[str]) -> dict[str, tuple[int, int]]:
    """First line and the line after the last of each function that is not indented; {} where a name is used twice."""
    found = [span for span in functions.in_braces(lines) if not lines[span[2] - 1][:1].isspace()]
    return {name: (start, end) for name, start, end in found} if len({one[0] for one in found}) == len(found) else {}


def mended(part: str, body: str) -> list[tuple[str, str]]:
    """Old and new text of each definition in `part` that `body` writes anew, its imports above the first; [] where none
    is found. What else `body` holds is left: a copy of what stands elsewhere in the file, or a test."""
    old, new = _parsed(part), _parsed(body)
    if old is None or new is None:
        return []
    imports = [
        line for node in new.body if isinstance(node, ast.Import | ast.ImportFrom) for line in _lines(node, body)
    ]
    found: list[tuple[str, str]] = []
    for node in old.body:
        same = [one for one in new.body if isinstance(node, Definition) and isinstance(one, Definition)]
        same = [one for one in same if one.name == getattr(node, "name", "")]
        before, after = _lines(node, part), _lines(same[-1], body) if same else []
        if after and before != after:
            above = [*imports, "", ""] if imports and not found else []
            found.append(("\n".join(before), "\n".join([*above, *after])))
    return found


def _parsed(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None


def _names(nodes: Sequence[ast.stmt], before: str = "") -> set[str]:
    """The definitions, those in classes as `Class.name`."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, Definition):
            found.add(before + node.name)
            found |= _names(node.body, f"{node.name}.") if isinstance(node, ast.ClassDef) and not before else set()
    return found


def _plain(module: ast.Module) -> bool:
    """It holds imports, definitions and a docstring: what else there is would have a place of its own."""
    kinds = Definition | ast.Import | ast.ImportFrom
    return all(isinstance(node, kinds) or _is_text(node) for node in module.body)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _span(node: ast.stmt) -> tuple[int, int]:
    """First line from 0, decorators among them, and the line after the last."""
    marks = node.decorator_list if isinstance(node, Definition) else []
    return min([node.lineno, *(mark.lineno for mark in marks)]) - 1, node.end_lineno or node.lineno


def _lines(node: ast.stmt, text: str) -> list[str]:
    start, end = _span(node)
    return text.split("\n")[start:end]


def _replace(lines: list[str], node: ast.stmt, new: ast.Module | ast.ClassDef, body: str) -> None:
    """Put the definition of this name that `new` holds, if it does, in the place of `node`; of a class its members."""
    if not isinstance(node, Definition):
        return
    found = [other for other in new.body if isinstance(other, Definition) and other.name == node.name]
    if not found:
        return
    other, (start, end) = found[-1], _span(node)
    if isinstance(node, ast.ClassDef) and isinstance(other, ast.ClassDef) and _names(node.body) - _names(other.body):
        added = [one for one in other.body if isinstance(one, Definition) and one.name not in _names(node.body)]
        lines[end:end] = [line for one in added for line in ("", *_lines(one, body))]
        for member in reversed(node.body):
            _replace(lines, member, other, body)
    else:
        lines[start:end] = _lines(other, body)


def _with_imports(lines: list[str], old: ast.Module, new: ast.Module, body: str) -> list[str]:
    """With what `new` imports and `old` does not, below the docstring and the imports there are."""
    known = {ast.unparse(node) for node in old.body}
    kinds = ast.Import | ast.ImportFrom
    wanted = [node for node in new.body if isinstance(node, kinds) and ast.unparse(node) not in known]
    top = [node for number, node in enumerate(old.body) if isinstance(node, kinds) or (number == 0 and _is_text(node))]
    place = max((_span(node)[1] for node in top), default=0)
    texts = [line for node in wanted for line in _lines(node, body)]
    gap = [""] if texts and top and not any(isinstance(node, kinds) for node in top) else []
    return [*lines[:place], *gap, *texts, *lines[place:]]
