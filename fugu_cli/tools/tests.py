"""Which command runs a repository's tests, as far as its files tell.

Called once when a session opens; `--test-command` goes before it. It looks, and asks a Python whether it has pytest; it
runs nothing of the repository.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from fugu_cli.policy.paths import is_file, is_folder
from fugu_cli.test_paths import PYTHON_TEST
from fugu_cli.tools import build_tools, tree
from fugu_cli.tools.doctests import examples
from fugu_cli.tools.git import outside

PYTEST_OPTIONS = "-q -p no:cacheprovider"
"""Short output, and no cache folder left in the repository."""
_QUIET = re.compile(r"^\s*addopts\b[^\n]*(?<![\w-])(?:-q|--quiet)\b", re.MULTILINE)
NEEDS_CACHE = re.compile(r"--(lf|ff|sw|nf|last-failed|failed-first|stepwise|new-first|cache-\w+)\b|cache_dir")
_OF_PYTHON = frozenset(
    {"pyproject.toml", "requirements.txt", "Pipfile", "tox.ini", "pytest.ini", ".venv", "venv", "env"}
)
"""Beside modules, setup.cfg and tests, what a project of Python has in its root."""


def find_test_command(root: Path, own: str = sys.executable) -> str | None:
    """The command line, to be run in `root`; None when nothing looks like tests. `own` is the last Python to try."""
    if _only_beside(root):
        return build_tools.command(root) or _python(root, own) or _doctest(root, own)
    found = _python(root, own) or build_tools.command(root)
    return found or _doctest(root, own) or build_tools.command_of_a_folder(root)


def _only_beside(root: Path) -> bool:
    """The project is written in another language, and what Python there is lies in a folder of it."""
    try:
        names = {path.name for path in root.iterdir()}
    except OSError:
        return False
    python = any(name.endswith((".py", ".cfg")) or name in _OF_PYTHON for name in names)
    tests = any(next((root / folder).rglob("*.py"), None) for folder in ("tests", "test") if is_folder(root / folder))
    return not (python or tests) and build_tools.configured(names)


def _python(root: Path, own: str) -> str | None:
    tests, config = _tests(root), _pytest_config(root)
    if not tests and config is None:
        return None
    pythons = list(dict.fromkeys([*_pythons(root), own]))
    with_pytest = next((python for python in pythons if _has_pytest(root, python)), None)
    if with_pytest is None and config is None and not any(_mentions_pytest(path) for path in tests):
        return f"{_quoted(pythons[0])} {_unittest(root, tests)}"
    options = "-q" if NEEDS_CACHE.search(config or "") else PYTEST_OPTIONS
    if _QUIET.search(config or ""):
        options = options.removeprefix("-q").strip()  # twice, and pytest counts nothing
    return f"{_quoted(with_pytest or pythons[0])} -m pytest {options}".rstrip()


def _tests(root: Path) -> list[Path]:
    """Files of tests among the first of the root's, or in the usual folders, which other files may keep it from."""
    for place in (root, root / "tests", root / "test"):
        found = [path for path in tree.files(place, depth=4, limit=5000) if PYTHON_TEST.fullmatch(path.name)]
        if found:
            return found
    return []


def _doctest(root: Path, own: str) -> str | None:
    """Where there are no tests, the examples in docstrings."""
    files = examples(root)
    if not files:
        return None
    pythons = list(dict.fromkeys([*_pythons(root), own]))
    paths = " ".join(map(_quoted, files))
    with_pytest = next((python for python in pythons if _has_pytest(root, python)), None)
    if with_pytest is None:
        return f"{_quoted(pythons[0])} -m doctest {paths}"
    return f"{_quoted(with_pytest)} -m pytest {PYTEST_OPTIONS} --doctest-modules {paths}"


def _pytest_config(root: Path) -> str | None:
    """The text of what configures pytest; "" for a conftest.py alone."""
    marks = {"pytest.ini": "", "pyproject.toml": "[tool.pytest", "tox.ini": "[pytest]", "setup.cfg": "[tool:pytest]"}
    for name, mark in marks.items():
        text = _text(root / name)
        if text is not None and mark in text:
            return text
    return "" if any(is_file(root / folder / "conftest.py") for folder in ("", "tests", "test")) else None


def python_of(root: Path) -> str:
    """The Python of a repository as a word of a command that runs anywhere; fugu's own where there is no other."""
    python = next(_pythons(root), sys.executable)
    return _quoted(str(root / python) if "/" in python else python)


def _pythons(root: Path) -> Iterator[str]:
    """The repository's own environment, the active one, the ones on PATH."""
    for folder in (".venv", "venv", "env"):
        for name in ("bin/python", "Scripts/python.exe"):
            if os.access(root / folder / name, os.X_OK):
                yield f"{folder}/{name}"
    active = os.environ.get("VIRTUAL_ENV")
    if active and os.access(Path(active) / "bin/python", os.X_OK):
        yield str(Path(active) / "bin/python")
    yield from (name for name in ("python3", "python") if shutil.which(name))


def _has_pytest(root: Path, python: str) -> bool:
    """By looking beside it (an environment's own packages), else by asking it; never one that lies in the repository,
    which whoever wrote the repository wrote."""
    found = python if "/" in python else shutil.which(python, path=outside(root))
    if found is None:
        return False
    beside = (root / found).parent.parent
    if any(beside.glob("lib/python3*/site-packages/pytest/__init__.py")):
        return True
    if root in (root / found).parents:
        return False
    command = [found, "-c", "import importlib.util, sys; sys.exit(importlib.util.find_spec('pytest') is None)"]
    try:
        done = subprocess.run(command, cwd="/", capture_output=True, timeout=10, check=False, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _mentions_pytest(path: Path) -> bool:
    return re.search(r"^\s*(import|from)\s+pytest\b", _text(path) or "", re.MULTILINE) is not None or not re.search(
        r"\bunittest\b", _text(path) or ""
    )


def _unittest(root: Path, tests: list[Path]) -> str:
    """Discovery from the root needs test folders that are packages; else from the folder that holds them.

    Left to itself it finds no `a_test.py`, and before Python 3.12 it passes where it finds nothing."""
    usual = [path.name.startswith("test") for path in tests]
    pattern = "" if all(usual) else " -p '*test*.py'" if any(usual) else " -p '*_test.py'"
    folders = {path.parent for path in tests}
    if all(folder == root or (folder / "__init__.py").is_file() for folder in folders):
        return f"-m unittest discover{pattern}"
    top = Path(os.path.commonpath(folders))
    return f"-m unittest discover -s {_quoted(top.relative_to(root).as_posix())}{pattern}"


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else None
    except OSError:
        return None


def _quoted(text: str) -> str:
    return shlex.quote(text)


def runner(command: str) -> str:
    """Which kind of output a test command makes: pytest, unittest, cargo, go, maven, node, or "" for any other."""
    words = command.replace("/", " ").split()
    for name in ("pytest", "unittest", "cargo", "go"):
        if name in words:
            return name
    if {"mvn", "mvnw", "mvnd"} & set(words):
        return "maven"
    return "node" if {"node", "npm", "pnpm", "yarn", "bun"} & set(words) else ""


def project_name(root: Path) -> str:
    """The name a Cargo package is imported by, "" when there is none."""
    try:
        found = tomllib.loads(_text(root / "Cargo.toml") or "")
    except tomllib.TOMLDecodeError:
        return ""
    package = found.get("package")
    return str(package.get("name", "")).replace("-", "_") if isinstance(package, dict) else ""
