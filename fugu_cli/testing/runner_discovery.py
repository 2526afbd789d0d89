"""Finds the command that runs a repository's tests from its files: pytest and unittest, build
tools, doctests.

Called once when a session opens; `--test-command` takes precedence. Reads files and asks a Python
whether it has pytest; runs nothing of the repository. A missing build tool is reported by the run
itself. Docstring examples count as tests only if there are no others. Then every expression must
have its answer, and every import must be in the standard library or beside the file.
"""

from __future__ import annotations

import ast
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatch
from pathlib import Path

from fugu_cli.safety.paths import is_file, is_folder, search_path_outside
from fugu_cli.session.recognized_tests import NODE_TEST, PYTHON_TEST
from fugu_cli.snapshots import repository_files
from fugu_cli.system.bounded_json import parse_json

_BEFORE_NODE = {"Cargo.toml": "cargo test"}
_AFTER_NODE = {
    "go.mod": "go test ./...",
    "pom.xml": "mvn -B -ntp test",
    "build.gradle": "gradle test --console=plain",
    "build.gradle.kts": "gradle test --console=plain",
    "build.sbt": "sbt test",
    "project.clj": "lein test",
    "*.sln": "dotnet test",
    "*.slnx": "dotnet test",
    "*.csproj": "dotnet test",
    "*.fsproj": "dotnet test",
    "mix.exs": "mix test",
    "rebar.config": "rebar3 eunit",
    "gleam.toml": "gleam test",
    "Package.swift": "swift test",
    "stack.yaml": "stack test",
    "*.cabal": "cabal test",
    "dune-project": "dune test",
    "build.zig": "zig build test",
    "deno.json": "deno test",
    "deno.jsonc": "deno test",
}
"""Files in the root and the test commands they imply. The first that exists decides."""
_BESIDE = frozenset(
    {
        *("docs", "doc", "examples", "example", "samples", "demo", "demos"),
        *("vendor", "third_party", "fixtures", "testdata", "scripts", "tools"),
    }
)
"""Folders whose tests are not those of the repository."""
_WRAPPERS = {"mvn": "mvnw", "gradle": "gradlew"}
_NODE_LOCKS = {
    "pnpm-lock.yaml": "pnpm",
    "yarn.lock": "yarn",
    "bun.lockb": "bun run",
    "bun.lock": "bun run",
}


def has_build_file(names: Iterable[str]) -> bool:
    """Return whether one of the names is a build file, except make's."""
    patterns = ("package.json", *_BEFORE_NODE, *_AFTER_NODE)
    return any(fnmatch(name, pattern) for name in names for pattern in patterns)


def build_tool_command(root: Path) -> str | None:
    """Return the test command for `root`, None if no file there says how its tests are run."""
    finders: tuple[Callable[[Path], str | None], ...] = (
        lambda root: _by_table(root, _BEFORE_NODE),
        _node,
        lambda root: _by_table(root, _AFTER_NODE),
        _ruby,
        _php,
        _make,
    )
    for find in finders:
        command = find(root)
        if command is not None:
            return command
    return None


def single_folder_command(root: Path) -> str | None:
    """Return the command of the only folder in `root` that has one, None for none or several."""
    try:
        folders = sorted(path for path in root.iterdir() if path.is_dir() and not path.is_symlink())
    except OSError:
        return None
    own = [
        path
        for path in folders
        if path.name not in repository_files.SKIPPED_FOLDERS | _BESIDE
        and not path.name.startswith(".")
    ]
    commands = {path.name: line for path in own if (line := build_tool_command(path)) is not None}
    if len(commands) != 1:
        return None
    ((folder, line),) = commands.items()
    return f"cd {shlex.quote(folder)} && {line}"


def _by_table(root: Path, table: dict[str, str]) -> str | None:
    try:
        names = {path.name for path in root.iterdir() if path.is_file()}
    except OSError:
        return None
    line = next(
        (line for pattern, line in table.items() if any(fnmatch(name, pattern) for name in names)),
        None,
    )
    if line is None:
        return None
    program, _, rest = line.partition(" ")
    wrapper = _WRAPPERS.get(program, "")
    return (
        f"./{wrapper} {rest}" if wrapper in names and os.access(root / wrapper, os.X_OK) else line
    )


def _node(root: Path) -> str | None:
    script = test_script(root)
    if script and "no test specified" not in script:
        for lock, line in _NODE_LOCKS.items():
            if (root / lock).is_file() and shutil.which(line.split()[0]):
                return f"{line} test"
        return "npm test"
    tests = any(
        NODE_TEST.fullmatch(path.name) and _runs_under_node(_text(path) or "")
        for path in repository_files.walk_files(root, depth=4, limit=5000)
    )
    return "node --test" if tests else _workspace_tests(root)


_NODES_OWN_RUNNER = re.compile(r"""["']node:test["']""")
_ANOTHER_RUNNER = re.compile(
    r"""["'](?:vitest|@jest/globals|jest|@playwright/test|ava|mocha|tap|bun:test)["']"""
    r"""|^\s*(?:describe|it|test|expect)\s*[.(]""",
    re.MULTILINE,
)


def _runs_under_node(text: str) -> bool:
    """Return whether a test file imports Node's own runner or needs no runner."""
    return bool(_NODES_OWN_RUNNER.search(text)) or not _ANOTHER_RUNNER.search(text)


def _workspace_tests(root: Path) -> str | None:
    """Return the command that runs the test scripts of a workspace's packages."""
    manifest = _text(root / "package.json") or ""
    try:
        names_packages = bool(parse_json(manifest or "{}").get("workspaces"))
    except (ValueError, AttributeError):
        names_packages = False
    if not names_packages and not (root / "pnpm-workspace.yaml").is_file():
        return None
    if (root / "pnpm-lock.yaml").is_file() and shutil.which("pnpm"):
        return "pnpm -r test"
    if (root / "yarn.lock").is_file() and shutil.which("yarn"):
        return "yarn workspaces run test"
    return "npm test --workspaces --if-present"


def test_script(root: Path) -> str:
    """Return the script that package.json names for tests; "" where it names none."""
    try:
        package = parse_json(_text(root / "package.json") or "{}")
    except ValueError:
        return ""
    scripts = package.get("scripts") if isinstance(package, dict) else None
    script = scripts.get("test") if isinstance(scripts, dict) else None
    return script if isinstance(script, str) else ""


def _ruby(root: Path) -> str | None:
    """Return the command for RSpec if it is set up, else Rails' own tests, else a Rakefile's."""
    bundled = "bundle exec " if (root / "Gemfile").is_file() else ""
    if (root / ".rspec").is_file() or any((root / "spec").glob("**/*_spec.rb")):
        return f"{bundled}rspec"
    if (root / "bin" / "rails").is_file() and (root / "test").is_dir():
        return "bin/rails test"
    asks = re.search(
        r"TestTask|\btask[ (]+[:\"']?(?:test|default)\b", _text(root / "Rakefile") or ""
    )
    return f"{bundled}rake test" if asks and (root / "test").is_dir() else None


def _php(root: Path) -> str | None:
    if '"test"' in (_text(root / "composer.json") or "").partition('"scripts"')[2]:
        return "composer test"
    named = any(
        (root / name).is_file() for name in ("phpunit.xml", "phpunit.xml.dist", "phpunit.dist.xml")
    )
    return "vendor/bin/phpunit" if named else None


def _make(root: Path) -> str | None:
    for name in ("GNUmakefile", "makefile", "Makefile"):
        for target in ("test", "check"):
            if re.search(rf"^{target}\s*:(?!=)", _text(root / name) or "", re.MULTILINE):
                return f"make {target}"
    return None


MOST_DOCTEST_FILES = 20
"""Files; where more hold examples, one that fails has likely failed for years."""
LARGEST_DOCTEST_FILE = 200_000
"""Bytes of a file that is read."""


def doctest_files(root: Path) -> list[str]:
    """Return the Python files below `root` whose examples can be run as tests; [] if there are more
    than `MOST_DOCTEST_FILES`.
    """
    files = [path for path, module in _modules(root) if _all_answered(module)]
    return files if len(files) <= MOST_DOCTEST_FILES else []


def _modules(root: Path) -> list[tuple[str, ast.Module]]:
    """Return the files that can be loaded on their own, parsed."""
    python = [
        path
        for path in repository_files.walk_files(root, depth=4, limit=5000)
        if path.suffix == ".py"
    ]
    importable = (
        sys.stdlib_module_names
        | {path.stem for path in python}
        | {path.parent.name for path in python}
    )
    read = [(path.relative_to(root).as_posix(), _module(path)) for path in python]
    return [
        (path, module)
        for path, module in read
        if module is not None and _imports(module) <= importable
    ]


def _module(path: Path) -> ast.Module | None:
    """Parse a file, None if it is large, holds no example, or is no Python."""
    try:
        if path.stat().st_size > LARGEST_DOCTEST_FILE:
            return None
        text = path.read_text(encoding="utf-8")
        return ast.parse(text) if ">>>" in text else None
    except (OSError, ValueError, SyntaxError, RecursionError):
        return None


def _imports(module: ast.Module) -> set[str]:
    """Return the top-level names of imported modules; "" for a relative import, which only works
    inside a package.
    """
    names: set[str] = set()
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add("" if node.level else (node.module or "").split(".")[0])
    return names


def _all_answered(module: ast.Module) -> bool:
    """Return whether there are examples, and each expression except a single call has its answer."""
    import doctest  # takes long

    parser = doctest.DocTestParser()
    has_answers = False
    for node in ast.walk(module):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
            continue
        try:
            examples = parser.get_examples(ast.get_docstring(node) or "")
            unanswered = [
                example
                for example in examples
                if not example.want and _is_comparison(example.source)
            ]
        except (ValueError, SyntaxError):
            return False
        has_answers = has_answers or any(example.want for example in examples)
        if unanswered:
            return False
    return has_answers


def _is_comparison(source: str) -> bool:
    """Return whether it is a comparison like `f(1) == 2` without an answer: meant as an assertion,
    it fails as an example when it is true.
    """
    body = ast.parse(source).body
    return any(
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Compare | ast.BoolOp)
        for node in body
    )


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
    """Return what a test command needs and does not find, "" where everything is there."""
    try:
        words = shlex.split(command)
    except ValueError:
        return ""
    if not words or words[0] == "cd" or "=" in words[0]:
        return ""
    if not shutil.which(root / words[0] if "/" in words[0] else words[0]):
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
    tests, config = _tests(root), _pytest_config(root)
    if not tests and config is None:
        return None
    projects = list(_pythons(root))
    pythons = list(dict.fromkeys([*projects, own]))
    if _tested_by_django(root):
        return f"{_quoted(pythons[0])} manage.py test"
    with_pytest = next((python for python in pythons if _has_pytest(root, python)), None)
    needs_pytest = config is not None or any(_needs_pytest(path) for path in tests)
    managed = _managed_environment(root)
    if managed is not None and shutil.which(managed.split()[0]):
        uses_managed = with_pytest not in list(_environment_pythons(root))
    else:
        uses_managed = needs_pytest and with_pytest not in projects
    if managed is not None and uses_managed:
        return f"{managed} pytest {PYTEST_OPTIONS}"
    if with_pytest is None and not needs_pytest:
        return f"{_quoted(pythons[0])} {_unittest(root, tests)}"
    options = "-q" if NEEDS_CACHE.search(config or "") else PYTEST_OPTIONS
    if _QUIET.search(config or ""):
        options = options.removeprefix("-q").strip()  # twice, and pytest counts nothing
    return f"{_quoted(with_pytest or pythons[0])} -m pytest {options}".rstrip()


def _tested_by_django(root: Path) -> bool:
    """Return whether this is a Django project whose tests are not set up by a pytest plugin."""
    manage = _text(root / "manage.py")
    if manage is None or "DJANGO_SETTINGS_MODULE" not in manage:
        return False
    names = ("pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg", "conftest.py")
    texts = (_text(root / name) or "" for name in names)
    return not any("DJANGO_SETTINGS_MODULE" in text or "pytest_django" in text for text in texts)


LOCKS = {
    "uv.lock": "uv run",
    "poetry.lock": "poetry run",
    "pdm.lock": "pdm run",
    "Pipfile.lock": "pipenv run",
}
"""The lock files of the tools that keep a project's environment, and how each runs a command."""


def _managed_environment(root: Path) -> str | None:
    """Return the command of the tool that keeps the project's environment. Where the tool is
    missing, a run says so: fugu's own Python has none of the project's packages.
    """
    for lock, command in LOCKS.items():
        if (root / lock).is_file():
            return command
    return None


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
    """Return the command for docstring examples, None if there are none."""
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
        text = _text(root / name)
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
    """Return whether a Python has pytest: by its environment's packages, else by asking it. A
    Python in the repository is never asked, because it may be anything.
    """
    program = python if "/" in python else shutil.which(python, path=search_path_outside(root))
    if program is None:
        return False
    environment = (root / program).parent.parent
    if any(environment.glob("lib/python3*/site-packages/pytest/__init__.py")):
        return True
    if root in (root / program).parents:
        return False
    command = [
        program,
        "-c",
        "import importlib.util, sys; sys.exit(importlib.util.find_spec('pytest') is None)",
    ]
    try:
        done = subprocess.run(
            command, cwd="/", capture_output=True, timeout=10, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _needs_pytest(path: Path) -> bool:
    text = _text(path) or ""
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


def _text(path: Path) -> str | None:
    """Return the file's text, None if it is missing or unreadable."""
    try:
        return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else None
    except OSError:
        return None


def _quoted(text: str) -> str:
    return shlex.quote(text)


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
    return "node" if {"node", "npm", "pnpm", "yarn", "bun"} & set(words) else ""
