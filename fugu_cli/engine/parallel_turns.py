"""Workflow steps: plans, turns that are open at the same time, their worktrees and merges."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import time
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

from fugu_cli.coordinators import AskPlanner, MergeTurns, ParallelTurns
from fugu_cli.coordinators.conductor import step_context
from fugu_cli.engine import availability
from fugu_cli.engine.environment import (
    Environment,
    GatherEvidence,
    NextStep,
    RunCall,
    TurnClosed,
)
from fugu_cli.engine.turn import TurnContext, do_step, failed_event, next_step, run_together
from fugu_cli.errors import AgentError, StorageError
from fugu_cli.messages import Call
from fugu_cli.providers import Pause
from fugu_cli.session import spending, store
from fugu_cli.session.costs import usd
from fugu_cli.session.events import Assigned, FileChange, Interrupted, Merged, SteeringGiven
from fugu_cli.session.live_events import Waiting
from fugu_cli.session.log import Log, locked_if_closed, read
from fugu_cli.session.state import SessionState
from fugu_cli.session.tool_facts import ADVISE
from fugu_cli.session.turns import TASK, Turn, interrupted_calls
from fugu_cli.session.workflows import step_name
from fugu_cli.tools.workspace import Workspace, recall_reads

REMOVING = ".going"
"""Ends the name of a folder that is being removed."""


def worktree_folder(log: Log, workspace: Workspace, turn: Turn) -> Path:
    """Return the folder of the turn's worktree, whether it exists yet or not."""
    return _home(log, workspace) / turn.assigned.worktree


def _home(log: Log, workspace: Workspace) -> Path:
    return store.worktrees_folder(workspace.store.parents[1], log.path)


async def ensure_worktrees(
    log: Log, workspace: Workspace, turns: Sequence[Turn]
) -> list[Workspace]:
    """Return the worktrees of these turns, and make those in which nothing was done yet.

    Raises StorageError if a worktree with work in it is gone. Its turn is then recorded as cut, and
    so are the turns that were to choose from its work, so that they are done again.
    """
    from fugu_cli.tools.worktrees import worktree_exists

    gone = [
        turn
        for turn in turns
        if _worked(turn) and not worktree_exists(worktree_folder(log, workspace, turn))
    ]
    if gone:
        raise _lost(log, workspace, gone)
    home = _home(log, workspace)
    home.mkdir(parents=True, exist_ok=True)
    if log.path is not None:
        (home / store.OWNER).write_text(str(log.path.absolute()), "utf-8", "surrogateescape")
    return [await _made(workspace, turn, worktree_folder(log, workspace, turn)) for turn in turns]


async def _made(workspace: Workspace, turn: Turn, folder: Path) -> Workspace:
    from fugu_cli.tools.worktrees import make_worktree

    assert turn.assigned.snapshot is not None
    return await make_worktree(workspace, turn.assigned.snapshot, folder)


def _worked(turn: Turn) -> bool:
    """Something was done that somebody may still want."""
    return (
        not turn.failed and not turn.interrupted and bool(turn.changes or interrupted_calls(turn))
    )


def _lost(log: Log, workspace: Workspace, gone: Sequence[Turn]) -> StorageError:
    numbers = {turn.number for turn in gone}
    for turn in log.state.request.turns:
        chose = not turn.changes and any(number in turn.assigned.sees for number in numbers)
        if turn.number in numbers or (turn.assigned.plan and chose):
            log.append(Interrupted(turn=turn.number, reason="a worktree is gone"))
    turns = ", ".join(f"turn {turn.number} ({turn.assigned.agent})" for turn in gone)
    return StorageError(
        f"the work of {turns} is gone: nothing is left of it in {_home(log, workspace)}",
        hint="`fugu run --continue` has it done again; what is in the repository stays",
    )


def remove_unused_worktrees(data: Path) -> None:
    """Remove the worktrees that nobody can go on with: of sessions that are gone, of requests that
    are over. Those of a session that is open stay."""
    root = data / "worktrees"
    for home in root.glob("*"):
        with contextlib.suppress(
            OSError, StorageError
        ):  # a folder that is not ours, a session that cannot be read
            _set_apart(home)
    for folder in root.glob(f"*{REMOVING}"):
        shutil.rmtree(folder, ignore_errors=True)


def _set_apart(home: Path) -> None:
    """Rename what can go: that takes no time, and nobody opens the session meanwhile."""
    owner = Path((home / store.OWNER).read_text("utf-8", "surrogateescape"))
    with locked_if_closed(owner) as free:
        if not free:
            return
        events = [record.event for record in read(owner)] if owner.exists() else []
        if not store.unfinished(events):
            home.rename(f"{home}{REMOVING}")
            return
        for tree in home.glob("*-*-*"):
            if not tree.name.startswith(f"{len(SessionState(events).requests)}-"):
                tree.rename(f"{home}-{tree.name}{REMOVING}")


def open_turns(context: TurnContext) -> list[int]:
    """Return the numbers of the turns that have something left to do, in the order they began."""
    turns = context.log.state.request.turns
    if turns and not turns[-1].assigned.plan:
        turns = turns[-1:]
    numbers = [turn.number for turn in turns]
    return [number for number in numbers if not isinstance(next_step(context, number), TurnClosed)]


async def run_turns(context: TurnContext, numbers: Sequence[int]) -> None:
    """Drive these turns to their ends."""
    runner = TurnRunner(context, numbers)
    await run_together(runner.drive(number) for number in numbers)


async def _run_end_hooks(context: TurnContext, number: int) -> None:
    """Run the hooks for the end of a turn that is a step of a workflow or a subtask."""
    hooks = context.environment.hooks
    turn = context.log.state.request.turn(number)
    if hooks is None or turn is None or not (turn.assigned.plan or turn.assigned.subtask):
        return
    fields = {"agent_id": f"turn-{number}", "last_assistant_message": turn.text}
    agent_type: str = turn.assigned.role
    if turn.assigned.subtask is not None:
        agent_type = turn.assigned.subtask.name or "general-purpose"
    await hooks.step_ended(agent_type, fields, context.environment.workspace)


class TurnRunner:
    """Runs open turns at the same time. Each waits for its next step or for an earlier turn."""

    def __init__(self, context: TurnContext, numbers: Sequence[int] = ()) -> None:
        self._context = context
        self._over = {number: asyncio.Event() for number in numbers}
        self._running = asyncio.Lock()

    async def drive(self, number: int) -> None:
        """Run the turn to its end. `number` may be a subtask that begins later than the others."""
        closed = self._over.setdefault(number, asyncio.Event())
        try:
            context = replace(self._context, environment=await self._environment(number))
            while not isinstance(step := next_step(context, number), TurnClosed):
                await self._wait(context, number, step)
                async with self._step_lock(context, step):
                    await self._run_step(context, number, step)
                if context.log.state.request.finished is not None:  # a hook ended the work
                    return
            await _run_end_hooks(context, number)
        finally:
            closed.set()

    async def _run_step(self, context: TurnContext, number: int, step: NextStep) -> None:
        turn = context.log.state.request.turn(number)
        if (
            turn is None
            or turn.assigned.agent not in context.team.agents
            or not isinstance(step, RunCall)
        ):
            await do_step(context, number, step)
            return
        call, toolbox = step.call, context.environment.toolbox
        if call.tool == TASK and TASK in toolbox and turn.assigned.subtask is None:
            from fugu_cli.engine import subtasks

            await subtasks.run_tasks(context, number, call, TurnRunner(context).drive)
        elif call.tool == ADVISE.name and ADVISE.name in toolbox:
            from fugu_cli.engine import advice

            await advice.run_advice(context, number, call)
        else:
            await do_step(context, number, step)

    async def _environment(self, number: int) -> Environment:
        """Return the turn's own environment. Beside other turns it does not count files as read that
        only the others have read.
        """
        environment, log = self._context.environment, self._context.log
        turn = log.state.request.turn(number)
        assert turn is not None
        if turn.assigned.worktree:
            (workspace,) = await ensure_worktrees(log, environment.workspace, [turn])
        elif len(self._over) > 1 or turn.assigned.subtask is not None or turn.assigned.choices:
            workspace = environment.workspace.apart(turn.assigned.agent)
        else:
            return environment
        if turn.assigned.choices:
            workspace.copies = await self._copies(turn)
        start = 0  # a subtask was shown nothing
        if turn.assigned.subtask is None:
            start = next(i for i, event in enumerate(log.events) if event is turn.assigned)
        visible_records = [
            record
            for record in log.records
            if record.seq < start or getattr(record.event, "turn", number) == number
        ]
        recall_reads(workspace, visible_records)
        return replace(environment, workspace=workspace)

    async def _copies(self, chooser: Turn) -> dict[str, Workspace]:
        """Return the copies that a step chooses among, by the names of their steps."""
        log, request = self._context.log, self._context.log.state.request
        turns = {
            step_name(request.workflows, turn.assigned.plan, turn.assigned.step): turn
            for turn in request.turns
            if turn.assigned.worktree and turn.number in chooser.assigned.sees
        }
        chosen = [turn for name, turn in turns.items() if name in chooser.assigned.choices]
        workspaces = await ensure_worktrees(log, self._context.environment.workspace, chosen)
        names = [name for name in turns if name in chooser.assigned.choices]
        return dict(zip(names, workspaces, strict=True))

    async def _wait(self, context: TurnContext, number: int, step: NextStep) -> None:
        """Wait for the turns before this one if it is about to write or run something."""
        before = [
            turn
            for turn in self._over
            if turn < number and not self._over[turn].is_set() and self._has_no_worktree(turn)
        ]
        if not before or not self._shared(context) or not self._writes(context, step):
            return
        for turn in before:
            context.log.tell(
                Waiting(why=f"turn {number} waits for turn {turn} before it changes anything")
            )
            await self._over[turn].wait()

    def _step_lock(
        self, context: TurnContext, step: NextStep
    ) -> AbstractAsyncContextManager[object]:
        """Return a lock for a step that may change the working tree, so that no other turn's changes
        are taken for its own.
        """
        runs = self._acts(context, step) and self._shared(context)
        return self._running if runs else nullcontext()

    def _shared(self, context: TurnContext) -> bool:
        """Return whether the turn works in the working tree itself."""
        return context.environment.workspace.root == self._context.environment.workspace.root

    def _has_no_worktree(self, number: int) -> bool:
        turn = self._context.log.state.request.turn(number)
        return turn is not None and not turn.assigned.worktree

    def _writes(self, context: TurnContext, step: NextStep) -> bool:
        """Return whether the step may change something, as far as policy can tell."""
        return self._acts(context, step) and not (
            isinstance(step, RunCall) and self._reads(context, step.call)
        )

    def _reads(self, context: TurnContext, call: Call) -> bool:
        from fugu_cli.engine import content_key, secret_restoration

        environment = context.environment
        try:
            return content_key.only_reads(
                environment.workspace,
                secret_restoration.restore_secrets(
                    context.log, environment.toolbox, environment.workspace, call
                ),
            )
        except secret_restoration.UnrestorableMark:
            return True  # it is refused

    def _acts(self, context: TurnContext, step: NextStep) -> bool:
        """Return whether the step uses a tool that may do more than read."""
        toolbox = context.environment.toolbox
        match step:
            case RunCall(call) | GatherEvidence(call):
                return call.tool in toolbox and toolbox[call.tool].effect != "reads"
            case _:
                return False


MAX_PLAN_BYTES = 262_144
"""Characters of a plan after which the planner is taken to write for ever;
coordinators/conductor/planner.py reads far fewer."""


async def record_plan(context: TurnContext, decision: AskPlanner) -> None:
    """Ask the planner and record its reply and costs. A planner whose call exceeds a budget has
    failed: another agent plans, or the request is done turn by turn.
    """
    log, name = context.log, decision.agent
    member = context.team.members[name]
    limits = spending.budgets_of(context.environment.limits.budget)
    request = decision.prompt
    if decision.reads_instructions and context.environment.instructions:
        system = f"{request.system}\n\n{context.environment.instructions}"
        request = request.model_copy(update={"system": system})
    prompt = spending.within_budget(log.state, member, request, limits, context.reservations.total)
    if not await availability.may_call(
        log, 0, member, prompt, context.environment.limits.budget, context.reservations
    ):
        return
    _record_steering(log, decision)
    log.tell(Waiting(why=f"{name} is planning"))
    started = time.monotonic()

    pauses = availability.CallPauses(context.team, name, "now")

    def wait(pause: Pause) -> None:
        pauses.check(pause, log.state)
        lost = usd(pause.used, member.price)
        availability.check_budget(
            log.state, member, prompt, context.environment.limits.budget, lost
        )
        log.tell(availability.waiting_event(pause, 0, name))

    try:
        reply = await context.team.agents[name].reply(prompt, _SilentPlanner(name), wait)
    except AgentError as error:
        log.append(failed_event(0, name, error))
        return
    seconds = reply.seconds or round(time.monotonic() - started, 3)
    planned = decision.read(reply)
    log.append(
        planned.model_copy(update={"seconds": seconds, "model": planned.model or member.model})
    )


def _record_steering(log: Log, decision: AskPlanner) -> None:
    """Record which of the user's messages the planner's prompt shows."""
    shown = {
        event.number
        for event in log.state.request.events
        if isinstance(event, SteeringGiven) and not event.turn
    }
    for number, message in enumerate(decision.steering, start=1):
        if number not in shown:
            log.append(SteeringGiven(turn=0, agent=decision.agent, number=number, message=message))


class _SilentPlanner:
    """A plan is shown when it is whole. Who writes on and on, whatever its limit, is cut off."""

    def __init__(self, planner: str) -> None:
        self._planner = planner
        self._heard = 0

    def __call__(self, text: str) -> None:
        self._heard += len(text)
        if self._heard > MAX_PLAN_BYTES:
            message = (
                f"{self._planner} did not stop: more than {MAX_PLAN_BYTES} characters where a "
                f"plan was asked for"
            )
            raise AgentError(
                message, kind="protocol", hint="its server does not keep the limit of a reply"
            )


async def begin_steps(log: Log, environment: Environment, decision: ParallelTurns) -> None:
    """Record the steps that begin now, each with the tree it starts from and what the memory still
    knows.
    """
    from fugu_cli.engine import content_key

    workspace = environment.workspace
    tree = await workspace.history.snapshot()
    whole = (
        await content_key.tree_content(workspace)
        if environment.remembers
        else content_key.TreeContent()
    )

    async def state(call: Call) -> str:
        return await content_key.content_key(workspace, call, whole)

    valid: dict[tuple[int, str], tuple[int, ...]] = {}
    for decided in decision.turns:
        step = (decided.plan, decided.agent)
        if environment.remembers and step not in valid:
            valid[step] = await step_context.valid_results(log.state, *step, state)
        worktree = _worktree(log, decided, tree)
        update = {
            "snapshot": tree,
            "remembers": valid.get(step, ()),
            "worktree": worktree,
            "in_copy": bool(worktree),
        }
        log.append(decided.model_copy(update=update))


def _worktree(log: Log, decided: Assigned, tree: str | None) -> str:
    """Return the name of the worktree to be made, "" where there is to be none or cannot be."""
    if not decided.worktree or tree is None:
        return ""
    return f"{len(log.state.requests)}-{decided.plan}-{decided.turn}"


async def merge_worktrees(log: Log, environment: Environment, decision: MergeTurns) -> None:
    """Record what was done in the worktrees, take the chosen one's work over, and remove them once
    that is settled.

    Raises StorageError as `apart.opened` does: what is gone is never taken over.
    """
    from fugu_cli.tools import worktrees

    by_number = {turn.number: turn for turn in log.state.request.turns}
    group = [by_number[number] for number in (decision.among if decision.open else decision.turns)]
    diffs: list[tuple[int, str]] = []
    made: tuple[FileChange, ...] = ()
    left: tuple[str, ...] = ()
    for turn, worktree in zip(
        group, await ensure_worktrees(log, environment.workspace, group), strict=True
    ):
        start = turn.assigned.snapshot
        assert start is not None
        await environment.workspace.jobs.close(worktree.root)
        diffs.append((turn.number, await worktrees.worktree_diff(worktree, start)))
        changes = await worktrees.worktree_changes(worktree, environment.workspace, start)
        if turn.number == decision.chosen and not decision.open:
            made, left = await worktrees.apply_changes(environment.workspace, changes)
    log.append(
        Merged(
            plan=decision.plan,
            turns=decision.turns,
            chosen=decision.chosen,
            reason=decision.reason,
            again=decision.again,
            open=decision.open,
            diffs=tuple(diffs),
            changes=made,
            left=left,
        )
    )
    for turn in group if not decision.open else ():
        worktrees.remove_worktree(worktree_folder(log, environment.workspace, turn))
