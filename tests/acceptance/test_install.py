"""install.sh: what it says when something is missing, and that nothing is done before it is
said.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "install.sh"
TOOLS = (
    "bash",
    "dirname",
    "cat",
    "df",
    "awk",
    "mktemp",
    "rm",
    "mkdir",
    "uname",
    "grep",
    "tail",
    "ln",
    "cp",
    "env",
    "readlink",
)


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A folder with the usual tools, and neither Python nor git: it becomes the whole PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in TOOLS:
        found = shutil.which(tool)
        assert found is not None, tool
        (folder / tool).symlink_to(found)
    return folder


def program(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)


def real_python(folder: Path, name: str = "python3") -> None:
    program(folder, name, f'exec "{sys.executable}" "$@"')


def installed(tools: Path, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "PATH": str(tools), **environ}
    command = ["bash", str(SCRIPT), *words]
    return subprocess.run(
        command, capture_output=True, text=True, env=variables, timeout=60, check=False
    )


def test_the_script_is_bash_and_may_be_run() -> None:
    assert subprocess.run(["bash", "-n", str(SCRIPT)], check=False).returncode == 0
    assert os.access(SCRIPT, os.X_OK)


@pytest.mark.parametrize("word", ["--help", "-h", "help"])
def test_help_needs_nothing_and_names_the_modes(tools: Path, word: str) -> None:
    done = installed(tools, word)
    assert (done.returncode, done.stderr) == (0, "")
    assert [
        line.split()[1] if "usage" in line else line.split()[0]
        for line in done.stdout.splitlines()[:4]
    ] == ["./install.sh"] * 4
    for mode in ("./install.sh demo", "./install.sh test", "./install.sh --help"):
        assert mode in done.stdout


def test_an_unknown_mode_is_refused(tools: Path) -> None:
    done = installed(tools, "demos")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.endswith("install.sh: There is no mode 'demos'.\n")


@pytest.mark.parametrize("words", [[], ["demo"], ["test"]])
def test_without_python_it_says_which_one_to_install(tools: Path, words: list[str]) -> None:
    done = installed(tools, *words)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines() == [
        "install.sh: fugu needs Python 3.11 or newer; found: none.",
        "            Install it (python.org, your package manager, pyenv or uv), or name one: "
        "PYTHON=/path/to/python ./install.sh",
    ]


def test_an_older_python_is_named(tools: Path) -> None:
    program(tools, "python3", 'if [ "$1" = "--version" ]; then echo Python 3.9.6; else exit 1; fi')
    done = installed(tools)
    assert "fugu needs Python 3.11 or newer; found: Python 3.9.6." in done.stderr


def test_a_shim_without_a_python_behind_it_is_passed_over(tools: Path) -> None:
    program(tools, "python3.13", "echo 'version not installed' >&2; exit 127")
    real_python(tools, "python3.11")
    assert "there is no git here" in installed(tools).stderr


def test_a_python_that_was_named_is_the_only_one_tried(tools: Path) -> None:
    real_python(tools)
    program(tools, "old", "echo Python 3.8.1; exit 1")
    assert "fugu needs Python 3.11 or newer" in installed(tools, PYTHON=str(tools / "old")).stderr


def test_without_git_it_says_how_to_get_it(tools: Path) -> None:
    real_python(tools)
    done = installed(tools)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("install.sh: fugu works with git, and there is no git here.\n")
    assert "apt install git" in done.stderr


def test_without_space_it_says_how_much_it_needs_and_where(tools: Path) -> None:
    real_python(tools)
    program(tools, "git", "exit 0")
    (tools / "df").unlink()
    program(tools, "df", "echo Filesystem Blocks Used Free; echo /dev/disk 1 1 20480")
    done = installed(tools)
    assert done.returncode == 1
    assert "Not enough space for fugu and its libraries: it needs about 1700 MB in " in done.stderr
    assert "and 20 MB are free." in done.stderr
    assert "to download" in done.stdout
    assert not (Path(os.environ["XDG_DATA_HOME"]) / "fugu").exists()


def test_without_the_venv_module_it_names_the_package(tools: Path) -> None:
    program(
        tools, "python3", f'case "$*" in *ensurepip*) exit 1 ;; esac\nexec "{sys.executable}" "$@"'
    )
    program(tools, "git", "exit 0")
    done = installed(tools)
    assert done.returncode == 1
    assert "cannot make virtual environments" in done.stderr
    assert "python3-venv" in done.stderr


def test_without_a_network_it_says_that_the_index_is_out_of_reach(tools: Path) -> None:
    real_python(tools)
    program(tools, "git", "exit 0")
    done = installed(
        tools,
        PIP_INDEX_URL="http://127.0.0.1:9/simple",
        PIP_EXTRA_INDEX_URL="http://127.0.0.1:9/more",
        PIP_FIND_LINKS="",
        PIP_CONFIG_FILE="/dev/null",
        PIP_RETRIES="0",
    )
    assert done.returncode == 1
    assert "torch could not be installed: the package index is not within reach." in done.stderr
    assert "run the same command again" in done.stderr


def test_a_folder_that_is_no_environment_is_not_touched(tools: Path) -> None:
    real_python(tools)
    program(tools, "git", "exit 0")
    taken = Path(os.environ["XDG_DATA_HOME"]) / "fugu" / "venv"
    taken.mkdir(parents=True)
    (taken / "diary.txt").write_text("mine")
    done = installed(tools)
    assert done.returncode == 1
    assert f"{taken} exists and is not a virtual environment." in done.stderr
    assert (taken / "diary.txt").read_text() == "mine"


@pytest.mark.parametrize("words", [("--help",), ("install",)])
def test_without_a_home_in_the_environment_the_users_own_is_taken(
    tools: Path, words: tuple[str, ...]
) -> None:
    variables = {"PATH": str(tools), "XDG_DATA_HOME": os.environ["XDG_DATA_HOME"]}
    done = subprocess.run(
        ["bash", str(SCRIPT), *words], capture_output=True, text=True, env=variables, check=False
    )
    assert "unbound variable" not in done.stderr
    assert done.returncode == (0 if words == ("--help",) else 1)


@pytest.mark.parametrize("link", [True, False])
def test_somebody_elses_fugu_is_left_alone_and_said_before_anything_is_done(
    tools: Path, link: bool
) -> None:
    real_python(tools)
    program(tools, "git", "exit 0")
    theirs = Path.home() / ".local/bin/fugu"
    theirs.parent.mkdir(parents=True)
    theirs.symlink_to("/opt/pipx/venvs/fugu/bin/fugu") if link else theirs.write_text("mine")
    done = installed(tools)
    assert done.returncode == 1 and done.stdout == ""
    assert f"{theirs} exists and was not made by this script." in done.stderr
    assert theirs.is_symlink() == link and not (Path(os.environ["XDG_DATA_HOME"]) / "fugu").exists()


FAKE_PIP = """case "$*" in
  *"+cpu"*) echo "ERROR: Could not find a version ... (from versions: 2.13.0)" >&2; exit 1 ;;
  *"torch=="*) echo taken >> "$TAKEN"; exit 1 ;;
esac
exit 1"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the plain torch is the small one")
@pytest.mark.parametrize("words", [(), ("--cuda",)])
def test_where_only_the_large_torch_can_be_had_it_is_taken_when_the_user_says_so(
    tools: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    program(tools, "git", "exit 0")
    taken = tmp_path / "taken"
    venv = Path(os.environ["XDG_DATA_HOME"]) / "fugu" / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "pyvenv.cfg").touch()
    real_python(tools)
    fake = f'if [ "$1 $2" = "-m pip" ]; then {FAKE_PIP}\nfi\n[ "$2" != "import torch" ]'
    program(venv / "bin", "python", fake)
    done = installed(tools, *words, TAKEN=str(taken))
    assert done.returncode == 1
    if words:
        assert done.stdout.startswith("This installs fugu for you") and "5 to 6 GB" in done.stdout
        assert taken.exists()
    else:
        assert "its small build for CPUs (from https://download.pytorch.org/whl/cpu)" in done.stderr
        assert "./install.sh --cuda takes the large one" in done.stderr
        assert not taken.exists()


def test_the_fast_tests_are_set_up_without_torch(tools: Path, tmp_path: Path) -> None:
    program(tools, "git", "exit 0")
    real_python(tools)
    checkout, taken = tmp_path / "checkout", tmp_path / "taken"
    (checkout / ".venv/bin").mkdir(parents=True)
    (checkout / ".venv/pyvenv.cfg").touch()
    for name in ("install.sh", "pyproject.toml"):
        shutil.copy(SCRIPT.with_name(name), checkout / name)
    fake = 'while [ $# -gt 0 ]; do if [ "$1" = -r ]; then cat "$2"; fi; shift; done >> "$TAKEN"'
    fake = f'if [ "$1 $2" = "-m pip" ]; then {fake}\nexit 0\nfi\nexec "{sys.executable}" "$@"'
    program(checkout / ".venv/bin", "python", fake)
    variables = {**os.environ, "PATH": str(tools), "TAKEN": str(taken)}
    command = ["bash", str(checkout / "install.sh"), "test", "--fast"]
    subprocess.run(command, capture_output=True, env=variables, timeout=60, check=False)
    names = {re.split(r"[^\w-]", line)[0] for line in taken.read_text().splitlines()}
    assert {"pydantic", "pytest", "ruff", "tree-sitter"} <= names
    assert names.isdisjoint({"torch", "transformers", "numpy", "trl", "peft", "fugu-cli"})
