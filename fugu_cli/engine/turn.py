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
from fugu_cli.session.events import Assigned, Failed, Interrupted, Member, Replied
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
    reserved: BudgetReservations = field(default_factory=BudgetReservations)


async def run_together(works: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run these side by side to their ends. Where one fails, or all are cut, the others are cut and
    waited for.
    """
    tasks = [asyncio.create_task(work) for work in works]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def state_of_turn(state: SessionState, number: int) -> SessionState:
    """Return the session as its turn `number` sees it: that turn is the newest."""
    turn = state.request.turn(number)
    apart = turn is not None and (turn.assigned.plan or turn.assigned.subtask)
    return state.of_turn(number) if apart else state


def next_step(place: TurnContext, number: int) -> NextStep:
    """Return the next step of the turn, `TurnClosed` when it is over."""
    state = state_of_turn(place.log.state, number)
    name = state.request.turns[-1].assigned.agent
    member = place.team.members.get(name) or state.pool[name]
    return harness.next_step(state, member, place.environment)


def over_budget_agents(place: TurnContext) -> dict[str, str]:
    """Agents whose next call no budget carries, with the reason, as far as it is known before a
    turn begins: that of a Worker, or of a step that reads no other. What the turn adds to its
    prompt counts when the call is due."""
    state, environment, found = place.log.state, place.environment, dict[str, str]()
    limits = spending.budgets_of(environment.limits.budget)
    if spending.remaining_budget(state, limits) is None:
        return found
    flows = state.request.workflows
    plan = (
        flows[-1].number if flows and all(one.assigned.plan for one in state.request.turns) else 0
    )
    for name, member in place.team.members.items():
        begun = Assigned(
            turn=action_space.next_turn_number(state), agent=name, role="worker", by="", plan=plan
        )
        visible = path_rules.visible_state(state.followed_by(begun), name, environment.denials)
        turn = visible.request.turns[-1]
        offered = harness.offered_tools(visible, environment)
        prompt = harness.build_prompt(visible, member, offered, environment.instructions)
        if environment.voice is not None:
            prompt = environment.voice.put(prompt, visible, turn)
        prompt = _with_effort(prompt, state, member)
        prompt = spending.within_budget(state, member, prompt, limits)
        shortens = compaction.is_due(visible, prompt, member)
        if (said := spending.over_budget(state, member, prompt, limits)) and not shortens:
            found[name] = said
    return found


async def do_step(place: TurnContext, number: int, step: NextStep) -> None:
    """Do one step and record it."""
    state = state_of_turn(place.log.state, number)
    now = state.request.turns[-1]
    if now.assigned.agent not in place.team.agents:
        place.log.append(
            Failed(turn=number, what=now.assigned.agent, kind="invalid", message=_GONE)
        )
        return
    if isinstance(step, RequestReply):
        await _reply(place, state, now)
        return
    from fugu_cli.engine import tool_calls  # not before the first reply is asked for

    log, environment = place.log, place.environment
    match step:
        case GatherEvidence(call):
            await tool_calls.run_evidence(log, environment, number, call)
        case RunCall(call):
            await tool_calls.run_call(
                log,
                environment,
                number,
                call,
                lambda made: call_refusal(place, state, made),
                only_reads=now.assigned.role != "worker",
            )


def call_refusal(place: TurnContext, state: SessionState, call: Call) -> str:
    """Why the turn's role or agent must not make this call; "" when it may be judged like any
    other.
    """
    now, environment = state.request.turns[-1], place.environment
    member = place.team.members[now.assigned.agent]
    task = now.assigned.subtask
    if (
        task is not None
        and call.tool in environment.toolbox
        and (barred := harness.subtask_refusal(task, call.tool))
    ):
        return barred
    if refused := harness.role_refusal(call, state, environment):
        return refused
    if jobs := place.log.state.jobs:
        from fugu_cli.tools.job_tools import job_of_call

        job = job_of_call(call)
        if job in jobs and job not in visible_part(state).jobs:
            return (
                f"{job} was started in another step, which is not shown here. Start a job of your "
                f"own where you need one."
            )
    withheld = path_rules.call_refusal(
        place.log.events, member.name, call, environment.denials, environment.workspace.root
    )
    return f"{withheld}. {policy.GO_ON_WITHOUT}" if withheld else ""


async def _reply(place: TurnContext, state: SessionState, now: Turn) -> None:
    """One model call. A failure after the agent's own retries, and a call that no budget carries,
    close the turn; the coordinator masks the agent."""
    log, environment, name = place.log, place.environment, now.assigned.agent
    member = place.team.members[name]
    await environment.toolbox.settled(lambda why: log.tell(Waiting(why=why)))
    visible = state
    if environment.denials:
        whole = path_rules.visible_state(log.state, name, environment.denials)
        visible = state_of_turn(whole, now.number)
    added = steering.due_messages(state)
    for message in added:
        state, visible = state.followed_by(message), visible.followed_by(message)
    now = state.request.turns[-1]
    offered = harness.offered_tools(state, environment)
    prompt = harness.build_prompt(visible, member, offered, environment.instructions)
    allowed = harness.allowed_tools(now, prompt.tools, environment)
    prompt = prompt.model_copy(update={"allowed_tools": allowed})
    if environment.voice is not None:
        prompt = environment.voice.put(prompt, state, now)
    prompt = _with_effort(prompt, state, member)
    if compaction.is_due(state, prompt, member):
        if compaction.is_thrashing(log.events, now) and _give_to_larger_agent(place, now, member):
            return
        await _compact(place, member, prompt)
        return
    limits = spending.budgets_of(environment.limits.budget)
    prompt = spending.within_budget(log.state, member, prompt, limits, place.reserved.held)
    if not await availability.may_call(
        log, now.number, (member, prompt), environment.limits.budget, place.reserved
    ):
        return
    for message in added:
        log.append(message)
    await _ask(place, state, (now, member), prompt)


def _with_effort(prompt: Prompt, state: SessionState, member: Member) -> Prompt:
    effort = state.request.effort_for(member)
    return prompt.model_copy(update={"effort": effort}) if effort else prompt


async def _ask(
    place: TurnContext, state: SessionState, who: tuple[Turn, Member], prompt: Prompt
) -> None:
    """Make the call and record its reply or its failure."""
    log, (now, member) = place.log, who
    name = member.name
    started = time.monotonic()
    call = _UnderWay(place, now, member, prompt)
    try:
        agent = place.team.agents[name]
        if not now.changes and not interrupted_calls(now):
            agent = Retrying(Speaking(agent))  # who changed something may end in silence
        reply = await agent.reply(
            shown_media.loaded(prompt, partial(stored_media, log.path)), call, call.wait
        )
    except asyncio.CancelledError as cancelled:
        log.append(interrupted_event(now.number, name, "".join(call.said), cancelled))
        raise
    except AgentError as error:
        place.reserved.hold(now.number, 0.0)
        shown = compaction.with_shown_limit(state, prompt, member, error)
        if shown is not None:
            await _compact(place, shown, prompt)
        else:
            log.append(failed_event(now.number, name, error))
        return
    finally:
        place.reserved.hold(now.number, 0.0)
    named = _by_our_names(reply.calls, place.environment.toolbox)
    calls, thinking = with_call_ids(named, reply.thinking, _call_ids(named, now))
    log.append(
        Replied(
            turn=now.number,
            agent=name,
            text=reply.text,
            thinking=thinking,
            calls=calls,
            usage=reply.usage,
            model=reply.model or member.model,
            stop=reply.stop,
            seconds=reply.seconds or round(time.monotonic() - started, 3),
            response_id=reply.response_id,
            max_tokens=prompt.max_tokens,
            refused=reply.refused,
        )
    )


class _UnderWay:
    """A turn's call while it is made: what it says and waits for is told, what it may cost is set
    aside.
    """

    def __init__(self, place: TurnContext, now: Turn, member: Member, prompt: Prompt) -> None:
        self._place = place
        self._now = now
        self._member = member
        self._prompt = prompt
        self._most = spending.worst_case_cost(member, prompt)
        self._pauses = availability.CallPauses(
            place.team, member.name, _others(place.log.state, now)
        )
        self.said: list[str] = []
        place.reserved.hold(now.number, self._most)

    def __call__(self, text: str) -> None:
        self.said.append(text)
        self._place.log.tell(
            TextStreamed(turn=self._now.number, agent=self._member.name, text=text)
        )

    def think(self, text: str) -> None:
        self._place.log.tell(
            ThoughtStreamed(turn=self._now.number, agent=self._member.name, text=text)
        )

    def wait(self, pause: Pause) -> None:
        """It waits, or is tried again, where no budget, no listener and no agent that is sooner
        there forbids it.
        """
        place, number = self._place, self._now.number
        self._pauses.check(pause, place.log.state)
        lost, budget = usd(pause.used, self._member.price), place.environment.limits.budget
        held = place.reserved.beside(number) + lost
        availability.check_budget(place.log.state, self._member, self._prompt, budget, held)
        if place.environment.voice is not None:
            place.environment.voice.wait(self._now)
        place.reserved.hold(number, self._most + lost)
        self.said.clear()
        place.log.tell(availability.waiting_event(pause, number, self._member.name))


def _others(state: SessionState, now: Turn) -> availability.OtherAgents:
    """Return which agents may take the turn from a waiting call.

    A step of a workflow goes to another agent only once, and a subtask only to the agent that its
    file names.
    """
    plan, step = now.assigned.plan, now.assigned.step
    if now.assigned.by == BY_FILE:
        return "none"
    if not plan:
        return "soon"
    tried = [
        turn
        for turn in state.request.turns
        if (turn.assigned.plan, turn.assigned.step) == (plan, step)
    ]
    return "none" if any(turn.failed for turn in tried) else "now"


def _give_to_larger_agent(place: TurnContext, turn: Turn, member: Member) -> bool:
    """Close the turn of an agent whose window is too small for the work, where one that reads more
    can take it; say so in either case.
    """
    excluded = place.log.state.request.failed_agents
    larger = [
        other.name
        for other in place.team.members.values()
        if other.context > member.context
        and other.name not in excluded
        and other.name not in place.team.never
    ]
    why = (
        f"the work does not fit what it reads ({member.context:,} tokens): it was summed up "
        f"{compaction.MOST_IN_A_ROW} times in a row without a change"
    )
    if not larger or turn.assigned.subtask is not None:
        place.log.tell(Waiting(why=f"{member.name}: {why}", notice=True))
        return False
    message = f"{why}; {' or '.join(larger)} can read more"
    place.log.append(Failed(turn=turn.number, what=member.name, kind="invalid", message=message))
    return True


async def _compact(place: TurnContext, member: Member, conversation: Prompt) -> None:
    """Sum up what no longer fits the agent whose turn it is; it writes the summary itself."""
    log, limits = place.log, place.environment.limits.budget
    upto = compaction.boundary(log.state, member)
    assert upto is not None
    if (hooks := place.environment.hooks) is not None and (
        why := await hooks.compacting("auto", place.environment.workspace)
    ):
        log.tell(
            Waiting(
                why=(
                    f"a PreCompact hook objects ({why}); what was said does not fit, so it is "
                    f"summed up"
                )
            )
        )
    scribe = compaction.Summarizer(
        member,
        place.team.agents[member.name],
        conversation,
        lambda prompt, lost: availability.check_budget(
            log.state, member, prompt, limits, place.reserved.held + lost
        ),
    )
    window = place.team.members[member.name].context
    await compaction.compact(log, (scribe,), upto, window)


def interrupted_event(
    turn: int, agent: str, partial: str, cancelled: asyncio.CancelledError
) -> Interrupted:
    """The fact that a call was cut off, with what it is estimated to have used."""
    usage = noted_usage(cancelled) or Usage()
    paid_agent = agent if usage != Usage() else ""
    return Interrupted(turn=turn, partial=partial, agent=paid_agent, usage=usage)


def failed_event(turn: int, name: str, error: AgentError) -> Failed:
    """The fact of an agent's failure, in words, with what it used. It names the agent, its words
    need not.
    """
    said = str(error).removeprefix(f"{name}: ")
    joint = "." if error.hint[:1].isupper() else ";"
    words = f"{said.rstrip('.')}{joint} {error.hint}" if error.hint else said
    return Failed(
        turn=turn,
        what=name,
        kind=error.kind,
        message=words,
        usage=error.usage or Usage(),
        unreachable=error.unreachable,
    )


def _by_our_names(calls: Sequence[Call], toolbox: Toolbox) -> list[Call]:
    renamed = []
    for call in calls:
        if call.tool not in toolbox:
            call = call.model_copy(update={"tool": own_tool_name(call.tool)})
        renamed.append(call)
    return renamed


def _call_ids(calls: Sequence[Call], turn: Turn) -> list[str]:
    """Our own ids: providers repeat theirs, and a result must find its one call."""
    earlier = sum(len(reply.calls) for reply in turn.replies)
    return [
        f"t{turn.number}-{len(turn.rolled_back)}-{earlier + index}" for index in range(len(calls))
    ]
