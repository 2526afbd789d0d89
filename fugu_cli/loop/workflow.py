"""What a workflow needs done beside its turns: a plan asked for, a step begun, worktrees merged.

Below the loop, which calls it with the coordinator's decisions. Each ends in one fact of the log, and doing it again
after a kill does no harm.
"""

from __future__ import annotations

import time

from fugu_cli import views
from fugu_cli.agents import Pause
from fugu_cli.conductor import memory
from fugu_cli.coordinators import Merge, Planning, Together
from fugu_cli.errors import AgentError
from fugu_cli.events import Assigned, Change, Merged, Waiting
from fugu_cli.log import Log
from fugu_cli.loop import apart, availability, budget_guard, worktrees
from fugu_cli.loop.environment import Bench
from fugu_cli.loop.steps import Place, failure
from fugu_cli.messages import Call
from fugu_cli.tools import content
from fugu_cli.views.spending import usd

ENDLESS = 262_144
"""Characters of a plan after which the planner is taken to write for ever; parse.py reads far fewer."""


async def plan(place: Place, decision: Planning) -> None:
    """Ask the planner and record what it wrote; what it costs is the request's like any other call. One that no budget
    carries has failed: another agent plans, or the request is done turn by turn."""
    log, name = place.log, decision.agent
    member = place.crew.members[name]
    if not await budget_guard.may_call(log, 0, (member, decision.prompt), place.bench.limits.budget, place.reserved):
        return
    log.tell(Waiting(why=f"{name} is planning"))
    started = time.monotonic()

    pauses = availability.Pauses(place.crew, name, "now")

    def wait(pause: Pause) -> None:
        pauses.check(pause, log.events)
        lost = usd(pause.used, member.price)
        budget_guard.check(log.events, member, decision.prompt, place.bench.limits.budget, lost)
        log.tell(availability.live(pause, 0, name))

    try:
        reply = await place.crew.agents[name].reply(decision.prompt, _Unheard(name), wait)
    except AgentError as error:
        log.append(failure(0, name, error))
        return
    seconds = reply.seconds or round(time.monotonic() - started, 3)
    planned = decision.read(reply)
    log.append(planned.model_copy(update={"seconds": seconds, "model": planned.model or member.model}))


class _Unheard:
    """A plan is shown when it is whole. Who writes on and on, whatever its limit, is cut off."""

    def __init__(self, planner: str) -> None:
        self._planner = planner
        self._heard = 0

    def __call__(self, text: str) -> None:
        self._heard += len(text)
        if self._heard > ENDLESS:
            said = f"{self._planner} did not stop: more than {ENDLESS} characters where a plan was asked for"
            raise AgentError(said, kind="protocol", hint="its server does not keep the limit of a reply")


async def begin(log: Log, bench: Bench, decision: Together) -> None:
    """Record the steps that begin now, each with the tree it starts from and what the memory still knows."""
    workspace = bench.workspace
    tree = await workspace.snapshot()
    whole = await content.whole(workspace) if bench.remembers else content.Whole()

    async def state(call: Call) -> str:
        return await content.state(workspace, call, whole)

    pool = views.pool(log.events)
    known: dict[tuple[int, bool], tuple[int, ...]] = {}
    for decided in decision.turns:
        kind = (decided.plan, pool[decided.agent].protocol != "native")
        if kind not in known:
            known[kind] = await memory.fresh(log.events, kind[0], state, brief=kind[1]) if bench.remembers else ()
        update = {"snapshot": tree, "remembers": known[kind], "worktree": _worktree(log, decided, tree)}
        log.append(decided.model_copy(update=update))


def _worktree(log: Log, decided: Assigned, tree: str | None) -> str:
    """The name of the worktree to be made, "" where there is to be none or cannot be."""
    if not decided.worktree or tree is None:
        return ""
    return f"{len(views.requests(log.events))}-{decided.plan}-{decided.turn}"


async def merge(log: Log, bench: Bench, decision: Merge) -> None:
    """Record what was done in the worktrees, take the chosen one's work over, and remove them once that is settled.

    Raises StorageError as `apart.opened` does: what is gone is never taken over.
    """
    found = {turn.number: turn for turn in views.turns(log.events)}
    group = [found[number] for number in (decision.among if decision.open else decision.turns)]
    diffs: list[tuple[int, str]] = []
    made: tuple[Change, ...] = ()
    left: tuple[str, ...] = ()
    for one, worktree in zip(group, await apart.opened(log, bench.workspace, group), strict=True):
        start = one.assigned.snapshot
        assert start is not None
        await bench.workspace.jobs.stop_in(worktree.root, "session")
        diffs.append((one.number, await worktrees.diff(worktree, start)))
        changes = await worktrees.keep(worktree, bench.workspace, start)
        if one.number == decision.chosen and not decision.open:
            made, left = await worktrees.take_over(bench.workspace, changes)
    log.append(
        Merged(
            plan=decision.plan,
            turns=decision.turns,
            chosen=decision.chosen,
            reason=decision.reason,
            open=decision.open,
            diffs=tuple(diffs),
            changes=made,
            left=left,
        )
    )
    for one in group if not decision.open else ():
        worktrees.remove(apart.folder(log, bench.workspace, one))
