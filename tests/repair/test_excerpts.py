"""Which function of a long file a small model is to mend."""

from __future__ import annotations

import pytest

from fugu_cli.repair.excerpts import MOST_ABOVE, context_above, described_function, excerpts_in_turn
from fugu_cli.repair.protocols import LONG

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


def found(path: str, content: str, output: str, draws: int = 3) -> list[str]:
    ways = excerpts_in_turn(path, content, output)
    return [ways[draw % len(ways)] if ways else "" for draw in range(draws)]


def test_what_a_failing_test_calls_has_its_draw_one_after_the_other() -> None:
    output = "    assert sums.Cart().total() == added(1, 2)\ntest_sums.py:12: AssertionError"
    assert found("sums.py", LONG_PYTHON, output) == [TOTAL, ADDED, TOTAL]


def test_where_it_broke_comes_first() -> None:
    place = LONG_PYTHON[: LONG_PYTHON.index("return one - two")].count("\n") + 1
    output = f"    assert Cart().total() == 3\nsums.py:{place}: TypeError"
    assert found("sums.py", LONG_PYTHON, output) == [ADDED, TOTAL, ADDED]
    assert found("sums.py", LONG_PYTHON, f'  File "/r/sums.py", line {place}, in added') == [ADDED] * 3
    assert found("sums.py", LONG_PYTHON, f"other_sums.py:{place}: TypeError") == [""] * 3


@pytest.mark.parametrize(
    ("path", "function"),
    [
        ("a.js", "/** The sum. */\nexport function added(one, two) {\n  return one - two;\n}"),
        ("a.js", "/*\n  The sum\n  of both.\n  */\nconst added = (one, two) => {\n  return one - two;\n}"),
        ("a.js", "const added = (one, two) => {\n  return one - two;\n}"),
        ("a.ts", "export const added = async (one: number, two: number) => {\n  if (one) {\n    return 1;\n  }\n};"),
        ("a.ts", "  // a method\n  static added(one: number): number {\n    return one;\n  }"),
        ("a.rs", "/// The sum.\npub fn added(one: u32) -> u32 {\n    one\n}"),
        ("a.go", "func (s *Sums) added(one int) int {\n\treturn one\n}"),
    ],
)
def test_functions_of_other_languages_are_found_with_the_comment_above_them(path: str, function: str) -> None:
    content = f"{PADDING}\n{function}\n\n{PADDING}"
    assert excerpts_in_turn(path, content, "assert.equal(added(1, 2), 3)") == [function]


def test_without_a_function_to_blame_there_is_no_part() -> None:
    short = "def added(one, two):\n    return one - two\n"
    cases = [
        ("sums.py", short, "assert added(1, 2) == 3"),
        ("sums.py", LONG_PYTHON, "assert printed(1) == 3"),
        ("sums.py", f"{LONG_PYTHON}def (:\n", "assert added(1, 2) == 3"),
        ("sums.py", LONG_PYTHON + "\n\n" + ADDED, "assert added(1, 2) == 3"),
        ("a.js", f"function added(one) {{\n{PADDING}", "assert.equal(added(1), 3)"),
        ("a.js", f"function added(one) {{\n  {'x();' * LONG}\n}}\n", "assert.equal(added(1), 3)"),
        ("a.js", f"{PADDING}if (added(1)) {{\n  x();\n}}\n", "if (added(1)) {"),
    ]
    assert [excerpts_in_turn(*case) for case in cases] == [[]] * len(cases)


def test_functions_that_a_test_calls_together_are_shown_together_first() -> None:
    one, two = LONG_PYTHON[LONG_PYTHON.index("def other_1()") :].split("\n\n\n")[:2]
    output = "assert other_1() == other_2()"
    assert found("sums.py", LONG_PYTHON, output, 4) == [f"{one}\n\n\n{two}", one, two, f"{one}\n\n\n{two}"]


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
    assert context_above("a.py", f'"""A shop."""\n\n{OUTSIDE}\n\n\ndef f():\n    x = 1\n\n\nprint(1)\n') == OUTSIDE
    assert context_above("a.js", "const x = 1") == ""
    assert context_above("a.py", "def broken(") == ""
    many = context_above("a.py", "".join(f"NAME_{number} = {number}\n" for number in range(200)))
    assert len(many) <= MOST_ABOVE
    assert many.endswith(tuple("0123456789"))


NAMES = "class Cart:\n    def add(self):\n        return 1\n\n    def total(self):\n        return 2\n"


@pytest.mark.parametrize(
    ("request_", "function"),
    [
        ("total should be rounded", "total"),
        ("Cart.add should return the cart", "add"),
        ("add a docstring to `add`", "add"),
        ("add a docstring to total", "total"),
        ("add a docstring", ""),
        ("add a method count to Cart, beside total", ""),
        ("total should be what add has summed up", "total"),
        ("add() should call total", ""),
        ("rename total to sum", ""),
        ("write tests for total", ""),
        ("what does total do?", ""),
        ("total.py should be smaller", ""),
    ],
)
def test_the_one_function_is_found_that_a_request_is_about(request_: str, function: str) -> None:
    found = described_function("cart.py", NAMES, request_)
    assert [part.split("(")[0].strip() for part in found] == ([f"def {function}"] if function else [])
