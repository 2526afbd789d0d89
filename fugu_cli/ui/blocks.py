"""The blocks of a conversation: values, made by transcript.py and drawn by block_drawing.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from fugu_cli.app.event_text import call_target, file_notes
from fugu_cli.messages import Call
from fugu_cli.session.checks import RUN_CHECK
from fugu_cli.session.events import (
    EVIDENCE,
    Assigned,
    Finished,
    Opened,
    Permitted,
    Planned,
    ToolRan,
)
from fugu_cli.session.outcome import RUN_TESTS, TESTS_BEFORE, TestOutcome
from fugu_cli.session.tool_facts import facts_of
from fugu_cli.session.verdicts import EndLine
from fugu_cli.ui.markdown_chunks import MarkdownChunker

if TYPE_CHECKING:
    from fugu_cli.ui.first_screen import FirstScreen

DIFF = "diff"
CHECKS = frozenset({RUN_TESTS, TESTS_BEFORE, RUN_CHECK, DIFF})
"""Tools whose calls by fugu are checks."""
GroupKind = Literal["", "explored", "checks"]
Judged = Literal["", "first", "later"]
"""A piece of a reply in which no verdict is drawn; a Verifier's first piece, and its later ones."""
Tone = Literal["plain", "dim", "good", "bad", "warn"]


@dataclass(frozen=True)
class RequestBlock:
    """A request of the user, or a message to a running one. `given_to` is the agent that was given
    the message; `with_result`: together with the result of its call.
    """

    text: str
    attachments: tuple[str, ...] = ()
    given_to: str = ""
    with_result: bool = False


@dataclass(frozen=True)
class DecisionBlock:
    """A decision: who acts now, and the reason that is given."""

    assigned: Assigned
    reason: str = ""
    unavailable: str = ""
    """Agents that could not act, in words."""


@dataclass
class ReplyBlock:
    """A reply of an agent. It grows while it is streamed; `chunker` splits it into chunks."""

    agent: str
    texts: list[str] = field(default_factory=list)
    chunker: MarkdownChunker = field(default_factory=MarkdownChunker)
    live: bool = True
    verifies: bool = False
    """By a Verifier: its verdict is drawn as a mark."""

    def judged(self, chunk: int) -> Judged:
        """Return how to look for a verdict in a chunk."""
        if not self.verifies:
            return ""
        return "later" if chunk else "first"

    def add(self, text: str) -> None:
        """Add more text."""
        self.texts.append(text)
        self.chunker.feed(text)


@dataclass(frozen=True)
class ThinkingBlock:
    """An agent's thinking, placed before every reply; "" if there is none."""

    text: str


@dataclass(frozen=True)
class ToolBlock:
    """A call that was judged, runs or has ended. `live` is the newest output of a running call,
    `patch` the diff of its changes, and `inside` the words and calls of the subtask that it began.
    """

    call: Call
    permitted: Permitted
    root: str = ""
    """The repository of the session."""
    result: ToolRan | None = None
    live: str = ""
    cut: bool = False
    patch: str = ""
    inside: str = ""
    tests: TestOutcome | None = None
    """The outcome, if it ran tests."""
    failed_before: str = ""
    """The number of tests that failed before the request, as `2 failed before`; "" if unknown."""
    group: int = field(default=0, compare=False)
    """Neighbours with the same number may share a line (call_groups.py)."""

    @property
    def evidence(self) -> bool:
        """True if fugu itself made the call."""
        return self.permitted.by == EVIDENCE

    @cached_property
    def target(self) -> str:
        """The argument that people would name, with a path as it is below the repository."""
        return call_target(self.call, self.root)

    @cached_property
    def group_kind(self) -> GroupKind:
        """The kind of calls with which this one can share a line, "" if it has a line to itself."""
        if not self.permitted.allowed or self.cut:
            return ""
        if self.evidence:
            return "checks" if self.call.tool in CHECKS else ""
        if not facts_of(self.call.tool).reads_files:
            return ""
        result = self.result
        if result is not None and (not result.ok or result.media or file_notes(result)):
            return ""
        return "explored"

    @property
    def over(self) -> bool:
        """True if the result of the call is known, or there will be none."""
        return self.result is not None or self.cut or not self.permitted.allowed


@dataclass(frozen=True)
class PlanBlock:
    """A Conductor's workflow. `why` is the reason if the request has another one already."""

    planned: Planned
    why: str = ""


@dataclass(frozen=True)
class NoteBlock:
    """A note by fugu. `detail` is shown below it. While a note is `live` it grows, and its first
    lines may be removed; `dropped` counts these.
    """

    text: str
    tone: Tone = "dim"
    detail: str = ""
    live: bool = False
    dropped: int = 0


@dataclass(frozen=True)
class RequestSummary:
    """The end of a request, with its turns, tokens and cost."""

    line: EndLine
    turns: int
    tokens: int
    cost: str
    """In words, `~$1.20`."""
    by_other: bool = False
    """A Verifier that wrote none of the work accepted it."""
    files: int = 0
    """The files that the request changed."""
    subtasks: int = 0
    """Turns of subtasks; they are not among `turns`."""
    why: str = ""
    """The reason for the end, unless the lines above gave it already."""
    checking: str = ""
    """The cost of Verifiers: `2.6k tokens, $0.01`."""
    alone: str = ""
    """The mean cost of the dearest agent's turns: `opus alone ~$0.12 (mean of 7 turns)`."""


@dataclass(frozen=True)
class EndBlock:
    """A request's end. Its summary is made when it is first needed: most ends of a long session are
    never drawn.
    """

    finished: Finished
    seconds: float
    summarize: Callable[[], RequestSummary]
    waited: float = 0.0
    """Seconds in which the user was waited for; they are not among `seconds`."""
    size: tuple[int, int] | None = None
    """The lines added and removed in the request's files, once they are counted."""

    @cached_property
    def summary(self) -> RequestSummary:
        """The summary of the request."""
        return self.summarize()

    @property
    def is_card(self) -> bool:
        """True if there is something to look at, undo or commit."""
        return self.summary.files > 0 or self.finished.reason == "accepted"


@dataclass(frozen=True)
class WelcomeBlock:
    """The first block of a session."""

    opened: Opened
    is_new: bool = False
    """Nothing is asked yet."""
    start: FirstScreen | None = None
    """The suggestions of a new session, once they have been read."""


Block = (
    RequestBlock
    | DecisionBlock
    | ReplyBlock
    | ThinkingBlock
    | ToolBlock
    | PlanBlock
    | NoteBlock
    | EndBlock
    | WelcomeBlock
)
