"""Translates the log into what an editor shows: for each item, the protocol's session updates.

Workers speak in messages; Thinkers, Verifiers and fugu itself (who was chosen, what failed, how it
ended) in thoughts. Sends nothing itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acp.helpers import plan_entry, text_block, update_plan
from acp.schema import (
    AgentMessageChunk,
    AgentPlanUpdate,
    AgentThoughtChunk,
    AvailableCommandsUpdate,
    ConfigOptionUpdate,
    Cost,
    CurrentModeUpdate,
    SessionInfoUpdate,
    ToolCallProgress,
    ToolCallStart,
    UsageUpdate,
    UserMessageChunk,
)

from fugu_cli.acp.tool_content import Content, changes_made, kind_of, locations_of, text_content
from fugu_cli.app import event_text
from fugu_cli.formatting import first_line, sanitize
from fugu_cli.messages import Call
from fugu_cli.session import costs
from fugu_cli.session.costs import estimate_field
from fugu_cli.session.events import (
    Asked,
    Assigned,
    Event,
    Finished,
    Interrupted,
    Opened,
    Permitted,
    Planned,
    Recorded,
    Replied,
    Steered,
    SteeringGiven,
    ToolRan,
)
from fugu_cli.session.live_events import (
    Live,
    OutputStreamed,
    Retried,
    TextStreamed,
    ThoughtStreamed,
)
from fugu_cli.session.open_work import TODO, items_of
from fugu_cli.session.request_state import RequestState
from fugu_cli.session.state import SessionState
from fugu_cli.ui import workflow_text
from fugu_cli.ui.json_output import arguments_object, routing_object

if TYPE_CHECKING:
    from fugu_cli.app.session_protocol import SessionProtocol

Update = (
    AgentMessageChunk
    | AgentPlanUpdate
    | AgentThoughtChunk
    | AvailableCommandsUpdate
    | ConfigOptionUpdate
    | CurrentModeUpdate
    | SessionInfoUpdate
    | ToolCallProgress
    | ToolCallStart
    | UsageUpdate
    | UserMessageChunk
)
LIVE_OUTPUT = 8000
"""Characters of a running command's newest output that are sent."""
LINE = 400
"""Characters of a line of text."""
TITLE = 100


def thought(text: str, **fields: object) -> AgentThoughtChunk:
    """Return a line of fugu's own. `fields` are metadata of the update, for programs."""
    content = text_block(sanitize(text).strip() + "\n\n")
    return AgentThoughtChunk(
        session_update="agent_thought_chunk", content=content, field_meta=meta(fields)
    )


def message(text: str, id: str | None = None) -> AgentMessageChunk:
    """Return an agent's text for the user, or a piece of it."""
    return AgentMessageChunk(
        session_update="agent_message_chunk", content=text_block(sanitize(text)), message_id=id
    )


def meta(fields: dict[str, Any]) -> dict[str, Any] | None:
    """Return fugu's own fields as the metadata of an update, None if there are none."""
    return {"fugu": fields} if fields else None


@dataclass
class ShownCall:
    """A call that the editor knows by `id`, and that has no result yet."""

    id: str
    turn: int | None
    """None while permission is asked and the call is not in the log yet."""
    call: Call
    output: str = ""


class ShownCalls:
    """The calls without a result that the editor shows.

    Each has an id of its own, since providers number calls anew in each turn.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._calls: list[ShownCall] = []
        self._numbers = itertools.count(1)

    def asked_about(self, call: Call) -> ShownCall:
        """Return the call for which permission is asked, added if the editor does not show it yet."""
        for shown in self._calls:
            if shown.call == call:
                return shown
        for shown in self._calls:
            if shown.call.id == call.id:
                return shown
        return self._add(None, call)

    def find(self, turn: int, id: str) -> ShownCall | None:
        """Return the call with this id in a turn."""
        for shown in self._calls:
            if shown.call.id == id and shown.turn in (turn, None):
                return shown
        return None

    def begin(self, turn: int, call: Call) -> Update:
        """Add a call, and return the update that shows it."""
        return _start_update(self._add(turn, call), self._root)

    def find_or_begin(self, turn: int, call: Call) -> tuple[ShownCall, list[Update]]:
        """Return the call of an event, and the update that shows it unless its reply did."""
        shown = self.find(turn, call.id)
        if shown is not None and shown.turn is not None:
            return shown, []
        shown = shown or self._add(turn, call)
        shown.turn = turn
        return shown, [_start_update(shown, self._root)]

    def end(self, shown: ShownCall) -> None:
        """Remove a call that has its result."""
        self._calls.remove(shown)

    def ended(self, shown: ShownCall) -> Update:
        """Remove a call that has no event, and return the update that ends it."""
        self._calls.remove(shown)
        return _progress_update(shown, status="completed")

    def end_all(self) -> list[ShownCall]:
        """Remove and return all calls: no more results will come."""
        calls, self._calls = self._calls, []
        return calls

    def _add(self, turn: int | None, call: Call) -> ShownCall:
        shown = ShownCall(f"call-{next(self._numbers)}", turn, call)
        self._calls.append(shown)
        return shown


def _start_update(shown: ShownCall, root: Path) -> ToolCallStart:
    call = shown.call
    return ToolCallStart(
        session_update="tool_call",
        tool_call_id=shown.id,
        title=event_text.describe_call(call, str(root)),
        kind=kind_of(call),
        status="pending",
        locations=locations_of(call, root) or None,
        raw_input=arguments_object(call),
    )


def _progress_update(
    shown: ShownCall, *, status: Any, content: Sequence[Content] | None = None
) -> ToolCallProgress:
    return ToolCallProgress(
        session_update="tool_call_update",
        tool_call_id=shown.id,
        status=status,
        content=list(content) if content else None,
    )


@dataclass
class OpenReply:
    """The streamed text of a turn's open reply, and the ids of its messages; "" before the first."""

    message_id: str = ""
    thought_id: str = ""
    texts: list[str] = field(default_factory=list)


class LogUpdates:
    """The updates of one session's log. Items must come in the log's order."""

    def __init__(self, session: SessionProtocol, events: Sequence[Event] = ()) -> None:
        """`events` are already known to the editor and send no updates."""
        self.calls = ShownCalls(session.environment.workspace.root)
        self._workspace = session.environment.workspace
        self._state = SessionState(events)
        self._open_replies: dict[int, OpenReply] = {}
        self._roles: dict[int, str] = {}
        self._ids = (f"message-{number}" for number in itertools.count(1))

    async def of(self, item: Recorded | Live, *, replayed: bool = False) -> list[Update]:
        """Return the updates of one item. With `replayed`, requests of the user are sent as well."""
        match item:
            case TextStreamed() | ThoughtStreamed():
                return self._streamed(item) if item.text else []
            case OutputStreamed():
                shown = self.calls.find(item.turn, item.call)
                if shown is None:
                    return []
                shown.output = (shown.output + item.text)[-LIVE_OUTPUT:]
                content = [text_content(shown.output, "console")]
                return [_progress_update(shown, status="in_progress", content=content)]
            case Retried():
                self._open_replies.pop(item.turn, None)
                return [thought(event_text.pause_text(item))]
            case Recorded(event=event):
                self._state.add(event)
                updates = await self._event_updates(event)
                if replayed and isinstance(event, Asked | Steered):
                    text = text_block(sanitize(event.said))
                    request = UserMessageChunk(session_update="user_message_chunk", content=text)
                    return [request, *updates]
                return updates
            case _:
                line = event_text.pause_text(item)
                return [thought(line)] if line else []

    async def _event_updates(self, event: Event) -> list[Update]:
        match event:
            case Replied():
                return self._replied(event)
            case Permitted():
                shown, updates = self.calls.find_or_begin(event.turn, event.call)
                if event.allowed:
                    return [*updates, _progress_update(shown, status="in_progress")]
                self.calls.end(shown)
                content = [text_content(f"Not allowed: {event.reason}")]
                return [*updates, _progress_update(shown, status="failed", content=content)]
            case ToolRan():
                return await self._ran(event)
            case Interrupted():
                return self._interrupted(event)
            case Finished():
                return self._finished(event)
            case Asked():
                self._roles.clear()
                if len(self._state.requests) > 1:
                    return []
                title = first_line(event.said, TITLE)  # a session's title is its first request
                return [SessionInfoUpdate(session_update="session_info_update", title=title)]
            case _:
                return self._decided(event)

    def _decided(self, event: Event) -> list[Update]:
        """Return the updates of a decision, of a plan, or of an event that is shown as a line of
        text.
        """
        match event:
            case Assigned():
                self._roles[event.turn] = _role_of(event)
                reason = event_text.decision_reason(event, self._state.events[:-1])
                explanation = event_text.decision_why(event, reason)
                line = f"turn {event.turn}  {event.agent} as {event.role}  {explanation}"
                return [thought(line, routing=routing_object(event))]
            case Planned():
                return [thought(_block_text(event), plan=workflow_text.workflow_object(event))]
            case SteeringGiven():
                request = self._state.request
                deliveries = [item for item in request.events if isinstance(item, SteeringGiven)]
                if any(delivery.number == event.number for delivery in deliveries[:-1]):
                    return []
                is_with_result = event_text.is_given_with_result(event, request)
                how = " with the next result" if is_with_result else ""
                return [thought(f"↳ given to {event.agent}{how}: {event.message.said}")]
            case Opened():
                return []
            case _:
                line = _block_text(event)
                return [thought(line)] if line else []

    def _role(self, turn: int) -> str:
        if turn not in self._roles:
            view = self._state.request.turn(turn)
            self._roles[turn] = _role_of(view.assigned) if view is not None else "worker"
        return self._roles[turn]

    def _streamed(self, item: TextStreamed | ThoughtStreamed) -> list[Update]:
        reply = self._open_replies.setdefault(item.turn, OpenReply())
        if isinstance(item, ThoughtStreamed):
            reply.thought_id = reply.thought_id or next(self._ids)
            return [_reasoning_chunk(item.text, reply.thought_id)]
        reply.message_id = reply.message_id or next(self._ids)
        reply.texts.append(item.text)
        return [_text_chunk(self._role(item.turn), item.text, reply.message_id)]

    def _replied(self, event: Replied) -> list[Update]:
        """Return the text and reasoning that were not streamed, the new calls, and the usage."""
        reply = self._open_replies.pop(event.turn, OpenReply())
        role = self._role(event.turn)
        updates: list[Update] = []
        reasoning = "\n".join(part.text for part in event.thinking if part.text.strip())
        if reasoning and not reply.thought_id:
            updates.append(thought(reasoning))
        streamed = "".join(reply.texts)
        if streamed and event.text.startswith(streamed):
            rest, id = event.text[len(streamed) :], reply.message_id
        else:
            rest, id = event.text, next(self._ids)
        if rest.strip():
            updates.append(_text_chunk(role, rest, id))
        updates += [self.calls.begin(event.turn, call) for call in event.calls]
        return [*updates, *_usage(self._state, event, role)]

    async def _ran(self, event: ToolRan) -> list[Update]:
        shown, updates = self.calls.find_or_begin(event.turn, event.call)
        self.calls.end(shown)
        changes = await changes_made(event, self._workspace)
        if kind_of(event.call) == "edit" and event.ok and changes:
            content = changes
        else:
            content = [text_content(event.output, "console"), *changes]
        status = "completed" if event.ok else "failed"
        result = _progress_update(shown, status=status, content=content)
        if event.changes:
            result.locations = locations_of(event.call, self._workspace.root, event.changes)
        updates.append(result)
        if event.call.tool == TODO and event.ok:
            entries = []
            for item in items_of(event.call):
                item_status = "completed" if item.status == "done" else item.status
                entries.append(plan_entry(sanitize(item.text), status=item_status))
            updates.append(update_plan(entries))
        return updates

    def _interrupted(self, event: Interrupted) -> list[Update]:
        role = self._role(event.turn)
        if role == SUBTASK:  # it ends with the turn that began it
            return []
        updates: list[Update] = []
        was_streamed = self._open_replies.pop(event.turn, None) is not None
        if event.partial.strip() and not was_streamed:
            updates.append(_text_chunk(role, event.partial, next(self._ids)))
        updates += self._end_calls("interrupted")
        updates.append(thought("interrupted; /continue goes on, or ask something else"))
        return updates

    def _finished(self, event: Finished) -> list[Update]:
        updates: list[Update] = []
        turn = self._state.request.answered_by
        is_answered = event.reason in ("accepted", "answered")
        if is_answered and turn is not None and turn.assigned.role != "worker":
            updates.append(message(self._state.request.answer, next(self._ids)))
        updates += self._end_calls("not run")
        line = event_text.end_text(self._state.request, event)
        updates.append(thought(line, end=event.model_dump(exclude={"type"})))
        return updates

    def _end_calls(self, reason: str) -> list[Update]:
        """End the calls without a result, and return the updates that show it."""
        self._open_replies.clear()
        updates: list[Update] = []
        for shown in self.calls.end_all():
            content = [text_content(shown.output or reason)]
            updates.append(_progress_update(shown, status="failed", content=content))
        return updates


def _block_text(event: Event) -> str:
    """Return the text of an event that belongs to no turn, as the interfaces show it; "" if they do
    not show it.
    """
    from fugu_cli.ui.block_drawing import block_fragments
    from fugu_cli.ui.drawing import TERMINAL, plain_text
    from fugu_cli.ui.transcript import event_block

    block = event_block(event, RequestState([event]))
    fragments = block_fragments(block, unfolded=False) if block is not None else []
    lines: list[str] = []
    for fragment in fragments:
        lines += map(plain_text, fragment.painted(LINE, TERMINAL))
    return "\n".join(lines).strip()


def _usage(state: SessionState, event: Replied, role: str) -> list[Update]:
    """Return how much of its context the agent's newest reply took, and the session's cost so far."""
    member = state.pool.get(event.agent)
    if member is None:
        return []
    fields = {
        "agent": event.agent,
        "role": role,
        "model": event.model,
        "cost_usd": costs.price(event, member),
        **estimate_field([event], state.pool),
    }
    update = UsageUpdate(
        session_update="usage_update",
        used=event.usage.input + event.usage.output,
        size=member.context,
        cost=None if state.unpriced else Cost(amount=state.cost, currency="USD"),
        field_meta=meta(fields),
    )
    return [update]


def _text_chunk(role: str, text: str, id: str) -> Update:
    """Return a piece of a turn's text: a message of a Worker, a thought of other roles."""
    return message(text, id) if role == "worker" else _reasoning_chunk(text, id)


def _reasoning_chunk(text: str, id: str) -> AgentThoughtChunk:
    return AgentThoughtChunk(
        session_update="agent_thought_chunk", content=text_block(sanitize(text)), message_id=id
    )


SUBTASK = "subtask"
"""Stands in place of a role: a subtask's text is for the agent that began it, not for the user."""


def _role_of(assigned: Assigned) -> str:
    return SUBTASK if assigned.subtask is not None else assigned.role


def merged(items: Sequence[Recorded | Live]) -> list[Recorded | Live]:
    """Join neighbouring pieces of the same text, so that pieces that wait are sent together."""
    pieces = (TextStreamed, ThoughtStreamed, OutputStreamed)
    result: list[Recorded | Live] = []
    for item in items:
        last = result[-1] if result else None
        if isinstance(item, pieces) and isinstance(last, pieces):
            continues = item == last.model_copy(update={"text": item.text})
            if continues:
                result[-1] = last.model_copy(update={"text": last.text + item.text})
                continue
        result.append(item)
    return result
