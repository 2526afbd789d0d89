"""Which paths are those of tests, by their look alone. The one answer to that question.

Below everything that looks for tests, leaves them out or says which were removed. `PYTHON_TEST` and `NODE_TEST` say
less: what those languages' own runners collect. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

TEST = re.compile(
    r"(?:^|/)(?:tests?|specs?|__tests__)/"  # whatever lies in a folder of tests
    r"|(?:^|/)(?:test_|conftest)"  # test_a.py, test_a.c, conftest.py
    r"|(?:^|/)tests?\.(?:py|rs|[cm]?[jt]s)$"
    r"|[._-](?:unit)?(?:tests?|spec)\.\w+$"  # a_test.go, a.test.ts, a-spec.js, a_unittest.cc
    r"|(?:Tests?|TestCase|Spec)\.(?:java|kts?|scala|groovy|cs|fs|vb|php|swift|cc|cpp|cxx|hs|[jt]sx?)$"
    r"|[a-z0-9]IT\.(?:java|kt|scala|groovy)$"
    r"|(?:^|/)Test[A-Z]\w*\.(?:java|kt|scala|groovy|cs)$"
)
"""Matched anywhere in a path with `/`, relative to the repository."""
PYTHON_TEST = re.compile(r"test_.*\.py|.*_test\.py|tests\.py")
NODE_TEST = re.compile(r".*[.-](test|spec)\.[cm]?[jt]sx?|test\.[cm]?js")


def is_test(path: str) -> bool:
    """A test, or what tests share. `path` is relative to the repository."""
    return TEST.search(path) is not None


def code_among(paths: Iterable[str]) -> list[str]:
    """Those that are no tests: what a fix may change."""
    return [path for path in paths if not is_test(path)]


def tests_among(paths: Iterable[str]) -> list[str]:
    """Those that are tests, or what tests share."""
    return [path for path in paths if is_test(path)]
