"""Starting is cheap: what is imported for it is counted, because counts do not depend on the
machine.
"""

import subprocess
import sys
from pathlib import Path

import pytest

import fugu_cli
from fugu_cli import __version__

HEAVY = (
    "torch",
    "transformers",
    "textual",
    "rich",
    "httpx",
    "pydantic",
    "numpy",
    "genai_prices",
    "asyncio",
)
PROBE = "import sys; {code}; print(*sorted(sys.modules), file=sys.stderr)"


def modules_after(code: str, *options: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, *options, "-c", PROBE.format(code=code)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stderr.splitlines()[-1].split()


def command(*words: str) -> str:
    """Runs a command line in a fresh interpreter, up to where the process would end."""
    return f"from fugu_cli.__main__ import called; called({list(words)!r})"


def test_importing_fugu_imports_nothing_heavy() -> None:
    loaded = modules_after("import fugu_cli")
    assert [name for name in HEAVY if name in loaded] == []
    assert [name for name in loaded if name.startswith("fugu_cli.")] == []


def test_what_starts_before_every_command_takes_no_longer_than_python_itself() -> None:
    path = f"sys.path.append({str(Path(fugu_cli.__file__).parents[1])!r})"
    loaded = modules_after(f"{path}; import fugu_cli.safety.sandbox.launcher", "-I", "-S")
    assert {"re", "socket", "typing", "pathlib"} & {*loaded} == set()


def test_the_version_is_answered_before_anything_is_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "fugu_cli", "--version"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert done.stdout == f"fugu {__version__}\n"
    assert [name for name in (*HEAVY, "typer", "click") if name in loaded] == []


def test_help_imports_nothing_heavy_and_few_modules() -> None:
    bare, loaded = modules_after("pass"), modules_after(command("--help"))
    assert [name for name in HEAVY if name in loaded] == []
    assert len(loaded) - len(bare) < 160


@pytest.mark.parametrize("words", [("run", "--help"), ("help", "run"), ()])
def test_pages_and_the_help_of_commands_import_nothing_but_what_reads_the_words(
    words: tuple[str, ...],
) -> None:
    loaded = modules_after(command(*words))  # typer itself reads words with pydantic
    assert [name for name in HEAVY if name in loaded and name != "pydantic"] == []
    every = (
        ["fugu_cli.cli.app", "fugu_cli.cli.command_flags", "fugu_cli.cli.training_flags"]
        if words[:1] == ("help",)
        else []
    )
    page = ["fugu_cli.cli.interface"] if words[:1] in {(), ("help",)} else []
    common = [
        "fugu_cli.__main__",
        "fugu_cli.cli",
        "fugu_cli.cli.flags",
        "fugu_cli.cli.root",
        "fugu_cli.errors",
    ]
    assert [name for name in loaded if name.startswith("fugu_cli.")] == sorted(
        [*common, *every, *page]
    )


@pytest.mark.parametrize("words", [("sessions",), ("trust",), ("models", "path")])
def test_small_commands_import_no_models_no_screen_and_no_network(words: tuple[str, ...]) -> None:
    loaded = modules_after(command(*words))
    assert [
        name for name in ("torch", "transformers", "textual", "httpx", "numpy") if name in loaded
    ] == []


UNUSED = (
    "torch",
    "transformers",
    "textual",
    "httpx",
    "genai_prices",
    "git",
    "doctest",
    "rich.console",
    "fugu_cli.server",
)


def test_opening_a_run_imports_nothing_that_one_request_of_one_agent_does_not_need() -> None:
    loaded = modules_after("import fugu_cli.cli.run_session")
    own = (*sys.stdlib_module_names, "__main__", "sitecustomize", "usercustomize")
    counted = [
        name
        for name in loaded
        if name.partition(".")[0] not in own and not name.startswith("_sysconfigdata")
    ]
    foreign = ("fugu_cli.local", "fugu_cli.cli.pool")
    assert [name for name in (*UNUSED, *foreign) if name in loaded] == []
    assert len(counted) < 250


def test_a_run_takes_no_command_line_of_httpx_with_it() -> None:
    loaded = modules_after(command("run", "--agent", "nobody", "hi") + "; import httpx")
    assert [name for name in ("pygments", "click", "rich.progress") if name in loaded] == []


WITHOUT = """
import builtins, importlib, pkgutil, sys
import fugu_cli
absent = {"fcntl", "termios", "pwd", "grp", "resource", "pty", "tty", "readline", "curses"}
there = builtins.__import__
def imported(name, globals=None, *rest, **more):
    if name in absent and str((globals or {}).get("__name__")).startswith("fugu_cli"):
        raise ModuleNotFoundError(f"{globals['__name__']} imports {name}", name=name)
    return there(name, globals, *rest, **more)
builtins.__import__ = imported
for found in pkgutil.walk_packages(fugu_cli.__path__, "fugu_cli."):
    try:
        importlib.import_module(found.name)
    except ModuleNotFoundError as error:
        print(error if error.name in absent else "", end="")
"""


def test_no_module_needs_what_windows_lacks_to_be_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout == ""
