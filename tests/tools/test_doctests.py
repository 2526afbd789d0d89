"""Which examples in docstrings are tests."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from fugu_cli.tools.run_examples import spelled

from fugu_cli.tools import run_examples
from fugu_cli.tools.doctests import MOST, PARSED, examples
from fugu_cli.tools.tests import find_test_command, for_request
from tests.tools.conftest import lay


def function(docstring: str, head: str = "") -> str:
    return f'{head}def f(x):\n    """Twice.\n\n    {docstring}\n    """\n    return 2 * x\n'


ANSWERED = function(">>> f(1)\n    2")


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        (ANSWERED, True),
        (function(">>> import math\n    >>> f(math.pi) > 6\n    True", "import os.path\nimport b\n"), True),
        (function(">>> f(None)\n    Traceback (most recent call last):\n    TypeError: no"), True),
        (function(">>> f(1) == 2"), False),
        (function(">>> f(1)\n    2\n    >>> f(2) == 4"), False),
        (function(">>> f(1"), False),
        (function(">>> f(1)\n    2", "import numpy\n"), False),
        (function(">>> f(1)\n    2", "from . import b\n"), False),
        (function("f(1) is 2"), False),
        ("x = '>>> 1'\n", False),
        ("def f(:\n    >>> 1\n", False),
    ],
)
def test_examples_count_where_they_say_what_they_answer_and_can_be_run(text: str, counts: bool, tmp_path: Path) -> None:
    lay(tmp_path, {"a.py": text, "b.py": ""})
    assert examples(tmp_path)[0] == (["a.py"] if counts else [])


def test_where_many_files_hold_examples_none_counts(tmp_path: Path) -> None:
    lay(tmp_path, {f"a{number}.py": ANSWERED for number in range(MOST + 1)})
    assert examples(tmp_path)[0] == []


@pytest.mark.parametrize(("factor", "code"), [(2, 0), (3, 1)])
def test_the_command_that_is_found_tells_right_code_from_wrong(factor: int, code: int, tmp_path: Path) -> None:
    lay(tmp_path, {"a.py": ANSWERED.replace("2 * x", f"{factor} * x")})
    command = find_test_command(tmp_path, sys.executable)
    assert command is not None
    ran = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, check=False)
    assert ran.returncode == code


UNWRITTEN = 'def f(x, k=1):\n    """Twice.\n\n    {}\n    """\n    {}\n'


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("f(1) == 2", [("f(1)", "2")]),
        ("f([1, 2]) ==> 'a'\n    f(2) => {'a': -1.50}", [("f([1, 2])", "'a'"), ("f(2)", "{'a': -1.5}")]),
        ("- f(1, k=2) \u279e (1, 2)", [("f(1, k=2)", "(1, 2)")]),
        ("for f(')') returns ['(', ')'].", [("f(')')", "['(', ')']")]),
        ("1. f(1) -> 4  # the square", [("f(1)", "4")]),
        (">>> f(1) == 2", [("f(1)", "2")]),
        ("Input: [1, 2]\n    Output: 3\n    Explanation: as it is", [("f([1, 2])", "3")]),
        ("Input: x = [[1], [2]], k = 3\n\n    Output: [1, 2]", [("f(x = [[1], [2]], k = 3)", "[1, 2]")]),
        ("f(1) is 2, f(y) == 3, f(1) == y", []),
        ("unlike f(1) == 2", []),
        ("g(1) == 2", []),
        ("f(1) -> 19 - 5 = 14", []),
        ("Input: a list\n    Output: 3", []),
    ],
)
def test_examples_that_are_spelled_out_count_for_a_function_that_is_not_written(
    words: str, expected: list[tuple[str, str]], tmp_path: Path
) -> None:
    text = UNWRITTEN.format(words, "raise NotImplementedError")
    (function,) = ast.parse(text).body
    assert isinstance(function, ast.FunctionDef)
    assert [(one.call, one.answer) for one in spelled(function)] == expected
    lay(tmp_path, {"a.py": text})
    assert examples(tmp_path)[1] == (["a.py::f"] if expected else [])


@pytest.mark.parametrize(
    ("body", "counts"),
    [
        ("pass", True),
        ("...", True),
        ('raise NotImplementedError("later")', True),
        ("return 2 * x", False),
        ("x += 1\n    raise NotImplementedError", False),
        ("raise ValueError", False),
    ],
)
def test_of_a_function_that_is_written_they_do_not_count(body: str, counts: bool, tmp_path: Path) -> None:
    lay(tmp_path, {"a.py": UNWRITTEN.format("f(1) == 2", body), "b.py": UNWRITTEN.format("", "pass")})
    assert examples(tmp_path)[1] == (["a.py::f"] if counts else [])


@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        ("return 2 * x", 0, "2 passed"),
        ("return x + 1", 1, "a.py:8: f(2)\nExpected:\n    4\nGot:\n    3\n1 failed, 1 passed"),
        ("return 2.0 * x", 0, "2 passed"),
        ("pass", 1, "Got nothing"),
        (
            "raise SystemExit(0)",
            1,
            'last):\n      File "{}/a.py", line 10, in f\n        raise SystemExit(0)\n    SystemExit: 0',
        ),
        ("return (", 1, 'a.py", line 10\n'),
        ("return 2 * x\nraise KeyError('a')", 1, 'a.py", line 11, in <module>\n'),
        ("return 2 * x\nraise SystemExit", 1, "ImportError: a.py ends the program when it is loaded"),
    ],
)
def test_their_command_tells_right_code_from_wrong_by_its_line(body: str, code: int, said: str, tmp_path: Path) -> None:
    """The command is found while nothing is written. What else is in the file does not count."""
    before = 'def g(x):\n    """g(1) == 2"""\n    return 1\n'
    lay(tmp_path, {"a.py": before + UNWRITTEN.format("f(1) == 2\n    f(2) == 4", "pass"), "random.py": ""})
    command = find_test_command(tmp_path, sys.executable)
    assert command is not None
    lay(tmp_path, {"a.py": before + UNWRITTEN.format("f(1) == 2\n    f(2) == 4", body)})
    ran = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, check=False, text=True)
    assert ran.returncode == code
    assert said.format(tmp_path) in ran.stdout + ran.stderr


def test_examples_of_both_kinds_are_run_by_one_command(tmp_path: Path) -> None:
    lay(tmp_path, {"pkg/a.py": ANSWERED, "b.py": "import pkg.a\n" + UNWRITTEN.format("f(1) == 2", "pass")})
    command = find_test_command(tmp_path, sys.executable)
    assert command is not None
    for body, code, said in (("return pkg.a.f(x)", 0, "2 passed"), ("return x", 1, "1 failed, 1 passed")):
        lay(tmp_path, {"b.py": "import pkg.a\n" + UNWRITTEN.format("f(1) == 2", body)})
        ran = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, check=False, text=True)
        assert (ran.returncode, ran.stdout.strip().split("\n")[-1]) == (code, said)
    lay(tmp_path, {"pkg/a.py": ANSWERED.replace("2 * x", "3 * x")})
    ran = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, check=False, text=True)
    assert "pkg/a.py:4: " in ran.stdout
    assert "Expected:\n    2\nGot:\n    3" in ran.stdout


@pytest.mark.parametrize(
    ("request_", "kept"),
    [
        ("Implement `f` in a.py", "c.py a.py::f"),
        ("Implement g", "c.py a.py::g"),
        ("Fix sub/b.py", "c.py sub/b.py::h"),
        ("Finish what is missing", "c.py a.py::f a.py::g sub/b.py::h"),
        ("Fix the crash in c.py", "c.py"),
    ],
)
def test_of_functions_to_be_written_only_those_the_request_is_about_are_tested(request_: str, kept: str) -> None:
    script = run_examples.__file__
    assert for_request(f"python3 {script} c.py a.py::f a.py::g sub/b.py::h", request_) == f"python3 {script} {kept}"
    assert for_request("pytest -q a.py::f", request_) == "pytest -q a.py::f"
    assert for_request(f"python3 {script} a.py::f", "Fix the crash in c.py") is None


def test_in_a_large_repository_only_files_with_prompts_are_parsed(tmp_path: Path) -> None:
    lay(tmp_path, {f"x{number}.py": "" for number in range(PARSED - 1)})
    lay(tmp_path, {"a.py": UNWRITTEN.format("f(1) == 2", "pass")})
    assert examples(tmp_path) == ([], ["a.py::f"])
    lay(tmp_path, {"b.py": ANSWERED})
    assert examples(tmp_path) == (["b.py"], [])


def test_what_one_example_names_is_there_for_the_next(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(function(">>> x = 3\n    >>> f(x)\n    6"))
    ended = subprocess.run(
        [sys.executable, run_examples.__file__, "a.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout.strip()) == (0, "2 passed")
