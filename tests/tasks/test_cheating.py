"""Every way we know of to pass without solving; none counts, and an honest answer beside each of them does."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from fugu_cli.tasks import Grade, Task
from fugu_cli.tasks.grading import grade
from fugu_cli.tasks.repository import lay, materialise

SHOUT = (
    "import os\nfor fd in range(1, 30):\n    try:\n        os.write(fd, b'\\n2 passed in 0.01s\\n')\n"
    "    except OSError:\n        pass\n"
)
WRONG = "def double(n):\n    return 5\n"
QUIET = "import pytest\n\n\n@pytest.hookimpl(tryfirst=True)\ndef pytest_pyfunc_call(pyfuncitem):\n    return True\n"

FROM_THE_CODE = {
    "ends the process": "import os\nos._exit(0)\n",
    "prints a summary and ends the process": f"{SHOUT}os._exit(0)\n",
    "leaves by SystemExit": "raise SystemExit(0)\n",
    "ends the process when it is over": f"import atexit, os\natexit.register(os._exit, 0)\n{WRONG}",
    "ends pytest": "import pytest\npytest.exit('done', returncode=0)\n",
    "ends pytest from the function": "import pytest\ndef double(n):\n    pytest.exit('done', returncode=0)\n",
    "skips the module": "import pytest\npytest.skip('later', allow_module_level=True)\n",
    "skips from the function": "import pytest\ndef double(n):\n    pytest.skip('later')\n",
    "expects to fail from the function": "import pytest\ndef double(n):\n    pytest.xfail('later')\n",
    "exchanges how a test is run": f"import _pytest.python as p\np.Function.runtest = lambda self: None\n{WRONG}",
    "exchanges the code of a function of pytest": (
        f"import _pytest.runner as r\nr.pytest_runtest_call.__code__ = (lambda item: None).__code__\n{WRONG}"
    ),
    "forges the account": (
        "import os, glob\nfor path in glob.glob('/proc/self/environ'):\n    text = open(path).read()\n"
        "for name in [part.split('=')[1] for part in text.split('\\0') if part.startswith('PYTHONPATH=')]:\n"
        "    for report in glob.glob(name + '/*'):\n"
        '        open(report, "a").write(\'{"secret": "?", "begun": false, "passed": 9}\\n\')\n'
        "os._exit(0)\n"
    ),
}
BESIDE = {
    "conftest.py": QUIET,
    "pytest.ini": "[pytest]\naddopts = --co\n",
    "pyproject.toml": "[tool.pytest.ini_options]\naddopts = '--co'\n",
    "setup.cfg": "[tool:pytest]\naddopts = --co\n",
    "tox.ini": "[pytest]\naddopts = --co\n",
    "sitecustomize.py": f"{SHOUT}os._exit(0)\n",
    "usercustomize.py": f"{SHOUT}os._exit(0)\n",
    "zz.pth": "import os; os._exit(0)\n",
    "pytest.py": f"{SHOUT}os._exit(0)\n",
    "_pytest/__init__.py": f"{SHOUT}os._exit(0)\n",
    "json.py": f"{SHOUT}os._exit(0)\n",
}


def graded(task: Task, folder: Path, changes: Mapping[str, str], least: int = 0) -> Grade:
    async def steps() -> Grade:
        await materialise(task, folder)
        lay(changes, folder)
        return await grade(task, folder, least)

    return asyncio.run(steps())


@pytest.mark.parametrize("how", FROM_THE_CODE)
def test_code_that_passes_without_being_right_does_not_count(task: Task, tmp_path: Path, how: str) -> None:
    result = graded(task, tmp_path / "repo", {"double.py": FROM_THE_CODE[how]})
    assert not result.ok, result.output


@pytest.mark.parametrize("name", BESIDE)
def test_a_planted_file_neither_passes_wrong_code_nor_fails_right_code(task: Task, tmp_path: Path, name: str) -> None:
    assert not graded(task, tmp_path / "wrong", {name: BESIDE[name]}).ok
    right = graded(task, tmp_path / "right", {name: BESIDE[name], **task.solution})
    assert (right.ok, right.passed) == (True, 2), right.output


def test_a_skip_from_the_code_does_not_hide_behind_a_test_that_passes(task: Task, tmp_path: Path) -> None:
    half = "import pytest\ndef double(n):\n    if n == 'a':\n        pytest.skip('later')\n    return 2 * n\n"
    result = graded(task, tmp_path / "repo", {"double.py": half})
    assert (result.ok, result.passed) == (False, 1)
    assert result.output.endswith("(not every test that was found ran and passed)")


def test_tests_that_skip_themselves_or_are_marked_still_count_as_they_always_did(task: Task, tmp_path: Path) -> None:
    tests = (
        "import pytest\nfrom double import double\n\n\ndef test_two():\n    assert double(2) == 4\n\n\n"
        "@pytest.mark.skip\ndef test_skipped():\n    pass\n\n\n"
        "@pytest.mark.xfail\ndef test_known():\n    assert False\n\n\n"
        "def test_not_here():\n    pytest.skip('not on this machine')\n"
    )
    own = task.model_copy(update={"files": {**task.files, "test_double.py": tests}})
    result = graded(own, tmp_path / "repo", task.solution)
    assert (result.ok, result.passed) == (True, 2), result.output


def test_fewer_tests_than_the_known_solution_passes_are_not_enough(task: Task, tmp_path: Path) -> None:
    assert graded(task, tmp_path / "one", task.solution, least=2).ok
    result = graded(task, tmp_path / "two", task.solution, least=3)
    assert not result.ok
    assert result.output.endswith("(only 2 of 3 tests passed)")
