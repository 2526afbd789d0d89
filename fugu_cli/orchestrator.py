"""The loop: drive the request at the end of the log to its end.

Stands above coordinators, agents and tools and below every user interface; a session, a rollout and a benchmark are
this same `run`. Knows no provider, no screen and no file format. What comes next is read from the log each time, so a
run that was killed is continued by calling `run` again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fugu_cli import compaction, context, judging, turn, views
from fugu_cli.agents import Agent
from fugu_cli.bench import Bench, Limits, may_read, roll_back, run_call, run_evidence
from fugu_cli.coordinators import Coordinator
from fugu_cli.errors import AgentError
from fugu_cli.events import (
    Assigned,
    Event,
    Failed,
    Finished,
    Interrupted,
    Member,
    Planned,
    Replied,
    Said,
    Waiting,
)
from fugu_cli.log import Log
from fugu_cli.messages import Call, Prompt, ToolSpec
from fugu_cli.tools.toolbox import Toolbox


@dataclass(frozen=True)
class Crew:
    """Who works: the members of the pool by name, each one's agent, and the coordinator that chooses among them."""

    members: Mapping[str, Member]
    agents: Mapping[str, Agent]
    coordinator: Coordinator


async def run(log: Log, crew: Crew, bench: Bench) -> Finished:
    """Drive the newest request to its end and return how it ended.

    Cancelled, it records what was cut off and leaves the request unfinished, to be continued by another `run`. Raises
    StorageError when the log or a file cannot be written; nothing recorded is lost.
    """
    clock = asyncio.timeout_at(_loop_time(bench.limits.deadline))
    try:
        async with clock:
            while (end := views.finished(log.events)) is None:
                await _step(log, crew, bench)
            return end
    except TimeoutError:
        if not clock.expired():
            raise
        _cut(log, bench.limits)
        end = Finished(reason="time_limit", message="the time limit was reached")
        log.append(end)
        return end
    except asyncio.CancelledError:
        _cut(log, bench.limits)
        raise


def _loop_time(deadline: float | None) -> float | None:
    return None if deadline is None else asyncio.get_running_loop().time() + deadline - time.monotonic()


def _cut(log: Log, limits: Limits) -> None:
    """Record that the turn was cut, unless the reply that was being written has recorded it with its text.

    Turn 0 where none was open: what a closed turn did stands.
    """
    if not isinstance(log.events[-1], Interrupted):
        open_now = turn.is_open(log.events, limits.replies, limits.brief_replies)
        log.append(Interrupted(turn=views.turns(log.events)[-1].number if open_now else 0))


async def _step(log: Log, crew: Crew, bench: Bench) -> None:
    """One step: of the baseline, of the open turn, or a decision."""
    events = log.events
    due = _baseline_due(events)
    if due is not None:
        await run_evidence(log, bench, 0, due)
        return
    turns = views.turns(events)
    if turns:
        name = turns[-1].assigned.agent
        member = crew.members.get(name) or views.pool(events)[name]
        step = turn.next_step(events, member, _rules(events, member, bench))
        if not isinstance(step, turn.Closed):
            if name in crew.agents:
                await _take(log, crew, bench, step)
            else:
                log.append(Failed(turn=turns[-1].number, what=name, kind="invalid", message=_GONE))
            return
    log.append(await _decide(log, crew, bench))


MOST_FILES = 4
"""Files in a small model's brief: the first ones are the likeliest, and each costs seconds to read."""
_GONE = "it is not in the pool any more; another agent takes the turn"


def _baseline_due(events: Sequence[Event]) -> Call | None:
    """The tests, before the first turn of a request that is about them. A run that was killed is made again."""
    if views.turns(events) or not views.judged_by_tests(events) or views.first_tests(events):
        return None
    return Call(id=f"e0-{len(views.baseline(events))}", tool=views.RUN_TESTS)


def _rules(events: Sequence[Event], member: Member, bench: Bench) -> turn.Rules:
    if member.protocol == "native":
        return turn.Rules(bench.limits.replies)
    if views.turns(events)[-1].replies:
        return turn.Rules(bench.limits.brief_replies)  # the files were read when the turn opened
    request, run = views.asked(events), views.tests(events)
    text = request.text if request else ""
    files = bench.workspace.implicated(run.output if run and not run.ok else "", text)
    return turn.Rules(bench.limits.brief_replies, tuple(path for path in files if may_read(bench, path))[:MOST_FILES])


async def _decide(log: Log, crew: Crew, bench: Bench) -> Assigned | Planned | Finished:
    if (stop := _over_budget(log.events, bench.limits)) is not None:
        return stop
    decision = await crew.coordinator.decide(log.events)
    if isinstance(decision, Assigned):
        return decision.model_copy(update={"snapshot": await bench.workspace.snapshot()})
    return decision


def _spent(events: Sequence[Event]) -> float:
    """USD of the newest request: the budget is a request's, not a session's."""
    return views.cost(views.request(events), views.pool(events))


def _over_budget(events: Sequence[Event], limits: Limits) -> Finished | None:
    spent = _spent(events)
    if limits.budget is None or spent < limits.budget:
        return None
    return Finished(reason="budget", message=f"${spent:.4f} of ${limits.budget:.4f} were spent")


async def _take(log: Log, crew: Crew, bench: Bench, step: turn.Step) -> None:
    """Do one step of the open turn and record it."""
    now = views.turns(log.events)[-1]
    match step:
        case turn.Evidence(call):
            await run_evidence(log, bench, now.number, call)
        case turn.Reply():
            await _reply(log, crew, bench, now)
        case turn.Run(call):
            await run_call(log, bench, now.number, call, _barred(log.events, crew, bench, call))
        case turn.RollBack(reason):
            log.append(await roll_back(bench, now, reason))


def _barred(events: Sequence[Event], crew: Crew, bench: Bench, call: Call) -> str:
    """Why the turn's role or agent must not make this call; "" when it may be judged like any other."""
    now = views.turns(events)[-1]
    member = crew.members[now.assigned.agent]
    offered = {spec.name for spec in _specs(bench.toolbox, now, member, _asked(events))}
    if call.tool in bench.toolbox and call.tool not in offered:
        return f"a {now.assigned.role.capitalize()} has no tool {call.tool}"
    if member.protocol != "native" and views.judged_by_tests(events) and bench.workspace.writes_test(call):
        return "the tests judge this request and stay as they are"  # a small model would make them pass this way
    return ""


async def _reply(log: Log, crew: Crew, bench: Bench, now: views.Turn) -> None:
    """One model call. A failure after the agent's own retries closes the turn; the coordinator masks the agent."""
    name = now.assigned.agent
    member = crew.members[name]
    prompt = context.prompt(
        log.events, member, _specs(bench.toolbox, now, member, _asked(log.events)), bench.instructions
    )
    if compaction.due(log.events, prompt, member):
        await _compact(log, crew, bench, member)
        return
    if (stop := _cannot_afford(log.events, member, prompt, bench.limits)) is not None:
        log.append(stop)
        return
    started = time.monotonic()
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        log.tell(Said(turn=now.number, agent=name, text=text))

    try:
        reply = await crew.agents[name].reply(
            prompt, say, lambda why, seconds: log.tell(Waiting(why=why, seconds=seconds))
        )
    except asyncio.CancelledError:
        log.append(Interrupted(turn=now.number, partial="".join(said)))
        raise
    except AgentError as error:
        log.append(Failed(turn=now.number, what=name, kind=error.kind, message=_message(error)))
        return
    log.append(
        Replied(
            turn=now.number,
            agent=name,
            text=reply.text,
            thinking=reply.thinking,
            calls=_numbered(reply.calls, now),
            usage=reply.usage,
            model=reply.model or member.model,
            stop=reply.stop,
            seconds=round(time.monotonic() - started, 3),
        )
    )


async def _compact(log: Log, crew: Crew, bench: Bench, member: Member) -> None:
    """Sum up what no longer fits the agent whose turn it is; it writes the summary itself."""
    upto = compaction.boundary(log.events, member)
    assert upto is not None
    scribe = compaction.Scribe(
        member,
        crew.agents[member.name],
        lambda prompt: _cannot_afford(log.events, member, prompt, bench.limits) is None,
    )
    await compaction.shorten(log, (scribe,), upto)


def _asked(events: Sequence[Event]) -> str:
    request = views.asked(events)
    return request.text if request else ""


def _message(error: AgentError) -> str:
    return f"{error}; {error.hint}" if error.hint else str(error)


def _numbered(calls: Sequence[Call], now: views.Turn) -> tuple[Call, ...]:
    """Our own ids: providers repeat theirs, and a result must find its one call."""
    made = sum(len(reply.calls) for reply in now.replies)
    return tuple(
        call.model_copy(update={"id": f"t{now.number}-{len(now.draws)}-{made + index}"})
        for index, call in enumerate(calls)
    )


def _specs(toolbox: Toolbox, now: views.Turn, member: Member, asked: str) -> tuple[ToolSpec, ...]:
    """What the role may use: a Worker all, a Thinker what reads, a Verifier what reads and the tests.

    A small model that thinks, verifies or answers has its evidence in the brief; tools would only lead it astray.
    """
    match now.assigned.role:
        case "worker":
            answers = member.protocol != "native" and judging.is_question(asked)
            return () if answers else toolbox.specs(lambda tool: tool.name != "diff")
        case "thinker":
            return toolbox.specs(lambda tool: tool.effect == "reads") if member.protocol == "native" else ()
        case "verifier":
            allowed = toolbox.specs(lambda tool: tool.effect == "reads" or tool.name == views.RUN_TESTS)
            return allowed if member.protocol == "native" else ()


def _cannot_afford(events: Sequence[Event], member: Member, prompt: Prompt, limits: Limits) -> Finished | None:
    """The dearest this call can get would exceed the rest of the budget. Prompt tokens are taken as bytes / 3."""
    if limits.budget is None:
        return None
    size = sum(len(message.model_dump_json()) for message in prompt.messages) + len(prompt.system)
    worst = (size / 3 * member.price.input + prompt.max_tokens * member.price.output) / 1e6
    rest = limits.budget - _spent(events)
    if worst <= rest:
        return None
    return Finished(
        reason="budget",
        message=f"the next call to {member.name} may cost ${worst:.4f}; ${max(rest, 0):.4f} of the budget are left",
    )
