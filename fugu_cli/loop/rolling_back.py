"""What a draw changed is put back; what the user changed in an editor meanwhile is not.

Below bench.py. A turn of a small model may fail several times in a row while somebody works in the same folder. Only
what the draw's calls left is taken back, where it still is as they left it. A command may run while the user saves a
file, and nobody can tell who wrote: a file that was there before and changed while fugu ran the tests is taken for the
user's, for tests seldom change one; what came into being then is theirs, and what an agent's own command changed is
the command's.
"""

from __future__ import annotations

from collections.abc import Sequence

from fugu_cli import views
from fugu_cli.events import Change, net
from fugu_cli.policy.paths import shown
from fugu_cli.policy.patterns import WRITING
from fugu_cli.tools.restoring import Part
from fugu_cli.tools.snapshots import Difference
from fugu_cli.tools.workspace import Workspace


async def roll_back(workspace: Workspace, tree: str, turn: views.Turn) -> tuple[tuple[str, ...], frozenset[str]]:
    """Put what the turn's draw changed back to how it was at `tree`, a snapshot; returns the paths, and those that are
    not as they were then. Raises StorageError.

    What a killed call or a background job has done is in no fact: after one, all that differs is taken for its doing.
    """
    if views.interrupted_calls(turn) or any(run.result is not None and run.result.job for run in turn.runs):
        return (await workspace.put_back(tree, turn.changes)).paths, frozenset()
    own = net(_made(turn))

    def left_by_it(difference: Difference) -> bool:
        change = own.get(shown(difference.path))
        return change is not None and (change.after or "") == (difference.old_blob if difference.old_mode else "")

    commands = any(not run.evidence and run.permitted.call.tool not in WRITING for run in turn.runs)
    restored = await workspace.restore(tree, Part(left_by_it, folders=commands))
    beside = await workspace.restore_changes(change for change in turn.changes if change.beside)
    now = await workspace.snapshot()
    others = await workspace.diff(tree, now) if now is not None else ()
    return (*restored, *beside.paths), frozenset((*(change.path for change in others), *beside.conflicts))


def _made(turn: views.Turn) -> Sequence[Change]:
    """The changes that are the draw's, in their order."""
    runs = [run for run in turn.runs if run.result is not None]
    agents = {change.path for run in runs if run.result and not run.evidence for change in run.result.changes}
    return [
        change
        for run in runs
        if run.result is not None
        for change in run.result.changes
        if not run.evidence or change.before is None or change.path in agents
    ]
