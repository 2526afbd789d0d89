"""The terminal interface: the conversation, and beside it the trace of who was chosen and why.

`run_app(desk, options)` opens it, `run_trace(...)` shows a finished log. It draws the log (`draw/`) and holds nothing
that the log does not; sessions come from a `Desk` (session.py), which wiring builds. Read `draw/story.py`,
`working.py`, `room.py`, `screens/main.py`, in this order. Importing this module imports no screen library.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fugu_cli.ui.tui.session import Desk, Options, Session

if TYPE_CHECKING:
    from fugu_cli.events import Recorded
    from fugu_cli.ui.tui.draw.detail import Sources

__all__ = ["Desk", "Options", "Session", "run_app", "run_trace"]


def run_app(desk: Desk, options: Options) -> int:
    """Open the interface in this terminal. Returns the exit code once the user has left.

    The first frame is painted before `desk.prepare()` (in a thread) and `desk.begin` or `resume` are called.
    """
    from fugu_cli.ui.tui.app import FuguApp

    app = FuguApp(desk, options)
    app.run(mouse=options.mouse)
    if app.main.parting:
        print(app.main.parting, file=sys.stderr)
    return app.exit_code


def run_trace(records: Sequence[Recorded], title: str, options: Options, sources: Sources) -> int:
    """Show the trace of a session that is not running: its turns, each of which can be opened.

    `sources` say what a call changed, as a diff, and what an agent was shown.
    """
    from fugu_cli.ui.tui.viewing import TraceApp

    app = TraceApp(records, title, options, sources)
    app.run(mouse=options.mouse)
    return app.exit_code
