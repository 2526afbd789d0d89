"""The loop: drives the request at the end of the log to its end.

Stands above coordinators, agents and tools and below every user interface; a session, a rollout and
a benchmark are this same `run`. Knows no provider, no screen and no file format. What comes next is
read from the log each time, so a run that was killed is continued by calling `run` again.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import assert_never

from fugu_cli.coordinators import AskPlanner, Decision, MergeTurns, ParallelTurns, RunSuite
from fugu_cli.engine import availability, parallel_turns, structured_answer
from fugu_cli.engine.environment import Environment, Team, due_run
from fugu_cli.engine.message_history import text_argument
from fugu_cli.engine.recovery import recover
from fugu_cli.engine.turn import TurnContext, over_budget_agents
from fugu_cli.messages import Call
from fugu_cli.session.events import (
    EVIDENCE,
    Assigned,
    Finished,
    Interrupted,
    Planned,
    ToolRan,
)
from fugu_cli.session.log import Log
from fugu_cli.session.tool_facts import MCP
from fugu_cli.session.turns import interrupted_calls
from fugu_cli.tools import mentions

__all__ = ["Team", "run"]


async def run(log: Log, team: Team, environment: Environment) -> Finished:
    """Drive the newest request to its end and return how it ended.

    Cancelled, it records what was cut off and leaves the request unfinished, to be continued by
    another `run`. Raises StorageError when the log or a file cannot be written; nothing recorded is
    lost. Raises ValueError for a log without a request: no step could end it.
    """
    if log.state.request.asked is None:
        raise ValueError("there is no request to drive")
    context = TurnContext(log, team, environment)
    seconds_left = None
    if environment.limits.deadline is not None:
        seconds_left = environment.limits.deadline - time.monotonic()
    time_limit = asyncio.timeout(seconds_left)
    try:
        async with time_limit:
            await recover(log, environment.workspace)
            for subtask in log.state.request.open_subtasks:
                # its call is not run again
                log.append(Interrupted(turn=subtask.number, reason="it was killed"))
            while (end := log.state.request.finished) is None:
                await _step(context)
            return end
    except TimeoutError:
        if not time_limit.expired():
            raise
        _record_cut(context)
        end = Finished(reason="time_limit", message="`fugu run --continue` goes on from here.")
        log.append(end)
        return end
    except asyncio.CancelledError:
        _record_cut(context)
        raise


def _record_cut(context: TurnContext) -> None:
    """Record that the open turns were cut off. If none is open, turn 0 is recorded as cut off.

    A turn whose reply was being written has recorded that itself, with the text so far.
    """
    log = context.log
    open_numbers: list[int] = []
    if log.state.request.finished is None:
        open_numbers += [subtask.number for subtask in log.state.request.open_subtasks]
        open_numbers += parallel_turns.open_turns(context)
    for number in open_numbers:
        log.append(Interrupted(turn=number))
    if not open_numbers and not isinstance(log.events[-1], Interrupted):
        log.append(Interrupted(turn=0))


async def _step(context: TurnContext) -> None:
    """Do one step: run the open turns to their ends, or gather what a decision needs, or decide."""
    if open_numbers := parallel_turns.open_turns(context):
        await parallel_turns.run_turns(context, open_numbers)
    elif (due := _due_after_a_cut(context)) is not None:
        await _gather(context, due)
    elif (attached := _due_attachment(context)) is not None:
        await _read_attachment(context, attached)
    else:
        await _decide(context)


async def _gather(context: TurnContext, evidence: Call) -> None:
    from fugu_cli.engine.tool_calls import run_evidence  # not before the first reply is asked for

    await run_evidence(context.log, context.environment, 0, evidence)


async def _read_attachment(context: TurnContext, attached: Call) -> None:
    """Read a file or an MCP server's resource that the request names. A resource needs no rule
    that allows it, because the user named it; a rule may still deny it.
    """
    from fugu_cli.engine.tool_calls import run_call

    environment = context.environment
    if attached.tool.startswith(MCP):
        allow = (*environment.rules.allow, attached.tool)
        environment = replace(
            environment, rules=environment.rules.model_copy(update={"allow": allow})
        )
    await run_call(context.log, environment, 0, attached)


async def _with_tests_not_run(context: TurnContext, end: Finished) -> Finished:
    """Return the end with the tests near the change that nobody ran, unless no tests ran at all."""
    state = context.log.state
    request, changed = state.request.asked, state.request.changes
    if request is None or not changed:
        return end
    if request.test_command is not None and state.request.tests is None:
        return end  # the end says already that no tests ran
    from fugu_cli.safety.policy.readers import is_read
    from fugu_cli.testing.untested_parts import untested_commands

    root = context.environment.workspace.root
    lines = [
        text_argument(event.call, "command")
        for event in state.request.effective
        if isinstance(event, ToolRan) and event.call.tool == "bash"
    ]
    commands = [line for line in lines if line is not None and not is_read(line, root)]
    not_run = await asyncio.to_thread(
        untested_commands, root, sorted(changed), request.test_command, commands
    )
    return end.model_copy(update={"tests_not_run": not_run})


def _due_after_a_cut(context: TurnContext) -> Call | None:
    """Return the run of tests and checks that is due after a turn that was cut short, None for none.

    If the request has acceptance checks and the cut turn may have changed files, the next agent
    needs their results. A workflow runs them at its end instead.
    """
    state = context.log.state
    if not state.request.turns or not state.request.checks:
        return None
    newest = state.request.turns[-1]
    was_cut = (newest.interrupted or newest.failed) and not newest.assigned.plan
    may_have_changed_files = newest.changes or interrupted_calls(newest)
    if not was_cut or not may_have_changed_files:
        return None
    return due_run(state, None, context.environment.tests)


def _due_attachment(context: TurnContext) -> Call | None:
    """Return the call that reads the request's next attachment, None if there is none or a turn or
    a plan has begun. Each attachment is judged once, like a call of an agent.
    """
    request = context.log.state.request
    if request.asked is None or request.turns or request.plans:
        return None
    judged = sum(run.permitted.by != EVIDENCE for run in request.baseline)
    if judged >= len(request.asked.attachments):
        return None
    root, name = context.environment.workspace.root, request.asked.attachments[judged]
    return mentions.reading_call(root, name, f"c{len(context.log.events)}")


async def _decide(context: TurnContext) -> None:
    """Ask the coordinator for a decision and carry it out."""
    log, environment = context.log, context.environment
    availability.record_budget(log, environment.limits.budget)
    decision: Decision = await availability.decide(log, context.team, over_budget_agents(context))
    match decision:
        case Finished():
            end = structured_answer.request_end(log.state, decision)
            log.append(await _with_tests_not_run(context, end))
        case Assigned() | Planned():
            log.append(decision)
        case AskPlanner():
            await parallel_turns.record_plan(context, decision)
        case ParallelTurns():
            await parallel_turns.begin_steps(log, environment, decision)
        case RunSuite():
            due = due_run(log.state, None, environment.tests, verifying=True)
            assert due is not None, "a check that is not due would be decided again and again"
            await _gather(context, due)
        case MergeTurns():
            await parallel_turns.merge_worktrees(log, environment, decision)
        case _:
            assert_never(decision)
