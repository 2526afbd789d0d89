"""The real binary, killed at moments spread over a request: the log opens, the request goes on,
undo restores.

Python reports what a process is about to do: a file opened, a program started, a folder made. The
process counts these and ends itself by SIGKILL before the one that is given. `FUGU_KILLS=50` in the
environment takes 50 moments.
"""

from __future__ import annotations

import functools
import os
import random
import signal
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from fugu_cli.session import store
from fugu_cli.session.events import Asked
from tests.acceptance import forked
from tests.acceptance.driving import Place
from tests.acceptance.test_jobs import script, step
from tests.acceptance.test_undo import DONE, bash, files

MOMENTS = int(os.environ.get("FUGU_KILLS", "6"))
COUNTING = """
import atexit, os, signal, sys
last = os.environ.pop("KILLED_AT", "")
seen = 0
def count(name, arguments):
    global seen
    outside = name == "open" or name.partition(".")[0] in ("os", "fcntl", "shutil", "subprocess", "tempfile")
    if not outside or (not seen and not (name == "open" and os.sep + "sessions" + os.sep in str(arguments[0]))):
        return
    seen += 1
    if seen == int(last):
        os.kill(os.getpid(), signal.SIGKILL)
if last:
    sys.addaudithook(count)
    atexit.register(lambda: print(f"\\n{seen}"))
"""
"""Ends the process before the thing of the number KILLED_AT, counted from when the session's file is
opened; else it says how many there were. A command that fugu starts has no KILLED_AT.
"""
REQUEST = (
    step(("write", {"path": "new/file.txt", "content": "a\n"}), ("read", {"path": "calc.txt"})),
    bash(
        "rm check.sh; mkdir deep; echo 1 > deep/made; chmod +x mine.txt; mv mine.txt moved.txt; "
        "sleep 0.1; echo 2 > two"
    ),
    step(("edit", {"path": "calc.txt", "old": "broken", "new": "half fixed"})),
    step(
        ("write", {"path": "calc.txt", "content": "fixed\n"}),
        ("bash", {"command": "ln -s calc.txt link; rm two"}),
    ),
    *DONE,
)


def furnished(folder: Path) -> Place:
    """A repository with a file that was changed and one that git does not know."""
    place = Place(folder, "")
    place.begin()
    place.files({"mine.txt": "by hand\n", "calc.txt": "broken by hand\n"})
    place.configure(more='test_command = "test ! -e two"')
    return place


def killed(place: Place, moment: int, *command: str) -> subprocess.CompletedProcess[str]:
    """The command, by default the request, ended at this moment; 0: at its own end."""
    command = command or ("run", *script(place, *REQUEST), "make it")
    start = place.folder / "counting" / "sitecustomize.py"
    start.parent.mkdir(exist_ok=True)
    start.write_text(COUNTING)
    path = os.pathsep.join([str(start.parent), str(forked.ROOT)])
    return subprocess.run(
        [*forked.FUGU, *command],
        cwd=place.repo, env=place.environ() | {"PYTHONPATH": path, "KILLED_AT": str(moment)},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


@functools.cache
def count() -> int:
    """Of all that the request does."""
    with tempfile.TemporaryDirectory() as folder:
        done = killed(furnished(Path(folder)), 0)
    assert done.returncode == 0, done.stderr
    return int(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("number", range(MOMENTS))
def test_killed_at_any_moment_a_request_goes_on_and_is_undone_exactly(
    tmp_path: Path, number: int
) -> None:
    moment = 1 + number * count() // MOMENTS
    place = furnished(tmp_path)
    before = files(place.repo)
    ended = killed(place, moment)
    assert ended.returncode == -signal.SIGKILL, f"{moment} of {count()}: {ended.stderr}"
    kept = [path.read_bytes() for path in place.sessions()]
    events = place.events() if kept else ()
    asked = any(isinstance(event, Asked) for event in events)
    if number % 2:
        again = place.fugu("run", "--continue", *script(place, *REQUEST))
        assert again.code in ({0, 3} if store.unfinished(events) else {1}), f"{moment}: {again.err}"
        whole = [text[: text.rfind(b"\n") + 1] for text in kept]
        assert [
            path.read_bytes()[: len(text)]
            for path, text in zip(place.sessions(), whole, strict=True)
        ] == whole
    undone = place.fugu("undo", "--yes")
    assert (undone.code, files(place.repo)) == (0 if asked else undone.code, before), (
        f"{moment}: {undone.err}"
    )
    assert "edits" not in undone.err and "Traceback" not in undone.err


@dataclass(frozen=True)
class Worked:
    """A repository in which the request was made; its files before it and after it."""

    place: Place
    before: dict[str, str]
    after: dict[str, str]


def worked(folder: Path, command: str) -> Worked:
    """The request, made, and undone again where the command is `redo`."""
    place = furnished(folder)
    before = files(place.repo)
    assert place.fugu("run", *script(place, *REQUEST), "make it").code == 0
    after = files(place.repo)
    if command == "redo":
        assert place.fugu("undo", "--yes").code == 0
    return Worked(place, before, after)


@functools.cache
def count_of(command: str) -> int:
    """Of all that an undo or redo of the request does."""
    with tempfile.TemporaryDirectory() as folder:
        done = killed(worked(Path(folder), command).place, 0, command, "--yes")
    assert done.returncode == 0, done.stderr
    return int(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("number", range(MOMENTS))
def test_an_undo_or_redo_killed_at_any_moment_is_finished_and_loses_nothing(
    tmp_path: Path, number: int
) -> None:
    command = ("undo", "redo")[number % 2]
    moment = 1 + random.Random(number).randrange(count_of(command))
    work = worked(tmp_path, command)
    place = work.place
    session = place.sessions()[0].stem
    ended = killed(place, moment, command, "--yes")
    assert ended.returncode == -signal.SIGKILL, f"{moment} of {count_of(command)}: {ended.stderr}"
    mine = {"later.txt": "by hand\n"}
    (place.repo / "later.txt").write_text("by hand\n")
    next_command = [("undo", "--yes"), ("redo", "--yes"), ("run", *script(place, *DONE), "go on")][
        number % 3
    ]
    told = [place.fugu(*next_command)]
    told.append(place.fugu("redo", "--yes", "--session", session))
    assert files(place.repo) == work.after | mine, f"{moment}: {told}"
    told.append(place.fugu("undo", "--yes", "--session", session))
    assert files(place.repo) == work.before | mine, f"{moment}: {told}"
    assert {one.code for one in told} == {0} and not list(place.repo.rglob(".fugu-*")), told
