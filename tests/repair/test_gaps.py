"""The lines of a function that fails, each to be filled in by a model that has not seen it."""

from __future__ import annotations

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


def lines(path: str, content: str, output: str = "", request: str = "") -> list[str]:
    """What stands in the gaps."""
    found = excerpts.line_infills(path, content, output, request)
    return [one.part.split("\n")[one.gap.number].strip() for one in found]


def test_each_line_that_says_something_is_left_out_in_turn() -> None:
    assert lines("a.py", FILE, FAILS) == [
        "pivot = numbers[0]",
        "below = [x for x in numbers if x < pivot]",
        "if k < len(below):",
        "return kth(below, k)",
        "return pivot",
    ]
    assert lines("a.py", FILE, "it broke", "Mend `kth`.") == lines("a.py", FILE, FAILS)
    assert lines("a.py", FILE, "it broke", "Mend it.") == lines("a.py", FILE, FAILS), "there is but one"
    assert lines(
        "a.py",
        "def f(n):\n    for x in n:\n        if x:\n            break\n    else:\n        return []\n    return\n",
        "f(",
    ) == [
        "for x in n:",
        "if x:",
        "break",
        "return []",
    ]
    both = f"{FILE}\n\ndef other():\n    return 1\n"
    assert lines("a.py", both, "it broke", "Mend it.") == [], "nothing leads to a function"


def test_the_model_reads_the_file_around_the_line_and_not_the_line() -> None:
    gap = excerpts.line_infills("src/a.py", FILE, FAILS, "")[2].gap
    assert gap.before.startswith("SIZE = 3\n"), "what follows the function stands first, and is read once for all lines"
    assert gap.before.endswith("    below = [x for x in numbers if x < pivot]\n    ")
    assert gap.after == "\n        return kth(below, k)\n    else:\n        return pivot\n"
    assert "if k < len(below)" not in gap.before + gap.after
    assert gap.place == "src/a.py:12"
    assert FILE.split("\n")[11].strip() == "if k < len(below):"


def test_of_a_long_file_only_what_is_near_is_read() -> None:
    long = f"{'# above' * 1000}\n{FILE}{'# below' * 1000}\n"
    gap = excerpts.line_infills("a.py", long, FAILS, "")[0].gap
    assert len(gap.before) < excerpts.INFILL_ABOVE + excerpts.INFILL_BELOW + len(KTH)


def test_the_edit_stands_for_lines_that_are_in_the_file_once() -> None:
    twice = "def f(x):\n    x = x + 1\n    y = 2\n    x = x + 1\n    return x + y"
    for one in excerpts.line_infills("a.py", f"{twice}\n", "    assert f(1) == 5", ""):
        old = "\n".join(one.part.split("\n")[one.gap.start : one.gap.end])
        assert f"{twice}\n".count(old) == 1
        assert one.part.split("\n")[one.gap.number] in old


def test_of_a_function_in_another_both_are_filled_in_without_their_heads() -> None:
    inner = '    def one(price):\n        """One."""\n        return price'
    outer = f"def total(prices):\n{inner}\n    return sum(map(one, prices))"
    assert lines("a.py", f"{outer}\n", "    one(1)\n    total([1])") == ["return price", "return sum(map(one, prices))"]


def test_in_languages_of_braces_the_head_and_what_only_closes_are_left_alone() -> None:
    body = "  if (!one) {\n    return two;\n  } else {\n    return one - two;\n  }"
    text = f"// The sum.\nfunction added(one, two) {{\n{body}\n}}\n"
    wanted = ["if (!one) {", "return two;", "return one - two;"]
    assert lines("a.js", text, "added(1, 2)") == wanted
    rust = "pub fn added(\n    one: u32,\n    two: u32,\n) -> u32 {\n    one - two\n}\n"
    assert lines("a.rs", rust, "added(1, 2)") == ["one - two"]


def test_stubs_long_functions_and_what_cannot_be_read_have_none() -> None:
    assert lines("a.py", "def f(x):\n    pass\n", "f(1)") == []
    assert lines("a.py", 'def f(x):\n    """What."""\n    raise NotImplementedError\n', "f(1)") == []
    assert lines("a.py", "def f(x):\n" + "    x = x + 1\n" * 70 + "    return x\n", "f(1)") == []
    assert lines("a.py", "def f(x:\n    return x\n", "f(1)") == []


def test_behind_each_line_one_more_may_belong() -> None:
    plain, more = (excerpts.line_infills("a.py", FILE, FAILS, "", more=more)[2].gap for more in (False, True))
    assert (plain.number, plain.place, more.number, more.place) == (8, "a.py:12", 8, "a.py:12+")
    assert more.before.endswith("    if k < len(below):\n")
    assert more.after == "        return kth(below, k)\n    else:\n        return pivot\n"
