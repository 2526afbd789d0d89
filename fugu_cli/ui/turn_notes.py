"""Lines about what others said in a turn: the user's words, answers and refusals, and advice."""

from __future__ import annotations

from fugu_cli.app.event_text import call_target, describe_call
from fugu_cli.formatting import first_line, sanitize, short_duration
from fugu_cli.session.call_arguments import arguments_of
from fugu_cli.session.events import SAID_NO, Event, Permitted, SteeringGiven, ToolRan
from fugu_cli.session.tool_facts import ADVISE, ASK_USER, USER_ANSWERS, facts_of

LONG_WAIT = 10.0
"""Seconds of waiting for the user from which they are said apart."""


def turn_note(event: Event) -> str:
    """Return the line about an event, "" for most."""
    match event:
        case SteeringGiven():
            return f"↳ you: {first_line(event.message.said, 200)}"
        case Permitted() if not event.allowed and event.by == "user":
            return _denial_text(event)
        case Permitted() if not event.allowed:
            return f"⊘ not allowed: {describe_call(event.call)}"
        case ToolRan() if event.call.tool == ADVISE.name:
            return advice_text(event)
        case ToolRan() if event.call.tool == ASK_USER.name and event.ok:
            return _answer_text(event)
        case _:
            return ""


def advice_text(event: ToolRan) -> str:
    """Return a line about an `advise` call: the advisor, the question, and a missing answer."""
    text = f"asked {sanitize(event.agent)}" if event.agent else "asked for advice"
    text += f": {first_line(call_target(event.call), 200)}"
    return text if event.ok else f"{text}; no advice"


def _denial_text(event: Permitted) -> str:
    """Return the user's words first: the call may be long."""
    call = describe_call(event.call)
    words = event.reason.removeprefix(SAID_NO).lstrip(": ")
    if not event.reason.startswith(SAID_NO) or not words:
        return f"⊘ you denied {call}"
    return f"⊘ you: {first_line(words, 120)} (denied: {call})"


def _answer_text(event: ToolRan) -> str:
    arguments = arguments_of(event.call)
    question = str(arguments.get("question", "")) if isinstance(arguments, dict) else ""
    return f"asked you: {first_line(question, 120)} → {user_answer(event)}"


def user_answer(event: ToolRan) -> str:
    """Return the user's answer to a question of an agent, `no answer` if there is none."""
    if not event.output.startswith(USER_ANSWERS):
        return "no answer"
    return first_line(event.output.removeprefix(USER_ANSWERS), 120)


def seconds_waited(event: Event) -> float:
    """Return the seconds for which the event says that the user was waited for."""
    match event:
        case Permitted():
            return event.waited
        case ToolRan() if facts_of(event.call.tool).asks_user:
            return event.seconds
        case _:
            return 0.0


def wait_text(seconds: float) -> str:
    """Return a text like `waited 31s for you`, "" for a short wait."""
    return f"waited {short_duration(seconds)} for you" if seconds >= LONG_WAIT else ""
