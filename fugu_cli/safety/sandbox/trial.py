"""Tries inside of a sandbox what no command may do there. Started as a command of the sandbox that is
tried out; imports only the standard library's quick parts.

trial REPOSITORY TEMPORARY OUTSIDE PORT
"""

from __future__ import annotations

import os
import socket
import sys

SEALED = ".envrc"
"""A file of the repository that others run without a further word, as in self_running_files.py."""


def main(arguments: list[str]) -> None:
    """End with 0 where the sandbox holds; with 1 and a sentence where it does not."""
    repository, temporary, outside, port = arguments
    failures = [
        f"a command cannot write {folder}"
        for folder in (repository, temporary)
        if not can_write(f"{folder}/new")
    ]
    failures += [
        f"a command can write {what}"
        for what, path in (
            ("outside of the repository", f"{outside}/new"),
            ("the git folder", f"{repository}/.git/new"),
            ("files that others run", f"{repository}/{SEALED}"),
        )
        if can_write(path)
    ]
    if can_connect(int(port)):
        failures.append("a command can reach the network")
    sys.stderr.write("; ".join(failures))
    sys.exit(bool(failures))


def can_write(path: str) -> bool:
    """Open `path` for writing."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
        return True
    except OSError:
        return False


def can_connect(port: int) -> bool:
    """Connect to a server of this machine that waits outside of the sandbox."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2):
            return True
    except OSError:
        return False
