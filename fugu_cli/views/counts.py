"""How many tests a run's output says passed and failed, in the words of each runner.

Below outcome.py. Read from what an agent is told of a run, so that a log alone says how the tests stood. Pure.
"""

from __future__ import annotations

import re

_GO = re.compile(r"^ok\s+\S+|^FAIL\b", re.MULTILINE)
_NONE_THERE = re.compile(
    r"^(?:=+ )?no tests (?:ran|collected)\b|^NO TESTS RAN\b|^Ran 0 tests\b"
    r"|^running 0 tests$|^\?\s.*\[no test files\]$|^[#ℹ] tests 0$"  # cargo, go, node
    r"|^\[INFO\] No tests to run\.",  # Maven
    re.MULTILINE,
)
SUREFIRE = re.compile(
    r"^(?:\[\w+\] )?Tests run: (\d+), Failures: (\d+), Errors: (\d+), Skipped: (\d+)\s*$", re.MULTILINE
)
"""Maven's line for all tests of a module; one for a class says how long it took."""
_EXAMPLES = re.compile(
    r"^\s*(\d+) (?:examples?|tests?|runs?)(?: completed)?,(?: \d+ assertions,)?"
    r" (\d+) fail(?:ed|ures?)\b(?:, (\d+) errors?\b)?(?:.*?, (\d+) (?:pending|skips?|skipped|excluded)\b)?",
    re.MULTILINE,
)
"""RSpec, minitest, ExUnit, Gradle."""
_FAILING = (
    re.compile(r"\b(\d+) (?:failed|failures?|errors?)\b", re.IGNORECASE),  # pytest, cargo, jest, mocha
    re.compile(r"(?<!expected )\b(?:failures|errors|unexpected successes)=(\d+)"),  # unittest
    re.compile(r"^[#ℹ] fail (\d+)$", re.MULTILINE),  # node --test
    re.compile(r"^(?:Failed|Passed)!.*?\bFailed:\s+(\d+)", re.MULTILINE),  # dotnet
    re.compile(r"\b(?:Failures|Errors): (\d+)"),  # PHPUnit
)
_CARGO = re.compile(r"^test result: \w+\. (\d+) passed", re.MULTILINE)
_CARGO_IGNORED = re.compile(r"^test result: .*; (\d+) ignored", re.MULTILINE)
_UNITTEST = re.compile(r"^Ran (\d+) tests?", re.MULTILINE)
_NOT_PASSED = re.compile(r"\b(?:failures|errors|skipped|unexpected successes)=(\d+)")
_SKIPPED = re.compile(r"\b(\d+) (?:skipped|ignored)\b|\bskipped=(\d+)|^[#ℹ] skipped (\d+)$", re.MULTILINE)
_PASSING = (
    re.compile(r"\b(\d+) passed\b"),
    re.compile(r"^[#ℹ] pass (\d+)$", re.MULTILINE),
    re.compile(r"^(?:Failed|Passed)!.*?\bPassed:\s+(\d+)", re.MULTILINE),
    re.compile(r"^OK \((\d+) tests?, \d+ assertions?\)", re.MULTILINE),
)


def none_there(output: str) -> bool:
    """The run found no tests."""
    if _NONE_THERE.search(output) is None or _GO.search(output) is not None:
        return False
    return not passing(output) and not failing(output)


def failing(output: str) -> int | None:
    """How many tests a run's output says failed or broke; None where it does not say.

    Read from the last line that counts them, so that a test's own chatter does not decide.
    """
    if modules := SUREFIRE.findall(output):
        return sum(int(failed) + int(broken) for _, failed, broken, _ in modules)
    for pattern in _FAILING:
        lines = [line for line in output.splitlines() if pattern.search(line)]
        if lines:
            return sum(int(count) for count in pattern.findall(lines[-1]))
    broken = len(re.findall(r"^\s*--- FAIL", output, re.MULTILINE))  # go
    return broken or None


def passing(output: str) -> int | None:
    """How many tests a run's output says passed; None where it does not say."""
    if modules := SUREFIRE.findall(output):
        return sum(int(ran) - sum(map(int, others)) for ran, *others in modules)
    if crates := _CARGO.findall(output):  # a line for the tests of each file, the last for examples in documentation
        return sum(map(int, crates))
    if ran := _UNITTEST.findall(output):
        return max(0, int(ran[-1]) - sum(int(count) for count in _NOT_PASSED.findall(output)))
    for pattern in _PASSING:
        found = pattern.findall(output)
        if found:
            return int(found[-1])
    if told := _EXAMPLES.findall(output):
        return int(told[-1][0]) - sum(int(count or 0) for count in told[-1][1:])
    return None


def skipping(output: str) -> int:
    """How many tests a run's output says were skipped; 0 where it does not say."""
    if modules := SUREFIRE.findall(output):
        return sum(int(skipped) for *_, skipped in modules)
    if crates := _CARGO_IGNORED.findall(output):
        return sum(map(int, crates))
    found = _SKIPPED.findall(output)
    return int(next(filter(None, found[-1]))) if found else 0
