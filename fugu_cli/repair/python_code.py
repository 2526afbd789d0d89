"""Python as a small model wrote it: parsed where that can be done, and the lines on which a statement stands.

Below merging.py, trying_out.py and parts.py. Pure.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TypeGuard

Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
Import = ast.Import | ast.ImportFrom


def parsed(text: str) -> ast.Module | None:
    """None where it cannot be read."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def span(node: ast.stmt) -> tuple[int, int]:
    """First line from 0, decorators among them, and the line after the last."""
    marks = node.decorator_list if isinstance(node, Definition) else []
    return min([node.lineno, *(mark.lineno for mark in marks)]) - 1, node.end_lineno or node.lineno


def is_main(node: ast.stmt) -> TypeGuard[ast.If]:
    """The block that runs where the file is run as a program."""
    return isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)


def paired(
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


def unwritten(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """The function has no body yet, or one that only says so."""
    body = node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body
    return all(_says_nothing(statement) for statement in body)


def _says_nothing(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Raise):
        raised = statement.exc.func if isinstance(statement.exc, ast.Call) else statement.exc
        return isinstance(raised, ast.Name) and raised.id == "NotImplementedError"
    empty = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return isinstance(statement, ast.Pass) or empty
