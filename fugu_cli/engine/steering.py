"""Messages and mode changes of the user during a request: selects those that a turn's next prompt
adds, and words them for the agent. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from fugu_cli import prompts
from fugu_cli.coordinators.conductor.step_context import visible_part
from fugu_cli.messages import FromUser
from fugu_cli.session.events import Event, ModeGiven, Replied, Steered, SteeringGiven
from fugu_cli.session.request_state import RequestState
from fugu_cli.session.state import SessionState
from fugu_cli.session.turns import Turn


def due_messages(state: SessionState) -> tuple[SteeringGiven, ...]:
    """Return the user's messages that the prompt of the newest turn does not show yet. A subtask
    gets none, because the turn that began it gets them.
    """
    if not state.request.steering:
        return ()
    turn = state.request.turns[-1]
    shown: set[int] = set()
    for earlier in visible_part(state).shown_requests[-1].turns:
        if _is_read_by(turn, earlier):
            messages = [event for event in earlier.events if isinstance(event, SteeringGiven)]
            shown.update(message.number for message in messages)
    return tuple(
        SteeringGiven(turn=turn.number, agent=turn.assigned.agent, number=number, message=message)
        for number, message in enumerate(state.request.steering, start=1)
        if number not in shown
    )


def _is_read_by(reader: Turn, turn: Turn) -> bool:
    """Return whether the reader's prompt has the turn word for word: its own turn, and others of
    its agent, but a Verifier reads no other turn, and its turn is read by no other.
    """
    if turn.number == reader.number:
        return True
    roles = (turn.assigned.role, reader.assigned.role)
    return turn.assigned.agent == reader.assigned.agent and "verifier" not in roles


def opens_reply(state: SessionState) -> bool:
    """Return whether the newest turn's agent, which has said its last word, is asked for one more
    reply because of a message from the user.

    For a workflow's step that is so only if the message came before the last word. Later messages
    go to the steps after it and to the planner.
    """
    due = due_messages(state)
    turn = state.request.turns[-1]
    if not due or not turn.assigned.plan:
        return bool(due)
    last_reply = turn.replies[-1]
    sent_before = 0
    for event in state.request.events:
        if event is last_reply:
            break
        sent_before += isinstance(event, Steered)
    return due[0].number <= sent_before


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
    """Return the messages and the changed mode that the turn's first prompt showed, "" for none."""
    texts = []
    messages = opening_messages(turn)
    if messages:
        text = "\n\n".join(message.whole for message in messages)
        texts.append(prompts.fill(prompts.load("steering_before"), message=text))
    first_reply = turn.replies[0] if turn.replies else None
    for event in turn.events:
        if event is first_reply:
            break
        texts += mode_texts([event])
    return "\n\n".join(texts)


def mode_texts(events: Sequence[Event]) -> list[str]:
    """Return what agents read of the changes of the mode among the events."""
    texts = []
    for event in events:
        if isinstance(event, ModeGiven):
            rules = "\n".join(f"{name}: {text}" for name, text in event.rules)
            texts.append(prompts.fill(prompts.load("mode_changed"), rules=rules))
    return texts


def told_mode(state: SessionState) -> str:
    """Return the permission mode that the newest turn's agent knows of, "" in older logs."""
    for event in reversed(state.request.turns[-1].events):
        if isinstance(event, ModeGiven):
            return event.mode
    asked = state.request.asked
    return asked.mode if asked is not None else ""


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
    """Return the messages that no agent read before the request was interrupted, "" for none. Those
    that come too late for a request that ended become the next request.
    """
    if request.finished is not None or not request.unread_steering:
        return ""
    text = "\n\n".join(message.whole for message in request.unread_steering)
    return prompts.fill(prompts.load("steering_unread"), message=text)
