"""Finding the test command of sample trees."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from fugu_cli.snapshots import repository_files
from fugu_cli.testing.runner_discovery import find_test_command, output_format
from tests.unit.conftest import lay

PYTEST = "-m pytest -q -p no:cacheprovider"
EXAMPLES = 'def f(x):\n    """Twice.\n\n    >>> f(1)\n    2\n    """\n'
PACKAGE = '{"scripts": {"test": "%s"}}'


def program(folder: Path, name: str, script: str = "exit 0") -> Path:
    """An executable that does `script`."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def only_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with a python3 that has pytest and nothing else."""
    program(tmp_path / "bin", "python3")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    return tmp_path / "bin"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, None),
        ({"README.md": "pytest", "src/main.py": "x"}, None),
        ({"test_a.py": "def test_a(): pass"}, f"python3 {PYTEST}"),
        ({"a.py": EXAMPLES}, f"python3 {PYTEST} --doctest-modules a.py"),
        ({"a.py": EXAMPLES, "test_b.py": ""}, f"python3 {PYTEST}"),
        ({"a.py": EXAMPLES, "Cargo.toml": ""}, "cargo test"),
        ({"a.py": "", "a_test.py": "import pytest"}, f"python3 {PYTEST}"),
        ({"tests/unit/test_a.py": "import unittest"}, f"python3 {PYTEST}"),
        ({"pytest.ini": "[pytest]\n"}, f"python3 {PYTEST}"),
        (
            {"pyproject.toml": "[tool.pytest.ini_options]\naddopts = '--lf'\n"},
            "python3 -m pytest -q",
        ),
        ({"setup.cfg": "[tool:pytest]\n"}, f"python3 {PYTEST}"),
        ({"pytest.ini": "[pytest]\naddopts = -ra -q\n"}, "python3 -m pytest -p no:cacheprovider"),
        ({"tests/conftest.py": ""}, f"python3 {PYTEST}"),
        ({"node_modules/x/test_a.py": "", ".venv/lib/test_b.py": ""}, None),
        ({"Cargo.toml": "[package]\n", "src/lib.rs": ""}, "cargo test"),
        ({"go.mod": "module x\n"}, "go test ./..."),
        ({"package.json": PACKAGE % "vitest run"}, "npm test"),
        ({"package.json": PACKAGE % 'echo \\"Error: no test specified\\" && exit 1'}, None),
        ({"package.json": "{}", "src/a.test.js": ""}, "node --test"),
        ({"package.json": "not json", "test.mjs": ""}, "node --test"),
        ({"a.test.js": 'import { test } from "node:test"\n'}, "node --test"),
        ({"a.test.js": 'import { it } from "vitest"\n'}, "npx --no vitest run"),
        ({"a.test.js": "it('a', f)\n"}, None),
        (
            {
                "package.json": '{"devDependencies": {"mocha": "10"}}',
                "test/a.js": "describe('a', f)\n",
            },
            "npx --no mocha 'test/**/*.js'",
        ),
        (
            {"a.test.ts": "test('a', f)\n", "jest.config.js": "", "node_modules/.bin/jest": ""},
            "node_modules/.bin/jest",
        ),
        (
            {"a.test.js": 'import "node:test"\n', "web/b.test.js": 'import "vitest"\n'},
            "node --test a.test.js && npx --no vitest run web/b.test.js",
        ),
        (
            {"package.json": '{"scripts": {"test:unit": "vitest run"}}', "a.test.js": ""},
            "npm run test:unit",
        ),
        (
            {
                "package.json": '{"workspaces": ["packages/*"]}',
                "packages/a/package.json": PACKAGE % "vitest run",
                "packages/a/a.test.js": 'import { it } from "vitest"\n',
            },
            "npm test --workspaces --if-present",
        ),
        (
            {"package.json": '{"workspaces": ["lib"]}', "lib/a.test.js": 'import "vitest"\n'},
            "npx --no vitest run",
        ),
        ({"deno.json": "{}", "a.test.ts": "Deno.test('a', f)\n"}, "deno test"),
        ({"deno.json": '{"tasks": {"test": "deno test -A"}}'}, "deno task test"),
        ({"a.test.ts": 'import { it } from "bun:test"\n'}, "bun test"),
        (
            {"Cargo.toml": '[workspace]\nmembers = ["a"]\n[package]\nname = "b"\n'},
            "cargo test --workspace",
        ),
        (
            {
                "manage.py": "import os\nos.environ.setdefault('DJANGO_SETTINGS_MODULE', 's')\n",
                "polls/tests.py": "from django.test import TestCase\n",
            },
            "python3 manage.py test",
        ),
        ({"package.json": '{"scripts": []}'}, None),
        ({"Makefile": "build:\n\ttrue\ntest: build\n\ttrue\n"}, "make test"),
        ({"Makefile": "check:\n\ttrue\n"}, "make check"),
        ({"Makefile": "test := 1\n"}, None),
        ({"Makefile": "test:\n", "test_a.py": "", "Cargo.toml": ""}, f"python3 {PYTEST}"),
        (
            {"Cargo.toml": "", "src/lib.rs": "", "tests/a.rs": "", "tools/test_x.py": ""},
            "cargo test",
        ),
        ({"package.json": PACKAGE % "jest", "scripts/tests.py": ""}, "npm test"),
        ({"go.mod": "module x\n", "docs/conf.py": "", "docs/test_links.py": ""}, "go test ./..."),
        ({"package.json": "{}", "api/tests/test_a.py": ""}, f"python3 {PYTEST}"),
        ({"Cargo.toml": "", "pyproject.toml": "", "python/test_x.py": ""}, f"python3 {PYTEST}"),
        ({"Cargo.toml": "", "tests/test_x.py": ""}, f"python3 {PYTEST}"),
        (
            {"package.json": PACKAGE % "jest", "manage.py": "", "shop/tests.py": ""},
            f"python3 {PYTEST}",
        ),
        ({"test_a.py": b"\xff\xfe not text"}, f"python3 {PYTEST}"),
        ({"pom.xml": "<project/>", "src/test/java/ATest.java": ""}, "mvn -B -ntp test"),
        ({"build.gradle.kts": "", "settings.gradle.kts": ""}, "gradle test --console=plain"),
        ({"pom.xml": "", "scripts/test_release.py": ""}, "mvn -B -ntp test"),
        ({"Shop.sln": "", "src/Shop.csproj": ""}, "dotnet test"),
        ({"mix.exs": "", "Makefile": "test:\n"}, "mix test"),
        ({"Gemfile": "", "spec/cart_spec.rb": ""}, "bundle exec rspec"),
        ({".rspec": "--color"}, "rspec"),
        ({"spec/fixtures/a.json": ""}, None),
        ({"Rakefile": "Rake::TestTask.new(:test)", "test/test_cart.rb": ""}, "rake test"),
        ({"Gemfile": "", "bin/rails": "", "test/models/a_test.rb": ""}, "bin/rails test"),
        (
            {"Gemfile": "", "test/cart_test.rb": ""},
            "bundle exec ruby -Ilib -Itest -e "
            "'Dir[\"./test/**/*_test.rb\"].each { |file| require file }'",
        ),
        ({"phpunit.xml.dist": ""}, "vendor/bin/phpunit"),
        (
            {"composer.json": '{"require-dev": {"phpunit/phpunit": "11"}}', "tests/ATest.php": ""},
            "vendor/bin/phpunit tests",
        ),
        ({"justfile": "build:\n    true\ntest *flags: build\n    true\n"}, "just test"),
        ({"Taskfile.yml": "version: 3\ntasks:\n  test:\n    cmds: [x]\n"}, "task test"),
        (
            {"CMakeLists.txt": "project(a C)\nenable_testing()\n"},
            "cmake -S . -B build && cmake --build build && ctest --test-dir build --output-on-failure",
        ),
        ({"pubspec.yaml": "name: a\n", "test/a_test.dart": ""}, "dart test"),
        ({"pubspec.yaml": "name: a\n"}, None),
        ({"composer.json": '{"name": "test", "scripts": {"test": "pest"}}'}, "composer test"),
        ({"composer.json": '{"name": "test"}'}, None),
        ({"web/package.json": PACKAGE % "vitest run", "docs/a.md": ""}, "cd web && npm test"),
        ({"my app/Cargo.toml": ""}, "cd 'my app' && cargo test"),
        (
            {
                "web/package.json": PACKAGE % "jest",
                "examples/a/go.mod": "",
                "docs/Makefile": "check:\n",
            },
            "cd web && npm test",
        ),
        ({"examples/go.mod": "", "vendor/Cargo.toml": ""}, None),
        (
            {"web/package.json": PACKAGE % "jest", "a.py": EXAMPLES},
            f"python3 {PYTEST} --doctest-modules a.py",
        ),
        ({"web/package.json": PACKAGE % "jest", "api/go.mod": ""}, None),
        ({"web/package.json": PACKAGE % "jest", "api/tests/test_a.py": ""}, f"python3 {PYTEST}"),
        ({"node_modules/x/package.json": PACKAGE % "jest", ".tools/go.mod": ""}, None),
    ],
)
def test_the_command_follows_from_the_files(
    files: dict[str, str | bytes], expected: str | None, tmp_path: Path, only_python: Path
) -> None:
    (tmp_path / "repo").mkdir()
    lay(tmp_path / "repo", files)
    assert find_test_command(tmp_path / "repo") == expected


TOX = "[testenv]\ncommands = %s\n"
NOX = "import nox\n@nox.session(python=['3.12'])\ndef tests(session):\n    session.run(%r)\n"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"tox.ini": TOX % "pytest {posargs}"}, "tox -e py"),
        ({"tox.ini": "[testenv:lint]\ncommands = ruff\n[testenv:unit]\ncommands = x\n"}, "tox -e unit"),
        ({"tox.ini": "[testenv:lint]\ncommands = ruff check\n"}, f"python3 {PYTEST}"),
        ({"pyproject.toml": "[tool.tox.env_run_base]\ncommands = [['pytest']]\n"}, "tox -e py"),
        ({"noxfile.py": NOX % "pytest"}, "nox -s tests"),
        ({"pyproject.toml": "[tool.hatch.envs.default.scripts]\ntest = 'pytest'\n"}, "hatch run test"),
        ({"pyproject.toml": "[tool.hatch.envs.test.scripts]\nrun = 'pytest'\n"}, "hatch run test:run"),
        ({"pyproject.toml": "[tool.hatch.envs.default]\ndependencies = ['pytest>=8']\n"}, "hatch run pytest"),
        ({"tox.toml": "[env.'py3.12']\ncommands = [['pytest']]\n"}, "tox -e py3.12"),
        ({"pyproject.toml": "[tool.hatch.envs.hatch-test]\nextra-args = []\n"}, "hatch test"),
        ({"pyproject.toml": "[tool.poe.tasks]\ntest = 'pytest'\n"}, f"python3 {PYTEST}"),
        ({"tox.ini": TOX % "pytest", ".venv/lib/python3.12/site-packages/pytest/__init__.py": ""},
         f".venv/bin/python {PYTEST}"),
        ({"tox.ini": TOX % "python check.py",
          ".venv/lib/python3.12/site-packages/pytest/__init__.py": ""}, "tox -e py"),
        ({"tox.ini": TOX % "pytest", "uv.lock": ""}, "uv run pytest -q -p no:cacheprovider"),
        ({"uv.lock": "", "tests/test_a.py": "import unittest"}, "uv run python -m unittest discover -s tests"),
        ({"uv.lock": "", "manage.py": "DJANGO_SETTINGS_MODULE"}, "uv run python manage.py test"),
    ],
)  # fmt: skip
def test_a_projects_own_task_runs_its_tests(
    files: dict[str, str | bytes], expected: str, tmp_path: Path, only_python: Path
) -> None:
    for tool in ("tox", "nox", "hatch", "uv"):
        program(only_python, tool)
    root = tmp_path / "repo"
    lay(root, {"tests/test_a.py": "import pytest", **files})
    if any(name.startswith(".venv") for name in files):
        program(root, ".venv/bin/python")
    assert find_test_command(root) == expected


def test_a_virtual_environment_may_see_the_pytest_of_its_python(
    tmp_path: Path, only_python: Path
) -> None:
    root, prefix = tmp_path / "repo", tmp_path / "usr"
    settings = f"home = {prefix}/bin\ninclude-system-site-packages = true\n"
    lay(root, {"test_a.py": "import pytest", ".venv/pyvenv.cfg": settings})
    lay(prefix, {"lib/python3/dist-packages/pytest/__init__.py": ""})
    program(root, ".venv/bin/python")
    assert find_test_command(root) == f".venv/bin/python {PYTEST}"


def test_a_python_that_the_repository_names_is_not_run(tmp_path: Path, only_python: Path) -> None:
    root, cache = tmp_path / "repo", tmp_path / "cache"
    planted = program(cache, "python3")
    planted.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    settings = f"executable = {planted}\nhome = {cache}\ninclude-system-site-packages = true\n"
    lay(root, {"test_a.py": "import pytest", ".venv/pyvenv.cfg": settings})
    program(root, ".venv/bin/python")
    assert find_test_command(root) == f"python3 {PYTEST}"
    assert not (tmp_path / "ran").exists()


def test_a_pipe_among_the_modules_is_not_opened(tmp_path: Path, only_python: Path) -> None:
    root = tmp_path / "repo"
    lay(root, {"a.txt": "", "b/c.txt": ""})
    os.mkfifo(root / "x.py")
    (root / "loop.py").symlink_to("loop.py")
    (root / "d.txt").symlink_to("a.txt")
    assert list(repository_files.walk_files(root)) == [
        root / "a.txt",
        root / "d.txt",
        root / "b" / "c.txt",
    ]
    assert find_test_command(root) is None


def test_tests_are_found_behind_a_folder_of_very_many_files(
    tmp_path: Path, only_python: Path
) -> None:
    root = tmp_path / "repo"
    lay(root, {"tests/test_a.py": "import pytest", "src/a.py": ""})
    (root / "data").mkdir()
    for number in range(5001):
        (root / "data" / f"{number}.txt").touch()
    assert find_test_command(root) == f"python3 {PYTEST}"


def test_the_repositorys_own_python_goes_first_if_pytest_is_installed_beside_it(
    tmp_path: Path, only_python: Path
) -> None:
    root = tmp_path / "repo"
    lay(
        root,
        {"test_a.py": "import pytest", ".venv/lib/python3.11/site-packages/pytest/__init__.py": ""},
    )
    program(root, ".venv/bin/python")
    assert find_test_command(root) == f".venv/bin/python {PYTEST}"


def test_a_wrapper_that_can_be_run_goes_before_the_program(
    tmp_path: Path, only_python: Path
) -> None:
    for file, wrapper in {"pom.xml": "mvnw", "build.gradle": "gradlew"}.items():
        root = tmp_path / wrapper
        lay(root, {file: "", f"{wrapper}.cmd": "", wrapper: ""})
        assert str(find_test_command(root)).startswith(("mvn ", "gradle "))
        program(root, wrapper)
        assert str(find_test_command(root)).startswith(f"./{wrapper} ")


def test_a_python_that_the_repository_brought_is_not_run_to_ask_it(
    tmp_path: Path, only_python: Path
) -> None:
    root = tmp_path / "repo"
    lay(root, {"test_a.py": "import pytest"})
    program(root, ".venv/bin/python", f"touch {tmp_path}/run")
    assert find_test_command(root) == f"python3 {PYTEST}"
    assert not (tmp_path / "run").exists()


def test_without_any_python_on_path_our_own_runs_the_tests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lay(tmp_path, {"test_a.py": "import pytest"})
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    assert find_test_command(tmp_path) == f"{sys.executable} {PYTEST}"


def test_without_pytest_tests_of_unittest_are_discovered(tmp_path: Path, only_python: Path) -> None:
    for name in ("python3", "python"):
        program(only_python, name, "exit 1")
    unittest = "import unittest\nclass T(unittest.TestCase): pass\n"
    lay(tmp_path / "flat", {"test_a.py": unittest})
    lay(tmp_path / "package", {"tests/__init__.py": "", "tests/test_a.py": unittest})
    lay(tmp_path / "folder", {"tests/test_a.py": unittest})
    lay(tmp_path / "behind", {"tests/a_test.py": unittest})
    lay(tmp_path / "both", {"a_test.py": unittest, "test_b.py": unittest})
    found = {
        path.name: find_test_command(path, "python3")
        for path in tmp_path.iterdir()
        if path != only_python
    }
    assert found == {
        "flat": "python3 -m unittest discover",
        "package": "python3 -m unittest discover",
        "folder": "python3 -m unittest discover -s tests",
        "behind": "python3 -m unittest discover -s tests -p '*_test.py'",
        "both": "python3 -m unittest discover -p '*test*.py'",
    }
    lay(tmp_path / "flat", {"test_b.py": "import pytest"})
    assert find_test_command(tmp_path / "flat", "python3") == f"python3 {PYTEST}"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (".venv/bin/python -m pytest -q", "pytest"), ("/usr/bin/pytest", "pytest"), ("cargo test", "cargo"),
        ("npm test", "node"), ("node --test", "node"), ("go test ./...", "go"), ("make test", ""),
        ("python3 -m unittest discover", "unittest"), ("./mvnw -B test", "maven"), ("mvn test", "maven"),
        ("cd web && npm test", "node"),
    ],
)  # fmt: skip
def test_a_command_tells_its_runner(command: str, expected: str) -> None:
    assert output_format(command) == expected


@pytest.mark.parametrize(
    ("lock", "tool"),
    [
        ("uv.lock", "uv"),
        ("poetry.lock", "poetry"),
        ("pdm.lock", "pdm"),
        ("Pipfile.lock", "pipenv"),
    ],
)
def test_a_locked_environment_is_not_replaced_by_the_python_of_fugu(
    tmp_path: Path, only_python: Path, lock: str, tool: str
) -> None:
    program(only_python, "python3", "exit 1")  # it has no pytest
    lay(tmp_path / "repo", {lock: "version = 1", "tests/test_a.py": "import pytest"})
    command = find_test_command(tmp_path / "repo", own=sys.executable)
    assert command is not None and command.startswith(f"{tool} run pytest")
    program(only_python, "python3", "exit 0")  # it has pytest, and none of the project's packages
    assert find_test_command(tmp_path / "repo") == "python3 -m pytest -q -p no:cacheprovider"
    program(only_python, tool, "exit 0")
    command = find_test_command(tmp_path / "repo")
    assert command is not None and command.startswith(f"{tool} run pytest")
