"""Python as a small model wrote it: parsed where that can be done, and the lines on which a statement stands.

Below merging.py, trying_out.py and parts.py. Pure.
"""

from __future__ import annotations

import ast

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
