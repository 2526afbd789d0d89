"""Finds the command that runs the tests of a JavaScript or TypeScript project: its script, else the
runner that its test files import, its configuration names, or it depends on.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from fugu_cli.session.recognized_tests import NODE_TEST
from fugu_cli.snapshots import repository_files
from fugu_cli.testing.manifests import file_names, read_json, read_text, table_at

DENO_MANIFESTS = ("deno.json", "deno.jsonc")


@dataclass(frozen=True)
class _PackageManager:
    """A package manager: how it runs a script, and how it starts an installed program."""

    program: str
    script_command: str
    program_command: str


_NPM = _PackageManager("npm", "npm", "npx --no")
_BUN_MANAGER = _PackageManager("bun", "bun run", "bunx")
_MANAGERS_BY_LOCK_FILE = {
    "pnpm-lock.yaml": _PackageManager("pnpm", "pnpm", "pnpm exec"),
    "yarn.lock": _PackageManager("yarn", "yarn", "yarn exec"),
    "bun.lockb": _BUN_MANAGER,
    "bun.lock": _BUN_MANAGER,
}
_SCRIPT_NAMES = ("test", "tests", "test:unit", "unit", "test:ci")
_TEST_FOLDERS = frozenset({"test", "tests", "__tests__", "spec"})
_JAVASCRIPT_FILE = re.compile(r".*\.[cm]?[jt]sx?")


@dataclass(frozen=True)
class _Runner:
    """A test runner. Its test files import one of `modules`; its configuration files begin with one
    of `files`. `needs_paths`: it searches only one folder unless it is given the paths of the
    tests.
    """

    package: str
    command: str
    modules: tuple[str, ...]
    files: tuple[str, ...] = ()
    is_installed_by_package: bool = True
    needs_paths: bool = False


_NODE = _Runner("node:test", "node --test", ("node:test",), is_installed_by_package=False)
_BUN = _Runner("bun:test", "bun test", ("bun:test",), is_installed_by_package=False)
_RUNNERS = (
    _NODE,
    _BUN,
    _Runner("vitest", "vitest run", ("vitest",), ("vitest.config.", "vitest.workspace.")),
    _Runner("jest", "jest", ("@jest/globals", "jest"), ("jest.config.",)),
    _Runner("mocha", "mocha", ("mocha",), (".mocharc.",), needs_paths=True),
    _Runner("ava", "ava", ("ava",), ("ava.config.",)),
    _Runner("jasmine", "jasmine", ("jasmine",), ("jasmine.",)),
    _Runner("tap", "tap", ("tap",), (".taprc",)),
    _Runner("tape", "tape", ("tape",), needs_paths=True),
    _Runner("uvu", "uvu", ("uvu",)),
    _Runner("@playwright/test", "playwright test", ("@playwright/test",), ("playwright.config.",)),
)
_IMPORTED_MODULE = re.compile(
    r"""(?:\bfrom|\bimport|\b(?:require|import)\s*\()\s*["']([^"'\n]+)["']"""
)
_GLOBAL_TEST = re.compile(r"^\s*(?:describe|it|test|expect|suite)\s*[.(]", re.MULTILINE)
"""A call of a function that most runners define without an import."""


def javascript_command(root: Path) -> str | None:
    """Return the command for the tests in `root`, None if there are no tests or it is unknown."""
    name = _script_name(root)
    if name:
        manager = _package_manager(root)
        if manager is _NPM and name != "test":
            return f"npm run {name}"
        return f"{manager.script_command} {name}"
    if any((root / manifest).is_file() for manifest in DENO_MANIFESTS):
        has_task = any(
            "test" in table_at(read_json(root / manifest), "tasks") for manifest in DENO_MANIFESTS
        )
        return "deno task test" if has_task else "deno test"
    return _workspace_command(root) or _command_by_files(root)


def test_script(root: Path) -> str:
    """Return the test script of package.json, "" if it has none."""
    name = _script_name(root)
    scripts = table_at(read_json(root / "package.json"), "scripts")
    return str(scripts[name]) if name else ""


def _script_name(root: Path) -> str:
    scripts = table_at(read_json(root / "package.json"), "scripts")
    for name in _SCRIPT_NAMES:
        script = scripts.get(name)
        if isinstance(script, str) and script and "no test specified" not in script:
            return name
    return ""


def _package_manager(root: Path) -> _PackageManager:
    for lock_file, manager in _MANAGERS_BY_LOCK_FILE.items():
        if (root / lock_file).is_file() and shutil.which(manager.program):
            return manager
    return _NPM


def _command_by_files(root: Path) -> str | None:
    """Return the command of the runner that the test files are written for. If there are several
    such runners, each is given its own files.
    """
    configured = _configured_runner(root)
    files_by_runner: dict[_Runner, list[str]] = {}
    for path, text in _test_files(root):
        runner = _runner_of(text, configured)
        if runner is not None:
            files = files_by_runner.setdefault(runner, [])
            files.append(path.relative_to(root).as_posix())
    commands = []
    for runner, files in files_by_runner.items():
        if len(files_by_runner) > 1:
            arguments = sorted(files)
        elif runner.needs_paths and not _is_configured(root, runner):
            arguments = sorted({_pattern_of(path) for path in files})
        else:
            arguments = []
        commands.append(shlex.join([*_program_words(root, runner), *arguments]))
    return " && ".join(commands) or None


def _test_files(root: Path) -> Iterator[tuple[Path, str]]:
    """Yield test files with their text: those named like tests, and those in a folder for tests that
    import a runner or call its functions.
    """
    for path in repository_files.walk_files(root, depth=4, limit=5000):
        if NODE_TEST.fullmatch(path.name):
            yield path, read_text(path) or ""
            continue
        is_in_test_folder = not _TEST_FOLDERS.isdisjoint(path.relative_to(root).parts)
        if is_in_test_folder and _JAVASCRIPT_FILE.fullmatch(path.name):
            text = read_text(path) or ""
            if _imported_runner(text) is not None or _GLOBAL_TEST.search(text):
                yield path, text


def _runner_of(text: str, configured: _Runner | None) -> _Runner | None:
    """Return the runner of a test file; Node's for a file that needs none, None if the file calls
    functions of a runner that is unknown.
    """
    runner = _imported_runner(text) or configured
    if runner is None and not _GLOBAL_TEST.search(text):
        return _NODE
    return runner


def _imported_runner(text: str) -> _Runner | None:
    modules = set(_IMPORTED_MODULE.findall(text))
    for runner in _RUNNERS:
        if not modules.isdisjoint(runner.modules):
            return runner
    return None


def _configured_runner(root: Path) -> _Runner | None:
    """Return the runner that the project has a configuration for, or depends on."""
    for runner in _RUNNERS:
        if _is_configured(root, runner):
            return runner
    package = read_json(root / "package.json")
    dependencies = {**table_at(package, "dependencies"), **table_at(package, "devDependencies")}
    for runner in _RUNNERS:
        if runner.package in dependencies:
            return runner
    return _BUN if _package_manager(root) is _BUN_MANAGER else None


def _is_configured(root: Path, runner: _Runner) -> bool:
    if not runner.is_installed_by_package:
        return False
    if any(name.startswith(runner.files) for name in file_names(root)):
        return True
    return runner.package in read_json(root / "package.json")


def _program_words(root: Path, runner: _Runner) -> list[str]:
    """Return the words that start a runner: the installed program, else by the package manager."""
    words = runner.command.split()
    if not runner.is_installed_by_package:
        return words
    installed = PurePosixPath("node_modules/.bin", words[0])
    if (root / installed).exists():
        return [str(installed), *words[1:]]
    return [*_package_manager(root).program_command.split(), *words]


def _pattern_of(path: str) -> str:
    """Return a pattern for the test file and similar ones, such as `src/**/*.test.ts`."""
    folder, _, name = path.rpartition("/")
    ending = re.search(r"(?:[.-](?:test|spec))?\.\w+$", name)
    if ending is not None:
        name = f"*{ending.group()}"
    top_folder = folder.split("/")[0]
    return f"{top_folder}/**/{name}" if folder else name


def _workspace_command(root: Path) -> str | None:
    """Return the command that runs the test scripts of a workspace's packages, None if it has none."""
    names_packages = bool(read_json(root / "package.json").get("workspaces"))
    if not names_packages and not (root / "pnpm-workspace.yaml").is_file():
        return None
    manifests = (
        path
        for path in repository_files.walk_files(root, depth=3, limit=5000)
        if path.name == "package.json" and path.parent != root
    )
    if not any(table_at(read_json(path), "scripts").get("test") for path in manifests):
        return None
    match _package_manager(root).program:
        case "pnpm":
            return "pnpm -r test"
        case "yarn":
            return "yarn workspaces run test"
        case _:
            return "npm test --workspaces --if-present"
