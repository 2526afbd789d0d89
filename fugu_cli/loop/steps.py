"""Doing one step of an open turn, and recording it: evidence, the agent's reply, a call of its, rolling a draw back.

Between the loop, which says which turn goes on (orchestrator.py, lanes.py), and turn.py, which says what it needs. A
turn sees the facts as `facts_of` gives them: other turns may be open at the same time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from fugu_cli import budgets, intent, policy, views
from fugu_cli.conductor.seen import isolated
from fugu_cli.coordinators import masks
from fugu_cli.denials import withheld
from fugu_cli.errors import AgentError
from fugu_cli.events import Assigned, Event, Failed, Interrupted, Member, Replied, Said, Waiting
from fugu_cli.log import Log
from fugu_cli.loop import budget_guard, compaction, context, half_mended, looking, turn
from fugu_cli.loop.bench import Bench, Crew, may_read, roll_back, run_call, run_evidence
from fugu_cli.loop.budget_guard import Reserved
from fugu_cli.loop.opening import files_read
from fugu_cli.messages import Call, Prompt, ToolSpec, Usage
from fugu_cli.tools import job_tools
from fugu_cli.tools.toolbox import AnyTool, Toolbox
from fugu_cli.views.spending import usd

MOST_FILES = 4
"""Files in a small model's brief: the first ones are the likeliest, and each costs seconds to read."""
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


def next_step(place: Place, number: int) -> turn.Step:
    """What the turn needs next; Closed when it is over."""
    events = facts_of(place.log.events, number)
    name = views.turns(events)[-1].assigned.agent
    member = place.crew.members.get(name) or views.pool(events)[name]
    return turn.next_step(events, member, _rules(events, member, place.bench))


def _rules(events: Sequence[Event], member: Member, bench: Bench) -> turn.Rules:
    if member.protocol == "native":
        return turn.Rules(bench.limits.replies)
    if views.turns(events)[-1].replies:
        return turn.Rules(bench.limits.brief_replies)  # the files were read when the turn opened
    request, run = views.asked(events), views.tests_to_tell(events)
    text = request.text if request else ""
    denials = bench.denials

    def reads(path: str) -> bool:
        return may_read(bench, path) and not (denials and denials.denied(member.name, path))

    look = looking.look(text, bench.toolbox) if denials is None else None
    files = () if look else bench.workspace.implicated(half_mended.told(run, half_mended.left(events)), text)
    return turn.Rules(bench.limits.brief_replies, tuple(path for path in files if reads(path))[:MOST_FILES], look)


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
        now = views.turns(known)[-1]
        prompt = context.prompt(known, member, _offered(bench, now, member, known), bench.instructions)
        if bench.voice is not None:
            prompt = bench.voice.put(prompt, known, now)
        if (said := budgets.too_dear(events, member, prompt, limits)) and not compaction.due(known, prompt, member):
            found[name] = said
    return found


async def take(place: Place, number: int, step: turn.Step) -> None:
    """Do one step and record it."""
    events = facts_of(place.log.events, number)
    now = views.turns(events)[-1]
    if now.assigned.agent not in place.crew.agents:
        place.log.append(Failed(turn=number, what=now.assigned.agent, kind="invalid", message=_GONE))
        return
    match step:
        case turn.Evidence(call):
            await run_evidence(place.log, place.bench, number, call)
        case turn.Reply():
            await _reply(place, events, now)
        case turn.Run(call):
            await run_call(place.log, place.bench, number, call, _barred(place, events, call))
        case turn.RollBack(reason):
            place.log.append(await roll_back(place.bench, now, reason))


def _barred(place: Place, events: Sequence[Event], call: Call) -> str:
    """Why the turn's role or agent must not make this call; "" when it may be judged like any other."""
    now, bench = views.turns(events)[-1], place.bench
    member = place.crew.members[now.assigned.agent]
    offered = {spec.name for spec in _offered(bench, now, member, events)}
    if call.tool in bench.toolbox and call.tool not in offered:
        return f"a {now.assigned.role.capitalize()} has no tool {call.tool}"
    kept = views.judged_by_tests(events) and not _tests_wanted(events)
    if member.protocol != "native" and kept and bench.workspace.writes_test(call):
        return "the tests judge this request and stay as they are"  # a small model would make them pass this way
    if (job := job_tools.named(call)) in views.jobs(place.log.events) and job not in views.jobs(isolated(events)):
        return f"{job} was started in another step, which is not shown here"
    return withheld.barred(place.log.events, member.name, call, bench.denials, bench.workspace.root)


def _tests_wanted(events: Sequence[Event]) -> bool:
    """Tests are to be written, or to follow a change, and those there are do not fail: they can make nothing pass."""
    first, text = views.first_tests(events), _asked(events)
    return (intent.wants_tests(text) or intent.adapts_tests(text)) and (first is None or first.ok)


async def _reply(place: Place, events: Sequence[Event], now: views.Turn) -> None:
    """One model call. A failure after the agent's own retries, and a call that no budget carries, close the turn; the
    coordinator masks the agent."""
    log, bench, name = place.log, place.bench, now.assigned.agent
    member = place.crew.members[name]
    if member.protocol == "native":
        await bench.toolbox.settled(lambda why: log.tell(Waiting(why=why)))
    known = facts_of(withheld.visible(log.events, name, bench.denials), now.number) if bench.denials else events
    prompt = context.prompt(known, member, _offered(bench, now, member, events), bench.instructions)
    if bench.voice is not None:
        prompt = bench.voice.put(prompt, events, now)
    if compaction.due(events, prompt, member):
        await _compact(place, member)
        return
    if not await budget_guard.may_call(log, now.number, (member, prompt), bench.limits.budget, place.reserved):
        return
    started = time.monotonic()
    call = _UnderWay(place, now, member, prompt)
    try:
        reply = await place.crew.agents[name].reply(prompt, call.say, call.wait)
    except asyncio.CancelledError:
        log.append(Interrupted(turn=now.number, partial="".join(call.said)))
        raise
    except AgentError as error:
        place.reserved.hold(now.number, 0.0)
        if (shown := compaction.shown(events, prompt, member, error)) is not None:
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
        self.said: list[str] = []
        place.reserved.hold(now.number, self._most)

    def say(self, text: str) -> None:
        self.said.append(text)
        self._place.log.tell(Said(turn=self._now.number, agent=self._member.name, text=text))
        if self._place.bench.voice is not None:
            self._place.bench.voice.say(self._now, text)

    def wait(self, why: str, seconds: float, used: Usage) -> None:
        """It is tried again, where neither a budget nor who listens forbids it."""
        place, number = self._place, self._now.number
        lost, budget = usd(used, self._member.price), place.bench.limits.budget
        held = place.reserved.beside(number) + lost
        budget_guard.check(place.log.events, self._member, self._prompt, budget, held)
        if place.bench.voice is not None:
            place.bench.voice.wait(self._now)
        place.reserved.hold(number, self._most + lost)
        place.log.tell(Waiting(why=why, seconds=seconds))


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


def _asked(events: Sequence[Event]) -> str:
    request = views.asked(events)
    return request.text if request else ""


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


def _offered(bench: Bench, now: views.Turn, member: Member, events: Sequence[Event]) -> tuple[ToolSpec, ...]:
    """What the agent may use now. Nothing where a small model is to mend failing tests and all pass: it can say so, and
    anything it changed would be right already; nor where it is only asked something: told of files, it writes some."""
    first, asked = views.first_tests(events), _asked(events)
    if member.protocol != "native" and first is not None and first.ok and intent.is_for_failing_tests(asked):
        return ()
    if member.protocol != "native" and _is_answered_in_words(events, now):
        return ()
    reproduces = bench.rules.mode != "plan" and bench.denials is None and not intent.only_asks(asked)
    return specs(bench.toolbox, now, member, asked, reproduces=reproduces)


def _is_answered_in_words(events: Sequence[Event], now: views.Turn) -> bool:
    """The tests do not judge the request, and it asks a question, or for something to be worked out of which no file
    says anything."""
    request = views.asked(events)
    if request is None or request.judged:
        return False
    ran = intent.is_for_a_test_run(request.text)  # the run is in the brief
    return ran or intent.only_asks(request.text) or (intent.is_self_contained(request.text) and not files_read(now))


def specs(
    toolbox: Toolbox, now: views.Turn, member: Member, asked: str, *, reproduces: bool = False
) -> tuple[ToolSpec, ...]:
    """What the role may use: a Worker all, a Thinker what reads, a Verifier what reads and the tests; and both, where
    the request is one that `reproduces`, the tool that shows it. A script could show what is kept from other agents.

    A small model that thinks, verifies or answers has its evidence in the brief; tools would only lead it astray.
    """
    native = member.protocol == "native"
    more = {views.REPRODUCE} if reproduces else set()
    match now.assigned.role:
        case "worker":
            answers = not native and intent.is_question(asked)
            others = policy.OWN | {views.REPRODUCE}
            own = toolbox.specs(
                lambda tool: tool.name not in others and (native or not (tool.native or tool.foreign)),
                brief=not native,
            )
            return () if answers else own
        case "thinker":
            return toolbox.specs(lambda tool: _reads(tool) or tool.name in more) if native else ()
        case "verifier":
            more.add(views.RUN_TESTS)
            return toolbox.specs(lambda tool: _reads(tool) or tool.name in more) if native else ()


def _reads(tool: AnyTool) -> bool:
    return tool.effect == "reads" and not tool.worker
