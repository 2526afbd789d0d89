"""The programs that fugu starts for itself: where they are looked for, and how long a repository
stays out.
"""

from __future__ import annotations

import gc
import os
import subprocess
from pathlib import Path

import pytest

from fugu_cli.config.loader import load_config
from fugu_cli.safety.programs import find_program, libraries_search_outside, search_path_outside
from fugu_cli.tools.workspace import Workspace


def with_program(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "mine"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return program


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with a program on PATH."""
    folder = tmp_path / "home"
    program = with_program(folder / ".local/bin")
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}/usr/bin")
    return folder


def test_a_program_is_hidden_as_long_as_a_session_works_on_its_repository(
    home: Path, tmp_path: Path
) -> None:
    program = str(home / ".local/bin/mine")
    assert find_program("mine", tmp_path / "other") == program
    session = Workspace(home, tmp_path / "store")
    second = Workspace(home, tmp_path / "store")
    assert find_program("mine", tmp_path / "other") is None
    del session
    gc.collect()
    assert find_program("mine") is None
    del second
    gc.collect()
    assert find_program("mine", tmp_path / "other") == program
    assert find_program("mine", home) is None


def test_a_configuration_keeps_its_repository_and_added_folders_out(
    home: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    loaded = load_config(other, {}, {"add_dirs": [str(home)]})
    with libraries_search_outside():
        assert os.environ["PATH"] == "/usr/bin"
    del loaded
    gc.collect()
    assert find_program("mine") is not None


def test_a_worktree_keeps_the_main_checkout_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    main, worktree = tmp_path / "main", tmp_path / "worktree"
    main.mkdir()
    for words in (
        ["init", "-q", "."],
        ["commit", "-q", "--allow-empty", "-m", "start"],
        ["worktree", "add", "-q", str(worktree)],
    ):
        subprocess.run(["git", *words], cwd=main, check=True)
    monkeypatch.setenv("PATH", f"{with_program(main / 'bin').parent}{os.pathsep}/usr/bin")
    session = Workspace(worktree, tmp_path / "store")
    assert find_program("mine", session.root) is None


def test_where_the_repository_is_everything_only_roots_folders_stay(home: Path) -> None:
    folders = search_path_outside(Path("/")).split(os.pathsep)
    assert str(home / ".local/bin") not in folders  # below a folder that everybody may write
    assert "/usr/bin" in folders
