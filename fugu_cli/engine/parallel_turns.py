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
from fugu_cli.session.events import FileChange, Interrupted, Merged, SteeringGiven
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
    return _worktrees_of_session(log, workspace) / turn.assigned.worktree


def _worktrees_of_session(log: Log, workspace: Workspace) -> Path:
    return store.worktrees_folder(workspace.store.parents[1], log.path)


async def ensure_worktrees(
    log: Log, workspace: Workspace, turns: Sequence[Turn]
) -> list[Workspace]:
    """Return the worktrees of these turns, and make those that do not exist yet.

    Raises StorageError if a worktree with work in it is gone. Its turn is then recorded as cut, and
    so are the turns that were to choose from its work, so that they are done again.
    """
    from fugu_cli.tools.worktrees import make_worktree, worktree_exists

    gone = [
        turn
        for turn in turns
        if _has_work(turn) and not worktree_exists(worktree_folder(log, workspace, turn))
    ]
    home = _worktrees_of_session(log, workspace)
    if gone:
        _record_lost_work(log, gone)
        names = ", ".join(f"turn {turn.number} ({turn.assigned.agent})" for turn in gone)
        raise StorageError(
            f"the work of {names} is gone: nothing is left of it in {home}",
            hint="`fugu run --continue` has it done again; what is in the repository stays",
        )
    home.mkdir(parents=True, exist_ok=True)
    if log.path is not None:
        (home / store.OWNER).write_text(str(log.path.absolute()), "utf-8", "surrogateescape")
    worktrees = []
    for turn in turns:
        assert turn.assigned.snapshot is not None
        folder = worktree_folder(log, workspace, turn)
        worktrees.append(await make_worktree(workspace, turn.assigned.snapshot, folder))
    return worktrees


def _has_work(turn: Turn) -> bool:
    """Return whether the turn's worktree holds changes that may still be taken over."""
    if turn.failed or turn.interrupted:
        return False
    return bool(turn.changes or interrupted_calls(turn))


def _record_lost_work(log: Log, lost: Sequence[Turn]) -> None:
    """Record the turns whose worktrees are gone as cut, and the steps that chose among them."""
    numbers = {turn.number for turn in lost}
    for turn in log.state.request.turns:
        sees = turn.assigned.sees if isinstance(turn.assigned.sees, tuple) else ()
        is_chooser = bool(turn.assigned.plan) and not turn.changes
        if turn.number in numbers or (is_chooser and not numbers.isdisjoint(sees)):
            log.append(Interrupted(turn=turn.number, reason="a worktree is gone"))


def remove_unused_worktrees(data: Path) -> None:
    """Remove the worktrees of deleted sessions and of requests that are over. Those of sessions
    that are open now stay.
    """
    root = data / "worktrees"
    for home in root.glob("*"):
        # the folder may not be ours, or its session unreadable
        with contextlib.suppress(OSError, StorageError):
            _mark_for_removal(home)
    for folder in root.glob(f"*{REMOVING}"):
        shutil.rmtree(folder, ignore_errors=True)


def _mark_for_removal(home: Path) -> None:
    """Rename the worktrees of a session that are no longer needed. This is quick, so the session
    need not be locked while they are deleted.
    """
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
        self._closed = {number: asyncio.Event() for number in numbers}
        self._tree_lock = asyncio.Lock()
        """Held by a step that may change the working tree."""

    async def drive(self, number: int) -> None:
        """Run the turn to its end. `number` may be a subtask that begins later than the others."""
        closed = self._closed.setdefault(number, asyncio.Event())
        try:
            context = replace(self._context, environment=await self._environment(number))
            while not isinstance(step := next_step(context, number), TurnClosed):
                await self._wait_for_earlier(context, number, step)
                async with self._step_lock(context, step):
                    await self._run_step(context, number, step)
                if context.log.state.request.finished is not None:  # a hook ended the work
                    return
            await _run_end_hooks(context, number)
        finally:
            closed.set()

    async def _run_step(self, context: TurnContext, number: int, step: NextStep) -> None:
        """Do one step. Calls for subtasks and advice begin turns or model calls of their own."""
        turn = context.log.state.request.turn(number)
        has_agent = turn is not None and turn.assigned.agent in context.team.agents
        if turn is not None and has_agent and isinstance(step, RunCall):
            call, toolbox = step.call, context.environment.toolbox
            if call.tool == TASK and TASK in toolbox and turn.assigned.subtask is None:
                from fugu_cli.engine import subtasks

                await subtasks.run_tasks(context, number, call, TurnRunner(context).drive)
                return
            if call.tool == ADVISE.name and ADVISE.name in toolbox:
                from fugu_cli.engine import advice

                await advice.run_advice(context, number, call)
                return
        await do_step(context, number, step)

    async def _environment(self, number: int) -> Environment:
        """Return the turn's own environment. If other turns run at the same time, files count as
        read only if this turn, or the log before it, has read them.
        """
        environment, log = self._context.environment, self._context.log
        turn = log.state.request.turn(number)
        assert turn is not None
        if turn.assigned.worktree:
            (workspace,) = await ensure_worktrees(log, environment.workspace, [turn])
        elif len(self._closed) > 1 or turn.assigned.subtask is not None or turn.assigned.choices:
            workspace = environment.workspace.apart(turn.assigned.agent)
        else:
            return environment
        if turn.assigned.choices:
            workspace.copies = await self._copies(turn)
        start = 0  # a subtask sees nothing of what was before it
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

    async def _wait_for_earlier(self, context: TurnContext, number: int, step: NextStep) -> None:
        """Wait until earlier turns in the working tree are closed, if the step may change it."""
        earlier = [
            turn
            for turn, closed in self._closed.items()
            if turn < number and not closed.is_set() and self._has_no_worktree(turn)
        ]
        if not earlier or not self._is_in_working_tree(context):
            return
        if not self._may_write(context, step):
            return
        for turn in earlier:
            context.log.tell(
                Waiting(why=f"turn {number} waits for turn {turn} before it changes anything")
            )
            await self._closed[turn].wait()

    def _step_lock(
        self, context: TurnContext, step: NextStep
    ) -> AbstractAsyncContextManager[object]:
        """Return a lock for a step that may change the working tree, so that the changes of two
        turns are told apart.
        """
        if self._uses_acting_tool(context, step) and self._is_in_working_tree(context):
            return self._tree_lock
        return nullcontext()

    def _is_in_working_tree(self, context: TurnContext) -> bool:
        """Return whether the turn works in the working tree itself, not in a worktree."""
        return context.environment.workspace.root == self._context.environment.workspace.root

    def _has_no_worktree(self, number: int) -> bool:
        turn = self._context.log.state.request.turn(number)
        return turn is not None and not turn.assigned.worktree

    def _may_write(self, context: TurnContext, step: NextStep) -> bool:
        """Return whether the step may change something, as far as policy can tell."""
        if not self._uses_acting_tool(context, step):
            return False
        return not isinstance(step, RunCall) or not self._only_reads(context, step.call)

    def _only_reads(self, context: TurnContext, call: Call) -> bool:
        from fugu_cli.engine import content_key, secret_restoration

        environment = context.environment
        try:
            restored = secret_restoration.restore_secrets(
                context.log, environment.toolbox, environment.workspace, call
            )
        except secret_restoration.UnrestorableMark:
            return True  # the call will be refused
        return content_key.only_reads(environment.workspace, restored)

    def _uses_acting_tool(self, context: TurnContext, step: NextStep) -> bool:
        """Return whether the step uses a tool that may do more than read."""
        toolbox = context.environment.toolbox
        match step:
            case RunCall(call) | GatherEvidence(call):
                return call.tool in toolbox and toolbox[call.tool].effect != "reads"
            case _:
                return False


MAX_PLAN_CHARACTERS = 262_144
"""Characters after which a planner that does not stop is cut off. A plan is far shorter
(coordinators/conductor/planner.py).
"""


async def record_plan(context: TurnContext, decision: AskPlanner) -> None:
    """Ask the planner and record its reply and costs. A planner whose call exceeds a budget counts
    as failed: another agent plans, or the request is done turn by turn.
    """
    log, name = context.log, decision.agent
    member = context.team.members[name]
    budget = context.environment.limits.budget
    limits = spending.budgets_of(budget)
    prompt = decision.prompt
    if decision.reads_instructions and context.environment.instructions:
        system = f"{prompt.system}\n\n{context.environment.instructions}"
        prompt = prompt.model_copy(update={"system": system})
    prompt = spending.within_budget(log.state, member, prompt, limits, context.reservations.total)
    if not await availability.may_call(log, 0, member, prompt, budget, context.reservations):
        return
    _record_steering(log, decision)
    log.tell(Waiting(why=f"{name} is planning"))
    started = time.monotonic()

    pauses = availability.CallPauses(context.team, name, "now")

    def wait(pause: Pause) -> None:
        pauses.check(pause, log.state)
        lost = usd(pause.used, member.price)
        availability.check_budget(log.state, member, prompt, budget, lost)
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
    """Listens to a planner's streamed text, which is not shown. Raises AgentError if the planner
    does not stop.
    """

    def __init__(self, planner: str) -> None:
        self._planner = planner
        self._characters = 0

    def __call__(self, text: str) -> None:
        self._characters += len(text)
        if self._characters > MAX_PLAN_CHARACTERS:
            message = (
                f"{self._planner} did not stop: more than {MAX_PLAN_CHARACTERS} characters where "
                f"a plan was asked for"
            )
            raise AgentError(
                message, kind="protocol", hint="its server does not keep the limit of a reply"
            )


async def begin_steps(log: Log, environment: Environment, decision: ParallelTurns) -> None:
    """Record the steps that begin now, each with the snapshot it starts from and the results in the
    tool memory that are still valid.
    """
    from fugu_cli.engine import content_key

    workspace = environment.workspace
    tree = await workspace.history.snapshot()
    tree_content = content_key.TreeContent()
    if environment.remembers:
        tree_content = await content_key.tree_content(workspace)

    async def key_of_call(call: Call) -> str:
        return await content_key.content_key(workspace, call, tree_content)

    remembered: dict[int, tuple[int, ...]] = {}
    for assignment in decision.turns:
        plan = assignment.plan
        if environment.remembers and plan not in remembered:
            remembered[plan] = await step_context.valid_results(log.state, plan, key_of_call)
        worktree = ""
        if assignment.worktree and tree is not None:
            worktree = f"{len(log.state.requests)}-{assignment.plan}-{assignment.turn}"
        update = {
            "snapshot": tree,
            "remembers": remembered.get(plan, ()),
            "worktree": worktree,
            "in_copy": bool(worktree),
        }
        log.append(assignment.model_copy(update=update))


async def merge_worktrees(log: Log, environment: Environment, decision: MergeTurns) -> None:
    """Record the diffs of the worktrees. Once one is chosen, apply its changes to the working tree
    and remove all of them.

    Raises StorageError if a worktree with work in it is gone.
    """
    from fugu_cli.tools import worktrees

    turns_by_number = {turn.number: turn for turn in log.state.request.turns}
    numbers = decision.among if decision.open else decision.turns
    group = [turns_by_number[number] for number in numbers]
    diffs: list[tuple[int, str]] = []
    applied: tuple[FileChange, ...] = ()
    left: tuple[str, ...] = ()
    workspaces = await ensure_worktrees(log, environment.workspace, group)
    for turn, worktree in zip(group, workspaces, strict=True):
        start = turn.assigned.snapshot
        assert start is not None
        await environment.workspace.jobs.close(worktree.root)
        diffs.append((turn.number, await worktrees.worktree_diff(worktree, start)))
        changes = await worktrees.worktree_changes(worktree, environment.workspace, start)
        if turn.number == decision.chosen and not decision.open:
            applied, left = await worktrees.apply_changes(environment.workspace, changes)
    log.append(
        Merged(
            plan=decision.plan,
            turns=decision.turns,
            chosen=decision.chosen,
            reason=decision.reason,
            again=decision.again,
            open=decision.open,
            diffs=tuple(diffs),
            changes=applied,
            left=left,
        )
    )
    if decision.open:
        return
    for turn in group:
        worktrees.remove_worktree(worktree_folder(log, environment.workspace, turn))
