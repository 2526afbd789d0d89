"""Doing one step of an open turn, and recording it: evidence, the agent's reply, a call of its, rolling a draw back.

Between the loop, which says which turn goes on (orchestrator.py, lanes.py), and the harness, which says what it needs.
A turn sees the facts as `facts_of` gives them: other turns may be open at the same time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from fugu_cli import budgets, views
from fugu_cli.agents import Pause
from fugu_cli.conductor.seen import isolated
from fugu_cli.coordinators import masks
from fugu_cli.denials import withheld
from fugu_cli.errors import AgentError
from fugu_cli.events import Assigned, Event, Failed, Interrupted, Member, Replied, Said, Waiting
from fugu_cli.log import Log
from fugu_cli.loop import availability, budget_guard, compaction, environment, harness
from fugu_cli.loop.bench import roll_back, run_call, run_evidence
from fugu_cli.loop.budget_guard import Reserved
from fugu_cli.loop.environment import Bench, Crew
from fugu_cli.messages import Call, Prompt, Usage
from fugu_cli.tools import job_tools
from fugu_cli.views.spending import usd

_GONE = "it is not in the pool any more; another agent takes the turn"


@dataclass(frozen=True)
class Place:
    """Where a turn goes on: the log, who works, under which rules, and what calls under way may cost."""

    log: Log
    crew: Crew
    bench: Bench
    reserved: Reserved = field(default_factory=Reserved)


def facts_of(events: Sequence[Event], number: int) -> Sequence[Event]:
    """The facts as turn `number` stands in them: its own are the newest."""
    now = views.turn_of(events, number)
    return views.lane(events, number) if now is not None and now.assigned.plan else events


def next_step(place: Place, number: int) -> environment.Step:
    """What the turn needs next; Closed when it is over."""
    events = facts_of(place.log.events, number)
    name = views.turns(events)[-1].assigned.agent
    member = place.crew.members.get(name) or views.pool(events)[name]
    return harness.chosen(place.crew, name).next_step(events, member, place.bench)


def too_dear(place: Place) -> dict[str, str]:
    """Agents whose next call no budget carries, with the reason, as far as it is known before a turn begins: that of a
    Worker, or of a step that reads no other. What the turn adds to its prompt counts when the call is due."""
    events, bench, found = place.log.events, place.bench, dict[str, str]()
    limits = budgets.of(bench.limits.budget)
    if budgets.rest(events, limits) is None:
        return found
    flows = views.workflows(events)
    plan = flows[-1].number if flows and all(one.assigned.plan for one in views.turns(events)) else 0
    for name, member in place.crew.members.items():
        begun = Assigned(turn=masks.next_turn(events), agent=name, role="worker", by="", plan=plan)
        known = withheld.visible((*events, begun), name, bench.denials)
        now, kind = views.turns(known)[-1], harness.chosen(place.crew, name)
        prompt = kind.prompt(known, member, kind.tools(known, member, bench), bench.instructions)
        if bench.voice is not None:
            prompt = bench.voice.put(prompt, known, now)
        shortens = kind.has_history and compaction.due(known, prompt, member)
        if (said := budgets.too_dear(events, member, prompt, limits)) and not shortens:
            found[name] = said
    return found


async def take(place: Place, number: int, step: environment.Step) -> None:
    """Do one step and record it."""
    events = facts_of(place.log.events, number)
    now = views.turns(events)[-1]
    if now.assigned.agent not in place.crew.agents:
        place.log.append(Failed(turn=number, what=now.assigned.agent, kind="invalid", message=_GONE))
        return
    match step:
        case environment.Evidence(call):
            await run_evidence(place.log, place.bench, number, call)
        case environment.Reply():
            await _reply(place, events, now)
        case environment.Run(call):
            await run_call(place.log, place.bench, number, call, lambda made: _barred(place, events, made))
        case environment.RollBack(reason):
            place.log.append(await roll_back(place.bench, now, reason))


def _barred(place: Place, events: Sequence[Event], call: Call) -> str:
    """Why the turn's role or agent must not make this call; "" when it may be judged like any other."""
    now, bench = views.turns(events)[-1], place.bench
    member = place.crew.members[now.assigned.agent]
    if refused := harness.chosen(place.crew, member.name).refuses(call, events, member, bench):
        return refused
    if (job := job_tools.named(call)) in views.jobs(place.log.events) and job not in views.jobs(isolated(events)):
        return f"{job} was started in another step, which is not shown here"
    return withheld.barred(place.log.events, member.name, call, bench.denials, bench.workspace.root)


async def _reply(place: Place, events: Sequence[Event], now: views.Turn) -> None:
    """One model call. A failure after the agent's own retries, and a call that no budget carries, close the turn; the
    coordinator masks the agent."""
    log, bench, name = place.log, place.bench, now.assigned.agent
    member = place.crew.members[name]
    kind = harness.chosen(place.crew, name)
    if kind.has_history:
        await bench.toolbox.settled(lambda why: log.tell(Waiting(why=why)))
    known = facts_of(withheld.visible(log.events, name, bench.denials), now.number) if bench.denials else events
    prompt = kind.prompt(known, member, kind.tools(events, member, bench), bench.instructions)
    if bench.voice is not None:
        prompt = bench.voice.put(prompt, events, now)
    if kind.has_history and compaction.due(events, prompt, member):
        await _compact(place, member)
        return
    if not await budget_guard.may_call(log, now.number, (member, prompt), bench.limits.budget, place.reserved):
        return
    await _ask(place, events, (now, member), prompt)


async def _ask(place: Place, events: Sequence[Event], who: tuple[views.Turn, Member], prompt: Prompt) -> None:
    """Make the call and record its reply or its failure."""
    log, (now, member) = place.log, who
    name, kind = member.name, harness.chosen(place.crew, member.name)
    started = time.monotonic()
    call = _UnderWay(place, now, member, prompt)
    try:
        reply = await place.crew.agents[name].reply(prompt, call.say, call.wait)
    except asyncio.CancelledError:
        log.append(Interrupted(turn=now.number, partial="".join(call.said)))
        raise
    except AgentError as error:
        place.reserved.hold(now.number, 0.0)
        if kind.has_history and (shown := compaction.shown(events, prompt, member, error)) is not None:
            await _compact(place, shown)
        else:
            log.append(failure(now.number, name, error))
        return
    finally:
        place.reserved.hold(now.number, 0.0)
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
            seconds=reply.seconds or round(time.monotonic() - started, 3),
            filled=prompt.gap.place if prompt.gap is not None else "",
            aimed=prompt.aimed if prompt.gap is None else "",
            logprob=reply.logprob,
        )
    )


class _UnderWay:
    """A turn's call while it is made: what it says and waits for is told, what it may cost is set aside."""

    def __init__(self, place: Place, now: views.Turn, member: Member, prompt: Prompt) -> None:
        self._place = place
        self._now = now
        self._member = member
        self._prompt = prompt
        self._most = budgets.worst(member, prompt)
        self._pauses = availability.Pauses(place.crew, member.name, _others(place.log.events, now))
        self.said: list[str] = []
        place.reserved.hold(now.number, self._most)

    def say(self, text: str) -> None:
        self.said.append(text)
        self._place.log.tell(Said(turn=self._now.number, agent=self._member.name, text=text))
        if self._place.bench.voice is not None:
            self._place.bench.voice.say(self._now, text)

    def wait(self, pause: Pause) -> None:
        """It waits, or is tried again, where no budget, no listener and no agent that is sooner there forbids it."""
        place, number = self._place, self._now.number
        self._pauses.check(pause, place.log.events)
        lost, budget = usd(pause.used, self._member.price), place.bench.limits.budget
        held = place.reserved.beside(number) + lost
        budget_guard.check(place.log.events, self._member, self._prompt, budget, held)
        if place.bench.voice is not None:
            place.bench.voice.wait(self._now)
        place.reserved.hold(number, self._most + lost)
        self.said.clear()
        place.log.tell(availability.live(pause, number, self._member.name))


def _others(events: Sequence[Event], now: views.Turn) -> availability.Others:
    """Who may take the turn from a call that waits. A step of a workflow is given to another agent only once."""
    plan, step = now.assigned.plan, now.assigned.step
    if not plan:
        return "soon"
    tried = [turn for turn in views.turns(events) if (turn.assigned.plan, turn.assigned.step) == (plan, step)]
    return "none" if any(turn.failed for turn in tried) else "now"


async def _compact(place: Place, member: Member) -> None:
    """Sum up what no longer fits the agent whose turn it is; it writes the summary itself."""
    log, limits = place.log, place.bench.limits.budget
    upto = compaction.boundary(log.events, member)
    assert upto is not None
    if (hooks := place.bench.hooks) is not None and (why := await hooks.compacting("auto", place.bench.workspace)):
        log.tell(Waiting(why=f"a PreCompact hook objects ({why}); what was said does not fit, so it is summed up"))
    scribe = compaction.Scribe(
        member,
        place.crew.agents[member.name],
        lambda prompt, lost: budget_guard.check(log.events, member, prompt, limits, place.reserved.held + lost),
    )
    await compaction.shorten(log, (scribe,), upto)


def failure(turn: int, name: str, error: AgentError) -> Failed:
    """The fact of an agent's failure, in words, with what it used. It names the agent, its words need not."""
    said = str(error).removeprefix(f"{name}: ")
    joint = "." if error.hint[:1].isupper() else ";"
    words = f"{said.rstrip('.')}{joint} {error.hint}" if error.hint else said
    return Failed(turn=turn, what=name, kind=error.kind, message=words, usage=error.usage or Usage())


def _numbered(calls: Sequence[Call], now: views.Turn) -> tuple[Call, ...]:
    """Our own ids: providers repeat theirs, and a result must find its one call."""
    made = sum(len(reply.calls) for reply in now.replies)
    return tuple(
        call.model_copy(update={"id": f"t{now.number}-{len(now.draws)}-{made + index}"})
        for index, call in enumerate(calls)
    )
