"""Views: what the log says, as pure functions of the list of events. This is their front door; read
turns.py first.

Nothing here is stored, cached or told to anybody; the screen, headless output, the trace, the
prompts, costs and the coordinator's transcript are all built from these folds. Must not know files,
models or the screen. `turns.py` is the default: read it first.
"""

from __future__ import annotations

from fugu_cli.session.costs import *  # noqa: F403
from fugu_cli.session.events import BUDGET as BUDGET
from fugu_cli.session.events import FIND_TOOLS as FIND_TOOLS
from fugu_cli.session.open_work import *  # noqa: F403
from fugu_cli.session.outcome import *  # noqa: F403
from fugu_cli.session.recognized_tests import *  # noqa: F403
from fugu_cli.session.turns import *  # noqa: F403
from fugu_cli.session.verdicts import *  # noqa: F403
from fugu_cli.session.workflows import *  # noqa: F403
