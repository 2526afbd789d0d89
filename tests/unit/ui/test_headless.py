"""`fugu run` on a terminal and in a log: what is printed, where, and in which order."""

import asyncio
import io
import json
import re

import pytest
from rich.text import Text

from fugu_cli.session.events import Event
from fugu_cli.session.live_events import OutputStreamed, Retried, TextStreamed, Waiting
from fugu_cli.session.log import Log
from fugu_cli.session.state import SessionState
from fugu_cli.ui import headless
from fugu_cli.ui.headless import RunReport
from fugu_cli.ui.json_output import RunEnding
from fugu_cli.ui.terminal_output import TerminalOutput
from tests.unit.ui import example
from tests.unit.ui.test_render import TEXT
from tests.unit.ui.test_screen import Terminal

PATCH = "diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-x = 1\n+x = 3\n"


def timeless(text: str) -> str:
    """Without how long the request took."""
    return re.sub(r"turns · \w+(\.\ds)? ·", "turns ·", text)


def screens() -> tuple[TerminalOutput, io.StringIO, io.StringIO]:
    out, err = io.StringIO(), io.StringIO()
    return TerminalOutput(out, err, {}), out, err


async def told(log: Log, facts: list[Event], reader: object) -> None:
    task = asyncio.ensure_future(reader)  # type: ignore[arg-type]
    for fact in facts:
        log.append(fact)
        await asyncio.sleep(0)
    log.close()
    await task


def test_text_prints_every_fact_as_it_happens() -> None:
    screen, out, err = screens()
    log = Log.memory()
    asyncio.run(told(log, example.events(), headless.follow_text(log, screen)))
    assert (timeless(err.getvalue()), out.getvalue()) == (timeless(TEXT), "")


def test_a_session_that_goes_on_prints_only_what_is_new() -> None:
    screen, _, err = screens()
    log = Log.memory(
        [*example.opening(), *example.evidence(0, "e0-0", ok=False), *example.first_turn()]
    )
    asyncio.run(
        told(log, example.last_turns(), headless.follow_text(log, screen, len(log.records)))
    )
    assert timeless(err.getvalue()) == timeless(TEXT[TEXT.index("● verifier small") :])


def test_the_waiting_line_says_what_is_waited_for() -> None:
    err = Terminal()
    screen = TerminalOutput(io.StringIO(), err, {"NO_COLOR": "1"})
    log = Log.memory(example.opening())

    async def go() -> None:
        task = asyncio.create_task(headless.follow_text(log, screen))
        await asyncio.sleep(0.01)
        for live in (
            Waiting(why="limited by the server", seconds=2.0),
            TextStreamed(turn=1, agent="coder", text="x" * 600),
            Retried(
                turn=1,
                agent="coder",
                kind="network",
                why="coder: cut",
                seconds=9.5,
                retry=2,
                retries=4,
            ),
            TextStreamed(turn=1, agent="coder", text="x" * 60),
            TextStreamed(turn=1, agent="coder", text="x" * 60),
            OutputStreamed(turn=1, call="c", text="\x1b[31mcollecting ...\n"),
        ):
            log.tell(live)
        await asyncio.sleep(0.01)
        log.close()
        await task

    asyncio.run(go())
    text = err.getvalue()
    assert text.count("  limited by the server, retrying in 2 s\n") == 1
    assert text.count("  coder: connection lost, retrying 2 of 4 in 10 s\n") == 1
    waited = [part for part in text.split("\r\x1b[K") if part and not part.endswith("\n")]
    assert waited == [
        "deciding",
        *["limited by the server, retrying in 2 s"] * 2,
        "coder is writing, 170 tokens",
        *["waiting for coder, retrying in 10 s"] * 2,
        "coder is writing, 10 tokens",
        "coder is writing, 30 tokens",
        "collecting ...",
    ]


def test_the_end_shows_diff_answer_totals_and_the_log() -> None:
    screen, out, err = screens()
    records = example.records()
    headless.print_end(
        SessionState.of_records(records),
        records,
        screen,
        RunReport("s1", "/data/s1.jsonl", 0, 65000, PATCH),
        RunEnding("accepted"),
    )
    assert out.getvalue() == "The bug was `x = 1`; it is 3 now.\n"
    assert err.getvalue() == (
        PATCH
        + """\
3 turns, 65 s, $0.0378, coder 4.8k in (800 cached) 1.2k out, strong 2.4k in (400 cached) 600 out
log: /data/s1.jsonl  (`fugu trace s1`)
"""
    )


def test_an_interrupted_request_says_how_to_go_on() -> None:
    screen, out, err = screens()
    end = RunEnding("interrupted", "the turn was cut; `fugu run --continue` goes on with it")
    records = example.recorded(example.opening())
    state = SessionState.of_records(records)
    headless.print_end(state, records, screen, RunReport("s1", "/l", 0, 400), end)
    assert out.getvalue() == ""
    assert err.getvalue() == (
        "interrupted: the turn was cut; `fugu run --continue` goes on with it\n0 turns, 400 ms, "
        "$0\n"
        "log: /l  (`fugu trace s1`)\n"
    )


def test_an_answer_with_escapes_is_cleaned() -> None:
    screen, out, _ = screens()
    facts = [
        *example.opening(),
        example.decision(1, "coder", "worker", None),
        example.said(1, "coder", "\x1b[2Jhi\x07"),
    ]
    state, records = SessionState(facts), example.recorded(facts)
    headless.print_end(state, records, screen, RunReport("s", ""), RunEnding("answered"))
    assert out.getvalue() == "hi\\x07\n"


def test_a_long_diff_is_cut_and_says_so() -> None:
    lines = headless.coloured_diff("+x\n" * 10, limit=4)
    assert lines == [*[Text("+x", "green")] * 4, Text("... 6 more lines of diff", "dim")]


def test_json_lines_stream_and_end_with_the_result() -> None:
    screen, out, err = screens()
    log = Log.memory()
    asyncio.run(
        told(log, example.events(), headless.follow_stream_json(log, screen, "s1", 0, lambda: None))
    )
    headless.print_result_object(
        log.state, log.records, screen, RunReport("s1", "/l"), RunEnding("accepted")
    )
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert err.getvalue() == ""
    assert [line["type"] for line in lines[-2:]] == ["assistant", "result"]
    assert lines[-1]["fugu"]["log"] == "/l"
    assert len(lines) == 19


def test_json_prints_one_object_and_follows_until_the_log_is_closed() -> None:
    screen, out, err = screens()
    log = Log.memory()
    asyncio.run(told(log, example.events(), headless.follow_quietly(log)))
    headless.print_result_object(
        log.state, log.records, screen, RunReport("s1", "/l"), RunEnding("accepted")
    )
    assert (json.loads(out.getvalue())["subtype"], err.getvalue()) == ("success", "")


@pytest.mark.parametrize("width", [0, 3])
def test_a_patch_without_lines_is_no_diff(width: int) -> None:
    assert headless.coloured_diff("\n" * width) == []
