"""Test runs that tell nothing of the tests."""

import pytest

from fugu_cli.session.events import TestReport
from fugu_cli.session.outcome import TestRun
from fugu_cli.session.state import SessionState
from fugu_cli.testing.unable_runs import reason_not_run


@pytest.mark.parametrize(
    ("code", "output", "runner", "reason"),
    [
        (127, "bash: line 1: go: command not found\n", "go", "go: command not found"),
        (127, "> x@1.0.0 test\n> jest\n\nsh: 1: jest: not found\n", "node", "jest: not found"),
        (1, "/usr/bin/python3: No module named pytest\n", "pytest", "No module named pytest"),
        (1, "/opt/.venv/bin/python3: No module named django\n", "", "No module named django"),
        (2, "python: can't open file '/x/manage.py': [Errno 2] No such file\n", "", "can't open"),
        (2, "make: *** No rule to make target 'test'.  Stop.\n", "", "No rule to make target"),
        (2, "make: pytest: No such file or directory\n", "", "pytest: No such file"),
        (101, "error: no such command: `nextest`\n\nhelp: view all\n", "cargo", "no such command"),
        (1, 'npm error Missing script: "test"\n', "", "Missing script"),
        (1, "Error: Cannot find module '/x/node_modules/.bin/jest'\n  at y\n", "", "Cannot find"),
        (4, "ImportError while loading conftest\nE   boom\n", "pytest", "exit code 4"),
        (
            1,
            "[ERROR] Could not transfer artifact a:b from central\n",
            "maven",
            "Could not transfer",
        ),
        (None, "started\n", "", "did not finish in 300 s"),
    ],
)
def test_a_run_in_which_no_test_was_counted_says_why(
    code: int | None, output: str, runner: str, reason: str
) -> None:
    assert reason in reason_not_run(code, output, 300.0, runner, counted=False)


@pytest.mark.parametrize(
    ("code", "output", "runner", "counted"),
    [
        (0, "1 passed\n", "pytest", True),
        (1, "1 failed\n", "pytest", True),
        (1, "E   ModuleNotFoundError: No module named 'pytest'\n1 failed\n", "pytest", True),
        (5, "no tests ran\n", "pytest", False),
        (101, "error: could not compile `a`\n", "cargo", False),
        (2, "make: *** No rule to make target 'a.c', needed by 'a.o'.  Stop.\n", "", False),
        (1, "Error: Cannot find module './helpers'\n", "", False),
    ],
)
def test_a_run_that_tells_something_is_not_excused(
    code: int, output: str, runner: str, counted: bool
) -> None:
    assert reason_not_run(code, output, 1.0, runner, counted=counted) == ""


def test_where_a_report_names_failures_text_decides_nothing() -> None:
    report = TestReport(passed=3, failed=2, failing=("a", "b"), by_id=True)
    run = TestRun(False, "running 0 tests\ntest result: ok. 0 passed; 0 failed\n", False, 1, report)
    assert (run.empty, run.fails, run.failed) == (False, True, 2)
    assert SessionState(()).request.tests is None


def test_a_run_that_could_not_be_made_neither_passes_nor_fails() -> None:
    run = TestRun(False, "", False, 1, TestReport(unable="the tests could not be run: no go"))
    assert (run.passes, run.fails, run.empty, run.failed) == (False, False, False, None)
