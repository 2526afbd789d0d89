"""The program `fugu` as a wheel installs it: nothing of a repository is loaded into it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ENTRY = Path(__file__).parents[2] / "fugu_cli" / "entry.sh"
PLANTED = "import os\nopen(os.environ['MARK'], 'a').write(__name__)\n"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A `fugu` beside a Python, called through a link as install.sh makes it."""
    installed = tmp_path / "venv" / "bin"
    installed.mkdir(parents=True)
    python = installed / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    (installed / "fugu").write_bytes(ENTRY.read_bytes())
    (installed / "fugu").chmod(0o755)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "fugu").symlink_to("../venv/bin/fugu")
    return tmp_path / "bin" / "fugu"


@pytest.mark.parametrize("path", ["", ":/opt/lib", ".", "src", "{repo}/src", "/opt/lib:src"])
def test_what_pythonpath_leads_to_is_not_loaded(path: str, program: Path, tmp_path: Path) -> None:
    repo, mark = tmp_path / "repo", tmp_path / "mark"
    (repo / "src").mkdir(parents=True)
    for folder in (repo, repo / "src"):
        for name in ("json.py", "sitecustomize.py", "usercustomize.py", "typer.py"):
            (folder / name).write_text(PLANTED)
    environ = {**os.environ, "MARK": str(mark), "PYTHONPATH": path.format(repo=repo)}
    for words in (["--version"], ["help", "run"]):
        done = subprocess.run([program, *words], cwd=repo, env=environ, check=False)
        assert done.returncode == 0
    assert not mark.exists()


def test_another_home_of_python_does_not_lead_it_astray(program: Path, tmp_path: Path) -> None:
    environ = {**os.environ, "PYTHONHOME": str(tmp_path)}
    done = subprocess.run([program, "--version"], env=environ, capture_output=True, text=True)
    assert done.stdout.startswith("fugu ")
