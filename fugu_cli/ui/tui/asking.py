"""The oldest question, shown as soon as it is known what its call would change.

Between room.py and the front. The change is worked out in a thread: comparing a large file takes longer than a frame.
An answer counts for the question that is shown, never for one that nobody has seen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fugu_cli.ui.tui.draw import diff

if TYPE_CHECKING:
    from fugu_cli.ui.tui.front import Front
    from fugu_cli.ui.tui.working import Question

LARGEST = 1_000_000
"""Bytes of a file whose change is still shown in its surroundings."""


class Asking:
    """`question` is the one that people see and that waits for an answer; None while there is none."""

    def __init__(self, front: Front, root: Path) -> None:
        self._shown: Question | None = None
        self._front = front
        self._root = root
        self._questions: Sequence[Question] = ()
        self._patch = ""
        self._looking: asyncio.Task[None] | None = None

    @property
    def question(self) -> Question | None:
        """The question an answer is for."""
        return self._shown if self._questions and self._questions[0] is self._shown else None

    def ask(self, questions: Sequence[Question]) -> None:
        """These wait for an answer now, the oldest first."""
        self._questions = tuple(questions)
        if not self._questions:
            self.close()
            self._shown = None
            self._front.question(None, 0, "")
        elif self._questions[0] is self._shown:
            self._front.question(self._shown, len(self._questions) - 1, self._patch)
        elif self._looking is None:
            self._looking = asyncio.get_running_loop().create_task(self._look())

    async def _look(self) -> None:
        """What the oldest one would change; another one may be the oldest then."""
        question = self._questions[0]
        self._patch = await asyncio.to_thread(diff.of_call, question.call, self._content)
        self._shown, self._looking = question, None
        self.ask(self._questions)

    def close(self) -> None:
        """Nothing is asked any more."""
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None

    def _content(self, path: str) -> str | None:
        """A file's text; None where it is not a text of a sensible size."""
        try:
            file = (self._root / path).resolve()
            if not file.is_file() or file.stat().st_size > LARGEST:
                return None
            return file.read_text(encoding="utf-8")
        except (OSError, ValueError):
            return None
