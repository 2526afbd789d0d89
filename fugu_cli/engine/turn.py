"""Does one step of an open turn and records it: evidence, the agent's reply, a call.

Between the loop, which says which turn goes on (orchestrator.py, parallel_turns.py), and the
harness, which says what it needs. A turn sees the state as `state_of_turn` gives it: other turns
may be open at the same time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from fugu_cli.coordinators import action_space
from fugu_cli.coordinators.conductor.step_context import visible_part
from fugu_cli.engine import availability, compaction, harness, steering
from fugu_cli.engine.availability import BudgetReservations
from fugu_cli.engine.environment import (
    Environment,
    GatherEvidence,
    NextStep,
    RequestReply,
    RunCall,
    Team,
)
from fugu_cli.errors import AgentError, noted_usage
from fugu_cli.messages import Call, Prompt, Usage, with_call_ids
from fugu_cli.providers import Pause, shown_media
from fugu_cli.providers.retry import Retrying, Speaking
from fugu_cli.safety import path_rules, policy
from fugu_cli.session import spending
from fugu_cli.session.costs import usd
from fugu_cli.session.events import Assigned, Failed, Interrupted, Member, ModeGiven, Replied
from fugu_cli.session.live_events import TextStreamed, ThoughtStreamed, Waiting
from fugu_cli.session.log import Log, stored_media
from fugu_cli.session.state import SessionState
from fugu_cli.session.tool_facts import own_tool_name
from fugu_cli.session.turns import BY_FILE, Turn, interrupted_calls
from fugu_cli.tools.toolbox import Toolbox

_GONE = "it is not in the pool any more; another agent takes the turn"


@dataclass(frozen=True)
class TurnContext:
    """Everything a turn needs: log, team, rules, and money reserved by running calls."""

    log: Log
    team: Team
    environment: Environment
    reservations: BudgetReservations = field(default_factory=BudgetReservations)


async def run_together(works: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run these side by side to their ends. If one fails, or the caller is cancelled, all others
    are cancelled and awaited.
    """
    tasks = [asyncio.create_task(work) for work in works]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def state_of_turn(state: SessionState, number: int) -> SessionState:
    """Return the session from the view of its turn `number`, which is the newest turn in it."""
    turn = state.request.turn(number)
    is_isolated = turn is not None and (turn.assigned.plan or turn.assigned.subtask)
    return state.of_turn(number) if is_isolated else state


def next_step(context: TurnContext, number: int) -> NextStep:
    """Return the next step of the turn, `TurnClosed` when it is over."""
    state = state_of_turn(context.log.state, number)
    name = state.request.turns[-1].assigned.agent
    member = context.team.members.get(name) or state.pool[name]
    return harness.next_step(state, member, context.environment)


def over_budget_agents(context: TurnContext) -> dict[str, str]:
    """Return the agents whose next call would exceed a budget, each with the reason.

    The call is estimated with the prompt of a Worker's turn, or of a workflow's step that reads no
    other step. What the turn adds to its prompt counts when the call is due.
    """
    state, environment = context.log.state, context.environment
    limits = spending.budgets_of(environment.limits.budget)
    if spending.remaining_budget(state, limits) is None:
        return {}
    plan = 0
    workflows = state.request.workflows
    if workflows and all(earlier.assigned.plan for earlier in state.request.turns):
        plan = workflows[-1].number
    refusals = {}
    for name, member in context.team.members.items():
        begun = Assigned(
            turn=action_space.next_turn_number(state), agent=name, role="worker", by="", plan=plan
        )
        visible = path_rules.visible_state(state.followed_by(begun), name, environment.denials)
        turn = visible.request.turns[-1]
        offered = harness.offered_tools(visible, environment)
        prompt = harness.build_prompt(visible, member, offered, environment.instructions)
        if environment.client_channel is not None:
            prompt = environment.client_channel.render(prompt, visible, turn)
        prompt = _with_effort(prompt, state, member)
        prompt = spending.within_budget(state, member, prompt, limits)
        shortens = compaction.is_due(visible, prompt, member, compaction.prompt_tokens(prompt))
        refusal = spending.over_budget(state, member, prompt, limits)
        if refusal and not shortens:
            refusals[name] = refusal
    return refusals


async def do_step(context: TurnContext, number: int, step: NextStep) -> None:
    """Do one step and record it."""
    state = state_of_turn(context.log.state, number)
    turn = state.request.turns[-1]
    if turn.assigned.agent not in context.team.agents:
        context.log.append(
            Failed(turn=number, what=turn.assigned.agent, kind="invalid", message=_GONE)
        )
        return
    if isinstance(step, RequestReply):
        await _reply(context, state, turn)
        return
    from fugu_cli.engine import tool_calls  # not before the first reply is asked for

    log, environment = context.log, context.environment
    match step:
        case GatherEvidence(call):
            await tool_calls.run_evidence(log, environment, number, call)
        case RunCall(call):
            await tool_calls.run_call(
                log,
                environment,
                number,
                call,
                lambda made: call_refusal(context, state, made),
                only_reads=turn.assigned.role != "worker",
            )


def call_refusal(context: TurnContext, state: SessionState, call: Call) -> str:
    """Return why the turn's role or agent must not make this call; "" when it may be judged like
    any other.
    """
    turn, environment = state.request.turns[-1], context.environment
    member = context.team.members[turn.assigned.agent]
    task = turn.assigned.subtask
    exists = call.tool in environment.toolbox
    if task is not None and exists and (refusal := harness.subtask_refusal(task, call.tool)):
        return refusal
    if refusal := harness.role_refusal(call, state, environment):
        return refusal
    if jobs := context.log.state.jobs:
        from fugu_cli.tools.job_tools import job_of_call

        job = job_of_call(call)
        if job in jobs and job not in visible_part(state).jobs:
            return (
                f"{job} was started in another step, which is not shown here. Start a job of your "
                f"own where you need one."
            )
    withheld = path_rules.call_refusal(
        context.log.events, member.name, call, environment.denials, environment.workspace.root
    )
    return f"{withheld}. {policy.GO_ON_WITHOUT}" if withheld else ""


async def _reply(context: TurnContext, state: SessionState, turn: Turn) -> None:
    """Ask the agent for one reply, or compact the conversation first if it does not fit.

    A failure after the agent's own retries, or a call that exceeds a budget, closes the turn; the
    coordinator then excludes the agent.
    """
    log, environment, name = context.log, context.environment, turn.assigned.agent
    member = context.team.members[name]
    await environment.toolbox.settled(lambda why: log.tell(Waiting(why=why)))
    visible = state
    if environment.denials:
        whole = path_rules.visible_state(log.state, name, environment.denials)
        visible = state_of_turn(whole, turn.number)
    user_messages = steering.due_messages(state)
    for message in user_messages:
        state, visible = state.followed_by(message), visible.followed_by(message)
    changed_mode = _changed_mode(state, turn, environment)
    if changed_mode is not None:
        state, visible = state.followed_by(changed_mode), visible.followed_by(changed_mode)
    turn = state.request.turns[-1]
    offered = harness.offered_tools(state, environment)
    prompt = harness.build_prompt(visible, member, offered, environment.instructions)
    allowed = harness.allowed_tools(turn, prompt.tools, environment)
    prompt = prompt.model_copy(update={"allowed_tools": allowed})
    if environment.client_channel is not None:
        prompt = environment.client_channel.render(prompt, state, turn)
    prompt = _with_effort(prompt, state, member)
    tokens = compaction.prompt_tokens(prompt)
    if compaction.is_due(state, prompt, member, tokens):
        is_given_away = False
        if compaction.is_thrashing(log.events, turn):
            is_given_away = _give_to_larger_agent(context, turn, member)
        if not is_given_away:
            await _compact(context, member, prompt)
        return
    prompt = compaction.within_window(prompt, member, tokens)
    limits = spending.budgets_of(environment.limits.budget)
    prompt = spending.within_budget(log.state, member, prompt, limits, context.reservations.total)
    if not await availability.may_call(
        log, turn.number, member, prompt, environment.limits.budget, context.reservations
    ):
        return
    for message in user_messages:
        log.append(message)
    if changed_mode is not None:
        log.append(changed_mode)
    await _call_model(context, state, turn, member, prompt)


def _changed_mode(state: SessionState, turn: Turn, environment: Environment) -> ModeGiven | None:
    """Return the permission mode if it is not the one that the turn's agent knows of."""
    mode, told = environment.current_rules.mode, steering.told_mode(state)
    if not told or mode == told:
        return None
    from fugu_cli.engine.session_rules import mode_rules  # few requests change it

    rules = mode_rules(environment, has_foreign_tools=environment.toolbox.may_have_foreign)
    return ModeGiven(turn=turn.number, agent=turn.assigned.agent, mode=mode, rules=rules)


def _with_effort(prompt: Prompt, state: SessionState, member: Member) -> Prompt:
    effort = state.request.effort_for(member)
    return prompt.model_copy(update={"effort": effort}) if effort else prompt


async def _call_model(
    context: TurnContext, state: SessionState, turn: Turn, member: Member, prompt: Prompt
) -> None:
    """Call the agent's model and record its reply or its failure."""
    log, name = context.log, member.name
    started = time.monotonic()
    call = _RunningCall(context, turn, member, prompt)
    try:
        agent = context.team.agents[name]
        if not turn.changes and not interrupted_calls(turn):
            agent = Retrying(Speaking(agent))  # an empty reply is an end only after changes
        whole_prompt = shown_media.loaded(prompt, partial(stored_media, log.path))
        reply = await agent.reply(whole_prompt, call, call.wait)
    except asyncio.CancelledError as cancelled:
        log.append(interrupted_event(turn.number, name, "".join(call.streamed), cancelled))
        raise
    except AgentError as error:
        context.reservations.reserve(turn.number, 0.0)
        smaller_member = compaction.with_shown_limit(state, prompt, member, error)
        if smaller_member is not None:
            await _compact(context, smaller_member, prompt)
        else:
            log.append(failed_event(turn.number, name, error))
        return
    finally:
        context.reservations.reserve(turn.number, 0.0)
    renamed = _with_our_tool_names(reply.calls, context.environment.toolbox)
    calls, thinking = with_call_ids(renamed, reply.thinking, _call_ids(renamed, turn))
    log.append(
        Replied(
            turn=turn.number,
            agent=name,
            text=reply.text,
            thinking=thinking,
            calls=calls,
            usage=reply.usage,
            model=reply.model or member.model,
            stop=reply.stop,
            seconds=reply.seconds or round(time.monotonic() - started, 3),
            response_id=reply.response_id,
            max_tokens=reply.max_tokens or prompt.max_tokens,
            refused=reply.refused,
        )
    )
    _fail_without_room(context, turn.number, member)


def _fail_without_room(context: TurnContext, number: int, member: Member) -> None:
    """Close the turn of an agent whose replies end before their first word, if there is no more
    room for them: another agent takes it. A client of an endpoint limits replies itself.
    """
    turn = state_of_turn(context.log.state, number).request.turns[-1]
    is_cut = turn.silent_cuts > 0 and not harness.has_more_room(turn, member)
    if not is_cut or context.environment.client_channel is not None or member.protocol != "native":
        return
    limit = turn.replies[-1].max_tokens
    message = f"its reply reached the limit of {limit:,} tokens before the first word"
    hint = "a lower reasoning effort leaves more of them for words"
    if member.max_tokens is not None:
        hint = "set `max_tokens` of its entry higher"
    context.log.append(
        Failed(
            turn=number,
            what=member.name,
            kind="invalid",
            message=f"{message}; {hint}",
            hint=hint,
        )
    )


class _RunningCall:
    """Listens to a running model call: passes streamed text and pauses on to the log's listeners,
    and reserves the money that the call may cost.
    """

    def __init__(self, context: TurnContext, turn: Turn, member: Member, prompt: Prompt) -> None:
        self._context = context
        self._turn = turn
        self._member = member
        self._prompt = prompt
        self._most = spending.worst_case_cost(member, prompt)
        self._pauses = availability.CallPauses(
            context.team, member.name, _others(context.log.state, turn)
        )
        self.streamed: list[str] = []
        context.reservations.reserve(turn.number, self._most)

    def __call__(self, text: str) -> None:
        self.streamed.append(text)
        self._context.log.tell(
            TextStreamed(turn=self._turn.number, agent=self._member.name, text=text)
        )

    def think(self, text: str) -> None:
        self._context.log.tell(
            ThoughtStreamed(turn=self._turn.number, agent=self._member.name, text=text)
        )

    def wait(self, pause: Pause) -> None:
        """Announce that the call waits or is tried again. Raises the call's error if a budget or
        the client forbids that, or if another agent is available sooner.
        """
        context, number = self._context, self._turn.number
        self._pauses.check(pause, context.log.state)
        lost = usd(pause.used, self._member.price)
        budget = context.environment.limits.budget
        reserved = context.reservations.of_other_turns(number) + lost
        availability.check_budget(context.log.state, self._member, self._prompt, budget, reserved)
        if context.environment.client_channel is not None:
            context.environment.client_channel.wait(self._turn)
        context.reservations.reserve(number, self._most + lost)
        self.streamed.clear()
        context.log.tell(availability.waiting_event(pause, number, self._member.name))


def _others(state: SessionState, turn: Turn) -> availability.OtherAgents:
    """Return which agents may take the turn from a waiting call.

    A step of a workflow goes to another agent only once, and a subtask only to the agent that its
    file names.
    """
    plan, step = turn.assigned.plan, turn.assigned.step
    if turn.assigned.by == BY_FILE:
        return "none"
    if not plan:
        return "soon"
    for earlier in state.request.turns:
        if (earlier.assigned.plan, earlier.assigned.step) == (plan, step) and earlier.failed:
            return "none"
    return "now"


def _give_to_larger_agent(context: TurnContext, turn: Turn, member: Member) -> bool:
    """Close the turn of an agent whose window is too small if one with a larger window can take
    the work, and return whether it was closed. Tells the user in either case.
    """
    excluded = context.team.excluded | context.log.state.request.failed_agents.keys()
    larger = [
        candidate.name
        for candidate in context.team.members.values()
        if candidate.context > member.context and candidate.name not in excluded
    ]
    why = (
        f"the work does not fit what it reads ({member.context:,} tokens): it was summed up "
        f"{compaction.MOST_IN_A_ROW} times in a row without a change"
    )
    if not larger or turn.assigned.subtask is not None:
        context.log.tell(Waiting(why=f"{member.name}: {why}", notice=True))
        return False
    message = f"{why}; {' or '.join(larger)} can read more"
    context.log.append(Failed(turn=turn.number, what=member.name, kind="invalid", message=message))
    return True


async def _compact(context: TurnContext, member: Member, conversation: Prompt) -> None:
    """Replace events that no longer fit into the agent's context by a summary, which the agent
    itself writes.
    """
    log, limits = context.log, context.environment.limits.budget
    upto = compaction.boundary(log.state, member)
    assert upto is not None
    hooks = context.environment.hooks
    if hooks is not None:
        objection = await hooks.compacting("auto", context.environment.workspace)
        if objection:
            why = f"a PreCompact hook objects ({objection}); what was said does not fit, so it is"
            log.tell(Waiting(why=f"{why} summed up"))

    def check_budget(prompt: Prompt, lost: float) -> None:
        reserved = context.reservations.total + lost
        availability.check_budget(log.state, member, prompt, limits, reserved)

    agent = context.team.agents[member.name]
    summarizer = compaction.Summarizer(member, agent, conversation, check_budget)
    window = context.team.members[member.name].context
    await compaction.compact(log, (summarizer,), upto, window)


def interrupted_event(
    turn: int, agent: str, partial: str, cancelled: asyncio.CancelledError
) -> Interrupted:
    """Return the event of a call that was cut off, with an estimate of what it used."""
    usage = noted_usage(cancelled) or Usage()
    paid_agent = agent if usage != Usage() else ""
    return Interrupted(turn=turn, partial=partial, agent=paid_agent, usage=usage)


def failed_event(turn: int, name: str, error: AgentError) -> Failed:
    """Return the event of an agent's failure, with what it used. The message does not repeat the
    agent's name, which is a field of the event.
    """
    message = str(error).removeprefix(f"{name}: ")
    if error.hint:
        separator = "." if error.hint[:1].isupper() else ";"
        message = f"{message.rstrip('.')}{separator} {error.hint}"
    return Failed(
        turn=turn,
        what=name,
        kind=error.kind,
        message=message,
        usage=error.usage or Usage(),
        unreachable=error.unreachable,
        hint=error.hint,
    )


def _with_our_tool_names(calls: Sequence[Call], toolbox: Toolbox) -> list[Call]:
    """Return the calls; one that names a tool as another agent program does names ours instead."""
    renamed = []
    for call in calls:
        if call.tool not in toolbox:
            call = call.model_copy(update={"tool": own_tool_name(call.tool)})
        renamed.append(call)
    return renamed


def _call_ids(calls: Sequence[Call], turn: Turn) -> list[str]:
    """Return ids of our own for these calls, because providers use an id more than once."""
    prefix = f"t{turn.number}-{len(turn.rolled_back)}"
    first = sum(len(reply.calls) for reply in turn.replies)
    return [f"{prefix}-{first + index}" for index in range(len(calls))]
