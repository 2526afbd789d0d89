"""The interactive interface. `run_app(opener, options)` opens it, `run_trace(...)` shows a finished
log.

It draws the log and holds nothing that the log does not; a `SessionOpener` gives it sessions, which
wiring builds. Read session_controller.py, request_queue.py, main_screen.py and app.py, in this
order. Importing this imports no screen library.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fugu_cli.app.session_protocol import InterfaceOptions, SessionOpener, SessionProtocol

if TYPE_CHECKING:
    from fugu_cli.session.events import Recorded
    from fugu_cli.ui.turn_page import TurnSources

__all__ = ["InterfaceOptions", "SessionOpener", "SessionProtocol", "run_app", "run_trace"]


def run_app(opener: SessionOpener, options: InterfaceOptions) -> int:
    """Open the interface in this terminal. Returns the exit code once the user has left.

    The first frame is painted before `opener.prepare()` (in a thread) and `opener.begin` or
    `resume` are called.
    """
    from fugu_cli.ui.tui.app import FuguApp

    app = FuguApp(opener, options)
    app.run(mouse=options.mouse)
    if app.main.parting:
        print(app.main.parting, file=sys.stderr)
    app.report_crash()
    return app.exit_code


def run_trace(
    records: Sequence[Recorded], title: str, options: InterfaceOptions, sources: TurnSources
) -> int:
    """Show the trace of a session that is not running: its turns, each of which can be opened.

    `sources` say what a call changed, as a diff, and what an agent was shown.
    """
    from fugu_cli.ui.tui.overlays import TraceApp

    app = TraceApp(records, title, options, sources)
    app.run(mouse=options.mouse)
    app.report_crash()
    return app.exit_code
