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
        self._held = ""
        self._thought = ""
        self._begins = self._decided = False

    def feed(self, text: str) -> str:
        """The part of it that is no thought; a beginning that may be one is held back."""
        if not self._decided:
            text = self._decide(self._held + text)
        elif self._begins:
            text = text.lstrip()
        self._begins = self._begins and not text
        self._said.append(text)
        return text

    def parts(self) -> tuple[str, str]:
        """The answer, and what was thought before it. A thought that does not end is no thought."""
        text = "".join(self._said) + self._held
        alone = ALONE.match(text) if not self._thought and OPENS not in text else None
        return (text[alone.end() :], alone[1].strip()) if alone else (text, self._thought)

    def _decide(self, held: str) -> str:
        lead = held.lstrip()
        if not lead.startswith(OPENS) and not OPENS.startswith(lead):
            self._held, self._decided = "", True
            return held
        thought, closed, rest = lead.removeprefix(OPENS).partition(CLOSES)
        if not closed:
            self._held = held
            return ""
        self._held, self._decided, self._begins = "", True, True
        self._thought = thought.strip()
        return rest.lstrip()
