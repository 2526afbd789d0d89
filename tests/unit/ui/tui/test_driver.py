"""What a terminal sends, before Textual reads it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual import events
from textual.message import Message

from fugu_cli.ui.tui.app import FuguApp
from fugu_cli.ui.tui.terminal_driver import KeyParser, PlainPasteDriver
from fugu_cli.ui.tui.terminal_input import InputDecoder

PASTED = "\x1b[200~see \x1b[31mred\r\n!touch a\t\x00\x9b\x1b[200~é\x1b[201~"
MEANT = "see [31mred\r\n!touch a\t[200~é"


def told(pieces: Iterable[bytes]) -> list[Message]:
    parser = KeyParser()
    decoder = InputDecoder(parser.is_input)
    return [
        message
        for piece in pieces
        if (text := decoder.feed(piece))
        for message in parser.feed(text)
    ]


def keys(messages: list[Message]) -> list[str]:
    return [message.key for message in messages if isinstance(message, events.Key)]


def pastes(messages: list[Message]) -> list[str]:
    return [message.text for message in messages if isinstance(message, events.Paste)]


@given(st.sets(st.integers(min_value=0, max_value=100)))
def test_a_paste_is_nothing_but_text_however_it_comes(cuts: set[int]) -> None:
    data = f"a{PASTED}\x1b[A{PASTED}\x1b[201b\x1b[200~\x1b[201~\r".encode()
    ends = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    messages = told(data[start:end] for start, end in pairwise(ends))
    assert pastes(messages) == [MEANT, MEANT, ""]
    assert (keys(messages)[:2], keys(messages)[-1]) == (["a", "up"], "enter")


@given(st.text())
def test_whatever_is_pasted_no_key_is_pressed(text: str) -> None:
    pasted = f"\x1b[200~{text.replace(chr(27) + '[201~', '')}\x1b[201~".encode("utf-8", "replace")
    messages = told([pasted])
    assert (keys(messages), len(pastes(messages))) == ([], 1)


def test_a_byte_that_is_no_letter_is_shown_as_one_that_is_not_known() -> None:
    assert InputDecoder(lambda sequence: True).feed(b"caf\xe9 x") == "caf\ufffd x"


def test_keys_are_what_they_were() -> None:
    assert keys(told([b"\x1b[A\x03\x1bb\r"])) == ["up", "ctrl+c", "ctrl+left", "enter"]


@pytest.mark.parametrize(
    ("written", "key"),
    [
        (b"\x1b\r", "alt+enter"),
        (b"\x1b[13;3u", "alt+enter"),
        (b"\x1b[27;3;13~", "alt+enter"),
        (b"\x1b[27;2;13~", "shift+enter"),
        (b"\x1b[27;5;115~", "ctrl+s"),
    ],
)
def test_a_key_is_the_same_however_the_terminal_writes_it(written: bytes, key: str) -> None:
    assert keys(told([b"a", written, b"b"])) == ["a", key, "b"]
    assert keys(told([b"a", written[:1], written[1:], written])) == ["a", key, key]


ANSWERS = (
    "\x1b[?62;22c",  # which terminal it is, in two forms
    "\x1b[>0;276;0c",
    "\x1b[?0u",  # kitty's keyboard protocol
    "\x1bP>|XTerm(370)\x1b\\",  # its name and version
    "\x1bP!|00000000\x1b\\",
    "\x1bP1+r524742=38\x1b\\",
    "\x1b]11;rgb:0000/0000/0000\x1b\\",  # colours
    "\x1b]4;1;rgb:cdcd/0000/0000\x07",
    "\x1b_Gi=31;OK\x1b\\",  # pictures
    "\x1b_hello\x1b\\",  # what a program behind the terminal says
    "\x1b^hello\x1b\\",
    "\x1bXhello\x1b\\",
    "\x1bPhello\x07",
    f"\x1b]52;c;{'aGVsbG8' * 2000}\x07",  # the clipboard
    "\x1b[8;30;100t",  # sizes
    "\x1b[48;0;0;0;0t",
    "\x1b[48;99999999;99999999;1;1t",
    "\x1b[0n",
    "\x1b[?997;1n",
    "\x1b[M !!",  # the mouse in the oldest form
    "\x1b[99999999u",  # keys that no keyboard has
    "\x1b[55296u",
    "\x1b[1;2;3;4;5z",
)


@given(st.lists(st.sampled_from(ANSWERS), min_size=1), st.sets(st.integers(0, 300)))
def test_what_is_no_key_types_nothing_however_it_comes(answers: list[str], cuts: set[int]) -> None:
    text = "a" + "b".join(answers) + "c"
    ends = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    messages = told(text[start:end].encode() for start, end in pairwise(ends))
    assert keys(messages) == ["a", *["b"] * (len(answers) - 1), "c"]


@pytest.mark.parametrize("answer", ANSWERS)
def test_an_answer_cut_in_two_types_nothing_and_a_person_can_go_on(answer: str) -> None:
    for cut in {*range(3, min(len(answer), 30)), len(answer) - 1}:
        messages = typed_with_pauses([answer[:cut], answer[cut:] + "hello"])
        assert keys(messages) == list("hello"), cut
        if not answer.startswith("\x1b[M"):  # any three characters end the mouse's oldest form
            unfinished = typed_with_pauses(["a", answer[:cut], *"hello\r"])
            assert keys(unfinished)[-4:] == ["l", "l", "o", "enter"], cut
    if not answer.startswith("\x1b[M"):
        assert keys(typed_with_pauses([answer[:1], answer[1:] + "a"])) == ["escape", "a"]
        assert keys(typed_with_pauses([answer[:2], answer[2:] + "a"]))[-1] == "a"
    if answer.startswith(("\x1b[", "\x1bP>", "\x1b]")) and not answer.startswith("\x1b[M"):
        for cut in range(3, min(len(answer), 30)):
            messages = typed_with_pauses([answer[:1], answer[1:cut], answer[cut:] + "a"])
            assert keys(messages) == ["escape", "a"], cut


def typed_with_pauses(pieces: Iterable[str]) -> list[Message]:
    parser = KeyParser()
    decoder = InputDecoder(parser.is_input)
    messages: list[Message] = []
    for piece in pieces:
        if text := decoder.feed(piece.encode()):
            messages += parser.feed(text)
        if text := decoder.flush():
            messages += parser.flushed_events(text)
    return messages


@pytest.mark.parametrize("typed", ["\x1b", "\x1bP", "\x1bPhello", "\x1b]", "\x1b_", "\x1b^i\r"])
def test_escape_and_alt_with_a_key_are_typed_when_nothing_follows(typed: str) -> None:
    decoder = InputDecoder(KeyParser().is_input)
    assert "".join(decoder.feed_text(letter) for letter in typed) + decoder.flush() == typed


def test_text_after_escape_is_typed() -> None:
    for text in ("[x] done", "Please\r", "]", "[", "^"):
        assert len(keys(typed_with_pauses(["\x1b", text]))) == 1 + len(text)


def test_the_interface_reads_a_terminal_with_it(
    opened: Callable[..., FuguApp], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TEXTUAL_DRIVER", raising=False)
    assert opened().driver_class is PlainPasteDriver


@pytest.mark.parametrize(("end", "code"), [("exit", 0), ("panic", 2)])
def test_what_broke_does_not_end_as_if_it_had_been_left(
    opened: Callable[..., FuguApp], end: str, code: int
) -> None:
    async def whole() -> int:
        app = opened()
        async with app.run_test():
            app.exit(0) if end == "exit" else app.panic("the terminal broke")
        return app.exit_code

    assert asyncio.run(whole()) == code
