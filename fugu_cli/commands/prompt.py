"""Where the request comes from: the argument, `-p`, `--prompt-file`, or standard input; exactly one of them.

What is piped in beside a request belongs to it. Nobody can tell a slow program at the other end of a pipe from one that
never writes (CI, ssh and cron leave such pipes open), so it is not waited for longer than `PATIENCE`.
"""

from __future__ import annotations

import os
import select
import stat
import sys
import threading
from pathlib import Path
from typing import TextIO

from fugu_cli.commands.flags import RunFlags, Said
from fugu_cli.errors import UsageError

HINT = 'give one: fugu run "...", -p "...", --prompt-file FILE, or a pipe'
PATIENCE = 3.0
"""Seconds after which a pipe that nobody has written to counts as empty."""
MOST = 1_000_000
"""Characters of standard input: no agent reads more at once, and `yes |` has no end."""


def read(flags: RunFlags, stdin: TextIO | None) -> Said:
    """The request. Raises UsageError when there are several, none, or an empty one.

    Standard input is the request when it is asked for with `-`, or when nothing else was given.
    """
    given = {"an argument": flags.text, "-p": flags.prompt, "--prompt-file": flags.prompt_file}
    said = [name for name, value in given.items() if value is not None]
    if len(said) > 1:
        raise UsageError(f"there are {len(said)} prompts: {' and '.join(said)}", hint=HINT)
    if not said and (flags.go_on or flags.resume):
        return Said(_beside(stdin) or None)
    if not said and (stdin is None or stdin.isatty()):
        raise UsageError("there is no prompt", hint=HINT)
    text, beside = _text(flags, stdin)
    if not text.strip():
        raise UsageError("the prompt is empty", hint=HINT)
    return Said(text.strip("\n"), _beside(stdin) if beside else "")


def _text(flags: RunFlags, stdin: TextIO | None) -> tuple[str, bool]:
    """The request's text, and whether standard input may hold more."""
    if flags.prompt_file is not None:
        return _file(flags.prompt_file), True
    text = flags.text if flags.text is not None else flags.prompt
    if text not in (None, "-"):
        return text, True
    if stdin is None:
        raise UsageError("standard input is closed", hint=HINT)
    return piped(stdin), False


def _beside(stdin: TextIO | None) -> str:
    """What standard input holds although the request came from elsewhere; "" where that is nothing."""
    if stdin is None or stdin.isatty() or not _speaks(stdin):
        return ""
    text = piped(stdin)
    return text.strip("\n") if text.strip() else ""


def _speaks(stdin: TextIO) -> bool:
    """It is a file that nobody has begun to read (a loop over its lines has), or a pipe that says something in time."""
    try:
        source = stdin.fileno()
    except OSError:  # it is nothing that a shell could have put there
        return False
    mode = os.fstat(source).st_mode
    if stat.S_ISREG(mode):
        return os.lseek(source, 0, os.SEEK_CUR) == 0
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        return False
    if select.select([source], [], [], PATIENCE)[0]:
        return True
    _tell(f"standard input said nothing for {PATIENCE:.0f} s and is not read (`< /dev/null` keeps fugu from waiting)")
    return False


def piped(stdin: TextIO) -> str:
    """All of standard input. Raises UsageError for what is no text."""
    said = threading.Timer(PATIENCE, _tell, ("reading standard input to its end",))
    said.daemon = True
    said.start()
    try:
        text = stdin.read(MOST + 1)
        text.encode("utf-8")  # some locales let bytes through that are none
    except UnicodeError as error:
        raise UsageError(
            "standard input is not UTF-8 text", hint="convert it, or name a file in the request"
        ) from error
    except OSError as error:
        raise UsageError(f"standard input cannot be read: {error.strerror}", hint="`< /dev/null` closes it") from error
    finally:
        said.cancel()
    if len(text) > MOST:
        raise UsageError(f"standard input holds more than {MOST:,} characters", hint="name a file in the request")
    return text.removeprefix("\ufeff")


def _tell(text: str) -> None:
    print(f"fugu: {text}", file=sys.stderr, flush=True)


def _file(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text", hint="save it as UTF-8") from error
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", hint="check --prompt-file") from error
