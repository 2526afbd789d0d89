"""Files in a small model's brief: code to be written anew, documents to be read, tests beside
stubs.
"""

import pytest

from fugu_cli.repair import intent, prompt
from fugu_cli.session.events import Asked

STUB = "def f():\n    pass\n"


def test_documents_are_quoted_before_tests_and_the_code_comes_last() -> None:
    files = {
        "a.py": "x = 1\n",
        "SPEC.md": "# What\n\n```python\nx == 2\n```\n",
        "test_a.py": "import a\n",
    }
    assert prompt.files_section(files, judged=True) == (
        "What `SPEC.md` says:\n> # What\n>\n> ```python\n> x == 2\n> ```\n\n"
        "The file `test_a.py`:\n```\nimport a\n```\n\n"
        "The file `a.py`:\n```\nx = 1\n```\n\n"
    )


def test_where_no_tests_judge_a_document_may_be_what_is_to_be_written() -> None:
    files = {"README.md": "# Name\n", "a.py": "x = 1\n"}
    assert prompt.files_section(files, judged=False) == (
        "The file `README.md`:\n```\n# Name\n```\n\nThe file `a.py`:\n```\nx = 1\n```\n\n"
    )


@pytest.mark.parametrize(("path", "most"), [("SPEC.md", 4200), ("test_a.py", 3200)])
def test_long_documents_and_tests_keep_their_beginning(path: str, most: int) -> None:
    lines = [f"line {number}" for number in range(1000)]
    told = prompt.files_section({path: "\n".join(lines), "a.py": "x\n"}, judged=True)
    assert "line 0\n" in told and "line 999" not in told
    assert len(told) < most + 2000


def test_the_empty_lines_that_a_file_begins_with_are_shown() -> None:
    assert (
        prompt.files_section({"a.py": "\n\nx = 1\n"}, judged=True)
        == "The file `a.py`:\n```\n\n\nx = 1\n```\n\n"
    )


def test_what_is_to_be_worked_on_is_code_and_no_test_and_no_document() -> None:
    assert prompt.code_in_words(["a.py", "SPEC.md", "tests/test_a.py"]) == "The code in `a.py`"
    assert prompt.code_in_words(["a.py", "b.py"]) == "The code in `a.py` or `b.py`"
    assert prompt.code_in_words(["test_a.py"]) == "The code that `test_a.py` asks for"
    assert prompt.code_in_words(["README.md"]) == "The code in `README.md`"
    assert prompt.code_in_words([]) == "The code"


def test_code_is_unfinished_where_it_is_a_stub_or_not_there_at_all() -> None:
    assert intent.is_unfinished({"a.py": STUB, "SPEC.md": "x"})
    assert intent.is_unfinished({"test_a.py": "import a\n"})
    assert not intent.is_unfinished({"a.py": "x = 1\n", "test_a.py": STUB})
    assert not intent.is_unfinished({})


@pytest.mark.parametrize(
    ("text", "judged", "files", "expected"),
    [
        ("Fix the failing tests.", True, ["a.py"], False),
        (
            "Implement a.py as SPEC.md says, so that `pytest test_a.py` passes",
            True,
            ["a.py", "SPEC.md"],
            False,
        ),
        ("Implement the missing b.py", True, ["a.py"], True),
        ("Write tests for f", True, ["a.py"], True),
        ("Add a docstring to f in a.py", False, ["pkg/a.py"], False),
        ("Create pkg/c.py with the same function as a.py", False, ["pkg/a.py"], True),
        ("Rename f to g everywhere", False, ["a.py"], True),
        ("Which file holds f?", False, ["a.py"], False),
        ("Create a README.md", False, [], False),
    ],
)
def test_other_files_than_those_shown_may_be_meant(
    text: str, judged: bool, files: list[str], expected: bool
) -> None:
    assert intent.is_open_ended(Asked(text=text), files, judged=judged) is expected


@pytest.mark.parametrize(
    ("text", "files", "expected"),
    [
        ("Create a README.md for this package", ["a.py", "b.py"], "README.md"),
        ("Create pkg/c.py with a function that adds", [], "pkg/c.py"),
        ("Write tests for f in tests/test_a.py", ["a.py"], "tests/test_a.py"),
        (
            "Add a test for f of a.py to tests/test_a.py",
            ["a.py", "tests/test_a.py"],
            "tests/test_a.py",
        ),
        ("Make `pytest tests/test_a.py` pass", ["a.py"], ""),
        ("Create pkg/c.py with the same function as a.py", ["pkg/a.py"], ""),
        ("Move f from a.py to b.py and c.py", [], ""),
        ("Add a docstring to f in a.py", ["pkg/a.py"], ""),
        ("What does b.py do?", ["a.py"], ""),
        ("Write a server for Node.js 20.1, e.g. with Express", ["a.js"], ""),
        ("Write a Makefile", ["a.c"], "Makefile"),
        ("create a .gitignore for python", ["a.py"], ".gitignore"),
        ("Add a Dockerfile.", ["a.py"], "Dockerfile"),
        ("write a readme", ["a.py", "README.rst"], "README.rst"),
        ("add a README section on f", ["a.py"], ""),
        ("add support for .NET", [], ""),
        ("Add Cart.remove, as list.remove does it", [], ""),
    ],
)
def test_the_one_file_that_is_named_and_not_there_is_to_be_made(
    text: str, files: list[str], expected: str
) -> None:
    request = Asked(text=text)
    assert intent.target_file(request, files) == expected
