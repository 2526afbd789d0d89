"""Which examples in docstrings are tests."""

import subprocess
import sys
from pathlib import Path

import pytest

from fugu_cli.testing.doctests import MOST_DOCTEST_FILES, doctest_files
from fugu_cli.testing.runner_discovery import find_test_command
from tests.unit.conftest import lay


def function(docstring: str, head: str = "") -> str:
    return f'{head}def f(x):\n    """Twice.\n\n    {docstring}\n    """\n    return 2 * x\n'


ANSWERED = function(">>> f(1)\n    2")


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        (ANSWERED, True),
        (
            function(
                ">>> import math\n    >>> f(math.pi) > 6\n    True", "import os.path\nimport b\n"
            ),
            True,
        ),
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
def test_examples_count_where_they_say_what_they_answer_and_can_be_run(
    text: str, counts: bool, tmp_path: Path
) -> None:
    lay(tmp_path, {"a.py": text, "b.py": ""})
    assert doctest_files(tmp_path) == (["a.py"] if counts else [])


def test_where_many_files_hold_examples_none_counts(tmp_path: Path) -> None:
    lay(tmp_path, {f"a{number}.py": ANSWERED for number in range(MOST_DOCTEST_FILES + 1)})
    assert doctest_files(tmp_path) == []


@pytest.mark.parametrize(("factor", "code"), [(2, 0), (3, 1)])
def test_the_command_that_is_found_tells_right_code_from_wrong(
    factor: int, code: int, tmp_path: Path
) -> None:
    lay(tmp_path, {"a.py": ANSWERED.replace("2 * x", f"{factor} * x")})
    command = find_test_command(tmp_path, sys.executable)
    assert command is not None
    ran = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, check=False)
    assert ran.returncode == code
