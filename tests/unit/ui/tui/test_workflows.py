"""Workflows in the trace and in the conversation: the graph, the state of each step, turns that are
open together.
"""

from __future__ import annotations

from collections.abc import Sequence

from fugu_cli.messages import Usage
from fugu_cli.session.events import (
    Asked,
    Assigned,
    Event,
    Failed,
    Finished,
    Member,
    Opened,
    Planned,
    Price,
    Recorded,
    Replied,
    WorkflowStep,
)
from fugu_cli.session.live_events import TextStreamed
from fugu_cli.ui import trace_drawing
from fugu_cli.ui.block_drawing import plan_lines
from fugu_cli.ui.blocks import Block, DecisionBlock, PlanBlock, ReplyBlock
from fugu_cli.ui.drawing import DARK, plain_text
from fugu_cli.ui.inline_view import LinePrinter, Scrollback
from fugu_cli.ui.trace_rows import PlanRow, TraceRows, TurnRow
from fugu_cli.ui.transcript import Transcript, transcript_blocks
from fugu_cli.ui.turn_page import turn_sections
from fugu_cli.ui.workflow_text import edge_columns

POOL = tuple(
    Member(name=name, provider="openai", model=name, slot=slot, price=Price(input=1.0, output=1.0))
    for name, slot in (("small", "cheap"), ("large", "strong"))
)
STEPS = (
    WorkflowStep(agent="small", instruction="find the cause"),
    WorkflowStep(agent="large", instruction="write a test"),
    WorkflowStep(agent="large", instruction="put it right", access=(0, 1)),
    WorkflowStep(agent="small", instruction="say what was done", access="all"),
)


def step(turn: int, agent: str, place: int, sees: tuple[int, ...] = ()) -> Assigned:
    return Assigned(
        turn=turn, agent=agent, role="worker", by="conductor", plan=1, step=place, sees=sees
    )


def said(turn: int, agent: str, text: str) -> Replied:
    return Replied(
        turn=turn, agent=agent, text=text, usage=Usage(input=1000, output=500), seconds=1.0
    )


def interleaved() -> list[Event]:
    """Two steps at the same time, a third whose first try fails, a fourth that was not begun."""
    return [
        Opened(version="1", repo="/r", pool=POOL, coordinator="conductor"),
        Asked(text="fix it"),
        Planned(steps=STEPS, text="[...]", agent="large", usage=Usage(input=2000, output=100)),
        step(1, "small", 0),
        step(2, "large", 1),
        said(2, "large", "a test"),
        said(1, "small", "the cause"),
        step(3, "large", 2, (1, 2)),
        Failed(turn=3, what="large", kind="limited", message="429"),
        step(4, "small", 2, (1, 2)),
        said(4, "small", "it is right"),
    ]


def recorded(facts: Sequence[Event]) -> list[Recorded]:
    return [Recorded(seq=seq, at=1000.0 + seq, event=event) for seq, event in enumerate(facts)]


def rows(facts: Sequence[Event]) -> TraceRows:
    made = TraceRows()
    for record in recorded(facts):
        made.add_item(record)
    return made


def drawn(made: TraceRows, width: int = 60) -> list[str]:
    return [
        plain_text(line).rstrip()
        for row in made.rows
        for line in trace_drawing.trace_row_lines(row, width, DARK)
    ]


def test_the_graph_shows_every_edge_of_the_access_lists() -> None:
    assert edge_columns(STEPS) == ["╭───  ", "│╭──  ", "├┼┬─▸ ", "╰┴┴─▸ "]


def test_steps_that_read_nothing_have_no_edges() -> None:
    assert edge_columns([WorkflowStep(agent="a", instruction="x")] * 3) == ["", "", ""]


def test_an_access_list_that_names_what_is_not_there_is_drawn_without_it() -> None:
    assert edge_columns(
        [
            WorkflowStep(agent="a", instruction="x", access=(5,)),
            WorkflowStep(agent="a", instruction="x", access=(1, 0)),
        ]
    ) == [
        "╭─  ",
        "╰─▸ ",
    ]


def test_turns_that_are_open_together_keep_their_own_facts() -> None:
    made = rows(interleaved())
    turns = [row for row in made.rows if isinstance(row, TurnRow)]
    assert [(t.assigned.turn, t.state, t.tokens, t.ended) for t in turns] == [
        (1, "closed", 1500, 1006.0), (2, "closed", 1500, 1005.0), (3, "failed", 0, 1008.0), (4, "open", 1500, 1010.0),
    ]  # fmt: skip
    plan = next(row for row in made.rows if isinstance(row, PlanRow))
    assert {place: [turn.assigned.turn for turn in tries] for place, tries in plan.steps.items()} == {
        0: [1], 1: [2], 2: [3, 4],
    }  # fmt: skip


def test_the_workflow_shows_state_time_and_cost_of_each_step() -> None:
    lines = drawn(rows([*interleaved(), Finished(reason="answered")]))
    plan = lines[1:6]
    assert [line.split() for line in plan[1:]] == [
        ["╭───", "1", "●", "small", "find", "the", "cause", "3.0s", "$0.0015"],
        ["│╭──", "2", "●", "large", "write", "a", "test", "1.0s", "$0.0015"],
        ["├┼┬─▸", "3", "●", "small", "×2", "put", "it", "right", "2.0s", "$0.0015"],
        ["╰┴┴─▸", "4", "○", "small", "say", "what", "was", "done"],
    ]
    assert "workflow of 4 steps  by large" in plan[0] and "$0.0021" in plan[0]


def test_a_reply_that_is_no_workflow_says_why() -> None:
    facts = [
        *interleaved()[:2],
        Planned(steps=(), text="?", agent="large", fault="the lists differ in length"),
    ]
    assert [line.split() for line in drawn(rows(facts))[1:]] == [
        ["no", "workflow", "by", "large", "$0"],
        ["the", "lists", "differ", "in", "length"],
    ]


def test_what_is_said_at_the_same_time_is_not_mixed() -> None:
    facts = recorded(interleaved())
    transcript = Transcript()
    for record in facts[:5]:
        transcript.add_item(record)
    for turn, agent, text in (
        (1, "small", "the "),
        (2, "large", "a "),
        (1, "small", "cause"),
        (2, "large", "test"),
    ):
        transcript.add_item(TextStreamed(turn=turn, agent=agent, text=text))
    for record in facts[5:]:
        transcript.add_item(record)
    speeches = [block for block in transcript.blocks if isinstance(block, ReplyBlock)]
    assert [(block.agent, "".join(block.texts), block.live) for block in speeches] == [
        ("small", "the cause", False), ("large", "a test", False), ("small", "it is right", False),
    ]  # fmt: skip
    assert headed(transcript.blocks) == WATCHED


WATCHED = ["turn 1", "the cause", "turn 2", "a test", "turn 3", "turn 4", "it is right"]


def headed(blocks: list[Block]) -> list[str]:
    """Headings and what was said, from top to bottom."""
    heads = {
        id(one): f"turn {one.assigned.turn}" for one in blocks if isinstance(one, DecisionBlock)
    }
    said = {id(one): "".join(one.texts) for one in blocks if isinstance(one, ReplyBlock)}
    shown = heads | said
    return [shown[id(block)] for block in blocks if id(block) in shown]


def test_a_finished_log_looks_like_the_one_that_was_watched() -> None:
    assert headed(transcript_blocks(recorded(interleaved()))) == WATCHED


def test_the_detail_of_a_step_is_of_this_step_alone() -> None:
    facts = recorded(interleaved())
    made = rows(interleaved())
    first = next(row for row in made.rows if isinstance(row, TurnRow))
    shown = {part.title: [plain_text(line) for piece in part.pieces for line in piece.painted(90, DARK)]
             for part in turn_sections(facts, first)}  # fmt: skip
    assert any(
        "step 1 of workflow 1 reads the request alone" in line for line in shown["The decision"]
    )
    assert any("the cause" in line for line in shown["What it did"])
    assert not any("a test" in line for line in shown["What it did"])
    third = [row for row in made.rows if isinstance(row, TurnRow)][3]
    decision = next(part for part in turn_sections(facts, third) if part.title == "The decision")
    text = " ".join(
        plain_text(line) for piece in decision.pieces for line in piece.painted(90, DARK)
    )
    assert "step 3 of workflow 1 reads the request and the words of turn 1, 2" in text


def test_a_second_round_says_why() -> None:
    again = Planned(steps=STEPS[:1], text="[...]", agent="large", round=2)
    judged = Assigned(turn=5, agent="large", role="verifier", by="conductor")
    facts = recorded(
        [*interleaved(), judged, said(5, "large", "REVISE. A test is missing."), again]
    )
    block = next(
        block for block in reversed(transcript_blocks(facts)) if isinstance(block, PlanBlock)
    )
    assert [plain_text(line) for line in plan_lines(block, 60, DARK)][:2] == [
        "● workflow of 1 step, round 2 by large",
        "  because a Verifier asked for changes",
    ]


def test_in_the_scrollback_a_step_is_printed_below_its_own_heading() -> None:
    printed: list[str] = []
    feed = Scrollback(LinePrinter(printed.append, lambda: 60, DARK))
    for record in recorded(interleaved()):
        feed.add_item(record)
    text = "".join(printed).partition("say what was done")[2]
    found = [text.index(part) for part in WATCHED]
    assert found == sorted(found)
