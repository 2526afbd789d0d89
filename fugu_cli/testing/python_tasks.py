"""Finds the command that a Python project names for its tests: a task, or a test environment of
tox, nox or hatch.
"""

from __future__ import annotations

import ast
import configparser
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fugu_cli.testing.manifests import read_text, read_toml, table_at

_TASK_NAMES = ("test", "tests", "unit", "pytest")
_TASK_TABLES = (
    ("pyproject.toml", "tool.hatch.envs.default.scripts", "hatch run"),
    ("hatch.toml", "envs.default.scripts", "hatch run"),
    ("pyproject.toml", "tool.pdm.scripts", "pdm run"),
    ("pyproject.toml", "tool.pixi.tasks", "pixi run"),
    ("pixi.toml", "tasks", "pixi run"),
    ("pyproject.toml", "tool.rye.scripts", "rye run"),
    ("pyproject.toml", "tool.poe.tasks", "poe"),
    ("pyproject.toml", "tool.taskipy.tasks", "task"),
)
"""A manifest, its table of named tasks, and the command that runs one."""
_STARTS_RUNNER = re.compile(r"\b(?:py\.?test|unittest|nose2|trial|stestr)\b|manage\.py")
_RUNS_PYTEST = re.compile(r"\bpy\.?test\b")


@dataclass(frozen=True)
class TestTask:
    """A task that runs a project's tests. `runs_pytest`: it starts pytest, so pytest of the project's
    own environment does the same.
    """

    __test__ = False

    command: str
    runs_pytest: bool


def find_test_task(root: Path) -> TestTask | None:
    """Return the project's test task; None if it has none or the task's program is missing."""
    finders: tuple[Callable[[Path], Iterator[TestTask]], ...] = (
        _named_tasks,
        _hatch_environments,
        _tox_environments,
        _nox_sessions,
    )
    for find in finders:
        for task in find(root):
            if shutil.which(task.command.split()[0]):
                return task
    return None


def _named_tasks(root: Path) -> Iterator[TestTask]:
    for file, table, command in _TASK_TABLES:
        tasks = table_at(read_toml(root / file), table)
        for name in _TASK_NAMES:
            if name in tasks:
                yield TestTask(f"{command} {name}", _mentions_pytest(tasks[name]))


def _hatch_environments(root: Path) -> Iterator[TestTask]:
    """Yield `hatch test` if it is configured, then the scripts of test environments, then pytest if
    the default environment has it.
    """
    for file, table in (("pyproject.toml", "tool.hatch.envs"), ("hatch.toml", "envs")):
        environments = table_at(read_toml(root / file), table)
        if "hatch-test" in environments:
            scripts = table_at(environments, "hatch-test.scripts")
            runs_pytest = "run" not in scripts or _mentions_pytest(scripts["run"])
            yield TestTask("hatch test", runs_pytest)
        for environment in _TASK_NAMES:
            scripts = table_at(environments, f"{environment}.scripts")
            for name in (*_TASK_NAMES, "run"):
                if name in scripts:
                    command = f"hatch run {environment}:{name}"
                    yield TestTask(command, _mentions_pytest(scripts[name]))
        if _mentions_pytest(table_at(environments, "default").get("dependencies")):
            yield TestTask("hatch run pytest", True)


def _tox_environments(root: Path) -> Iterator[TestTask]:
    """Yield tox's environments for tests: first the unnamed one, run with one Python, then the
    named ones.
    """
    environments = _tox_commands(root)
    unnamed = environments.pop("", "")
    if unnamed:
        yield TestTask("tox -e py", _mentions_pytest(unnamed))
    yield from _test_tasks("tox -e", environments)


def _tox_commands(root: Path) -> dict[str, str]:
    """Return the commands of tox's environments by name; "" is the unnamed one, `testenv`."""
    document = read_toml(root / "pyproject.toml")
    native = read_toml(root / "tox.toml") or table_at(document, "tool.tox")
    if "env" in native or "env_run_base" in native:
        commands = {"": str(table_at(native, "env_run_base").get("commands", ""))}
        for name, environment in table_at(native, "env").items():
            if isinstance(environment, dict):
                commands[name] = str(environment.get("commands", ""))
        return commands
    texts = [read_text(root / "tox.ini") or "", read_text(root / "setup.cfg") or ""]
    embedded = native.get("legacy_tox_ini")
    if isinstance(embedded, str):
        texts.append(embedded)
    commands = {}
    for text in texts:
        settings = configparser.RawConfigParser(strict=False)
        try:
            settings.read_string(text)
        except configparser.Error:
            continue
        for section in settings.sections():
            if re.fullmatch(r"testenv(?::[\w.-]+)?", section):
                name = section.partition(":")[2]
                commands.setdefault(name, settings.get(section, "commands", fallback=""))
    return commands


def _nox_sessions(root: Path) -> Iterator[TestTask]:
    try:
        module = ast.parse(read_text(root / "noxfile.py") or "")
    except (SyntaxError, ValueError, RecursionError):
        return
    sessions: dict[str, str] = {}
    for node in module.body:
        if not isinstance(node, ast.FunctionDef):
            continue
        decorators = " ".join(ast.unparse(decorator) for decorator in node.decorator_list)
        if re.search(r"\bsession\b", decorators):
            name_argument = re.search(r"\bname=(['\"])([\w.-]+)\1", decorators)
            name = name_argument.group(2) if name_argument is not None else node.name
            sessions[name] = ast.unparse(node)
    yield from _test_tasks("nox -s", sessions)


def _test_tasks(command: str, environments: dict[str, str]) -> Iterator[TestTask]:
    """Yield the environments of tox, or sessions of nox, whose names say that they run tests, then
    those that start a test runner. `environments` maps their names to what they run.
    """
    named = [name for name in environments if name in _TASK_NAMES]
    starting = [name for name, text in environments.items() if _STARTS_RUNNER.search(text)]
    for name in (*named, *starting):
        yield TestTask(f"{command} {name}", _mentions_pytest(environments[name]))


def _mentions_pytest(task: object) -> bool:
    return bool(_RUNS_PYTEST.search(str(task)))
