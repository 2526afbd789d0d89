"""Which runner a command starts, what makes it report, and the command that runs only some of its
tests.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fugu_cli.session.events import TestReport
from fugu_cli.testing.runner_commands import recognise_runner, select_failing
from fugu_cli.testing.runner_results import with_report


def failing(*names: str) -> TestReport:
    return TestReport(failed=len(names), failing=names, by_id=True)


def scripted(root: Path, script: str) -> Path:
    (root / "package.json").write_text(json.dumps({"scripts": {"test": script}}))
    return root


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        ("python -m pytest -q", "pytest"),
        (".venv/bin/python3.11 -X dev -m pytest tests", "pytest"),
        ("A=1 B='x y' pytest", "pytest"),
        ("cd api && uv run pytest -q", "pytest"),
        (". .venv/bin/activate && pytest", "pytest"),
        ("python3 -m unittest discover -s tests", "unittest"),
        ("npx jest --ci", "jest"),
        ("node node_modules/jest/bin/jest.js", "jest"),
        ("vitest run", "vitest"),
        ("node --test", "node"),
        ("cargo +nightly test --workspace", "cargo"),
        ("cargo nextest run", "nextest"),
        ("go test ./...", "go"),
        ("./mvnw -B test", "maven"),
        ("gradle test --console=plain", "gradle"),
    ],
)
def test_known_runners_are_recognised(command: str, kind: str, tmp_path: Path) -> None:
    found = recognise_runner(command, tmp_path)
    assert found is not None
    assert found.kind == kind


@pytest.mark.parametrize(
    "command",
    [
        "make test",
        "tox",
        "pytest; true",
        "pytest || true",
        "pytest | tee log",
        "pytest > log",
        "pytest $OPTIONS",
        "pytest `cat options`",
        "pip install . && pytest",
        "pytest && mypy",
        "sh -c 'pytest'",
        "python run.py -m pytest",
        "vitest watch",
        "npm test",
        "pytest 'open",
        "",
    ],
)
def test_a_command_that_does_more_or_something_else_is_left_alone(
    command: str, tmp_path: Path
) -> None:
    assert recognise_runner(command, tmp_path) is None


@pytest.mark.parametrize(
    ("manager", "script", "told"),
    [
        ("npm test", "jest", "npm test -- --json --outputFile=F/report.json"),
        (
            "npm run test -- --ci",
            "tsc && jest",
            "npm run test -- --ci --json --outputFile=F/report.json",
        ),
        ("yarn test", "react-scripts test", "yarn test --json --outputFile=F/report.json"),
        (
            "pnpm test",
            "vitest run",
            "pnpm test --reporter=default --reporter=json --outputFile.json=F/report.json",
        ),
        ("npm test", "jest && eslint .", None),
        ("npm test", "mocha", None),
        ("npm test", "jest --json", "npm test"),
    ],
)
def test_the_script_says_what_a_package_manager_runs(
    manager: str, script: str, told: str | None, tmp_path: Path
) -> None:
    found = recognise_runner(manager, scripted(tmp_path, script))
    command = with_report(found, tmp_path, Path("F")).command if found is not None else None
    assert command == told


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("pytest -q", "pytest -q --junitxml=F/pytest.xml -o junit_family=xunit1"),
        ("pytest --junitxml=mine.xml", "pytest --junitxml=mine.xml"),
        ("cd a && cargo test", "cd a && cargo test --no-fail-fast"),
        ("go test -race ./...", "go test -json -race ./..."),
        ("mvn -B test", "mvn -B test --fail-at-end"),
        ("mvn -ff test", "mvn -ff test"),
        ("python -m unittest", "python -m unittest"),
        (
            "node --test",
            "node --test-reporter=tap --test-reporter-destination=stdout --test-reporter=tap"
            " --test-reporter-destination=F/node.tap --test",
        ),
        ("node --test --test-reporter=dot", "node --test --test-reporter=dot"),
    ],
)
def test_a_runner_is_asked_to_report_where_nothing_of_the_users_is_lost(
    command: str, told: str, tmp_path: Path
) -> None:
    found = recognise_runner(command, tmp_path)
    assert found is not None
    assert with_report(found, tmp_path, Path("F")).command == told


@pytest.mark.parametrize(
    ("command", "names", "told"),
    [
        ("pytest -q tests", ("tests/a.py::t[x y]",), "pytest -q --maxfail=0 'tests/a.py::t[x y]'"),
        ("pytest -k 'a or b' -x tests", ("a.py::t",), "pytest -k 'a or b' -x --maxfail=0 a.py::t"),
        ("A='1 2' pytest tests", ("a.py::t",), "A='1 2' pytest --maxfail=0 a.py::t"),
        ("pytest --unknown tests", ("a.py::t",), None),
        ("pytest", ("not a node id",), None),
        ("python -m unittest discover -s t", ("a.T.b",), ("python -m unittest discover -s t -v -k "
            "a.T.b")),
        ("jest --ci", ("a.js > s > t (1)",), ("jest --ci --runTestsByPath a.js -t '^(s (> )?t "
            "\\(1\\))$'")),
        ("jest", ("a.js",), "jest --runTestsByPath a.js"),
        ("jest src", ("a.js > t",), "jest src -t '^(t)$'"),
        ("vitest run", ("a.ts > t",), "vitest run a.ts -t '^(t)$'"),
        ("node --test", ("s > t",), ("node '--test-name-pattern=^s$' '--test-name-pattern=^t$' "
            "--test")),
        ("node --test", ("a.test.js",), None),
        ("cargo test -p c", ("c tests::a", "it a"), "cargo test -p c -- tests::a a"),
        ("go test -tags x ./...", ("e/a TestA/s", "e/b TestB"), ("go test -tags x -run "
            "'^(TestA|TestB)$' e/a e/b")),
        ("go test ./...", ("e.org/a", "e.org/b TestB"), "go test e.org/a e.org/b"),
        ("go test -odd x ./...", ("e.org/a",), None),
        (
            "mvn test",
            ("a.B#c", "a.B#d(int)[1]", "a.C#"),
            "mvn test -Dtest=a.B#c+d,a.C -DfailIfNoTests=false "
            "-Dsurefire.failIfNoSpecifiedTests=false",
        ),
        ("gradle test", ("a.B#c",), "gradle test --tests a.B.c"),
        ("make test", ("a",), None),
    ],
)  # fmt: skip
def test_only_the_failing_tests_are_selected(
    command: str, names: tuple[str, ...], told: str | None, tmp_path: Path
) -> None:
    found = select_failing(command, failing(*names), tmp_path)
    assert (shlex.split(found) if found else None) == (shlex.split(told) if told else None)


def test_nothing_is_selected_without_names_or_for_too_many(tmp_path: Path) -> None:
    assert select_failing("pytest", TestReport(failed=2), tmp_path) is None
    assert select_failing("pytest", TestReport(passed=2, by_id=True), tmp_path) is None
    assert select_failing("pytest", failing(*(f"a.py::t{n}" for n in range(101))), tmp_path) is None


@given(
    st.lists(
        st.text(st.characters(codec="utf-8", exclude_characters="\n\0\r"), min_size=1),
        min_size=1,
        max_size=4,
    )
)
def test_every_name_reaches_pytest_as_it_is(names: list[str]) -> None:
    ids = tuple(f"a.py::{name}" for name in names)
    found = select_failing("cd x && E=1 python -m pytest -q", failing(*ids), Path("/nowhere"))
    assert found is not None
    assert shlex.split(found)[-len(ids) :] == list(ids)


@given(st.text(max_size=60))
def test_no_command_breaks_the_reading(command: str) -> None:
    found = recognise_runner(command, Path("/nowhere"))
    assert found is None or found.command == command
