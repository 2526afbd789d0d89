"""Finds Python files whose docstring examples can be run as tests.

Comparisons without an expected answer rule a file out, and so does an import from outside the
standard library and the repository. Reads files and runs nothing.
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
    python_files = [
        path
        for path in repository_files.walk_files(root, depth=4, limit=5000)
        if path.suffix == ".py"
    ]
    importable = set(sys.stdlib_module_names)
    for path in python_files:
        importable |= {path.stem, path.parent.name}
    files: list[str] = []
    for path in python_files:
        module = _parse_if_it_has_examples(path)
        if module is None or not _imported_names(module) <= importable:
            continue
        if _has_answered_examples(module):
            files.append(path.relative_to(root).as_posix())
    return files if len(files) <= MOST_DOCTEST_FILES else []


def _parse_if_it_has_examples(path: Path) -> ast.Module | None:
    """Return the parsed file, None if it is large, holds no example, or is no Python."""
    try:
        if path.stat().st_size > LARGEST_DOCTEST_FILE:
            return None
        text = path.read_text(encoding="utf-8")
        return ast.parse(text) if ">>>" in text else None
    except (OSError, ValueError, SyntaxError, RecursionError):
        return None


def _imported_names(module: ast.Module) -> set[str]:
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


def _has_answered_examples(module: ast.Module) -> bool:
    """Return whether there are examples with an expected answer, and no comparison lacks one."""
    import doctest  # takes long

    parser = doctest.DocTestParser()
    has_answers = False
    for node in ast.walk(module):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
            continue
        try:
            examples = parser.get_examples(ast.get_docstring(node) or "")
            for example in examples:
                if example.want:
                    has_answers = True
                elif _is_comparison(example.source):
                    return False
        except (ValueError, SyntaxError):
            return False
    return has_answers


def _is_comparison(source: str) -> bool:
    """Return whether the source holds a comparison like `f(1) == 2`. Without an expected answer it
    is meant as an assertion, but as an example it fails when it is true: Python prints `True`.
    """
    body = ast.parse(source).body
    return any(
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Compare | ast.BoolOp)
        for node in body
    )
