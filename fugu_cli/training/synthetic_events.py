"""Synthetic events: requests, turns, tests and words of a made-up session, as the loop would leave them.

Below matrix_sessions.py, which decides what happens. Everything random comes from the given generator.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from fugu_cli.events import (
    EVIDENCE,
    Asked,
    Assigned,
    Change,
    Event,
    Failed,
    Finished,
    Permitted,
    Replied,
    Role,
    ToolRan,
    Undone,
)
from fugu_cli.messages import Call
from fugu_cli.training.matrix import Seat

SAID = ("", "", "I changed the condition so that the last element is included.", "Fixed.", "The bug is fixed now.")
"""Closing words of a Worker; a small model's edit mostly comes without any."""
TALK = ("The function looks correct.", "You should check the loop's condition.", "I cannot find the bug.")


class EventWriter:
    """Agents are called by their rows' names, so a transcript of these events names what the head chooses among."""

    def __init__(self, seats: Sequence[Seat], draw: random.Random) -> None:
        self._seats = seats
        self._draw = draw

    def asked(self, text: str, *, judged: bool) -> Asked:
        """A request; `judged`: the tests are its acceptance check."""
        suite = "pytest" if judged else None
        return Asked(text=text, snapshot="tree", test_command=suite, until=(suite,) if suite else ())

    def said(self, turn: int, row: int, role: Role, text: str) -> list[Event]:
        """A turn of words alone."""
        return [self._assigned(turn, row, role), Replied(turn=turn, agent=self._seats[row].row, text=text)]

    def failed(self, turn: int, row: int) -> list[Event]:
        """A turn whose agent did not answer."""
        failed = Failed(turn=turn, what=self._seats[row].row, kind="network", message="connection reset")
        return [self._assigned(turn, row, "worker"), failed]

    def earlier(self) -> list[Event]:
        """A request that was answered before, in the same session."""
        answer = self.said(1, self._draw.randrange(len(self._seats)), "worker", "It reads the file line by line.")
        return [self.asked("What does the parser do?", judged=False), *answer, Finished(reason="answered")]

    def worked(self, turn: int, row: int, path: str, ok: bool | None) -> list[Event]:
        """A Worker's turn on `path`; `ok` is how the tests ended, None where there are none.

        Where the tests go on failing the Worker may have changed nothing at all: small models often only talk.
        """
        attempts = self._seats[row].attempts if ok is not None else 1
        if ok is False and attempts == 1 and self._draw.random() < 0.25:
            return self.said(turn, row, "worker", self._draw.choice((path, *TALK)))
        facts: list[Event] = [self._assigned(turn, row, "worker")]
        draws = attempts if ok is False else self._draw.randint(1, attempts)
        for number in range(1, draws + 1):
            last = number == draws
            facts += self._drawn(turn, row, path, number)
            facts += self.tests(turn, f"e{turn}-{number}", bool(ok) and last) if ok is not None else []
            if attempts > 1 and (not last or ok is False):
                facts.append(Undone(snapshot="tree", turn=turn, reason="the tests failed"))
        return facts

    def tests(self, turn: int, id: str, ok: bool) -> list[Event]:
        """A run of the tests by fugu itself."""
        failed, passed = self._draw.randint(1, 6), self._draw.randint(0, 8)
        output = f"{passed + 1} passed in 0.1s" if ok else f"{failed} failed, {passed} passed in 0.1s"
        call = Call(id=id, tool="run_tests")
        ran = ToolRan(turn=turn, call=call, output=output, ok=ok)
        return [Permitted(turn=turn, call=call, allowed=True, by=EVIDENCE), ran]

    def _drawn(self, turn: int, row: int, path: str, number: int) -> list[Event]:
        """One draw's reply, with the calls that change `path`."""
        call = Call.make(f"t{turn}-{number}", self._draw.choice(("write", "write", "edit")), path=path)
        look = Call.make(f"l{turn}-{number}", "read", path=path)
        calls = (look, call) if self._draw.random() < 0.3 else (call,)
        facts: list[Event] = [Replied(turn=turn, agent=self._seats[row].row, text=self._draw.choice(SAID), calls=calls)]
        for each in calls:
            changes = (Change(path=path, before="a", after=f"b{turn}-{number}"),) if each is call else ()
            facts.append(Permitted(turn=turn, call=each, allowed=True, by="policy"))
            facts.append(ToolRan(turn=turn, call=each, output="ok", ok=True, changes=changes))
        return facts

    def _assigned(self, turn: int, row: int, role: Role) -> Assigned:
        return Assigned(turn=turn, agent=self._seats[row].row, role=role, by="story", snapshot="tree")
