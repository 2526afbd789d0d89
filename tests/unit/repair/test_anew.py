"""A function without its body, for a small model to write anew."""

from __future__ import annotations

import pytest

from fugu_cli.repair import excerpts
from fugu_cli.repair.syntax import functions, is_stub

TOTAL = '''def total(prices):
    """What all prices come to."""
    found = 0
    return found - sum(prices)'''
OTHER = "def first(prices):\n    return prices[0]"
FILE = f"import math\n\n\n{TOTAL}\n\n\n{OTHER}\n"
LEFT = '''def total(prices):
    """What all prices come to."""
    raise NotImplementedError  # TODO: implement'''


def rewrite(path: str, content: str, function: str) -> tuple[str, str, str] | None:
    """Of the function of the file that stands on these lines."""
    found = [one for one in functions(path, content) if function in "\n".join(one.lines(content))]
    return excerpts.without_body(path, content, found[0]) if found else None


def body(path: str, content: str, function: str) -> str:
    new = rewrite(path, content, function)
    assert new is None or new[0].count(new[1]) == 1
    return new[0] if new else ""


def test_the_function_is_shown_where_something_says_what_it_is_to_do() -> None:
    assert rewrite("a.py", FILE, TOTAL) == (
        LEFT,
        "raise NotImplementedError  # TODO: implement",
        "",
    )
    assert is_stub("a.py", LEFT)
    assert rewrite("a.py", FILE, OTHER) is None, "nothing says what `first` is to do"


@pytest.mark.parametrize(
    ("above", "inside", "below"),
    [
        ("# The sum of two numbers.\n", "", ""),
        ("", "", '\n\n\n"""Adds numbers."""\n'),
        ('"""Adds numbers."""\n\n\n', "", ""),
        ("", '    """The sum\n\n    of both."""\n', ""),
    ],
)
def test_what_it_is_to_do_is_said_in_it_above_it_or_in_the_file(
    above: str, inside: str, below: str
) -> None:
    function = f"def added(one, two):\n{inside}    return one - two"
    left = f"def added(one, two):\n{inside}    raise NotImplementedError  # TODO: implement"
    new = rewrite("a.py", f"{above}{function}{below}", function)
    assert new is not None
    assert new[0].endswith(left)
    assert new[2] == ("" if above.startswith("#") else above.strip() or below.strip()), (
        "what is said elsewhere is told"
    )


def test_a_text_of_the_file_is_about_its_only_function_or_the_one_that_it_names() -> None:
    function = "def added(one, two):\n    return one - two"
    file = f"{function}\n\n\ndef other(one):\n    return one\n"
    assert body("a.py", f'"""Sums."""\n\n\n{file}', function) == ""
    assert body("a.py", f'"""Here `added` adds two numbers."""\n\n\n{file}', function) != ""


@pytest.mark.parametrize(
    ("path", "function", "left"),
    [
        (
            "a.js",
            "// The sum.\nfunction added(one, two) {\n  return one - two;\n}",
            '// The sum.\nfunction added(one, two) {\n  throw new Error("not implemented");  // '
            "TODO: implement\n}",
        ),
        (
            "a.rs",
            "/// The sum.\npub fn added(\n    one: u32,\n) -> u32 {\n    one\n}",
            "/// The sum.\npub fn added(\n    one: u32,\n) -> u32 {\n    todo!()  // TODO: "
            "implement\n}",
        ),
        (
            "a.go",
            "// The sum.\nfunc added(one int) int {\n\treturn one\n}",
            '// The sum.\nfunc added(one int) int {\n\tpanic("not implemented")  // TODO: '
            "implement\n}",
        ),
    ],
)
def test_other_languages_keep_the_comment_and_the_head(path: str, function: str, left: str) -> None:
    assert body(path, function, function) == left
    bare = function.partition("\n")[2]
    assert body(path, bare, bare) == "", "without a comment nothing says what it is to do"


def test_a_comment_without_marks_in_its_lines_says_what_the_function_is_to_do() -> None:
    head = "/*\n  The sum of both.\n  */\nconst added = (one, two) => {"
    left = f'{head}\n  throw new Error("not implemented");  // TODO: implement\n}}'
    assert (
        body("a.js", f"{head}\n  return one - two\n}}\n", f"{head}\n  return one - two\n}}") == left
    )
    bare = "@Cached\nint added(int one) {\n  return one;\n}"
    assert body("a.java", bare, bare) == "", "an attribute says nothing"


def test_a_method_keeps_its_place() -> None:
    method = '    @property\n    def total(self):\n        """The sum."""\n        return 1'
    left = method.replace("return 1", "raise NotImplementedError  # TODO: implement")
    assert body("a.py", f"class Cart:\n{method}\n", method) == left


def test_what_cannot_be_written_anew_stays_as_it_is() -> None:
    said = '    """The sum."""\n'
    cases = [
        f"def added(one):\n{said}" + "    one += 1\n" * (excerpts.MOST_LINES + 1),
        f"def added(one):\n{said}".rstrip(),
        "def added(one): return one  # the sum",
        LEFT,
        "x = 1",
        "",
    ]
    assert [body("a.py", case, case) for case in cases] == [""] * len(cases)
    assert (
        body(
            "a.js",
            "// The sum.\nconst added = (one) => one;",
            "// The sum.\nconst added = (one) => one;",
        )
        == ""
    )


@pytest.mark.parametrize(
    ("path", "function"),
    [
        ("a.py", 'def total(prices):\n    """What all come to."""\n    raise NotImplementedError'),
        ("a.py", 'def total(prices):\n    """What all come to."""\n    ...'),
        ("a.rs", '/// What all come to.\npub fn total() -> u32 {\n    todo!("sum")\n}'),
        (
            "a.js",
            "// What all come to.\nfunction total() {\n  throw new Error('Implement this');\n}",
        ),
    ],
)
def test_what_is_not_written_yet_is_not_shown_twice(path: str, function: str) -> None:
    assert body(path, f"{function}\n", function) == ""


def test_of_a_long_text_about_it_the_beginning_is_shown() -> None:
    function = "def added(one, two):\n    return one - two"
    many = "more\n" * 1000
    new = rewrite("a.py", f'{function}\n\n\n"""Adds.\n{many}"""\n', function)
    assert new is not None
    assert new[2].startswith('"""Adds.\nmore\n')
    assert len(new[2]) <= excerpts.MOST_DESCRIPTION
