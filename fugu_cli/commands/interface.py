"""`fugu` alone: the terminal interface in this folder; where there is no terminal, how to begin without one."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from fugu_cli.commands.flags import OpenFlags, check_session
from fugu_cli.errors import UsageError

HOW_TO = """\
fugu is a coding agent that works with a pool of models and shows every routing decision.

  fugu run "fix the failing tests"    one request, to its end
  fugu trace                          who was chosen each turn, and why
  fugu undo                           put the files back
  fugu pool                           the agents; without keys, small models on this machine
  fugu models pull                    fetch those (1.6 GB)
  fugu doctor                         what is there and what is missing
  fugu help                           pages on configuration, permissions and more

In a terminal, `fugu` alone opens the interface.
"""


def start(flags: OpenFlags) -> int:
    """Open the interface, full screen or in the scrollback; the exit code once the user has left. Raises FuguError;
    UsageError for flags that contradict one another, and where a session is asked for and there is no terminal."""
    check_session(flags)
    if not (sys.stdin and sys.stdin.isatty() and sys.stdout and sys.stdout.isatty()):
        if wants_session(flags):
            raise UsageError("the interface needs a terminal", hint='use `fugu run "..."` in scripts and pipes')
        print(HOW_TO, end="")
        return 0
    from fugu_cli import sessions
    from fugu_cli.commands.desk import HomeDesk
    from fugu_cli.commands.here import here
    from fugu_cli.ui.tui import Options, run_app

    loaded = here(flags.settings(), trust=flags.trust)
    data = loaded.config.data
    wanted = flags.resume or ("latest" if flags.go_on else None)
    options = Options(
        state=data / "interface",
        resume=sessions.find(data, loaded.root, wanted).stem if wanted else None,
        fork=flags.fork_session,
        tier=loaded.config.tier,
    )
    desk = HomeDesk(loaded, os.environ)
    if flags.inline or not (fullscreen(os.environ) and seen()):
        from fugu_cli.ui.inline import run_inline

        return run_inline(desk, options)
    return run_app(desk, options)


def wants_session(flags: OpenFlags) -> bool:
    """More is asked for than to know what fugu is."""
    named = flags.inline or flags.go_on or flags.resume is not None or flags.fork_session or flags.trust
    return named or bool(flags.settings())


def fullscreen(environ: Mapping[str, str]) -> bool:
    """The terminal can be drawn on as a whole. Emacs' shell, editors' output panes and the like cannot."""
    return environ.get("TERM", "" if os.name == "posix" else "windows") not in ("", "dumb", "unknown")


def seen() -> bool:
    """What is drawn is seen: the full screen is written to standard error."""
    return sys.__stderr__ is not None and sys.__stderr__.isatty()
