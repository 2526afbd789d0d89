"""`fugu run --background`: a process that goes on when its terminal is gone."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress

from fugu_cli.errors import UsageError

LONGEST_ID = 4096
"""Bytes of the id that are read."""


def run_in_background(run: Callable[[Callable[[str], None]], int]) -> int:
    """Call `run` in a process of its own, and print the id that it hands to its argument. Return 0
    once it is there, else the exit code of the process, which has said why.
    """
    if not hasattr(os, "fork"):
        raise UsageError("this system cannot run sessions in the background", hint="use `fugu run`")
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(reading)
        return run(lambda id: _detach(writing, id))
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        id = pipe.read(LONGEST_ID).decode("utf-8", "replace")
    if id:
        print(id)
        return 0
    _, status = os.waitpid(process, 0)
    return os.waitstatus_to_exitcode(status) or 2


def _detach(writing: int, id: str) -> None:
    """Leave the terminal and its standard streams, then hand over the id."""
    os.setsid()
    sys.stdout.flush()
    sys.stderr.flush()
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    os.close(nothing)
    with suppress(BrokenPipeError):  # whoever waited for it is gone: the list has the session
        os.write(writing, id.encode())
    os.close(writing)
