import asyncio
from pathlib import Path

import pytest

from fugu_cli.app.approval_options import ALONE
from fugu_cli.app.approval_questions import ApprovalQuestion
from fugu_cli.app.preferences import PreferencesFile
from fugu_cli.messages import Call, Thinking
from fugu_cli.safety.policy import Rules, judge
from fugu_cli.session.events import (
    Asked,
    Assigned,
    Failed,
    FileChange,
    Finished,
    Permitted,
    Recorded,
    Replied,
    ToolRan,
)
from fugu_cli.session.live_events import Retried, TextStreamed
from fugu_cli.ui import drawing
from fugu_cli.ui.blocks import NoteBlock
from fugu_cli.ui.drawing import DARK, styled_line
from fugu_cli.ui.inline import PromptTerminal
from fugu_cli.ui.inline_view import InlineScreen, LinePrinter, Scrollback, parse_choice
from fugu_cli.ui.tui.screen_protocol import Choice

CALL = Call.make("t1-0-0", "bash", command="ls")


class Paper:
    """What was printed."""

    def __init__(self) -> None:
        self.text = ""
        self.back = Scrollback(LinePrinter(self.write, lambda: 60, DARK))

    def write(self, text: str) -> None:
        self.text += text

    def take(self, *items: object) -> list[str]:
        """The lines these items add."""
        before = len(self.text)
        for item in items:
            record = (
                item
                if isinstance(item, TextStreamed | Retried)
                else Recorded(seq=0, at=0.0, event=item)
            )  # type: ignore[arg-type]
            self.back.add_item(record)
        return self.text[before:].splitlines()


ASKED = Asked(text="do it")
ASSIGNED = Assigned(turn=1, agent="small", role="worker", by="cascade")


def said(text: str) -> TextStreamed:
    return TextStreamed(turn=1, agent="small", text=text)


def test_a_message_is_printed_chunk_by_chunk_and_once() -> None:
    paper = Paper()
    paper.take(ASKED, ASSIGNED)
    assert paper.back.tail(1)[0].startswith("● worker small "), "it may still be taken back"
    assert paper.take(said("One.\n\nTw"))[-1].startswith("● worker small ")
    assert paper.back.tail(5) == ["One.", "", "Tw"] or paper.back.tail(5) == ["One.", "Tw"]
    assert paper.take(said("o.\n\nThree")) == ["", "One.", ""]
    assert paper.take(Replied(turn=1, agent="small", text="One.\n\nTwo.\n\nThree")) == [
        "Two.",
        "",
        "Three",
        "",
    ]
    assert paper.back.tail(5) == []


def test_hosts_that_cannot_be_reached_are_one_sentence_at_the_end() -> None:
    paper = Paper()
    hosts = ("one.example (its name is not found)", "two.example (its name is not found)")
    paper.take(ASKED)
    for turn, host in enumerate(hosts, 1):
        assigned = ASSIGNED.model_copy(update={"turn": turn})
        retried = RETRIED.model_copy(update={"turn": turn, "unreachable": host})
        failed = Failed(turn=turn, what="small", kind="network", message="no", unreachable=host)
        assert paper.take(assigned, retried, failed) == []
        assert paper.back.tail(1) == [f"  no connection to {host}"]
    lines = paper.take(Finished(reason="failed", message="no connection", unreachable=hosts))
    sentence = " ".join(line.strip() for line in lines)
    assert [paper.text.count(host) for host in hosts] == [1, 1]
    assert f"no connection to {', '.join(hosts)}" in sentence


def test_a_reply_that_began_anew_is_printed_anew() -> None:
    paper = Paper()
    paper.take(ASKED, ASSIGNED, said("Old.\n\nmore\n\n"))
    lines = paper.take(Replied(turn=1, agent="small", text="New."))
    assert [text for text in lines if text.strip()] == ["  (the reply started again)", "New."]


RETRIED = Retried(turn=1, agent="small", kind="network", why="cut", seconds=1.0, retry=1, retries=4)
AGAIN = "  small: connection lost, retrying {} of 4"


def test_what_a_call_had_printed_goes_when_it_is_made_again() -> None:
    paper = Paper()
    paper.take(ASKED, ASSIGNED, said("Old.\n\nmore\n\n"))
    assert paper.take(RETRIED) == ["\x1b[3A\x1b[J" + AGAIN.format(1), ""]
    second = RETRIED.model_copy(update={"retry": 2})
    assert paper.take(said("Ol"), second) == ["\x1b[2A\x1b[J" + AGAIN.format(2), ""]
    assert paper.take(said("New."), Replied(turn=1, agent="small", text="New.")) == ["", "New.", ""]


def test_what_stands_above_other_lines_is_not_taken_back() -> None:
    paper = Paper()
    paper.take(ASKED, ASSIGNED, said("Old.\n\nmore\n\n"))
    paper.back.printer.print([styled_line([("a question", "")], 60)])
    assert paper.take(RETRIED) == [AGAIN.format(1), ""]
    paper.back.printer.print([styled_line([("another", "")], 60)])
    assert paper.take(RETRIED.model_copy(update={"retry": 2})) == [AGAIN.format(2), ""]


def test_a_tool_is_printed_when_its_result_is_there() -> None:
    paper = Paper()
    paper.take(ASKED, ASSIGNED)
    (heading,) = paper.take(Permitted(turn=1, call=CALL, allowed=True, by="policy"))
    assert heading.startswith("● worker small")
    assert paper.back.tail(3) == ["  … bash ls"]
    assert paper.take(ToolRan(turn=1, call=CALL, output="a", ok=True)) == ["  ✓ bash ls", "    a"]


def test_a_call_that_changed_files_is_printed_once_its_diff_is_known() -> None:
    paper = Paper()
    paper.take(ASKED, ASSIGNED)
    write = Call.make("t1-0-0", "write", path="a.txt", content="new\n")
    change = FileChange(path="a.txt", before="1" * 40, after="2" * 40)
    ran = ToolRan(turn=1, call=write, output="wrote a.txt", ok=True, changes=(change,))
    paper.take(Permitted(turn=1, call=write, allowed=True, by="policy"), ran)
    assert paper.take(Finished(reason="answered")) == []
    paper.back.patched(ran, "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-old\n+new\n")
    lines = [line.strip() for line in paper.text.splitlines()]
    at = lines.index("1 - old")
    assert (lines[at - 1].split(), lines[at : at + 2]) == (
        ["✓", "write", "a.txt", "+1", "-1"],
        ["1 - old", "1 + new"],
    )
    assert "done, not verified" in paper.text


def test_what_was_said_before_an_agent_failed_is_not_lost() -> None:
    paper = Paper()
    paper.take(ASKED, ASSIGNED, said("half a sen"))
    failed = Failed(turn=1, what="small", kind="network", message="gone")
    lines = [text.strip() for text in paper.take(failed, Finished(reason="failed")) if text.strip()]
    assert lines[:2] == ["half a sen", "small failed: gone"]


def test_a_growing_note_prints_what_it_grew_by() -> None:
    paper = Paper()
    grow = paper.back.say(NoteBlock("$ ls", "plain", live=True))
    for detail in ("a", "a\nb", "a\nbc\n"):
        grow(NoteBlock("$ ls", "plain", detail, live=True))
    grow(NoteBlock("$ ls", "plain", "a\nbc\n[exit code 1]"))
    assert [text.strip() for text in paper.text.splitlines()] == [
        "$ ls",
        "a",
        "bc",
        "[exit code 1]",
        "",
    ]


def test_of_a_note_that_loses_its_first_lines_every_line_is_printed() -> None:
    paper = Paper()
    grow = paper.back.say(NoteBlock("$ seq 9", "plain", live=True))
    grow(NoteBlock("$ seq 9", "plain", "1\n2\n3\n", live=True))
    grow(NoteBlock("$ seq 9", "plain", "3\n4\n5\n6\n", live=True, dropped=2))
    grow(NoteBlock("$ seq 9", "plain", "8\n9\n", dropped=7))
    assert [text.strip() for text in paper.text.splitlines()] == [
        "$ seq 9", "1", "2", "3", "4", "5", "6", "8", "9", "",
    ]  # fmt: skip


def test_a_note_of_a_session_that_was_left_prints_nothing_more() -> None:
    paper = Paper()
    grow = paper.back.say(NoteBlock("$ ls", "plain", live=True))
    paper.back.replay([])
    before = paper.text
    grow(NoteBlock("$ ls", "plain", "late"))
    assert paper.text == before


def test_a_message_whose_thoughts_come_with_its_end_is_printed_once() -> None:
    paper = Paper()
    paper.take(ASKED, ASSIGNED, said("One."))
    printed = paper.take(said("\n\nTwo."))
    printed += paper.take(
        Replied(turn=1, agent="small", text="One.\n\nTwo.", thinking=(Thinking(text="hm"),))
    )
    assert printed == ["One.", "", "Two.", "", "  ∴ Thought (1 line): hm", ""]


def test_a_resumed_session_prints_its_end(sample: list[Recorded]) -> None:
    paper = Paper()
    paper.back.replay(sample)
    assert "■ stopped: turn limit" in paper.text
    again = Paper()
    again.back.replay(sample * 4)
    assert again.text.count("▌ fix the failing test") < 4


def test_lines_become_text_with_and_without_colours() -> None:
    made = [styled_line([("a", "bold #ff0000"), ("b", "")], 10)]
    assert drawing.ansi_text(made, None) == "ab\n"
    assert (
        drawing.ansi_text(made, drawing.COLOUR_SYSTEMS["truecolor"])
        == "\x1b[1;38;2;255;0;0ma\x1b[0mb\n"
    )


def test_a_choice_is_a_number_a_letter_and_a_number_or_a_value() -> None:
    choices = [Choice("auto", "auto"), Choice("large", "large")]
    keys = {"ctrl+e": "excludes"}
    assert [
        parse_choice(text, choices, keys)
        for text in ("2", "e 2", "lar", " 1 ", "3", "", "e", "x 1")
    ] == [
        ("enter", "large"),
        ("ctrl+e", "large"),
        ("enter", "large"),
        ("enter", "auto"),
        None,
        None,
        None,
        None,
    ]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            Call.make("1", "web_fetch", url="https://a.example/?q=mine"),
            'a.example {"url": "https://a.example/?q=mine"}',
        ),
        (Call.make("1", "bash", command="serve", background=True), "serve, in the background"),
    ],
)
def test_a_question_is_printed_with_all_that_the_call_will_do(
    call: Call, said: str, tmp_path: Path
) -> None:
    assert said in " ".join(asked(call, "", tmp_path).split())


def test_a_question_shows_every_line_of_a_long_change(tmp_path: Path) -> None:
    patch = "\n".join(
        ["--- a.sh", "+++ a.sh", "@@ -0,0 +1,99 @@", *(f"+line {n}" for n in range(98)), "+evil"]
    )
    said = asked(Call.make("1", "write", path="a.sh", content="x"), patch, tmp_path)
    assert [f"+ line {n}" in said for n in range(98)] == [True] * 98 and "+ evil" in said


def asked(call: Call, patch: str, root: Path) -> str:
    """What the question about a call prints."""

    async def ask() -> str:
        paper = Paper()
        question = ApprovalQuestion(
            call, judge(call, Rules(), root), asyncio.get_running_loop().create_future()
        )
        InlineScreen(paper.back, PromptTerminal(), PreferencesFile(root), auto=False).question(
            question, ALONE, patch
        )
        return paper.text

    return asyncio.run(ask())
