"""What a model thinks before its answer, where its server leaves it in the text: between <think> and </think>.

Under openai_stream.py: servers without a parser for their model's reasoning. Left there, a verdict would not be found,
and every other agent would read it. Where a template has written the first mark only the second one comes, alone on
its line. Pure.
"""

from __future__ import annotations

import re

OPENS, CLOSES = "<think>", "</think>"
ALONE = re.compile(r"(.*?)\n</think>[ \t]*\n+", re.DOTALL)


class Thoughts:
    """Text as it comes. `feed` returns what of it is to be shown, `parts` the whole of it: answer and thought."""

    def __init__(self) -> None:
        self._said: list[str] = []
        self._held: list[str] = []
        """What may be, or is, the beginning of a thought."""
        self._tail = ""
        """The end of what is held of an open thought, in which its end may have begun; "" where none is open."""
        self._thought = ""
        self._blank = True
        """Nothing but white space has come."""
        self._begins = self._decided = False

    def feed(self, text: str) -> str:
        """The part of it that is no thought; a beginning that may be one is held back."""
        if not self._decided:
            text = self._decide(text)
        elif self._begins:
            text = text.lstrip()
        self._begins = self._begins and not text
        if text:
            self._said.append(text)
        return text

    def parts(self) -> tuple[str, str]:
        """The answer, and what was thought before it. A thought that does not end is no thought."""
        text = "".join((*self._said, *self._held))
        alone = ALONE.match(text) if not self._thought and OPENS not in text else None
        return (text[alone.end() :], alone[1].strip()) if alone else (text, self._thought)

    def _decide(self, text: str) -> str:
        self._held.append(text)
        self._blank = self._blank and not text.strip()
        if self._blank:
            return ""
        if self._tail and CLOSES not in self._tail + text:
            self._tail = (self._tail + text)[-len(CLOSES) :]
            return ""
        held = "".join(self._held)
        lead = held.lstrip()
        if not lead.startswith(OPENS) and not OPENS.startswith(lead):
            self._held, self._decided = [], True
            return held
        thought, closed, rest = lead.removeprefix(OPENS).partition(CLOSES)
        if not closed:
            self._tail = lead[-len(CLOSES) :] if lead.startswith(OPENS) else ""
            return ""
        self._held, self._decided, self._begins = [], True, True
        self._thought = thought.strip()
        return rest.lstrip()
