"""The wheel: the build step of a release makes it, and it works without torch and the embedded
models.
"""

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import fugu_cli
from fugu_cli.session.events import Assigned
from tests.acceptance.driving import Agent, Place
from tests.acceptance.loopback import Loopback, Says, Use

ROOT = Path(fugu_cli.__file__).parents[1]
ABSENT = (
    "torch",
    "transformers",
    "tokenizers",
    "safetensors",
    "numpy",
    "jinja2",
    "gguf",
    "xllamacpp",
    "huggingface_hub",
    "tree_sitter",
)
WORKS = (
    Says("", (Use("read", {"path": "calc.txt"}),)),
    Says("", (Use("write", {"path": "calc.txt", "content": "fixed\n"}),)),
    Says("I wrote what was missing."),
)
ACCEPT = Says("ACCEPT. The tests pass.")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as the contributor's page says, but with the build tool that is here."""
    folder = tmp_path_factory.mktemp("dist")
    step(
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        str(folder),
        str(ROOT),
    )
    (made,) = folder.glob("*.whl")
    return made


def step(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def bare(tmp_path: Path, wheel: Path) -> Path:
    """The Python of an environment with the wheel and its libraries, without those of models that
    run here.
    """
    step(sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv"))
    (packages,) = (tmp_path / "venv" / "lib").glob("*/site-packages")
    here = [
        Path(folder)
        for folder in sys.path
        if Path(folder).name in ("site-packages", "dist-packages")
    ]
    for entry in (entry for folder in here for entry in folder.iterdir()):
        name = entry.name.lower()
        if (packages / entry.name).exists():
            continue
        if not name.startswith((*ABSENT, "fugu", "__editable__")) and not name.endswith(".pth"):
            (packages / entry.name).symlink_to(entry)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    return tmp_path / "venv" / "bin" / "python"


def test_the_wheel_can_be_published(wheel: Path) -> None:
    assert "PASSED" in step(sys.executable, "-m", "twine", "check", "--strict", str(wheel))
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    distribution = f"fugu_cli-{fugu_cli.__version__}"
    outside = [
        name
        for name in names
        if name.split("/")[0] not in {"fugu_cli", f"{distribution}.dist-info"}
    ]
    assert outside == [f"{distribution}.data/scripts/fugu"]
    shipped = {path.relative_to(ROOT).as_posix() for path in (ROOT / "fugu_cli").rglob("*.py")}
    assert shipped <= set(names)
    assert {f"fugu_cli/prompts/{path.name}" for path in (ROOT / "prompts").glob("*.md")} <= set(
        names
    )


def test_a_request_is_decided_without_torch_and_nothing_is_said_about_it(
    bare: Path, place: Place, server: Loopback
) -> None:
    place.python, place.variables = str(bare), {"PYTHONPATH": ""}
    place.files({"calc.txt": "broken\n", "check.sh": "grep -q fixed calc.txt\n"})
    place.commit()
    place.configure(Agent("worker"), Agent("judge", "strong"), coordinator="")
    server.play("worker", *WORKS)
    server.play("judge", ACCEPT)
    done = place.fugu("run", "mend calc.txt")
    assert (done.code, done.out) == (0, "I wrote what was missing.\n"), done.err
    assert "verified by judge" in done.err and "torch" not in done.err
    assert [event.by for event in place.events() if isinstance(event, Assigned)] == ["trinity"] * 2


def test_each_command_that_needs_no_model_of_its_own_works_without_them(
    bare: Path, place: Place
) -> None:
    place.python, place.variables = str(bare), {"PYTHONPATH": ""}
    place.commit()
    place.configure(Agent("worker"))
    for words in (
        ["--version"],
        ["pool"],
        ["sessions"],
        ["cost"],
        ["models", "list"],
        ["train", "--help"],
        ["help"],
    ):
        done = place.fugu(*words)
        assert (done.code, "Traceback" in done.err) == (0, False), (words, done.err)
    doctor = place.fugu("doctor")
    assert "torch and transformers not installed" in doctor.out
    assert "Traceback" not in doctor.err


def test_without_a_key_and_without_the_embedded_models_package_the_way_out_is_said(
    bare: Path, place: Place
) -> None:
    place.python, place.variables = str(bare), {"PYTHONPATH": ""}
    place.commit()
    done = place.fugu("run", "hello")
    assert (done.code, "Traceback" in done.err) == (2, False), done.err
    assert "the embedded models need the package 'xllamacpp', which is not installed" in done.err
    assert "`fugu login`" in done.err and "models pull" not in done.err
    doctor = place.fugu("doctor")
    assert (doctor.code, "missing  models" in doctor.out, "models pull" in doctor.out) == (
        2,
        True,
        False,
    )


def test_without_the_grammars_an_agent_that_calls_no_tools_is_left_out(
    bare: Path, place: Place, server: Loopback
) -> None:
    place.python, place.variables = str(bare), {"PYTHONPATH": ""}
    place.commit()
    place.configure(Agent("quiet", more='protocol = "text"'))
    done = place.fugu("run", "hello")
    assert (done.code, "Traceback" in done.err) == (1, False), done.err
    assert "quiet: it needs the extra `local`, which is not installed" in done.err
    assert "-m pip install" in done.err and "tree-sitter" in done.err
    place.configure(Agent("quiet", more='protocol = "text"'), Agent("worker", "strong"))
    server.play("worker", Says("Hello."))
    done = place.fugu("run", "hello")
    assert (done.code, done.out) == (0, "Hello.\n"), done.err
    assert "left out: quiet (it needs the extra `local`" in place.fugu("pool").out


def test_the_version_is_said_without_loading_the_libraries(bare: Path) -> None:
    said = step(str(bare), "-X", "importtime", "-m", "fugu_cli", "--version")
    assert said == f"fugu {fugu_cli.__version__}\n"
    loaded = subprocess.run(
        [str(bare), "-X", "importtime", "-m", "fugu_cli", "--version"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": ""},
    ).stderr
    names = {line.rsplit("|", 1)[-1].strip().split(".")[0] for line in loaded.splitlines()}
    assert names & {"typer", "pydantic", "httpx", "textual", "rich"} == set()


def test_the_embedded_models_are_an_extra(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        about = Parser().parsestr(
            archive.read(f"fugu_cli-{fugu_cli.__version__}.dist-info/METADATA").decode()
        )
    required = about.get_all("Requires-Dist") or []
    assert "local" in (about.get_all("Provides-Extra") or [])
    found = [line.replace("'", '"') for line in required if line.startswith("xllamacpp")]
    assert found and all('extra == "' in line for line in found)


LIGHT = re.compile(r"(python -c .*) (?:\| pip install -r /dev/stdin|> light\.txt)$", re.M)
PAGE = "fugu_cli/help/install.md"


def command_lines(file: str) -> str:
    """Return the text of a file with its continued lines joined."""
    return re.sub(r"\\\n\s*", "", (ROOT / file).read_text())


@pytest.mark.parametrize("file", [PAGE, ".github/actions/fugu/action.yml", ".gitlab/fugu.yml"])
def test_the_light_install_takes_all_but_the_libraries_of_the_learned_coordinator(
    bare: Path, file: str
) -> None:
    (command,) = LIGHT.findall(command_lines(file))
    program = command.removeprefix('python -c "').removesuffix('"')
    listed = step(str(bare), "-c", program).split("\n")
    names = {re.split(r"[<>=! ]", line)[0] for line in listed if line}
    declared = {re.split(r"[<>=! ]", line)[0] for line in _dependencies()}
    assert declared - names == {*ABSENT} & declared
    assert names <= declared


def test_the_light_install_with_uv_leaves_out_what_the_one_with_pip_does() -> None:
    page = command_lines(PAGE)
    (by_uv,) = re.findall(
        r"""uv tool install --overrides <\(printf "%s; python_version < '3'\\n" (.*?)\) """, page
    )
    (by_pip,) = re.findall(r"heavy = (.*?);", page)
    assert by_uv.split() == re.findall(r"'(.*?)'", by_pip)


def _dependencies() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return list(project["dependencies"])
