"""Server-sent events, sans IO: bytes go in as they arrive, whole events come out.

Stands between the connection (http.py) and the wires (openai.py, anthropic.py). It must not know what the data means.
The grammar is the WHATWG one: lines end in LF, CR or CRLF; `data` lines of one event are joined by newlines; a line
that starts with a colon is a comment; a blank line ends the event. Bytes that are no UTF-8 become replacement
characters, as the grammar asks, so that nothing but an endless event can be refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from fugu_cli.errors import AgentError

LIMIT = 8 * 1024 * 1024
"""Bytes of one event: a server that sends more without a blank line is not speaking this protocol."""

BOM = b"\xef\xbb\xbf"


class Heard(IntEnum):
    """How far a reply has come: nothing of it yet, a token at least, all but what it cost, all of it, or all
    that is wanted."""

    NOTHING = 0
    BEGUN = 1
    SAID = 2
    WHOLE = 3
    ENOUGH = 4


@dataclass(frozen=True)
class ServerEvent:
    """One event. `whole` is False for what was pending when the stream ended: its last line may be cut short."""

    data: str
    name: str = "message"
    whole: bool = True


class Decoder:
    """Bytes in any portions -> events, the same ones for every portioning. Raises AgentError(kind="protocol")."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._data: list[str] = []
        self._name = ""
        self._size = 0
        self._after_cr = False
        self._first = True

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """The events that `chunk` completes."""
        if not chunk:
            return []
        rest = chunk[1:] if self._after_cr and chunk.startswith(b"\n") else chunk
        self._after_cr, chunk = chunk.endswith(b"\r"), rest
        lines = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        found = []
        for part in lines[:-1]:
            self._grow(part)
            if (event := self._close_line()) is not None:
                found.append(event)
        self._grow(lines[-1])
        return found

    def finish(self) -> list[ServerEvent]:
        """The event that the end of the stream left without its blank line, if there is one."""
        whole = not self._line
        if self._line:
            self._close_line()
        event = self._dispatch()
        return [] if event is None else [ServerEvent(event.data, event.name, whole=whole)]

    def _grow(self, part: bytes) -> None:
        self._line += part
        self._size += len(part)
        if self._size > LIMIT:
            raise AgentError(
                f"the server sent more than {LIMIT // 1024 // 1024} MiB without ending an event",
                kind="protocol",
                hint="Check that `base_url` is the address of an API, not of a download.",
            )

    def _close_line(self) -> ServerEvent | None:
        line = bytes(self._line)
        self._line.clear()
        if self._first:
            self._first = False
            line = line.removeprefix(BOM)
        if not line:
            return self._dispatch()
        field, _, value = line.decode("utf-8", "replace").partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            self._data.append(value)
        elif field == "event":
            self._name = value
        return None

    def _dispatch(self) -> ServerEvent | None:
        event = ServerEvent("\n".join(self._data), self._name or "message") if self._data else None
        self._data.clear()
        self._name = ""
        self._size = 0
        return event
