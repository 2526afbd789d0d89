"""Which files judge: grading puts them back or leaves them out, for they change how tests are run, not what is tested.

Names, a task's contents and pytest's installed plugins only; under grading.py, which makes the copy.
"""

from __future__ import annotations

import importlib.metadata
import json
import posixpath
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import PurePosixPath

from fugu_cli.tasks import Task
from fugu_cli.test_paths import is_test, tests_among

_JUDGES = frozenset(
    {
        *("conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "tox.ini", "setup.cfg"),
        *("pyproject.toml", "sitecustomize.py", "usercustomize.py", "package.json", ".npmrc"),
        *("Cargo.toml", "build.rs", "rust-toolchain", "rust-toolchain.toml"),
        *("Makefile", "makefile", "GNUmakefile", "justfile", "Justfile", ".justfile", "noxfile.py"),
        *("Taskfile.yml", "Taskfile.yaml", "deno.json", "deno.jsonc", "bunfig.toml", "hatch.toml"),
        *("pom.xml", "gradle.properties", "build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts"),
        *("mix.exs", "Rakefile", "Gemfile", ".rspec", "phpunit.xml", "phpunit.xml.dist", "composer.json"),
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
_JUDGING_FOLDERS = frozenset({".git", ".cargo", ".mvn", "__pycache__", ".pytest_cache", "node_modules", "target"})
_JUDGING_ENDINGS = (".pyc", ".pyo", ".pth", ".dist-info", ".egg-info", ".egg-link")
_RUNNER_MODULES = sys.stdlib_module_names | {"pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments", "py"}
"""A module of such a name beside the tests would be imported by the test runner instead of the real one."""
_PLUGINS = "pytest11"
"""The entry points by which pytest finds installed plugins: it imports them before anything else of a run."""
_COUNTING = re.compile(r"\b(?:cargo|go|node|deno|bun|npm|npx|pnpm|yarn|jest|vitest|mocha)\b")
_COUNTED = re.compile(r".+[._-](?:test|spec)\.[cm]?[jt]sx?|.+_test\.go")
_BESIDE_TESTS = re.compile(r".+\.(?:rs|[cm]?[jt]sx?)")
"""What such a command runs as a test: an agent's own would make up for those that it has end."""
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


def put_back(task: Task) -> set[str]:
    """The files that judge, hidden ones included: an agent's changes to them do not count."""
    every = {*task.files, *task.binaries}
    steering = {name for name in every if _steers(PurePosixPath(name)) or _built(PurePosixPath(name))}
    fixtures = tests_among(task.binaries)
    return {*(steering - set(task.solution)), *commanded(task)[0], *task.test_files, *fixtures, *task.hidden}


def commanded(task: Task) -> tuple[set[str], set[str]]:
    """The files that the grading command names and no known solution changes: those that judge, and those that might.

    A known solution tells them apart; without one, names do: `sh run_tests.sh` runs a judge, `python main.py` hardly.
    Names alone do for those that the command's Makefile or package.json runs: compilers are told sources there.
    """
    said = _WORD.findall(task.grade_command)
    named = {str(PurePosixPath(word)) for word in said}.intersection(task.files) - set(task.solution)
    judges = {name for name in named if task.solution or _like_a_judge(name)}
    further = {
        path
        for program in _RECIPES.keys() & set(said)
        for file in task.files
        if PurePosixPath(file).name in _RECIPES[program]
        for path in _recipes(file, task.files[file])
    }
    judges |= {name for name in further.intersection(task.files) - set(task.solution) if _like_a_judge(name)}
    return judges, named - judges - set(task.test_files) - set(task.hidden)


def _like_a_judge(name: str) -> bool:
    return _JUDGING_WORDS.search(PurePosixPath(name).name.lower()) is not None


def _recipes(file: str, text: str) -> Iterator[str]:
    """The paths in the commands of a Makefile, justfile or package.json, from the repository's root."""
    commands = "\n".join(line for line in text.splitlines() if line[:1] in "\t ")
    if file.endswith(".json"):
        try:
            scripts = json.loads(text).get("scripts", {})
            commands = "\n".join(map(str, scripts.values()))
        except (ValueError, AttributeError):
            return
    for word in _WORD.findall(commands):
        yield posixpath.normpath(posixpath.join(posixpath.dirname(file), word))


class Kept:
    """What is taken of an agent's files: all but those that could take the place of a part of the test runner, or of a
    test, and that the task does not know."""

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
        """Whether anything in the folder can count: the task's own `target` is one of sources."""
        return folder.name not in _JUDGING_FOLDERS or folder in self._folders

    def takes(self, path: PurePosixPath) -> bool:
        """Whether a file does."""
        if path in self._own:
            return True
        if _steers(path) or _built(path) or any(part.endswith(_JUDGING_ENDINGS) for part in path.parts):
            return False
        if self._counted and self._counts(path):
            return False
        return not any(self._shadows(path.relative_to(parent), parent) for parent in path.parents)

    def _counts(self, path: PurePosixPath) -> bool:
        """Whether the runner would take it for a test of its own accord."""
        beside = path.parent in self._tests and _BESIDE_TESTS.fullmatch(path.name) is not None
        return beside or _COUNTED.fullmatch(path.name) is not None

    def _shadows(self, path: PurePosixPath, parent: PurePosixPath) -> bool:
        """Whether Python would import it from `parent` instead of the runner's module of that name: a module, or what
        makes a package of a folder. Python prefers any other module to a folder without."""
        name = path.parts[0].split(".")[0]
        if name not in self._beside.get(parent, ()) or path.suffix not in _IMPORTED:
            return False
        return len(path.parts) == 1 or (len(path.parts) == 2 and path.name.split(".")[0] == "__init__")


@cache
def _plugins() -> frozenset[str]:
    """The modules of pytest's installed plugins."""
    return frozenset(entry.module.split(".")[0] for entry in importlib.metadata.entry_points(group=_PLUGINS))


def _steers(path: PurePosixPath) -> bool:
    """A file of this name changes how tests are run."""
    return path.name in _JUDGES or _RUNNER_SETTINGS.fullmatch(path.name) is not None


def _built(path: PurePosixPath) -> bool:
    """It lies where a tool keeps what it runs, or its settings. `target` may as well be a folder of sources."""
    return any(part in _JUDGING_FOLDERS and part != "target" for part in path.parts[:-1])
