"""A terminal for tests: a pseudo-terminal with a program in it, and a screen that understands what
such programs write.

Only what Textual and prompt-toolkit use is understood; anything else is kept in `unknown`, so that
a test can say that nothing strange was written.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rich.cells import cell_len

from tests.acceptance import forked

_SEQUENCE = re.compile(
    rb"\x1b\[(?P<private>[<=>?]?)(?P<numbers>[\d;:]*)(?P<between>[ -/]*)(?P<final>[@-~])"
    rb"|\x1b(?P<string>[\]PX^_])(?P<text>.*?)(?:\x07|\x1b\\)"
    rb"|\x1b(?P<short>[ -/]*(?![\[\]PX^_])[0-~])",
    re.DOTALL,
)


class Screen:
    """Cells, a cursor, and what was written that is not understood."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.rows = [[" "] * width for _ in range(height)]
        self.x = self.y = 0
        self.unknown: list[bytes] = []
        self.strings: list[bytes] = []
        self.asked_position = 0
        self._rest = b""

    @property
    def text(self) -> str:
        return "\n".join("".join(row).rstrip() for row in self.rows)

    def feed(self, data: bytes) -> None:
        data, at = self._rest + data, 0
        self._rest = b""
        while at < len(data):
            if data[at] == 0x1B:
                found = _SEQUENCE.match(data, at)
                if found is None:
                    self._rest = data[at:]
                    return
                self._obey(found)
                at = found.end()
                continue
            end = data.find(b"\x1b", at)
            part = data[at : end if end >= 0 else len(data)]
            try:
                text = part.decode()
            except UnicodeDecodeError as error:
                if end >= 0 or error.start < len(part) - 4:
                    self.unknown.append(part)
                    text = part.decode(errors="replace")
                else:
                    text, self._rest = part[: error.start].decode(), part[error.start :]
            for letter in text:
                self._write(letter)
            at += len(part)

    def _write(self, letter: str) -> None:
        match letter:
            case "\r":
                self.x = 0
            case "\n":
                self._down()
            case "\b":
                self.x = max(self.x - 1, 0)
            case "\x07" | "\x0f":
                pass
            case _ if ord(letter) < 0x20 or 0x7F <= ord(letter) < 0xA0:
                self.unknown.append(letter.encode())
            case _:
                self._put(letter)

    def _put(self, letter: str) -> None:
        size = cell_len(letter)
        if size == 0:
            return
        if self.x + size > self.width:
            self.x = 0
            self._down()
        self.rows[self.y][self.x] = letter
        for more in range(1, min(size, self.width - self.x)):
            self.rows[self.y][self.x + more] = ""
        self.x += size

    def _down(self) -> None:
        if self.y + 1 < self.height:
            self.y += 1
        else:
            self.rows = [*self.rows[1:], [" "] * self.width]

    def _obey(self, found: re.Match[bytes]) -> None:
        if found["final"] is None or found["private"] or found["between"]:
            (self.strings if found["string"] else []).append(found[0])
            return
        numbers = [
            int(part) if part.isdigit() else 0 for part in re.split(rb"[;:]", found["numbers"])
        ]
        count = max(numbers[0], 1)
        match found["final"]:
            case b"H" | b"f":
                self.y = min(count, self.height) - 1
                self.x = min(max(numbers[1], 1) if len(numbers) > 1 else 1, self.width) - 1
            case b"A":
                self.y = max(self.y - count, 0)
            case b"B":
                self.y = min(self.y + count, self.height - 1)
            case b"C":
                self.x = min(self.x + count, self.width - 1)
            case b"D":
                self.x = max(self.x - count, 0)
            case b"G":
                self.x = min(count, self.width) - 1
            case b"J":
                self._erase(numbers[0], whole=True)
            case b"K":
                self._erase(numbers[0], whole=False)
            case b"n":
                self.asked_position += 1
            case b"m" | b"h" | b"l" | b"t" | b"u" | b"c" | b"q":
                pass
            case _:
                self.unknown.append(found[0])

    def _erase(self, how: int, *, whole: bool) -> None:
        row = self.rows[self.y]
        before, after = range(self.x + 1), range(self.x, self.width)
        for x in {0: after, 1: before, 2: range(self.width)}.get(how, ()):
            row[x] = " "
        if whole:
            for y in {0: range(self.y + 1, self.height), 1: range(self.y)}.get(
                how, range(self.height)
            ):
                self.rows[y] = [" "] * self.width


class Terminal:
    """A program in a pseudo-terminal of its own. Close it."""

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        environ: Mapping[str, str],
        size: tuple[int, int] = (100, 30),
    ) -> None:
        self.screen = Screen(*size)
        self.raw = bytearray()
        self.code: int | None = None
        self._fd, theirs = pty.openpty()
        self._size(size)
        self._process = forked.Popen(
            command, terminal=True, stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder,
            env={**environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"},
        )  # fmt: skip
        self.pid = self._process.pid
        os.close(theirs)

    def resize(self, size: tuple[int, int]) -> None:
        """Another size; the program is told."""
        before, self.screen = self.screen, Screen(*size)
        self.screen._rest, self.screen.unknown = before._rest, before.unknown
        self._size(size)

    def _size(self, size: tuple[int, int]) -> None:
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))

    def keys(self, text: str) -> None:
        """Type. `\\udcff` is the byte ff."""
        data = text.encode("utf-8", "surrogateescape")
        end = time.monotonic() + 20
        while data and self.code is None:
            if not select.select([], [self._fd], [], 0)[1]:
                assert time.monotonic() < end, f"nobody reads the keys:\n{self.screen.text}"
                self.read()
                continue
            data = data[os.write(self._fd, data[:1024]) :]

    def read(self, seconds: float = 0.02) -> bytes:
        """What was written meanwhile."""
        ready, _, _ = select.select([self._fd], [], [], seconds)
        if not ready:
            return b""
        try:
            data = os.read(self._fd, 1 << 16)
        except OSError:  # the program has gone
            self._wait()
            return b""
        self.raw += data
        before = self.screen.asked_position
        self.screen.feed(data)
        for _ in range(self.screen.asked_position - before):
            self.keys(f"\x1b[{self.screen.y + 1};{self.screen.x + 1}R")
        return data

    def until(self, true: Callable[[str], bool], seconds: float = 30.0) -> str:
        """Read until the screen is so."""
        end = time.monotonic() + seconds
        while not true(self.screen.text):
            if time.monotonic() > end or self.code is not None:
                raise AssertionError(
                    f"it did not come to that (exit code {self.code}):\n{self.screen.text}"
                )
            self.read()
        return self.screen.text

    def sees(self, *texts: str, seconds: float = 30.0) -> str:
        """Read until all this is on the screen."""
        return self.until(lambda screen: all(text in screen for text in texts), seconds)

    def ended(self, seconds: float = 20.0) -> int:
        """The exit code, once the program has gone."""
        end = time.monotonic() + seconds
        while self.code is None:
            if time.monotonic() > end:
                raise AssertionError(f"it does not end:\n{self.screen.text}")
            self.read()
        return self.code

    def cpu(self) -> float:
        """CPU seconds of the program so far, its finished children included."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(int(fields[index]) for index in (11, 12, 13, 14)) / os.sysconf("SC_CLK_TCK")

    def memory(self) -> float:
        """Resident memory in megabytes."""
        line = next(
            line
            for line in Path(f"/proc/{self.pid}/status").read_text().splitlines()
            if "VmRSS" in line
        )
        return int(line.split()[1]) / 1024

    def kill(self) -> None:
        """SIGKILL."""
        os.kill(self.pid, signal.SIGKILL)
        self._wait()

    def close(self) -> None:
        """End it if it still runs."""
        if self.code is None:
            self.kill()
        os.close(self._fd)

    def _wait(self) -> None:
        if self.code is None:
            self.code = self._process.wait()
