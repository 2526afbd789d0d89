"""Which files are tests, by their names alone. Below everything in tools that looks for tests or leaves them out."""

from __future__ import annotations

import re
from pathlib import Path

PYTHON_TEST = re.compile(r"test_.*\.py|.*_test\.py|tests\.py")
NODE_TEST = re.compile(r".*[.-](test|spec)\.[cm]?[jt]sx?|test\.[cm]?js")
_OTHERS = re.compile(
    r".*_test\.(?:go|exs|rb|dart|gleam)|.*_spec\.rb|.*(?:Tests?|Spec|IT)\.(?:java|kt|scala|groovy|cs|fs|php|swift)"
)


FOLDERS = frozenset({"tests", "test", "__tests__", "spec"})


def is_test_name(name: str) -> bool:
    """The name of a file is that of a test."""
    return any(pattern.fullmatch(name) for pattern in (PYTHON_TEST, NODE_TEST, _OTHERS))


def is_test(path: Path, root: Path) -> bool:
    """A test, or what tests share."""
    if is_test_name(path.name) or path.name == "conftest.py":
        return True
    return bool(FOLDERS & set(path.relative_to(root).parts[:-1]))
