"""What fugu ran and read for an agent before its first reply of a draw."""

from __future__ import annotations

import json
from itertools import takewhile

from fugu_cli import views
from fugu_cli.events import Permitted, Replied
from fugu_cli.messages import Call


def opening_ids(turn: views.Turn) -> set[str]:
    """Ids of the calls made before the agent's first reply of the draw."""
    before = takewhile(lambda fact: not isinstance(fact, Replied), turn.facts)
    return {fact.call.id for fact in before if isinstance(fact, Permitted)}


def path_of(run: views.Run) -> str | None:
    return argument(run.permitted.call, "path")


def argument(call: Call, name: str) -> str | None:
    """The text given for `name`; None where there is none."""
    try:
        found = json.loads(call.arguments).get(name)
    except (ValueError, AttributeError):
        return None
    return found if isinstance(found, str) else None
