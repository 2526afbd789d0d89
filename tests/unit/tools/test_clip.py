"""Clipping keeps both ends, whole lines, and says what is gone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fugu_cli.tools.result import plain_text, truncate, truncate_start


def test_a_text_that_fits_is_left_as_it_is() -> None:
    assert (truncate("a\n" * 10, 20), truncate_start("a\n" * 10, 20)) == ("a\n" * 10, "a\n" * 10)


def test_the_middle_is_cut_at_line_ends_with_a_count() -> None:
    text = "".join(f"line {n:03}\n" for n in range(100))
    assert truncate(text, 150) == (
        "line 000\nline 001\nline 002\nline 003\nline 004\n[... 90 lines left out ...]\n"
        "line 095\nline 096\nline 097\nline 098\nline 099\n"
    )


def test_one_long_line_is_cut_inside() -> None:
    assert (
        truncate("x" * 1000, 160) == "x" * 50 + "\n[... 900 characters left out ...]\n" + "x" * 50
    )


def test_the_tail_starts_at_a_line() -> None:
    text = "".join(f"line {n:03}\n" for n in range(100))
    assert truncate_start(text, 90) == "[... 97 lines left out ...]\nline 097\nline 098\nline 099\n"


@given(st.text(alphabet=st.sampled_from("ab \n"), max_size=400), st.integers(80, 200))
def test_a_clipped_text_is_no_longer_than_its_limit(text: str, limit: int) -> None:
    assert len(truncate(text, limit)) <= limit
    assert len(truncate_start(text, limit)) <= limit


def test_escapes_overwritten_lines_and_control_characters_are_taken_out() -> None:
    text = "\x1b[31mred\x1b[0m\n 10%\r 50%\r100%\ndone\r\n\x1b]0;title\x07\x00bell\x07\ttab\n"
    assert plain_text(text) == "red\n100%\ndone\nbell\ttab\n"


@given(st.text(alphabet=st.sampled_from("ab\r\n"), max_size=40))
def test_of_an_overwritten_line_stays_what_was_written_last(text: str) -> None:
    lines = [line.rstrip("\r") for line in text.split("\n")]
    assert plain_text(text) == "\n".join(line.rpartition("\r")[2] for line in lines)


def test_a_line_of_megabytes_is_no_trouble() -> None:
    assert plain_text("x" * 5_000_000) == "x" * 5_000_000
