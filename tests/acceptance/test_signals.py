"""The signals that end a command, at bad moments: no module is left half made, and the exit code
stays what it was.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import fugu_cli
from tests.acceptance.driving import Place
from tests.acceptance.test_jobs import script
from tests.acceptance.test_undo import bash

IMPORTS = """
import threading
from fugu_cli.system import signals
signals.raise_on_signals()
try:
    import slow
    threading.Event().wait(60)
except KeyboardInterrupt:
    print("interrupted", slow.WHOLE)
"""
SLOW = """
import os, signal
os.kill(os.getpid(), signal.SIGTERM)
for _ in range(1000):
    pass
WHOLE = True
"""
LEAVES = """
from fugu_cli.__main__ import leave
try:
    exec("raise KeyboardInterrupt")
except KeyboardInterrupt:
    leave(4)
"""
STARTS = """
import os, signal, subprocess, time
from fugu_cli.system import signals
def before():
    os.kill(os.getppid(), signal.SIGTERM)
    time.sleep(0.3)
signals.raise_on_signals()
try:
    subprocess.run(["sleep", "100"], preexec_fn=before, check=False)
except KeyboardInterrupt:
    print("interrupted")
try:
    for _ in range(1000):
        if os.waitpid(-1, os.WNOHANG) != (0, 0):
            raise ChildProcessError
        time.sleep(0.01)
    print("it lives on")
except ChildProcessError:
    print("no program is left")
"""
BLOCKED = """
import os, signal, threading, time
from fugu_cli.system import signals
def send():
    time.sleep(0.3)
    signal.pthread_kill(threading.get_ident(), number)  # the call that blocks is not ended by it
    time.sleep(20)
    os._exit(3)
for number in (signal.SIGINT, *signals.ENDING):
    signals.raise_on_signals(signal.SIGINT)
    threading.Thread(target=send, daemon=True).start()
    try:
        os.read(os.pipe()[0], 1)
    except KeyboardInterrupt:
        signals.unticking()
        print(number.name, flush=True)
os._exit(signal.setitimer(signal.ITIMER_REAL, 0)[0] > 0)
"""
EARLY = """
import os, signal, sys
from fugu_cli.system import signals
take_signals = signals.call_on_signals
def take_one_at_once(loop, stop):
    take_signals(loop, stop)
    os.kill(os.getpid(), signal.SIGINT)
signals.call_on_signals = take_one_at_once
from fugu_cli.__main__ import called
sys.exit(called(sys.argv[1:]))
"""
HELD = """
import os, signal
from fugu_cli.system import signals
signals.raise_on_signals(signal.SIGINT)
for number in (signal.SIGINT, *signals.ENDING):
    signals.hold_signals()
    os.kill(os.getpid(), number)
    print("still here", end=" ", flush=True)
    try:
        signals.raise_on_signals(signal.SIGINT)
    except KeyboardInterrupt:
        print("interrupted")
"""


def module(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    """`python -m` of a module in `folder` that holds `code`."""
    (folder / "started.py").write_text(code)
    place = {"PYTHONPATH": f"{Path(fugu_cli.__file__).parents[1]}:{folder}"}
    command = [sys.executable, "-m", "started"]
    return subprocess.run(
        command, env=place, capture_output=True, text=True, timeout=120, check=False
    )


def test_a_signal_in_the_middle_of_an_import_waits_for_its_end(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    done = module(tmp_path, IMPORTS)
    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted True\n", "")


def test_an_interrupt_that_was_caught_does_not_change_the_exit_code(tmp_path: Path) -> None:
    done = module(tmp_path, LEAVES)
    assert (done.returncode, done.stdout, done.stderr) == (4, "", "")


def test_a_signal_while_a_program_is_started_leaves_none_behind(tmp_path: Path) -> None:
    done = module(tmp_path, STARTS)
    assert (done.returncode, done.stdout, done.stderr) == (
        0,
        "interrupted\nno program is left\n",
        "",
    )


def test_a_signal_that_does_not_end_a_call_which_blocks_is_heard(tmp_path: Path) -> None:
    done = module(tmp_path, BLOCKED)
    assert (done.returncode, done.stdout, done.stderr) == (0, "SIGINT\nSIGTERM\nSIGHUP\n", "")


def test_a_signal_that_was_held_is_heard_later(tmp_path: Path) -> None:
    done = module(tmp_path, HELD)
    assert (done.returncode, done.stdout, done.stderr) == (0, "still here interrupted\n" * 3, "")


def test_the_first_signal_stops_a_run_that_has_not_begun_its_work(tmp_path: Path) -> None:
    place = Place(tmp_path, "")
    place.begin()
    plain_folder = tmp_path / "plain"
    plain_folder.mkdir()
    output = ("--output-dir", str(tmp_path / "output"))  # the folder is copied before the work
    words = ("run", *output, *script(place, bash("touch made.txt")), "make it")
    done = subprocess.run(
        [sys.executable, "-c", EARLY, *words], cwd=plain_folder, env=place.environ(),
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, (plain_folder / "made.txt").exists()) == (4, False), done.stderr
    assert "interrupting; once more to leave at once" in done.stderr
