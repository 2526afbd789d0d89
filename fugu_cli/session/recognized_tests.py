"""Recognises tests: which paths are tests, which tests a change removed, what a runner's output
counts.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import PurePosixPath

from fugu_cli.session.events import FileChange

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
    """Return whether a path is a test, or a file that tests share. It is relative to the
    repository.
    """
    return TEST.search(path) is not None


def tests_among(paths: Iterable[str]) -> list[str]:
    """Return the paths of tests and of files that tests share."""
    return [path for path in paths if is_test(path)]


_GO = re.compile(r"^ok\s+\S+|^FAIL\b", re.MULTILINE)
_NONE_THERE = re.compile(
    r"^(?:=+ )?no tests (?:ran|collected)\b|^NO TESTS RAN\b|^Ran 0 tests\b"
    r"|^running 0 tests$|^\?\s.*\[no test files\]$|^[#ℹ] tests 0$"  # cargo, go, node
    r"|^\[INFO\] No tests to run\."  # Maven
    r"|^No tests were found!!!|^Error: No test files found",  # ctest, mocha
    re.MULTILINE,
)
SUREFIRE = re.compile(
    r"^(?:\[\w+\] )?Tests run: (\d+), Failures: (\d+), Errors: (\d+), Skipped: (\d+)\s*$",
    re.MULTILINE,
)
"""Maven's line for all tests of a module; one for a class says how long it took."""
_EXAMPLES = re.compile(
    r"^\s*(\d+) (?:examples?|tests?|runs?)(?: completed)?,(?: \d+ assertions,)?"
    r" (\d+) fail(?:ed|ures?)\b(?:, (\d+) errors?\b)?(?:.*?, (\d+) "
    r"(?:pending|skips?|skipped|excluded)\b)?",
    re.MULTILINE,
)
"""RSpec, minitest, ExUnit, Gradle."""
_FAILING = (
    re.compile(
        r"\b(\d+) (?:tests? )?(?:failed|failing|failures?|errors?)\b", re.IGNORECASE
    ),  # pytest, cargo, jest, mocha, ava, ctest
    re.compile(r"(?<!expected )\b(?:failures|errors|unexpected successes)=(\d+)"),  # unittest
    re.compile(r"^[#ℹ] fail +(\d+)$", re.MULTILINE),  # node --test, tape
    re.compile(
        r"^ *(\d+) fail$|^Fail: +(\d+) *$|^\d+:\d+ .* -(\d+): Some", re.MULTILINE
    ),  # bun, Meson, dart
    re.compile(r"^(?:Failed|Passed)!.*?\bFailed:\s+(\d+)", re.MULTILINE),  # dotnet
    re.compile(r"\b(?:Failures|Errors): (\d+)"),  # PHPUnit
)
_CARGO = re.compile(r"^test result: \w+\. (\d+) passed", re.MULTILINE)
_CARGO_IGNORED = re.compile(r"^test result: .*; (\d+) ignored", re.MULTILINE)
_CTEST = re.compile(r"^\d+% tests passed, (\d+) tests failed out of (\d+)", re.MULTILINE)
_UNITTEST = re.compile(r"^Ran (\d+) tests?\b(?! across)", re.MULTILINE)
_NOT_PASSED = re.compile(r"\b(?:failures|errors|skipped|unexpected successes)=(\d+)")
_SKIPPED = re.compile(
    r"\b(\d+) (?:skipped|ignored)\b|\bskipped=(\d+)|^[#ℹ] skipped (\d+)$", re.MULTILINE
)
_PASSING = (
    re.compile(r"\b(\d+) (?:tests? )?(?:passed|passing)\b"),
    re.compile(r"^[#ℹ] pass +(\d+)$", re.MULTILINE),
    re.compile(
        r"^ *(\d+) pass$|^Ok: +(\d+) *$|^\d+:\d+ \+(\d+).*: (?:All|Some) tests", re.MULTILINE
    ),
    re.compile(r"^(\d+) success(?:es)? /", re.MULTILINE),  # busted
    re.compile(r"^(?:Failed|Passed)!.*?\bPassed:\s+(\d+)", re.MULTILINE),
    re.compile(r"^OK \((\d+) tests?, \d+ assertions?\)", re.MULTILINE),
)


def no_tests_found(output: str) -> bool:
    """Return whether the run found no tests."""
    if _NONE_THERE.search(output) is None or _GO.search(output) is not None:
        return False
    return not passed_count(output) and not failed_count(output)


def failed_count(output: str) -> int | None:
    """Return the number of failed tests that a run's output gives, None if it gives none. Only the
    last line with such a number counts, so that a test's own output does not decide.
    """
    if modules := SUREFIRE.findall(output):
        return sum(int(failed) + int(broken) for _, failed, broken, _ in modules)
    for pattern in _FAILING:
        lines = [line for line in output.splitlines() if pattern.search(line)]
        if lines:
            return sum(int(count) for count in _counts(pattern, lines[-1]))
    broken = len(re.findall(r"^\s*--- FAIL", output, re.MULTILINE))  # go
    return broken or None


def passed_count(output: str) -> int | None:
    """Return the number of passed tests that a run's output gives, None if it gives none."""
    if modules := SUREFIRE.findall(output):
        return sum(int(ran) - sum(map(int, others)) for ran, *others in modules)
    if crates := _CARGO.findall(output):  # a line for each file of tests, and for doc tests
        return sum(map(int, crates))
    if ran := _UNITTEST.findall(output):
        not_passed = sum(map(int, _NOT_PASSED.findall(output)))
        return max(0, int(ran[-1]) - not_passed)
    for pattern in _PASSING:
        counts = _counts(pattern, output)
        if counts:
            return int(counts[-1])
    if ran_and_failed := _CTEST.findall(output):
        failed, total = ran_and_failed[-1]
        return int(total) - int(failed)
    if examples := _EXAMPLES.findall(output):
        total, *not_passed_counts = examples[-1]
        return int(total) - sum(int(count or 0) for count in not_passed_counts)
    return None


def _counts(pattern: re.Pattern[str], text: str) -> list[str]:
    """Return the number that each match holds in one of its groups."""
    return [next(filter(None, match.groups())) for match in pattern.finditer(text)]


_XPASSED = re.compile(r"^=*[^\n]*\b(\d+) xpassed\b", re.MULTILINE)


def unexpectedly_passed_count(output: str) -> int:
    """Return the number of tests that passed although pytest expected them to fail. In its reports
    they count as passed.
    """
    counts = _XPASSED.findall(output)
    return int(counts[-1]) if counts else 0


def skipped_count(output: str) -> int:
    """Return the number of skipped tests that a run's output gives, 0 if it gives none."""
    if modules := SUREFIRE.findall(output):
        return sum(int(skipped) for *_, skipped in modules)
    if crates := _CARGO_IGNORED.findall(output):
        return sum(map(int, crates))
    counts = _SKIPPED.findall(output)
    return int(next(filter(None, counts[-1]))) if counts else 0


ReadText = Callable[[str], str | None]
"""Returns the text of a blob; None if the blob is missing or holds no text."""
_GIVEN = r"(?:\((?:[^()\"]|\"[^\"]*\"|\([^()]*\))*\))?+"
_ANNOTATIONS = rf"(?:\s*@[\w.]++{_GIVEN})*+"
_JVM = (
    r"@(?:[\w.]+\.)?(?:Test|ParameterizedTest|RepeatedTest|TestFactory|TestTemplate|Property)\b"
    + _GIVEN + _ANNOTATIONS + r"[^(){};@]*?(\b\w+|`[^`\n]+`)\s*\(",
    r"\bvoid\s+(test\w*)\s*\(",
    r"^\s*(?:test|it|should)\s*\(\s*\"((?:[^\"\\]|\\.)+)\"",
)  # fmt: skip
_CALLED = (
    r"(?<![\w.$])(?:it|test|specify|Deno\.test)(?:\.(?!each\b|describe\b)\w+)*\s*\(\s*([\"'`])(?P<name>(?:(?!\1)[^\\]|\\.)+)\1",
    r"(?<![\w.$])(?:it|test)(?:\.\w+)*\.each\s*(?:\((?:[^()]|\([^()]*\))*\)|`[^`]*`)\s*\(\s*([\"'`])"
    r"(?P<name>(?:(?!\1)[^\\]|\\.)+)\1",
)
_RUST = (
    r"#\[(?:\w+::)*(?:test|rstest|test_case|quickcheck|proptest)\b[^\]]*\]\s*(?:#\[[^\]]*\]\s*)*"
    r"(?:pub(?:\([^)]*\))?\s+)?(?:async\s+)?fn\s+(\w+)",
)
_BLOCKS = (
    r"^\s*(?:it|test|specify|scenario|should|property)\s*\(?\s*([\"'])(?P<name>(?:(?!\1)[^\\\n]|\\.)+)\1",
    r"^\s*def\s+(test_\w+)",
)
_DOTNET = (
    r"\[(?:Fact|Theory|Test|TestCase|TestMethod|DataTestMethod)\b[^\]]*\]\s*(?:\[[^\]]*\]\s*)*[^(){};]*?(\w+)\s*\(",
)
_OF = {
    "js jsx ts tsx mjs cjs mts cts vue": _CALLED,
    "go": (r"^func\s+(?:\([^)]*\)\s*)?((?:Test|Fuzz|Example)\w*)\s*\(",),
    "rs": _RUST,
    "java kt kts groovy scala": _JVM,
    "cs fs vb": _DOTNET,
    "rb exs ex": _BLOCKS,
    "php": (
        r"\bfunction\s+(test\w*)\s*\(",
        r"#\[Test\]\s*(?:#\[[^\]]*\]\s*)*[\w\s]*?function\s+(\w+)",
    ),
    "swift": (r"\bfunc\s+(test\w*)\s*\(", r"@Test\b(?:\([^()]*\))?[\w\s]*?func\s+(\w+)"),
    "dart": (r"\b(?:test|testWidgets)\s*\(\s*([\"'])(?P<name>(?:(?!\1)[^\\\n]|\\.)+)\1",),
    "c cc cpp cxx": (
        r"\b(?:TEST|TEST_F|TEST_P|TYPED_TEST|TEST_CASE)\s*\(\s*(?P<name>[^()]+?)\s*\)",
    ),
}


@cache
def _patterns_by_ending() -> dict[str, list[re.Pattern[str]]]:
    """Return patterns of test definitions. The name is the group `name`, else the first group that
    matched.
    """
    compiled = {}
    for endings, patterns in _OF.items():
        for ending in endings.split():
            compiled[f".{ending}"] = [re.compile(pattern, re.MULTILINE) for pattern in patterns]
    return compiled


_HASHES = (".rb", ".exs", ".ex")
_COMMENT = re.compile(r"/\*.*?\*/|^\s*//[^\n]*$", re.DOTALL | re.MULTILINE)
_HASH = re.compile(r"^\s*#[^\n]*$", re.MULTILINE)


def removed_tests(changes: Iterable[FileChange], read: ReadText) -> tuple[str, ...]:
    """Return FILE::NAME of each test that existed before `changes` and exists nowhere after them,
    in the files' order.

    For Python, NAME is that of pytest's id without parameters. A removed test file is named without
    tests if its language is unknown or its content cannot be read. A test that now stands in
    another changed file was moved, and counts as existing.
    """
    removed: list[tuple[str, str]] = []
    added: set[str] = set()
    known_endings = {*_patterns_by_ending(), ".py"}
    for change in changes:
        before = "" if change.before is None else read(change.before)
        after = "" if change.after is None else read(change.after)
        is_readable = before is not None and after is not None
        can_be_parsed = is_readable and _ending(change.path) in known_endings
        if change.before is not None and is_test(change.path) and not can_be_parsed:
            if change.after is None:
                removed.append((change.path, ""))
            continue
        old = _defined_tests(change.path, before or "")
        new = _defined_tests(change.path, after or "")
        removed += [(change.path, name) for name in old if name not in new]
        added.update(name for name in new if name not in old)
    return tuple(f"{path}::{name}" if name else path for path, name in removed if name not in added)


def _ending(path: str) -> str:
    return PurePosixPath(path).suffix.lower()


def _defined_tests(path: str, text: str) -> list[str]:
    """Return the names of the tests that a file defines. Outside of test files only Rust has any."""
    ending = _ending(path)
    if ending != ".rs" and not is_test(path):
        return []
    if ending == ".py":
        return list(dict.fromkeys(_python_tests(text)))
    comment = _HASH if ending in _HASHES else _COMMENT
    without_comments = comment.sub("", text)
    names: dict[str, None] = {}
    for pattern in _patterns_by_ending().get(ending, []):
        for match in pattern.finditer(without_comments):
            name = match.groupdict().get("name") or next(filter(None, match.groups()))
            names[name] = None
    return list(names)


def _python_tests(text: str) -> list[str]:
    """Return the functions named like tests, with their classes. If the file cannot be parsed, only
    its lines are searched.
    """
    try:
        module = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return re.findall(r"^\s*(?:async\s+)?def\s+(test\w*)", text, re.MULTILINE)
    return list(_test_functions(module.body, ""))


def _test_functions(body: Iterable[ast.stmt], prefix: str) -> Iterator[str]:
    for node in body:
        match node:
            case ast.ClassDef():
                yield from _test_functions(node.body, f"{prefix}{node.name}::")
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                if node.name.startswith("test"):
                    yield f"{prefix}{node.name}"
            case ast.If() | ast.Try():
                yield from _test_functions(node.body, prefix)
