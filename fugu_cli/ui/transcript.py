"""The conversation as blocks: a fold of the log and of live output. Read this first. The full screen, the inline mode
and the session previews draw these blocks. Knows no widths and no colours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from fugu_cli.messages import Call
from fugu_cli.session import views
from fugu_cli.session.events import (
    EVIDENCE,
    Asked,
    Assigned,
    Compacted,
    Event,
    Failed,
    Finished,
    Interrupted,
    Masked,
    Merged,
    Opened,
    Permitted,
    Planned,
    Recorded,
    Replied,
    ToolRan,
    Undone,
)
from fugu_cli.session.live_events import Live, OutputStreamed, Retried, TextStreamed, ThoughtStreamed, Waiting
from fugu_cli.session.verdicts import EndLine
from fugu_cli.ui import event_text, workflow_text
from fugu_cli.ui.formatting import first_line
from fugu_cli.ui.markdown_chunks import MarkdownChunker

Judged = Literal["", "first", "later"]
"""A piece of a reply in which no verdict is drawn; a Verifier's first piece, and its later ones."""
Tone = Literal["plain", "dim", "good", "bad", "warn"]


@dataclass(frozen=True)
class RequestBlock:
    """What the user asked."""

    text: str
    attachments: tuple[str, ...] = ()


@dataclass(frozen=True)
class DecisionBlock:
    """A decision: who acts now."""

    assigned: Assigned


@dataclass
class ReplyBlock:
    """What an agent says. Grows while it is said; `chunker` holds it cut into chunks."""

    agent: str
    said: list[str] = field(default_factory=list)
    chunker: MarkdownChunker = field(default_factory=MarkdownChunker)
    live: bool = True
    verifies: bool = False
    """By a Verifier: its verdict is drawn as a mark."""

    def judged(self, chunk: int) -> Judged:
        """How a verdict is looked for in a chunk of it."""
        return "" if not self.verifies else "later" if chunk else "first"

    def add(self, text: str) -> None:
        """More of it."""
        self.said.append(text)
        self.chunker.feed(text)


@dataclass(frozen=True)
class ThinkingBlock:
    """What an agent thought before it spoke; "" where it has not said. Stands before every Speech."""

    text: str


@dataclass(frozen=True)
class ToolBlock:
    """A call: judged, running, or done. `live` is the newest output of one that runs, `patch` what it changed, `inside`
    what the subtask that it began has said and done."""

    call: Call
    permitted: Permitted
    result: ToolRan | None = None
    live: str = ""
    cut: bool = False
    patch: str = ""
    inside: str = ""

    @property
    def evidence(self) -> bool:
        """Made by fugu itself."""
        return self.permitted.by == EVIDENCE


@dataclass(frozen=True)
class PlanBlock:
    """A Conductor's workflow; `why` there is another one in this request."""

    planned: Planned
    why: str = ""


@dataclass(frozen=True)
class NoteBlock:
    """A line of fugu's own. `detail` is shown below it; while it grows it is `live`, and its first lines may go.

    `dropped` is how many did. `folded` is the whole of what the line says in short, shown once it is unfolded.
    """

    text: str
    tone: Tone = "dim"
    detail: str = ""
    live: bool = False
    dropped: int = 0
    folded: str = ""


@dataclass(frozen=True)
class EndBlock:
    """A request's end, with what it took."""

    finished: Finished
    said: EndLine
    turns: int
    seconds: float
    tokens: int
    why: str = ""
    """What stopped it; nothing that the lines above have said already."""


@dataclass(frozen=True)
class WelcomeBlock:
    """A session's first line; with `tips` until something is asked."""

    opened: Opened
    tips: bool = False


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


LIVE_OUTPUT = 4000
"""Characters of a running tool's newest output that are kept for the screen."""
SUBTASK_OUTPUT = 20_000
"""Characters of what a subtask said and did that are kept for the screen, the newest."""


class Transcript:
    """The blocks so far. `take` grows them; `say` adds a line that is of the screen alone and in no log.

    Steps of a workflow may work at the same time: what is said of each is put below its heading.
    """

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self.inserted: list[int] = []
        """Where the newest item put blocks between others."""
        self._ends: dict[int, int] = {}
        """By the turn of a workflow's step that is under way where its blocks end."""
        self._calls: dict[str, int] = {}
        self._speeches: dict[int, ReplyBlock] = {}
        self.retries: dict[int, int] = {}
        """By turn the note that says its call is made again."""
        self._turn = 0
        self._agents: dict[int, str] = {}
        self._verifying: set[int] = set()
        self._inside: dict[int, int] = {}
        """By the turn of a subtask the block of the call that began it."""
        self._opened: Opened | None = None
        self._asked_at = 0.0
        self._facts: list[Event] = []
        """Of the newest request."""
        self._turns = 0
        self._tokens = 0
        self._kept = 0
        """The turn whose newest reply is a line as it stood: nothing is put back after it."""

    @property
    def settled(self) -> int:
        """How many blocks there are before which none is put any more."""
        return min(self._ends.values(), default=len(self.blocks))

    def take(self, item: Recorded | Live) -> int | None:
        """One item of the log. Returns the first block that changed, None when none did."""
        before = len(self.blocks)
        self.inserted = []
        if not isinstance(item, Recorded):
            return self._live(item)
        if isinstance(item.event, Asked):
            self._facts.clear()
        self._facts.append(item.event)
        gone = self._settled(item.event)
        changed = self._fact(item.event, item.at)
        grown = min(before, *self.inserted) if self.inserted else before if len(self.blocks) > before else None
        return min((index for index in (gone, changed, grown) if index is not None), default=None)

    def patched(self, ran: ToolRan, patch: str) -> int | None:
        """The diff of what a call changed has become known. Returns its block."""
        for index in range(len(self.blocks) - 1, -1, -1):
            block = self.blocks[index]
            if isinstance(block, ToolBlock) and block.result is ran:
                self.blocks[index] = replace(block, patch=patch)
                return index
        return None

    def say(self, note: NoteBlock) -> int:
        """A note of the screen's own. Returns its index."""
        self.blocks.append(note)
        return len(self.blocks) - 1

    def index(self, block: Block) -> int:
        """Where a block stands; it is among the newest."""
        return next(i for i in range(len(self.blocks) - 1, -1, -1) if self.blocks[i] is block)

    def _put(self, turn: int, *blocks: Block) -> int:
        """Blocks of a turn: below its heading, where it is a step under way, else at the end. Returns the first's
        place."""
        at = self._ends.get(turn, len(self.blocks))
        if at < len(self.blocks):
            self.inserted += range(at, at + len(blocks))
            self._calls = {call: _moved(place, at, len(blocks)) for call, place in self._calls.items()}
            for places in (self.retries, self._inside):
                places.update({turn: _moved(place, at, len(blocks)) for turn, place in places.items()})
        self._ends = {turn: _moved(place, at, len(blocks)) for turn, place in self._ends.items()}
        self.blocks[at:at] = blocks
        return at

    def _live(self, item: Live) -> int | None:
        inside = getattr(item, "turn", 0) in self._inside and not isinstance(item, Retried)
        if inside or isinstance(item, ThoughtStreamed):
            return None  # shown when it is whole
        match item:
            case TextStreamed():
                if not item.text:
                    return None
                first = len(self.blocks)
                speech = self._speeches.get(item.turn)
                if speech is None:
                    self._speaks(item.turn, item.agent)
                    speech = self._speeches[item.turn] = ReplyBlock(item.agent, verifies=item.turn in self._verifying)
                    # what was thought is known at the end: its place is kept
                    self._put(item.turn, ThinkingBlock(""), speech)
                speech.add(item.text)
                return min(first, self.index(speech), *self.inserted)
            case OutputStreamed():
                index = self._calls.get(item.call)
                if index is None:
                    return None
                use = self.blocks[index]
                assert isinstance(use, ToolBlock)
                self.blocks[index] = replace(use, live=(use.live + item.text)[-LIVE_OUTPUT:])
                return index
            case Retried():
                return self._retried(item)
            case Waiting():
                if not item.notice:
                    return None
                self.blocks.append(NoteBlock(item.why, "warn"))
                return len(self.blocks) - 1

    def _retried(self, event: Retried) -> int:
        """A call is made again: one line stands where its text was."""
        before, said = self.retries.get(event.turn), self._unsaid(event.turn)
        if before is None and said is None:
            self._speaks(event.turn, event.agent)
            said = self._put(event.turn, ThinkingBlock(""))
        place = before if before is not None else said
        assert place is not None
        self.retries[event.turn] = place
        self.blocks[place] = NoteBlock(event_text.retry_text(event), "warn")
        return min(place, said if said is not None else place, *self.inserted)

    def _unsaid(self, turn: int) -> int | None:
        """What the turn was saying is taken back. Returns its place; None where it said nothing."""
        speech = self._speeches.pop(turn, None)
        if speech is None:
            return None
        place = self.index(speech)
        self.blocks[place] = ThinkingBlock("")
        return place

    def _settled(self, event: Event) -> int | None:
        """A call came to its end: nothing says any more that it was made again. Returns the block that changed."""
        note = self.retries.pop(event.turn, None) if isinstance(event, Replied | Failed | Interrupted) else None
        if note is not None:
            self.blocks[note] = ThinkingBlock("")
        return note

    def _hush(self) -> None:
        """Nobody goes on with what was being said."""
        for speech in self._speeches.values():
            speech.live = False
        self._speeches.clear()

    def _speaks(self, turn: int, agent: str) -> None:
        """Where a turn goes on that others have begun after, it says which."""
        if turn in self._ends:
            return
        if turn and turn != self._turn:
            self.blocks.append(NoteBlock(f"turn {turn}, {agent}:"))
        self._turn = turn or self._turn

    def _grouped(self, event: Event) -> int | None:
        """A fact of a subtask goes into the block of the call that began it. Returns that; None for all others."""
        if isinstance(event, Assigned) and event.subtask is not None and event.subtask.call in self._calls:
            self._inside[event.turn] = self._calls[event.subtask.call]
        index = self._inside.get(getattr(event, "turn", 0))
        if index is None:
            return None
        if isinstance(event, Replied):
            self._tokens += event.usage.input + event.usage.output
        block = self.blocks[index]
        assert isinstance(block, ToolBlock)
        said = "\n".join(part for part in (block.inside, event_text.subtask_line(event)) if part)
        self.blocks[index] = replace(block, inside=said[-SUBTASK_OUTPUT:])
        return index

    def _fact(self, event: Event, at: float) -> int | None:
        if (index := self._grouped(event)) is not None:
            return index
        alone = isinstance(event, Asked | Finished) or (isinstance(event, Assigned) and not event.plan)
        if alone or isinstance(event, Failed | Interrupted):
            self._hush()
        if alone or isinstance(event, Planned | Merged):
            self._ends.clear()
        match event:
            case Asked():
                return self._begin(event, at)
            case Assigned():
                self._assigned(event)
            case Replied():
                return self._replied(event)
            case Permitted():
                self._speaks(event.turn, self._agents.get(event.turn, ""))
                self._calls[event.call.id] = self._put(event.turn, ToolBlock(event.call, event))
            case ToolRan():
                return self._ran(event)
            case Finished():
                self._end(event, at)
            case Interrupted():
                return self._interrupted(event)
            case Opened():
                if event != self._opened:
                    self.blocks.append(WelcomeBlock(event, tips=not self.blocks))
                self._opened = event
            case _:
                self._rest(event)
        return None

    def _assigned(self, event: Assigned) -> None:
        self._turns, self._turn = self._turns + 1, event.turn
        self._agents[event.turn] = event.agent
        if event.role == "verifier":
            self._verifying.add(event.turn)
        self.blocks.append(DecisionBlock(event))
        if event.plan:
            self._ends[event.turn] = len(self.blocks)

    def _rest(self, event: Event) -> None:
        silent = isinstance(event, Undone) and 0 < event.turn == self._kept
        block = None if silent else _event_block(event, self._facts)
        if block is not None:
            self._put(getattr(event, "turn", 0), block)
        if isinstance(event, Failed):
            self._ends.pop(event.turn, None)

    def _begin(self, event: Asked, at: float) -> int | None:
        self._calls, self._agents, self._inside = {}, {}, {}
        self._verifying.clear()
        self._asked_at, self._turns, self._tokens = at, 0, 0
        media = tuple(one.line for one in event.media)
        self.blocks.append(RequestBlock(event.said, (*event.attachments, *media)))
        first = self.blocks[0]
        if not isinstance(first, WelcomeBlock) or not first.tips:
            return None
        self.blocks[0] = replace(first, tips=False)
        return 0

    def _end(self, event: Finished, at: float) -> None:
        waited = sum(fact.waited for fact in self._facts if isinstance(fact, Permitted))
        spent = max(at - self._asked_at - waited, 0.0)
        told = event.reason == "failed" and any(isinstance(fact, Failed) for fact in self._facts)
        why = "/pool shows who is unavailable, and until when" if told else event.message
        self.blocks.append(EndBlock(event, views.end_line(self._facts), self._turns, spent, self._tokens, why))

    def _replied(self, event: Replied) -> int | None:
        """The whole reply: where it is not what was said live (a schema), it takes its place."""
        self._tokens += event.usage.input + event.usage.output
        self._kept = event.turn if event_text.changed_nothing(event) else 0
        if self._kept:
            self.blocks.append(NoteBlock(event.text or f"{event.filled}: nothing", "dim"))
            return None
        changed = self._spoke(event)
        if not event.calls:
            self._ends.pop(event.turn, None)
        return changed

    def _spoke(self, event: Replied) -> int | None:
        speech = self._speeches.pop(event.turn, None)
        changed = None
        thought = "\n".join(part.text for part in event.thinking if part.text.strip())
        if speech is not None:
            changed = self.index(speech)
            if "".join(speech.said) != event.text:
                speech.said, speech.chunker = [], MarkdownChunker()
                speech.add(event.text)
            speech.live = False
            if thought:
                changed -= 1
                self.blocks[changed] = ThinkingBlock(thought)
            return changed
        if thought or event.text.strip():
            self._speaks(event.turn, event.agent)
            self._put(event.turn, ThinkingBlock(thought))
        if event.text.strip():
            speech = ReplyBlock(event.agent, live=False, verifies=event.turn in self._verifying)
            speech.add(event.text)
            self._put(event.turn, speech)
        return None

    def _ran(self, event: ToolRan) -> int | None:
        index = self._calls.get(event.call.id)
        if index is None:
            return None
        use = self.blocks[index]
        assert isinstance(use, ToolBlock)
        self.blocks[index] = replace(use, result=event, live="")
        return index

    def _interrupted(self, event: Interrupted) -> int | None:
        first = len(self.blocks)
        for index in self._calls.values():
            use = self.blocks[index]
            if isinstance(use, ToolBlock) and use.result is None and use.permitted.allowed:
                self.blocks[index] = replace(use, cut=True)
                first = min(first, index)
        said = bool(self.blocks) and isinstance(self.blocks[-1], ReplyBlock)
        if event.partial.strip() and not said:
            speech = ReplyBlock("", live=False)
            speech.add(event.partial)
            self.blocks.append(speech)
        self.blocks.append(NoteBlock("interrupted; /continue goes on, or ask something else", "warn"))
        return first


def _event_block(event: Event, facts: Sequence[Event]) -> Block | None:
    """`facts`: of its request, up to it."""
    match event:
        case Planned():
            return PlanBlock(event, workflow_text.round_reason(event, facts[:-1]))
        case Failed():
            short, whole = first_line(event.message, FAILURE_CHARACTERS), f"{event.what} failed: {event.message}"
            return NoteBlock(f"{event.what} failed: {short}", "bad", folded=whole)
        case Masked():
            return _masked_note(event)
        case Compacted():
            author = f"by {event.agent}" if event.agent else "without a model"
            return NoteBlock(
                f"summed up {author}; agents read this from now on, the log keeps all", "dim", event.summary
            )
        case Undone():
            return _undo_note(event)
        case Merged():
            return NoteBlock(workflow_text.merge_text(event).plain, "dim")
        case _:  # whatever every output has a line for
            said = event_text.event_line((event,))
            return NoteBlock(said.plain.strip(), "dim") if said is not None else None


def _moved(place: int, at: int, by: int) -> int:
    """A place, after something was put in at `at`."""
    return place + by if place >= at else place


FAILURE_CHARACTERS = 200
"""Of what went wrong, on its one line."""


def _masked_note(event: Masked) -> NoteBlock | None:
    """Who is left out. Of a failure its own line has told; until when, the status line and `/pool` tell."""
    out = [f"{name} ({why})" for name, why in event.agents if why.kind in ("", views.BUDGET)]
    return NoteBlock("left out: " + "; ".join(out)) if out else None


def _undo_note(event: Undone) -> NoteBlock:
    if event.turn:
        return NoteBlock(f"rolled back, trying again: {event.reason}", "warn")
    files = f"{len(event.paths)} files put back" if len(event.paths) != 1 else "1 file put back"
    return NoteBlock(f"{event.words}: {files}", "warn", "\n".join(event.paths))


def transcript_blocks(items: Sequence[Recorded | Live]) -> list[Block]:
    """The blocks of a finished session."""
    transcript = Transcript()
    for item in items:
        transcript.take(item)
    return transcript.blocks
