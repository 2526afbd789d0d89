"""Messages that the user sends while a request is being worked on: which of them a turn's next
prompt adds, and how they are worded. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from fugu_cli import prompts
from fugu_cli.coordinators.conductor.step_context import visible_part
from fugu_cli.messages import FromUser
from fugu_cli.session.events import Event, Replied, Steered, SteeringGiven
from fugu_cli.session.request_state import RequestState
from fugu_cli.session.state import SessionState
from fugu_cli.session.turns import Turn


def due_messages(state: SessionState) -> tuple[SteeringGiven, ...]:
    """Return the user's messages that the prompt of the newest turn does not show yet. A subtask
    gets none: the turn that began it does.
    """
    if not state.request.steering:
        return ()
    turn = state.request.turns[-1]
    shown = {
        event.number
        for read in visible_part(state).shown_requests[-1].turns
        if _is_read(read, turn)
        for event in read.events
        if isinstance(event, SteeringGiven)
    }
    return tuple(
        SteeringGiven(turn=turn.number, agent=turn.assigned.agent, number=number, message=message)
        for number, message in enumerate(state.request.steering, start=1)
        if number not in shown
    )


def _is_read(earlier: Turn, turn: Turn) -> bool:
    """Return whether the turn's agent reads this one word for word. A Verifier begins anew."""
    if earlier.number == turn.number:
        return True
    roles = (earlier.assigned.role, turn.assigned.role)
    return earlier.assigned.agent == turn.assigned.agent and "verifier" not in roles


def opens_reply(state: SessionState) -> bool:
    """Return whether the newest turn, whose agent has said its last word, is asked for one more
    reply. A workflow's step is if the message came before that word; later ones are for the steps
    after it and for the planner.
    """
    due = due_messages(state)
    turn = state.request.turns[-1]
    if not due or not turn.assigned.plan:
        return bool(due)
    newest = turn.replies[-1]
    earlier: list[Steered] = []
    for event in state.request.events:
        if event is newest:
            break
        if isinstance(event, Steered):
            earlier.append(event)
    return due[0].number <= len(earlier)


def opening_messages(turn: Turn) -> tuple[Steered, ...]:
    """Return the messages that the turn's first prompt showed."""
    messages = []
    for event in turn.events:
        if isinstance(event, Replied):
            break
        if isinstance(event, SteeringGiven):
            messages.append(event.message)
    return tuple(messages)


def opening_text(turn: Turn) -> str:
    """Return the messages that the turn's first prompt showed, "" for none."""
    messages = opening_messages(turn)
    if not messages:
        return ""
    text = "\n\n".join(message.whole for message in messages)
    return prompts.fill(prompts.load("steering_before"), message=text)


def later_messages(events: Sequence[Event], *, is_about_plan: bool = False) -> list[FromUser]:
    """Return the messages among the events that follow a reply, as the agent reads them.
    `is_about_plan`: the reply is a plan.
    """
    text = prompts.load("steering_plan" if is_about_plan else "steering")
    return [
        FromUser(text=prompts.fill(text, message=event.message.whole), media=event.message.media)
        for event in events
        if isinstance(event, SteeringGiven)
    ]


def unread_text(request: RequestState) -> str:
    """Return what the user wrote to a request that was interrupted before anybody read it. After a
    request's end it is the next request.
    """
    if request.finished is not None or not request.unread_steering:
        return ""
    text = "\n\n".join(message.whole for message in request.unread_steering)
    return prompts.fill(prompts.load("steering_unread"), message=text)
