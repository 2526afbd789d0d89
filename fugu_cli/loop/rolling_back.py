"""What a draw changed is put back; what the user changed in an editor meanwhile is not.

Below bench.py. A turn of a small model may fail several times in a row while somebody works in the same folder. Only
what the draw's calls left is taken back, where it still is as they left it. A command may run while the user saves a
file, and nobody can tell who wrote: a file that was there before and changed while fugu ran the tests is taken for the
user's, for tests seldom change one; what came into being then is theirs, and what an agent's own command changed is
the command's.
"""

from __future__ import annotations

from fugu_cli import views
from fugu_cli.events import Change, Made
from fugu_cli.tools.workspace import Workspace


async def roll_back(workspace: Workspace, tree: str, turn: views.Turn) -> tuple[tuple[str, ...], frozenset[str]]:
    """Put what the turn's draw changed back to how it was at `tree`, a snapshot; returns the paths, and those that are
    not as they were then. Raises StorageError.

    What a killed call or a background job has done is in no fact: after one, all that differs is taken for its doing.
    """
    made = _made(turn)
    if views.interrupted_calls(turn) or any(run.result is not None and run.result.job for run in turn.runs):
        all_of_it = await workspace.since(tree)
        made = Made((*all_of_it.changes, *(change for change in turn.changes if change.beside)), all_of_it.attributes)
    restored = await workspace.take_back(made)
    now = await workspace.snapshot()
    others = await workspace.diff(tree, now) if now is not None else ()
    return restored.paths, frozenset((*(change.path for change in others), *restored.left))


def _made(turn: views.Turn) -> Made:
    """What the draw did to files, in its order."""
    runs = [run for run in turn.runs if run.result is not None]
    agents = {change.path for run in runs if run.result and not run.evidence for change in run.result.changes}
    changes: list[Change] = []
    for run in runs:
        assert run.result is not None
        changes += (c for c in run.result.changes if not run.evidence or c.before is None or c.path in agents)
    attributes = (one for run in runs if run.result and not run.evidence for one in run.result.attributes)
    return Made(tuple(changes), tuple(attributes))
