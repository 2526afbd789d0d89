"""The lines of a function that fails, each to be filled in by a model that has not seen it."""

from __future__ import annotations

import re

from fugu_cli.messages import InfillHole
from fugu_cli.repair import excerpts

KTH = '''def kth(numbers, k):
    """The k-th smallest.

    k counts from 0.
    """
    pivot = numbers[0]
    # those below it
    below = [x for x in numbers if x < pivot]
    if k < len(below):
        return kth(below, k)
    else:
        return pivot'''
FILE = f"import math\n\n\n{KTH}\n\n\nSIZE = 3\n"
FAILS = "    assert kth([3, 1], 1) == 3"


def gaps(path: str, content: str, output: str) -> list[InfillHole]:
    """The lines of the functions to blame, of one inside another those of the outer one."""
    blamed = excerpts.outermost(excerpts.blamed_functions(path, content, output))
    return [gap for one in blamed for gap in excerpts.line_infills(path, content, one)]


def lines(path: str, content: str, output: str = "") -> list[str]:
    """What stands in the gaps."""
    return [content[gap.start : gap.end] for gap in gaps(path, content, output)]


def test_each_line_that_says_something_is_left_out_in_turn() -> None:
    assert lines("a.py", FILE, FAILS) == [
        "pivot = numbers[0]",
        "below = [x for x in numbers if x < pivot]",
        "if k < len(below):",
        "return kth(below, k)",
        "return pivot",
    ]
    assert lines(
        "a.py",
        "def ff(n):\n    for x in n:\n        if x:\n            break\n    else:\n        "
        "return []\n    return\n",
        "ff(",
    ) == [
        "for x in n:",
        "if x:",
        "break",
        "return []",
    ]


def test_the_model_reads_the_file_around_the_line_and_not_the_line() -> None:
    gap = gaps("src/a.py", FILE, FAILS)[2]
    assert gap.before.startswith("SIZE = 3\n"), (
        "what follows the function stands first, and is read once for all lines"
    )
    assert gap.before.endswith("    below = [x for x in numbers if x < pivot]\n    ")
    assert gap.after == "\n        return kth(below, k)\n    else:\n        return pivot\n"
    assert "if k < len(below)" not in gap.before + gap.after
    assert gap.place == "src/a.py:12"
    assert FILE.split("\n")[11].strip() == "if k < len(below):"


def test_of_a_long_file_only_what_is_near_is_read() -> None:
    long = f"{'# above' * 1000}\n{FILE}{'# below' * 1000}\n"
    gap = gaps("a.py", long, FAILS)[0]
    assert len(gap.before) < excerpts.INFILL_ABOVE + excerpts.INFILL_BELOW + len(KTH)


def test_of_a_function_in_another_both_are_filled_in_without_their_heads() -> None:
    inner = '    def one(price):\n        """One."""\n        return price'
    outer = f"def total(prices):\n{inner}\n    return sum(map(one, prices))"
    assert lines("a.py", f"{outer}\n", "    one(1)\n    total([1])") == [
        "return price",
        "return sum(map(one, prices))",
    ]


def test_in_languages_of_braces_the_head_and_what_only_closes_are_left_alone() -> None:
    body = "  if (!one) {\n    return two;\n  } else {\n    return one - two;\n  }"
    text = f"// The sum.\nfunction added(one, two) {{\n{body}\n}}\n"
    wanted = ["if (!one) {", "return two;", "return one - two;"]
    assert lines("a.js", text, "added(1, 2)") == wanted
    rust = "pub fn added(\n    one: u32,\n    two: u32,\n) -> u32 {\n    one - two\n}\n"
    assert lines("a.rs", rust, "added(1, 2)") == ["one - two"]


def test_stubs_long_functions_and_what_cannot_be_read_have_none() -> None:
    assert lines("a.py", "def ff(x):\n    pass\n", "ff(1)") == []
    assert (
        lines("a.py", 'def ff(x):\n    """What."""\n    raise NotImplementedError\n', "ff(1)") == []
    )
    assert lines("a.py", "def ff(x):\n" + "    x = x + 1\n" * 70 + "    return x\n", "ff(1)") == []


def test_of_a_line_the_words_that_were_not_found_are_left_out_alone() -> None:
    content = "def ff(x):\n    x.add('add', x.add)\n    return x\n"
    (line, _) = gaps("a.py", content, "ff(1)")
    words = list(excerpts.word_infills(line, content, re.compile(r"\badd\b")))
    assert [(one.before[-4:], one.after[:6], one.place) for one in words] == [
        ("  x.", "('add'", "a.py:2:7"),
        (", x.", ")\n    ", "a.py:2:20"),
    ]
    assert [content[one.start : one.end] for one in words] == ["add", "add"]
