"""Says whether a task is solved: the agent's files, with the task's own tests, in a fresh copy.

Stands after the work is done, whoever did it. Three layers make the copy: what the agent left, without anything that
could change the judge rather than the code; the task's own tests and test configuration, put back; the hidden files.
The agent's folder is only read. The run is confined to the copy, without a network, by what the system has for that.
Where pytest or unittest judges, its own account of the run counts (`witness.py`) and not what was printed; the tests
it found must be those that were found when the task was checked.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import shlex
import shutil
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path, PurePosixPath

from pydantic import BaseModel, ValidationError

from fugu_cli import scratch
from fugu_cli.errors import StorageError
from fugu_cli.sandbox.box import Box, Rules
from fugu_cli.tasks import Expected, Grade, Task
from fugu_cli.tasks.judging import Kept, put_back
from fugu_cli.tasks.repository import lay, lay_bytes
from fugu_cli.tools.clip import clip
from fugu_cli.tools.process import Around, run_command
from fugu_cli.tools.reaping import MARK
from fugu_cli.tools.run_tests import without_network
from fugu_cli.views.counts import SUREFIRE, passing

_WITNESSED = re.compile(r"\b(?:pytest|py\.test|unittest)\b")
_SITE = """import sys
from itertools import pairwise
from pathlib import Path
if ("-m", "unittest") in pairwise(sys.orig_argv) and Path(__file__).with_name("{name}.note").is_file():
    import {name}
"""
"""Has unittest, which knows no plugins, load the witness."""
_COUNTS = (
    re.compile(r"^test result: \w+\. (\d+) passed", re.MULTILINE),  # cargo, a line for each program
    re.compile(r"^(?:#|\u2139) pass (\d+)$", re.MULTILINE),  # node --test
)
_FAILED = (
    re.compile(r"^test result: \w+\. \d+ passed; (\d+) failed", re.MULTILINE),
    re.compile(r"^(?:#|\u2139) fail (\d+)$", re.MULTILINE),
)
_ROOM = "make room there, or set TMPDIR to a folder on another disk"
_KEPT = 4000
"""Characters of output kept from each end."""


class _Told(BaseModel):
    """A line of the witness: at the beginning of a pytest session, or at its end."""

    secret: str
    begun: bool
    passed: int = 0
    wrong: int = 0
    missing: int = 0
    exit: int = 0
    changed: tuple[str, ...] = ()
    plugins: tuple[str, ...] = ()
    tests: dict[str, str] = {}


class _Judge:
    """The witness of one grading run, in a folder of its own."""

    def __init__(self, folder: Path, root: Path, own: Collection[str]) -> None:
        """`own` are the only files of `root` in which pytest looks for tests; any where there are none."""
        self._secret = secrets.token_hex(16)
        self._report = folder / secrets.token_hex(8)
        self._name = f"witness_{secrets.token_hex(8)}"
        folder.mkdir()
        shutil.copyfile(Path(__file__).parent / "witness.py", folder / f"{self._name}.py")
        (folder / f"{self._name}.note").write_text(
            f"{self._secret}\n{self._report}\n{root}\n{json.dumps(sorted(own))}", encoding="utf-8"
        )
        (folder / "sitecustomize.py").write_text(_SITE.format(name=self._name), encoding="utf-8")
        self.environment = {"PYTHONPATH": str(folder), "PYTEST_ADDOPTS": f"-p {self._name}"}

    def told(self) -> list[_Told]:
        """What it left; lines of anybody else do not count."""
        lines = (
            self._report.read_text(encoding="utf-8", errors="replace").splitlines() if self._report.is_file() else []
        )
        found = []
        for line in lines:
            try:
                found.append(_Told.model_validate(json.loads(line)))
            except (ValueError, ValidationError):
                continue
        return [line for line in found if line.secret == self._secret]


async def grade(task: Task, folder: Path, expected: Expected | None = None) -> Grade:
    """Judge the working tree in `folder`. Solved means: the grading command ends with 0 within the task's time, where
    it is pytest or unittest every test that was found ran and none was wrong, the expected tests were among them, and
    as many passed (counted for cargo, node and Maven, too). Raises StorageError when the copy cannot be made, or the
    run failed on a disk that was full without it.
    """
    expected = expected or Expected()
    with scratch.folder("grade") as temporary:
        copy = temporary / "repo"
        home = temporary / "home"
        try:
            home.mkdir()
            judge = _Judge(temporary / secrets.token_hex(8), copy.resolve(), _searched(task))
            await asyncio.to_thread(_copy, task, folder, copy)
        except OSError as error:
            raise StorageError(f"cannot copy {folder} to grade the task {task.id}: {error}") from error
        box = Box(temporary, temporary / "store", Rules())
        around = Around(box=box)
        ended = await run_command(_command(task, home, judge), copy, task.timeout, lambda _text: None, around)
        told = judge.told()
        full = ended.code != 0 and scratch.full(temporary)
    if full and scratch.full(temporary.parent):  # what the run wrote itself is gone by now
        raise StorageError(f"the disk of {temporary.parent} is full: {task.id} cannot be graded", hint=_ROOM)
    output = clip(ended.output, 2 * _KEPT)
    if ended.code is None:
        return Grade(False, f"{output}\n(stopped after {task.timeout:g} s)".lstrip(), ended.seconds, timed_out=True)
    passed, why = _account(task, told, ended.output)
    tests = {name: mark for line in told for name, mark in line.tests.items()}
    if not why and passed < expected.least:
        why = f"only {passed} of {expected.least} tests passed"
    why = why or _strange(expected, tests)
    if ended.code == 0 and why:
        output = f"{output}\n({why})".lstrip()
    ok, failed = ended.code == 0 and not why, 0 if told else _counted(_FAILED, ended.output)
    return Grade(ok, output, ended.seconds, passed=passed, failed=failed, tests=tests, code=ended.code)


def _searched(task: Task) -> frozenset[str]:
    """The files that may have tests where pytest itself is the command: a script may be meant to run an agent's."""
    if "pytest" not in task.grade_command:
        return frozenset()
    return frozenset({*task.files, *task.binaries, *task.hidden, *task.solution})


def _strange(expected: Expected, tests: Mapping[str, str]) -> str:
    """Why the tests that ran are not those of the task; "" where they are."""
    for name, mark in expected.tests.items():
        if name not in tests:
            return f"the test {name} was not run"
        if mark and tests[name] != mark:
            return f"something else was run in the place of the test {name}"
    return ""


def _account(task: Task, told: list[_Told], output: str) -> tuple[int, str]:
    """How many tests passed, and why the run does not count; "" where it does."""
    begun, ends = [line for line in told if line.begun], [line for line in told if not line.begun]
    if not begun and not _WITNESSED.search(task.grade_command):
        maven = passing(output) if SUREFIRE.search(output) else 0
        return _counted(_COUNTS, output) + (maven or 0), ""
    passed = sum(line.passed for line in ends)
    changed = [name for line in ends for name in line.changed]
    if not begun or len(ends) != len(begun):
        return passed, "the test run did not come to its end"
    if changed:
        return passed, f"the test runner was changed: {', '.join(changed)}"
    if foreign := sorted({name for line in ends for name in line.plugins} - put_back(task)):
        return passed, f"{foreign[0]} took part in the test run as a plugin"
    if any(line.wrong or line.missing or line.exit for line in ends):
        return passed, "not every test that was found ran and passed"
    return passed, "" if passed else "no test passed"


def _counted(patterns: Sequence[re.Pattern[str]], output: str) -> int:
    return sum(int(count) for pattern in patterns for count in pattern.findall(output))


def _copy(task: Task, folder: Path, copy: Path) -> None:
    copy.mkdir()
    judging, kept = put_back(task), Kept(task)
    for found, folders, names in os.walk(folder):
        below = PurePosixPath(Path(found).relative_to(folder).as_posix())
        folders[:] = [name for name in folders if kept.enters(below / name)]
        for name in names:
            source = Path(found) / name
            if source.is_symlink() or not source.is_file() or not os.access(source, os.R_OK):
                continue
            if kept.takes(below / name):
                (copy / below).mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, copy / below / name)
                shutil.copymode(source, copy / below / name)
    originals = {name: task.files[name] for name in judging.intersection(task.files)}
    binaries = {name: task.binaries[name] for name in judging.intersection(task.binaries)}
    for name in (*originals, *binaries, *task.hidden):
        _clear(copy, PurePosixPath(name))
    lay(originals, copy)
    lay_bytes(binaries, copy)
    lay(task.hidden, copy)
    for name in judging.intersection(task.executable):
        (copy / name).chmod(0o755)


def _clear(copy: Path, path: PurePosixPath) -> None:
    """Make room for a file: a file where one of its folders must be, or a folder in its own place, goes."""
    for parent in path.parents:
        if (copy / parent).is_file():
            (copy / parent).unlink()
    if (copy / path).is_dir():
        shutil.rmtree(copy / path)


def _command(task: Task, home: Path, judge: _Judge) -> str:
    """The grading command in an environment of its own; only the mark by which its processes are found goes through."""
    values = " ".join(
        shlex.quote(f"{name}={value}") for name, value in (_environment(home) | judge.environment).items()
    )
    return f'exec env -i {MARK}="${MARK}" {values} /bin/sh -c {shlex.quote(without_network(task.grade_command))}'


def _environment(home: Path) -> dict[str, str]:
    """Only what a test run needs; `python` is the one that runs fugu, whose environment has the test runner."""
    kept = {
        name: os.environ[name]
        for name in ("LANG", "LC_ALL", "CARGO_HOME", "RUSTUP_HOME", "JAVA_HOME")
        if name in os.environ
    }
    real = Path.home()
    return {
        "CARGO_HOME": str(real / ".cargo"),
        "RUSTUP_HOME": str(real / ".rustup"),
        **kept,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
        "HOME": str(home),
        "TMPDIR": str(home),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONNOUSERSITE": "1",
        "TERM": "dumb",
    }
