"""Tests beside a change that the known test command does not run."""

from pathlib import Path

import pytest

from fugu_cli.testing.untested_parts import untested_commands
from tests.unit.conftest import lay

SCRIPT = '{"scripts": {"test": "vitest run"}}'


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A Python repository with a JavaScript part."""
    (tmp_path / "web" / "src").mkdir(parents=True)
    (tmp_path / "web" / "package.json").write_text('{"scripts": {"test": "node --test"}}')
    (tmp_path / "web" / "src" / "a.ts").write_text("export const a = 1\n")
    return tmp_path


@pytest.mark.parametrize(
    ("changed", "ran", "expected"),
    [
        (["web/src/a.ts"], [], ("cd web && npm test",)),
        (["web/src/a.ts"], ["cd web && npm test"], ()),
        (["web/src/a.ts"], ["python -m pytest tests/website"], ("cd web && npm test",)),
        (["calc.py"], [], ()),
        (["web/README.md"], [], ()),
    ],
)
def test_a_part_in_another_language_is_named_unless_its_tests_ran(
    root: Path, changed: list[str], ran: list[str], expected: tuple[str, ...]
) -> None:
    assert untested_commands(root, changed, "python -m pytest -q", ran) == expected


def test_where_it_is_unknown_what_the_command_runs_nothing_is_said(root: Path) -> None:
    assert untested_commands(root, ["web/src/a.ts"], "make test", []) == ()


@pytest.mark.parametrize(
    ("files", "command", "expected"),
    [
        ({"go.mod": "", "api/go.mod": "module b"}, "go test ./...", "cd api && go test ./..."),
        ({"go.mod": ""}, "go test ./...", ""),
        ({"pom.xml": "<modules/>", "api/pom.xml": ""}, "mvn test", "cd api && mvn -B -ntp test"),
        ({"pom.xml": "<module>api</module>", "api/pom.xml": ""}, "mvn test", ""),
        ({"Cargo.toml": "[package]", "api/Cargo.toml": ""}, "cargo test", "cd api && cargo test"),
        ({"Cargo.toml": "[workspace]\nmembers = ['*']", "api/Cargo.toml": ""}, "cargo test", ""),
        ({"settings.gradle": "include ':api'", "api/build.gradle": ""}, "./gradlew test", ""),
        ({"web/package.json": SCRIPT, "api/package.json": SCRIPT}, "cd web && npm test", "cd api && npm test"),
        ({"package.json": SCRIPT, "api/package.json": SCRIPT}, "npm test", ""),
        ({"package.json": SCRIPT.replace("run", "run src"), "src/a.ts": "", "api/package.json": SCRIPT},
         "npm test", "cd api && npm test"),
        ({"package.json": "{}", "api/package.json": SCRIPT}, "npx mocha", "cd api && npm test"),
        ({"package.json": "{}", "api/package.json": SCRIPT}, "npx mocha 'test/**/*.js'", "cd api && npm test"),
        ({"package.json": "{}", "api/package.json": SCRIPT}, "npx mocha '**/*.test.js'", ""),
        ({"api/pyproject.toml": "", "api/test_a.py": ""}, "pytest -q", ""),
        ({"api/pyproject.toml": "", "api/test_a.py": "", "tests/test_b.py": ""}, "pytest -q tests",
         "cd api && python -m pytest"),
        ({"pytest.ini": "[pytest]\ntestpaths = tests", "api/pyproject.toml": "", "api/test_a.py": ""},
         "pytest -q", "cd api && python -m pytest"),
        ({"api/pyproject.toml": "", "api/test_a.py": ""}, "python -m unittest discover", "cd api && python -m pytest"),
        ({"api/test_a.py": ""}, "pytest -q tests", ""),
    ],
)  # fmt: skip
def test_a_part_in_the_same_language_is_named_where_the_command_cannot_reach_it(
    files: dict[str, str | bytes], command: str, expected: str, tmp_path: Path
) -> None:
    lay(tmp_path, files)
    changed = [f"api/a{suffix}" for suffix in (".go", ".java", ".rs", ".ts", ".py")]
    assert "".join(untested_commands(tmp_path, changed, command, [])) == expected
