"""Examples in docstrings as the tests of a repository that has no others: `>>> f(1)` and what it answers.

Below tests.py. Reads files and runs nothing. It is careful, because whoever wrote the examples may never have run them:
a file counts only where every expression says what it answers, and where all it imports is in the standard library or
beside it.
"""

from __future__ import annotations

import ast
import doctest
import sys
from pathlib import Path

from fugu_cli.tools import tree

MOST = 20
"""Files; where more hold examples, one that fails has likely failed for years."""
LARGEST = 200_000
"""Bytes of a file that is read."""


def examples(root: Path) -> list[str]:
    """The Python files below `root` whose examples can be run as tests; [] where there are more than `MOST`."""
    files = [path for path, module in _modules(root) if _all_answered(module)]
    return files if len(files) <= MOST else []


def _modules(root: Path) -> list[tuple[str, ast.Module]]:
    """The files that can be loaded by themselves, with what is in them."""
    python = [path for path in tree.files(root, depth=4, limit=5000) if path.suffix == ".py"]
    known = sys.stdlib_module_names | {path.stem for path in python} | {path.parent.name for path in python}
    read = [(path.relative_to(root).as_posix(), _module(path)) for path in python]
    return [(path, module) for path, module in read if module is not None and _imports(module) <= known]


def _module(path: Path) -> ast.Module | None:
    """None where the file is large, holds no example, or is no Python."""
    try:
        if path.stat().st_size > LARGEST:
            return None
        text = path.read_text(encoding="utf-8")
        return ast.parse(text) if ">>>" in text else None
    except (OSError, ValueError, SyntaxError, RecursionError):
        return None


def _imports(module: ast.Module) -> set[str]:
    """First names of the modules it imports; "" for a relative import, which only works inside of its package."""
    found: set[str] = set()
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add("" if node.level else (node.module or "").split(".")[0])
    return found


def _all_answered(module: ast.Module) -> bool:
    """There are examples, and each expression among them but a call alone has its answer behind it."""
    parser = doctest.DocTestParser()
    found = False
    for node in ast.walk(module):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
            continue
        try:
            examples = parser.get_examples(ast.get_docstring(node) or "")
            unanswered = [example for example in examples if not example.want and _is_comparison(example.source)]
        except (ValueError, SyntaxError):
            return False
        found = found or any(example.want for example in examples)
        if unanswered:
            return False
    return found


def _is_comparison(source: str) -> bool:
    """`f(1) == 2` with nothing behind it: its author meant an assertion, and as an example it fails when it is true."""
    body = ast.parse(source).body
    return any(isinstance(node, ast.Expr) and isinstance(node.value, ast.Compare | ast.BoolOp) for node in body)
