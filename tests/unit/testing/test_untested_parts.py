"""Tests beside a change that the known test command does not run."""

from pathlib import Path

import pytest

from fugu_cli.testing.untested_parts import untested_commands


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
