"""What the conversation consists of: one value for each kind of block.

Made by story.py from the log, drawn by blocks.py. Values only; a `Speech` alone grows, while it is said.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from fugu_cli.events import EVIDENCE, Assigned, Finished, Opened, Permitted, Planned, ToolRan
from fugu_cli.messages import Call
from fugu_cli.ui.tui.draw.chunks import Chunker
from fugu_cli.views import EndLine

Tone = Literal["plain", "dim", "good", "bad", "warn"]


@dataclass(frozen=True)
class Request:
    """What the user asked."""

    text: str
    attachments: tuple[str, ...] = ()


@dataclass(frozen=True)
class Heading:
    """A decision: who acts now."""

    assigned: Assigned


@dataclass
class Speech:
    """What an agent says. Grows while it is said; `chunker` holds it cut into chunks."""

    agent: str
    said: list[str] = field(default_factory=list)
    chunker: Chunker = field(default_factory=Chunker)
    live: bool = True

    def add(self, text: str) -> None:
        """More of it."""
        self.said.append(text)
        self.chunker.feed(text)


@dataclass(frozen=True)
class Thought:
    """What an agent thought before it spoke; "" where it has not said. Stands before every Speech."""

    text: str


@dataclass(frozen=True)
class ToolUse:
    """A call: judged, running, or done. `live` is the newest output of one that runs, `patch` what it changed."""

    call: Call
    permitted: Permitted
    result: ToolRan | None = None
    live: str = ""
    cut: bool = False
    patch: str = ""

    @property
    def evidence(self) -> bool:
        """Made by fugu itself."""
        return self.permitted.by == EVIDENCE


@dataclass(frozen=True)
class Plan:
    """A Conductor's workflow."""

    planned: Planned


@dataclass(frozen=True)
class Note:
    """A line of fugu's own. `detail` is shown below it; while it grows it is `live`, and its first lines may go.

    `dropped` is how many did.
    """

    text: str
    tone: Tone = "dim"
    detail: str = ""
    live: bool = False
    dropped: int = 0


@dataclass(frozen=True)
class Ended:
    """A request's end, with what it took."""

    finished: Finished
    said: EndLine
    turns: int
    seconds: float
    tokens: int


@dataclass(frozen=True)
class Welcome:
    """A session's first line."""

    opened: Opened


Block = Request | Heading | Speech | Thought | ToolUse | Plan | Note | Ended | Welcome
