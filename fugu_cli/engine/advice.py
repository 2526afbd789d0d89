"""advise: an agent asks a stronger one, which reads the asker's conversation and answers in words.

The advisor has no tools. Its answer is the result of the call, and what it cost is recorded with
that result (`ToolRan.paid`). advisors.py decides who may advise whom.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import assert_never

from pydantic import Field

from fugu_cli import prompts
from fugu_cli.coordinators.conductor.step_context import clip_middle
from fugu_cli.engine import availability, compaction, harness
from fugu_cli.engine.advisors import advisors_of
from fugu_cli.engine.turn import TurnContext, call_refusal, interrupted_event, state_of_turn
from fugu_cli.errors import AgentError
from fugu_cli.messages import (
    Call,
    FromAgent,
    FromTool,
    FromUser,
    Media,
    Message,
    PaidUse,
    Prompt,
    Usage,
)
from fugu_cli.providers import Pause, shown_media
from fugu_cli.safety import path_rules
from fugu_cli.session import spending
from fugu_cli.session.call_arguments import arguments_of
from fugu_cli.session.costs import usd
from fugu_cli.session.events import Member
from fugu_cli.session.log import stored_media
from fugu_cli.session.tool_facts import ADVISE
from fugu_cli.session.turns import Turn
from fugu_cli.tools.read_write import ToolArguments
from fugu_cli.tools.result import Say, ToolResult
from fugu_cli.tools.workspace import Tool, Workspace

MOST_CALLS_IN_TURN = 3
MOST_REPLY_TOKENS = 8192
"""Tokens of an advisor's reply: the answer takes some 600, the rest is for its thinking."""
LONGEST_SHOWN_REQUEST = 6_000
"""Characters of the request that are shown when the beginning of the conversation is left out."""
GO_ON = "Go on without advice."
BEGINNING_LEFT_OUT = (
    "[The beginning of the conversation is left out: it does not fit what you can read. The request "
    "was:]\n{request}"
)
_FRAME_TAG = re.compile(r"<(\s*/?\s*(?:given|said|call|result|question)\b)", re.IGNORECASE)


class AdviseArguments(ToolArguments):
    """Arguments of advise."""

    question: str = Field(min_length=1)


async def _refuse_outside_turn(
    arguments: AdviseArguments, workspace: Workspace, say: Say
) -> ToolResult:
    return ToolResult(text="Only an agent's turn can ask for advice.", ok=False)


ADVISE_TOOL = Tool.of(ADVISE, AdviseArguments, _refuse_outside_turn)
"""The tool as it is offered. `run_advice` replaces its function for each call."""


async def run_advice(context: TurnContext, number: int, call: Call) -> None:
    """Judge, run and record an `advise` call of turn `number`."""
    from fugu_cli.engine.tool_calls import run_call

    log, environment = context.log, context.environment
    tool = replace(environment.toolbox[ADVISE.name], run=partial(_advise, context, number, call))
    state = state_of_turn(log.state, number)
    await run_call(
        log,
        replace(environment, toolbox=environment.toolbox.replaced(tool)),
        number,
        call,
        partial(call_refusal, context, state),
    )


async def _advise(
    context: TurnContext,
    number: int,
    call: Call,
    arguments: AdviseArguments,
    workspace: Workspace,
    say: Say,
) -> ToolResult:
    """Return the advice, or a failed result that says why there is none."""
    log, environment, team = context.log, context.environment, context.team
    turn = log.state.request.turn(number)
    assert turn is not None
    asker = team.members[turn.assigned.agent]
    if _asked_before(turn, call) >= MOST_CALLS_IN_TURN:
        text = f"You have asked {MOST_CALLS_IN_TURN} times in this turn, which is the most. {GO_ON}"
        return ToolResult(text=text, ok=False)
    unavailable = team.breaker.unavailable() if team.breaker is not None else {}
    advisors = advisors_of(asker.name, log.state, environment)
    available = [name for name in advisors if name in team.agents and name not in unavailable]
    if not available:
        reasons = [f"{name}: {unavailable[name]}" for name in advisors if name in unavailable]
        why = "; ".join(reasons) or "no agent is left"
        text = f"Nobody can advise now ({why}). {GO_ON}"
        return ToolResult(text=text, ok=False)
    advisor = team.members[available[0]]
    # the arguments hold secrets in full again
    question = arguments.question if log.mask is None else log.mask.text(arguments.question)
    prompt = _prompt(context, number, call, question, asker, advisor)
    limits = spending.budgets_of(environment.limits.budget)
    reserved = context.reservations.total
    prompt = spending.within_budget(log.state, advisor, prompt, limits, reserved)
    if refusal := spending.over_budget(log.state, advisor, prompt, limits, reserved):
        return ToolResult(text=f"{advisor.name} was not asked: {refusal}. {GO_ON}", ok=False)
    return await _ask(context, number, advisor, prompt, say)


def _asked_before(turn: Turn, call: Call) -> int:
    """Count the turn's other calls that were permitted; those that failed count, too."""
    count = 0
    for run in turn.runs:
        earlier = run.permitted.call
        if run.permitted.allowed and earlier.tool == ADVISE.name and earlier.id != call.id:
            count += 1
    return count


async def _ask(
    context: TurnContext, number: int, advisor: Member, prompt: Prompt, say: Say
) -> ToolResult:
    """Ask the advisor. Its failure is a result; what a cancelled call has used is logged."""
    log, limits = context.log, context.environment.limits.budget
    pauses = availability.CallPauses(context.team, advisor.name, "none")
    worst_case = spending.worst_case_cost(advisor, prompt)

    def wait(pause: Pause) -> None:
        pauses.check(pause, log.state)
        failed_cost = usd(pause.used, advisor.price)
        reserved = context.reservations.of_other_turns(number) + failed_cost
        availability.check_budget(log.state, advisor, prompt, limits, reserved)
        context.reservations.reserve(number, worst_case + failed_cost)
        log.tell(availability.waiting_event(pause, number, advisor.name))

    context.reservations.reserve(number, worst_case)
    try:
        loaded = shown_media.loaded(prompt, partial(stored_media, log.path))
        reply = await context.team.agents[advisor.name].reply(loaded, say, wait)
    except asyncio.CancelledError as cancelled:
        log.append(interrupted_event(number, advisor.name, "", cancelled))
        raise
    except AgentError as error:
        failure = str(error).removeprefix(f"{advisor.name}: ").rstrip(".")
        text = f"{advisor.name} gave no advice: {failure}. {GO_ON}"
        return ToolResult(text=text, ok=False, paid=_paid(advisor, error.usage or Usage()))
    finally:
        context.reservations.reserve(number, 0.0)
    paid = _paid(advisor, reply.usage)
    answer = reply.text.strip()
    if reply.stop == "refusal":
        return ToolResult(text=f"{advisor.name} refused to answer. {GO_ON}", ok=False, paid=paid)
    if not answer:
        return ToolResult(text=f"{advisor.name} said nothing. {GO_ON}", ok=False, paid=paid)
    if reply.stop in ("length", "cut"):
        answer += "\n[The answer ends here: it was cut off.]"
    return ToolResult(text=f"{advisor.name} advises:\n{answer}", paid=paid)


def _paid(advisor: Member, usage: Usage) -> PaidUse | None:
    return PaidUse(agent=advisor.name, usage=usage) if usage != Usage() else None


def _prompt(
    context: TurnContext, number: int, call: Call, question: str, asker: Member, advisor: Member
) -> Prompt:
    """Return a prompt with the asker's conversation as data, as much of it as the advisor can read,
    and the question. The prompt of a later question begins with the same messages.
    """
    log, environment = context.log, context.environment
    visible = path_rules.visible_state(log.state, asker.name, environment.denials)
    visible = state_of_turn(visible, number)
    turn = visible.request.turns[-1]
    asker_prompt = harness.build_prompt(visible, asker, (), environment.instructions)
    conversation = [
        message
        for message in asker_prompt.messages
        if not (isinstance(message, FromTool) and message.call == call.id)  # it is under way
    ]
    instructions = harness.turn_instructions(turn, environment.instructions)
    prompt = Prompt(
        system=prompts.fill(prompts.load("advisor"), instructions=instructions).strip(),
        messages=(*conversation, FromUser(text=question)),
        max_tokens=min(MOST_REPLY_TOKENS, advisor.reply_room),
    )
    fitting_messages = compaction.fit_window(prompt, advisor).messages[:-1]
    shown = list(_as_data(fitting_messages))
    if len(fitting_messages) < len(conversation):
        request = clip_middle(visible.request.whole_text, LONGEST_SHOWN_REQUEST)
        shown.insert(0, FromUser(text=BEGINNING_LEFT_OUT.format(request=_escape(request))))
    shown.append(_framed("question", question))
    refused = log.state.refused_media(advisor.name)
    why_not_shown = shown_media.why_not(
        vision=advisor.vision, documents=advisor.documents, refused=refused
    )
    return prompt.model_copy(update={"messages": shown_media.as_shown(shown, why_not_shown)})


def _as_data(messages: Sequence[Message]) -> Iterator[FromUser]:
    """Yield each part of a conversation in a frame that says what it is. Calls without a result are
    left out: the call that asks the question, and later calls of the same reply.
    """
    answered = {message.call for message in messages if isinstance(message, FromTool)}
    for message in messages:
        match message:
            case FromUser():
                yield _framed("given", message.text, message.media)
            case FromTool():
                yield _framed("result", message.text, message.media)
            case FromAgent():
                if message.text.strip():
                    yield _framed("said", message.text)
                for call in message.calls:
                    if call.id in answered:
                        yield _framed_call(call)
            case _:
                assert_never(message)


def _framed_call(call: Call) -> FromUser:
    arguments = arguments_of(call)
    if call.tool == ADVISE.name and isinstance(arguments, dict):
        return _framed("question", str(arguments.get("question", "")))
    return _framed("call", f"{call.tool} {call.arguments}")


def _framed(frame: str, text: str, media: tuple[Media, ...] = ()) -> FromUser:
    return FromUser(text=f"<{frame}>\n{_escape(text)}\n</{frame}>", media=media)


def _escape(text: str) -> str:
    return _FRAME_TAG.sub(r"&lt;\1", text)
