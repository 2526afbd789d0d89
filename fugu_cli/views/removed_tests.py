"""The tests that a request removed: their file is gone, or what defines them in it.

Beside outcome.py; the Verifier is shown them. Python is parsed; in other languages a test is what looks like its
definition outside of comments. Pure: the contents are read by whoever asks.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import PurePosixPath

from fugu_cli.events import Change
from fugu_cli.test_paths import is_test

Read = Callable[[str], str | None]
"""The text of a content by the id a Change has for it; None where it is not there, or is no text."""
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
    "php": (r"\bfunction\s+(test\w*)\s*\(", r"#\[Test\]\s*(?:#\[[^\]]*\]\s*)*[\w\s]*?function\s+(\w+)"),
    "swift": (r"\bfunc\s+(test\w*)\s*\(", r"@Test\b(?:\([^()]*\))?[\w\s]*?func\s+(\w+)"),
    "dart": (r"\b(?:test|testWidgets)\s*\(\s*([\"'])(?P<name>(?:(?!\1)[^\\\n]|\\.)+)\1",),
    "c cc cpp cxx": (r"\b(?:TEST|TEST_F|TEST_P|TYPED_TEST|TEST_CASE)\s*\(\s*(?P<name>[^()]+?)\s*\)",),
}
PATTERNS = {
    f".{ending}": tuple(re.compile(pattern, re.MULTILINE) for pattern in patterns)
    for endings, patterns in _OF.items()
    for ending in endings.split()
}
"""What defines a test, by the ending of its file; the name is the group `name`, else the first that matched."""
_HASHES = (".rb", ".exs", ".ex")
_COMMENT = re.compile(r"/\*.*?\*/|^\s*//[^\n]*$", re.DOTALL | re.MULTILINE)
_HASH = re.compile(r"^\s*#[^\n]*$", re.MULTILINE)


def removed_tests(changes: Iterable[Change], read: Read) -> tuple[str, ...]:
    """FILE::NAME of each test that was there before `changes` and is nowhere after them, in the files' order.

    For Python NAME is that of pytest's id, without parameters. A file is named alone where it is gone and is one of
    tests in a language that is not known here, or its content is not there to be read. A test that now stands in
    another changed file was moved, and counts as there.
    """
    gone: list[tuple[str, str]] = []
    added: set[str] = set()
    for change in changes:
        before, after = _side(change.before, read), _side(change.after, read)
        if change.before is not None and is_test(change.path) and (before is None or after is None or _unknown(change)):
            gone += [(change.path, "")] if change.after is None else []
            continue
        old, new = _defined(change.path, before or ""), _defined(change.path, after or "")
        gone += [(change.path, name) for name in old if name not in new]
        added |= set(new) - set(old)
    return tuple(f"{path}::{name}" if name else path for path, name in gone if name not in added)


def _side(content: str | None, read: Read) -> str | None:
    """The text before or after; "" where there was no file."""
    return "" if content is None else read(content)


def _unknown(change: Change) -> bool:
    return _ending(change.path) not in {*PATTERNS, ".py"}


def _ending(path: str) -> str:
    return PurePosixPath(path).suffix.lower()


def _defined(path: str, text: str) -> list[str]:
    """The tests that a file defines. Outside of test files only Rust has any."""
    ending = _ending(path)
    if ending != ".rs" and not is_test(path):
        return []
    if ending == ".py":
        return list(dict.fromkeys(_python(text)))
    plain = (_HASH if ending in _HASHES else _COMMENT).sub("", text)
    found = (match for pattern in PATTERNS.get(ending, ()) for match in pattern.finditer(plain))
    return list(dict.fromkeys(_name(match) for match in found))


def _name(match: re.Match[str]) -> str:
    return match.groupdict().get("name") or next(filter(None, match.groups()))


def _python(text: str) -> Iterator[str]:
    """Functions named like tests, alone or in classes; by their lines alone where the file cannot be parsed."""
    try:
        module = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        yield from re.findall(r"^\s*(?:async\s+)?def\s+(test\w*)", text, re.MULTILINE)
        return
    yield from _within(module.body, "")


def _within(body: Iterable[ast.stmt], before: str) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _within(node.body, f"{before}{node.name}::")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test"):
            yield f"{before}{node.name}"
        elif isinstance(node, ast.If | ast.Try):
            yield from _within(node.body, before)
