"""Turns that are open at the same time: the steps of a workflow that do not read one another.

Below the loop. Every lane reads at once, with commands that only read, too; what writes or runs anything else waits
until the lanes before it are over, so that writing happens in the plan's order. A lane in a worktree of its own waits
for nobody. What is open is read from the log, so a
workflow that was killed goes on with all its lanes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace

from fugu_cli import views
from fugu_cli.events import Waiting
from fugu_cli.loop import apart, environment, unmasking
from fugu_cli.loop.environment import Bench, Permission
from fugu_cli.loop.steps import Place, next_step, take
from fugu_cli.messages import Call
from fugu_cli.policy import Judgement
from fugu_cli.tools import content
from fugu_cli.tools.workspace import recall


def open_turns(place: Place) -> list[int]:
    """Numbers of the turns that have something left to do, in the order in which they began."""
    turns = views.turns(place.log.events)
    if turns and not turns[-1].assigned.plan:
        turns = turns[-1:]
    return [one.number for one in turns if not isinstance(next_step(place, one.number), environment.Closed)]


async def go_on(place: Place, numbers: Sequence[int]) -> None:
    """Drive these turns to their ends."""
    lanes = Lanes(place, numbers)
    tasks = [asyncio.create_task(lanes.drive(number)) for number in numbers]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _told(place: Place, number: int) -> None:
    """Hooks hear that a step of a workflow is over."""
    now = views.turn_of(place.log.events, number)
    if place.bench.hooks is not None and now is not None and now.assigned.plan:
        told = {"agent_id": f"turn-{number}", "last_assistant_message": now.text}
        await place.bench.hooks.step_ended(now.assigned.role, told, place.bench.workspace)


class Lanes:
    """Open turns by number, and what they wait for."""

    def __init__(self, place: Place, numbers: Sequence[int]) -> None:
        self._place = place
        self._over = {number: asyncio.Event() for number in numbers}
        self._asking = asyncio.Lock()
        self._running = asyncio.Lock()

    async def drive(self, number: int) -> None:
        """One lane to its end."""
        try:
            place = replace(self._place, bench=await self._bench(number))
            while not isinstance(step := next_step(place, number), environment.Closed):
                await self._wait(place, number, step)
                async with self._alone(place, step):
                    await take(place, number, step)
                if views.finished(place.log.events) is not None:  # a hook ended the work
                    return
            await _told(place, number)
        finally:
            self._over[number].set()

    async def _bench(self, number: int) -> Bench:
        """The lane's own bench: alone it is the one there is; beside others it has not seen what they saw."""
        bench, log = self._place.bench, self._place.log
        now = views.turn_of(log.events, number)
        assert now is not None
        if now.assigned.worktree:
            (workspace,) = await apart.opened(log, bench.workspace, [now])
        elif len(self._over) > 1:
            workspace = bench.workspace.apart()
        else:
            return bench
        start = next(i for i, event in enumerate(log.events) if event is now.assigned)
        mine = [r for r in log.records if r.seq < start or getattr(r.event, "turn", number) == number]
        recall(workspace, mine)
        return replace(bench, workspace=workspace, ask=self._ask)

    async def _ask(self, call: Call, judgement: Judgement) -> Permission:
        """One question at a time."""
        async with self._asking:
            return await self._place.bench.ask(call, judgement)

    async def _wait(self, place: Place, number: int, step: environment.Step) -> None:
        """Until it is this lane's turn to write or run something."""
        if not self._writes(place, step) or not self._shared(place):
            return
        before = [one for one in self._over if one < number and not self._over[one].is_set() and self._here(one)]
        for one in before:
            place.log.tell(Waiting(why=f"turn {number} waits for turn {one} before it changes anything"))
            await self._over[one].wait()

    def _alone(self, place: Place, step: environment.Step) -> AbstractAsyncContextManager[object]:
        """One at a time is run what is looked at for its changes: a command that reads must not be given those of a
        lane that writes."""
        runs = self._acts(place, step) and len(self._over) > 1 and self._shared(place)
        return self._running if runs else nullcontext()

    def _shared(self, place: Place) -> bool:
        """The lane works in the working tree itself."""
        return place.bench.workspace.root == self._place.bench.workspace.root

    def _here(self, number: int) -> bool:
        now = views.turn_of(self._place.log.events, number)
        return now is not None and not now.assigned.worktree

    def _writes(self, place: Place, step: environment.Step) -> bool:
        """It may change something. What policy knows to read only does not."""
        return self._acts(place, step) and not (isinstance(step, environment.Run) and self._reads(place, step.call))

    def _reads(self, place: Place, call: Call) -> bool:
        bench = place.bench
        try:
            return content.reads(bench.workspace, unmasking.as_made(place.log, bench.toolbox, bench.workspace, call))
        except unmasking.Unrestorable:
            return True  # it is refused

    def _acts(self, place: Place, step: environment.Step) -> bool:
        """It uses a tool that may do more than read."""
        toolbox = place.bench.toolbox
        match step:
            case environment.Run(call) | environment.Evidence(call):
                return call.tool in toolbox and toolbox[call.tool].effect != "reads"
            case environment.RollBack():
                return True
            case _:
                return False
