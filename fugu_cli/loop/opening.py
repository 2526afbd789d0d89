"""What fugu ran and read for an agent before its first reply of a draw."""

from __future__ import annotations

import json
from itertools import takewhile

from fugu_cli import views
from fugu_cli.events import Permitted, Replied
from fugu_cli.messages import Call
from fugu_cli.tools.relevant_files import ROOM


def opening_ids(turn: views.Turn) -> set[str]:
    """Ids of the calls made before the agent's first reply of the draw."""
    before = takewhile(lambda fact: not isinstance(fact, Replied), turn.facts)
    return {fact.call.id for fact in before if isinstance(fact, Permitted)}


def files_shown(turn: views.Turn) -> dict[str, str]:
    """Path -> content of the files fugu read when the turn opened; of a long one functions may be shown, not all."""
    return {path: content for path, content in files_read(turn).items() if not is_long(content)}


def files_read(turn: views.Turn) -> dict[str, str]:
    """The same with the long ones."""
    opening = opening_ids(turn)
    read = [run for run in turn.runs if run.permitted.call.id in opening and run.permitted.call.tool == "read"]
    return {path_of(run) or "": run.result.output for run in read if run.evidence and run.result and run.result.ok}


def is_long(content: str) -> bool:
    """A small model is not shown such a file whole."""
    return len(content) > ROOM


def path_of(run: views.Run) -> str | None:
    return argument(run.permitted.call, "path")


def argument(call: Call, name: str) -> str | None:
    """The text given for `name`; None where there is none."""
    try:
        found = json.loads(call.arguments).get(name)
    except (ValueError, AttributeError):
        return None
    return found if isinstance(found, str) else None
