"""The code of an answer, tried with the assertions of its question."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from fugu_cli.tools.try_answer import NO_SANDBOX, TRY_ANSWER, assertions, called

from fugu_cli.messages import Call
from fugu_cli.repair.fences import python_in
from fugu_cli.sandbox.box import Rules
from fugu_cli.tools import Result, try_answer
from fugu_cli.tools.toolbox import Toolbox
from fugu_cli.tools.workspace import Workspace
from tests.sandbox.conftest import Fixed, working

BOX = Toolbox((TRY_ANSWER,))
SAYS = ["assert twice(2) == 4", "assert twice(0) == 0"]


@pytest.fixture
def confined(tmp_path: Path) -> Workspace:
    root = tmp_path / "work"
    root.mkdir()
    box = Fixed(root, tmp_path / "store", Rules())
    box.means = working("landlock")
    return Workspace(root, tmp_path / "store", box=box)


def tried(workspace: Workspace, code: str, says: list[str] = SAYS) -> Result:
    call = Call.make("1", "try_answer", code=code, assertions=says)
    return asyncio.run(BOX.run(call, workspace, lambda text: None))


def test_assertions_are_found_where_they_stand_with_their_imports() -> None:
    request = (
        "Show the code of twice.\n```python\nfrom math import isclose\nassert isclose(twice(2), 4)\n"
        "assert twice(\n    3) == 6, 'six'\n```\nassert is a word here.\nimport it later\nfrom here on, nothing\n"
    )
    assert assertions(request) == (
        "from math import isclose",
        "assert isclose(twice(2), 4)",
        "assert twice(3) == 6, 'six'",
    )
    assert called(assertions(request)) == ("twice",)


@pytest.mark.parametrize(
    "request_",
    [
        "",
        "Show the code of twice.",
        "assert that twice(2) is 4",
        "assert 1 == 1",
        "assert len([]) == 0",
        "  assert twice(2) == 4",
        "assert twice(2 == 4",
        "assert twice(1)\n" * (try_answer.MOST + 1),
        "assert " + "(" * 500,
    ],
)
def test_what_says_nothing_of_the_asked_code_is_no_assertion(request_: str) -> None:
    assert assertions(request_) == ()


def test_the_code_of_an_answer_is_its_longest_block_of_python() -> None:
    answer = (
        "Run `x`:\n```sh\npip install something-with-a-long-name --and-options\n```\n```python\nx = 1\ny = 2\n```\n"
    )
    assert python_in(answer) == "x = 1\ny = 2\n"
    assert python_in("```\n# nothing\n```\n```python\ndef f(:\n```") == ""
    assert python_in("No code.") == ""
    used = "```python\ndef twice(x):\n    return 2 * x\n```\nSo:\n```python\nfor one in range(99):\n    twice(one)\n```"
    assert python_in(used, ["twice"]) == "def twice(x):\n    return 2 * x\n"


def test_code_that_does_what_the_question_says_passes(confined: Workspace) -> None:
    loud = "print('loading')\ndef twice(x):\n    print(x)\n    return 2 * x\nif __name__ == '__main__':\n    1 / 0\n"
    result = tried(confined, loud)
    assert (result.ok, result.text) == (True, "loading\n2 passed")


def test_the_imports_beside_the_assertions_are_there_for_them(confined: Workspace) -> None:
    says = ["from math import isclose", "assert isclose(twice(2), 4)"]
    result = tried(confined, "def twice(x):\n    return 2 * x\n", says)
    assert (result.ok, result.text) == (True, "2 passed")


def test_the_code_does_not_find_the_mark_of_its_run_in_what_was_sent(confined: Workspace) -> None:
    reads = "import os\nos.lseek(0, 0, 0)\nprint(os.read(0, 100000).decode())\nos._exit(0)\n"
    result = tried(confined, reads, ["assert twice(2) == 4"])
    assert not result.ok
    assert "token" not in result.text


def test_what_does_not_hold_is_told_and_nothing_is_left_in_the_repository(confined: Workspace) -> None:
    result = tried(
        confined, "open('left', 'w').close()\ndef twice(x):\n    return x * x or 1\n", [*SAYS, "twice(None)"]
    )
    assert not result.ok
    assert "assert twice(0) == 0" in result.text
    assert "TypeError: unsupported operand" in result.text
    assert 'File "answer.py", line 3, in twice' in result.text
    assert "2 failed, 1 passed\n[exit code 1]" in result.text
    assert "assert twice(2) == 4" not in result.text
    assert list(confined.root.iterdir()) == []


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("import os\nprint('2 passed', flush=True)\nos._exit(0)", "[exit code 0]"),
        ("import sys\nsys.exit(0)", "ends the program when it is loaded"),
        ("import nowhere", 'Traceback (most recent call last):\n  File "answer.py", line 1, in <module>\n'),
        ("import nowhere", "No module named 'nowhere'"),
        ("def twice(x):\n    import os\n    os._exit(0)", "[exit code 0]"),
        ("def thrice(x):\n    return 3 * x", "name 'twice' is not defined"),
    ],
)
def test_code_that_ends_early_or_does_not_load_does_not_pass(confined: Workspace, code: str, told: str) -> None:
    result = tried(confined, code)
    assert (result.ok, told in result.text) == (False, True), result.text


def test_code_that_never_ends_is_ended(confined: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(try_answer, "SECONDS", 2.0)
    result = tried(confined, "while True:\n    pass")
    assert (result.ok, result.text) == (False, "[It did not end within 2 s and was ended.]")


def test_without_a_sandbox_nothing_runs(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path, tmp_path / "store")
    result = tried(workspace, f"open({str(tmp_path / 'ran')!r}, 'w')")
    assert (result.ok, result.text) == (False, NO_SANDBOX)
    assert not (tmp_path / "ran").exists()
