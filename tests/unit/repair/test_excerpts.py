"""Which function of a long file a small model is to mend."""

from __future__ import annotations

import pytest

from fugu_cli.repair.excerpts import LONG, MOST_ABOVE, blamed_functions, context_above, part_of

LONG_PYTHON = '''"""Sums."""

import functools


@functools.cache
def added(one, two):
    """The sum.

at no indentation: all the same a part of it."""
    return one - two


class Cart:
    def total(
        self,
    ):
        return added(1, 2)


''' + "\n\n".join(f"def other_{number}():\n    return {number}\n" for number in range(LONG // 30))
ADDED = LONG_PYTHON[LONG_PYTHON.index("@functools") : LONG_PYTHON.index("\n\n\nclass")]
TOTAL = LONG_PYTHON[LONG_PYTHON.index("    def total") : LONG_PYTHON.index("\n\n\ndef other_0")]
PADDING = "const more = [1, 2, 3];\n" * (LONG // 20)


def found(path: str, content: str, output: str) -> list[str]:
    """The functions to blame, as they stand in the file."""
    return [part_of(content, one) for one in blamed_functions(path, content, output)]


def test_what_a_failing_test_calls_is_to_blame_in_its_order() -> None:
    output = "    assert sums.Cart().total() == added(1, 2)\ntest_sums.py:12: AssertionError"
    assert found("sums.py", LONG_PYTHON, output) == [TOTAL, ADDED]


def test_where_it_broke_comes_first() -> None:
    place = LONG_PYTHON[: LONG_PYTHON.index("return one - two")].count("\n") + 1
    output = f"    assert Cart().total() == 3\nsums.py:{place}: TypeError"
    assert found("sums.py", LONG_PYTHON, output) == [ADDED, TOTAL]
    assert found("sums.py", LONG_PYTHON, f'  File "/r/sums.py", line {place}, in added') == [ADDED]
    assert found("sums.py", LONG_PYTHON, f"other_sums.py:{place}: TypeError") == []


@pytest.mark.parametrize(
    ("path", "function"),
    [
        ("a.js", "/** The sum. */\nexport function added(one, two) {\n  return one - two;\n}"),
        (
            "a.js",
            "/*\n  The sum\n  of both.\n  */\nconst added = (one, two) => {\n  return one - "
            "two;\n}",
        ),
        ("a.js", "const added = (one, two) => {\n  return one - two;\n}"),
        (
            "a.ts",
            "export const added = async (one: number, two: number) => {\n  if (one) {\n    "
            "return 1;\n  }\n};",
        ),
        ("a.rs", "/// The sum.\npub fn added(one: u32) -> u32 {\n    one\n}"),
    ],
)
def test_functions_of_other_languages_are_found_with_the_comment_above_them(
    path: str, function: str
) -> None:
    padding = "" if path == "a.rs" else PADDING
    content = f"{padding}\n{function}\n\n{padding}"
    assert found(path, content, "assert.equal(added(1, 2), 3)") == [function]


def test_without_a_function_to_blame_there_is_no_part() -> None:
    cases = [
        ("sums.py", LONG_PYTHON, "assert printed(1) == 3"),
        ("sums.py", LONG_PYTHON + "\n\n" + ADDED, "assert added(1, 2) == 3"),
        ("a.js", f"function added(one) {{\n  {'x();' * LONG}\n}}\n", "assert.equal(added(1), 3)"),
        ("a.js", f"{PADDING}if (added(1)) {{\n  x();\n}}\n", "if (added(1)) {"),
    ]
    assert [found(*case) for case in cases] == [[]] * len(cases)


OUTSIDE = """\
import math
from a import (
    b,
)
RATE: int = 3
TIERS = (
    1,
)"""


def test_what_a_function_finds_in_its_file_is_imports_and_constants() -> None:
    assert (
        context_above(
            "a.py", f'"""A shop."""\n\n{OUTSIDE}\n\n\ndef f():\n    x = 1\n\n\nprint(1)\n'
        )
        == OUTSIDE
    )
    assert context_above("a.js", "const x = 1;\nfunction f() {\n}\n") == "const x = 1;"
    assert context_above("a.txt", "x = 1") == ""
    many = context_above("a.py", "".join(f"NAME_{number} = {number}\n" for number in range(200)))
    assert len(many) <= MOST_ABOVE
    assert many.endswith(tuple("0123456789"))
