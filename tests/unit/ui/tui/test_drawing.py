import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest
from rich.cells import cell_len
from rich.color import ColorSystem

from fugu_cli.acp.updates import LogUpdates
from fugu_cli.app import patches
from fugu_cli.messages import Call, Usage
from fugu_cli.session.events import (
    EVIDENCE,
    Asked,
    Assigned,
    Event,
    Failed,
    FileChange,
    Finished,
    Interrupted,
    JobEnded,
    Opened,
    Permitted,
    Recorded,
    Replied,
    Role,
    Steered,
    SteeringGiven,
    TestReport,
    ToolRan,
    Undone,
)
from fugu_cli.session.outcome import TESTS_BEFORE
from fugu_cli.tools.workspace import Workspace
from fugu_cli.ui import block_drawing, diff_drawing, trace_drawing
from fugu_cli.ui.block_drawing import markdown_lines, transcript_fragments
from fugu_cli.ui.blocks import (
    Block,
    DecisionBlock,
    EndBlock,
    NoteBlock,
    ReplyBlock,
    RequestBlock,
    ToolBlock,
)
from fugu_cli.ui.drawing import (
    DARK,
    PALETTES,
    StyledLine,
    justified_line,
    parse_style,
    plain_text,
    styled_line,
    wrap_lines,
)
from fugu_cli.ui.first_screen import read_first_screen
from fugu_cli.ui.hyperlinks import LinkFinder
from fugu_cli.ui.markdown_chunks import MarkdownChunk
from fugu_cli.ui.session_totals import FoldedSession, SessionTotals
from fugu_cli.ui.trace_rows import TraceRows, TurnRow, traced_requests
from fugu_cli.ui.transcript import Transcript, transcript_blocks
from fugu_cli.ui.tui import themes
from fugu_cli.ui.tui.pager import copied_text
from fugu_cli.ui.turn_page import section_title, turn_sections


def text(lines: list[StyledLine]) -> list[str]:
    return [plain_text(made) for made in lines]


def blocks_of(*facts: Event) -> list[Block]:
    return transcript_blocks(
        [Recorded(seq=seq, at=0.0, event=event) for seq, event in enumerate(facts)]
    )


def rows(sample: list[Recorded]) -> TraceRows:
    made = TraceRows()
    for record in sample:
        made.add_item(record)
    return made


def turn(sample: list[Recorded], index: int) -> TurnRow:
    return [row for row in rows(sample).rows if isinstance(row, TurnRow)][index]


@pytest.mark.parametrize(
    ("calls", "words"),
    [
        ((Call.make("1", "read", path="a.py"),), "given to gpt with the next result"),
        ((), "given to gpt"),
    ],
)
def test_a_message_to_an_agent_at_work_says_with_what_it_was_given(
    calls: tuple[Call, ...], words: str
) -> None:
    message = Steered(text="round it")
    *earlier, given = (
        Asked(text="mend it"),
        Assigned(turn=1, agent="gpt", role="worker", by="cascade", reason=""),
        Replied(turn=1, agent="gpt", text="I look.", calls=calls, usage=Usage()),
        message,
        SteeringGiven(turn=1, agent="gpt", number=1, message=message),
    )
    *_, block = blocks_of(*earlier, given)
    assert isinstance(block, RequestBlock)
    drawn = [line.strip() for line in text(block_drawing.request_lines(block, 60, DARK))]
    assert [line for line in drawn if line] == ["↳ round it", f"↳ {words}"]
    session: Any = SimpleNamespace(
        environment=SimpleNamespace(workspace=Workspace(Path("/r"), Path("/s")))
    )
    updates = LogUpdates(session, earlier)
    (update,) = asyncio.run(updates.of(Recorded(seq=4, at=0.0, event=given)))
    assert f"↳ {words}: round it" in str(update), "an editor is told the same"


def test_the_conversation_shows_the_answer_to_a_question() -> None:
    call = Call.make("1", "ask_user", question="Which rounding?", choices=["half up", "bankers"])
    blocks = blocks_of(
        Asked(text="round it"),
        Assigned(turn=1, agent="gpt", role="worker", by="cascade", reason=""),
        Replied(turn=1, agent="gpt", text="", calls=(call,), usage=Usage()),
        Permitted(turn=1, call=call, allowed=True, by="policy"),
        ToolRan(turn=1, call=call, output="The user answers: bankers", ok=True),
    )
    lines = [line for piece in block_drawing.block_fragments(blocks[-1], unfolded=False)
             for line in text(piece.painted(80, DARK))]  # fmt: skip
    assert [line.strip() for line in lines if line.strip()] == [
        "✓ ask_user Which rounding?", "→ bankers",
    ]  # fmt: skip


def test_an_interruption_names_the_messages_that_nobody_has_read() -> None:
    blocks = blocks_of(
        Asked(text="mend it"),
        Assigned(turn=1, agent="gpt", role="worker", by="cascade", reason=""),
        Steered(text="round it"),
        Interrupted(turn=1),
    )
    drawn = [line for piece in block_drawing.block_fragments(blocks[-1], unfolded=False)
             for line in text(piece.painted(80, DARK))]  # fmt: skip
    assert "↳ not read yet: round it" in drawn[1]


def test_markdown_is_drawn_without_boxes() -> None:
    source = "## Head\n"
    assert text(markdown_lines(MarkdownChunk(source), 40, DARK)) == ["Head", ""]
    assert text(markdown_lines(MarkdownChunk("```py\nreturn a\n```"), 40, DARK)) == [
        "  return a",
        "",
    ]
    assert text(markdown_lines(MarkdownChunk("- one\n- two", joined=True), 40, DARK)) == [
        " • one",
        " • two",
    ]


def test_no_line_is_wider_than_asked() -> None:
    source = (
        "# H\n\n"
        + "word " * 50
        + "\n\n```\n"
        + "x" * 200
        + "\n```\n\n| a | b |\n|---|---|\n| "
        + "y" * 90
        + " | z |"
    )
    for chunk in (MarkdownChunk(source), MarkdownChunk("日本語" * 40)):
        for width in (20, 41, 80):
            assert (
                max(
                    sum(segment.cell_length for segment in made)
                    for made in markdown_lines(chunk, width, DARK)
                )
                <= width
            )


def test_parts_that_do_not_fit_are_cut_with_an_ellipsis() -> None:
    assert plain_text(styled_line([("abc", ""), ("defgh", "")], 6)) == "abcde…"
    assert plain_text(styled_line([("日本語", "")], 4)) == "日 …"
    assert plain_text(justified_line([("left", "")], [("right", "")], 20)) == "left           right"
    assert plain_text(justified_line([("left", "")], [("right", "")], 8)) == "left"


def test_wrapped_lines_keep_their_indent() -> None:
    assert text(wrap_lines("one two three", 9, indent="  ")) == ["one two", "  three"]


def test_an_edit_is_shown_in_its_surroundings_where_the_file_is_known() -> None:
    call = Call.make("1", "edit", path="a.py", old="b", new="B")
    alone = patches.patch_of_call(call)
    inside = patches.patch_of_call(call, {"a.py": "a\nb\nc"}.get)
    assert alone.splitlines() == ["--- a.py", "+++ a.py", "@@ -1 +1 @@", "-b", "+B"]
    assert inside.splitlines() == [
        "--- a.py",
        "+++ a.py",
        "@@ -1,3 +1,3 @@",
        " a",
        "-b",
        "+B",
        " c",
    ]
    assert patches.patch_size(inside) == (1, 1)


def test_every_changing_call_has_a_diff_and_no_other() -> None:
    write = Call.make("1", "write", path="a", content="x\ny\n")
    patch = Call.make("1", "apply_patch", patch="*** Begin Patch\n+a")
    broken = Call(id="1", tool="edit", arguments="{not json")
    odd = Call(id="1", tool="edit", arguments="[1]")
    assert patches.patch_of_call(write).splitlines() == [
        "--- a",
        "+++ a",
        "@@ -0,0 +1,2 @@",
        "+x",
        "+y",
    ]
    assert patches.patch_of_call(patch) == "*** Begin Patch\n+a"
    assert [
        patches.patch_of_call(call) for call in (broken, odd, Call.make("1", "bash", command="ls"))
    ] == [
        "",
        "",
        "",
    ]


def test_only_what_differs_counts_towards_what_is_too_large_to_compare() -> None:
    file = "same\n" * 60_000
    edit = Call.make("1", "edit", path="a", old="old\n", new="new\n")
    patch = patches.patch_of_call(edit, {"a": f"{file}old\n{file}"}.get)
    assert "@@ -59998,7 +59998,7 @@\n same" in patch and "-old\n+new\n same" in patch
    call = Call.make("1", "write", path="a", content="x" * 500_000)
    assert (
        patches.patch_of_call(call).splitlines()[-1]
        == "@@ too large to compare: 0 and 500,000 characters @@"
    )


def test_a_long_diff_is_cut_and_says_so() -> None:
    patch = "\n".join(f"+{number}" for number in range(30))
    assert text(diff_drawing.patch_lines(patch, 30, DARK, 3)) == [
        "+0",
        "+1",
        "+2",
        "… 27 more lines",
    ]


def test_where_there_is_little_room_only_what_changes_is_shown() -> None:
    one = "--- a\n+++ a\n@@ -1,3 +1,3 @@\n x\n-y\n+z\n x"
    two = one + "\n" + one.replace(" a", " b")
    assert text(diff_drawing.patch_lines(one, 20, DARK, None, "changes")) == ["2 - y", "2 + z"]
    assert text(diff_drawing.patch_lines(two, 20, DARK, None, "changes")) == [
        "a",
        "2 - y",
        "2 + z",
        "b",
        "2 - y",
        "2 + z",
    ]
    assert text(diff_drawing.patch_lines(one, 20, DARK, None, "untitled")) == [
        "1   x",
        "2 - y",
        "2 + z",
        "3   x",
    ]


def test_a_diff_hides_no_character_and_no_line() -> None:
    content = "echo \x1b]0;\ntouch a\n#\x07\n#\rmake\n++ /dev/null; touch b\nx\x0by\x85z\u202e\n"
    patch = patches.patch_of_call(Call.make("1", "write", path="a", content=content))
    lines = [
        "echo \\x1b]0;",
        "touch a",
        "#\\x07",
        "#\\x0dmake",
        "++ /dev/null; touch b",
        "x\\x0by\\x85z\\u202e",
    ]
    shown = [f"{number} + {line}" for number, line in enumerate(lines, start=1)]
    assert text(diff_drawing.patch_lines(patch, 40, DARK)) == ["a", *shown]
    assert text(diff_drawing.patch_lines(patch, 40, DARK, None, "changes")) == shown
    signless = "--- a\n+++ a\n@@ -1,2 +1,2 @@\nrm -rf b\n-x\n+y"
    assert text(diff_drawing.patch_lines(signless, 40, DARK)) == ["a", "rm -rf b", "1 - x", "1 + y"]


def test_of_a_patch_as_models_write_it_every_line_stands_there() -> None:
    patch = "*** Begin Patch\n*** Update File: a\n@@ def f\n-x\n+y\n*** End Patch"
    assert text(diff_drawing.patch_lines(patch, 40, DARK)) == patch.split("\n")


def marked(lines: list[StyledLine], words: str) -> list[str]:
    """What stands on this ground."""
    ground = parse_style(words).bgcolor
    return [
        segment.text
        for line in lines
        for segment in line
        if segment.style and segment.style.bgcolor == ground
    ]


def test_a_diff_has_the_colours_of_its_language_and_marks_the_words_that_differ() -> None:
    patch = patches.unified_diff(
        "a.py", "def f(a):\n    return a - b\n", "def f(a):\n    return a + b\n"
    )
    lines = diff_drawing.patch_lines(patch, 40, DARK)
    assert text(lines) == ["a.py", "1   def f(a):", "2 -     return a - b", "2 +     return a + b"]
    assert (marked(lines, DARK.removed_words), marked(lines, DARK.added_words)) == (["-"], ["+"])
    colours = {
        segment.style.color.name for segment in lines[1] if segment.style and segment.style.color
    }
    assert len(colours) > 2
    assert [sum(segment.cell_length for segment in line) for line in lines[2:]] == [40, 40]


def test_where_there_is_room_the_old_and_the_new_stand_beside_each_other() -> None:
    patch = patches.unified_diff("a.py", "one\ntwo\nend\n", "one\n2\nthree\nend\n")
    half = (160 - 3) // 2
    assert text(diff_drawing.patch_lines(patch, 160, DARK)) == [
        "a.py",
        f"{'1   one':<{half}} │ 1   one",
        f"{'2 - two':<{half}} │ 2 + 2",
        f"{'':<{half}} │ 3 + three",
        f"{'3   end':<{half}} │ 4   end",
    ]


def test_a_terminal_of_160_columns_has_room_for_both_beside_the_trace_too() -> None:
    patch = patches.unified_diff("a.py", "two\n", "2\n")
    both = [f"    {'1 - two':<46} │ 1 + 2"]
    one = ["    1 - two", "    1 + 2"]
    shown = {
        (columns, width): text(diff_drawing.indented_patch(patch, width, DARK, terminal=columns))
        for columns, width in ((160, 100), (159, 100), (200, 70), (0, 140))
    }
    assert shown == {(160, 100): both, (159, 100): one, (200, 70): one, (0, 140): one}


def test_the_line_of_a_call_hides_nothing_of_what_was_run() -> None:
    call = Call.make("1", "bash", command="echo \x1b]0; ; rm -rf a\x07 b # \recho ok\u202e")
    block = ToolBlock(call, Permitted(turn=1, call=call, allowed=True, by="policy"))
    shown = "  … bash echo \\x1b]0; ; rm -rf a\\x07 b # \\x0decho ok\\u202e"
    assert text(block_drawing.tool_lines(block, 80, DARK, unfolded=False)) == [shown]


def test_what_nobody_knows_the_price_of_is_not_free(sample: list[Recorded]) -> None:
    opened = sample[0].event
    assert isinstance(opened, Opened)
    members = tuple(
        m.model_copy(update={"price": None}) if m.name == "small" else m for m in opened.pool
    )
    sample[0] = sample[0].model_copy(update={"event": opened.model_copy(update={"pool": members})})
    tally = SessionTotals()
    for record in sample:
        tally.add_item(record)
    assert text(trace_drawing.totals_lines(tally.by_agent, tally.unpriced, (), 60, DARK)) == [
        "",
        "usage by agent",
        f"  coder{'4.8k in 130 out $0.0027':>53}",
        f"  small{'3.4k in 112 out unknown':>53}",
    ]
    lines = [
        text(trace_drawing.trace_row_lines(row, 60, DARK))[0]
        for row in rows(sample).rows
        if isinstance(row, TurnRow)
    ]
    assert ["unknown" in line for line in lines] == [True, False, False, True, True]
    called = turn_sections(sample, turn(sample, 0))[-2].pieces[0].painted(100, DARK)
    assert [", unknown, stop: " in line for line in text(called)] == [True, True]
    assert [row.paid for request in traced_requests(sample) for row in request.rows] == [
        "unknown", "$0.0027", "$0", "unknown", "unknown",
    ]  # fmt: skip


def test_what_git_says_of_a_file_is_left_out_and_line_ends_are_line_ends() -> None:
    patch = (
        "diff --git a/a b/a\nnew file mode 100644\nindex 000000..e25f18\n--- /dev/null\n+++ "
        "b/a\n@@ -0,0 +1 @@\n+x\r\n"
    )
    assert text(diff_drawing.patch_lines(patch, 40, DARK)) == ["a", "1 + x"]
    assert (
        patches.patch_of_call(Call.make("1", "write", path="a", content="x\r\n"), {"a": "x\n"}.get)
        == ""
    )


def test_every_block_is_drawn_in_every_palette_and_width(sample: list[Recorded]) -> None:
    for palette in PALETTES.values():
        for width in (24, 60, 120):
            for unfolded in (False, True):
                for piece in transcript_fragments(transcript_blocks(sample), unfolded=unfolded):
                    lines = piece.painted(width, palette)
                    assert all(
                        sum(segment.cell_length for segment in made) <= width for made in lines
                    )


def test_rows_say_what_each_turn_was_and_took(sample: list[Recorded]) -> None:
    found = [
        (
            row.request.number,
            row.assigned.turn,
            row.state,
            row.tokens,
            row.tests,
            row.verdict,
        )
        for row in rows(sample).rows
        if isinstance(row, TurnRow)
    ]
    assert found == [
        (1, 1, "closed", 1970, None, ""),
        (1, 2, "closed", 4930, "pass", ""),
        (1, 3, "failed", 0, None, ""),
        (1, 4, "closed", 712, None, "ACCEPT"),
        (2, 1, "closed", 850, None, ""),
    ]


def test_a_reason_of_three_lines_stands_whole_in_the_panel() -> None:
    reason = (
        "should solve 25% of requests, $0.0031 a turn, costs less than gpt, which may be no better"
    )
    events = [
        Asked(text="go"),
        Assigned(turn=1, agent="haiku", role="worker", by="trinity", reason=reason),
    ]
    recorded = [Recorded(seq=seq, at=0.0, event=event) for seq, event in enumerate(events)]
    (row,) = (row for row in rows(recorded).rows if isinstance(row, TurnRow))
    _, *lines = text(trace_drawing.trace_row_lines(row, 47, DARK))
    assert " ".join(line.strip() for line in lines) == reason


def test_rows_are_the_same_at_every_width_but_for_what_is_left_out(sample: list[Recorded]) -> None:
    made = rows(sample).rows
    assert text(trace_drawing.trace_row_lines(made[1], 34, DARK)) == [
        " 1 ● thinker small    8.0s      $0",
        "     p=.62, then middle .28",
    ]
    assert [text(trace_drawing.trace_row_lines(made[2], width, DARK))[0] for width in (36, 48)] == [
        " 2 ● worker coder       pass $0.0027",
        " 2 ● worker coder       tests pass   16s $0.0027",
    ]
    assert text(trace_drawing.trace_row_lines(made[4], 34, DARK)) == [
        " 4 ✓ verifier small             $0",
        "     p=.80, then middle .20 · rate",
        "     limited: large",
    ]
    assert text(trace_drawing.trace_row_lines(made[3], 60, DARK)) == [
        " 3 ✗ verifier large         rate limited  2.0s     0      $0",
        "     p=.70, then middle .20",
    ]
    assert text(trace_drawing.trace_row_lines(made[5], 40, DARK)) == [
        "",
        "2 write notes.txt w… stopped: turn limit",
    ]


def test_the_tally_adds_up_by_agent(sample: list[Recorded]) -> None:
    tally = SessionTotals()
    for record in sample:
        tally.add_item(record)
    assert {name: (usage.input, usage.output) for name, (usage, _) in tally.by_agent.items()} == {
        "small": (3420, 112),
        "coder": (4800, 130),
    }
    assert round(tally.cost, 6) == round(tally.by_agent["coder"][1], 6) == 0.00266
    assert FoldedSession(sample).activity.doing == ""


def test_the_detail_of_a_turn_has_its_sections(sample: list[Recorded]) -> None:
    made = turn_sections(sample, turn(sample, 1))
    assert [section.title for section in made] == [
        "The decision",
        "What the coordinator read",
        "What coder was shown",
        "What it was not shown",
        "What it did",
        "The diff it made",
        "Model calls",
        "Raw scores",
    ]
    drawn = {
        s.title: "\n".join(plain_text(made) for p in s.pieces for made in p.painted(90, DARK))
        for s in made
    }
    assert "a Thinker asked for this instead of a Verifier" in drawn["The decision"]
    assert "812 tokens, 700 of them cached" in drawn["What the coordinator read"]
    assert "fix the failing test in src/add.py" in drawn["What coder was shown"]
    assert drawn["The diff it made"].splitlines() == [
        "src/add.py",
        "1 -     return a - b",
        "1 +     return a + b",
    ]
    assert "1. coder-1: 1.5k in, 60 out, 2.0 s, $0.0009, stop: end" in drawn["Model calls"]


def test_the_decision_shows_bars_and_why_a_role_was_masked(sample: list[Recorded]) -> None:
    first = turn_sections(sample, turn(sample, 0))[0]
    lines = text(first.pieces[0].painted(90, DARK))
    assert "  small  $0 / $0       .62     +1.50  ◂ chosen" in lines
    assert "  verifier         there is no Worker answer yet" in lines
    section = turn_sections(sample, turn(sample, 0))[-1]
    raw = [line.strip() for piece in section.pieces for line in text(piece.painted(90, DARK))]
    assert "cheap            logit +1.500" in raw and "verifier         logit +2.000" in raw
    assert "96.9 ms: format 0.4, tokenise 0.0, forward 96.5, head 0.0" in raw


def test_a_verdict_alone_on_a_line_is_drawn_as_a_mark_and_only_of_a_verifier() -> None:
    def said(role: Role, words: str) -> list[str]:
        assigned = Assigned(turn=1, agent="small", role=role, by="cascade")
        blocks = blocks_of(Asked(text="go"), assigned, Replied(turn=1, agent="small", text=words))
        pieces = transcript_fragments(
            [block for block in blocks if isinstance(block, ReplyBlock)], unfolded=False
        )
        return [line for piece in pieces for line in text(piece.painted(60, DARK))]

    assert said("verifier", "ACCEPT\n\nThe tests pass.") == ["✓ accepted", "The tests pass.", ""]
    assert said("verifier", "**REVISE**") == ["↻ needs another try", ""]
    for words in (
        "REVISE\n`test_x` fails",
        "**REVISE:** `test_x` fails",
        "REVISE - `test_x` fails",
    ):
        assert said("verifier", words) == ["↻ needs another try", "test_x fails", ""], words
    assert said("verifier", "I ACCEPT it.") == ["I ACCEPT it.", ""]
    assert said("worker", "ACCEPT") == ["ACCEPT", ""]


@pytest.mark.parametrize("repeats", [3, 60, 6000])
def test_a_failure_is_shown_with_what_to_do_about_it(repeats: int) -> None:
    message = "the key was refused:\n" + "because \x1b[2J" * repeats + "; check the key"
    (note,) = blocks_of(Failed(turn=1, what="m", kind="refused", message=message))
    assert isinstance(note, NoteBlock)
    lines = text(block_drawing.note_lines(note, 60, DARK))
    assert lines[0].strip() == "m failed: the key was refused:"
    assert lines[-2].endswith("check the key")
    assert not any("\x1b" in line for line in lines) and len(lines) < 60


def test_a_failure_like_that_of_another_agent_is_told_in_short() -> None:
    message = "the key in KEY was refused by host (401): Incorrect API key"
    failures = [
        Failed(turn=turn, what=name, kind="refused", message=message)
        for turn, name in enumerate(("haiku", "gpt"), start=1)
    ]
    first, second = blocks_of(Asked(text="go"), *failures)[-2:]
    assert isinstance(first, NoteBlock) and first.text == f"haiku failed: {message}"
    assert isinstance(second, NoteBlock) and second.text == "gpt failed as haiku did"


def test_the_end_does_not_say_again_what_failed_and_names_the_interface_s_commands() -> None:
    def end(*facts: Event) -> list[str]:
        block = blocks_of(Asked(text="go"), *facts)[-1]
        assert isinstance(block, EndBlock)
        return text(block_drawing.end_lines(block, 80, DARK))

    hint = "`fugu login` keeps another key."
    message = f"the key was refused. {hint}"
    broken = Failed(turn=1, what="m", kind="refused", message=message, hint=hint)
    failed = Finished(
        reason="failed", message="all models are unavailable (m: the key was refused)."
    )
    assert end(broken, failed)[1:] == [""], "the line of the failure has the hint"
    lost = Failed(turn=1, what="m", kind="network", message="the connection was lost")
    assert end(lost, failed)[1:] == ["  /pool shows who is unavailable, and until when", ""]
    assert end(failed)[1:] == [f"  {failed.message}", ""]
    stopped = Finished(reason="time_limit", message="`fugu run --continue` goes on from here.")
    assert end(stopped)[1:] == ["  /continue goes on from here.", ""]


def test_what_an_agent_was_not_shown_is_named(sample: list[Recorded]) -> None:
    small = turn_sections(sample, turn(sample, 3))
    missing = next(s for s in small if s.title == "What it was not shown")
    lines = [made.strip() for piece in missing.pieces for made in text(piece.painted(100, DARK))]
    assert "turn 2, coder as worker: its thinking (42 characters)" in lines


def test_a_turn_of_an_agent_that_is_in_no_pool_can_still_be_read(sample: list[Recorded]) -> None:
    alone = [record for record in sample if record.seq > 0]
    made = TraceRows()
    renumbered = [record.model_copy(update={"seq": seq}) for seq, record in enumerate(alone)]
    for record in renumbered:
        made.add_item(record)
    row = next(row for row in made.rows if isinstance(row, TurnRow))
    assert [section.title for section in turn_sections(renumbered, row)][:3] == [
        "The decision", "What the coordinator read", "What it did",
    ]  # fmt: skip


def test_no_prompt_is_made_up_for_what_a_client_of_an_endpoint_sent(sample: list[Recorded]) -> None:
    opened = sample[0].event.model_copy(update={"served": True})
    of_serve = [sample[0].model_copy(update={"event": opened}), *sample[1:]]
    made = {s.title: s for s in turn_sections(of_serve, turn(of_serve, 0))}
    shown = next(section for title, section in made.items() if title.endswith("was shown"))
    lines = [line.strip() for piece in shown.pieces for line in text(piece.painted(120, DARK))]
    assert lines[0].startswith("the conversation as the client of `fugu serve` sent it")
    assert "What it was not shown" not in made


def test_a_section_title_fills_the_line() -> None:
    assert text(section_title("1 Two").painted(20, DARK)) == ["── 1 Two ───────────"]


def test_a_line_with_columns_wraps_at_the_width_and_hangs_below_its_last_column() -> None:
    listed = "-rw-r--r--  1 root root   123456 Nov 26 02:36 a-rather-long-file-name.txt"
    assert text(wrap_lines(listed, len(listed), "", " " * 26)) == [listed]
    assert text(wrap_lines("sandbox  bubblewrap confines every command", 30, "", " " * 9)) == [
        "sandbox  bubblewrap confines",
        "         every command",
    ]
    assert text(wrap_lines("a" * 50, 30, "", " " * 9)) == ["a" * 30, " " * 9 + "a" * 20]
    assert text(wrap_lines("first\nsecond", 30, "", "  ")) == ["first", "  second"]


def test_addresses_and_files_that_are_there_are_links_and_nothing_else_is(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "add.py").write_text("")
    finder = LinkFinder(tmp_path.resolve())
    words = [
        ("see src/add.py:12 and @src/add.py, ", "bold"),
        ("https://a.org/b?c=1. not src/no.py", ""),
    ]
    line = styled_line(words, 200)
    links = {
        part.text: part.style.link
        for part in finder.linked(line, 200)
        if part.style and part.style.link
    }
    file = (tmp_path.resolve() / "src" / "add.py").as_uri()
    assert links == {
        "src/add.py:12": f"{file}#12",
        "@src/add.py": file,
        "https://a.org/b?c=1": "https://a.org/b?c=1",
    }
    assert plain_text(finder.linked(line, 200)) == plain_text(line)
    cut = styled_line([("to https://a.org/lo", "")], 30)
    assert [bool(part.style and part.style.link) for part in finder.linked(cut, 19)] == [False]
    assert [place.line for place in finder.places("src/add.py:3 src/add.py src/no.py:4")] == [3, 0]


def test_markdown_has_rules_and_boxes_and_uses_the_width() -> None:
    source = "- [ ] open\n- [x] done\n- plain"
    assert text(markdown_lines(MarkdownChunk(source), 30, DARK)) == [
        " ☐ open",
        " ☑ done",
        " • plain",
        "",
    ]
    assert text(markdown_lines(MarkdownChunk("---", joined=True), 30, DARK)) == ["─" * 30]
    long = "word " * 60
    assert len(text(markdown_lines(MarkdownChunk(long, joined=True), 200, DARK))[0]) > 190
    code = markdown_lines(MarkdownChunk("```py\nreturn a\n```", joined=True), 30, DARK)
    assert [sum(part.cell_length for part in line) for line in code] == [30]
    assert {part.style.bgcolor.name for part in code[0] if part.style and part.style.bgcolor} == {
        DARK.grounds[1]
    }


def test_who_accepted_is_said_once_by_the_end_of_the_request() -> None:
    def drawn(verdict: str, reason: Literal["accepted", "turn_limit"]) -> list[str]:
        blocks = blocks_of(
            Asked(text="go"),
            Assigned(turn=1, agent="small", role="worker", by="cascade"),
            Replied(turn=1, agent="small", text="Done."),
            Assigned(turn=2, agent="large", role="verifier", by="cascade"),
            Replied(turn=2, agent="large", text=verdict),
            Finished(reason=reason),
        )
        heading = next(
            at for at, block in enumerate(blocks)
            if isinstance(block, DecisionBlock) and block.assigned.turn == 2
        )  # fmt: skip
        pieces = transcript_fragments(blocks[heading + 1 :], unfolded=False)
        lines = [line for piece in pieces for line in text(piece.painted(60, DARK))]
        return [line for line in lines if line][:2]

    assert drawn("ACCEPT\nThe tests pass.", "accepted")[0] == "The tests pass."
    assert "verified by large" in drawn("ACCEPT\nThe tests pass.", "accepted")[1]
    assert "verified by large" in drawn("ACCEPT", "accepted")[0]
    assert drawn("ACCEPT", "turn_limit")[0] == "✓ accepted"


def test_a_verdict_is_a_mark_and_the_text_has_no_word_of_it() -> None:
    def drawn(said: str) -> list[str]:
        block = ReplyBlock("large", live=False, verifies=True)
        block.add(said)
        return [line for piece in block_drawing.block_fragments(block, unfolded=False)
                for line in text(piece.painted(40, DARK)) if line]  # fmt: skip

    assert drawn("ACCEPT. The tests pass.") == ["✓ accepted", "The tests pass."]
    assert drawn("**REVISE**: a test is missing") == ["↻ needs another try", "a test is missing"]
    assert drawn("The tests pass.\n\nACCEPT\n\nDone.") == ["The tests pass.", "✓ accepted", "Done."]
    assert drawn("I accept this.") == ["I accept this."]


def test_a_long_request_is_folded_until_it_is_unfolded() -> None:
    asked = RequestBlock(
        "look at this:\n" + "\n".join(f"line {number}" for number in range(50)) + "\nand fix it"
    )
    folded = text(block_drawing.request_lines(asked, 60, DARK))
    assert folded[1:-1] == [
        "▌ look at this:", "▌ line 0", "▌ line 1", "▌ line 2", ("▌ … 46 more lines (ctrl+o: all "
            "of it)"),
        "▌ line 49", "▌ and fix it",
    ]  # fmt: skip
    assert len(text(block_drawing.request_lines(asked, 60, DARK, unfolded=True))) == 54
    assert block_drawing.foldable(asked)


def test_below_the_trace_stand_the_todo_list_changed_files_jobs_and_the_context() -> None:
    items = [{"text": "look", "status": "done"}, {"text": "act", "status": "in_progress"}]
    change = FileChange(path="a.py", before="1" * 40, after="2" * 40)
    server = Call.make("2", "bash", command="npm run", background=True)
    ran = (
        ToolRan(turn=1, call=Call.make("1", "todo", items=items), output="", ok=True),
        ToolRan(turn=1, call=server, output="", ok=True, job="job1"),
        ToolRan(
            turn=1, call=Call.make("3", "edit", path="a.py"), output="", ok=True, changes=(change,)
        ),
    )
    tally = SessionTotals()
    for fact in ran:
        tally.add_item(Recorded(seq=0, at=0.0, event=fact))
    tally.sizes[change], tally.context_parts = (3, 1), {"tools": 1200, "files read": 40_000}
    shown = text(trace_drawing.panel_lines(tally, 30, DARK, 40))
    assert shown == [
        "", "to do: 1 of 2 done", "  ☑ look", "  ◐ act",
        "", "changed files", f"  a.py{'+3 -1':>24}",
        "", "background jobs", "  job1 npm run",
        "", "context", f"  files read{'~40k':>18}", f"  tools{'~1.2k':>23}",
    ]  # fmt: skip
    assert text(trace_drawing.panel_lines(tally, 30, DARK, 8)) == shown[:7]
    tally.add_item(Recorded(seq=1, at=1.0, event=JobEnded(job="job1", command="npm run")))
    undone = Undone(
        snapshot=None, changes=(FileChange(path="a.py", before="2" * 40, after="1" * 40),)
    )
    tally.add_item(Recorded(seq=2, at=2.0, event=undone))
    assert (tally.jobs, tally.changed) == ({}, {})


def test_a_new_session_shows_what_there_is_to_do_until_something_is_asked(
    sample: list[Recorded], tmp_path: Path
) -> None:
    (tmp_path / "prices.py").write_text("x = 1\n# TODO: weigh in grams\n")
    (tmp_path / "README.md").write_text("# Prices\n")
    outside = tmp_path.with_name("outside.py")
    outside.write_text("# TODO: of another folder\n")
    (tmp_path / "link.py").symlink_to(outside)
    failures = tmp_path / ".pytest_cache/v/cache/lastfailed"
    failures.parent.mkdir(parents=True)
    failures.write_text("[" * 50_000)
    transcript = Transcript()
    transcript.add_item(sample[0])
    paths = ["README.md", "link.py", "prices.py"]
    start = read_first_screen(tmp_path, paths, "pytest", None, 3, [])
    assert transcript.show_start(start) == 0
    pieces = transcript_fragments(transcript.blocks, unfolded=False)
    lines = [line.strip() for piece in pieces for line in text(piece.painted(100, DARK)) if line]
    assert lines[2:] == [
        "no git repository",
        "In turns: an agent works, fugu runs the tests, another agent verifies. There is no budget.",
        "ask, for example",
        "run the tests and fix what fails",
        "do the TODO in prices.py:2: weigh in grams",
        "where does README.md no longer fit the code?",
    ]
    transcript.add_item(sample[1])
    assert transcript.show_start(start) is None
    shown = transcript_fragments(transcript.blocks, unfolded=False)
    assert "TODO" not in "".join(line for piece in shown for line in text(piece.painted(90, DARK)))


def test_with_256_colours_what_stands_behind_text_can_be_told_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("COLORTERM", raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name in ("dark", "light", "contrast", "nord"):
        palette = themes.find_palette(name)
        assert palette is not None
        grounds = [f"on {ground}" for ground in palette.grounds]
        behind = [
            *grounds,
            palette.added,
            palette.removed,
            palette.added_words,
            palette.removed_words,
        ]
        colours = [parse_style(words).bgcolor for words in behind]
        shown = {
            colour.downgrade(ColorSystem.EIGHT_BIT).number
            for colour in colours
            if colour is not None
        }
        assert len(shown) == len(behind)


def test_every_theme_that_is_offered_can_be_worn() -> None:
    palettes = [themes.find_palette(name) for name in themes.theme_names() if name != themes.AUTO]
    assert None not in palettes
    assert {"dark", "light", "contrast", "nord"} <= set(themes.theme_names())


def run_of(
    turn: int, id: str, tool: str, output: str, by: str = "policy", **arguments: object
) -> list[Event]:
    call = Call.make(id, tool, **arguments)
    return [
        Permitted(turn=turn, call=call, allowed=True, by=by),
        ToolRan(turn=turn, call=call, output=output, ok=True),
    ]


def test_a_wrapped_item_of_the_todo_list_has_one_sign() -> None:
    items = [{"text": "漢字" * 20 + " and more", "status": "in_progress"}]
    call = Call.make("1", "todo", items=items)
    ran = ToolRan(turn=1, call=call, output="kept", ok=True)
    permitted = Permitted(turn=1, call=call, allowed=True, by="policy")
    block = ToolBlock(call, permitted, result=ran)
    drawn = text(block_drawing.tool_lines(block, 50, DARK, unfolded=False))[1:]
    assert len(drawn) == 3
    assert drawn[0].startswith("    ◐ 漢字")
    assert all(line.startswith("      ") and "◐" not in line for line in drawn[1:])
    assert all(cell_len(line) <= 50 for line in drawn)


def test_the_reason_why_a_call_was_not_allowed_is_never_cut() -> None:
    def drawn(width: int) -> list[str]:
        call = Call.make("1", "bash", command="rm -rf ~/.cache/pip")
        reason = "it deletes outside the repository: ~/.cache/pip"
        permitted = Permitted(turn=1, call=call, allowed=False, by="policy", reason=reason)
        block = ToolBlock(call, permitted)
        return text(block_drawing.tool_lines(block, width, DARK, unfolded=False, terminal=width))

    denial = "not allowed: it deletes outside the repository: ~/.cache/pip"
    assert drawn(100) == [f"  ⊘ bash rm -rf ~/.cache/pip  {denial}"]
    assert drawn(70) == ["  ⊘ bash rm -rf ~/.cache/pip", f"    {denial}"]


def test_a_folded_command_counts_the_lines_that_it_printed() -> None:
    kept = [
        *map(str, range(1, 301)),
        "[... 1,400 lines left out ...]",
        *map(str, range(1701, 2001)),
    ]
    call = Call.make("1", "bash", command="seq 2000")
    ran = ToolRan(
        turn=1,
        call=call,
        output="\n".join([*kept, "[exit code 0]"]),
        ok=True,
        omitted_lines=1400,
    )
    permitted = Permitted(turn=1, call=call, allowed=True, by="policy")
    block = ToolBlock(call, permitted, result=ran)
    folded = text(block_drawing.tool_lines(block, 60, DARK, unfolded=False, terminal=60))
    assert [line.strip() for line in folded[1:]] == [
        "1998", "1999", "2000", "+1,997 lines (ctrl+o)"
    ]  # fmt: skip
    unfolded = text(block_drawing.tool_lines(block, 60, DARK, unfolded=True, terminal=60))
    assert "    … 1,601 more lines …" in unfolded


def test_a_folded_command_names_the_tests_that_failed_in_it() -> None:
    output = """\
>       assert price(2) == 6
E       assert 4.2 == 6
FAILED tests/test_rates.py::test_express - assert 4.2 == 6
 +  where 4.2 = price(2, express=True)
FAILED tests/test_rates.py::test_share - assert 19.9 == 18
 +  where 19.9 = invoice(5)
2 failed, 3 passed in 0.50s
[exit code 1]"""
    call = Call.make("1", "bash", command="python -m pytest -q")
    ran = ToolRan(turn=1, call=call, output=output, ok=False)
    permitted = Permitted(turn=1, call=call, allowed=True, by="policy")
    block = ToolBlock(call, permitted, result=ran)
    folded = text(block_drawing.tool_lines(block, 80, DARK, unfolded=False, terminal=80))
    assert [line.strip() for line in folded[1:]] == [
        "✗ tests/test_rates.py::test_express: assert 4.2 == 6",
        "✗ tests/test_rates.py::test_share: assert 19.9 == 18",
        "2 failed, 3 passed in 0.50s",
        "+6 lines (ctrl+o)",
    ]


def test_reads_share_a_line_and_so_do_fugus_checks_below_the_verifier_they_are_for() -> None:
    blocks = blocks_of(
        Opened(version="1", repo="/work"),
        Asked(text="go", test_command="pytest"),
        *run_of(0, "e0", "run_tests", "2 failed, 3 passed in 0.1s", EVIDENCE),
        Assigned(turn=1, agent="small", role="worker", by="cascade"),
        *run_of(1, "a", "read", "1", path="rates.py"),
        *run_of(1, "b", "read", "2", path="/work/test_rates.py"),
        *run_of(1, "c", "grep", "3", pattern="express", path="."),
        *run_of(1, "d", "bash", "one\ntwo\n[exit code 0]", command="ls"),
        *run_of(1, "e", "read", "4", path="alone.py"),
        *run_of(1, "e1", "run_tests", "5 passed in 0.1s", EVIDENCE),
        Assigned(turn=2, agent="large", role="verifier", by="cascade"),
        *run_of(2, "e2", "diff", "--- a\n+++ b\n+one\n+two\n-three", EVIDENCE),
        Replied(turn=2, agent="large", text="ACCEPT"),
    )

    def drawn(*, unfolded: bool) -> list[str]:
        pieces = block_drawing.transcript_fragments(blocks, unfolded=unfolded)
        return [line.strip() for piece in pieces for line in text(piece.painted(60, DARK)) if line]

    shown = drawn(unfolded=False)
    at = shown.index("✓ Explored rates.py, test_rates.py, grep express")
    assert shown[at + 1 : at + 5] == ["✓ bash ls", "one", "two", "✓ read alone.py"]
    heading = next(index for index, line in enumerate(shown) if line.startswith("● verifier"))
    assert heading > at
    assert shown[heading + 1] == "✓ checks: 5 pass, diff +2 -1"
    assert [line for line in drawn(unfolded=True) if line.startswith("✓ read")] == [
        "✓ read rates.py", "✓ read test_rates.py", "✓ read alone.py"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("ran", "line"),
    [
        (False, "… checks: running the tests that fail on the files as they were"),
        (True, "· checks: on the files as they were: 2 of them failed, 1 passed"),
    ],
)
def test_the_failing_tests_on_the_files_as_they_were_have_a_line(ran: bool, line: str) -> None:
    call = Call.make("1", TESTS_BEFORE)
    report = TestReport(failed=2, passed=1, by_id=True)
    result = ToolRan(turn=1, call=call, output="", ok=True, tests=report) if ran else None
    permitted = Permitted(turn=1, call=call, allowed=True, by="evidence")
    block = ToolBlock(call, permitted, result=result)
    drawn = text(block_drawing.group_lines([block], 80, DARK, has_keys=True))
    assert drawn[0].strip() == line


def test_a_new_file_has_no_empty_half_and_is_copied_without_numbers_and_signs() -> None:
    new = "--- /dev/null\n+++ b/a.py\n@@ -0,0 +1,2 @@\n+one = 1\n+two = 2"
    changed = "--- a/b.py\n+++ b/b.py\n@@ -1 +1 @@\n-three = 3\n+three = 4"
    lines = diff_drawing.patch_lines(f"{new}\n{changed}", 200, DARK)
    assert [line for line in text(lines) if "│" in line] == [
        next(line for line in text(lines) if "three = 4" in line)
    ]
    whole = next(line for line in lines if "two = 2" in plain_text(line))
    assert copied_text(whole, 0, None) == "two = 2"
    assert copied_text(whole, 0, len(plain_text(whole)) - 5).rstrip() != plain_text(whole)


def test_a_call_of_a_process_that_has_gone_is_shown_as_interrupted() -> None:
    call = Call.make("t1-0-0", "bash", command="sleep 9")
    started = Permitted(turn=1, call=call, allowed=True, by="policy")
    assigned = Assigned(turn=1, agent="small", role="worker", by="cascade")
    transcript = Transcript()
    for seq, event in enumerate((Asked(text="go"), assigned, started)):
        transcript.add_item(Recorded(seq=seq, at=0.0, event=event))
    transcript.end_open_calls()
    (piece,) = block_drawing.block_fragments(transcript.blocks[-1], unfolded=False)
    assert text(piece.painted(60, DARK)) == ["  ■ bash sleep 9  interrupted"]
