"""Nothing that a model, a tool or a file name holds reaches the terminal as a command."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fugu_cli.formatting import (
    compact_number,
    duration,
    escape_invisible,
    first_line,
    known_cost,
    money,
    probability,
    sanitize,
    shorten,
)


@pytest.mark.parametrize(
    ("raw", "plain"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;owned\x07title", "title"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b]52;c;aGk=\x07copy", "copy"),
        ("\x1bPq\x1b\\dcs", "dcs"),
        ("\x1bPq\nsixel\x1b\\dcs", "dcs"),
        ("\x1b]0;no end\nthe next line", "\nthe next line"),
        ("\x9b2Jone byte", "one byte"),
        ("\x1bcreset", "reset"),
        ("cut\x1b[", "cut"),
        ("escape\x1b", "escape\\x1b"),
        ("bell\x07 back\x08 null\x00", "bell\\x07 back\\x08 null\\x00"),
        ("a\r\nb\rc", "a\nb\\x0dc"),
        ("tab\tnew\nline", "tab\tnew\nline"),
        ("right\u202eto left", "right\\u202eto left"),
        ("name-\udcff", "name-\\xff"),
        ("Grüße, 漢字, é", "Grüße, 漢字, é"),
    ],
)
def test_escape_sequences_go_and_control_characters_are_shown(raw: str, plain: str) -> None:
    assert sanitize(raw) == plain


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("make \x1b] ; touch EVIL", "make \\x1b] ; touch EVIL"),
        ("touch EVIL #\rmake clean\r\n", "touch EVIL #\\x0dmake clean\\x0d\n"),
        ("one\x9b2Jbyte\x85", "one\\x9b2Jbyte\\x85"),
        (
            "a\u202eb\u200bc\u2028d\xade\U000e0041f\udcff",
            "a\\u202eb\\u200bc\\u2028d\\xade\\U000e0041f\\xff",
        ),
        ("tab\tnew\nline, Grüße, 漢字, 🙂, שלום", "tab\tnew\nline, Grüße, 漢字, 🙂, שלום"),
    ],
)
def test_of_what_people_say_yes_to_nothing_goes(raw: str, shown: str) -> None:
    assert (escape_invisible(raw), sanitize(escape_invisible(raw))) == (shown, shown)


@given(st.text())
def test_whatever_comes_in_no_control_character_comes_out_and_nothing_changes_twice(
    text: str,
) -> None:
    once = sanitize(text)
    assert not [
        char for char in once if (ord(char) < 32 and char not in "\n\t") or 0x7F <= ord(char) < 0xA0
    ]
    assert sanitize(once) == once
    once.encode("utf-8")


def test_one_line_is_the_first_that_says_something() -> None:
    assert first_line("\n  \n  first \nsecond") == "first"
    assert first_line("x" * 50, 10) == "xxxxxxx..."
    assert first_line("") == ""


def test_cutting_keeps_the_width() -> None:
    assert [shorten("abcdef", width) for width in (6, 5, 3, 0)] == ["abcdef", "ab...", "...", "..."]


def test_numbers_are_short() -> None:
    assert [duration(value) for value in (0.0, 0.31, 4.24, 75.4, 725)] == [
        "0 ms",
        "310 ms",
        "4.2 s",
        "75 s",
        "12 min 05 s",
    ]
    assert [compact_number(value) for value in (0, 950, 1234, 35_400, 1_200_000)] == [
        "0",
        "950",
        "1.2k",
        "35k",
        "1.20M",
    ]
    assert [money(value) for value in (0, 0.0042, 1.2)] == ["$0", "$0.0042", "$1.20"]
    assert [known_cost(value, unpriced=True) for value in (0, 1.2)] == [
        "unknown",
        "$1.20 + unknown",
    ]
    assert known_cost(0, unpriced=False) == "$0"
    assert [probability(value) for value in (0.0, 0.612, 1.0)] == [".00", ".61", "1.0"]
