"""A workflow in the trace: the graph, what each step was shown, what planning took, what was
kept.
"""

from __future__ import annotations

import json
from pathlib import Path

from fugu_cli.messages import Call, Prompt, Reply
from fugu_cli.ui import json_output, trace
from fugu_cli.ui.block_drawing import transcript_fragments
from fugu_cli.ui.blocks import Block
from fugu_cli.ui.drawing import DARK, StyledLine, plain_text
from fugu_cli.ui.session_totals import FoldedSession
from fugu_cli.ui.trace_rows import find_turn
from fugu_cli.ui.transcript import transcript_blocks
from fugu_cli.ui.turn_page import TurnSources, turn_text
from tests.facts import prompt_of
from tests.reacting import React, calls, results, says
from tests.unit.coordinators.conductor.staging import lists, planning, play

PLAN = lists((0, "Look at it.", []), (1, "Think.", []), (0, "Say it.", [0]))
JOB = "Repair calc.txt."


def writes(content: str) -> React:
    def react(prompt: Prompt) -> Reply:
        tools = [result.tool for result in results(prompt)]
        if "write" in tools:
            return Reply(text="Repaired.")
        if not tools:
            return calls(Call.make("1", "read", path="calc.txt"))
        return calls(Call.make("2", "write", path="calc.txt", content=content))

    return react


def test_the_graph_with_its_edges_manifests_costs_and_what_was_kept(tmp_path: Path) -> None:
    found = play(tmp_path, planning(PLAN), {})
    found.run("what is it?")
    text = trace.trace_text(found.log.records, "s", 200)
    graph = text[text.index("plan 1:") : text.index("total:")].strip().splitlines()
    assert graph[0].startswith("plan 1: workflow of 3 steps, by c in ")
    assert [line.strip() for line in graph[1:]] == [
        "step 1  a  reads the request: Look at it.",
        "turn 1 (a): saw the request. 100 in, 10 out, $0",
        "step 2  b  reads the request: Think.",
        "turn 2 (b): saw the request; not turn 1. 100 in, 10 out, $0",
        "step 3  a  reads steps 1: Say it.",
        "turn 3 (a): saw the request, its own turn 1, the output of step 1 (turn 1); not turn 2. "
        "100 in, 10 out, $0",
        "planning: orchestration_input_tokens 100 (0 cached), orchestration_output_tokens 10, "
        "$0, 25 % of all tokens. "
        "kept: turns 1, 3; thrown away: turn 2",
    ]


def test_while_a_workflow_runs_nothing_of_it_is_called_thrown_away(tmp_path: Path) -> None:
    found = play(tmp_path, planning(PLAN), {})
    found.run("what is it?")
    events = [record.event for record in found.log.records]
    begun = [place for place, event in enumerate(events) if event.type == "assigned"]
    text = trace.trace_text(found.log.records[: begun[1] + 1], "s", 200)
    assert "turn 1 (a): saw the request. 0 in, 0 out, $0; not at its end" in text
    assert "turn 2 (b): saw the request; not turn 1. 0 in, 0 out, $0; not at its end" in text
    assert "nothing came of it" not in text and "thrown away" not in text
    text = trace.trace_text(found.log.records[: begun[2] + 1], "s", 200)
    assert "turn 1 (a): saw the request. 100 in, 10 out, $0\n" in text


def test_a_turn_in_full_shows_what_that_step_was_shown_and_nothing_of_the_ones_beside_it(
    tmp_path: Path,
) -> None:
    found = play(tmp_path, planning(PLAN), {"a": says("a speaks"), "b": says("b thinks")})
    found.run("what is it?")
    records = found.log.records
    row = find_turn(FoldedSession(records).rows.rows, 2)
    text = turn_text(
        records, row, TurnSources(lambda state, member: prompt_of(state.events, member, ())), 100
    )
    assert "Think." in text and "b thinks" in text
    before, _, rest = text.partition("── What it was not shown ")
    not_shown, _, after = rest.partition("── What it did ")
    assert ["a speaks" in part for part in (before, not_shown, after)] == [False, True, False]


def test_the_memory_says_what_it_saved(tmp_path: Path) -> None:
    reads = calls(Call.make("1", "read", path="calc.txt"))
    found = play(
        tmp_path,
        planning(lists((0, "Read it.", []))),
        {
            "a": lambda prompt: (
                Reply(text="read")
                if results(prompt) or "still true" in str(prompt.messages)
                else reads
            )
        },
    )
    found.run("what is it?")
    found.run("and now?")
    text = trace.trace_text(found.log.records, "s", 200)
    assert (
        "saw the request, 1 call remembered (read calc.txt by a). 100 in, 10 out, $0; saved 1 "
        "call, some 108 tokens" in text
    )


def test_the_same_job_and_what_was_taken_over(tmp_path: Path) -> None:
    plan = lists((0, JOB, []), (1, JOB, []))
    found = play(tmp_path, planning(plan), {"a": writes("wrong\n"), "b": writes("fixed\n")})
    found.run("fix the tests", judged=True)
    text = trace.trace_text(found.log.records, "s", 200)
    assert "the work of turn 2 is taken over; turn 1 left out: the tests pass for 1 of 2" in text
    assert "turn 1 (a, in a worktree): saw the request" in text
    assert "turn 1: +1 -1 lines" in text
    assert "kept: turn 2; thrown away: turn 1" in text


def drawn(blocks: list[Block]) -> list[StyledLine]:
    return [
        line
        for piece in transcript_fragments(blocks, unfolded=False)
        for line in piece.painted(100, DARK)
    ]


def test_every_fact_has_its_line_and_its_object(tmp_path: Path) -> None:
    plan = lists((0, JOB, []), (1, JOB, []))
    found = play(
        tmp_path, planning("prose", plan), {"a": writes("wrong\n"), "b": writes("fixed\n")}
    )
    found.run("fix the tests", judged=True)
    shown = "\n".join(plain_text(line) for line in drawn(transcript_blocks(found.log.records)))
    assert "● no workflow by c\n  there is no JSON list of steps in it" in shown
    assert "1 a Repair calc.txt." in shown
    assert "is taken over" in shown
    objects = [
        json_output.event_object(record, found.log.state.request, "s")
        for record in found.log.records
    ]
    plans = [one for one in objects if one and one.get("subtype") == "plan"]
    assert [(one["fault"] != "", one["kept"]) for one in plans] == [(True, False), (False, False)]
    assert json.loads(json_output.json_line(plans[1]))["usage"]["orchestration_input_tokens"] == 100
