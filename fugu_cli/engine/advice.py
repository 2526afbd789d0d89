"""advise: an agent asks a stronger one, which reads the asker's conversation and answers in words.

The advisor has no tools, and its answer is the result of the call; what it costs stands there, too
(`ToolRan.paid`). Who may advise whom: advisors.py.
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
    Reply,
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

MOST_IN_A_TURN = 3
ADVICE_ROOM = 8192
"""Tokens of an advisor's reply: some 600 of them are the answer, the rest may be thought."""
LONGEST_REQUEST = 6_000
"""Characters of the request where the conversation no longer begins with it."""
GO_ON = "Go on without advice."
LEFT_OUT = (
    "[The beginning of the conversation is left out: it does not fit what you can read. The request "
    "was:]\n{request}"
)
_FRAMES = re.compile(r"<(\s*/?\s*(?:given|said|call|result|question)\b)", re.IGNORECASE)


class AdviseArguments(ToolArguments):
    """Arguments of advise."""

    question: str = Field(min_length=1)


async def _outside(arguments: AdviseArguments, workspace: Workspace, say: Say) -> ToolResult:
    return ToolResult(text="Only an agent's turn can ask for advice.", ok=False)


ADVISE_TOOL = Tool.of(ADVISE, AdviseArguments, _outside)
"""A turn replaces `run` for each of its calls."""


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
        lambda made: call_refusal(context, state, made),
    )


async def _advise(
    context: TurnContext,
    number: int,
    call: Call,
    arguments: AdviseArguments,
    workspace: Workspace,
    say: Say,
) -> ToolResult:
    """Return the advice, or why there is none."""
    log, environment, team = context.log, context.environment, context.team
    turn = log.state.request.turn(number)
    assert turn is not None
    asker = team.members[turn.assigned.agent]
    if _asked_before(turn, call) >= MOST_IN_A_TURN:
        text = f"You have asked {MOST_IN_A_TURN} times in this turn, which is the most. {GO_ON}"
        return ToolResult(text=text, ok=False)
    unavailable = team.breaker.unavailable() if team.breaker is not None else {}
    advisors = advisors_of(asker.name, log.state, environment)
    able = [name for name in advisors if name in team.agents and name not in unavailable]
    if not able:
        reasons = [f"{name}: {unavailable[name]}" for name in advisors if name in unavailable]
        text = f"Nobody can advise now ({'; '.join(reasons) or 'no agent is left'}). {GO_ON}"
        return ToolResult(text=text, ok=False)
    advisor = team.members[able[0]]
    prompt = _prompt(context, number, call, arguments.question, asker, advisor)
    limits = spending.budgets_of(environment.limits.budget)
    reserved = context.reserved.held
    prompt = spending.within_budget(log.state, advisor, prompt, limits, reserved)
    if refusal := spending.over_budget(log.state, advisor, prompt, limits, reserved):
        return ToolResult(text=f"{advisor.name} was not asked: {refusal}. {GO_ON}", ok=False)
    return await _ask(context, number, advisor, prompt, say)


def _asked_before(turn: Turn, call: Call) -> int:
    """Count the turn's earlier calls that were run, whatever came of them."""
    return sum(
        run.permitted.allowed
        and run.permitted.call.tool == ADVISE.name
        and run.permitted.call.id != call.id
        for run in turn.runs
    )


async def _ask(
    context: TurnContext, number: int, advisor: Member, prompt: Prompt, say: Say
) -> ToolResult:
    """Make the call. A failure is a result; what a cancelled call used is logged."""
    log, limits = context.log, context.environment.limits.budget
    pauses = availability.CallPauses(context.team, advisor.name, "none")
    most = spending.worst_case_cost(advisor, prompt)

    def wait(pause: Pause) -> None:
        pauses.check(pause, log.state)
        lost = usd(pause.used, advisor.price)
        reserved_by_others = context.reserved.beside(number)
        availability.check_budget(log.state, advisor, prompt, limits, reserved_by_others + lost)
        context.reserved.hold(number, most + lost)
        log.tell(availability.waiting_event(pause, number, advisor.name))

    context.reserved.hold(number, most)
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
        context.reserved.hold(number, 0.0)
    return _result(advisor, reply)


def _paid(advisor: Member, usage: Usage) -> PaidUse | None:
    return PaidUse(agent=advisor.name, usage=usage) if usage != Usage() else None


def _result(advisor: Member, reply: Reply) -> ToolResult:
    paid, answer = _paid(advisor, reply.usage), reply.text.strip()
    if reply.stop == "refusal":
        return ToolResult(text=f"{advisor.name} refused to answer. {GO_ON}", ok=False, paid=paid)
    if not answer:
        return ToolResult(text=f"{advisor.name} said nothing. {GO_ON}", ok=False, paid=paid)
    if reply.stop in ("length", "cut"):
        answer += "\n[The answer ends here: it was cut off.]"
    return ToolResult(text=f"{advisor.name} advises:\n{answer}", paid=paid)


def _prompt(
    context: TurnContext, number: int, call: Call, question: str, asker: Member, advisor: Member
) -> Prompt:
    """Return the asker's conversation as data, as much as the advisor can read, and the question.
    Asked again, it begins with the same messages.
    """
    log, environment = context.log, context.environment
    visible = path_rules.visible_state(log.state, asker.name, environment.denials)
    visible = state_of_turn(visible, number)
    turn = visible.request.turns[-1]
    conversation = [
        message
        for message in harness.build_prompt(visible, asker, (), environment.instructions).messages
        if not (isinstance(message, FromTool) and message.call == call.id)  # it is under way
    ]
    instructions = harness.told_instructions(turn, environment.instructions)
    prompt = Prompt(
        system=prompts.fill(prompts.load("advisor"), instructions=instructions).strip(),
        messages=(*conversation, FromUser(text=question)),
        max_tokens=min(ADVICE_ROOM, advisor.reply_room),
    )
    fitting = compaction.fit_window(prompt, advisor).messages[:-1]
    shown = list(_as_data(fitting))
    if len(fitting) < len(conversation):
        request = clip_middle(visible.request.whole_text, LONGEST_REQUEST)
        shown.insert(0, FromUser(text=LEFT_OUT.format(request=_escape(request))))
    shown.append(_framed("question", question))
    refused = log.state.refused_media(advisor.name)
    why = shown_media.why_not(vision=advisor.vision, documents=advisor.documents, refused=refused)
    return prompt.model_copy(update={"messages": shown_media.as_shown(shown, why)})


def _as_data(messages: Sequence[Message]) -> Iterator[FromUser]:
    """Yield the messages of a conversation, each part in its frame. Calls without a result are left
    out: the question is one, and others of the same reply have not been run yet.
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
                        yield _call_as_data(call)
            case _:
                assert_never(message)


def _call_as_data(call: Call) -> FromUser:
    arguments = arguments_of(call)
    if call.tool == ADVISE.name and isinstance(arguments, dict):
        return _framed("question", str(arguments.get("question", "")))
    return _framed("call", f"{call.tool} {call.arguments}")


def _framed(frame: str, text: str, media: tuple[Media, ...] = ()) -> FromUser:
    return FromUser(text=f"<{frame}>\n{_escape(text)}\n</{frame}>", media=media)


def _escape(text: str) -> str:
    return _FRAMES.sub(r"&lt;\1", text)
