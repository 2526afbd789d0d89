"""Which paths are those of tests, by their look alone: what a fix leaves as it is.

Below agents, coordinators and the loop, which have no folder at hand; tools/test_names.py knows what runners collect.
Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

TEST = re.compile(
    r"(^|/)(tests?|specs?|__tests__)/|(^|/)(test_|conftest)|_(test|spec)\.|[.-](test|spec)\.|Tests?\.(java|kt|cs|php|swift)$"
)


def code_among(paths: Iterable[str]) -> list[str]:
    """Those that are no tests: what a fix may change."""
    return [path for path in paths if not TEST.search(path)]


def tests_among(paths: Iterable[str]) -> list[str]:
    """Those that are tests, or what tests share."""
    return [path for path in paths if TEST.search(path)]
