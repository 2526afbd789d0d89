"""Writing to a stream that may be closed or full: a pipe whose reader went away ends the writing.
Whether it ends the work as well, the command decides. Imports nothing heavy.

Below every headless output. Knows nothing of what is written.
"""

from __future__ import annotations

import os
from typing import TextIO


class OutputStream:
    """Writes whole lines to a stream and flushes each. After the reader has gone it writes nothing
    and says nothing.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self.broken = stream is None
        self.reader_left = False
        self.failure = ""
        """Why what was written is lost although somebody may want it: the disk is full. "" where
        nothing is.
        """

    @property
    def terminal(self) -> bool:
        """True if the stream is a terminal that still works."""
        return self._stream is not None and not self.broken and self._stream.isatty()

    def descriptor(self) -> int | None:
        """Return the stream's file descriptor, None if it has none."""
        try:
            return None if self._stream is None else self._stream.fileno()
        except (OSError, ValueError):
            return None

    def line(self, text: str) -> None:
        """Write one or more lines."""
        self.raw(text + "\n")

    def raw(self, text: str) -> None:
        """Write text without a newline."""
        if self._stream is None or self.broken:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except (BrokenPipeError, ConnectionResetError):
            self.reader_left = True
            self._give_up()
        except UnicodeEncodeError:
            encoding = self._stream.encoding or "ascii"
            self.raw(text.encode(encoding, "backslashreplace").decode(encoding))
        except OSError as error:  # a full disk; a terminal that is gone
            self.failure = error.strerror or str(error)
            self._give_up()
        except ValueError:  # closed by somebody else
            self.broken = True

    def _give_up(self) -> None:
        """Stop writing. Buffered text goes to the null device, so that the interpreter's last flush
        is quiet.
        """
        self.broken = True
        assert self._stream is not None
        try:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)
        except (OSError, ValueError):
            return
