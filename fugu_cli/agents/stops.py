"""Texts that end a reply, where the server takes none: what comes after one is read, for it is paid for, and left out.

Under responses.py. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from fugu_cli.messages import Reply


class Stops:
    """One reply's. What may be the beginning of a stop is held back until it is known."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._room = max((len(stop) for stop in self._stops), default=1) - 1
        self._held = ""
        self._over = False

    def feed(self, text: str) -> str:
        """The part of it that is to be shown now."""
        if self._over:
            return ""
        held = self._held + text
        shown = self.cut(held)
        self._over = len(shown) < len(held)
        if self._over:
            self._held = ""
            return shown
        place = max(len(held) - self._room, 0)
        self._held = held[place:]
        return held[:place]

    def rest(self) -> str:
        """What was held back, at the end."""
        held, self._held = self._held, ""
        return held

    def cut(self, text: str) -> str:
        """The text up to the first stop in it."""
        places = [place for stop in self._stops if (place := text.find(stop)) >= 0]
        return text[: min(places)] if places else text

    def ended(self, reply: Reply) -> Reply:
        """The reply up to the first stop. Whatever ended it behind that, a limit above all, did not."""
        text = self.cut(reply.text)
        over = "end" if reply.stop == "length" and text != reply.text else reply.stop
        return reply.model_copy(update={"text": text, "stop": over})
