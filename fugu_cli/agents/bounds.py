"""How much one reply may hold, and how much of a stream is read for it: a server that never ends must not fill memory.

Under the wires' decoders, which count what they keep, and http.py, which counts what arrives. Far above what any model
says: 128,000 tokens are about 600,000 characters.
"""

from __future__ import annotations

from fugu_cli.errors import AgentError

CHARACTERS = 4 * 1024 * 1024
"""Of text, thoughts and arguments together."""
PARTS = 2000
"""Calls, or blocks of a message."""
EVENTS = 500_000
"""Of one stream; servers send one or two a token."""
BYTES = 256 * 1024 * 1024
"""Of one stream, with all that is said around each token."""


class Held:
    """Counts what is kept of the reply of the agent `name` at `host`."""

    def __init__(self, name: str, host: str) -> None:
        self._who = f"{name}: {host}"
        self._characters = 0
        self._events = 0
        self._bytes = 0

    def add(self, *texts: str) -> None:
        """These are kept. Raises AgentError where it is more than a reply can be."""
        self._characters += sum(map(len, texts))
        if self._characters > CHARACTERS:
            raise self._error(f"more than {CHARACTERS:,} characters")

    def parts(self, count: int) -> None:
        """So many calls or blocks have been begun. Raises AgentError likewise."""
        if count > PARTS:
            raise self._error(f"more than {PARTS:,} calls or blocks")

    def arrived(self, size: int, events: int) -> None:
        """A portion of a stream: its bytes, and the events it completed. Raises AgentError likewise."""
        self._bytes += size
        self._events += events
        if self._bytes > BYTES or self._events > EVENTS:
            raise self._error(f"more than {BYTES // 1024 // 1024} MiB or {EVENTS:,} events")

    def _error(self, what: str) -> AgentError:
        return AgentError(
            f"{self._who} sent {what} as one reply, and no end",
            kind="protocol",
            hint="The server or its model repeats itself. Try later, or use another agent.",
        )
