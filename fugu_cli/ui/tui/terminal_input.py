"""Filters the terminal's input before a screen library reads it.

Keys, the mouse and pastes pass. Answers of the terminal, late ones too, and sequences that are no
input are removed. Control characters are removed from pastes, because a screen library takes an
escape character in a paste for the beginning of a key, and the rest for pressed keys, Enter too.
Knows no screen library.
"""

from __future__ import annotations

import codecs
import re
import time
from collections.abc import Callable

PASTE_START = "\x1b[200~"
PASTE_END = "\x1b[201~"
HOLD_SECONDS = 3.0
"""Seconds for which the beginning of a sequence waits for its end."""
LONGEST_ANSWER = 4096
"""Characters of an unfinished answer that are kept; the rest of a longer one is not looked at."""

_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
"""Control characters that no pasted text needs: all but tab, newline and carriage return."""
_SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_SEQUENCE_BEGUN = re.compile(r"\x1b\[[0-?]*[ -/]*")
_RXVT_KEY = re.compile(r"\x1b\[\d+\$")
"""Shift and a key in rxvt: the one kind of key that does not end as other sequences do."""
_STRING = re.compile(r"\x1b[P\]X^_][^\x00-\x1f\x7f]*(?:\x07|\x1b\\)")
"""A whole DCS, OSC, SOS, PM or APC."""
_STRING_BEGUN = re.compile(r"\x1b[P\]X^_][^\x00-\x1f\x7f]*\x1b?")
_NOT_TYPED = re.compile(r"\x1b(?:\[|[P\]][0-9<=>?!+$]|_G)")
"""The beginning of what no key sends alone; Alt and a key begin with an escape character, too."""
_ANSWER = re.compile(rf"\x1b\[(?:[<=>?][\d;:]*|[\d;:]+)[ -/]*[A-Za-z~]|{_STRING.pattern}")
"""An answer that only a terminal sends, even if its escape character has been taken for a key."""
_BACKGROUND = re.compile(
    r"\x1b\]11;rgba?:([0-9a-f]+)/([0-9a-f]+)/([0-9a-f]+)[^\x07\x1b]*(?:\x07|\x1b\\)", re.IGNORECASE
)
"""The answer to OSC 11."""
_READ_AT_ONCE = 3
"""Characters in one read that a terminal has sent: a person's keys come one by one."""


class InputDecoder:
    """Decodes bytes from a terminal into text. Letters and control sequences may come in several
    pieces.
    """

    def __init__(self, is_input: Callable[[str], bool], *, reader_waits: bool = False) -> None:
        """Create a decoder. `is_input` returns whether a control sequence is a key, the mouse or
        another input. `reader_waits`: whoever reads the text waits itself for the rest of a
        sequence that begins with an escape character.
        """
        self.dark: bool | None = None
        """True if the background is dark; None before the terminal has answered."""
        self._is_input = is_input
        self._reader_waits = reader_waits
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._pasting = False
        self._held = ""
        """The beginning of a sequence, not passed on."""
        self._held_since = 0.0
        self._held_was_sent = False
        """True if so much of `_held` came in one read that no person typed it."""
        self._was_silent = False
        """True if nothing came for a moment after `_held`."""
        self._passed = ""
        """The beginning of a sequence that was passed on as a key: nothing followed it."""
        self._arrived = 0
        """Characters of the newest read."""

    def feed(self, data: bytes) -> str:
        """Return the text that can be passed on after these bytes."""
        return self.feed_text(self._decoder.decode(data))

    def feed_text(self, text: str) -> str:
        """Return the text that can be passed on after this text."""
        if not text:
            return ""
        self._arrived = len(text)
        passed = []
        if self._passed:
            piece, text = self._finish_passed(text)
            passed.append(piece)
        begun, self._held = self._held, ""
        if begun and self._goes_on(begun, text):
            text = begun + text
        else:
            begun = ""
            self._held_was_sent = False
        self._was_silent = False
        while text:
            if self._pasting:
                piece, text = self._read_paste(text)
            elif text[0] == "\x1b":
                piece, text = self._read_escape(text)
            else:
                end = text.find("\x1b")
                end = len(text) if end < 0 else end
                piece, text = text[:end], text[end:]
            passed.append(piece)
            if text:  # another sequence begins
                begun = ""
                self._held_was_sent = False
        if not begun:
            self._held_since = time.monotonic()
        return "".join(passed)

    def flush(self) -> str:
        """Return the held-back text if it may have been typed, because nothing has followed it."""
        self._was_silent = not self._reader_waits
        if self._pasting or self._held_was_sent:
            return ""
        typed, self._held = self._held, ""
        if 0 < len(typed) < _READ_AT_ONCE:
            self._passed = typed
        return typed

    def _finish_passed(self, text: str) -> tuple[str, str]:
        """Read the rest of a sequence whose beginning was already passed on as a key. Return the
        part that is input, and the text after it.
        """
        begun, self._passed = self._passed, ""
        answer = _ANSWER.match(begun + text)
        if self._has_expired():
            return "", text
        if answer is None:
            return "", begun + text if _begins_answer(begun + text) else text
        rest = text[answer.end() - len(begun) :]
        self._note_background(answer[0])
        if answer[0].startswith("\x1b[") and self._is_input(answer[0]):
            return (answer[0][len(begun) :] if self._reader_waits else answer[0]), rest
        return "", rest

    def _goes_on(self, beginning: str, text: str) -> bool:
        """Return whether `text` can continue the sequence that starts with `beginning`."""
        if self._pasting or _STRING.match(beginning + text) is not None:
            return True
        if self._has_expired():
            return False
        if self._was_silent and _STRING_BEGUN.fullmatch(beginning):
            return len(text) > 1 and _STRING_BEGUN.fullmatch(beginning + text) is not None
        return True

    def _has_expired(self) -> bool:
        return time.monotonic() - self._held_since > HOLD_SECONDS

    def _hold(self, text: str) -> tuple[str, str]:
        self._held = text
        self._held_was_sent = self._was_sent(text)
        return "", ""

    def _was_sent(self, text: str) -> bool:
        """Return whether the terminal, and not a person, sent the beginning of the sequence."""
        at_once = min(self._arrived, len(text))
        return self._held_was_sent or at_once >= _READ_AT_ONCE or bool(_NOT_TYPED.match(text))

    def _read_paste(self, text: str) -> tuple[str, str]:
        inside, end, rest = text.partition(PASTE_END)
        if end:
            self._pasting = False
        else:
            sizes = range(len(PASTE_END) - 1, 0, -1)
            size = next((size for size in sizes if text.endswith(PASTE_END[:size])), 0)
            inside = text[: len(text) - size]
            self._hold(text[len(text) - size :])
        return _CONTROLS.sub("", inside) + end, rest

    def _read_escape(self, text: str) -> tuple[str, str]:
        """Read the sequence at the beginning of `text`. Return the part that is input, and the text
        after it.
        """
        if text == "\x1b":
            return self._hold(text)
        if (string := _STRING_BEGUN.match(text)) is not None:
            return self._read_string(text, string.end())
        if text.startswith("\x1b[M"):  # the mouse in the oldest form: three characters follow
            return ("", text[6:]) if len(text) >= 6 else self._hold(text)
        if text.startswith("\x1b[["):  # a function key of the Linux console
            return text[:4], text[4:]
        if (key := _RXVT_KEY.match(text)) is not None and self._is_input(key[0]):
            return key[0], text[key.end() :]
        if (sequence := _SEQUENCE.match(text)) is not None:
            self._pasting = sequence[0] == PASTE_START
            passes = self._pasting or self._is_input(sequence[0])
            return sequence[0] if passes else "", text[sequence.end() :]
        begun = _SEQUENCE_BEGUN.match(text)
        if begun is not None and begun.end() == len(text) < LONGEST_ANSWER:
            return self._hold(text)
        if begun is not None and begun.end() > len("\x1b["):  # cut off by something else
            return "", text[begun.end() :]
        size = 1 if text.startswith("\x1b\x1b") else 2
        return text[:size], text[size:]

    def _read_string(self, text: str, end: int) -> tuple[str, str]:
        """Read a DCS, OSC, SOS, PM or APC that ends at `end`. Return the part that is input, and
        the text after it.
        """
        if (string := _STRING.match(text)) is not None:
            self._note_background(string[0])
            return "", text[string.end() :]
        if end == len(text):
            return self._hold(_shortened(text))
        begun = text[:end].removesuffix("\x1b")
        piece = "" if self._was_sent(begun) else begun
        return piece, text[len(begun) :]

    def _note_background(self, answer: str) -> None:
        if (colour := _BACKGROUND.fullmatch(answer)) is not None:
            red, green, blue = (int(part, 16) / (16 ** len(part) - 1) for part in colour.groups())
            self.dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.5


def _begins_answer(text: str) -> bool:
    """Return whether `text`, which came in two reads, is the beginning of a terminal's answer."""
    if len(text) < _READ_AT_ONCE or _NOT_TYPED.match(text) is None:
        return False
    pattern = _SEQUENCE_BEGUN if text.startswith("\x1b[") else _STRING_BEGUN
    return pattern.fullmatch(text) is not None


def _shortened(begun: str) -> str:
    """Return an unfinished answer without the middle of a very long one."""
    if len(begun) <= LONGEST_ANSWER:
        return begun
    return begun[:_READ_AT_ONCE] + "\x1b" * begun.endswith("\x1b")
