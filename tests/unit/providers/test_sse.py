from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fugu_cli.errors import AgentError
from fugu_cli.providers.http_client import EVENT_LIMIT, ServerEvent, SseDecoder


def decoded(*chunks: bytes) -> list[ServerEvent]:
    decoder = SseDecoder()
    events = [event for chunk in chunks for event in decoder.feed(chunk)]
    return events + decoder.finish()


def portions(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    return [data[start:end] for start, end in pairwise(edges)]


PLAIN = (
    "data: one\n\nevent: two\ndata: ü✓\ndata:second line\n\n: a comment\n\n"
    "data:  kept space\nid: 7\nretry: 10\n\ndata\n\n"
)
EXPECTED = [
    ServerEvent("one"),
    ServerEvent("ü✓\nsecond line", "two"),
    ServerEvent(" kept space"),
    ServerEvent(""),
]


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_lines_may_end_in_any_of_three_ways(ending: str) -> None:
    assert decoded(PLAIN.replace("\n", ending).encode()) == EXPECTED


@given(
    cuts=st.lists(st.integers(0, 200), max_size=30), ending=st.sampled_from(["\n", "\r\n", "\r"])
)
def test_any_portioning_gives_the_same_events(cuts: list[int], ending: str) -> None:
    data = PLAIN.replace("\n", ending).encode()
    assert decoded(*portions(data, cuts)) == EXPECTED


@given(data=st.binary(max_size=300), cuts=st.lists(st.integers(0, 300), max_size=20))
def test_any_bytes_give_events_and_portions_make_no_difference(
    data: bytes, cuts: list[int]
) -> None:
    assert decoded(*portions(data, cuts)) == decoded(data)


@given(
    events=st.lists(
        st.tuples(
            st.sampled_from(["message", "ping", "error"]),
            st.text(st.characters(exclude_characters="\r\n")),
        ),
        max_size=8,
    ),
    cuts=st.lists(st.integers(0, 400), max_size=20),
)
def test_what_was_written_is_read_back(events: list[tuple[str, str]], cuts: list[int]) -> None:
    written = "".join(f"event: {name}\ndata: {data}\n\n" for name, data in events).encode(
        "utf-8", "replace"
    )
    expected = [
        ServerEvent(data.encode("utf-8", "replace").decode(), name) for name, data in events
    ]
    assert decoded(*portions(written, cuts)) == expected


def test_what_the_end_leaves_open_is_marked_when_its_line_was_cut() -> None:
    assert decoded(b"data: whole\n") == [ServerEvent("whole")]
    assert decoded(b"data: cut sho") == [ServerEvent("cut sho", whole=False)]


def test_line_ends_of_two_kinds_may_stand_side_by_side() -> None:
    assert decoded(b"data: x\r", b"\n", b"\n", b"data: y\n\n") == [
        ServerEvent("x"),
        ServerEvent("y"),
    ]


def test_a_byte_order_mark_is_no_part_of_the_first_line() -> None:
    assert decoded(b"\xef\xbb\xbfdata: one\n\n") == [ServerEvent("one")]


def test_an_event_without_end_is_a_protocol_error() -> None:
    decoder = SseDecoder()
    with pytest.raises(AgentError) as raised:
        for _ in range(EVENT_LIMIT // 2**20 + 1):
            decoder.feed(b"x" * 2**20)
    assert raised.value.kind == "protocol"
