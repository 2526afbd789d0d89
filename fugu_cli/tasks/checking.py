"""Is a task one at all? Its tests must fail before any work and pass with the known solution.

Asked once for each task before anybody spends money on it. Stands on grading.py; knows nothing of agents.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import platform
from collections.abc import Mapping

from fugu_cli import scratch
from fugu_cli.messages import Value
from fugu_cli.tasks import Expected, Grade, Question, Task
from fugu_cli.tasks.grading import grade
from fugu_cli.tasks.judging import commanded, put_back
from fugu_cli.tasks.repository import lay, materialise

NOT_FOUND = frozenset({126, 127})
NO_TESTS = frozenset({4, 5})
"""pytest's exit codes for a command line it cannot use and for no tests."""


class Checked(Value):
    """What came of it. `refused` is why the task cannot be used, "" where it can; `least` how many tests an answer must
    pass: as many as the known solution, or as cargo and node found before any work (0: not known); `tests` those that
    were found, by their marks; `sha` names the task's contents, `runner` what marks depend on."""

    task: str
    sha: str
    refused: str = ""
    note: str = ""
    least: int = 0
    tests: Mapping[str, str] = {}
    runner: str = ""

    @property
    def expected(self) -> Expected:
        return Expected(least=self.least, tests=self.tests)

    def holds(self, problem: Task | Question) -> bool:
        """Whether it is of these contents, and its marks are what the tests would get today."""
        return self.sha == sha(problem) and self.runner == runner()


def sha(problem: Task | Question) -> str:
    """What names a problem's contents."""
    return hashlib.sha256(problem.model_dump_json().encode()).hexdigest()[:16]


def runner() -> str:
    """The versions of what compiles and runs tests."""
    pytest = importlib.metadata.version("pytest") if importlib.util.find_spec("pytest") else "none"
    return f"python {platform.python_version()}, pytest {pytest}"


async def check(task: Task) -> Checked:
    """Grade the task as it is, then with its solution where one is known. Raises StorageError."""
    found = Checked(task=task.id, sha=sha(task), runner=runner())
    before = await _graded(task, {})
    if before.ok:
        return found.model_copy(update={"refused": "its tests pass before any work: there is nothing to solve"})
    if task.solution:
        after = await _graded(task, task.solution)
        if after.timed_out:
            why = f"its tests hang: with the known solution, too, they do not end within {task.timeout:g} s"
            return found.model_copy(update={"refused": why})
        if not after.ok:
            why = f"its tests fail with the known solution, too: {_last(after)}"
            return found.model_copy(update={"refused": why})
        return found.model_copy(update={"least": after.passed, "tests": _own(task, before, after)})
    least = before.passed + before.failed if before.failed else 0
    found = found.model_copy(update={"least": least, "tests": _own(task, before, before)})
    if before.timed_out:
        note = f"its tests do not end within {task.timeout:g} s before any work; every try may take as long"
        return found.model_copy(update={"note": note})
    if before.code in NOT_FOUND or ("pytest" in task.grade_command and before.code in NO_TESTS):
        why = f"its tests cannot be run: `{task.grade_command}` says: {_last(before)}"
        return found.model_copy(update={"refused": why})
    if changeable := sorted(commanded(task)[1]):
        note = (
            f"agents may change {changeable[0]}, which its test command names; if it is a test, name it in test_files"
        )
        return found.model_copy(update={"note": note})
    return found


def _own(task: Task, before: Grade, after: Grade) -> dict[str, str]:
    """The tests in files that agents cannot change. Where a test's code lies elsewhere, or differed from run to run, an
    answer need only have run it."""
    judging = put_back(task)
    tests = {name: mark for name, mark in after.tests.items() if name.split("::")[0] in judging}
    return {
        name: mark if mark.rpartition(" ")[0] in judging and before.tests.get(name, mark) == mark else ""
        for name, mark in tests.items()
    }


async def _graded(task: Task, changes: Mapping[str, str]) -> Grade:
    with scratch.folder("check") as temporary:
        folder = await materialise(task, temporary / "repo")
        lay(changes, folder)
        return await grade(task, folder)


def _last(judged: Grade) -> str:
    lines = [line.strip() for line in judged.output.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "nothing"
