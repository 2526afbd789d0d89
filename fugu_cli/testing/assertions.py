"""Finds in a test runner's output which tests failed, and what a failing test asserted."""

from __future__ import annotations

import re
from collections.abc import Sequence

MARKED = re.compile(r"E {3,}(\S.*)|(\w*(?:Error|Exception)\b.*)")
"""A line that pytest marks as the error, or one that begins with an exception's name."""
ASSERTION = re.compile(
    r"\b(assert\w*|AssertionError|\w*Error|expect(ed|ation)?|panicked|got|want(ed)?)\b",
    re.IGNORECASE,
)
SECTION_LINES = 60
"""Lines below the name of a test in which its assertion is looked for."""

FAILING = (
    re.compile(r"^(?:FAILED|ERROR) (\S+::.+?)(?: - .*)?$", re.MULTILINE),  # pytest
    re.compile(r"^(?:FAIL|ERROR): \w+ \((\w+(?:\.\w+)+)\)$", re.MULTILINE),  # unittest
    re.compile(r"^test (\S+) \.\.\. FAILED$", re.MULTILINE),  # cargo
    re.compile(r"^--- FAIL: (\S+) \(", re.MULTILINE),  # go
)
"""Lines of runners that name a failing test."""


def failing_tests(output: str) -> list[str]:
    """Return the failing tests that a runner's output names; none if it names them in no known
    way.
    """
    for pattern in FAILING:
        if names := pattern.findall(output):
            return list(dict.fromkeys(names))
    return []


def assertion_of(test: str, failing: Sequence[str], output: str) -> str:
    """Return the assertion of a failing test as its runner prints it, "" where none is found. `test`
    and `failing` are ids of the runner.
    """
    lines = output.split("\n")
    for line in lines:
        if f"{test} - " in line:  # a short summary
            return line.partition(f"{test} - ")[2].strip()
    name = _name_pattern(test)
    next_tests = [_name_pattern(id) for id in failing if _name(id) != _name(test)]
    starts = [index for index, line in enumerate(lines) if name.search(line)]
    sections = []
    for start in starts:
        section = []
        for line in lines[start + 1 : start + SECTION_LINES]:
            if any(pattern.search(line) for pattern in next_tests):
                break
            section.append(line)
        sections.append(section)
    for section in sections:
        for line in section:
            if marked := MARKED.match(line):
                return (marked.group(1) or marked.group(2)).strip()
    for section in sections:
        for line in section:
            is_source = line.lstrip().startswith((">", "def ", "File "))
            if ASSERTION.search(line) and not is_source:
                return line.strip()
    return ""


def _name(test: str) -> str:
    """Return the test's own name, without its file and without a parameter's value."""
    return re.split(r"::|\.|/|\s[›>]\s", test.partition("[")[0].rstrip())[-1] or test


def _name_pattern(test: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w]){re.escape(_name(test))}(?![\w])")
