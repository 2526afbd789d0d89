"""One agent answers: where the client runs tools of its own, names an agent, or one is pinned. With
the endpoint's settings, and the hold on the budget while a call is under way, which the full loop
uses as well.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from fugu_cli.coordinators import Coordinator, action_space
from fugu_cli.engine import availability, compaction
from fugu_cli.engine.accounted_agent import AccountedAgent
from fugu_cli.engine.environment import Environment, Team
from fugu_cli.engine.turn import failed_event, interrupted_event
from fugu_cli.errors import AgentError
from fugu_cli.messages import (
    EFFORTS,
    Effort,
    FromAgent,
    Message,
    Prompt,
    Reply,
    with_call_ids,
)
from fugu_cli.providers import Agent, Pause, Say, ThoughtListener, error_mapping, shown_media
from fugu_cli.server import traces
from fugu_cli.server.client_requests import (
    TOO_LONG,
    ClientRequest,
    RequestRefused,
    RequestSampling,
    ServedAnswer,
)
from fugu_cli.server.traces import (
    CallAuthor,
    Recall,
    author_of,
    call_id,
    conversation_events,
    with_authors,
)
from fugu_cli.session import spending, views
from fugu_cli.session.costs import usd
from fugu_cli.session.events import (
    ANSWERED,
    Assigned,
    Event,
    Exclusion,
    Failed,
    Finished,
    Masked,
    Member,
    Opened,
    Replied,
)
from fugu_cli.session.live_events import TextStreamed, ThoughtStreamed
from fugu_cli.session.log import Log
from fugu_cli.session.spending import Budgets, SharedAccount

FUGU, ULTRA = "fugu", "fugu-ultra"
"""The two names of the pool as a whole, as in the Fugu report."""


@dataclass(frozen=True)
class EndpointSettings:
    """`opened` is the first line of every trace. `single`: the agent that answers for the pool,
    where one is pinned.

    `opted_out`: agents that the configuration keeps from every request. `longest`: an entry's own
    limit on reply tokens, by agent. `ultra` makes the Conductor's coordinator, None where there is
    none. `environment` is what a loop without the client's tools works on: no tools, an empty
    folder. `tab` opens a request's account, its log and where that will lie given; None where no
    budget is shared by requests. `watch` tells a collector of a request from then on: its log, its
    id, and the span above it.
    """

    opened: Opened
    team: Team
    environment: Environment
    budgets: Budgets = field(default_factory=Budgets)
    opted_out: frozenset[str] = frozenset()
    longest: Mapping[str, int] = field(default_factory=dict)
    single: str | None = None
    ultra: Callable[[], Coordinator] | None = None
    tab: Callable[[Log, Path], SharedAccount] | None = None
    watch: Callable[[Log, str, str], object] = lambda *_: None

    @property
    def members(self) -> Mapping[str, Member]:
        return self.team.members

    @property
    def offered(self) -> Mapping[str, Member]:
        """The members that a client may ask for by name."""
        return {name: member for name, member in self.members.items() if name not in self.opted_out}


FAILURE_STATUS = {
    "refused": 403,
    "absent": 404,
    "invalid": 400,
    "limited": 429,
    "overloaded": 503,
    "network": 502,
    "timeout": 504,
    "protocol": 502,
    "credit": 402,
    "budget": 402,
    "unavailable": 503,
}
"""What the client is told where an agent failed. What only its user can mend is nothing that
clients try again.
"""

REFUSAL_KINDS = {
    400: "invalid_request_error",
    402: "insufficient_quota",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}


def failure_refusal(kind: str, message: str, after: float | None = None) -> RequestRefused:
    """The refusal for a failure of `AgentError.kind`, or of the budget."""
    if kind == "invalid" and error_mapping.TOO_LONG.search(message):
        return RequestRefused(400, f"prompt is too long: {message}", code=TOO_LONG)
    status = FAILURE_STATUS.get(kind, 502)
    code = "budget_exceeded" if kind == "budget" else f"agent_{kind}"
    return RequestRefused(
        status, message, kind=REFUSAL_KINDS.get(status, "server_error"), code=code, after=after
    )


def message_with_hint(error: AgentError) -> str:
    """The message with its hint."""
    return f"{str(error).rstrip('.')}; {error.hint}" if error.hint else str(error)


BROKEN = Finished(reason="failed", message="the agent failed in the middle of its answer")
"""How a request ends of whose answer a client has heard the beginning."""
SAME_CALL = 3
"""Times an agent may make the same call in one loop before another one takes the turn."""


@dataclass(frozen=True)
class ActiveRequest:
    """One request on its way: `id` is its trace's, `chosen` is told who answers, as soon as that is
    known.
    """

    settings: EndpointSettings
    id: str
    asking: ClientRequest
    log: Log
    recall: Recall
    say: Say
    chosen: Callable[[str], None]
    save: Callable[[], object]
    tab: SharedAccount | None = None
    """Its account, where requests share a budget."""

    def tell(self, item: object, text: str = "") -> None:
        """Pass on what is said or thought, where that is what was told; `text` in its place."""
        if isinstance(item, TextStreamed):
            self.say(text or item.text)
        elif (
            isinstance(item, ThoughtStreamed)
            and self.asking.reasoning
            and isinstance(self.say, ThoughtListener)
        ):
            self.say.think(item.text)


async def answer_with_one_agent(request: ActiveRequest, pinned: str | None) -> ServedAnswer:
    """The answer of one agent. Raises RequestRefused; cancelled, it records what was cut off."""
    log, asking = request.log, request.asking
    if not asking.tools:
        log.listen(request.tell)
    messages = with_authors(asking.messages, request.recall)
    for fact in conversation_events(messages):
        log.append(fact)
    excluded_agents(request, messages, pinned)
    request.settings.watch(log, request.id, asking.options.traceparent)
    began = len(log.events)
    keep_or_switch(request, messages, pinned)
    while True:
        assigned = await _assigned(request, messages, pinned, began)
        log.append(assigned)
        request.chosen(assigned.agent)
        reply = await _reply(request, messages, assigned, pinned=pinned is not None)
        if reply is not None:
            log.append(ANSWERED)
            return traces.answer_with_usage(
                log.events, began, reply, views.turns(log.events)[-1].replies[-1]
            )
        if pinned is not None:
            raise _last_failure(request)


def excluded_agents(
    request: ActiveRequest, messages: tuple[Message, ...] = (), pinned: str | None = None
) -> None:
    """Who is out for this request: opted out by the client, unavailable, or, where one agent is to
    answer `messages`, not able to. Raises RequestRefused for a wrong name, and where nobody is left."""
    unknown = sorted(request.asking.options.opt_out - request.settings.members.keys())
    if unknown:
        there = ", ".join(request.settings.members)
        raise RequestRefused(
            400, f"opt_out names {unknown[0]!r}; the pool has: {there}", code="unknown_agent"
        )
    out = dict.fromkeys(
        sorted(request.asking.options.opt_out), Exclusion(message="opted out of this request")
    )
    if out.keys() >= request.settings.offered.keys():
        raise RequestRefused(
            400, "every agent of the pool is opted out of this request", code="no_agent_left"
        )
    if messages:
        out = {
            **_unable(
                request,
                messages,
                (pinned,) if pinned else request.settings.offered.keys() - out.keys(),
            ),
            **out,
        }
    if out:
        request.log.append(Masked(agents=tuple(out.items())))
    availability.record_exclusions(request.log, request.settings.team.breaker, {})


HOPELESS = 2
"""How many times an agent's context a conversation may be estimated at before it is turned away
unread."""


def check_length(settings: EndpointSettings, asking: ClientRequest) -> None:
    """Raise RequestRefused for a conversation that is far longer than any agent reads, before
    anything is made of it: the endpoint would answer nobody else meanwhile."""
    characters = len(asking.system) + sum(len(tool.parameters) for tool in asking.tools)
    for message in asking.messages:
        characters += len(message.text)
        if isinstance(message, FromAgent):
            characters += sum(len(call.arguments) for call in message.calls)
    tokens = int(characters / views.BYTES)
    longest = max((member.context for member in settings.offered.values()), default=0)
    if tokens > HOPELESS * longest:
        raise RequestRefused(
            400,
            f"prompt is too long: {tokens} tokens > {longest} maximum, as estimated",
            code=TOO_LONG,
        )


NO_TOOLS = "it calls no tools, and the request has some"
ESTIMATE = 1.2
"""An estimate may be so much too high: what is no more than that too long is left to the server."""


def _unable(
    request: ActiveRequest, messages: tuple[Message, ...], names: Iterable[str]
) -> dict[str, Exclusion]:
    """Those of `names` that can call none of the client's tools, or read less than this. Raises
    Refused where they all are."""
    asked = {name: request.settings.members[name] for name in names}
    out = {
        name: NO_TOOLS
        for name, one in asked.items()
        if one.protocol == "text" and request.asking.tools
    }
    if len(out) == len(asked):
        said = (
            f"tools: {', '.join(out)} can call none; choose an agent that does, or leave the "
            f"tools out"
        )
        raise RequestRefused(400, said, code="unsupported_tool")
    able = {name: one for name, one in asked.items() if name not in out}
    sizes: dict[str, int] = {}
    by_media: dict[tuple[bool, bool], int] = {}
    for name, member in able.items():
        shown = member.vision, member.documents
        if shown not in by_media:
            by_media[shown] = compaction.prompt_tokens(_prompt(request, messages, member))
        sizes[name] = by_media[shown]
    short = {name: size for name, size in sizes.items() if size > ESTIMATE * asked[name].context}
    if len(short) == len(sizes):
        name = max(short, key=lambda one: asked[one].context)
        said = (
            f"prompt is too long: {short[name]} tokens > {asked[name].context} maximum, as "
            f"estimated for {name}"
        )
        raise RequestRefused(400, said, code=TOO_LONG)
    out |= {
        name: f"the request is some {size} tokens; it reads {asked[name].context}"
        for name, size in short.items()
    }
    return {name: Exclusion(message=why) for name, why in out.items()}


def keep_or_switch(
    request: ActiveRequest, messages: tuple[Message, ...], pinned: str | None
) -> None:
    """In a tool loop: its agent goes on, or is masked with the reason why it does not."""
    if not request.asking.in_tool_loop or pinned is not None:
        return
    author = _caller(messages, request.recall)
    if author is None or author.agent not in request.settings.offered:
        return
    why = _why_not(request, messages, author)
    if why:
        turn = _turn(request.log) - 1
        request.log.append(Failed(turn=turn, what=author.agent, kind="switched", message=why))


def _why_not(request: ActiveRequest, messages: tuple[Message, ...], author: CallAuthor) -> str:
    """The reason to take the turn from the agent whose calls the client ran; "" where there is
    none.
    """
    out = views.failed_agents(request.log.events)
    member = request.settings.members[author.agent]
    if author.agent in out:
        return str(out[author.agent])
    if not member.vision and views.has_picture(request.log.events) and _who_sees(request):
        return action_space.NO_VISION
    if short := _over_budget(request, messages, member):
        return short
    replies = [message for message in messages[_loop(messages) :] if isinstance(message, FromAgent)]
    calls = Counter((call.tool, call.arguments) for reply in replies for call in reply.calls)
    times = max(calls.values(), default=0)
    if times >= SAME_CALL:
        return f"it made the same call {times} times: another agent may see why that leads nowhere"
    return ""


def _who_sees(request: ActiveRequest) -> list[str]:
    """The agents that see pictures and may answer this request."""
    out = {*views.failed_agents(request.log.events), *request.asking.options.opt_out}
    return [
        name
        for name, member in request.settings.offered.items()
        if member.vision and name not in out
    ]


def _loop(messages: tuple[Message, ...]) -> int:
    """Where the tool loop begins: behind the newest reply without calls."""
    ends = [
        i
        for i, message in enumerate(messages)
        if isinstance(message, FromAgent) and not message.calls
    ]
    return ends[-1] + 1 if ends else 0


async def _assigned(
    request: ActiveRequest, messages: tuple[Message, ...], pinned: str | None, began: int
) -> Assigned:
    """Who answers: the pinned agent, the one whose loop it is, or whom the coordinator chooses.
    Raises RequestRefused.
    """
    events, out = request.log.events, views.failed_agents(request.log.events)
    turn = _turn(request.log)
    if pinned is not None:
        if pinned in request.asking.options.opt_out:
            raise RequestRefused(
                400, f"{pinned} is both asked for and opted out", code="unknown_agent"
            )
        return Assigned(
            turn=turn, agent=pinned, role="worker", by="single", reason="the client named it"
        )
    sticky = _keeper(request, out) if len(events) == began else None
    if sticky is not None:
        why = f"its calls brought results, and its prompt cache is warm (trace {sticky.trace})"
        return Assigned(turn=turn, agent=sticky.agent, role="worker", by="sticky", reason=why)
    dear = {
        name: why
        for name, member in request.settings.members.items()
        if (why := _over_budget(request, messages, member))
    }
    decision = await availability.decide(request.log, request.settings.team, dear)
    if isinstance(decision, Assigned):
        return _as_worker(decision)
    if isinstance(decision, Finished):
        request.log.append(decision)
        raise refusal_of_end(request, request.log.events, decision)
    raise failure_refusal(
        "protocol", "the coordinator planned a workflow, which a client's tools cannot be part of"
    )


def _keeper(request: ActiveRequest, out: dict[str, Exclusion]) -> CallAuthor | None:
    if not request.asking.in_tool_loop:
        return None
    author = _caller(request.asking.messages, request.recall)
    return (
        author
        if author and author.agent in request.settings.offered and author.agent not in out
        else None
    )


def _caller(messages: tuple[Message, ...], recall: Recall) -> CallAuthor | None:
    """The author of the newest reply; None where it is not known, or was cut off with the history
    before it.
    """
    newest = next(
        (message for message in reversed(messages) if isinstance(message, FromAgent)), None
    )
    return author_of(newest, recall) if newest is not None else None


def _as_worker(decision: Assigned) -> Assigned:
    """The client waits for an answer: whoever is chosen gives it, and the head's own role stays in
    the trace.
    """
    if decision.role == "worker":
        return decision
    reason = f"{decision.reason}; the client waits for an answer, so it works".removeprefix("; ")
    return decision.model_copy(
        update={"role": "worker", "override": decision.role, "reason": reason}
    )


async def _reply(
    request: ActiveRequest, messages: tuple[Message, ...], assigned: Assigned, *, pinned: bool
) -> Replied | None:
    """The agent's reply, recorded; None where it failed and another one may try. Raises RequestRefused
    where none may.
    """
    log, member = request.log, request.settings.members[assigned.agent]
    if short := _over_budget(request, messages, member):  # a named agent's, or that of a loop's own
        log.append(Failed(turn=assigned.turn, what=member.name, kind=views.BUDGET, message=short))
        return None
    prompt = _with_room(_prompt(request, messages, member), member)
    request.save()
    started, speech = time.monotonic(), _Speech(request, assigned)
    said = speech.said
    pauses = availability.CallPauses(
        request.settings.team, member.name, "none" if pinned else "soon"
    )

    def wait(pause: Pause) -> None:
        if said and request.asking.stream:
            raise broken_stream_reason(member.name)
        pauses.check(pause, log.events)
        said.clear()
        availability.check_budget(
            log.events, member, prompt, request_budgets(request), usd(pause.used, member.price)
        )

    try:
        reply = await answering_agents(request)[member.name].reply(prompt, speech, wait)
    except asyncio.CancelledError as cancelled:
        log.append(interrupted_event(assigned.turn, member.name, "".join(said), cancelled))
        raise
    except AgentError as error:
        log.append(failed_event(assigned.turn, member.name, error))
        if said and request.asking.stream:
            log.append(BROKEN)
            raise failure_refusal(error.kind, message_with_hint(error)) from error
        return None
    return _recorded(request, assigned, reply, time.monotonic() - started)


class _Speech:
    """What an agent says and thinks in its turn."""

    def __init__(self, request: ActiveRequest, assigned: Assigned) -> None:
        self.said: list[str] = []
        self._request = request
        self._assigned = assigned

    def __call__(self, text: str) -> None:
        self.said.append(text)
        self._tell(TextStreamed(turn=self._assigned.turn, agent=self._assigned.agent, text=text))

    def think(self, text: str) -> None:
        self._tell(ThoughtStreamed(turn=self._assigned.turn, agent=self._assigned.agent, text=text))

    def _tell(self, item: TextStreamed | ThoughtStreamed) -> None:
        self._request.log.tell(item)
        if (
            self._request.asking.tools
        ):  # passed on as it is: the client's own tools need the secrets in it
            self._request.tell(item)


def broken_stream_reason(name: str) -> AgentError:
    """Why a call is not tried again whose first words the client has: they cannot be taken back."""
    return AgentError(f"{name} broke off in the middle of its answer", kind="network")


def _recorded(request: ActiveRequest, assigned: Assigned, reply: Reply, seconds: float) -> Replied:
    made = reply.calls[:1] if request.asking.sampling.single else reply.calls
    ids = [call_id(request.id, number) for number in range(len(made))]
    calls, thinking = with_call_ids(made, reply.thinking, ids)
    fact = Replied(
        turn=assigned.turn,
        agent=assigned.agent,
        text=reply.text,
        thinking=thinking,
        calls=calls,
        usage=reply.usage,
        model=reply.model or assigned.agent,
        stop=reply.stop,
        seconds=round(seconds, 3),
        refused=reply.refused,
    )
    recorded = request.log.append(fact).event
    return fact if request.asking.tools or not isinstance(recorded, Replied) else recorded


def _prompt(request: ActiveRequest, messages: tuple[Message, ...], member: Member) -> Prompt:
    """The client's own words, tools and limits; the entry's limits where they are lower."""
    asking, sampling = request.asking, request.asking.sampling
    not_shown = shown_media.why_not(vision=member.vision, documents=member.documents, refused=())
    return Prompt(
        system=asking.system,
        messages=shown_media.as_shown(messages, not_shown),
        tools=asking.tools,
        max_tokens=min(
            sampling.max_tokens, request.settings.longest.get(member.name, sampling.max_tokens)
        ),
        temperature=sampling.temperature,
        seed=sampling.seed,
        effort=effort_of(member, sampling),
        reply_schema=sampling.reply_schema,
        stop=sampling.stop,
        tool_choice=sampling.choice,
        metadata=dict(asking.options.metadata),
    )


def effort_of(member: Member, sampling: RequestSampling) -> Effort:
    """What the client bounds an agent's reasoning to; "" where it is left to the entry, whose own
    is no more.
    """
    asked = sampling.effort
    if not asked or (not member.effort and not sampling.reasons):
        return ""
    return "" if member.effort and EFFORTS.index(member.effort) <= EFFORTS.index(asked) else asked


LEAST_ROOM = 1024
"""Tokens of a reply that are asked for all the same: that the request leaves less is an
estimate.
"""


def _with_room(prompt: Prompt, member: Member) -> Prompt:
    """The prompt, its reply no longer than what it leaves of the agent's context: some servers
    refuse more.
    """
    room = max(member.context - compaction.prompt_tokens(prompt), LEAST_ROOM)
    return prompt.model_copy(update={"max_tokens": min(prompt.max_tokens, room)})


def _over_budget(request: ActiveRequest, messages: tuple[Message, ...], member: Member) -> str:
    """Why no budget carries this agent's answer; "" where it may be asked."""
    prompt = _prompt(request, messages, member)
    return spending.over_budget(request.log.events, member, prompt, request_budgets(request))


def request_budgets(request: ActiveRequest) -> spending.Budgets:
    """The endpoint's budgets, the request's own where that is lower. A session is a request
    here.
    """
    given = [
        money
        for money in (request.settings.budgets.request, request.asking.options.budget)
        if money is not None
    ]
    elsewhere = request.tab or request.settings.budgets.elsewhere
    return replace(
        request.settings.budgets,
        request=min(given, default=None),
        session=None,
        elsewhere=elsewhere,
    )


def answering_agents(request: ActiveRequest) -> dict[str, Agent]:
    """Who answers, each call of theirs counted while it is under way."""
    tab, team = request.tab, request.settings.team
    if tab is None:
        return dict(team.agents)
    return {
        name: AccountedAgent(agent, team.members[name], tab) for name, agent in team.agents.items()
    }


def _turn(log: Log) -> int:
    turns = views.turns(log.events)
    return turns[-1].number + 1 if turns else 1


def _last_failure(request: ActiveRequest) -> RequestRefused:
    """Return the refusal for the only agent that may answer, and end the request with it."""
    log = request.log
    error = next(event for event in reversed(log.events) if isinstance(event, Failed))
    message = f"{error.what}: {error.message}"
    end = Finished(reason="budget" if error.kind == "budget" else "failed", message=message)
    log.append(end)
    return refusal_of_end(request, log.events, end)


def refusal_of_end(
    request: ActiveRequest, events: Sequence[Event], end: Finished
) -> RequestRefused:
    """Return what the client is told about a request that ended without an answer.

    That is the newest failure in `events`. Where no agent was asked, since all are unavailable, it
    is a status 503. Both say when the first agent is available again.
    """
    if end.reason == "budget":
        return failure_refusal("budget", end.message)
    team = request.settings.team
    soonest = team.breaker.soonest(request.settings.offered) if team.breaker is not None else None
    after = soonest[1] if soonest is not None else None
    for event in reversed(events):
        if isinstance(event, Failed) and event.kind != "switched":
            return failure_refusal(event.kind, f"{event.what}: {event.message}", after)
    message = end.message or "no agent of the pool can be asked now"
    return failure_refusal("unavailable", message, after)
