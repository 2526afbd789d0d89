"""The table of files that run by themselves: both classes, and what git's configuration adds."""

from __future__ import annotations

from pathlib import Path

import pytest

from fugu_cli.safety.self_running_files import (
    RunBy,
    entries_run_by_others,
    self_running_file,
)


def _class_of(path: str, root: Path) -> RunBy | None:
    file = self_running_file(root / path, root)
    return file.run_by if file is not None else None


@pytest.mark.parametrize(
    "path",
    [
        ".git/hooks/pre-commit",
        ".husky/pre-commit",
        "packages/a/.envrc",
        ".vscode/tasks.json",
        ".idea/workspace.xml",
        "crates/a/.cargo/config.toml",
        ".github/workflows/ci.yml",
        ".gitlab-ci.yml",
        ".claude/settings.json",
        ".cursor/mcp.json",
        ".codex/config.toml",
        ".gemini/settings.json",
        ".mcp.json",
        ".bashrc",
        ".VSCode/Tasks.json",
        ".qwen/settings.json",
        "lefthook.toml",
        "node_modules/typescript/lib/tsserver.js",
    ],
)
def test_what_others_run_is_of_the_first_class(path: str, tmp_path: Path) -> None:
    assert _class_of(path, tmp_path) is RunBy.OTHERS


@pytest.mark.parametrize(
    "path",
    ["conftest.py", "a/conftest.py", "Makefile", "package.json", "node_modules/x", ".venv/bin/a"],
)
def test_what_tests_and_builds_run_is_of_the_second_class(path: str, tmp_path: Path) -> None:
    assert _class_of(path, tmp_path) is RunBy.CHECKS


@pytest.mark.parametrize("path", ["src/calc.py", "README.md", "tests/test_calc.py", "env/a"])
def test_nothing_runs_other_files_by_itself(path: str, tmp_path: Path) -> None:
    assert _class_of(path, tmp_path) is None


def test_hooks_and_files_that_the_configuration_names_are_of_the_first_class(
    tmp_path: Path,
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    settings = "[core]\n\thooksPath = tools/hooks\n[include]\n\tpath = ../team.cfg\n"
    settings += '[filter "x"]\n\tclean = sh tools/clean.sh %f\n'
    (tmp_path / ".git" / "config").write_text(settings)
    (tmp_path / "tools" / "hooks").mkdir(parents=True)

    assert _class_of("tools/hooks/pre-push", tmp_path) is RunBy.OTHERS
    assert _class_of("team.cfg", tmp_path) is RunBy.OTHERS
    assert _class_of("tools/clean.sh", tmp_path) is RunBy.OTHERS
    assert _class_of("tools/other.sh", tmp_path) is None


def test_entries_of_the_first_class_are_told_from_the_others_in_their_folder() -> None:
    names = [".git", ".github", "src", "CLAUDE.md", "x.code-workspace", "config.toml"]

    assert entries_run_by_others("", names) == (".github", "CLAUDE.md", "x.code-workspace")
    assert entries_run_by_others("crates/a/.cargo", names)[-1] == "config.toml"
    assert entries_run_by_others("node_modules/left-pad", names) == ()
