"""The conversation: a fold of the log and of live output to blocks (blocks.py). Read this first.
The full screen, the inline mode and the session previews draw these blocks. Knows no widths and no
colours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from fugu_cli.app import event_text
from fugu_cli.formatting import excerpt
from fugu_cli.session.events import (
    BUDGET,
    Asked,
    Assigned,
    Compacted,
    Event,
    Failed,
    Finished,
    Interrupted,
    JobEnded,
    Masked,
    Merged,
    Opened,
    OutcomesKnown,
    Permitted,
    Planned,
    Recorded,
    Replied,
    SteeringGiven,
    ToolRan,
    Undone,
)
from fugu_cli.session.live_events import (
    Live,
    OutputStreamed,
    Retried,
    TextStreamed,
    ThoughtStreamed,
    Waiting,
)
from fugu_cli.session.outcome import RUN_TESTS, TESTS_BEFORE
from fugu_cli.session.request_state import RequestState, request_after
from fugu_cli.session.tool_facts import facts_of
from fugu_cli.session.turns import find_verdict
from fugu_cli.session.verdicts import acceptance
from fugu_cli.ui import workflow_text
from fugu_cli.ui.blocks import (
    Block,
    DecisionBlock,
    EndBlock,
    NoteBlock,
    PlanBlock,
    ReplyBlock,
    RequestBlock,
    ThinkingBlock,
    ToolBlock,
    WelcomeBlock,
)
from fugu_cli.ui.call_groups import MOST_CALLS, group_kind, group_start, is_empty
from fugu_cli.ui.end_block import summarize_request
from fugu_cli.ui.markdown_chunks import MarkdownChunker
from fugu_cli.ui.request_clock import RequestClock

if TYPE_CHECKING:
    from fugu_cli.ui.first_screen import FirstScreen

LIVE_OUTPUT = 4000
"""Characters of a running tool's newest output that are kept for the screen."""
SUBTASK_OUTPUT = 20_000
"""Characters of what a subtask said and did that are kept for the screen, the newest."""


class PlacedBlocks:
    """The blocks in order. Steps of a workflow may run at the same time: their blocks are inserted
    below the heading of their turn, and remembered indices are shifted.
    """

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self.inserted: list[int] = []
        """Indices of blocks that the newest item inserted between others."""
        self.ends: dict[int, int] = {}
        """By the turn of a workflow's step that is under way where its blocks end."""
        self.calls: dict[str, int] = {}
        self.retries: dict[int, int] = {}
        """By turn the note that says its call is made again."""
        self.inside: dict[int, int] = {}
        """By the turn of a subtask the block of the call that began it."""
        self.turn = 0
        """The newest turn that has a heading."""
        self.holds_checks = True
        """True while the newest checks may still move below a Verifier's heading."""
        self.pending_reads: set[str] = set()
        """Ids of reads without a result yet, which may still join the newest line."""
        self._group = 0
        self.retractable: int | None = None
        """The index of the first heading that may be taken back: nothing has come in its turn and
        the turns after it, or they failed because no connection could be made."""

    @property
    def settled(self) -> int:
        """Return the number of leading blocks that will not change any more."""
        ends = [*self.ends.values(), len(self.blocks)]
        if self.retractable is not None:
            ends.append(self.retractable)
        open_group = self.open_group
        if open_group < len(self.blocks):
            is_checks = group_kind(self.blocks[open_group]) == "checks"
            may_grow = self.holds_checks if is_checks else bool(self.pending_reads)
            if may_grow:
                ends.append(open_group)
        return min(ends)

    @property
    def open_group(self) -> int:
        """The index of the first call on the line that the next call may join, else the end."""
        last = len(self.blocks) - 1
        while last >= 0 and is_empty(self.blocks[last]):
            last -= 1
        if last < 0 or not group_kind(self.blocks[last]):
            return len(self.blocks)
        return group_start(self.blocks, last)

    def put_call(self, permitted: Permitted, root: str) -> None:
        """Add a call in the repository `root`, on the line of the calls before it if it may join
        them.
        """
        block = ToolBlock(permitted.call, permitted, root)
        at = self.ends.get(permitted.turn, len(self.blocks))
        before = at - 1
        while before >= 0 and is_empty(self.blocks[before]):
            before -= 1
        neighbour = self.blocks[before] if before >= 0 else None
        shares_line = False
        if isinstance(neighbour, ToolBlock) and group_kind(neighbour) == group_kind(block):
            start = group_start(self.blocks, before)
            shares_line = before - start < MOST_CALLS - 1
        if isinstance(neighbour, ToolBlock) and shares_line:
            block = replace(block, group=neighbour.group)
        else:
            self._group += 1
            block = replace(block, group=self._group)
        self.calls[permitted.call.id] = self.put(permitted.turn, block)

    def put_verifier(self, heading: DecisionBlock) -> None:
        """Add a Verifier's heading above fugu's newest checks, because the Verifier reads them."""
        last = len(self.blocks) - 1
        if last < 0 or group_kind(self.blocks[last]) != "checks":
            self.blocks.append(heading)
            return
        self._insert(self.open_group, (heading,))

    def index(self, block: Block) -> int:
        """Return the index of a block, which is searched for from the end."""
        return next(i for i in range(len(self.blocks) - 1, -1, -1) if self.blocks[i] is block)

    def put(self, turn: int, *blocks: Block) -> int:
        """Add blocks of a turn below its heading if it is a running step, else at the end. Return
        the first index.
        """
        at = self.ends.get(turn, len(self.blocks))
        self._insert(at, blocks)
        return at

    def _insert(self, at: int, blocks: Sequence[Block]) -> None:
        if at < len(self.blocks):
            self.inserted += range(at, at + len(blocks))
            self.calls = {
                call: _shift(index, at, len(blocks)) for call, index in self.calls.items()
            }
            for places in (self.retries, self.inside):
                places.update(
                    {turn: _shift(index, at, len(blocks)) for turn, index in places.items()}
                )
        self.ends = {turn: _shift(index, at, len(blocks)) for turn, index in self.ends.items()}
        self.blocks[at:at] = blocks

    def change_call(self, call: str, **changes: object) -> int | None:
        """Change the state of a call. Return the index of its block, None if there is none."""
        index = self.calls.get(call)
        if index is not None:
            block = self.blocks[index]
            assert isinstance(block, ToolBlock)
            self.blocks[index] = replace(block, **changes)  # type: ignore[arg-type]
        return index

    def name_turn(self, turn: int, agent: str) -> None:
        """Add a heading with the turn if it goes on after another one has begun."""
        if turn in self.ends:
            return
        if turn and turn != self.turn:
            self.blocks.append(NoteBlock(f"turn {turn}, {agent}:"))
        self.turn = turn or self.turn


class Replies:
    """The agents' replies: they grow, are withdrawn when a call is repeated, and end."""

    def __init__(self, placed: PlacedBlocks) -> None:
        self.verifying: set[int] = set()
        """Turns of a Verifier."""
        self._placed = placed
        self._growing: dict[int, ReplyBlock] = {}
        self._thoughts: dict[int, list[str]] = {}
        """By turn what was thought before its reply began."""

    def think(self, item: ThoughtStreamed) -> None:
        """Keep thoughts until the reply begins."""
        if item.turn not in self._growing:
            self._thoughts.setdefault(item.turn, []).append(item.text)

    def grow(self, item: TextStreamed) -> int:
        """Add text to a reply. Return the first block that changed."""
        first = len(self._placed.blocks)
        reply = self._growing.get(item.turn)
        if reply is None:
            self._placed.name_turn(item.turn, item.agent)
            reply = self._growing[item.turn] = ReplyBlock(
                item.agent, verifies=item.turn in self.verifying
            )
            # where thoughts come later, or with the whole reply, their place is kept
            thought = "".join(self._thoughts.pop(item.turn, ())).strip()
            self._placed.put(item.turn, ThinkingBlock(thought), reply)
        reply.add(item.text)
        return min(first, self._placed.index(reply), *self._placed.inserted)

    def retried(self, event: Retried) -> int:
        """Replace the text of a repeated call by one line."""
        before, withdrawn = self._placed.retries.get(event.turn), self._withdraw_reply(event.turn)
        if before is None and withdrawn is None:
            self._placed.name_turn(event.turn, event.agent)
            withdrawn = self._placed.put(event.turn, ThinkingBlock(""))
        index = before if before is not None else withdrawn
        assert index is not None
        self._placed.retries[event.turn] = index
        self._placed.blocks[index] = NoteBlock(event_text.retry_text(event), "warn")
        return min(index, withdrawn if withdrawn is not None else index, *self._placed.inserted)

    def _withdraw_reply(self, turn: int) -> int | None:
        """Withdraw the unfinished reply of a turn with its thoughts. Return the first index that
        shows less now, None if there is no reply.
        """
        self._thoughts.pop(turn, None)
        reply = self._growing.pop(turn, None)
        if reply is None:
            return None
        index = self._placed.index(reply)
        self._placed.blocks[index] = ThinkingBlock("")
        thought = self._placed.blocks[index - 1]
        if isinstance(thought, ThinkingBlock) and thought.text:
            index -= 1
            self._placed.blocks[index] = ThinkingBlock("")
        return index

    def settle(self, event: Event) -> int | None:
        """Remove the notice about a repeated call once it has ended. Return the block that changed."""
        note = (
            self._placed.retries.pop(event.turn, None)
            if isinstance(event, Replied | Failed | Interrupted)
            else None
        )
        if note is not None:
            self._placed.blocks[note] = ThinkingBlock("")
        return note

    def hush(self) -> None:
        """End all unfinished replies."""
        for reply in self._growing.values():
            reply.live = False
        self._growing.clear()
        self._thoughts.clear()

    def end(self, event: Replied) -> int | None:
        """Add the whole reply. It replaces the streamed text if that was another (a schema)."""
        reply = self._growing.pop(event.turn, None)
        self._thoughts.pop(event.turn, None)
        changed = None
        thought = "\n".join(part.text for part in event.thinking if part.text.strip())
        if reply is not None:
            changed = self._placed.index(reply)
            if "".join(reply.texts) != event.text:
                reply.texts, reply.chunker = [], MarkdownChunker()
                reply.add(event.text)
            reply.live = False
            if thought:
                changed -= 1
                self._placed.blocks[changed] = ThinkingBlock(thought)
            return changed
        if thought or event.text.strip():
            self._placed.name_turn(event.turn, event.agent)
            self._placed.put(event.turn, ThinkingBlock(thought))
        if event.text.strip():
            reply = ReplyBlock(event.agent, live=False, verifies=event.turn in self.verifying)
            reply.add(event.text)
            self._placed.put(event.turn, reply)
        return None


class Transcript:
    """The blocks so far. `add_item` adds events of the log; `say` adds a note that is in no log."""

    def __init__(self) -> None:
        self.placed = PlacedBlocks()
        self.blocks = self.placed.blocks
        self._replies = Replies(self.placed)
        self._agents: dict[int, str] = {}
        self._opened: Opened | None = None
        self._outcomes = OutcomesKnown()
        self._clock = RequestClock()
        self._request = RequestState()
        """The newest request."""
        self._tests_ran: ToolRan | None = None
        """The newest run of tests in the newest request."""
        self._fallback = ""
        """The reason why the checkpoint does not decide, once that was said."""
        self._unreachable: list[NoteBlock] = []
        """Notes about hosts that may be taken back, as the end of the request names them all."""

    def add_item(self, item: Recorded | Live, request: RequestState | None = None) -> int | None:
        """Handle an item of the log. `request`, if given, is the newest request after the item.
        Return the first block that changed, None if none did.
        """
        before = len(self.blocks)
        self.placed.inserted.clear()
        if not isinstance(item, Recorded):
            return self._live(item)
        self._request = request or request_after(self._request, item.event)
        self._clock.add_event(item.event, item.at)
        first_settled = self._replies.settle(item.event)
        if not _leaves_turn_empty(item.event):
            self.placed.retractable = None
        first_changed = self._fact(item.event)
        first_new: int | None = None
        if self.placed.inserted:
            first_new = min(before, *self.placed.inserted)
        elif len(self.blocks) > before:
            first_new = before
        changes = (first_settled, first_changed, first_new)
        return min((index for index in changes if index is not None), default=None)

    def patched(self, ran: ToolRan, patch: str) -> int | None:
        """Set the diff of a call's changes. Return its block."""
        for index in range(len(self.blocks) - 1, -1, -1):
            block = self.blocks[index]
            if isinstance(block, ToolBlock) and block.result is ran:
                self.blocks[index] = replace(block, patch=patch)
                return index
        return None

    def show_start(self, start: FirstScreen) -> int | None:
        """Set what an empty session shows. Return its block, None if something was asked already."""
        first = self.blocks[0] if self.blocks else None
        if not isinstance(first, WelcomeBlock) or not first.is_new:
            return None
        self.blocks[0] = replace(first, start=start)
        return 0

    def end_open_calls(self) -> None:
        """Show calls without a result as interrupted: the process that ran them has gone."""
        for index in self.placed.calls.values():
            block = self.blocks[index]
            if isinstance(block, ToolBlock) and not block.over:
                self.blocks[index] = replace(block, cut=True)
        self.placed.pending_reads.clear()

    def measured(self, added: int, removed: int) -> int | None:
        """Set how many lines the newest request that ended added and removed. Return its block."""
        for index in range(len(self.blocks) - 1, -1, -1):
            block = self.blocks[index]
            if isinstance(block, EndBlock):
                self.blocks[index] = replace(block, size=(added, removed))
                return index
        return None

    def say(self, note: NoteBlock) -> int:
        """Add a note that is in no log. Return its index."""
        self.blocks.append(note)
        return len(self.blocks) - 1

    def _live(self, item: Live) -> int | None:
        inside = getattr(item, "turn", 0) in self.placed.inside and not isinstance(item, Retried)
        if inside:
            return None  # shown when it is whole
        if isinstance(item, ThoughtStreamed):
            self._replies.think(item)
            return None
        if not _leaves_turn_empty(item):
            self.placed.retractable = None
        match item:
            case TextStreamed():
                return self._replies.grow(item) if item.text else None
            case OutputStreamed():
                use = (
                    self.blocks[self.placed.calls[item.call]]
                    if item.call in self.placed.calls
                    else None
                )
                live = use.live if isinstance(use, ToolBlock) else ""
                return self.placed.change_call(item.call, live=(live + item.text)[-LIVE_OUTPUT:])
            case Retried():
                return self._replies.retried(item)
            case Waiting():
                if not item.notice:
                    return None
                self.blocks.append(NoteBlock(item.why, "warn"))
                return len(self.blocks) - 1

    def _grouped(self, event: Event) -> int | None:
        """Show a subtask's event in the block of the call that began it. Return that block, None
        for other events.
        """
        if (
            isinstance(event, Assigned)
            and event.subtask is not None
            and event.subtask.call in self.placed.calls
        ):
            self.placed.inside[event.turn] = self.placed.calls[event.subtask.call]
        index = self.placed.inside.get(getattr(event, "turn", 0))
        if index is None:
            return None
        block = self.blocks[index]
        assert isinstance(block, ToolBlock)
        text = "\n".join(part for part in (block.inside, event_text.subtask_line(event)) if part)
        self.blocks[index] = replace(block, inside=text[-SUBTASK_OUTPUT:])
        return index

    def _fact(self, event: Event) -> int | None:
        if (index := self._grouped(event)) is not None:
            return index
        alone = isinstance(event, Asked | Finished) or (
            isinstance(event, Assigned) and not event.plan
        )
        if alone or isinstance(event, Failed | Interrupted):
            self._replies.hush()
            self.placed.pending_reads.clear()
        if alone or isinstance(event, Planned | Merged):
            self.placed.ends.clear()
        match event:
            case Asked():
                return self._begin(event)
            case Assigned():
                self._assigned(event)
            case Replied():
                return self._replied(event)
            case Permitted():
                if not event.allowed:
                    self.placed.pending_reads.discard(event.call.id)
                self.placed.name_turn(event.turn, self._agents.get(event.turn, ""))
                root = self._opened.repo if self._opened is not None else ""
                self.placed.put_call(event, root)
            case ToolRan():
                return self._tool_ran(event)
            case Failed() if event.unreachable and self._is_retractable(event.turn):
                return self._unreachable_host(event)
            case Finished():
                if event.unreachable:
                    first = self._retract(self._unreachable)
                else:
                    first = self._leave_verdict_to_end(event)
                self.placed.retractable = None
                events = tuple(self._request.events)
                summarize = partial(summarize_request, event, events, self._opened, self._outcomes)
                self.blocks.append(
                    EndBlock(event, self._clock.seconds, summarize, self._clock.waited)
                )
                return first
            case Interrupted():
                return self._interrupted(event)
            case Opened():
                if event != self._opened:
                    self.blocks.append(WelcomeBlock(event, is_new=not self.blocks))
                self._opened = event
            case OutcomesKnown():
                self._outcomes = event
            case _:
                self._rest(event)
        return None

    def _tool_ran(self, event: ToolRan) -> int | None:
        self.placed.pending_reads.discard(event.call.id)
        first = self.placed.change_call(event.call.id, result=event, live="")
        if event.call.tool == RUN_TESTS:
            self._tests_ran = event
        if event.call.tool in (RUN_TESTS, TESTS_BEFORE) and self._tests_ran is not None:
            changed = self.placed.change_call(
                self._tests_ran.call.id,
                tests=self._request.test_outcome(self._tests_ran),
                failed_before=self._request.tests_before.failures_text,
            )
            return min((index for index in (first, changed) if index is not None), default=None)
        return first

    def _assigned(self, event: Assigned) -> None:
        self.placed.turn = event.turn
        self._agents[event.turn] = event.agent
        if event.role == "verifier":
            self._replies.verifying.add(event.turn)
        if event.fallback and not self._fallback:
            self._fallback = event.fallback
            self.blocks.append(
                NoteBlock(f"the checkpoint does not decide: {event.fallback}", "warn")
            )
        shown = {failure.what for failure in self._request.events if isinstance(failure, Failed)}
        unavailable = event_text.unavailable_text(
            {
                name: why
                for name, why in self._request.failed_agents.items()
                if name not in shown  # those have a line of their own
            },
            event.seconds_left,
        )
        if self.placed.retractable is None and not event.plan:
            self.placed.retractable = len(self.blocks)
        heading = DecisionBlock(event, event.reason, unavailable)
        if event.role == "verifier" and not event.plan:
            self.placed.put_verifier(heading)
        else:
            self.blocks.append(heading)
        if event.plan:
            self.placed.ends[event.turn] = len(self.blocks)

    def _is_retractable(self, turn: int) -> bool:
        """Return whether the turn has shown nothing yet. A planner's (0) has no heading."""
        if turn == 0 and self.placed.retractable is None:
            self.placed.retractable = len(self.blocks)
        return self.placed.retractable is not None

    def _unreachable_host(self, event: Failed) -> int | None:
        """Replace the turn's heading by one line about the host."""
        headings = [
            block
            for block in self.blocks[self.placed.retractable :]
            if isinstance(block, DecisionBlock) and block.assigned.turn == event.turn
        ]
        first = self._retract(headings)
        note = NoteBlock(f"no connection to {event.unreachable}", "bad")
        self._unreachable.append(note)
        self.blocks.append(note)
        return first

    def _retract(self, retracted: Sequence[Block]) -> int | None:
        """Replace blocks that may still be taken back by empty ones. Return the first one's index."""
        first_retractable = self.placed.retractable or 0
        indices = [
            index
            for index, block in enumerate(self.blocks)
            if index >= first_retractable and block in retracted
        ]
        for index in indices:
            self.blocks[index] = ThinkingBlock("")
        return min(indices, default=None)

    def _leave_verdict_to_end(self, event: Finished) -> int | None:
        """Remove the word ACCEPT from the reply directly above the end of the request, which says
        who accepted. Return the index of the reply, None if there is none.
        """
        by, _ = acceptance(self._request, event)
        index = len(self.blocks) - 1
        while index >= 0 and is_empty(self.blocks[index]):
            index -= 1
        reply = self.blocks[index] if index >= 0 else None
        if by not in ("verifier", "author") or not isinstance(reply, ReplyBlock):
            return None
        split = find_verdict("".join(reply.texts), leading=True) if reply.verifies else None
        if split is None:
            return None
        before, _, after = split
        rest = "\n\n".join(part.strip("\n") for part in (before, after) if part.strip())
        self.blocks[index] = ThinkingBlock("")
        if rest:
            self.blocks[index] = reason = ReplyBlock(reply.agent, live=False)
            reason.add(rest)
        return index

    def _rest(self, event: Event) -> None:
        block = event_block(event, self._request)
        if block is not None:
            self.placed.put(getattr(event, "turn", 0), block)
        if isinstance(event, Failed):
            self.placed.ends.pop(event.turn, None)

    def _begin(self, event: Asked) -> int | None:
        self.placed.calls, self._agents, self.placed.inside = {}, {}, {}
        self._replies.verifying.clear()
        self._unreachable.clear()
        self._tests_ran = None
        media = tuple(item.line for item in event.media)
        self.blocks.append(RequestBlock(event.said, (*event.attachments, *media)))
        first = self.blocks[0]
        if not isinstance(first, WelcomeBlock) or not first.is_new:
            return None
        self.blocks[0] = replace(first, is_new=False, start=None)
        return 0

    def _replied(self, event: Replied) -> int | None:
        """Add the whole reply. It replaces the streamed text if that was another (a schema)."""
        reads = [call.id for call in event.calls if facts_of(call.tool).reads_files]
        self.placed.pending_reads.update(reads)
        changed = self._replies.end(event)
        if event.stop in event_text.STOPS:
            self.placed.put(event.turn, NoteBlock(event_text.STOPS[event.stop], "warn"))
        if not event.calls:
            self.placed.ends.pop(event.turn, None)
        return changed

    def _interrupted(self, event: Interrupted) -> int | None:
        first = len(self.blocks)
        for index in self.placed.calls.values():
            use = self.blocks[index]
            if isinstance(use, ToolBlock) and use.result is None and use.permitted.allowed:
                self.blocks[index] = replace(use, cut=True)
                first = min(first, index)
        is_shown = bool(self.blocks) and isinstance(self.blocks[-1], ReplyBlock)
        if event.partial.strip() and not is_shown:
            speech = ReplyBlock("", live=False)
            speech.add(event.partial)
            self.blocks.append(speech)
        text = "interrupted; `fugu run --continue` goes on, or ask something else"
        unread = [f"↳ not read yet: {item.said}" for item in self._request.unread_steering]
        self.blocks.append(NoteBlock(text, "warn", "\n".join(unread)))
        return first


def _leaves_turn_empty(item: Event | Live) -> bool:
    """Return whether the item shows no word or call of its turn."""
    match item:
        case Assigned() | Masked() | Finished():
            return True
        case Failed() | Retried():
            return bool(item.unreachable)
        case Waiting():
            return not item.notice and not item.seconds
        case TextStreamed():
            return not item.text
        case _:
            return False


def _same_failure(event: Failed, request: RequestState) -> Failed | None:
    """Return the request's first failure of another agent with the same message."""
    for earlier in request.events:
        if isinstance(earlier, Failed) and earlier.message == event.message:
            return earlier if earlier.what != event.what else None
    return None


def event_block(event: Event, request: RequestState) -> Block | None:
    """Return the block of an event that has one of its own, else None. `request` is the request of
    the event, up to it.
    """
    match event:
        case Planned():
            return PlanBlock(event, workflow_text.round_reason(event, request))
        case Failed():
            if same := _same_failure(event, request):
                return NoteBlock(f"{event.what} failed as {same.what} did", "bad")
            why = excerpt(event.message, FAILURE_CHARACTERS, "the session's log has all of it")
            return NoteBlock(f"{event.what} failed: {why}", "bad")
        case SteeringGiven():
            return _steering_block(event, request)
        case Masked():
            return _masked_note(event)
        case Compacted():
            author = f"by {event.agent}" if event.agent else "without a model"
            text = f"summed up {author}; agents read this from now on, the log keeps all"
            return NoteBlock(text, "dim", event.summary)
        case Undone():
            return NoteBlock(
                event_text.undo_text(event), "warn", "" if event.turn else "\n".join(event.paths)
            )
        case Merged():
            return NoteBlock(workflow_text.merge_text(event), "dim")
        case JobEnded():
            return NoteBlock(event_text.job_end_text(event), "dim")
        case _:
            return None


def _steering_block(event: SteeringGiven, request: RequestState) -> Block | None:
    """Return the message with the first agent that is given it, and a line for every further step
    of a workflow. Later turns read it as a part of the request.
    """
    earlier = [
        item
        for item in request.events
        if isinstance(item, SteeringGiven) and item.number == event.number and item is not event
    ]
    agent = event.agent if event.turn else f"{event.agent}, who plans,"
    turn = request.turn(event.turn)
    if not earlier:
        media = tuple(item.line for item in event.message.media)
        with_result = event_text.is_given_with_result(event, request)
        return RequestBlock(event.message.said, media, given_to=agent, with_result=with_result)
    if event.turn and (turn is None or not turn.assigned.plan):
        return None
    return NoteBlock(f"↳ given to {agent} too")


def _shift(index: int, at: int, by: int) -> int:
    """Return where an index is after `by` blocks were inserted at `at`."""
    return index + by if index >= at else index


FAILURE_CHARACTERS = 2000
"""Of what went wrong. What to do about it stands at the end."""


def _masked_note(event: Masked) -> NoteBlock | None:
    """Return a note about excluded agents. Failures and waiting times are shown elsewhere."""
    reasons = [f"{name} ({why})" for name, why in event.agents if why.kind in ("", BUDGET)]
    return NoteBlock("left out: " + "; ".join(reasons)) if reasons else None


def transcript_blocks(items: Sequence[Recorded | Live]) -> list[Block]:
    """Return the blocks of a finished session."""
    transcript = Transcript()
    for item in items:
        transcript.add_item(item)
    return transcript.blocks
