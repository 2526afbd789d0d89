"""Some functions of a Python file become the file again: small models leave out what they do not change.

Stands beside written.py, under the text protocol. Pure. It adds and replaces definitions and never takes one away; what
it cannot parse, or what holds more than imports and definitions, it leaves alone.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def completed(shown: str, body: str) -> str:
    """`body` with what it leaves out of the file `shown`: its definitions, or some of them, put into the file; the
    docstring on top. As it is where nothing is left out."""
    old, new = _parsed(shown), _parsed(body)
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
