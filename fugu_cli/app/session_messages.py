"""The messages between a running session and its followers, as JSON lines on its socket.

A follower reads the log from its file. The session tells it how long that file is, what is streamed
and never written, and which questions are open. The follower sends what its user does.
"""

from __future__ import annotations

import json
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, TypeAdapter
from pydantic_core import PydanticSerializationError

from fugu_cli.app.approval_options import ApprovalScope
from fugu_cli.config import Mode
from fugu_cli.messages import Call, Value
from fugu_cli.safety.policy import Judgement
from fugu_cli.session.live_events import Live

SendHow = Literal["steer", "queue", "at_once"]
"""The use of a text while a request is running: a message for the agents at work (steer), the next
request (queue), or a request that replaces the running one (at_once).
"""
LONGEST_TEXT = 1_000_000
"""Characters of a request or a message."""


class Hello(Value):
    """The first message of a session: its id, its log, and the version of fugu that runs it."""

    type: Literal["hello"] = "hello"
    session: str
    log: str
    version: str
    protocol: int


class Grown(Value):
    """The log has this many lines now."""

    type: Literal["grown"] = "grown"
    lines: int


class Told(Value):
    """Something that is never recorded: streamed text, a pause, output of a tool."""

    type: Literal["told"] = "told"
    item: Annotated[Live, Field(discriminator="type")]


class AskedCall(Value):
    """A call that needs an answer."""

    call: Call
    judgement: Judgement


class OpenQuestion(Value):
    """A question that waits for an answer (approval_questions.ApprovalQuestion)."""

    number: int
    asked: AskedCall
    before: int = 0
    after: tuple[AskedCall, ...] = ()


class Status(Value):
    """The state that the log does not hold: running work, settings, queue and open questions."""

    type: Literal["status"] = "status"
    running: bool
    stopping: bool
    mode: Mode
    tier: str
    pinned: str
    queued: tuple[str, ...]
    questions: tuple[OpenQuestion, ...]


class Refused(Value):
    """The session did not do what this follower asked for."""

    type: Literal["refused"] = "refused"
    why: str
    hint: str = ""


class Done(Value):
    """The session did what this follower asked for. `note`: a sentence about it, "" for none."""

    type: Literal["done"] = "done"
    note: str = ""


class Dropped(Value):
    """The session sends this follower nothing more. With `again` it may connect once more."""

    type: Literal["dropped"] = "dropped"
    why: str
    again: bool = False


SessionMessage = Annotated[
    Hello | Grown | Told | Status | Refused | Done | Dropped, Field(discriminator="type")
]


class Send(Value):
    """A text for the agents at work, or a request. `pin`: this agent alone."""

    type: Literal["send"] = "send"
    text: str = Field(max_length=LONGEST_TEXT)
    how: SendHow = "steer"
    pin: str = ""


class Answer(Value):
    """The answer to a question about the call with the id `call`: a resumed session counts its
    questions anew. `feedback`: the user's own words.
    """

    type: Literal["answer"] = "answer"
    question: int
    call: str
    scope: ApprovalScope
    feedback: str = Field("", max_length=LONGEST_TEXT)


class Interrupt(Value):
    """Interrupt the running work. `steering`: then go on at once with the messages that wait."""

    type: Literal["interrupt"] = "interrupt"
    steering: bool = False


class GoOn(Value):
    """Finish the request that was cut off, or run the queued ones."""

    type: Literal["go_on"] = "go_on"
    queued: bool = False


class ChangeMode(Value):
    """Change the permission mode."""

    type: Literal["change_mode"] = "change_mode"
    mode: Mode


Act = Annotated[Send | Answer | Interrupt | GoOn | ChangeMode, Field(discriminator="type")]

_BUILT_AT_FIRST_USE = ConfigDict(defer_build=True)
SESSION_MESSAGE: TypeAdapter[SessionMessage] = TypeAdapter(
    SessionMessage, config=_BUILT_AT_FIRST_USE
)
ACT: TypeAdapter[Act] = TypeAdapter(Act, config=_BUILT_AT_FIRST_USE)


def encode_message(message: Value) -> bytes:
    """Return the message as a line. Half a surrogate pair, which no line can hold, becomes `?`."""
    try:
        return message.model_dump_json().encode() + b"\n"
    except PydanticSerializationError:
        text = json.dumps(message.model_dump(), ensure_ascii=False)
        return text.encode("utf-8", "replace") + b"\n"
