"""One agent answers: where the client runs tools of its own, where it names an agent, where one is pinned.

The agent is chosen from the messages the request carries; it keeps the turn while its calls bring results (its prompt
cache is warm), unless there is a reason to switch, which the trace then holds. An agent that fails before the client
has heard anything of it gives way to the next best by the coordinator's own scores.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

from fugu_cli import budgets, views
from fugu_cli.agents import Agent, Pause, Say
from fugu_cli.budgets import Tab
from fugu_cli.errors import AgentError
from fugu_cli.events import Assigned, Failed, Finished, Interrupted, Masked, Member, Replied
from fugu_cli.log import Log
from fugu_cli.loop import availability, budget_guard
from fugu_cli.loop.steps import failure
from fugu_cli.messages import FromAgent, Message, Prompt, Reply
from fugu_cli.serve import counting
from fugu_cli.serve.asking import Answer, Asking, Refused
from fugu_cli.serve.conversation import Author, Recall, attributed, author_of, facts
from fugu_cli.serve.holding import Holding
from fugu_cli.serve.house import House, failed, words
from fugu_cli.serve.traces import call_id
from fugu_cli.views.spending import usd

BROKEN = "the agent failed in the middle of its answer"
"""How a request ends of whose answer a client has heard the beginning."""
SAME_CALL = 3
"""Times an agent may make the same call in one loop before another one takes the turn."""


@dataclass(frozen=True)
class Request:
    """One request on its way: `id` is its trace's, `chosen` is told who answers, as soon as that is known."""

    id: str
    asking: Asking
    log: Log
    recall: Recall
    say: Say
    chosen: Callable[[str], None]
    save: Callable[[], object]
    tab: Tab | None = None
    """Its account, where requests share a budget."""


async def answer(house: House, request: Request, pinned: str | None) -> Answer:
    """The answer of one agent. Raises Refused; cancelled, it records what was cut off."""
    log, asking = request.log, request.asking
    messages = attributed(asking.messages, request.recall)
    for fact in facts(messages):
        log.append(fact)
    begin(house, request)
    began = len(log.events)
    keep_or_switch(house, request, messages, pinned)
    while True:
        assigned = await _assigned(house, request, messages, pinned, began)
        log.append(assigned)
        request.chosen(assigned.agent)
        reply = await _reply(house, request, messages, assigned, pinned=pinned is not None)
        if reply is not None:
            log.append(Finished(reason="answered"))
            return counting.answer(log.events, began, reply, views.turns(log.events)[-1].replies[-1])
        if pinned is not None:
            raise _last_failure(log)


def begin(house: House, request: Request) -> None:
    """Who is out for this request: opted out by the client, or unavailable. Raises Refused for a wrong name."""
    unknown = sorted(request.asking.options.opt_out - house.members.keys())
    if unknown:
        there = ", ".join(house.members)
        raise Refused(400, f"opt_out names {unknown[0]!r}; the pool has: {there}", code="unknown_agent")
    out = dict.fromkeys(sorted(request.asking.options.opt_out), "opted out of this request")
    if out.keys() >= house.offered.keys():
        raise Refused(400, "every agent of the pool is opted out of this request", code="no_agent_left")
    if out:
        request.log.append(Masked(agents=tuple(out.items())))
    availability.refresh(request.log, house.crew.breaker, {})


def keep_or_switch(house: House, request: Request, messages: tuple[Message, ...], pinned: str | None) -> None:
    """In a tool loop: its agent goes on, or is masked with the reason why it does not."""
    if not request.asking.in_tool_loop or pinned is not None:
        return
    author = _caller(messages, request.recall)
    if author is None or author.agent not in house.offered:
        return
    why = _why_not(house, request, messages, author)
    if why:
        turn = _turn(request.log) - 1
        request.log.append(Failed(turn=turn, what=author.agent, kind="switched", message=why))


def _why_not(house: House, request: Request, messages: tuple[Message, ...], author: Author) -> str:
    """The reason to take the turn from the agent whose calls the client ran; "" where there is none."""
    out = views.failed_agents(request.log.events)
    member = house.members[author.agent]
    if author.agent in out:
        return out[author.agent]
    if short := _too_dear(house, request, messages, member):
        return short
    prompt = _prompt(house, request.asking, messages, member)
    size = sum(len(message.model_dump_json()) for message in messages) // 4 + prompt.max_tokens
    if size > member.context:
        return f"the conversation has grown to some {size} tokens; it reads {member.context}"
    replies = [message for message in messages[_loop(messages) :] if isinstance(message, FromAgent)]
    calls = Counter((call.tool, call.arguments) for reply in replies for call in reply.calls)
    times = max(calls.values(), default=0)
    if times >= SAME_CALL:
        return f"it made the same call {times} times: another agent may see why that leads nowhere"
    return ""


def _loop(messages: tuple[Message, ...]) -> int:
    """Where the tool loop begins: behind the newest reply without calls."""
    ends = [i for i, message in enumerate(messages) if isinstance(message, FromAgent) and not message.calls]
    return ends[-1] + 1 if ends else 0


async def _assigned(
    house: House, request: Request, messages: tuple[Message, ...], pinned: str | None, began: int
) -> Assigned:
    """Who answers: the pinned agent, the one whose loop it is, or whom the coordinator chooses. Raises Refused."""
    events, out = request.log.events, views.failed_agents(request.log.events)
    turn = _turn(request.log)
    if pinned is not None:
        if pinned in out and "opted out" in out[pinned]:
            raise Refused(400, f"{pinned} is both asked for and opted out", code="unknown_agent")
        return Assigned(turn=turn, agent=pinned, role="worker", by="single", reason="the client named it")
    sticky = _keeper(house, request, out) if len(events) == began else None
    if sticky is not None:
        why = f"its calls brought results, and its prompt cache is warm (trace {sticky.trace})"
        return Assigned(turn=turn, agent=sticky.agent, role="worker", by="sticky", reason=why)
    dear = {name: why for name, member in house.members.items() if (why := _too_dear(house, request, messages, member))}
    decision = await availability.decide(request.log, house.crew, dear)
    if isinstance(decision, Assigned):
        return _as_worker(decision)
    if isinstance(decision, Finished):
        request.log.append(decision)
        raise _nobody(house, request.log, decision)
    raise failed("protocol", "the coordinator planned a workflow, which a client's tools cannot be part of")


def _keeper(house: House, request: Request, out: dict[str, str]) -> Author | None:
    if not request.asking.in_tool_loop:
        return None
    author = _caller(request.asking.messages, request.recall)
    return author if author and author.agent in house.offered and author.agent not in out else None


def _caller(messages: tuple[Message, ...], recall: Recall) -> Author | None:
    """The author of the newest reply; None where it is not known, or was cut off with the history before it."""
    newest = next((message for message in reversed(messages) if isinstance(message, FromAgent)), None)
    return author_of(newest, recall) if newest is not None else None


def _as_worker(decision: Assigned) -> Assigned:
    """The client waits for an answer: whoever is chosen gives it, and the head's own role stays in the trace."""
    if decision.role == "worker":
        return decision
    reason = f"{decision.reason}; the client waits for an answer, so it works".removeprefix("; ")
    return decision.model_copy(update={"role": "worker", "override": decision.role, "reason": reason})


async def _reply(
    house: House, request: Request, messages: tuple[Message, ...], assigned: Assigned, *, pinned: bool
) -> Replied | None:
    """The agent's reply, recorded; None where it failed and another one may try. Raises Refused where none may."""
    log, member = request.log, house.members[assigned.agent]
    if short := _too_dear(house, request, messages, member):  # a named agent's, or that of a loop's own
        log.append(Failed(turn=assigned.turn, what=member.name, kind=views.BUDGET, message=short))
        return None
    prompt, spendable = _prompt(house, request.asking, messages, member), limits(house, request)
    request.save()
    started, said = time.monotonic(), list[str]()

    def say(text: str) -> None:
        said.append(text)
        request.say(text)

    pauses = availability.Pauses(house.crew, member.name, "none" if pinned else "soon")

    def wait(pause: Pause) -> None:
        if said and request.asking.stream:
            raise broken_off(member.name)
        pauses.check(pause, log.events)
        said.clear()
        budget_guard.check(log.events, member, prompt, spendable, usd(pause.used, member.price))

    try:
        reply = await agents(house, request)[member.name].reply(prompt, say, wait)
    except asyncio.CancelledError:
        log.append(Interrupted(turn=assigned.turn, partial="".join(said)))
        raise
    except AgentError as error:
        log.append(failure(assigned.turn, member.name, error))
        if said and request.asking.stream:
            log.append(Finished(reason="failed", message=BROKEN))
            raise failed(error.kind, words(error)) from error
        return None
    return _recorded(request, assigned, reply, time.monotonic() - started)


def broken_off(name: str) -> AgentError:
    """Why a call is not tried again whose first words the client has: they cannot be taken back."""
    return AgentError(f"{name} broke off in the middle of its answer", kind="network")


def _recorded(request: Request, assigned: Assigned, reply: Reply, seconds: float) -> Replied:
    made = reply.calls[:1] if request.asking.sampling.single else reply.calls
    calls = tuple(call.model_copy(update={"id": call_id(request.id, number)}) for number, call in enumerate(made))
    fact = Replied(
        turn=assigned.turn,
        agent=assigned.agent,
        text=reply.text,
        thinking=reply.thinking,
        calls=calls,
        usage=reply.usage,
        model=reply.model or assigned.agent,
        stop=reply.stop,
        seconds=round(seconds, 3),
    )
    request.log.append(fact)
    return fact


def _prompt(house: House, asking: Asking, messages: tuple[Message, ...], member: Member) -> Prompt:
    """The client's own words, tools and limits; the entry's limit where that is lower."""
    sampling = asking.sampling
    return Prompt(
        system=asking.system,
        messages=messages,
        tools=asking.tools,
        max_tokens=min(sampling.max_tokens, house.longest.get(member.name, sampling.max_tokens)),
        temperature=sampling.temperature,
        seed=sampling.seed,
        reply_schema=sampling.reply_schema,
        stop=sampling.stop,
        tool_choice=sampling.choice,
    )


def _too_dear(house: House, request: Request, messages: tuple[Message, ...], member: Member) -> str:
    """Why no budget carries this agent's answer; "" where it may be asked."""
    prompt = _prompt(house, request.asking, messages, member)
    return budgets.too_dear(request.log.events, member, prompt, limits(house, request))


def limits(house: House, request: Request) -> budgets.Budgets:
    """The endpoint's budgets, the request's own where that is lower. A session is a request here."""
    given = [money for money in (house.budgets.request, request.asking.options.budget) if money is not None]
    elsewhere = request.tab or house.budgets.elsewhere
    return replace(house.budgets, request=min(given, default=None), session=None, elsewhere=elsewhere)


def agents(house: House, request: Request) -> dict[str, Agent]:
    """Who answers, each call of theirs counted while it is under way."""
    tab = request.tab
    if tab is None:
        return dict(house.crew.agents)
    return {name: Holding(agent, house.members[name], tab) for name, agent in house.crew.agents.items()}


def _turn(log: Log) -> int:
    turns = views.turns(log.events)
    return turns[-1].number + 1 if turns else 1


def _last_failure(log: Log) -> Refused:
    error = next(event for event in reversed(log.events) if isinstance(event, Failed))
    said = f"{error.what}: {error.message}"
    log.append(Finished(reason="budget" if error.kind == "budget" else "failed", message=said))
    return failed(error.kind, said)


def _nobody(house: House, log: Log, end: Finished) -> Refused:
    """Why nobody is left: what the last one failed with, or that all are unavailable."""
    made = [event for event in log.events if isinstance(event, Failed) and event.kind != "switched"]
    breaker = house.crew.breaker
    soonest = breaker.soonest(house.offered) if breaker is not None else None
    after = soonest[1] if soonest else None
    if end.reason == "budget":
        return failed("budget", end.message)
    if made:
        return failed(made[-1].kind, f"{made[-1].what}: {made[-1].message}", after)
    return failed("overloaded", end.message or "no agent of the pool can be asked now", after)
