"""Finds the command that runs a repository's tests from its files: the project's own task, pytest
and unittest, build tools, doctests.

Called once when a session opens; `--test-command` takes precedence. Reads files and asks a Python
whether it has pytest; runs nothing of the repository. A missing build tool is reported by the run
itself. Docstring examples count as tests only if there are no others.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from fugu_cli.safety.paths import is_file, is_folder
from fugu_cli.safety.programs import find_program, lies_in_repository, program_environment
from fugu_cli.session.recognized_tests import PYTHON_TEST
from fugu_cli.snapshots import repository_files
from fugu_cli.testing.build_tools import build_tool_command, has_build_file, single_folder_command
from fugu_cli.testing.doctests import doctest_files
from fugu_cli.testing.manifests import read_text
from fugu_cli.testing.python_tasks import find_test_task

PYTEST_OPTIONS = "-q -p no:cacheprovider"
"""Short output, and no cache folder left in the repository."""
_QUIET = re.compile(r"^\s*addopts\b[^\n]*(?<![\w-])(?:-q|--quiet)\b", re.MULTILINE)
NEEDS_CACHE = re.compile(
    r"--(lf|ff|sw|nf|last-failed|failed-first|stepwise|new-first|cache-\w+)\b|cache_dir"
)
_OF_PYTHON = frozenset(
    {
        "pyproject.toml",
        "requirements.txt",
        "Pipfile",
        "tox.ini",
        "pytest.ini",
        ".venv",
        "venv",
        "env",
    }
)
"""Beside modules, setup.cfg and tests, what a project of Python has in its root."""


def find_test_command(root: Path, own: str = sys.executable) -> str | None:
    """Return the test command for `root`, None if nothing looks like tests. `own` is the last
    Python to try.
    """
    if _only_beside(root):
        return build_tool_command(root) or _python(root, own) or _doctest(root, own)
    command = _python(root, own) or build_tool_command(root)
    return command or _doctest(root, own) or single_folder_command(root)


def missing_runner(root: Path, command: str) -> str:
    """Return what a test command needs and cannot find, "" if nothing is missing."""
    try:
        words = shlex.split(command)
    except ValueError:
        return ""
    if not words or words[0] == "cd" or "=" in words[0]:
        return ""
    program = root / words[0] if "/" in words[0] else words[0]
    if not shutil.which(program):
        return f"{words[0]} is not installed"
    if words[1:3] == ["-m", "pytest"] and not _has_pytest(root, words[0]):
        return f"pytest is not installed in {words[0]}"
    return ""


def _only_beside(root: Path) -> bool:
    """Return whether the project is in another language, with Python only in a folder of it."""
    try:
        names = {path.name for path in root.iterdir()}
    except OSError:
        return False
    python = any(name.endswith((".py", ".cfg")) or name in _OF_PYTHON for name in names)
    tests = any(
        next((root / folder).rglob("*.py"), None)
        for folder in ("tests", "test")
        if is_folder(root / folder)
    )
    return not (python or tests) and has_build_file(names)


def _python(root: Path, own: str) -> str | None:
    """Return the test command of a Python project, None if it has no tests. `own` is the last
    Python to try.
    """
    tests, config = _tests(root), _pytest_config(root)
    environment = list(_environment_pythons(root))
    environment_has_pytest = any(_has_pytest(root, python) for python in environment)
    managed = _managed_environment(root)
    can_manage = managed is not None and shutil.which(managed.split()[0]) is not None
    is_django = _tested_by_django(root)
    task = find_test_task(root)
    if task is not None:
        runs_directly = task.runs_pytest and (environment_has_pytest or can_manage)
        if not runs_directly and not (is_django and environment):
            return task.command
    if not tests and config is None:
        return None
    projects = list(_pythons(root))
    pythons = list(dict.fromkeys([*projects, own]))
    if is_django:
        python = f"{managed} python" if can_manage and not environment else _quoted(pythons[0])
        return f"{python} manage.py test"
    with_pytest = next((python for python in pythons if _has_pytest(root, python)), None)
    needs_pytest = config is not None or any(_needs_pytest(path) for path in tests)
    if can_manage:
        uses_managed = not environment_has_pytest
    else:
        uses_managed = needs_pytest and with_pytest not in projects
    if managed is not None and uses_managed:
        if not needs_pytest and not _locks_pytest(root):
            return f"{managed} python {_unittest(root, tests)}"
        return f"{managed} pytest {PYTEST_OPTIONS}"
    if with_pytest is None and not needs_pytest:
        return f"{_quoted(pythons[0])} {_unittest(root, tests)}"
    options = "-q" if NEEDS_CACHE.search(config or "") else PYTEST_OPTIONS
    if _QUIET.search(config or ""):
        options = options.removeprefix("-q").strip()  # twice, and pytest counts nothing
    return f"{_quoted(with_pytest or pythons[0])} -m pytest {options}".rstrip()


def _tested_by_django(root: Path) -> bool:
    """Return whether this is a Django project whose tests are not set up by a pytest plugin."""
    manage = read_text(root / "manage.py")
    if manage is None or "DJANGO_SETTINGS_MODULE" not in manage:
        return False
    names = ("pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg", "conftest.py")
    texts = (read_text(root / name) or "" for name in names)
    return not any("DJANGO_SETTINGS_MODULE" in text or "pytest_django" in text for text in texts)


LOCKS = {
    "uv.lock": "uv run",
    "poetry.lock": "poetry run",
    "pdm.lock": "pdm run",
    "Pipfile.lock": "pipenv run",
}
"""The lock files of the tools that keep a project's environment, and how each runs a command."""


def _managed_environment(root: Path) -> str | None:
    """Return the command of the tool that manages the project's environment, also if that tool is
    missing: the run then says so, and fugu's own Python has none of the project's packages.
    """
    for lock, command in LOCKS.items():
        if (root / lock).is_file():
            return command
    return None


def _locks_pytest(root: Path) -> bool:
    return any("pytest" in (read_text(root / lock) or "") for lock in LOCKS)


def has_python_tests(root: Path) -> bool:
    """Return whether there are test files, or a configuration of pytest, in `root`."""
    return _pytest_config(root) is not None or bool(_tests(root))


def _tests(root: Path) -> list[Path]:
    """Return test files among the first files of the root, or in the usual folders."""
    for folder in (root, root / "tests", root / "test"):
        files = [
            path
            for path in repository_files.walk_files(folder, depth=4, limit=5000)
            if PYTHON_TEST.fullmatch(path.name)
        ]
        if files:
            return files
    return []


def _doctest(root: Path, own: str) -> str | None:
    """Return the command that runs docstring examples, None if there are none."""
    files = doctest_files(root)
    if not files:
        return None
    pythons = list(dict.fromkeys([*_pythons(root), own]))
    paths = " ".join(map(_quoted, files))
    with_pytest = next((python for python in pythons if _has_pytest(root, python)), None)
    if with_pytest is None:
        return f"{_quoted(pythons[0])} -m doctest {paths}"
    return f"{_quoted(with_pytest)} -m pytest {PYTEST_OPTIONS} --doctest-modules {paths}"


def _pytest_config(root: Path) -> str | None:
    """Return the text that configures pytest; "" for a conftest.py alone."""
    headers = {
        "pytest.ini": "",
        "pyproject.toml": "[tool.pytest",
        "tox.ini": "[pytest]",
        "setup.cfg": "[tool:pytest]",
    }
    for name, header in headers.items():
        text = read_text(root / name)
        if text is not None and header in text:
            return text
    return (
        ""
        if any(is_file(root / folder / "conftest.py") for folder in ("", "tests", "test"))
        else None
    )


def _pythons(root: Path) -> Iterator[str]:
    """Yield the repository's own environment, the active one, and those on PATH."""
    yield from _environment_pythons(root)
    yield from (name for name in ("python3", "python") if shutil.which(name))


def _environment_pythons(root: Path) -> Iterator[str]:
    """Yield the repository's own environment and the active one."""
    for folder in (".venv", "venv", "env"):
        for name in ("bin/python", "Scripts/python.exe"):
            if os.access(root / folder / name, os.X_OK):
                yield f"{folder}/{name}"
    active = os.environ.get("VIRTUAL_ENV")
    if active and os.access(Path(active) / "bin/python", os.X_OK):
        yield str(Path(active) / "bin/python")


def _has_pytest(root: Path, python: str) -> bool:
    """Return whether a Python has pytest. The packages of its environment are looked up; if they do
    not tell, the Python is run. A Python in a repository, or one that a file there names, is never
    run, because it may be any program. If its environment sees the packages of the Python that it
    was made from, those are looked up instead.
    """
    program = python if "/" in python else find_program(python, root)
    if program is None:
        return False
    environment = (root / program).parent.parent
    if any(environment.glob("lib/python3*/site-packages/pytest/__init__.py")):
        return True
    if lies_in_repository(root / program, root):
        base = _base_python(environment)
        return base is not None and _sees_pytest(base)
    command = [
        program,
        "-c",
        "import importlib.util, sys; sys.exit(importlib.util.find_spec('pytest') is None)",
    ]
    try:
        done = subprocess.run(
            command,
            cwd="/",
            env=program_environment(root),
            capture_output=True,
            timeout=10,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _base_python(environment: Path) -> Path | None:
    """Return the Python whose packages a virtual environment sees, None if it sees none."""
    lines = (read_text(environment / "pyvenv.cfg") or "").splitlines()
    settings = {
        key.strip().lower(): value.strip()
        for key, _, value in (line.partition("=") for line in lines)
    }
    if settings.get("include-system-site-packages", "").lower() != "true":
        return None
    executable, home = settings.get("executable"), settings.get("home")
    if not executable and not home:
        return None
    path = Path(executable or f"{home}/python3")
    return path.resolve() if path.is_absolute() else None


def _sees_pytest(python: Path) -> bool:
    """Return whether a system's Python has pytest among its packages or the user's."""
    prefix = python.parent.parent
    roots = (prefix / "lib", prefix / "local/lib", Path.home() / ".local/lib")
    patterns = ("python3*/site-packages", "python3*/dist-packages")
    return any(
        any(folder.glob(f"{pattern}/pytest/__init__.py"))
        for folder in roots
        for pattern in patterns
    )


def _needs_pytest(path: Path) -> bool:
    text = read_text(path) or ""
    imports_pytest = re.search(r"^\s*(import|from)\s+pytest\b", text, re.MULTILINE) is not None
    return imports_pytest or re.search(r"\bunittest\b", text) is None


def _unittest(root: Path, tests: list[Path]) -> str:
    """Return the unittest command: discovery from the root if its test folders are packages, else
    from their folder.

    By default it misses `a_test.py`, and before Python 3.12 it passes without any test.
    """
    usual = [path.name.startswith("test") for path in tests]
    if all(usual):
        pattern = ""
    else:
        pattern = " -p '*test*.py'" if any(usual) else " -p '*_test.py'"
    folders = {path.parent for path in tests}
    if all(folder == root or (folder / "__init__.py").is_file() for folder in folders):
        return f"-m unittest discover{pattern}"
    top = Path(os.path.commonpath(folders))
    return f"-m unittest discover -s {_quoted(top.relative_to(root).as_posix())}{pattern}"


def _quoted(text: str) -> str:
    return shlex.quote(text)


_JAVASCRIPT_PROGRAMS = frozenset(
    {"node", "npm", "npx", "pnpm", "yarn", "bun", "bunx", "jest", "vitest", "mocha"}
)


def output_format(command: str) -> str:
    """Return the kind of output a test command makes: pytest, unittest, nextest, cargo, go, maven,
    node, or "".
    """
    words = command.replace("/", " ").split()
    if "manage.py" in words:
        return "unittest"
    for name in ("pytest", "unittest", "nextest", "cargo", "go"):
        if name in words:
            return name
    if {"mvn", "mvnw", "mvnd"} & set(words):
        return "maven"
    return "node" if _JAVASCRIPT_PROGRAMS & set(words) else ""
