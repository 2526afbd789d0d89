"""The conversation as blocks: a fold of the log and of what is said live.

Read this first of what is drawn. `Story.take` is given every item of `log.follow()` in order and says from which block
on something changed; nothing else feeds it, so a session read from the file and one that was watched look the same.
Knows no widths and no colours; pieces.py says how a block looks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fugu_cli import views
from fugu_cli.events import (
    Asked,
    Assigned,
    Compacted,
    Event,
    Failed,
    Finished,
    Interrupted,
    Live,
    Merged,
    Opened,
    Permitted,
    Planned,
    Recorded,
    Replied,
    Retried,
    Said,
    ToolRan,
    ToolSaid,
    Undone,
    Waiting,
)
from fugu_cli.ui import render
from fugu_cli.ui.tui.draw.block import (
    Block,
    Ended,
    Heading,
    Note,
    Plan,
    Request,
    Speech,
    Thought,
    ToolUse,
    Welcome,
)
from fugu_cli.ui.tui.draw.chunks import Chunker
from fugu_cli.ui.workflow import merged

LIVE_OUTPUT = 4000
"""Characters of a running tool's newest output that are kept for the screen."""


class Story:
    """The blocks so far. `take` grows them; `say` adds a line that is of the screen alone and in no log."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self._calls: dict[str, int] = {}
        self._speeches: dict[int, Speech] = {}
        self.retries: dict[int, int] = {}
        """By turn the note that says its call is made again."""
        self._turn = 0
        self._agents: dict[int, str] = {}
        self._opened: Opened | None = None
        self._asked_at = 0.0
        self._facts: list[Event] = []
        """Of the newest request."""
        self._turns = 0
        self._tokens = 0
        self._kept = 0
        """The turn whose newest reply is a line as it stood: nothing is put back after it."""

    def take(self, item: Recorded | Live) -> int | None:
        """One item of the log. Returns the first block that changed, None when none did."""
        before = len(self.blocks)
        if not isinstance(item, Recorded):
            return self._live(item)
        if isinstance(item.event, Asked):
            self._facts.clear()
        self._facts.append(item.event)
        gone = self._settled(item.event)
        changed = self._fact(item.event, item.at)
        grown = before if len(self.blocks) > before else None
        return min((index for index in (gone, changed, grown) if index is not None), default=None)

    def patched(self, ran: ToolRan, patch: str) -> int | None:
        """The diff of what a call changed has become known. Returns its block."""
        for index in range(len(self.blocks) - 1, -1, -1):
            block = self.blocks[index]
            if isinstance(block, ToolUse) and block.result is ran:
                self.blocks[index] = replace(block, patch=patch)
                return index
        return None

    def say(self, note: Note) -> int:
        """A note of the screen's own. Returns its index."""
        self.blocks.append(note)
        return len(self.blocks) - 1

    def _live(self, item: Live) -> int | None:
        match item:
            case Said():
                if not item.text:
                    return None
                first = len(self.blocks)
                speech = self._speeches.get(item.turn)
                if speech is None:
                    self._speaks(item.turn, item.agent)
                    speech = self._speeches[item.turn] = Speech(item.agent)
                    self.blocks += [Thought(""), speech]  # what was thought is known at the end: its place is kept
                speech.add(item.text)
                return min(first, self._index(speech))
            case ToolSaid():
                index = self._calls.get(item.call)
                if index is None:
                    return None
                use = self.blocks[index]
                assert isinstance(use, ToolUse)
                self.blocks[index] = replace(use, live=(use.live + item.text)[-LIVE_OUTPUT:])
                return index
            case Retried():
                return self._retried(item)
            case Waiting():
                return None

    def _retried(self, event: Retried) -> int:
        """A call is made again: one line stands where its text was."""
        before, said = self.retries.get(event.turn), self._unsaid(event.turn)
        if before is None and said is None:
            self._speaks(event.turn, event.agent)
            self.blocks.append(Thought(""))
        place = before if before is not None else said if said is not None else len(self.blocks) - 1
        self.retries[event.turn] = place
        self.blocks[place] = Note(render.retried(event), "warn")
        return min(place, said if said is not None else place)

    def _unsaid(self, turn: int) -> int | None:
        """What the turn was saying is taken back. Returns its place; None where it said nothing."""
        speech = self._speeches.pop(turn, None)
        if speech is None:
            return None
        place = self._index(speech)
        self.blocks[place] = Thought("")
        return place

    def _settled(self, event: Event) -> int | None:
        """A call came to its end: nothing says any more that it was made again. Returns the block that changed."""
        note = self.retries.pop(event.turn, None) if isinstance(event, Replied | Failed | Interrupted) else None
        if note is not None:
            self.blocks[note] = Thought("")
        return note

    def _hush(self) -> None:
        """Nobody goes on with what was being said."""
        for speech in self._speeches.values():
            speech.live = False
        self._speeches.clear()

    def _speaks(self, turn: int, agent: str) -> None:
        """Steps of a workflow may work at the same time: where another one goes on, it says which."""
        if turn and turn != self._turn:
            self.blocks.append(Note(f"turn {turn}, {agent}:"))
        self._turn = turn or self._turn

    def _index(self, block: Block) -> int:
        """Where a block stands; it is among the newest."""
        return next(i for i in range(len(self.blocks) - 1, -1, -1) if self.blocks[i] is block)

    def _fact(self, event: Event, at: float) -> int | None:
        if isinstance(event, Asked | Failed | Finished | Interrupted) or (
            isinstance(event, Assigned) and not event.plan
        ):
            self._hush()
        match event:
            case Asked():
                self._begin(event, at)
            case Assigned():
                self._turns, self._turn = self._turns + 1, event.turn
                self._agents[event.turn] = event.agent
                self.blocks.append(Heading(event))
            case Replied():
                return self._replied(event)
            case Permitted():
                self._speaks(event.turn, self._agents.get(event.turn, ""))
                self._calls[event.call.id] = len(self.blocks)
                self.blocks.append(ToolUse(event.call, event))
            case ToolRan():
                return self._ran(event)
            case Finished():
                self._end(event, at)
            case Interrupted():
                return self._interrupted(event)
            case Opened():
                if event != self._opened:
                    self.blocks.append(Welcome(event))
                self._opened = event
            case _:
                silent = isinstance(event, Undone) and 0 < event.turn == self._kept
                block = None if silent else _told(event)
                if block is not None:
                    self.blocks.append(block)
        return None

    def _begin(self, event: Asked, at: float) -> None:
        self._calls, self._agents = {}, {}
        self._asked_at, self._turns, self._tokens = at, 0, 0
        self.blocks.append(Request(event.said, event.attachments))

    def _end(self, event: Finished, at: float) -> None:
        spent = max(at - self._asked_at, 0.0)
        self.blocks.append(Ended(event, views.end_line(self._facts), self._turns, spent, self._tokens))

    def _replied(self, event: Replied) -> int | None:
        """The whole reply: where it is not what was said live (a schema), it takes its place."""
        self._tokens += event.usage.input + event.usage.output
        self._kept = event.turn if render.keeps(event) else 0
        if self._kept:
            self.blocks.append(Note(event.text or f"{event.filled}: nothing", "dim"))
            return None
        speech = self._speeches.pop(event.turn, None)
        changed = None
        thought = "\n".join(part.text for part in event.thinking if part.text.strip())
        if speech is not None:
            changed = self._index(speech)
            if "".join(speech.said) != event.text:
                speech.said, speech.chunker = [], Chunker()
                speech.add(event.text)
            speech.live = False
            if thought:
                changed -= 1
                self.blocks[changed] = Thought(thought)
            return changed
        if thought or event.text.strip():
            self._speaks(event.turn, event.agent)
        if thought or event.text.strip():
            self.blocks.append(Thought(thought))
        if event.text.strip():
            speech = Speech(event.agent, live=False)
            speech.add(event.text)
            self.blocks.append(speech)
        return None

    def _ran(self, event: ToolRan) -> int | None:
        index = self._calls.get(event.call.id)
        if index is None:
            return None
        use = self.blocks[index]
        assert isinstance(use, ToolUse)
        self.blocks[index] = replace(use, result=event, live="")
        return index

    def _interrupted(self, event: Interrupted) -> int | None:
        first = len(self.blocks)
        for index in self._calls.values():
            use = self.blocks[index]
            if isinstance(use, ToolUse) and use.result is None and use.permitted.allowed:
                self.blocks[index] = replace(use, cut=True)
                first = min(first, index)
        said = bool(self.blocks) and isinstance(self.blocks[-1], Speech)
        if event.partial.strip() and not said:
            speech = Speech("", live=False)
            speech.add(event.partial)
            self.blocks.append(speech)
        self.blocks.append(Note("interrupted; /continue goes on, or ask something else", "warn"))
        return first


def _told(event: Event) -> Block | None:
    match event:
        case Planned():
            return Plan(event)
        case Failed():
            return Note(f"{event.what} failed: {event.message}", "bad")
        case Compacted():
            author = f"by {event.agent}" if event.agent else "without a model"
            return Note(f"summed up {author}; agents read this from now on, the log keeps all", "dim", event.summary)
        case Undone():
            return _undone(event)
        case Merged():
            return Note(merged(event).plain, "dim")
        case _:  # whatever every output has a line for
            said = render.line((event,))
            return Note(said.plain.strip(), "dim") if said is not None else None


def _undone(event: Undone) -> Note:
    if event.turn:
        return Note(f"rolled back, to be drawn again: {event.reason}", "warn")
    files = f"{len(event.paths)} files put back" if len(event.paths) != 1 else "1 file put back"
    reason = event.reason.partition(", from tree ")[0] or "undone"
    return Note(f"{reason}: {files}", "warn", "\n".join(event.paths))


def told(items: Sequence[Recorded | Live]) -> list[Block]:
    """The blocks of a finished session."""
    story = Story()
    for item in items:
        story.take(item)
    return story.blocks
