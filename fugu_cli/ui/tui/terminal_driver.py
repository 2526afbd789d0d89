"""Textual's driver for Unix terminals, with a reader that treats a paste as text only. Imported on
Unix only, when the application starts.

Under terminal_output.py, which names it. Textual takes an escape character in a paste for the
beginning of a key, and what follows for keys that were pressed, Enter too; it ends on a byte that
is not UTF-8; Alt+Enter it takes for Enter; after SIGSTOP it goes on without painting. Knows nothing
of fugu.
"""

from __future__ import annotations

import codecs
import os
import re
import selectors
import signal
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from textual import events
from textual._parser import ParseError
from textual._xterm_parser import BRACKETED_PASTE_END, BRACKETED_PASTE_START, XTermParser
from textual.app import App
from textual.drivers.linux_driver import LinuxDriver

from fugu_cli.ui.tui.themes import BackgroundReader, BackgroundTold

_OBEYED = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
"""Control characters that no pasted text needs: all but tab, newline and carriage return."""
_OTHER_KEYS = re.compile(r"\x1b\[27;(\d+);(\d+)~")
"""A key with its modifiers as xterm and tmux write it (`modifyOtherKeys`); Textual reads `ESC [ key
; modifiers u`.
"""
READ_BYTES = 4096
"""Bytes that are read at once."""
POLL_SECONDS = 0.1
"""Seconds after which the reader looks whether it is to end."""


class InputDecoder:
    """Bytes from a terminal as text, pastes without control characters. Marks and letters may come
    in pieces.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._pasting = False
        self._seen = ""
        self._held = ""

    def feed(self, data: bytes) -> str:
        """What can be passed on after `data`; what may be the beginning of a paste's end is held
        back.
        """
        text, made = self._decoder.decode(data), []
        while text:
            piece, text = self._pasted(text) if self._pasting else self._pressed(text)
            made.append(piece)
        return "".join(made)

    def _pressed(self, text: str) -> tuple[str, str]:
        """Up to the beginning of a paste, and the rest."""
        seen = self._seen
        found = (seen + text).find(BRACKETED_PASTE_START)
        if found < 0:
            self._seen = (seen + text)[1 - len(BRACKETED_PASTE_START) :]
            return text, ""
        self._pasting, self._seen = True, ""
        end = found + len(BRACKETED_PASTE_START) - len(seen)
        return text[:end], text[end:]

    def _pasted(self, text: str) -> tuple[str, str]:
        """Up to the end of a paste, and the rest."""
        text, self._held = self._held + text, ""
        inside, mark, rest = text.partition(BRACKETED_PASTE_END)
        if mark:
            self._pasting = False
        else:
            sizes = range(len(BRACKETED_PASTE_END) - 1, 0, -1)
            held = next((size for size in sizes if text.endswith(BRACKETED_PASTE_END[:size])), 0)
            inside, self._held = text[: len(text) - held], text[len(text) - held :]
        return _OBEYED.sub("", inside) + mark, rest


class KeyParser(XTermParser):
    """Textual's, for terminals that write a changed Enter in older ways: `ESC CR` for Alt+Enter,
    and `_OTHER_KEYS`.
    """

    def _sequence_to_key_events(self, sequence: str, alt: bool = False) -> Iterable[events.Key]:
        if sequence in ("\x1b\r", "\x1b\n"):
            return [events.Key("alt+enter", None)]
        return super()._sequence_to_key_events(_OTHER_KEYS.sub("\x1b[\\2;\\1u", sequence), alt)


class PlainPasteDriver(LinuxDriver):
    """Reads with `Decoder` and `Keys`; paints everything after a stop of any kind."""

    def __init__(
        self,
        app: App[Any],
        *,
        debug: bool = False,
        mouse: bool = True,
        size: tuple[int, int] | None = None,
    ) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        # By the loop: any thread may be told that the process goes on, and no handler wakes the
        # main one by itself.
        self._loop.add_signal_handler(signal.SIGCONT, self._sigcont_application)

    def run_input_thread(self) -> None:
        """Tell the app what is typed, until the application mode ends."""
        parser, decoder, reader = KeyParser(self._debug), InputDecoder(), BackgroundReader()
        with selectors.SelectSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            while not self.exit_event.is_set():
                if selector.select(POLL_SECONDS):
                    data = os.read(self.fileno, READ_BYTES)
                    if not data:  # nobody types any more
                        self.exit_event.wait(POLL_SECONDS)
                    text = reader.feed(decoder.feed(data))
                else:
                    text = reader.feed("", more=False)
                for event in parser.feed(text) if text else ():
                    self.process_message(event)
                if reader.dark is not None:
                    self.process_message(BackgroundTold(reader.dark))
                    reader.dark = None
                for event in parser.tick():
                    self.process_message(event)
        with suppress(EOFError, ParseError):
            list(parser.feed(""))

    def stop(self) -> None:
        """Give the terminal back, then stop together with what started this in its shell: it waits
        for all of them.
        """
        self.suspend_application_mode()
        self._must_signal_resume = True
        os.killpg(0, signal.SIGSTOP)

    def _sigcont_application(self, *_: object) -> None:
        """Go on. Of a stop by SIGSTOP nobody was told, and the terminal is as the shell left it."""
        if self._must_signal_resume:
            super()._sigcont_application()
        else:
            self._enter_again()

    def _enter_again(self) -> None:
        """Everything that the terminal was told, told again, and everything painted."""
        reading = self._key_thread is not None and self._key_thread.is_alive()
        if not (reading and self.input_tty and self._auto_restart):
            return
        if os.tcgetpgrp(self.fileno) != os.getpgrp():  # in the background the terminal is not ours
            os.kill(os.getpid(), signal.SIGSTOP)
            return
        self.suspend_application_mode()
        self._must_signal_resume = True
        self.resume_application_mode()
