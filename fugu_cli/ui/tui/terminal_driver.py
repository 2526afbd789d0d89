"""Textual's driver for Unix terminals, with a reader that treats a paste as text only. Imported on
Unix only, when the application starts.

Textual ends on a byte that is not UTF-8, takes Alt+Enter for Enter, types what it does not know of
what a terminal sends (terminal_input.py takes it out before), and goes on without painting after
SIGSTOP. Knows nothing of fugu.
"""

from __future__ import annotations

import os
import re
import selectors
import signal
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from textual import events
from textual._parser import ParseError
from textual._xterm_parser import XTermParser
from textual.app import App
from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message

from fugu_cli.ui.tui.terminal_input import InputDecoder
from fugu_cli.ui.tui.themes import BackgroundTold

_OTHER_KEYS = re.compile(r"\x1b\[27;(\d+);(\d+)~")
"""A key with its modifiers as xterm and tmux write it (`modifyOtherKeys`); Textual reads `ESC [ key
; modifiers u`.
"""
READ_BYTES = 4096
"""Bytes that are read at once."""
POLL_SECONDS = 0.1
"""Seconds after which the reader looks whether it is to end."""


LARGEST_SIZE = 2000
"""Columns or lines that a terminal may report."""
_SIZE_REPORT = re.compile(r"\x1b\[48;(\d+);(\d+);(\d+);(\d+)t")
_PASSED_ON = re.compile(
    r"\x1b\[(?:[IO]|200~|201~|\d+;\d+R|<\d{1,9};-?\d{1,9};-?\d{1,9}[Mm]|\?\d+;\d\$y)"
)
"""Focus, pastes, the cursor's position, the mouse, and which modes the terminal knows."""


class KeyParser(XTermParser):
    """Textual's parser with older ways to write a changed Enter: `ESC CR` for Alt+Enter, and
    `_OTHER_KEYS`.
    """

    def _sequence_to_key_events(self, sequence: str, alt: bool = False) -> Iterable[events.Key]:
        if sequence in ("\x1b\r", "\x1b\n"):
            return [events.Key("alt+enter", None)]
        return super()._sequence_to_key_events(_OTHER_KEYS.sub("\x1b[\\2;\\1u", sequence), alt)

    def flushed_events(self, text: str) -> Iterable[Message]:
        """Return the events of a text after which nothing follows; `feed` would wait for more."""
        match list(text):
            case ["\x1b"]:
                return [events.Key("escape", "\x1b")]
            case ["\x1b", key]:
                return self._sequence_to_key_events(key, alt=True)
            case _:
                return self.feed(text)

    def is_input(self, sequence: str) -> bool:
        """Return whether the application is given a control sequence. Late answers of the terminal,
        and impossible keys and sizes, are dropped.
        """
        if _PASSED_ON.fullmatch(sequence):
            return True
        size = _SIZE_REPORT.fullmatch(sequence)
        if size is not None:
            lines, columns, *pixels = map(int, size.groups())
            return 0 < lines <= LARGEST_SIZE and 0 < columns <= LARGEST_SIZE and all(pixels)
        try:
            keys = list(self._sequence_to_key_events(sequence))
        except (ValueError, OverflowError):  # a key with the number of no character
            return False
        typed = "".join(key.character or "" for key in keys)
        return bool(keys) and not any("\ud800" <= letter <= "\udfff" for letter in typed)


class PlainPasteDriver(LinuxDriver):
    """Reads the terminal with `InputDecoder` and `KeyParser`, and repaints everything after the
    process was stopped.
    """

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

    def _run_input_thread(self) -> None:
        """Read until the end. An exception ends the application like any other one."""
        try:
            self.run_input_thread()
        except Exception as error:  # noqa: BLE001 - in a thread nobody else would see it
            self._app.call_later(self._app._handle_exception, error)

    def run_input_thread(self) -> None:
        """Tell the app what is typed, until the application mode ends."""
        parser = KeyParser(self._debug)
        decoder = InputDecoder(parser.is_input)
        with selectors.SelectSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            while not self.exit_event.is_set():
                if selector.select(POLL_SECONDS):
                    data = os.read(self.fileno, READ_BYTES)
                    if not data:  # nobody types any more
                        self.exit_event.wait(POLL_SECONDS)
                    text = decoder.feed(data)
                    messages = parser.feed(text) if text else ()
                else:
                    text = decoder.flush()
                    messages = parser.flushed_events(text) if text else ()
                for event in messages:
                    self.process_message(event)
                if decoder.dark is not None:
                    self.process_message(BackgroundTold(decoder.dark))
                    decoder.dark = None
                for event in parser.tick():
                    self.process_message(event)
        with suppress(EOFError, ParseError):
            list(parser.feed(""))

    def stop(self) -> None:
        """Restore the terminal, then stop the whole process group, since the shell waits for all of
        it.
        """
        self.suspend_application_mode()
        self._must_signal_resume = True
        os.killpg(0, signal.SIGSTOP)

    def _sigcont_application(self, *_: object) -> None:
        """Continue after a stop. SIGSTOP gives no notice, so the terminal is then as the shell left
        it.
        """
        if self._must_signal_resume:
            super()._sigcont_application()
        else:
            self._enter_again()

    def _enter_again(self) -> None:
        """Set the terminal up again and redraw everything."""
        reading = self._key_thread is not None and self._key_thread.is_alive()
        if not (reading and self.input_tty and self._auto_restart):
            return
        if os.tcgetpgrp(self.fileno) != os.getpgrp():  # in the background the terminal is not ours
            os.kill(os.getpid(), signal.SIGSTOP)
            return
        self.suspend_application_mode()
        self._must_signal_resume = True
        self.resume_application_mode()
