"""Finds the command that runs the tests of a JavaScript or TypeScript project: its script, else the
runner that its test files import, its configuration names, or it depends on.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from fugu_cli.session.recognized_tests import NODE_TEST
from fugu_cli.snapshots import repository_files
from fugu_cli.testing.manifests import file_names, read_json, read_text, table_at

DENO_MANIFESTS = ("deno.json", "deno.jsonc")
_PACKAGE_MANAGERS = {
    "pnpm-lock.yaml": ("pnpm", "pnpm", "pnpm exec"),
    "yarn.lock": ("yarn", "yarn", "yarn exec"),
    "bun.lockb": ("bun", "bun run", "bunx"),
    "bun.lock": ("bun", "bun run", "bunx"),
}
"""Lock files: the program, how it runs a script, and how it starts an installed program."""
_NPM = ("npm", "npm", "npx --no")
_SCRIPT_NAMES = ("test", "tests", "test:unit", "unit", "test:ci")
_TEST_FOLDERS = frozenset({"test", "tests", "__tests__", "spec"})
_SOURCE = re.compile(r".*\.[cm]?[jt]sx?")


@dataclass(frozen=True)
class _Runner:
    """A test runner.

    `modules` are what its test files import, `files` the beginnings of its configuration's names.
    `needs_paths`: it looks in one folder unless it is told where the tests are.
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
_IMPORTED = re.compile(r"""(?:\bfrom|\bimport|\b(?:require|import)\s*\()\s*["']([^"'\n]+)["']""")
_GLOBAL_TEST = re.compile(r"^\s*(?:describe|it|test|expect|suite)\s*[.(]", re.MULTILINE)


def javascript_command(root: Path) -> str | None:
    """Return the command for the tests in `root`, None if there are none or it is unknown."""
    name = _script_name(root)
    if name:
        _, runs_script, _ = _package_manager(root)
        usual = name == "test" or runs_script != "npm"
        return f"{runs_script} {name}" if usual else f"{runs_script} run {name}"
    if any((root / manifest).is_file() for manifest in DENO_MANIFESTS):
        has_task = any(
            "test" in table_at(read_json(root / manifest), "tasks") for manifest in DENO_MANIFESTS
        )
        return "deno task test" if has_task else "deno test"
    return _workspace_command(root) or _command_by_files(root)


def test_script(root: Path) -> str:
    """Return the script that package.json names for tests; "" where it names none."""
    name = _script_name(root)
    return str(table_at(read_json(root / "package.json"), "scripts")[name]) if name else ""


def _script_name(root: Path) -> str:
    scripts = table_at(read_json(root / "package.json"), "scripts")
    for name in _SCRIPT_NAMES:
        script = scripts.get(name)
        if isinstance(script, str) and script and "no test specified" not in script:
            return name
    return ""


def _package_manager(root: Path) -> tuple[str, str, str]:
    for lock, manager in _PACKAGE_MANAGERS.items():
        if (root / lock).is_file() and shutil.which(manager[0]):
            return manager
    return _NPM


def _command_by_files(root: Path) -> str | None:
    """Return the command of the runner that the test files are written for. Where they are written
    for several, each gets its own files.
    """
    configured = _configured_runner(root)
    paths: dict[_Runner, list[str]] = {}
    for path, text in _test_files(root):
        runner = _runner_of(text, configured)
        if runner is not None:
            paths.setdefault(runner, []).append(path.relative_to(root).as_posix())
    commands = []
    for runner, own_paths in paths.items():
        if len(paths) > 1:
            words = sorted(own_paths)
        elif runner.needs_paths and not _is_configured(root, runner):
            words = sorted({_pattern_of(path) for path in own_paths})
        else:
            words = []
        commands.append(shlex.join([*_launch(root, runner), *words]))
    return " && ".join(commands) or None


def _test_files(root: Path) -> Iterator[tuple[Path, str]]:
    """Yield the files that are tests by their names, or by their folder and what they call."""
    for path in repository_files.walk_files(root, depth=4, limit=5000):
        if NODE_TEST.fullmatch(path.name):
            yield path, read_text(path) or ""
        elif _SOURCE.fullmatch(path.name) and _TEST_FOLDERS & set(path.relative_to(root).parts):
            text = read_text(path) or ""
            if _imported_runner(text) is not None or _GLOBAL_TEST.search(text):
                yield path, text


def _runner_of(text: str, configured: _Runner | None) -> _Runner | None:
    """Return the runner of a test file, None if it calls functions that an unknown runner defines."""
    runner = _imported_runner(text) or configured
    if runner is None and not _GLOBAL_TEST.search(text):
        return _NODE
    return runner


def _imported_runner(text: str) -> _Runner | None:
    modules = set(_IMPORTED.findall(text))
    return next((runner for runner in _RUNNERS if modules.intersection(runner.modules)), None)


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
    return _BUN if _package_manager(root)[0] == "bun" else None


def _is_configured(root: Path, runner: _Runner) -> bool:
    if not runner.is_installed_by_package:
        return False
    names = file_names(root)
    has_file = any(name.startswith(start) for name in names for start in runner.files)
    return has_file or runner.package in read_json(root / "package.json")


def _launch(root: Path, runner: _Runner) -> Sequence[str]:
    words = runner.command.split()
    if not runner.is_installed_by_package:
        return words
    installed = PurePosixPath("node_modules/.bin", words[0])
    if (root / installed).exists():
        return [str(installed), *words[1:]]
    return [*_package_manager(root)[2].split(), *words]


def _pattern_of(path: str) -> str:
    """Return a pattern of the test file and those like it, such as `src/**/*.test.ts`."""
    folder, _, name = path.rpartition("/")
    ending = re.search(r"(?:[.-](?:test|spec))?\.\w+$", name)
    own_name = f"*{ending.group()}" if ending is not None else name
    return f"{folder.split('/')[0]}/**/{own_name}" if folder else own_name


def _workspace_command(root: Path) -> str | None:
    """Return the command that runs the test scripts of a workspace's packages, None without any."""
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
    match _package_manager(root)[0]:
        case "pnpm":
            return "pnpm -r test"
        case "yarn":
            return "yarn workspaces run test"
        case _:
            return "npm test --workspaces --if-present"
