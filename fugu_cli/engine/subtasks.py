"""The tool task: an agent gives a subtask to an agent that the coordinator chooses.

Between parallel_turns.py, which drives turns, and tool_calls.py, which judges and records the call.
A subtask is a turn in the same log that names the call that began it (`Assigned.subtask`), with a
context of its own; its last words are the call's result. session/turns.py decides what it reads,
harness.py which tools it has.
"""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import dropwhile, takewhile

from pydantic import Field

from fugu_cli.coordinators import action_space
from fugu_cli.engine import availability
from fugu_cli.engine.turn import TurnContext, call_refusal, run_together
from fugu_cli.extensions.subagents import (
    BUILT_IN_AGENTS,
    INHERIT,
    SLOT_WISHES,
    Subagent,
    named_agents,
)
from fugu_cli.messages import Call, Usage
from fugu_cli.session import costs, tool_facts
from fugu_cli.session.events import Assigned, Exclusion, Finished, Replied, Subtask
from fugu_cli.session.state import SessionState
from fugu_cli.session.turns import BY_FILE, TASK, Turn, open_calls
from fugu_cli.session.workflows import final_text, is_done
from fugu_cli.tools.read_write import ToolArguments
from fugu_cli.tools.result import Say, ToolResult, truncate
from fugu_cli.tools.workspace import Tool, Workspace

MOST_AT_ONCE = 4
"""Subtasks of one turn that are under way at the same time; others wait."""
RESULT_LIMIT = 12_000
"""Characters of a subtask's last words that the agent gets."""


class TaskArguments(ToolArguments):
    """Arguments of task."""

    description: str = Field(description="3 to 5 words")
    prompt: str = Field(description="all it needs to know: it sees nothing else")
    agent: str = Field(default="", description="a subagent by name; none: a general one")


async def _outside(arguments: TaskArguments, workspace: Workspace, say: Say) -> ToolResult:
    return ToolResult(text="Only an agent's turn can have a subtask done.", ok=False)


TASK_TOOL = Tool.of(tool_facts.TASK, TaskArguments, _outside)
"""A turn replaces `run` for each of its calls. It changes nothing itself: the subtask's calls are
judged one by one.
"""

DriveTurn = Callable[[int], Awaitable[None]]
"""Takes a turn to its end."""


async def run_tasks(context: TurnContext, number: int, first: Call, drive: DriveTurn) -> None:
    """Run the turn's consecutive `task` calls from `first` on, at the same time."""
    turn = context.log.state.request.turn(number)
    assert turn is not None
    due = dropwhile(lambda call: call.id != first.id, open_calls(turn))
    group = _SubtaskGroup(context, turn, drive)
    await run_together(group.run(call) for call in takewhile(lambda call: call.tool == TASK, due))


@dataclass(frozen=True)
class _Wish:
    """The agent that a subagent's file asks for: one of `named`, else one of `wished` that can act,
    else any. `what` describes the wish; `note` says why it is ignored.
    """

    named: tuple[str, ...] = ()
    wished: frozenset[str] = frozenset()
    what: str = ""
    note: str = ""


@dataclass(frozen=True)
class _SubtaskGroup:
    """Subtasks that a turn began together."""

    context: TurnContext
    turn: Turn
    drive: DriveTurn
    deciding: asyncio.Lock = field(default_factory=asyncio.Lock)
    """One is assigned after the other: a coordinator reads one log at a time."""
    free: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MOST_AT_ONCE))

    async def run(self, call: Call) -> None:
        """Judge and run one call."""
        from fugu_cli.engine.tool_calls import run_call

        async with self.free:
            log, environment = self.context.log, self.context.environment
            if log.state.request.finished is not None:  # a hook ended the work
                return
            tool = replace(environment.toolbox[TASK], run=partial(self._answer, call))
            inside = replace(environment, toolbox=environment.toolbox.replaced(tool))
            await run_call(
                log,
                inside,
                self.turn.number,
                call,
                lambda made: call_refusal(self.context, log.state, made),
            )

    async def _answer(
        self, call: Call, arguments: TaskArguments, workspace: Workspace, say: Say
    ) -> ToolResult:
        """Run the subtask and return its last words. If its agent fails, the agent is excluded and
        the subtask is assigned again.
        """
        subagent = self._subagent(arguments.agent.strip())
        if isinstance(subagent, ToolResult):
            return subagent
        task = self._subtask(call, arguments, subagent)
        tried: list[int] = []
        for _ in range(1 + len(self.context.team.members)):
            assigned = await self._assigned(task, arguments.prompt, subagent)
            if isinstance(assigned, str):
                return self._result(tried, assigned)
            tried.append(assigned.turn)
            await self.drive(assigned.turn)
            done = self.context.log.state.request.turn(assigned.turn)
            if (
                done is None
                or done.failed is None
                or self.context.log.state.request.finished is not None
            ):
                break
        return self._result(tried, "")

    def _subagent(self, name: str) -> Subagent | ToolResult | None:
        """Return the subagent of this name; None for the general one."""
        subagents = {agent.name: agent for agent in self.context.environment.subagents}
        if name in subagents or name in BUILT_IN_AGENTS:
            return subagents.get(name)
        near = difflib.get_close_matches(name, subagents, 1)
        others = f"There are {', '.join(subagents)}." if subagents else "There are none."
        hint = f"Did you mean {near[0]}?" if near else others
        return ToolResult(
            text=f"There is no subagent {name}. {hint} Without `agent` a general one does it.",
            ok=False,
        )

    def _subtask(self, call: Call, arguments: TaskArguments, subagent: Subagent | None) -> Subtask:
        """Return the record of the subtask. The request's effort applies if the file sets none."""
        request = self.context.log.state.request.asked
        task = Subtask(
            turn=self.turn.number,
            call=call.id,
            about=" ".join(arguments.description.split()),
            effort=request.effort if request is not None else "",
        )
        if subagent is None:
            return task
        from_file = {"name": subagent.name, "brief": subagent.body, "tools": subagent.tools}
        return task.model_copy(update={**from_file, "effort": subagent.effort or task.effort})

    async def _assigned(
        self, task: Subtask, prompt: str, subagent: Subagent | None
    ) -> Assigned | str:
        """Record the agent that does the subtask. Return the assignment, or why no agent can do it."""
        log = self.context.log
        async with self.deciding:
            wish = self._wish(subagent)
            decision = await self._chosen(task, prompt, wish)
            if isinstance(decision, str):
                return f"Nobody could take the subtask: {decision}"
            fields = {
                "turn": action_space.next_turn_number(log.state),
                "role": "worker",
                "override": None,
                "sees": (),
                "instruction": prompt,
                "subtask": task,
                "reason": "; ".join(part for part in (wish.note, decision.reason) if part),
            }
            assigned = decision.model_copy(update=fields)
            log.append(assigned)
            return assigned

    async def _chosen(self, task: Subtask, prompt: str, wish: _Wish) -> Assigned | str:
        """Return the agent that the file names, or the coordinator's choice."""
        log, team = self.context.log, self.context.team
        if wish.named:
            availability.record_exclusions(log, team.breaker, {})
            excluded = self.context.log.state.request.failed_agents
            able = [name for name in wish.named if name not in excluded]
            if not able:
                return f"{wish.named[0]}: {excluded[wish.named[0]]}"
            return Assigned(
                turn=0, agent=able[0], role="worker", by=BY_FILE, reason=f"{wish.what} names it"
            )
        decision = await availability.decide(
            log,
            team,
            {},
            lambda state: state.to_assign(task, prompt, self._out(state, wish)),
        )
        if isinstance(decision, Assigned):
            return decision
        return decision.message if isinstance(decision, Finished) else "nobody was chosen"

    def _wish(self, subagent: Subagent | None) -> _Wish:
        """Return the agent that the subagent's file asks for."""
        if subagent is None or not subagent.model:
            return _Wish()
        model, team = subagent.model, self.context.team
        able = [member for name, member in team.members.items() if name not in team.excluded]
        if named := named_agents(model, able):
            return _Wish(named=tuple(named), what=subagent.file.name)
        if model == INHERIT:
            asker = self.turn.assigned.agent
            return _Wish(wished=frozenset({asker}), what="the agent that asks for it")
        if model in SLOT_WISHES:
            slot = SLOT_WISHES[model]
            of_slot = frozenset(member.name for member in able if member.slot == slot)
            return _Wish(wished=of_slot, what=f"a {slot} agent")
        return _Wish(note=f"{subagent.file.name} names {model}, which cannot be chosen here")

    def _out(self, state: SessionState, wish: _Wish) -> dict[str, Exclusion]:
        """Return the agents that cannot do the subtask. If a wished agent can act, all others are
        excluded too.
        """
        excluded = state.request.failed_agents
        if not wish.wished - excluded.keys():
            return excluded
        others = self.context.team.members.keys() - wish.wished
        return {
            **{name: Exclusion(message=f"{wish.what} is wished for") for name in others},
            **excluded,
        }

    def _result(self, tried: Sequence[int], why: str) -> ToolResult:
        """Return the subtask's last words and its cost. `tried` are its turns; `why` says why no agent
        could take it, "" otherwise.
        """
        state = self.context.log.state
        turn = state.request.turn(tried[-1]) if tried else None
        answer = ""
        has_result = False
        if turn is not None:
            answer = truncate(final_text(turn), RESULT_LIMIT)
            has_result = not why and is_done(turn)
            if not has_result and not why:
                cause = f"it had no last word after {len(turn.replies)} replies"
                if turn.failed is not None:
                    cause = turn.failed.cause
                why = f"The subtask came to nothing: {cause}"
        events = [event for event in state.request.events if getattr(event, "turn", 0) in tried]
        spent = _spent(SessionState(events), state)
        text = "\n\n".join(part for part in (why, answer, spent) if part)
        return ToolResult(text=text, ok=has_result)


def _spent(state: SessionState, session: SessionState) -> str:
    """Return a subtask's cost like `[2 replies, 1,234 tokens in, 56 out, $0.0012]`, "" if no agent
    was asked. `state` holds the subtask's events.
    """
    replies = sum(isinstance(event, Replied) for event in state.events)
    used = sum(costs.usage(state.events).values(), Usage())
    if not replies and used == Usage():
        return ""
    cost = f"${costs.cost(state.events, session.pool):.4f}"
    if costs.unpriced(state.events, session.pool):
        cost = "cost unknown"
    words = "1 reply" if replies == 1 else f"{replies} replies"
    return f"[{words}, {used.input:,} tokens in, {used.output:,} out, {cost}]"
