import asyncio
from dataclasses import replace

import pytest

from fugu_cli.messages import Call, Thinking, Usage
from fugu_cli.session.events import (
    Asked,
    Assigned,
    Failed,
    FileChange,
    Finished,
    Interrupted,
    Member,
    Opened,
    OutcomeCount,
    OutcomesKnown,
    Permitted,
    Price,
    Recorded,
    Replied,
    Steered,
    ToolRan,
    Undone,
)
from fugu_cli.session.live_events import (
    Live,
    OutputStreamed,
    Retried,
    TextStreamed,
    ThoughtStreamed,
)
from fugu_cli.session.log import Log
from fugu_cli.ui.blocks import (
    EndBlock,
    NoteBlock,
    ReplyBlock,
    RequestBlock,
    ThinkingBlock,
    ToolBlock,
)
from fugu_cli.ui.trace_rows import RequestRow, TraceRows
from fugu_cli.ui.transcript import Transcript, transcript_blocks

CALL = Call.make("t1-0-0", "bash", command="ls")
ASKED = Asked(text="do it")
ASSIGNED = Assigned(turn=1, agent="small", role="worker", by="cascade")


def speeches(transcript: Transcript) -> list[str]:
    return ["".join(block.texts) for block in transcript.blocks if isinstance(block, ReplyBlock)]


def take(transcript: Transcript, *items: object) -> list[int | None]:
    changed = []
    for item in items:
        record = (
            item
            if isinstance(item, TextStreamed | OutputStreamed | Retried)
            else Recorded(seq=0, at=0.0, event=item)
        )  # type: ignore[arg-type]
        changed.append(transcript.add_item(record))
    return changed


def test_a_session_that_was_watched_looks_like_one_that_is_read(sample: list[Recorded]) -> None:
    log = Log.memory()

    async def watched() -> Transcript:
        transcript = Transcript()

        async def follow() -> None:
            async for item in log.follow():
                transcript.add_item(item)

        following = asyncio.create_task(follow())
        await asyncio.sleep(0)
        for record in sample:
            event = record.event
            if isinstance(event, Replied):
                for word in event.text.split(" "):
                    log.tell(TextStreamed(turn=event.turn, agent=event.agent, text=word))
            if isinstance(event, ToolRan):
                log.tell(OutputStreamed(turn=event.turn, call=event.call.id, text=event.output))
            log.append(event)
        await asyncio.sleep(0.01)
        log.close()
        await following
        return transcript

    transcript = asyncio.run(watched())
    shape = [
        (type(block), block if isinstance(block, ToolBlock | NoteBlock) else None)
        for block in transcript.blocks
    ]
    read = transcript_blocks([record.model_copy(update={"at": 0.0}) for record in sample])
    assert shape == [
        (type(block), block if isinstance(block, ToolBlock | NoteBlock) else None) for block in read
    ]
    assert speeches(transcript) == [
        "".join(block.texts) for block in read if isinstance(block, ReplyBlock)
    ]


def test_what_is_said_grows_one_block_and_says_which() -> None:
    transcript = Transcript()
    take(transcript, ASKED, ASSIGNED)
    changed = take(
        transcript,
        TextStreamed(turn=1, agent="small", text="I "),
        TextStreamed(turn=1, agent="small", text="do."),
    )
    assert (changed, speeches(transcript)) == ([2, 3], ["I do."])


def shown(transcript: Transcript) -> list[str]:
    """What the newest request's blocks say, empty ones left out."""
    said = (
        "".join(block.texts) if isinstance(block, ReplyBlock) else block.text
        for block in transcript.blocks
        if isinstance(block, ReplyBlock | NoteBlock | ThinkingBlock)
    )
    return [text for text in said if text]


def retried(number: int, turn: int = 1, kind: str = "network") -> Retried:
    return Retried(
        turn=turn, agent="small", kind=kind, why="small: cut", seconds=1.0, retry=number, retries=4
    )


def test_the_text_of_a_call_that_is_made_again_goes_and_one_line_says_so() -> None:
    transcript = Transcript()
    said = TextStreamed(turn=1, agent="small", text="half a sen")
    take(transcript, ASKED, ASSIGNED, said)
    assert take(transcript, retried(1)) == [3]
    assert shown(transcript) == ["small: connection lost, retrying 1 of 4"]
    assert take(transcript, retried(2, kind="timeout")) == [3]
    assert take(transcript, said) == [4]
    assert shown(transcript) == ["small: no answer in time, retrying 2 of 4", "half a sen"]
    assert take(transcript, retried(3)) == [3]
    assert shown(transcript) == ["small: connection lost, retrying 3 of 4"]
    take(transcript, said)
    assert take(transcript, Replied(turn=1, agent="small", text="half a sentence")) == [3]
    assert shown(transcript) == ["half a sentence"]


def test_only_the_turn_whose_call_is_made_again_loses_its_text() -> None:
    transcript = Transcript()
    take(transcript, ASKED, ASSIGNED, ASSIGNED.model_copy(update={"turn": 2, "agent": "large"}))
    take(
        transcript,
        TextStreamed(turn=1, agent="small", text="one"),
        TextStreamed(turn=2, agent="large", text="two"),
        retried(1),
    )
    assert speeches(transcript) == ["two"]


def test_that_a_call_was_made_again_is_over_when_it_failed_for_good() -> None:
    transcript = Transcript()
    take(
        transcript,
        ASKED,
        ASSIGNED,
        retried(4),
        Failed(turn=1, what="small", kind="network", message="gone"),
    )
    assert shown(transcript) == ["small failed: gone"]


def test_a_thought_stands_before_what_was_said() -> None:
    transcript = Transcript()
    take(transcript, ASKED, ASSIGNED, TextStreamed(turn=1, agent="small", text="yes"))
    take(transcript, Replied(turn=1, agent="small", text="yes", thinking=(Thinking(text="hm"),)))
    assert [type(block) for block in transcript.blocks[2:]] == [ThinkingBlock, ReplyBlock]


def test_a_thought_that_comes_late_moves_no_other_block() -> None:
    """Another step's call runs meanwhile, and a command of the user's is shown."""
    transcript = Transcript()
    permitted = Permitted(turn=2, call=CALL, allowed=True, by="policy")
    take(transcript, ASKED, ASSIGNED, ASSIGNED.model_copy(update={"turn": 2}))
    take(transcript, TextStreamed(turn=1, agent="small", text="yes"), permitted)
    note = transcript.say(NoteBlock("$ ls"))
    take(transcript, Replied(turn=1, agent="small", text="yes", thinking=(Thinking(text="hm"),)))
    transcript.blocks[note] = NoteBlock("$ ls", detail="files")
    take(transcript, OutputStreamed(turn=2, call=CALL.id, text="out"))
    shown = [NoteBlock("turn 1, small:"), ThinkingBlock("hm"), "yes", NoteBlock("turn 2, small:")]
    shown += [ToolBlock(CALL, permitted, live="out"), NoteBlock("$ ls", detail="files")]
    assert [
        "".join(block.texts) if isinstance(block, ReplyBlock) else block
        for block in transcript.blocks[3:]
    ] == shown


def test_a_running_tool_shows_its_newest_output_and_then_its_result() -> None:
    transcript = Transcript()
    ran = ToolRan(turn=1, call=CALL, output="a b", ok=True)
    take(transcript, ASKED, ASSIGNED, Permitted(turn=1, call=CALL, allowed=True, by="policy"))
    changed = take(
        transcript,
        OutputStreamed(turn=1, call=CALL.id, text="a"),
        OutputStreamed(turn=1, call=CALL.id, text=" b"),
    )
    use = transcript.blocks[2]
    assert isinstance(use, ToolBlock)
    assert (changed, use.live) == ([2, 2], "a b")
    take(transcript, ran)
    assert transcript.blocks[2] == replace(use, result=ran, live="")


def test_an_interruption_marks_what_it_cut_and_keeps_what_was_said() -> None:
    transcript = Transcript()
    permitted = Permitted(turn=1, call=CALL, allowed=True, by="policy")
    assert take(transcript, ASKED, ASSIGNED, permitted, Interrupted(turn=1))[-1] == 2
    assert transcript.blocks[2] == ToolBlock(CALL, permitted, cut=True)
    assert transcript.blocks[3] == NoteBlock(
        "interrupted; `fugu run --continue` goes on, or ask something else", "warn"
    )
    fresh = Transcript()
    take(fresh, ASKED, ASSIGNED, Interrupted(turn=1, partial="I was ab"))
    assert speeches(fresh) == ["I was ab"]


def test_call_ids_that_come_again_in_the_next_request_do_not_meet() -> None:
    transcript = Transcript()
    permitted = Permitted(turn=1, call=CALL, allowed=True, by="policy")
    first = ToolRan(turn=1, call=CALL, output="one", ok=True)
    second = ToolRan(turn=1, call=CALL, output="two", ok=False)
    take(transcript, ASKED, ASSIGNED, permitted, first, Finished(reason="answered"))
    take(transcript, ASKED, ASSIGNED, permitted, second)
    uses = [block.result for block in transcript.blocks if isinstance(block, ToolBlock)]
    assert uses == [first, second]


def test_the_end_says_what_the_request_took(sample: list[Recorded]) -> None:
    ends = [block for block in transcript_blocks(sample) if isinstance(block, EndBlock)]
    assert [
        (end.finished.reason, end.summary.turns, end.seconds, end.summary.tokens) for end in ends
    ] == [
        ("accepted", 4, 46.0, 7612),
        ("turn_limit", 1, 14.0, 850),
    ]


def test_the_time_of_a_request_leaves_out_what_the_user_took_to_think() -> None:
    transcript, rows = Transcript(), TraceRows()
    plan_end = Finished(reason="answered")
    change = Steered(text="smaller")
    asked_again = Permitted(turn=2, call=CALL, allowed=True, by="user", waited=5.0)
    events = (ASKED, ASSIGNED, plan_end, change, ASSIGNED, asked_again, Finished(reason="answered"))
    for at, event in zip((0.0, 1.0, 3.0, 503.0, 504.0, 510.0, 512.0), events, strict=True):
        transcript.add_item(Recorded(seq=0, at=at, event=event))
        rows.add_item(Recorded(seq=0, at=at, event=event))
    end, request = transcript.blocks[-1], rows.rows[0]
    assert isinstance(end, EndBlock) and end.seconds == 7.0
    assert isinstance(request, RequestRow) and request.seconds == 7.0


@pytest.mark.parametrize(
    ("requests", "alone"), [(5.0, "opus alone ~$0.12 (mean of 5 requests)"), (4.0, "")]
)
def test_the_end_says_what_whole_requests_of_the_dearest_agent_cost_once_five_tell(
    requests: float, alone: str
) -> None:
    def member(name: str, price: float) -> Member:
        prices = Price(input=price, output=price)
        return Member(name=name, provider="x", model=name, slot="cheap", price=prices)

    cheap = OutcomeCount(agent="small", solo_requests=9.0, solo_cost=0.09)
    turns_of_mixed_requests = OutcomeCount(agent="opus", kind="data", turns=9.0, mean_cost=0.01)
    dear = OutcomeCount(agent="opus", solo_requests=requests, solo_cost=requests * 0.12)
    changed = ToolRan(
        turn=1,
        call=CALL,
        output="",
        ok=True,
        changes=(FileChange(path="a", before=None, after="1"),),
    )
    paid = Replied(turn=1, agent="small", text="Done.", usage=Usage(input=100, output=10))
    transcript = Transcript()
    opened = Opened(
        version="1", repo="/", pool=(member("small", 1), member("opus", 9)), coordinator="trinity"
    )
    take(transcript, opened, ASKED, OutcomesKnown(counts=(cheap, turns_of_mixed_requests, dear)))
    take(
        transcript, ASSIGNED, Permitted(turn=1, call=CALL, allowed=True, by="policy"), changed, paid
    )
    take(transcript, Finished(reason="answered"))
    end = transcript.blocks[-1]
    assert isinstance(end, EndBlock) and end.summary.alone == alone


def test_undoing_says_which_files_were_removed() -> None:
    changes = (FileChange(path="new.py", before="1" * 40, after=None),)
    undone = Undone(snapshot="a", paths=("new.py", "x.py", "y.py"), changes=changes)
    (note,) = transcript_blocks([Recorded(seq=0, at=0.0, event=undone)])
    assert isinstance(note, NoteBlock)
    assert note.text == "undone by the user: 2 files put back, 1 file removed"


def test_what_was_thought_stands_before_the_reply_as_soon_as_that_begins() -> None:
    transcript = Transcript()
    take(transcript, ASKED, ASSIGNED)
    transcript.add_item(ThoughtStreamed(turn=1, agent="small", text="let me "))
    transcript.add_item(ThoughtStreamed(turn=1, agent="small", text="see"))
    take(transcript, TextStreamed(turn=1, agent="small", text="It is done."))
    thought, reply = transcript.blocks[-2:]
    assert thought == ThinkingBlock("let me see") and isinstance(reply, ReplyBlock)


def test_undone_inside_a_turn_and_between_requests_are_told_apart() -> None:
    inside = transcript_blocks(
        [Recorded(seq=0, at=0.0, event=Undone(snapshot="a", turn=2, reason="the tests failed"))]
    )
    by_user = Undone(snapshot="a", paths=("x.py",))
    between = transcript_blocks([Recorded(seq=0, at=0.0, event=by_user)])
    assert inside == [NoteBlock("rolled back, trying again: the tests failed", "warn")]
    assert between == [NoteBlock("undone by the user: 1 file put back", "warn", "x.py")]
    left = transcript_blocks(
        [Recorded(seq=0, at=0.0, event=by_user.model_copy(update={"nested": ("vendor/lib",)}))]
    )
    why = "left alone, because it is a repository of its own: vendor/lib"
    assert left == [NoteBlock(f"undone by the user; {why}: 1 file put back", "warn", "x.py")]


def test_output_of_an_unknown_call_changes_nothing() -> None:
    transcript = Transcript()
    items: list[Live] = [OutputStreamed(turn=1, call="nobody", text="x")]
    assert [transcript.add_item(item) for item in items] == [None]
    assert transcript.blocks == []


def test_a_request_is_shown_with_what_was_attached(sample: list[Recorded]) -> None:
    requests = [block for block in transcript_blocks(sample) if isinstance(block, RequestBlock)]
    assert requests == [
        RequestBlock("fix the failing test in src/add.py"),
        RequestBlock("write notes.txt\nwith three letters", ("src/add.py",)),
    ]
