"""The messages a request carries -> facts of a log, so that whatever decides over sessions decides over them.

Pure. Each thing the user said that no call waited for is a request of its own; what the client's tools returned are
facts of the turn whose agent called them. Authors are known where the endpoint itself gave the calls their ids.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fugu_cli import prompts
from fugu_cli.events import CLIENT, Asked, Assigned, Event, Finished, Permitted, Replied, ToolRan
from fugu_cli.messages import Call, FromAgent, FromTool, FromUser, Message, Thinking

UNKNOWN = "earlier"
"""The author of a reply that did not come from this endpoint."""


@dataclass(frozen=True)
class Author:
    """Who made a call: the agent, what it had thought, and the trace that holds the decision."""

    agent: str
    thinking: tuple[Thinking, ...] = ()
    trace: str = ""


Recall = Callable[[str], Author | None]
"""The author of the call with this id."""


def author_of(message: FromAgent, recall: Recall) -> Author | None:
    """Who wrote an earlier reply, told by the ids of its calls."""
    found = (recall(call.id) for call in message.calls)
    return next((author for author in found if author is not None), None)


def attributed(messages: Sequence[Message], recall: Recall) -> tuple[Message, ...]:
    """The messages with their authors, and each author's own thinking back in its place."""
    return tuple(_attributed(message, recall) if isinstance(message, FromAgent) else message for message in messages)


def _attributed(message: FromAgent, recall: Recall) -> FromAgent:
    author = author_of(message, recall)
    update = {"agent": author.agent, "thinking": author.thinking} if author else {"agent": UNKNOWN}
    return message.model_copy(update=update)


def facts(messages: Sequence[Message], *, whole: bool = False) -> list[Event]:
    """The conversation as a log would hold it; its newest request is open. Where a reply is the last that was said, the
    client wants it to go on: that is a request of its own. `whole`: prompts are made of these facts alone, so what the
    user said beside results is a request, too."""
    told = _Telling(whole=whole)
    for message in messages:
        told.take(message)
    told.settle()
    return [*told.events, *anew(messages)] if messages and isinstance(messages[-1], FromAgent) else told.events


def anew(messages: Sequence[Message]) -> list[Event]:
    """The turn that the client brought along is over, and whoever comes next is asked: for the rest of the reply that
    was the last, or, where results were, once more for what they are of."""
    said = (message.text for message in reversed(messages) if isinstance(message, FromUser) and message.text.strip())
    again = "" if isinstance(messages[-1], FromAgent) else next(said, "")
    return [Finished(reason="answered"), Asked(text=again or prompts.load("serve/go_on"))]


class _Telling:
    """Messages in, facts out, one after the other."""

    def __init__(self, *, whole: bool) -> None:
        self.events: list[Event] = []
        self._whole = whole
        self._beside: list[str] = []
        """What the user said beside the results of the turn that is open."""
        self._turn = 0
        self._calls: dict[str, Call] = {}
        self._in_turn = False
        """An agent's calls wait for results: what the user says now belongs to the same request."""

    def take(self, message: Message) -> None:
        match message:
            case FromUser():
                self._user(message)
            case FromAgent():
                self._agent(message)
            case FromTool():
                self._result(message)

    def _user(self, message: FromUser) -> None:
        last = self.events[-1] if self.events else None
        if isinstance(last, Asked):
            self.events[-1] = Asked(text=f"{last.text}\n\n{message.text}")
            return
        if self._in_turn:  # part of the turn, and in a prompt made of the messages themselves
            self._beside.append(message.text)
            return
        self._ask(message.text)

    def _ask(self, text: str) -> None:
        if self.events:
            self.events.append(Finished(reason="answered"))
        self._turn = 0
        self.events.append(Asked(text=text))

    def settle(self) -> None:
        """The results that stand in a row have all come."""
        said = "\n\n".join(text for text in self._beside if text.strip())
        self._beside = []
        if self._whole and said:
            self._ask(said)
            self._in_turn = False

    def _agent(self, message: FromAgent) -> None:
        self.settle()
        if not self.events:
            self.events.append(Asked(text=""))
        if not self._in_turn:
            self._turn += 1
            name = message.agent or UNKNOWN
            self.events.append(Assigned(turn=self._turn, agent=name, role="worker", by=CLIENT))
        self._in_turn = bool(message.calls)
        self._calls = {call.id: call for call in message.calls}
        self.events.append(
            Replied(
                turn=self._turn,
                agent=message.agent or UNKNOWN,
                text=message.text,
                calls=message.calls,
                stop="calls" if message.calls else "end",
            )
        )

    def _result(self, message: FromTool) -> None:
        call = self._calls.get(message.call) or Call(id=message.call, tool=message.tool)
        if not self.events:
            self.events.append(Asked(text=""))
        self.events.append(Permitted(turn=self._turn, call=call, allowed=True, by=CLIENT))
        self.events.append(ToolRan(turn=self._turn, call=call, output=message.text, ok=message.ok))
