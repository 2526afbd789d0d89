"""Reports of bugs in fugu: such a bug ends the program with three lines, and the traceback goes to
a file.
"""

from __future__ import annotations

import os
import platform
import sys
import time
import traceback
from pathlib import Path

KEPT_REPORTS = 20
LONGEST_MESSAGE = 200
"""Characters of an error's message that are printed."""


def report_crash(error: BaseException) -> str:
    """Write a report of `error` and return three lines: what happened, how to go on, and where
    the report is."""
    words = traceback.format_exception_only(error)[-1].split()
    what = " ".join(words)
    if len(what) > LONGEST_MESSAGE:
        what = f"{what[:LONGEST_MESSAGE]}…"
    try:
        where = f"the report for a bug report is {_write_report(error)}"
    except OSError as failure:
        where = f"there is no report: it could not be written ({failure.strerror})"
    return (
        f"fugu: a bug in fugu ended it: {what}\n"
        "      your session is kept: `fugu --continue` goes on with it\n"
        f"      {where}\n"
    )


def _write_report(error: BaseException) -> Path:
    from platformdirs import user_data_path

    from fugu_cli import __version__

    folder = user_data_path("fugu") / "crashes"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for report in sorted(folder.glob("*.txt"))[: 1 - KEPT_REPORTS]:
        report.unlink(missing_ok=True)
    path = folder / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
    head = f"fugu {__version__}, Python {platform.python_version()}, {platform.platform()}\n"
    command = f"command: {' '.join(sys.argv[:2])}\n\n"
    text = head + command + "".join(traceback.format_exception(error))
    path.touch(mode=0o600)
    path.write_text(text, encoding="utf-8", errors="backslashreplace")
    return path
