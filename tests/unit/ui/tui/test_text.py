from hypothesis import given
from hypothesis import strategies as st

from fugu_cli.formatting import flatten, plural, sanitize_for_screen, short_duration


def test_escape_sequences_go_and_what_they_coloured_stays() -> None:
    text = (
        "\x1b[31mred\x1b[0m \x1b]0;a title\x07\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\ "
        "\x1bPq1\x1b\\end \x1b[2J\x1bc"
    )
    assert sanitize_for_screen(text) == "red link end "


def test_a_progress_bar_is_its_last_state() -> None:
    assert sanitize_for_screen("10%\r50%\r100%\r\ndone\r") == "100%\ndone"


def test_what_turns_the_direction_of_writing_is_seen_and_what_is_invisible_goes() -> None:
    assert sanitize_for_screen("a\u202eb\u2066c\u200bd\ufeffe") == "a\\u202eb\\u2066cde"


def test_right_to_left_text_and_emoji_stay_as_they_are() -> None:
    text = "שלום مرحبا 👩‍👩‍👧 naïve 日本"
    assert sanitize_for_screen(text) == text


@given(st.text())
def test_nothing_a_terminal_obeys_is_left(text: str) -> None:
    left = sanitize_for_screen(text)
    assert all(letter == "\n" or ord(letter) >= 0x20 for letter in left)
    assert not any(
        0x7F <= ord(letter) <= 0x9F or 0xD800 <= ord(letter) <= 0xDFFF for letter in left
    )
    assert not set(left) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200b\ufeff")


@given(st.text(), st.integers(min_value=1, max_value=50))
def test_a_title_is_one_line_within_its_limit(text: str, limit: int) -> None:
    made = flatten(text, limit)
    assert "\n" not in made and len(made) <= limit


def test_numbers_are_short() -> None:
    assert [short_duration(value) for value in (0.04, 9.9, 12.4, 185, 7800)] == [
        "0.0s",
        "9.9s",
        "12s",
        "3m05s",
        "2h10m",
    ]
    assert [plural(1, "line"), plural(1200, "line"), plural(2, "reply", "replies")] == [
        "1 line",
        "1,200 lines",
        "2 replies",
    ]
