"""Subtasks on the screen: from facts to lines, in the block of their call and as rows of the
trace.
"""

from fugu_cli.messages import Call, Usage
from fugu_cli.session.events import (
    Asked,
    Assigned,
    Event,
    Finished,
    Interrupted,
    Member,
    Opened,
    Permitted,
    Recorded,
    Replied,
    Subtask,
    ToolRan,
)
from fugu_cli.session.live_events import TextStreamed
from fugu_cli.ui import trace
from fugu_cli.ui.block_drawing import transcript_fragments
from fugu_cli.ui.drawing import DARK, plain_text
from fugu_cli.ui.session_totals import FoldedSession
from fugu_cli.ui.trace_drawing import trace_row_lines
from fugu_cli.ui.trace_rows import TraceRows
from fugu_cli.ui.transcript import transcript_blocks

REVIEW = Call.make(
    "t1-0-0", "task", description="review calc", prompt="Review calc.py", agent="reviewer"
)
FIND = Call.make("t1-0-1", "task", description="find uses", prompt="Find uses")
READ = Call.make("t2-0-0", "read", path="calc.py")
POOL = tuple(
    Member(name=name, provider="openai", model=name, slot="middle") for name in ("big", "small")
)


def begun(turn: int, call: Call, name: str, about: str) -> Assigned:
    task = Subtask(turn=1, call=call.id, name=name, about=about)
    return Assigned(
        turn=turn,
        agent="small",
        role="worker",
        by="cascade",
        reason="cheapest first",
        instruction=about,
        subtask=task,
    )


def says(turn: int, text: str, *calls: Call) -> Replied:
    agent = "big" if turn == 1 else "small"
    return Replied(turn=turn, agent=agent, text=text, calls=calls, usage=Usage(input=20, output=2))


RUNNING: tuple[Event, ...] = (
    Opened(version="1", repo="/r", pool=POOL, coordinator="cascade"),
    Asked(text="review"),
    Assigned(turn=1, agent="big", role="worker", by="cascade"),
    says(1, "I ask.", REVIEW, FIND),
    Permitted(turn=1, call=REVIEW, allowed=True, by="policy"),
    begun(2, REVIEW, "reviewer", "review calc"),
    Permitted(turn=1, call=FIND, allowed=True, by="policy"),
    begun(3, FIND, "", "find uses"),
    says(2, "I read.", READ),
    Permitted(turn=2, call=READ, allowed=True, by="policy"),
    ToolRan(turn=2, call=READ, output="x", ok=True),
    says(3, "Used twice."),
)
DONE: tuple[Event, ...] = (
    *RUNNING,
    ToolRan(turn=1, call=FIND, output="Used twice.\n\n[1 reply]", ok=True),
    says(2, "A bug in line 3."),
    ToolRan(turn=1, call=REVIEW, output="A bug in line 3.\n\n[2 replies]", ok=True),
    says(1, "Done."),
    Finished(reason="answered"),
)


def records(facts: tuple[Event, ...]) -> list[Recorded]:
    return [Recorded(seq=seq, at=float(seq), event=event) for seq, event in enumerate(facts)]


def conversation(facts: tuple[Event, ...], *, unfolded: bool = False) -> list[str]:
    """The lines from the first call on."""
    fragments = transcript_fragments(transcript_blocks(records(facts)), unfolded=unfolded)
    lines = [
        plain_text(line).rstrip() for fragment in fragments for line in fragment.painted(60, DARK)
    ]
    return lines[lines.index("I ask.") + 2 :]


def test_what_a_subtask_says_and_does_stands_in_the_block_of_its_call() -> None:
    assert conversation(RUNNING) == [
        "  … task reviewer: review calc",
        "    small takes it (cheapest first)",
        "    I read.",
        "    read calc.py  ok",
        "  … task find uses",
        "    small takes it (cheapest first)",
        "    Used twice.",
    ]


def test_one_that_is_done_is_a_line_until_it_is_unfolded() -> None:
    assert conversation(DONE)[:4] == [
        "  ✓ task reviewer: review calc",
        "  ✓ task find uses",
        "",
        "Done.",
    ]
    assert conversation(DONE, unfolded=True)[:11] == [
        "  ✓ task reviewer: review calc",
        "    small takes it (cheapest first)",
        "    I read.",
        "    read calc.py  ok",
        "    A bug in line 3.",
        "",
        "    [2 replies]",
        "  ✓ task find uses",
        "    small takes it (cheapest first)",
        "    Used twice.",
        "",
    ]


def test_a_subtask_that_is_cut_says_so_in_its_block() -> None:
    cut = conversation(
        (*RUNNING, Interrupted(turn=2), Interrupted(turn=3), Interrupted(turn=1)), unfolded=True
    )
    assert cut[:5] == [
        "  ■ task reviewer: review calc  interrupted",
        "    small takes it (cheapest first)",
        "    I read.",
        "    read calc.py  ok",
        "    interrupted",
    ]
    assert sum("interrupted; /continue goes on" in line for line in cut) == 1


def test_rows_of_subtasks_stand_below_their_turn() -> None:
    rows = TraceRows()
    for record in records(DONE):
        rows.add_item(record)
    drawn = [plain_text(line) for row in rows.rows for line in trace_row_lines(row, 60, DARK)]
    assert [" ".join(line.split()) for line in drawn] == [
        "1 review done",
        "1 ● worker big 13s 44 $0",
        "2 └ ● reviewer small 8.0s 44 $0",
        "review calc",
        "→ A bug in line 3.",
        "3 └ ● task small 4.0s 22 $0",
        "find uses",
        "→ Used twice.",
    ]
    text = trace.trace_text(records(DONE), "s", 130)
    for line in (
        "1     worker   big      0 ms   13 s  40    4    $0  no change",
        "2     subtask  small    0 ms  8.0 s  40    4    $0  answered",
        "      for turn 1, reviewer: review calc",
    ):
        assert line in text.splitlines()


def test_the_status_line_waits_for_the_turn_again_when_its_subtasks_are_done() -> None:
    folded = FoldedSession()
    for record in records(RUNNING):
        folded.add_item(record, 0.0)
    folded.add_item(TextStreamed(turn=2, agent="small", text="A"), 0.0)
    assert folded.activity.doing == "small is writing"
    before = folded.totals.context
    for record in records(DONE)[len(RUNNING) : -2]:
        folded.add_item(record, 0.0)
    assert (folded.activity.doing, folded.totals.context) == ("waiting for big", before)
