"""The program `fugu` as a wheel installs it: nothing of a repository is loaded into it."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from fugu_cli.session.events import ToolRan
from tests.acceptance.driving import Agent, Place
from tests.acceptance.loopback import Loopback, Says, Use

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
    other = {"PYTHONHOME": str(tmp_path), "PYTHONEXECUTABLE": str(tmp_path / "bin/python")}
    environ = {**os.environ, **other}
    done = subprocess.run([program, "--version"], env=environ, capture_output=True, text=True)
    assert done.stdout.startswith("fugu ")


@pytest.fixture
def planted_library(place: Place, tmp_path: Path) -> Path:
    """A repository with a `libz.so.1` that leaves a mark where a program loads it."""
    if shutil.which("gcc") is None or sys.platform != "linux":
        pytest.skip("needs gcc and the loader of Linux")
    source = tmp_path / "mark.c"
    source.write_text(
        "#include <stdlib.h>\n#include <fcntl.h>\n"
        "__attribute__((constructor)) static void mark(void) {\n"
        '    const char *path = getenv("MARK");\n'
        "    if (path) open(path, O_CREAT | O_WRONLY, 0644);\n}\n"
    )
    library = place.repo / "libz.so.1"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
    return library


@pytest.mark.parametrize("path", [":", ".", "/opt/lib:", "{repo}", "lib"])
def test_libraries_of_the_repository_are_not_loaded(
    path: str, program: Path, place: Place, planted_library: Path, tmp_path: Path
) -> None:
    if path == "lib":
        (place.repo / "lib").symlink_to(".")
    mark = tmp_path / "mark"
    environ = {
        **place.environ(),
        "PATH": os.environ["PATH"],
        "MARK": str(mark),
        "LD_LIBRARY_PATH": path.format(repo=place.repo),
    }
    git = ["git", "rev-parse", "HEAD"]
    subprocess.run(git, cwd=place.repo, env=environ, capture_output=True, check=False)
    if not mark.exists():
        pytest.skip("git does not load libz here")
    mark.unlink()
    words = [program, "blame", "calc.txt"]
    done = subprocess.run(words, cwd=place.repo, env=environ, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not mark.exists()


@pytest.mark.parametrize(
    ("variables", "command", "printed"),
    [
        (
            {"LD_LIBRARY_PATH": "/opt/lib:build"},
            'echo "libraries=$LD_LIBRARY_PATH"',
            "libraries=/opt/lib:build",
        ),
        (
            {"PYTHONPATH": "src", "PYTHONHOME": "/opt/python"},
            'echo "path=$PYTHONPATH home=$PYTHONHOME"',
            "path=src home=/opt/python",
        ),
    ],
    ids=["libraries", "python"],
)
def test_commands_get_the_variables_that_fugu_itself_ignores(
    variables: dict[str, str],
    command: str,
    printed: str,
    program: Path,
    place: Place,
    server: Loopback,
) -> None:
    place.configure(Agent("worker"))
    server.play("worker", Says("", (Use("bash", {"command": command}),)), Says("Done."))
    words = [program, "run", "--trust", "show them"]
    environ = {**place.environ(), **variables}
    subprocess.run(words, cwd=place.repo, env=environ, check=False, capture_output=True)
    (output,) = [event.output for event in place.events() if isinstance(event, ToolRan)]
    assert printed in output


def test_the_folder_of_snapshots_is_open_to_its_owner_alone(place: Place, server: Loopback) -> None:
    place.configure(Agent("worker"))
    write = Use("write", {"path": "new.txt", "content": "new\n"})
    server.play("worker", Says("", (write,)), Says("Done."))
    place.fugu("run", "write it")
    (store,) = (place.home / "data" / "fugu" / "snapshots").iterdir()
    assert stat.S_IMODE(store.stat().st_mode) == 0o700
