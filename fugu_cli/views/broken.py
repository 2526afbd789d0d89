"""Tests that passed and fail since a change: where, and by what. Pure."""

from __future__ import annotations

import re

from fugu_cli.test_paths import tests_among

BROKE = "tests that passed before fail"
"""Why a draw is rolled back that the tests do not judge."""
_PLACE = re.compile(r"((?:[\w@+-][\w.@+-]*/)*[\w@+-][\w.@+-]*\.[a-z]+):(\d+)\b")
_RAISED = re.compile(r"\b(?!Assertion)[A-Z]\w*(?:Error|Exception)\b")


def by_expectation(output: str) -> bool:
    """The tests fail by what they expect, and nothing else is raised."""
    return "assert" in output.lower() and _RAISED.search(output) is None


def broken_at(output: str) -> list[tuple[str, str]]:
    """The test files that the output names, each with its line."""
    found = dict.fromkeys(_PLACE.findall(output))
    return [(path, line) for path, line in found if tests_among([path])]
