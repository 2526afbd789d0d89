"""The log as what an editor shows: for each item of it the session updates of the protocol.

Workers speak in messages; Thinkers, Verifiers and fugu itself (who was chosen, what failed, how it
ended) in thoughts. Between a session's log and its editor; sends nothing itself.
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
from fugu_cli.session import views
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
    ToolRan,
)
from fugu_cli.session.live_events import (
    Live,
    OutputStreamed,
    Retried,
    TextStreamed,
    ThoughtStreamed,
)
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
"""Characters of a running command's newest output that are shown."""
LINE = 400
"""Characters of a line of text."""
TITLE = 100


def thought(text: str, **said: object) -> AgentThoughtChunk:
    """A line of fugu's own; what it says to programs stands in `_meta`."""
    content = text_block(sanitize(text).strip() + "\n\n")
    return AgentThoughtChunk(
        session_update="agent_thought_chunk", content=content, field_meta=meta(said)
    )


def message(text: str, id: str | None = None) -> AgentMessageChunk:
    """What an agent says to the user, or a piece of it."""
    return AgentMessageChunk(
        session_update="agent_message_chunk", content=text_block(sanitize(text)), message_id=id
    )


def meta(said: dict[str, Any]) -> dict[str, Any] | None:
    """`_meta`, fugu's own under its name; None where there is nothing to say."""
    return {"fugu": said} if said else None


@dataclass
class ShownCall:
    """A call that the editor knows by `id`, and that has no result yet."""

    id: str
    turn: int | None
    """None: it is asked about, and its fact has not come."""
    call: Call
    output: str = ""


class ShownCalls:
    """The calls without a result that the editor knows. Providers number calls from the start in
    each turn; here each has an id of its own."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._calls: list[ShownCall] = []
        self._numbers = itertools.count(1)

    def asked_about(self, call: Call) -> ShownCall:
        """The call that is asked about; known to the editor from then on."""
        same = [one for one in self._calls if one.call == call] or [
            one for one in self._calls if one.call.id == call.id
        ]
        return same[0] if same else self._add(None, call)

    def find(self, turn: int, id: str) -> ShownCall | None:
        """The call of a turn."""
        return next(
            (one for one in self._calls if one.call.id == id and one.turn in (turn, None)), None
        )

    def begin(self, turn: int, call: Call) -> Update:
        """Tell the editor of a call."""
        return _starts(self._add(turn, call), self._root)

    def of_fact(self, turn: int, call: Call) -> tuple[ShownCall, list[Update]]:
        """The call of a fact, and what tells the editor of it where no reply has."""
        shown = self.find(turn, call.id)
        if shown is not None and shown.turn is not None:
            return shown, []
        shown = shown or self._add(turn, call)
        shown.turn = turn
        return shown, [_starts(shown, self._root)]

    def end(self, shown: ShownCall) -> None:
        """Its result has come."""
        self._calls.remove(shown)

    def end_all(self) -> list[ShownCall]:
        """No result comes any more."""
        calls, self._calls = self._calls, []
        return calls

    def _add(self, turn: int | None, call: Call) -> ShownCall:
        shown = ShownCall(f"call-{next(self._numbers)}", turn, call)
        self._calls.append(shown)
        return shown


def _starts(shown: ShownCall, root: Path) -> ToolCallStart:
    call = shown.call
    return ToolCallStart(
        session_update="tool_call",
        tool_call_id=shown.id,
        title=event_text.describe_call(call),
        kind=kind_of(call),
        status="pending",
        locations=locations_of(call, root) or None,
        raw_input=arguments_object(call),
    )


def _progress(
    shown: ShownCall, *, status: Any, content: Sequence[Content] | None = None
) -> ToolCallProgress:
    return ToolCallProgress(
        session_update="tool_call_update",
        tool_call_id=shown.id,
        status=status,
        content=list(content) if content else None,
    )


@dataclass
class Speech:
    """What a turn is saying in its open reply, and the ids of what it says and thinks; "" where it
    has not begun.
    """

    id: str = ""
    thoughts: str = ""
    said: list[str] = field(default_factory=list)


class LogUpdates:
    """The updates of one session's log. Items must come in the log's order."""

    def __init__(self, session: SessionProtocol, facts: Sequence[Event] = ()) -> None:
        """`facts` are known already: they send nothing."""
        self.calls = ShownCalls(session.environment.workspace.root)
        self._workspace = session.environment.workspace
        self._facts = list(facts)
        self._speeches: dict[int, Speech] = {}
        self._roles: dict[int, str] = {}
        self._ids = (f"message-{number}" for number in itertools.count(1))

    async def of(self, item: Recorded | Live, *, replayed: bool = False) -> list[Update]:
        """The updates of one item. `replayed`: the editor did not see it happen, and is told what
        the user said.
        """
        match item:
            case TextStreamed() | ThoughtStreamed():
                return self._streamed(item) if item.text else []
            case OutputStreamed():
                if (shown := self.calls.find(item.turn, item.call)) is None:
                    return []
                shown.output = (shown.output + item.text)[-LIVE_OUTPUT:]
                return [
                    _progress(
                        shown, status="in_progress", content=[text_content(shown.output, "console")]
                    )
                ]
            case Retried():
                self._speeches.pop(item.turn, None)
                return [thought(event_text.retry_text(item))]
            case Recorded():
                self._facts.append(item.event)
                told = await self._fact(item.event)
                if replayed and isinstance(item.event, Asked):
                    words = text_block(sanitize(item.event.said))
                    return [
                        UserMessageChunk(session_update="user_message_chunk", content=words),
                        *told,
                    ]
                return told
            case _:
                return [thought(line)] if (line := event_text.pause_text(item)) else []

    async def _fact(self, event: Event) -> list[Update]:
        match event:
            case Replied():
                return self._replied(event)
            case Permitted():
                return self._permitted(event)
            case ToolRan():
                return await self._ran(event)
            case Interrupted():
                return self._interrupted(event)
            case Finished():
                return self._finished(event)
            case Asked():
                self._roles.clear()
                known = any(isinstance(fact, Asked) for fact in self._facts[:-1])
                title = first_line(
                    event.said, TITLE
                )  # the session is called as lists call it: by its first request
                return (
                    []
                    if known
                    else [SessionInfoUpdate(session_update="session_info_update", title=title)]
                )
            case _:
                return self._decided(event)

    def _decided(self, event: Event) -> list[Update]:
        """Who acts, on which plan, and what else is a line of text."""
        match event:
            case Assigned():
                self._roles[event.turn] = _role_of(event)
                why = event_text.decision_why(
                    event, event_text.decision_reason(event, self._facts[:-1])
                )
                line = f"turn {event.turn}  {event.agent} as {event.role}  {why}"
                return [thought(line, routing=routing_object(event))]
            case Planned():
                return [thought(_drawn(event), plan=workflow_text.workflow_object(event))]
            case Opened():
                return []
            case _:
                line = _drawn(event)
                return [thought(line)] if line else []

    def _role(self, turn: int) -> str:
        if turn not in self._roles:
            found = views.turn_of(self._facts, turn)
            self._roles[turn] = _role_of(found.assigned) if found is not None else "worker"
        return self._roles[turn]

    def _streamed(self, item: TextStreamed | ThoughtStreamed) -> list[Update]:
        speech = self._speeches.setdefault(item.turn, Speech())
        if isinstance(item, ThoughtStreamed):
            speech.thoughts = speech.thoughts or next(self._ids)
            return [_thinks(item.text, speech.thoughts)]
        speech.id = speech.id or next(self._ids)
        speech.said.append(item.text)
        return [_speaks(self._role(item.turn), item.text, speech.id)]

    def _replied(self, event: Replied) -> list[Update]:
        """What was not said live, what was thought, the calls that come now, and what it took."""
        speech = self._speeches.pop(event.turn, Speech())
        said = "".join(speech.said)
        thinking = "\n".join(part.text for part in event.thinking if part.text.strip())
        found: list[Update] = [thought(thinking)] if thinking and not speech.thoughts else []
        goes_on = said and event.text.startswith(said)
        left, id = (
            (event.text[len(said) :], speech.id) if goes_on else (event.text, next(self._ids))
        )
        if left.strip():
            found.append(
                thought(left) if event.filled else _speaks(self._role(event.turn), left, id)
            )
        found += [self.calls.begin(event.turn, call) for call in event.calls]
        return [*found, *_usage(self._facts, event, self._role(event.turn))]

    def _permitted(self, event: Permitted) -> list[Update]:
        shown, found = self.calls.of_fact(event.turn, event.call)
        if event.allowed:
            return [*found, _progress(shown, status="in_progress")]
        self.calls.end(shown)
        content = [text_content(f"Not allowed: {event.reason}")]
        return [*found, _progress(shown, status="failed", content=content)]

    async def _ran(self, event: ToolRan) -> list[Update]:
        shown, found = self.calls.of_fact(event.turn, event.call)
        self.calls.end(shown)
        made = await changes_made(event, self._workspace)
        edits = kind_of(event.call) == "edit" and event.ok and made
        content = made if edits else [text_content(event.output, "console"), *made]
        ended = _progress(shown, status="completed" if event.ok else "failed", content=content)
        if event.changes:
            ended.locations = locations_of(event.call, self._workspace.root, event.changes)
        found.append(ended)
        if event.call.tool == views.TODO and event.ok:
            found.append(_plan(views.items_of(event.call)))
        return found

    def _interrupted(self, event: Interrupted) -> list[Update]:
        """What had been said stands there already, unless it is replayed. A subtask ends with its
        turn.
        """
        if self._role(event.turn) == SUBTASK:
            return []
        said = self._speeches.pop(event.turn, None)
        partial = [] if said is not None or not event.partial.strip() else [event.partial]
        found = [_speaks(self._role(event.turn), text, next(self._ids)) for text in partial]
        return [
            *found,
            *self._closed("interrupted"),
            thought("interrupted; /continue goes on, or ask something else"),
        ]

    def _finished(self, event: Finished) -> list[Update]:
        events = self._facts
        turn = views.answered_by(events)
        unsaid = (
            turn is not None
            and turn.assigned.role != "worker"
            and event.reason in ("accepted", "answered")
        )
        found: list[Update] = [message(views.answer(events), next(self._ids))] if unsaid else []
        line = event_text.end_text(events, event)
        return [
            *found,
            *self._closed("not run"),
            thought(line, end=event.model_dump(exclude={"type"})),
        ]

    def _closed(self, why: str) -> list[Update]:
        """Calls without a result end here."""
        self._speeches.clear()
        calls = self.calls.end_all()
        return [
            _progress(one, status="failed", content=[text_content(one.output or why)])
            for one in calls
        ]


def _drawn(event: Event) -> str:
    """What interfaces say of a fact that is no turn's, as text; "" where they say nothing."""
    from fugu_cli.ui.block_drawing import block_fragments
    from fugu_cli.ui.drawing import TERMINAL, plain_text
    from fugu_cli.ui.transcript import event_block

    block = event_block(event, (event,))
    pieces = block_fragments(block, unfolded=False) if block is not None else []
    return "\n".join(
        plain_text(line) for piece in pieces for line in piece.painted(LINE, TERMINAL)
    ).strip()


def _usage(events: Sequence[Event], event: Replied, role: str) -> list[Update]:
    """What the newest reply took of its agent's context, and the session's cost so far."""
    members = views.pool(events)
    if (member := members.get(event.agent)) is None:
        return []
    cost = Cost(amount=views.cost(events, members), currency="USD")
    said = {"agent": event.agent, "role": role, "model": event.model}
    return [
        UsageUpdate(
            session_update="usage_update",
            used=event.usage.input + event.usage.output,
            size=member.context,
            cost=None if views.unpriced(events, members) else cost,
            field_meta=meta({**said, "cost_usd": views.price(event, member)}),
        )
    ]


def _speaks(role: str, text: str, id: str) -> Update:
    """A piece of what a turn says: a message of a Worker, a thought of others."""
    return message(text, id) if role == "worker" else _thinks(text, id)


def _thinks(text: str, id: str) -> AgentThoughtChunk:
    return AgentThoughtChunk(
        session_update="agent_thought_chunk", content=text_block(sanitize(text)), message_id=id
    )


SUBTASK = "subtask"
"""In the place of a role: what a subtask says is for the agent that asked, not for the user."""


def _role_of(assigned: Assigned) -> str:
    return SUBTASK if assigned.subtask is not None else assigned.role


def _plan(items: Sequence[views.TodoItem]) -> AgentPlanUpdate:
    return update_plan(
        plan_entry(
            sanitize(item.text), status="completed" if item.status == "done" else item.status
        )
        for item in items
    )


def merged(items: Sequence[Recorded | Live]) -> list[Recorded | Live]:
    """Neighbouring pieces of one text joined: what waited is sent as one."""
    pieces = (TextStreamed, ThoughtStreamed, OutputStreamed)
    found: list[Recorded | Live] = []
    for item in items:
        last = found[-1] if found else None
        if (
            isinstance(item, pieces)
            and isinstance(last, pieces)
            and item == last.model_copy(update={"text": item.text})
        ):
            found[-1] = last.model_copy(update={"text": last.text + item.text})
        else:
            found.append(item)
    return found
