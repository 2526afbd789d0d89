"""Answers a request with one agent: if the client runs tools of its own, names an agent, or an
agent is pinned.

Also holds the endpoint's settings, and the accounting of running calls, which the full loop uses as
well.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

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
from fugu_cli.server.traces import (
    AuthorLookup,
    CallAuthor,
    author_of,
    call_id,
    conversation_events,
    with_authors,
)
from fugu_cli.session import spending
from fugu_cli.session.costs import usd
from fugu_cli.session.events import (
    ANSWERED,
    BUDGET,
    Assigned,
    Event,
    Exclusion,
    Failed,
    Finished,
    Masked,
    Member,
    Opened,
    OutcomesKnown,
    Replied,
)
from fugu_cli.session.live_events import TextStreamed, ThoughtStreamed
from fugu_cli.session.log import Log
from fugu_cli.session.open_work import BYTES
from fugu_cli.session.spending import Budgets, SharedAccount
from fugu_cli.wires.client_requests import (
    TOO_LONG,
    ClientRequest,
    RequestRefused,
    RequestSampling,
    ServedAnswer,
)

if TYPE_CHECKING:
    from fugu_cli.coordinators.kind_backlog import KindBacklog

FUGU, ULTRA = "fugu", "fugu-ultra"
"""The two names of the pool as a whole, as in the Fugu report."""


@dataclass(frozen=True)
class EndpointSettings:
    """Everything an endpoint needs from the configuration."""

    opened: Opened
    """The first event of every trace."""
    team: Team
    environment: Environment
    """The environment of requests without client-side tools: no tools, an empty folder."""
    budgets: Budgets = field(default_factory=Budgets)
    opted_out: frozenset[str] = frozenset()
    """Agents that the configuration excludes from every request."""
    max_reply_tokens: Mapping[str, int] = field(default_factory=dict)
    """Limits on reply tokens in the configuration, by agent."""
    pinned_agent: str | None = None
    """The agent that answers for the whole pool, if one is pinned."""
    ultra: Callable[[], Coordinator] | None = None
    """Makes the Conductor's coordinator; None if there is no Conductor."""
    open_account: Callable[[Log, Path], SharedAccount] | None = None
    """Opens the account of a request with its log and trace path; None without shared budgets."""
    known_outcomes: Callable[[], OutcomesKnown] | None = None
    """Reads what is known of the agents' outcomes; None where decisions do not read it. Blocking."""
    kinds: KindBacklog | None = None
    """Reads the kinds of earlier requests that were decided without; None where nobody counts
    them.
    """
    watch: Callable[[Log, str, str], object] = lambda *_: None
    """Reports a request to a telemetry collector: its log, its id, and its parent span."""

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
"""HTTP status for each kind of agent failure. Clients do not retry a failure that only their user can
fix.
"""

REFUSAL_ERROR_TYPES = {
    400: "invalid_request_error",
    402: "insufficient_quota",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}


def failure_refusal(kind: str, message: str, after: float | None = None) -> RequestRefused:
    """Return the refusal for a failure of the kind `AgentError.kind`, or of the budget."""
    if kind == "invalid" and error_mapping.TOO_LONG.search(message):
        return RequestRefused(400, f"prompt is too long: {message}", code=TOO_LONG)
    status = FAILURE_STATUS.get(kind, 502)
    code = "budget_exceeded" if kind == "budget" else f"agent_{kind}"
    return RequestRefused(
        status,
        message,
        error_type=REFUSAL_ERROR_TYPES.get(status, "server_error"),
        code=code,
        after=after,
    )


def message_with_hint(error: AgentError) -> str:
    """Return the error's message, followed by its hint."""
    return f"{str(error).rstrip('.')}; {error.hint}" if error.hint else str(error)


BROKEN_OFF = Finished(reason="failed", message="the agent failed in the middle of its answer")
"""The end of a request whose answer broke off after the client got its beginning."""
SAME_CALL = 3
"""Times an agent may make the same call in one tool loop before another agent takes the turn."""


@dataclass(frozen=True)
class ActiveRequest:
    """A request that is being answered. `id` is also the id of its trace."""

    settings: EndpointSettings
    id: str
    client_request: ClientRequest
    log: Log
    find_author: AuthorLookup
    say: Say
    on_agent_chosen: Callable[[str], None]
    save: Callable[[], object]
    account: SharedAccount | None = None
    """The request's account, if requests share a budget."""

    def forward(self, item: object, text: str = "") -> None:
        """Send streamed text or reasoning to the client; `text` replaces the item's own text."""
        if isinstance(item, TextStreamed):
            self.say(text or item.text)
        elif (
            isinstance(item, ThoughtStreamed)
            and self.client_request.reasoning
            and isinstance(self.say, ThoughtListener)
        ):
            self.say.think(item.text)


async def answer_with_one_agent(request: ActiveRequest, pinned: str | None) -> ServedAnswer:
    """Return the answer of the agent `pinned`, or of one that the coordinator chooses.

    Raises RequestRefused. If cancelled, it records what the agent had written.
    """
    log, client_request = request.log, request.client_request
    if not client_request.tools:
        log.listen(request.forward)
    messages = with_authors(client_request.messages, request.find_author)
    for event in conversation_events(messages):
        log.append(event)
    exclude_agents(request, messages, pinned)
    request.settings.watch(log, request.id, client_request.options.traceparent)
    first_new = len(log.events)
    if client_request.in_tool_loop and pinned is None:
        _switch_agent_if_needed(request, messages)
    while True:
        assignment = await _assign(request, messages, pinned, first_new)
        log.append(assignment)
        request.on_agent_chosen(assignment.agent)
        reply = await _reply(request, messages, assignment, pinned=pinned is not None)
        if reply is not None:
            log.append(ANSWERED)
            recorded = log.state.request.turns[-1].replies[-1]
            return traces.answer_with_usage(log.state, first_new, reply, recorded)
        if pinned is not None:
            raise _end_with_newest_failure(request)


def exclude_agents(
    request: ActiveRequest, messages: tuple[Message, ...] = (), pinned: str | None = None
) -> None:
    """Record the agents that cannot answer this request.

    These are the agents that the client opted out, that are unavailable, or, if `messages` are to
    be answered by one agent, that cannot answer them. Raises RequestRefused for an unknown name, and
    if no agent is left.
    """
    opted_out = request.client_request.options.opt_out
    offered = request.settings.offered.keys()
    unknown = sorted(opted_out - request.settings.members.keys())
    if unknown:
        pool = ", ".join(request.settings.members)
        raise RequestRefused(
            400, f"opt_out names {unknown[0]!r}; the pool has: {pool}", code="unknown_agent"
        )
    if opted_out >= offered:
        raise RequestRefused(
            400, "every agent of the pool is opted out of this request", code="no_agent_left"
        )
    exclusions: dict[str, Exclusion] = {}
    if messages:
        candidates = {pinned} if pinned else offered - opted_out
        exclusions = _unable_agents(request, messages, candidates)
    for name in sorted(opted_out):
        exclusions[name] = Exclusion(message="opted out of this request")
    if exclusions:
        request.log.append(Masked(agents=tuple(exclusions.items())))
    availability.record_exclusions(request.log, request.settings.team.breaker, {})


TOO_LONG_FACTOR = 2
"""A conversation estimated at more than this many times the largest context is refused unread."""


def check_length(settings: EndpointSettings, client_request: ClientRequest) -> None:
    """Raise RequestRefused for a conversation that is far longer than any agent can read.

    This happens before the conversation is processed, which would keep the endpoint from answering
    others.
    """
    characters = len(client_request.system) + sum(
        len(tool.parameters) for tool in client_request.tools
    )
    for message in client_request.messages:
        characters += len(message.text)
        if isinstance(message, FromAgent):
            characters += sum(len(call.arguments) for call in message.calls)
    tokens = int(characters / BYTES)
    largest_context = max((member.context for member in settings.offered.values()), default=0)
    if tokens > TOO_LONG_FACTOR * largest_context:
        raise RequestRefused(
            400,
            f"prompt is too long: {tokens} tokens > {largest_context} maximum, as estimated",
            code=TOO_LONG,
        )


NO_TOOLS = "it calls no tools, and the request has some"
ESTIMATE_TOLERANCE = 1.2
"""An estimated prompt may exceed an agent's context by this factor: its server decides then."""


def _unable_agents(
    request: ActiveRequest, messages: tuple[Message, ...], names: Iterable[str]
) -> dict[str, Exclusion]:
    """Return those of `names` that cannot call the client's tools, or whose context is too small.

    Raises RequestRefused if none of them can answer.
    """
    members = {name: request.settings.members[name] for name in names}
    exclusions: dict[str, Exclusion] = {}
    if request.client_request.tools:
        for name, member in members.items():
            if member.protocol == "text":
                exclusions[name] = Exclusion(message=NO_TOOLS)
    if len(exclusions) == len(members):
        message = (
            f"tools: {', '.join(exclusions)} can call none; choose an agent that does, or leave "
            f"the tools out"
        )
        raise RequestRefused(400, message, code="unsupported_tool")
    able = [member for name, member in members.items() if name not in exclusions]
    sizes: dict[tuple[bool, bool], int] = {}
    """Tokens of the prompt, for agents with and without pictures and documents."""
    too_small: list[Member] = []
    for member in able:
        media = (member.vision, member.documents)
        if media not in sizes:
            sizes[media] = compaction.prompt_tokens(_prompt(request, messages, member))
        if sizes[media] > ESTIMATE_TOLERANCE * member.context:
            too_small.append(member)
            reason = f"the request is some {sizes[media]} tokens; it reads {member.context}"
            exclusions[member.name] = Exclusion(message=reason)
    if len(too_small) == len(able):
        largest = max(too_small, key=lambda member: member.context)
        message = (
            f"prompt is too long: {sizes[largest.vision, largest.documents]} tokens > "
            f"{largest.context} maximum, as estimated for {largest.name}"
        )
        raise RequestRefused(400, message, code=TOO_LONG)
    return exclusions


def _switch_agent_if_needed(request: ActiveRequest, messages: tuple[Message, ...]) -> None:
    """Record a failure of the agent whose tool loop this is, if another agent must continue."""
    author = _newest_author(messages, request.find_author)
    if author is None or author.agent not in request.settings.offered:
        return
    reason = _switch_reason(request, messages, author)
    if reason:
        turn = _next_turn(request.log) - 1
        request.log.append(Failed(turn=turn, what=author.agent, kind="switched", message=reason))


def _switch_reason(
    request: ActiveRequest, messages: tuple[Message, ...], author: CallAuthor
) -> str:
    """Return why the author of the newest calls cannot continue; "" if it can."""
    excluded = request.log.state.request.failed_agents
    if author.agent in excluded:
        return str(excluded[author.agent])
    member = request.settings.members[author.agent]
    if not member.vision and request.log.state.request.has_picture:
        unavailable = {*excluded, *request.client_request.options.opt_out}
        for name, candidate in request.settings.offered.items():
            if candidate.vision and name not in unavailable:
                return action_space.NO_VISION
    over_budget = _over_budget(request, messages, member)
    if over_budget:
        return over_budget
    times: Counter[tuple[str, str]] = Counter()
    for message in reversed(messages):
        if isinstance(message, FromAgent):
            if not message.calls:
                break  # the tool loop begins after the newest reply without calls
            times.update((call.tool, call.arguments) for call in message.calls)
    most = max(times.values(), default=0)
    if most >= SAME_CALL:
        return f"it made the same call {most} times: another agent may see why that leads nowhere"
    return ""


async def _assign(
    request: ActiveRequest, messages: tuple[Message, ...], pinned: str | None, first_new: int
) -> Assigned:
    """Return the assignment of the pinned agent, of the agent whose tool loop this is, or of one that
    the coordinator chooses. Raises RequestRefused.
    """
    turn = _next_turn(request.log)
    if pinned is not None:
        if pinned in request.client_request.options.opt_out:
            raise RequestRefused(
                400, f"{pinned} is both asked for and opted out", code="unknown_agent"
            )
        return Assigned(
            turn=turn, agent=pinned, role="worker", by="single", reason="the client named it"
        )
    if request.client_request.in_tool_loop and len(request.log.events) == first_new:
        author = _newest_author(request.client_request.messages, request.find_author)
        excluded = request.settings.team.excluded | request.log.state.request.failed_agents.keys()
        available = request.settings.offered.keys() - excluded
        if author is not None and author.agent in available:
            reason = (
                f"its calls brought results, and its prompt cache is warm (trace {author.trace})"
            )
            return Assigned(
                turn=turn, agent=author.agent, role="worker", by="sticky", reason=reason
            )
    over_budget: dict[str, str] = {}
    for name, member in request.settings.members.items():
        reason = _over_budget(request, messages, member)
        if reason:
            over_budget[name] = reason
    availability.record_budget(request.log, request_budgets(request))
    decision = await availability.decide(request.log, request.settings.team, over_budget)
    if isinstance(decision, Assigned):
        return _as_worker(decision)
    if isinstance(decision, Finished):
        request.log.append(decision)
        raise refusal_of_end(request, request.log.events, decision)
    raise failure_refusal(
        "protocol", "the coordinator planned a workflow, which a client's tools cannot be part of"
    )


def _newest_author(messages: tuple[Message, ...], find_author: AuthorLookup) -> CallAuthor | None:
    """Return the author of the newest reply, or None if it is unknown or there is no reply."""
    for message in reversed(messages):
        if isinstance(message, FromAgent):
            return author_of(message, find_author)
    return None


def _as_worker(decision: Assigned) -> Assigned:
    """Return the assignment as a Worker's, since the client waits for an answer.

    The role that the coordinator chose stays in the trace.
    """
    if decision.role == "worker":
        return decision
    reason = f"{decision.reason}; the client waits for an answer, so it works".removeprefix("; ")
    return decision.model_copy(
        update={"role": "worker", "override": decision.role, "reason": reason}
    )


async def _reply(
    request: ActiveRequest, messages: tuple[Message, ...], assignment: Assigned, *, pinned: bool
) -> Replied | None:
    """Return the agent's reply after recording it, or None if the agent failed and another may try.

    Raises RequestRefused if no other agent may try, because the client already got some text.
    """
    log, member = request.log, request.settings.members[assignment.agent]
    over_budget = _over_budget(request, messages, member)
    if over_budget:  # the agent was not chosen by the coordinator
        log.append(Failed(turn=assignment.turn, what=member.name, kind=BUDGET, message=over_budget))
        return None
    prompt = _prompt(request, messages, member)
    # Some servers refuse a limit on the reply that exceeds the rest of the context.
    rest = max(member.context - compaction.prompt_tokens(prompt), LEAST_REPLY_TOKENS)
    prompt = prompt.model_copy(update={"max_tokens": min(prompt.max_tokens, rest)})
    request.save()
    started = time.monotonic()
    listener = _ReplyListener(request, assignment)
    pauses = availability.CallPauses(
        request.settings.team, member.name, "none" if pinned else "soon"
    )

    def before_retry(pause: Pause) -> None:
        if listener.texts and request.client_request.stream:
            raise broken_stream_reason(member.name)
        pauses.check(pause, log.state)
        listener.texts.clear()
        spent = usd(pause.used, member.price)
        availability.check_budget(log.state, member, prompt, request_budgets(request), spent)

    try:
        agent = answering_agents(request)[member.name]
        reply = await agent.reply(prompt, listener, before_retry)
    except asyncio.CancelledError as cancelled:
        text = "".join(listener.texts)
        log.append(interrupted_event(assignment.turn, member.name, text, cancelled))
        raise
    except AgentError as error:
        log.append(failed_event(assignment.turn, member.name, error))
        if listener.texts and request.client_request.stream:
            log.append(BROKEN_OFF)
            raise failure_refusal(error.kind, message_with_hint(error)) from error
        return None
    return _record_reply(request, assignment, reply, time.monotonic() - started)


class _ReplyListener:
    """Keeps the text of a reply while it streams, and passes text and reasoning on."""

    def __init__(self, request: ActiveRequest, assignment: Assigned) -> None:
        self.texts: list[str] = []
        self._request = request
        self._assignment = assignment

    def __call__(self, text: str) -> None:
        self.texts.append(text)
        self._pass_on(
            TextStreamed(turn=self._assignment.turn, agent=self._assignment.agent, text=text)
        )

    def think(self, text: str) -> None:
        self._pass_on(
            ThoughtStreamed(turn=self._assignment.turn, agent=self._assignment.agent, text=text)
        )

    def _pass_on(self, item: TextStreamed | ThoughtStreamed) -> None:
        self._request.log.tell(item)
        if self._request.client_request.tools:
            # Past the log, which redacts secrets: the client's own tools need them.
            self._request.forward(item)


def broken_stream_reason(name: str) -> AgentError:
    """Return the error of a call that is not retried, because the client already has some of its
    text.
    """
    return AgentError(f"{name} broke off in the middle of its answer", kind="network")


def _record_reply(
    request: ActiveRequest, assignment: Assigned, reply: Reply, seconds: float
) -> Replied:
    """Append the reply to the log, and return it as the client gets it.

    A client with tools gets the reply itself, since its tools need the secrets that the log redacts.
    """
    single = request.client_request.sampling.single
    made = reply.calls[:1] if single else reply.calls
    ids = [call_id(request.id, assignment.agent, number) for number in range(len(made))]
    calls, thinking = with_call_ids(made, reply.thinking, ids)
    event = Replied(
        turn=assignment.turn,
        agent=assignment.agent,
        text=reply.text,
        thinking=thinking,
        calls=calls,
        usage=reply.usage,
        model=reply.model or assignment.agent,
        stop=reply.stop,
        seconds=round(seconds, 3),
        refused=reply.refused,
    )
    recorded = request.log.append(event).event
    if request.client_request.tools or not isinstance(recorded, Replied):
        return event
    return recorded


def _prompt(request: ActiveRequest, messages: tuple[Message, ...], member: Member) -> Prompt:
    """Return the client's messages, tools and limits as a prompt for `member`."""
    client_request, sampling = request.client_request, request.client_request.sampling
    not_shown = shown_media.why_not(vision=member.vision, documents=member.documents, refused=())
    configured_limit = request.settings.max_reply_tokens.get(member.name, sampling.max_tokens)
    return Prompt(
        system=client_request.system,
        messages=shown_media.as_shown(messages, not_shown),
        tools=client_request.tools,
        max_tokens=min(sampling.max_tokens, configured_limit),
        temperature=sampling.temperature,
        seed=sampling.seed,
        effort=effort_of(member, sampling),
        reply_schema=sampling.reply_schema,
        stop=sampling.stop,
        tool_choice=sampling.choice,
        metadata=dict(client_request.options.metadata),
    )


def effort_of(member: Member, sampling: RequestSampling) -> Effort:
    """Return the client's limit on the agent's effort; "" if the configured effort is no higher."""
    requested = sampling.effort
    if not requested:
        return ""
    if not member.effort:
        return requested if sampling.reasons else ""
    exceeds = EFFORTS.index(member.effort) > EFFORTS.index(requested)
    return requested if exceeds else ""


LEAST_REPLY_TOKENS = 1024
"""Least limit on reply tokens. The rest of an agent's context is only estimated."""


def _over_budget(request: ActiveRequest, messages: tuple[Message, ...], member: Member) -> str:
    """Return why the agent's answer would exceed a budget; "" if it would not."""
    prompt = _prompt(request, messages, member)
    return spending.over_budget(request.log.state, member, prompt, request_budgets(request))


def request_budgets(request: ActiveRequest) -> spending.Budgets:
    """Return the endpoint's budgets, with the lower of its and the client's budget for the request."""
    budgets = request.settings.budgets
    limits = [budgets.request, request.client_request.options.budget]
    return replace(
        budgets,
        request=min((limit for limit in limits if limit is not None), default=None),
        session=None,  # the session of a served request is that request
        elsewhere=request.account or budgets.elsewhere,
    )


def answering_agents(request: ActiveRequest) -> dict[str, Agent]:
    """Return the team's agents. With shared budgets, each reserves the cost of its running calls."""
    account, team = request.account, request.settings.team
    if account is None:
        return dict(team.agents)
    return {
        name: AccountedAgent(agent, team.members[name], account)
        for name, agent in team.agents.items()
    }


def _next_turn(log: Log) -> int:
    turns = log.state.request.turns
    return turns[-1].number + 1 if turns else 1


def _end_with_newest_failure(request: ActiveRequest) -> RequestRefused:
    """End the request with its newest failure, and return the refusal for the client."""
    log = request.log
    failure = next(event for event in reversed(log.events) if isinstance(event, Failed))
    message = f"{failure.what}: {failure.message}"
    end = Finished(reason="budget" if failure.kind == "budget" else "failed", message=message)
    log.append(end)
    return refusal_of_end(request, log.events, end)


def refusal_of_end(
    request: ActiveRequest, events: Sequence[Event], end: Finished
) -> RequestRefused:
    """Return the refusal for a request that ended without an answer: its newest failure in `events`.

    If no agent was asked because all are unavailable, the status is 503. Both name the time at which
    the first agent is available again.
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
