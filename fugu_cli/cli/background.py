"""`fugu run --background`: runs a session in a process that outlives its terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from fugu_cli.cli.current_folder import say
from fugu_cli.errors import UsageError

LONGEST_ID = 4096
"""Bytes that are read of a session's id."""


def run_in_background(run: Callable[[Callable[[str], None]], int]) -> int:
    """Call `run` in a child process and print the id of its session. `run` is given a function that
    it calls with the id, which leaves the terminal.

    Return 0 once there is an id. If the child ends without one, return its exit code: the child has
    printed the reason.
    """
    if not hasattr(os, "fork"):
        raise UsageError("this system cannot run sessions in the background", hint="use `fugu run`")
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(reading)
        return run(partial(_detach, writing))
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        id = pipe.read(LONGEST_ID).decode("utf-8", "replace")
    if id:
        print(id)
        return 0
    _, status = os.waitpid(process, 0)
    exit_code = os.waitstatus_to_exitcode(status)
    if exit_code < 0:
        say(f"the session's process was killed by signal {-exit_code} before the session was open")
        return 128 - exit_code
    return exit_code or 2


def _detach(writing: int, id: str) -> None:
    """Leave the terminal and its standard streams, then write the id into the pipe."""
    os.setsid()
    sys.stdout.flush()
    sys.stderr.flush()
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    os.close(nothing)
    with suppress(BrokenPipeError):  # nobody waits for the id any more; `fugu sessions` lists it
        os.write(writing, id.encode())
    os.close(writing)
