"""The value that a test expects is left out, and what came instead stands above it."""

from __future__ import annotations

import pytest

from fugu_cli.loop import expectations

PYTEST = """_____ test_total _____

    def test_total():
        cart = Cart()
>       assert cart.total("tea") == Decimal("14.28")
E       AssertionError: assert Decimal('12.84') == Decimal('14.28')
E        +  where Decimal('12.84') = total('tea')
E        +    where total = <shop.Cart object at 0x7f00>.total

tests/test_cart.py:3: AssertionError
_____ test_other _____
E       assert 1 == 2
tests/test_other.py:9: AssertionError
2 failed
"""
NODE = """not ok 3 - truncate
  error: |-
    Expected values to be strictly equal:
    + actual - expected

    + 'abc-'
    - 'abc...'
  code: 'ERR_ASSERTION'
  stack: |-
    TestContext.<anonymous> (index.test.js:4:10)
"""
CARGO = """thread 'rate_is' panicked at tests/rate.rs:3:5:
assertion `left == right` failed
  left: 7
 right: 19
"""
TEST_CART = 'def test_total():\n    cart = Cart()\n    assert cart.total("tea") == Decimal("14.28")\n'
TEST_INDEX = 'test("words", () => {\n});\ntest("truncate", () => {\n  equal(truncate("abcdef", 3), "abc...");\n});\n'
TEST_RATE = "#[test]\nfn rate_is() {\n    assert_eq!(rate(), 19);\n}\n"


AT_ONCE = (
    (
        "tests/test_cart.py",
        TEST_CART,
        3,
        PYTEST,
        """def test_total():
    cart = Cart()
    # where Decimal('12.84') = total('tea')
    assert cart.total("tea") == Decimal("|")
""",
    ),
    (
        "index.test.js",
        TEST_INDEX,
        4,
        NODE,
        """test("words", () => {
});
test("truncate", () => {
  // 'abc-'
  equal(truncate("abcdef", 3), "|");
});

""",
    ),
    (
        "tests/rate.rs",
        TEST_RATE,
        3,
        CARGO,
        """#[test]
fn rate_is() {
    // assertion `left == right` failed
    // left: 7
    assert_eq!(rate(), |);
}
""",
    ),
)


@pytest.mark.parametrize(("path", "content", "line", "output", "read"), AT_ONCE)
def test_what_came_stands_above_the_line_without_the_value_that_was_expected(
    path: str, content: str, line: int, output: str, read: str
) -> None:
    found = expectations.holes(path, content, line, output)
    assert f"{found[0].gap.before}|{found[0].gap.after}" == read


def test_every_value_that_the_output_repeats_may_be_the_one_that_is_expected() -> None:
    found = expectations.holes("tests/test_cart.py", TEST_CART, 3, PYTEST)
    assert [one.gap.place for one in found] == ["tests/test_cart.py:3:42", "tests/test_cart.py:3:24"]


@pytest.mark.parametrize(
    ("line", "output"),
    [
        (3, ""),
        (3, "tests/test_cart.py:3: AssertionError"),
        (1, PYTEST),
        (40, PYTEST),
    ],
)
def test_where_the_output_does_not_say_what_came_there_is_no_hole(line: int, output: str) -> None:
    found = expectations.holes("tests/test_cart.py", TEST_CART, line, output)
    assert found == ()
