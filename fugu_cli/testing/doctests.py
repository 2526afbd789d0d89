"""Finds Python files whose docstring examples can be run as tests.

Every expression must have its answer, and every import must be in the standard library or beside
the file. Reads files and runs nothing.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

from fugu_cli.snapshots import repository_files

MOST_DOCTEST_FILES = 20
"""Files; where more hold examples, one that fails has likely failed for years."""
LARGEST_DOCTEST_FILE = 200_000
"""Bytes of a file that is read."""


def doctest_files(root: Path) -> list[str]:
    """Return the Python files below `root` whose examples can be run as tests; [] if there are more
    than `MOST_DOCTEST_FILES`.
    """
    files = [path for path, module in _modules(root) if _all_answered(module)]
    return files if len(files) <= MOST_DOCTEST_FILES else []


def _modules(root: Path) -> list[tuple[str, ast.Module]]:
    """Return the files that can be loaded on their own, parsed."""
    python = [
        path
        for path in repository_files.walk_files(root, depth=4, limit=5000)
        if path.suffix == ".py"
    ]
    importable = (
        sys.stdlib_module_names
        | {path.stem for path in python}
        | {path.parent.name for path in python}
    )
    read = [(path.relative_to(root).as_posix(), _module(path)) for path in python]
    return [
        (path, module)
        for path, module in read
        if module is not None and _imports(module) <= importable
    ]


def _module(path: Path) -> ast.Module | None:
    """Parse a file, None if it is large, holds no example, or is no Python."""
    try:
        if path.stat().st_size > LARGEST_DOCTEST_FILE:
            return None
        text = path.read_text(encoding="utf-8")
        return ast.parse(text) if ">>>" in text else None
    except (OSError, ValueError, SyntaxError, RecursionError):
        return None


def _imports(module: ast.Module) -> set[str]:
    """Return the top-level names of imported modules; "" for a relative import, which only works
    inside a package.
    """
    names: set[str] = set()
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add("" if node.level else (node.module or "").split(".")[0])
    return names


def _all_answered(module: ast.Module) -> bool:
    """Return whether there are examples, and each expression except a single call has its answer."""
    import doctest  # takes long

    parser = doctest.DocTestParser()
    has_answers = False
    for node in ast.walk(module):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
            continue
        try:
            examples = parser.get_examples(ast.get_docstring(node) or "")
            unanswered = [
                example
                for example in examples
                if not example.want and _is_comparison(example.source)
            ]
        except (ValueError, SyntaxError):
            return False
        has_answers = has_answers or any(example.want for example in examples)
        if unanswered:
            return False
    return has_answers


def _is_comparison(source: str) -> bool:
    """Return whether it is a comparison like `f(1) == 2` without an answer: meant as an assertion,
    it fails as an example when it is true.
    """
    body = ast.parse(source).body
    return any(
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Compare | ast.BoolOp)
        for node in body
    )
