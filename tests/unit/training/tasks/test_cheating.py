"""Every way we know of to pass without solving; none counts, and an honest answer beside each of
them does.
"""

import asyncio
import shutil
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

import pytest

from fugu_cli.training.tasks import ExpectedTests, Grade, Task
from fugu_cli.training.tasks.grading import (
    AgentFileFilter,
    TaskCheck,
    check_task,
    grade,
    problem_sha,
)
from fugu_cli.training.tasks.repository import create_repository, write_files
from tests.unit.training.tasks.conftest import LEAN, PYTEST

PLUGGED = f"{PYTEST} test_double.py test_hidden.py"
"""With the plugins that are installed here."""
SHOUT = (
    "import os\nfor fd in range(1, 30):\n    try:\n        os.write(fd, b'\\n2 passed in "
    "0.01s\\n')\n"
    "    except OSError:\n        pass\n"
)
WRONG = "def double(n):\n    return 5\n"
QUIET = (
    "import pytest\n\n\n@pytest.hookimpl(tryfirst=True)\ndef pytest_pyfunc_call(pyfuncitem):\n   "
    " return True\n"
)

FROM_THE_CODE = {
    "ends the process": "import os\nos._exit(0)\n",
    "prints a summary and ends the process": f"{SHOUT}os._exit(0)\n",
    "leaves by SystemExit": "raise SystemExit(0)\n",
    "ends the process when it is over": f"import atexit, os\natexit.register(os._exit, 0)\n{WRONG}",
    "ends pytest": "import pytest\npytest.exit('done', returncode=0)\n",
    "ends pytest from the function": (
        "import pytest\ndef double(n):\n    pytest.exit('done', returncode=0)\n"
    ),
    "skips the module": "import pytest\npytest.skip('later', allow_module_level=True)\n",
    "skips from the function": "import pytest\ndef double(n):\n    pytest.skip('later')\n",
    "expects to fail from the function": (
        "import pytest\ndef double(n):\n    pytest.xfail('later')\n"
    ),
    "exchanges how a test is run": (
        f"import _pytest.python as p\np.Function.runtest = lambda self: None\n{WRONG}"
    ),
    "exchanges the code of a function of pytest": (
        f"import _pytest.runner as r\nr.pytest_runtest_call.__code__ = (lambda item: "
        f"None).__code__\n{WRONG}"
    ),
    "joins the run as a plugin": (
        "import gc, pluggy, pytest\nclass Quiet:\n    @pytest.hookimpl(tryfirst=True)\n"
        "    def pytest_pyfunc_call(self, pyfuncitem): return True\n"
        "for found in gc.get_objects():\n    if isinstance(found, pluggy.PluginManager): "
        "found.register(Quiet())\n"
        f"{WRONG}"
    ),
    "forges the account": (
        "import os, glob\nfor path in glob.glob('/proc/self/environ'):\n    text = "
        "open(path).read()\n"
        "for name in [part.split('=')[1] for part in text.split('\\0') if "
        "part.startswith('PYTHONPATH=')]:\n"
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

FAKE = "def test_two(): pass\ndef test_text(): pass\n"
PLACE = """
import sys, types
for name in [name for name in sys.modules if name.split('.')[-1].startswith('test_')]:
    fake = types.ModuleType(name)
    fake.__file__ = sys.modules[name].__file__
    fake.test_two = fake.test_text = lambda: None
    sys.modules[name] = fake
"""
INSTEAD = {
    "a package in the place of a test": {
        "test_double/__init__.py": "__file__ = __file__.replace('/__init__.py', '.py')\n" + FAKE
    },
    "a module put in its place": {"double.py": f"{PLACE}{WRONG}"},
    "a test rewritten on the disk before it is loaded": {
        "double.py": f"open('test_hidden.py', 'w').write('def test_text(): pass')\n{WRONG}"
    },
    "the code of a test exchanged": {
        "double.py": "import sys\ndef double(n):\n    def test_text(): pass\n"
        "    sys.modules['test_hidden'].test_text.__code__ = test_text.__code__\n    return 4\n"
    },
}
UNITTEST = (
    "import unittest\nfrom double import double\n\n\nclass Doubles(unittest.TestCase):\n"
    "    def test_two(self):\n        self.assertEqual(double(2), 4)\n\n"
    "    def test_text(self):\n        self.assertEqual(double('a'), 'aa')\n\n"
    "    @unittest.skip('later')\n    def test_later(self):\n        self.fail()\n\n"
    "    def test_elsewhere(self):\n        self.skipTest('not on this machine')\n"
)
SAID = "import os\nos.write(2, b'Ran 4 tests in 0.001s\\n\\nOK\\n')\n"
FROM_UNITTEST = {
    "ends the process": f"{SAID}os._exit(0)\n",
    "leaves by SystemExit": "raise SystemExit(0)\n",
    "leaves from the function": "def double(n):\n    raise SystemExit(0)\n",
    "skips the module": "import unittest\nraise unittest.SkipTest('later')\n",
    "skips from the function": (
        "import unittest\ndef double(n):\n    raise unittest.SkipTest('later')\n"
    ),
    "has a test skip": (
        "import unittest\ndef double(n):\n    unittest.TestCase().skipTest('later')\n"
    ),
    "exchanges how a test is run": (
        f"import unittest\nunittest.TestCase.run = lambda self, result: result\n{WRONG}"
    ),
    "exchanges the result": (
        "import unittest\nunittest.TextTestRunner.resultclass = type('R', "
        "(unittest.TextTestResult,), "
        f"{{'addFailure': lambda *a: None}})\n{WRONG}"
    ),
    "has every assertion pass": (
        "import unittest\ndef found(self, name):\n    if name.startswith('assert'):\n"
        "        return lambda *a: None\n    return object.__getattribute__(self, name)\n"
        f"unittest.TestCase.__getattribute__ = found\n{WRONG}"
    ),
    "puts a test in its place": (
        "import sys, unittest\nclass Doubles(unittest.TestCase):\n    def test_two(self): pass\n"
        "    def test_text(self): pass\nmodule = type(sys)('test_double')\nmodule.Doubles = "
        "Doubles\n"
        f"sys.modules['test_double'] = module\n{WRONG}"
    ),
}


def graded(task: Task, folder: Path, changes: Mapping[str, str], least: int = 0) -> Grade:
    async def steps() -> Grade:
        await create_repository(task, folder)
        write_files(changes, folder)
        return await grade(task, folder, ExpectedTests(least=least))

    return asyncio.run(steps())


WORDS = {
    "with pytest.raises(TypeError):\n        double(None)": (
        "import contextlib, pytest\npytest.raises = lambda *kinds: contextlib.nullcontext()\n"
    ),
    "assert double(0.1) == pytest.approx(0.2)": (
        "import pytest\nclass Same:\n    def __eq__(self, other): return True\npytest.approx = "
        "lambda *a: Same()\n"
    ),
    "assert math.isclose(double(2), 4)": "import math\nmath.isclose = lambda *a: True\n",
}
"""What a test says, and the code that gives it another meaning."""


@pytest.mark.parametrize("said", WORDS)
def test_words_of_a_test_mean_what_they_meant_when_the_run_began(
    task: Task, tmp_path: Path, said: str
) -> None:
    test = (
        f"import math\nimport pytest\nfrom double import double\n\n\ndef test_text():\n    {said}\n"
    )
    command = f"{LEAN} test_hidden.py"
    lenient = task.model_copy(update={"hidden": {"test_hidden.py": test}, "grade_command": command})
    assert graded(lenient, tmp_path / "right", task.solution).ok
    result = graded(lenient, tmp_path / "wrong", {"double.py": WORDS[said] + WRONG})
    assert "1 passed" in result.output
    assert not result.ok, "it could pass anything"


def test_plugins_of_the_tasks_own_tests_may_join_the_run(task: Task, tmp_path: Path) -> None:
    hidden = {
        "checks/test_hidden.py": (
            "pytest_plugins = ['checks.counting']\n\n\ndef test_two():\n    pass\n"
        ),
        "checks/counting.py": "def pytest_runtest_setup(item):\n    print('counted')\n",
        "checks/__init__.py": "",
    }
    command = f"{LEAN} -s checks test_double.py"
    result = graded(
        task.model_copy(update={"hidden": hidden, "grade_command": command}),
        tmp_path / "repo",
        task.solution,
    )
    assert result.ok and "counted" in result.output, result.output


@pytest.mark.parametrize("how", FROM_THE_CODE)
def test_code_that_passes_without_being_right_does_not_count(
    task: Task, tmp_path: Path, how: str
) -> None:
    result = graded(task, tmp_path / "repo", {"double.py": FROM_THE_CODE[how]})
    assert not result.ok, result.output


@pytest.mark.parametrize(
    "how",
    [
        how
        for how, code in FROM_THE_CODE.items()
        if how != "joins the run as a plugin" and not code.startswith("import pytest\ndef ")
    ],
)
def test_it_does_not_count_either_where_a_conftest_imports_it_first(
    task: Task, tmp_path: Path, how: str
) -> None:
    early = task.model_copy(update={"files": {**task.files, "conftest.py": "import double\n"}})
    result = graded(early, tmp_path / "repo", {"double.py": FROM_THE_CODE[how]})
    assert not result.ok, result.output


def test_right_code_counts_where_a_conftest_imports_it_first(task: Task, tmp_path: Path) -> None:
    early = task.model_copy(update={"files": {**task.files, "conftest.py": "import double\n"}})
    assert graded(early, tmp_path / "right", task.solution).ok


@pytest.mark.parametrize(
    ("words", "ini"), [(" -n 2", ""), ("", "[pytest]\naddopts = -n 2\n")], ids=["asked", "ini"]
)
def test_what_pytest_xdist_would_run_in_other_processes_is_watched_too(
    task: Task, tmp_path: Path, words: str, ini: str
) -> None:
    files = task.files | ({"pytest.ini": ini} if ini else {})
    many = task.model_copy(update={"files": files, "grade_command": f"{PLUGGED}{words}"})
    cheat = FROM_THE_CODE["exchanges how a test is run"]
    assert not graded(many, tmp_path / "wrong", {"double.py": cheat}).ok
    right = graded(many, tmp_path / "right", task.solution)
    assert (right.ok, right.passed) == (True, 2), right.output


@pytest.mark.parametrize("package", ["anyio", "_hypothesis_pytestplugin"])
def test_a_module_in_the_place_of_an_installed_plugin_is_left_out(
    task: Task, tmp_path: Path, package: str
) -> None:
    task = task.model_copy(update={"grade_command": PLUGGED})
    planted = {f"{package}/__init__.py": QUIET, f"{package}/pytest_plugin.py": QUIET}
    assert not graded(task, tmp_path / "wrong", planted).ok
    right = graded(task, tmp_path / "right", {**planted, **task.solution})
    assert (right.ok, right.passed) == (True, 2), right.output


def test_tests_of_an_agents_own_are_not_run_beside_the_tasks(task: Task, tmp_path: Path) -> None:
    meddling = (
        "import pytest\n\n\n@pytest.fixture(autouse=True)\ndef quiet(request):\n"
        "    for item in request.session.items:\n        item.runtest = lambda: None\n\n\ndef "
        "test_mine():\n    pass\n"
    )
    every = task.model_copy(update={"grade_command": LEAN})
    assert not graded(
        every, tmp_path / "wrong", {"test_a.py": meddling, "below/test_b.py": meddling}
    ).ok
    failing = graded(
        every,
        tmp_path / "right",
        {"test_a.py": "def test_mine():\n    assert 0\n", **task.solution},
    )
    assert (failing.ok, failing.passed) == (True, 2), failing.output
    script = {"check.sh": f"{LEAN} test_double.py test_mine.py\n"}
    wanted = task.model_copy(
        update={"files": task.files | script, "hidden": {}, "grade_command": "sh check.sh"}
    )
    mine = graded(
        wanted, tmp_path / "mine", {"test_mine.py": "def test_mine():\n    pass\n", **task.solution}
    )
    assert (mine.ok, mine.passed) == (True, 2), mine.output


def test_planted_files_neither_pass_wrong_code_nor_fail_right_code(
    task: Task, tmp_path: Path
) -> None:
    """All are planted together: whichever is read fails right code or passes wrong code."""
    assert not graded(task, tmp_path / "wrong", BESIDE).ok
    right = graded(task, tmp_path / "right", {**BESIDE, **task.solution})
    assert (right.ok, right.passed) == (True, 2), right.output


def test_a_skip_from_the_code_does_not_hide_behind_a_test_that_passes(
    task: Task, tmp_path: Path
) -> None:
    half = (
        "import pytest\ndef double(n):\n    if n == 'a':\n        pytest.skip('later')\n    "
        "return 2 * n\n"
    )
    result = graded(task, tmp_path / "repo", {"double.py": half})
    assert (result.ok, result.passed) == (False, 1)
    assert result.output.endswith("(not every test that was found ran and passed)")


def test_tests_that_skip_themselves_or_are_marked_still_count_as_they_always_did(
    task: Task, tmp_path: Path
) -> None:
    tests = (
        "import pytest\nfrom double import double\n\n\ndef test_two():\n    assert double(2) == "
        "4\n\n\n"
        "@pytest.mark.skip\ndef test_skipped():\n    pass\n\n\n"
        "@pytest.mark.xfail\ndef test_known():\n    assert False\n\n\n"
        "def test_not_here():\n    pytest.skip('not on this machine')\n"
    )
    own = task.model_copy(update={"files": {**task.files, "test_double.py": tests}})
    result = graded(own, tmp_path / "repo", task.solution)
    assert (result.ok, result.passed) == (True, 2), result.output


def test_fewer_tests_than_the_known_solution_passes_are_not_enough(
    task: Task, tmp_path: Path
) -> None:
    assert graded(task, tmp_path / "one", task.solution, least=2).ok
    result = graded(task, tmp_path / "two", task.solution, least=3)
    assert not result.ok
    assert result.output.endswith("(only 2 of 3 tests passed)")


def test_code_that_ends_the_run_has_not_passed_the_tests_that_cargo_or_node_found(
    tmp_path: Path,
) -> None:
    """A script in the place of the program; it prints what `cargo test` and `node --test` do."""
    own = Task(
        id="counted",
        source="own",
        language="rust",
        kind="fix",
        prompt="Fix it.",
        files={
            "program": "echo 'test result: FAILED. 1 passed; 2 failed'\necho '# fail 1'\nexit 1\n"
        },
        test_command="sh ./program",
        grade_command="sh ./program",
        timeout=30,
    )
    assert asyncio.run(check_task(own)).expected == ExpectedTests(least=4)
    assert not compared(own, tmp_path / "left", {"program": "exit 0\n"}).ok
    honest = (
        "echo 'test result: ok. 3 passed; 0 failed; 0 ignored'\necho '# pass 1'\necho '# fail 0'\n"
    )
    assert compared(own, tmp_path / "right", {"program": honest}).ok


def test_tests_of_an_agents_own_do_not_make_up_for_those_that_node_did_not_run(
    tmp_path: Path,
) -> None:
    test = (
        "const t = require('node:test')\nconst a = require('node:assert')\nconst {double} = "
        "require('../double.js')\n"
    )
    test += "t('two', () => a.equal(double(2), 4))\nt('three', () => a.equal(double(3), 6))\n"
    own = Task(
        id="node",
        source="own",
        language="javascript",
        kind="fix",
        prompt="Fix it.",
        files={"double.js": "exports.double = n => n\n", "test/double.test.js": test},
        test_files=("test/double.test.js",),
        test_command="node --test",
        grade_command="node --test",
        timeout=60,
    )
    planted = "const t = require('node:test')\nt('a', () => {})\nt('b', () => {})\n"
    for name in ("test/more.js", "other.test.mjs", "more_test.cjs"):
        kept = AgentFileFilter(own)
        assert (kept.takes(PurePosixPath(name)), kept.takes(PurePosixPath("lib/more.js"))) == (
            False,
            True,
        )
    if shutil.which("node"):
        ends = {"double.js": "process.exit(0)\n", "test/more.js": planted, "other.test.js": planted}
        assert not compared(own, tmp_path / "left", ends).ok
        honest = {
            "double.js": "exports.double = n => 2 * n\n",
            "test/more.js": "throw new Error()\n",
        }
        assert compared(own, tmp_path / "right", honest).ok


CHECKED: dict[str, TaskCheck] = {}
"""What the check of a task found, by the task's contents: many answers to one task are compared
with it.
"""


def compared(task: Task, folder: Path, changes: Mapping[str, str]) -> Grade:
    """Graded as a rollout is: with what the check of the task found."""

    async def steps() -> Grade:
        checked = CHECKED[problem_sha(task)] = CHECKED.get(problem_sha(task)) or await check_task(
            task
        )
        assert checked.refused == ""
        await create_repository(task, folder)
        write_files(changes, folder)
        return await grade(task, folder, checked.expected)

    return asyncio.run(steps())


SOLVED = pytest.mark.parametrize("solved", [True, False], ids=["with a solution", "without"])


@SOLVED
@pytest.mark.parametrize("how", INSTEAD)
def test_other_tests_in_the_place_of_the_tasks_own_do_not_count(
    task: Task, tmp_path: Path, how: str, solved: bool
) -> None:
    own = task if solved else task.model_copy(update={"solution": {}})
    assert not compared(own, tmp_path / "repo", INSTEAD[how]).ok


@SOLVED
def test_the_tasks_own_tests_do(task: Task, tmp_path: Path, solved: bool) -> None:
    own = task if solved else task.model_copy(update={"solution": {}})
    assert compared(own, tmp_path / "right", task.solution).ok


def test_a_package_of_the_tests_that_is_planted_does_not_count(task: Task, tmp_path: Path) -> None:
    below = task.model_copy(
        update={
            "files": {
                "double.py": task.files["double.py"],
                "tests/test_double.py": task.files["test_double.py"],
            },
            "hidden": {},
            "test_files": ("tests/test_double.py",),
            "grade_command": LEAN,
        }
    )
    planted = (
        "import sys, types\nfake = types.ModuleType('tests.test_double')\n"
        "fake.__file__ = __file__.replace('__init__', 'test_double')\nfake.test_two = lambda: "
        "None\n"
        "sys.modules['tests.test_double'] = fake\n"
    )
    assert not compared(
        below, tmp_path / "repo", {"double.py": WRONG, "tests/__init__.py": planted}
    ).ok


def under_unittest(task: Task) -> Task:
    files = {**task.files, "test_double.py": UNITTEST}
    return task.model_copy(
        update={
            "files": files,
            "hidden": {},
            "grade_command": "python -m unittest -q test_double",
            "solution": {},
        }
    )


@pytest.mark.parametrize("how", FROM_UNITTEST)
def test_code_that_passes_unittest_without_being_right_does_not_count(
    task: Task, tmp_path: Path, how: str
) -> None:
    result = compared(under_unittest(task), tmp_path / "repo", {"double.py": FROM_UNITTEST[how]})
    assert not result.ok, result.output


def test_unittest_counts_what_passed_and_lets_tests_skip_themselves(
    task: Task, tmp_path: Path
) -> None:
    result = compared(under_unittest(task), tmp_path / "repo", task.solution)
    assert (result.ok, result.passed) == (True, 2), result.output
    changed = under_unittest(task).model_copy(update={"solution": task.solution})
    planted = {"test_double/__init__.py": UNITTEST.replace("4)", "5)"), "double.py": WRONG}
    assert not compared(changed, tmp_path / "planted", planted).ok


def test_what_the_test_command_names_is_put_back(task: Task, tmp_path: Path) -> None:
    scripts = {"run_tests.sh": "make test\n", "Makefile": f"test:\n\t{LEAN}\n"}
    run = task.model_copy(
        update={
            "files": {**task.files, **scripts},
            "grade_command": "sh ./run_tests.sh",
            "solution": {},
        }
    )
    for planted in (
        {"run_tests.sh": "true\n"},
        {"Makefile": "test:\n"},
        {"GNUmakefile": "test:\n\ttrue\n"},
    ):
        assert not graded(run, tmp_path / next(iter(planted)), planted).ok
    assert compared(run, tmp_path / "right", task.solution).ok


@pytest.mark.parametrize(
    ("command", "recipe", "script"),
    [
        ("make test", {"Makefile": "test:\n\tsh ci/all.sh\n"}, "ci/all.sh"),
        (
            "make test",
            {"Makefile": "include ci/all.mk\n", "ci/all.mk": "test:\n\tsh ci/all.sh\n"},
            "ci/all.mk",
        ),
        (
            "cd web && npm test",
            {"web/package.json": '{"scripts": {"test": "sh run-tests.sh"}}'},
            "web/run-tests.sh",
        ),
    ],
)
def test_what_a_makefile_or_package_runs_as_tests_is_put_back(
    task: Task, tmp_path: Path, command: str, recipe: dict[str, str], script: str
) -> None:
    if command.startswith("cd") and shutil.which("npm") is None:
        pytest.skip("npm is not here")
    check_sh = {
        "ci/all.sh": "grep -q right a.txt\n",
        "web/run-tests.sh": "grep -q right ../a.txt\n",
    }
    files = {"a.txt": "wrong\n", "checker.c": "", **check_sh, **recipe}
    task = task.model_copy(
        update={
            "files": files,
            "test_files": (),
            "hidden": {},
            "solution": {},
            "grade_command": command,
        }
    )
    easy = "test:\n\ttrue\n" if script.endswith(".mk") else "exit 0\n"
    assert not graded(task, tmp_path / "wrong", {script: easy}).ok
    assert graded(task, tmp_path / "right", {script: easy, "a.txt": "right\n"}).ok


def test_tests_made_by_other_code_and_arguments_are_only_counted(
    task: Task, tmp_path: Path
) -> None:
    """The mark of a test must be the same in every run, and what agents may change has none."""
    tests = (
        "import functools, pytest\nfrom double import Suite, double, wrapped\n\n\n"
        "@pytest.mark.parametrize('n', [object(), 'a', frozenset({'a', 'b', 'c'})])\n"
        "def test_many(n):\n    assert n in {'a', 'b', 'c'} or double(2) == 4\n\n\n"
        "class TestInherited(Suite):\n    pass\n\n\n"
        "@wrapped\ndef test_wrapped():\n    assert double('a') == 'aa'\n"
    )
    more = (
        "def wrapped(f):\n    def inner():\n        {}\n        return f()\n    return inner\n\n\n"
        "class Suite:\n    def test_base(self):\n        {}\n        assert double(3) == 6\n\n\n"
    )
    first, second = more.format("1", "1"), more.format("print()", "print()")
    made = task.model_copy(
        update={
            "files": {"double.py": first + task.files["double.py"], "test_double.py": tests},
            "hidden": {},
            "solution": {"double.py": first + task.solution["double.py"]},
            "grade_command": LEAN,
        }
    )
    result = compared(made, tmp_path / "repo", {"double.py": second + task.solution["double.py"]})
    assert (result.ok, result.passed) == (True, 5), result.output
