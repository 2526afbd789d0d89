"""Writing to terminals, pipes and what is left of them."""

import asyncio
import io
import os

import pytest
from rich.text import Text

from fugu_cli.ui.output_stream import OutputStream
from fugu_cli.ui.terminal_output import TerminalOutput


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_lines_for_people_and_data_go_to_different_streams() -> None:
    out, err = io.StringIO(), io.StringIO()
    screen = TerminalOutput(out, err, {})
    screen.show("working")
    screen.data("the answer")
    assert (out.getvalue(), err.getvalue()) == ("the answer\n", "working\n")


@pytest.mark.parametrize(
    ("stream", "environ", "written"),
    [
        (Terminal, {}, "\x1b[1mbold\x1b[0m\n"),
        (Terminal, {"NO_COLOR": "1"}, "bold\n"),
        (Terminal, {"TERM": "dumb"}, "bold\n"),
        (io.StringIO, {}, "bold\n"),
    ],
)
def test_colour_is_for_terminals_that_want_it(
    stream: type[io.StringIO], environ: dict[str, str], written: str
) -> None:
    err = stream()
    TerminalOutput(io.StringIO(), err, environ).show(Text("bold", "bold"))
    assert err.getvalue() == written


def test_long_lines_stay_whole() -> None:
    err = Terminal()
    TerminalOutput(io.StringIO(), err, {}).show(Text("x" * 500))
    assert err.getvalue() == "x" * 500 + "\n"


def test_the_waiting_line_is_taken_away_before_anything_is_printed_and_at_the_end() -> None:
    err = Terminal()
    screen = TerminalOutput(io.StringIO(), err, {"NO_COLOR": "1"})

    async def go() -> None:
        async with screen.ticking():
            screen.wait("a model loads")
            screen.show("turn 1")

    asyncio.run(go())
    wipe = "\r\x1b[K"
    assert err.getvalue() == f"{wipe}a model loads{wipe}turn 1\n{wipe}a model loads{wipe}"


def test_the_waiting_line_counts_down_to_the_next_try() -> None:
    err = Terminal()
    screen = TerminalOutput(io.StringIO(), err, {"NO_COLOR": "1"})
    screen.wait("waiting for claude", 30.0)
    assert err.getvalue() == "\r\x1b[Kwaiting for claude, retrying in 30 s"


def test_there_is_no_waiting_line_in_a_log() -> None:
    err = io.StringIO()
    TerminalOutput(io.StringIO(), err, {}).wait("a model loads")
    assert err.getvalue() == ""


def test_a_reader_that_went_away_ends_the_writing_and_nothing_else() -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as stream:
        pen = OutputStream(stream)
        pen.line("nobody")
        pen.line("hears this")
        assert pen.broken and not pen.terminal


def test_a_closed_or_missing_stream_is_quiet() -> None:
    closed = io.StringIO()
    closed.close()
    for stream in (closed, None):
        pen = OutputStream(stream)
        pen.line("x")
        assert pen.broken


def test_letters_the_terminal_does_not_have_are_written_as_escapes() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    OutputStream(stream).line("Grüße")
    assert raw.getvalue() == b"Gr\\xfc\\xdfe\n"
