"""Grades the work of an agent: runs the task's own tests on the agent's files in a fresh copy. Also
decides which files are put back before, and checks whether a task can judge at all.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import posixpath
import re
import secrets
import shlex
import shutil
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path, PurePosixPath

from pydantic import BaseModel, ValidationError

from fugu_cli.errors import StorageError
from fugu_cli.messages import Value
from fugu_cli.safety.process_cleanup import CALL_VARIABLE
from fugu_cli.safety.sandbox.command_sandbox import Sandbox, SandboxSettings
from fugu_cli.session.recognized_tests import SUREFIRE, is_test, passed_count, tests_among
from fugu_cli.system import temp_dirs
from fugu_cli.tools.result import truncate
from fugu_cli.tools.run_tests import without_network
from fugu_cli.tools.shell_commands import CommandContext, run_command
from fugu_cli.training.tasks import ExpectedTests, Grade, Question, Task
from fugu_cli.training.tasks.repository import create_repository, write_binaries, write_files

_JUDGES = frozenset(
    {
        *(
            "conftest.py",
            "pytest.ini",
            ".pytest.ini",
            "pytest.toml",
            ".pytest.toml",
            "tox.ini",
            "setup.cfg",
        ),
        *("pyproject.toml", "sitecustomize.py", "usercustomize.py", "package.json", ".npmrc"),
        *("Cargo.toml", "build.rs", "rust-toolchain", "rust-toolchain.toml"),
        *("Makefile", "makefile", "GNUmakefile", "justfile", "Justfile", ".justfile", "noxfile.py"),
        *("Taskfile.yml", "Taskfile.yaml", "deno.json", "deno.jsonc", "bunfig.toml", "hatch.toml"),
        *(
            "pom.xml",
            "gradle.properties",
            "build.gradle",
            "build.gradle.kts",
            "settings.gradle",
            "settings.gradle.kts",
        ),
        *(
            "mix.exs",
            "Rakefile",
            "Gemfile",
            ".rspec",
            "phpunit.xml",
            "phpunit.xml.dist",
            "composer.json",
        ),
        *("Directory.Build.props", "Directory.Build.targets", "nuget.config"),
    }
)
"""Files that change how tests are run: only the task's own count."""
_RUNNER_SETTINGS = re.compile(
    r"(?:jest|vitest|vite|babel|ava|karma|mocha|playwright|cypress|wdio)\.(?:config|conf|setup)(?:\..+)?"
    r"|\.(?:mocharc|babelrc|swcrc|nycrc|taprc|jestrc)(?:\..+)?"
    r"|(?:vitest|jest)\.(?:setup|workspace)(?:\..+)?|setupTests\.[cm]?[jt]sx?"
    r"|.+\.mk"
)
"""The same of node's many runners, and what Makefiles include."""
_JUDGING_FOLDERS = frozenset(
    {".git", ".cargo", ".mvn", "__pycache__", ".pytest_cache", "node_modules", "target"}
)
_JUDGING_ENDINGS = (".pyc", ".pyo", ".pth", ".dist-info", ".egg-info", ".egg-link")
_RUNNER_MODULES = sys.stdlib_module_names | {
    "pytest",
    "_pytest",
    "pluggy",
    "iniconfig",
    "packaging",
    "pygments",
    "py",
}
"""A module of such a name beside the tests would be imported by the test runner instead of the real
one.
"""
_PLUGINS = "pytest11"
"""The entry points by which pytest finds installed plugins: it imports them before anything else of
a run.
"""
_COUNTING = re.compile(r"\b(?:cargo|go|node|deno|bun|npm|npx|pnpm|yarn|jest|vitest|mocha)\b")
_COUNTED = re.compile(r".+[._-](?:test|spec)\.[cm]?[jt]sx?|.+_test\.go")
_BESIDE_TESTS = re.compile(r".+\.(?:rs|[cm]?[jt]sx?)")
"""Files that such a command runs as tests. An agent's own tests could make up for tests that it
removed.
"""
_IMPORTED = frozenset({".py", ".so", ".pyd"})
_WORD = re.compile(r"[\w./-]+")
_JUDGING_WORDS = re.compile(r"test|check|verify|\.sh$")
_RECIPES = {
    "make": frozenset({"Makefile", "makefile", "GNUmakefile"}),
    "gmake": frozenset({"Makefile", "makefile", "GNUmakefile"}),
    "just": frozenset({"justfile", "Justfile", ".justfile"}),
    **dict.fromkeys(("npm", "yarn", "pnpm", "bun"), frozenset({"package.json"})),
}
"""The files in which these programs find what to do."""


def judge_files(task: Task) -> set[str]:
    """Return the files that judge, hidden ones included: an agent's changes to them do not count."""
    every = {*task.files, *task.binaries}
    steering = {
        name
        for name in every
        if _configures_tests(PurePosixPath(name)) or _is_build_output(PurePosixPath(name))
    }
    fixtures = tests_among(task.binaries)
    return {
        *(steering - set(task.solution)),
        *files_of_command(task)[0],
        *task.test_files,
        *fixtures,
        *task.hidden,
    }


def files_of_command(task: Task) -> tuple[set[str], set[str]]:
    """Return the files that the grading command names and that no solution changes: first those
    that certainly judge, then those that might.

    A known solution tells the two apart. Without one the names do: `sh run_tests.sh` runs a judge,
    `python main.py` hardly does. Files that the command's Makefile or package.json runs are told
    apart by name only, because compilers get sources there.
    """
    words = _WORD.findall(task.grade_command)
    named = {str(PurePosixPath(word)) for word in words}.intersection(task.files) - set(
        task.solution
    )
    judges = {name for name in named if task.solution or _like_a_judge(name)}
    further = {
        path
        for program in _RECIPES.keys() & set(words)
        for file in task.files
        if PurePosixPath(file).name in _RECIPES[program]
        for path in _recipes(file, task.files[file])
    }
    judges |= {
        name
        for name in further.intersection(task.files) - set(task.solution)
        if _like_a_judge(name)
    }
    return judges, named - judges - set(task.test_files) - set(task.hidden)


def _like_a_judge(name: str) -> bool:
    return _JUDGING_WORDS.search(PurePosixPath(name).name.lower()) is not None


def _recipes(file: str, text: str) -> Iterator[str]:
    """Yield the paths in the commands of a Makefile, justfile or package.json, from the
    repository's root.
    """
    commands = "\n".join(line for line in text.splitlines() if line[:1] in "\t ")
    if file.endswith(".json"):
        try:
            scripts = json.loads(text).get("scripts", {})
            commands = "\n".join(map(str, scripts.values()))
        except (ValueError, AttributeError):
            return
    for word in _WORD.findall(commands):
        yield posixpath.normpath(posixpath.join(posixpath.dirname(file), word))


class AgentFileFilter:
    """Chooses the agent's files that are graded: all except new ones that could replace a part of
    the test runner or a test.
    """

    def __init__(self, task: Task) -> None:
        self._own = {PurePosixPath(name) for name in (*task.files, *task.binaries, *task.solution)}
        self._folders = {parent for path in self._own for parent in path.parents}
        self._counted = _COUNTING.search(task.grade_command) is not None
        tests = [*map(PurePosixPath, (*task.test_files, *task.hidden))]
        self._tests = {path.parent for path in tests if is_test(f"{path.parent.as_posix()}/-")}
        modules = _RUNNER_MODULES | _plugins()
        self._beside = {PurePosixPath(): set(modules)}
        for test in tests:
            python = (test.name.split(".")[0], "__init__") if test.suffix == ".py" else ()
            self._beside.setdefault(test.parent, set(modules)).update(python)

    def enters(self, folder: PurePosixPath) -> bool:
        """Return whether files in the folder may count. A task's own `target` folder does."""
        return folder.name not in _JUDGING_FOLDERS or folder in self._folders

    def takes(self, path: PurePosixPath) -> bool:
        """Return whether a file counts."""
        if path in self._own:
            return True
        if (
            _configures_tests(path)
            or _is_build_output(path)
            or any(part.endswith(_JUDGING_ENDINGS) for part in path.parts)
        ):
            return False
        if self._counted and self._counts(path):
            return False
        return not any(self._shadows(path.relative_to(parent), parent) for parent in path.parents)

    def _counts(self, path: PurePosixPath) -> bool:
        """Return whether the runner would collect the file as a test."""
        beside_tests = path.parent in self._tests and _BESIDE_TESTS.fullmatch(path.name) is not None
        return beside_tests or _COUNTED.fullmatch(path.name) is not None

    def _shadows(self, path: PurePosixPath, parent: PurePosixPath) -> bool:
        """Return whether Python would import it from `parent` instead of the runner's module of
        that name.

        That is a module, or an `__init__` that makes a folder a package. Python prefers any other
        module to a folder without one.
        """
        name = path.parts[0].split(".")[0]
        if name not in self._beside.get(parent, ()) or path.suffix not in _IMPORTED:
            return False
        return len(path.parts) == 1 or (
            len(path.parts) == 2 and path.name.split(".")[0] == "__init__"
        )


@cache
def _plugins() -> frozenset[str]:
    """Return the modules of pytest's installed plugins."""
    return frozenset(
        entry.module.split(".")[0] for entry in importlib.metadata.entry_points(group=_PLUGINS)
    )


def _configures_tests(path: PurePosixPath) -> bool:
    """Return whether a file of this name changes how tests are run."""
    return path.name in _JUDGES or _RUNNER_SETTINGS.fullmatch(path.name) is not None


def _is_build_output(path: PurePosixPath) -> bool:
    """Return whether the path lies in a folder of built files or of settings of a tool. A folder
    `target` does not count, because it may hold sources.
    """
    return any(part in _JUDGING_FOLDERS and part != "target" for part in path.parts[:-1])


_RECORDED_RUNNERS = re.compile(r"\b(?:pytest|py\.test|unittest)\b")
_SITE = """import sys
from itertools import pairwise
from pathlib import Path
if ("-m", "unittest") in pairwise(sys.orig_argv) and Path(__file__).with_name("{name}.note").is_file():
    import {name}
"""
"""Has unittest, which knows no plugins, load the recorder."""
_COUNTS = (
    re.compile(r"^test result: \w+\. (\d+) passed", re.MULTILINE),  # cargo, a line for each program
    re.compile(r"^(?:#|\u2139) pass (\d+)$", re.MULTILINE),  # node --test
)
_FAILED = (
    re.compile(r"^test result: \w+\. \d+ passed; (\d+) failed", re.MULTILINE),
    re.compile(r"^(?:#|\u2139) fail (\d+)$", re.MULTILINE),
)
_DISK_HINT = "make room there, or set TMPDIR to a folder on another disk"
_KEPT = 4000
"""Characters of output kept from each end."""


class _RecorderLine(BaseModel):
    """A line that run_recorder.py writes when a run of pytest or unittest begins or ends."""

    secret: str
    begun: bool
    passed: int = 0
    wrong: int = 0
    missing: int = 0
    exit: int = 0
    changed: tuple[str, ...] = ()
    plugins: tuple[str, ...] = ()
    tests: dict[str, str] = {}


class _TestRecorder:
    """Installs run_recorder.py in a folder for one grading run, and reads its report."""

    def __init__(self, folder: Path, root: Path, own: Collection[str]) -> None:
        """`own` are the only files of `root` in which pytest looks for tests. If empty, it looks in
        all.
        """
        self._secret = secrets.token_hex(16)
        self._report = folder / secrets.token_hex(8)
        self._name = f"witness_{secrets.token_hex(8)}"
        folder.mkdir()
        shutil.copyfile(Path(__file__).parent / "run_recorder.py", folder / f"{self._name}.py")
        (folder / f"{self._name}.note").write_text(
            f"{self._secret}\n{self._report}\n{root}\n{json.dumps(sorted(own))}", encoding="utf-8"
        )
        (folder / "sitecustomize.py").write_text(_SITE.format(name=self._name), encoding="utf-8")
        self.environment = {"PYTHONPATH": str(folder), "PYTEST_ADDOPTS": f"-p {self._name}"}

    def read_report(self) -> list[_RecorderLine]:
        """Return the recorder's lines. Lines without its secret are ignored."""
        if not self._report.is_file():
            return []
        parsed = []
        for line in self._report.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                parsed.append(_RecorderLine.model_validate(json.loads(line)))
            except (ValueError, ValidationError):
                continue
        return [line for line in parsed if line.secret == self._secret]


async def grade(task: Task, folder: Path, expected: ExpectedTests | None = None) -> Grade:
    """Judge the working tree in `folder`.

    The task is solved if the grading command ends with 0 within its time. With pytest and unittest
    every test that was found must have run and passed, the expected ones among them; with these,
    cargo, node and Maven at least the expected number must have passed. Raises StorageError if the
    copy cannot be made, or the run failed and the disk is full without it.
    """
    expected = expected or ExpectedTests()
    with temp_dirs.temp_dir("grade") as temporary:
        copy = temporary / "repo"
        home = temporary / "home"
        try:
            home.mkdir()
            recorder = _TestRecorder(
                temporary / secrets.token_hex(8), copy.resolve(), _test_files(task)
            )
            await asyncio.to_thread(_copy, task, folder, copy)
        except OSError as error:
            raise StorageError(
                f"cannot copy {folder} to grade the task {task.id}: {error}"
            ) from error
        sandbox = Sandbox(temporary, temporary / "store", SandboxSettings())
        around = CommandContext(sandbox=sandbox)
        ended = await run_command(
            _command(task, home, recorder), copy, task.timeout, lambda _text: None, around
        )
        report_lines = recorder.read_report()
        was_full = ended.code != 0 and temp_dirs.is_disk_full(temporary)
    # the files that the run wrote are deleted now
    if was_full and temp_dirs.is_disk_full(temporary.parent):
        raise StorageError(
            f"the disk of {temporary.parent} is full: {task.id} cannot be graded", hint=_DISK_HINT
        )
    output = truncate(ended.output, 2 * _KEPT)
    if ended.code is None:
        return Grade(
            False,
            f"{output}\n(stopped after {task.timeout:g} s)".lstrip(),
            ended.seconds,
            timed_out=True,
        )
    passed, why = _run_result(task, report_lines, ended.output)
    tests = {name: origin for line in report_lines for name, origin in line.tests.items()}
    if not why and passed < expected.least:
        why = f"only {passed} of {expected.least} tests passed"
    why = why or _unexpected_tests(expected, tests)
    if ended.code == 0 and why:
        output = f"{output}\n({why})".lstrip()
    ok = ended.code == 0 and not why
    failed = 0 if report_lines else _sum_counts(_FAILED, ended.output)
    return Grade(
        ok, output, ended.seconds, passed=passed, failed=failed, tests=tests, code=ended.code
    )


def _test_files(task: Task) -> frozenset[str]:
    """Return the files that may hold tests if pytest itself is the command, else none: a script may
    be meant to run an agent's tests.
    """
    if "pytest" not in task.grade_command:
        return frozenset()
    return frozenset({*task.files, *task.binaries, *task.hidden, *task.solution})


def _unexpected_tests(expected: ExpectedTests, tests: Mapping[str, str]) -> str:
    """Return the reason why the tests that ran are not those of the task, "" if they are."""
    for name, origin in expected.tests.items():
        if name not in tests:
            return f"the test {name} was not run"
        if origin and tests[name] != origin:
            return f"something else was run in the place of the test {name}"
    return ""


def _run_result(task: Task, lines: list[_RecorderLine], output: str) -> tuple[int, str]:
    """Return the number of passed tests, and why the run does not count, "" if it does."""
    begun = [line for line in lines if line.begun]
    ends = [line for line in lines if not line.begun]
    if not begun and not _RECORDED_RUNNERS.search(task.grade_command):
        maven = passed_count(output) if SUREFIRE.search(output) else 0
        return _sum_counts(_COUNTS, output) + (maven or 0), ""
    passed = sum(line.passed for line in ends)
    changed = [name for line in ends for name in line.changed]
    if not begun or len(ends) != len(begun):
        return passed, "the test run did not come to its end"
    if changed:
        return passed, f"the test runner was changed: {', '.join(changed)}"
    if foreign := sorted({name for line in ends for name in line.plugins} - judge_files(task)):
        return passed, f"{foreign[0]} took part in the test run as a plugin"
    if any(line.wrong or line.missing or line.exit for line in ends):
        return passed, "not every test that was found ran and passed"
    return passed, "" if passed else "no test passed"


def _sum_counts(patterns: Sequence[re.Pattern[str]], output: str) -> int:
    return sum(int(count) for pattern in patterns for count in pattern.findall(output))


def _copy(task: Task, folder: Path, copy: Path) -> None:
    copy.mkdir()
    judging, kept = judge_files(task), AgentFileFilter(task)
    for directory, folders, names in os.walk(folder):
        below = PurePosixPath(Path(directory).relative_to(folder).as_posix())
        folders[:] = [name for name in folders if kept.enters(below / name)]
        for name in names:
            source = Path(directory) / name
            if source.is_symlink() or not source.is_file() or not os.access(source, os.R_OK):
                continue
            if kept.takes(below / name):
                (copy / below).mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, copy / below / name)
                shutil.copymode(source, copy / below / name)
    originals = {name: task.files[name] for name in judging.intersection(task.files)}
    binaries = {name: task.binaries[name] for name in judging.intersection(task.binaries)}
    for name in (*originals, *binaries, *task.hidden):
        _make_way(copy, PurePosixPath(name))
    write_files(originals, copy)
    write_binaries(binaries, copy)
    write_files(task.hidden, copy)
    for name in judging.intersection(task.executable):
        (copy / name).chmod(0o755)


def _make_way(copy: Path, path: PurePosixPath) -> None:
    """Make room for a file: delete a file in the place of one of its folders, and a folder in its
    own place.
    """
    for parent in path.parents:
        if (copy / parent).is_file():
            (copy / parent).unlink()
    if (copy / path).is_dir():
        shutil.rmtree(copy / path)


def _command(task: Task, home: Path, recorder: _TestRecorder) -> str:
    """Return the grading command in a fresh environment. It inherits only the variable by which its
    processes are found.
    """
    environment = _environment(home) | recorder.environment
    values = shlex.join(f"{name}={value}" for name, value in environment.items())
    command = shlex.quote(without_network(task.grade_command))
    return f'exec env -i {CALL_VARIABLE}="${CALL_VARIABLE}" {values} /bin/sh -c {command}'


def _environment(home: Path) -> dict[str, str]:
    """Return the environment of a test run. It holds only what tests need; `python` is the user's,
    or else the Python that runs fugu.
    """
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
        "PATH": os.pathsep.join(
            [os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)]
        ),
        "HOME": str(home),
        "TMPDIR": str(home),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONNOUSERSITE": "1",
        "TERM": "dumb",
    }


NOT_FOUND = frozenset({126, 127})
_MISSING_RUNNER = re.compile(
    r"No module named '?(?:pytest|unittest|nose2?|tox|nox)\b|\b\w*sh: .*not found$"
)
"""The last line of a command whose runner is not there: `make` and `a || exit 1` change its exit
code.
"""
NO_TESTS = frozenset({4, 5})
"""pytest's exit codes for a command line it cannot use and for no tests."""


class TaskCheck(Value):
    """The result of checking a task.

    `refused` is the reason why it cannot be used, "" if it can. `least` is the number of tests that
    an answer must pass: as many as the known solution, or as cargo and node found before any work
    (0 if unknown). `tests` has the tests found, with digests of their code. `sha` is a hash of the
    task's contents, `runner` of what the digests depend on.
    """

    task: str
    sha: str
    refused: str = ""
    note: str = ""
    least: int = 0
    tests: Mapping[str, str] = {}
    runner: str = ""

    @property
    def expected(self) -> ExpectedTests:
        return ExpectedTests(least=self.least, tests=self.tests)

    def holds(self, problem: Task | Question) -> bool:
        """Return whether the check was made for these contents and this runner."""
        return self.sha == problem_sha(problem) and self.runner == runner_versions()


def problem_sha(problem: Task | Question) -> str:
    """Return a digest of the problem's contents."""
    return hashlib.sha256(problem.model_dump_json().encode()).hexdigest()[:16]


def runner_versions() -> str:
    """Return the versions of what compiles and runs tests."""
    pytest = importlib.metadata.version("pytest") if importlib.util.find_spec("pytest") else "none"
    return f"python {platform.python_version()}, pytest {pytest}"


async def check_task(task: Task) -> TaskCheck:
    """Grade the files of the task as they are, then with its solution if there is one. Raises
    StorageError.
    """
    check = TaskCheck(task=task.id, sha=problem_sha(task), runner=runner_versions())
    before = await _grade_with(task, {})
    if before.ok:
        return check.model_copy(
            update={"refused": "its tests pass before any work: there is nothing to solve"}
        )
    if _cannot_run(task, before):
        why = f"its tests cannot be run: `{task.grade_command}` says: {_last_line(before)}"
        return check.model_copy(update={"refused": why})
    if task.solution:
        after = await _grade_with(task, task.solution)
        if after.timed_out:
            why = (
                f"its tests hang: with the known solution, too, they do not end within "
                f"{task.timeout:g} s"
            )
            return check.model_copy(update={"refused": why})
        if not after.ok:
            why = f"its tests fail with the known solution, too: {_last_line(after)}"
            return check.model_copy(update={"refused": why})
        return check.model_copy(
            update={"least": after.passed, "tests": _protected_tests(task, before, after)}
        )
    least = before.passed + before.failed if before.failed else 0
    check = check.model_copy(
        update={"least": least, "tests": _protected_tests(task, before, before)}
    )
    if before.timed_out:
        note = (
            f"its tests do not end within {task.timeout:g} s before any work; every try may take "
            f"as long"
        )
        return check.model_copy(update={"note": note})
    if changeable := sorted(files_of_command(task)[1]):
        note = (
            f"agents may change {changeable[0]}, which its test command names; if it is a test, "
            f"name it in test_files"
        )
        return check.model_copy(update={"note": note})
    return check


def _cannot_run(task: Task, before: Grade) -> bool:
    """Return whether the command ended without a test: its runner is missing, or found none. A
    solution may bring the tests itself.
    """
    if before.timed_out or before.tests or before.passed or before.failed:
        return False
    if _MISSING_RUNNER.search(_last_line(before)):
        return True
    if task.solution:
        return False
    found_no_tests = "pytest" in task.grade_command and before.code in NO_TESTS
    return before.code in NOT_FOUND or found_no_tests


def _protected_tests(task: Task, before: Grade, after: Grade) -> dict[str, str]:
    """Return the tests in files that agents cannot change, with the origin of their code.

    The origin is "" if the code of a test lies elsewhere or differed from run to run: an answer
    then need only have run the test.
    """
    judging = judge_files(task)
    tests = {}
    for name, origin in after.tests.items():
        if name.split("::")[0] in judging:
            is_protected = origin.rpartition(" ")[0] in judging
            is_stable = before.tests.get(name, origin) == origin
            tests[name] = origin if is_protected and is_stable else ""
    return tests


async def _grade_with(task: Task, changes: Mapping[str, str]) -> Grade:
    with temp_dirs.temp_dir("check") as temporary:
        folder = await create_repository(task, temporary / "repo")
        write_files(changes, folder)
        return await grade(task, folder)


def _last_line(judged: Grade) -> str:
    lines = [line.strip() for line in judged.output.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "nothing"
