"""Failing tests and their assertions, found in what a runner printed."""

import pytest

from fugu_cli.testing.assertions import assertion_of, failing_tests

PYTEST = """\
_____ test_rate[2-3] _____

    def test_rate():
>       assert rate(1) == 2
E       assert 1 == 2
E        +  where 1 = rate(1)

tests/test_rates.py:5: AssertionError
_____ TestInvoice.test_discount _____

>       assert invoice(100, 0.2) == 80
E       assert 99.8 == 80
2 failed, 1 passed
"""
UNITTEST = """\
FAIL: test_total (test_cart.CartTest.test_total)
----------------------------------------------------------------------
Traceback (most recent call last):
  File "test_cart.py", line 9, in test_total
    self.assertEqual(total([1]), 2)
AssertionError: 1 != 2
"""
GO = """\
--- FAIL: TestAdd (0.00s)
    add_test.go:8: Add(1, 2) = 4, want 3
--- FAIL: TestSub (0.00s)
    sub_test.go:8: got 1
"""


@pytest.mark.parametrize(
    ("output", "test", "others", "assertion"),
    [
        (PYTEST, "tests/test_rates.py::test_rate[2-3]", (), "assert 1 == 2"),
        (
            PYTEST,
            "tests/test_invoice.py::TestInvoice::test_discount",
            ("tests/test_rates.py::test_rate[2-3]",),
            "assert 99.8 == 80",
        ),
        ("FAILED a.py::test_a - KeyError: 'b'\n", "a.py::test_a", (), "KeyError: 'b'"),
        (GO, "TestAdd", ("TestSub",), "add_test.go:8: Add(1, 2) = 4, want 3"),
        (GO, "TestSub", ("TestAdd",), "sub_test.go:8: got 1"),
        (UNITTEST, "test_cart.CartTest.test_total", (), "AssertionError: 1 != 2"),
        ("1 failed\n", "a.py::test_a", (), ""),
    ],
)
def test_the_assertion_of_a_failing_test_is_found(
    output: str, test: str, others: tuple[str, ...], assertion: str
) -> None:
    assert assertion_of(test, (test, *others), output) == assertion


@pytest.mark.parametrize(
    ("output", "names"),
    [
        (
            "FAILED a.py::test_a[x y] - assert 1\n +  where 1 = f()\nFAILED a.py::test_b\n",
            ["a.py::test_a[x y]", "a.py::test_b"],
        ),
        (UNITTEST, ["test_cart.CartTest.test_total"]),
        (GO, ["TestAdd", "TestSub"]),
        ("test adds ... FAILED\ntest subs ... ok\n", ["adds"]),
        ("FAILED to connect: no route\n", []),
    ],
)
def test_failing_tests_are_found_by_the_lines_that_name_them(output: str, names: list[str]) -> None:
    assert failing_tests(output) == names
