"""What a small model adds to its answer to try it out."""

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fugu_cli.repair.reply_trimming import MOST, self_test_starts, without_self_tests

STUB = 'def total(prices):\n    """What all come to.\n\n    >>> total([])\n\n    """\n    pass\n'
DONE = STUB.replace("pass", "return sum(prices) or None")


@pytest.mark.parametrize(
    "added",
    [
        "\n\n# Test cases\nassert total([1]) == 1\nassert total([]) == 0\n",
        "\n\nfor prices, all in [([1], 2)]:\n    assert total(prices) == all\n",
        "\n\ndef check_solution():\n    assert total([1]) == 2\n    print('fine')\n\ncheck_solution()\n",
        "\n\ndef test_total(prices):\n    assert total(prices)\n",
        "\n\n@fixed\nclass TestTotal(Case):\n    def test(self):\n        self.fail()\n\n\n# go\nunittest.main()\n",
    ],
)
def test_what_tries_the_answer_out_is_left_out(added: str) -> None:
    assert without_self_tests(STUB, DONE + added) == DONE


@pytest.mark.parametrize(
    ("shown", "body"),
    [
        (STUB, DONE),
        (STUB, f"{DONE}\n\nprint(total([1]))\n"),
        (STUB, f'{DONE}\n\nif __name__ == "__main__":\n    assert total([1])\n'),
        (
            STUB,
            "def check_prices(prices):\n    return prices\n\n\n"
            + DONE.replace("sum(", "sum(check_prices(prices) and "),
        ),
        (STUB, f"{DONE}\n\nregister(total)\n"),
        (f"{STUB}assert total\n", f"{DONE}assert total([1])\n"),
        ("def check(x):\n    pass\n\ncheck(1)\n", "def check(x):\n    return x\n\ncheck(2)\n"),
        (STUB, "def total(:\n"),
        ("fn total() {}\n", DONE),
    ],
)
def test_everything_else_stays(shown: str, body: str) -> None:
    assert without_self_tests(shown, body) == body


def test_a_comment_that_was_there_stays_above_what_goes() -> None:
    shown = f"{STUB}\n# The end.\n"
    assert without_self_tests(shown, f"{DONE}\n# The end.\n# Try it\nassert total([1])\n") == f"{DONE}\n# The end.\n"


def test_a_docstring_stays_as_it_was_for_its_examples_may_be_the_tests() -> None:
    cheated = DONE.replace(">>> total([])\n\n", ">>> total([])\n    None\n\n    Or so.\n")
    assert without_self_tests(STUB, cheated) == DONE
    assert without_self_tests(STUB, cheated.replace('"""', "'''").replace("    ", "  ")) == without_self_tests(
        STUB, cheated
    ).replace("    return", "  return").replace('    """What', '  """What')
    bare = "def total(prices):\n    return 1\n"
    assert without_self_tests(bare, DONE) == DONE, "there was none"
    assert without_self_tests(STUB, bare) == bare, "there is none"


@given(st.text(alphabet="def tesa():\n  #\"'=1", max_size=80), st.text(alphabet="def tesa():\n  #\"'=1", max_size=80))
def test_python_stays_python(shown: str, body: str) -> None:
    kept = without_self_tests(shown, body)
    try:
        ast.parse(body)
    except (SyntaxError, ValueError):
        assert kept == body
    else:
        ast.parse(kept)


def test_the_reply_ends_where_such_a_part_begins() -> None:
    told = "`pytest` prints:\n    def check(candidate):\n>       assert candidate(1)\n    def test_total():\n>    1"
    assert self_test_starts("a.py", STUB, told) == ("\n# Test", "\n# Example", "\ndef check(", "\ndef test_total(")
    assert self_test_starts("a.py", f"# Testing\n{STUB}", told + "\n    def helper():") == (
        "\n# Example",
        "\ndef check(",
        "\ndef test_total(",
    )
    assert self_test_starts("a.py", f"{STUB}def check(x): pass", told) == (
        "\n# Test",
        "\n# Example",
        "\ndef test_total(",
    )
    assert self_test_starts("a.js", "", told) == ("\n// Test", "\n// Example")
    assert len(self_test_starts("a.py", "", "def test_a():\ndef test_b():\ndef check():\ndef tests():")) == MOST


@pytest.mark.parametrize("name", ["checkout", "checksum", "testimony", "Checker", "tested"])
def test_what_only_begins_like_a_check_stays(name: str) -> None:
    added = f"{DONE}\n\nclass {name}:\n    pass\n" if name.istitle() else f"{DONE}\n\ndef {name}():\n    pass\n"
    assert without_self_tests(STUB, added) == added


def test_a_check_that_was_asked_for_stays_and_the_tests_own_does_not() -> None:
    added = f"{DONE}\n\ndef check_balance(account):\n    return account\n"
    assert without_self_tests(STUB, added) == DONE
    assert without_self_tests(STUB, added, "from shop import check_balance") == added
    own = f"{DONE}\n\ndef check(candidate):\n    assert candidate([1])\n\n\ncheck(total)\n"
    assert without_self_tests(STUB, own, "def check(candidate):\n    ...\n\ncheck(total)") == DONE
    assert self_test_starts("a.py", STUB, "Implement this: def mul(a, b): and pass") == ("\n# Test", "\n# Example")


def test_the_docstrings_of_methods_classes_and_the_module_stay_as_well() -> None:
    shown = (
        '"""Carts.\n\n>>> 1\n1\n"""\n\n\nclass Cart:\n    """A cart.\n\n    >>> 2\n    2\n    """\n\n'
        '    async def total(self):\n        """The sum.\n\n        >>> 3\n        3\n        """\n        return 0\n'
    )
    cheated = shown.replace("return 0", "return 2")
    right = cheated
    for number in "123":
        cheated = cheated.replace(f">>> {number}\n{number}", f">>> {number}\n9")
        for indent in ("    ", "        "):
            cheated = cheated.replace(f">>> {number}\n{indent}{number}", f">>> {number}\n{indent}9")
    assert cheated.count("9") == 3
    assert without_self_tests(shown, cheated) == right


def test_a_copy_of_the_tests_own_class_goes() -> None:
    said = "class Totals(unittest.TestCase):\n    def test_it(self):\n        total([1])\n"
    assert without_self_tests(STUB, f"{DONE}\n\n{said}", f"Mend total.\n{said}") == DONE
