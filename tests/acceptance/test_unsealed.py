"""Where no sandbox holds, the real binary runs nothing but reads and what rules allow."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fugu_cli.safety.policy import NO_SANDBOX
from fugu_cli.safety.sandbox.command_sandbox import ASKED
from fugu_cli.session.events import Permitted
from tests.acceptance.driving import Place
from tests.acceptance.test_jobs import script, step

LOSES = "python3 -c 'import shutil; shutil.rmtree(\".git/refs\")'"
STARTS = 'cd "$0" && exec "$@"'
WITHOUT = {
    "none": ("env", "FUGU_SANDBOX=off", "sh", "-c", STARTS),
    "Landlock": (
        *("unshare", "-Ur", "sh", "-c"),
        f"cd /proc/sys/user && echo 0 > max_mnt_namespaces && echo 0 > max_user_namespaces && "
        f"{STARTS}",
    ),
}
"""What stands before a command line, by what confines there: no sandbox, and Landlock without
namespaces.
"""


def prefix(place: Place, means: str) -> tuple[str, ...]:
    before = (*WITHOUT[means], str(place.repo))
    if subprocess.run([*before, "true"], check=False, capture_output=True).returncode:
        pytest.skip("no user namespace can be made here, so none can be taken away")
    return before


def judged(
    place: Place, means: str, *commands: str, setting: str = "", more: tuple[str, ...] = ()
) -> list[Permitted]:
    """What is said of these commands and then of the tests, in auto mode with nobody to ask."""
    calls = step(*(("bash", {"command": command}) for command in commands), ("run_tests", {}))
    flags = script(place, calls, step(text="Done."), step(text="ACCEPT"))[:2]
    place.configure(more=f'test_command = "sh check.sh"\npermission_mode = "auto"\n{setting}')
    done = subprocess.run(
        [*prefix(place, means), sys.executable, "-m", "fugu_cli", "run", *flags, *more, "make it"],
        env=place.environ(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (ASKED in done.stderr) == (not setting), done.stderr
    return [
        event for event in place.events() if isinstance(event, Permitted) and event.by != "evidence"
    ]


@pytest.mark.parametrize("means", WITHOUT)
def test_auto_mode_refuses_commands_and_tests_and_says_why_and_how_they_could_run(
    place: Place, means: str
) -> None:
    found = judged(place, means, "cat calc.txt", LOSES, "mkdir made")
    assert [one.allowed for one in found] == [True, False, False, False]
    assert found[2].reason == (
        f"`mkdir` is not known to be read-only, and {NO_SANDBOX}, and auto mode asks "
        "nobody. The user can allow it with --allow 'bash(mkdir made)'"
    )
    assert (place.repo / ".git" / "refs").is_dir() and not (place.repo / "made").exists()


@pytest.mark.parametrize("means", WITHOUT)
def test_the_doctor_says_so(place: Place, means: str) -> None:
    said = subprocess.run(
        [*prefix(place, means), sys.executable, "-m", "fugu_cli", "doctor"],
        env=place.environ(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False,
    ).stdout  # fmt: skip
    assert means in next(line for line in said.splitlines() if line.startswith("note     sandbox"))
    assert ASKED in said


@pytest.mark.parametrize("means", WITHOUT)
def test_what_a_rule_allows_runs_unasked_all_the_same(place: Place, means: str) -> None:
    more = ("--allow", "bash(mkdir *)", "--allow", "run_tests")
    found = judged(place, means, LOSES, "mkdir made", more=more)
    assert [one.allowed for one in found] == [False, True, True]


def test_a_git_folder_that_every_command_may_write_needs_no_question(place: Place) -> None:
    found = judged(place, "Landlock", "mkdir made", setting='sandbox = { writable = [".git"] }')
    assert [one.allowed for one in found] == [True, True]
