"""A picture from the clipboard, by the program that the desktop has for it: kept as a file that `@`
can name.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from contextlib import suppress
from pathlib import Path

from fugu_cli.safety.programs import find_program, program_environment

PROGRAMS = (
    ("WAYLAND_DISPLAY", ("wl-paste", "--type", "image/png")),
    ("DISPLAY", ("xclip", "-selection", "clipboard", "-target", "image/png", "-out")),
    ("", ("pngpaste", "-")),
)
"""The variable without which a program is of no use, and the program."""
SECONDS = 3.0
KEPT = 50
"""Pictures that are kept, the newest: a session has a copy of its own."""


def paste_picture(folder: Path, root: Path) -> Path | None:
    """Save the clipboard's picture in `folder` and return its path, None without a picture or a
    program for it. Runs in a thread.
    """
    data = _read(root)
    if not data.startswith(b"\x89PNG"):
        return None
    path = folder / f"clipboard-{hashlib.sha256(data).hexdigest()[:8]}.png"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_bytes(data)
        for old in sorted(folder.iterdir(), key=lambda file: file.stat().st_mtime)[:-KEPT]:
            old.unlink()
    except OSError:
        return None
    return path


def _read(root: Path) -> bytes:
    for variable, (program, *arguments) in PROGRAMS:
        path = find_program(program, root)
        if path is None or (variable and not os.environ.get(variable)):
            continue
        with suppress(OSError, subprocess.TimeoutExpired):
            command = [path, *arguments]
            done = subprocess.run(
                command,
                env=program_environment(root),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=SECONDS,
            )
            if done.returncode == 0 and done.stdout:
                return done.stdout
    return b""
